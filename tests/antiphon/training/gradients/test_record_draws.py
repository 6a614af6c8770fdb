import math
import random
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from torch import distributions, nn
from torch.func import grad, vmap
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from antiphon.errors import RunError, UnsupportedError
from antiphon.training.gradients.global_generators import python_seeds
from antiphon.training.gradients.record_draws import _ANSWERS, RecordDraws, _answer_to

KEY = bytes(range(32))
STEP = 3
IDS = torch.tensor([5, 2, 9, -7, 2**40])
GENERATOR = torch.Generator()
FALSE_ALARMS = 1e-6  # of each statistical test, had its seed not been fixed

CONSTANT = torch.linspace(0.1, 0.9, 12).view(3, 4)


def have_moved(mark):
    """Whether torch has drawn; type checks in tests draw from Python's own generator."""
    return not torch.equal(mark, torch.default_generator.get_state())


OPERATIONS = {
    "rand": lambda v: torch.rand(3, generator=GENERATOR),
    "rand scalar": lambda v: torch.rand(()),
    "rand double": lambda v: torch.rand(5, 2, dtype=torch.float64),
    "rand half": lambda v: torch.rand(5, dtype=torch.half),
    "rand empty": lambda v: torch.rand(0, 2),
    "rand_like": lambda v: torch.rand_like(v),
    "rand_like of a constant": lambda v: torch.rand_like(CONSTANT.T),
    "randn": lambda v: torch.randn(7),
    "randn_like": lambda v: torch.randn_like(v, dtype=torch.bfloat16),
    "randint": lambda v: torch.randint(5, (3,)),
    "randint low": lambda v: torch.randint(-2, 5, (3,), dtype=torch.float32),
    "randint wide": lambda v: torch.randint(-(2**63), 2**63 - 1, (3,)),
    "randint_like": lambda v: torch.randint_like(v, 5),
    "randint_like low": lambda v: torch.randint_like(v, -5, 5, dtype=torch.int8),
    "randperm": lambda v: torch.randperm(9, generator=GENERATOR),
    "randperm of nothing": lambda v: torch.randperm(0),
    "uniform_": lambda v: v.clone().uniform_(2, 3, generator=GENERATOR),
    "uniform_ transposed": lambda v: v.clone().T.uniform_(2, 3),
    "normal_": lambda v: v.clone().normal_(2, 3),
    "exponential_": lambda v: v.clone().exponential_(2),
    "log_normal_": lambda v: v.clone().log_normal_(),
    "cauchy_": lambda v: v.clone().cauchy_(),
    "geometric_": lambda v: v.long().geometric_(0.2),
    "random_": lambda v: v.clone().random_(),
    "random_ to": lambda v: v.clone().random_(9),
    "random_ from": lambda v: v.long().random_(2, 9),
    "random_ of all": lambda v: v.long().random_(-(2**63), None),
    "random_ of bytes": lambda v: v.byte().random_(),
    "random_ of truth values": lambda v: v.bool().random_(),
    "bernoulli": lambda v: torch.bernoulli(v),
    "bernoulli of a constant": lambda v: torch.bernoulli(CONSTANT),
    "bernoulli p": lambda v: torch.bernoulli(v, 0.3),
    "bernoulli_": lambda v: v.bool().bernoulli_(0.3),
    "bernoulli_ tensor": lambda v: v.clone().bernoulli_(v[0]),
    "bernoulli_ constant": lambda v: v.int().bernoulli_(CONSTANT[0]),
    "normal of numbers": lambda v: torch.normal(2.0, 3.0, (4,)),
    "normal of means": lambda v: torch.normal(v, 2.0),
    "normal of deviations": lambda v: torch.normal(2.0, v),
    "normal of both": lambda v: torch.normal(v[0], CONSTANT),
    "normal of constants": lambda v: torch.normal(CONSTANT, CONSTANT),
    "poisson": lambda v: torch.poisson(30 * v),
    "poisson of a constant": lambda v: torch.poisson(30 * CONSTANT, GENERATOR),
    "binomial": lambda v: torch.binomial(torch.full_like(v, 9.0), v[0]),
    "gamma": lambda v: torch._standard_gamma(v),
    "dirichlet": lambda v: torch._sample_dirichlet(v),
    "multinomial": lambda v: torch.multinomial(v, 2),
    "multinomial of a row": lambda v: torch.multinomial(v[0], 9, replacement=True),
    "multinomial of a constant": lambda v: torch.multinomial(CONSTANT, 9, replacement=True),
    "native_dropout": lambda v: torch.native_dropout(v, 0.3, True)[0],
    "dropout": lambda v: F.dropout(v),
    "dropout of a constant": lambda v: F.dropout(CONSTANT),
    "dropout1d": lambda v: F.dropout1d(v[None]),
    "dropout2d": lambda v: F.dropout2d(v[None, None]),
    "dropout3d": lambda v: F.dropout3d(v[None, None]),
    "alpha_dropout": lambda v: F.alpha_dropout(v, training=True),
    "feature_alpha_dropout": lambda v: F.feature_alpha_dropout(v[None], training=True),
    "drop path": lambda v: v * v.new_empty(3, 1).bernoulli_(0.5).div_(0.5),
    "categorical": lambda v: distributions.Categorical(v, validate_args=False).sample(),
    "gradient": lambda v: grad(lambda w: (w * torch.randn_like(w)).sum())(v),
    "inner vmap": lambda v: vmap(lambda w: F.dropout(w) * torch.rand(()), randomness="different")(
        v
    ),
    "same inner draws": lambda v: vmap(lambda w: w * torch.rand(()), randomness="same")(v),
    "inner permutations": lambda v: vmap(lambda w: torch.randperm(4), randomness="different")(v),
    "inference mode": lambda v: torch.inference_mode()(lambda: F.dropout(v) + torch.rand(3, 4))(),
    "several": lambda v: F.dropout(v) + torch.rand(4) + torch.randperm(4) + torch.randn(3, 1),
}


