"""The best of each family: targets of the specification, gradients, and lower bounds that hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from antiphon.errors import PlanError, UnsupportedError
from antiphon.mechanisms import (
    BLT,
    PREFIX_SUMS,
    Banded,
    Dense,
    FullHonaker,
    Independent,
    LambdaCGD,
    NuFTRL,
    Restarted,
    Tree,
    Workload,
    lower_bound,
    optimize,
)
from antiphon.mechanisms.optimization.best_blt import _log_loss
from antiphon.mechanisms.optimization.dual import Dual, prefix_bound
from antiphon.mechanisms.optimization.objective import SquaredError, squared_sensitivity
from antiphon.participation import FixedEpochs, MinSeparation, Once, Patterns, Reshuffled

SCHEDULE = Workload(0.5, tuple(np.linspace(1.0, 0.1, 24)))
WORKLOADS = {"prefix sums": PREFIX_SUMS, "momentum": Workload(0.9), "schedule": SCHEDULE}


@pytest.mark.parametrize("kind", ["rms", "max"])
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_the_squared_error_and_its_gradient_are_those_of_the_dense_matrices(kind, workload):
    mechanism = Banded((1.0, 0.4, -0.1, 0.2))
    beta = mechanism.inverse_column(24)
    form = SquaredError(24, kind, workload)
    value, gradient = form(beta)
    assert value == pytest.approx(mechanism.error(24, kind, workload) ** 2)
    numeric = approx_fprime(beta, lambda b: form(b)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4 * np.abs(numeric).max())


def test_the_squared_sensitivity_and_its_gradient_are_those_of_the_pattern():
    c = np.array([1.0, 0.6, 0.3, 0.3, 0.1, 0.05])
    pattern = (0, 2, 3)
    value, gradient = squared_sensitivity(c, pattern)
    C = Banded(tuple(c)).encoder(6)
    assert value == pytest.approx(np.linalg.norm(C[:, pattern].sum(1)) ** 2)
    numeric = approx_fprime(c, lambda x: squared_sensitivity(x, pattern)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "options", "target"),
    [
        ("nu-ftrl", {}, 22.2929),
        ("banded", {"bands": 100}, 20.21),
        ("blt", {"buffers": 2}, 21.38),
        ("blt", {}, 21.38),
    ],
)
def test_acceptance_dp_ftrl_the_best_for_twenty_epochs_is_at_or_below_its_target(
    family, options, target
):
    seen = FixedEpochs(20, 100)
    found = optimize(family, 2000, seen, **options)
    assert found.loss <= target
    assert found.loss == pytest.approx(found.mechanism.loss(2000, seen), rel=1e-12)
    assert found.mechanism.sensitivity(2000, seen).is_exact
    assert found.bound < found.loss
    assert found.gap == pytest.approx(found.loss / found.bound - 1)


@pytest.mark.parametrize(
    ("T", "participation", "nu", "loss"),
    [
        (2000, FixedEpochs(20, 100), 3.711e-3, 22.2928),
        (2000, Once(), 3.7075e-4, 3.2794459),
        (2052, FixedEpochs(6, 342), 1.614e-3, 9.4773788),
        (256, Once(), 0.003018, 2.625587),
        (1024, Once(), 0.000732, 3.066351),
        (10_000, Once(), 7.26e-5, None),
    ],
)
def test_acceptance_dp_ftrl_11_the_best_nu_and_its_loss(T, participation, nu, loss):
    found = optimize("nu-ftrl", T, participation)
    assert found.mechanism.nu == pytest.approx(nu, rel=1e-2)
    if loss is not None:
        assert found.loss == pytest.approx(loss, rel=2e-6)


def test_acceptance_dp_ftrl_11_optimal_cc_is_sensitivity_times_rms_error():
    assert NuFTRL(0.0).sensitivity(2000, Once()) == pytest.approx(1.8669972, abs=1e-7)
    assert NuFTRL(0.0).error(2000) == pytest.approx(1.7798438, abs=1e-7)
    assert NuFTRL(0.0).loss(2000, Once()) == pytest.approx(3.3229634, abs=1e-7)


def test_acceptance_dp_ftrl_12_the_optimal_dense_mechanism_at_256_steps():
    found = optimize("dense", 256, Once())
    assert found.loss == pytest.approx(2.524414, rel=2.5e-4)
    assert found.bound == pytest.approx(2.524414, abs=1e-5)
    assert found.bound <= 2.5244144158 + 1e-9  # the optimum, from the dual solved to 1e-12
    assert optimize("nu-ftrl", 256, Once()).loss > found.loss


@pytest.mark.slow
def test_acceptance_dp_ftrl_12_the_optimal_dense_mechanism_at_1024_steps():
    found = optimize("dense", 1024, Once())
    assert found.loss == pytest.approx(2.955452, rel=2.5e-4)
    assert found.gap < 3e-4


@pytest.mark.slow
def test_acceptance_dp_ftrl_the_dense_multi_epoch_mechanism_beats_its_target():
    seen = FixedEpochs(20, 100)
    found = optimize("dense", 2000, seen)
    assert found.loss < 20.2
    assert found.gap < 1e-2
    assert found.mechanism.sensitivity(2000, seen).is_exact


def test_the_dense_multi_epoch_mechanism_meets_its_lower_bound():
    seen = FixedEpochs(4, 12)
    found = optimize("dense", 48, seen)
    assert found.gap < 3e-4
    assert found.mechanism.sensitivity(48, seen).is_exact
    assert found.loss < optimize("banded", 48, seen, bands=12).loss


def test_an_incomplete_last_epoch_is_allowed():
    found = optimize("dense", 45, FixedEpochs(4, 12))
    assert found.gap < 3e-4


def test_the_dense_mechanism_for_the_largest_error_meets_its_lower_bound():
    found = optimize("dense", 40, Once(), kind="max")
    assert found.gap < 3e-4
    assert found.loss < optimize("dense", 40, Once()).mechanism.loss(40, Once(), kind="max")


@pytest.mark.parametrize("workload", [Workload(0.9), Workload(0.0, tuple(np.linspace(1, 0.1, 40)))])
def test_other_workloads_have_their_own_best_mechanism(workload):
    found = optimize("dense", 40, Once(), workload=workload)
    plain = optimize("dense", 40, Once()).mechanism
    assert found.gap < 3e-4
    assert found.loss < plain.loss(40, Once(), workload=workload)
    for family in ("banded", "blt", "nu-ftrl", "lambda-cgd"):
        other = optimize(family, 40, Once(), workload=workload)
        assert found.bound <= other.loss
        assert other.loss <= Independent().loss(40, Once(), workload=workload) + 1e-12


def test_participations_only_known_to_be_apart_get_a_banded_encoder():
    seen = MinSeparation(4, 12)
    found = optimize("dense", 48, seen)
    start = optimize("banded", 48, seen, bands=12)
    assert not np.triu(found.mechanism.C, 1).any()
    assert not np.tril(found.mechanism.C, -12).any()
    assert found.mechanism.sensitivity(48, seen) == pytest.approx(2.0)
    assert found.mechanism.sensitivity(48, seen).is_exact
    assert found.loss < start.loss
    assert found.bound <= found.loss


def test_bands_wider_than_the_separation_stay_decreasing_and_exact():
    seen = MinSeparation(5, 8)
    found = optimize("banded", 40, seen, bands=20)
    assert (np.diff(found.mechanism.coef) <= 0).all()
    assert found.mechanism.sensitivity(40, seen).is_exact
    assert found.loss <= optimize("banded", 40, seen, bands=8).loss * (1 + 1e-6)


@pytest.mark.parametrize("seen", [Reshuffled(4, 10), Patterns(((0, 3, 20), (5, 6, 39), (1, 2)))])
@pytest.mark.parametrize("family", ["banded", "blt", "nu-ftrl", "lambda-cgd"])
def test_patterns_that_depend_on_the_mechanism_are_answered(family, seen):
    found = optimize(family, 40, seen)
    assert found.loss == pytest.approx(found.mechanism.loss(40, seen))
    assert found.bound <= found.loss
    assert found.loss <= Banded.square_root(40).loss(40, seen) * 1.05


def test_the_best_lambda_is_between_independent_noise_and_anti_pgd():
    found = optimize("lambda-cgd", 200, FixedEpochs(4, 50))
    assert 0.5 < found.mechanism.lam < 1
    for lam in (0.0, found.mechanism.lam - 0.01, found.mechanism.lam + 0.01, 1.0):
        assert found.loss <= LambdaCGD(lam).loss(200, FixedEpochs(4, 50))


@given(
    st.integers(1, 4),
    st.integers(2, 6),
    st.sampled_from(["rms", "max"]),
    st.lists(st.floats(-1, 1), min_size=1, max_size=6),
)
def test_no_mechanism_passes_below_the_lower_bound(times, apart, kind, tail):
    T, seen = times * apart, FixedEpochs(times, apart)
    some = Banded((1.0, *tail))
    others = [
        Independent(),
        NuFTRL(0.1),
        Tree(),
        FullHonaker(),
        LambdaCGD(0.7),
        Restarted(NuFTRL(0.0), 2),
    ]
    for near in (some, others[1]):
        bound = lower_bound(T, seen, kind, near=near)
        for mechanism in (some, *others):
            assert bound <= mechanism.loss(T, seen, kind) * (1 + 1e-9)


def test_the_dual_bound_has_the_gradient_it_claims():
    rng = np.random.default_rng(3)
    for kind in ("rms", "max"):
        dual = Dual(np.tril(np.ones((9, 9))), [(0, 3, 6), (1, 4, 7), (2, 5, 8)], kind)
        point = rng.normal(size=3 + 3 * 9 + (9 if kind == "max" else 0))
        numeric = approx_fprime(point, lambda x, d=dual: np.log(d.at(x).bound), 1e-7)
        np.testing.assert_allclose(dual.at(point).gradient, numeric, rtol=1e-4, atol=1e-6)


def test_the_closed_form_of_the_prefix_bound_is_a_nuclear_norm():
    A = np.tril(np.ones((30, 30)))
    nuclear = np.linalg.svd(A, compute_uv=False).sum()
    assert prefix_bound(30, 10) == pytest.approx(nuclear / np.sqrt(10 * 30))


def test_the_blt_objective_is_the_log_of_the_squared_loss_and_has_the_gradient_it_claims():
    seen = FixedEpochs(3, 20)
    mechanism = BLT((0.3, 0.1), (0.6, 0.99))
    point = np.log([*mechanism.scales, *(-np.log(mechanism.decays))])
    error = SquaredError(60, "rms", PREFIX_SUMS)

    def objective(p):
        return _log_loss(p, 2, 60, error, seen.densest(60))

    value, gradient = objective(point)
    assert value == pytest.approx(2 * np.log(mechanism.loss(60, seen)))
    numeric = approx_fprime(point, lambda p: objective(p)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dens", 10, Once()), "family is one of"),
        (("dense", 0, Once()), "at least 1"),
        (("dense", 10, FixedEpochs(3, 5)), "need at least 11 steps"),
    ],
)
def test_bad_questions_are_refused(arguments, message):
    with pytest.raises(PlanError, match=message):
        optimize(*arguments)


def test_bad_options_are_refused():
    with pytest.raises(PlanError, match="bands must be at least 1"):
        optimize("banded", 10, Once(), bands=0)
    with pytest.raises(PlanError, match="buffers must be at least 1"):
        optimize("blt", 10, Once(), buffers=0)
    with pytest.raises(PlanError, match="24 learning rates for 10 steps"):
        optimize("banded", 10, Once(), workload=SCHEDULE)


@pytest.mark.parametrize(
    ("seen", "workload", "message"),
    [
        (Reshuffled(2, 5), None, "reshuffled every epoch"),
        (FixedEpochs(2, 3), None, "patterns overlap"),
        (Patterns(((0, 1), (1, 2))), None, "patterns overlap"),
        (Once(), Workload(0.0, (1.0,) * 9 + (0.0,)), "positive learning rate"),
    ],
)
def test_a_dense_mechanism_that_is_not_known_is_refused(seen, workload, message):
    with pytest.raises(UnsupportedError, match=message):
        optimize("dense", 10, seen, workload=workload)


def test_disjoint_listed_patterns_have_a_best_dense_mechanism():
    found = optimize("dense", 9, Patterns(((0, 5, 7), (1, 2), (3, 4, 8), (6,))))
    assert isinstance(found.mechanism, Dense)
    assert found.gap < 1e-3


def test_a_step_without_participants_needs_no_noise_and_lowers_the_bound():
    seen = Patterns(((0, 2),))
    bound = lower_bound(4, seen, near=NuFTRL(0.0))
    # Hardly any noise in steps 1 and 3, where nothing is to be hidden.
    hidden = Dense(np.diag([1.0, 1e6, 1.0, 1e6]) @ LambdaCGD(0.5).encoder(4))
    quiet = min(Dense(np.diag([1.0, 1e6, 1.0, 1e6])).loss(4, seen), hidden.loss(4, seen))
    assert bound <= quiet
    assert quiet < lower_bound(4, FixedEpochs(2, 2), near=NuFTRL(0.0))
    with pytest.raises(UnsupportedError, match="leave out steps"):
        optimize("dense", 4, seen)
