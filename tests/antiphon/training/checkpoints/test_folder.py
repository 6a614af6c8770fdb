"""A run's folder after every accident that can be staged: cut, changed, foreign, full, locked, killed."""

import errno
import json
import math
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from antiphon.errors import StateError
from antiphon.training.checkpoints import tensor_file
from antiphon.training.checkpoints.folder import Folder, export, peek, read_export
from antiphon.training.checkpoints.journal import Journal

TENSORS = {"weight": torch.arange(6.0).reshape(2, 3), "step": torch.tensor(7)}
META = {"keys": ["5ec4e7"], "rate": 0.1, "none": None}
DTYPES = sorted(tensor_file._DTYPES, key=str)
NAMES = st.text(max_size=8).filter(lambda name: name != "__metadata__")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def assert_equal(actual, expected):
    """Same names, dtypes, shapes and bytes."""
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (tensor.dtype, tensor.shape)
        assert as_bytes(actual[name]) == as_bytes(tensor)


def as_bytes(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


def decode(data):
    return tensor_file.decode(bytes(data), Path("run/file"), kind="checkpoint")


@pytest.fixture
def folder(tmp_path):
    with Folder.create(tmp_path / "run") as folder:
        folder.write(TENSORS, META)
        yield folder


@pytest.fixture
def checkpoint(folder, tmp_path):
    return tmp_path / "run" / "checkpoint.safetensors"


@pytest.fixture(scope="module")
def content():
    return b"".join(tensor_file.encode(TENSORS, META, kind="checkpoint"))


# what is written is what is read


def test_a_checkpoint_reads_back_and_the_last_one_counts(folder):
    assert_equal(folder.read()[0], TENSORS)
    assert folder.read()[1] == META
    folder.write({}, {})
    assert folder.read() == ({}, {})


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    dtype = draw(st.sampled_from(DTYPES))
    size = math.prod(shape) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype == torch.bool:
        data = bytes(byte % 2 for byte in data)
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(shape)


@given(st.dictionaries(NAMES, tensors(), max_size=3), st.dictionaries(st.text(max_size=8), JSON))
def test_every_dtype_shape_name_and_json_comes_back_exactly(values, meta):
    data = b"".join(tensor_file.encode(values, meta, kind="checkpoint"))
    assert_equal(decode(data)[0], values)
    assert json.dumps(decode(data)[1], sort_keys=True) == json.dumps(meta, sort_keys=True)


def test_floats_are_exact_and_infinities_and_nan_are_kept(folder):
    values = [0.1 + 0.2, 5e-324, math.pi, -0.0, math.inf, -math.inf, math.nan, 2**80]
    folder.write({}, {"values": values})
    assert repr(folder.read()[1]["values"]) == repr(values)


def test_views_and_shared_memory_are_stored_as_separate_values(folder):
    base = torch.arange(24.0).reshape(2, 3, 4)
    z = torch.tensor([1 + 2j, 3 - 4j])
    views = {
        "base": base,
        "same": base,
        "transposed": base.mT,
        "part": base[1, :2],
        "strided": base[..., ::2],
        "expanded": torch.ones(1).expand(5),
        "channels last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "conjugate": z.conj(),
        "negative": z.conj().imag,
        "parameter": torch.nn.Parameter(base[0]),
    }
    folder.write(views, {})
    actual, _ = folder.read()
    assert all(torch.equal(actual[name], view) for name, view in views.items())
    actual["base"].zero_()
    assert torch.equal(actual["same"], base)


def test_the_file_says_that_it_is_secret_to_anyone_who_opens_it(checkpoint):
    with safe_open(checkpoint, framework="pt") as file:
        assert "as secret as the data" in file.metadata()["secret"]
        assert json.loads(file.metadata()["meta"]) == META


@pytest.mark.parametrize(
    "name, tensor",
    [
        ("__metadata__", torch.ones(1)),
        ("\ud800", torch.ones(1)),
        ("complex128", torch.ones(1, dtype=torch.complex128)),
        (
            "scales",
            torch.ones(1, dtype=torch.float8_e8m0fnu),
        ),  # safetensors 0.8 writes it, never reads it
        ("sparse", torch.eye(2).to_sparse()),
        ("meta", torch.ones(1, device="meta")),
    ],
)
def test_a_tensor_that_would_not_come_back_is_refused_before_anything_is_written(
    folder, name, tensor
):
    with pytest.raises(StateError, match=r"safetensors|dense"):
        folder.write({name: tensor}, {})
    assert folder.read()[1] == META


def looped():
    loop = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    "value", [{1: 2}, [{True: 2}], ({None: 1},), {1: 1, "a": 2}, b"x", looped()]
)
def test_json_that_would_not_come_back_is_refused(folder, value):
    with pytest.raises(StateError, match="JSON"):
        folder.write({}, {"key": value})
    assert folder.read()[1] == META


