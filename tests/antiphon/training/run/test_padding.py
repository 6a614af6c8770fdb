"""Rows are filled up to declared lengths."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import pad

from antiphon.errors import PlanError, RunError
from antiphon.training.run.padding import Padding

lengths = st.integers(0, 5)


def tokens(length, *more):
    return torch.arange(1, 1 + length).view(1, length, *[1] * len(more)).expand(1, length, *more)


@given(lengths, lengths, st.integers(5, 8), st.integers(-100, 100))
def test_entries_by_name_have_their_length_and_their_filling(one, other, length, fill):
    batch = {"words": tokens(one), "labels": tokens(other, 3), "kept": tokens(other)}
    filled = Padding({"words": length, "labels": length}, {"labels": fill}).filled(batch)
    assert torch.equal(filled["words"], pad(batch["words"], (0, length - one)))
    assert torch.equal(
        filled["labels"], pad(batch["labels"], (0, 0, 0, length - other), value=fill)
    )
    assert filled["kept"] is batch["kept"]


@given(lengths)
def test_one_length_is_for_every_tensor_with_an_axis_after_that_of_the_batch(length):
    label = torch.tensor([1.5])
    words, (nested, name), found = Padding(5, -1).filled((tokens(length), (tokens(2), "a"), label))
    assert torch.equal(words, pad(tokens(length), (0, 5 - length), value=-1))
    assert torch.equal(nested, pad(tokens(2), (0, 3), value=-1))
    assert name == "a" and found is label


def test_positions_name_the_entries_of_a_tuple_or_a_list():
    for batch in ((tokens(2), tokens(3)), [tokens(2), tokens(3)]):
        first, second = Padding({1: 4}).filled(batch)
        assert first.shape == (1, 2) and torch.equal(second, pad(tokens(3), (0, 1)))


def test_a_single_tensor_has_no_keys():
    assert Padding(3).filled(tokens(2)).tolist() == [[1, 2, 0]]
    with pytest.raises(PlanError, match="has no keys"):
        Padding({0: 3}).filled(tokens(2))


def test_a_row_of_the_declared_length_is_unchanged_and_a_longer_one_is_refused():
    assert torch.equal(Padding(3).filled(tokens(3)), tokens(3))
    with pytest.raises(
        RunError, match=r"batch\['words'\] has shape \(1, 4\), and pad_to declares 3"
    ):
        Padding(3).filled({"words": tokens(4)})


@pytest.mark.parametrize(
    ("leaf", "fill"),
    [
        (tokens(2), 0.5),
        (tokens(2), float("nan")),
        (tokens(2), float("inf")),
        (tokens(2).byte(), -100),
        (tokens(2).byte(), 256),
        (tokens(2).bool(), 2),
    ],
)
def test_a_number_that_the_type_has_not_is_refused(leaf, fill):
    with pytest.raises(PlanError, match="has no such number"):
        Padding(3, fill).filled(leaf)


def test_types_are_kept_and_fractions_fill_where_there_are_any():
    assert Padding(3, 0.5).filled(tokens(2).double()).tolist() == [[1, 2, 0.5]]
    for kind in (torch.bool, torch.uint8, torch.int64, torch.float16, torch.complex64):
        filled = Padding(3, 1).filled(tokens(2).to(kind))
        assert filled.dtype is kind and filled[0, 2] == 1


def test_declarations_that_no_row_can_meet_are_refused():
    for wrong in (0, -1, {"a": 0}):
        with pytest.raises(PlanError, match="whole number of at least 1"):
            Padding(wrong)
    with pytest.raises(PlanError, match=r"pad_with names \['b'\], and pad_to has \['a'\]"):
        Padding({"a": 3}, {"b": 1})
    with pytest.raises(
        PlanError, match=r"pad_to names \['b'\], and the collated batch has \['a'\]"
    ):
        Padding({"b": 3}).filled({"a": tokens(2)})
    with pytest.raises(PlanError, match=r"pad_with names \[2\], and the collated batch has \[0\]"):
        Padding(3, {2: 1}).filled((tokens(2),))
    with pytest.raises(PlanError, match="no axis after that of the batch"):
        Padding({"a": 3}).filled({"a": torch.zeros(1)})
