"""Accuracy of private classifiers of tables at equal ε, with defaults only.

    ANTIPHON_DATA=folder python benchmarks/accuracy.py --out rows.json \
        --diffprivlib-python PATH/TO/python --opacus-python PATH/TO/python

Our estimator with independent noise and with the automatic mechanism, beside logistic regression of
diffprivlib, Opacus' DP-SGD on an MLP with about as many parameters (at least 16 hidden units), and, not
private, the same KAN and logistic regression. δ = n^-1.1, add-remove, Poisson batches; every library gets
the same public bounds: all see the same encoded features. Seeds change noise, batches and the start; the
split is the data set's own.

Opacus has no default learning rate: it gets the best of three, by test accuracy, which favours it. Rows are
kept as they come: a run that was broken off goes on.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from sklearn.linear_model import LogisticRegression

from antiphon.mechanisms import Independent
from antiphon.tables.data import Dataset, load
from antiphon.tables.estimators import PrivateKANClassifier
from antiphon_papers.common.generators import synthetic_logistic

EPSILONS = (0.5, 1.0, 2.0, 8.0)
PEERS = ("diffprivlib", "opacus")

Row = dict[str, Any]


def sets(only: str) -> list[str]:
    names = ["breast-cancer", "adult", "credit-default", "mnist-01", "synthetic", "gue-promoters"]
    return [name for name in names if not only or name in only.split(",")]


def dataset(name: str) -> Dataset:
    return synthetic_logistic(20_000, seed=0) if name == "synthetic" else load(name)


def ours(data: Dataset, epsilon: float, seed: int) -> list[Row]:
    """Both mechanisms; where the automatic one is independent noise, it is the same run."""
    chosen = _fitted(data, epsilon, seed, "auto")
    if chosen["mechanism"] == str(Independent()):
        independent = chosen
    else:
        independent = _fitted(data, epsilon, seed, "independent")
    return [{**independent, "variant": "independent"}, {**chosen, "variant": "correlated"}]


def _fitted(data: Dataset, epsilon: float, seed: int, mechanism: str) -> Row:
    began = time.perf_counter()
    model = PrivateKANClassifier(
        epsilon, bounds=data.schema, classes=data.classes, mechanism=mechanism, random_state=seed
    )
    model.fit(data.X_train, data.y_train)
    return {
        "accuracy": float(model.score(data.X_test, data.y_test)),
        "mechanism": str(model.plan_.mechanism),
        "certified": model.certificate_.epsilon,
        "seconds": time.perf_counter() - began,
    }


def not_private(data: Dataset) -> list[Row]:
    x, y, x_test, y_test = data.encoded()
    linear = LogisticRegression(max_iter=2000).fit(x, y)
    torch.manual_seed(0)
    model = _network(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    features, labels = torch.tensor(x), torch.tensor(y, dtype=torch.float32)
    for _ in range(30 * max(1, 20_000 // len(x))):
        for rows in torch.randperm(len(x)).split(512):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            out = model(features[rows])[:, 0]
            torch.nn.functional.binary_cross_entropy_with_logits(out, labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        right = (model(torch.tensor(x_test))[:, 0] > 0).numpy() == y_test
    return [
        {"variant": "logistic, not private", "accuracy": float(linear.score(x_test, y_test))},
        {"variant": "KAN, not private", "accuracy": float(right.mean())},
    ]


def theirs(python: str, script: str, data: Dataset, options: dict[str, Any]) -> list[Row]:
    x, y, x_test, y_test = data.encoded()
    parameters = sum(p.numel() for p in _network(data).parameters())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, x=x, y=y, x_test=x_test, y_test=y_test)
        asked = {**options, "columns": len(data.schema.columns), "parameters": parameters}
        command = [python, str(Path(__file__).with_name(script)), str(path), json.dumps(asked)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def _network(data: Dataset) -> torch.nn.Module:
    return PrivateKANClassifier()._network(data.schema, 1)


def measure(options: argparse.Namespace) -> list[Row]:
    out = Path(options.out)
    found: list[Row] = json.loads(out.read_text()) if out.exists() else []
    seeds, done = range(options.seeds), {row["key"] for row in found}
    pythons = {"diffprivlib": options.diffprivlib_python, "opacus": options.opacus_python}

    def keep(key: str, data: Dataset, rows: list[Row], **also: Any) -> None:
        common = {"key": key, "data": data.name, "majority": data.majority}
        found.extend({**common, **also, **row} for row in rows)
        out.write_text(json.dumps(found, indent=1))

    for name in track(sets(options.only), "Data sets", console=Console(stderr=True)):
        data = dataset(name)
        if f"{name} plain" not in done:
            keep(f"{name} plain", data, not_private(data))
        for epsilon in EPSILONS:
            for seed in seeds:
                key = f"{name} ours {epsilon} {seed}"
                if key not in done:
                    keep(key, data, ours(data, epsilon, seed), epsilon=epsilon, seed=seed)
        for peer, python in pythons.items():
            key = f"{name} {peer}"
            if python and key not in done:
                asked = {"epsilons": EPSILONS, "seeds": len(seeds)}
                keep(key, data, theirs(python, f"accuracy_{peer}.py", data, asked))
    return found


def table(found: list[Row]) -> str:
    """Means and standard errors in per cent, as markdown."""
    variants = list(dict.fromkeys(row["variant"] for row in found if "epsilon" in row))
    plain = list(dict.fromkeys(row["variant"] for row in found if "epsilon" not in row))
    lines = ["| data | ε | " + " | ".join([*variants, "correlated − independent", *plain]) + " |"]
    lines.append("|" + "---|" * (len(variants) + len(plain) + 3))
    for name in dict.fromkeys(row["data"] for row in found):
        for epsilon in EPSILONS:
            here = [r for r in found if r["data"] == name and r.get("epsilon") in (epsilon, None)]
            by = {v: [100 * r["accuracy"] for r in here if r["variant"] == v] for v in variants}
            pairs = zip(by.get("correlated", ()), by.get("independent", ()), strict=True)
            cells = [_mean(by[v]) for v in variants] + [_mean([a - b for a, b in pairs], sign=True)]
            cells += [
                f"{100 * next(r['accuracy'] for r in here if r['variant'] == v):.2f}" for v in plain
            ]
            lines.append(f"| {name} | {epsilon:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean(values: list[float], *, sign: bool = False) -> str:
    if not values:
        return ""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):{'+' if sign else ''}.2f} ± {error:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="accuracy.json")
    parser.add_argument("--only", default="", help="data sets, such as adult,synthetic")
    parser.add_argument("--seeds", type=int, default=5)
    for peer in PEERS:
        parser.add_argument(f"--{peer}-python", help=f"python of an environment with {peer}")
    torch.set_num_threads(1)
    print(table(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
