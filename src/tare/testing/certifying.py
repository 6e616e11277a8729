"""Run the conformance suite on an owner's host, and record each case, for ``tare certify``.

The suite runs in a process of its own, because pytest changes the process that it runs in. Objects
that the suite creates are in a ledger of the state directory. If the suite is killed, ``tare
clean``
removes them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.plaintext import plain_line
from tare.platforms.certificates.model import Case
from tare.platforms.contract import Context, Platform, PlatformOptions
from tare.registry import installed
from tare.run.lifecycle.certifying import Tried
from tare.run.lifecycle.session import agent_path
from tare.testing.conformance import PlatformCases
from tare.testing.hosts import SecondHost, second_host
from tare.testing.leftovers import remains_in
from tare.testing.machines import RunningMachine

_ORDER = "TARE_CERTIFY"
"""The environment variable with the file that contains the order: platform, options and paths."""
_WORDS = 1500
_SUITE = """from tare.testing.certifying import OwnersCases, ordered

class TestCertified(OwnersCases):
    platform, options = ordered()
"""
_SETTINGS = """[pytest]
asyncio_mode = strict
asyncio_default_fixture_loop_scope = function
"""


class OwnersCases(PlatformCases):
    """The suite for an owner's host, with a ledger that survives a kill."""

    @pytest.fixture(scope="class")
    @classmethod
    def context(cls) -> Iterator[Context]:
        """Yield this computer's context, with the ledger of the order."""
        agent = agent_path()
        with Ledger(Path(_order()["ledger"])) as ledger:
            yield Context(LocalHost(agent), ledger, default_cache(), agent)

    @pytest_asyncio.fixture(scope="class", loop_scope="module")
    @classmethod
    async def elsewhere(cls, context: Context) -> AsyncIterator[SecondHost | None]:
        """Yield a second host; None for machines at a server, whose hosts belong to the owner.

        A second host on this computer would ask the same server for a second machine.
        """
        if cls.platform.stated(cls.options).elsewhere:
            yield None
            return
        with tempfile.TemporaryDirectory(prefix="tare-test-") as folder:
            async with second_host(context, Path(folder) / "ledger") as made:
                yield None if made is None else SecondHost(made)

    async def kill(self, running: RunningMachine) -> None:
        """Kill a machine from outside if it is a process of this computer; else skip the case."""
        if not await running.machine.threads():
            pytest.skip("it is not a process of this computer: it was not killed from outside")
        await super().kill(running)


class CaseNotes:
    """A pytest plugin that records the result of each case as it ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._asks: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Store the description of each case, its docstring."""
        for item in items:
            if isinstance(item, pytest.Function):
                self._asks[item.nodeid] = (item.function.__doc__ or "").strip()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a case that ran or was skipped, or a failure before or after one."""
        if report.when != "call" and report.outcome == "passed":
            return
        name = report.nodeid.rpartition("::")[2]
        place = "" if report.when == "call" or report.outcome == "skipped" else f"_{report.when}"
        case = Case(
            name=f"{name}{place}",
            asks=self._asks.get(report.nodeid, ""),
            outcome=report.outcome,
            words=_words(report),
            seconds=round(report.duration, 3),
        )
        with self._file.open("a", encoding="utf-8") as notes:
            notes.write(case.model_dump_json() + "\n")


def _words(report: pytest.TestReport) -> str:
    if report.outcome == "passed":
        return ""
    details = report.longrepr
    # For a skipped case, pytest reports the file, the line and the reason.
    text = (
        details[2].removeprefix("Skipped: ") if isinstance(details, tuple) else report.longreprtext
    )
    lines = [line[2:] for line in text.splitlines() if line.startswith("E ")]
    return plain_line("; ".join(line.strip() for line in lines) or text, _WORDS)


def ordered() -> tuple[Platform[Any], PlatformOptions]:
    """Return the platform and the options of the order, in the process of the suite."""
    order = _order()
    platform = installed().platforms[order["platform"]]
    return platform, platform.options.model_validate(order["options"])


def _order() -> dict[str, Any]:
    order: dict[str, Any] = json.loads(Path(os.environ[_ORDER]).read_text(encoding="utf-8"))
    return order


async def try_all(
    name: str, options: PlatformOptions, ledger: Path, folder: Path, log: Path
) -> Tried:
    """Run the suite in a process of its own, and return its results.

    Args:
        name: The platform's name.
        options: The platform's options.
        ledger: The ledger that records created objects.
        folder: An empty folder for the suite's own files.
        log: The file for pytest's output.

    Raises:
        MachineFault: The suite could not be run; the hint names the log.
    """
    order, notes = folder / "order.json", folder / "cases.jsonl"
    suite = folder / "test_certified.py"
    suite.write_text(_SUITE, encoding="utf-8")
    (folder / "pytest.ini").write_text(_SETTINGS, encoding="utf-8")
    given = options.model_dump(mode="json", exclude_defaults=True)
    order.touch(0o600)
    order.write_text(
        json.dumps({"platform": name, "options": given, "ledger": str(ledger), "notes": str(notes)})
    )
    with log.open("wb") as words:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tare.testing.certifying", str(suite)),
            env={**os.environ, _ORDER: str(order)},
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=words,
            stderr=words,
        )
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
    if not notes.is_file():
        raise MachineFault("the conformance suite did not run", f"read {log}")
    lines = notes.read_text(encoding="utf-8").splitlines()
    with Ledger(ledger) as written:
        left = await remains_in(LocalHost(agent_path()), written, range(written.next_number))
    return Tried(
        tuple(Case.model_validate_json(line) for line in lines), kinds_noted(ledger), tuple(left)
    )


def kinds_noted(ledger: Path) -> Counter[str]:
    """Return how many objects of each kind a ledger recorded, whether removed or not."""
    lines = map(json.loads, ledger.read_text(encoding="utf-8").splitlines())
    return Counter(line["kind"] for line in lines if "entry" in line)


def main() -> int:
    """Run the suite of the order in this process, which pytest changes."""
    suite = Path(sys.argv[1])
    arguments = ["-q", "-p", "no:cacheprovider", "--rootdir", str(suite.parent)]
    arguments += ["-c", str(suite.parent / "pytest.ini"), str(suite)]
    return int(pytest.main(arguments, plugins=[CaseNotes(Path(_order()["notes"]))]))


if __name__ == "__main__":
    sys.exit(main())
