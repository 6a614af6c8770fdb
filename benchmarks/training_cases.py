"""The models, data and plain steps of ``training.py``, in torch alone, for us and for peers in torch."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

RATE = 0.05  # of plain gradient descent, for all
WORDS, LENGTH = 8000, 128  # of the language models


class Case(NamedTuple):
    n: int
    data: Callable[[int], tuple[Tensor, Tensor]]
    model: Callable[[], nn.Module]
    loss: Callable[..., Tensor]
    batch: int | None = None  # the only one that is measured; unless given, all are
    needs: tuple[str, ...] = ()  # libraries

    @property
    def is_possible(self) -> bool:
        """Whether all libraries are there."""
        return all(find_spec(name) is not None for name in self.needs)


class TorchKAN(nn.Module):
    """The two-layer network of ``antiphon.models`` with splines by torch operations, as KANs in torch do.

    Degree 3 on 5 equal intervals: p = 8 functions by the recursion of Cox and de Boor.
    """

    def __init__(self, d: int, m: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8 * d, m, bias=False), nn.Linear(8 * m, 1, bias=False)
        self.second.weight.requires_grad_(False)
        for layer in (self.first, self.second):
            nn.init.normal_(layer.weight)
        self.knots = torch.arange(-3.0, 9.0) * 0.4 - 1.0  # not a buffer, which Opacus refuses

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(self._features(x)) / (self.first.in_features / 8) ** 0.5)
        out: Tensor = self.second(self._features(hidden))
        return out.squeeze(-1) / (self.second.in_features / 8) ** 0.5

    def _features(self, x: Tensor) -> Tensor:
        knots, x = self.knots, x.unsqueeze(-1)
        values = ((x >= knots[:-1]) & (x < knots[1:])).to(x.dtype)
        for k in range(1, 4):
            left = (x - knots[: -k - 1]) / (knots[k:-1] - knots[: -k - 1])
            right = (knots[k + 1 :] - x) / (knots[k + 1 :] - knots[1:-k])
            values = left * values[..., :-1] + right * values[..., 1:]
        return values.flatten(-2)


class Words(nn.Module):
    """Mean of embeddings, then two layers: the text example of Opacus, 10,000 words of width 16."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10_000, 16)
        self.hidden, self.out = nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.hidden(self.table(x).mean(1)).relu())
        return out


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.GroupNorm(32, outside), nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.GroupNorm(32, outside),
        )  # fmt: skip
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != outside:
            bare = nn.Conv2d(inside, outside, 1, stride, bias=False)
            self.shortcut = nn.Sequential(bare, nn.GroupNorm(32, outside))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x) + self.shortcut(x))


def resnet() -> nn.Module:
    """As ResNet-18 for images of 32 x 32, with group norms: 11 million parameters."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 3, 1, 1, bias=False),
        nn.GroupNorm(32, 64),
        nn.ReLU(),
    ]
    inside = 64
    for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inside, outside, stride), Block(outside, outside, 1)]
        inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Language(nn.Module):
    """A language model of transformers: from tokens to logits."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(input_ids=x, use_cache=False).logits
        return logits


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS, hidden_size=384, intermediate_size=1024, num_hidden_layers=6,
            num_attention_heads=6, max_position_embeddings=LENGTH,
        )
    )  # fmt: skip


def llama() -> nn.Module:
    """17 million parameters."""
    return Language(_llama())


def lora() -> nn.Module:
    """The same, of which small factors beside the attention's weights learn."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
    )
    return Language(get_peft_model(_llama(), config))


def next_word(logits: Tensor, words: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy of each word given those before it."""
    return F.cross_entropy(
        logits[:, :-1].flatten(0, 1), words[:, 1:].flatten(), reduction=reduction
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def cnn() -> nn.Module:
    """The network of the MNIST examples of Opacus and TensorFlow Privacy."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def _numbers(*shape: int, classes: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda n: (torch.rand(n, *shape) * 1.998 - 0.999, torch.randint(classes, (n,)))


def _signs(*shape: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda n: (torch.rand(n, *shape) * 1.998 - 0.999, torch.randint(2, (n,)).float())


def _texts(n: int) -> tuple[Tensor, Tensor]:
    words = torch.randint(WORDS, (n, LENGTH))
    return words, words


CASES = {
    "mlp": Case(20_000, _numbers(784, classes=10), mlp, F.cross_entropy),
    "cnn": Case(20_000, _numbers(1, 28, 28, classes=10), cnn, F.cross_entropy),
    "text": Case(
        20_000,
        lambda n: (torch.randint(10_000, (n, 256)), torch.randint(2, (n,))),
        Words,
        F.cross_entropy,
    ),
    "kan-10": Case(
        20_000, _signs(10), lambda: TorchKAN(10, 32), F.binary_cross_entropy_with_logits
    ),
    "kan-784": Case(
        12_665, _signs(784), lambda: TorchKAN(784, 32), F.binary_cross_entropy_with_logits
    ),
    "resnet": Case(2000, _numbers(3, 32, 32, classes=10), resnet, F.cross_entropy, batch=64),
    "llama": Case(1000, _texts, llama, next_word, batch=8, needs=("transformers",)),
    "lora": Case(1000, _texts, lora, next_word, batch=8, needs=("transformers", "peft")),
}


def plain_step(
    model: nn.Module, loss: Callable[..., Tensor], data: tuple[Tensor, Tensor], batch: int
) -> Callable[[], None]:
    """A step without privacy, on the next rows of an order that is drawn anew in every epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    place, order = 0, torch.randperm(len(data[0]))

    def step() -> None:
        nonlocal place, order
        if place >= len(order):
            place, order = 0, torch.randperm(len(order))
        rows = order[place : place + batch]
        place += batch
        x, y = (tensor.index_select(0, rows) for tensor in data)
        optimizer.zero_grad()
        loss(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step
