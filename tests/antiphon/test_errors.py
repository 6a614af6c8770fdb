"""What a user sees who gives a value that has no meaning: the right error, with the value in it.

The cases run in one interpreter of their own, without the run-time type checks of the other tests, which
would refuse a wrong type before the library can.
"""

import json
import subprocess
import sys

import pytest

from antiphon.errors import AntiphonError, PlanError, StateError, UnsupportedError

SETUP = """
import json, math, sys, warnings
import numpy as np
import torch
from antiphon.numerics import *
from antiphon.mechanisms import *
from antiphon.participation import *
warnings.simplefilter("error")
nan, inf, x = math.nan, math.inf, torch.zeros(3)
seen, outcomes = MinSeparation(2, 1), {}
for case in json.loads(sys.stdin.read()):
    try:
        outcomes[case] = "returned", repr(eval(case))
    except BaseException as error:
        outcomes[case] = type(error).__name__, str(error)
print(json.dumps(outcomes))
"""

PLAN = {
    # numbers out of range
    "LambdaCGD(-0.1)": "λ must be in [0, 1]; got -0.1",
    "LambdaCGD(1.5)": "λ must be in [0, 1]; got 1.5",
    "LambdaCGD(nan)": "λ must be in [0, 1]; got nan",
    "NuFTRL(-0.1)": "ν must be in [0, 1); got -0.1",
    "NuFTRL(1.0)": "ν must be in [0, 1); got 1.0",
    "NuFTRL(nan)": "ν must be in [0, 1); got nan",
    "NuFTRL(0.1).buffered(100, buffers=0)": "at least one term; got 0",
    "NuFTRL(0.1).buffered(0)": "whole number of at least 1; got 0",
    # steps
    "LambdaCGD(0.5).encoder(0)": "whole number of at least 1; got 0",
    "LambdaCGD(0.5).decoder(-3)": "whole number of at least 1; got -3",
    "LambdaCGD(0.5).errors(2.5)": "whole number of at least 1; got 2.5",
    "LambdaCGD(0.5).errors(inf)": "needs a finite number",
    "LambdaCGD(0.5).sensitivity(0, Once())": "whole number of at least 1; got 0",
    "LambdaCGD(0.5).sensitivity(2.5, Once())": "whole number of at least 1; got 2.5",
    "LambdaCGD(0.5).init(x, 0)": "whole number of at least 1; got 0",
    "Tree().encoder(2.5)": "whole number of at least 1; got 2.5",
    "Honaker().sensitivity(0, Once())": "whole number of at least 1; got 0",
    "FullHonaker().decoder(0)": "whole number of at least 1; got 0",
    "FFT().errors(0)": "whole number of at least 1; got 0",
    "Dense([[1.0]]).init(x, 0)": "whole number of at least 1; got 0",
    "Restarted(Tree(), 2).errors(1.5)": "whole number of at least 1; got 1.5",
    "Independent().error(3, 'mean')": "kind is 'rms' or 'max'; got 'mean'",
    # coefficients
    "Banded(())": "coef must start with a non-zero number",
    "Banded((0.0, 1.0))": "coef must start with a non-zero number",
    "Banded((1.0, nan))": "coef[1] is nan",
    "Banded((inf,))": "coef[0] is inf",
    "Banded.square_root(0)": "bands must be",
    "Banded.square_root(2.5)": "bands must be",
    "BandedInverse(())": "beta must start with a non-zero number",
    "BandedInverse((0.0, 1.0))": "beta must start with a non-zero number",
    "BandedInverse((1.0, -inf))": "beta[1] is -inf",
    "BLT((0.5, 0.1), (0.5,))": "2 scales and 1 decays",
    "BLT((0.5,), (1.1,))": "decays must be in [0, 1]",
    "BLT((0.5,), (-0.1,))": "decays must be in [0, 1]",
    "BLT((nan,), (0.5,))": "scales[0] is nan",
    "BLT((0.5,), (nan,))": "decays[0] is nan",
    # dense encoders
    "Dense([])": "at least one row",
    "Dense([[1.0, 2.0], [0.0, 1.0]])": "square and lower triangular; its row 0",
    "Dense([[1.0], [1.0]])": "square and lower triangular; its row 1",
    "Dense([[1.0], [1.0, 2.0, 3.0]])": "square and lower triangular; its row 1",
    "Dense([[1.0], [nan, 2.0]])": "only finite entries",
    "Dense([[1.0], [1.0, 0.0]])": "C[1, 1] is 0",
    "Dense([[1.0]]).encoder(2)": "up to 1 steps; 2 were asked for",
    "Dense([[1.0]]).init(x, 2)": "up to 1 steps; 2 were asked for",
    # participations
    "MinSeparation(0, 1)": "times must be a whole number of at least 1; got 0",
    "MinSeparation(1, 0)": "apart must be a whole number of at least 1; got 0",
    "MinSeparation(1.5, 1)": "times must be a whole number of at least 1; got 1.5",
    "FixedEpochs(-1, 1)": "times must be a whole number of at least 1; got -1",
    "FixedEpochs(1, 0)": "apart must be a whole number of at least 1; got 0",
    "Reshuffled(1, 0)": "batches must be a whole number of at least 1; got 0",
    "Tree().sensitivity(4, MinSeparation(3, 2))": "need at least 5 steps; there are 4",
    "NuFTRL(0.1).sensitivity(4, FixedEpochs(3, 2))": "need at least 5 steps; there are 4",
    "NuFTRL(0.1).sensitivity(4, Reshuffled(3, 2))": "need at least 5 steps; there are 4",
    "NuFTRL(0.1).sensitivity(7, Reshuffled(3, 2))": "7 steps are more than 3 epochs of 2",
    "Restarted(Tree(), 2).sensitivity(4, MinSeparation(3, 2))": "need at least 5 steps",
    "Restarted(Tree(), 2).sensitivity(4, Patterns(((4,),)))": "step 4, but the steps are 0 to 3",
    "Patterns(())": "needs at least one",
    "Patterns(((),))": "none of them empty",
    "Patterns(((-1, 2),))": "counted from 0; got (-1, 2)",
    "Patterns(((2, 2),))": "counted from 0; got (2, 2)",
    "Patterns(((0.5,),))": "0.5",
    "Patterns.recorded([[1, 1]])": "counted from 0; got (0, 0)",
    "Dense([[1.0]]).sensitivity(1, Patterns(((0, 1),)))": "step 1, but the steps are 0 to 0",
    "AbstractParticipation.from_dict({'kind': 'Twice'})": "unknown participation 'Twice'",
    "AbstractParticipation.from_dict({})": "unknown participation None",
    "AbstractParticipation.from_dict({'kind': ['Once']})": "unknown participation ['Once']",
    "AbstractParticipation.from_dict({'kind': 'Once', 'times': 2})": "times",
    "AbstractParticipation.from_dict([])": "participation",
    # restarts
    "Restarted(Tree(), 0)": "blocks must be a whole number of at least 1; got 0",
    "Restarted(Tree(), 1.5)": "blocks must be a whole number of at least 1; got 1.5",
    "Restarted(Tree(), 5).encoder(4)": "4 steps cannot be cut into 5 blocks",
    "Restarted(Tree(), 5).init(x, 4)": "4 steps cannot be cut into 5 blocks",
    # workloads
    "Workload(momentum=1.0)": "momentum must be in [0, 1); got 1.0",
    "Workload(momentum=-0.1)": "momentum must be in [0, 1); got -0.1",
    "Workload(momentum=nan)": "momentum must be in [0, 1); got nan",
    "Workload(0.0, (1.0, nan))": "learning rates must be",
    "Workload(0.0, (1.0, -1.0))": "learning rates must be",
    "Workload(0.0, (0.0, 0.0))": "learning rates must be",
    "Workload(0.0, ())": "learning rates",
    "Tree().errors(3, Workload(0.0, (1.0, 1.0)))": "2 learning rates for 3 steps",
    "NuFTRL(0.1).errors(3, Workload(0.5, (1.0, 1.0)))": "2 learning rates for 3 steps",
    # JSON
    "from_json('')": "not JSON",
    """from_json('{"mechanism": "tree"')""": "not JSON",
    "from_json('[1, 2]')": "needs a 'mechanism'",
    "from_json('null')": "needs a 'mechanism'",
    """from_json('{"mechanism": "forest"}')""": "needs a 'mechanism'",
    """from_json('{"mechanism": ["tree"]}')""": "needs a 'mechanism'",
    """from_json('{"mechanism": "tree", "height": 3}')""": "height",
    """from_json('{"mechanism": "blt", "scales": [1]}')""": "decays",
    """from_json('{"mechanism": "lambda-cgd", "lam": "0.5"}')""": "λ must be a number; got '0.5'",
    """from_json('{"mechanism": "lambda-cgd", "lam": NaN}')""": "λ must be in [0, 1]",
    """from_json('{"mechanism": "banded", "coef": "123"}')""": "coef must be a list of numbers; got '123'",
    """from_json('{"mechanism": "banded", "coef": ["a"]}')""": "coef[0] must be a number",
    """from_json('{"mechanism": "banded", "coef": 1.0}')""": "coef must be a list of numbers",
    """from_json('{"mechanism": "dense", "C": [["a"]]}')""": "cannot read the mechanism",
    """from_json('{"mechanism": "restarted", "blocks": 2}')""": "needs a 'mechanism'",
    """from_json('{"mechanism": "restarted", "of": {"mechanism": "tree"}}')""": "blocks",
}

