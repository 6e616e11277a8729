"""No program that Tare starts sees what else is in Tare's environment, such as secrets."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tare.hosts import Ledger, LocalHost
from tare.hosts.local import PASSED, environment_for
from tare.hosts.processes import start_owned

CANARY = "canary-7f3a91c5"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def canary(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "MY_LC_SECRET"):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setenv("https_proxy", f"http://user:{CANARY}@proxy")
    monkeypatch.setenv("LC_TIME", "C")


async def test_a_command_sees_the_short_list_and_what_its_caller_adds(agent_program: Path) -> None:
    done = await LocalHost(agent_program).run(["env"], env={"TARE_X": "x"})
    seen = dict(line.partition("=")[::2] for line in done.stdout.decode().splitlines())
    assert CANARY not in done.stdout.decode()
    assert seen["PATH"] == os.environ["PATH"] and seen["HOME"] == os.environ["HOME"]
    assert seen["LC_TIME"] == "C" and seen["TARE_X"] == "x"


async def test_a_process_that_lives_on_sees_it_too(agent_program: Path, tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        process = await start_owned(LocalHost(agent_program), ledger, ["sleep", "60"])
        try:
            deadline = time.monotonic() + 10
            found = ""
            # Between fork and exec, the kernel shows a process without an environment.
            while not found and time.monotonic() < deadline:
                found = Path(f"/proc/{process.pid}/environ").read_text()
                await asyncio.sleep(0.01)
            assert "TARE_TOKEN=" in found and CANARY not in found
        finally:
            await process.kill()


@pytest.mark.parametrize(
    ("argv", "passed"),
    [
        (["apt-get", "update"], True),
        (["env", "-C", "/x", "apt-get", "download", "y"], True),
        (["mvn", "-q"], True),
        (["qemu-system-x86_64"], False),
        (["runc", "run", "x"], False),
    ],
)
def test_a_proxy_reaches_only_what_fetches(argv: list[str], passed: bool) -> None:
    assert ("https_proxy" in environment_for(argv, os.environ)) is passed
    assert "GITHUB_TOKEN" not in environment_for(argv, os.environ)


def test_the_keeper_on_other_hosts_has_the_same_list() -> None:
    source = (ROOT / "agent/src/tools/keep/files.rs").read_text()
    (listed,) = re.findall(r"const PASSED: [^=]+= \[(.*?)\];", source, re.DOTALL)
    assert set(re.findall(r'"(\w+)"', listed)) == PASSED


STUDY = """\
study: seen
baseline: bare
blocks: {least: 2, most: 2}
arms:
  bare: {platform: bare}
  box: {platform: oci}
  tcg: {platform: qemu}
workloads:
  numeric-sort: {duration: 1s}
"""


@pytest.mark.guest
def test_no_child_of_a_run_sees_a_secret(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(STUDY)
    tare = Path(sys.executable).parent / "tare"
    seen: dict[str, bool] = {}
    with subprocess.Popen(
        [tare, "run", "s.yaml", "--out", "run"], cwd=tmp_path, stdout=subprocess.DEVNULL
    ) as run:
        while run.poll() is None:
            for pid in _below(run.pid):
                try:
                    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
                    secret = CANARY.encode() in Path(f"/proc/{pid}/environ").read_bytes()
                    if Path(f"/proc/{pid}/exe").readlink().name.startswith("python"):
                        continue  # Forked, and not yet another program.
                except OSError:
                    continue
                name = Path(command).name
                seen[name] = seen.get(name, False) or secret
            time.sleep(0.1)
    assert run.returncode == 0
    assert {"qemu-system-x86_64", "tare-agent"} <= seen.keys(), seen
    assert not [name for name, secret in seen.items() if secret]


def _below(parent: int) -> list[int]:
    """Return all processes that a process started, and theirs."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(text.rpartition(")")[2].split()[1])
    found, more = [], [parent]
    while more:
        more = [pid for pid, of in parents.items() if of in more]
        found += more
    return found
