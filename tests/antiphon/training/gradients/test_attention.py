"""Attention in linear maps computes what torch's own computes, alone and under ``vmap``."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from antiphon.training.gradients.attention import REPLACEMENTS, linear_rows

WIDTH, HEADS, QUERIES, KEYS = 6, 2, 4, 5


class Replacing(TorchFunctionMode):
    """Calls our functions in place of torch's; notes the functions and the arguments of linear maps."""

    def __init__(self):
        super().__init__()
        self.replaced, self.linears, self.rows = [], [], []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in REPLACEMENTS:
            self.replaced.append(func)
            with self:
                return REPLACEMENTS[func](*args, **(kwargs or {}))
        if func is F.linear:
            self.linears.append(args)
        if func is linear_rows:
            self.rows.append(args)
        return func(*args, **(kwargs or {}))


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def with_gradients(outputs, sources):
    """Outputs, and gradients of a sum over them in which no two entries weigh the same."""
    found = [x for x in outputs if x is not None]
    ramps = [torch.linspace(1, 2, x.numel(), dtype=x.dtype).view(x.shape) for x in found]
    total = sum((x * ramp).sum() for x, ramp in zip(found, ramps, strict=True))
    return found, torch.autograd.grad(total, sources)


def check_equal(call, sources):
    """The same values and gradients with our function, which was called in place of torch's."""
    torch.manual_seed(0)
    expected = with_gradients(call(), sources)
    torch.manual_seed(0)
    with Replacing() as mode:
        outputs = call()
    assert mode.replaced == [F.multi_head_attention_forward]
    torch.testing.assert_close(with_gradients(outputs, sources), expected, rtol=1e-10, atol=1e-10)


@st.composite
def attentions(draw):
    torch.manual_seed(draw(st.integers(0, 99)))
    options = {
        "bias": draw(st.booleans()),
        "add_bias_kv": draw(st.booleans()),
        "add_zero_attn": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "dropout": draw(st.sampled_from([0.0, 0.3])),
    }
    kind = draw(st.sampled_from(["self", "encoder-decoder", "different", "other widths"]))
    if kind == "other widths":
        options |= {"kdim": 3, "vdim": 2}
    layer = nn.MultiheadAttention(WIDTH, HEADS, **options).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)  # torch starts biases at zero
    return kind, layer.train(draw(st.booleans()))


def arguments(kind, layer, rows):
    """Query, key and value; ``rows`` is None for unbatched ones."""

    def sequence(length, width):
        shape = (length,) if rows is None else (length, rows)
        return drawn(*(shape[::-1] if layer.batch_first else shape), width)

    query = sequence(QUERIES, WIDTH)
    if kind == "self":
        return query, query, query
    key = sequence(KEYS, layer.kdim)
    return query, key, key if kind == "encoder-decoder" else sequence(KEYS, layer.vdim)


def mask(is_float, *shape):
    """Numbers to add, or Booleans that hide some keys, but never the first."""
    if is_float:
        return torch.randn(shape, dtype=torch.float64)
    hidden = torch.rand(shape) < 0.5
    hidden[..., 0] = False
    return hidden


@st.composite
def options(draw, kind, rows):
    """What a call may ask for: masks, causality, weights."""
    keys, is_float = QUERIES if kind == "self" else KEYS, draw(st.booleans())
    how = draw(st.sampled_from(["none", "mask", "mask by head", "causal"]))
    chosen = {"need_weights": draw(st.booleans()), "average_attn_weights": draw(st.booleans())}
    if how == "mask":
        chosen["attn_mask"] = mask(is_float, QUERIES, keys)
    if how == "mask by head":
        chosen["attn_mask"] = mask(is_float, (rows or 1) * HEADS, QUERIES, keys)
    if how == "causal":
        later = torch.ones(QUERIES, keys, dtype=torch.bool).triu(1)
        added = torch.zeros(QUERIES, keys).double().masked_fill(later, float("-inf"))
        chosen |= {"attn_mask": added if is_float else later, "is_causal": True}
    if draw(st.booleans()):
        chosen["key_padding_mask"] = mask(is_float, *([] if rows is None else [rows]), keys)
    return chosen


@settings(max_examples=300)
@given(attentions(), st.sampled_from([None, 1, 3]), st.data())
def test_attention_computes_what_torch_computes(made, rows, data):
    kind, layer = made
    inputs = arguments(kind, layer, rows)
    chosen = data.draw(options(kind, rows))
    sources = [*set(inputs), *layer.parameters()]
    check_equal(lambda: layer(*inputs, **chosen), sources)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("fixed", [{"static_k"}, {"static_v"}, {"static_k", "static_v"}])
