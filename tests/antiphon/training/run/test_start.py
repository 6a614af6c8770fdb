import warnings
from dataclasses import replace

import jaxtyping
import numpy as np
import pytest
import torch
from oracles.small_models import N, data, loss_of, network, private, train, weights
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import antiphon as ap
from antiphon.errors import AntiphonError, LedgerError, PlanError, UnsupportedError
from antiphon.mechanisms import BLT, Independent, LambdaCGD
from antiphon.plans import Block, GaussianRelease
from antiphon.training.gradients import Adaptive, PerLayer
from antiphon.training.run import recipe

# ---- plans -----------------------------------------------------------------------------------------------


def test_five_lines_train_a_model_that_learns():
    x, y = data(600)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    run = ap.make_private(model, optimizer, (x, y), loss_of, epsilon=6.0, delta=1e-4, epochs=5,
                          batch_size=60, mechanism="independent", seed=0).train()  # fmt: skip
    assert run.certificate.epsilon <= 6 and run.steps_taken == 50
    assert (model(x).argmax(1) == y).double().mean() > 0.85


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("poisson", ap.Poisson(12 / N)),
        ("fixed-size", ap.FixedSize(12)),
        ("shuffled", ap.ShuffledEpochs(12)),
        ("balls-in-bins", ap.BallsInBins(5)),
        ("one-pass", ap.OnePass(12)),
        ("full-batch", ap.FullBatch()),
    ],
)
def test_samplings_by_name_run_and_are_accounted_for_as_such(name, expected):
    run = private(sampling=name, batch_size=12, steps=5, noise_multiplier=2.0)
    assert run.plan.sampling == expected
    relation = "add-remove" if expected.own_coin else "zero-out"
    assert run.plan.relation == run.certificate.relation == relation
    rows = sizes(run)
    if name in ("fixed-size", "shuffled", "one-pass"):
        assert rows == [12] * 5
    if name == "balls-in-bins":
        assert sum(rows) == N  # every record once
    if name == "full-batch":
        assert rows == [N] * 5


def sizes(run):
    """How many rows each batch has."""
    return [len(run.drawn) for _ in run]


def test_cyclic_poisson_and_recorded_schedules_run():
    run = private(sampling=ap.CyclicPoisson(0.4, 3), steps=6, mechanism=LambdaCGD(0.0))
    assert train(run).steps_taken == 6
    schedule = [range(10), range(10, 30), range(5)]
    run = private(sampling=ap.Recorded(schedule), steps=3)
    assert sizes(run) == [10, 20, 5]


def test_a_shuffled_run_never_gets_a_poisson_epsilon():
    poisson = private(steps=25, noise_multiplier=1.5)
    shuffled = private(sampling="shuffled", batch_size=12, steps=25, noise_multiplier=1.5)
    unamplified = private(
        sampling="full-batch", steps=5, noise_multiplier=1.5
    )  # five participations
    assert (
        poisson.certificate.epsilon
        < shuffled.certificate.epsilon
        <= unamplified.certificate.epsilon
    )


def test_multi_epoch_noise_is_calibrated_for_all_participations():
    blt = BLT((0.3, 0.1), (0.9, 0.4))
    run = private(sampling="shuffled", batch_size=12, steps=50, mechanism=blt, epsilon=1.0)
    once = private(sampling="shuffled", batch_size=12, steps=5, mechanism=blt, epsilon=1.0)
    assert run.plan.noise_multiplier > 2.5 * once.plan.noise_multiplier


def test_a_family_is_optimised_for_the_plan():
    run = private(
        sampling="shuffled", batch_size=12, steps=10, mechanism="banded", noise_multiplier=3.0
    )
    best = ap.mechanisms.optimize("banded", 10, run.plan.participation).mechanism
    assert run.plan.mechanism == best and len(best.coef) > 1


