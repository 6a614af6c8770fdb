"""Numbers only: Toeplitz algebra, spectral factorisation, sums of exponentials, B-splines, clipping."""

from antiphon.linalg.arrays import Matrix, Rows, Series, Vector
from antiphon.linalg.bsplines import UniformSplines, spline_pieces
from antiphon.linalg.clipping import clip_rows
from antiphon.linalg.exponentials import fit_inverse_square_root, reciprocal
from antiphon.linalg.spectral import minimum_phase
from antiphon.linalg.toeplitz import all_pole_energy, gram, invert, lower, multiply
from antiphon.linalg.triangular import lower_root, signs_agree

__all__ = [
    "Matrix",
    "Rows",
    "Series",
    "UniformSplines",
    "Vector",
    "all_pole_energy",
    "clip_rows",
    "fit_inverse_square_root",
    "gram",
    "invert",
    "lower",
    "lower_root",
    "minimum_phase",
    "multiply",
    "reciprocal",
    "signs_agree",
    "spline_pieces",
]
