"""The laws of every mechanism. A new one joins by one line in ``MECHANISMS``."""

import copy
import math
import pickle
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from oracles.sensitivity import brute_force
from oracles.streams import dense, stream, white

from antiphon.errors import StateError, UnsupportedError
from antiphon.mechanisms import (
    BLT,
    FFT,
    AbstractMechanism,
    Banded,
    BandedInverse,
    Dense,
    FullHonaker,
    Honaker,
    Independent,
    LambdaCGD,
    NuFTRL,
    Restarted,
    Tree,
    Workload,
    from_json,
    to_json,
)
from antiphon.participation import (
    AbstractParticipation,
    FixedEpochs,
    MinSeparation,
    Once,
    Patterns,
    Reshuffled,
)

SIGNED = np.tril(np.random.default_rng(1).normal(size=(12, 12))) + 2 * np.eye(12)

MECHANISMS: dict[str, AbstractMechanism] = {
    "independent": Independent(),
    "λ = 0": LambdaCGD(0.0),
    "λ = 0.9": LambdaCGD(0.9),
    "λ = 1": LambdaCGD(1.0),
    "ν = 0": NuFTRL(0.0),
    "ν = 0.05": NuFTRL(0.05),
    "banded": Banded((1.0, 0.5, 0.25)),
    "banded, one band": Banded((2.0,)),
    "banded, signed": Banded((-1.5, 0.5, 0.0, 0.4)),
    "banded, longer than T": Banded.square_root(bands=20),
    "banded inverse": BandedInverse((1.0, -0.6, 0.1)),
    "banded inverse, growing": BandedInverse((1.0, -2.0)),
    "banded inverse, signed": BandedInverse((2.0, 0.6, -0.3, 0.2)),
    "blt": BLT((0.3, 0.2), (0.9, 0.4)),
    "blt, increasing": BLT((0.9, 0.8), (0.95, 0.3)),
    "blt, signed": BLT((0.5, -0.7), (0.9, 0.6)),
    "blt, no buffers": BLT((), ()),
    "buffered ν": NuFTRL(0.01).buffered(12, buffers=3),
    "tree": Tree(),
    "honaker": Honaker(),
    "full honaker": FullHonaker(),
    "fft": FFT(),
    "dense": Dense(SIGNED),
    "dense, non-negative": Dense(np.abs(SIGNED)),
    "restarted": Restarted(NuFTRL(0.0), 3),
    "restarted, signed": Restarted(Banded((1.0, -0.5, 0.3)), 2),
    "restarted tree": Restarted(Tree(), 2),
    "restarted twice": Restarted(Restarted(LambdaCGD(0.8), 2), 2),
}

# Those whose encoder for T steps is the leading block of the one for more steps.
GROWING = [name for name, m in MECHANISMS.items() if not isinstance(m, Honaker | FFT | Restarted)]

PARTICIPATIONS: dict[str, AbstractParticipation] = {
    repr(p): p
    for p in (
        Once(),
        MinSeparation(1, 3),
        MinSeparation(2, 1),
        MinSeparation(2, 5),
        MinSeparation(3, 2),
        MinSeparation(8, 1),
        FixedEpochs(1, 9),
        FixedEpochs(2, 3),
        FixedEpochs(2, 7),
        FixedEpochs(4, 2),
        Reshuffled(1, 8),
        Reshuffled(2, 4),
        Reshuffled(3, 3),
        Reshuffled(4, 2),
        Patterns(((0, 1, 2), (2, 5, 7), (6,))),
        Patterns(((0, 3, 4, 7),)),
    )
}

WORKLOADS = {
    "prefix sums": lambda T: Workload(),
    "momentum": lambda T: Workload(momentum=0.9),
    "schedule": lambda T: Workload(0.5, tuple(np.linspace(1.0, 0.05, T))),
}

every = pytest.mark.parametrize("name", MECHANISMS)
every_length = pytest.mark.parametrize(
    ("name", "T"),
    [
        (name, T)
        for name, mechanism in MECHANISMS.items()
        for T in (1, 2, 5, 12)
        if T >= 4 or not isinstance(mechanism, Restarted)  # no fewer steps than blocks
    ],
)


