"""Random draws of an example that depend on the run's key, the step and the record, and on nothing else.

Torch draws for a whole batch from one generator: a record that leaves the batch would shift the draws of
those behind it. Within `RecordDraws` every record has a generator of its own, and each random operation is
made row by row, so neither the place in the batch nor the other records change a draw. An example that is
evaluated alone draws the same numbers as within a batch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from antiphon.errors import RunError, UnsupportedError

__all__ = ["RecordDraws", "hashed"]

aten = torch.ops.aten
Answer = Callable[..., Any]


@final
class RecordDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which every random operation of torch draws from the generators of the records.

    It has two forms. With a tensor of n record ids it surrounds an evaluation under
    ``torch.func.vmap(..., randomness="different")``: row i of each draw belongs to record i. With one id it
    surrounds the evaluation of a single example.

    Args:
        key: Secret of the run; at most 64 bytes.
        step: Number of the step.
        records: Ids of the records (int64, one axis), or one id.

    Attributes:
        error: An error of an operation, if one was raised, whether or not it was caught.

    Guarantee:
        A number that is drawn is a function of key, step, record and the draws that the record's loss has
        made before. It is the same, bit for bit, in both forms. Torch's own generators are not moved, and
        those given by the user are ignored. An operation that torch tags as random and that is not
        answered here raises `UnsupportedError`. Generators have seeds of 32 bits: that is enough for
        dropout, which the guarantee does not rest on.

    Example:
        >>> from torch.nn.functional import dropout
        >>> x = torch.ones(3, 8)
        >>> with RecordDraws(bytes(32), 7, torch.tensor([5, 2, 9])):
        ...     rows = torch.func.vmap(dropout, randomness="different")(x)
        >>> with RecordDraws(bytes(32), 7, 2):
        ...     alone = dropout(x[1])
        >>> torch.equal(rows[1], alone)
        True
    """

    def __init__(self, key: bytes, step: int, records: Tensor | int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._key, self._step, self._records = key, step, records
        self._made: list[torch.Generator] = []
        self.error: str | None = None
        self._permuted = 0  # records that have their permutation of the present draw

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Spare torch the import of its compiler, which takes seconds, at the first operation."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer a random operation; others pass."""
        try:
            answer = _answers[func]
        except KeyError:
            answer = _answers[func] = _answer_to(func)
        named = dict(kwargs or {})
        try:
            if answer is None:
                return func(*args, **named)
            named.pop("generator", None)
            given = [a for a in args if not isinstance(a, torch.Generator)]
            return answer(self, func, *given, **named)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            raise

    def fill(self, draw: Any, out: Tensor, *parameters: Any) -> Tensor:
        """Let an operation in place draw the rows of ``out``."""
        room = torch.empty(out.shape, dtype=out.dtype, device="cpu")
        for row, generator in self.rows(room):
            draw(row, *parameters, generator=generator)
        return out.copy_(room)

    def rows(self, tensor: Tensor) -> Iterable[tuple[Tensor, torch.Generator]]:
        """What belongs to each record, with its generator."""
        if not isinstance(self._records, Tensor):
            return [(tensor, self._generators()[0])]
        if tensor.shape[:1] != self._records.shape or self._permuted:
            raise RunError(
                f"a draw of shape {tuple(tensor.shape)} has no axis of {len(self._records)} records in "
                'front: it was made outside of vmap(..., randomness="different"). Make all draws inside '
                "the loss."
            )
        return zip(tensor, self._generators(), strict=True)

    def permutation(self, out: Tensor) -> Tensor:
        """Draw the permutation of one record into ``out``: vmap asks once for each, in their order."""
        generators = self._generators()
        room = torch.randperm(len(out), generator=generators[self._permuted])
        self._permuted = (self._permuted + 1) % len(generators)
        return out.copy_(room)

    def by_record(self, tensor: Tensor) -> Tensor:
        """Rows of several, which vmap has merged, by record."""
        if not isinstance(self._records, Tensor):
            return tensor
        return tensor.reshape(len(self._records), -1, *tensor.shape[1:])

    def _generators(self) -> list[torch.Generator]:
        if not self._made:
            records = self._records
            ids = records.tolist() if isinstance(records, Tensor) else [records]
            for record in ids:
                word = int.from_bytes(hashed(self._key, self._step, record, 8), "little")
                self._made.append(torch.Generator().manual_seed(word))
        return self._made


def hashed(key: bytes, step: int, record: int | None, size: int) -> bytes:
    """Bytes that belong to a step, or to a record of it."""
    text = f"{step}" if record is None else f"{step} {record}"
    return blake2b(text.encode(), key=key, digest_size=size, person=b"antiphon draws").digest()


_answers: dict[Any, Answer | None] = {}  # of the operations that were seen


def _answer_to(func: Any) -> Answer | None:
    """What answers an operation of torch in its place; None if the operation is not random."""
    is_random = torch.Tag.nondeterministic_seeded in func.tags or any(
        "Generator" in str(argument.type) for argument in func._schema.arguments
    )
    if not is_random or func is aten._fused_sdp_choice.default:
        return None
    name = str(func).removesuffix(".default").replace("_generator", "").replace(".generator", "")
    if name in _ANSWERS:
        return _ANSWERS[name]
    if func._can_decompose():
        return _decomposed
    if any(argument.name in ("dropout_p", "dropout") for argument in func._schema.arguments):
        return _without_dropout
    return _refused


def _decomposed(draws: RecordDraws, func: Any, *args: Any, **kwargs: Any) -> Any:
    """The operations that ``func`` is composed of: within inference mode, it arrives whole."""
    with draws:
        return func.decompose(*args, **kwargs)


def _without_dropout(draws: RecordDraws, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Fused attention is random only with dropout; with it, torch does not choose it on CPUs."""
    places = [argument.name in ("dropout_p", "dropout") for argument in func._schema.arguments]
    place = places.index(True)
    given = args[place] if place < len(args) else kwargs.get(func._schema.arguments[place].name, 0)
    return _refused(draws, func) if given else func(*args, **kwargs)


def _refused(draws: RecordDraws, func: Any, *args: Any, **kwargs: Any) -> Any:
    raise UnsupportedError(
        f"{func} draws random numbers, and no rule is known that draws them for one record alone. "
        "Use torch.rand, torch.randn, torch.bernoulli, dropout or the like instead, without out=."
    )


def _in_place(draws: RecordDraws, func: Any, out: Tensor, *parameters: Any, **named: Any) -> Tensor:
    given = (*parameters, *named.values())
    if any(isinstance(p, Tensor) for p in given):
        return out.copy_(_of_tensors(draws, aten.bernoulli.default, given[0].expand(out.shape)))
    return draws.fill(func, out, *given)


def _into(draw: Any, *defaults: float, place: int = 0) -> Answer:
    """An answer that draws into a new tensor of the size, or like the one, at ``place``."""

    def answer(draws: RecordDraws, func: Any, *args: Any, **options: Any) -> Tensor:
        parameters = [*args[:place], *args[place + 1 :]]
        like = args[place]
        if isinstance(like, Tensor):
            out = torch.empty_like(like, **options)
        else:
            if draw is aten.random_.to or draw is getattr(aten.random_, "from"):
                options.setdefault("dtype", torch.int64)
            out = torch.empty(like, **options)
        return draws.fill(draw, out, *(parameters or defaults))

    return answer


def _of_tensors(draws: RecordDraws, func: Any, *args: Any, **named: Any) -> Tensor:
    """Numbers whose parameters are tensors, or a tensor and a number."""
    shape = torch.broadcast_shapes(*(a.shape for a in args if isinstance(a, Tensor)))  # type: ignore[no-untyped-call]
    whole = [a.expand(shape).contiguous() if isinstance(a, Tensor) else a for a in args]
    tensor = next(a for a in whole if isinstance(a, Tensor))
    found = []
    for i, (_, generator) in enumerate(draws.rows(tensor)):
        row = whole if tensor is None else [_row(draws, a, i) for a in whole]
        found.append(func(*row, **named, generator=generator))
    return found[0] if not isinstance(draws._records, Tensor) else torch.stack(found)


def _row(draws: RecordDraws, argument: Any, i: int) -> Any:
    is_many = isinstance(argument, Tensor) and isinstance(draws._records, Tensor)
    return argument[i] if is_many else argument


def _multinomial(draws: RecordDraws, func: Any, p: Tensor, *args: Any, **named: Any) -> Tensor:
    """Rows of weights; vmap merges the axis of the records with that of an example's rows."""
    merged = draws.by_record(p)
    found = [func(row, *args, **named, generator=g) for row, g in draws.rows(merged)]
    return torch.cat(found)


def _dropout(
    draws: RecordDraws, func: Any, x: Tensor, p: float, train: bool | None
) -> tuple[Tensor, Tensor]:
    if train is False:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    kept = draws.fill(aten.bernoulli_.float, torch.empty_like(x, dtype=torch.bool), 1 - p)
    return (x * kept).mul_(1 / (1 - p) if p < 1 else 0.0), kept


def _permutation(draws: RecordDraws, func: Any, n: int, **options: Any) -> Tensor:
    return draws.permutation(torch.empty(n, **({"dtype": torch.int64} | options)))


_uniform, _normal, _whole = (
    aten.uniform_.default,
    aten.normal_.default,
    getattr(aten.random_, "from"),
)
_ANSWERS: dict[str, Answer] = {
    "aten.rand": _into(_uniform, 0.0, 1.0),
    "aten.rand_like": _into(_uniform, 0.0, 1.0),
    "aten.randn": _into(_normal, 0.0, 1.0),
    "aten.randn_like": _into(_normal, 0.0, 1.0),
    "aten.normal.float_float": _into(_normal, place=2),
    "aten.randint": _into(aten.random_.to, place=1),
    "aten.randint.low": _into(_whole, place=2),
    "aten.randint_like": _into(aten.random_.to),
    "aten.randint_like.low_dtype": _into(_whole),
    "aten.randperm": _permutation,
    **dict.fromkeys(
        ("aten.uniform_", "aten.normal_", "aten.exponential_", "aten.log_normal_", "aten.cauchy_",
         "aten.geometric_", "aten.random_", "aten.random_.to", "aten.random_.from",
         "aten.bernoulli_.float", "aten.bernoulli_.Tensor"),
        _in_place,
    ),
    **dict.fromkeys(
        ("aten.bernoulli", "aten.bernoulli.p", "aten.normal.Tensor_float", "aten.normal.float_Tensor",
         "aten.normal.Tensor_Tensor", "aten.poisson", "aten.binomial", "aten._standard_gamma",
         "aten._sample_dirichlet"),
        _of_tensors,
    ),
    "aten.multinomial": _multinomial,
    "aten.native_dropout": _dropout,
}  # fmt: skip
