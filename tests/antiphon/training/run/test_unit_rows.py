"""Which rows belong to which unit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import PlanError
from antiphon.training.run.unit_rows import Rows

names = st.lists(st.sampled_from(["a", "b", 1, "1", 2.5]), min_size=1, max_size=12)


@given(names, st.data())
def test_rows_of_units_are_those_with_their_users_name(users, data):
    rows = Rows(len(users), users)
    known = list(dict.fromkeys((type(name), name) for name in users))  # 1 and "1" are two
    owned = [[i for i, name in enumerate(users) if (type(name), name) == user] for user in known]
    assert rows.count == len(known) and rows.most == max(map(len, owned))
    chosen = data.draw(st.permutations(range(rows.count)))[: data.draw(st.integers(0, rows.count))]
    found, units = rows.of(torch.tensor(chosen, dtype=torch.int64))
    assert found.tolist() == [row for user in chosen for row in owned[user]]
    assert units.count == len(chosen)
    assert [chosen[place] for place in units.of_row] == [u for u in chosen for _ in owned[u]]
    sizes = rows.sizes(torch.arange(rows.count))
    assert sizes.tolist() == [len(own) for own in owned]


def test_without_users_every_row_is_a_unit():
    rows, drawn = Rows(7, None), torch.tensor([1, 5])
    found, units = rows.of(drawn)
    assert torch.equal(found, drawn) and units is None and not rows.users
    assert (rows.count, rows.most, rows.digest()) == (7, 1, "")
    assert rows.sizes(drawn).tolist() == [1, 1]


def test_a_digest_tells_who_has_which_rows_and_not_what_they_are_called():
    assert Rows(3, ["a", "b", "a"]).digest() == Rows(3, [5, 7, 5]).digest()
    assert Rows(3, ["a", "b", "a"]).digest() != Rows(3, ["a", "b", "b"]).digest()


@pytest.mark.parametrize(
    "users", [[None, "a", "b"], [float("nan"), 1.0, 1.0], np.array([np.nan, 1, 2])]
)
def test_examples_without_a_user_are_refused(users):
    with pytest.raises(PlanError, match="have no user"):
        Rows(3, users)


def test_every_row_needs_a_user_and_a_user_a_name():
    with pytest.raises(PlanError, match=r"3 are needed; got shape \(2,\)"):
        Rows(3, ["a", "b"])
    with pytest.raises(PlanError, match=r"3 are needed; got shape \(3, 1\)"):
        Rows(3, np.zeros((3, 1)))
    with pytest.raises(PlanError, match="numbers or texts"):
        Rows(2, [["a"], ["b"]])


def test_users_are_arrays_or_tensors_too():
    assert Rows(3, torch.tensor([4, 4, 2])).count == Rows(3, np.array(["x", "x", "y"])).count == 2