def examples(n=5):
    return torch.rand(n, 3, 4, generator=torch.Generator().manual_seed(0)) * 0.8 + 0.1


def together(f, v, ids=IDS, step=STEP, key=KEY, in_dims=0):
    with RecordDraws(key, step, ids):
        return vmap(f, in_dims=in_dims, randomness="different")(v)


def alone(f, v, record, step=STEP, key=KEY):
    with RecordDraws(key, step, int(record)):
        return f(v)


def equal_bits(one, other):
    return torch.equal(one, other) and one.dtype == other.dtype


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_record_draws_the_same_alone_and_in_any_batch(name):
    f, v = OPERATIONS[name], examples()
    state, mark = GENERATOR.get_state(), torch.default_generator.get_state()
    rows = together(f, v)
    assert len({str(row.tolist()) for row in rows}) > 1 or not rows.numel()
    for row, example, record in zip(rows, v, IDS, strict=True):
        assert equal_bits(row, alone(f, example, record))
    assert equal_bits(together(f, v[[3, 0]], IDS[[3, 0]]), rows[[3, 0]])
    assert equal_bits(together(f, v.movedim(0, -1).contiguous(), in_dims=2), rows)
    assert torch.equal(GENERATOR.get_state(), state)
    assert not have_moved(mark)


@pytest.mark.parametrize("name", OPERATIONS)
def test_another_step_key_or_record_draws_other_numbers(name):
    f = OPERATIONS[name]
    v = examples(1).expand(40, 3, 4)
    ids = torch.arange(40)
    rows = [
        together(f, v, ids),
        together(f, v, ids, step=STEP + 1),
        together(f, v, ids, key=bytes(32)),
        together(f, v, ids + 40),
    ]
    if rows[0].numel():
        assert len({str(r.tolist()) for r in rows}) == 4


