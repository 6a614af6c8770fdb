"""The hypotheses of the theorems, one by one, with the factor by which each fails.

The published conditions have an unspecified "large constant" C, an argument here (1 unless given), so that
they can only be refuted, not confirmed. `proof_conditions` has what the proofs use, with numbers.
"""

import math

import numpy as np

from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon_papers.cnn.patches import SignalPatches
from antiphon_papers.cnn.theory.setting import Setting
from antiphon_papers.cnn.two_layer_cnn import TwoLayerCNN
from antiphon_papers.common.condition import Condition

__all__ = ["condition_1", "condition_2", "data_checks", "proof_conditions", "start_checks"]


def condition_1(
    setting: Setting, *, delta: float = 0.01, constant: float = 1.0, horizon: float | None = None
) -> tuple[Condition, ...]:
    """Condition 1 of [CNNGradientDescent26], under which GD memorises noise.

    Args:
        setting: Task and run; q above 2.
        delta: Failure probability of the theorem, over data and start.
        constant: C.
        horizon: T*; the steps of the setting unless given.

    Example:
        >>> print(condition_1(Setting())[2])
        item 3, d: 2000 against 5.2e+32, fails by a factor of 2.6e+29
    """
    s, C, T = setting, positive("constant", constant), _horizon(setting, horizon)
    if not s.q > 2:
        raise PlanError(f"Condition 1 is about q above 2 (3 or more in the paper); got {s.q}.")
    q, logs = s.q, math.log(s.n**2 / _share(delta)) * math.log(T)
    needed = C * s.m ** (2 * q / (q - 2)) * (s.n / s.knee) ** ((2 * q - 2) / (q - 2))
    needed *= math.log(s.m * s.n**2 / delta) ** 2 * math.log(T) ** 2
    least = C * s.n / (s.spread * s.d) * math.sqrt(logs)
    crowd = s.signal * s.m ** (2 / (q - 2)) * s.n ** (1 / (q - 2))
    crowd *= math.sqrt(math.log(s.m * s.n / delta))
    most = s.knee ** ((q - 1) / (q - 2)) / (C * max(crowd, math.sqrt(s.patch_energy)))
    return (
        Condition.at_most("item 1, κ = O(1)", s.knee, C),
        Condition.at_least("item 2, 1/SNR (logarithms hidden)", s.inverse_snr, s.n ** (1 / q)),
        Condition.at_least("item 3, d", s.d, needed),
        Condition.at_least("item 4, n", s.n, C * math.log(s.m / delta)),
        Condition.at_least("item 4, m", s.m, C * math.log(s.n * T / delta)),
        Condition.at_least("item 5, σ₀ from below", s.scale, least),
        Condition.at_least("item 5, σ₀ from below, as the proof needs it", s.scale, s.m * least),
        Condition.at_most("item 5, σ₀ from above", s.scale, most),
        Condition.at_most("item 6, η", s.step_size, 1 / (C * s.energy)),
    )


def condition_2(
    setting: Setting, *, delta: float = 0.01, constant: float = 1.0, horizon: float | None = None
) -> tuple[Condition, ...]:
    """Condition 2 of [CNNGradientDescent26], under which DP-GD learns the signal.

    The logarithm in item 5 stands where the appendix has it. Item 6 leaves no step size unless
    κ² <= min(‖μ‖², σ_p² d)/(C² m² M), which is more than item 1 asks for.

    Args:
        setting: Task and run.
        delta: Failure probability of the theorem, over data and start.
        constant: C.
        horizon: T* of Theorem 2; the steps of the setting unless given.

    Example:
        >>> failed = [c.name for c in condition_2(Setting()) if not c.holds]
        >>> failed[:2], len(failed)
        (['item 1, κ²', 'item 2, 1/SNR'], 7)
    """
    s, C, T = setting, positive("constant", constant), _horizon(setting, horizon)
    M, least, log = s.energy, s.least_energy, math.log(s.m * s.n / _share(delta))
    sparse = s.m**2 * s.n**2 / s.knee**2 * math.log(s.n**2 / delta) * math.log(T) ** 2
    start = min(1 / (C * s.m * math.sqrt(s.patch_energy)), s.knee / (C * math.sqrt(M * log)))
    noise = 1 / (C * s.step_size * math.sqrt(M * T) * math.log(s.m * s.n * T / delta) ** 2)
    ratio = min(math.sqrt(s.d) / (C * s.m**2), math.sqrt(s.n) / C)
    slowest = C * s.m**3 * s.knee**2 * M / (s.signal**2 * least)
    return (
        Condition.at_most("item 1, κ²", s.knee**2, least / (C * s.m**2 * M)),
        Condition.at_most("item 2, 1/SNR", s.inverse_snr, ratio),
        Condition.at_least("item 3, d", s.d, C * max(s.m**4 * s.n**2, sparse)),
        Condition.at_least("item 4, n", s.n, C * math.log(s.m / delta)),
        Condition.at_least("item 4, m", s.m, C * math.log(s.n * T / delta)),
        Condition.at_most("item 5, σ₀", s.scale, start),
        Condition.at_least("item 6, η from below", s.step_size, slowest),
        Condition.at_most("item 6, η from above", s.step_size, s.m / (C * s.signal**2)),
        Condition.at_most(
            "item 6, κ² for which some η is left", s.knee**2, least / (C**2 * s.m**2 * M)
        ),
        Condition.at_most("item 7, σ_b", s.noise, noise),
    )


