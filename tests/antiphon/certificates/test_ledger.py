"""The ledger: crash-safe, shared, and never past its budget."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant

import antiphon as ap
from antiphon.accounting.independent import pld
from antiphon.accounting.independent.gaussian import gaussian_epsilon, gaussian_mu
from antiphon.certificates import Ledger
from antiphon.certificates import ledger_record as record
from antiphon.errors import LedgerError, PlanError, UnsupportedError
from antiphon.mechanisms import Independent, LambdaCGD
from antiphon.plans import PureRelease


def plan(noise, **changes):
    values = {"n": 100, "sampling": ap.FullBatch(), "steps": 1, "mechanism": Independent()}
    return ap.Plan(**{**values, "noise_multiplier": noise, **changes})


def create(path, **changes):
    values = {"epsilon": 2.0, "delta": 1e-5, "relation": "add-remove", "data": "wards"}
    return Ledger.create(path, **{**values, **changes})


@pytest.fixture
def ledger(tmp_path):
    return create(tmp_path / "ledger")


@pytest.fixture
def rényi(tmp_path):
    return create(tmp_path / "rényi", filter="rdp")


@pytest.fixture(params=["gdp", "rdp"])
def either(request, tmp_path):
    return create(tmp_path / request.param, filter=request.param)


def amplified(noise, steps=100, **changes):
    return plan(noise, sampling=ap.Poisson(0.01), steps=steps, **changes)


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


def test_every_byte_at_which_a_crash_can_cut_leaves_a_usable_ledger(either, tmp_path):
    either.spend(plan(10.0))
    one = either.path.read_bytes()
    either.spend(plan(20.0))
    two = either.path.read_bytes()
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


def test_any_changed_byte_is_reported_with_its_line(either):
    either.spend(plan(10.0))
    either.spend(plan(20.0))
    good = either.path.read_bytes()
    ends = [i for i, byte in enumerate(good) if byte == ord("\n")]
    for position in [*range(0, len(good), 37), ends[0] - 1, ends[1] - 1]:
        if good[position] == ord("\n"):
            continue
        bad = bytearray(good)
        bad[position] ^= 1
        either.path.write_bytes(bytes(bad))
        line = good[:position].count(b"\n") + 1
        with pytest.raises(LedgerError, match=f"line {line} "):
            either.spent()
        with pytest.raises(LedgerError, match=f"line {line} "):
            either.spend(plan(50.0))
    either.path.write_bytes(good)
    assert len(either.entries()) == 2


def test_a_removed_line_is_reported(either):
    either.spend(plan(10.0))
    either.spend(plan(20.0))
    head, _, last = either.path.read_bytes().splitlines(keepends=True)
    either.path.write_bytes(head + last)
    with pytest.raises(LedgerError, match="line 2 "):
        either.entries()


SPENDER = """
import sys
import antiphon as ap
from antiphon.certificates import Ledger
from antiphon.mechanisms import Independent
plan = ap.Plan(n=100, sampling=ap.FullBatch(), steps=1, mechanism=Independent(), noise_multiplier=15.0)
print("ready", flush=True)
while True:
    Ledger(sys.argv[1]).spend(plan)
    print("granted", flush=True)
