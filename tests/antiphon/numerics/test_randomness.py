"""Statistical tests use fixed seeds: they pass or fail for good. The false-alarm rate that each one
states is the share of keys for which a perfect generator would fail it."""

import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from itertools import pairwise

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from oracles.normals import point, uniform
from scipy import stats

from antiphon.errors import PlanError
from antiphon.numerics import Generator
from antiphon.numerics.randomness import _natural

SIGMAS = 5.0  # a normal is farther out with probability 5.7e-7
P_VALUE = 1e-6


def draw(*shape, seed=0, step=0, dtype=torch.float32):
    return Generator.seeded(seed).normal(torch.empty(shape, dtype=dtype), step)


def word(key, domain, step, index, position):
    """One word of the key stream, from the layout alone: no counter mode, no chunks."""
    block, offset = divmod(position * 8, 16)
    counter = f"{domain:08b}{step:040b}{index:032b}{block:048b}"
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    stream = cipher.update(int(counter, 2).to_bytes(16, "big"))
    return int.from_bytes(stream[offset : offset + 8], "little", signed=True)


def tail(key, step, index, position):
    """The 128 further bits of a small word of a radius."""
    group, within = divmod(position, 512)
    pair = 256 * group + within % 256
    low, high = (word(key, 3, step, index, 2 * pair + half) % 2**64 for half in (0, 1))
    return high << 64 | low


def normal(key, step, index, position):
    """One normal, by the formulas of the docstrings."""
    group, within = divmod(position, 512)
    pair = 512 * group + within % 256
    v, w = (word(key, 1, step, index, p) for p in (pair, pair + 256))
    u = uniform(v, tail(key, step, index, position))
    return math.sqrt(-2 * math.log(u)) * point(w)[within // 256]


# The map from key and address to number


def test_first_numbers_of_seed_0_are_those_of_the_format():
    generator = Generator.seeded(0)
    double = [-0.9635667848764045, 0.20375236376727737]
    assert draw(2, dtype=torch.float64).tolist() == double  # bit for bit, on every platform
    assert draw(512, dtype=torch.float64)[[256, 511]].tolist() == [
        0.2984146287462128,
        0.3179481192654764,
    ]
    far = draw(1_100_000, dtype=torch.float64)[[1055348, 1055604]]  # with further bits
    assert far.tolist() == [5.658731988596634, -0.5046865430522833]
    assert generator.words(3, step=0).tolist() == [
        -6729474151458779043,
        5101925522901635669,
        -8621232903794873731,
    ]


@given(
    st.integers(0, 2**40 - 1),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 255, 256, 511, 512, 1300, 70_000, 270_000]),
)
def test_every_number_is_the_one_at_its_address(step, index, position):
    generator = Generator.seeded(2**128 - 1)
    key = generator._key
    z = generator.normal(torch.empty(position + 1, dtype=torch.float64), step, index=index)
    expected = normal(key, step, index, position)
    assert z[position].item() == pytest.approx(expected, rel=0, abs=1e-12)
    words = generator.words(position + 1, step)
    assert words[position] == word(key, 2, step, 0, position)


