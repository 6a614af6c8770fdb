"""The noise of a run against dense matrices, and from any step on."""

import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from oracles.runs import Job

from antiphon.errors import StateError
from antiphon.mechanisms import (
    BLT,
    FFT,
    Banded,
    BandedInverse,
    Dense,
    FullHonaker,
    Honaker,
    Independent,
    LambdaCGD,
    NuFTRL,
    Restarted,
    Tree,
)
from antiphon.numerics import Generator
from antiphon.training.run.ahead import Ahead
from antiphon.training.run.noise import Noise

T = 11
SIGNED = np.tril(np.random.default_rng(1).normal(size=(T, T))) + 2 * np.eye(T)
MECHANISMS = {
    "independent": Independent(),
    "λ = 0": LambdaCGD(0.0),
    "λ = 0.7": LambdaCGD(0.7),
    "λ = 1": LambdaCGD(1.0),
    "ν": NuFTRL(0.05),
    "buffered ν": NuFTRL(0.01).buffered(T, buffers=3),
    "banded": Banded((1.0, 0.5, 0.25)),
    "banded inverse": BandedInverse((1.0, -0.6, 0.1)),
    "blt": BLT((0.3, 0.2), (0.9, 0.4)),
    "tree": Tree(),
    "honaker": Honaker(),
    "full honaker": FullHonaker(),
    "fft": FFT(),
    "dense": Dense(SIGNED),
    "restarted": Restarted(NuFTRL(0.0), 3),
    "restarted tree": Restarted(Tree(), 2),
}
SHORT, LONG = 7, 100_001  # long rows are drawn ahead
every = pytest.mark.parametrize("name", MECHANISMS)


def noise(name, dtype=torch.float64, seed=3, size=SHORT, ahead=True):
    like = torch.zeros(size, dtype=dtype)
    source = Noise(MECHANISMS[name], Generator.seeded(seed), like, T)
    if not ahead:
        source.close()
    return source


