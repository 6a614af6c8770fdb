"""Differentially private learning with correlated noise, for PyTorch and tables.

`PrivateKANClassifier` learns from a table; `make_private` trains any PyTorch model. A `Plan` says what will
run, `calibrate` finds its noise, `certify` proves its (ε, δ). Names load when they are first used, so that
``import antiphon`` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from antiphon.version import __version__ as __version__

if TYPE_CHECKING:
    from antiphon import (
        accounting,
        audits,
        certificates,
        errors,
        mechanisms,
        models,
        participation,
        plans,
        tables,
        training,
    )
    from antiphon.accounting import calibrate
    from antiphon.certificates import Certificate, Ledger, certify
    from antiphon.integrations.opacus import PrivacyEngine
    from antiphon.participation import Relation
    from antiphon.plans import (
        BallsInBins,
        CyclicPoisson,
        FixedSize,
        FullBatch,
        OnePass,
        Plan,
        Poisson,
        Recorded,
        ShuffledEpochs,
    )
    from antiphon.tables.estimators import (
        PrivateKANClassifier,
        PrivateKANRegressor,
        PrivateLogisticRegression,
        PrivateMLPClassifier,
        PrivateMLPRegressor,
        PrivateReLURegressor,
    )
    from antiphon.training import Dataset, Options, make_private

__all__ = [
    "BallsInBins",
    "Certificate",
    "CyclicPoisson",
    "Dataset",
    "FixedSize",
    "FullBatch",
    "Ledger",
    "OnePass",
    "Options",
    "Plan",
    "Poisson",
    "PrivacyEngine",
    "PrivateKANClassifier",
    "PrivateKANRegressor",
    "PrivateLogisticRegression",
    "PrivateMLPClassifier",
    "PrivateMLPRegressor",
    "PrivateReLURegressor",
    "Recorded",
    "Relation",
    "ShuffledEpochs",
    "accounting",
    "audits",
    "calibrate",
    "certificates",
    "certify",
    "errors",
    "make_private",
    "mechanisms",
    "models",
    "participation",
    "plans",
    "tables",
    "training",
]

_DOORS = {
    "accounting": ("calibrate",),
    "certificates": ("Certificate", "Ledger", "certify"),
    "integrations.opacus": ("PrivacyEngine",),
    "participation": ("Relation",),
    "plans": (
        "BallsInBins",
        "CyclicPoisson",
        "FixedSize",
        "FullBatch",
        "OnePass",
        "Plan",
        "Poisson",
        "Recorded",
        "ShuffledEpochs",
    ),
    "tables.estimators": (
        "PrivateKANClassifier",
        "PrivateKANRegressor",
        "PrivateLogisticRegression",
        "PrivateMLPClassifier",
        "PrivateMLPRegressor",
        "PrivateReLURegressor",
    ),
    "training": ("Dataset", "Options", "make_private"),
}
_HOMES = {name: door for door, names in _DOORS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"antiphon.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"antiphon.{name}")
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