def test_auto_chooses_a_mechanism_and_it_runs():
    run = private(sampling="shuffled", batch_size=12, steps=10, mechanism="auto", epsilon=2.0)
    assert not isinstance(run.plan.mechanism, str)
    assert train(run).certificate.epsilon <= 2.0


def test_epochs_become_steps():
    assert private(epochs=2).plan.steps == 10
    assert private(epochs=0.5, batch_size=30).plan.steps == 1


def test_delta_has_a_default_below_one_over_n():
    assert private(delta=None).certificate.delta == pytest.approx(N**-1.1)


def test_releases_beside_training_are_paid_for():
    plain = private(noise_multiplier=2.0)
    more = private(noise_multiplier=2.0, extra=[GaussianRelease(0.3, "private bounds")])
    assert more.certificate.epsilon > plain.certificate.epsilon
    assert any("private bounds" in line for line in more.certificate.assumptions)


def test_a_plan_can_be_given_whole_and_its_blocks_get_their_own_noise():
    blocks = (Block("0", 0.3, 4.0), Block("2", 0.4, 8.0))
    plan = ap.Plan(n=N, sampling=ap.FullBatch(), steps=2, mechanism=LambdaCGD(0.5), blocks=blocks)
    zeros = (torch.zeros(N, 5), torch.zeros(N).long())

    def make():
        model = nn.Sequential(nn.Linear(5, 7, bias=False), nn.Tanh(), nn.Linear(7, 2, bias=False))
        return private(model, zeros, plan=plan)

    run, source = make(), make()._total.noise  # on zeros every gradient is zero
    assert run.certificate.epsilon == ap.certify(plan, 1e-5).epsilon
    before = weights(run)
    moved = (before - weights(train(run))) / 0.1 * N
    rows = sum(source.draw()[:-1].float() for _ in range(2))
    scales = torch.cat([torch.full((35,), 1.2), torch.full((14,), 3.2)])  # noise multiplier × bound
    torch.testing.assert_close(moved, rows * scales, rtol=1e-3, atol=1e-3)


def test_blocks_of_other_layers_are_refused():
    plan = ap.Plan(
        n=N,
        sampling=ap.FullBatch(),
        steps=2,
        mechanism=LambdaCGD(0.5),
        blocks=(Block("x", 1.0, 4.0),),
    )
    with pytest.raises(PlanError, match="trained layers"):
        private(plan=plan)


# ---- what is refused, before anything is paid


def whole_plan(**options):
    given = {"n": N, "sampling": ap.Poisson(0.2), "steps": 3, "mechanism": Independent()}
    return ap.Plan(**(given | {"noise_multiplier": 1.0} | options))


