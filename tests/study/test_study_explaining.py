"""`tare study KEY`, and the commands that messages about studies name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from study.study_catalog import CATALOG
from tare.cli.main import app
from tare.errors import InputError
from tare.run.reference import study_reference
from tare.study.reading.load import parse_study
from tare.study.reading.yamltext import StudyError
from tare.study.reference.explaining import explain, sections_of

REFERENCE = study_reference()
SECTIONS = sections_of(REFERENCE)
ROWS = sorted({row.key for section in SECTIONS for row in section.rows})
NAMES = sorted({name for section in SECTIONS for name in section.names})


def test_every_row_and_heading_of_the_reference_is_found() -> None:
    for name in (*ROWS, *NAMES):
        assert explain(REFERENCE, name).strip(), name


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("blocks", ["least: whole number", "precision: number"]),
        ("blocks.least", ["in blocks:", "Blocks that always run"]),
        ("shape.memory", ["in shape:", "default 256 MiB"]),
        ("arms.my-kvm.hugepages", ["Platform qemu", "huge pages"]),
        ("arms.kvm.hugepage_size", ["Platform qemu"]),
        ("scenarios.s.neighbours[0].count", ["in neighbours, each:", "fill"]),
        ("workloads.tick.samples", ["in Workload tick:"]),
        ("workloads.mine.metrics.rate.unit", ["in metrics of command:"]),
        ("tick", ["Workload tick", "samples"]),
        ("arms", ["Arms", "qemu", "xen"]),
        ("host", ["known-hosts", "folder"]),
        ("introduction", ["A study is one YAML file"]),
    ],
)
def test_a_key_is_explained(key: str, words: list[str]) -> None:
    text = explain(REFERENCE, key)
    for word in words:
        assert word in text, text
    assert "| ---" not in text


def test_a_narrowed_key_shows_nothing_else() -> None:
    assert "lab" not in explain(REFERENCE, "shape.memory")
    assert "Workload fio" not in explain(REFERENCE, "workloads.tick.samples")


@pytest.mark.parametrize(
    ("key", "meant"),
    [("bloks", "'blocks'"), ("tik", "'tick'"), ("blocks.leats", "'least'"), ("precison", "'prec")],
)
def test_a_near_miss_is_named(key: str, meant: str) -> None:
    with pytest.raises(InputError, match=meant):
        explain(REFERENCE, key)


@given(st.text(max_size=60))
def test_any_text_is_explained_or_refused(key: str) -> None:
    try:
        assert explain(REFERENCE, key)
    except InputError as error:
        assert "tare study reference" in error.hint


def test_study_key_is_a_command_and_the_other_subcommands_still_work() -> None:
    run = CliRunner().invoke
    shown = run(app, ["study", "blocks.least"])
    assert shown.exit_code == 0
    assert "Blocks that always run" in shown.output
    assert run(app, ["study", "reference"]).output == REFERENCE
    assert '"$schema"' in run(app, ["study", "schema"]).output
    assert "tare study KEY" in run(app, ["study", "--help"]).output
    refused = run(app, ["study", "bloks"])
    assert refused.exit_code != 0
    assert isinstance(refused.exception, InputError)


def _hint(text: str) -> str:
    with pytest.raises(StudyError) as refused:
        parse_study(text.encode(), "s.yaml", CATALOG)
    return refused.value.hint


def _commands(hint: str) -> list[str]:
    return re.findall(r"`tare study ([^`]*)`", hint)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("study:", "blocks: {leats: 3}\nstudy:", "blocks"),
        ("study:", "blocks: {least: many}\nstudy:", "blocks.least"),
        ("study:", "shape: {memory: much}\nstudy:", "shape.memory"),
        ("study:", "scenarios: {a: {neighbours: [{load: cpu-load, cpus: near}]}}\nstudy:", ""),
        ("study:", "nonsense: 1\nstudy:", "reference"),
        ("baseline: bare", "baseline: nobody", ""),
    ],
)
def test_a_mistake_names_the_command_that_explains_its_key(old: str, new: str, key: str) -> None:
    base = "study: s\nbaseline: bare\narms: {bare: {platform: bare}}\nworkloads: {tick: {}}\n"
    hint = _hint(base.replace(old, new, 1))
    assert "docs/" not in hint
    commands = _commands(hint)
    assert commands
    if key:
        assert commands[0] == key
    for command in commands:
        if command != "reference":
            assert explain(REFERENCE, command)


@given(st.sampled_from(ROWS), st.sampled_from(["blocks", "shape", "host", "lab", "arms", "x"]))
def test_the_command_in_each_error_message_works(key: str, part: str) -> None:
    text = f"study: s\narms: {{bare: {{platform: bare}}}}\nworkloads: {{tick: {{}}}}\n{part}: "
    text += f"{{{key}: [[1]]}}\n"
    if part == "arms":
        text = f"study: s\narms: {{bare: {{platform: bare, {key}: [[]]}}}}\n"
    try:
        parse_study(text.encode(), "s.yaml", CATALOG)
    except StudyError as error:
        for command in _commands(error.hint):
            if command != "reference":
                assert explain(REFERENCE, command)
    except InputError:
        pass