def test_the_second_draw_of_an_evaluation_is_another_one():
    for f in (torch.rand, torch.randn, torch.randperm):
        one, two = alone(lambda _, f=f: (f(40), f(40)), None, 1)
        assert not torch.equal(one, two)


DETERMINISTIC = ("rand empty", "randperm of nothing", "inference mode", "several")
LIKE_TORCH = {name: f for name, f in OPERATIONS.items() if name not in DETERMINISTIC}


@pytest.mark.parametrize("name", LIKE_TORCH)
def test_operations_have_the_laws_of_torch(name):
    """A two-sample Kolmogorov-Smirnov test, which is conservative for discrete laws."""
    f, v = LIKE_TORCH[name], examples(1).expand(3000, 3, 4)
    with python_seeds(KEY, 0, None):
        try:
            expected = vmap(f, randomness="different")(v)
        except RuntimeError:
            expected = torch.stack([f(v[0].clone()) for _ in range(3000)])
    found = together(f, v, torch.arange(3000))
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    pairs = zip(found.reshape(3000, -1).T, expected.reshape(3000, -1).T, strict=True)
    for one, other in list(pairs)[:2]:
        assert stats.ks_2samp(one.double(), other.double(), method="asymp").pvalue > FALSE_ALARMS


def test_a_law_of_another_scale_would_be_noticed():
    ids, v = torch.arange(3000), torch.empty(3000)
    with python_seeds(KEY, 0, None):
        expected = torch.normal(2.0, 3.0, (3000,))
    for std, is_same in ((3.0, True), (4.5, False)):
        found = together(lambda _, std=std: torch.normal(2.0, std, ()), v, ids)
        same = stats.ks_2samp(found, expected, method="asymp").pvalue > FALSE_ALARMS
        assert same == is_same


