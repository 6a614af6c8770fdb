"""Checkpoints: a resumed run gives the same result, and never adds one noise to two gradients.

The one idea: before the noise of a step is added, a digest of the sum that it goes to is written to the
*journal*. A resumed run draws the same noise again, and a step whose digest differs is refused.

Read in this order: `saving` (what a checkpoint holds, and when it is written), `folder` (its files and its
lock), `journal`, then `tensor_file` (safetensors with a digest) and `packing` (states as tensors and JSON).
A checkpoint is as secret as the data; `export_run` writes what may be shown.
"""

from antiphon.training.checkpoints.folder import Folder, export, holds_run, peek, read_export
from antiphon.training.checkpoints.saving import Public, Saved, Saving, States, export_run
from antiphon.training.checkpoints.tensor_file import replace

__all__ = [
    "Folder",
    "Public",
    "Saved",
    "Saving",
    "States",
    "export",
    "export_run",
    "holds_run",
    "peek",
    "read_export",
    "replace",
]
