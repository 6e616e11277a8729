"""Files that a study names are not sent to workers: one without them is reported and left out."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fleet.fleet_cluster import cluster
from tare.cli.ending import decide_on
from tare.errors import InputError
from tare.fleet.command import ClusterChoice, run_on_cluster
from tare.fleet.site import FilesMissing, files_booted, require_here
from tare.run.catalog import build_catalog
from tare.run.lifecycle.session import study_source
from tare.study.reading.load import load_study

STUDY = """
study: named
baseline: bare
spread: split
{more}
arms:
  bare: {{platform: bare}}
blocks: {{least: 2, most: 2}}
workloads:
  mine: {work}
"""


def kernel(folder: Path) -> tuple[Path, str, str]:
    """Return a kernel's file, and what a study says of it and of its work."""
    return folder / "vmlinuz", f"kernel: {folder / 'vmlinuz'}", "{workload: tick, samples: 1000}"


def program(folder: Path) -> tuple[Path, str, str]:
    """Return a program's file, and what a study says of it and of its work."""
    work = "{workload: command, argv: [/opt/p], toolbox: {files: {/opt/p: p}}}"
    return folder / "p", "", work


@pytest.mark.parametrize("named", [kernel, program])
async def test_a_worker_without_a_file_of_the_study_is_left_out_at_once(
    named: Callable[[Path], tuple[Path, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path / "locks"))
    file, more, work = named(tmp_path)
    file.touch(mode=0o755)
    path, shown = tmp_path / "named.yaml", StringIO()
    path.write_text(STUDY.format(more=more, work=work))
    study, source = load_study(path, build_catalog()), study_source(path)
    file.unlink()
    console = Console(file=shown, width=300)
    async with cluster("h1") as (address, _):
        choice = ClusterChoice(address)
        with pytest.raises(InputError, match="no host could run the study"):
            await run_on_cluster(study, source, tmp_path / "run", 7, decide_on, console, choice)
    missing = f"the study names files that the worker's computer lacks: {file}"
    assert f"h1: {missing}; put them at the same paths there; they are not sent" in shown.getvalue()
    assert "next try" not in shown.getvalue()


def test_files_that_a_study_boots_are_found_in_all_its_keys(tmp_path: Path) -> None:
    stored = {
        "kernel": "/k/vmlinuz",
        "lab": {"xen": "/x/xen.gz", "kernel": "generic", "qemu": "/q/qemu", "release": None},
        "arms": {"a": {"kernel": "rt"}, "b": {"kernel": "./own"}, "c": {"kernel": None}},
    }
    found = list(map(str, files_booted(stored)))
    assert found == ["/k/vmlinuz", "own", "/x/xen.gz", "/q/qemu"]
    assert list(files_booted({"arms": {}, "lab": None})) == []
    with pytest.raises(FilesMissing, match=f"lacks: {tmp_path}/0, .*{tmp_path}/4 and 2 more;"):
        require_here(tmp_path / str(number) for number in range(7))
    require_here([tmp_path])
