"""What the tape notes and when; that gradients are right is in ``tests/contracts/test_layer.py``."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from antiphon.errors import UnsupportedError
from antiphon.training.tape import Tape


def model_and_tape(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return model, Tape(model, list(model.parameters()), **options)


X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


def test_notes_are_taken_between_start_and_stop():
    model, tape = model_and_tape()
    model(X)
    assert not tape.records
    tape.start()
    model(X)
    assert [r.name for r in tape.records] == ["0", "2"]
    with tape.paused():
        model(X)
    assert len(tape.records) == 2
    tape.start()
    assert not tape.records
    model(X)
    tape.stop()
    with tape.paused():
        pass
    model(X)
    assert not tape.records


def test_notes_aside_leave_the_others():
    model, tape = model_and_tape()
    tape.start()
    model(X)
    kept = list(tape.records)
    with tape.paused(), tape.aside() as aside:
        model(X)
        assert len(aside) == 2
    assert tape.records == kept
    model(X)
    assert len(tape.records) == 4


def test_a_failure_aside_leaves_no_call_behind():
    model, tape = model_and_tape()
    tape.start()
    with pytest.raises(RuntimeError), tape.aside():
        model(X[:, :2])
    model[0](X)
    assert [r.call for r in tape.records] == [None]


def test_blocks_that_run_again_for_the_backward_pass_are_noted_once():
    model, tape = model_and_tape()
    tape.start()
    out = checkpoint(model, X, use_reentrant=False)
    tape.used(out.sum(), 1.0)
    assert [r.name for r in tape.records] == ["0", "2"]


def test_nothing_is_noted_without_gradients_or_of_frozen_layers():
    model, tape = model_and_tape()
    tape.start()
    with torch.no_grad():
        model(X)
    assert not tape.records and tape.used(X.clone().requires_grad_().sum(), 1.0) == []
    tape.detach()
    only_last = Tape(model, list(model[2].parameters()))
    only_last.start()
    model(X)
    assert [r.name for r in only_last.records] == ["2"]


def test_calls_of_the_model_hold_arguments_and_outputs():
    model, tape = model_and_tape()
    tape.start()
    first, second = model(X), model(X)
    calls = [r.call for r in tape.records]
    assert calls[0] is calls[1] and calls[2] is calls[3] and calls[0] is not calls[2]
    assert calls[0].args[0] is X and calls[0].output is first and calls[2].output is second
    model[0](X)
    assert tape.records[-1].call is None


def test_a_frozen_bias_has_no_factor():
    model = nn.Linear(3, 2)
    tape = Tape(model, [model.weight])
    tape.start()
    assert set(tape.factors(tape.used(model(X).sum(), 1.0), 5)) == {model.weight}


def test_a_layer_may_get_its_input_by_name():
    model = nn.Linear(3, 2)
    tape = Tape(model, list(model.parameters()))
    tape.start()
    factors = tape.factors(tape.used(model(input=X).sum(), 1.0), 5)
    torch.testing.assert_close(factors[model.weight].dense(), X[:, None].expand(5, 2, 3))


def test_attention_is_noted_also_for_its_last_projection_alone():
    model = nn.MultiheadAttention(4, 2, batch_first=True)
    tape = Tape(model, list(model.out_proj.parameters()))
    tape.start()
    x = torch.cat([X, X[:, :1]], 1)[:, None]
    factors = tape.factors(tape.used(model(x, x, x)[0].sum(), 1.0), 5)
    assert set(factors) == set(model.out_proj.parameters())


class Two(nn.Module):
    """A module without a rule that returns more than tensors with gradients."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.gain * x, self.gain + x, x, "text"


def test_one_of_several_outputs_may_go_unused():
    model = Two()
    tape = Tape(model, list(model.parameters()))
    tape.start()
    records = tape.used(model(X)[0].sum(), 1.0)
    with pytest.warns(UserWarning, match="no rule"):
        factor = tape.factors(records, 5)[model.gain]
    torch.testing.assert_close(factor.dense(), X)


def test_the_precision_of_a_call_is_kept():
    model, tape = model_and_tape()
    tape.start()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(X)
    model(X)
    precisions = [r.autocast for r in tape.records]
    assert precisions == [("cpu", torch.bfloat16)] * 2 + [None] * 2


def test_only_what_the_loss_uses_is_returned_with_scaled_gradients():
    model, tape = model_and_tape()
    tape.start()
    model(X)
    out = model(X)
    records = tape.used(out.sum(1), 3.0)
    assert [r.name for r in records] == ["0", "2"]
    assert torch.equal(records[1].received[0], torch.full((5, 2), 3.0))
    assert all(p.grad is None for p in model.parameters())


def test_a_users_backward_is_heard():
    model, tape = model_and_tape(listens=True)
    tape.start()
    out = model(X)
    expected = [r.received[0] for r in tape.used(out.square().mean(), 1.0, retain_graph=True)]
    for record in tape.records:
        record.received = [None]
    out.square().mean().backward()
    torch.testing.assert_close([r.received[0] for r in tape.heard()], expected)
    tape.detach()


def test_gradients_of_several_backwards_add_up():
    model, tape = model_and_tape(listens=True)
    tape.start()
    out = model(X)
    out[:, 0].sum().backward(retain_graph=True)
    out[:, 1].sum().backward()
    assert torch.equal(tape.heard()[1].received[0], torch.ones(5, 2))


def test_an_input_that_is_changed_in_place_is_refused():
    model = nn.Linear(3, 3)
    tape = Tape(model, list(model.parameters()))
    tape.start()
    x = X.clone()
    out = model(x)
    records = tape.used(out.sum(), 1.0)
    x += 1
    with pytest.raises(UnsupportedError, match="was changed in place"):
        tape.factors(records, 5)


def test_a_batch_on_another_axis_is_refused_by_name():
    model, tape = model_and_tape()
    tape.start()
    records = tape.used(model(X[None].expand(2, 5, 3)).sum(), 1.0)
    with pytest.raises(
        UnsupportedError, match=r"Linear '0' returned .*\(2, 5, 4\) for a batch of 5"
    ):
        tape.factors(records, 5)


def test_detaching_leaves_no_hook():
    model, tape = model_and_tape()
    tape.detach()
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    tape.detach()


def test_detaching_gives_attention_its_own_forward_back():
    model = nn.MultiheadAttention(4, 2)
    tape = Tape(model, list(model.parameters()))
    assert "forward" in vars(model)
    tape.detach()
    assert "forward" not in vars(model)


def test_a_tape_that_cannot_be_made_leaves_no_hook(monkeypatch):
    def fail(layer):
        raise UnsupportedError("no")

    monkeypatch.setattr("antiphon.training.tape.rule_for", fail)
    model = nn.Linear(3, 2)
    with pytest.raises(UnsupportedError):
        Tape(model, list(model.parameters()))
    assert not model._forward_pre_hooks


def test_the_output_of_a_module_with_own_parameters_may_be_changed_in_place():
    class Gainful(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.gain * x

    model = nn.Sequential(Gainful(), nn.ReLU(inplace=True))
    tape = Tape(model, list(model.parameters()))
    tape.start()
    records = tape.used(model(X).sum(), 1.0)
    with pytest.warns(UserWarning, match="no rule"):
        factor = tape.factors(records, 5)[model[0].gain]
    torch.testing.assert_close(factor.dense(), X.relu())
