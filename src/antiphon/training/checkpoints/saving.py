"""Checkpoints of a run, and what of it may be shown.

A checkpoint holds all that a resumed run needs to give the same result, the key of its noise included:
it is as secret as the data. What is exported holds weights, plan and certificate only.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from antiphon.certificates import Certificate
from antiphon.checks import whole
from antiphon.errors import StateError
from antiphon.numerics import Generator
from antiphon.plans import Plan
from antiphon.training.checkpoints.folder import Folder, export
from antiphon.training.checkpoints.packing import pack, unpack

if TYPE_CHECKING:
    from antiphon.training.run import Run

__all__ = ["Public", "Saved", "Saving", "States", "export_run"]

_NOISE = "noise."

Public = tuple[dict[str, Tensor], dict[str, Any]]


@final
class Saved:
    """A checkpoint that was read and verified, together with the journal beside it.

    Attributes:
        plan: What runs.
        certificate: What is proved of it.
        asked: What fixed its noise.
        generator: The run's root generator.
        step: The next step.
    """

    def __init__(self, folder: Folder) -> None:
        self._tensors, self._meta = folder.read()
        try:
            meta = self._meta
            self.plan = Plan.from_json(meta["plan"])
            self.certificate = Certificate.from_json(meta["certificate"])
            self.asked: dict[str, Any] = meta["asked"]
            self.generator = Generator(bytes.fromhex(meta["key"]), meta["is_secure"])
            self.step: int = meta["step"]
            last = meta["last_digest"]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"the checkpoint is whole, but not one of a run ({type(error).__name__}): another version "
                "or another program wrote it. Restore the folder from a copy; a new run costs a new ε."
            ) from None  # its words may quote a key
        _check_journal(folder, self.step, last)
        self._meta["steps_recorded"] = folder.steps_recorded()

    def public(self) -> Public:
        """What every process of a run needs: all but the noise and its key."""
        tensors = {name: t for name, t in self._tensors.items() if not name.startswith(_NOISE)}
        return tensors, {key: value for key, value in self._meta.items() if key != "key"}

    def noise(self) -> dict[str, Tensor]:
        """What the mechanism kept."""
        return {n.removeprefix(_NOISE): t for n, t in self._tensors.items() if n.startswith(_NOISE)}


def _check_journal(folder: Folder, step: int, last: int | None) -> None:
    """The journal must know every step that the checkpoint has, and be of the same run."""
    missing = next((t for t in range(step) if folder.recorded(t) is None), None)
    if missing is not None:
        raise StateError(
            f"the journal does not know step {missing}, which the checkpoint has: it is of another run, or "
            "was cut. Restore the folder as a whole."
        )
    if step and folder.recorded(step - 1) != last:
        raise StateError(
            f"journal and checkpoint disagree about step {step - 1}: they are of different runs. Restore "
            "the folder as a whole."
        )


@final
class States:
    """Everything that a checkpoint brings back: the model, its optimizer and what the user adds.

    Args:
        model: The model.
        optimizer: Its optimizer.
        others: Objects with ``state_dict`` and ``load_state_dict``, by name.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, others: Mapping[str, Any]
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._others: dict[str, Any] = {}
        self._before: dict[str, Any] = {}
        self.follow(others)

    def follow(self, others: Mapping[str, Any]) -> None:
        """Keep the states of these, too."""
        for name, other in others.items():
            if not (hasattr(other, "state_dict") and hasattr(other, "load_state_dict")):
                raise StateError(f"{name} has no state_dict, so a checkpoint cannot keep it.")
        self._others.update(others)

    def packed(self, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """All of them as JSON; their tensors go to ``tensors``."""
        kinds = {name: type(part).__name__ for name, part in self._parts().items()}
        return {"kinds": kinds, "states": pack(self._states(), "states", tensors)}

    def restore(self, packed: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Bring all of them to where `packed` was called, or change nothing and raise."""
        parts, kinds = self._parts(), packed["kinds"]
        if set(kinds) != set(parts):
            raise StateError(
                f"the checkpoint keeps {sorted(kinds)}, but {sorted(parts)} were given: give the same "
                "objects again (in others=)."
            )
        for name, part in parts.items():
            # The model's class may have another name: its parameters are compared.
            if name != "model" and kinds[name] != type(part).__name__:
                raise StateError(
                    f"the checkpoint is of another {name}: of a {kinds[name]}, not of a "
                    f"{type(part).__name__}. Give the same again."
                )
        states = unpack(packed["states"], tensors)
        self._before = tree_map(_copy, self._states())
        for name, part in parts.items():
            try:
                part.load_state_dict(states[name])
            except Exception as error:
                self.undo()
                raise StateError(
                    f"the checkpoint is of another {name}: {error}. Nothing was changed; give the same "
                    f"{name} again."
                ) from error

    def undo(self) -> None:
        """Take `restore` back, if it was called."""
        parts = self._parts()
        for name, state in self._before.items():
            with suppress(Exception):  # what cannot be set back was not changed either
                parts[name].load_state_dict(state)
        self._before = {}

    def settle(self) -> None:
        """What was restored stays."""
        self._before = {}

    def _parts(self) -> dict[str, Any]:
        named = {f"other {name}": other for name, other in self._others.items()}
        return {"model": self._model, "optimizer": self._optimizer, **named}

    def _states(self) -> dict[str, Any]:
        return {name: dict(part.state_dict()) for name, part in self._parts().items()}


def _copy(leaf: Any) -> Any:
    return leaf.detach().to("cpu", copy=True) if isinstance(leaf, Tensor) else leaf


@final
class Saving:
    """Writes a run's checkpoints and journal.

    Args:
        folder: Of the process that writes; None in all others, which only take part in the digests.
        every: Steps between two checkpoints.
        generator: The run's root generator, in the same process.
        states: What a checkpoint keeps beside the noise.
        asked: What fixed the noise.

    Attributes:
        steps_recorded: Steps in the journal of a resumed run, also those after its checkpoint.
    """

    def __init__(
        self,
        folder: Folder | None,
        every: int,
        generator: Generator | None,
        states: States,
        asked: dict[str, Any],
    ) -> None:
        self._folder, self._every = folder, whole("checkpoint_every", every)
        self._generator, self._states, self._asked = generator, states, asked
        self._is_due = False
        self.steps_recorded = 0

    def record(self, step: int, digest: int) -> None:
        """Before noise is added: refuse to add it to another gradient than before a crash."""
        if self._folder is not None:
            self._folder.record(step, digest)

    def after_step(self, run: "Run") -> None:
        """Remember whether a checkpoint is due. It is written when the next batch is asked for."""
        # Not now: what the user does after a step (a scheduler's, an average's) belongs to it.
        self._is_due |= run.steps_taken % self._every == 0 or run.steps_taken == run.plan.steps

    def write_due(self, run: "Run") -> None:
        """A checkpoint if one is due."""
        if self._is_due:
            self.write(run, {})
            self._is_due = False

    def write(self, run: "Run", others: Mapping[str, Any]) -> None:
        """A checkpoint now."""
        self._states.follow(others)
        if self._folder is None or self._generator is None:
            return
        tensors: dict[str, Tensor] = {}
        step = run.steps_taken
        meta: dict[str, Any] = {
            "plan": run.plan.to_json(),
            "certificate": run.certificate.to_json(),
            "asked": self._asked,
            "key": self._generator.key.hex(),
            "is_secure": self._generator.is_secure,
            "step": step,
            "last_digest": self._folder.recorded(step - 1) if step else None,
            "clip_norm": run.clip_norm,
            **self._states.packed(tensors),
        }
        noise = {f"{_NOISE}{key}": kept for key, kept in run.noise_state().items()}
        self._folder.write(tensors | noise, meta)

    def resume(self, run: "Run", public: Public, noise: Mapping[str, Tensor]) -> None:
        """Bring the run to where a checkpoint was written, or raise and leave its parts as they were."""
        tensors, meta = public
        try:
            self._states.restore(meta, tensors)
            self.steps_recorded = meta["steps_recorded"]
            run.restore(meta["step"], meta["clip_norm"], noise)
        except (KeyError, TypeError) as error:
            raise StateError(
                f"the checkpoint is whole, but not one of a run: it has no {error}."
            ) from error

    def started(self) -> None:
        """The run has begun: nothing is taken back from now on."""
        self._states.settle()

    def undo(self) -> None:
        """Set back what `resume` changed."""
        self._states.undo()

    def sync(self) -> None:
        """Wait until the journal is on the disk: before anything of the run is shown."""
        if self._folder is not None:
            self._folder.sync()

    def close(self) -> None:
        """Let go of the folder, with everything on the disk: what is shown later is covered."""
        folder, self._folder = self._folder, None
        if folder is not None:
            try:
                folder.sync()
            finally:
                folder.close()


def export_run(run: "Run", path: Path) -> None:
    """Write weights, plan and certificate; neither key nor noise, nor anything of a batch."""
    tensors = {name: t for name, t in run.model.state_dict().items() if isinstance(t, Tensor)}
    certificate = json.loads(run.certificate.to_json())
    export(path, tensors, {"certificate": certificate, "plan": certificate["plan"]})
