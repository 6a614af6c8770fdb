"""GD and DP-GD on signal-and-noise data in the coordinates of the data, with every coefficient exact.

w_k = w_k(0) + J_k γ_k μ/‖μ‖² + Σ_i ρ_ki ξ_i/‖ξ_i‖² - η Σ_t b_k(t) at every step [CNNGradientDescent26,
Def. 2-3], with γ and ρ from the same numbers as the gradient. What is orthogonal to all patches never
enters the training loss: it is drawn when test error is asked for, with the variance it has by then.
"""

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from antiphon.checks import positive
from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon_papers.cnn.huberized import HuberizedReLU
from antiphon_papers.cnn.privacy import Realised, realised
from antiphon_papers.cnn.theory import kernels
from antiphon_papers.cnn.theory.fresh import Fresh, fresh
from antiphon_papers.cnn.theory.setting import Setting
from antiphon_papers.cnn.theory.span import Span

__all__ = ["Dynamics", "Seen"]

Array = NDArray[Any]

_MARGIN = 25  # roundings by which examples are clipped below the bound


@final
@dataclass(frozen=True, eq=False)
class Seen:
    """All records at one iterate; statistics of the data, none of which is private.

    Attributes:
        margins: y f of each record.
        norms: Of each record's gradient, before clipping.
        lengths: Of what clipping left of it.
        pulls: l' of each record times the same factor.
        tops: Largest ⟨w_k, ξ_i⟩ over the filters k of record i's own label.
    """

    margins: Array
    norms: Array
    lengths: Array
    pulls: Array
    tops: Array

    @property
    def loss(self) -> float:
        """Mean logistic loss."""
        return float(np.logaddexp(0, -self.margins.astype(np.float64)).mean())

    @property
    def accuracy(self) -> float:
        """Share of records on the right side."""
        return float((self.margins > 0).mean())


