"""Accuracy of the MNIST network that every library quotes, at equal ε.

    python benchmarks/mnist.py FOLDER [--seeds 3] [--epsilon 1.16 2.91 6.86] [--mechanism independent auto]

FOLDER holds ``mnist.npz`` (arrays X_train, y_train, X_test, y_test). The network is that of the examples of
Opacus and TensorFlow Privacy. All hyperparameters are fixed in advance; results are printed as JSON lines.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import antiphon as ap
from antiphon.mechanisms import AbstractMechanism

DELTA = 1e-5
BATCH, EPOCHS, CLIP_NORM, RATE = 512, 10, 0.1, 20.0


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def load(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images scaled by public constants."""
    with np.load(folder / "mnist.npz") as archive:
        parts = [
            torch.from_numpy(archive[name]) for name in ("X_train", "X_test", "y_train", "y_test")
        ]
    train, test = ((x.reshape(-1, 1, 28, 28).float() / 255 - 0.1307) / 0.3081 for x in parts[:2])
    return train, parts[2].long(), test, parts[3].long()


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(part).argmax(1) for part in torch.split(x, 1000)])
    return float((found == y).double().mean())


def one(
    data: tuple[Tensor, ...],
    epsilon: float,
    mechanism: str | AbstractMechanism,
    seed: int,
    options: argparse.Namespace,
) -> tuple[dict[str, object], AbstractMechanism]:
    """Train and test once; returns the mechanism, too, so that it is chosen once per ε."""
    x, y, test, labels = data
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate)
    began = time.perf_counter()
    run = ap.make_private(
        model, optimizer, (x, y), lambda model, x, y: F.cross_entropy(model(x), y),
        epsilon=epsilon, delta=DELTA, epochs=options.epochs, batch_size=options.batch_size,
        clip_norm=CLIP_NORM, mechanism=mechanism, seed=seed,
    )  # fmt: skip
    planned = time.perf_counter()
    run.train()
    row = {
        "epsilon": epsilon,
        "certified": run.certificate.epsilon,
        "mechanism": str(run.plan.mechanism),
        "noise_multiplier": run.plan.noise_multiplier,
        "seed": seed,
        "accuracy": accuracy(model, test, labels),
        "learning_rate": options.rate,
        "batch": options.batch_size,
        "epochs": options.epochs,
        "seconds_to_plan": round(planned - began, 1),
        "seconds_to_train": round(time.perf_counter() - planned, 1),
    }
    return row, run.plan.known_mechanism()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--batch-size", type=int, default=BATCH)
    parser.add_argument("--epochs", type=float, default=EPOCHS)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.16, 2.91, 6.86])
    parser.add_argument("--mechanism", nargs="+", default=["independent", "auto"])
    options = parser.parse_args()
    data = load(options.folder)
    for epsilon in options.epsilon:
        for mechanism in options.mechanism:
            chosen: str | AbstractMechanism = mechanism
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                row, chosen = one(data, epsilon, chosen, seed, options)
                print(json.dumps({"asked": mechanism} | row), flush=True)


if __name__ == "__main__":
    main()