"""


def test_two_processes_at_once_never_pass_the_budget_together(either, tmp_path):
    script = tmp_path / "spender.py"
    script.write_text(textwrap.dedent(SPENDER).replace("while True:", "for _ in range(100):"))

    def run(_):
        command = [sys.executable, script, either.path]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(run, range(2)))
    granted = sum(output.stdout.count("granted") for output in outputs)
    assert all("left of the budget" in output.stderr for output in outputs)
    assert granted == len(either.entries())
    assert either.spent() <= 2.0
    assert either.left() < 1 / 15
    if either.path.name == "gdp":
        assert granted == int((gaussian_mu(2.0, 1e-5) * 15) ** 2)


@pytest.mark.parametrize("filter", ["gdp", "rdp"])
def test_a_killed_process_loses_nothing_that_it_was_granted(tmp_path, filter):
    path = tmp_path / "ledger"
    create(path, epsilon=50.0, filter=filter)
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


def test_a_file_without_a_filter_is_read_as_gaussian(ledger):
    """As the first version wrote it: neither filter nor failure probabilities."""
    head = {"ledger": 1, "data": "", "epsilon": 2.0, "delta": 1e-5, "relation": "add-remove"}
    old = {"plan": json.loads(plan(10.0).to_json()), "mu": 0.1, "note": "old"}
    ledger.path.unlink()
    record.create(ledger.path, head)
    with record.locked(ledger.path) as file:
        record.add(file, ledger.path, record.parse(file, ledger.path), old)
    ledger.spend(plan(5.0))
    assert [entry.mu for entry in ledger.entries()] == [0.1, 0.2]
    assert ledger.failure() == 0.0
    with pytest.raises(LedgerError, match="failure probabilities"):
        ledger.spend(plan(50.0), failure=1e-9)


def test_divergences_add_up_as_dp_accounting_composes_them(rényi):
    rényi.spend(amplified(1.0))
    rényi.spend(plan(9.0, mechanism=LambdaCGD(0.5)), note="correlated")
    first, second = rényi.entries()
    head = json.loads(rényi.path.read_text().split("\t")[0])
    whole = [i for i, order in enumerate(head["orders"]) if order % 1 == 0]
    theirs = RdpAccountant([head["orders"][i] for i in whole])
    everything = RdpAccountant()
    for accountant in (theirs, everything):
        accountant.compose(PoissonSampledDpEvent(0.01, GaussianDpEvent(1.0)), 100)
        accountant.compose(GaussianDpEvent(9.0))
    ours = [first.rdp[i] + second.rdp[i] for i in whole]
    assert ours == pytest.approx(theirs.rdp.tolist(), rel=1e-6)
    assert first.mu is None
    assert second.plan.mechanism == LambdaCGD(0.5)
    # The filter pays for adaptivity: it is above what fixed plans cost, and within the budget.
    assert everything.get_epsilon(1e-5) < rényi.spent() <= 2.0
    assert Ledger(rényi.path).spent() == rényi.spent()


def test_amplified_runs_fill_a_rényi_ledger_and_no_more(rényi):
    assert rényi.spent() == 0.0
    granted = 0
    with pytest.raises(LedgerError, match=r"left of the budget.*Use more noise"):
        while granted < 100:
            rényi.spend(amplified(1.0))
            granted += 1
    assert 5 < granted < 100
    assert rényi.spent() <= 2.0
    assert len(rényi.entries()) == granted
    left = rényi.left()
    with pytest.raises(LedgerError, match="left of the budget"):
        rényi.spend(plan(1 / (left * 1.001)))
    rényi.spend(plan(1 / (left * 0.999)))
    assert rényi.left() < 0.05


def test_a_rényi_ledger_takes_pure_releases_and_fixed_size_batches(tmp_path):
    ledger = create(tmp_path / "one", filter="rdp", relation="zero-out")
    ledger.spend(plan(9.0, relation="zero-out", extra=(PureRelease(0.1),)))
    ledger.spend(plan(4.0, relation="zero-out", sampling=ap.FixedSize(2), steps=10))
    assert 0 < ledger.spent() < 2.0
    with pytest.raises(LedgerError, match="do not add"):
        ledger.spend(plan(9.0))


def test_orders_can_be_chosen_at_creation_only_for_rényi(tmp_path):
    ledger = create(tmp_path / "own", filter="rdp", orders=[4, 8])
    ledger.spend(plan(20.0))
    assert ledger.entries()[0].rdp == pytest.approx((4 / 800, 8 / 800))
    with pytest.raises(PlanError, match="orders belong to"):
        create(tmp_path / "no", orders=[4])
    with pytest.raises(PlanError, match="above 1"):
        create(tmp_path / "no", filter="rdp", orders=[1.0])
    with pytest.raises(LedgerError, match="'gdp', 'rdp' or 'pld'"):
        create(tmp_path / "no", filter="zcdp")
    assert not (tmp_path / "no").exists()


def test_plans_entered_together_are_composed_tightly_and_once(tmp_path):
    ledger = create(tmp_path / "together", filter="pld")
    assert ledger.left() == gaussian_mu(2.0, 1e-5)
    plans = [amplified(1.0), amplified(1.2, extra=(PureRelease(0.1),)), plan(9.0)]
    entry = ledger.spend_together(plans, note="all")
    assert entry.plans == ledger.entries()[0].plans == tuple(plans)
    assert ledger.entries()[0].note == "all"
    other = create(tmp_path / "one by one", filter="rdp")
    for each in plans:
        other.spend(each)
    assert max(pld.account(plans[0]).profile.epsilon(1e-5), 0.4) < ledger.spent() < other.spent()
    assert ledger.left() == 0.0
    with pytest.raises(LedgerError, match="3 plans"):
        _ = entry.plan
    before = ledger.path.read_bytes()
    with pytest.raises(LedgerError, match=r"nothing can be added.*filter='rdp'"):
        ledger.spend(plan(1000.0))
    assert ledger.path.read_bytes() == before


def test_together_two_gaussians_are_one(tmp_path):
    ledger = create(tmp_path / "together", filter="pld")
    ledger.spend_together([plan(4.0), plan(5.0)])
    assert ledger.spent() == pytest.approx(
        gaussian_epsilon(math.hypot(1 / 4, 1 / 5), 1e-5), rel=1e-3
    )


def test_plans_together_past_the_budget_or_of_another_relation_are_refused(tmp_path):
    ledger = create(tmp_path / "together", filter="pld")
    before = ledger.path.read_bytes()
    with pytest.raises(LedgerError, match="left of the budget"):
        ledger.spend_together([plan(2.0), plan(3.0)])
    with pytest.raises(LedgerError, match="do not add"):
        ledger.spend_together([plan(20.0), plan(30.0, relation="zero-out")])
    with pytest.raises(LedgerError, match="at least one plan"):
        ledger.spend_together([])
    assert ledger.path.read_bytes() == before


def test_a_crash_at_any_byte_of_an_entry_of_many_plans_leaves_it_ungranted(tmp_path):
    ledger = create(tmp_path / "together", filter="pld")
    empty = ledger.path.read_bytes()
    ledger.spend_together([plan(10.0), plan(20.0)])
    full = ledger.path.read_bytes()
    for end in range(len(empty), len(full), 101):
        ledger.path.write_bytes(full[:end])
        assert ledger.entries() == ()
    with pytest.warns(UserWarning, match="cut short by a crash"):
        ledger.spend_together([plan(10.0), plan(20.0)])
    assert ledger.path.read_bytes() == full


def test_ledgers_for_runs_one_after_another_refuse_many_at_once(either):
    with pytest.raises(LedgerError, match=r"one run at a time.*filter='pld'"):
        either.spend_together([plan(10.0), plan(20.0)])


def test_failure_probabilities_add_up_and_have_a_budget_of_their_own(tmp_path):
    for filter in ("gdp", "rdp"):
        ledger = create(tmp_path / filter, filter=filter, failure=2.5e-6)
        ledger.spend(plan(20.0), failure=1e-6)
        ledger.spend(plan(20.0))
        assert ledger.spend(plan(20.0), failure=1e-6).failure == 1e-6
        assert ledger.failure() == pytest.approx(2e-6)
        with pytest.raises(LedgerError, match=r"add up to 3e-06.*allows 2.5e-06.*more paths"):
            ledger.spend(plan(20.0), failure=1e-6)
        assert len(ledger.entries()) == 3
        with pytest.raises(PlanError, match="failure probability"):
            ledger.spend(plan(20.0), failure=1.0)
    with pytest.raises(PlanError, match="failure probability"):
        create(tmp_path / "bad", failure=-0.1)


def test_runs_that_protect_examples_and_users_do_not_add(either):
    either.spend(plan(40.0))
    with pytest.raises(LedgerError, match="examples and runs that protect users"):
        either.spend(plan(40.0, unit="user"))
    assert len(either.entries()) == 1
