"""The coefficients of signal, noise patches and added noise in the filters of a full run.

For runs of `gradient_descent`, `printed_descent` and `descend` on signal-and-noise data; `Dynamics` has
them built in. They are read off private data: for diagnosis, never for release.
"""

from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

from antiphon.errors import UnsupportedError
from antiphon_papers.cnn.algorithm import Step
from antiphon_papers.cnn.patches import SignalPatches
from antiphon_papers.cnn.two_layer_cnn import TwoLayerCNN

__all__ = ["Tracker"]

Array = NDArray[np.float64]


@final
class Tracker:
    """γ, ρ and the summed noise of a run, step by step [CNNGradientDescent26, Def. 2-3, Lem. 16, 29].

    Give it to a run as ``watch``.

    Args:
        data: The records of the run.
        model: Its start.
        step_size: η.
        n: The divisor, if it is not the number of records.

    Attributes:
        gamma: γ_k of each filter, never falling.
        rho: ρ_ki, never falling where filter k has the label of record i and never rising elsewhere.
        noise_sum: Σ_t b(t).
        is_unique: Whether μ and the noise patches are independent, as n + 1 <= d allows. If not, the
            coefficients are those of the recursion, one of many decompositions.

    Example:
        >>> from antiphon_papers.cnn import signal_patches
        >>> from antiphon_papers.cnn import gradient_descent
        >>> data, start = signal_patches(6, 20, spread=0.5, seed=0), TwoLayerCNN(20, 3).double()
        >>> tracker = Tracker(data, start, step_size=1.0)
        >>> run = gradient_descent(start, data.x, data.y, step_size=1.0, steps=50, watch=tracker)
        >>> float(np.abs(tracker.rebuilt - run.model.filters.weight.detach().numpy()).max()) < 1e-12
        True
    """

    def __init__(
        self, data: SignalPatches, model: TwoLayerCNN, step_size: float, n: int | None = None
    ) -> None:
        self._data, self._model, self._step_size = data, model, step_size
        self._n = len(data.y) if n is None else n
        self._start = model.filters.weight.detach().double().numpy().copy()
        self._signs = model.signs.double().numpy().copy()
        self._energies = (data.noise**2).sum(axis=1)
        self.gamma: Array = np.zeros(len(self._start))
        self.rho: Array = np.zeros((len(self._start), len(data.y)))
        self.noise_sum: Array = np.zeros_like(self._start)

    @property
    def is_unique(self) -> bool:
        """Whether there is one decomposition only (almost surely)."""
        return len(self._data.y) + 1 <= len(self._data.signal)

    def __call__(self, step: Step) -> None:
        """Takes one step in."""
        data, scale = self._data, self._step_size / (self._n * self._model.m)
        weight = step.weight.double().numpy()
        pulls = step.sums.pulls.double().numpy()
        on_signal = self._slope(np.outer(weight @ data.signal, data.y))
        self.gamma += -scale * (data.signal @ data.signal) * on_signal @ pulls
        on_noise = self._slope(weight @ data.noise.T)
        moved = on_noise * (self._energies * data.y * pulls) * self._signs[:, None]
        self.rho += -scale * moved
        if step.noise is not None:
            self.noise_sum += step.noise.double().numpy()

    def _slope(self, z: Array) -> Array:
        slopes: Array = self._model.activation.slope(torch.from_numpy(z)).numpy()
        return slopes

    @property
    def rebuilt(self) -> Array:
        """The filters, from their start and all coefficients."""
        mu = self._data.signal
        along = np.outer(self._signs * self.gamma, mu / (mu @ mu))
        memorised = self.rho @ (self._data.noise / self._energies[:, None])
        return self._start + along + memorised - self._step_size * self.noise_sum

    def fitted(self, weight: Array) -> tuple[Array, Array]:
        """γ and ρ by least squares from the filters and the summed noise, with no recursion.

        Raises:
            UnsupportedError: If there are several decompositions.
        """
        data, mu = self._data, self._data.signal
        if not self.is_unique:
            raise UnsupportedError(
                f"with {len(data.y)} noise patches and μ in {len(mu)} dimensions coefficients are not "
                "unique; those of the recursion are `gamma` and `rho`."
            )
        basis = np.vstack([mu / (mu @ mu), data.noise / self._energies[:, None]]).T
        left = weight - self._start + self._step_size * self.noise_sum
        found = np.linalg.lstsq(basis, left.T, rcond=None)[0]
        return self._signs * found[0], found[1:].T