@every_length
def test_encoder_is_lower_triangular_and_decoder_its_inverse(name, T):
    C, B = MECHANISMS[name].encoder(T), MECHANISMS[name].decoder(T)
    assert C.shape == (T, T)
    assert not np.triu(C, 1).any()
    np.testing.assert_allclose(C @ B, np.eye(T), atol=1e-10)
    np.testing.assert_array_equal(np.triu(B, 1), 0.0)


@every_length
@pytest.mark.parametrize("donate", [False, True])
def test_streaming_noise_equals_dense_noise(name, T, donate):
    mechanism, z = MECHANISMS[name], white(T, 2, 3)
    actual = stream(mechanism, z, T, donate)
    torch.testing.assert_close(actual, dense(mechanism, z), rtol=1e-11, atol=1e-11)


@every
def test_streaming_fewer_than_the_planned_steps_gives_the_same_rows(name, T=12):
    mechanism, z = MECHANISMS[name], white(T, 3)
    assert torch.equal(stream(mechanism, z[:7], T), stream(mechanism, z, T)[:7])


@every
def test_several_tensors_get_the_noise_of_each(name, T=9):
    mechanism = MECHANISMS[name]
    parts = [white(T, 4), white(T, seed=1), white(T, 2, 0, seed=2), white(T, 3, 2, seed=3).float()]
    state = mechanism.init([part[0] for part in parts], T)
    for t in range(T):
        noise, state = mechanism.correlate([part[t] for part in parts], state)
        assert [x.dtype for x in noise] == [part.dtype for part in parts]
        for x, part in zip(noise, parts, strict=True):
            assert torch.equal(x, stream(mechanism, part[: t + 1], T)[t])


@every
@pytest.mark.parametrize("donate", [False, True])
def test_strides_do_not_change_the_noise(name, donate, T=9):
    mechanism, z = MECHANISMS[name], white(T, 2, 3, 2)
    views = [row.contiguous(memory_format=torch.preserve_format).transpose(0, 2) for row in z]
    wide = [torch.stack([row, row], -1)[..., 0] for row in z]
    expected = stream(mechanism, z, T)
    state, other = mechanism.init(views[0], T), mechanism.init(z[0], T)
    for row, view, gaps in zip(expected, views, wide, strict=True):
        x, state = mechanism.correlate(view.clone(), state, donate=donate)
        y, other = mechanism.correlate(gaps, other, donate=donate)
        assert torch.equal(x.transpose(0, 2), row)
        assert torch.equal(y, row)


@every
def test_what_a_donated_step_returned_may_be_overwritten(name, T=12):
    # A run adds the gradients to it in place; a mechanism that kept it would add them to later noise.
    mechanism, z = MECHANISMS[name], white(T, 3)
    expected, state = stream(mechanism, z, T), mechanism.init(z[0], T)
    for row, white_row in zip(expected, z, strict=True):
        x, state = mechanism.correlate(white_row.clone(), state, donate=True)
        assert torch.equal(x, row)
        x.fill_(torch.nan)


@every
def test_correlate_changes_neither_the_white_noise_nor_the_state(name, T=9):
    mechanism, z = MECHANISMS[name], white(T, 3)
    before, state = z.clone(), mechanism.init(z[0], T)
    for row in z:
        kept = copy.deepcopy(state.buffers)
        first, _ = mechanism.correlate(row, state)
        again, after = mechanism.correlate(row, state)
        assert torch.equal(first, again)
        assert all(
            torch.equal(a, b)
            for one, other in zip(kept, state.buffers, strict=True)
            for a, b in zip(one, other, strict=True)
        )
        state = after
    assert torch.equal(z, before)


