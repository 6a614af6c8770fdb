import numpy as np
import pytest

from antiphon.errors import DataError, PlanError
from antiphon_papers.dp_ftrl import chain_speech, shakespeare
from antiphon_papers.dp_ftrl.speech import ALPHABET

NAMES = [f"Speaker {i}" for i in range(40)]


def written(folder, names, said=None):
    """An archive in which everybody has two turns; ``said`` is by name."""
    text, starts, ends, speakers = b"", [], [], []
    for part in range(2):
        for place, name in enumerate(names):
            line = (said or {}).get(
                name,
                f"{name.lower()} speaks in part {'ab'[part]}, ".translate(
                    str.maketrans("", "", "0123456789")
                )
                * 4,
            )
            starts.append(len(text))
            text += f"{name}:\n{line}\n".encode()
            ends.append(len(text))
            speakers.append(place)
    np.savez(
        folder / "tiny_shakespeare.npz",
        text=np.frombuffer(text, np.uint8),
        turn_start=starts,
        turn_end=ends,
        turn_speaker=speakers,
        speakers=np.array(names),
    )
    return folder


def texts(pieces):
    return {"".join(ALPHABET[code] for code in piece) for piece in pieces}


def test_pieces_are_what_speakers_say_without_their_names(tmp_path):
    speech = shakespeare(20, 3, folder=written(tmp_path, NAMES))
    assert speech.pieces.shape[1] == 20 and speech.symbols == len(ALPHABET) == 65
    assert not any("Speaker" in text for text in texts(speech.pieces) | texts(speech.test_pieces))
    assert any("speaks in part" in text for text in texts(speech.pieces))
    counts = np.bincount(speech.speaker)
    assert (counts == 3).all() and len(counts) == speech.speakers
    assert np.all(np.diff(speech.speaker) >= 0)


def test_speakers_to_test_on_are_others_than_those_to_learn_from(tmp_path):
    said = {name: chr(65 + i // 26) * 50 + chr(97 + i % 26) * 50 for i, name in enumerate(NAMES)}
    speech = shakespeare(10, 100, folder=written(tmp_path, NAMES, said))
    assert speech.speakers + 0 < len(NAMES)
    both = len(speech.pieces) + len(speech.test_pieces)
    assert both == len(NAMES) * (2 * 101 // 10)
    assert 1 <= len(speech.test_pieces) / (2 * 101 // 10) <= 15


def test_one_speaker_does_not_change_what_is_taken_of_others(tmp_path):
    (tmp_path / "all").mkdir()
    (tmp_path / "less").mkdir()
    every = shakespeare(8, 2, seed=3, folder=written(tmp_path / "all", NAMES))
    less = shakespeare(8, 2, seed=3, folder=written(tmp_path / "less", [*NAMES[:5], *NAMES[6:]]))
    one = max(every.speakers - less.speakers, (len(every.test_pieces) - len(less.test_pieces)) // 2)
    assert one == 1
    rows = {tuple(piece) for piece in every.pieces} | {tuple(piece) for piece in every.test_pieces}
    assert {tuple(piece) for piece in less.pieces} | {
        tuple(piece) for piece in less.test_pieces
    } <= rows


def test_another_seed_takes_other_pieces(tmp_path):
    folder = written(tmp_path, NAMES)
    one, other = (shakespeare(8, 2, seed=seed, folder=folder) for seed in (0, 1))
    assert not np.array_equal(one.pieces, other.pieces)
    assert np.array_equal(one.speaker, other.speaker)


def test_characters_beyond_the_alphabet_are_refused(tmp_path):
    folder = written(tmp_path, NAMES, {"Speaker 3": "what is 7 times 8"})
    with pytest.raises(DataError, match=r"characters beyond .*Speaker 3.*not the known text"):
        shakespeare(folder=folder)


def test_no_archive_is_refused_with_where_it_was_sought(tmp_path):
    with pytest.raises(DataError, match=rf"tiny_shakespeare.npz was not found in {tmp_path}"):
        shakespeare(folder=tmp_path)


@pytest.mark.parametrize("length", [0, 1])
def test_a_piece_needs_two_characters(length):
    with pytest.raises(PlanError, match="length"):
        chain_speech(20, length)


def test_too_few_speakers_are_refused():
    with pytest.raises(DataError, match=r"1 speakers leave .* Take more speakers"):
        chain_speech(1)


def test_chains_have_a_next_character_that_can_be_learnt():
    speech = chain_speech(60, 12, 4)
    pairs = np.zeros((speech.symbols, speech.symbols))
    np.add.at(pairs, (speech.pieces[:, :-1].ravel(), speech.pieces[:, 1:].ravel()), 1)
    guess = pairs.argmax(axis=1)
    right = (guess[speech.test_pieces[:, :-1]] == speech.test_pieces[:, 1:]).mean()
    commonest = np.bincount(speech.test_pieces.ravel()).max() / speech.test_pieces.size
    assert right > commonest + 0.2
    assert np.array_equal(chain_speech(60, 12, 4).pieces, speech.pieces)


@pytest.mark.data
def test_the_plays_have_230_speakers_to_learn_from():
    speech = shakespeare()
    assert speech.speakers == 230
    assert speech.pieces.shape == (1557, 32) and speech.test_pieces.shape == (380, 32)
