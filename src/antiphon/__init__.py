"""Learning from sensitive data with noise that answers itself.

`PrivateKANClassifier` learns from a table; `make_private` trains any PyTorch model. A `Plan` says what will
run, `calibrate` finds its noise, `certify` proves its (ε, δ); `antiphon.mechanisms` holds every
correlated-noise mechanism, `antiphon.models` networks. Names load when they are first used, so that
``import antiphon`` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from antiphon.version import __version__ as __version__

if TYPE_CHECKING:
    from antiphon import (
        accounting,
        data,
        errors,
        estimators,
        events,
        linalg,
        mechanisms,
        models,
        participation,
        randomness,
        releases,
        sampling,
        training,
    )
    from antiphon.accounting.calibrate import calibrate
    from antiphon.certificate import Certificate, certify
    from antiphon.estimators import (
        PrivateKANClassifier,
        PrivateKANRegressor,
        PrivateLogisticRegression,
        PrivateMLPClassifier,
        PrivateMLPRegressor,
        PrivateReLURegressor,
    )
    from antiphon.ledger import Ledger
    from antiphon.plan import Plan
    from antiphon.relations import Relation
    from antiphon.sampling import (
        BallsInBins,
        CyclicPoisson,
        FixedSize,
        FullBatch,
        OnePass,
        Poisson,
        Recorded,
        ShuffledEpochs,
    )
    from antiphon.training import Dataset, Options, make_private
    from antiphon.training.opacus import PrivacyEngine

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
    "calibrate",
    "certify",
    "data",
    "errors",
    "estimators",
    "events",
    "linalg",
    "make_private",
    "mechanisms",
    "models",
    "participation",
    "randomness",
    "releases",
    "sampling",
    "training",
]

_HOMES = {
    "Certificate": "certificate",
    "certify": "certificate",
    "calibrate": "accounting.calibrate",
    "Ledger": "ledger",
    "Plan": "plan",
    "Dataset": "training",
    "Options": "training",
    "PrivacyEngine": "training.opacus",
    "Relation": "relations",
    "make_private": "training",
    **dict.fromkeys(
        (
            "PrivateKANClassifier",
            "PrivateKANRegressor",
            "PrivateLogisticRegression",
            "PrivateMLPClassifier",
            "PrivateMLPRegressor",
            "PrivateReLURegressor",
        ),
        "estimators",
    ),
    **dict.fromkeys(
        (
            "BallsInBins",
            "CyclicPoisson",
            "FixedSize",
            "FullBatch",
            "OnePass",
            "Poisson",
            "Recorded",
            "ShuffledEpochs",
        ),
        "sampling",
    ),
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"antiphon.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"antiphon.{name}")
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
