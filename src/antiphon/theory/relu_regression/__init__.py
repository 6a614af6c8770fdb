"""Private ReLU regression: what [ReLURegression25] proves of a single neuron, made explicit and repaired.

`excess_risk` is exact for Gaussian inputs, `averaged_error` follows GLMtron's second moments, `theorem_2`
and `theorem_4` bound the risk with all constants, `theorem_7` bounds it from below. ``_printed`` marks
statements as they stand in the paper, with constants of 1. Its privacy theorems are in
`antiphon.accounting.printed`.

>>> from antiphon.theory import relu_regression
>>> problem = relu_regression.Problem([1.0] + [0.0] * 9, label_noise=0.5)
>>> printed = relu_regression.theorem_4_printed(problem, 16_512, epsilon=0.5, delta=16_512**-1.1)
>>> printed.verdict
'not proved here: what is left of the start in the full average fails by a factor of 1.63e+04'
"""

from antiphon.theory.condition import Condition
from antiphon.theory.relu_regression.advice import Advice, Recommendation, advise
from antiphon.theory.relu_regression.assumptions import Assumptions, Tail, check_assumptions
from antiphon.theory.relu_regression.bounds import (
    PaperConstants,
    RiskBound,
    largest_clip_norm,
    norm_bound,
    theorem_2,
    theorem_2_printed,
    theorem_2_step,
    theorem_4,
    theorem_4_printed,
)
from antiphon.theory.relu_regression.correlation import (
    AverageNoise,
    BestForAverage,
    best_for_average,
)
from antiphon.theory.relu_regression.leading import (
    LeadingRisk,
    batch_one_risk,
    full_batch_risk,
    one_pass_risk,
)
from antiphon.theory.relu_regression.lower import (
    BOUNDARY,
    TRUNCATED_VARIANCE,
    LowerBound,
    theorem_7,
    theorem_7_printed,
)
from antiphon.theory.relu_regression.moments import (
    Descent,
    average_bias,
    averaged_error,
    contraction,
    second_moments,
    steady_state,
    window,
)
from antiphon.theory.relu_regression.problem import Problem
from antiphon.theory.relu_regression.risk import excess_risk, mean_direction, risk_bounds

__all__ = [
    "BOUNDARY",
    "TRUNCATED_VARIANCE",
    "Advice",
    "Assumptions",
    "AverageNoise",
    "BestForAverage",
    "Condition",
    "Descent",
    "LeadingRisk",
    "LowerBound",
    "PaperConstants",
    "Problem",
    "Recommendation",
    "RiskBound",
    "Tail",
    "advise",
    "average_bias",
    "averaged_error",
    "batch_one_risk",
    "best_for_average",
    "check_assumptions",
    "contraction",
    "excess_risk",
    "full_batch_risk",
    "largest_clip_norm",
    "mean_direction",
    "norm_bound",
    "one_pass_risk",
    "risk_bounds",
    "second_moments",
    "steady_state",
    "theorem_2",
    "theorem_2_printed",
    "theorem_2_step",
    "theorem_4",
    "theorem_4_printed",
    "theorem_7",
    "theorem_7_printed",
    "window",
]
