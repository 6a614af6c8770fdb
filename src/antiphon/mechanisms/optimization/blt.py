"""The best buffered linear Toeplitz encoder, by quasi-Newton on its scales and decays."""

from collections.abc import Callable

import numpy as np
import torch

from antiphon.linalg import Series
from antiphon.mechanisms.base import AbstractMechanism
from antiphon.mechanisms.blt import BLT
from antiphon.mechanisms.optimization.objective import (
    SquaredError,
    against_worst_pattern,
    quasi_newton,
    squared_sensitivity,
)
from antiphon.mechanisms.optimization.scalar import best_nu_ftrl
from antiphon.participation import AbstractParticipation

__all__ = ["best_blt"]

_MOST = 6
_WORTH_A_BUFFER = 1e-3


def best_blt(
    T: int,
    buffers: int | None,
    participation: AbstractParticipation,
    error: SquaredError,
    loss: Callable[[AbstractMechanism], float],
) -> BLT:
    """Add one buffer after another, each time from the best starts known.

    One start is the fit of the best ν-FTRL; the other adds a quickly decaying buffer to the optimum
    with one buffer less, because from the fit alone buffers may merge. Without a number of buffers,
    they are added until one more gains less than 0.1 %.
    """
    nu = best_nu_ftrl(T, loss)
    best: BLT | None = None
    for count in range(1, (buffers or _MOST) + 1):
        starts = [nu.buffered(T, count)] + ([_one_faster(best)] if best else [])
        found = [_descend(T, start, participation, error, loss) for start in starts]
        candidate = min(found, key=loss)
        if best and buffers is None and loss(candidate) > loss(best) * (1 - _WORTH_A_BUFFER):
            break
        best = candidate
    assert best is not None
    return best


def _one_faster(mechanism: BLT) -> BLT:
    fastest = min(mechanism.decays)
    return BLT((0.2, *mechanism.scales), (fastest**4, *mechanism.decays))


def _descend(
    T: int,
    start: BLT,
    participation: AbstractParticipation,
    error: SquaredError,
    loss: Callable[[AbstractMechanism], float],
) -> BLT:
    m = len(start.scales)
    decays = np.clip(start.decays, 1e-6, 1 - 1e-9)
    p0 = np.log(np.concatenate([np.maximum(start.scales, 1e-6), -np.log(decays)]))

    def solve(pattern: tuple[int, ...]) -> BLT:
        p = quasi_newton(lambda x: _log_loss(x, m, T, error, pattern), p0)
        scales, decays = np.exp(p[:m]), np.exp(-np.exp(p[m:]))
        return BLT(tuple(scales.tolist()), tuple(decays.tolist()))

    best = against_worst_pattern(solve, start, T, participation, loss)
    assert isinstance(best, BLT)
    return best


def _log_loss(
    p: Series, m: int, T: int, error: SquaredError, pattern: tuple[int, ...]
) -> tuple[float, Series]:
    """Log error² + log sensitivity², differentiated through both columns by torch."""
    parameters = torch.tensor(p, requires_grad=True)
    c, beta = _columns(parameters[:m], parameters[m:], T)
    square, by_beta = error(beta.detach().numpy())
    sensitivity, by_c = squared_sensitivity(c.detach().numpy(), pattern)
    torch.autograd.backward(
        [beta, c], [torch.from_numpy(by_beta / square), torch.from_numpy(by_c / sensitivity)]
    )
    assert parameters.grad is not None
    return float(np.log(square) + np.log(sensitivity)), parameters.grad.numpy()


def _columns(
    log_scales: torch.Tensor, log_rates: torch.Tensor, T: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """First columns of C and C⁻¹, each a sum of exponentials.

    The state of the decoder follows diag(x) - 1aᵀ, which is similar to the symmetric
    diag(x) - √a √aᵀ: its eigenvalues are the decoder's decays, without cancellation.
    """
    one = torch.ones(1, dtype=torch.float64)
    t = torch.arange(T - 1, dtype=torch.float64)
    scales, rates = log_scales.exp(), log_rates.exp()
    c = torch.cat([one, scales @ torch.exp(-rates[:, None] * t)])
    root = scales.sqrt()
    decays, vectors = torch.linalg.eigh(torch.diag(torch.exp(-rates)) - torch.outer(root, root))
    weights = (vectors.T @ root) ** 2
    beta = torch.cat([one, -(weights @ decays[:, None].pow(t))])
    return c, beta
