"""How long imports take, as ratios to ``import torch``: best of several processes each.

Goal: ``import antiphon`` and its first names take no longer than torch's own import plus 0.5 s. Nothing
passes or fails here.
"""

import argparse
import json
import subprocess
import sys

from rich.console import Console
from rich.table import Table

WHAT = {
    "torch": "import torch",
    "antiphon": "import antiphon",
    "make_private": "import antiphon; antiphon.make_private",
    "PrivateKANClassifier": "import antiphon; antiphon.PrivateKANClassifier",
    "certify": "import antiphon; antiphon.certify",
    "antiphon --help": "import antiphon.commands.main",
}
CODE = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"


def seconds(what: str) -> float:
    run = [sys.executable, "-c", CODE.format(what)]
    return float(subprocess.run(run, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {name: float("inf") for name in WHAT}
    for _ in range(options.runs):  # interleaved, so that other work hits all alike
        for name, what in WHAT.items():
            found[name] = min(found[name], seconds(what))
    if options.json:
        print(json.dumps(found))
        return
    table = Table(title=f"Best of {options.runs} processes")
    for column in ("import", "s", "to torch", "goal, s"):
        table.add_column(column, justify="left" if column == "import" else "right")
    goal = f"{found['torch'] + 0.5:.2f}"
    for name, time in found.items():
        table.add_row(
            name, f"{time:.2f}", f"{time / found['torch']:.2f}", "" if name == "torch" else goal
        )
    Console().print(table)


if __name__ == "__main__":
    main()
