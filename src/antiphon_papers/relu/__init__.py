"""Private ReLU regression: what [ReLURegression25] proves of a single neuron, made explicit and repaired.

`excess_risk` is exact for Gaussian inputs, `averaged_error` follows GLMtron's second moments, `theorem_2`
and `theorem_4` bound the risk with all constants, `theorem_7` bounds it from below. ``_printed`` marks
statements as they stand in the paper, with constants of 1. Its privacy theorems are in
`antiphon_papers.relu.printed`.

>>> from antiphon_papers import relu as relu_regression
>>> problem = relu_regression.Problem([1.0] + [0.0] * 9, label_noise=0.5)
>>> printed = relu_regression.theorem_4_printed(problem, 16_512, epsilon=0.5, delta=16_512**-1.1)
>>> printed.verdict
'not proved here: what is left of the start in the full average fails by a factor of 1.63e+04'
"""

from antiphon_papers.common.condition import Condition
from antiphon_papers.relu.printed import (
    clones_epsilon,
    relu_theorem_1,
    relu_theorem_3,
    threshold_zcdp,
)
from antiphon_papers.relu.theory.advice import Advice, Recommendation, advise
from antiphon_papers.relu.theory.assumptions import Assumptions, Tail, check_assumptions
from antiphon_papers.relu.theory.bounds import (
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
from antiphon_papers.relu.theory.correlation import AverageNoise, BestForAverage, best_for_average
from antiphon_papers.relu.theory.leading import (
    LeadingRisk,
    batch_one_risk,
    full_batch_risk,
    one_pass_risk,
)
from antiphon_papers.relu.theory.lower import (
    BOUNDARY,
    TRUNCATED_VARIANCE,
    LowerBound,
    theorem_7,
    theorem_7_printed,
)
from antiphon_papers.relu.theory.moments import (
    Descent,
    average_bias,
    averaged_error,
    contraction,
    second_moments,
    steady_state,
    window,
)
from antiphon_papers.relu.theory.problem import Problem
from antiphon_papers.relu.theory.risk import excess_risk, mean_direction, risk_bounds
from antiphon_papers.relu.tracing import Tracing, trace, tracing_scores

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
    "Tracing",
    "advise",
    "average_bias",
    "averaged_error",
    "batch_one_risk",
    "best_for_average",
    "check_assumptions",
    "clones_epsilon",
    "contraction",
    "excess_risk",
    "full_batch_risk",
    "largest_clip_norm",
    "mean_direction",
    "norm_bound",
    "one_pass_risk",
    "relu_theorem_1",
    "relu_theorem_3",
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
    "threshold_zcdp",
    "trace",
    "tracing_scores",
    "window",
]
