"""Files of named tensors and one JSON object: whole, or refused.

A file is a safetensors file: a header of names, dtypes, shapes and texts, then plain bytes; nothing in it
is ever executed. Its texts are

    ========  =======================================================================================
    key       value
    ========  =======================================================================================
    antiphon  what the file is: "checkpoint" or "export"
    format    the number of this description, 1
    digest    SHA-256 of the whole file, with 64 zeros in the place of these 64 digits
    meta      the JSON object, keys sorted; floats are exact, and NaN and infinities are kept
    secret    in a checkpoint: that it is as secret as the data
    ========  =======================================================================================

The digest finds every accident. It has no key, so it does not find a forger.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from antiphon.errors import StateError

__all__ = ["decode", "encode", "read", "remove_unfinished", "replace"]

_FORMAT = "1"
_MARK = b'"digest":"'  # once in a header: quotes within names and texts are escaped
_DIGITS = 64
_SECRET = (
    "This file holds random keys and past noise: with them the noise can be removed from the results. "
    "It is as secret as the data."
)
# What safetensors 0.7 both writes and reads; it writes others that it then cannot read.
_DTYPES = frozenset(
    {
        torch.bool,
        *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
        *(torch.float8_e4m3fn, torch.float8_e5m2),
    }
)


def encode(tensors: Mapping[str, Tensor], meta: dict[str, Any], *, kind: str) -> list[memoryview]:
    """The bytes of a file, in pieces to be written one after the other.

    Args:
        tensors: Dense tensors of any device, strides and sharing; each is stored by itself.
        meta: What JSON can hold, with texts as keys; tuples come back as lists.
        kind: "checkpoint" or "export".
    """
    texts = {"antiphon": kind, "format": _FORMAT, "digest": "0" * _DIGITS, "meta": _json(meta)}
    if kind == "checkpoint":
        texts["secret"] = _SECRET
    try:
        data = memoryview(save(_plain(tensors), texts))
    except (KeyError, TypeError, UnicodeError, SafetensorError) as error:
        raise StateError(
            f"safetensors cannot hold these tensors or texts ({type(error).__name__}). Names must be "
            "valid Unicode, and names and JSON together shorter than 100 MB."
        ) from None
    start = _digest_start(data)
    digest = memoryview(_digest(data, start).encode())
    return [data[:start], digest, data[start + _DIGITS :]]


def decode(data: bytes, path: Path, *, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Names, tensors and JSON of a file that is wholly verified; `StateError` for any other."""
    view = memoryview(data)
    texts = _texts(view, path)
    _check_kind(texts, path, kind)
    start = _digest_start(view)
    if start < 0 or bytes(view[start : start + _DIGITS]) != _digest(view, start).encode():
        raise _damaged(path)
    try:
        return dict(sorted(load(data).items())), json.loads(texts["meta"])
    except (KeyError, ValueError, SafetensorError):
        raise StateError(
            f"{path} is undamaged, but this version of safetensors cannot read it. Update safetensors."
        ) from None


