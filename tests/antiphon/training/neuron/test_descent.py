import math

import numpy as np
import pytest
import torch
from oracles.grid import on_grid

from antiphon.errors import PlanError, StateError
from antiphon.mechanisms import BLT, Banded, BandedInverse, Independent, LambdaCGD, NuFTRL, Tree
from antiphon.numerics import Generator, clip_rows
from antiphon.plans import (
    Draws,
    FullBatch,
    GaussianRelease,
    OnePass,
    Plan,
    Poisson,
    ShuffledEpochs,
    random_subset,
)
from antiphon.training.neuron import (
    BlockThreshold,
    Constant,
    Descent,
    NoiseRows,
    PublicThreshold,
    Seen,
    descend,
    random_start,
    residuals,
)

RNG = np.random.default_rng(0)
N, D = 60, 3
X = RNG.normal(size=(N, D))
TRUTH = np.array([1.0, -0.5, 0.25])
Y = np.maximum(X @ TRUTH, 0) + 0.1 * RNG.normal(size=N)
KEY = Generator.seeded(7)


def plan_of(sampling=None, steps=12, mechanism=None, noise=1.0, **options):
    return Plan(
        n=options.pop("n", N),
        sampling=sampling or FullBatch(),
        steps=steps,
        mechanism=mechanism or Independent(),
        relation="replace-one",
        noise_multiplier=noise,
        **options,
    )


def slowly(plan, *, rate, direction="glmtron", radius=None, norms=None, start=None):
    """All iterates w_0, …, w_T, record by record, with dense C⁻¹z; ``norms`` is a clip norm per step."""
    T, d = plan.steps, X.shape[1]
    generator = KEY.spawn("noise")
    z = generator.normal(torch.empty(T, d, dtype=torch.float64), 0).numpy()
    noise = plan.mechanism.decoder(T) @ z
    draws = Draws(plan.sampling, plan.n, KEY)
    w = np.zeros(d) if start is None else start
    iterates = [w]
    for t in range(T):
        s = plan.clip_norm if norms is None else norms[t]
        total = np.zeros(d)
        for i in draws.rows(t).tolist():
            u = X[i] @ w
            g = (max(u, 0) - Y[i]) * X[i]
            if direction == "sgd" and u <= 0:
                g = 0 * g
            total += clip_rows(g[None], s)[0]
        unit = abs(plan.mechanism.decoder(T)[0, 0])
        w = (
            w
            - rate * on_grid(total, noise[t], plan.noise_multiplier * s, unit) / plan.expected_batch
        )
        if radius is not None:
            w = w * min(1.0, radius / np.linalg.norm(w))
        iterates.append(w)
    return np.array(iterates)


PLANS = {
    "full batches": plan_of(clip_norm=0.5),
    "Poisson": plan_of(Poisson(0.2), clip_norm=0.5),
    "shuffled batches": plan_of(ShuffledEpochs(7), steps=20, clip_norm=0.8),
    "record by record": plan_of(ShuffledEpochs(1), steps=N, clip_norm=0.8),
    "in the given order": plan_of(OnePass(11), steps=5),
    "tree noise": plan_of(ShuffledEpochs(1), steps=N, mechanism=Tree()),
    "λ-CGD noise": plan_of(FullBatch(), mechanism=LambdaCGD(0.5)),
    "banded noise": plan_of(OnePass(1), steps=N, mechanism=Banded((1.0, 0.5, 0.25))),
    "noise with a long memory": plan_of(OnePass(2), steps=20, mechanism=NuFTRL(0.1)),
    "buffered noise": plan_of(OnePass(1), steps=N, mechanism=BLT((0.2, 0.1), (0.9, 0.3))),
}