OPEN, WHOLE = whole_plan(noise_multiplier=None), whole_plan()
GIVEN = {"epsilon": 1.0, "delta": 1e-5, "epochs": 1, "batch_size": 12, "mechanism": "independent"}
ASKED = [
    ({"epochs": None}, "give either epochs or steps"),
    ({"epochs": 0}, "epochs must be positive"),
    ({"epochs": float("nan")}, "epochs must be positive"),
    ({"epsilon": None}, "say how private the run is: give epsilon"),
    ({"epsilon": -1.0}, "ε"),
    ({"epsilon": float("inf")}, "ε"),
    ({"clip_norm": 0.0}, "clip_norm must be positive"),
    ({"clip_norm": float("nan")}, "clip_norm must be positive"),
    ({"delta": 1.0}, "δ"),
    ({"delta": 0.0}, "δ"),
    ({"batch_size": 0}, "batch_size must be a whole number"),
    ({"batch_size": 61}, "larger than the 60"),
    ({"batch_size": None}, "needs batch_size"),
    ({"sampling": "weighted"}, "sampling is 'poisson'"),
    ({"relation": "substitute"}, "neighbouring relation"),
    ({"mechanism": "magic"}, "called 'magic'; there are auto, independent"),
    ({"seed": -1}, "seed must be an integer"),
    ({"loss": None}, "loss is a function of the model and one example"),
    ({"options": {"max_batch": 3}}, r"options is ap\.Options\(...\); got dict"),
    ({"dataset": 3}, r"__len__ and __getitem__"),
    ({"dataset": ap.Dataset(data(), user=[1, 2])}, "60 are needed"),
    ({"dataset": ap.Dataset(data(), user=[0] * N), "batch_size": 1, "options": ap.Options(max_batch=9)},
     "one user has 60 examples"),
    ({"options": ap.Options(loading={"batch_size": 3})}, "loading has batch_size"),
    ({"options": ap.Options(clipping=PerLayer({"9": 1.0}))}, "exactly the trained layers"),
    ({"options": ap.Options(bounds=(-0.01, 0.01))}, "outside the declared bounds"),
]  # fmt: skip
BESIDE_A_PLAN = [
    ({"plan": WHOLE, "epsilon": 0.1}, "give epsilon beside a plan without noise.* and not"),
    ({"plan": OPEN}, "give epsilon beside a plan without noise"),
    ({"plan": OPEN, "epsilon": -1.0}, "epsilon must be positive"),
    ({"plan": WHOLE, "delta": None}, "give delta"),
    ({"plan": WHOLE, "epochs": 2}, "epochs=2 was given beside plan="),
    ({"plan": WHOLE, "batch_size": 5}, "batch_size=5 was given beside plan="),
    ({"plan": WHOLE, "clip_norm": 0.5}, "clip_norm=0.5 was given beside plan="),
    ({"plan": WHOLE, "mechanism": "blt"}, "mechanism=blt was given beside plan="),
    ({"plan": WHOLE, "sampling": "shuffled"}, "sampling=shuffled was given beside plan="),
    ({"plan": WHOLE, "relation": "replace-one"}, "relation=replace-one was given beside plan="),
    ({"plan": ap.certify(WHOLE, 1e-5), "delta": 1e-4}, "the certificate is for δ = 1e-05"),
    ({"plan": whole_plan(unit="user")}, "the data set has no users"),
    ({"plan": WHOLE, "dataset": ap.Dataset(data(), user=np.arange(N) // 2)}, "but the data set has users"),
    ({"plan": whole_plan(n=59, sampling=ap.FixedSize(8), relation="zero-out")}, "so they must be equal"),
    ({"plan": whole_plan(blocks=(Block("x", 1.0, 4.0),))}, "trained layers"),
    ({"plan": ap.certify(WHOLE, 1e-5), "delta": None, "options": ap.Options(clipping="adaptive")},
     "pays for its votes"),
]  # fmt: skip


def shape_of(model):
    """What a model and its modules hold, hooks included."""
    return [(name, {k: id(v) for k, v in vars(m).items()}) for name, m in model.named_modules()]


@pytest.fixture
def unchecked():
    """As users have it: types are not checked at run time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def refuse(tmp_path, asked, kind, match):
    """A run cannot start; ledger, model, optimizer, folder and generators stay as they were."""
    model, folder = network(), tmp_path / "run"
    model.register_buffer("table", torch.ones(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ledger = ap.Ledger.create(tmp_path / "ledger", epsilon=50, delta=1e-3, relation="add-remove")
    options = asked.get("options", ap.Options())
    if isinstance(options, ap.Options):
        options = replace(options, checkpoint=folder)
    before = (
        [t.clone() for t in model.state_dict().values()],
        shape_of(model),
        torch.get_rng_state(),
    )
    given = {"dataset": data(), "loss": loss_of, "ledger": ledger} | asked | {"options": options}
    with pytest.raises(kind, match=match) as refused:
        ap.make_private(model, optimizer, **given)
    assert len(str(refused.value)) < 500 and "\n" not in str(refused.value)
    assert not ledger.entries()
    assert not folder.exists() or not (folder / "checkpoint.safetensors").exists()
    assert all(map(torch.equal, before[0], model.state_dict().values()))
    assert all(p.grad is None for p in model.parameters()) and not optimizer.state
    assert shape_of(model) == before[1] and torch.equal(torch.get_rng_state(), before[2])
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
    again = {**GIVEN, "options": ap.Options(checkpoint=folder), "ledger": ledger}
    with ap.make_private(model, optimizer, data(), loss_of, **again) as run:
        train(run, 1)
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize(("asked", "match"), ASKED)
def test_what_no_run_can_have_is_refused_before_it_is_paid_for(asked, match, tmp_path, unchecked):
    refuse(tmp_path, GIVEN | asked, (AntiphonError, TypeError), match)


@pytest.mark.parametrize(("asked", "match"), BESIDE_A_PLAN)
def test_what_would_be_ignored_beside_a_plan_is_refused(asked, match, tmp_path, unchecked):
    refuse(tmp_path, {"delta": None if "δ" in match else 1e-5} | asked, PlanError, match)


LOSSES = {
    "nothing": (lambda model, x, y: None, "a tensor with one number; got NoneType"),
    "a number of Python": (lambda model, x, y: 1.0, "a tensor with one number; got float"),
    "a vector": (lambda model, x, y: model(x), r"has shape \(1, 2\). Return one number"),
    "an integer": (lambda model, x, y: model(x).argmax(), "must be a real number; got torch.int64"),
    "a complex number": (lambda model, x, y: model(x).sum() * 1j, "must be a real number"),
    "a constant": (lambda model, x, y: x.sum(), "depends on no parameter that is trained"),
    "detached": (lambda model, x, y: loss_of(model, x, y).detach(), "depends on no parameter"),
    "of fewer arguments": (lambda model, x: model(x).sum(), "positional arguments"),
    "of other names": (lambda model, image, label: 0, None),
    "of labels that are no labels": (lambda model, x, y: loss_of(model, x, y.double()), "target dtype"),
    "that fails": (lambda model, x, y: 1 // 0, "division"),
    "that changes a tensor": (lambda model, x, y: torch.zeros(2).add_(model(x)[0]).sum(), "in place"),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in LOSSES if LOSSES[name][1]])
def test_a_loss_that_is_none_is_refused_before_it_is_paid_for(name, tmp_path):
    loss, match = LOSSES[name]
    refuse(tmp_path, GIVEN | {"loss": loss}, Exception, match)


def test_columns_by_name_go_to_the_arguments_of_that_name():
    x, y = data()

    def loss(model, *, image, label):
        return loss_of(model, image, label)

    named = private(dataset={"label": y, "image": x}, loss=loss)
    assert torch.equal(weights(train(named)), weights(train(private())))
    with pytest.raises(TypeError, match="label"):
        private(dataset={"image": x}, loss=loss)


def test_a_plan_is_given_its_least_noise():
    model = network()
    options = {"plan": OPEN, "epsilon": 2.0, "delta": 1e-5}
    run = ap.make_private(
        model, torch.optim.SGD(model.parameters(), lr=0.1), data(), loss_of, **options
    )
    assert run.plan == replace(OPEN, noise_multiplier=run.plan.noise_multiplier)
    assert 1.99 < run.certificate.epsilon <= 2.0


def test_a_certificate_replaces_its_plan_and_is_not_proved_again(monkeypatch):
    certificate = ap.certify(WHOLE, 1e-5)
    monkeypatch.setattr(recipe, "certify", None)
    run = private(plan=certificate)
    assert run.plan == WHOLE and run.certificate.epsilon == certificate.epsilon
    assert set(certificate.assumptions) < set(run.certificate.assumptions)


WRONG_OPTIONS = [
    ({"max_batch": 0}, "max_batch must be a whole number"),
    ({"max_batch": 1.5}, "max_batch must be a whole number"),
    ({"checkpoint_every": 0}, "checkpoint_every must be a whole number"),
    ({"clipping": "hard"}, "clipping is 'flat'"),
    ({"bounds": (1.0, 0.0)}, "every lower bound must be below"),
    ({"bounds": (1.0, 2.0, 3.0)}, "bounds are two"),
    ({"bounds": 3.0}, "bounds are two"),
    ({"outside": "ignore"}, "'raise' or 'clamp'"),
    ({"resume": True}, "needs checkpoint"),
    ({"callback": 3}, "callback is a function"),
    ({"others": [3]}, "others is a mapping by name"),
    ({"loading": 2}, "loading is a mapping by name"),
]


@pytest.mark.parametrize(("options", "match"), WRONG_OPTIONS)
def test_wrong_options_are_refused_in_one_line(options, match, unchecked):
    with pytest.raises(PlanError, match=match) as refused:
        ap.Options(**options)
    assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)


def test_options_have_names_and_are_not_changed():
    with pytest.raises(TypeError, match="positional"):
        ap.Options("flat")
    with pytest.raises(AttributeError):
        ap.Options().max_batch = 3


def test_add_remove_is_refused_where_batches_go_by_row():
    with pytest.raises(UnsupportedError, match="gives places by row"):
        private(sampling="shuffled", batch_size=12, relation="add-remove")


# ---- data ------------------------------------------------------------------------------------------------


class Squares(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, row):
        x, y = data()
        return {"x": x[row], "y": y[row]}


@pytest.mark.parametrize("workers", [0, 2])
def test_map_style_data_sets_and_workers_read_the_same_rows(workers):
    run = private(dataset=Squares(), loading={"num_workers": workers}, steps=4)
    assert torch.equal(weights(train(run)), weights(train(private(steps=4))))


def test_arrays_and_tensor_data_sets_are_taken():
    x, y = data()
    runs = [
        train(private(dataset=d)) for d in ((x, y), TensorDataset(x, y), (x.numpy(), y.numpy()))
    ]
    assert torch.equal(weights(runs[0]), weights(runs[1]))
    assert torch.equal(weights(runs[0]), weights(runs[2]))


def test_data_that_cannot_be_sampled_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            yield 1

    with pytest.raises(UnsupportedError, match="IterableDataset"):
        private(dataset=Stream())
    with pytest.raises(PlanError, match="different lengths"):
        private(dataset=(torch.zeros(3, 5), torch.zeros(4)))
    with pytest.raises(PlanError, match="empty"):
        private(dataset=(torch.zeros(0, 5), torch.zeros(0)))
    with pytest.raises(PlanError, match="not the loader"):
        private(dataset=DataLoader(TensorDataset(*data())))


# ---- users -----------------------------------------------------------------------------------------------


def test_a_user_is_drawn_and_clipped_as_a_whole():
    x, y = data()
    users = np.array([f"u{i % 7}" for i in range(N)])
    users[:20] = "heavy"
    model = network()
    run = private(
        model, user=users, sampling="full-batch", steps=1, clip_norm=0.3, noise_multiplier=0.5
    )
    assert run.plan.n == 8 and run.plan.unit == run.certificate.unit == "user"
    before = weights(run)
    total = torch.zeros_like(before)
    for name in np.unique(users):
        rows = torch.from_numpy(np.flatnonzero(users == name))
        gradients = torch.autograd.grad(loss_of(model, x[rows], y[rows]), list(model.parameters()))
        gradient = torch.cat([g.flatten() for g in gradients])
        total += gradient * min(1.0, 0.3 / float(gradient.norm()))
    train(run)
    same = private(user=users, sampling="full-batch", steps=1, clip_norm=0.3, noise_multiplier=0.5)
    noise = same._total.noise.draw()[:-1].float() * 0.5 * 0.3
    torch.testing.assert_close(
        (before - weights(run)) / 0.1 * 8, total + noise, rtol=1e-4, atol=1e-4
    )


def test_users_are_in_a_batch_with_all_their_examples_or_none():
    users = torch.arange(N) % 10
    run = private(user=users, batch_size=4, steps=8, noise_multiplier=3.0)
    assert run.plan.sampling == ap.Poisson(0.4)
    counts = set()
    for _ in run:
        names, sizes = users[run.drawn].unique(return_counts=True)
        assert (sizes == 6).all()
        counts.add(len(names))
    assert len(counts) > 1


@pytest.mark.parametrize("max_batch", [20, 25, 60])
def test_users_in_parts_give_the_same_result(max_batch):
    users = np.sort(np.random.default_rng(0).integers(0, 6, N))
    options = {"user": users, "sampling": "full-batch", "steps": 3, "noise_multiplier": 0.5}
    torch.testing.assert_close(
        weights(train(private(max_batch=max_batch, **options))), weights(train(private(**options)))
    )


def test_a_user_who_does_not_fit_into_a_part_is_refused():
    with pytest.raises(PlanError, match="one user has 60 examples"):
        private(user=["a"] * N, max_batch=10, sampling="full-batch")


# ---- clipping --------------------------------------------------------------------------------------------


def test_adaptive_clipping_pays_for_its_votes_and_finds_the_quantile():
    x, y = data(400)
    rule = Adaptive(quantile=0.5, rate=0.5)
    options = {"sampling": "full-batch", "steps": 60, "clip_norm": 100.0, "epsilon": 8.0}
    run = private(dataset=(x, y), clipping=rule, **options)
    assert run.certificate.epsilon <= 8.0 and len(run.plan.blocks) == 2
    plain = private(dataset=(x, y), **options)
    assert run.plan.blocks[0].noise_multiplier == pytest.approx(
        plain.plan.noise_multiplier / 0.99**0.5
    )
    train(run)
    run.close()
    norms = torch.stack(
        [norm_of_gradient(run.model, x[i : i + 1], y[i : i + 1]) for i in range(400)]
    )
    assert 0.35 < float((norms <= run.clip_norm).double().mean()) < 0.65


def norm_of_gradient(model, x, y):
    gradients = torch.autograd.grad(loss_of(model, x, y), list(model.parameters()))
    return torch.cat([g.flatten() for g in gradients]).norm()


def test_per_layer_bounds_must_fit_the_layers_and_the_clip_norm():
    with pytest.raises(PlanError, match="exactly the trained layers"):
        private(clipping=PerLayer({"0": 0.5}))
    with pytest.raises(PlanError, match="together, more than"):
        private(clipping=PerLayer({"0": 0.9, "2": 0.9}))
    assert train(private(clipping=PerLayer({"0": 0.6, "2": 0.8}), steps=2)).steps_taken == 2


# ---- ledger ----------------------------------------------------------------------------------------------


def test_a_ledger_is_charged_before_the_first_step_and_can_refuse(tmp_path):
    ledger = ap.Ledger.create(tmp_path / "l", epsilon=2.5, delta=1e-5, relation="add-remove")
    options = {"sampling": "full-batch", "steps": 5, "epsilon": 2.0, "ledger": ledger}
    run = private(**options)
    assert ledger.entries()[0].plan == run.plan and ledger.spent() == pytest.approx(2.0, rel=1e-3)
    with pytest.raises(LedgerError):
        private(**options)


def test_a_warning_is_not_needed_for_a_plain_run():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(private(nn.Linear(5, 2)))


def test_a_plan_for_users_is_for_data_with_users():
    run = private(plan=whole_plan(unit="user", n=N // 2), user=np.arange(N) // 2)
    assert train(run).certificate.unit == "user"


def test_votes_that_a_plan_takes_for_smaller_than_they_are_are_refused():
    blocks = (Block("gradient over clip norm", 1.0, 2.0), Block("votes on the clip norm", 0.1, 2.0))
    with pytest.raises(PlanError, match=r"bound 0\.5"):
        private(plan=whole_plan(blocks=blocks), clipping="adaptive")