def test_static_keys_and_values_are_taken_as_they_are(fixed, need_weights):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(WIDTH, HEADS).double()
    query, key = drawn(QUERIES, 3, WIDTH), drawn(KEYS, 3, WIDTH)
    statics = {name: drawn(3 * HEADS, KEYS, WIDTH // HEADS) for name in sorted(fixed)}
    weights = (layer.in_proj_weight, layer.in_proj_bias, None, None, True, 0.0)
    output = (layer.out_proj.weight, layer.out_proj.bias)
    named = {"need_weights": need_weights, "key_padding_mask": mask(False, 3, KEYS), **statics}

    def call():
        args = (query, key, key, WIDTH, HEADS, *weights, *output)
        return F.multi_head_attention_forward(*args, **named)

    check_equal(call, [query, *statics.values(), *layer.parameters()])


def check_vmapped(one, module, examples):
    """Under ``vmap``, as over a loop of torch's own: outputs, and gradients of the sum over examples."""
    sources = [*(x for x in examples if x.requires_grad), *module.parameters()]
    loop = torch.stack([one(*(x[i] for x in examples)) for i in range(len(examples[0]))])
    expected = with_gradients([loop], sources)
    with Replacing() as mode, sdpa_kernel(SDPBackend.MATH):
        found = vmap(one, randomness="different")(*examples)
    assert mode.replaced
    torch.testing.assert_close(with_gradients([found], sources), expected, rtol=1e-10, atol=1e-10)


@settings(max_examples=100)
@given(attentions(), st.data())
def test_attention_runs_under_vmap_as_example_by_example(made, data):
    kind, layer = made
    layer.dropout = 0.0
    inputs = [arguments(kind, layer, 1) for _ in range(3)]
    chosen = data.draw(options(kind, 1))
    distinct = {"self": 1, "encoder-decoder": 2}.get(kind, 3)
    examples = [torch.stack(rows).detach().requires_grad_() for rows in zip(*inputs, strict=True)]

    def one(*given):
        query, key, value = (*given, *[given[-1]] * 2)[:3]
        mixed, weights = layer(query, key, value, **chosen)
        return mixed.sum() if weights is None else mixed.sum() + weights.square().sum()

    check_vmapped(one, layer, examples[:distinct])


@pytest.mark.parametrize("is_float", [True, False])
def test_masks_may_differ_between_examples_under_vmap(is_float):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).double()

    def one(x, hidden, padding):
        return layer(x, x, x, attn_mask=hidden, key_padding_mask=padding, need_weights=False)[0]

    masks = mask(is_float, 3, QUERIES, QUERIES), mask(is_float, 3, 1, QUERIES)
    check_vmapped(one, layer, [drawn(3, 1, QUERIES, WIDTH), *masks])


TRANSFORMER = {"dim_feedforward": 8, "dropout": 0.0, "batch_first": True, "dtype": torch.float64}


@pytest.mark.parametrize("norm_first", [True, False])
def test_an_encoder_layer_runs_under_vmap_as_example_by_example(norm_first):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, norm_first=norm_first, **TRANSFORMER)
    padding = mask(False, 3, 1, QUERIES)
    examples = [drawn(3, 1, QUERIES, WIDTH), padding]
    check_vmapped(lambda x, hidden: layer(x, src_key_padding_mask=hidden), layer, examples)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_decoder_layer_runs_under_vmap_as_example_by_example(norm_first):
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, norm_first=norm_first, **TRANSFORMER)
    later = torch.ones(QUERIES, QUERIES, dtype=torch.bool).triu(1)
    examples = [drawn(3, 1, QUERIES, WIDTH), drawn(3, 1, KEYS, WIDTH)]
    check_vmapped(lambda x, memory: layer(x, memory, later, tgt_is_causal=True), layer, examples)


def test_a_transformer_runs_under_vmap_as_example_by_example():
    torch.manual_seed(0)
    model = nn.Transformer(WIDTH, HEADS, 2, 2, **TRANSFORMER)
    later = model.generate_square_subsequent_mask(QUERIES, dtype=torch.float64)
    examples = [drawn(3, 1, KEYS, WIDTH), drawn(3, 1, QUERIES, WIDTH)]
    check_vmapped(lambda source, x: model(source, x, tgt_mask=later), model, examples)


