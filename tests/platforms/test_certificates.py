"""A certificate follows from its own events, and hides its owner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import InputError
from tare.platforms import reference
from tare.platforms.certificates.model import (
    Case,
    Certificate,
    CreatedKind,
    contradictions,
    kept_certificates,
    read_certificate,
    results_of,
)
from tare.platforms.certificates.redaction import (
    HIDDEN,
    NAMED,
    hidden,
    plain_options,
    texts_to_hide,
    wanted_events,
)
from tare.platforms.contract import Platform
from tare.platforms.proxmox.options import ProxmoxOptions
from tare.platforms.qemu.options import QemuOptions
from tare.registry import installed

CELL = "b001/subject/alone/tick[samples=20000]"


def events(values: list[float] | None = None) -> list[dict[str, Any]]:
    observed = [
        {"type": "observation", "cell": CELL, "metric": "typical", "unit": "s", "value": value}
        for value in values or []
    ]
    return [
        {"type": "run_started", "versions": {"tare": "0.1.0"}},
        {"type": "skipped", "arm": "subject", "workload": "fio", "reason": "no disk"},
        *observed,
        {"type": "cell_finished", "cell": CELL, "status": "ok", "reason": ""},
        {"type": "cell_finished", "cell": CELL.replace("001", "002"), "status": "withheld"},
        {"type": "run_finished", "status": "complete", "cells": {"ok": 1, "withheld": 1}},
    ]


def parts(**changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "cases": (
            Case(name="test_pins", outcome="passed", seconds=0.1),
            Case(name="test_disk", outcome="skipped", words="it has none", seconds=0.0),
        ),
        "events": tuple(events()),
        "declared": {"pinning": True, "knobs": ["cap", "nice"], "max_vcpus": 255},
        "found": {"pinning": True, "knobs": ["cap"], "max_vcpus": 2},
        "writes": (CreatedKind(kind="process", call="qemu", undone="kill", noted=3),),
        "leftovers": (),
    }
    return {**usual, **changes}


def certificate(**changes: Any) -> Certificate:
    known = parts(**changes)
    figures = any(each["type"] == "observation" for each in known["events"])
    return Certificate(
        made="2026-11-23",
        tare={"version": "0.1.0"},
        platform="qemu",
        options={},
        description="QEMU TCG",
        build={"qemu": "7.2.22"},
        host={"cpu": "a CPU"},
        rights=("root",),
        figures=figures,
        results=results_of(**known),
        **known,
    )


def test_a_certificates_result_follows_from_its_parts() -> None:
    results = certificate(events=tuple(events([3.0, 1.0, 2.0]))).results
    assert results.cases == {"passed": 1, "skipped": 1}
    assert results.cells == {"subject": {"ok": 1, "withheld": 1}}
    assert results.left_out == ("subject fio: no disk",)
    assert results.lacking == ("knobs: nice",)
    assert results.medians == {"subject": {"alone/tick[samples=20000]": {"typical (s)": 2.0}}}
    assert results.passes


@pytest.mark.parametrize(
    "changes",
    [
        {"cases": (Case(name="test_dies", outcome="failed", seconds=1),)},
        {"cases": ()},
        {"writes": (CreatedKind(kind="cgroup", noted=1),)},
        {"leftovers": ("the mount /x",)},
        {"events": tuple(events()[:-1])},
        {"events": (events()[-1],)},
    ],
    ids=["a case failed", "no case", "undeclared", "left behind", "cut off", "nothing ran"],
)
def test_a_certificate_with_failures_does_not_pass(changes: dict[str, Any]) -> None:
    about = certificate(**changes)
    assert not about.results.passes
    assert contradictions(about) == ()


def test_results_improved_afterwards_are_detected() -> None:
    bad = certificate(cases=(Case(name="test_dies", outcome="failed", seconds=1),))
    better = bad.model_copy(update={"results": bad.results.model_copy(update={"passes": True})})
    assert "passes: it says True" in contradictions(better)[0]
    left = bad.model_copy(update={"events": tuple(events([1.0]))})
    assert any("no figures" in each for each in contradictions(left))
    odd = bad.model_copy(update={"events": ({"type": "cell_finished", "cell": 3},)})
    assert "not those of a run" in contradictions(odd)[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"found": {"knobs": 5}},
        {"found": {"knobs": True}},
        {"declared": {"knobs": [3]}, "found": {"knobs": "cap"}},
        {"events": ({"type": "cell_finished", "cell": "b/a/s/w", "status": 1}, *events())},
        {
            "events": tuple(
                {**each, "value": 10**400} if each["type"] == "observation" else each
                for each in events([1.0])
            )
        },
    ],
    ids=["a number", "a switch", "a text", "statuses of two kinds", "no float"],
)
def test_impossible_content_is_reported_and_raises_nothing(changes: dict[str, Any]) -> None:
    whole = certificate(events=tuple(events([1.0])))
    (contradiction,) = contradictions(whole.model_copy(update=changes))
    assert "not those of a" in contradiction


@pytest.mark.parametrize("text", ["", "[]", '{"certificate": 2}', "\x00", '{"made": "today"}'])
def test_a_file_that_is_not_a_certificate_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(text)
    with pytest.raises(InputError, match="is not a certificate"):
        read_certificate(file)


def test_a_file_survives_being_written_and_read(tmp_path: Path) -> None:
    about, file = certificate(events=tuple(events([1.5]))), tmp_path / "file.json"
    file.write_text(json.dumps(about.model_dump(mode="json")))
    assert read_certificate(file) == about


def test_options_without_names_of_the_owner_are_kept() -> None:
    options = ProxmoxOptions.model_validate(
        {"address": "pve.corp.example", "storage": "fast", "pool": "mine"}
    )
    shown = plain_options(options)
    assert shown["address"] == NAMED
    assert shown["storage"] == NAMED
    assert plain_options(QemuOptions(accelerator="kvm", disk_queues=2)) == {
        "accelerator": "kvm",
        "disk-queues": 2,
    }


@given(st.text(min_size=8, max_size=30).filter(lambda text: text.strip() == text))
def test_no_planted_secret_is_in_any_text(secret: str) -> None:
    options = ProxmoxOptions.model_validate({"address": "pve.corp.example"})
    private = texts_to_hide(options, {"PROXMOX_PASSWORD": secret, "HOME": "/home/x"}, ("alice",))
    settings = {
        "reason": f"401 for alice@pam with {secret} at pve.corp.example (10.1.2.3)",
        "versions": {"pve": "8.2.4.1"},
        "deep": [{"words": (f"x{secret}y",)}],
    }
    clean = json.dumps(hidden(settings, private), ensure_ascii=False)
    for each in ("alice", "pve.corp.example", "10.1.2.3"):
        assert each not in clean
    assert json.dumps(secret, ensure_ascii=False)[1:-1] not in clean.replace(HIDDEN, "")
    # A version may look like an address.
    assert "8.2.4.1" in clean


def test_events_are_taken_by_a_list_of_fields() -> None:
    run: list[dict[str, Any]] = [
        {"type": "run_started", "host": {"name": "mine"}, "versions": {}, "study": {"x": "mine"}},
        {"type": "machine_ready", "hello": {"hostname": "mine"}},
        {"type": "observation", "cell": CELL, "value": 1.0, "role": "subject"},
        {"type": "cell_finished", "cell": CELL, "status": "ok", "logs": ["/home/mine"]},
    ]
    taken = wanted_events(run, figures=False)
    assert "mine" not in json.dumps(taken)
    assert [each["type"] for each in taken] == ["run_started", "cell_finished"]
    assert [each["type"] for each in wanted_events(run, figures=True)][1] == "observation"


def test_every_kept_certificate_agrees_with_itself() -> None:
    for about in kept_certificates():
        assert about.platform in installed().platforms


def test_the_page_counts_what_was_sent_and_calls_it_self_reported() -> None:
    platforms = installed().platforms
    about = certificate().model_copy(
        update={"options": {"accelerator": "kvm"}, "build": {"<b>": "1"}}
    )
    page = reference.render(platforms, (about,))
    lines = [line for line in page.splitlines() if "self-reported: 1" in line]
    assert len(lines) == 1
    assert "`qemu` `accelerator: kvm`" in lines[0]
    assert "| `qemu` `accelerator: kvm` | &lt;b> 1 |" in page
    assert "None was sent yet" in reference.render(platforms, ())


@pytest.mark.parametrize("platform", installed().platforms.values(), ids=lambda each: each.name)
def test_every_platform_states_what_it_makes_with_the_ledgers_own_words(
    platform: Platform[Any],
) -> None:
    made: set[str] = set()
    for variant in platform.variants:
        options = platform.options.model_validate(dict(variant.options))
        stated = platform.writes(options)
        assert stated, platform.name
        assert all(each.call and each.undone for each in stated)
        kinds = [each.kind for each in stated]
        assert len(set(kinds)) == len(kinds)
        made |= set(kinds)
    # One of its variants makes each kind that only it can undo, except those that need an option.
    optional = {"logical-volume", "pci-function", "hyperv-cpu-group", "ovirt-cpu-profile"}
    assert set(platform.undoers) - optional <= made
