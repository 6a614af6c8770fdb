"""Unusual objects do no harm, and real models are accepted."""

import ctypes
import functools
import io
import logging
import pathlib
import random
import re
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import peft
import pytest
import torch
import transformers
from oracles.keeping_net import ROWS, Holder, Net, loss
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from antiphon.models import KAN, TableKAN
from antiphon.training.gradients.state import State


class Hostile:
    """Nothing that is asked of it may be answered."""

    def _fail(self, *args):
        raise RuntimeError("asked")

    __eq__ = __hash__ = __getattr__ = __setattr__ = __delattr__ = __len__ = __bool__ = __repr__ = (
        _fail
    )
    __iter__ = __getitem__ = __contains__ = __reduce_ex__ = __reduce__ = __dir__ = __str__ = _fail
    x = property(_fail)

    def __getattribute__(self, name):
        raise RuntimeError("asked")


class HostileClass(type):
    def __getattribute__(cls, name):
        raise RuntimeError("asked")

    def __eq__(cls, other):
        raise RuntimeError("asked")

    def __hash__(cls):
        raise RuntimeError("asked")


def proxied():
    holder = Holder()
    return weakref.proxy(holder), holder


class Named(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("asked")


EXOTIC = {
    "hostile": Hostile,
    "hostile class": lambda: HostileClass("Odd", (), {}),
    "object of a hostile class": lambda: HostileClass("Odd", (), {})(),
    "lock": threading.Lock,
    "condition": threading.Condition,
    "thread": threading.current_thread,
    "module": lambda: np,
    "logger": lambda: __import__("logging").getLogger("x"),
    "proxy": proxied,
    "weak set": weakref.WeakSet,
    "pointer": lambda: ctypes.pointer(ctypes.c_int(3)),
    "structure": lambda: type("S", (ctypes.Structure,), {"_fields_": [("x", ctypes.c_int)]})(),
    "memory view": lambda: memoryview(bytearray(b"ab")),
    "view of a dict": lambda: {1: 2}.items(),
    "mapping proxy": lambda: vars(Holder),
    "type": lambda: [int, type, nn.Linear, np.ndarray],
    "frame": lambda: __import__("sys")._getframe(),
    "pattern": lambda: __import__("re").compile("x"),
    "path": lambda: __import__("pathlib").Path("x"),
    "enumeration": lambda: __import__("enum").Enum("Colour", "red green"),
    "random numbers of the system": random.SystemRandom,
    "closed file": lambda: [file := io.StringIO(), file.close()],
    "sparse tensor": lambda: torch.eye(3).to_sparse(),
    "compressed tensor": lambda: torch.eye(3).to_sparse_csr(),
    "complex tensor": lambda: torch.ones(2, dtype=torch.complex128).conj(),
    "tensor without values": lambda: torch.empty(3, device="meta"),
    "tensor in a graph": lambda: torch.ones(2, requires_grad=True) * 2,
    "quantised tensor": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
    "tensor of another package's type": lambda: torch.ones(2, dtype=torch.float8_e4m3fn),
    "expanded tensor": lambda: torch.ones(1, 3).expand(10**9, 3),
    "empty tensor": lambda: torch.ones(0, 3),
    "array of strings": lambda: np.array(["a", "b"]),
    "masked array": lambda: np.ma.masked_array([1, 2], [True, False]),
    "array of no dimensions": lambda: np.array(3.0),
    "array in reverse": lambda: np.arange(6).reshape(2, 3)[::-1, ::2],
    "nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
    "tensor for another processor's format": lambda: torch.ones(2, 2).to_mkldnn(),
    "subclass of a tensor": lambda: torch.ones(2).as_subclass(Named),
    "wrapper of a tensor": lambda: TwoTensor(torch.ones(2), torch.zeros(2)),
    "parameter without a shape": lambda: nn.LazyLinear(3),
    "operator": lambda: torch.ops.aten.add,
    "not a number": lambda: [float("nan")],
    "coroutine": lambda: asynchronous(),
    "executor": lambda: __import__("concurrent.futures").futures.ThreadPoolExecutor(1),
}


async def asynchronous():
    return None


@pytest.mark.filterwarnings("ignore:.*Sparse CSR tensor support is in beta")
@pytest.mark.filterwarnings("ignore:.*jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*quantiz")
@pytest.mark.parametrize("name", EXOTIC)
def test_unusual_objects_do_no_harm(name):
    thing = EXOTIC[name]()
    net = Net()
    vars(net).update(thing=thing, things=[thing], rows=[])
    state = State(net, loss, thing)
    for exact in (False, True):
        state.before(exact)
        net.rows.append(1)
        state.after(exact)
        assert net.rows == [] and net.thing is thing
    if name == "coroutine":
        thing.close()


# Real models are accepted; an evaluation leaves them as they were; nothing is walked anew between steps.


def bert():
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=8,
    )
    return transformers.BertForSequenceClassification(config)


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=20, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def llama():
    config = transformers.LlamaConfig(
        vocab_size=20,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    return transformers.LlamaForCausalLM(config)


def t5():
    config = transformers.T5Config(
        vocab_size=20,
        d_model=8,
        d_kv=4,
        d_ff=8,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


def lora():
    return peft.get_peft_model(
        gpt2(), peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    )


def labelled(model, tokens):
    return model(input_ids=tokens, labels=tokens).loss


def first(model, tokens):
    return model(input_ids=tokens).logits.sum()


def summed(model, tokens):
    x = torch.nn.functional.one_hot(tokens, 8).float()
    return (model(x, x) if isinstance(model, nn.Transformer) else model(x[0] / 2)).sum()


MODELS = {
    "BERT": (bert, first),
    "GPT-2": (gpt2, labelled),
    "Llama": (llama, labelled),
    "T5": (t5, labelled),
    "LoRA": (lora, labelled),
    "transformer": (lambda: nn.Transformer(8, 2, 1, 1, 8, batch_first=True), summed),
    "KAN": (lambda: KAN([8, 3, 1]), summed),
    "table KAN": (lambda: TableKAN([True] * 8, 8, 1), summed),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_real_models_are_accepted_and_left_as_they_were(name):
    make, loss_of_model = MODELS[name]
    model = make()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = State(model, loss_of_model)
    for exact in (False, True, False):
        for _ in range(2):
            state.before(exact)
            loss_of_model(model, torch.tensor([[1, 2, 3, 4]]))
            state.after(exact)
        walk = state._walk
    state.before()
    assert state._walk is walk
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])


def test_what_models_hold_is_accepted_while_it_is_used():
    net = Net()
    net.log, net.lock = logging.getLogger("x"), threading.Lock()
    net.config = SimpleNamespace(size=3, path=pathlib.Path("x"))
    net.pattern, net.source = re.compile("a+"), torch.Generator()
    net.act, net.owner = functools.partial(torch.clamp, min=0), weakref.ref(net.layer)

    def keep(h):
        with net.lock:
            net.log.debug("seen")
        assert net.pattern.match("aa") and net.owner() is net.layer and net.config.path.name == "x"
        torch.rand(2, generator=net.source)
        net.act(h)

    state = State(net, loss)
    state.before()
    for row in ROWS:
        net.keep = None
        state.before()
        keep(net(row[None]))
        state.after()