@final
class Dynamics:
    """A run that can be watched.

    Args:
        span: The data.
        setting: m, q, κ, σ₀, η and σ_b; d and n must be those of the data.
        seed: Of start, noise and fresh records.
        start: All filters before the first step, shape (2m, d); drawn by σ₀ unless given.
        clip_norm: C on each record's gradient; infinite for none.

    Attributes:
        step_count: Steps taken.
        along: ⟨w_k, μ⟩/‖μ‖.
        inner: Coordinates of the filters along the noise patches.
        gamma: γ of each filter, from 0 and never falling.
        rho: ρ of each filter and record: from 0, never falling where the filter has the record's label and
            never rising elsewhere.
        noise_sum: Σ_t b(t) in coordinates, along μ first.
        first_signal: The first step before which some filter of each sign had its signal at the knee.
        first_noise: The same for the noise patch of every record.
        longest: Norm of the longest gradient so far, after clipping.

    Guarantee:
        None of privacy: this computes with what is hidden in the data. With equal noise it takes the steps
        of the full simulation up to rounding; with its own, steps of the same law.

    Example:
        >>> from antiphon_papers.cnn import signal_patches
        >>> setting = Setting(d=40, n=10, m=4, spread=0.5, steps=100)
        >>> run = Dynamics(Span(signal_patches(10, 40, spread=0.5, seed=0)), setting, seed=0)
        >>> for _ in range(100):
        ...     _ = run.step()
        >>> bool((run.gamma > 0).all()), run.step_count
        (True, 100)
    """

    def __init__(
        self,
        span: Span,
        setting: Setting,
        *,
        seed: int,
        start: Array | None = None,
        clip_norm: float = math.inf,
    ) -> None:
        if (span.n, span.d) != (setting.n, setting.d):
            raise PlanError(
                f"the setting has n = {setting.n} and d = {setting.d}, the data {span.n} and {span.d}."
            )
        if clip_norm != math.inf:
            positive("clip_norm", clip_norm)
        self.span, self.setting, self.clip_norm = span, setting, clip_norm
        self.activation = HuberizedReLU(setting.q, setting.knee)
        self._generator = Generator.seeded(seed)
        dtype, count = span.patches.dtype, 2 * setting.m
        self.along, self.inner, self.rest = self._start(start)
        self.signs = np.repeat([1.0, -1.0], setting.m)
        self.gamma, self.rho = np.zeros(count), np.zeros((count, span.n), dtype)
        self.noise_sum = np.zeros((count, 1 + span.rank))
        self.step_count, self._rest_at = 0, 0
        self.first_signal: int | None = None
        self.first_noise: int | None = None
        self.longest = 0.0
        self._energy, self._largest = np.zeros(span.n), 0.0
        self._z, self._each = np.empty((count, span.n), dtype), np.empty((3, span.n), dtype)
        self._white = torch.empty(count, 1 + span.rank, dtype=torch.from_numpy(self._z).dtype)

    def _start(self, start: Array | None) -> tuple[Array, Array, Array]:
        span, m = self.span, self.setting.m
        if start is not None:
            if start.shape != (2 * m, span.d):
                raise PlanError(f"start has shape {(2 * m, span.d)}; got {start.shape}.")
            along, inner, rest = span.coordinates(start)
        else:
            source, sizes = self._generator.spawn("start"), (1 + span.rank, span.left)
            drawn = source.normal([torch.empty(2 * m, k, dtype=torch.float64) for k in sizes], 0)
            seen, rest = (self.setting.scale * part.numpy() for part in drawn)
            along, inner = seen[:, 0], seen[:, 1:]
        return along.copy(), np.ascontiguousarray(inner, span.patches.dtype), rest.copy()

    def look(self) -> Seen:
        """All records at the present iterate; changes nothing."""
        return self._look(self.span.products(self.inner, self._z))

    def _look(self, z: Array) -> Seen:
        """The same, and leaves slopes in z."""
        span, s = self.span, self.setting
        outputs, squares, tops = self._each
        kernels.there(z, span.y, s.knee, s.q, outputs, squares, tops)
        values, slopes = self._on_signal()
        positive_label = span.y > 0
        signal = np.where(positive_label, *(self.signs @ part for part in values))
        margins = span.y * (outputs + signal) / s.m
        energy = np.where(positive_label, *((part**2).sum() for part in slopes))
        pulls = -expit(-margins)
        norms = -pulls / s.m * np.sqrt(span.signal**2 * energy + span.energies * squares)
        if self.clip_norm == math.inf:
            return Seen(margins, norms, norms, pulls, tops.copy())
        limit = self.clip_norm * (1 - _MARGIN * float(np.finfo(norms.dtype).eps))
        factors = limit / np.maximum(norms, limit)
        return Seen(margins, norms, factors * norms, factors * pulls, tops.copy())

    def _on_signal(self) -> tuple[list[Array], list[Array]]:
        """Values and slopes of all filters on +μ and on -μ."""
        products = torch.from_numpy(self.along * self.span.signal)
        both = (products, -products)
        values = [self.activation(z).numpy() for z in both]
        return values, [self.activation.slope(z).numpy() for z in both]

    def step(self, noise: Array | None = None) -> Seen:
        """One step of (DP-)GD; returns what there was before it.

        Args:
            noise: b of this step, shape (2m, d), in place of the run's own.
        """
        span, s = self.span, self.setting
        z = span.products(self.inner, self._z)
        seen = self._look(z)
        self._record(seen)
        weights = (seen.pulls * span.y / (s.m * s.n)).astype(z.dtype)
        kernels.back(z, weights, span.energies, s.step_size, self.rho)
        gradient = span.combined(z)
        slopes = self._on_signal()[1]
        pulled = sum(
            float(seen.pulls[span.y == y].sum(dtype=np.float64)) * part
            for y, part in zip((1.0, -1.0), slopes, strict=True)
        )
        growth = -np.asarray(pulled) * span.signal / (s.m * s.n)
        self.gamma += s.step_size * span.signal * growth
        self.along += s.step_size * self.signs * growth
        gradient *= s.step_size
        self.inner -= gradient
        self._add_noise(noise)
        self.step_count += 1
        return seen

    def _record(self, seen: Seen) -> None:
        s, products = self.setting, self.signs * self.along * self.span.signal
        if (
            self.first_signal is None
            and min(products[: s.m].max(), products[s.m :].max()) >= s.knee
        ):
            self.first_signal = self.step_count
        if self.first_noise is None and seen.tops.min() >= s.knee:
            self.first_noise = self.step_count
        lengths = seen.lengths.astype(np.float64) ** 2
        self.longest = max(self.longest, math.sqrt(lengths.max()))
        self._energy += lengths
        self._largest += float(lengths.max())

    def _add_noise(self, noise: Array | None) -> None:
        eta, sigma = self.setting.step_size, self.setting.noise
        if noise is not None:
            along, inner, rest = self.span.coordinates(noise)
            self.rest -= eta * rest
            self._rest_at += 1
        elif sigma:
            source = self._generator.spawn("noise")
            drawn = source.normal_(self._white, self.step_count).mul_(sigma).numpy()
            along, inner = drawn[:, 0], drawn[:, 1:]
        else:
            return
        self.noise_sum[:, 0] += along
        self.noise_sum[:, 1:] += inner
        self.along -= eta * along
        self.inner -= (eta * inner).astype(self.inner.dtype, copy=False)

    def fresh(self, draws: int = 20_000) -> Fresh:
        """Accuracy and loss on fresh records; draws what training never saw up to this step."""
        steps, s = self.step_count - self._rest_at, self.setting
        if s.noise and steps:
            like = torch.empty(self.rest.shape, dtype=torch.float64)
            walked = self._generator.spawn("rest").normal(like, self.step_count).numpy()
            self.rest -= s.step_size * s.noise * math.sqrt(steps) * walked
        self._rest_at = self.step_count
        inner = self.inner.astype(np.float64)
        gram = self.span.spread**2 * (inner @ inner.T + self.rest @ self.rest.T)
        products = self.along * self.span.signal
        return fresh(products, gram, self.activation, draws=draws, seed=self.step_count)

    @property
    def weight(self) -> Array:
        """All filters, shape (2m, d); of a drawn start and noise, up to the walk of `rest`."""
        return self.span.lift(self.along, self.inner.astype(np.float64), self.rest)

    @property
    def own(self) -> NDArray[np.bool_]:
        """Where a filter has a record's label."""
        return self.signs[:, None] == self.span.y

    @property
    def realised(self) -> Realised:
        """What each record's gradients came to so far: not a guarantee, and not for release."""
        return realised(self._energy, self._largest, n=self.setting.n, noise=self.setting.noise)
