"""Compare every mechanism for a training plan: a table and a picture.

    python examples/compare_mechanisms.py --epochs 10 --batches 50 --out demo

The plan: EPOCHS passes over the data in the same order, BATCHES steps each.
"""

import argparse
from pathlib import Path

from rich.console import Console
from rich.progress import track

from antiphon.mechanisms import figure, table
from antiphon.participation import FixedEpochs, Once

DRAWN = ("independent", "tree", "lambda-cgd", "optimal cc", "nu-ftrl", "blt", "banded", "dense")


def main() -> None:
    """Parse, compare, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batches", type=int, default=50, help="steps per epoch")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    options = parser.parse_args()

    T = options.epochs * options.batches
    seen = FixedEpochs(options.epochs, options.batches) if options.epochs > 1 else Once()
    console = Console(stderr=options.json)
    result = table(
        T,
        seen,
        progress=lambda names: track(
            names, "Comparing mechanisms", console=console, transient=True
        ),
    )
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "mechanisms.png"
    found = {row.label: row.mechanism for row in result.rows}
    figure({name: found[name] for name in DRAWN if name in found}, T, seen).savefig(path, dpi=150)
    if options.json:
        print(result.to_json())
    else:
        console.print(result)
        worst = next(row for row in result.rows if row.label == "independent")
        factor = worst.loss / result.rows[0].loss
        console.print(
            f"At the same privacy, [b]{result.rows[0].label}[/b] puts {factor:.1f} times less noise into "
            f"the sums of gradients than independent noise (DP-SGD).\nPicture: {path}"
        )


if __name__ == "__main__":
    main()
