"""Small private runs, here and in processes of their own, and the comparison of what they leave."""

import multiprocessing
import os
import random
import socket
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from antiphon.training import make_private

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


class Job:
    """One run: made alike in every process that is to take part in it, or to resume it."""

    def __init__(self, folder=None, resume=False, *, optimizer="sgd", dropout=0.0, model_seed=0,
                 examples=None, loss="none", scheduled=False, pause=0.0, **options):  # fmt: skip
        self.model = network(dropout, model_seed)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.5)
        self.scheduled, self.loss, self.pause = scheduled, loss, pause
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 (the global one is meant)
        options = {"delta": 1e-3, "noise_multiplier": 1.0, "steps": 10, "batch_size": 8,
                   "mechanism": "independent", "seed": 7, "checkpoint_every": 3} | options  # fmt: skip
        others = {"scheduler": self.scheduler} if scheduled and folder is not None else None
        self.run = make_private(
            self.model,
            self.optimizer,
            data() if examples is None else examples,
            checkpoint=folder,
            resume=resume,
            others=others,
            **options,
        )

    def train(self, steps=None):
        """Take some steps, or all that are left."""
        for x, y in self.run.batches(steps, show=False):
            self.step(x, y)
        return self

    def step(self, x, y):
        """One of them."""
        reduction = "mean" if self.loss == "mean" else "none"
        value = nn.functional.cross_entropy(self.model(x), y, reduction=reduction)
        self.run.step(value * 3 if self.loss == "other" else value)
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
CONTEXT.set_forkserver_preload(["antiphon.training", "antiphon.accounting"])


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


def _member(rank, world, meeting, work, folder, out, options):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world
    )
    try:
        result = work(rank, folder, dict(options))
    except Exception as error:
        result = error
    torch.save(result, f"{out}.{rank}.unfinished")
    os.replace(f"{out}.{rank}.unfinished", f"{out}.{rank}")
    if not isinstance(result, Exception):
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def team(work, place, folder=None, world=2, **options):
    """Start ``work`` in as many processes of one group; returns them and where their results will be."""
    place = Path(place)
    number = len(list(place.glob("team*")))
    meeting, out = place / f"team{number}", place / f"result{number}"
    meeting.touch()
    meeting.unlink()
    (place / f"team{number}.used").touch()
    processes = [
        in_process(_member, rank, world, meeting, work, folder, out, options)
        for rank in range(world)
    ]
    return processes, [Path(f"{out}.{rank}") for rank in range(world)]


def results(processes, places, within=60.0):
    """What the processes of a team returned or raised."""
    end = time.monotonic() + within
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    late = [process for process in processes if process.is_alive()]
    for process in late:
        process.kill()
        process.join()
    assert not late, "a process waits for another that will not come"
    return [torch.load(p, weights_only=False) if p.exists() else None for p in places]


def free_port():
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]
