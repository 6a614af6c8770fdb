"""Numbers only: Toeplitz algebra, B-splines, random generators, normals, and rounding onto a grid.

`compiled`, `normals` and `rounding` load a compiler, so they are imported from their modules.
"""

from antiphon.numerics.arrays import Matrix, Rows, Series, Vector
from antiphon.numerics.bsplines import UniformSplines, spline_pieces
from antiphon.numerics.exponentials import fit_inverse_square_root, reciprocal
from antiphon.numerics.grid import add_noise, spacing
from antiphon.numerics.randomness import Generator, digest_of
from antiphon.numerics.row_clipping import clip_rows
from antiphon.numerics.spectral import minimum_phase
from antiphon.numerics.toeplitz import all_pole_energy, gram, invert, lower, multiply
from antiphon.numerics.triangular import lower_root, signs_agree

__all__ = [
    "Generator",
    "Matrix",
    "Rows",
    "Series",
    "UniformSplines",
    "Vector",
    "add_noise",
    "all_pole_energy",
    "clip_rows",
    "digest_of",
    "fit_inverse_square_root",
    "gram",
    "invert",
    "lower",
    "lower_root",
    "minimum_phase",
    "multiply",
    "reciprocal",
    "signs_agree",
    "spacing",
    "spline_pieces",
]
