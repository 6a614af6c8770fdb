"""Certificates of a fixed set of plans are what they were."""

import json

import pytest
from oracles.golden_plans import FILE, PLANS, proved

GOLDEN = json.loads(FILE.read_text())
NUMBERS = ("epsilon", "confidence", "accuracy")
ULPS = 1e-13  # what the vector units of another processor may change


def test_every_plan_has_its_numbers():
    assert GOLDEN.keys() == PLANS.keys()


@pytest.mark.parametrize("name", PLANS)
def test_certificates_are_the_same(name):
    found, golden = proved(PLANS[name]), GOLDEN[name]
    for number in NUMBERS:
        one, other = found.pop(number, None), golden.pop(number, None)
        if one != other:
            assert float.fromhex(one) == pytest.approx(float.fromhex(other), rel=ULPS)
    assert found == golden
