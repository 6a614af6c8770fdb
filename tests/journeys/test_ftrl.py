"""DP-FTRL on any model: correlated noise in a fixed order, momentum and schedules as post-processing."""

import pytest
import torch
from oracles.small_models import data, network, private, train, weights

import antiphon as ap
from antiphon.mechanisms import BLT, BandedInverse, Independent, LambdaCGD

STEPS = 12
FIXED = {"sampling": "shuffled", "batch_size": 12, "steps": STEPS}


def pushed(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.95)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)


def released(mechanism, dataset=None, seed=1, noise_multiplier=1.0):
    """The noisy gradients of a run with momentum and a schedule, and where it ended."""
    model, kept = network(), []
    optimizer, scheduler = pushed(model)
    options = FIXED | {"mechanism": mechanism, "seed": seed, "noise_multiplier": noise_multiplier}
    with private(model, dataset or data(), optimizer, **options) as run:
        optimizer.register_step_pre_hook(
            lambda *_: kept.append([p.grad.clone() for p in model.parameters()])
        )
        for _ in run:
            scheduler.step()
        return kept, weights(run)


@pytest.mark.parametrize("mechanism", ["nu-ftrl", "lambda-cgd", "blt", "banded", "independent"])
def test_acceptance_dp_ftrl_20_momentum_and_schedules_see_noisy_gradients_alone(mechanism):
    kept, end = released(mechanism)
    model = network()
    optimizer, scheduler = pushed(model)
    for gradients in kept:
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        scheduler.step()
    assert torch.equal(torch.cat([p.detach().flatten() for p in model.parameters()]), end)
    assert len(kept) == STEPS


@pytest.mark.parametrize("identity", [LambdaCGD(0.0), BandedInverse((1.0,)), BLT((), ())])
def test_acceptance_dp_ftrl_20_without_correlation_it_is_dp_sgd_bit_for_bit(identity):
    _, plain = released(Independent())
    _, same = released(identity)
    assert torch.equal(plain, same)
    _, other = released(LambdaCGD(0.5))
    assert not torch.equal(plain, other)


def test_acceptance_dp_ftrl_21_anti_pgd_leaves_the_last_noise_alone_in_the_sum():
    noisy, white, quiet = (
        constant_gradients(mechanism, noise)
        for mechanism, noise in ((LambdaCGD(1.0), 1.0), (Independent(), 1.0), (Independent(), 1e-6))
    )
    left = noisy.sum(0) - quiet.sum(0)
    assert torch.allclose(left, (white - quiet)[-1], atol=1e-4)
    assert (white - quiet).sum(0).norm() > 2 * left.norm()


def constant_gradients(mechanism, noise_multiplier):
    """Noisy gradients of a loss that is linear in its weights: without noise they are always the same."""
    model = torch.nn.Linear(5, 1, bias=False)
    kept, optimizer = [], torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: kept.append(model.weight.grad[0].clone()))
    options = FIXED | {"mechanism": mechanism, "noise_multiplier": noise_multiplier}
    train(private(model, torch.ones(60, 5), optimizer, lambda model, x: model(x).sum(), **options))
    return torch.stack(kept)


def test_a_name_is_enough_and_what_runs_is_what_is_certified():
    run = private(mechanism="nu-ftrl", epsilon=4.0, **FIXED)
    plan = run.certificate.plan
    assert isinstance(plan.mechanism, BLT)  # ν-FTRL itself would keep all its past noise
    assert plan.participation == ap.participation.FixedEpochs(times=3, apart=5)
    nu = ap.mechanisms.optimize("nu-ftrl", STEPS, plan.participation).loss
    assert plan.mechanism.loss(STEPS, plan.participation) == pytest.approx(nu, rel=0.01)
    assert run.certificate.epsilon <= 4.0