class Seen(TorchDispatchMode):
    """Notes the random operations that reach a mode."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if torch.Tag.nondeterministic_seeded in func.tags:
            name = str(func).removesuffix(".default")
            self.names.add(name.replace("_generator", "").replace(".generator", ""))
        return func(*args, **(kwargs or {}))


def test_every_answer_is_to_an_operation_that_the_tests_call():
    with Seen() as seen:
        for f in OPERATIONS.values():
            f(examples(1)[0])
    assert set(_ANSWERS) <= seen.names


def tagged():
    for schema in torch._C._jit_get_all_schemas():
        packet = getattr(
            getattr(torch.ops, schema.name.split("::")[0]), schema.name.split("::")[1], None
        )
        func = getattr(packet, schema.overload_name or "default", None)
        if func is not None and torch.Tag.nondeterministic_seeded in func.tags:
            yield func


def test_every_random_operation_of_torch_is_answered_composed_or_refused():
    kinds = {}
    for func in tagged():
        kinds.setdefault(getattr(_answer_to(func), "__name__", None), []).append(func)
    assert kinds[None] == [torch.ops.aten._fused_sdp_choice.default]
    assert {str(func.overloadpacket) for func in kinds["_decomposed"]} >= {
        f"aten.{name}" for name in ("dropout", "alpha_dropout", "lstm", "gru", "rrelu")
    }
    for func in kinds["_refused"]:
        with pytest.raises(UnsupportedError, match=str(func)):
            _answer_to(func)(RecordDraws(KEY, STEP, 1), func)
    names = {str(func) for func in kinds["_refused"]}
    assert {"aten.rand.out", "aten.uniform.default", "aten.randint_like.Tensor"} <= names


def test_an_operation_without_a_rule_is_refused_by_name_in_both_forms():
    for context in (RecordDraws(KEY, STEP, IDS), RecordDraws(KEY, STEP, 1)):
        with context, pytest.raises(UnsupportedError, match=r"aten\.rand\.out"):
            torch.rand(3, out=torch.empty(3))
        with context, pytest.raises(UnsupportedError, match=r"aten\.randint_like\.Tensor"):
            torch.randint_like(torch.ones(3), torch.tensor(3))


def test_fused_attention_passes_without_dropout_and_is_refused_with_it():
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    q = torch.rand(1, 2, 6, 8)
    with RecordDraws(KEY, STEP, 1):
        assert torch.equal(fused(q, q, q)[0], fused(q, q, q, 0.0)[0])
        for arguments in ((0.3,), {"dropout_p": 0.3}):
            given = arguments if isinstance(arguments, tuple) else ()
            named = arguments if isinstance(arguments, dict) else {}
            with pytest.raises(UnsupportedError, match="flash_attention_for_cpu"):
                fused(q, q, q, *given, **named)


WRONG = {
    "bernoulli_": lambda v: v.bernoulli_(1.5),
    "bernoulli_ of no number": lambda v: v.bernoulli_(math.nan),
    "bernoulli": lambda v: torch.bernoulli(v + 1),
    "uniform_": lambda v: v.uniform_(3, 2),
    "normal_": lambda v: v.normal_(0, -1),
    "exponential_": lambda v: v.exponential_(0),
    "geometric_": lambda v: v.geometric_(1.0),
    "log_normal_": lambda v: v.log_normal_(0, -1),
    "cauchy_": lambda v: v.cauchy_(0, -1),
    "random_": lambda v: v.random_(3, 3),
    "random_ of bytes": lambda v: v.byte().random_(0, 300),
    "randint": lambda v: torch.randint(0, (3,)),
    "rand of integers": lambda v: torch.rand(3, dtype=torch.int64),
    "poisson": lambda v: torch.poisson(-v),
    "multinomial": lambda v: torch.multinomial(-v, 1),
    "multinomial of too many": lambda v: torch.multinomial(v, 5),
    "native_dropout": lambda v: torch.native_dropout(v, 2.0, True),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_torch_refuses_is_refused_in_its_words(name):
    with python_seeds(KEY, 0, None), pytest.raises(RuntimeError) as expected:
        WRONG[name](examples(1)[0])
    mark = torch.default_generator.get_state()
    with pytest.raises(RuntimeError) as found:
        alone(WRONG[name], examples(1)[0], 1)
    assert str(found.value) == str(expected.value)
    assert not have_moved(mark)


def test_draws_outside_of_the_vmapped_function_are_refused():
    for f in (
        lambda: torch.rand(3),
        lambda: torch.rand(()),
        lambda: torch.randperm(4) + torch.rand(5),
    ):
        with RecordDraws(KEY, STEP, IDS), pytest.raises(RunError, match="inside the loss"):
            f()


# Laws at their ends


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float32, torch.float64])
def test_uniform_numbers_of_every_type_stay_below_1(dtype):
    u = alone(lambda _: torch.rand(200_000, dtype=dtype), None, 1)
    assert u.dtype == dtype
    assert u.min() >= 0
    assert u.max() < 1


def test_coins_of_probability_0_and_1_are_certain():
    for p in (0.0, 1.0):
        coins = alone(lambda _, p=p: torch.empty(4, 1000).bernoulli_(p), None, 1)
        assert (coins == p).all()
        tossed = alone(lambda _, p=p: torch.bernoulli(torch.full((1000,), p)), None, 1)
        assert (tossed == p).all()
    assert (alone(lambda v: torch.native_dropout(v, 1.0, True)[0], examples(1), 1) == 0).all()


def test_native_dropout_does_nothing_outside_of_training():
    v = examples(1)
    kept, mask = alone(lambda v: torch.native_dropout(v, 0.5, False), v, 1)
    assert torch.equal(kept, v)
    assert mask.all()


def test_permutations_and_samples_without_replacement_have_no_repeats():
    assert alone(lambda _: torch.randperm(1000), None, 1).sort().values.equal(torch.arange(1000))
    weights = torch.tensor([0.0, 1.0, 0.0, 3.0, 2.0])
    rows = alone(lambda w: torch.multinomial(w.expand(500, 5), 3), weights, 1)
    assert rows.sort().values.equal(torch.tensor([1, 3, 4]).expand(500, 3))
    again = alone(lambda w: torch.multinomial(w, 5000, replacement=True), weights, 1)
    assert set(again.tolist()) == {1, 3, 4}


# Modules


class Rsample(nn.Module):
    def forward(self, v):
        return distributions.Normal(v, v.exp(), validate_args=False).rsample()


class Attention(nn.Module):
    def forward(self, v):
        return F.scaled_dot_product_attention(v, v, v, dropout_p=0.3, is_causal=True)


class SelfAttention(nn.MultiheadAttention):
    def forward(self, v):
        mixed, weights = super().forward(v, v, v, need_weights=self.shows)
        return mixed + weights.sum(-1, keepdim=True) if self.shows else mixed


def self_attention(shows):
    module = SelfAttention(8, 2, dropout=0.3, batch_first=True)
    module.shows = shows
    return module


MODULES = {
    "dropout": lambda: nn.Dropout(0.3),
    "dropout2d": lambda: nn.Sequential(nn.Conv1d(6, 4, 3), nn.Dropout1d(0.5)),
    "alpha": lambda: nn.AlphaDropout(0.3),
    "gumbel": lambda: F.gumbel_softmax,
    "attention": Attention,
    "self-attention": lambda: self_attention(shows=False),
    "weights of self-attention": lambda: self_attention(shows=True),
    "encoder layer": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_in_training_mode_do_the_same_alone_and_in_any_batch(name):
    torch.manual_seed(0)
    module = MODULES[name]()
    if isinstance(module, nn.Module):
        module.double().train().requires_grad_(False)
    x = torch.randn(5, 1, 6, 8, dtype=torch.float64)
    rows = together(module, x)
    for row, example, record in zip(rows, x, IDS, strict=True):
        torch.testing.assert_close(row, alone(module, example, record))
    torch.testing.assert_close(together(module, x[1:], IDS[1:]), rows[1:])
    one, other = together(module, x[:1].expand(2, 1, 6, 8), IDS[:2])
    assert not torch.allclose(one, other)


def test_a_recurrent_network_draws_its_dropout_from_the_record():
    torch.manual_seed(0)
    network, x = nn.LSTM(4, 5, num_layers=3, dropout=0.5), torch.randn(3, 4)
    runs = [alone(lambda v: network(v)[0], x, record) for record in (1, 1, 2)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.allclose(runs[0], runs[2])


# Autograd


def gradients_of_taps(f, x):
    """Per-example gradients as the training core takes them, and the outputs."""
    taps = torch.zeros((), dtype=x.dtype).expand(x.shape).detach().requires_grad_()
    with RecordDraws(KEY, STEP, IDS):
        out = vmap(lambda v, tap: f(v + tap), randomness="different")(x, taps)
    return out, torch.autograd.grad(out.sum(), taps)[0]


DIFFERENTIABLE = {
    "dropout": F.dropout,
    "native_dropout": lambda v: torch.native_dropout(v, 0.3, True)[0],
    "alpha_dropout": partial(F.alpha_dropout, training=True),
    "gumbel": F.gumbel_softmax,
    "gamma": lambda v: torch._standard_gamma(v.abs()),
    "attention": lambda v: F.scaled_dot_product_attention(v[None], v[None], v[None], dropout_p=0.4),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_those_of_the_numbers_drawn_in_the_forward_pass(name):
    torch.manual_seed(0)
    f, x = DIFFERENTIABLE[name], torch.randn(5, 3, 4, dtype=torch.float64)
    out, gradients = gradients_of_taps(f, x)
    assert not torch.equal(gradients[0], gradients[1])
    for i, record in enumerate(IDS):
        v = x[i].clone().requires_grad_()
        single = alone(f, v, record)
        torch.testing.assert_close(single, out[i])
        torch.testing.assert_close(torch.autograd.grad(single.sum(), v)[0], gradients[i])
    if name != "gamma":  # whose gradient belongs to another way of drawing the same law
        for place in ((0, 0), (2, 3)):
            shift = torch.zeros(3, 4, dtype=torch.float64)
            shift[place] = 1e-6
            ahead, behind = (alone(f, x[0] + s, IDS[0]).sum() for s in (shift, -shift))
            slope = (ahead - behind) / 2e-6
            torch.testing.assert_close(slope, gradients[0][place], rtol=1e-5, atol=1e-6)


def test_the_gradient_of_dropout_is_its_mask():
    out, gradients = gradients_of_taps(partial(F.dropout, p=0.25), torch.ones(5, 3, 4))
    assert set(out.unique().tolist()) == {0.0, torch.tensor(4 / 3).item()}
    assert torch.equal(gradients, out)


def test_a_draw_in_place_counts_as_one_change_of_the_tensor():
    tensor = torch.zeros(3)
    view, version = tensor[1:], tensor._version
    alone(lambda _: view.uniform_(), None, 1)
    assert tensor._version == version + 1
    assert tensor[0] == 0
    assert (tensor[1:] > 0).all()


# Tensors that vmap does not batch


def test_draws_into_what_shares_memory_are_refused_by_torch():
    def into_a_view(v):
        whole = torch.zeros(4)
        whole[:2].normal_()
        return whole

    def into_data(v):
        whole = torch.zeros(4)
        whole.data.normal_()
        return whole

    def into_an_array(v):
        whole = np.zeros(4, np.float32)
        torch.from_numpy(whole).normal_()
        return v

    for f in (into_a_view, into_data, into_an_array):
        with pytest.raises(RuntimeError, match="inplace randomness on an unbatched tensor"):
            together(f, examples())


def test_a_vmap_that_draws_the_same_for_all_examples_is_refused():
    v = examples()
    with RecordDraws(KEY, STEP, IDS), pytest.raises(RunError):
        vmap(lambda v: v + torch.rand(4), randomness="same")(v)


def test_other_modes_may_surround_the_draws():
    class Silent(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    f = OPERATIONS["drop path"]
    with Silent():
        assert torch.equal(together(f, examples()), together(f, examples()))


# Global generators


def numbers():
    return torch.rand(1).item(), np.random.random(), np.random.normal(), random.random()  # noqa: NPY002


def test_global_generators_are_set_from_key_step_and_record_and_put_back():
    torch.manual_seed(1), np.random.seed(1), random.seed(1)  # noqa: NPY002
    numbers(), random.gauss(0, 1)  # NumPy and Python now keep a second normal number each
    before = torch.get_rng_state(), str(np.random.get_state()), random.getstate()  # noqa: NPY002

    def drawn(key=KEY, step=1, record=2):
        with python_seeds(key, step, record):
            return numbers()

    assert drawn() == drawn()
    places = [{}, {"key": bytes(32)}, {"step": 2}, {"record": 1}, {"record": None}, {"record": -2}]
    found = [drawn(**place) for place in places]
    for column in zip(*found, strict=True):
        assert len(set(column)) == len(places)
    with pytest.raises(ZeroDivisionError), python_seeds(KEY, 1, 2) as seed:
        numbers()
        seed(None)
        assert numbers() == drawn(record=None)
        seed(2)
        assert numbers() == drawn()
        _ = 1 / 0
    after = torch.get_rng_state(), str(np.random.get_state()), random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_a_mark_shows_whether_torch_has_drawn():
    with python_seeds(KEY, 0, None):
        for draw in (lambda: torch.rand(1), lambda: torch.randn(1), lambda: torch.randperm(3)):
            mark = torch.default_generator.get_state()
            assert not have_moved(mark)
            draw()
            assert have_moved(mark)