STATE = {
    "Tree().correlate(x, LambdaCGD(0.5).init(x, 3))": "made by LambdaCGD(lam=0.5), not by Tree()",
    "LambdaCGD(0.4).correlate(x, LambdaCGD(0.5).init(x, 3))": "start a new state with init",
    "Tree().correlate(x, Tree().correlate(x, Tree().init(x, 1))[1])": "all 1 steps",
    "Tree().correlate(x.double(), Tree().init(x, 3))": "got ((torch.Size([3]), torch.float64),)",
    "Tree().correlate(x[:2], Tree().init(x, 3))": "got ((torch.Size([2]), torch.float32),)",
    "Tree().correlate([x, x], Tree().init([x], 3))": "state is for noise of",
    "Tree().correlate([], Tree().init([x], 3))": "state is for noise of",
}

UNSUPPORTED = {
    "LambdaCGD(1.0).sensitivity(inf, Once())": "Give a finite T, or take λ < 1",
    "NuFTRL(0.0).sensitivity(inf, seen)": "Give a finite T, or take ν > 0",
    "BandedInverse((1.0, -1.0)).sensitivity(inf, Once())": "zero in the closed unit disk",
    "BandedInverse((1.0, -2.0)).sensitivity(2000, Once())": "Use fewer steps",
    "Tree().sensitivity(inf, Once())": "give a finite T",
    "FFT().sensitivity(inf, Once())": "give a finite T",
    "Dense([[1.0]]).sensitivity(inf, Once())": "give a finite T",
    "Restarted(Independent(), 2).sensitivity(inf, Once())": "give a finite T",
}

