"""Models as plain modules, which know nothing of privacy: KANs, and the networks of tables.

>>> from antiphon.models import KAN
>>> sum(parameter.numel() for parameter in KAN([64, 64, 10]).parameters())
37888
"""

from antiphon.models.kan import KAN, KANLayer
from antiphon.models.model_figure import Edges, Levels, draw, edges, names_of
from antiphon.models.splines import FUNCTIONS, spline_basis
from antiphon.models.table_kan import TableKAN
from antiphon.models.table_mlp import TableMLP
from antiphon.models.table_neuron import TableNeuron
from antiphon.numerics import UniformSplines

__all__ = [
    "FUNCTIONS",
    "KAN",
    "Edges",
    "KANLayer",
    "Levels",
    "TableKAN",
    "TableMLP",
    "TableNeuron",
    "UniformSplines",
    "draw",
    "edges",
    "names_of",
    "spline_basis",
]
