"""Correlated noise in linear regression and beyond: exact errors, bounds and optima [CorrelatedNoise24].

>>> from antiphon.mechanisms import Independent, NuFTRL
>>> from antiphon_papers import dp_ftrl
>>> run = dict(spectrum=dp_ftrl.power_law(128), learning_rate=0.02)
>>> independent = dp_ftrl.f_infinity(Independent(), **run)
>>> round(independent / dp_ftrl.f_infinity(NuFTRL(0.02 / 128), **run), 1)
70.7
"""

from antiphon_papers.common.condition import Condition
from antiphon_papers.dp_ftrl.algorithm import (
    AbstractProblem,
    FTRLRun,
    LinearRegression,
    MeanProblem,
    Server,
    ftrl,
    private_plan,
)
from antiphon_papers.dp_ftrl.speech import Speech, chain_speech, shakespeare
from antiphon_papers.dp_ftrl.theory.bounds import (
    TwoSided,
    filter_error,
    lower_bound,
    smallest_filter_error,
    theorem_c14,
    theorem_c15,
    theorem_c18_printed,
    two_sided,
    universal_lower_bound,
)
from antiphon_papers.dp_ftrl.theory.elliptic import (
    lemma_f13,
    lemma_f13_printed,
    nu_energy,
    nu_integral,
)
from antiphon_papers.dp_ftrl.theory.energy import noise_energy, squared_sensitivity
from antiphon_papers.dp_ftrl.theory.filters import (
    OptimalFilter,
    best_filter,
    factor,
    filter_against,
    fit_blt,
)
from antiphon_papers.dp_ftrl.theory.finite_time import (
    ClipNorm,
    half_decay_constant,
    no_clipping,
    theorem_d11,
    theorem_d11_printed,
    theorem_d13,
    theorem_d14_rate,
    theorem_d15_rate,
)
from antiphon_papers.dp_ftrl.theory.frequency import power_spectrum
from antiphon_papers.dp_ftrl.theory.mean import (
    MeanEstimation,
    best_mean_mechanism,
    mean_error,
    mean_gain,
    mean_gain_bounds,
    theorem_2_1,
    theorem_2_1_rate_printed,
)
from antiphon_papers.dp_ftrl.theory.multipliers import Descent, Multiplier, lags_for, multiplier_sum
from antiphon_papers.dp_ftrl.theory.planning import Advice, advise
from antiphon_papers.dp_ftrl.theory.rates import (
    best_nu,
    damped_anti_pgd,
    exponents,
    independent_rate,
    nu_bound,
    theorem_2_2_printed,
)
from antiphon_papers.dp_ftrl.theory.regression import expected_excess, f_infinity, feedback
from antiphon_papers.dp_ftrl.theory.spectrum import (
    InputMoments,
    effective_dimension,
    gaussian_moment,
    input_moments,
    power_law,
    spectrum_of,
)
from antiphon_papers.dp_ftrl.theory.strongly_convex import (
    NoiseGain,
    OptimizedFTRL,
    best_strongly_convex_nu,
    certified_gain,
    noise_gain,
    optimized_ftrl,
    quadratic_gains,
    strongly_convex_bound,
    theorem_3_1_printed,
)
from antiphon_papers.kan_gd import Bound

__all__ = [
    "AbstractProblem",
    "Advice",
    "Bound",
    "ClipNorm",
    "Condition",
    "Descent",
    "FTRLRun",
    "InputMoments",
    "LinearRegression",
    "MeanEstimation",
    "MeanProblem",
    "Multiplier",
    "NoiseGain",
    "OptimalFilter",
    "OptimizedFTRL",
    "Server",
    "Speech",
    "TwoSided",
    "advise",
    "best_filter",
    "best_mean_mechanism",
    "best_nu",
    "best_strongly_convex_nu",
    "certified_gain",
    "chain_speech",
    "damped_anti_pgd",
    "effective_dimension",
    "expected_excess",
    "exponents",
    "f_infinity",
    "factor",
    "feedback",
    "filter_against",
    "filter_error",
    "fit_blt",
    "ftrl",
    "gaussian_moment",
    "half_decay_constant",
    "independent_rate",
    "input_moments",
    "lags_for",
    "lemma_f13",
    "lemma_f13_printed",
    "lower_bound",
    "mean_error",
    "mean_gain",
    "mean_gain_bounds",
    "multiplier_sum",
    "no_clipping",
    "noise_energy",
    "noise_gain",
    "nu_bound",
    "nu_energy",
    "nu_integral",
    "optimized_ftrl",
    "power_law",
    "power_spectrum",
    "private_plan",
    "quadratic_gains",
    "shakespeare",
    "smallest_filter_error",
    "spectrum_of",
    "squared_sensitivity",
    "strongly_convex_bound",
    "theorem_2_1",
    "theorem_2_1_rate_printed",
    "theorem_2_2_printed",
    "theorem_3_1_printed",
    "theorem_c14",
    "theorem_c15",
    "theorem_c18_printed",
    "theorem_d11",
    "theorem_d11_printed",
    "theorem_d13",
    "theorem_d14_rate",
    "theorem_d15_rate",
    "two_sided",
    "universal_lower_bound",
]
