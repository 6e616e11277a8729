"""Parts of other packages: found, and left out if they are broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tare.cli.study import schema
from tare.errors import InputError
from tare.platforms.host_hypervisor import hypervisors_of
from tare.registry import OWN, PLATFORMS, PROBES, WORKLOADS, Registry
from tare.run.catalog import build_catalog
from tare.workloads import OWN as OWN_WORKLOADS

GOOD = """
from tare.platforms.bare import Bare
class Mine(Bare):
    name = "mine"
"""
STUDY = """
study: outside
baseline: bare
arms: {bare: {platform: bare}, theirs: {platform: theirs}}
workloads: {their-work: {}}
"""
BROKEN = {
    "does not import": ("import nothing_of_the_kind", "ModuleNotFoundError"),
    "ends Python": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "is not a platform": ("class Mine: pass", "is not a Platform of tare's contract"),
    "is abstract": (
        "from tare.platforms.contract import Platform\nclass Mine(Platform): name = 'mine'",
        "abstract",
    ),
    "has no name": (GOOD.replace('name = "mine"', "name = None"), "has the name None"),
    "declares no options": (
        GOOD
        + "\nclass Mine(Mine):\n    @property\n    def options(self): raise AttributeError('x')",
        "AttributeError",
    ),
    "takes a name of Tare": (GOOD.replace('"mine"', '"qemu"'), "name qemu already"),
}
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install packages of one module each, as pip leaves them: files and their metadata."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def one(package: str, code: str, group: str = PLATFORMS, name: str = "theirs") -> None:
        module = package.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        monkeypatch.delitem(sys.modules, module, raising=False)
        about = tmp_path / f"{module}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}:Mine\n")

    return one


def found() -> Registry:
    return Registry(*(entry_points(group=each) for each in (PLATFORMS, WORKLOADS, PROBES)))


def test_a_part_of_another_package_is_listed_next_to_tares_own(install: Install) -> None:
    own = found()
    install("tare-mine", GOOD, name="mine")
    both = found()
    assert set(both.platforms) - set(own.platforms) == {"mine"}
    assert both.broken == own.broken == ()


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_part_is_left_out_with_the_reason(install: Install, how: str) -> None:
    code, reason = BROKEN[how]
    own = found()
    install("tare-theirs", code)
    registry = found()
    assert dict(registry.platforms).keys() == own.platforms.keys()
    assert type(registry.platforms["qemu"]) is type(own.platforms["qemu"])
    (left,) = registry.broken
    assert (left.kind, left.name, left.package) == ("platform", "theirs", "tare-theirs")
    assert reason in left.reason


def test_the_first_of_two_packages_with_one_name_counts(install: Install) -> None:
    install("tare-one", GOOD, name="mine")
    install("tare-two", GOOD, name="mine")
    registry = found()
    assert "mine" in registry.platforms
    (left,) = registry.broken
    assert left.package in ("tare-one", "tare-two")
    assert "there is a part of the name mine already" in left.reason


def test_a_platform_is_not_a_workload(install: Install) -> None:
    install("tare-mine", GOOD, WORKLOADS)
    (left,) = found().broken
    assert left.kind == "workload"
    assert "is not a Workload of tare's contract" in left.reason


PROBE = """
from tare.probes import Probe, ProbeKind
class Mine(ProbeKind):
    name = "watts"
    def probe(self, cell): return Probe()
"""


def test_a_probe_of_another_package_is_found(install: Install) -> None:
    install("tare-mine", PROBE, PROBES)
    assert set(found().probes) == {"watts"}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("class Mine: pass", "is not a ProbeKind of tare's contract"),
        (PROBE.replace("def probe", "def other"), "abstract"),
        (PROBE.replace('"watts"', "None"), "has the name None"),
    ],
)
def test_a_broken_probe_is_left_out_with_the_reason(
    install: Install, code: str, reason: str
) -> None:
    install("tare-mine", code, PROBES)
    (left,) = found().broken
    assert left.kind == "probe"
    assert reason in left.reason


def test_no_plug_in_of_tare_itself_is_broken() -> None:
    assert found().broken == ()
    assert list(found().workloads) == list(OWN_WORKLOADS)


def test_facts_known_without_loading_equal_what_platforms_declare() -> None:
    registry = found()
    platforms = registry.platforms.values()
    assert registry.hypervisors == hypervisors_of(platforms)
    assert registry.products == {each.name: each.product for each in platforms if each.product}


def test_products_and_hypervisors_of_other_packages_are_found(install: Install) -> None:
    needs = """
