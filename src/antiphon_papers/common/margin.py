"""The largest margin with which the tangent features of a network at its start separate the labels.

γ = max_u min_i y_i <∇f(x_i), u> over unit vectors u is, by duality, the norm of the shortest vector in the
convex hull of y_i ∇f(x_i): γ² = min_q qᵀKq over the simplex, with K_ij = y_i y_j <∇f(x_i), ∇f(x_j)>.
With K = GᵀG, minimising ‖Gq‖² + (1 - Σq)² over q >= 0 finds the same direction: along s·q the least is
‖Gq‖²/(1 + ‖Gq‖²), which grows with ‖Gq‖. That is a problem of non-negative least squares, solved by an
active set in finitely many steps. Whatever q it returns, both sides of the duality are computed from it.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.optimize import nnls
from torch import Tensor

from antiphon.errors import PlanError
from antiphon.models import spline_basis
from antiphon_papers.common.two_layer_kan import TwoLayerKAN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Gram = NDArray[np.float64]
    Slopes = NDArray[np.float64]
    Features = NDArray[np.float64]
    Hidden = NDArray[np.float64]
    Direction = NDArray[np.float64]
else:
    from jaxtyping import Float64

    Vector = Float64[np.ndarray, " records"]
    Gram = Float64[np.ndarray, "records records"]
    Slopes = Float64[np.ndarray, "records units"]
    Features = Float64[np.ndarray, "records features"]
    Hidden = Float64[np.ndarray, "records values"]
    Direction = Float64[np.ndarray, "units features"]

__all__ = ["Margin", "largest_margin", "ntk_margin", "tangent_features", "tangent_kernel"]


@final
@dataclass(frozen=True, eq=False)
class Margin:
    """A margin that is reached, and a bound that no unit vector passes.

    Attributes:
        value: Smallest y_i <∇f(x_i), u> of the u found; 0 if it is not positive.
        upper: No unit vector has a margin above this.
        weights: Weights q of the records, which sum to 1: u is the direction of Σ q_i y_i ∇f(x_i).
        direction: u with the shape of the trained coefficients, if features were given; else None.
    """

    value: float
    upper: float
    weights: Vector
    direction: Direction | None = None

    @property
    def gap(self) -> float:
        """How far the best margin can be above ``value``."""
        return self.upper - self.value

    @property
    def is_separable(self) -> bool:
        """Whether a separating direction was found, which is then proved."""
        return self.value > 0

    @property
    def gamma(self) -> float:
        """The papers' γ, which is at most 1 [KANCorrelated26, Ass. 3.3]."""
        return min(1.0, self.value)


def largest_margin(kernel: Gram) -> Margin:
    """The largest margin without a bias, from the signed Gram matrix K_ij = y_i y_j <g_i, g_j>.

    Guarantee:
        ``value`` is reached by the direction that ``weights`` give and ``upper`` is above every margin,
        both up to rounding, however good the solver was; ``gap`` is what separates them. Takes
        O(n³) operations.

    Example:
        >>> found = largest_margin(np.array([[1.0, 0.0], [0.0, 4.0]]))
        >>> round(found.value, 6), found.weights.round(6).tolist()
        (0.894427, [0.8, 0.2])
    """
    kernel = np.asarray(kernel, np.float64)
    if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1] or not kernel.size:
        raise PlanError(f"a Gram matrix is square and not empty; got shape {kernel.shape}.")
    if not np.isfinite(kernel).all():
        raise PlanError("a Gram matrix has finite entries; this one has not.")
    n = len(kernel)
    scale = float(np.trace(kernel)) / n
    if scale <= 0:
        return Margin(0.0, 0.0, np.full(n, 1 / n))
    values, vectors = np.linalg.eigh((kernel + kernel.T) / (2 * scale))
    half = np.sqrt(values.clip(0.0))[:, None] * vectors.T
    try:
        q, _ = nnls(np.vstack([half, np.ones(n)]), np.append(np.zeros(n), 1.0), maxiter=30 * n)
    except RuntimeError:  # too many steps: any weights are honest, and the gap shows what is lost
        q = np.ones(n)
    q /= q.sum()
    image = kernel @ q
    upper = math.sqrt(max(0.0, float(q @ image)))
    value = max(0.0, float(image.min())) / upper if upper > 0 else 0.0
    # Rounding alone can put a margin above its bound, by parts in 10^15.
    return Margin(min(value, upper), upper, q)


