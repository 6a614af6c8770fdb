"""A script for Opacus with two changes: the import, and the length of the run.

python examples/from_opacus.py
"""

import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from antiphon import PrivacyEngine  # was: from opacus import PrivacyEngine

EPOCHS = 3


def main() -> None:
    """As in the tutorials of Opacus."""
    x = torch.randn(1_000, 10)
    y = (x[:, 0] + x[:, 1] > 0).long()
    model: nn.Module = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    train_loader = DataLoader(TensorDataset(x, y), batch_size=100, shuffle=True)

    engine = PrivacyEngine()
    with warnings.catch_warnings():
        # It says that batches are drawn by the engine: that is wanted here.
        warnings.filterwarnings("ignore", "the loader's batches are replaced")
        model, optimizer, batches = engine.make_private(
            module=model,
            optimizer=optimizer,
            data_loader=train_loader,
            noise_multiplier=1.1,
            max_grad_norm=1.0,
            epochs=EPOCHS,  # new
        )
    criterion = nn.CrossEntropyLoss()
    for epoch in range(EPOCHS):
        for inputs, labels in batches:
            optimizer.zero_grad()
            criterion(model(inputs), labels).backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: ε = {engine.get_epsilon(delta=1e-5):.2f} for the whole plan")
    print(engine.certificate)


if __name__ == "__main__":
    main()
