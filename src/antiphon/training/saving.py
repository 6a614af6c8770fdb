"""Checkpoints of a run, and what of it may be shown.

A checkpoint holds all that makes the run go on as if it had never stopped, the key of its noise included:
it is as secret as the data. What is exported holds weights, plan and certificate only.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from antiphon.certificate import Certificate
from antiphon.checks import whole
from antiphon.errors import StateError
from antiphon.plan import Plan
from antiphon.randomness import Generator
from antiphon.training.folder import Folder, export
from antiphon.training.packing import pack, unpack

if TYPE_CHECKING:
    from antiphon.training.run import Run

__all__ = ["Saved", "Saving", "export_run", "restore"]


@final
class Saved:
    """A checkpoint that was read and verified.

    Attributes:
        plan: What runs.
        certificate: What is proved of it.
        generator: The run's root generator.
        step: The next step.
    """

    def __init__(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self._tensors, self._meta = tensors, meta
        self.plan = Plan.from_json(meta["plan"])
        self.certificate = Certificate.from_json(meta["certificate"])
        self.generator = Generator(bytes.fromhex(meta["key"]), meta["is_secure"])
        self.step: int = meta["step"]

    def public(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What every process of a run needs: all but the noise and its key."""
        tensors = {name: t for name, t in self._tensors.items() if not name.startswith("noise.")}
        return tensors, {key: value for key, value in self._meta.items() if key != "key"}

    def noise(self) -> dict[str, Tensor]:
        """What the mechanism kept."""
        start = "noise."
        return {n.removeprefix(start): t for n, t in self._tensors.items() if n.startswith(start)}


@final
class Saving:
    """Writes a run's checkpoints and journal.

    Args:
        folder: Of the process that writes; None in all others, which only take part in the digests.
        every: Steps between two checkpoints.
        generator: The run's root generator, in the same process.
    """

    def __init__(self, folder: Folder | None, every: int, generator: Generator | None) -> None:
        self._folder, self._every = folder, whole("checkpoint_every", every)
        self._generator = generator
        self._others: dict[str, Any] = {}

    def follow(self, others: Mapping[str, Any]) -> None:
        """Keep the states of these in every checkpoint, too."""
        for name, other in others.items():
            if not (hasattr(other, "state_dict") and hasattr(other, "load_state_dict")):
                raise StateError(f"{name} has no state_dict, so a checkpoint cannot keep it.")
        self._others.update(others)

    def record(self, step: int, digest: int) -> None:
        """Before noise is added: refuse to add it to another gradient than before a crash."""
        if self._folder is not None:
            self._folder.record(step, digest)

    def after_step(self, run: "Run") -> None:
        """A checkpoint if one is due."""
        if run.steps_taken % self._every == 0 or run.steps_taken == run.plan.steps:
            self.write(run, {})

    def write(self, run: "Run", others: Mapping[str, Any]) -> None:
        """A checkpoint now."""
        self.follow(others)
        if self._folder is None or self._generator is None:
            return
        tensors: dict[str, Tensor] = {"torch_rng": torch.get_rng_state()}
        meta: dict[str, Any] = {
            "plan": run.plan.to_json(),
            "certificate": run.certificate.to_json(),
            "key": self._generator.key.hex(),
            "is_secure": self._generator.is_secure,
            "step": run.steps_taken,
            "clip_norm": run.clip_norm,
            "model": pack(dict(run.model.state_dict()), "model", tensors),
            "optimizer": pack(run.optimizer.state_dict(), "optimizer", tensors),
        }
        for name, other in self._others.items():
            meta[f"other {name}"] = pack(other.state_dict(), f"other.{name}", tensors)
        noise = run.noise_state()
        self._folder.write(tensors | {f"noise.{key}": kept for key, kept in noise.items()}, meta)

    def sync(self) -> None:
        """Wait until the journal is on the disk: before anything of the run is shown."""
        if self._folder is not None:
            self._folder.sync()

    def close(self) -> None:
        """Let go of the folder."""
        if self._folder is not None:
            self._folder.close()


def restore(
    run: "Run", public: tuple[dict[str, Tensor], dict[str, Any]], others: Mapping[str, Any]
) -> None:
    """Bring model, optimizer and others to where the checkpoint was written."""
    tensors, meta = public
    try:
        run.model.load_state_dict(unpack(meta["model"], tensors))
    except (RuntimeError, TypeError) as error:
        raise StateError(f"the checkpoint is of another model: {error}") from error
    try:
        run.optimizer.load_state_dict(unpack(meta["optimizer"], tensors))
    except ValueError as error:
        raise StateError(f"the checkpoint is of another optimizer: {error}.") from error
    saved = {name.removeprefix("other ") for name in meta if name.startswith("other ")}
    if saved != set(others):
        raise StateError(
            f"the checkpoint also keeps {sorted(saved)}, but others={sorted(others)} was given; give the "
            "same objects again."
        )
    for name, other in others.items():
        other.load_state_dict(unpack(meta[f"other {name}"], tensors))
    torch.set_rng_state(tensors["torch_rng"])


def export_run(run: "Run", path: Path) -> None:
    """Write weights, plan and certificate; neither key nor noise, nor anything of a batch."""
    tensors = {name: t for name, t in run.model.state_dict().items() if isinstance(t, Tensor)}
    certificate = json.loads(run.certificate.to_json())
    export(path, tensors, {"certificate": certificate, "plan": certificate["plan"]})
