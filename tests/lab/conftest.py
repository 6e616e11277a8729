"""What tests in labs share: a test that failed because its lab's emulation did is run once more.

Emulated hosts freeze now and then (`tare help lab`). That is not a fault of what a test is
about, so it is run again in a new lab. It fails if the emulation fails
twice, as a run's batch does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import pytest
from _pytest.runner import runtestprotocol

from lab.lab_inside import emulation_failed
from tare.errors import HostFroze

FAILED = pytest.StashKey[str]()


def caused_by_freeze(error: BaseException | None) -> str:
    """Return what an error or one that led to it says of a frozen host; empty: nothing."""
    known: set[int] = set()
    while error is not None and id(error) not in known:
        if isinstance(error, HostFroze):
            return error.message
        known.add(id(error))
        error = error.__cause__ or error.__context__
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Find out at once whether the emulation failed: the lab may be gone when all is torn down."""
    report = yield
    if report.failed and not item.stash.get(FAILED, ""):
        error = call.excinfo.value if call.excinfo is not None else None
        item.stash[FAILED] = caused_by_freeze(error) or emulation_failed()
        if words := item.stash[FAILED]:
            report.sections.append(("the emulation failed", words))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a test, and once more in a new lab where the emulation of its lab failed."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    item.stash[FAILED] = ""
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if words := item.stash[FAILED]:
        # All that was set up goes, the lab with it. What cannot be tidied up there does not count.
        with contextlib.suppress(Exception):
            item.session._setupstate.teardown_exact(None)
        item.stash[FAILED] = ""
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        for report in reports:
            report.sections.append(("run once more, as the emulation failed", words))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