@pytest.mark.parametrize("name", PLANS)
def test_steps_are_those_of_the_plan_record_by_record(name):
    plan = PLANS[name]
    iterates = slowly(plan, rate=0.3)
    T = plan.steps
    for average, counts_last, expected in (
        ("last", False, iterates[-1]),
        ("full", False, iterates[:T].mean(0)),
        ("tail", False, iterates[T // 2 : T].mean(0)),
        ("full", True, iterates[1:].mean(0)),
        ("tail", True, iterates[T // 2 + 1 :].mean(0)),
    ):
        found = descend(
            X,
            Y,
            plan,
            learning_rate=0.3,
            generator=KEY,
            average=average,
            counts_last=counts_last,
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_gradients_start_at_random_and_stay_in_the_ball():
    plan = plan_of(clip_norm=0.5)
    start = random_start(D, KEY)
    expected = slowly(plan, rate=2.0, direction="sgd", radius=0.4, start=start)
    given = {"learning_rate": 2.0, "generator": KEY, "direction": "sgd", "radius": 0.4}
    found = descend(X, Y, plan, average="last", **given)
    np.testing.assert_allclose(found, expected[-1], rtol=1e-9)
    assert np.linalg.norm(expected, axis=1).max() <= 0.4 + 1e-12
    assert (np.linalg.norm(expected[1:], axis=1) > 0.399).any()  # so that the ball was felt


def test_random_starts_have_norm_a_tenth():
    starts = np.array([random_start(20, Generator.seeded(i)) for i in range(400)])
    assert np.mean(np.sum(starts**2, axis=1)) == pytest.approx(0.01, rel=0.1)


def test_acceptance_12_gradients_from_zero_never_move_but_glmtron_does():
    plan = plan_of(clip_norm=1.0, noise=5e-324)  # over n it is zero
    options = {"learning_rate": 1.0, "generator": KEY, "start": np.zeros(D), "average": "last"}
    assert not descend(X, Y, plan, direction="sgd", **options).any()
    assert np.linalg.norm(descend(X, Y, plan, direction="glmtron", **options)) > 0.5


def test_directions_that_are_not_finite_count_as_zero_and_huge_ones_are_clipped():
    odd, wrong = X.copy(), Y.copy()
    odd[0], odd[1, 0], wrong[2] = np.nan, np.inf, np.nan
    odd[3] = [1e300, 0, 0]  # its square overflows, its direction does not
    odd[4] = [1e-300, 0, 0]
    wrong[5] = 1e308
    odd[6], wrong[6] = 0.0, np.inf
    odd[7], wrong[7] = 1.0, -np.inf
    plan = plan_of(OnePass(N), steps=1, clip_norm=0.5, noise=1e-300)
    found = -N * descend(odd, wrong, plan, learning_rate=1.0, generator=KEY, average="last")
    with np.errstate(invalid="ignore"):
        g = -wrong[:, None] * odd
    g[4], g[5] = 0.0, -odd[5] / np.linalg.norm(odd[5])
    g[3] = [-np.sign(wrong[3]), 0, 0]
    g[6] = g[7] = 0.0
    expected = clip_rows(g[3:], 0.5).sum(0)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("clip_norm", [1e-3, 1e-10, 1e-18])
@pytest.mark.parametrize("size", [1e300, 3.7e305, 1.6e308])
def test_no_direction_exceeds_its_clip_norm_however_large_the_record(clip_norm, size):
    one = np.array([[size / 2, -size / 3, size]])
    plan = plan_of(FullBatch(), steps=1, n=1, clip_norm=clip_norm, noise=1e-300)
    moved = descend(one, [1.0], plan, learning_rate=1.0, generator=KEY, average="last")
    assert np.linalg.norm(moved) <= clip_norm


def test_who_votes_does_not_go_by_the_order_of_rows():
    rule = BlockThreshold(size=10, factor=1.0, smallest=0.1, largest=3.0, mu=1.0)
    rows = np.arange(100)
    kept = []
    for step in range(200):
        seen = Seen(np.zeros((100, 1)), np.zeros(100), rows, np.zeros(1), step, KEY)
        kept.append(rule.find(seen)[1])
    assert all(len(others) == 90 for others in kept)
    counts = 200 - np.bincount(np.concatenate(kept), minlength=100)  # of 200 draws of 1 in 10
    assert (
        counts.min() > 3 and counts.max() < 42
    )  # beyond by chance: 1 in 1000, and the seed is fixed


def test_votes_on_values_that_are_not_finite_are_silent():
    odd = X.copy()
    odd[0] = [np.inf, -np.inf, 0]
    assert np.isnan(residuals(odd, Y, np.ones(D))[0])


def test_public_thresholds_are_looked_up_every_so_often_at_the_iterate():
    plan = plan_of(OnePass(4), steps=15)
    public = (X[:20], Y[:20])
    rule = PublicThreshold(*public, factor=1.5, smallest=2**-4, largest=1.0, every=4)
    descent = Descent(X, Y, plan, learning_rate=0.5, generator=KEY, clip_norms=rule)
    while descent.step < plan.steps:
        descent.advance()
    assert list(descent.found) == [0, 4, 8, 12]
    norms = [descent.found[t - t % 4] for t in range(15)]
    iterates = slowly(plan, rate=0.5, norms=norms)
    np.testing.assert_allclose(descent.weights, iterates[-1], rtol=1e-9)
    for step, norm in descent.found.items():
        most = np.abs(np.maximum(public[0] @ iterates[step], 0) - public[1]).max()
        doubling = 2.0 ** math.ceil(math.log2(most))
        assert norm == 1.5 * min(max(doubling, 2**-4), 1.0)


def test_records_that_vote_on_a_batch_do_not_move_it():
    plan = plan_of(OnePass(20), steps=3, apart=(GaussianRelease(1e6),))
    rule = BlockThreshold(size=5, factor=2.0, smallest=0.1, largest=3.0, mu=1e6)
    options = {"learning_rate": 0.5, "generator": KEY, "clip_norms": rule}
    descent = Descent(X, Y, plan, **options)
    w = np.zeros(D)
    z = KEY.spawn("noise").normal(torch.empty(3, D, dtype=torch.float64), 0).numpy()
    for t in range(3):
        descent.advance()
        voters = 20 * t + random_subset(KEY.spawn("voters"), t, 20, 5)
        others = np.setdiff1d(np.arange(20 * t, 20 * t + 20), voters)
        r = np.maximum(X @ w, 0) - Y
        count = [(np.abs(r[voters]) <= 0.1 * 2**i).all() for i in range(6)]
        s = 2.0 * 0.1 * 2 ** (count.index(True) if True in count else 5)
        assert descent.found[t] == pytest.approx(s)
        total = on_grid(clip_rows((r[:, None] * X)[others], s).sum(0), z[t], s)
        w = w - 0.5 * total / 20
        np.testing.assert_allclose(descent.weights, w, rtol=1e-9)


@pytest.mark.parametrize(
    "mechanism",
    [
        Independent(),
        Tree(),
        LambdaCGD(0.7),
        LambdaCGD(0.0),
        BandedInverse((1, -0.5, 0.2)),
        BandedInverse((2.0,)),
        Banded((1.5, 0.5, 0.25, 0.1)),
        BLT((0.2, 0.1), (0.9, 0.3)),
        NuFTRL(0.1),
    ],
    ids=str,
)
def test_noise_in_blocks_is_the_dense_noise_however_it_is_asked_for(mechanism, monkeypatch):
    monkeypatch.setattr(
        "antiphon.training.neuron.noise_rows._NUMBERS", 4 * D
    )  # blocks of four rows
    T = 21
    pieces = [
        KEY.normal(torch.empty(min(4, T - 4 * k), D, dtype=torch.float64), k) for k in range(6)
    ]
    dense = mechanism.decoder(T) @ torch.cat(pieces).numpy()
    rows = NoiseRows(mechanism, KEY, D, T)
    found = np.concatenate([rows.draw(k) for k in (1, 2, 9, 9)])
    np.testing.assert_allclose(found, dense, atol=1e-12)
    with pytest.raises(StateError, match="all 21 steps"):
        rows.draw(1)


@pytest.mark.parametrize("name", PLANS)
def test_a_run_resumes_to_the_same_bits(name):
    plan = PLANS[name]
    rule = PublicThreshold(X[:9], Y[:9], factor=1.0, smallest=0.1, largest=2.0, every=5)
    options = {"learning_rate": 0.3, "generator": KEY, "clip_norms": rule}
    whole = descend(X, Y, plan, **options)
    first = Descent(X, Y, plan, **options)
    while first.step < plan.steps // 2 + 1:
        first.advance(1)
    tensors, meta = first.state()
    while first.step < plan.steps:
        first.advance()  # what was kept must not change with the run
    second = Descent(X, Y, plan, **options)
    second.restore(tensors, meta)
    while second.step < plan.steps:
        second.advance()
    assert np.array_equal(second.result, whole) and np.array_equal(first.result, whole)
    assert second.found == first.found


def test_callbacks_see_what_would_be_returned():
    seen = []
    plan = plan_of(steps=6)
    options = {"learning_rate": 0.3, "generator": KEY}
    result = descend(X, Y, plan, **options, callback=lambda t, w: seen.append((t, w)))
    assert [t for t, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert np.array_equal(seen[-1][1], result)
    iterates = slowly(plan, rate=0.3)
    np.testing.assert_allclose(seen[1][1], iterates[2])
    np.testing.assert_allclose(seen[4][1], iterates[3:5].mean(0))


def test_secure_runs_differ():
    plan = plan_of()
    a, b = (descend(X, Y, plan, learning_rate=0.3) for _ in range(2))
    assert not np.array_equal(a, b)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"direction": "newton"}, "direction is"),
        ({"average": "median"}, "average is"),
        ({"radius": -1.0}, "radius"),
        ({"start": np.zeros(2)}, "start must hold 3"),
        ({"X": X[:, 0]}, "X is a table"),
        ({"y": Y[:-1]}, "one number for each"),
        ({"plan": plan_of(n=10)}, "the plan is for 10 records"),
        ({"plan": plan_of(unit="user")}, "record by record"),
        ({"plan": plan_of(noise=None)}, "no noise multiplier"),
        (
            {
                "plan": plan_of(OnePass(5), apart=(GaussianRelease(1.0),)),
                "clip_norms": BlockThreshold(5, factor=1.0, smallest=1.0, largest=4.0, mu=1.0),
            },
            "leaves none to learn from",
        ),
        (
            {"clip_norms": BlockThreshold(5, factor=1.0, smallest=1.0, largest=4.0, mu=1.0)},
            "the plan pays for none",
        ),
        (
            {
                "plan": plan_of(OnePass(20), steps=3, apart=(GaussianRelease(0.1),)),
                "clip_norms": BlockThreshold(5, factor=1.0, smallest=1.0, largest=4.0, mu=1.0),
            },
            "thresholds of 1-GDP are released",
        ),
    ],
)
def test_what_cannot_run_is_refused(options, words):
    given = {"X": X, "y": Y, "plan": plan_of(), "learning_rate": 0.1, "generator": KEY} | options
    with pytest.raises(PlanError, match=words):
        descend(**given)


def test_rules_that_mean_nothing_are_refused():
    with pytest.raises(PlanError, match="clip norm"):
        Constant(0.0)
    with pytest.raises(PlanError, match="public data are"):
        PublicThreshold(X, Y[:3], factor=1.0, smallest=0.1, largest=1.0)
    with pytest.raises(PlanError, match="largest threshold"):
        PublicThreshold(X, Y, factor=1.0, smallest=1.0, largest=1.0)
    rule = PublicThreshold(X[:, :2], Y, factor=1.0, smallest=0.1, largest=1.0)
    with pytest.raises(PlanError, match="public records have 2 features"):
        descend(X, Y, plan_of(), learning_rate=0.1, clip_norms=rule)


def test_a_finished_or_foreign_run_does_not_resume():
    plan = plan_of(steps=1)
    descent = Descent(X, Y, plan, learning_rate=0.1, generator=KEY)
    descent.advance()
    with pytest.raises(PlanError, match="all 1 steps"):
        descent.advance()
    other = Descent(X, Y, plan_of(steps=2), learning_rate=0.1, generator=KEY)
    with pytest.raises(PlanError, match="another plan"):
        other.restore(*descent.state())
    rows = NoiseRows(Tree(), KEY, 2, 5)
    with pytest.raises(StateError, match="does not fit"):
        rows.restore(1, {"buffers": torch.zeros(3, 7)})
