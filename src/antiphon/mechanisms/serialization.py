"""Mechanisms as JSON and back."""

import json
from typing import Any

from antiphon.errors import PlanError
from antiphon.mechanisms.abstract_mechanism import AbstractMechanism
from antiphon.mechanisms.banded import Banded
from antiphon.mechanisms.banded_inverse import BandedInverse
from antiphon.mechanisms.blt import BLT
from antiphon.mechanisms.dense import Dense
from antiphon.mechanisms.fft import FFT
from antiphon.mechanisms.full_honaker import FullHonaker
from antiphon.mechanisms.honaker import Honaker
from antiphon.mechanisms.independent import Independent
from antiphon.mechanisms.lambda_cgd import LambdaCGD
from antiphon.mechanisms.nu_ftrl import NuFTRL
from antiphon.mechanisms.restarted import Restarted
from antiphon.mechanisms.tree import Tree

__all__ = ["BY_NAME", "from_dict", "from_json", "to_json"]

BY_NAME: dict[str, type[AbstractMechanism]] = {
    kind.name: kind
    for kind in (
        Independent,
        LambdaCGD,
        NuFTRL,
        Tree,
        Honaker,
        FullHonaker,
        FFT,
        Banded,
        BandedInverse,
        BLT,
        Dense,
        Restarted,
    )
}


def to_json(mechanism: AbstractMechanism) -> str:
    """The mechanism as one line of JSON; floats keep every digit."""
    return json.dumps(mechanism.to_dict())


def from_json(text: str) -> AbstractMechanism:
    """The mechanism that `to_json` wrote.

    Example:
        >>> from_json('{"mechanism": "lambda-cgd", "lam": 0.9}')
        LambdaCGD(lam=0.9)
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise PlanError(f"this is not JSON: {error}.") from error
    return from_dict(values)


def from_dict(values: Any) -> AbstractMechanism:
    """The mechanism that ``to_dict`` described."""
    if not isinstance(values, dict) or values.get("mechanism") not in [*BY_NAME]:
        raise PlanError(
            f"a mechanism needs a 'mechanism' out of {', '.join(BY_NAME)}; got {str(values)[:80]}."
        )
    arguments = {key: _plain(value) for key, value in values.items() if key != "mechanism"}
    if values["mechanism"] == Restarted.name:
        arguments["mechanism"] = from_dict(arguments.pop("of", None))
    try:
        return BY_NAME[values["mechanism"]](**arguments)
    except PlanError:
        raise
    except (TypeError, ValueError) as error:
        raise PlanError(f"cannot read the mechanism {str(values)[:80]}: {error}.") from error


def _plain(value: Any) -> Any:
    """A list of numbers as the tuple that it was; the rows of a matrix stay as they are."""
    is_column = isinstance(value, list) and not any(isinstance(entry, list) for entry in value)
    return tuple(value) if is_column else value
