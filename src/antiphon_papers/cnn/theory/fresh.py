"""Test error and loss without test data: the noise of a fresh record is normal, whatever was learnt."""

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from antiphon.checks import whole
from antiphon_papers.cnn.huberized import HuberizedReLU
from antiphon_papers.cnn.patches import SignalPatches
from antiphon_papers.cnn.two_layer_cnn import TwoLayerCNN

__all__ = ["Fresh", "fresh", "fresh_of"]

Array = NDArray[Any]

_CHUNK = 4000  # draws at once


@final
@dataclass(frozen=True)
class Fresh:
    """What fresh records show.

    Attributes:
        accuracy: P(y f(x) > 0), where f(x) = 0 counts half.
        loss: Mean logistic loss.
        accuracy_se: Standard error of ``accuracy``, from draws.
    """

    accuracy: float
    loss: float
    accuracy_se: float


def fresh(
    along: Array, gram: Array, activation: HuberizedReLU, *, draws: int = 20_000, seed: int = 0
) -> Fresh:
    """Accuracy and loss on fresh records from two statistics of the filters.

    On a fresh noise patch the filters' pre-activations are N(0, Γ); on the signal they are ±⟨w_k, μ⟩, once
    for each label. Only N(0, Γ) is drawn.

    Args:
        along: ⟨w_k, μ⟩ of all filters, those of +1 first.
        gram: Γ = σ_p² W P Wᵀ, where P takes the direction of μ away.
        activation: σ.
        draws: Of fresh noise patches, shared by both labels.
        seed: Of the draws.

    Example:
        >>> fresh(np.zeros(4), np.zeros((4, 4)), HuberizedReLU()).accuracy
        0.5
    """
    m, half = len(along) // 2, np.float64(0.5)
    values, vectors = np.linalg.eigh(np.asarray(gram, np.float64))
    root = torch.from_numpy(vectors * np.sqrt(values.clip(min=0)))
    signs = torch.ones(2 * m, dtype=torch.float64)
    signs[m:] = -1
    products = torch.as_tensor(np.asarray(along, np.float64))
    signal = [float(activation(y * products) @ signs) / m for y in (1.0, -1.0)]
    rng, right, losses = np.random.default_rng(seed), [], []
    for start in range(0, whole("draws", draws), _CHUNK):
        z = torch.from_numpy(rng.standard_normal((min(_CHUNK, draws - start), 2 * m)))
        noise = (activation(z @ root.T) @ signs).numpy() / m
        margins = np.stack([signal[0] + noise, -(signal[1] + noise)])
        right.append(((margins > 0) + half * (margins == 0)).mean(axis=0))
        losses.append(np.logaddexp(0, -margins).mean(axis=0))
    hits = np.concatenate(right)
    se = float(hits.std()) / math.sqrt(draws)
    return Fresh(float(hits.mean()), float(np.concatenate(losses).mean()), se)


def fresh_of(model: TwoLayerCNN, data: SignalPatches, **options: Any) -> Fresh:
    """The same of a model, for records like ``data``, of which only μ and σ_p are used.

    Example:
        >>> from antiphon_papers.cnn import signal_patches
        >>> data = signal_patches(2, 20, spread=0.1, seed=0)
        >>> fresh_of(TwoLayerCNN(20, 4), data, draws=100).loss < 0.8
        True
    """
    weight = model.filters.weight.detach().double().numpy()
    along = weight @ data.signal
    inner = weight - np.outer(along, data.signal) / (data.signal @ data.signal)
    return fresh(along, data.spread**2 * inner @ inner.T, model.activation, **options)
