import copy
import math
import os
import pickle

import numpy as np
import pytest
import torch
from oracles.small_models import N, data, loss_of, network, private, train, weights
from scipy.stats import chi2
from torch import nn

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
from antiphon.numerics import Generator
from antiphon.training.gradients import Adaptive
from antiphon.training.run.private_run import _OF_ANY_LENGTH


def naive_step(model, x, y, clip_norm):
    """The clipped sum, one example at a time."""
    total = [torch.zeros_like(p) for p in model.parameters()]
    for i in range(len(x)):
        gradients = torch.autograd.grad(
            loss_of(model, x[i : i + 1], y[i : i + 1]), list(model.parameters())
        )
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        for part, gradient in zip(total, gradients, strict=True):
            part += gradient * min(1.0, clip_norm / float(norm))
    return total


# ---- what a step is -------------------------------------------------------------------------------------


def test_a_step_is_clipped_sum_plus_noise_over_the_expected_batch():
    run = private(noise_multiplier=0.8, clip_norm=0.5, steps=3)
    source = private(noise_multiplier=0.8, clip_norm=0.5, steps=3)._total.noise  # the same seed
    x, y = data()
    model = network()
    for t in range(3):
        before = weights(run)
        model.load_state_dict(run.model.state_dict())
        assert list(run.take(1)) == [t + 1] == [run.steps_taken]
        total = torch.cat([g.flatten() for g in naive_step(model, x[run.drawn], y[run.drawn], 0.5)])
        moved = (before - weights(run)) / 0.1 * 12  # learning rate, expected batch
        noise = source.draw()[:-1].float() * 0.8 * 0.5
        torch.testing.assert_close(moved, total + noise, rtol=1e-4, atol=2e-4)  # and the grid


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
    found = [weights(run)]
    for _ in run:
        found.append(weights(run))
    return run, np.diff(torch.stack(found).numpy(), axis=0)


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
    generator = Generator.seeded(1).spawn("noise")
    like = torch.empty(run._total.total.size)
    z = np.stack([generator.normal(like, t)[-1:].double().numpy() for t in range(steps)])
    noisy = (
        0.5 * N + (mechanism.decoder(steps) @ z)[:, 0] * run.plan.blocks[1].noise_multiplier * 0.5
    )
    norms = [1.0]
    for votes in noisy[:-1] / N:
        norms.append(Adaptive().next_norm(norms[-1], votes))
    return np.array(norms)


def test_the_divisor_is_the_expected_batch_also_for_an_empty_batch():
    # Rate 1e-4 of 60: nearly all batches are empty.
    run = private(sampling=ap.Poisson(1e-4), steps=4)
    expected = 60 * 1e-4
    noise = private(sampling=ap.Poisson(1e-4), steps=4)._total.noise
    sizes = []
    for _ in range(4):
        before = weights(run)
        train(run, 1)
        sizes.append(len(run.drawn))
        if not sizes[-1]:
            row = noise.draw()[:-1].float() / expected * 0.1
            moved = before - weights(run)
            torch.testing.assert_close(moved, row, rtol=1e-3, atol=0.1 / expected * 2**-12)
    assert sizes == [0] * 4 and run.steps_taken == 4


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
    options = {"dataset": data(20), "sampling": "full-batch", "steps": 3, "noise_multiplier": 0.1}
    whole = train(private(**options))
    parts = train(private(max_batch=max_batch, **options))
    torch.testing.assert_close(weights(parts), weights(whole), rtol=1e-5, atol=1e-6)
    assert parts.steps_taken == 3


# ---- the loop --------------------------------------------------------------------------------------------


def test_the_loop_gives_the_number_of_steps_taken_and_then_is_at_its_end():
    run = private(steps=4)
    assert list(run.take(0)) == []
    assert [(step, run.steps_taken) for step in run.take(2, show=False)] == [(1, 1), (2, 2)]
    assert list(run) == [3, 4]
    assert list(run) == list(run.take(2)) == []
    assert run.train() is run
    with pytest.raises(RunError, match="all 4 steps of the plan are taken"):
        run.check_steps_left()


def test_more_steps_than_are_left_are_those_that_are_left():
    assert list(private(steps=3).take(10)) == [1, 2, 3]


@pytest.mark.parametrize("steps", [-1, True])
def test_a_number_of_steps_is_whole(steps):
    run = private()
    with pytest.raises(PlanError, match="steps must be a whole number"):
        list(run.take(steps))
    assert run.steps_taken == 0


def test_the_optimizer_may_not_step_by_itself_until_the_run_is_closed():
    run = private()
    x, y = data()
    train(run, 2)
    before = weights(run)
    for parameter in run.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with pytest.raises(RunError, match="without noise"):
        run.optimizer.step()
    assert torch.equal(weights(run), before)
    run.optimizer.zero_grad()
    run.close()
    loss_of(run.model, x, y).backward()
    run.optimizer.step()
    assert not torch.equal(weights(run), before)


def test_a_closed_run_takes_no_step():
    with train(private(), 2) as run:
        loop = iter(run)
        assert next(loop) == 3
    for again in (lambda: next(loop), lambda: next(iter(run)), run.train):
        with pytest.raises(RunError, match="this run is closed"):
            again()
    assert run.steps_taken == 3
    run.close()  # twice is once