from tare.platforms.host_hypervisor import HostHypervisor
class Mine(Mine):
    product = "My Own"
    host_hypervisors = (HostHypervisor("mine", "Mine", {"/sign": "x"}, "above it"),)
"""
    install("tare-mine", GOOD + needs, name="mine")
    registry = found()
    assert registry.products["mine"] == "My Own"
    assert registry.hypervisors["mine"].name == "Mine"


def test_looking_up_a_part_loads_no_other() -> None:
    code = """
import sys
from tare.registry import installed
parts = installed()
parts.platforms["qemu"], parts.workloads["tick"]
assert "tare.platforms.proxmox.platform" not in sys.modules
assert "tare.workloads.disk.fio" not in sys.modules
list(parts.platforms), list(parts.workloads)
assert "tare.platforms.proxmox.platform" in sys.modules
assert "tare.workloads.disk.fio" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


MANY = """
from tare.workloads.realtime.tick import Tick
class One(Tick): name = "one"
class Two(Tick): name = "two"
Mine = {"one": "MODULE:One", "two": "MODULE:Two", "three": "MODULE:Two", "four": "MODULE:Four"}
"""


def test_a_package_may_name_where_each_of_its_parts_is(install: Install) -> None:
    own = found()
    install("tare-many", MANY.replace("MODULE", "tare_many"), WORKLOADS, "many")
    registry = found()
    assert set(registry.workloads) - set(own.workloads) == {"one", "two"}
    assert registry.workloads["two"].name == "two"
    assert [(each.name, each.package) for each in registry.broken] == [
        ("three", "tare-many"),
        ("four", "tare-many"),
    ]
    assert "it brings no part three" in registry.broken[0].reason
    assert "AttributeError" in registry.broken[1].reason
    assert {point.dist.name for point in entry_points(group=PLATFORMS) if point.dist} == {OWN}


def tare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), *sys.path])
    return subprocess.run(
        [sys.executable, "-c", "from tare.cli.main import main; raise SystemExit(main())", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "XDG_STATE_HOME": str(folder / "state")},
        check=False,
    )


def test_every_command_reports_parts_that_are_left_out(install: Install, tmp_path: Path) -> None:
    install("tare-theirs", "import nothing_of_the_kind")
    install("tare-work", "import nothing_of_the_kind", WORKLOADS, "their-work")
    install("tare-mine", GOOD, name="mine")
    study = tmp_path / "outside.yaml"
    study.write_text(STUDY)
    planned = tare(tmp_path, "plan", str(study))
    assert planned.returncode == 2, planned.stderr
    for kind, name, package in (
        ("platform", "theirs", "tare-theirs"),
        ("workload", "their-work", "tare-work"),
    ):
        reason = f'there is no {kind} "{name}": it is installed by {package} but left out: '
        assert f"{reason}ModuleNotFoundError" in planned.stderr
    schema = json.loads(tare(tmp_path, "study", "schema").stdout)
    platforms = schema["properties"]["arms"]["additionalProperties"]["properties"]["platform"]
    assert "mine" in platforms["enum"]
    assert "theirs" not in platforms["enum"]
    listed = tare(tmp_path, "platforms").stdout
    assert "mine" in listed and "theirs" not in listed


def test_an_output_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*: No such file"):
        schema(tmp_path / "none" / "study.json")


@pytest.mark.slow
@pytest.mark.boots
def test_the_doctor_lists_installed_parts_and_those_left_out(
    install: Install, tmp_path: Path
) -> None:
    install("tare-theirs", "import nothing_of_the_kind")
    install("tare-mine", GOOD, name="mine")
    reported = json.loads(tare(tmp_path, "doctor", "--json").stdout)
    (mine,) = [each for each in reported["platforms"] if each["platform"] == "mine"]
    assert mine["usable"]
    (left,) = reported["left_out"]
    assert (left["name"], left["package"]) == ("theirs", "tare-theirs")
    shown = tare(tmp_path, "doctor")
    assert shown.returncode == 0, shown.stderr
    assert "✓ mine: " in shown.stdout
    assert "✗ platform theirs: it is installed by tare-theirs but left out" in shown.stdout
    assert "pip uninstall tare-theirs" in shown.stdout


def test_the_catalog_has_what_is_installed() -> None:
    assert build_catalog().left_out == {}
