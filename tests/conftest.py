"""Fixtures and hooks that tests of every area share."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import (
    DirectoryBasedExampleDatabase,
    MultiplexedDatabase,
    ReadOnlyDatabase,
)

from selected_marks import IN_THE_FILE, marks_named_in, marks_required_by


class Kept(DirectoryBasedExampleDatabase):
    """Examples that once failed, and that stay when the fault is corrected."""

    def delete(self, key: bytes, value: bytes) -> None:
        """Keep it."""


CORPORA = Path(__file__).parent / "corpora"
"""The folder of the repository with examples that fuzzing found; all tests try them first."""
FOUND = Kept(CORPORA / "hypothesis")
OWN = DirectoryBasedExampleDatabase(Path(".hypothesis") / "examples")

# `make fuzz` sets TARE_FUZZ: many more examples, and no limit on the time of one. What fails is
# written to the corpora then; `make test` only reads them.
settings.register_profile(
    "test", deadline=None, database=MultiplexedDatabase(OWN, ReadOnlyDatabase(FOUND))
)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=10_000,
    suppress_health_check=list(HealthCheck),
    database=MultiplexedDatabase(OWN, FOUND),
)
# A worker's tests run one after the other, but in parallel with other workers and measurements.
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", f"alone-{os.getpid()}")
_OWN = f"{os.getppid()}-{_WORKER}"
_TEMPORARY = Path(tempfile.gettempdir())
os.environ["TARE_LOCKS"] = str(_TEMPORARY / f"tare-test-locks-{os.getuid()}" / _OWN)
# What tests find out about doubles must not be remembered of this computer.
os.environ["XDG_STATE_HOME"] = str(_TEMPORARY / f"tare-test-state-{os.getuid()}" / _OWN)
# In parallel, threads of OpenBLAS spin while they wait for each other's CPUs, which doubled the
# time. OpenBLAS reads this when numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
FUZZING = bool(os.environ.get("TARE_FUZZ"))
settings.load_profile("fuzz" if FUZZING else "test")


LONGEST = (
    "lab/test_lab_xen_guests.py",
    "run/test_run_lab_frozen.py",
    "lab/test_lab_nested.py",
    "run/test_run_ssh.py",
    "run/test_run_faults.py",
    "lab/test_lab_kvm_guests.py",
    "scripts/test_without_apt.py",
    "run/test_run_network_standstill.py",
    "lab/test_lab_exits.py",
    "run/test_run_lab.py",
    "run/test_run_cluster.py",
    "run/test_run_sessions.py",
    "platforms/test_qemu_guest.py",
    "run/test_run_existing_machine.py",
    "images/test_live_boots.py",
    "run/test_run_silent_hosts.py",
    "images/test_toolbox_extended.py",
    "scripts/test_wheel.py",
    "lab/test_lab_noise.py",
)
"""Files whose tests take half a minute or more together. They come first: one that began last would
keep a single CPU busy while the others have nothing left to do. Files that compute, as labs do, are
next to files that wait, so that each CPU has work."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files in which `-m` selects no test: collecting all takes nearly three times as long."""
    required = marks_required_by(config.option.markexpr)
    if not required or not collection_path.match("test_*.py"):
        return None
    here = config.invocation_params.dir
    if collection_path in {here / each.partition("::")[0] for each in config.args}:
        # The user named this file.
        return None
    return True if required - marks_named_in(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector, which took a third of the time.

    Modules and collected tests live as long as the process. They are frozen, so that collections
    during tests skip them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first, and leave the others in their order.

    Raises:
        pytest.UsageError: A test has a mark that its own file does not name.
    """
    named: dict[Path, set[str]] = {}
    for item in items:
        marks = {name for name in IN_THE_FILE if item.get_closest_marker(name)}
        if not marks:
            continue
        if item.path not in named:
            named[item.path] = marks_named_in(item.path)
        if missing := marks - named[item.path]:
            raise pytest.UsageError(
                f"{item.nodeid} is marked {', '.join(sorted(missing))} by another file: "
                "set the mark in the test's own file, or `make test` does not find the test"
            )
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report for `make fuzz` how long it tried, and the failures that it found."""
    if not FUZZING:
        return
    stats = terminalreporter.stats
    done = [each for kind in ("passed", "failed") for each in stats.get(kind, ())]
    found = [each.nodeid for each in stats.get("failed", ())]
    spent_s = sum(each.duration for each in done)
    terminalreporter.write_line(
        f"fuzzing: {len(done)} properties for {spent_s:.0f} s; "
        + (f"found {len(found)}: {', '.join(found)}" if found else "found nothing")
    )


@pytest.fixture(scope="session", autouse=True)
def no_ssh_configuration() -> Iterator[None]:
    """Look names up in no `~/.ssh/config`, regardless of the user's own file.

    Of the whole session, as fixtures of modules and of classes reach hosts too. Commands that are
    processes of their own do not see it: studies say it for them, by `Sshd.in_a_study`.
    """
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("tare.hosts.ssh.finding.CONFIG", os.devnull)
        yield


@pytest.fixture(scope="session")
def agent_program() -> Path:
    """The agent that was installed with Tare, or the one that TARE_TEST_AGENT names."""
    named = os.environ.get("TARE_TEST_AGENT")
    program = Path(named) if named else Path(sys.executable).parent / "tare-agent"
    assert program.is_file(), f"{program} is missing: run `make setup`"
    return program
