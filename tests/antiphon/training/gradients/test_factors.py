"""Norms and sums from factors, against formed gradients; and what rounding may do to a clip norm."""

import math

import pytest
import torch

from antiphon.training.gradients import line_sums, sum_of_factors
from antiphon.training.gradients import outer as module
from antiphon.training.gradients.clipped_sum import ClippedSum
from antiphon.training.gradients.clipping import Flat
from antiphon.training.gradients.factors import Dense, Rows, exactly, merged
from antiphon.training.gradients.lookups import Lookups
from antiphon.training.gradients.norms import norms, squares
from antiphon.training.gradients.outer import Outer
from antiphon.training.gradients.sum_of_factors import Sum
from antiphon.training.gradients.units import Units

UNITS = Units(torch.tensor([2, 0, 2, 1, 0]), 3)


def product(rows=5, T=3, columns=4, height=2, seed=0):
    draw = torch.Generator().manual_seed(seed)
    left = torch.randn(rows, T, columns, generator=draw)
    return Outer(left, torch.randn(rows, T, height, generator=draw), torch.Size((height, columns)))


def lookups(rows=5, T=6, lines=4, width=3, seed=1):
    draw = torch.Generator().manual_seed(seed)
    index = torch.randint(0, lines, (rows, T), generator=draw)
    return Lookups(index, torch.randn(rows, T, width, generator=draw), lines)


def tied(lines=4, width=3):
    """A table that is looked up and is a matrix too."""
    return Sum(lookups(lines=lines, width=width), product(columns=width, height=lines))


FACTORS = {
    "dense": lambda: Dense(torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(0))),
    "dense, scalar": lambda: Dense(torch.arange(5.0)),
    "outer, one vector": lambda: product(T=1),
    "outer, formed": product,
    "outer, Gram": lambda: product(columns=30, height=30),
    "lookups": lookups,
    "rows": lambda: Rows({(0, 2): product(), (3, 5): product(seed=1)}, torch.Size((6, 4))),
    "rows of a vector": lambda: Rows({(1, 3): Dense(torch.ones(5, 2))}, torch.Size((4,))),
    "sum, formed": tied,
    "sum, Gram": lambda: tied(30, 40),
    "merged lookups": lambda: merged([lookups(), lookups(T=2, seed=2)]),
    "merged sums": lambda: merged(
        [product(columns=3, height=4), lookups(), product(T=1, columns=3, height=4)]
    ),
    "merged rows": lambda: merged(
        [
            Rows({(0, 2): product()}, torch.Size((4, 4))),
            Rows({(2, 4): product(seed=1)}, torch.Size((4, 4))),
            Rows({(0, 2): product(seed=2)}, torch.Size((4, 4))),
        ]
    ),
    "merged rows that overlap": lambda: merged(
        [
            Rows({(0, 2): product()}, torch.Size((4, 4))),
            Rows({(1, 3): product(seed=1)}, torch.Size((4, 4))),
        ]
    ),
    "merged outers": lambda: merged([product(), product(T=1, seed=1)]),
    "merged kinds": lambda: merged([lookups(), Dense(torch.ones(5, 4, 3))]),
}


def sum_of(factor, weights, shape):
    out = torch.zeros(shape)
    factor.add_to(out, weights)
    return out


def is_consistent(factor, tol=1e-5):
    dense = factor.dense().double()
    weights = torch.linspace(0.1, 2, factor.rows, dtype=torch.float64)
    expected = torch.tensordot(weights, dense, dims=1)
    before = sum_of(factor, weights, dense.shape[1:])  # as the probe does: without norms
    torch.testing.assert_close(before.double(), expected, rtol=tol, atol=tol)
    squared = dense.reshape(factor.rows, -1).square().sum(1)
    torch.testing.assert_close(factor.squared_norms(), squared, rtol=tol, atol=tol)
    after = sum_of(factor, weights, dense.shape[1:])
    torch.testing.assert_close(after.double(), expected, rtol=tol, atol=tol)


