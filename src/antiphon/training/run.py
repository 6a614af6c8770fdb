"""A private run: batches that it draws, steps that it takes, and the certificate of both."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from antiphon.certificate import Certificate, certify
from antiphon.errors import PlanError, RunError, UnsupportedError
from antiphon.mechanisms import Honaker, Tree
from antiphon.mechanisms.toeplitz import AbstractToeplitz
from antiphon.plan import Plan
from antiphon.training.batches import Batches, Part
from antiphon.training.bounds import Bounds
from antiphon.training.display import Display
from antiphon.training.guard import Guard
from antiphon.training.private_sum import PrivateSum
from antiphon.training.probe import check_mean, probe
from antiphon.training.saving import Saving, export_run
from antiphon.training.tape import Record, Tape
from antiphon.training.team import Team

__all__ = ["Callback", "Run"]

# C of fewer steps is the first part of C: what is proved of a shorter plan holds for the first steps.
_OF_ANY_LENGTH = (AbstractToeplitz, Tree, Honaker)

Callback = Callable[[int, Mapping[str, float]], Mapping[str, float] | None]


class _Phase(Enum):
    """Where a run is: an exception may leave it within a step."""

    READY = "between the parts of a batch"
    ADDING = "a part of the batch may be in the sum, or not"
    RELEASING = "noise was drawn, and the update may have been made, or not"
    CLOSED = "all hooks are off"


@final
class Run:
    """Private training of one model, made by `make_private`.

    Use `batches` and `step`; nothing else may train the model until the run is closed. Stopping early is
    free and earns nothing: the certificate is that of the whole plan.

    Attributes:
        model: The model, with hooks until `close`.
        optimizer: The optimizer; its own ``step`` is refused while the run is open.
        plan: What runs.
        certificate: What is proved of it.
        steps_taken: Noisy steps so far.
        shown: What the callback returned last.

    Guarantee:
        The parameters after any number of steps, and everything computed from them, are (ε, δ)-DP as the
        certificate says, if each example's loss depends on that example alone and the optimizer sees
        nothing else of the data.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Batches,
        total: PrivateSum,
        plan: Plan,
        certificate: Certificate,
        *,
        team: Team,
        bounds: Bounds | None = None,
        loss_reduction: str = "mean",
        callback: Callback | None = None,
        saving: Saving | None = None,
        after_backward: bool = False,
    ) -> None:
        if loss_reduction not in ("mean", "sum"):
            raise PlanError(f"loss_reduction is 'mean' or 'sum'; got {loss_reduction!r}.")
        self.model, self.optimizer = model, optimizer
        self.plan, self.certificate = plan, certificate
        self.steps_taken, self.shown = 0, dict[str, float]()
        self._batches, self._total, self._team, self._bounds = batches, total, team, bounds
        self._is_mean = loss_reduction == "mean"
        self._callback, self._saving, self._after_backward = callback, saving, after_backward
        self._parameters = total.buffer.parameters
        self._tape = Tape(model, self._parameters, listens=after_backward)
        self._guard = Guard(model)
        self._part: Part | None = None
        self._plain: dict[nn.Parameter, Tensor] = {}
        self._is_probed = self._is_releasing = False
        self._phase, self._loops, self._process = _Phase.READY, 0, os.getpid()
        self._handles: list[Any] = [
            optimizer.register_step_pre_hook(self._before_update),
            optimizer.register_step_post_hook(self._after_update),
        ]
        self._watched = set[nn.Parameter]()
        self._watch()

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self._total.buffer.flat.device

    @property
    def clip_norm(self) -> float:
        """The clip norm of the next step; it changes with adaptive clipping only."""
        return self._total.clip_norm

    @property
    def dataset(self) -> Any:
        """The data set from which batches are drawn."""
        return self._batches.dataset

    def batches(self, steps: int | None = None, *, show: bool = True) -> Iterator[Any]:
        """The data of the steps to come: every one that comes out needs one `step`.

        Args:
            steps: At most so many steps; unless given, all that are left.
            show: Whether to draw a bar if there is a terminal.

        A batch to which nobody was drawn comes out as one row of zeros, whose gradient does not count; the
        step takes place all the same. With ``max_batch``, a batch comes out in parts, and the last of them
        takes the step. A checkpoint that is due is written when the next batch is asked for, so that it
        has what the loop does after a step, such as a scheduler's.
        """
        self._check_can_go_on()
        left = self.plan.steps - self.steps_taken
        last = self.steps_taken + (left if steps is None else min(steps, left))
        self._loops += 1
        loop = self._loops
        self._part = None  # an abandoned loop may have left one; its batch is drawn again
        self._phase = _Phase.READY
        self._total.buffer.flat.zero_()
        parts = self._batches.load(self.steps_taken, last)
        with Display(self, last, is_shown=show and self._team.is_first) as display:
            while self.steps_taken < last:
                self._before_batch(loop)
                yield self._hand_out(*next(parts))
                display.update()
        if self._saving is not None and self.steps_taken == self.plan.steps:
            self._saving.write_due(self)

    def step(self, loss: Tensor) -> None:
        """Clip and add up the gradients of the batch's examples; with its last part, take a noisy step.

        Args:
            loss: One loss per example (``reduction="none"``), or their mean. Losses per example are better
                checked: a mean hides how examples are weighed.
        """
        part = self._pending()
        if len(part.rows):
            rows = len(part.rows)
            _check_loss(loss, rows)
            scale = float(rows) if loss.ndim == 0 and self._is_mean else 1.0
            if not self._is_probed and rows > 1:
                self._probe(loss, rows, scale)
            self._collect(self._tape.used(loss, scale), part)
        self._finish(part)
        if part.is_last:
            self._is_releasing = True
            try:
                self.optimizer.step()
            finally:
                self._is_releasing = False

    def derived(self, *tensors: Tensor) -> Any:
        """Declare that these were computed from the batch at hand, row by row; returns them.

        A model is fed with the tensors that `batches` returned (also moved, cast or reshaped). What is
        computed from them outside of the model cannot be recognised, and this says so.
        """
        self._pending()
        self._guard.allow(tensors)
        return tensors[0] if len(tensors) == 1 else tensors

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
            raise RunError('this run has no folder: make_private(..., checkpoint="folder").')
        self._check_can_go_on()
        if self._part is not None or self._phase is not _Phase.READY:
            raise RunError("a checkpoint is written between steps: call save after step.")
        self._saving.write(self, others)

    def sync(self) -> None:
        """Wait until the journal is on the disk: before results of the run are shown elsewhere."""
        if self._saving is not None:
            self._saving.sync()

    def noise_state(self) -> dict[str, Tensor]:
        """What the mechanism keeps; as secret as the data."""
        noise = self._total.noise
        return {} if noise is None else noise.state()

    def go_on(self, step: int, clip_norm: float, kept: Mapping[str, Tensor]) -> None:
        """Continue before ``step`` with what `noise_state` returned there."""
        self.steps_taken, self._total.clip_norm = step, clip_norm
        if self._total.noise is not None:
            self._total.noise.restore(step, kept)

    def export(self, path: Path | str) -> None:
        """Write weights, plan and certificate to a safetensors file: what may be shown."""
        self.sync()
        export_run(self, Path(path))

    def close(self) -> None:
        """Take all hooks off the model and the optimizer, and let go of the folder."""
        try:
            if self._saving is not None and self._phase is _Phase.READY:
                self._saving.write_due(self)
        finally:
            self.detach()

    def detach(self) -> None:
        """As `close`, without a checkpoint that may be due."""
        self._phase = _Phase.CLOSED
        self._tape.detach()
        while self._handles:
            self._handles.pop().remove()
        if self._saving is not None:
            self._saving.close()

    def __reduce_ex__(self, protocol: object) -> Any:
        """No copies and no pickles: two runs with one key would add the same noise to two gradients."""
        raise RunError(
            "a run cannot be copied or pickled: a copy would use its noise again, and a pickle hold its "
            "key. Copy the model; to go on elsewhere, use checkpoint= and resume=True."
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

    def _hand_out(self, part: Part, data: Any) -> Any:
        if self._bounds is not None:
            data = self._bounds.enforce(data)
        self._part = part
        self._plain.clear()
        self._watch()
        self._guard.hand_out(data)
        self._tape.start()
        return data

    def _watch(self) -> None:
        """No gradient of the model without noise is left where an optimizer finds it."""
        # Also of parameters that are not trained: they may be given to an optimizer later, or to another.
        for parameter in self.model.parameters():
            if parameter.requires_grad and parameter not in self._watched:
                hook = parameter.register_post_accumulate_grad_hook(self._after_gradient)  # type: ignore[no-untyped-call]
                self._handles.append(hook)
                self._watched.add(parameter)

    def _check_trained(self) -> None:
        """Raise if the optimizer would move parameters that get no noise."""
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter in self._total.buffer.views:
                    continue
                if parameter.requires_grad or parameter.grad is not None:
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
                "update was made. Close this run and go on from its checkpoint with resume=True; without "
                "one, start a new run, which costs a new ε."
            )

    def _before_batch(self, loop: int) -> None:
        """Before data is read: is its turn come, and is a checkpoint due?"""
        self._check_can_go_on()
        if loop != self._loops:
            raise RunError(
                "another loop over batches() has begun since this one, and goes on with the steps. Use one "
                "loop at a time."
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
        if self._saving is not None:
            self._saving.write_due(self)

    def _pending(self) -> Part:
        self._check_can_go_on()
        self._check_trained()
        if self._part is not None and self._phase is _Phase.READY:
            return self._part
        self.check_steps_left()
        raise RunError(
            "no batch is out: a step takes exactly one batch, drawn by this run. Batches from elsewhere "
            "have no guarantee."
        )

    def _probe(self, loss: Tensor, rows: int, scale: float) -> None:
        """Look at the first batch of several examples before anything of it is released."""
        records = self._tape.used(loss, scale, retain_graph=True)
        self._guard.check(records)
        start = torch.full_like(loss, scale)
        plain = torch.autograd.grad(
            loss, self._parameters, start, retain_graph=True, allow_unused=True
        )
        self._is_probed = self._probe_with(
            records, rows, dict(zip(self._parameters, plain, strict=True)), loss
        )

    def _probe_with(
        self,
        records: list[Record],
        rows: int,
        plain: Mapping[nn.Parameter, Tensor | None],
        loss: Tensor | None,
    ) -> bool:
        # The probe draws random numbers; a resumed run probes again and must draw the same ones afterwards.
        devices = [self.device] if self.device.type == "cuda" else []
        with self._tape.paused(), torch.random.fork_rng(devices=devices):
            return probe(self.model, self._tape, records, rows, plain, self._total.buffer, loss)

    def _collect(self, records: list[Record], part: Part) -> None:
        """Add the clipped gradients of one part to the sum."""
        self._guard.check(records)
        factors = self._tape.factors(records, len(part.rows))
        self._phase = _Phase.ADDING
        self._total.add(factors, part.units)
        self._phase = _Phase.READY

    def _finish(self, part: Part) -> None:
        """The part is done; with the last one, noise makes the sum a gradient."""
        self._tape.stop()
        self._part = None
        if part.is_last:
            self._record()
            self._phase = _Phase.RELEASING
            self._total.release(self.steps_taken)

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
        if not self._after_backward:
            raise RunError(
                "optimizer.step() outside of run.step(loss) would train without noise. Call run.step(loss) "
                "only; run.close() gives the optimizer back."
            )
        if any(value is not None for value in (*args[1:], *kwargs.values())):
            raise RunError(
                "optimizer.step(closure) would compute its gradient again, without noise. Call "
                "loss.backward(), then optimizer.step()."
            )
        part = self._pending()
        self._forget_gradients()
        if len(part.rows):
            self._collect(self._heard(len(part.rows)), part)
        self._finish(part)
        self._is_releasing = part.is_last

    def _heard(self, rows: int) -> list[Record]:
        """What the user's own ``backward`` brought, as gradients of single examples' losses."""
        records = self._tape.heard()
        if self._is_mean:
            for record in records:
                record.received = [None if g is None else g * rows for g in record.received]
        if not self._is_probed and rows > 1:
            scale = rows if self._is_mean else 1
            plain = {p: g * scale for p, g in self._plain.items()}
            self._is_probed = self._probe_with(records, rows, plain, None)
        self._plain.clear()
        return records

    def _after_update(self, *details: object) -> None:
        """The optimizer has made its step."""
        if not self._is_releasing:
            return
        self._is_releasing = False
        self._forget_gradients()
        self._total.buffer.flat.zero_()
        self.steps_taken += 1
        self._phase = _Phase.READY
        if self._saving is not None:
            self._saving.after_step(self)
        if self._callback is not None and self._team.is_first:
            epsilon = self.certificate.epsilon
            metrics = {"steps": self.plan.steps, "epsilon": epsilon, "clip_norm": self.clip_norm}
            self.shown = dict(self._callback(self.steps_taken, metrics) or {})

    def _after_gradient(self, parameter: Any) -> None:
        """Sums without clipping, which nobody may use."""
        if self._after_backward and not self._is_probed and parameter in self._total.buffer.views:
            before = self._plain.get(parameter)  # of a loss in several parts
            self._plain[parameter] = parameter.grad if before is None else before + parameter.grad
        parameter.grad = None
        if not self._after_backward:
            raise RunError(
                "loss.backward() computes gradients without clipping. Call run.step(loss) instead; "
                "run.close() gives the model back."
            )

    def _forget_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None


def _check_loss(loss: Tensor, rows: int) -> None:
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        raise RunError("step needs the loss as a tensor that leads back to the model's parameters.")
    if loss.ndim and len(loss) != rows:
        raise RunError(
            f"the loss has shape {tuple(loss.shape)} for {rows} examples: give one loss per example, or "
            "their mean."
        )
    if loss.ndim == 0:
        check_mean(loss)
