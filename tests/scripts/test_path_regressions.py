"""The builds of Xen that are compared: which has the slow path, and which only other bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.path_regressions import BEFORE, HYPERCALLS, STUDY, builds, edited
from tare.hosts import LocalHost
from tare.lab.xen_source import XenSource
from tare.run.catalog import build_catalog
from tare.study.reading.load import load_study

SOURCE = f"""
long do_stack_switch(unsigned long ss, unsigned long esp)
{{
{BEFORE}    return 0;
}}
"""


def test_one_build_is_slow_and_the_others_differ_in_bytes_alone(tmp_path: Path) -> None:
    file = tmp_path / HYPERCALLS
    file.parent.mkdir(parents=True)
    file.write_text(SOURCE)
    source = XenSource(LocalHost(), tmp_path / "xen.dsc", tmp_path, {})
    seen = {}
    for build in builds(3):
        with edited(source, build):
            seen[build.name] = file.read_text()
        assert file.read_text() == SOURCE
    assert seen["base"] == SOURCE
    assert len(set(seen.values())) == 5
    assert [name for name, text in seen.items() if "barrier()" in text] == ["planted"]
    # What runs at a switch of threads is the same in all others.
    body = SOURCE.strip()
    assert all(body in text for name, text in seen.items() if name != "planted")
    # A build that was killed leaves its change, which the next one does not take for the source.
    file.write_text(seen["planted"])
    with edited(source, builds(1)[-1]):
        assert file.read_text() == seen["same-01"]


def test_another_source_is_refused() -> None:
    with pytest.raises(SystemExit, match="do_stack_switch has changed"):
        builds(0)[1].edited("long do_stack_switch(void);")


def test_the_study_is_one_of_deterministic_labs() -> None:
    study = load_study(STUDY, build_catalog())
    assert study.host.kind == "lab" and study.lab.deterministic