# damage


def test_a_checkpoint_cut_at_any_byte_is_refused(content):
    for length in range(len(content)):
        with pytest.raises(StateError, match="run/file"):
            decode(content[:length])
    with pytest.raises(StateError, match="damaged"):
        decode(content + b"\0")


def test_a_checkpoint_with_any_byte_changed_is_refused_and_no_key_is_shown(content):
    rng = random.Random(0)
    for place, byte in enumerate(content):
        # 9 and 10 are blanks to JSON, as is the 32 that fills up the header
        for other in {byte ^ 1, byte ^ 32, byte ^ 255, 9, 10, 48, rng.randrange(256)} - {byte}:
            changed = content[:place] + bytes([other]) + content[place + 1 :]
            with pytest.raises(StateError) as caught:
                decode(changed)
            assert "5ec4e7" not in str(caught.value)
            assert caught.value.__cause__ is None


def test_a_checkpoint_written_over_is_refused_by_read(folder, checkpoint, content):
    checkpoint.write_bytes(content[:-1])
    with pytest.raises(StateError, match=r"cut short or changed.*Restore it from a copy"):
        folder.read()


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 8, b"[]", b"\2\0\0\0\0\0\0\0[]", b"\1\0\0\0\0\0\0\0[" * 9]
)
def test_what_is_no_safetensors_file_is_refused(folder, checkpoint, data):
    checkpoint.write_bytes(data)
    with pytest.raises(StateError, match=r"damaged|not written by Antiphon"):
        folder.read()


@pytest.mark.parametrize("texts", [None, {}, {"format": "pt"}])
def test_a_file_of_somebody_else_is_refused(folder, checkpoint, texts):
    save_file(TENSORS, checkpoint, texts)
    with pytest.raises(StateError, match="not written by Antiphon"):
        folder.read()


def test_a_newer_format_is_refused(folder, monkeypatch):
    monkeypatch.setattr(tensor_file, "_FORMAT", "2")
    folder.write(TENSORS, META)
    monkeypatch.undo()
    with pytest.raises(StateError, match=r"a newer version wrote it.*Update Antiphon"):
        folder.read()


def test_a_checkpoint_may_be_a_link_and_a_missing_one_is_named(folder, checkpoint, tmp_path):
    checkpoint.rename(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="there is no checkpoint"):
        folder.read()
    checkpoint.symlink_to(tmp_path / "elsewhere")
    assert folder.read()[1] == META


# a write that fails


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_checkpoint_and_no_litter(folder, checkpoint, monkeypatch, call):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    names = sorted(os.listdir(checkpoint.parent))
    monkeypatch.setattr(os, call, full)
    with pytest.raises(StateError, match=r"could not be written .No space left on device"):
        folder.write({}, {"new": 1})
    monkeypatch.undo()
    assert folder.read()[1] == META
    assert sorted(os.listdir(checkpoint.parent)) == names
    folder.write({}, {"new": 1})
    assert folder.read()[1] == {"new": 1}


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_without_write_permission_is_named(folder, checkpoint):
    checkpoint.parent.chmod(0o500)
    with pytest.raises(StateError, match=r"Permission denied.*give write permission"):
        folder.write({}, {})
    checkpoint.parent.chmod(0o700)
    assert folder.read()[1] == META


def test_a_really_full_disk_leaves_the_old_checkpoint(folder, checkpoint):
    """The limit on the size of files stands in for the disk: the write itself fails, half done."""
    code = """
    import resource, signal, sys, torch
    from antiphon.errors import StateError
    from antiphon.training.checkpoints.folder import Folder
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Folder.open(sys.argv[1]) as folder:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            folder.write({"large": torch.ones(100_000)}, {})
        except StateError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (30, 100_000))
        folder.record(0, 5)
        for _ in range(2):
            try:
                folder.record(1, 6)
            except StateError as error:
                print(error)
    """
    folder.close()
    run = start(code, checkpoint.parent)
    out, _ = run.communicate()
    assert out.count("File too large") + out.count("No space left") == 3
    assert "the step must not take place" in out
    with Folder.open(checkpoint.parent) as folder:
        assert folder.read()[1] == META
        assert (folder.recorded(0), folder.recorded(1)) == (5, None)
        assert len(os.listdir(checkpoint.parent)) == 3


