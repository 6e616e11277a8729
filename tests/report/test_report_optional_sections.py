"""Sections that few runs have are imported only when a run has data for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from report.report_jobs import write_jobs_run
from report.report_synthetic import write_run
from tare.analysis.topics import monitoring, response_times
from tare.events import hypervisor
from tare.events.cell_facts import CellFacts
from tare.report.page import data

RARE = (
    *("spikes", "interference", "machine_losses", "memory_bus", "load_balancer"),
    *("response_times", "mapreduce"),
    "hypervisors",
)
SCRIPT = """
import json, sys
from tare.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps([name for name in {rare!r} if f"tare.report.sections.{{name}}" in sys.modules]))
"""


def loaded(run: Path) -> list[str]:
    """Return the optional sections' modules that the run's report imports."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(rare=(*RARE, "monitoring")), "report", str(run)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_part_is_asked_for_by_the_names_that_it_reads() -> None:
    facts = {data.HOST_TRACE, data.HARDWARE, data.PROXY, data.JOB, data.HYPERVISOR}
    assert facts <= CellFacts.__annotations__.keys()
    assert data.HYPERVISOR == hypervisor.FACT
    assert data.RESPONSES == response_times.SERIES
    assert data.COUNTERS == monitoring.SERIES


def test_a_report_loads_no_part_that_its_run_does_not_have(tmp_path: Path) -> None:
    write_run(tmp_path / "plain", blocks=2, series=False)
    assert set(loaded(tmp_path / "plain")) <= {"interference", "machine_losses", "memory_bus"}
    (tmp_path / "jobs").mkdir()
    found = loaded(write_jobs_run(tmp_path / "jobs"))
    assert "mapreduce" in found
    assert not {"spikes", "load_balancer", "response_times"} & set(found)
