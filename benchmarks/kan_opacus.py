"""The steps of ``kan.py`` in Opacus: JSON rows as last line.

Rows of the data go to Opacus' model and optimizer directly, which spares it its loader.
"""

import argparse
import warnings
from typing import Any

import torch
from kan_cases import CASES, data, draw, plain_step, torch_model
from opacus import PrivacyEngine
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.utils.data import DataLoader, TensorDataset
from training_cases import RATE
from training_timing import Protocol, Step, dump, rows, timed

LARGEST = 2e9  # bytes of gradients of single examples


class _Loss(nn.Module):
    """A criterion whose reduction Opacus can set."""

    reduction = "mean"

    def forward(self, outputs: Tensor, signs: Tensor) -> Tensor:
        losses = softplus(-signs * outputs)
        return losses.mean() if self.reduction == "mean" else losses


def private_step(case: str, x: Tensor, y: Tensor, batch: int, mode: str) -> Step:
    model, criterion = torch_model(case), _Loss()
    made: Any = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        criterion=criterion,
        data_loader=DataLoader(TensorDataset(x, y), batch_size=batch),
        noise_multiplier=1.0,
        max_grad_norm=0.5,
        poisson_sampling=False,
        grad_sample_mode=mode,
    )
    private, optimizer = made[:2]
    objective = made[2] if mode == "ghost" else criterion

    def step() -> None:
        inputs, signs = draw(x, y, batch)
        optimizer.zero_grad()
        objective(private(inputs), signs).backward()
        optimizer.step()

    return step


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for case, shape in CASES.items():
        if options.only and case not in options.only.split(","):
            continue
        torch.manual_seed(0)
        x, y = data(case)
        for batch in (256, shape.n):
            steps: dict[str, Step] = {"plain": plain_step(torch_model(case), x, y, batch)}
            size = 4 * batch * sum(p.numel() for p in torch_model(case).parameters())
            for mode in ("hooks", "functorch", "ghost"):
                if mode == "ghost" or size <= LARGEST:
                    steps[mode] = private_step(case, x, y, batch, mode)
            protocol = Protocol(1, 3, 5) if options.quick or batch > 256 else Protocol()
            found += rows("opacus", case, batch, timed(steps, protocol), {})
    dump(found)


if __name__ == "__main__":
    main()
