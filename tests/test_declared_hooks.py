"""The lint that keeps hooks declared finds what it is there to find, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import declared_hooks as lint

SCRIPT = Path(lint.__file__)
NAMES = frozenset({"qemu", "bare", "tick"})


@pytest.mark.parametrize(
    ("source", "place", "why"),
    [
        ("getattr(platform, hook)()", "run/x.py", "declare the hook"),
        ("hasattr(machine, 'threads')", "lab/x.py", "declare the hook"),
        ("isinstance(machine, QemuMachine)", "run/x.py", "whether it is a QemuMachine"),
        ("isinstance(it, (str, qemu.QemuMachine))", "run/x.py", "whether it is a QemuMachine"),
        ("isinstance(it, str | QemuMachine)", "platforms/bare.py", "whether it is a QemuMachine"),
        ("arm.platform == 'bare'", "run/x.py", "ask for what it states"),
        ("arm.platform in ('qemu', 'other')", "platforms/xen/x.py", "ask for what it states"),
        ("'tick' != workload.name", "run/x.py", "ask for what it states"),
    ],
)
def test_probing_is_found(source: str, place: str, why: str) -> None:
    homes = {"QemuMachine": "platforms/qemu/"}
    ((line, words, reason),) = lint.probes(source, place, NAMES, homes)
    assert line == 1
    assert words
    assert why in reason


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("platform.stated(options)", "run/x.py"),
        ("isinstance(error, MachineFault)", "run/x.py"),
        ("isinstance(machine, QemuMachine)", "platforms/qemu/platform.py"),
        ("accelerator == 'tcg'", "run/x.py"),
        ("name == 'qemu'", "platforms/qemu/command.py"),
        ("print('qemu')", "run/x.py"),
    ],
)
def test_code_without_probing_is_accepted(source: str, place: str) -> None:
    assert list(lint.probes(source, place, NAMES, {"QemuMachine": "platforms/qemu/"})) == []


@pytest.mark.parametrize(
    "constant",
    [
        "BARE = 'bare'",
        "BARE: Final = 'bare'",
        "OTHER, BARE = 'subject', 'bare'",
        "BARE = frozenset({'bare', 'x'})",
        "BARE = ('x', 'bare')",
        "BARE = {'bare': 'Bare', **MORE}",
    ],
)
def test_a_name_is_found_behind_a_constant_of_any_module(constant: str) -> None:
    constants = lint.constants_of([constant, "LOUD = 'loud'\nbare = 'bare'"], NAMES)
    assert constants == {"BARE": "bare"}
    for source in ("platform.name != BARE", "arm.platform in (names.BARE, 'x')"):
        ((_, name, _),) = lint.probes(source, "run/x.py", NAMES, {}, constants)
        assert name == "bare"
    assert (
        list(lint.probes("platforms[BARE]; bare is None", "run/x.py", NAMES, {}, constants)) == []
    )


def test_the_parts_of_tare_are_known_with_their_homes() -> None:
    homes = lint.concrete_classes()
    assert homes["Bare"] == "platforms/bare.py"
    assert homes["QemuMachine"] == "platforms/qemu/"
    assert homes["LocalHost"] == "hosts/local.py"
    assert homes["Tick"] == "workloads/realtime/"


def test_tares_own_code_has_none() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