@every
@pytest.mark.parametrize("donate", [False, True])
def test_scaling_noise_in_place_changes_no_later_noise(name, donate, T=9):
    mechanism, z = MECHANISMS[name], white(T, 3)
    given, state, scaled = z.clone(), mechanism.init(z[0], T), []
    for row in given:
        x, state = mechanism.correlate(row, state, donate=donate)
        scaled.append(x.mul_(3.0).clone())
    assert torch.equal(torch.stack(scaled), 3 * stream(mechanism, z, T))
    assert donate or torch.equal(given, z)


@every
def test_overwriting_the_white_noise_afterwards_changes_no_later_noise(name, T=9):
    mechanism, z = MECHANISMS[name], white(T, 3)
    buffer, state = torch.empty(3).double(), mechanism.init(z[0], T)
    for row, expected in zip(z, stream(mechanism, z, T), strict=True):
        x, state = mechanism.correlate(buffer.copy_(row), state)
        buffer.fill_(torch.nan)
        assert torch.equal(x, expected)


@every
def test_donating_gives_the_same_bits(name, T=12):
    z = white(T, 5).float()
    kept, donated = (stream(MECHANISMS[name], z, T, donate) for donate in (False, True))
    assert torch.equal(kept, donated)


@pytest.mark.parametrize(
    "mechanism",
    [
        LambdaCGD(1.0),
        Banded.square_root(bands=4),
        BandedInverse((1.0, -0.5, -0.25)),
        NuFTRL(0.0).buffered(10_000),
        Tree(),
        Restarted(Tree(), 7),
    ],
    ids=["λ = 1", "banded", "banded inverse", "buffered ν", "tree", "restarted"],
)
def test_ten_thousand_steps_in_single_precision_stay_close_to_double(mechanism, T=10_000):
    z = white(T, 3).float()
    both = list(zip(z, z.double(), strict=True))
    state, rows = mechanism.init(both[0], T), []
    for pair in both:
        noise, state = mechanism.correlate(pair, state, donate=True)
        rows.append([x.double() for x in noise])
    single, double = (torch.stack(column) for column in zip(*rows, strict=True))
    for a, b in ((single, double), (single.cumsum(0), double.cumsum(0))):
        assert (a - b).norm() <= 1e-4 * b.norm()


@every_length
@pytest.mark.parametrize("workload", WORKLOADS)
def test_errors_are_the_row_norms_of_the_dense_product(name, T, workload):
    mechanism, A = MECHANISMS[name], WORKLOADS[workload](T)
    expected = np.linalg.norm(A.matrix(T) @ mechanism.decoder(T), axis=1)
    np.testing.assert_allclose(mechanism.errors(T, A), expected, rtol=1e-9)
    assert mechanism.error(T, "max", A) == pytest.approx(expected.max())
    assert mechanism.error(T, workload=A) == pytest.approx(np.sqrt(np.mean(expected**2)))


@every
@pytest.mark.parametrize("under", PARTICIPATIONS)
def test_sensitivity_is_safe_and_attained_where_it_says_so(name, under, T=8):
    mechanism, participation = MECHANISMS[name], PARTICIPATIONS[under]
    found = brute_force(mechanism.encoder(T), participation)
    claimed = mechanism.sensitivity(T, participation)
    assert claimed >= found * (1 - 1e-12)
    if claimed.is_exact:
        assert claimed == pytest.approx(found, rel=1e-9)


@every
def test_loss_is_sensitivity_times_error(name, T=8):
    mechanism, seen = MECHANISMS[name], MinSeparation(2, 3)
    expected = mechanism.sensitivity(T, seen) * mechanism.error(T, "max")
    assert mechanism.loss(T, seen, "max") == pytest.approx(expected)


@pytest.mark.parametrize("name", GROWING)
def test_more_steps_never_lower_the_sensitivity(name):
    for participation in (Once(), MinSeparation(2, 2), FixedEpochs(2, 3), Patterns(((0, 2, 3),))):
        values = [MECHANISMS[name].sensitivity(T, participation) for T in range(4, 13)]
        # A bound may fall where the truth does not.
        exact = [value for value in values if value.is_exact]
        assert exact == sorted(exact)


