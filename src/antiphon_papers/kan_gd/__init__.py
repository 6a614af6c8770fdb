"""Gradient descent and DP-GD on two-layer KANs: constants, noise and bounds [KANGradientDescent26].

>>> from antiphon_papers import kan_gd
>>> problem = kan_gd.Problem(n=20_000, d=10, m=32, steps=100)
>>> kan_gd.clipped_calibration(problem, epsilon=2.0, delta=5e-5, clip_norm=0.5).is_confirmed
True
"""

from antiphon_papers.common.condition import Condition
from antiphon_papers.kan_gd.algorithm import Descent, descend, gradient_descent
from antiphon_papers.kan_gd.calibration import (
    Block,
    Calibration,
    clipped_calibration,
    corrected_calibration,
    theorem_4_14_calibration,
    tight_calibration,
)
from antiphon_papers.kan_gd.theory.advice import Advice, Horizon, advise, best_horizon
from antiphon_papers.kan_gd.theory.bound import Bound
from antiphon_papers.kan_gd.theory.constants import KANConstants, SecondLayer, kan_constants
from antiphon_papers.kan_gd.theory.curvature import (
    Curvature,
    curvature,
    drift_bounds,
    gradient_norms,
)
from antiphon_papers.kan_gd.theory.descent import (
    printed_step_limit_4_7,
    theorem_4_3,
    theorem_4_7,
    theorem_4_9,
    theorem_4_10,
    theorem_4_11,
    theorem_4_12,
)
from antiphon_papers.kan_gd.theory.private import theorem_4_15, theorem_4_16, theorem_d10
from antiphon_papers.kan_gd.theory.problem import LOGISTIC, Loss, Problem, sensitivities

__all__ = [
    "LOGISTIC",
    "Advice",
    "Block",
    "Bound",
    "Calibration",
    "Condition",
    "Curvature",
    "Descent",
    "Horizon",
    "KANConstants",
    "Loss",
    "Problem",
    "SecondLayer",
    "advise",
    "best_horizon",
    "clipped_calibration",
    "corrected_calibration",
    "curvature",
    "descend",
    "drift_bounds",
    "gradient_descent",
    "gradient_norms",
    "kan_constants",
    "printed_step_limit_4_7",
    "sensitivities",
    "theorem_4_3",
    "theorem_4_7",
    "theorem_4_9",
    "theorem_4_10",
    "theorem_4_11",
    "theorem_4_12",
    "theorem_4_14_calibration",
    "theorem_4_15",
    "theorem_4_16",
    "theorem_d10",
    "tight_calibration",
]
