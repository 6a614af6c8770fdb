"""Every correlated-noise mechanism: its matrices, its exact sensitivity, its error, its noise.

>>> from antiphon.mechanisms import NuFTRL
>>> from antiphon.participation import FixedEpochs
>>> round(NuFTRL(0.0037).sensitivity(2000, FixedEpochs(times=20, apart=100)), 6)
8.89333
"""

from antiphon.mechanisms.abstract_mechanism import (
    AbstractMechanism,
    NoiseState,
    Sensitivity,
    check_dense_steps,
    check_steps,
)
from antiphon.mechanisms.abstract_toeplitz import AbstractToeplitz
from antiphon.mechanisms.banded import Banded
from antiphon.mechanisms.banded_inverse import BandedInverse
from antiphon.mechanisms.blt import BLT
from antiphon.mechanisms.catalogue import Table, buffers_of, makers, table
from antiphon.mechanisms.dense import Dense
from antiphon.mechanisms.fft import FFT
from antiphon.mechanisms.full_honaker import FullHonaker
from antiphon.mechanisms.honaker import Honaker
from antiphon.mechanisms.independent import Independent
from antiphon.mechanisms.lambda_cgd import LambdaCGD
from antiphon.mechanisms.mechanism_figure import figure, last_row
from antiphon.mechanisms.nu_ftrl import NuFTRL
from antiphon.mechanisms.optimization import Optimized, lower_bound, optimize
from antiphon.mechanisms.optimization.best_dense import best_dense
from antiphon.mechanisms.optimization.best_scalar import best_lambda_cgd, best_nu_ftrl
from antiphon.mechanisms.optimization.objective import quasi_newton
from antiphon.mechanisms.redrawn import redrawn
from antiphon.mechanisms.restarted import Restarted
from antiphon.mechanisms.serialization import from_dict, from_json, to_json
from antiphon.mechanisms.tree import Tree
from antiphon.mechanisms.workload import PREFIX_SUMS, Workload

__all__ = [
    "BLT",
    "FFT",
    "PREFIX_SUMS",
    "AbstractMechanism",
    "AbstractToeplitz",
    "Banded",
    "BandedInverse",
    "Dense",
    "FullHonaker",
    "Honaker",
    "Independent",
    "LambdaCGD",
    "NoiseState",
    "NuFTRL",
    "Optimized",
    "Restarted",
    "Sensitivity",
    "Table",
    "Tree",
    "Workload",
    "best_dense",
    "best_lambda_cgd",
    "best_nu_ftrl",
    "buffers_of",
    "check_dense_steps",
    "check_steps",
    "figure",
    "from_dict",
    "from_json",
    "last_row",
    "lower_bound",
    "makers",
    "optimize",
    "quasi_newton",
    "redrawn",
    "table",
    "to_json",
]