def test_small_words_get_the_bits_at_their_own_address(monkeypatch):
    """All words of radii are cut to two bits, so that the further ones decide on most digits."""
    real = Generator._write_key_stream

    def small(self, counter, out):
        real(self, counter, out)
        if counter >> 120 == 1:
            words = np.frombuffer(out, np.int64, len(out) // 8)
            for start in range(0, len(words) // 512 * 512, 512):
                words[start : start + 256] &= 3

    monkeypatch.setattr(Generator, "_write_key_stream", small)
    key, step, index = Generator.seeded(6)._key, 2**40 - 1, 2**32 - 1
    for shape in ((1000,), (70_000,), (35_000, 2)):
        z = torch.zeros(shape, dtype=torch.float64)
        z = (
            Generator.seeded(6)
            .normal_(z if len(shape) == 1 else z.t(), step, index=index)
            .flatten()
        )
        for position in (0, 255, 256, 511, 512, 999, *([] if len(z) == 1000 else [32_768, 69_999])):
            first = position // 512 * 512 + position % 256
            v, w = (word(key, 1, step, index, p) for p in (first, first + 256))
            u = uniform(v & 3, tail(key, step, index, position))
            expected = math.sqrt(-2 * math.log(u)) * point(w)[position // 256 % 2]
            assert z[position].item() == pytest.approx(expected, rel=1e-14)


def test_no_two_draws_share_a_block_of_key_stream(monkeypatch):
    ranges = []

    def noted(self, counter, out):
        ranges.append((counter, counter + len(out) // 16))
        words = np.frombuffer(out, np.uint64, count=len(out) // 8)
        words[:] = 2**63
        words[::1000] = 0  # words so small that they are followed by a block of the tails

    monkeypatch.setattr(Generator, "_write_key_stream", noted)
    generator = Generator.seeded(0)
    like = [torch.empty(n, dtype=t) for n in (1, 700_000) for t in (torch.float32, torch.float64)]
    for step in (0, 1, 2**40 - 1):
        generator.normal(like, step)
        generator.words(100, step)
    generator.normal(like[0], 1, index=2**32 - 1)
    ranges.sort()
    assert len(ranges) > 30
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


def test_the_order_of_draws_changes_nothing():
    generator = Generator.seeded(3)
    like = torch.empty(1000)
    forwards = [generator.normal(like, step) for step in range(10)]
    backwards = [generator.normal(like, step) for step in reversed(range(10))]
    assert all(map(torch.equal, forwards, reversed(backwards)))


def test_a_number_does_not_depend_on_the_size_of_its_tensor():
    z = draw(600_000)
    assert all(torch.equal(draw(n), z[:n]) for n in (1, 10, 257, 513, 99_999, 262_144, 262_145))


def test_generators_that_take_turns_do_not_disturb_each_other():
    alone = {seed: Generator.seeded(seed).words(1001, 5) for seed in range(7)}
    for seed in (0, 1, 0, 2, 3, 4, 5, 6, 0, 0):  # more keys than a thread keeps ready
        generator = Generator.seeded(seed)
        assert torch.equal(generator.words(3, 5), alone[seed][:3])  # ends within a block
        assert torch.equal(generator.words(1001, 5), alone[seed])


def test_one_tensor_of_a_list_can_be_drawn_without_the_others():
    generator = Generator.seeded(4)
    like = [torch.empty(3), torch.empty(300_000), torch.empty(2, 5, dtype=torch.float64)]
    z = generator.normal(like, step=9)
    for index, tensor in enumerate(like):
        assert torch.equal(generator.normal(tensor, 9, index=index), z[index])
    assert torch.equal(generator.normal(like[1:], 9, index=1)[0], z[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_and_two_torch_threads_give_the_same_numbers(dtype):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = draw(1_000_003, dtype=dtype)
        torch.set_num_threads(2)
        assert torch.equal(draw(1_000_003, dtype=dtype), one)
    finally:
        torch.set_num_threads(before)


def test_threads_that_draw_at_the_same_time_do_not_disturb_each_other():
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda step: draw(400_000, step=step), range(8)))
    assert all(torch.equal(z, draw(400_000, step=step)) for step, z in enumerate(together))


@pytest.mark.parametrize("mode", [torch.inference_mode, lambda: torch.device("meta")])
def test_a_thread_that_first_draws_in_a_special_mode_draws_the_same(mode):
    like = torch.empty(10)

    def first_and_second():
        generator = Generator.seeded(0)
        with mode():
            first = generator.normal(like, 0), generator.words(3, 0)
        return first, (generator.normal(like, 0), generator.words(3, 0))

    with ThreadPoolExecutor(1) as pool:
        for pair in pool.submit(first_and_second).result():
            assert torch.equal(pair[0], draw(10))
            assert torch.equal(pair[1], Generator.seeded(0).words(3, 0))


# Shapes, types, strides


def test_the_result_has_the_form_of_what_was_given():
    generator = Generator.seeded(0)
    a, b = torch.empty(2, 3), torch.empty(4)
    assert isinstance(generator.normal(a, 0), torch.Tensor)
    for form in (list, tuple):
        z = generator.normal(form([a, b]), 0)
        assert type(z) is form
        assert [x.shape for x in z] == [a.shape, b.shape]
        assert torch.equal(z[0], generator.normal(a, 0))
        assert generator.normal(form([]), 0) == form([])


def test_scalars_and_empty_tensors_are_tensors_too():
    assert draw().shape == ()
    assert draw() == draw(5)[0]
    assert draw(0).shape == (0,)
    assert draw(3, 0, 2).shape == (3, 0, 2)


VIEWS = {
    "transposed": lambda: torch.zeros(700, 900).t(),
    "every other column": lambda: torch.zeros(900, 1400)[:, ::2],
    "one column": lambda: torch.zeros(600_000, 2)[:, 1],
    "two long rows": lambda: torch.zeros(300_000, 2).t(),
    "permuted": lambda: torch.zeros(7, 300, 200).permute(2, 0, 1),
    "channels last": lambda: torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "small": lambda: torch.zeros(5, 4).t(),
    "double": lambda: torch.zeros(700, 900, dtype=torch.float64).t(),
    "half": lambda: torch.zeros(700, 900, dtype=torch.bfloat16).t(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_numbers_written_in_place_are_those_of_fresh_tensors_for_any_strides(name):
    out = VIEWS[name]()
    expected = draw(*out.shape, dtype=out.dtype)
    assert Generator.seeded(0).normal_(out, 0) is out
    assert torch.equal(out, expected)
    fresh = Generator.seeded(0).normal(out, 0)
    assert torch.equal(fresh, expected)
    assert fresh.data_ptr() != out.data_ptr()


def test_memory_beside_a_view_is_left_alone():
    base = torch.full((100, 100), 7.0)
    Generator.seeded(0).normal_(base[10:20, ::3], 0)
    base[10:20, ::3] = 7.0
    assert (base == 7.0).all()


def test_a_tensor_whose_memory_is_not_aligned_gets_the_same_numbers():
    out = torch.frombuffer(bytearray(4001), dtype=torch.float32, offset=1)
    assert out.data_ptr() % 4 == 1
    assert torch.equal(Generator.seeded(0).normal_(out, 0), draw(1000))


def test_a_view_that_repeats_memory_is_refused():
    for size in (5, 40_000):
        with pytest.raises(PlanError, match="share memory"):
            Generator.seeded(0).normal_(torch.empty(size).expand(2, size), 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_shorter_numbers_are_rounded_float64_numbers(dtype):
    assert torch.equal(draw(100_000, dtype=dtype), draw(100_000, dtype=torch.float64).to(dtype))


def test_parameters_stay_parameters_and_their_noise_has_no_gradient():
    parameter = torch.nn.Parameter(torch.zeros(400_000))
    z = Generator.seeded(0).normal(parameter, 0)
    assert type(z) is torch.Tensor
    assert not z.requires_grad
    Generator.seeded(0).normal_([parameter], 0)
    assert parameter.requires_grad
    assert parameter.is_leaf
    assert torch.equal(parameter, z)


def test_overwriting_what_autograd_has_saved_is_noticed():
    x, weight = torch.ones(3, requires_grad=True), torch.ones(3)
    loss = (x * weight).sum()
    Generator.seeded(0).normal_(weight, 0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_tensors_of_another_device_get_numbers_there():
    assert Generator.seeded(0).normal(torch.empty(3, device="meta"), 0).device.type == "meta"


# The law of the numbers


def moment_errors(z):
    """Errors of the first four moments, in standard deviations."""
    powers = {1: (0, 1), 2: (1, 2), 3: (0, 15), 4: (3, 96)}  # mean and variance of z**k
    return [
        float((z**k).mean() - mean) * math.sqrt(z.numel() / variance)
        for k, (mean, variance) in powers.items()
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_four_moments_are_normal_and_a_scale_wrong_by_1_percent_is_rejected(dtype):
    """False-alarm rate 2.3e-6: four moments within 5 standard deviations."""
    z = draw(10_000_000, seed=1, dtype=dtype).double()
    assert max(map(abs, moment_errors(z))) < SIGMAS
    wrong = moment_errors(z * 1.01)
    assert abs(wrong[1]) > 2 * SIGMAS
    assert abs(wrong[3]) > 2 * SIGMAS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kolmogorov_smirnov_accepts_and_rejects_a_scale_wrong_by_1_percent(dtype):
    """False-alarm rate 1e-6."""
    z = draw(2_000_000, seed=2, dtype=dtype).double().numpy()
    assert stats.kstest(z, stats.norm.cdf).pvalue > P_VALUE
    assert stats.kstest(z * 1.01, stats.norm.cdf).pvalue < P_VALUE


def test_tails_to_5_sigma_are_normal_and_a_scale_wrong_by_5_percent_is_rejected():
    """False-alarm rate 4e-6: four binomial tests on 1e8 numbers."""
    generator, z, calls = Generator.seeded(3), torch.empty(4_000_000), 25
    right, wrong = dict.fromkeys((2, 3, 4, 5), 0), dict.fromkeys((2, 3, 4, 5), 0)
    for step in range(calls):
        size = generator.normal_(z, step).abs_()
        for k in right:
            right[k] += int((size > k).sum())
            wrong[k] += int((size > k / 1.05).sum())

    def p_value(k, count):
        return stats.binomtest(count, calls * z.numel(), 2 * stats.norm.sf(k)).pvalue

    assert right[5] > 20
    for k in right:
        assert p_value(k, right[k]) > P_VALUE
        assert p_value(k, wrong[k]) < P_VALUE


def correlated(a, b):
    """Whether a, b or their squares have a correlation 5 standard deviations from 0."""
    a, b = a.flatten().double(), b.flatten().double()
    pairs = ((a, b), (a**2, b**2), (a, b**2), (a**2, b))
    scores = [torch.corrcoef(torch.stack(pair))[0, 1] * math.sqrt(len(a)) for pair in pairs]
    return max(map(abs, scores)) > SIGMAS


PAIRS = {
    "keys": lambda g, x: (g.normal(x, 0), Generator.seeded(1).normal(x, 0)),
    "steps": lambda g, x: (g.normal(x, 0), g.normal(x, 1)),
    "tensors of a list": lambda g, x: g.normal((x, x), 0),
    "step and index": lambda g, x: (g.normal(x, 1), g.normal(x, 0, index=1)),
    "labels": lambda g, x: (g.spawn("noise").normal(x, 0), g.spawn("sampling").normal(x, 0)),
    "parent and child": lambda g, x: (g.normal(x, 0), g.spawn("noise").normal(x, 0)),
    "halves of a pair": lambda g, x: g.normal(x, 0).view(-1, 2, 256).unbind(1),
    "neighbours": lambda g, x: g.normal(x, 0).view(-1, 2).unbind(1),
    "chunks": lambda g, x: g.normal(x, 0).view(-1, 2, 2**18).unbind(1),
}


@pytest.mark.parametrize("name", PAIRS)
def test_no_correlation_between(name):
    """False-alarm rate 2.3e-6 for each pair; a correlation of 1 % would be found."""
    a, b = PAIRS[name](Generator.seeded(0), torch.empty(2**21))
    assert not correlated(a, b)
    assert correlated(a, b + 0.01 * a)


def test_words_have_uniform_bytes_and_a_missing_bit_is_found():
    """False-alarm rate 2e-6: a chi-square test with both tails."""
    words = Generator.seeded(5).words(1_000_000, step=0)

    def p_value(words):
        return stats.chisquare(words.view(torch.uint8).bincount(minlength=256).numpy()).pvalue

    assert words.dtype is torch.int64
    assert P_VALUE < p_value(words) < 1 - P_VALUE
    assert p_value(words & ~1) < P_VALUE
    assert len(words.unique()) == 1_000_000


# Generators as values


def test_a_seed_gives_one_generator_and_different_seeds_give_different_ones():
    seeds = [0, 1, 10, 16, 2**32, 2**64 + 1, 2**128 - 1, 2**300]
    assert len({Generator.seeded(seed) for seed in [*seeds, *seeds]}) == len(seeds)
    assert _natural("seed", np.int64(7)) == 7
    assert not Generator.seeded(0).is_secure


def test_two_secure_generators_differ():
    a, b = Generator.secure(), Generator.secure()
    assert a.is_secure
    assert a != b
    assert not torch.equal(a.words(2, 0), b.words(2, 0))


def test_equal_labels_spawn_equal_generators_and_keep_what_is_secure():
    for parent in (Generator.seeded(0), Generator.secure()):
        family = {parent, parent.spawn("noise"), parent.spawn("sampling"), parent.spawn("")}
        family.add(parent.spawn("noise").spawn("noise"))
        assert len(family) == 5
        assert parent.spawn("noise") == parent.spawn("noise")
        assert parent.spawn("noise").is_secure == parent.is_secure


def test_pickling_keeps_the_numbers():
    generator = Generator.secure()
    again = pickle.loads(pickle.dumps(generator))
    assert again == generator
    assert hash(again) == hash(generator)
    assert again.is_secure
    assert torch.equal(again.words(5, 3), generator.words(5, 3))


def test_what_is_printed_does_not_depend_on_the_key():
    assert repr(Generator.secure()) == str(Generator.secure()) == "<Generator: secure>"
    assert f"{Generator.seeded(1)}" == f"{Generator.seeded(2)!r}" == "<Generator: seeded>"


def test_a_generator_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Generator.seeded(0).is_secure = True


# Errors


@pytest.mark.parametrize("seed", [-1, True, 1.0, "0", None])
def test_a_seed_that_is_not_a_natural_number_is_refused(seed):
    with pytest.raises(PlanError, match=r"seed must be an integer of at least 0; got"):
        _natural("seed", seed)
    with pytest.raises((PlanError, TypeCheckError)):  # types are checked as well while testing
        Generator.seeded(seed)


def test_an_address_out_of_range_is_refused():
    generator, x = Generator.seeded(0), torch.empty(2)
    for step in (-1, 2**40, True):
        with pytest.raises(PlanError, match=r"step must be an integer in \[0, 2\*\*40\)"):
            generator.normal(x, step)
        with pytest.raises(PlanError, match="step must be"):
            generator.words(1, step)
    for index in (-1, 2**32):
        with pytest.raises(PlanError, match=r"index must be an integer in \[0, 2\*\*32\)"):
            generator.normal(x, 0, index=index)
    with pytest.raises(PlanError, match="index must be"):
        generator.normal([x, x], 0, index=2**32 - 1)
    for count in (-1, 2**48):
        with pytest.raises(PlanError, match=r"count must be an integer in \[0, 2\*\*48\)"):
            generator.words(count, 0)
    with pytest.raises(PlanError, match="the size of a tensor must be"):
        generator.normal(torch.empty(2**48, device="meta"), 0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_types_other_than_real_floats_are_refused(dtype):
    with pytest.raises(PlanError, match=rf"torch\.float32, .*got a tensor of {dtype}"):
        Generator.seeded(0).normal([torch.empty(2), torch.empty(2, dtype=dtype)], 0)


def test_sparse_tensors_are_refused():
    with pytest.raises(PlanError, match=r"dense tensors; got torch\.sparse_coo"):
        Generator.seeded(0).normal(torch.eye(3).to_sparse(), 0)


def test_nothing_is_written_if_a_later_tensor_is_refused():
    first = torch.zeros(5)
    with pytest.raises(PlanError):
        Generator.seeded(0).normal_([first, torch.zeros(5, dtype=torch.int32)], 0)
    assert (first == 0).all()
