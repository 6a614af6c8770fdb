"""From a CSV to a private model and its certificate.

    python examples/table.py [patients.csv --target ill] --out demo-table

Without a file, 3000 patients are invented. Bounds of numbers are found privately, within ε.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from antiphon import PrivateKANClassifier


def invented(n: int = 3_000) -> pd.DataFrame:
    """A table of patients who do not exist."""
    rng = np.random.default_rng(0)
    age, pressure = rng.integers(18, 95, n), rng.normal(125, 18, n)
    risk = 1 / (1 + np.exp(-(age - 60) / 10 - (pressure - 125) / 20))
    ill = np.where(rng.random(n) < risk, "yes", "no")
    return pd.DataFrame({"age": age, "pressure": pressure, "ill": ill})


def main() -> None:
    """Read, fit, write what may be shown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("table", nargs="?", type=Path, help="a CSV of numbers and one target")
    parser.add_argument("--target", default="ill")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("demo-table"))
    options = parser.parse_args()

    table = invented() if options.table is None else pd.read_csv(options.table)
    columns = table.drop(columns=options.target)
    bounds = {"age": (0, 120)} if "age" in columns else "private"  # known without looking
    model = PrivateKANClassifier(epsilon=options.epsilon, bounds=bounds, steps=options.steps)
    model.fit(columns, table[options.target])

    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "certificate.json").write_text(model.certificate_.to_json())
    model.plot().savefig(options.out / "effects.png")
    print(model.certificate_)
    print("No score is shown: on the training table it would not be private.")


if __name__ == "__main__":
    main()
