"""Random numbers that can be drawn again: AES-256 in counter mode, keyed by a seed or the system.

Where the 256-bit key comes from is the only difference between a seeded and a secure generator.
Every number has an address, and drawing is a function of key and address: no state, no order.

The address is the 128-bit counter block of AES; from its most significant bit:

    ======  ====  ==============================================================================
    field   bits  meaning
    ======  ====  ==============================================================================
    domain     8  1: normals; 2: `Generator.words`; 3: the tails of normals
    step      40  t of z_t
    index     32  position of the tensor in its list; a single tensor is a list of one
    block     48  16 bytes of key stream; in the tails, the number of a pair
    ======  ====  ==============================================================================

Each field is checked to stay within its bits, so two addresses never share a block.

The key stream is read as little-endian words of 64 bits. Normals come in groups of 512, made of 256
words for radii and the next 256 words for points of the circle: numbers i and i + 256 of a group are r_i
times the two coordinates of point i, as `normals` says. Pair i of group g has number 256 g + i;
where its first word is small, the tails' block of that number has its further bits. Numbers fill a tensor
in row-major order, so number p depends on p and not on the tensor's size. This map is part of the format
of checkpoints: it must give the same noise to every later version.
"""

import operator
import os
import threading
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar, final

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.graph import increment_version

from antiphon.errors import PlanError

__all__ = ["Generator", "digest_of"]

Tensors = TypeVar("Tensors", Tensor, list[Tensor], tuple[Tensor, ...])

_HALF = 256  # half a group: long enough for vector instructions, short for small tensors
_CHUNK = 2**16  # numbers made at once: enough to hide the cost of calls, few enough for the cache
_ZEROS = memoryview(bytes(2**18))
_NORMALS, _WORDS, _TAILS = 1, 2, 3  # domains