def threads():
    """Those that draw ahead."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("antiphon-ahead")]


@pytest.fixture
def drawn(monkeypatch):
    """Which steps are drawn, and whether in this thread."""
    steps, fill, here = [], Generator.normal_, threading.get_ident()

    def normal_(generator, out, step, **options):
        steps.append((step, threading.get_ident() == here))
        return fill(generator, out, step, **options)

    monkeypatch.setattr(Generator, "normal_", normal_)
    return steps


@every
def test_rows_are_those_of_the_decoder_times_white_noise(name):
    like = torch.zeros(7, dtype=torch.float64)
    z = torch.stack([Generator.seeded(3).normal([like], t)[0] for t in range(T)])
    expected = torch.as_tensor(MECHANISMS[name].decoder(T)) @ z
    source = noise(name)
    actual = torch.stack([source.draw().clone() for _ in range(T)])
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@every
def test_rows_are_the_same_in_memory_that_is_given_up(name):
    fresh, again, row = noise(name), noise(name, torch.float32), None
    for _ in range(T):
        row = again.draw(row)
        assert row.dtype is torch.float64
        assert torch.equal(row, fresh.draw())


@every
def test_the_unit_is_the_deviation_of_the_first_row(name):
    assert noise(name).unit == pytest.approx(abs(MECHANISMS[name].decoder(T)[0, 0]), rel=1e-9)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [SHORT, LONG])
def test_noise_resumes_from_any_step_to_the_last_bit(name, dtype, size):
    source, rows, states = noise(name, dtype, size=size), [], []
    for _ in range(T):
        states.append({key: kept.clone() for key, kept in source.state().items()})
        rows.append(source.draw().clone())
    for t, state in enumerate(states):
        other = noise(name, dtype, size=size, ahead=t % 3 != 0)
        other.restore(t, state)
        assert other.step == t
        for s in range(t, T):
            assert torch.equal(other.draw(), rows[s])
        source.restore(t, state)
        assert source.step == t
        assert torch.equal(source.draw(), rows[t])


@pytest.mark.parametrize("size", [SHORT, LONG])
def test_a_restored_state_is_a_copy(size):
    source = noise("blt", size=size)
    source.draw()
    state = source.state()
    before = {key: kept.clone() for key, kept in state.items()}
    other = noise("blt", size=size)
    other.restore(1, state)
    other.draw(other.draw().zero_())
    other.close()
    assert all(torch.equal(state[key], before[key]) for key in before)


@pytest.mark.parametrize("size", [SHORT, LONG])
def test_there_are_as_many_rows_as_steps(size):
    source = noise("λ = 0.7", size=size)
    for step in range(T):
        assert source.step == step
        source.draw()
    with pytest.raises(StateError, match="steps of this state are taken"):
        source.draw()


def test_noise_is_released_for_the_step_whose_turn_it_is():
    total = Job().run._total
    total.noise.draw()
    with pytest.raises(StateError, match="the noise of step 1 comes next, not that of step 0"):
        total.release(0)
    total.release(1)


@pytest.mark.parametrize(
    "step, kept",
    [
        (-1, {}),
        (T + 1, {}),
        (1, {"0": torch.zeros(8, dtype=torch.float64)}),
        (1, {"0": torch.zeros(7, dtype=torch.float32)}),
        (1, {"1": torch.zeros(7, dtype=torch.float64)}),
        (T, {"ahead": torch.zeros(7, dtype=torch.float64)}),
        (1, {"ahead": torch.zeros(8, dtype=torch.float64)}),
        (1, {"ahead": torch.zeros(7, dtype=torch.float64), "1": torch.zeros(7).double()}),
    ],
)
def test_a_state_of_another_model_or_plan_is_refused(step, kept):
    with pytest.raises(StateError, match="another model, plan or version"):
        noise("λ = 0.7").restore(step, kept)


@every
def test_rows_are_the_same_whether_drawn_ahead_or_not(name):
    ahead, in_place, row = noise(name, size=LONG), noise(name, size=LONG, ahead=False), None
    for _ in range(T):
        row = ahead.draw(row)
        before = row.clone()
        ahead.state()  # waits until the next row is there
        assert torch.equal(row, before)
        assert torch.equal(row, in_place.draw())
        row.zero_()  # a caller may overwrite its row


def test_each_step_is_drawn_once_and_ahead_but_for_the_first(drawn):
    source, row, end = noise("λ = 0.7", size=LONG), None, time.monotonic() + 60
    for t in range(T):
        row = source.draw(row)
        while len(drawn) < min(t + 2, T) and time.monotonic() < end:
            time.sleep(0.001)
    source.close()
    assert drawn == [(t, t == 0) for t in range(T)]


def test_a_call_whose_turn_has_not_come_is_made_in_place():
    ahead, go = Ahead(), threading.Event()
    ahead.begin(go.wait)
    ahead.begin(threading.get_ident)
    assert ahead.take() == threading.get_ident()
    assert not ahead.is_begun
    go.set()
    ahead.close()


def test_there_is_nothing_to_take_before_a_call():
    with pytest.raises(StateError, match="no call was begun"):
        Ahead().take()


def test_nothing_is_drawn_ahead_without_threads(monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    source, other = noise("blt", size=LONG), noise("blt", size=LONG, ahead=False)
    assert all(torch.equal(source.draw(), other.draw()) for _ in range(T))


def test_two_rows_of_memory_are_enough():
    source, row, places = noise("independent", size=LONG), None, set()
    for _ in range(T):
        row = source.draw(row)
        places.add(row.data_ptr())
    assert len(places) == 2


def test_what_a_call_worked_with_is_let_go_once_it_is_made():
    class Work:
        def __call__(self):
            made.set()

    ahead, made, work = Ahead(), threading.Event(), Work()
    gone = weakref.ref(work)
    ahead.begin(work)
    del work
    assert made.wait(60)
    ahead.close()
    assert gone() is None and ahead.is_begun


def test_short_rows_are_drawn_in_place(drawn):
    source = noise("λ = 0.7")
    source.draw()
    assert not threads()
    source.draw()
    assert drawn == [(0, True), (1, True)]


def test_the_row_ahead_is_in_the_state_between_two_steps_only():
    source = noise("independent", size=LONG)
    assert not source.state()
    for t in range(T):
        source.draw()
        assert list(source.state()) == (["ahead"] if t < T - 1 else [])
        assert source.step == t + 1


def test_closed_noise_continues_in_place(drawn):
    source, other = noise("blt", size=LONG), noise("blt", size=LONG, ahead=False)
    source.draw()
    assert len(threads()) == 1
    source.close()
    source.close()
    assert not threads()
    rows = [source.draw() for _ in range(T - 1)]
    assert [here for _, here in drawn] == [True, False] + [True] * (T - 2)
    other.draw()
    assert all(torch.equal(row, other.draw()) for row in rows)


def test_no_thread_survives_noise_that_is_collected():
    source = noise("tree", size=LONG)
    source.draw()
    (thread,) = threads()
    del source
    gc.collect()
    thread.join(timeout=30)
    assert not thread.is_alive()


@pytest.mark.parametrize("name", ["independent", "blt"])
def test_a_failure_of_the_thread_is_raised_in_its_stead(name, monkeypatch):
    source, fill, error = noise(name, size=LONG), Generator.normal_, MemoryError("no row")

    def normal_(generator, out, step):
        if step == 2:
            raise error
        return fill(generator, out, step)

    monkeypatch.setattr(Generator, "normal_", normal_)
    source.draw()
    source.draw()
    for ask in (source.draw, source.state, source.draw):
        with pytest.raises(MemoryError) as raised:
            ask()
        assert raised.value is error
    assert source.step == 2


def test_the_thread_computes_alone_and_leaves_the_settings_of_others():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        ahead = Ahead()
        for _ in range(2):
            has_begun = threading.Event()
            ahead.begin(lambda begun=has_begun: (begun.set(), torch.get_num_threads()))
            assert has_begun.wait(60)
            assert ahead.take()[1] == 1
        ahead.close()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_forked_process_does_not_wait_for_the_thread():
    source = noise("λ = 0.7", size=LONG)
    source.draw()
    state = {key: kept.clone() for key, kept in source.state().items()}
    row = source.draw().clone()
    child = os.fork()
    if not child:
        code = 1
        try:
            source.draw()
        except StateError:
            source.restore(1, state)
            code = 0 if torch.equal(source.draw(), row) and source.step == 2 else 2
            source.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    source.draw()


SCRIPT = """
import os, threading, time, torch
from antiphon.mechanisms import Tree
from antiphon.numerics import Generator
from antiphon.training.run.noise import Noise

source = Noise(Tree(), Generator.seeded(0), torch.zeros(2_000_000), 100)

def late():
    threading.main_thread().join()
    time.sleep(0.2)
    for _ in range(3):
        source.draw()
    print(source.step, flush=True)

source.draw()
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    source.draw()
    threading.Thread(target=late).start()
else:
    source.close()
"""


def test_the_interpreter_ends_while_a_row_is_drawn():
    # In a child, which has no such thread; in the parent; and in a thread of it that goes on after the main
    # one, when no more work can be begun.
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")
