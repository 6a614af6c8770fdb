"""What every experiment must do; a new module is found and tested by itself."""

import dataclasses
import json
import keyword

import pytest
from matplotlib.figure import Figure

from antiphon_papers.common.catalogue import experiment, experiments
from antiphon_papers.common.experiment import config_hash
from antiphon_papers.common.reproduce import reproduce

IDS = experiments()
SCALARS = (str, int, float, bool, type(None))


@pytest.fixture(scope="module", params=IDS)
def found(request, tmp_path_factory):
    """The ``ci`` preset of each experiment, run once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTIPHON_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("ANTIPHON_DATA", raising=False)
        return reproduce(request.param, "ci", tmp_path_factory.mktemp("out"))


@pytest.mark.parametrize("id", IDS)
def test_an_id_is_the_name_of_its_module_and_has_a_title(id):
    assert id.replace("-", "_").isidentifier() and not keyword.iskeyword(id)
    assert experiment(id).id == id
    assert experiment(id).title.endswith(".")


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("preset", ["ci", "full"])
def test_configurations_are_frozen_different_and_survive_json(id, preset):
    configs = experiment(id).configs(preset)
    assert len({config_hash(id, config) for config in configs}) == len(configs) > 0
    for config in configs:
        assert type(config).__dataclass_params__.frozen
        values = dataclasses.asdict(config)
        assert all(isinstance(value, SCALARS) for value in values.values())
        assert type(config)(**json.loads(json.dumps(values))) == config


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("preset", ["ci", "full"])
def test_more_seeds_add_configurations_and_keep_those_there_were(id, preset):
    few, many = (experiment(id).configs(preset, seeds) for seeds in (1, 2))
    assert set(few) < set(many)
    assert len(many) > len(few)


def test_rows_are_plain_values_and_every_configuration_has_some(found):
    assert len(found.rows) >= len(experiment(found.id).configs("ci"))
    for row in (*found.rows, *found.summary):
        assert all(isinstance(value, SCALARS) for value in row.values())
    assert json.loads(json.dumps(found.rows, allow_nan=False)) == found.rows


def test_a_figure_and_tables_are_written(found):
    assert isinstance(experiment(found.id).plot(found.rows), Figure)
    for name in ("figure.svg", "figure.png", "rows.csv", "summary.csv"):
        assert (found.folder / name).stat().st_size > 20
    lines = (found.folder / "rows.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + len(found.rows)


def test_a_second_run_computes_nothing_and_writes_the_same(found):
    before = {name: (found.folder / name).read_bytes() for name in ("rows.csv", "figure.svg")}
    again = reproduce(found.id, "ci", found.folder)
    assert again.computed == 0 and again.rows == found.rows
    assert before == {name: (found.folder / name).read_bytes() for name in before}
