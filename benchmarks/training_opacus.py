"""The steps of ``training.py`` in Opacus: JSON rows as last line.

The models are the same; KANs have splines by torch operations. Rows of the data are drawn at random,
then go to Opacus' model and optimizer directly, which spares it its loader.
"""

import warnings
from typing import Any

import torch
from opacus import PrivacyEngine
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from training_cases import CASES, RATE, plain_step
from training_timing import (
    Row,
    Step,
    chosen,
    dump,
    in_own_process,
    parser,
    peak,
    protocol_of,
    rows,
    timed,
)

MODES = ("hooks", "functorch", "ghost")
LARGEST = 1e9  # bytes of gradients of single examples


class _Loss(nn.Module):
    """A criterion whose reduction Opacus can set."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.reduction = function, "mean"

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.function(x, y, reduction=self.reduction)


def private_step(case: str, batch: int, mode: str, data: tuple[Tensor, Tensor]) -> Step:
    model, criterion = CASES[case].model(), _Loss(CASES[case].loss)
    trained = [p for p in model.parameters() if p.requires_grad]
    made: Any = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(trained, lr=RATE),
        criterion=criterion,
        data_loader=DataLoader(TensorDataset(*data), batch_size=batch),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
        grad_sample_mode=mode,
    )
    private, optimizer = made[:2]
    loss = made[2] if mode == "ghost" else criterion

    def step() -> None:
        drawn = torch.randint(len(data[0]), (batch,))
        x, y = (tensor.index_select(0, drawn) for tensor in data)
        optimizer.zero_grad()
        loss(private(x), y).backward()
        optimizer.step()

    return step


def makers(case: str, batch: int, data: tuple[Tensor, Tensor]) -> dict[str, Any]:
    model = CASES[case].model
    size = 4 * batch * sum(p.numel() for p in model().parameters() if p.requires_grad)
    found: dict[str, Any] = {"plain": lambda: plain_step(model(), CASES[case].loss, data, batch)}
    for mode in MODES:
        if mode == "ghost" or size <= LARGEST:
            found[mode] = lambda mode=mode: private_step(case, batch, mode, data)
    return found


def measure(case: str, batch: int, options: Any) -> list[Row]:
    torch.manual_seed(0)
    steps = makers(case, batch, CASES[case].data(CASES[case].n))
    times = timed({name: make() for name, make in steps.items()}, protocol_of(options))
    memory = {}
    if not options.quick:
        for name in steps:
            used = in_own_process((case, batch, name))
            if used is not None:
                memory[name] = used
    return rows("opacus", case, batch, times, memory)


def memory_of(case: str, batch: int, variant: str) -> float:
    torch.manual_seed(0)
    data, small = CASES[case].data(CASES[case].n), CASES[case].data(64)
    step = makers(case, 8, small)[variant]()
    step()
    del step, small
    return peak(makers(case, batch, data)[variant])


def main() -> None:
    warnings.simplefilter("ignore")
    options = parser(__doc__).parse_args()
    torch.set_num_threads(1)
    if options.memory_of:
        case, batch, variant = options.memory_of
        print(memory_of(case, int(batch), variant))
        return
    possible = {name: case for name, case in CASES.items() if case.is_possible}
    places = chosen(options, possible, {name: case.batch for name, case in possible.items()})
    dump(row for case, batch in places for row in measure(case, batch, options))


if __name__ == "__main__":
    main()