def test_gradients_of_the_noise_are_gone_after_a_step_and_seen_in_it():
    run, seen = private(steps=3), []
    run.optimizer.register_step_pre_hook(
        lambda *_: seen.append([p.grad.clone() for p in run.model.parameters()])
    )
    for _ in run:
        assert all(p.grad is None for p in run.model.parameters())
    assert len(seen) == 3


def test_evaluation_and_foreign_gradients_between_steps_change_nothing():
    x, y = data()
    expected = weights(train(private()))
    run = private()
    for _ in run:
        run.model.eval()
        loss_of(run.model, x, y).backward()  # without an update; the run replaces it
        run.model.train()
    assert torch.equal(weights(run), expected)


def test_an_early_stop_can_continue_and_ends_where_the_whole_run_ends():
    whole = train(private())
    run = train(private(), steps=3)
    for _ in run:
        break
    assert run.steps_taken == 4
    assert torch.equal(weights(train(run)), weights(whole))


def test_an_exception_of_the_loop_leaves_the_run_between_two_steps():
    run = private()
    with pytest.raises(ZeroDivisionError):
        for step in run:
            1 / (step - 3)
    assert run.steps_taken == 3
    assert torch.equal(weights(train(run)), weights(train(private())))


class Failing:
    """A loss that fails while it is armed, on some examples if it is evaluated for one at a time."""

    def __init__(self, is_alone):
        self.is_alone, self.error = is_alone, None

    def __call__(self, model, x, y):
        loss = loss_of(model, x, y)
        if self.is_alone and loss.item() < 0.7:
            return loss
        if self.error is not None:
            raise self.error
        return loss


@pytest.mark.filterwarnings("ignore:the loss is evaluated for one example after another")
@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("error", [ValueError("an accident"), KeyboardInterrupt()])
def test_a_loss_that_fails_in_the_middle_of_a_batch_costs_nothing(error, is_alone):
    options = {"dataset": data(20), "sampling": "full-batch", "max_batch": 7, "steps": 3}
    whole = train(private(loss=Failing(is_alone), **options))
    failing = Failing(is_alone)
    run = train(private(loss=failing, **options), 1)
    before = weights(run)
    failing.error = error
    for _ in range(2):
        with pytest.raises(type(error)):
            train(run)
        assert torch.equal(weights(run), before) and run.steps_taken == 1
    failing.error = None
    assert torch.equal(weights(train(run)), weights(whole))


def test_a_batch_that_was_left_in_the_middle_is_drawn_again():
    options = {"sampling": "full-batch", "max_batch": 20}
    run = private(**options)
    parts = run.parts()
    part, examples = next(parts)
    run.add(next(run.path.pieces(part.step, part.rows, examples)))
    assert not run.finish_part()
    parts.close()
    assert torch.equal(weights(train(run)), weights(train(private(**options))))


def test_a_part_is_finished_before_the_next_is_read():
    parts = private().parts()
    next(parts)
    with pytest.raises(RunError, match="no step was taken on it"):
        next(parts)


def test_gradients_without_a_drawn_batch_are_refused():
    run = private(steps=2)
    part, examples = next(run.parts())
    piece = next(run.path.pieces(part.step, part.rows, examples))
    train(run, 1)
    for refused in (lambda: run.add(piece), run.finish_part):
        with pytest.raises(RunError, match="no batch is out"):
            refused()
    train(run)
    with pytest.raises(RunError, match="all 2 steps of the plan are taken"):
        run.add(piece)


def test_two_loops_at_a_time_are_refused():
    run = private()
    first = iter(run)
    assert next(first) == 1
    second = iter(run)
    assert next(second) == 2
    with pytest.raises(RunError, match="another loop has begun since this one"):
        next(first)
    assert next(second) == 3
    assert torch.equal(weights(train(run)), weights(train(private())))


def test_a_loop_within_a_loop_is_refused():
    run = private()
    with pytest.raises(RunError, match="another loop has begun"):
        for _ in run:
            train(run, 2)
    assert run.steps_taken == 3


def interrupt(*_):
    raise KeyboardInterrupt


def test_an_update_that_was_interrupted_ends_the_run():
    """Its noise was drawn for a gradient that may have been seen, and the step counts as taken."""
    run = train(private(), 2)
    run.optimizer.register_step_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(run)
    assert run.steps_taken == 2
    for again in (run.train, lambda: next(run.parts()), run.finish_part):
        with pytest.raises(RunError, match="interrupted after its noise was drawn"):
            again()
    assert run.certify_steps_taken(stop_was_independent=True).plan.steps == 3
    run.close()


def test_what_is_interrupted_after_the_update_continues():
    run = train(private(), 2)
    handle = run.optimizer.register_step_post_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(run)
    handle.remove()
    assert run.steps_taken == 3
    assert torch.equal(weights(train(run)), weights(train(private())))


