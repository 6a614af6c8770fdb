"""Private learning from tables with scikit-learn's interface: fit, predict, and a certificate.

>>> from antiphon.estimators import PrivateKANClassifier
>>> PrivateKANClassifier(epsilon=0.5)
PrivateKANClassifier(epsilon=0.5)
"""

from antiphon.estimators.kan import PrivateKANClassifier, PrivateKANRegressor
from antiphon.estimators.logistic import PrivateLogisticRegression
from antiphon.estimators.mlp import PrivateMLPClassifier, PrivateMLPRegressor
from antiphon.estimators.relu import PrivateReLURegressor
from antiphon.estimators.saving import load
from antiphon.estimators.scaling import ScaledDataWarning

__all__ = [
    "PrivateKANClassifier",
    "PrivateKANRegressor",
    "PrivateLogisticRegression",
    "PrivateMLPClassifier",
    "PrivateMLPRegressor",
    "PrivateReLURegressor",
    "ScaledDataWarning",
    "load",
]
