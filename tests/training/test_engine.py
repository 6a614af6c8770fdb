import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from training.small import N, data, network, private, weights

import antiphon as ap
from antiphon.errors import PlanError, RunError, UnsupportedError
from antiphon.mechanisms import LambdaCGD


def loader(**options):
    return DataLoader(TensorDataset(*data()), **({"batch_size": 12, "shuffle": True} | options))


def engine_run(model=None, optimizer=None, data_loader=None, **options):
    model = network() if model is None else model
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    engine = ap.PrivacyEngine()
    options = {
        "noise_multiplier": 1.0,
        "max_grad_norm": 1.0,
        "steps": 10,
        "seed": 1,
        "delta": 1e-5,
    } | options
    with pytest.warns(UserWarning, match="replaced by the engine's own"):
        parts = engine.make_private(
            module=model, optimizer=optimizer, data_loader=data_loader or loader(), **options
        )
    return engine, *parts


def opacus_loop(model, optimizer, batches, epochs=2):
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_an_opacus_script_takes_the_same_steps_as_a_run():
    engine, model, optimizer, batches = engine_run()
    opacus_loop(model, optimizer, batches)
    run = private()
    for x, y in run.batches():
        run.step(nn.functional.cross_entropy(run.model(x), y, reduction="none"))
    torch.testing.assert_close(flat(model), weights(run), rtol=1e-5, atol=1e-6)
    assert engine.run.steps_taken == 10 and len(batches) == 5
    assert engine.get_epsilon(1e-5) == engine.certificate.epsilon == run.certificate.epsilon
    assert engine.get_epsilon(1e-3) < engine.get_epsilon(1e-5)


def test_physical_batches_give_the_same_result():
    _, model, optimizer, batches = engine_run()
    opacus_loop(model, optimizer, batches)
    _, other, optimizer, batches = engine_run(max_physical_batch_size=3)
    opacus_loop(other, optimizer, batches)
    torch.testing.assert_close(flat(other), flat(model), rtol=1e-5, atol=1e-6)


def test_correlated_noise_is_one_keyword_away():
    engine, model, optimizer, batches = engine_run(
        mechanism=LambdaCGD(0.5), poisson_sampling=False, noise_multiplier=3.0
    )
    opacus_loop(model, optimizer, batches)
    assert engine.run.plan.mechanism == LambdaCGD(0.5)
    assert engine.run.plan.sampling == ap.ShuffledEpochs(12)
    assert engine.run.plan.relation == "zero-out"


def test_epsilon_can_be_asked_for():
    engine = ap.PrivacyEngine()
    model = network()
    with pytest.warns(UserWarning, match="poisson"):
        engine.make_private_with_epsilon(
            module=model, optimizer=torch.optim.Adam(model.parameters()), data_loader=loader(),
            target_epsilon=3.0, target_delta=1e-4, epochs=2, max_grad_norm=0.5)  # fmt: skip
    assert engine.get_epsilon(1e-4) <= 3.0 and engine.run.plan.clip_norm == 0.5
    assert engine.run.plan.steps == 10


@pytest.mark.parametrize("length", [{}, {"epochs": 1, "steps": 5}])
def test_the_length_of_the_run_is_required_before_anything_is_announced(length):
    model = network()
    with pytest.raises(PlanError, match="give either epochs or steps"):  # warnings are errors
        ap.PrivacyEngine().make_private(
            module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=loader(),
            noise_multiplier=1.0, max_grad_norm=1.0, **length)  # fmt: skip


class Odd(Sampler):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(range(1, len(self.data), 2))


class Shard(DataLoader):
    """As a framework makes them."""


def foreign_loaders():
    dataset = TensorDataset(*data())
    return {
        "WeightedRandomSampler": DataLoader(
            dataset, 12, sampler=WeightedRandomSampler([1.0] * N, N)
        ),
        "RandomSampler": DataLoader(dataset, 12, sampler=RandomSampler(dataset, replacement=True)),
        "RandomSampler of a part": DataLoader(
            dataset, 12, sampler=RandomSampler(dataset, num_samples=9)
        ),
        "Odd": DataLoader(dataset, 12, sampler=Odd(dataset)),
        "batch sampler": DataLoader(
            dataset, batch_sampler=Reversed(SequentialSampler(dataset), 12, False)
        ),
        "Shard": Shard(dataset, 12),
        "no batches": DataLoader(dataset, batch_size=None),
        "a list": [data()],
    }


class Reversed(BatchSampler):
    def __iter__(self):
        return reversed(list(super().__iter__()))


@pytest.mark.parametrize("name", foreign_loaders())
def test_loaders_that_draw_in_another_way_are_refused(name):
    model = network()
    with pytest.raises(UnsupportedError, match=r"loader|DataLoader"):
        ap.PrivacyEngine().make_private(
            module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=foreign_loaders()[name], noise_multiplier=1.0, max_grad_norm=1.0, steps=3,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"max_grad_norm": [1.0, 2.0]}, "PerLayer"),
        ({"batch_first": False}, "first axis"),
        ({"grad_sample_mode": "magic"}, "grad_sample_mode='magic' is unknown"),
        (
            {"grad_sample_mode": "ghost"},
            "'ghost' .* four values.* three.* Leave grad_sample_mode out",
        ),
        ({"grad_sample_mode": "ghost_fsdp", "criterion": nn.CrossEntropyLoss()}, "four values"),
        ({"noise_generator": torch.Generator()}, "seed="),
    ],
)
def test_options_without_a_meaning_here_are_refused_by_name(options, match):
    model = network()
    base = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "steps": 3}
    with pytest.raises(UnsupportedError, match=match):
        ap.PrivacyEngine().make_private(
            module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=loader(),
            **(base | options))  # fmt: skip


