"""Models as plain modules, which know nothing of privacy: splines (KANs), a perceptron, a neuron.

>>> from antiphon.models import KAN
>>> sum(parameter.numel() for parameter in KAN([64, 64, 10]).parameters())
37888
"""

from antiphon.linalg import UniformSplines
from antiphon.models.kan import KAN, KANLayer
from antiphon.models.splines import spline_basis
from antiphon.models.table_kan import TableKAN
from antiphon.models.table_mlp import TableMLP
from antiphon.models.table_neuron import TableNeuron
from antiphon.models.two_layer import TwoLayerKAN

__all__ = [
    "KAN",
    "KANLayer",
    "TableKAN",
    "TableMLP",
    "TableNeuron",
    "TwoLayerKAN",
    "UniformSplines",
    "spline_basis",
]