@pytest.mark.parametrize("name", FACTORS)
def test_norms_and_sums_are_those_of_the_formed_gradients(name):
    is_consistent(FACTORS[name]())


@pytest.mark.parametrize("name", FACTORS)
def test_kept_rows_are_those_of_the_formed_gradients(name):
    alive = torch.tensor([True, False, True, True, False])
    factor = FACTORS[name]()
    torch.testing.assert_close(factor.keep(alive).dense(), factor.dense()[alive])
    is_consistent(factor.keep(alive))
    assert factor.keep(torch.zeros(5, dtype=torch.bool)).squared_norms().shape == (0,)
    torch.testing.assert_close(factor.keep(slice(1, 3)).dense(), factor.dense()[1:3])
    is_consistent(factor.keep(slice(1, 3)))


@pytest.mark.parametrize("name", FACTORS)
def test_rows_that_are_kept_after_norms_are_the_same(name):
    factor = FACTORS[name]()
    squared = factor.squared_norms()
    kept = factor.keep(slice(2, 5))
    torch.testing.assert_close(kept.squared_norms(), squared[2:5])
    is_consistent(kept)


@pytest.mark.parametrize("name", FACTORS)
def test_a_unit_has_the_mean_of_its_rows(name):
    factor = FACTORS[name]()
    rows = factor.dense()
    expected = torch.stack([(rows[1] + rows[4]) / 2, rows[3], (rows[0] + rows[2]) / 2])
    torch.testing.assert_close(factor.grouped(UNITS).dense(), expected)
    is_consistent(factor.grouped(UNITS))


def test_large_outer_products_are_formed_in_parts(monkeypatch):
    monkeypatch.setattr(module, "DENSE_BYTES", 40)
    is_consistent(product())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_half_precision_is_left_before_squares_are_taken(dtype):
    left = torch.full((2, 1, 3), 300.0, dtype=dtype)
    factor = Outer(left, left[..., :2], torch.Size((2, 3)))
    expected = torch.full((2,), 6 * 300.0**4, dtype=torch.float64)
    torch.testing.assert_close(factor.squared_norms(), expected, rtol=2e-2, atol=0)
    assert Dense(left).squared_norms().dtype is torch.float64


def test_a_float32_factor_adds_to_a_float64_sum():
    for name, make in FACTORS.items():
        factor = make()
        out = torch.zeros(factor.dense().shape[1:], dtype=torch.float64)
        factor.add_to(out, torch.ones(5, dtype=torch.float64))
        assert torch.allclose(out.float(), factor.dense().sum(0), atol=1e-5), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("power", [-300, -40, -30, -22, -18, -12, 0, 12, 18, 22, 30, 37, 200])
