"""The sliders' state as a question: every bad one is refused by its control, in one line."""

import pytest

from antiphon.errors import PlanError
from antiphon.participation import FixedEpochs, Once
from antiphon.plans import BallsInBins, FixedSize, FullBatch, OnePass, Poisson, ShuffledEpochs
from antiphon.reports.explore.question import SAMPLINGS, Question, Refused, usual_participation

ASKED = {"n": "600", "batch": "60", "epochs": "2", "epsilon": "2", "delta": "1e-5", "lam": "0.5"}


def read(**changed):
    return Question.read(ASKED | changed)


@pytest.mark.parametrize(
    ("sampling", "drawn", "relation"),
    [
        ("poisson", Poisson(0.1), "add-remove"),
        ("shuffled", ShuffledEpochs(60), "zero-out"),
        ("balls-in-bins", BallsInBins(10), "add-remove"),
        ("fixed-size", FixedSize(60), "zero-out"),
        ("full-batch", FullBatch(), "add-remove"),
    ],
)
def test_the_plan_is_that_of_make_private(sampling, drawn, relation):
    plan = read(sampling=sampling).plan("auto")
    assert (plan.sampling, plan.relation) == (drawn, relation)
    assert plan.steps == (2 if sampling == "full-batch" else 20)


def test_one_pass_is_one_epoch():
    plan = read(sampling="one-pass", epochs="1").plan("auto")
    assert (plan.sampling, plan.steps) == (OnePass(60), 10)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_chosen_relation_is_kept(sampling):
    asked = read(sampling=sampling, relation="replace-one", epochs="1")
    assert asked.plan("auto").relation == "replace-one"


def test_whole_numbers_may_be_written_with_an_exponent():
    assert read(n="6e4").n == 60_000
    assert isinstance(read(n="6e4").n, int)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("n", "", "must be a number"),
        ("n", "many", "must be a number; got 'many'"),
        ("n", "0", "n must be 1 to 1 000 000 000"),
        ("n", "1e10", "n must be 1 to"),
        ("n", "inf", "must be a number"),
        ("n", "60.5", "must be a whole number"),
        ("batch", "0", "batch must be at least 1"),
        ("batch", True, "must be a number"),
        ("batch", [1], "must be a number"),
        ("epochs", "-1", "epochs must be above 0"),
        ("epochs", "nan", "must be a number"),
        ("epsilon", "0", "epsilon must be above 0"),
        ("delta", "1", "delta must be above 0, at most 0.1"),
        ("lam", "1.01", "lam must be 0 to 1"),
        ("sampling", "round-robin", "sampling must be one of poisson"),
        ("relation", "cousins", "relation must be empty or one of add-remove"),
        ("colour", "blue", "there is no parameter 'colour'"),
    ],
)
def test_a_bad_value_is_refused_by_its_control(field, value, words):
    with pytest.raises(Refused, match=words) as refused:
        read(**{field: value})
    assert refused.value.field == field
    assert isinstance(refused.value, PlanError)


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"batch": "601"}, "batch", "batch_size=601 is larger than the 600 units"),
        ({"sampling": "one-pass"}, "epochs", "one pass over 600 records in batches of 60"),
        ({"sampling": "balls-in-bins", "epochs": "0.5"}, "epochs", "do not complete one epoch"),
        ({"sampling": "shuffled", "relation": "add-remove"}, "relation", "gives places by row"),
        ({"batch": "1", "epochs": "1000"}, "epochs", "600,000 steps are more than the 20,000"),
    ],
)
def test_an_impossible_combination_is_refused_in_the_librarys_words(changed, field, words):
    with pytest.raises(Refused, match=words) as refused:
        read(**changed).plan("auto")
    assert refused.value.field == field
    assert "\n" not in str(refused.value)


def test_mechanisms_are_optimised_for_the_usual_participations():
    assert usual_participation(read().plan("auto")) == FixedEpochs(2, 10)
    assert usual_participation(read(epochs="1").plan("auto")) == Once()
    shuffled = read(sampling="shuffled").plan("auto")
    assert usual_participation(shuffled) == shuffled.participation
