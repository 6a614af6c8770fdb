"""Private learning from tables with scikit-learn's interface: fit, predict, and a certificate.

>>> from antiphon.tables.estimators import PrivateKANClassifier
>>> PrivateKANClassifier(epsilon=0.5)
PrivateKANClassifier(epsilon=0.5)
"""

from antiphon.tables.estimators.abstract_estimator import AbstractPrivateEstimator
from antiphon.tables.estimators.columns import schema_for
from antiphon.tables.estimators.exports import load
from antiphon.tables.estimators.kan_estimators import PrivateKANClassifier, PrivateKANRegressor
from antiphon.tables.estimators.logistic_regression import PrivateLogisticRegression
from antiphon.tables.estimators.mlp_estimators import PrivateMLPClassifier, PrivateMLPRegressor
from antiphon.tables.estimators.relu_regressor import PrivateReLURegressor
from antiphon.tables.estimators.scaling import ScaledDataWarning
from antiphon.tables.estimators.targets import Classes, Interval

__all__ = [
    "AbstractPrivateEstimator",
    "Classes",
    "Interval",
    "PrivateKANClassifier",
    "PrivateKANRegressor",
    "PrivateLogisticRegression",
    "PrivateMLPClassifier",
    "PrivateMLPRegressor",
    "PrivateReLURegressor",
    "ScaledDataWarning",
    "load",
    "schema_for",
]