def ntk_margin(X: ArrayLike, y: ArrayLike, model: TwoLayerKAN, layers: str = "first") -> Margin:
    """The largest margin of the tangent features at the model's present weights: the papers' γ.

    Args:
        X: Records, shape (n, d), in [-1, 1].
        y: Labels, -1 or +1.
        model: Where it stands now, which is W_0 before training.
        layers: By whose coefficients gradients are taken: "first", or "both" as
            [KANGradientDescent26, Ass. 4.8]; then ``direction`` has the second layer's last p columns.

    Guarantee:
        As `largest_margin`. The number is a statistic of the data: of private data it is for your eyes
        only, unless it is paid for. Assumption 3.3 of [KANCorrelated26] asks for one γ that holds
        almost surely for the law of the data; a sample only shows that γ is no larger.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> X, y = np.linspace(-0.5, 0.5, 12).reshape(6, 2), [1, 1, 1, -1, -1, -1]
        >>> found = ntk_margin(X, y, TwoLayerKAN(2, 64))
        >>> found.is_separable, found.gap < 1e-6
        (True, True)
    """
    signs = _signs(y)
    slopes, features = tangent_features(X, model)
    _same_length(len(signs), len(slopes))
    hidden = _hidden(X, model, layers)
    found = largest_margin(_kernel(slopes, features, hidden, signs, model.first.in_features))
    m, d = model.first.out_features, model.first.in_features
    pull = found.weights * signs
    normal = (slopes * pull[:, None]).T @ features / math.sqrt(m * d)
    if hidden is not None:
        second = (pull @ hidden).reshape(m, -1) / math.sqrt(m)
        normal = np.concatenate([normal, second], axis=1)
    length = float(np.linalg.norm(normal))
    direction = normal / length if length > 0 else normal
    return Margin(found.value, found.upper, found.weights, direction)


def tangent_features(X: ArrayLike, model: TwoLayerKAN) -> tuple[Slopes, Features]:
    """Both factors of all gradients of f: row i of each, as an outer product, over sqrt(m d).

    The first holds σ'(a_j) <c_j, h'(σ(a_j))> for each hidden unit, the second all spline values of x.

    Example:
        >>> slopes, features = tangent_features(np.zeros((3, 2)), TwoLayerKAN(2, 4))
        >>> slopes.shape, features.shape
        ((3, 4), (3, 16))
    """
    x = torch.as_tensor(np.asarray(X, np.float64))
    d, m = model.first.in_features, model.first.out_features
    if x.ndim != 2 or x.shape[1] != d:
        raise PlanError(f"records must have shape (n, {d}); got {tuple(x.shape)}.")
    with torch.no_grad():
        features = spline_basis(x, model.first.splines).flatten(-2)
        a = features @ model.first.coef.double().T / math.sqrt(d)
        z, slope = _activate(a, model.activation)
        c = model.second.coef.double().reshape(m, -1)
        slopes = slope * (spline_basis(z, model.second.splines, 1) * c).sum(-1)
    return slopes.numpy(), features.numpy()


def tangent_kernel(X: ArrayLike, y: ArrayLike, model: TwoLayerKAN, layers: str = "first") -> Gram:
    """K_ij = y_i y_j <∇f(x_i), ∇f(x_j)>, a product of two small Gram matrices.

    Args:
        X: Records, shape (n, d), in [-1, 1].
        y: Labels, -1 or +1.
        model: Where it stands now.
        layers: By whose coefficients gradients are taken: "first" or "both", which adds a third Gram
            matrix, of the second layer's spline values.

    Example:
        >>> K = tangent_kernel(np.zeros((2, 1)), [1, -1], TwoLayerKAN(1, 8))
        >>> bool(K[0, 0] == -K[0, 1])
        True
    """
    signs = _signs(y)
    slopes, features = tangent_features(X, model)
    _same_length(len(signs), len(slopes))
    hidden = _hidden(X, model, layers)
    return _kernel(slopes, features, hidden, signs, model.first.in_features)


def _kernel(
    slopes: Slopes, features: Features, hidden: Hidden | None, signs: Vector, d: int
) -> Gram:
    m = slopes.shape[1]
    kernel = (slopes @ slopes.T / m) * (features @ features.T / d)
    if hidden is not None:
        kernel = kernel + hidden @ hidden.T / m
    return np.outer(signs, signs) * kernel


def _hidden(X: ArrayLike, model: TwoLayerKAN, layers: str) -> Hidden | None:
    """The second layer's spline values, where its gradients count."""
    if layers not in ("first", "both"):
        raise PlanError(f"layers is 'first' or 'both'; got {layers!r}.")
    if layers == "first":
        return None
    x = torch.as_tensor(np.asarray(X, np.float64))
    with torch.no_grad():
        features = spline_basis(x, model.first.splines).flatten(-2)
        a = features @ model.first.coef.double().T / math.sqrt(model.first.in_features)
        z, _ = _activate(a, model.activation)
        return spline_basis(z, model.second.splines).flatten(-2).numpy()


def _activate(a: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """The hidden values and their slopes."""
    z = torch.tanh(a) if name == "tanh" else torch.sigmoid(a)
    return z, 1 - z**2 if name == "tanh" else z * (1 - z)


def _signs(y: ArrayLike) -> Vector:
    signs = np.asarray(y, np.float64)
    if signs.ndim != 1 or not signs.size or not (np.abs(signs) == 1).all():
        raise PlanError("labels must be one or more numbers -1 or +1, in one dimension.")
    return signs


def _same_length(labels: int, rows: int) -> None:
    if labels != rows:
        raise PlanError(f"there must be one label per record; got {labels} for {rows}.")
