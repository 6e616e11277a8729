"""The certificate that `tare certify` makes of a suite and a study, without running either."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tare.hosts import Ledger
from tare.platforms.certificates.model import Case, contradictions
from tare.platforms.contract import Verdict
from tare.run.lifecycle.certifying import _certificate, _forget, parse_request
from tare.study.reading.hosts_file import KnownHosts

NO_HOSTS = KnownHosts(Path("hosts.yaml"))


def test_the_file_is_made_of_what_was_found_and_agrees_with_itself() -> None:
    order = parse_request("qemu", ["accelerator=kvm"], NO_HOSTS, minutes=1, figures=False)
    able = order.platform.stated(order.options).capabilities
    verdict = Verdict(True, "a guest booted", "", False, {"qemu": "7.2.22"}, able)
    cell = "b001/subject/alone/tick[samples=20000]"
    events: list[dict[str, Any]] = [
        {"type": "run_started", "versions": {}, "host": {"name": "mine"}},
        {"type": "observation", "cell": cell, "metric": "typical", "unit": "s", "value": 1.0},
        {"type": "cell_finished", "cell": cell, "status": "ok", "reason": ""},
        {"type": "run_finished", "status": "stopped", "cells": {"ok": 1}},
    ]
    cases = [Case(name="test_pins", outcome="passed", seconds=0.1)]
    made = _certificate(order, verdict, cases, Counter(process=2, spaceship=1), (), events)
    assert contradictions(made) == ()
    assert made.options == {"accelerator": "kvm"}
    # A thing that nobody announced.
    assert made.results.undeclared == ("spaceship",)
    assert not made.results.passes
    assert not any(each["type"] == "observation" for each in made.events)
    assert _certificate(order, verdict, cases, Counter(process=2), (), events).results.passes


def test_a_ledger_goes_only_with_what_it_lists(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    with Ledger(file) as ledger:
        entry = ledger.record("directory", path="/tmp/tare-x")
    _forget(file, ())
    assert file.exists()
    with Ledger(file) as ledger:
        ledger.done(entry)
    _forget(file, ("a process",))
    assert file.exists()
    _forget(file, ())
    assert not file.exists()
