"""The classic mistakes of private training loops, each with the test that would find it.

Two of them need processes: a seed used by every rank is found by ``test_distributed``, noise state that is
lost on resume by ``test_resume``.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from oracles.loops import engine_run
from oracles.small_models import N, data, loss_of, network, private, train, weights
from scipy.stats import chi2
from torch import nn

import antiphon as ap
from antiphon.errors import PlanError, RunError, UnsupportedError


def moves(run):
    """Every step's update, in units of learning rate over expected batch."""
    steps, before = [], weights(run)
    for _ in run.take(show=False):
        after = weights(run)
        steps.append((before - after) / 0.1 * run.plan.expected_batch)
        before = after
    return torch.stack(steps)


def silent(**options):
    """A run on zeros, whose gradients vanish: what moves the weights is noise."""
    model = nn.Linear(50, 40, bias=False)
    return private(model, (torch.zeros(N, 50), torch.zeros(N).long()), **options)


def is_of_scale(rows, scale):
    """Whether each row looks like normals of this scale; wrong alarms once in a million rows or less."""
    statistic = (rows.double() / scale).square().sum(1).numpy()
    tails = np.minimum(chi2.cdf(statistic, rows.shape[1]), chi2.sf(statistic, rows.shape[1]))
    return bool((tails > 5e-7).all())


def test_noise_before_clipping():
    # Noise that were clipped with the gradient could not move the weights further than the clip norm.
    found = moves(silent(sampling="full-batch", steps=3, noise_multiplier=2.0, clip_norm=0.1))
    assert is_of_scale(found, 0.2) and not is_of_scale(found, 0.17)
    assert float(found.norm(dim=1).min()) > 50 * 0.1


def test_noise_scaled_by_the_batch_that_was_drawn():
    run = silent(sampling=ap.Poisson(0.1), steps=12, noise_multiplier=1.0)
    sizes = {len(run._batches.parts(t)[0].rows) for t in range(12)}
    assert len(sizes) > 3
    assert is_of_scale(moves(run), 1.0)


def test_a_divisor_that_depends_on_the_batch_or_is_zero():
    run = silent(sampling=ap.Poisson(0.01), steps=12, noise_multiplier=1.0)
    empty = [t for t in range(12) if not len(run._batches.parts(t)[0].rows)]
    assert 3 < len(empty) < 12
    assert is_of_scale(moves(run), 1.0)


def test_clipping_after_averaging():
    # One example a million times larger than the others must not drown them, nor weigh more than one.
    x, y = data()
    loud = x.clone()
    loud[0] *= 1e6
    quiet = moves(private(dataset=(x, y), sampling="full-batch", steps=1, clip_norm=0.1))
    other = moves(private(dataset=(loud, y), sampling="full-batch", steps=1, clip_norm=0.1))
    assert float((quiet - other).norm()) <= 2 * 0.1 * (1 + 1e-5)


@pytest.mark.parametrize("clipping", ["flat", "per-layer", "automatic"])
def test_one_example_more_moves_the_sum_by_at_most_the_clip_norm(clipping):
    x, y = data()
    options = {"sampling": "full-batch", "steps": 1, "clip_norm": 0.5, "clipping": clipping}
    whole = moves(private(dataset=(x * 100, y), **options))
    for left_out in range(0, N, 20):
        rows = [i for i in range(N) if i != left_out]
        less = moves(private(dataset=(x[rows] * 100, y[rows]), **options))
        assert float((whole - less).norm()) <= 0.5 * (1 + 1e-3)  # both on the grid of the noise


def test_the_same_noise_in_two_steps():
    found = moves(silent(sampling="full-batch", steps=6)).double()
    gram = found @ found.T / found.shape[1]
    off = gram[~torch.eye(6, dtype=torch.bool)]
    assert float(off.abs().max()) < 0.15  # six standard deviations: 6 / sqrt(2000)


def test_the_same_noise_in_two_runs_and_the_same_batches():
    first, second = (silent(sampling=ap.Poisson(0.3), steps=2, seed=None) for _ in range(2))
    assert first._batches.parts(0)[0].rows.tolist() != second._batches.parts(0)[0].rows.tolist()
    a, b = moves(first)[0].double(), moves(second)[0].double()
    assert abs(float(a @ b)) / 2000 < 0.15


def test_a_batch_size_that_leaks_into_the_plan():
    # Neighbours have one plan: nothing of it depends on how many were drawn, or on the data's values.
    plan = train(private(sampling=ap.Poisson(0.2))).certificate.plan
    runs = [private(dataset=data(N + extra, seed=extra), plan=plan) for extra in (0, 1)]
    assert runs[0].plan == runs[1].plan == plan
    assert train(runs[0]).certificate.epsilon == train(runs[1]).certificate.epsilon


def two_steps(model, optimizer, change):
    """Two steps of a loop with ``backward()``, with a change before the second one."""
    engine, model, optimizer, batches = engine_run(model, optimizer)
    try:
        for step, (x, y) in enumerate(batches):
            if step == 1:
                change(model, optimizer)
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if step == 1:
                break
    finally:
        assert engine.run.steps_taken == 1


def unfreeze(model, optimizer):
    model[2].requires_grad_(True)


def add_group(model, optimizer):
    optimizer.add_param_group({"params": list(model[2].parameters())})


def frozen_network():
    model = network()
    model[2].requires_grad_(False)
    return model


