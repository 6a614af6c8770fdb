"""Splines of tensors against SciPy's de Boor recursion, both by the kernels and by plain torch."""

import math

import numpy as np
import pytest
import torch
from scipy.interpolate import BSpline

from antiphon.errors import PlanError
from antiphon.models import spline_basis
from antiphon.models.splines import _basis_by_torch
from antiphon.numerics import UniformSplines

PATHS = {"kernels": spline_basis, "torch": _basis_by_torch}
GRIDS = [UniformSplines(5, degree) for degree in range(1, 6)] + [
    UniformSplines(1, 3),
    UniformSplines(40, 2, -0.3, 1.7),
]
TRANSFORMS = {
    "grad": torch.func.grad,
    "hessian": torch.func.hessian,
    "twice reverse": lambda f: torch.func.jacrev(torch.func.jacrev(f)),
}
either_path = pytest.mark.parametrize("basis", PATHS.values(), ids=PATHS)
torchs_own = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # in forward mode
every_grid = pytest.mark.parametrize("splines", GRIDS, ids=str)


def points(splines, count=1001):
    """Random points of the domain and both ends; no inner knots, where high derivatives jump."""
    inner = np.random.default_rng(0).uniform(splines.low, splines.high, count)
    return torch.from_numpy(np.concatenate([inner, [splines.low, splines.high]]))


@either_path
@every_grid
def test_values_and_derivatives_are_those_of_de_boor(splines, basis):
    x = points(splines)
    oracle = BSpline(splines.knots, np.eye(splines.size), splines.degree)
    for order in range(splines.degree + 1):
        expected = oracle.derivative(order)(x.numpy()) if order else oracle(x.numpy())
        if order == splines.degree:  # SciPy takes such jumps at the right end from the right
            x, expected = x[:-1], expected[:-1]
        found = basis(x, splines, order).numpy()
        np.testing.assert_allclose(
            found * splines.spacing**order, expected * splines.spacing**order, atol=1e-12
        )


@either_path
@every_grid
def test_values_sum_to_one_and_derivatives_to_zero(splines, basis):
    values, slopes = (basis(points(splines), splines, order) for order in (0, 1))
    assert values.min() >= -1e-15
    assert (values != 0).sum(-1).max() <= splines.degree + 1
    torch.testing.assert_close(values.sum(-1), torch.ones(len(values)).double())
    torch.testing.assert_close(
        slopes.sum(-1), torch.zeros(len(values)).double(), atol=1e-12, rtol=0
    )


@either_path
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outside_counts_as_the_end_with_no_slope(basis, dtype):
    splines = UniformSplines(7, 3, -0.3, 0.9)
    ends = torch.tensor([splines.low, splines.high], dtype=dtype)
    x = torch.tensor([-math.inf, -5.0, 0.95, math.inf], dtype=dtype, requires_grad=True)
    values = basis(x, splines, 0)
    torch.testing.assert_close(values, basis(ends, splines, 0)[[0, 0, 1, 1]])
    (slope,) = torch.autograd.grad(values.square().sum(), x)
    assert not slope.any() and not basis(x, splines, 1).any()
    assert basis(ends, splines, 1).any(-1).all()  # an end itself belongs to the domain


@either_path
def test_a_nan_stays_a_nan_and_hurts_no_other(basis):
    x = torch.tensor([0.1, math.nan, 0.2])
    values = basis(x, UniformSplines(), 0)
    assert values.isnan().any(-1).tolist() == [False, True, False]
    torch.testing.assert_close(values[[0, 2]], basis(x[[0, 2]], UniformSplines(), 0))


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (), (300,), (2, 3, 129)])
def test_kernels_and_torch_agree_for_every_shape(shape):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 2.2 - 1.1
    for view in (x, x.mT if x.ndim > 1 else x):
        found = spline_basis(view, UniformSplines())
        assert found.shape == (*view.shape, 8) and found.dtype == torch.float32
        torch.testing.assert_close(found, _basis_by_torch(view, UniformSplines(), 0))


@torchs_own
@either_path
@every_grid
def test_gradients_of_gradients_are_right(splines, basis):
    x = points(splines, 7)[:-2].requires_grad_()
    assert torch.autograd.gradcheck(lambda v: basis(v, splines, 0), x, eps=1e-7)
    if splines.degree > 2:
        assert torch.autograd.gradgradcheck(lambda v: basis(v, splines, 0), x, eps=1e-7)
        assert torch.autograd.gradcheck(lambda v: basis(v, splines, 0), x, check_forward_ad=True)


@torchs_own
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms_of_torch_func_go_through(transform):
    x, c = torch.linspace(-0.9, 0.8, 12).double().reshape(4, 3), torch.linspace(-1, 2, 8).double()

    def value(row, basis):
        return (basis(row, UniformSplines(), 0) @ c).sin().sum()

    found, expected = (
        torch.func.vmap(lambda row, b=basis: transform(lambda v: value(v, b))(row))(x)
        for basis in PATHS.values()
    )
    torch.testing.assert_close(found, expected)


@either_path
def test_acceptance_kan_constants_of_the_cubic_basis(basis):
    splines, x = UniformSplines(), torch.linspace(-1, 1, 20_001).double()
    norms = [float(basis(x, splines, order).norm(dim=-1).max()) for order in range(3)]
    largest = [float(basis(x, splines, order).abs().max()) for order in range(3)]
    h = splines.spacing
    assert norms == pytest.approx(
        [math.sqrt(1 / 2), math.sqrt(0.8125) / h, math.sqrt(6) / h**2], rel=1e-9
    )
    assert largest == pytest.approx([2 / 3, 2 / 3 / h, 2 / h**2], rel=1e-6)
    assert float(basis(x, splines, 0).norm(dim=-1).min()) == pytest.approx(0.67828419, abs=1e-8)


def test_other_types_take_the_torch_path():
    x = torch.tensor([0.3, -0.7], dtype=torch.bfloat16)
    found = spline_basis(x, UniformSplines())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(
        found.float(), spline_basis(x.float(), UniformSplines()), atol=2e-2, rtol=0
    )
    assert spline_basis(torch.empty(2, 3, device="meta"), UniformSplines()).shape == (2, 3, 8)
    with pytest.raises(PlanError, match=r"floating-point type; got torch.int64"):
        spline_basis(torch.tensor([1]), UniformSplines())
