"""A cache whose disk is full, or whose programs may not run, is named with what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from images.images_fakes import FakeHost  # isort: skip

from tare.errors import InputError
from tare.hosts.contract import Completed
from tare.images.cache import exclusive, require_disk, require_running
from tare.images.packages import Package
from tare.images.toolbox.packages import download_all

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
TRIAL = """
import asyncio, sys
from pathlib import Path
from tare.errors import InputError
from tare.images.cache import exclusive, require_running

async def trial():
    async with exclusive(Path(sys.argv[1])) as draft:
        if sys.argv[2] == "run":
            require_running(draft)
        else:
            (draft / "large").write_bytes(bytes(4 << 20))

try:
    asyncio.run(trial())
except InputError as error:
    print(error.message, error.hint)
"""


def tried(folder: Path, options: str, what: str) -> str:
    """Try something in a cache on a file system of its own, and return the error's words."""
    script = 'mount -t tmpfs -o "$1" none "$2"; shift 2; exec "$@"'
    python: Sequence[str] = (sys.executable, "-c", TRIAL, str(folder / "cache"), what)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", options, str(folder), *python],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@root_only
def test_a_cache_that_is_mounted_noexec_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    output = tried(tmp_path, "noexec,size=8m", "run")
    assert f"programs cannot run from the cache {tmp_path}/cache" in output
    assert "XDG_CACHE_HOME" in output and "noexec" in output
    assert tried(tmp_path, "size=8m", "run") == ""


@root_only
def test_a_cache_whose_disk_is_full_names_its_disk(tmp_path: Path) -> None:
    output = tried(tmp_path, "size=1m", "write")
    assert f"cannot write {tmp_path}/cache: No space left on device" in output
    assert "df -h" in output and "XDG_CACHE_HOME" in output


async def test_a_trial_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    async with exclusive(tmp_path) as draft:
        require_running(draft)
        assert list(draft.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("tar: x: Cannot write: No space left on device", "df -h"),
        ("dpkg-deb: error: Disk quota exceeded", "your quota there is used up"),
    ],
)
def test_a_programs_message_of_a_full_disk_or_quota_is_recognized(
    words: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused:
        require_disk(words, tmp_path)
    assert hint in refused.value.hint and "XDG_CACHE_HOME" in refused.value.hint
    require_disk("gzip: unexpected end of file", tmp_path)


async def test_a_full_disk_is_not_blamed_on_the_network(tmp_path: Path) -> None:
    output = (
        b"E: Failed to fetch http://x/a.deb  Error writing - write (28: No space left on device)"
    )

    def answer(argv: Sequence[str]) -> Completed:
        return Completed(100, b"", output)

    with pytest.raises(InputError, match="No space left on device") as refused:
        await download_all(FakeHost(answer), [Package("a", "1", "", (), 0)], tmp_path)
    assert "network" not in refused.value.hint and "df -h" in refused.value.hint
