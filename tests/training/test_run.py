import copy
import math
import os
import pickle

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import nn
from training.small import N, data, losses, network, private, train, weights

import antiphon as ap
from antiphon.errors import PlanError, RunError, UnsupportedError
from antiphon.mechanisms import (
    BLT,
    FFT,
    Banded,
    FullHonaker,
    Honaker,
    Independent,
    LambdaCGD,
    NuFTRL,
    Restarted,
    Tree,
)
from antiphon.training import Adaptive
from antiphon.training.run import _OF_ANY_LENGTH


def naive_step(model, x, y, clip_norm):
    """The clipped sum, one example at a time."""
    total = [torch.zeros_like(p) for p in model.parameters()]
    for i in range(len(x)):
        gradients = torch.autograd.grad(
            losses(model, x[i : i + 1], y[i : i + 1]).sum(), list(model.parameters())
        )
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        for part, gradient in zip(total, gradients, strict=True):
            part += gradient * min(1.0, clip_norm / float(norm))
    return total


# ---- what a step is -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [False, True])
def test_a_step_is_clipped_sum_plus_noise_over_the_expected_batch(mean):
    run = private(noise_multiplier=0.8, clip_norm=0.5, steps=3)
    source = private(noise_multiplier=0.8, clip_norm=0.5, steps=3)._total.noise  # the same seed
    for t, (x, y) in enumerate(run.batches()):
        before, model = weights(run), network()
        model.load_state_dict(run.model.state_dict())
        loss = losses(run.model, x, y)
        run.step(loss.mean() if mean else loss)
        total = torch.cat([g.flatten() for g in naive_step(model, x, y, 0.5)])
        moved = (before - weights(run)) / 0.1 * 12  # learning rate, expected batch
        noise = source.draw()[:-1].float() * 0.8 * 0.5
        torch.testing.assert_close(moved, total + noise, rtol=1e-4, atol=2e-4)  # and the grid
        assert t + 1 == run.steps_taken


def whitened(run, updates):
    """White noise behind the updates of a run whose gradients are zero, at unit scale."""
    T = run.plan.steps
    C = run.plan.known_mechanism().encoder(T)
    scale = 0.1 / run.plan.expected_batch
    return C @ (np.asarray(updates, np.float64) / -scale)


def p_value_of_white(z):
    """Of the likelihood-ratio test that T rows of D numbers are independent and standard normal."""
    T, D = z.shape
    S = z @ z.T / D
    statistic = D * (np.trace(S) - np.linalg.slogdet(S)[1] - T)
    return chi2.sf(statistic, T * (T + 1) / 2)


def noise_updates(**options):
    """The updates of a run on data without any signal, and the run."""
    model = nn.Linear(100, 200, bias=False)
    run = private(
        model,
        (torch.zeros(N, 100), torch.zeros(N).long()),
        steps=8,
        sampling="full-batch",
        **options,
    )
    updates = []
    for x, y in run.batches():
        before = weights(run)
        run.step(losses(model, x, y))
        updates.append((weights(run) - before).numpy())
    return run, np.stack(updates)


MECHANISMS = {
    "independent": Independent(),
    "lambda-cgd": LambdaCGD(0.9),
    "banded": Banded((1.0, 0.5, 0.25)),
    "blt": BLT((0.3, 0.1), (0.9, 0.4)),
}