# Nothing is wrong with these: they must be accepted, and none of all this loads a plotting library.
RETURNED = {
    "'matplotlib' in sys.modules": "False",
    "Tree().init(x, np.int64(8)).T": "8",
    "Honaker().errors(np.int64(8)).shape": "(8,)",
    "FullHonaker().encoder(np.int64(8)).shape": "(8, 8)",
    "len(Tree().init(iter([x, x]), 3).shapes)": "2",
    "Patterns((np.array([2, 0]),)).patterns": "((0, 2),)",
    "Banded([1, np.float32(0.5)])": "Banded(coef=(1.0, 0.5))",
}

CASES = {
    case: (error, fragment)
    for error, cases in (
        ("PlanError", PLAN),
        ("StateError", STATE),
        ("UnsupportedError", UNSUPPORTED),
        ("returned", RETURNED),
    )
    for case, fragment in cases.items()
}


@pytest.fixture(scope="module")
def outcomes():
    run = subprocess.run(
        [sys.executable, "-c", SETUP], input=json.dumps([*CASES]), capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("case", CASES)
def test_a_value_without_a_meaning_is_refused_with_a_clear_error(outcomes, case):
    error, fragment = CASES[case]
    kind, message = outcomes[case]
    assert kind == error, message
    assert fragment in message


def test_bad_values_can_be_caught_without_knowing_the_library():
    assert issubclass(PlanError, ValueError)
    assert issubclass(StateError, ValueError)
    assert not issubclass(UnsupportedError, ValueError)
    assert all(issubclass(e, AntiphonError) for e in (PlanError, StateError, UnsupportedError))