@pytest.mark.parametrize("change", [unfreeze, add_group])
def test_a_layer_that_is_trained_later_gets_no_gradient_without_noise(change):
    # Layers that are unfrozen one after the other: their gradients would reach the optimizer as they are.
    model = frozen_network() if change is unfreeze else network()
    chosen = model.parameters() if change is unfreeze else model[0].parameters()
    before = model[2].weight.detach().clone()
    optimizer = torch.optim.SGD(chosen, lr=0.1)
    with pytest.raises(RunError, match="added or unfrozen"):
        two_steps(model, optimizer, change)
    assert torch.equal(model[2].weight, before)
    # The same in a run that calls the loss.
    model = frozen_network() if change is unfreeze else network()
    chosen = model.parameters() if change is unfreeze else model[0].parameters()
    run = train(private(model, optimizer=torch.optim.SGD(chosen, lr=0.1)), 1)
    change(model, run.optimizer)
    with pytest.raises(RunError, match="added or unfrozen"):
        train(run, 1)
    assert torch.equal(model[2].weight, before) and run.steps_taken == 1


def test_another_optimizer_finds_no_gradient_of_the_model():
    model = network()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    _, model, optimizer, batches = engine_run(model, optimizer)
    for x, y in batches:
        nn.functional.cross_entropy(model(x), y).backward()
        assert all(p.grad is None for p in model.parameters())
        optimizer.step()


def test_a_gradient_from_before_the_run_moves_nothing():
    model = network()
    loss_of(model, *data()).backward()
    model[2].requires_grad_(False)
    before = model[2].weight.detach().clone()
    run = private(model)
    with pytest.raises(RunError, match="gradient from before"):
        train(run, 1)
    run.optimizer.zero_grad()
    train(run, 1)
    assert torch.equal(model[2].weight, before)


def test_a_gradient_from_before_is_refused_in_a_loop():
    model = network()
    loss_of(model, *data()).backward()
    _, model, optimizer, batches = engine_run(model)
    for x, y in batches:
        nn.functional.cross_entropy(model(x), y).backward()
        with pytest.raises(RunError, match=r"zero_grad"):
            optimizer.step()
        optimizer.zero_grad()
        optimizer.step()
        break


def test_an_optimizer_within_the_backward_pass():
    # Steps that a hook takes as soon as a gradient is there: it would be one without noise.
    model = network()
    own = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    handles = [p.register_post_accumulate_grad_hook(lambda p: own[p].step()) for p in own]
    for make in (private, engine_run):
        with pytest.raises(UnsupportedError, match=r"'0\.weight' has a hook"):
            make(model)
    for handle in handles:
        handle.remove()
    train(private(model), 1)


def test_a_hook_that_is_added_later_sees_no_gradient():
    engine, model, optimizer, batches = engine_run()
    seen = []
    for x, y in batches:
        for parameter in model.parameters():
            parameter.register_hook(seen.append)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        break
    assert not seen and engine.run.steps_taken == 1
    with pytest.raises(UnsupportedError, match="has a hook"):
        next(iter(batches))


def test_a_hook_of_the_optimizer_sees_the_noisy_gradient_only():
    run, seen = silent(sampling="full-batch", steps=1), []
    run.optimizer.register_step_pre_hook(lambda *_: seen.append(run.model.weight.grad.clone()))
    found = moves(run)
    assert is_of_scale(seen[0].reshape(1, -1) * run.plan.expected_batch, 1.0)
    torch.testing.assert_close(
        seen[0].flatten() * run.plan.expected_batch, found[0], rtol=1e-3, atol=1e-4
    )


def test_a_closure_is_refused_before_noise_is_drawn():
    engine, model, optimizer, batches = engine_run()
    for x, y in batches:
        nn.functional.cross_entropy(model(x), y).backward()
        with pytest.raises(RunError, match="closure"):
            optimizer.step(lambda: 0.0)
        optimizer.step()
        break
    assert engine.run.steps_taken == 1


def test_a_gradient_that_an_optimizer_keeps_never_shows_a_sum_without_noise():
    class Keeping(torch.optim.SGD):
        def step(self, closure=None):
            self.kept = [p.grad for group in self.param_groups for p in group["params"]]
            return super().step(closure)

    model = network()
    optimizer = Keeping(model.parameters(), lr=0.1)
    run = private(model, optimizer=optimizer, max_batch=3)
    kept = []
    for _ in run.take(2, show=False):
        kept = kept or [(g, g.clone()) for g in optimizer.kept if g is not None]
        assert all(torch.equal(g, copy) for g, copy in kept)


def test_batches_that_come_in_another_order_than_they_were_drawn():
    with pytest.raises(PlanError, match="in_order"):
        private(loading={"num_workers": 2, "in_order": False})


def test_the_certificate_names_what_the_run_cannot_see():
    lines = " ".join(private(user=np.arange(N) // 2).certificate.assumptions)
    assert "hold nothing of the data but these steps" in lines and "that user's name" in lines


@dataclass
class Wrapped:
    x: torch.Tensor


def test_a_mixture_of_examples_within_a_data_class():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 2)

        def forward(self, batch):
            return self.linear(batch.x - self.shift(batch.x))

        def shift(self, x):
            return x.mean(0, keepdim=True)

    class Alone(Centred):
        def shift(self, x):
            return x.mean(1, keepdim=True)

    def wrapped(model, x, y):
        return nn.functional.cross_entropy(model(Wrapped(x)), y)

    # An example is centred by itself: the first model is constant, and the second one is what it seems.
    assert torch.equal(*gradients_of(private(Centred(), loss=wrapped)))
    whole, other = gradients_of(private(Alone(), loss=wrapped))
    assert not torch.equal(whole, other)


def gradients_of(run):
    """Of the linear map's weight, of two examples."""
    examples = run._batches.read(0, torch.tensor([0, 1]))
    ((piece,)) = run.path.pieces(0, torch.tensor([0, 1]), examples, None)
    return piece.factors[run.model.linear.weight].dense()