def proof_conditions(
    setting: Setting, *, delta: float = 0.01, horizon: float | None = None
) -> tuple[Condition, ...]:
    """What the proofs about GD use, with explicit constants: β, ζ <= κ/10 and σ₀ >= 8ζ/(σ_p sqrt(d)).

    β is twice the largest product of a filter's start with a patch, by its bound of Lemma 11;
    ζ = 8n sqrt(log(6n²/δ)/d) α with α = 4m log T* bounds what other records' patches add.
    """
    s, T = setting, _horizon(setting, horizon)
    signal, patches = _start_bounds(s, delta)
    zeta = 8 * s.n * math.sqrt(math.log(6 * s.n**2 / delta) / s.d) * 4 * s.m * math.log(T)
    return (
        Condition.at_most("β <= κ/10", 2 * max(signal, patches), s.knee / 10),
        Condition.at_most("ζ <= κ/10", zeta, s.knee / 10),
        Condition.at_least("σ₀ >= 8ζ/(σ_p sqrt(d))", s.scale, 8 * zeta / math.sqrt(s.patch_energy)),
    )


def data_checks(data: SignalPatches, *, delta: float = 0.01) -> tuple[Condition, ...]:
    """What holds of records with high probability [CNNGradientDescent26, Lem. 7, 13], observed.

    Statistics of the data: not for release.
    """
    n, d = data.noise.shape
    energy, products = data.spread**2 * d, data.noise @ data.noise.T
    norms = np.diagonal(products)
    crossed = np.abs(products - np.diag(norms)).max() if n > 1 else 0.0
    along = np.abs(data.noise @ data.signal).max() / (
        math.sqrt(norms.max()) * float(np.linalg.norm(data.signal))
    )
    few = min(int((data.y == label).sum()) for label in (-1, 1))
    limit = 2 * data.spread**2 * math.sqrt(d * math.log(6 * n**2 / _share(delta)))
    return (
        Condition.at_most("|⟨ξ_i, μ⟩|, relative: rounding", along, 1e-12),
        Condition.at_least("least ‖ξ_i‖²", norms.min(), energy / 2),
        Condition.at_most("largest ‖ξ_i‖²", norms.max(), 1.5 * energy),
        Condition.at_most("largest |⟨ξ_i, ξ_j⟩|", crossed, limit),
        Condition.at_least("records of the rarer label", few, n / 4),
        Condition.at_least("n of Lemma 13", n, 8 * math.log(4 / delta)),
    )


def start_checks(
    model: TwoLayerCNN, data: SignalPatches, *, delta: float = 0.01
) -> tuple[Condition, ...]:
    """What holds of a start with high probability [CNNGradientDescent26, Lem. 11], observed."""
    weight, signs = model.filters.weight.detach().double().numpy(), model.signs.numpy()
    (n, d), s0 = data.noise.shape, model.scale
    size, spread = float(np.linalg.norm(data.signal)), data.spread
    squares, along = (weight**2).sum(axis=1), weight @ data.signal
    inner, root = weight @ data.noise.T, math.sqrt(d)
    log = math.log(12 * model.m * n / _share(delta))
    signed = min(float((along * j)[signs == j].max()) for j in (1, -1))
    own = np.where(signs[:, None] == data.y, inner, -math.inf).max(axis=0).min()
    wide = s0 * size * math.sqrt(2 * math.log(12 * model.m / delta))
    return (
        Condition.at_least("least ‖w‖²", squares.min(), 0.5 * s0**2 * d),
        Condition.at_most("largest ‖w‖²", squares.max(), 1.5 * s0**2 * d),
        Condition.at_most("largest |⟨w, μ⟩|", np.abs(along).max(), wide),
        Condition.at_most(
            "largest |⟨w, ξ_i⟩|", np.abs(inner).max(), 2 * s0 * spread * root * math.sqrt(log)
        ),
        Condition.at_least("max_r ⟨w_jr, jμ⟩", signed, s0 * size / 2),
        Condition.at_least("max_r ⟨w_r, ξ_i⟩", own, s0 * spread * root / 4),
    )


def _start_bounds(s: Setting, delta: float) -> tuple[float, float]:
    """Bounds of Lemma 11 on products of starts with μ and with noise patches."""
    signal = s.scale * s.signal * math.sqrt(2 * math.log(12 * s.m / _share(delta)))
    log = math.log(12 * s.m * s.n / delta)
    return signal, 2 * s.scale * math.sqrt(s.patch_energy * log)


def _share(delta: float) -> float:
    if not 0 < delta < 1:
        raise PlanError(f"delta is a probability between 0 and 1; got {delta}.")
    return delta


def _horizon(setting: Setting, horizon: float | None) -> float:
    T = setting.steps if horizon is None else positive("horizon", horizon)
    return max(float(T), 2.0)  # log T must not vanish
