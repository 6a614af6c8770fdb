import json

from antiphon.mechanisms import BLT, Dense, Restarted, from_dict, from_json, to_json
from antiphon.mechanisms.serialization import BY_NAME


def test_the_form_is_the_name_and_the_fields():
    assert json.loads(to_json(BLT((0.5,), (0.25,)))) == {
        "mechanism": "blt",
        "scales": [0.5],
        "decays": [0.25],
    }


def test_a_mechanism_within_another_is_written_under_of():
    text = to_json(Restarted(Dense([[1.0], [0.5, 2.0]]), 3))
    assert json.loads(text) == {
        "mechanism": "restarted",
        "of": {"mechanism": "dense", "C": [[1.0], [0.5, 2.0]]},
        "blocks": 3,
    }


def test_reading_leaves_the_dictionary_alone():
    values = json.loads(to_json(Restarted(BLT((0.5,), (0.25,)), 3)))
    before = json.dumps(values)
    from_dict(values)
    assert json.dumps(values) == before


def test_numbers_keep_every_digit():
    odd = 0.1 + 0.2
    assert from_json(to_json(BLT((odd,), (1 / 3,)))) == BLT((odd,), (1 / 3,))


def test_every_mechanism_has_its_own_name():
    assert all(kind.name == name for name, kind in BY_NAME.items())
    assert len(set(BY_NAME.values())) == len(BY_NAME)