def test_a_callback_that_fails_leaves_the_step_taken():
    def callback(step, metrics):
        if step == 2 and not failed:
            failed.append(step)
            raise ZeroDivisionError

    failed, run = [], None
    run = private(callback=callback)
    with pytest.raises(ZeroDivisionError):
        train(run)
    assert run.steps_taken == 2
    assert torch.equal(weights(train(run)), weights(train(private())))


def test_parameters_that_get_no_noise_may_not_be_trained_beside():
    model = network()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    run = train(private(model, optimizer=optimizer), 1)
    model[0].requires_grad_(True)
    optimizer.add_param_group({"params": model[0].parameters()})
    with pytest.raises(
        RunError, match=r"holds a parameter of shape \(7, 5\) that this run does not"
    ):
        train(run)
    model[0].requires_grad_(False)
    train(run, 1)
    model[0].weight.grad = torch.ones(7, 5)
    with pytest.raises(RunError, match="has a gradient from before"):
        train(run)


def test_a_hook_on_a_gradient_is_refused_when_the_loop_begins():
    run = train(private(), 1)
    handle = run.model[0].weight.register_hook(lambda gradient: gradient)
    with pytest.raises(UnsupportedError, match="has a hook on its gradient"):
        train(run)
    handle.remove()
    train(run)


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
    for _ in run:
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 8)


def test_only_the_optimizers_parameters_are_trained():
    model = network()
    start = model[0].weight.detach().clone()
    run = train(private(model, optimizer=torch.optim.SGD(model[2].parameters(), lr=0.1)))
    assert torch.equal(model[0].weight, start)
    assert run._total.total.names == ("2.weight", "2.bias")


def test_a_callback_sees_the_steps_and_nothing_of_the_data():
    seen = []
    run = private(steps=3, callback=lambda step, metrics: seen.append((step, dict(metrics))))
    train(run)
    assert [step for step, _ in seen] == [1, 2, 3]
    assert seen[0][1] == {"steps": 3, "epsilon": run.certificate.epsilon, "clip_norm": 1.0}


def test_a_buffer_that_learns_of_the_data_is_refused_and_set_back():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 2)
            self.register_buffer("mean", torch.zeros(5))

        def forward(self, x):
            self.mean.add_(x.detach().mean(0))
            return self.linear(x)

    model = Counting()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(UnsupportedError, match=r"under torch\.func\.vmap.*changed in place"):
        private(model)
    assert not model.mean.any()
    assert all(map(torch.equal, before, model.parameters()))


def test_a_constant_buffer_is_fine():
    model = network()
    model.register_buffer("grid", torch.linspace(-1, 1, 4))
    assert train(private(model, steps=2)).steps_taken == 2


def test_bounds_raise_or_clamp():
    x, y = data()
    with pytest.raises(RunError, match="outside the declared bounds"):
        train(private(dataset=(x, y), bounds=(-0.1, 0.1)))
    bounds = (-torch.ones(5), torch.ones(5))
    clamped = train(private(dataset=(x, y), bounds=bounds, outside="clamp"))
    assert torch.equal(weights(clamped), weights(train(private(dataset=(x.clamp(-1, 1), y)))))
    assert not torch.equal(weights(clamped), weights(train(private(dataset=(x, y)))))
    with pytest.raises(PlanError, match="lower bound"):
        private(bounds=(1.0, 0.0))
    with pytest.raises(PlanError, match="'raise' or 'clamp'"):
        private(bounds=(0.0, 1.0), outside="ignore")


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


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_run_cannot_be_duplicated(duplicate):
    run = private()
    with pytest.raises(RunError, match="cannot be copied or pickled"):
        duplicate(run)
    key = run._total.noise._generator.key
    assert key not in pickle.dumps(run.optimizer) and key not in pickle.dumps(run.model)


def test_a_run_does_not_continue_in_a_forked_process():
    run = private()
    child = os.fork()
    if not child:
        try:
            train(run, 1)
            os._exit(1)
        except RunError as error:
            os._exit(0 if "forked" in str(error) else 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    train(run, 1)


def test_a_frozen_normalisation_that_wakes_up_is_refused():
    """As by ``model.train()`` after an evaluation."""
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[1].eval()
    run = private(model, steps=4)
    steps = iter(run)
    next(steps)
    model.eval()
    next(steps)  # which is what it was
    model.train()
    with pytest.raises(UnsupportedError, match="BatchNorm1d '1' normalises each example"):
        next(steps)
    model[1].eval()
    assert next(iter(run)) == 3


def test_a_backward_hook_in_the_middle_of_a_run_is_refused():
    run = private(steps=3)
    steps = iter(run)
    next(steps)
    handle = run.model[0].register_full_backward_hook(lambda *parts: None)
    with pytest.raises(UnsupportedError, match="has a backward hook"):
        next(steps)
    handle.remove()
    assert next(iter(run)) == 2


def test_a_parameter_that_is_frozen_in_the_middle_of_a_run_is_refused():
    run = private(steps=3)
    steps = iter(run)
    next(steps)
    run.model[0].weight.requires_grad_(False)
    with pytest.raises(RunError, match=r"of shape \(7, 5\) was frozen since the run began"):
        next(steps)
    run.model[0].weight.requires_grad_(True)
    assert next(iter(run)) == 2
