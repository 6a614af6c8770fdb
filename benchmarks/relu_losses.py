"""Test losses of private ReLU regression on the tables of `relu-figure-2`, beside other libraries.

    ANTIPHON_DATA=folder python benchmarks/relu_losses.py --out rows.json \
        --diffprivlib-python PATH/TO/python --opacus-python PATH/TO/python

Half of the mean squared error on a fifth of the records, at an ε that every method really keeps:
full-batch GLMtron and one pass of DP-MBGLMtron (replace-one), linear regression of diffprivlib with the
true minima and maxima as its bounds and answers cut to them, and Opacus on the same neuron (add-remove,
Poisson batches of 256, 20 epochs, our clip norm, the best of three learning rates *by test loss*, which
favours it). Splits, scaling and the column of ones are the same for all. Least squares without privacy
beside them.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from antiphon_papers.relu.experiments.neuron_curves import EPSILONS, Config, run
from antiphon_papers.relu.experiments.neuron_tables import TABLES, table

Row = dict[str, Any]

OURS = {"full-honest": "full-batch GLMtron", "mb-honest": "DP-MBGLMtron", "none": "least squares"}


def ours(data: str, seed: int) -> list[Row]:
    found = []
    for epsilon in EPSILONS:
        for method, label in OURS.items():
            loss = run(Config(data, method, epsilon, 500, seed))[-1]["test_loss"]
            found.append({"variant": label, "epsilon": epsilon, "loss": loss})
    return found


def theirs(python: str, script: str, data: str, seed: int) -> list[Row]:
    part = table(data, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, x=part.X_train, y=part.y_train, x_test=part.X_test, y_test=part.y_test)
        asked = json.dumps({"epsilons": EPSILONS, "seed": seed})
        command = [python, str(Path(__file__).with_name(script)), str(path), asked]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[Row] = json.loads(done.stdout.splitlines()[-1])
    return found


def printed(rows: list[Row]) -> str:
    """Means and standard errors, as markdown."""
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    lines = ["| table | ε | " + " | ".join(variants) + " |", "|---" * (len(variants) + 2) + "|"]
    for data in dict.fromkeys(row["data"] for row in rows):
        for epsilon in EPSILONS:
            cells = []
            for variant in variants:
                here = [
                    row["loss"]
                    for row in rows
                    if (row["data"], row["epsilon"], row["variant"]) == (data, epsilon, variant)
                ]
                error = np.std(here, ddof=1) / len(here) ** 0.5 if len(here) > 1 else float("nan")
                cells.append(f"{np.mean(here):.3g} ± {error:.1g}" if here else "")
            lines.append(f"| {data} | {epsilon:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--diffprivlib-python", default="")
    parser.add_argument("--opacus-python", default="")
    asked = parser.parse_args()
    peers = {"relu_diffprivlib.py": asked.diffprivlib_python, "relu_opacus.py": asked.opacus_python}
    rows: list[Row] = []
    for data in TABLES:
        for seed in range(asked.seeds):
            found = ours(data, seed)
            for script, python in peers.items():
                found += theirs(python, script, data, seed) if python else []
            rows += [{"data": data, "seed": seed, **row} for row in found]
            Path(asked.out).write_text(json.dumps(rows, indent=1))
    print(printed(rows))


if __name__ == "__main__":
    main()
