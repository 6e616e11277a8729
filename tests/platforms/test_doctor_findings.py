from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tare.errors import InputError
from tare.hosts import Ledger, LocalHost
from tare.platforms.bare import Bare
from tare.platforms.contract import (
    Capabilities,
    Context,
    Machine,
    MachineSpec,
    Platform,
    PlatformOptions,
    Prepared,
    Shape,
    Statement,
    Variant,
    Verdict,
)
from tare.platforms.doctor import Finding, examine


class RuntimeOptions(PlatformOptions):
    runtime: str = "auto"


class ScriptedPlatform(Platform[RuntimeOptions]):
    """A platform whose checks are scripted."""

    name = "oci"
    options = RuntimeOptions
    variants = tuple(Variant(name, {"runtime": name}) for name in ("crun", "runc", "runsc"))

    def __init__(self, answers: Mapping[str, Verdict | Exception]) -> None:
        self._answers = answers

    def describe(self, options: Any) -> str:
        return "scripted"

    def stated(self, options: Any) -> Statement:
        return Statement(ABLE, "its own", "a pipe")

    async def check(self, context: Context, options: Any) -> Verdict:
        answer = self._answers[options.runtime]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def prepare(
        self, context: Context, options: Any, shape: Shape, realtime: bool
    ) -> Prepared:
        raise NotImplementedError

    async def start(
        self, context: Context, options: Any, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        raise NotImplementedError


ABLE = Capabilities(True, 2, 1 << 24, frozenset({"b", "a"}), notes=("a note",))


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Context:
    ledger = Ledger(tmp_path / "ledger")
    return Context(LocalHost(agent_program), ledger, tmp_path, agent_program)


async def test_doctor_reports_every_variant(context: Context) -> None:
    good = Verdict(True, "it runs", "", False, {"crun": "1"}, ABLE)
    oci = ScriptedPlatform(
        {"crun": good, "runc": InputError("no way", "do this"), "runsc": OSError("disk is gone")},
    )
    platforms: dict[str, Platform[Any]] = {"bare": Bare(), "oci": oci}
    findings = await examine(context, platforms)
    assert [(found.platform, found.variant, found.usable) for found in findings] == [
        ("bare", "", True),
        ("oci", "crun", True),
        ("oci", "runc", False),
        ("oci", "runsc", False),
    ]
    assert findings[1].capabilities["devices"] == ["a", "b"]
    assert (findings[2].reason, findings[2].hint) == ("no way", "do this")
    assert findings[3].reason == "disk is gone"
    for found in findings:
        assert Finding.model_validate_json(found.model_dump_json()) == found


class Single(ScriptedPlatform):
    name = "new"
    variants = (Variant(),)


async def test_a_platform_without_variants_is_asked_once(context: Context) -> None:
    verdict = Verdict(False, "there is none", "get one", True, {}, ABLE)
    (found,) = await examine(context, {"new": Single({"auto": verdict})})
    assert (found.variant, found.emulated, found.hint) == ("", True, "get one")
