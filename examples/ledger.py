"""A budget for a data set: runs are entered before they start, and refused when it is spent.

python examples/ledger.py survey.ledger
"""

import argparse
from pathlib import Path

import antiphon as ap
from antiphon.errors import LedgerError
from antiphon.mechanisms import Independent


def main() -> None:
    """Spend until nothing is left."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("path", type=Path, nargs="?", default=Path("survey.ledger"))
    options = parser.parse_args()

    ledger = ap.Ledger.create(
        options.path,
        epsilon=3.0,
        delta=1e-5,
        relation="add-remove",
        data="survey of 2026",
        filter="rdp",  # later runs may depend on earlier results, and batches are amplified
    )
    plan = ap.Plan(n=10_000, sampling=ap.Poisson(rate=0.02), steps=500, mechanism=Independent())
    plan = ap.calibrate(plan, epsilon=1.0, delta=1e-5)
    for attempt in range(1, 11):
        try:
            ledger.spend(plan, f"attempt {attempt}")
        except LedgerError as refusal:
            print(f"attempt {attempt} is refused: {refusal}")
            break
        print(f"attempt {attempt} may run: {ledger.spent():.2f} of {ledger.budget[0]:g} are spent")


if __name__ == "__main__":
    main()
