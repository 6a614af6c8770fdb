"""The attention that shows its projections computes what ``nn.MultiheadAttention`` does."""

import itertools

import pytest
import torch
from torch import nn

from antiphon.training.attention import attend
from antiphon.training.tape import Tape

B, T, S, D, H = 3, 4, 5, 6, 2
OPTIONS = {
    "plain": {},
    "no bias": {"bias": False},
    "other widths": {"kdim": 3, "vdim": 2},
    "sequence first": {"batch_first": False},
    "dropout in evaluation": {"dropout": 0.5},
}
CAUSAL = torch.triu(torch.ones(T, S, dtype=torch.bool), 1)
PADDING = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 1, 1, 1, 0]]) > 0
DRAW = torch.Generator().manual_seed(0)
MASKS = {
    "none": None,
    "bool": CAUSAL,
    "float": torch.randn(T, S, generator=DRAW),
    "bool by head": CAUSAL.expand(B * H, T, S),
    "float by head": torch.randn(B * H, T, S, generator=DRAW),
}
PADDINGS = {"none": None, "bool": PADDING, "float": torch.randn(B, S, generator=DRAW)}


def both(layer, inputs, **options):
    expected = layer(*inputs, **options)
    noted = []
    return expected, attend(layer, lambda i, o: noted.append((i, o)), *inputs, **options), noted


def inputs_of(options):
    widths = (D, options.get("kdim", D), options.get("vdim", D))
    made = [torch.randn(B, n, w) for n, w in zip((T, S, S), widths, strict=True)]
    return made if options.get("batch_first", True) else [x.transpose(0, 1) for x in made]


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize("name", OPTIONS)
def test_outputs_and_weights_are_those_of_torch(name):
    torch.manual_seed(0)
    options = {"batch_first": True, **OPTIONS[name]}
    layer = nn.MultiheadAttention(D, H, **options).eval()
    inputs = inputs_of(options)
    for mask, padding in itertools.product(MASKS.values(), PADDINGS.values()):
        for how in (
            {"need_weights": False},
            {"need_weights": True},
            {"need_weights": True, "average_attn_weights": False},
        ):
            with torch.enable_grad():
                expected, found, noted = both(
                    layer, inputs, attn_mask=mask, key_padding_mask=padding, **how
                )
            torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-5)
            if how["need_weights"]:
                torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=1e-5)
            else:
                assert found[1] is None and expected[1] is None
            (ins, outs) = noted[0]
            assert [len(t) for t in (*ins, *outs)] == [B] * 8


def test_dropout_drops_while_training():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(D, H, dropout=0.5, batch_first=True)
    x = torch.randn(B, T, D)
    for how in (True, False):
        first = attend(layer, lambda *_: None, x, x, x, need_weights=how)[0]
        assert not torch.equal(first, attend(layer, lambda *_: None, x, x, x, need_weights=how)[0])


def test_a_hint_without_a_mask_and_inputs_without_a_batch_are_refused():
    layer, x = nn.MultiheadAttention(D, H, batch_first=True), torch.randn(B, T, D)
    with pytest.raises(ValueError, match="attn_mask"):
        attend(layer, lambda *_: None, x, x, x, is_causal=True)
    with pytest.raises(ValueError, match="needs a batch"):
        attend(layer, lambda *_: None, x[0], x[0], x[0])
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    expected, found, _ = both(layer, (x, x, x), attn_mask=mask, is_causal=True)
    torch.testing.assert_close(found[0], expected[0])


def test_the_tape_leaves_the_layer_as_it_was():
    model = nn.Sequential(nn.TransformerEncoderLayer(D, H, 8, batch_first=True, dropout=0.0))
    x = torch.randn(B, T, D)
    expected = model(x)
    tape = Tape(model, list(model.parameters()))
    assert "forward" in vars(model[0].self_attn)
    torch.testing.assert_close(model(x), expected)
    tape.detach()
    assert "forward" not in vars(model[0].self_attn)
    torch.testing.assert_close(model(x), expected)