@pytest.mark.parametrize("clipping", ["flat", "per-layer", "automatic", "adaptive"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_updates_have_the_covariance_of_the_mechanism(name, clipping):
    # False alarms: 1e-6 each. 20,000 coordinates tell λ = 0.9 from 0.87, and noise of 1 from 1.02.
    noise = 2.0 if clipping != "adaptive" else 0.9
    run, updates = noise_updates(
        mechanism=MECHANISMS[name], noise_multiplier=noise, clipping=clipping
    )
    scale = np.full(8, noise)
    if clipping == "adaptive":
        scale = clip_norms(run) * run.plan.blocks[0].noise_multiplier
    z = whitened(run, updates / scale[:, None])
    assert p_value_of_white(z) > 1e-6
    assert p_value_of_white(z * 1.02) < 1e-6
    if name == "lambda-cgd":
        wrong = LambdaCGD(0.87).encoder(8) @ run.plan.mechanism.decoder(8) @ z
        assert p_value_of_white(wrong) < 1e-6


def clip_norms(run):
    """The clip norms of all steps, from the noise on the votes of a run without signal."""
    mechanism, steps = run.plan.mechanism, run.plan.steps
    generator = ap.randomness.Generator.seeded(1).spawn("noise")
    like = run._total.buffer.flat
    z = np.stack([generator.normal(like, t)[-1:].double().numpy() for t in range(steps)])
    noisy = (
        0.5 * N + (mechanism.decoder(steps) @ z)[:, 0] * run.plan.blocks[1].noise_multiplier * 0.5
    )
    norms = [1.0]
    for votes in noisy[:-1] / N:
        norms.append(Adaptive().next_norm(norms[-1], votes))
    return np.array(norms)


def test_the_divisor_is_the_expected_batch_also_when_nobody_is_drawn():
    # Rate 1e-4 of 60: nearly all batches are empty.
    run = private(sampling=ap.Poisson(1e-4), steps=4)
    expected = 60 * 1e-4
    noise = private(sampling=ap.Poisson(1e-4), steps=4)._total.noise
    seen = 0
    for x, y in run.batches():
        before = weights(run)
        assert len(x) == 1 and not x.any() and not y.any()  # a blank
        run.step(losses(run.model, x, y))
        row = noise.draw()[:-1].float() / expected * 0.1
        torch.testing.assert_close(
            before - weights(run), row, rtol=1e-3, atol=0.1 / expected * 2**-12
        )
        seen += 1
    assert seen == run.steps_taken == 4


def test_a_nan_example_leaves_the_parameters_finite_and_counts_as_zero():
    x, y = data()
    spoiled = x.clone()
    spoiled[::7] = math.nan
    spoiled[1::7, 0] = math.inf
    run = train(private(dataset=(spoiled, y), sampling="full-batch", steps=1))
    assert torch.isfinite(weights(run)).all()
    good = [i for i in range(N) if i % 7 > 1]
    model = network()
    total = torch.cat([g.flatten() for g in naive_step(model, x[good], y[good], 1.0)])
    noise = private(sampling="full-batch", steps=1)._total.noise.draw()[:-1].float()
    before = torch.cat([p.detach().flatten() for p in network().parameters()])
    torch.testing.assert_close(
        before - weights(run), 0.1 / N * (total + noise), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("max_batch", [1, 5, 32, 512])
def test_any_physical_batch_gives_the_same_result(max_batch):
    whole = train(private(sampling="full-batch", steps=3, noise_multiplier=0.1))
    parts = train(
        private(sampling="full-batch", steps=3, noise_multiplier=0.1, max_batch=max_batch)
    )
    torch.testing.assert_close(weights(parts), weights(whole), rtol=1e-5, atol=1e-6)
    assert parts.steps_taken == 3


# ---- what is refused -----------------------------------------------------------------------------------


def test_more_steps_than_planned_are_refused():
    run = train(private(steps=2))
    assert list(run.batches()) == []
    with pytest.raises(RunError, match="all 2 steps of the plan are taken"):
        run.step(torch.tensor(1.0, requires_grad=True))


def test_a_step_without_a_drawn_batch_is_refused():
    run = private()
    x, y = data()
    with pytest.raises(RunError, match="no batch is out"):
        run.step(losses(run.model, x, y))


def test_a_second_step_on_the_same_batch_is_refused():
    run = private()
    for x, y in run.batches(1):
        run.step(losses(run.model, x, y))
        with pytest.raises(RunError, match="no batch is out"):
            run.step(losses(run.model, x, y))


def test_a_batch_that_was_skipped_stops_the_loop():
    run = private()
    with pytest.raises(RunError, match="no step was taken"):
        for _ in run.batches():
            pass


def test_foreign_data_within_the_loop_is_refused():
    run = private(sampling="full-batch")
    other, labels = data(seed=5)
    for _ in run.batches(1):
        with pytest.raises(RunError, match="other data than the batch"):
            run.step(losses(run.model, other, labels))
        break
    assert run.steps_taken == 0


def test_views_copies_and_casts_of_the_batch_are_recognised():
    model = nn.Sequential(nn.Flatten(), nn.Linear(5, 2)).double()
    run = private(model)
    forms = [
        lambda x: x.double(),
        lambda x: x.clone().double(),
        lambda x: x.view(-1, 5, 1).double(),
    ]
    for form, (x, y) in zip(forms, run.batches(3), strict=True):
        run.step(losses(model, form(x), y))
    assert run.steps_taken == 3


def test_what_was_computed_from_the_batch_must_be_declared():
    run = private(sampling="full-batch")
    for x, y in run.batches(1):
        with pytest.raises(RunError, match=r"run\.derived"):
            run.step(losses(run.model, x * 2, y))
        run.step(losses(run.model, run.derived(x * 2), y))
    assert run.steps_taken == 1


def test_a_layer_that_is_called_by_itself_is_refused():
    run = private()
    for x, _ in run.batches(1):
        with pytest.raises(RunError, match="'0' was called by itself"):
            run.step(run.model[0](x).sum(1))
        break


def test_losses_of_the_wrong_kind_are_refused():
    run = private(sampling="full-batch")
    for x, y in run.batches(1):
        with pytest.raises(RunError, match="leads back to the model"):
            run.step(torch.tensor(1.0))
        with pytest.raises(RunError, match=r"shape \(7,\) for 60 examples"):
            run.step(losses(run.model, x, y)[:7])
        with pytest.raises(RunError, match="does not depend on the model's parameters"):
            run.step(torch.ones(60, requires_grad=True) * 2)
        run.step(losses(run.model, x, y))


def test_training_beside_the_run_is_refused_until_it_is_closed():
    run = private()
    x, y = data()
    with pytest.raises(RunError, match="without clipping"):
        losses(run.model, x, y).mean().backward()
    assert all(p.grad is None for p in run.model.parameters())
    with pytest.raises(RunError, match="without noise"):
        run.optimizer.step()
    run.close()
    losses(run.model, x, y).mean().backward()
    run.optimizer.step()


def test_evaluation_between_steps_is_free():
    run = private(steps=2)
    x, y = data()
    for a, b in run.batches():
        run.model.eval()
        with torch.no_grad():
            run.model(x)
        run.model(x)  # also with gradients, as long as the loss does not come from it
        run.model.train()
        run.step(losses(run.model, a, b))
    assert run.steps_taken == 2 and y is not None


def test_an_early_stop_can_go_on_and_ends_where_the_whole_run_ends():
    whole = train(private())
    run = train(private(), steps=3)
    for x, _ in run.batches():  # abandoned in the middle of a step
        run.model(x)
        break
    train(run)
    assert torch.equal(weights(run), weights(whole))


# ---- certificates ----------------------------------------------------------------------------------------


def test_the_certificate_is_the_accountants_for_the_plan_that_runs():
    run = private(epsilon=2.0, steps=20)
    assert run.certificate.plan == run.plan
    assert run.certificate.epsilon == ap.certify(run.plan, 1e-5).epsilon <= 2.0
    assert run.plan.sampling == ap.Poisson(12 / N) and run.plan.steps == 20


def test_an_early_stop_keeps_the_planned_epsilon_unless_it_is_declared_independent():
    run = train(private(), steps=4)
    assert run.certify_steps_taken(stop_was_independent=False) is run.certificate
    taken = run.certify_steps_taken(stop_was_independent=True)
    assert taken.epsilon < run.certificate.epsilon
    assert taken.epsilon == ap.certify(taken.plan, 1e-5).epsilon and taken.plan.steps == 4
    assert "saw none of its results" in taken.assumptions[-1]


def test_no_step_no_certificate_of_steps():
    with pytest.raises(RunError, match="no step was taken"):
        private().certify_steps_taken(stop_was_independent=True)


def test_seeds_repeat_a_run_and_the_certificate_says_so():
    a, b, c = (train(private(seed=s)) for s in (1, 1, 2))
    assert torch.equal(weights(a), weights(b)) and not torch.equal(weights(a), weights(c))
    assert any("not for release" in line for line in a.certificate.assumptions)


def test_without_a_seed_no_two_runs_are_equal():
    a, b = (train(private(seed=None)) for _ in range(2))
    assert not torch.equal(weights(a), weights(b))
    assert not any("not for release" in line for line in a.certificate.assumptions)


# ---- others ----------------------------------------------------------------------------------------------


OPTIMIZERS = [
    name
    for name in dir(torch.optim)
    if name[0].isupper() and name not in ("LBFGS", "Optimizer", "SparseAdam")
]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_any_first_order_optimizer_works(kind):
    model = nn.Sequential(nn.Linear(5, 7, bias=False), nn.Tanh(), nn.Linear(7, 2, bias=False))
    run = private(model, optimizer=getattr(torch.optim, kind)(model.parameters(), lr=0.01), steps=2)
    before = weights(run)
    train(run)
    assert run.steps_taken == 2 and not torch.equal(weights(run), before)


def test_schedulers_and_parameter_groups_work():
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    run = private(model, optimizer=optimizer, steps=3)
    for x, y in run.batches():
        run.step(losses(model, x, y))
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 8)


def test_only_the_optimizers_parameters_are_trained():
    model = network()
    start = model[0].weight.detach().clone()
    run = train(private(model, optimizer=torch.optim.SGD(model[2].parameters(), lr=0.1)))
    assert torch.equal(model[0].weight, start)
    assert run._total.buffer.names == ("2.weight", "2.bias")


def test_a_callback_sees_the_steps_and_nothing_of_the_data():
    seen = []
    run = private(steps=3, callback=lambda step, metrics: seen.append((step, dict(metrics))))
    train(run)
    assert [step for step, _ in seen] == [1, 2, 3]
    assert seen[0][1] == {"steps": 3, "epsilon": run.certificate.epsilon, "clip_norm": 1.0}


def test_a_model_with_a_data_dependent_buffer_is_refused_and_set_back():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 2)
            self.register_buffer("mean", torch.zeros(5))
            self.register_buffer("grid", torch.linspace(-1, 1, 4))

        def forward(self, x):
            self.mean.add_(x.detach().mean(0))
            return self.linear(x)

    run = private(Counting(), sampling="full-batch")
    before = weights(run)
    for x, y in run.batches(1):
        with pytest.raises(UnsupportedError, match="buffer 'mean'"):
            run.step(losses(run.model, x, y))
        break
    assert not run.model.mean.any() and torch.equal(weights(run), before)


def test_a_constant_buffer_is_fine():
    model = network()
    model.register_buffer("grid", torch.linspace(-1, 1, 4))
    assert train(private(model, steps=2)).steps_taken == 2


def test_bounds_raise_or_clamp():
    x, y = data()
    with pytest.raises(RunError, match="outside the declared bounds"):
        train(private(dataset=(x, y), bounds=(-0.1, 0.1)))
    run = private(
        dataset=(x, y),
        bounds=(-torch.ones(5), torch.ones(5)),
        outside="clamp",
        sampling="full-batch",
    )
    for a, b in run.batches(1):
        assert float(a.max()) == 1.0 and float(a.min()) == -1.0
        run.step(losses(run.model, a, b))
    with pytest.raises(PlanError, match="lower bound"):
        private(bounds=(1.0, 0.0))
    with pytest.raises(PlanError, match="'raise' or 'clamp'"):
        private(bounds=(0.0, 1.0), outside="ignore")


def test_labels_of_the_wrong_kind_raise_torchs_error_and_the_batch_can_be_used_again():
    run = private()
    for x, y in run.batches(1):
        with pytest.raises((RuntimeError, IndexError)):
            losses(run.model, x, y.double())
        run.step(losses(run.model, x, y))
    assert run.steps_taken == 1


@pytest.mark.parametrize("mechanism", [Restarted(LambdaCGD(0.9), 2), FFT(), FullHonaker()])
def test_noise_that_depends_on_the_planned_steps_has_no_certificate_of_fewer(mechanism):
    # Ten steps in two blocks of five: six planned steps would make two blocks of three.
    run = train(private(mechanism=mechanism, sampling="full-batch"), steps=6)
    with pytest.raises(UnsupportedError, match="depends on the number of steps"):
        run.certify_steps_taken(stop_was_independent=True)
    assert train(run).certify_steps_taken(stop_was_independent=True).plan == run.plan


@pytest.mark.parametrize(
    "mechanism", [LambdaCGD(0.9), Tree(), Honaker(), NuFTRL(0.1), BLT((0.3,), (0.8,))]
)
def test_noise_of_any_length_has_the_encoder_of_fewer_steps_within_that_of_more(mechanism):
    assert isinstance(mechanism, _OF_ANY_LENGTH)
    for steps in (1, 4, 6, 7):
        whole, part = mechanism.encoder(13), mechanism.encoder(steps)
        np.testing.assert_allclose(whole[:steps, :steps], part, atol=1e-12)


def test_the_certificate_of_the_steps_taken_keeps_what_the_run_assumes():
    run = train(private(seed=3), steps=2)
    taken = run.certify_steps_taken(stop_was_independent=True)
    assert set(run.certificate.assumptions) < set(taken.assumptions)


def test_a_step_that_was_interrupted_after_its_noise_counts_as_taken(monkeypatch):
    run = train(private(), steps=2)

    def fails(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(run.optimizer, "step", fails)
    with pytest.raises(KeyboardInterrupt):
        train(run)
    assert run.steps_taken == 2
    assert run.certify_steps_taken(stop_was_independent=True).plan.steps == 3


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_run_cannot_be_duplicated(duplicate):
    run = private()
    with pytest.raises(RunError, match="cannot be copied or pickled"):
        duplicate(run)
    key = run._total.noise._generator.key
    assert key not in pickle.dumps(run.optimizer) and key not in pickle.dumps(run.model)


def test_a_run_does_not_go_on_in_a_forked_process():
    run = private()
    child = os.fork()
    if not child:
        try:
            train(run, 1)
            os._exit(1)
        except RunError:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    train(run, 1)
