"""Checkpoints that are not this run's are refused with nothing lost; what is exported holds no secret."""

import base64
import copy
import json
import os
import shutil
import stat

import numpy as np
import pytest
import torch
from oracles.runs import (
    Job,
    assert_same_bits,
    data,
    in_process,
    network,
    plain_loss,
    try_to_resume,
)
from oracles.small_models import private, train
from torch import nn

from antiphon.certificates import Ledger
from antiphon.errors import (
    AntiphonError,
    LedgerError,
    PlanError,
    RunError,
    StateError,
    UnsupportedError,
)
from antiphon.mechanisms import BLT, Dense, LambdaCGD
from antiphon.numerics import Generator
from antiphon.plans import FixedSize, GaussianRelease, Plan, Poisson
from antiphon.training.checkpoints import read_export
from antiphon.training.checkpoints.folder import Folder
from antiphon.training.gradients import PerLayer

SEED = 901_844_227_533  # not a number that turns up by itself


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with a checkpoint at its end; copied for each use."""
    place = tmp_path_factory.mktemp("finished") / "run"
    job = Job(place, optimizer="adam", scheduled=True).train(6)
    job.close()
    return place


@pytest.fixture
def folder(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def resumed(folder, **options):
    return Job(folder, resume=True, **{"optimizer": "adam", "scheduled": True} | options)


def small(model, optimizer, loss=plain_loss, **options):
    """The run of a `Job`, on another model or with other parts."""
    given = {"delta": 1e-3, "noise_multiplier": 1.0, "batch_size": 8, "seed": None}
    return private(model, data(), optimizer, loss, **given | options)


def is_untouched(model, optimizer):
    """Whether no hook is left on either."""
    hooks = [*optimizer._optimizer_step_pre_hooks, *optimizer._optimizer_step_post_hooks]
    for module in model.modules():
        hooks += [*module._forward_hooks, *module._forward_pre_hooks]
        hooks += ["forward"] if "forward" in vars(module) else []
    hooks += [p for p in model.parameters() if p._post_accumulate_grad_hooks]
    return not hooks


# files


def test_only_the_owner_can_read_a_run(tmp_path):
    before = os.umask(0)
    try:
        job = Job(tmp_path / "run", checkpoint_every=1).train(2)
    finally:
        os.umask(before)
    job.close()
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    files = list((tmp_path / "run").iterdir())
    assert {path.name for path in files} == {"checkpoint.safetensors", "journal", "lock"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def cut(folder):
    path = folder / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def edit(folder):
    path = folder / "checkpoint.safetensors"
    path.write_bytes(
        path.read_bytes().replace(b'noise_multiplier\\\\\\": 1.0', b'noise_multiplier\\\\\\": 0.1')
    )


def flip(folder):
    path = folder / "checkpoint.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))


def write_foreign(folder):
    with Folder.open(folder) as held:
        held.write({"weight": torch.ones(2)}, {"key": "5ec4e7", "step": 1})


def write_export(folder):
    path = folder / "checkpoint.safetensors"
    job = Job()
    job.run.export(path)


def lose_journal(folder):
    (folder / "journal").unlink()


def cut_journal(folder):
    path = folder / "journal"
    path.write_bytes(path.read_bytes()[:-24])


def empty_journal(folder):
    (folder / "journal").write_bytes(b"")


def exchange_journal(folder):
    job = Job(folder.parent / "other", seed=8, optimizer="adam", scheduled=True).train(6)
    job.close()
    shutil.copy(folder.parent / "other" / "journal", folder / "journal")


DAMAGES = {
    cut: "damaged",
    edit: "damaged",
    flip: "damaged",
    write_foreign: "not one of a run",
    write_export: "not of the kind asked for",
    lose_journal: "no file 'journal'",
    cut_journal: "does not know step 5",
    empty_journal: "does not know step 0",
    exchange_journal: "different runs",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_folder_is_refused_and_kept_as_it_is(damage, folder):
    damage(folder)
    before = contents(folder)
    model = network(seed=4)
    optimizer, weights = torch.optim.Adam(model.parameters()), network(seed=4).state_dict()
    generator = torch.get_rng_state()
    with pytest.raises(StateError, match=DAMAGES[damage]) as refused:
        small(model, optimizer, checkpoint=folder, resume=True)
    assert "5ec4e7" not in str(refused.value)
    assert contents(folder) == before
    assert_same_bits(dict(model.state_dict()), dict(weights))
    assert not optimizer.state
    assert is_untouched(model, optimizer)
    assert torch.equal(torch.get_rng_state(), generator)


def test_the_edit_of_these_tests_does_edit(folder):
    before = contents(folder)
    edit(folder)
    assert contents(folder) != before


OTHER_PLANS = {
    "n": {"examples": data(50), "sampling": Poisson(0.2)},
    "sampling": {"batch_size": 10},
    "sampling's kind": {"sampling": FixedSize(8)},
    "steps": {"steps": 11},
    "clip_norm": {"clip_norm": 2.0},
    "relation": {"relation": "zero-out"},
    "unit": {"user": list(range(40))},
    "extra": {"extra": [GaussianRelease(3.0)]},
    "mechanism": {"mechanism": LambdaCGD(0.5)},
    "noise_multiplier": {"noise_multiplier": 1.5},
    "epsilon": {"noise_multiplier": None, "epsilon": 3.0},
    "delta": {"delta": 1e-4},
    "clipping": {"clipping": "automatic"},
    "clipping, adaptive": {"clipping": "adaptive"},
    "seed": {"seed": 8},
}


@pytest.mark.parametrize("name", OTHER_PLANS)
def test_another_plan_is_refused_by_name(name, folder):
    before = contents(folder)
    with pytest.raises(PlanError, match=rf"\b{name.split(',')[0].split(chr(39))[0]}\b"):
        resumed(folder, **OTHER_PLANS[name])
    assert contents(folder) == before
    resumed(folder).close()


def test_a_run_resumes_with_its_plan_but_not_with_other_noise(folder, finished):
    plan = resumed(folder).close().run.plan
    with pytest.raises(PlanError, match="noise_multiplier"):
        resumed(folder, plan=plan.with_noise(2.0))
    again = resumed(folder, plan=plan)
    assert again.run.steps_taken == 6
    again.close()


def of_other_shape():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Dropout(0.0), nn.Linear(5, 2))


def of_other_names():
    return nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.Linear(4, 2)})


def with_a_frozen_layer():
    model = network(seed=3)
    model[0].requires_grad_(False)
    return model


class Strict:
    """Has a state, and takes no other."""

    def state_dict(self):
        return {"value": 1}

    def load_state_dict(self, state):
        raise TypeError("no")


OTHER_PARTS = {
    "shapes": (of_other_shape, torch.optim.Adam, "another model"),
    "names": (of_other_names, torch.optim.Adam, "that trains"),
    "trained parameters": (with_a_frozen_layer, torch.optim.Adam, "that trains"),
    "optimizer": (network, torch.optim.SGD, "another optimizer: of a Adam, not of a SGD"),
    "groups": (
        network,
        lambda p: torch.optim.Adam([{"params": [q]} for q in p]),
        "another optimizer",
    ),
}


@pytest.mark.parametrize("name", OTHER_PARTS)
def test_another_model_or_optimizer_is_refused_with_nothing_changed(name, folder):
    make, optimizer, message = OTHER_PARTS[name]
    model = make()
    chosen = optimizer([p for p in model.parameters() if p.requires_grad])
    refuse(folder, model, chosen, None, message)


@pytest.mark.parametrize("others", [None, {"ema": Strict()}, {"scheduler": Strict()}])
def test_other_objects_in_others_are_refused_with_nothing_changed(others, folder):
    model = network(seed=2)
    refuse(folder, model, torch.optim.Adam(model.parameters()), others, "scheduler|give the same")


def settings(optimizer):
    return [
        {key: list(map(id, value)) if key == "params" else value for key, value in group.items()}
        for group in optimizer.param_groups
    ]


def refuse(folder, model, optimizer, others, message):
    """Resuming raises and leaves model, optimizer, random numbers and folder as they were."""
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    others = {"scheduler": scheduler} if others is None and "scheduler|" not in message else others
    before, weights = contents(folder), {k: v.clone() for k, v in model.state_dict().items()}
    groups, generator = settings(optimizer), torch.get_rng_state()
    with pytest.raises(StateError, match=message):
        small(model, optimizer, checkpoint=folder, resume=True, others=others or {})
    assert contents(folder) == before
    assert_same_bits(dict(model.state_dict()), weights)
    assert not optimizer.state
    assert settings(optimizer) == groups
    assert is_untouched(model, optimizer)
    assert torch.equal(torch.get_rng_state(), generator)
    resumed(folder).close()


def test_what_fails_last_takes_everything_back(tmp_path):
    # The scheduler's own load fails after model and optimizer were loaded.
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    strict = Strict()
    options = {"steps": 4, "seed": 1, "checkpoint": tmp_path / "run", "others": {"strict": strict}}
    with small(model, optimizer, **options) as run:
        train(run)
    model = network(seed=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.8)
    with pytest.raises(StateError, match="another other strict: no"):
        small(model, optimizer, resume=True, **options)
    assert_same_bits(dict(model.state_dict()), dict(network(seed=1).state_dict()))
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]) == (0.3, 0.8)
    assert not optimizer.state


# one run at a time


def test_a_second_run_in_this_or_another_process_is_refused(folder, tmp_path):
    job = resumed(folder)
    with pytest.raises(StateError, match="another process is writing"):
        resumed(folder)
    with pytest.raises(StateError, match="another process is writing"):
        Job(folder)
    process = in_process(try_to_resume, folder, tmp_path / "out")
    process.join(60)
    assert (tmp_path / "out").read_text().startswith("StateError: another process is writing")
    job.train().close()
    resumed(folder).close()
    with pytest.raises(StateError, match="holds a run already; resume it"):
        Job(folder)


def test_there_is_nothing_to_resume_without_a_folder_or_in_an_empty_one(tmp_path):
    with pytest.raises(PlanError, match="needs checkpoint="):
        Job(resume=True)
    with pytest.raises(StateError, match="no run to resume"):
        Job(tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()


REFUSED = {
    "no noise": ({"noise_multiplier": None}, PlanError),
    "a model that mixes examples": ({"model": nn.BatchNorm1d(3)}, UnsupportedError),
    "a ledger": ({}, LedgerError),
    "max_batch": ({"user": [0] * 20 + [1] * 20, "batch_size": 1, "max_batch": 5}, PlanError),
    "steps of a dense matrix": ({"mechanism": Dense(np.eye(3)), "sampling": "full-batch"}, PlanError),
    "a relation": ({"relation": "add-remove", "sampling": FixedSize(40)}, AntiphonError),
    "the loss": ({"loss": lambda model, x, y: model(x)}, UnsupportedError),
    "a loss that fails": ({"loss": lambda model, x, y: 1 // 0}, ZeroDivisionError),
    "bounds": ({"bounds": (-0.01, 0.01)}, RunError),
    "checkpoint_every": ({"checkpoint_every": 0}, PlanError),
    "others": ({"others": {"scheduler": 3}}, StateError),
    "others that only pickle keeps": ({"others": {"strange": nn.Identity()}}, StateError),
    "per-layer": ({"clipping": PerLayer({"9": 1.0})}, PlanError),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_cannot_start_leaves_no_trace_and_a_second_try_works(name, tmp_path):
    options, error = REFUSED[name]
    options = {"steps": 4, "seed": 1, "checkpoint": tmp_path / "run"} | options
    if name == "others that only pickle keeps":
        options["others"]["strange"].state_dict = lambda: {"what": object()}
    ledger = Ledger.create(
        tmp_path / "ledger",
        epsilon=1e-3 if name == "a ledger" else 50,
        delta=1e-3,
        relation="add-remove",
        filter="rdp",
    )
    model = options.pop("model", network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(error):
        small(model, optimizer, **{"ledger": ledger} | options)
    assert is_untouched(model, optimizer)
    assert not ledger.entries()
    Job(tmp_path / "run", steps=2).train().close()


def test_a_ledger_is_charged_once_for_a_run_and_its_resumption(tmp_path):
    ledger = Ledger.create(
        tmp_path / "ledger", epsilon=50, delta=1e-3, relation="add-remove", filter="rdp"
    )
    Job(tmp_path / "run", ledger=ledger).train(4).close()
    Job(tmp_path / "run", ledger=ledger, resume=True).train().close()
    assert len(ledger.entries()) == 1


# what may be shown


def hidden_in(needles, shown):
    """The names of the secrets that stand in what is shown."""
    return [name for name, secret in needles.items() if secret in shown]


def written(secret):
    """All usual forms of a secret of bytes."""
    return {
        "raw": secret,
        "hex": secret.hex().encode(),
        "HEX": secret.hex().upper().encode(),
        "base64": base64.b64encode(secret).rstrip(b"="),
        "url": base64.urlsafe_b64encode(secret).rstrip(b"="),
        "list": str(list(secret)).encode()[1:-1],
    }


def as_bytes(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def test_what_is_exported_shown_or_said_holds_no_secret(tmp_path):
    options = {"seed": SEED, "clipping": "flat", "mechanism": BLT((0.3, 0.2), (0.9, 0.4)),
               "sampling": "shuffled", "steps": 4, "checkpoint_every": 2}  # fmt: skip
    job, drawn = Job(tmp_path / "run", dropout=0.5, **options), []
    for _ in job.run:
        drawn.append(job.run.drawn)
    job.run.export(tmp_path / "export")
    root = Generator.seeded(SEED)
    secrets = {"root": root.key, **{n: root.spawn(n).key for n in ("noise", "sampling")}}
    secrets["draws"] = root.spawn("sampling").spawn("draws").key
    secrets |= {
        f"{n} {kind}": text
        for n, key in dict(secrets).items()
        for kind, text in written(key).items()
    }
    secrets |= {"seed": str(SEED).encode(), "seed in hex": f"{SEED:x}".encode()}
    secrets |= {
        "seed raw": SEED.to_bytes(8, "little"),
    }
    for place, kept in job.run.noise_state().items():
        secrets |= {
            f"noise {place}": as_bytes(kept)[:8],
            f"noise {place} end": as_bytes(kept)[-16:-8],
        }
    z = root.spawn("noise").normal([job.run._total.total.value().double()], 3)[0]
    secrets["white noise"] = as_bytes(z)[:8]
    for step, rows in enumerate(drawn):
        secrets |= {
            f"rows {step}": as_bytes(rows)[:24],
            f"rows {step} text": str(rows.tolist()[:4])[1:-1].encode(),
        }
    for step in range(4):
        digest = (tmp_path / "run" / "journal").read_bytes()[24 * step + 8 : 24 * step + 16]
        secrets[f"digest {step}"] = digest

    checkpoint = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    found = hidden_in(secrets, checkpoint)  # the search does find what is there
    assert {"root hex", "noise 0"} <= set(found)

    said = []
    for attempt in (
        lambda: Job(tmp_path / "run", **options),
        lambda: Job(tmp_path / "run", resume=True, **options | {"seed": 3}),
        job.run.pending,
        job.optimizer.step,
        lambda: copy.copy(job.run),
        lambda: job.run._saving.record(1, 5),
    ):
        with pytest.raises(AntiphonError) as error:
            attempt()
        said.append(str(error.value))
    job.close()
    shown = {
        "export": (tmp_path / "export").read_bytes(),
        "certificate": job.run.certificate.to_json().encode(),
        "printed": str(job.run.certificate).encode(),
        "plan": job.run.plan.to_json().encode(),
        "run": (repr(job.run) + str(job.run)).encode(),
        "path": repr(job.run.path).encode(),
        "errors": "\n".join(said).encode(),
    }
    for where, text in shown.items():
        assert not hidden_in(secrets, text), where

    tensors, meta = read_export(tmp_path / "export")
    assert set(meta) == {"certificate", "plan"}
    assert Plan.from_json(json.dumps(meta["plan"])) == job.run.plan
    model = network(seed=9)
    model.load_state_dict(tensors)
    assert_same_bits(dict(model.state_dict()), job.left["weights"])
    assert not any(name.startswith(("noise", "ambient", "states")) for name in tensors)


def test_a_closed_run_can_still_be_exported(tmp_path):
    run = train(private(checkpoint=tmp_path / "run", steps=3))
    run.close()
    run.export(tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors").exists()
    run.close()  # twice is once
