"""Text of many speakers, in pieces of equal length, for models of the next character.

One speaker is one user. Which pieces of a speaker are taken, and whether a speaker is one to test on, goes
by the speaker's own name, so that one speaker's presence does not change what is taken of others.
"""

import zlib
from dataclasses import dataclass
from os import PathLike
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from antiphon.checks import whole
from antiphon.errors import DataError, PlanError
from antiphon.tables.data import named_folder, needed_archive

__all__ = ["Speech", "chain_speech", "shakespeare"]

Codes = NDArray[np.int64]

# The characters of the plays, which are public.
ALPHABET = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TEST_EVERY = 6  # one speaker of so many is tested on


@final
@dataclass(frozen=True, eq=False)
class Speech:
    """Pieces of text, each of one speaker.

    Attributes:
        pieces: Characters by their numbers, one row for each piece.
        speaker: Of every piece, from 0, in the order of the pieces.
        test_pieces: Those of the speakers to test on, none of whom is among the others.
        test_speaker: Of each of those, likewise.
        symbols: How many characters there are.
    """

    pieces: Codes
    speaker: Codes
    test_pieces: Codes
    test_speaker: Codes
    symbols: int

    @property
    def speakers(self) -> int:
        """Number of speakers to learn from."""
        return int(self.speaker.max()) + 1


def shakespeare(
    length: int = 32, most: int = 8, *, seed: int = 0, folder: str | PathLike[str] | None = None
) -> Speech:
    """What the speakers of Shakespeare's plays say, without their names.

    Args:
        length: Characters of a piece.
        most: Pieces that are taken of one speaker, at random if there are more.
        seed: Of this choice.
        folder: Of the archive ``tiny_shakespeare.npz``; unless given, the one that ``ANTIPHON_DATA`` names.

    Returns:
        Speakers who say less than one piece are left out; about every sixth is one to test on.
    """
    arrays = needed_archive(named_folder(folder), "tiny_shakespeare")
    texts = {
        str(name): _spoken(arrays, place).encode() for place, name in enumerate(arrays["speakers"])
    }
    known = np.full(256, -1, dtype=np.int64)
    known[list(ALPHABET.encode())] = np.arange(len(ALPHABET))
    coded = {name: known[np.frombuffer(text, np.uint8)] for name, text in texts.items()}
    if strange := [name for name, codes in coded.items() if (codes < 0).any()]:
        raise DataError(
            f"tiny_shakespeare.npz has characters beyond {ALPHABET!r}, said by {strange[:3]}: it is not "
            "the known text."
        )
    return _in_pieces(coded, length, most, len(ALPHABET), seed)


def _spoken(arrays: Any, speaker: int) -> str:
    """All turns of one speaker, each without its first line, which is the name."""
    turns = np.flatnonzero(arrays["turn_speaker"] == speaker)
    starts, ends, text = arrays["turn_start"], arrays["turn_end"], arrays["text"]
    spoken = (text[starts[i] : ends[i]].tobytes().decode("latin-1") for i in turns)
    return "".join(turn.partition("\n")[2] for turn in spoken)


def chain_speech(
    speakers: int, length: int = 32, most: int = 8, *, symbols: int = 12, seed: int = 0
) -> Speech:
    """Speakers who draw every character by the one before it, all by the same chances.

    Example:
        >>> speech = chain_speech(20, length=10, most=3)
        >>> speech.pieces.shape[1], speech.symbols, speech.speakers < 20
        (10, 12, True)
    """
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.full(whole("symbols", symbols), 0.1), size=symbols).cumsum(1)
    texts = {}
    for speaker in range(whole("speakers", speakers)):
        draws, codes = rng.uniform(size=length * most), [int(rng.integers(symbols))]
        for draw in draws[1:]:
            codes.append(min(symbols - 1, int(np.searchsorted(chances[codes[-1]], draw))))
        texts[f"speaker {speaker}"] = np.array(codes, dtype=np.int64)
    return _in_pieces(texts, length, most, symbols, seed)


def _in_pieces(texts: dict[str, Codes], length: int, most: int, symbols: int, seed: int) -> Speech:
    length, most = whole("length", length), whole("most", most)
    if length < 2:
        raise PlanError(
            f"a piece needs at least 2 characters, one to predict; got length={length}."
        )
    train: list[Codes] = []
    test: list[Codes] = []
    for name, codes in texts.items():
        pieces = codes[: len(codes) // length * length].reshape(-1, length)
        mark = zlib.crc32(name.encode())
        chosen = np.random.default_rng((seed, mark)).permutation(len(pieces))[:most]
        if len(chosen):
            (train if mark % _TEST_EVERY else test).append(pieces[np.sort(chosen)])
    if not train or not test:
        raise DataError(
            f"{len(texts)} speakers leave {len(train)} to learn from and {len(test)} to test on: there are "
            f"too few, or none of them says {length} characters. Take more speakers or shorter pieces."
        )
    return Speech(*_joined(train), *_joined(test), symbols)


def _joined(parts: list[Codes]) -> tuple[Codes, Codes]:
    """All pieces, and whose they are."""
    speaker = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return np.concatenate(parts), speaker
