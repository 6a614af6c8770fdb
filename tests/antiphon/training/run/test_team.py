"""A team of one process does nothing, and tells of itself; larger ones are in test_distributed."""

import pytest
import torch

from antiphon.errors import PlanError, RunError, StateError
from antiphon.training.run import team as module
from antiphon.training.run.team import Team


def test_a_process_without_a_group_is_a_team_of_its_own():
    team = Team.of_this_process()
    assert team == Team(0, 1)
    assert team.is_first
    assert team.first(lambda: 5) == 5
    tensor = torch.arange(3.0)
    team.add_up(tensor)
    assert team.to_first(tensor) is tensor
    team.from_first(tensor)
    team.same_start(torch.nn.Linear(2, 2))
    team.check_same({"n": 3})
    with team.together():
        pass
    assert tensor.tolist() == [0.0, 1.0, 2.0]


def test_errors_pass_through():
    team = Team()
    with pytest.raises(StateError, match="no"), team.together():
        raise StateError("no")
    with pytest.raises(ZeroDivisionError):
        team.first(lambda: 1 // 0)


@pytest.fixture
def heard(monkeypatch):
    """What the second of two processes hears of the first."""
    box = []
    monkeypatch.setattr(
        module.dist, "broadcast_object_list", lambda values: values.__setitem__(slice(None), box[0])
    )
    monkeypatch.setattr(
        module.dist,
        "all_gather_object",
        lambda values, own: values.__setitem__(slice(None), [box[0], own]),
    )
    return box


@pytest.mark.parametrize(
    "failure, kind, text",
    [
        (("PlanError", "steps is 0"), PlanError, "process 0: steps is 0"),
        (("OSError", "disk full"), RunError, "process 0 of this run stopped: OSError: disk full"),
        (("annotations", "strange"), RunError, "process 0 of this run stopped"),
    ],
)
def test_an_error_of_another_process_is_retold(failure, kind, text, heard):
    heard[:] = [[None, failure]]
    with pytest.raises(kind, match=text):
        Team(1, 2).first(lambda: 3)
    heard[:] = [failure]
    with pytest.raises(kind, match=text), Team(1, 2).together():
        pass
    with pytest.raises(KeyError), Team(1, 2).together():
        raise KeyError("its own error comes first")


def test_different_facts_are_named(heard):
    heard[:] = [{"n": 4}]
    with pytest.raises(PlanError, match="n is 4 in process 0 and 3 in process 1"):
        Team(1, 2).check_same({"n": 3})
    Team(1, 2).check_same({"n": 4})


@pytest.mark.parametrize("call", ["all_reduce", "reduce", "broadcast", "broadcast_object_list"])
def test_a_lost_process_is_named_and_so_is_the_remedy(call, monkeypatch):
    def lost(*_, **__):
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(module.dist, call, lost)
    team = Team(1, 2)
    work = {
        "all_reduce": lambda: team.add_up(torch.ones(1)),
        "reduce": lambda: team.to_first(torch.ones(1)),
        "broadcast": lambda: team.same_start(torch.nn.Linear(1, 1)),
        "broadcast_object_list": lambda: team.first(int),
    }
    with pytest.raises(
        RunError, match=r"another process of this run was lost while .* resume=True"
    ):
        work[call]()


def test_strided_parameters_are_shared(monkeypatch):
    monkeypatch.setattr(module.dist, "broadcast", lambda tensor, source: tensor.fill_(3.0))
    layer = torch.nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last)
    assert not layer.weight.is_contiguous()
    Team(1, 2).same_start(layer)
    assert (layer.weight == 3).all() and (layer.bias == 3).all()