# permissions


def test_other_users_can_never_read_the_folder(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(os, "fsync", lambda fd, real=os.fsync: (seen.append(mode(fd)), real(fd)))
    umask = os.umask(0)
    try:
        with Folder.create(tmp_path / "a" / "run") as folder:
            folder.record(0, 1)
            folder.write(TENSORS, META)
    finally:
        os.umask(umask)
    run = tmp_path / "a" / "run"
    assert mode(run) == 0o700
    assert {mode(run / name) for name in os.listdir(run)} == {0o600}
    assert seen == [0o600, 0o600, 0o700]  # journal, unfinished checkpoint, folder


def test_an_unfinished_checkpoint_is_private_from_its_creation(folder, checkpoint, monkeypatch):
    """Looked at between its creation and its first byte."""
    umask = os.umask(0)
    real, seen = os.open, []

    def watched(path, *args, **kwargs):
        descriptor = real(path, *args, **kwargs)
        if str(path).endswith(".unfinished"):
            seen.append((mode(path), os.stat(path).st_size))
        return descriptor

    monkeypatch.setattr(os, "open", watched)
    try:
        folder.write(TENSORS, META)
    finally:
        os.umask(umask)
    assert seen == [(0o600, 0)]


def test_an_empty_folder_is_made_private(tmp_path):
    run = tmp_path / "run"
    run.mkdir(mode=0o755)
    Folder.create(run).close()
    assert mode(run) == 0o700


# opening


def test_a_folder_that_holds_a_run_is_not_used_for_another(folder, checkpoint):
    folder.record(0, 1)
    folder.close()
    for _ in range(2):
        with pytest.raises(
            StateError, match="holds a run already; resume it or choose another folder"
        ):
            Folder.create(checkpoint.parent)
        checkpoint.unlink(missing_ok=True)  # the journal alone is a run, too


def test_a_folder_whose_creation_was_cut_short_can_be_created_again(tmp_path):
    Folder.create(tmp_path / "run").close()
    (tmp_path / "run" / ".checkpoint.safetensors.0.unfinished").touch()
    with Folder.create(tmp_path / "run") as folder:
        folder.write(TENSORS, META)
    assert sorted(os.listdir(tmp_path / "run")) == ["checkpoint.safetensors", "journal", "lock"]


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "journal.txt").touch()
    before = mode(tmp_path)
    with pytest.raises(StateError, match=r"holds 'journal.txt'. Choose an empty folder"):
        Folder.create(tmp_path)
    assert (mode(tmp_path), os.listdir(tmp_path)) == (before, ["journal.txt"])


def test_there_must_be_a_run_to_resume(tmp_path, folder, checkpoint):
    with pytest.raises(StateError, match=r"no run to resume in .*nowhere"):
        Folder.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    folder.close()
    for name in ("journal", "checkpoint.safetensors"):
        (checkpoint.parent / name).unlink()
        with pytest.raises(StateError, match=f"it has no file '{name}'"):
            Folder.open(checkpoint.parent)


def test_a_path_that_can_be_no_folder_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="cannot be used as the folder of a run"):
        Folder.create(tmp_path / "file")
    with pytest.raises(StateError, match="cannot be used as the folder of a run"):
        Folder.create(tmp_path / "file" / "run")


def test_a_closed_folder_does_nothing(folder):
    folder.close()
    folder.close()
    for use in (
        folder.read,
        folder.sync,
        lambda: folder.write({}, {}),
        lambda: folder.record(0, 1),
    ):
        with pytest.raises(StateError, match="is closed"):
            use()


# the lock


def start(code, *args, **pipes):
    """A real process that runs ``code`` and can be read line by line."""
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(tensor_file.__file__).parents[3]),
    }
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, **pipes)


def test_a_second_folder_in_this_process_is_refused(folder, checkpoint):
    for opened in (Folder.open, Folder.create):
        with pytest.raises(StateError, match=r"another process is writing this run: .*run"):
            opened(checkpoint.parent)
    folder.close()
    Folder.open(checkpoint.parent).close()


