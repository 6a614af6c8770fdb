"""A private run: it draws the batches, takes the steps, and has the certificate of both."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from antiphon.certificates import Certificate, certify
from antiphon.checks import whole
from antiphon.errors import RunError, UnsupportedError
from antiphon.mechanisms import AbstractToeplitz, Honaker, Tree
from antiphon.plans import Plan
from antiphon.training.checkpoints import Saving, export_run
from antiphon.training.gradients import AbstractPath, Examples, Piece
from antiphon.training.run.batches import Batches, Part
from antiphon.training.run.display import Display
from antiphon.training.run.options import Options
from antiphon.training.run.private_sum import PrivateSum
from antiphon.training.run.refusals import ModelWatch
from antiphon.training.run.team import Team

__all__ = ["Run"]

# C of fewer steps is the first part of C: what is proved of a shorter plan holds for the first steps.
_OF_ANY_LENGTH = (AbstractToeplitz, Tree, Honaker)


class _Phase(Enum):
    """Where a run is: an exception may leave it within a step."""

    READY = "between two steps"
    ADDING = "a part of the batch may be in the sum, or not"
    RELEASING = "noise was drawn, and the update may have been made, or not"
    CLOSED = "the optimizer's hooks are off"


@final
class Run:
    """Private training of one model, made by `make_private`.

    Iterating it takes its steps and gives the number of steps taken after each; `train` takes all of them.
    Nothing else may train the model until the run is closed. Stopping early does not lower ε: the
    certificate is that of the whole plan.

    Attributes:
        model: The model.
        optimizer: The optimizer; its own ``step`` is refused while the run is open.
        plan: What runs.
        certificate: What is proved of it.
        path: How the gradients of single examples are computed.
        steps_taken: Noisy steps so far.
        shown: What the callback returned last.
        listener: Called when the optimizer's ``step`` is called from outside, instead of refusing it.

    Guarantee:
        The parameters after any number of steps, and everything computed from them, are (ε, δ)-DP as the
        certificate says, if neither data set, collate function nor loss reads anything of the data but
        the example, and the optimizer sees nothing else of the data.

    Example:
        >>> import antiphon as ap
        >>> model, x, y = nn.Linear(3, 2), torch.randn(200, 3), torch.randint(0, 2, (200,))
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> run = ap.make_private(
        ...     model, optimizer, (x, y), lambda model, x, y: nn.functional.cross_entropy(model(x), y),
        ...     epsilon=2.0, delta=1e-5, epochs=2, batch_size=20, mechanism="independent")
        >>> [step for step in run][-3:]
        [18, 19, 20]
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Batches,
        total: PrivateSum,
        plan: Plan,
        certificate: Certificate,
        path: AbstractPath | None,
        *,
        team: Team,
        options: Options,
        saving: Saving | None,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.plan, self.certificate, self.path = plan, certificate, path
        self.steps_taken, self.shown = 0, dict[str, float]()
        self.listener: Callable[[], None] | None = None
        self._batches, self._total, self._team = batches, total, team
        self._options, self._saving = options, saving
        self._part: Part | None = None
        self._drawn = list[Part]()
        self._is_releasing = False
        self._phase, self._loops, self._process = _Phase.READY, 0, os.getpid()
        self._watch = ModelWatch(model)
        self._handles: list[Any] = [
            optimizer.register_step_pre_hook(self._before_update),
            optimizer.register_step_post_hook(self._after_update),
        ]

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self._total.total.device

    @property
    def clip_norm(self) -> float:
        """The clip norm of the next step; it changes with adaptive clipping only."""
        return self._total.clip_norm

    @property
    def dataset(self) -> Any:
        """The rows from which batches are drawn."""
        return self._batches.dataset.rows

    @property
    def drawn(self) -> Tensor:
        """Row numbers of the last batch, of this process's share: as secret as the data, for audits."""
        return torch.cat([part.rows for part in self._drawn] or [torch.empty(0, dtype=torch.int64)])

    def __iter__(self) -> Iterator[int]:
        """Take all steps that are left; as `take`."""
        return self.take()

    def train(self, steps: int | None = None, *, show: bool = True) -> "Run":
        """Take the steps, as `take` without its numbers. Returns the run."""
        for _ in self.take(steps, show=show):
            pass
        return self

    def take(self, steps: int | None = None, *, show: bool = True) -> Iterator[int]:
        """Take steps, and give the number of those taken after each.

        Args:
            steps: At most so many; unless given, all that are left.
            show: Whether to draw a bar if there is a terminal.

        An empty batch takes its step, too. A checkpoint that is due is written when the
        next step is asked for, so that it has what the loop does after a step, such as a scheduler's.
        """
        if self.path is None:
            raise RunError(
                "this run belongs to a loop with loss.backward() and optimizer.step(): iterate the loader."
            )
        for part, examples in self.parts(steps, show=show):
            if examples is not None:
                for piece in self.path.pieces(part.step, part.rows, examples, part.units):
                    self.add(piece)
            if self.finish_part():
                self._update()
                yield self.steps_taken

    def parts(
        self, steps: int | None = None, *, show: bool = True
    ) -> Iterator[tuple[Part, Examples | None]]:
        """The parts of the batches to come, each to be followed by `add` and `finish_part`.

        This is for loops of other libraries; `take` is built on it.
        """
        self._check_can_go_on()
        left = self.plan.steps - self.steps_taken
        if steps is not None and steps != 0:
            left = min(whole("steps", steps), left)
        last = self.steps_taken + (0 if steps == 0 else left)
        self._loops += 1
        loop = self._loops
        self._watch = ModelWatch(self.model)  # hooks on parameters are looked for once in a loop
        self._part = None  # an abandoned loop may have left one; its batch is drawn again
        self._drawn.clear()
        self._phase = _Phase.READY
        self._total.total.clear()
        found = self._batches.load(self.steps_taken, last)
        with Display(self, last, is_shown=show and self._team.is_first) as display:
            while self.steps_taken < last:
                self._before_batch(loop)
                if self._drawn and self._drawn[-1].is_last:
                    self._drawn.clear()
                self._part, examples = next(found)
                self._drawn.append(self._part)
                yield self._part, None if examples is None else self._options.bounded(examples)
                display.update()
        if self._saving is not None and self.steps_taken == self.plan.steps:
            self._saving.write_due(self)

    def add(self, piece: Piece) -> None:
        """Clip the gradients of a piece of the part at hand, and add them to the sum."""
        self.pending()
        self._phase = _Phase.ADDING
        self._total.add(piece)
        self._phase = _Phase.READY

    def finish_part(self) -> bool:
        """The part is done; with the last one, noise makes the sum a gradient, for the optimizer to use."""
        part = self.pending()
        self._part = None
        if part.is_last:
            self._check_trained()
            self._record()
            self._phase = _Phase.RELEASING
            self._total.release(self.steps_taken)
        return part.is_last

    def pending(self) -> Part:
        """The part at hand, or an error if there is none."""
        self._check_can_go_on()
        if self._part is not None:
            return self._part
        self.check_steps_left()
        raise RunError(
            "no batch is out: a step takes exactly one batch, drawn by this run. Batches from elsewhere "
            "have no guarantee."
        )

    def certify_steps_taken(self, *, stop_was_independent: bool) -> Certificate:
        """What is proved of the steps so far, if the decision to stop here saw no result of the run.

        A stop in view of any result, also on public data, has the plan's certificate only.
        """
        if not stop_was_independent:
            return self.certificate
        steps = self._steps_released()
        if not steps:
            raise RunError("no step was taken, so nothing was released.")
        mechanism = self.plan.known_mechanism()
        if steps < self.plan.steps and not isinstance(mechanism, _OF_ANY_LENGTH):
            raise UnsupportedError(
                f"the noise of {type(mechanism).__name__} depends on the number of steps that were "
                f"planned: that of a plan of {steps} steps is not what ran. Use run.certificate."
            )
        taken = certify(replace(self.plan, steps=steps), self.certificate.delta)
        text = f"the run stopped after {steps} steps for a reason that saw none of its results"
        own = (line for line in self.certificate.assumptions if line not in taken.assumptions)
        return replace(taken, assumptions=(*taken.assumptions, *own, text))

    def check_steps_left(self) -> None:
        """Raise if all steps of the plan are taken."""
        if self.steps_taken >= self.plan.steps:
            raise RunError(
                f"all {self.plan.steps} steps of the plan are taken. More steps need a new plan and cost "
                "more privacy."
            )

    def _steps_released(self) -> int:
        """Steps whose results may have been seen: also those after the checkpoint of a resumed run."""
        begun = self.steps_taken + (self._phase is _Phase.RELEASING)
        return begun if self._saving is None else max(begun, self._saving.steps_recorded)

    def save(self, **others: Any) -> None:
        """Write a checkpoint now; ``others`` are objects with ``state_dict``, such as a scheduler."""
        if self._saving is None:
            raise RunError(
                'this run has no folder: make_private(..., options=Options(checkpoint="folder")).'
            )
        self._check_can_go_on()
        if self._part is not None or self._phase is not _Phase.READY:
            raise RunError("a checkpoint is written between steps.")
        self._saving.write(self, others)

    def sync(self) -> None:
        """Wait until the journal is on the disk: before results of the run are shown elsewhere."""
        if self._saving is not None:
            self._saving.sync()

    def noise_state(self) -> dict[str, Tensor]:
        """What the mechanism keeps; as secret as the data."""
        noise = self._total.noise
        return {} if noise is None else noise.state()

    def restore(self, step: int, clip_norm: float, kept: Mapping[str, Tensor]) -> None:
        """Continue before ``step`` with what `noise_state` returned there."""
        self.steps_taken, self._total.clip_norm = step, clip_norm
        if self._total.noise is not None:
            self._total.noise.restore(step, kept)

    def export(self, path: Path | str) -> None:
        """Write weights, plan and certificate to a safetensors file: what may be shown."""
        self.sync()
        export_run(self, Path(path))

    def close(self) -> None:
        """Take the hooks off the optimizer, and let go of the folder."""
        try:
            if self._saving is not None and self._phase is _Phase.READY:
                self._saving.write_due(self)
        finally:
            self.detach()

    def detach(self) -> None:
        """As `close`, without a checkpoint that may be due."""
        self._phase = _Phase.CLOSED
        while self._handles:
            self._handles.pop().remove()
        if self._total.noise is not None:
            self._total.noise.close()
        if self._saving is not None:
            self._saving.close()

    def __reduce_ex__(self, protocol: object) -> Any:
        """No copies and no pickles: two runs with one key would add the same noise to two gradients."""
        raise RunError(
            "a run cannot be copied or pickled: a copy would use its noise again, and a pickle hold its "
            "key. Copy the model; to continue elsewhere, use a checkpoint and resume=True."
        )

    def __enter__(self) -> "Run":
        """The run itself."""
        return self

    def __exit__(self, kind: object, *details: object) -> None:
        """Close it; after an exception without a checkpoint, which would have half of a loop's round."""
        if kind is None:
            self.close()
        else:
            self.detach()

    def _update(self) -> None:
        """Let the optimizer make its step from the noisy gradients."""
        self._is_releasing = True
        try:
            self.optimizer.step()
        finally:
            self._is_releasing = False

    def _check_trained(self) -> None:
        """Raise if the optimizer would move parameters that get no noise."""
        mine = set(self._total.total.parameters)
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter not in mine and (
                    parameter.requires_grad or parameter.grad is not None
                ):
                    raise RunError(
                        f"the optimizer holds a parameter of shape {tuple(parameter.shape)} that this run "
                        "does not train with noise: it was added or unfrozen since the run began, or has "
                        "a gradient from before. Freeze it and set its grad to None, or close this run "
                        "and start another one, which costs a new ε."
                    )

    def _check_can_go_on(self) -> None:
        """Raise if no further step can be part of the plan."""
        if self._phase is _Phase.CLOSED:
            raise RunError("this run is closed: no guarantee covers further steps of it.")
        if os.getpid() != self._process:
            raise RunError(
                "this run belongs to the process that this one was forked from: both would use the same "
                "noise. Start the run in the process that trains."
            )
        if self._phase is _Phase.RELEASING:
            raise RunError(
                "an earlier step was interrupted after its noise was drawn, so it is not known whether its "
                "update was made. Close this run and resume it from its checkpoint with resume=True; "
                "without one, start a new run, which costs a new ε."
            )

    def _before_batch(self, loop: int) -> None:
        """Before data is read: is its turn come, and is a checkpoint due?"""
        self._check_can_go_on()
        if loop != self._loops:
            raise RunError(
                "another loop has begun since this one, and takes the steps. Use one loop at a time."
            )
        if self._phase is _Phase.ADDING:
            raise RunError(
                "a part of this batch failed, and it is not known how much of it was added. Leave the loop "
                "and begin another one: it draws the batch again."
            )
        if self._part is not None:
            raise RunError(
                "a batch was drawn but no step was taken on it: the plan counts on every batch "
                "that is drawn. To stop early, leave the loop."
            )
        self._watch.check()
        frozen = [p for p in self._total.total.parameters if not p.requires_grad]
        if frozen:
            raise RunError(
                f"a parameter of shape {tuple(frozen[0].shape)} was frozen since the run began, which "
                "trains it with noise. Set its requires_grad to True, or close this run and start "
                "another one."
            )
        if self._saving is not None:
            self._saving.write_due(self)

    def _record(self) -> None:
        """Write down, before any noise, which gradient it goes to."""
        saving, step = self._saving, self.steps_taken
        if saving is not None:
            digest = self._total.digest()
            self._team.first(lambda: saving.record(step, digest))

    def _before_update(
        self, optimizer: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        if self._is_releasing:
            return
        if self.listener is None:
            raise RunError(
                "optimizer.step() outside of the run would train without noise. Iterate the run, which "
                "takes the steps; run.close() gives the optimizer back."
            )
        if any(value is not None for value in (*args[1:], *kwargs.values())):
            raise RunError(
                "optimizer.step(closure) would compute its gradient again, without noise. Call "
                "loss.backward(), then optimizer.step()."
            )
        self.listener()
        self._is_releasing = self.finish_part()

    def _after_update(self, *details: object) -> None:
        """The optimizer has made its step."""
        if not self._is_releasing:
            return
        self._is_releasing = False
        for parameter in self._total.total.parameters:
            parameter.grad = None
        self._total.total.clear()
        self.steps_taken += 1
        self._phase = _Phase.READY
        if self._saving is not None:
            self._saving.after_step(self)
        if self._options.callback is not None and self._team.is_first:
            epsilon = self.certificate.epsilon
            metrics = {"steps": self.plan.steps, "epsilon": epsilon, "clip_norm": self.clip_norm}
            self.shown = dict(self._options.callback(self.steps_taken, metrics) or {})
