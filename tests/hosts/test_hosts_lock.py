"""One run at a time on a host, for all users and state folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import InputError
from tare.hosts import host_lock
from tare.hosts.lock import HELD, LOCK_AFAR, NAME, holder_afar, run_of, taken
from tare.hosts.lock_holder import LockHolder

HOLD = (
    "import os, sys; from tare.hosts import host_lock\n"
    "os.setuid(int(os.environ.get('AS_USER', os.getuid())))\n"
    "with host_lock('first', shared=len(sys.argv) > 1): print('held', flush=True); sys.stdin.read()"
)


@contextmanager
def held(*words: str, **env: str) -> Iterator[int]:
    """Hold this computer's lock in another process."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**os.environ, **env},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def test_two_state_folders_share_one_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path))
    with held(XDG_STATE_HOME=str(tmp_path / "a")) as pid:  # noqa: SIM117
        with (
            pytest.raises(InputError, match=f"another run \\(process {pid}, "),
            host_lock("second"),
        ):
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="to be two users needs root")
def test_two_users_share_one_lock_regardless_of_its_owner(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As /run/lock and /tmp are: for all, and sticky, where fs.protected_regular counts.
    folder = Path(tempfile.mkdtemp(prefix="tare-lock-test-"))
    folder.chmod(0o1777)
    monkeypatch.setenv("TARE_LOCKS", str(folder))
    try:
        nobody = 65534
        for first, second in ((nobody, 0), (0, nobody)):
            with held(AS_USER=str(first)) as pid:
                taken = subprocess.run(
                    [sys.executable, "-c", HOLD], stdin=subprocess.DEVNULL, capture_output=True,
                    text=True, env={**os.environ, "AS_USER": str(second)}, check=False,
                )  # fmt: skip
                assert f"another run (process {pid}" in taken.stderr, taken.stderr
            (folder / NAME).unlink()
    finally:
        shutil.rmtree(folder)


def test_counting_runs_share_the_lock_but_exclude_measuring_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path))
    with held("shared"):
        with host_lock("lab", shared=True):
            pass
        with pytest.raises(InputError), host_lock("measuring"):
            pass
    with host_lock("measuring"):
        pass
    with held(), pytest.raises(InputError), host_lock("lab", shared=True):
        pass


def test_the_same_lock_is_held_over_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path / "locks"))
    script = ["sh", "-c", LOCK_AFAR, "sh", "far"]
    with held() as pid:
        second = subprocess.run(script, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert second.returncode == HELD
        written, found = second.stdout.splitlines()
        assert run_of(written) == "first"
        assert (holder := holder_afar(found)) and (holder.pid, holder.certain) == (pid, True)
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match=r"another run .*is in progress"), host_lock("second"):
            pass
        assert first.stdin is not None
        first.stdin.close()
    with host_lock("third"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user needs root")
@pytest.mark.parametrize(
    "written", ['{"run": "x", "pid": 1}', "x" * 5000, '{"run": "\\u001b[2J"}', "held"]
)
def test_advice_names_the_holder_and_never_the_locks_content(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="tare-lock-test-"))
    folder.chmod(0o1777)
    monkeypatch.setenv("TARE_LOCKS", str(folder))
    script = ["sh", "-c", LOCK_AFAR, "sh", "far"]
    try:
        with held(AS_USER="65534") as pid:
            (folder / NAME).write_text(written)
            with pytest.raises(InputError) as refused, host_lock("second"):
                pass
            afar = subprocess.run(
                script, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
            there = taken(holder_afar(afar.stdout.splitlines()[1]), "far")
        for error in (refused.value, there):
            assert error.hint.endswith(f"kill -INT {pid}")
            assert f"process {pid}" in error.message and "x (process 1)" not in error.message
            assert error.message.isprintable()
    finally:
        shutil.rmtree(folder)


def test_a_process_that_is_not_seen_to_have_the_file_is_not_to_be_killed() -> None:
    for found in (None, LockHolder(1, "init", certain=False)):
        assert "kill" not in taken(found).hint.replace("killed", "")


@given(st.binary(max_size=200))
def test_any_content_of_a_lock_gives_a_complete_message(answer: bytes) -> None:
    assert "two runs would disturb each other" in taken(holder_afar(answer)).message
    assert isinstance(run_of(answer), str)
