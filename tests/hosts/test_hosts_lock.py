"""One run at a time on a host, whoever began it, and with whichever state folder."""

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
from tare.hosts.lock import HELD, LOCK_AFAR, NAME, holder, taken

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
        with pytest.raises(InputError, match=f"first \\(process {pid}\\)"), host_lock("second"):
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="to be two users needs root")
def test_two_users_share_one_lock_whoever_made_it(
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
                assert f"first (process {pid}) is under way" in taken.stderr, taken.stderr
            (folder / NAME).unlink()
    finally:
        shutil.rmtree(folder)


def test_what_counts_instructions_runs_side_by_side_but_not_beside_what_measures(
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
        assert holder(second.stdout) == ("first", pid)
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match="the run far is under way"), host_lock("second"):
            pass
        assert first.stdin is not None
        first.stdin.close()
    with host_lock("third"):
        pass


@given(st.binary(max_size=200))
def test_whatever_stands_in_a_lock_is_no_end_of_a_message(written: bytes) -> None:
    assert "two runs would measure each other" in taken(written).message
