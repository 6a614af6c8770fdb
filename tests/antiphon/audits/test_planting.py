"""Planted canaries: the data set holds exactly those that are in, and coins are fair and secret."""

import numpy as np
import pytest
import torch

from antiphon.audits import mislabelled, plant
from antiphon.errors import PlanError
from antiphon.numerics import Generator


def rows(n, start=0, kind="torch"):
    """Rows that tell themselves apart, with labels."""
    x = torch.arange(start, start + n).float()[:, None].repeat(1, 3)
    y = torch.arange(n) % 3
    return (x, y) if kind == "torch" else (x.numpy(), y.numpy())


def numbers(part):
    return [int(row[0]) for row in part]


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_the_data_set_is_the_given_rows_and_exactly_the_canaries_that_are_in(kind):
    canaries = rows(40, start=100, kind=kind)
    planted = plant(rows(10, kind=kind), canaries, seed=3)
    there = [100 + int(place) for place in np.flatnonzero(planted.coins)]
    assert 0 < len(there) < 40
    assert numbers(planted.data[0]) == [*range(10), *there]
    assert planted.data[1][10:].tolist() == canaries[1][np.flatnonzero(planted.coins)].tolist()
    assert [type(part) for part in planted.data] == [type(part) for part in canaries]
    assert planted.canaries is canaries and planted.n == 10 + 20


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("one_for_all", [True, False])
def test_a_stand_in_takes_the_place_of_each_canary_that_is_out(kind, relation, one_for_all):
    instead = rows(1 if one_for_all else 40, start=500, kind=kind)
    canaries = rows(40, start=100, kind=kind)
    planted = plant(rows(10, kind=kind), canaries, seed=3, relation=relation, instead=instead)
    expected = [
        100 + i if is_in else 500 + (0 if one_for_all else i)
        for i, is_in in enumerate(planted.coins)
    ]
    assert numbers(planted.data[0]) == [*range(10), *expected]
    assert len(planted.data[1]) == planted.n == 50
    assert numbers(canaries[0]) == list(range(100, 140)), "the canaries themselves are unchanged"


def test_coins_are_fair_independent_and_new_unless_seeded():
    many = (np.zeros((20_000, 1)),)
    first, again, other = (plant(many, many, seed=seed).coins for seed in (1, 1, 2))
    assert (first == again).all()
    # Each share is 1/2 with standard deviation 0.0035: a fair coin fails at 0.02 once in 10^8 seeds.
    for same in (first, first == other, first[1:] == first[:-1]):
        assert abs(same.mean() - 0.5) < 0.02
    assert (plant(many, many).coins != plant(many, many).coins).any()


def test_coins_differ_from_what_a_run_with_the_same_seed_draws():
    coins = plant((np.zeros(2000),), (np.zeros(2000),), seed=5).coins
    for label in ("noise", "sampling"):
        drawn = Generator.seeded(5).spawn(label).words(2000, step=0).numpy() < 0
        assert abs((coins == drawn).mean() - 0.5) < 0.06


def test_what_is_printed_shows_no_coin_and_coins_cannot_be_changed():
    planted = plant(rows(10), rows(40), seed=3)
    assert (
        repr(planted) == repr(plant(rows(10), rows(40), seed=4))
        and planted.coins.tolist() != plant(rows(10), rows(40), seed=4).coins.tolist()
    )
    with pytest.raises(ValueError, match="read-only"):
        planted.coins[0] = True


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("classes", [3, 5])
def test_mislabelled_rows_are_of_the_pool_and_have_any_other_label(kind, classes):
    X, y = rows(600, kind=kind)
    inputs, labels = mislabelled(X, y, 600, classes, seed=1)
    assert sorted(numbers(inputs)) == list(range(600))
    own = y[np.array(numbers(inputs))]
    shifts = np.bincount((np.asarray(labels) - np.asarray(own)) % classes, minlength=classes)
    assert shifts[0] == 0
    assert (abs(shifts[1:] / 600 - 1 / (classes - 1)) < 0.08).all()
    assert labels.dtype == y.dtype and type(labels) is type(y)
    assert np.array_equal(labels, mislabelled(X, y, 600, classes, seed=1)[1])


X, Y = rows(8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plant((X, Y[:5]), (X, Y)), r"dataset must have as many rows .* got \[8, 5\]"),
        (lambda: plant((X, Y), (X, Y[:5])), r"canaries must have as many rows .* got \[8, 5\]"),
        (lambda: plant((X, Y), (X[:0], Y[:0])), "canaries must have at least one row"),
        (lambda: plant(X, (X, Y)), r"dataset must be tensors or arrays .* got Tensor"),
        (lambda: plant((X, Y), (X, [0] * 8)), r"got \['Tensor', 'list'\]"),
        (lambda: plant((X, Y), (X,)), "canaries must be of the data set's kind"),
        (lambda: plant((X, Y), (X[:, :2], Y)), r"got \['rows of shape \(2,\)"),
        (lambda: plant((X, Y), (X.double(), Y)), "float64 on cpu.*Convert them"),
        (lambda: plant((X, Y), (X.numpy(), Y)), "float32 in NumPy.*Convert them"),
        (lambda: plant((X, Y), (X, Y), relation="swap"), "got 'swap'"),
        (lambda: plant((X, Y), (X, Y), instead=(X, Y)), "under add-remove .* is left out"),
        (lambda: plant((X, Y), (X, Y), relation="replace-one"), "give instead=.*an ordinary row"),
        (lambda: plant((X, Y), (X, Y), relation="zero-out"), "one that adds nothing"),
        (
            lambda: plant((X, Y), (X, Y), relation="replace-one", instead=(X[:3], Y[:3])),
            "one row, or one for each of the 8 canaries; got 3",
        ),
        (
            lambda: plant((X, Y), (X, Y), relation="replace-one", instead=(X.double(), Y)),
            "instead must be of the data set's kind",
        ),
        (lambda: mislabelled(X, Y, 9, 3), "the pool has 8 rows; got count=9"),
        (lambda: mislabelled(X, Y, 0, 3), "count must be a whole number"),
        (lambda: mislabelled(X, Y, 2, 1), "no other label"),
        (lambda: mislabelled(X, Y, 2, 2), "whole numbers from 0 to 1"),
        (lambda: mislabelled(X, Y - 1, 2, 3), "whole numbers from 0 to 2"),
        (lambda: mislabelled(X, Y.float(), 2, 3), "got torch.float32"),
        (lambda: mislabelled(X, Y > 0, 2, 3), "got torch.bool"),
        (lambda: mislabelled(X, Y[:3], 2, 3), r"the pool must have as many rows .* \[8, 3\]"),
    ],
)
def test_what_cannot_be_planted_is_refused(call, message):
    with pytest.raises(PlanError, match=message):
        call()