def read(path: Path, *, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Names, tensors and JSON of the file at ``path``, wholly verified."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise StateError(f"there is no {kind} at {path}; check the path.") from None
    except OSError as error:
        raise StateError(
            f"{path} cannot be read ({error.strerror}); check its owner and its disk."
        ) from error
    return decode(data, path, kind=kind)


def replace(path: Path, pieces: Iterable[memoryview], *, mode: int) -> None:
    """Put new contents at ``path`` at once, and wait until they are on the disk.

    Guarantee:
        Whatever happens meanwhile, ``path`` holds its earlier contents or the new ones, whole. No file
        has, at any time, more permissions than ``mode`` less the umask.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.unfinished")
    try:
        _write(unfinished, pieces, mode)
        os.replace(unfinished, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise StateError(
            f"{path} could not be written ({error.strerror}). What was there before is still whole. "
            "Make room or give write permission, then write again."
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def remove_unfinished(path: Path) -> None:
    """Remove what `replace` left beside ``path`` when its process was killed; nobody may be writing."""
    for unfinished in path.parent.glob(f".{path.name}.*.unfinished"):
        unfinished.unlink(missing_ok=True)


def _write(path: Path, pieces: Iterable[memoryview], mode: int) -> None:
    """Write a new file, which has its mode from its first moment, and wait for the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors as bytes in a row, none of which belongs to two of them."""
    plain: dict[str, Tensor] = {}
    taken = set()
    for name, tensor in tensors.items():
        _check_tensor(name, tensor)
        # safetensors stores the bytes of a lazy conjugate or negative as they stand: settle them first.
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        place = tensor.untyped_storage().data_ptr()
        plain[name] = tensor.clone() if place in taken else tensor
        taken.add(place)
    return plain


def _check_tensor(name: str, tensor: Tensor) -> None:
    if name == "__metadata__":
        raise StateError("no tensor can be named '__metadata__': safetensors keeps that name.")
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_nested:
        raise StateError(f"tensor {name!r} has no dense values; store it as a dense tensor.")
    if tensor.dtype not in _DTYPES:
        raise StateError(
            f"tensor {name!r} is {tensor.dtype}, which safetensors cannot hold. Convert it, for "
            "example complex128 by torch.view_as_real."
        )


def _json(meta: dict[str, Any]) -> str:
    try:
        text = json.dumps(meta, sort_keys=True)  # floats by repr, which reads back exactly
    except (TypeError, ValueError, RecursionError) as error:
        raise StateError(
            f"JSON cannot hold this object ({error}). Use texts, numbers, lists and dictionaries "
            "with texts as keys; put arrays among the tensors."
        ) from None
    _check_keys(meta)
    return text


def _check_keys(value: Any) -> None:
    """JSON would turn the key 1 into "1" without an error."""
    if isinstance(value, dict):
        if wrong := {type(key).__name__ for key in value if not isinstance(key, str)}:
            raise StateError(f"keys in JSON must be texts; got {', '.join(sorted(wrong))}.")
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            _check_keys(inner)


def _header(data: memoryview) -> memoryview:
    """The header, or less where the file ends."""
    return data[8 : 8 + int.from_bytes(data[:8], "little")]


def _digest_start(data: memoryview) -> int:
    """Where the digits of the digest stand; negative if nowhere."""
    found = bytes(_header(data)).find(_MARK)
    return 8 + found + len(_MARK) if found >= 0 else -1


def _digest(data: memoryview, start: int) -> str:
    """SHA-256 of everything, with zeros from ``start`` on in place of the digest."""
    digest = hashlib.sha256(data[:start])
    digest.update(b"0" * _DIGITS)
    digest.update(data[start + _DIGITS :])
    return digest.hexdigest()


def _texts(data: memoryview, path: Path) -> dict[str, str]:
    """The texts in a header that is not verified yet."""
    try:
        header = json.loads(bytes(_header(data)))
    except (ValueError, RecursionError):
        raise _damaged(path) from None  # the parser's own words may quote a key
    texts = header.get("__metadata__") if isinstance(header, dict) else None
    return texts if isinstance(texts, dict) else {}


def _check_kind(texts: dict[str, str], path: Path, kind: str) -> None:
    if "antiphon" not in texts:
        raise StateError(f"{path} was not written by Antiphon: it says no format. Check the path.")
    if texts.get("format") != _FORMAT:
        raise StateError(
            f"{path} has a format other than {_FORMAT}, the only one that this version of Antiphon "
            "reads: a newer version wrote it, or it was damaged. Update Antiphon, or use a copy."
        )
    if texts["antiphon"] != kind:
        raise StateError(f"{path} is not of the kind asked for, {kind}. Check the path.")


def _damaged(path: Path) -> StateError:
    return StateError(
        f"{path} is damaged: it was cut short or changed, or is no safetensors file. Nothing of it is "
        "used. Restore it from a copy or write it again; a new run costs a new ε."
    )
