"""Small private runs, here and in processes of their own, and the comparison of what they leave."""

import gc
import multiprocessing
import os
import random
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from oracles.small_models import private
from torch import distributed as dist
from torch import nn

from antiphon.errors import AntiphonError
from antiphon.numerics import Generator

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05),
}


def data(n=40, seed=0):
    """Inputs and labels."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, generator=generator), torch.randint(0, 2, (n,), generator=generator)


def network(dropout=0.0, seed=0):
    """Two layers."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(dropout), nn.Linear(4, 2))


def plain_loss(model, x, y):
    """Of one example."""
    return nn.functional.cross_entropy(model(x), y)


def other_loss(model, x, y):
    """Another one."""
    return 3 * plain_loss(model, x, y)


def zero_loss(model, x, y):
    """Nothing but noise remains."""
    return 0 * plain_loss(model, x, y)


def looking_loss(model, x, y):
    """Equal to the plain one, and computed for one example after another."""
    loss = plain_loss(model, x, y)
    return loss if loss.item() >= 0 else -loss


def vector_loss(model, x, y):
    """Not a number."""
    return model(x)


LOSSES = {"plain": plain_loss, "other": other_loss, "zero": zero_loss, "looking": looking_loss,
          "vector": vector_loss}  # fmt: skip


class Job:
    """One run: made alike in every process that is to take part in it, or to resume it."""

    def __init__(self, folder=None, resume=False, *, optimizer="sgd", dropout=0.0, model_seed=0,
                 examples=None, loss="plain", scheduled=False, pause=0.0, **options):  # fmt: skip
        self.model = network(dropout, model_seed)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.5)
        self.scheduled, self.pause = scheduled, pause
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 (the global one is meant)
        given = {"delta": 1e-3, "seed": 7, "checkpoint_every": 3}
        options = given | ({} if "plan" in options else {"batch_size": 8}) | options
        if scheduled and folder is not None:
            options = {"others": {"scheduler": self.scheduler}} | options
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the loss is evaluated for one example after another")
            self.run = private(
                self.model,
                data() if examples is None else examples,
                self.optimizer,
                LOSSES[loss],
                checkpoint=folder,
                resume=resume,
                **options,
            )

    def train(self, steps=None):
        """Take some steps, or all that are left."""
        for _ in self.run.take(steps, show=False):
            self.after_step()
        return self

    def after_step(self):
        """What the loop does after each."""
        if self.scheduled:
            self.scheduler.step()
        if self.pause:
            time.sleep(self.pause)

    def close(self):
        """Let go of model and folder."""
        self.run.close()
        return self

    @property
    def left(self):
        """Everything that training changes."""
        return {
            "weights": {name: t.clone() for name, t in self.model.state_dict().items()},
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "clip norm": self.run.clip_norm,
            "noise": self.run.noise_state(),
            "steps": self.run.steps_taken,
        }


def assert_same_bits(actual, expected):
    """Equal in every bit, at every depth."""
    if isinstance(expected, torch.Tensor):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        assert torch.equal(actual, expected), (actual, expected)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key, value in expected.items():
            assert_same_bits(actual[key], value)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same_bits(one, other)
    else:
        assert actual == expected


# A fork server has imported torch once; each of its children is a process of its own from the start.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["antiphon.training", "torch._dynamo"])


def in_process(target, *args):
    """Start ``target`` in another process."""
    process = CONTEXT.Process(target=target, args=args)
    process.start()
    return process


def train_in_process(folder, out, options):
    """Go on with the run in the folder, or start it, to its end; leave the results at ``out``."""
    torch.set_num_threads(1)
    resume = (Path(folder) / "checkpoint.safetensors").exists()
    job = Job(folder, resume, **options)
    Path(f"{out}.began").write_text(str(job.run.steps_taken))
    job.train().close()
    torch.save(job.left, out)


def try_to_resume(folder, out):
    """Leave the refusal at ``out``."""
    try:
        Job(folder, resume=True, optimizer="adam", scheduled=True)
    except AntiphonError as error:
        out.write_text(f"{type(error).__name__}: {error}")


def member(rank, folder, options):
    """What one process of a team has to do and leaves. Options with a list are for each process."""
    options = {key: value[rank] if isinstance(value, list) and key != "user" else value
               for key, value in options.items()}  # fmt: skip
    calls = []
    # A folder of its own: only the first process may write one.
    own = folder if rank == 0 or folder is None else f"{folder}-of-{rank}"
    job = Job(own, options.pop("resume", False), callback=lambda step, _: calls.append(step),
              **{"model_seed": rank} | options)  # fmt: skip
    start = {name: t.clone() for name, t in job.model.state_dict().items()}
    parts = [job.run._batches.parts(step) for step in range(job.run.plan.steps)]
    job.train().close()
    gc.collect()
    return {
        **job.left,
        "start": start,
        "rows": [torch.cat([part.rows for part in step]).tolist() for step in parts],
        "certificate": job.run.certificate.to_json(),
        "calls": calls,
        "shown": job.run.shown,
        "has noise": job.run._total.noise is not None,
        "keys": {value.key for value in gc.get_objects() if type(value) is Generator},
    }


def members(rank, folder, cases):
    """Several runs, one after the other."""
    return {name: member(rank, None, options) for name, options in cases.items()}


def refusals(rank, folder, cases):
    """What each of several runs raises."""
    found = {}
    for name, options in cases.items():
        try:
            member(rank, folder, options)
            found[name] = None
        except AntiphonError as error:
            found[name] = error
    return found


def _member(rank, world, meeting, work, folder, out, options):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    try:
        result = work(rank, folder, dict(options))
    except Exception as error:
        result = error
    torch.save(result, f"{out}.{rank}.unfinished")
    os.replace(f"{out}.{rank}.unfinished", f"{out}.{rank}")
    if not isinstance(result, Exception):
        dist.barrier()
    dist.destroy_process_group()


def team(work, place, folder=None, options=None, world=2):
    """Start ``work`` in as many processes of one group; returns them and where their results will be."""
    place = Path(tempfile.mkdtemp(dir=place))
    processes = [
        in_process(_member, rank, world, place / "meeting", work, folder, place / "out", options)
        for rank in range(world)
    ]
    return processes, [place / f"out.{rank}" for rank in range(world)]


def results(processes, places, within=60.0):
    """What the processes of a team returned or raised, in at most so many seconds."""
    end = time.monotonic() + within
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    late = [rank for rank, process in enumerate(processes) if process.is_alive()]
    for rank in late:
        processes[rank].kill()
        processes[rank].join()
    assert not late, f"processes {late} wait for others that will not come"
    return [torch.load(p, weights_only=False) if p.exists() else None for p in places]
