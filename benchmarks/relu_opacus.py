"""DP-SGD of Opacus on one ReLU neuron for `relu_losses.py`, in an environment of its own."""

import json
import sys
import warnings
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, EPOCHS = 256, 20
RATES = (0.03, 0.1, 0.3)


def loss(data: Any, epsilon: float, seed: int, rate: float) -> float:
    torch.manual_seed(seed)
    x, y, x_test, y_test = (
        torch.tensor(data[name], dtype=torch.float32) for name in ("x", "y", "x_test", "y_test")
    )
    model: Any = nn.Sequential(nn.Linear(x.shape[1], 1, bias=False), nn.ReLU())
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=rate)
    loader: Any = DataLoader(TensorDataset(x, y), batch_size=BATCH)
    model, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        target_epsilon=epsilon,
        target_delta=len(x) ** -1.1,
        epochs=EPOCHS,
        max_grad_norm=0.1 * x.shape[1] ** 0.5,
    )
    for _ in range(EPOCHS):
        for rows, labels in loader:
            optimizer.zero_grad()
            (((model(rows)[:, 0] - labels) ** 2).mean() / 2).backward()
            optimizer.step()
    with torch.no_grad():
        return float(((model(x_test)[:, 0] - y_test) ** 2).mean() / 2)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    asked: dict[str, Any] = json.loads(sys.argv[2])
    data = dict(np.load(sys.argv[1]))
    rows = []
    for epsilon in asked["epsilons"]:
        best = min(loss(data, epsilon, asked["seed"], rate) for rate in RATES)
        rows.append({"variant": "Opacus, the same neuron", "epsilon": epsilon, "loss": best})
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