_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def digest_of(*parts: Any) -> str:
    """A hash of texts, numbers and arrays, to key noise by what it is added to.

    Example:
        >>> digest_of("a", 1.0, torch.zeros(2)) == digest_of("a", 1.0, np.zeros(2, np.float32))
        True
    """
    found = blake2b(digest_size=16)
    for part in parts:
        array = part.detach().cpu().numpy() if isinstance(part, Tensor) else part
        if isinstance(array, np.ndarray) and array.dtype.kind != "O":
            found.update(f"{array.dtype} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
        else:
            found.update(repr(array.tolist() if hasattr(array, "tolist") else array).encode())
        found.update(b";")
    return found.hexdigest()


@final
@dataclass(frozen=True, slots=True, repr=False)
class Generator:
    """Standard normals and uniform words, each a function of a secret key and an address.

    Make one with `seeded` or `secure`. A generator is a value: it can be compared, copied and
    pickled. With it all of its noise can be computed again, so keep it as secret as the data;
    what is printed does not show the key.

    Attributes:
        is_secure: Whether the key came from the operating system. What a seeded generator draws is
            reproducible, hence not for release.

    Guarantee:
        Words are the key stream of AES-256 in counter mode: pseudorandom under the standard
        assumption. Normals are made of 64-bit words, and of 192 bits beyond 4.7 standard deviations, in
        float64: how far each is from an exact normal, `normals` says. The two numbers of a pair
        are symmetric and exchangeable exactly. All numbers are finite, and none is 0: at most 16.36 in
        absolute value. Results depend neither on the order of calls nor on torch's number of threads.
        Words and normals are equal, bit for bit, on every platform with IEEE 754 arithmetic.

        Digits of a number beyond what certificates count on tell which words it was made of. A sum with
        noise is therefore released on a grid (`antiphon.numerics.grid`), never as it is.

    Example:
        >>> noise = Generator.seeded(0).spawn("noise")
        >>> z = noise.normal(torch.empty(2, 3), step=7)
        >>> torch.equal(z, noise.normal(torch.empty(2, 3), step=7))
        True
    """

    _key: bytes
    is_secure: bool

    def __repr__(self) -> str:
        """Which kind of generator this is, and nothing about its key."""
        return f"<Generator: {'secure' if self.is_secure else 'seeded'}>"

    @classmethod
    def seeded(cls, seed: int) -> "Generator":
        """The generator that belongs to ``seed``, a non-negative integer of any size."""
        text = f"{_natural('seed', seed):x}"
        return cls(blake2b(text.encode(), digest_size=32, person=b"antiphon seed").digest(), False)

    @classmethod
    def secure(cls) -> "Generator":
        """A new generator with a key from the operating system."""
        return cls(os.urandom(32), True)

    @property
    def key(self) -> bytes:
        """The key itself, for a checkpoint; `Generator(key, is_secure)` is this generator again."""
        return self._key

    def spawn(self, label: str) -> "Generator":
        """An independent generator for one purpose, such as ``"noise"`` or ``"sampling"``.

        Guarantee:
            Its key is a keyed hash (BLAKE2b) of the label. Equal labels give equal generators;
            without this generator's key, those of different labels look unrelated.
        """
        hashed = blake2b(label.encode(), key=self._key, digest_size=32, person=b"antiphon spawn")
        return Generator(hashed.digest(), self.is_secure)

    def normal(self, like: Tensors, step: int, *, index: int = 0) -> Tensors:
        """Fresh tensors of standard normals z_step, with the shapes, types and devices of ``like``.

        Args:
            like: A tensor, or a list or tuple of tensors; the result is of the same form. Numbers are
                made in float64; shorter types get the same ones, rounded.
            step: t of z_t, in [0, 2**40).
            index: Position of the first tensor in the full list, when only a part is drawn.
        """
        fresh = [torch.empty_like(tensor) for tensor in _listed(like)]
        self.normal_(fresh, step, index=index)
        if isinstance(like, Tensor):
            return fresh[0]
        return fresh if isinstance(like, list) else tuple(fresh)

    def normal_(self, out: Tensors, step: int, *, index: int = 0) -> Tensors:
        """Overwrite ``out``, of any strides, with the numbers of `normal` and return it."""
        tensors = _listed(out)
        for tensor in tensors:
            _check_no_overlap(tensor)
        for position, tensor in enumerate(tensors, start=index):
            self._fill(tensor.detach(), _address(step, position))
        increment_version(tensors)  # so that autograd knows what was written behind its back
        return out

    def words(self, count: int, step: int) -> Tensor:
        """``count`` uniform 64-bit words as int64, from addresses that normals never use."""
        size = 8 * _natural("count", count, bits=48)
        buffer = torch.empty(size + 15, dtype=torch.uint8, device="cpu")
        self._write_key_stream(_WORDS << 120 | _address(step, 0), buffer.numpy().data)
        return buffer[:size].view(torch.int64)

    def _fill(self, out: Tensor, address: int) -> None:
        _natural("the size of a tensor", out.numel(), bits=48)
        # All of this is done in the calling thread. Torch shares all but small copies with others,
        # and waits for them longer than all of this takes if the machine is busy.
        is_plain = (
            out.is_contiguous()
            and out.dtype is torch.float64
            and out.device.type == "cpu"
            and out.data_ptr() % out.element_size() == 0
        )
        start = 0
        for piece in _pieces(out, _CHUNK if is_plain else _CHUNK // 2):
            group, skip = divmod(start, 2 * _HALF)
            work = _memory.workspace(-(-(skip + piece.numel()) // (2 * _HALF)))
            if is_plain:  # nothing to skip: a piece that is not the last consists of whole groups
                self._draw(work, address, group, piece.numpy())
            else:
                self._draw(work, address, group, work.normals)
                normals = work.normals[skip : skip + piece.numel()]
                piece.copy_(torch.from_numpy(normals).view(piece.shape))
            start += piece.numel()

    def _draw(
        self, work: "_Workspace", address: int, group: int, normals: NDArray[np.float64]
    ) -> None:
        """Normals from the start of ``group`` on, as many as there is room for."""
        made = _compiled()
        self._write_key_stream(_NORMALS << 120 | address | group * _HALF, work.key_stream)
        count = made.fill_normals()(work.words, normals, work.found)
        if count:
            pairs = work.found[:count]
            places = 2 * pairs - pairs % _HALF
            whole = [
                made.extended(word, self._tail(address | group * _HALF + pair))
                for word, pair in zip(work.words[places].tolist(), pairs.tolist(), strict=True)
            ]
            longer, exponents = np.array(whole).T.copy()
            made.fill_tails()(work.words, pairs, longer, exponents, normals)

    def _tail(self, pair: int) -> int:
        """The 128 further bits of a pair, by its address."""
        stream = bytearray(31)
        self._write_key_stream(_TAILS << 120 | pair, memoryview(stream))
        return int.from_bytes(stream[:16], "little")

    def _write_key_stream(self, counter: int, out: memoryview) -> None:
        """Fill ``out`` but for its last 15 bytes, the room that the cipher asks for."""
        encryptor, size = _memory.encryptor(self._key), len(out) - 15
        encryptor.reset_nonce(counter.to_bytes(16, "big"))
        for start in range(0, size, len(_ZEROS)):
            encryptor.update_into(_ZEROS[: size - start], out[start:])


def _check_no_overlap(tensor: Tensor) -> None:
    """Raise if two entries share their memory: they would get one number, not two."""
    span = 1 + sum(
        (size - 1) * abs(step) for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )
    if tensor.numel() > span:
        raise PlanError(
            "the tensor has entries that share memory (an expanded tensor?), so its numbers would not be "
            "independent. Use normal(), or a tensor of its own."
        )


class _Workspace:
    """One thread's memory, seen as what a number of groups of normals need."""

    def __init__(self, memory: tuple[NDArray[Any], ...], groups: int) -> None:
        stream, normals, found = memory
        size = groups * 2 * _HALF
        self.key_stream = stream[: 8 * size + 15].data
        self.words = stream[: 8 * size].view(np.int64)
        self.normals, self.found = normals[:size], found[: size // 2]


def _encryptor(key: bytes) -> CipherContext:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


class _Memory(threading.local):
    """The memory of each thread that draws, so that a draw allocates only its result."""

    def __init__(self) -> None:
        stream, normals = np.empty(8 * _CHUNK + 15, np.uint8), np.empty(_CHUNK)
        memory = (stream, normals, np.empty(_CHUNK // 2, np.int64))
        # Every step of a run asks for the same sizes, and making the views takes longer than
        # making the numbers of a small tensor.
        self.workspace = lru_cache(maxsize=256)(partial(_Workspace, memory))
        # Preparing a key takes longer than all else that a small tensor needs.
        self.encryptor = lru_cache(maxsize=4)(_encryptor)


_memory = _Memory()


@lru_cache(maxsize=1)
def _compiled() -> ModuleType:
    """The functions that make normals of words; they load a compiler, hence not before a draw."""
    return import_module("antiphon.numerics.normals")


def _pieces(out: Tensor, limit: int) -> list[Tensor]:
    """Views of at most ``limit`` numbers each, which follow each other in row-major order."""
    if out.is_contiguous():
        out = out.view(-1)
    if out.numel() <= limit:
        return [out]
    rows = limit // out[0].numel()
    parts = torch.split(out, rows) if rows else out.unbind(0)
    return [piece for part in parts for piece in _pieces(part, limit)]


def _listed(tensors: Any) -> list[Tensor] | tuple[Tensor, ...]:
    """The tensors to fill, once it is clear that each of them can hold normals."""
    listed = [tensors] if isinstance(tensors, Tensor) else tensors
    if not isinstance(listed, list | tuple):
        raise PlanError(f"expected a tensor, or a list or tuple of tensors; got {type(listed)}.")
    for tensor in listed:
        if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided:
            raise PlanError(f"normals fill dense tensors; got {getattr(tensor, 'layout', tensor)}.")
        if tensor.dtype not in _TYPES:
            raise PlanError(
                f"normals are {', '.join(map(str, _TYPES))}; got a tensor of {tensor.dtype}. "
                "Draw one of these types and convert it."
            )
    return listed


def _address(step: int, index: int) -> int:
    return _natural("step", step, bits=40) << 80 | _natural("index", index, bits=32) << 48


def _natural(name: str, value: Any, bits: int | None = None) -> int:
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0 or (bits is not None and number >> bits):
        allowed = "of at least 0" if bits is None else f"in [0, 2**{bits})"
        raise PlanError(f"{name} must be an integer {allowed}; got {value!r}.")
    return number
