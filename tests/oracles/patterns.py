"""Every pattern of a participation, straight from its definition."""

from itertools import combinations, pairwise

from antiphon.participation import (
    AbstractParticipation,
    FixedEpochs,
    MinSeparation,
    Once,
    Patterns,
    Reshuffled,
)

Pattern = tuple[int, ...]


def patterns(participation: AbstractParticipation, T: int) -> list[Pattern]:
    """All non-empty sets of steps in which one unit may take part."""
    most = max(map(len, participation.patterns)) if isinstance(participation, Patterns) else None
    times = most or getattr(participation, "times", 1)
    return [
        steps
        for size in range(1, min(times, T) + 1)
        for steps in combinations(range(T), size)
        if is_allowed(participation, steps)
    ]


def is_allowed(participation: AbstractParticipation, steps: Pattern) -> bool:
    """Whether a unit may take part in exactly these (sorted) steps."""
    gaps = [later - earlier for earlier, later in pairwise(steps)]
    match participation:
        case Once():
            return len(steps) <= 1
        case MinSeparation(times, apart):
            return len(steps) <= times and all(gap >= apart for gap in gaps)
        case FixedEpochs(times, apart):
            return len(steps) <= times and all(gap == apart for gap in gaps)
        case Reshuffled(times, batches):
            epochs = [step // batches for step in steps]
            return len(set(epochs)) == len(epochs) and max(epochs) < times
        case Patterns(listed):
            return any(set(steps) <= set(pattern) for pattern in listed)
        case _:
            raise TypeError(participation)


def largest(family: list[Pattern]) -> list[Pattern]:
    """The patterns that are not part of another one: the others cannot have a larger sensitivity."""
    return [p for p in family if not any(set(p) < set(q) for q in family)]
