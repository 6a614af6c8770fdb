"""Whether any of many objects has changed, and which.

Objects are compared in groups: what all objects of a group refer to is read in one pass and compared by
identity with the last such pass. Objects are looked at one by one only in a group that has changed.
"""

from collections import OrderedDict, defaultdict, deque
from operator import is_
from typing import Any, final

from antiphon.training.gradients import state_kinds as kinds
from antiphon.training.gradients.state_kinds import Kind, Reading, Stream

__all__ = ["Watch"]

_GROUP = 256  # objects
_PLAIN = set(map(id, (dict, OrderedDict, list, set, deque)))  # false if and only if empty


class _Group:
    """Objects at some places, and what a stream finds in them: None if it cannot read them."""

    def __init__(self, stream: Stream, places: list[int], things: list[Any]) -> None:
        self.stream, self.places, self.things = stream, places, things
        self.found: list[Any] | None = None
        self.read()

    def read(self) -> None:
        """Take what is there now."""
        try:
            self.found = list(self.stream(self.things))
        except Exception:  # what a class overrides
            self.found = None

    def is_same(self) -> bool:
        """Whether what is there now is what was taken."""
        try:
            return self.found is not None and all(map(is_, self.stream(self.things), self.found))
        except Exception:
            return False


@final
class Watch:
    """Objects with what they referred to when they were last looked at. Call `settle` before the rest."""

    def __init__(self) -> None:
        self._entries: list[tuple[Any, Kind]] = []
        self._kept: list[Reading] = []

    def add(self, thing: Any, kind: Kind) -> Reading:
        """Watch an object; return what it refers to."""
        kept = kind.read(thing)
        self._entries.append((thing, kind))
        self._kept.append(kept)
        return kept

    def settle(self) -> None:
        """Form the groups."""
        self._empty: dict[int, Any] = {}
        self._single: list[int] = []
        places: dict[Stream, list[int]] = defaultdict(list)
        for i, (thing, kind) in enumerate(self._entries):
            if not self._kept[i] and id(type(thing)) in _PLAIN:
                self._empty[i] = thing
            elif not kind.streams:
                self._single.append(i)
            else:
                for stream in kind.streams:
                    places[stream].append(i)
        self._groups = [
            _Group(stream, part, [self._entries[i][0] for i in part])
            for stream, found in places.items()
            for part in (found[start : start + _GROUP] for start in range(0, len(found), _GROUP))
        ]

    def is_same(self) -> bool:
        """Whether no object has changed."""
        return (
            not any(self._empty.values())
            and all(group.is_same() for group in self._groups)
            and not any(map(self._is_changed, self._single))
        )

    def refresh(self) -> bool:
        """Keep what is there now; False if new objects came, which have to be walked."""
        for i in self._changed():
            thing, kind = self._entries[i]
            now, known = kind.read(thing), set(map(id, self._kept[i]))
            is_known = all(kinds.is_leaf(part) or id(part) in known for part in now)
            if not is_known and kind is not kinds.GRADIENT:
                return False
            self._kept[i] = now
        self.settle()
        return True

    def put_back(self) -> list[Any]:
        """Put back what has changed; return the objects for which that is impossible."""
        refused = []
        for i in self._changed():
            thing, kind = self._entries[i]
            try:
                kind.write(thing, self._kept[i])
                is_back = not self._is_changed(i)
            except Exception:
                is_back = False
            if not is_back:
                refused.append(thing)
        for group in self._groups:
            if not group.is_same():
                group.read()
        return refused

    def _changed(self) -> list[int]:
        places = {i for group in self._groups if not group.is_same() for i in group.places}
        places |= {*self._empty, *self._single}
        return [i for i in sorted(places) if self._is_changed(i)]

    def _is_changed(self, i: int) -> bool:
        thing, kind = self._entries[i]
        return not kinds.is_same(self._kept[i], kind.read(thing))