def test_norms_leave_no_range(dtype, power):
    if dtype is torch.float32 and not -41 < power < 38:
        return
    rows = torch.full((2, 1000), 10.0**power, dtype=dtype)
    rows[1] = 0
    expected = torch.tensor([rows[0, 0].item() * math.sqrt(1000), 0.0], dtype=torch.float64)
    torch.testing.assert_close(norms(rows), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("length", [0, 1, 1000, 1024, 1025, 5000, 60_000, 3 * (1 << 16) + 5])
def test_rows_of_any_length_keep_their_digits(length):
    """Rows of equal numbers are the worst: all squares are rounded to the same side."""
    rows = torch.cat([torch.full((1, length), c / 7) for c in range(1, 40)])
    expected = rows.double().square().sum(1).sqrt()
    torch.testing.assert_close(norms(rows), expected, rtol=1.2e-6, atol=0)
    torch.testing.assert_close(squares(rows), expected.square(), rtol=2.4e-6, atol=0)


def test_norms_of_what_is_not_finite_are_not_finite():
    rows = torch.tensor([[math.nan, 1.0], [math.inf, 1.0], [-math.inf, math.nan], [3.0, 4.0]])
    assert torch.isfinite(norms(rows)).tolist() == [False, False, False, True]
    assert norms(rows)[3] == 5


# -- an adversary of the clip norm ---------------------------------------------------------------------


def clipped_norm(factor, shape, clip_norm=1.0):
    """The norm of what a single unit adds."""
    parameter = torch.nn.Parameter(torch.zeros(shape))
    total = ClippedSum({"a.weight": parameter})
    total.add({parameter: factor}, Flat(), clip_norm)
    return float(total.value().double().norm())


def cancelling(T, columns, height, size, rest=2.0, seed=0):
    """Equal inputs, and gradients of the given size that add up to one of norm about ``rest``."""
    draw = torch.Generator().manual_seed(seed)
    left = torch.nn.functional.normalize(torch.randn(columns, generator=draw), dim=0)
    right = torch.randn(T, height, generator=draw).sign() * size / math.sqrt(height)
    right[1::2] = -right[::2]
    right[0] += rest * torch.randn(height, generator=draw) / math.sqrt(height)
    return left.expand(1, T, columns).contiguous(), right[None]


CASES = [
    (2, 64, 64),
    (10, 100, 70),
    (40, 300, 300),
    (64, 512, 400),
    (6, 2, 3),
    (400, 8, 8),
    (1000, 1, 1),
]


@pytest.mark.parametrize("path", ["kept", "in parts"])
@pytest.mark.parametrize("size", [1.0, 3e1, 1e2, 1e4, 1e6])
@pytest.mark.parametrize(("T", "columns", "height"), CASES)
def test_terms_that_cancel_do_not_pass_the_clip_norm(T, columns, height, size, path, monkeypatch):
    if path == "in parts":
        monkeypatch.setattr(module, "DENSE_BYTES", 40)
    for seed in range(3):
        left, right = cancelling(T, columns, height, size, seed=seed)
        factor = Outer(left, right, torch.Size((height, columns)))
        assert clipped_norm(factor, (height, columns)) <= 1 + 1e-5


def test_cancelling_sums_are_those_of_float64():
    left, right = cancelling(10, 100, 70, 1e6)
    exact = torch.bmm(right.double().mT, left.double())
    factor = Outer(left, right, torch.Size((70, 100)))
    norm = float(factor.squared_norms().sqrt())
    assert norm == pytest.approx(float(exact.norm()), rel=1e-6)
    out = torch.zeros(70, 100)
    factor.add_to(out, torch.ones(1, dtype=torch.float64) / norm)
    torch.testing.assert_close(out.double(), exact[0] / norm, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("T", [2, 30, 1000])
def test_words_whose_gradients_cancel_do_not_pass_the_clip_norm(T, size):
    for seed in range(3):
        _, right = cancelling(T, 1, 5, size, seed=seed)
        factor = Lookups(torch.zeros(1, T, dtype=torch.long), right, 2)
        assert clipped_norm(factor, (2, 5)) <= 1 + 1e-5


@pytest.mark.parametrize("path", ["kept", "in parts"])
@pytest.mark.parametrize("size", [1.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize(
    ("T", "width", "lines"), [(1, 40, 30), (2, 64, 64), (3, 2, 4), (40, 300, 300)]
)
def test_parts_that_cancel_do_not_pass_the_clip_norm(T, width, lines, size, path, monkeypatch):
    """The lookups are the negative of the matrix's gradient, but for a rest of norm about 2."""
    for owner in (module, sum_of_factors) if path == "in parts" else ():
        monkeypatch.setattr(owner, "DENSE_BYTES", 40)
    for seed in range(3):
        draw = torch.Generator().manual_seed(seed)
        index = torch.randint(0, lines, (1, T), generator=draw)
        left = torch.randn(1, T, width, generator=draw) * size / math.sqrt(width * T)
        rest = torch.randn(1, T, width, generator=draw) * 2 / math.sqrt(width * T)
        right = torch.nn.functional.one_hot(index, lines).float()
        factor = merged(
            [Lookups(index, rest - left, lines), Outer(left, right, torch.Size((lines, width)))]
        )
        assert isinstance(factor, Sum)
        assert 0.9 < clipped_norm(factor, (lines, width)) <= 1 + 1e-5


def test_tied_weights_form_no_table_where_that_is_dear():
    lines, width = 20_000, 64
    factor = tied(lines, width)
    squared = factor.squared_norms()
    assert factor._formed is None and factor.matrix._formed is None
    exact = factor.dense().double().flatten(1).square().sum(1)
    torch.testing.assert_close(squared, exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (4, 9)])
def test_compiled_sums_of_lines_are_those_of_torch(shape, dtype):
    draw = torch.Generator().manual_seed(0)
    index = torch.randint(0, 5, shape, generator=draw)
    right = torch.randn(*shape, 3, generator=draw, dtype=dtype)
    row, line, sums = line_sums.line_sums(index, right, 5)
    order = torch.argsort(row * 5 + line)
    for found, wanted in zip((row, line, sums), line_sums._by_torch(index, right, 5), strict=True):
        torch.testing.assert_close(found[order], wanted)
    other = line_sums.line_sums(index.t().contiguous().t().int(), right.mT.contiguous().mT, 5)
    assert all(map(torch.equal, (row, line, sums), other))


@pytest.mark.parametrize("index", [-1, 5])
def test_no_line_outside_of_a_table_is_written(index):
    with pytest.raises(IndexError, match="among the 5"):
        line_sums.line_sums(torch.tensor([[1, index]]), torch.ones(1, 2, 3), 5)


@pytest.mark.parametrize("left", [1e-30, 1e-25, 1e-20, 1.0, 1e20, 1e35])
@pytest.mark.parametrize("right", [1e-30, 1e-20, 1.0, 1e20, 1e35])
@pytest.mark.parametrize("T", [1, 2])
def test_huge_and_tiny_factors_do_not_pass_the_clip_norm(left, right, T):
    rows = torch.full((1, T, 40), left), torch.full((1, T, 40), right)
    true = left * right * 40 * T
    found = clipped_norm(Outer(*rows, torch.Size((40, 40))), (40, 40))
    assert found <= 1 + 1e-5
    if true < 1e36:
        assert found == pytest.approx(min(1.0, true), rel=1e-4, abs=1e-30)


@pytest.mark.parametrize("T", [1, 2])
def test_factors_at_the_end_of_the_range_do_not_pass_the_clip_norm(T):
    """A weight times the other factor is denormal here, with few digits."""
    left = torch.full((1, T, 60_000), 3e38)
    for right in torch.linspace(1.0, 2.0, 9):
        factor = Outer(left, right.expand(1, T, 7) * 1e-20, torch.Size((7, 60_000)))
        assert clipped_norm(factor, (7, 60_000)) == pytest.approx(1.0, rel=1e-5)


def test_products_keep_their_precision_within_autocast():
    a = torch.rand(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ a).dtype is torch.bfloat16
        with exactly():
            assert (a @ a).dtype is torch.float32


@pytest.mark.parametrize("precision", ["medium", "high"])
def test_products_keep_their_precision_where_quick_ones_are_allowed(precision):
    before = torch.get_float32_matmul_precision()
    settings = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    try:
        torch.set_float32_matmul_precision(precision)
        allowed = [setting.fp32_precision for setting in settings]
        with exactly():
            assert [setting.fp32_precision for setting in settings] == ["ieee", "ieee"]
        assert [setting.fp32_precision for setting in settings] == allowed
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)


def test_no_rows_have_no_norms():
    for length in (0, 3, 5000):
        assert norms(torch.zeros(0, length)).shape == (0,)
