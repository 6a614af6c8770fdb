"""Every broken trainer is caught by the audit that owns its rule, and the honest one passes there.

False alarms: each verdict accuses an honest trainer with probability at most 0.001; seeds are fixed.
"""

import pytest
from oracles.mutants import MUTANTS

LONG = (
    "noise 10 % too small",
    "fixed-size batches certified as Poisson",
    "λ = 0.95 certified as 0.9",
    "each layer clipped by the whole clip norm",
    "every row in every batch, certified as one in ten",
)
every = pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=[pytest.mark.slow] * (rule in LONG)) for rule in MUTANTS]
)


@every
def test_a_broken_trainer_is_caught(rule):
    mutant = MUTANTS[rule]
    assert mutant.is_caught(mutant.trainer)


@every
def test_the_honest_trainer_passes_where_a_broken_one_is_caught(rule):
    mutant = MUTANTS[rule]
    if mutant.honest is None:  # the mistake is in the claim: an honest claim has more noise
        pytest.skip("the trainer is honest here; its certificate is not")
    assert not mutant.is_caught(mutant.honest)