@every
def test_more_participations_or_a_shorter_distance_never_lower_the_sensitivity(name, T=12):
    mechanism = MECHANISMS[name]
    for family in (MinSeparation, FixedEpochs):
        by_times = [mechanism.sensitivity(T, family(times, 3)) for times in (1, 2, 3, 4)]
        assert all(b >= a * (1 - 1e-12) for a, b in pairwise(by_times))
    by_distance = [mechanism.sensitivity(T, MinSeparation(3, apart)) for apart in (5, 4, 3, 2, 1)]
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(by_distance))


@every
@pytest.mark.parametrize("under", [Once(), MinSeparation(3, 4), FixedEpochs(2, 1)], ids=repr)
def test_endlessly_many_steps_give_the_limit_or_are_refused(name, under, T=1500):
    mechanism = MECHANISMS[name]
    try:
        limit = mechanism.sensitivity(math.inf, under)
    except UnsupportedError as refusal:
        assert "endlessly many steps" in str(refusal) or "finite T" in str(refusal)
    else:
        assert limit.is_exact
        assert limit == pytest.approx(mechanism.sensitivity(T, under), rel=1e-9)


def test_endlessly_many_steps_are_answered_wherever_the_limit_is_known():
    known = [
        "independent",
        "λ = 0",
        "λ = 0.9",
        "ν = 0.05",
        "banded",
        "banded, signed",
        "banded inverse",
        "banded inverse, signed",
        "blt",
        "blt, increasing",
        "buffered ν",
    ]
    for name in known:
        assert MECHANISMS[name].sensitivity(math.inf, Once()) > 0


@every
def test_equal_values_are_equal_and_others_are_not(name):
    mechanism = MECHANISMS[name]
    twin = from_json(to_json(mechanism))
    assert twin == mechanism
    assert hash(twin) == hash(mechanism)
    assert mechanism != name


def test_no_two_of_these_mechanisms_are_equal():
    assert all(a != b for a, b in combinations(MECHANISMS.values(), 2))


@every
def test_json_keeps_every_digit(name, T=12):
    twin = from_json(to_json(MECHANISMS[name]))
    np.testing.assert_array_equal(twin.encoder(T), MECHANISMS[name].encoder(T))
    assert to_json(twin) == to_json(MECHANISMS[name])


@every
@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_and_pickles_of_mechanism_and_state_continue_with_the_same_noise(name, again, T=9):
    mechanism, z = MECHANISMS[name], white(T, 3)
    assert again(mechanism) == mechanism
    state = mechanism.init(z[0], T)
    noise = []
    for row in z:
        x, state = again(mechanism).correlate(row, again(state))
        noise.append(x)
    assert torch.equal(torch.stack(noise), stream(mechanism, z, T))
    value = mechanism.sensitivity(T, MinSeparation(2, 2))
    assert (again(value), again(value).is_exact) == (value, value.is_exact)


@every
def test_a_state_is_refused_where_it_does_not_belong(name, T=4):
    mechanism, z = MECHANISMS[name], white(T, 2, 3)
    state = mechanism.init(z[0], T)
    with pytest.raises(StateError, match="made by"):
        Banded((7.0, 1.0)).correlate(z[0], state)
    for wrong in (z[0].float(), z[0, 0], [z[0], z[0]], []):
        with pytest.raises(StateError, match="state is for noise of"):
            mechanism.correlate(wrong, state)
    for row in z:
        _, state = mechanism.correlate(row, state)
    with pytest.raises(StateError, match="all 4 steps"):
        mechanism.correlate(z[0], state)


@every
def test_a_state_knows_its_step_and_its_size(name, T=12):
    mechanism, z = MECHANISMS[name], white(T, 4)
    state = mechanism.init(z[0], T)
    for step, row in enumerate(z):
        assert state.step == step
        _, state = mechanism.correlate(row, state)
    buffers = [b for kept in state.buffers for b in kept]
    assert state.nbytes == 4 * 8 * len(buffers)
    assert len(buffers) <= T
