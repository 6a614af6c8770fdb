"""Models of ``transformers``, and of ``peft``: gradients of a batch are those of its examples alone.

Without dropout they are compared with plain autograd outside of any evaluation; with dropout, with the
path that evaluates one example after another, which makes the same draws.
"""

import pytest
import torch

from antiphon.training.gradients.alone import Alone
from antiphon.training.gradients.batched import Batched
from antiphon.training.gradients.choice import choose
from antiphon.training.gradients.examples import Examples

transformers = pytest.importorskip("transformers")
# The libraries call each other by names of old.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

WORDS, LENGTH, IDS = 99, 7, [8, 3, 5]
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
GROUPED = SIZES | {"num_key_value_heads": 2, "attention_dropout": 0.1}
PICTURES = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_dropout_prob": 0.1,
    "patch_size": 4,
}  # fmt: skip


def words(length=LENGTH):
    return torch.randint(3, WORDS, (len(IDS), 1, length))


def padded():
    """Sentences of different lengths; the first has no padding."""
    mask = torch.ones(len(IDS), 1, LENGTH, dtype=torch.int64)
    for place in range(len(IDS)):
        mask[place, :, LENGTH - place :] = 0
    return {"input_ids": words(), "attention_mask": mask}


def sentences():
    return padded() | {"labels": torch.arange(len(IDS)).view(-1, 1) % 2}


def text():
    ids = words()
    return {"input_ids": ids, "labels": ids}


def padded_text():
    rows = padded()
    return rows | {"labels": rows["input_ids"].where(rows["attention_mask"] == 1, -100)}


def pairs():
    return padded() | {"labels": words(5)}


def pictures():
    return {
        "pixel_values": torch.randn(len(IDS), 1, 3, 16, 16),
        "labels": torch.arange(len(IDS)).view(-1, 1) % 2,
    }