def seen_by_a_mode(layer, inputs):
    with Replacing() as mode:
        layer(*inputs, need_weights=False)
    return mode


@pytest.mark.parametrize("shape", [(QUERIES, WIDTH), (QUERIES, 3, WIDTH)])
def test_self_attention_is_two_linear_maps_with_the_very_parameters(shape):
    layer, x = nn.MultiheadAttention(WIDTH, HEADS), torch.randn(shape)
    mode = seen_by_a_mode(layer, (x, x, x))
    (first, *inside), (_, *last) = mode.linears
    assert first is x
    assert inside[0] is layer.in_proj_weight and inside[1] is layer.in_proj_bias
    assert last[0] is layer.out_proj.weight and last[1] is layer.out_proj.bias
    assert mode.rows == []


def test_separate_weights_reach_linear_maps_as_the_very_parameters():
    layer = nn.MultiheadAttention(WIDTH, HEADS, kdim=3, vdim=2)
    inputs = [torch.randn(QUERIES, 1, width) for width in (WIDTH, 3, 2)]
    mode = seen_by_a_mode(layer, inputs)
    wanted = [layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight, layer.out_proj.weight]
    assert [id(args[1]) for args in mode.linears] == [id(weight) for weight in wanted]


@pytest.mark.parametrize("is_shared", [True, False])
def test_other_attention_asks_for_rows_of_the_very_parameters(is_shared):
    layer = nn.MultiheadAttention(WIDTH, HEADS)
    query, key, value = torch.randn(3, QUERIES, 1, WIDTH)
    mode = seen_by_a_mode(layer, (query, key, key if is_shared else value))
    assert all(args[1] is layer.in_proj_weight for args in mode.rows)
    assert all(args[2] is layer.in_proj_bias for args in mode.rows)
    starts = [0, WIDTH] if is_shared else [0, WIDTH, 2 * WIDTH]
    assert [args[3:] for args in mode.rows] == list(
        zip(starts, [*starts[1:], 3 * WIDTH], strict=True)
    )
    assert [args[1] is layer.out_proj.weight for args in mode.linears].count(True) == 1


@pytest.mark.parametrize("bias", [None, drawn(6)])
def test_linear_rows_is_a_linear_map_of_those_rows(bias):
    x, weight = drawn(2, 3), drawn(6, 3)
    expected = F.linear(x, weight)[:, 2:5] + (0 if bias is None else bias[2:5])
    torch.testing.assert_close(linear_rows(x, weight, bias, 2, 5), expected)


X = torch.randn(QUERIES, 2, WIDTH)


@pytest.mark.parametrize(
    ("inputs", "named", "message"),
    [
        ((X[..., :4],) * 3, {}, "width"),
        ((X[None],) * 3, {}, "query"),
        ((X, X, X[1:]), {}, "as long as each other"),
        ((X, X[:, :1], X[:, :1]), {}, "as many rows"),
        ((X, X, X), {"attn_mask": torch.zeros(1, QUERIES)}, "attn_mask must have shape"),
        ((X, X, X), {"key_padding_mask": torch.zeros(1, QUERIES)}, r"must have shape \(2, 4\)"),
        ((X, X, X), {"attn_mask": torch.zeros(QUERIES, QUERIES).int()}, "boolean or of floating"),
        ((X, X, X), {"is_causal": True}, "needs attn_mask"),
        ((X, X, X), {"bias_k": X[:1, :1]}, "go together"),
        ((X, X, X), {"in_proj_weight": None}, "weight is missing"),
        ((X, X, X), {"use_separate_proj_weight": True}, "weight is missing"),
    ],
)
def test_what_torch_refuses_is_refused(inputs, named, message):
    layer = nn.MultiheadAttention(WIDTH, HEADS)
    given = {
        "embed_dim_to_check": WIDTH,
        "num_heads": HEADS,
        "in_proj_weight": layer.in_proj_weight,
        "in_proj_bias": layer.in_proj_bias,
        "bias_k": None,
        "bias_v": None,
        "add_zero_attn": False,
        "dropout_p": 0.0,
        "out_proj_weight": layer.out_proj.weight,
        "out_proj_bias": layer.out_proj.bias,
    }
    with pytest.raises((AssertionError, RuntimeError)):
        F.multi_head_attention_forward(*inputs, **given | named)
    with Replacing(), pytest.raises(ValueError, match=message):
        F.multi_head_attention_forward(*inputs, **given | named)