def test_a_second_process_is_refused(folder, checkpoint):
    code = """
    import sys
    from antiphon.training.checkpoints.folder import Folder
    try:
        Folder.open(sys.argv[1])
    except ValueError as error:
        print(type(error).__name__, error)
    """
    out, _ = start(code, checkpoint.parent).communicate()
    assert out.startswith(f"StateError another process is writing this run: {checkpoint.parent}")


def test_a_peek_changes_nothing_and_sees_whether_the_run_is_held(folder, checkpoint):
    folder.record(0, 5)
    folder.write(TENSORS, META)
    place = checkpoint.parent
    unfinished = place / f".{checkpoint.name}.0.unfinished"  # of a run that was killed
    unfinished.touch()
    with open(place / "journal", "ab") as journal:
        journal.write(b"torn")

    def state():
        files = [place, *sorted(place.iterdir())]
        return [(file, file.stat().st_mtime_ns, file.stat().st_size) for file in files]

    before = state()
    assert peek(place) == (META, True)
    folder.close()
    assert peek(place) == (META, False)
    assert state() == before
    (place / "lock").unlink()
    assert peek(place) == (META, False)
    assert not (place / "lock").exists()
    with pytest.raises(StateError, match="there is no checkpoint"):
        peek(place / "elsewhere")


def test_a_worker_does_not_keep_the_lock_of_its_dead_parent(folder, checkpoint):
    code = """
    import os, sys, time
    from antiphon.training.checkpoints.folder import Folder
    folder = Folder.open(sys.argv[1])
    if os.fork() == 0:
        try:
            folder.record(0, 1)
        except ValueError:
            print(os.getpid(), flush=True)
    time.sleep(20)
    """
    folder.close()
    parent = start(code, checkpoint.parent)
    worker = int(parent.stdout.readline())
    try:
        with pytest.raises(StateError, match="another process"):
            Folder.open(checkpoint.parent)
        parent.kill()
        parent.wait()
        os.kill(worker, 0)  # it lives
        Folder.open(checkpoint.parent).close()
    finally:
        os.kill(worker, signal.SIGKILL)
        parent.kill()
        parent.communicate()


WRITER = """
import os, sys, time, torch
from antiphon.training.checkpoints.folder import Folder
print("ready", flush=True)
for path in sys.stdin:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        print("dead", flush=True)
        continue
    with Folder.open(path.strip()) as folder:
        step, end = folder.read()[1]["step"], time.monotonic() + 20
        print(os.getpid(), flush=True)
        while time.monotonic() < end:
            step += 1
            for inner in range(10):
                folder.record(10 * step + inner, step**2)
            folder.write({"a": torch.full((5_000,), step), "b": torch.tensor(step)}, {"step": step})
    os._exit(1)
"""


