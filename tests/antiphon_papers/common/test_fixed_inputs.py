"""Products with features that are partly sparse against the features themselves."""

import numpy as np
import pytest
import torch

from antiphon.errors import PlanError
from antiphon.models import spline_basis
from antiphon.numerics import UniformSplines
from antiphon_papers.common.fixed_inputs import FixedInputs

KINDS = {
    "all different": lambda rng, x: x,
    "images": lambda rng, x: np.where(rng.random(x.shape) < 0.8, -1.0, x),
    "some columns": lambda rng, x: np.where(np.arange(x.shape[1]) % 3 == 0, 0.25, x),
    "constant": lambda rng, x: np.full_like(x, 0.7),
    "outside": lambda rng, x: np.where(rng.random(x.shape) < 0.7, 5.0, 3 * x),
}
NONE_BUT_THIRDS = np.where(np.arange(40) % 3 == 0, 0.25, np.nan)
BACKGROUNDS = {
    "all different": None,
    "images": -1.0,
    "some columns": NONE_BUT_THIRDS,
    "constant": 0.7,
    "outside": 5.0,
}
any_kind = pytest.mark.parametrize("kind", KINDS)
any_degree = pytest.mark.parametrize("degree", [1, 2, 3, 5])


def inputs(kind, n=70, d=40, dtype=np.float64):
    rng = np.random.default_rng(0)
    return KINDS[kind](rng, rng.uniform(-1.1, 1.1, (n, d))).astype(dtype)


def fixed_inputs(kind, x, splines, outputs, **options):
    background = BACKGROUNDS[kind]
    if background is NONE_BUT_THIRDS:
        background = background[: x.shape[1]]
    return FixedInputs(x, splines, outputs, background=background, **options)


def features(x, splines):
    return spline_basis(torch.from_numpy(x), splines).flatten(1).numpy()


@any_kind
@any_degree
@pytest.mark.parametrize("outputs", [1, 3, 500])  # with 500, few columns share a tile
def test_products_are_those_of_the_features(kind, degree, outputs):
    x, splines = inputs(kind), UniformSplines(6, degree)
    fixed, phi = fixed_inputs(kind, x, splines, outputs), features(x, splines)
    rng = np.random.default_rng(1)
    for rows in (None, np.array([3, 4, 5, 60, 11]), np.array([], np.intp)):
        some = phi if rows is None else phi[rows]
        coef, weights = (
            rng.normal(size=(outputs, phi.shape[1])),
            rng.normal(size=(len(some), outputs)),
        )
        products = fixed.select(rows)
        np.testing.assert_allclose(products.times(coef), some @ coef.T, atol=1e-11)
        np.testing.assert_allclose(products.weighted(weights), weights.T @ some, atol=1e-11)
    np.testing.assert_allclose(fixed.squares, np.square(phi).sum(1), atol=1e-11)


@any_kind
def test_single_precision_is_as_good_as_that_of_dense_products(kind):
    x, splines = inputs(kind, 3_000, 30, np.float32), UniformSplines()
    fixed, phi = fixed_inputs(kind, x, splines, 4), features(x.astype(np.float64), splines)
    coef = np.random.default_rng(1).normal(size=(4, 240)).astype(np.float32)
    weights = np.random.default_rng(2).normal(size=(3_000, 4)).astype(np.float32)
    products = fixed.select()
    np.testing.assert_allclose(products.times(coef), phi @ coef.T.astype(np.float64), atol=3e-5)
    np.testing.assert_allclose(
        products.weighted(weights), weights.T.astype(np.float64) @ phi, atol=2e-3
    )
    np.testing.assert_allclose(fixed.squares, np.square(phi).sum(1), rtol=1e-5)


