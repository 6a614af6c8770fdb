"""The ledger: crash-safe, shared, and never past its budget."""

import math
import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

import antiphon as ap
from antiphon.accounting.gaussian import gaussian_epsilon, gaussian_mu
from antiphon.errors import LedgerError, PlanError, UnsupportedError
from antiphon.events import PureRelease
from antiphon.ledger import Ledger
from antiphon.mechanisms import Independent, LambdaCGD


def plan(noise, **changes):
    values = {"n": 100, "sampling": ap.FullBatch(), "steps": 1, "mechanism": Independent()}
    return ap.Plan(**{**values, "noise_multiplier": noise, **changes})


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(
        tmp_path / "ledger", epsilon=2.0, delta=1e-5, relation="add-remove", data="wards"
    )


def test_runs_add_in_squares_and_survive_reopening(ledger):
    ledger.spend(plan(10.0), note="first")
    ledger.spend(plan(5.0, mechanism=LambdaCGD(0.5)))
    again = Ledger(ledger.path)
    assert [entry.note for entry in again.entries()] == ["first", ""]
    assert again.entries()[1].plan == plan(5.0, mechanism=LambdaCGD(0.5))
    assert again.spent() == pytest.approx(gaussian_epsilon(math.hypot(0.1, 0.2), 1e-5))
    assert again.left() == pytest.approx(math.sqrt(gaussian_mu(2.0, 1e-5) ** 2 - 0.05))
    assert again.budget == (2.0, 1e-5)


def test_a_run_past_the_budget_is_refused_and_not_recorded(ledger):
    enough = 1 / gaussian_mu(2.0, 1e-5)
    ledger.spend(plan(enough * 1.0001))
    before = ledger.path.read_bytes()
    with pytest.raises(LedgerError, match="left of the budget"):
        ledger.spend(plan(50.0))
    assert ledger.path.read_bytes() == before


def test_the_whole_budget_can_be_spent_at_once(ledger):
    ledger.spend(ap.calibrate(plan(None), 2.0, 1e-5))
    assert ledger.spent() == pytest.approx(2.0)
    assert ledger.left() == pytest.approx(0.0, abs=1e-5)


def test_other_relations_and_other_curves_are_refused(ledger):
    with pytest.raises(LedgerError, match="do not add"):
        ledger.spend(plan(10.0, relation="zero-out"))
    with pytest.raises(UnsupportedError, match="not Gaussian"):
        ledger.spend(plan(10.0, extra=(PureRelease(0.1),)))


def test_every_byte_at_which_a_crash_can_cut_leaves_a_ledger_that_can_go_on(ledger, tmp_path):
    ledger.spend(plan(10.0))
    one = ledger.path.read_bytes()
    ledger.spend(plan(20.0))
    two = ledger.path.read_bytes()
    for end in range(len(one), len(two)):
        torn = tmp_path / f"torn-{end}"
        torn.write_bytes(two[:end])
        assert len(Ledger(torn).entries()) == 1
        if end == len(one):
            Ledger(torn).spend(plan(30.0))
        else:
            with pytest.warns(UserWarning, match="cut short by a crash"):
                Ledger(torn).spend(plan(30.0))
            aside = torn.with_name(torn.name + ".torn")
            assert aside.read_bytes() == two[len(one) : end] + b"\n"
        assert [entry.plan.noise_multiplier for entry in Ledger(torn).entries()] == [10.0, 30.0]


def test_any_changed_byte_is_reported_with_its_line(ledger):
    ledger.spend(plan(10.0))
    ledger.spend(plan(20.0))
    good = ledger.path.read_bytes()
    ends = [i for i, byte in enumerate(good) if byte == ord("\n")]
    for position in [*range(0, len(good), 37), ends[0] - 1, ends[1] - 1]:
        if good[position] == ord("\n"):
            continue
        bad = bytearray(good)
        bad[position] ^= 1
        ledger.path.write_bytes(bytes(bad))
        line = good[:position].count(b"\n") + 1
        with pytest.raises(LedgerError, match=f"line {line} "):
            ledger.spent()
        with pytest.raises(LedgerError, match=f"line {line} "):
            ledger.spend(plan(50.0))
    ledger.path.write_bytes(good)
    assert len(ledger.entries()) == 2


def test_a_removed_line_is_reported(ledger):
    ledger.spend(plan(10.0))
    ledger.spend(plan(20.0))
    head, _, last = ledger.path.read_bytes().splitlines(keepends=True)
    ledger.path.write_bytes(head + last)
    with pytest.raises(LedgerError, match="line 2 "):
        ledger.entries()


SPENDER = """
import sys
import antiphon as ap
from antiphon.ledger import Ledger
from antiphon.mechanisms import Independent
plan = ap.Plan(n=100, sampling=ap.FullBatch(), steps=1, mechanism=Independent(), noise_multiplier=15.0)
print("ready", flush=True)
while True:
    Ledger(sys.argv[1]).spend(plan)
    print("granted", flush=True)
"""


def test_two_processes_at_once_never_pass_the_budget_together(ledger, tmp_path):
    script = tmp_path / "spender.py"
    script.write_text(textwrap.dedent(SPENDER).replace("while True:", "for _ in range(100):"))

    def run(_):
        command = [sys.executable, script, ledger.path]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(run, range(2)))
    granted = sum(output.stdout.count("granted") for output in outputs)
    assert all("left of the budget" in output.stderr for output in outputs)
    assert granted == len(ledger.entries()) == int((gaussian_mu(2.0, 1e-5) * 15) ** 2)
    assert ledger.spent() <= 2.0


def test_a_killed_process_loses_nothing_that_it_was_granted(tmp_path):
    path = tmp_path / "ledger"
    Ledger.create(path, epsilon=50.0, delta=1e-5, relation="add-remove")
    script = tmp_path / "spender.py"
    script.write_text(textwrap.dedent(SPENDER))
    child = subprocess.Popen([sys.executable, script, path], stdout=subprocess.PIPE, text=True)
    for _ in range(30):
        child.stdout.readline()
    os.kill(child.pid, signal.SIGKILL)
    granted = 29 + child.stdout.read().count("granted")
    child.wait()
    child.stdout.close()
    assert len(Ledger(path).entries()) in (granted, granted + 1)


def test_files_that_are_no_ledgers_are_refused(tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger(tmp_path / "none").spent()
    (tmp_path / "empty").write_text("")
    with pytest.raises(LedgerError, match="no complete first line"):
        Ledger(tmp_path / "empty").spent()
    path = tmp_path / "twice"
    Ledger.create(path, epsilon=1.0, delta=1e-5, relation="zero-out")
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(path, epsilon=1.0, delta=1e-5, relation="zero-out")
    with pytest.raises(PlanError, match="strictly between"):
        Ledger.create(tmp_path / "bad", epsilon=1.0, delta=1.0, relation="zero-out")