def test_a_run_killed_at_any_moment_leaves_a_whole_checkpoint_a_journal_and_no_lock(
    tmp_path, kills=20, most=300
):
    """The process that is killed is forked from one that has loaded torch, to save its loading time."""
    rng, run, step = random.Random(0), tmp_path / "run", 0
    with Folder.create(run) as folder:
        folder.write({"a": torch.zeros(5_000), "b": torch.tensor(0)}, {"step": 0})
    with start(WRITER, stdin=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == "ready\n"
        for kill in range(most):  # a busy machine needs more of them until one comes far enough
            parent.stdin.write(f"{run}\n")
            parent.stdin.flush()
            writer = int(parent.stdout.readline())
            time.sleep(rng.uniform(0, 0.05))
            os.kill(writer, signal.SIGKILL)
            assert parent.stdout.readline() == "dead\n"
            step = check_after_kill(run, step)
            if kill >= kills and step > 0:
                break
        parent.stdin.close()
    assert step > 0


def check_after_kill(run, before):
    with Folder.open(run) as folder:
        values, meta = folder.read()
        step = meta["step"]
        assert before <= step
        assert values["b"] == step and (values["a"] == step).all()
        assert all(folder.recorded(10 * step + i) == step**2 for i in range(10 if step else 0))
        assert sorted(os.listdir(run)) == ["checkpoint.safetensors", "journal", "lock"]
    return step


# the journal


def test_a_step_is_recorded_once_and_for_one_gradient(folder, checkpoint):
    folder.record(3, 2**64 - 1)
    folder.record(3, 2**64 - 1)
    folder.record(1, 0)
    assert (checkpoint.parent / "journal").stat().st_size == 48
    with pytest.raises(
        StateError, match=r"step 3 would add the same noise to a different gradient"
    ) as caught:
        folder.record(3, 5)
    for remedy in (
        "same data",
        "same code",
        "same number of threads",
        "a new run, which costs a new ε",
    ):
        assert remedy in str(caught.value)
    folder.close()
    with Folder.open(checkpoint.parent) as again:
        assert [again.recorded(step) for step in range(4)] == [None, 0, None, 2**64 - 1]
        with pytest.raises(StateError, match="different gradient"):
            again.record(1, 1)


@pytest.mark.parametrize("step, digest", [(-1, 0), (0, -1), (2**64, 0), (0, 2**64)])
def test_numbers_that_do_not_fit_are_refused(folder, step, digest):
    with pytest.raises(StateError, match="whole numbers from 0"):
        folder.record(step, digest)


@pytest.fixture
def journal(tmp_path):
    """The path of a journal of three records."""
    journal = Journal(tmp_path / "journal")
    for step in range(3):
        journal.record(step, 1000 + step)
    journal.close()
    return tmp_path / "journal"


@pytest.mark.parametrize("zeros", [0, 1, 24, 100])
def test_a_record_cut_short_is_ignored_and_overwritten(journal, zeros):
    """Zeros after it are what some file systems leave after a power cut."""
    whole = journal.read_bytes()
    for length in range(48, 72):
        journal.write_bytes(whole[:length] + bytes(zeros if length < 71 else 0))
        torn = Journal(journal)
        assert (len(torn), torn.recorded(2)) == (2, None)
        torn.record(2, 77)
        torn.close()
        assert journal.stat().st_size == 72
        again = Journal(journal)
        assert again.recorded(2) == 77
        again.close()


def test_a_record_with_any_byte_changed_is_refused(journal):
    whole = journal.read_bytes()
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1
        journal.write_bytes(data)
        with pytest.raises(
            StateError, match=f"record {place // 24} of .*journal was changed or damaged"
        ):
            Journal(journal)
        assert journal.read_bytes() == data


def test_a_record_that_comes_twice_or_is_missing_in_part_is_refused(journal):
    whole = journal.read_bytes()
    for data in (whole + whole[:24], whole[:30] + whole[31:], bytes(24) + whole, whole[1:]):
        journal.write_bytes(data)
        with pytest.raises(StateError, match="changed or damaged"):
            Journal(journal)


def test_a_checkpoint_waits_for_the_journal_to_be_on_the_disk(folder, checkpoint, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    folder.record(0, 1)
    assert not synced
    folder.write(TENSORS, META)
    assert synced[0] == (checkpoint.parent / "journal").stat().st_ino
    assert synced[1] == checkpoint.stat().st_ino


# what leaves the run


def test_an_export_reads_back_with_the_usual_permissions(tmp_path):
    path = tmp_path / "model.safetensors"
    umask = os.umask(0o022)
    try:
        export(path, {}, {"old": True})
        export(path, TENSORS, {"epsilon": 1.0})
    finally:
        os.umask(umask)
    assert mode(path) == 0o644
    assert os.listdir(tmp_path) == ["model.safetensors"]
    values, meta = read_export(path)
    assert_equal(values, TENSORS)
    assert meta == {"epsilon": 1.0}
    with safe_open(path, framework="pt") as file:
        assert "secret" not in file.metadata()


def test_a_damaged_export_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    export(path, TENSORS, {})
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"!")
    with pytest.raises(StateError, match="damaged"):
        read_export(path)
    with pytest.raises(StateError, match="there is no export"):
        read_export(tmp_path / "nothing")
    with pytest.raises(StateError, match=r"could not be written .No such file"):
        export(tmp_path / "nothing" / "model", TENSORS, {})


def test_a_checkpoint_is_not_taken_for_an_export_nor_the_reverse(folder, checkpoint):
    with pytest.raises(StateError, match="not of the kind asked for, export"):
        read_export(checkpoint)
    export(checkpoint, TENSORS, META)
    with pytest.raises(StateError, match="not of the kind asked for, checkpoint"):
        folder.read()