@any_kind
def test_features_that_are_too_large_to_keep_are_made_by_parts(kind):
    x = inputs(kind, n=2_500, d=12)
    kept, made = (fixed_inputs(kind, x, UniformSplines(), 3, largest=size) for size in (1e9, 0))
    assert (made.dense is None) is (len(made.full) > 0)
    coef = np.random.default_rng(1).normal(size=(3, 96))
    np.testing.assert_allclose(made.squares, kept.squares, rtol=1e-12)
    for rows in (None, np.array([7, 2_000, 1]), np.array([], np.intp)):
        one, other = (fixed.select(rows) for fixed in (kept, made))
        weights = np.random.default_rng(2).normal(size=(len(x) if rows is None else len(rows), 3))
        np.testing.assert_allclose(other.times(coef), one.times(coef), atol=1e-12)
        np.testing.assert_allclose(other.weighted(weights), one.weighted(weights), atol=1e-10)


def test_a_selection_can_reuse_memory():
    x, memory = inputs("some columns"), torch.empty(0, dtype=torch.float64)
    fixed = fixed_inputs("some columns", x, UniformSplines(), 3)
    coef = np.ones((3, 320))
    for rows in (np.arange(9), np.array([4]), np.arange(30, 60)):
        found = fixed.select(rows, memory).times(coef)
        np.testing.assert_allclose(found, fixed.select(rows).times(coef), atol=0)


def test_what_most_rows_share_is_kept_once():
    x = inputs("images")
    fixed = fixed_inputs("images", x, UniformSplines(), 3)
    assert len(fixed.sparse) == 40 and not len(fixed.full) and fixed.dense.numel() == 0
    assert len(fixed.entries[-1]) == (x != -1).sum()
    constant = fixed_inputs("constant", inputs("constant"), UniformSplines(), 3)
    assert len(constant.entries[-1]) == 0
    mixed = fixed_inputs("some columns", inputs("some columns"), UniformSplines(), 3)
    assert mixed.sparse.tolist() == list(range(0, 40, 3)) and len(mixed.full) == 26


def test_a_background_is_never_looked_for_in_the_data():
    """It would change how all rows are rounded, and so tell of each."""
    assert not len(FixedInputs(inputs("images"), UniformSplines(), 3).sparse)


@pytest.mark.parametrize("background", [None, -1.0, 0.31])
def test_sums_of_very_many_rows_keep_their_digits(background, n=100_000):
    """Those of a thousand do in single precision, and the rest is added up in double.

    A running sum of all in single precision is off by 0.2 to 1.5 here, by weights of 0.01 each.
    """
    x, weights = np.full((n, 1), 0.31, np.float32), np.full((n, 1), 0.01, np.float32)
    x[:1000] = -1.0
    found = FixedInputs(x, UniformSplines(), 1, background=background).select().weighted(weights)
    rows = features(x[[0, -1]].astype(np.float64), UniformSplines())
    expected = float(weights[0, 0]) * (1000 * rows[0] + (n - 1000) * rows[1])
    np.testing.assert_allclose(found[0], expected, atol=0.02)


@any_kind
def test_a_nan_voids_its_row_and_hurts_no_other(kind):
    x = inputs(kind)
    x[5, 7] = x[9, 0] = np.nan
    fixed = fixed_inputs(kind, x, UniformSplines(), 2)
    assert np.flatnonzero(fixed.void).tolist() == [5, 9]
    weights = np.ones((70, 2))
    weights[[5, 9]] = 0.0
    phi = features(np.nan_to_num(x, nan=0.0), UniformSplines())
    np.testing.assert_allclose(fixed.select().weighted(weights), weights.T @ phi, atol=1e-11)
    assert np.isfinite(fixed.squares[~fixed.void]).all()


def test_other_shapes_and_types_are_refused():
    for x in (np.zeros(3), np.zeros((2, 3), np.int64), np.zeros((0, 3))):
        with pytest.raises(PlanError, match="fixed inputs are a matrix of float32 or float64"):
            FixedInputs(x, UniformSplines(), 2)
    with pytest.raises(PlanError, match=r"one for each of the 3 columns; got shape \(2,\)"):
        FixedInputs(np.zeros((2, 3)), UniformSplines(), 2, background=[0.0, 1.0])
