"""Names of mechanisms: one reader for plans, runs, estimators and comparisons."""

import pytest

from antiphon.accounting import compare
from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import BLT, FullHonaker, Independent, LambdaCGD, Tree, makers, optimize
from antiphon.participation import FixedEpochs, Once, Reshuffled
from antiphon.plans import (
    OnePass,
    Plan,
    ShuffledEpochs,
    mechanism_of,
    named_mechanism,
    named_mechanisms,
)

ONCE = Plan(n=64, sampling=OnePass(4), steps=16, mechanism="auto", relation="zero-out")


def test_mechanisms_without_parameters_have_their_names():
    found = {name: mechanism_of(name, ONCE) for name in ("independent", "tree", "full-honaker")}
    assert found == {"independent": Independent(), "tree": Tree(), "full-honaker": FullHonaker()}
    assert mechanism_of("auto", ONCE) == "auto"
    assert mechanism_of(LambdaCGD(0.5), ONCE) == LambdaCGD(0.5)


@pytest.mark.parametrize("family", ["lambda-cgd", "banded", "blt", "dense"])
def test_a_family_is_optimised_for_the_plan(family):
    plan = Plan(n=64, sampling=ShuffledEpochs(16), steps=8, mechanism="auto", relation="zero-out")
    found = mechanism_of(family, plan)
    assert found.to_dict() == optimize(family, 8, FixedEpochs(2, 4)).mechanism.to_dict()


def test_nu_ftrl_is_buffered():
    assert isinstance(mechanism_of("nu-ftrl", ONCE), BLT)


def test_names_are_the_labels_of_the_table_with_hyphens():
    labels = [label.replace(",", "").replace(" ", "-") for label in makers(16, Once())]
    assert list(named_mechanisms(16, Once())) == labels
    assert "dense" in named_mechanisms(1000, Once())


def test_unknown_names_are_refused_with_all_that_there_are():
    with pytest.raises(
        PlanError, match=r"called 'oak'; there are auto, independent, lambda-cgd, .*"
    ):
        mechanism_of("oak", ONCE)
    with pytest.raises(
        PlanError, match=r"called 'oak'; there are independent, lambda-cgd, .*dense"
    ):
        compare(ONCE, 1.0, 1e-5, ["tree", "oak"])
    with pytest.raises(PlanError, match="a mechanism or its name; got 3"):
        mechanism_of(3, ONCE)
    with pytest.raises(UnsupportedError, match="no best dense mechanism is known for batches"):
        named_mechanism("dense", 8, Reshuffled(2, 4))()
