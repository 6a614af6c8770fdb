"""What a script for Opacus gives, and what becomes of it."""

from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate

from antiphon.errors import PlanError, UnsupportedError
from antiphon.training.run import Dataset

__all__ = ["check_names", "check_options", "dataset_of", "loading_of"]

_MODES = ("hooks", "functorch", "ew", "ghost")  # of Opacus: ways to compute the same numbers
_RUN = (
    "callback",
    "checkpoint",
    "checkpoint_every",
    "resume",
    "others",
    "bounds",
    "outside",
    "tight",
)


def check_names(options: dict[str, Any]) -> None:
    """Raise if there is an option that `antiphon.Options` does not have."""
    unknown = sorted(set(options) - set(_RUN))
    if unknown:
        raise PlanError(
            f"{', '.join(unknown)}: no option of this name. make_private_with_epsilon lists the options."
        )


def check_options(
    max_grad_norm: Any,
    batch_first: bool,
    mode: str,
    reduction: str,
    generator: torch.Generator | None,
) -> None:
    """Raise if an option of Opacus has no meaning here."""
    if isinstance(max_grad_norm, list | tuple):
        raise UnsupportedError(
            "a list of clip norms needs the layers' names: give max_grad_norm as one number for all layers "
            "together, and clipping=PerLayer({name: norm, ...})."
        )
    if not batch_first:
        raise UnsupportedError(
            "batch_first=False: the examples of a batch must stand along the first axis. Transpose them."
        )
    if mode not in _MODES:
        raise UnsupportedError(f"grad_sample_mode={mode!r} is unknown; leave it out.")
    if reduction not in ("mean", "sum"):
        raise UnsupportedError(f"loss_reduction is 'mean' or 'sum'; got {reduction!r}.")
    if generator is not None:
        raise UnsupportedError(
            "noise_generator: torch's generators are neither secure nor resumable step by step. Give seed= "
            "for reproducible noise."
        )


def dataset_of(loader: DataLoader[Any], user: Any, pad_to: Any, pad_with: Any) -> Dataset:
    """The loader's rows, by number as the loader itself would read them."""
    rows: Any = loader.dataset
    if isinstance(rows, tuple):
        rows = list(rows)  # entry i of it is row i: no columns
    if isinstance(rows, dict):
        rows = [rows[i] for i in range(len(rows))]
    collate = None if loader.collate_fn is default_collate else loader.collate_fn
    return Dataset(rows, user=user, collate=collate, pad_to=pad_to, pad_with=pad_with)


def loading_of(loader: DataLoader[Any]) -> dict[str, Any]:
    """The loader's own way to read rows."""
    kept: dict[str, Any] = {}
    if loader.num_workers:
        for name in ("num_workers", "timeout", "prefetch_factor", "worker_init_fn",
                     "multiprocessing_context"):  # fmt: skip
            if getattr(loader, name):
                kept[name] = getattr(loader, name)
    if loader.pin_memory:
        kept["pin_memory"] = True
    return kept