# By name of the model: kind of head, sizes, and data.
MODELS = {
    "Bert": ("ForSequenceClassification", SIZES, sentences),
    "DistilBert": (
        "ForSequenceClassification",
        {"vocab_size": WORDS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
        sentences,
    ),
    "Roberta": ("ForSequenceClassification", SIZES, sentences),
    "GPT2": (
        "LMHeadModel",
        {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "eos_token_id": 1,
         "bos_token_id": 1},
        padded_text,
    ),
    "Llama": ("ForCausalLM", GROUPED, text),
    "Mistral": ("ForCausalLM", GROUPED | {"sliding_window": 3}, padded_text),
    "T5": (
        "ForConditionalGeneration",
        {"vocab_size": WORDS, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 48, "d_kv": 8,
         "decoder_start_token_id": 0, "pad_token_id": 0},
        pairs,
    ),
    "Bart": (
        "ForConditionalGeneration",
        {"vocab_size": WORDS, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
         "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
         "decoder_ffn_dim": 48, "max_position_embeddings": 40, "attention_dropout": 0.1},
        pairs,
    ),
    "ViT": (
        "ForImageClassification",
        {name: SIZES[name] for name in list(SIZES)[1:5]} | PICTURES | {"image_size": 16},
        pictures,
    ),
    "Swin": (
        "ForImageClassification",
        PICTURES | {"image_size": 16, "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4],
                    "window_size": 2},
        pictures,
    ),
    "Mixtral": ("ForCausalLM", GROUPED | {"num_local_experts": 4}, padded_text),
    "OPT": (
        "ForCausalLM",
        {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 48,
         "max_position_embeddings": 40, "num_attention_heads": 4, "word_embed_proj_dim": 32},
        padded_text,
    ),
}  # fmt: skip
# Further models, of which the rest of the library's are variants.
MORE = {
    "Albert": ("ForSequenceClassification", SIZES | {"embedding_size": 16}, sentences),
    "Electra": ("ForSequenceClassification", SIZES | {"embedding_size": 16}, sentences),
    "MPNet": ("ForSequenceClassification", SIZES | {"pad_token_id": 1}, sentences),
    "ModernBert": ("ForSequenceClassification", SIZES, sentences),
    "Qwen2": ("ForCausalLM", GROUPED, padded_text),
    "Qwen3": ("ForCausalLM", GROUPED | {"head_dim": 8}, padded_text),
    "Gemma2": ("ForCausalLM", GROUPED | {"head_dim": 8, "sliding_window": 3}, padded_text),
    "Phi": ("ForCausalLM", GROUPED, padded_text),
    "Falcon": ("ForCausalLM", SIZES | {"ffn_hidden_size": 48}, padded_text),
    "GPTNeoX": ("ForCausalLM", SIZES, padded_text),
    "Mamba": ("ForCausalLM", {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2,
                              "state_size": 4, "use_cache": False}, text),
    "ConvNext": ("ForImageClassification",
                 {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 2,
                  "image_size": 16}, pictures),
    "Whisper": (
        "ForConditionalGeneration",
        {"vocab_size": WORDS, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
         "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
         "decoder_ffn_dim": 48, "num_mel_bins": 8, "max_source_positions": 10,
         "max_target_positions": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "decoder_start_token_id": 1},
        lambda: {"input_features": torch.randn(len(IDS), 1, 8, 20), "labels": words(5)},
    ),
}  # fmt: skip

# It looks up where its mask is not zero.
VALUES = {"DebertaV2": ("ForSequenceClassification", SIZES, sentences)}
EAGER = {"ConvNext", "DebertaV2", "Gemma2", "Mamba", "MPNet"}  # they have nothing else


def made(name, attention="sdpa"):
    """A small model with weights of its own, and its data."""
    torch.manual_seed(0)
    head, sizes, data = (MODELS | MORE | VALUES)[name]
    config = getattr(transformers, f"{name}Config")(**sizes)
    config._attn_implementation = attention
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0
    return getattr(transformers, name + head)(config), data()


def loss(model, **batch):
    return model(**batch).loss


def trained(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def by_plain_autograd(model, examples):
    """Gradients of every example by parameter, with nothing of ours around."""
    named, rows = trained(model), []
    for place in range(len(IDS)):
        found = torch.autograd.grad(
            loss(model, **examples.one(place)[1]), list(named.values()), allow_unused=True
        )
        rows.append(
            [
                torch.zeros_like(p) if g is None else g
                for p, g in zip(named.values(), found, strict=True)
            ]
        )
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def in_turn(model, examples):
    path = Alone(model, loss, trained(model), bytes(32))
    rows = [path.gradients(2, record, examples, i) for i, record in enumerate(IDS)]
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def at_once(model, examples):
    named = trained(model)
    path = Batched(model, loss, named, bytes(32))
    _, factors = path.evaluate(2, torch.tensor(IDS), examples)
    return [
        factors[p].dense().view(len(IDS), *p.shape)
        if p in factors
        else p.new_zeros(len(IDS), *p.shape)
        for p in named.values()
    ]


def check_equal(names, found, expected):
    """To 1e-5 of each parameter's gradient, for every example.

    A gradient that is zero but for rounding, such as that of a bias of keys, is compared with the largest.
    """
    sizes = torch.stack([one.flatten(1).norm(dim=1) for one in expected])
    assert (sizes.amax(0) > 1e-3).all()
    for name, one, other, size in zip(names, found, expected, sizes, strict=True):
        error = (one - other).flatten(1).norm(dim=1)
        allowed = 1e-5 * size + 1e-7 * sizes.amax(0)
        assert bool((error <= allowed).all()), (name, error, size)


def check(model, batch, has_dropout):
    model.train(has_dropout)
    examples = Examples.of(batch)
    alone = in_turn(model, examples)
    if not has_dropout:
        check_equal(trained(model), alone, by_plain_autograd(model, examples))
    check_equal(trained(model), at_once(model, examples), alone)


@pytest.mark.parametrize("has_dropout", [False, True])
@pytest.mark.parametrize("attention", ["sdpa", pytest.param("eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MODELS)
def test_batches_and_examples_have_the_same_gradients(name, attention, has_dropout):
    check(*made(name, attention), has_dropout)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("has_dropout", [False, True])
@pytest.mark.parametrize("name", MORE)
def test_further_models_have_the_same_gradients(name, has_dropout):
    attention = "eager" if name in EAGER else "sdpa"
    check(*made(name, attention), has_dropout)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["Bert", "Llama"])
def test_checkpoints_are_passed_by(name, reentrant):
    model, batch = made(name)
    model.train()
    examples = Examples.of(batch)
    expected = at_once(model, examples)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    check_equal(trained(model), at_once(model, examples), expected)
    check_equal(trained(model), in_turn(model, examples), expected)


@pytest.mark.parametrize("has_dropout", [False, True])
@pytest.mark.parametrize("name", ["Llama", "Bert", "GPT2"])
def test_adapters_of_peft_have_the_same_gradients(name, has_dropout):
    peft = pytest.importorskip("peft")
    model, batch = made(name)
    targets = {"Llama": ["q_proj", "v_proj"], "Bert": ["query", "value"], "GPT2": ["c_attn"]}[name]
    model = peft.get_peft_model(
        model,
        peft.LoraConfig(
            r=4, target_modules=targets, lora_dropout=0.1, fan_in_fan_out=name == "GPT2"
        ),
    )
    for name, parameter in trained(model).items():
        assert "lora" in name
        torch.nn.init.normal_(parameter, std=0.2)
    check(model, batch, has_dropout)


@pytest.mark.parametrize("name", ["Bert", "Mixtral", "Swin"])
def test_examples_are_evaluated_at_once(name):
    model, batch = made(name)
    path = choose(model, loss, trained(model), bytes(32), torch.tensor(IDS), Examples.of(batch))
    assert isinstance(path, Batched)


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_models_that_vmap_cannot_follow_are_evaluated_in_turn(name):
    model, batch = made(name, "eager")
    with pytest.warns(UserWarning, match="one example after another"):
        path = choose(model, loss, trained(model), bytes(32), torch.tensor(IDS), Examples.of(batch))
    assert isinstance(path, Alone)


def test_another_example_changes_no_gradient():
    """Also where tokens choose their experts."""
    model, batch = made("Mixtral")
    examples = Examples.of(batch)
    before = at_once(model, examples)
    changed = {name: tensor.clone() for name, tensor in batch.items()}
    changed["input_ids"][1] = changed["input_ids"][2].flip(-1)
    after = at_once(model, Examples.of(changed))
    kept = [0, 2]
    check_equal(trained(model), [x[kept] for x in after], [x[kept] for x in before])
    assert not torch.equal(before[0][1], after[0][1])


def test_one_wrong_gradient_would_be_found():
    model, batch = made("Llama")
    examples = Examples.of(batch)
    expected = in_turn(model, examples)
    for place, right in enumerate(expected):
        wrong = list(expected)
        wrong[place] = right.clone()
        wrong[place][1] *= 1 + 1e-3
        with pytest.raises(AssertionError):
            check_equal(trained(model), wrong, expected)
