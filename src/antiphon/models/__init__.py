"""Models as plain modules, which know nothing of privacy: KANs, a perceptron, a neuron, a CNN.

>>> from antiphon.models import KAN
>>> sum(parameter.numel() for parameter in KAN([64, 64, 10]).parameters())
37888
"""

from antiphon.linalg import UniformSplines
from antiphon.models.huberized import HuberizedReLU, huberized_relu, huberized_slope
from antiphon.models.kan import KAN, KANLayer
from antiphon.models.splines import spline_basis
from antiphon.models.table_kan import TableKAN
from antiphon.models.table_mlp import TableMLP
from antiphon.models.table_neuron import TableNeuron
from antiphon.models.two_layer import TwoLayerKAN
from antiphon.models.two_layer_cnn import TwoLayerCNN

__all__ = [
    "KAN",
    "HuberizedReLU",
    "KANLayer",
    "TableKAN",
    "TableMLP",
    "TableNeuron",
    "TwoLayerCNN",
    "TwoLayerKAN",
    "UniformSplines",
    "huberized_relu",
    "huberized_slope",
    "spline_basis",
]
