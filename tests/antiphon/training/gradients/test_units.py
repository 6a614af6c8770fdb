"""Rows by unit."""

import numpy as np
import pytest
import torch

from antiphon.errors import PlanError, UnsupportedError
from antiphon.training.gradients.units import Units
from antiphon.training.run import Dataset, make_private
from antiphon.training.run.unit_rows import Rows

UNITS = Units(torch.tensor([2, 0, 2, 1, 2]), 3)
ROWS = torch.arange(10.0).view(5, 2)


def test_sizes_count_rows_also_of_units_without_any():
    assert UNITS.sizes.tolist() == [1, 1, 3]
    assert Units(torch.tensor([0, 0]), 3).sizes.tolist() == [2, 0, 0]


def test_totals_of_shares_are_means():
    expected = torch.stack([ROWS[1], ROWS[3], ROWS[[0, 2, 4]].mean(0)])
    torch.testing.assert_close(UNITS.total(UNITS.shares(ROWS)), expected)


def test_rows_stand_beside_each_other_in_order_and_filled_up_with_zeros():
    spread = UNITS.spread(ROWS)
    assert spread.shape == (3, 3, 2)
    assert torch.equal(spread[2], ROWS[[0, 2, 4]])
    assert torch.equal(spread[0, 0], ROWS[1]) and torch.equal(spread[1, 0], ROWS[3])
    assert float(spread[:2, 1:].abs().sum()) == 0


def test_integers_spread_as_well():
    assert UNITS.spread(torch.arange(5)).tolist() == [[1, 0, 0], [3, 0, 0], [0, 2, 4]]


def test_no_rows_and_single_units():
    nobody = Units(torch.zeros(0, dtype=torch.long), 0)
    assert nobody.spread(torch.zeros(0, 2)).shape == (0, 0, 2)
    assert nobody.total(torch.zeros(0, 2)).shape == (0, 2)
    one = Units(torch.zeros(4, dtype=torch.long), 1)
    assert torch.equal(one.spread(ROWS[:4])[0], ROWS[:4])


def test_a_missing_number_stays_with_its_unit():
    rows = ROWS.clone()
    rows[0] = float("nan")
    assert torch.isfinite(UNITS.total(UNITS.shares(rows))).all(1).tolist() == [True, True, False]


@pytest.mark.parametrize(
    "users", [[None, "a", "b"], [float("nan"), 1.0, 1.0], np.array([np.nan, 1, 2])]
)
def test_examples_without_a_user_are_refused(users):
    with pytest.raises(PlanError, match="have no user"):
        Rows(3, users)


def test_a_number_and_a_text_are_two_users():
    assert Rows(3, [1, "1", 1]).count == 2


def test_places_do_not_protect_users_who_are_replaced():
    model = torch.nn.Linear(2, 1)
    data = Dataset((torch.randn(8, 2),), user=list("abcdefgh"))
    with pytest.raises(UnsupportedError, match="replacing one"):
        make_private(
            model, torch.optim.SGD(model.parameters(), lr=0.1), data, lambda model, x: model(x).sum(),
            epsilon=1.0, delta=1e-3, epochs=1, batch_size=1, sampling="one-pass",
            relation="replace-one", mechanism="independent",
        )  # fmt: skip
