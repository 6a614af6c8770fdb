"""Private SGD with correlated noise on two-layer KANs: Algorithm 1 and the bounds of [KANCorrelated26].

`descend` runs the algorithm. `optimization_bound` and `population_bound` evaluate what is proved, with all
constants and conditions; the ``rate_`` functions and corollaries are the paper's asymptotics, with what
they leave unknown. Its privacy theorems are in `antiphon_papers.kan_sgd.printed`. ``_printed`` marks
statements that are wrong or incomplete as printed; the function beside them has the repair.

>>> from antiphon_papers import kan_sgd
>>> run = kan_sgd.Descent(inputs=10, width=64, iterates=1000, batch=100, step_size=1e-3, clip_norm=6.0,
...                       noise_multiplier=2.6, lam=0.5)
>>> bound = kan_sgd.optimization_bound(run, kan_sgd.Constants.tight(64, 1e-3), margin=0.5, n=10_000)
>>> [condition.name for condition in bound.conditions if not condition.holds]
['width for the comparator, γ/(2τ)', 'localisation, 1/2']
"""

from antiphon_papers.common.condition import Condition
from antiphon_papers.kan_sgd.algorithm import Trajectory, descend, stochastic_gradient_descent
from antiphon_papers.kan_sgd.theory.advice import Advice, Recommendation, advise
from antiphon_papers.kan_sgd.theory.correlation import (
    Correlation,
    best_lambda,
    best_lambda_at_fixed_noise,
    choose_lambda,
    noise_factor,
    noise_objective,
)
from antiphon_papers.kan_sgd.theory.descent import (
    TRIVIAL_LOSS,
    Comparator,
    Descent,
    LossBound,
    correlated_bound,
    fluctuation,
    independent_bound,
    localization,
    martingale,
    noise_energy,
    noise_norm,
    ntk_comparator,
    optimization_bound,
)
from antiphon_papers.kan_sgd.theory.feasibility import FeasibleWidths, feasible_widths
from antiphon_papers.kan_sgd.theory.geometry import (
    Bounds,
    Constants,
    initialization_event,
    input_condition,
    measured_smoothness,
)
from antiphon_papers.kan_sgd.theory.population import (
    population_bound,
    stability_bound,
    stability_conditions,
    theorem_5_2_width_printed,
    theorem_c23_width,
)
from antiphon_papers.kan_sgd.theory.rates import (
    Rate,
    Regime,
    WidthWindow,
    corollary_5_3,
    corollary_5_5,
    corollary_5_5_printed,
    corollary_5_6,
    full_batch,
    rate_correlated,
    rate_independent,
    rate_nonprivate,
    rate_population_printed,
    width_window,
)

__all__ = [
    "TRIVIAL_LOSS",
    "Advice",
    "Bounds",
    "Comparator",
    "Condition",
    "Constants",
    "Correlation",
    "Descent",
    "FeasibleWidths",
    "LossBound",
    "Rate",
    "Recommendation",
    "Regime",
    "Trajectory",
    "WidthWindow",
    "advise",
    "best_lambda",
    "best_lambda_at_fixed_noise",
    "choose_lambda",
    "corollary_5_3",
    "corollary_5_5",
    "corollary_5_5_printed",
    "corollary_5_6",
    "correlated_bound",
    "descend",
    "feasible_widths",
    "fluctuation",
    "full_batch",
    "independent_bound",
    "initialization_event",
    "input_condition",
    "localization",
    "martingale",
    "measured_smoothness",
    "noise_energy",
    "noise_factor",
    "noise_norm",
    "noise_objective",
    "ntk_comparator",
    "optimization_bound",
    "population_bound",
    "rate_correlated",
    "rate_independent",
    "rate_nonprivate",
    "rate_population_printed",
    "stability_bound",
    "stability_conditions",
    "stochastic_gradient_descent",
    "theorem_5_2_width_printed",
    "theorem_c23_width",
    "width_window",
]
