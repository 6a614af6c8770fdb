"""Who is protected, and in which steps one unit can take part: patterns and relations, as numbers only."""

from antiphon.participation.patterns import (
    AbstractParticipation,
    FixedEpochs,
    MinSeparation,
    Once,
    Patterns,
    Reshuffled,
)
from antiphon.participation.relations import Relation

__all__ = [
    "AbstractParticipation",
    "FixedEpochs",
    "MinSeparation",
    "Once",
    "Patterns",
    "Relation",
    "Reshuffled",
]