def test_an_unproved_accountant_is_refused():
    with pytest.raises(UnsupportedError, match="accountant='gdp'"):
        ap.PrivacyEngine(accountant="gdp")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"accountant": "prv"}, "'prv' is taken for 'auto'.* smallest ε"),
        ({"accountant": "rdp"}, "'rdp' is taken for 'auto'.* smallest ε"),
        ({"secure_mode": False}, "secure_mode=False changes nothing.* unless seed="),
    ],
)
def test_what_an_opacus_script_chooses_in_vain_is_announced(options, match):
    with pytest.warns(UserWarning, match=match):
        ap.PrivacyEngine(**options)


def test_the_defaults_and_ways_to_compute_are_accepted_without_a_word():
    ap.PrivacyEngine(accountant="auto", secure_mode=True)  # warnings are errors
    plans = [engine_run(grad_sample_mode=mode)[0].run.plan for mode in ("hooks", "functorch", "ew")]
    assert plans == [plans[0]] * 3


def test_another_epoch_than_planned_is_refused():
    _, model, optimizer, batches = engine_run(steps=5)
    opacus_loop(model, optimizer, batches, epochs=1)
    with pytest.raises(RunError, match="all 5 steps"):
        next(iter(batches))


def test_a_step_on_a_batch_from_elsewhere_is_refused():
    _, model, optimizer, _ = engine_run()
    before = flat(model)
    for x, y in loader():
        nn.functional.cross_entropy(model(x), y).backward()
        with pytest.raises(RunError, match="no batch is out"):
            optimizer.step()
        break
    assert torch.equal(flat(model), before)


def test_gradients_without_clipping_are_never_left_on_the_parameters():
    _, model, optimizer, batches = engine_run()
    for x, y in batches:
        nn.functional.cross_entropy(model(x), y).backward()
        assert all(p.grad is None for p in model.parameters())
        optimizer.step()
        assert all(p.grad is None for p in model.parameters())


def test_a_batch_without_a_step_stops_the_loop():
    _, _, _, batches = engine_run()
    with pytest.raises(RunError, match="no step was taken"):
        for _ in batches:
            pass


def test_models_that_mix_examples_are_refused_also_here():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 2)

        def forward(self, x):
            return self.linear(x - x.mean(0))

    _, model, optimizer, batches = engine_run(Centred())
    before = flat(model)
    for x, y in batches:
        nn.functional.cross_entropy(model(x), y).backward()
        with pytest.raises(UnsupportedError, match="mixes the examples"):
            optimizer.step()
        break
    assert torch.equal(flat(model), before)


def test_a_step_size_schedule_and_workers_work():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, model, optimizer, batches = engine_run(model, optimizer, loader(num_workers=1))
        for x, y in batches:
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 32)


def test_before_make_private_there_is_no_run():
    with pytest.raises(RunError, match="call make_private first"):
        ap.PrivacyEngine().get_epsilon(1e-5)


# ---- accuracy ------------------------------------------------------------------------------------------


def stripes(n, seed):
    """Images of 8 x 8 with bright rows (0) or columns (1) in one half, and noise."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (n,), generator=generator)
    x = 0.7 * torch.randn(n, 1, 8, 8, generator=generator)
    bright = torch.randint(0, 4, (n,), generator=generator)
    for i in range(n):
        if y[i]:
            x[i, 0, :, bright[i]] += 2
        else:
            x[i, 0, bright[i]] += 2
    return x, y


NETWORKS = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2)),
    "cnn": lambda: nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 2)
    ),
}


def by_hand(model, x, y, steps, rate, noise):
    """DP-SGD as in the textbook: one example after another, torch's generator, Poisson batches."""
    parameters = list(model.parameters())
    for _ in range(steps):
        total = [noise * torch.randn_like(p) for p in parameters]
        for i in torch.nonzero(torch.rand(len(x)) < rate)[:, 0].tolist():
            loss = nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
            gradients = torch.autograd.grad(loss, parameters)
            norm = torch.cat([g.flatten() for g in gradients]).norm()
            for part, gradient in zip(total, gradients, strict=True):
                part += gradient / max(1.0, float(norm))
        with torch.no_grad():
            for parameter, part in zip(parameters, total, strict=True):
                parameter -= 0.5 * part / (rate * len(x))


@pytest.mark.parametrize("name", ["mlp", pytest.param("cnn", marks=pytest.mark.slow)])
def test_a_ported_script_reaches_the_accuracy_of_dp_sgd_by_hand(name):
    """At equal noise, batches and steps: the same up to the noise of five runs each."""
    (x, y), (test, labels) = stripes(400, 0), stripes(2000, 1)
    found = {"engine": [], "by hand": []}
    for seed in range(5):
        for kind, scores in found.items():
            torch.manual_seed(seed)
            model = NETWORKS[name]()
            if kind == "engine":
                optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
                dataset = DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True)
                _, model, optimizer, batches = engine_run(
                    model, optimizer, dataset, steps=60, seed=seed
                )
                opacus_loop(model, optimizer, batches, epochs=6)
            else:
                by_hand(model, x, y, 60, 0.1, 1.0)
            with torch.no_grad():
                scores.append(float((model(test).argmax(1) == labels).double().mean()))
    engine, hand = (torch.tensor(scores) for scores in found.values())
    error = float(torch.sqrt(engine.var() / 5 + hand.var() / 5)) + 0.005
    assert engine.mean() > 0.7
    assert abs(float(engine.mean() - hand.mean())) < 4 * error
