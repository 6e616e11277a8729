"""Plans from remembered and assumed facts: fast, and nothing is started."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
from rich.console import Console

from run.run_driving import TARE, tare
from tare.errors import InputError
from tare.hosts.local import LocalHost
from tare.platforms.contract import Verdict
from tare.platforms.xen.hypervisor import XEN
from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.hosts.assumed import AssumedHost, assumed_host, best_case
from tare.run.lifecycle.setup import StudySource
from tare.run.preflight import remembered_checks
from tare.run.preflight.planning import Outlook, plan_here, show_plan
from tare.run.preflight.remembered_checks import RememberedHost, keep, question, recall
from tare.study.model.study import Study
from tare.study.planning.host_cpus import Carrier, HostCpus, numbered
from tare.study.planning.plan import Skip
from tare.study.reading.load import load_study, parse_study

STUDIES = sorted((Path(__file__).resolve().parents[2] / "studies").glob("*.yaml"))
TRIES = 3
CPU_LIMIT_S = 2.0
SMALL = """
study: small
baseline: bare
host: {host}
arms: {{bare: {{platform: bare}}, kvm: {{platform: qemu, accelerator: kvm}}}}
workloads: {{tick: {{duration: 1s}}}}
"""
MENU = "{ssh: xen1.example, boot: {xen: {entry: Xen}}}"


def small(host: str = "local") -> Study:
    return parse_study(SMALL.format(host=host).encode(), "s.yaml", build_catalog())


async def planned(study: Study) -> Outlook:
    return await plan_here(study, StudySource("s.yaml", ""), 1)


def shown(outlook: Outlook) -> str:
    console = Console(width=400)
    with console.capture() as text:
        show_plan(outlook, console)
    return text.get()


def unasked(study: Study) -> AssumedHost:
    here = LocalHost(Path("unused")).topology()
    return assumed_host(study.host, study.lab, installed().platforms, here)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "tare"


@pytest.fixture
def nothing_may_start(monkeypatch: pytest.MonkeyPatch) -> None:
    # A library that platforms load looks for others by a command, once.
    installed()

    def refuse(*words: Any, **_: Any) -> NoReturn:
        pytest.fail(f"a plan started something: {words}")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(asyncio, "open_connection", refuse)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
@pytest.mark.usefixtures("nothing_may_start")
async def test_a_plan_starts_nothing_and_says_what_it_goes_by(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Clusters of Hadoop want more room than every computer has that tests run on.
    roomy = shutil.disk_usage("/")._replace(free=1 << 42)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: roomy)
    study = load_study(path, build_catalog())
    outlook = await planned(study)
    assert outlook.plan.arms
    text = shown(outlook)
    assert text.count("assumed to work, was never checked") == len(outlook.plan.arms)
    assert "nothing was started for this plan; with --probe every arm is checked" in text


@pytest.mark.parametrize("name", ["hypervisors", "components"])
def test_a_plan_takes_less_than_two_seconds(name: str) -> None:
    # CPU seconds: on an otherwise idle computer, that is how long a plan takes. A shared core
    # makes it slower, so the fastest of some tries shows the plan's own time best.
    study = next(path for path in STUDIES if path.stem == name)
    assert any(_cpu_seconds_of_plan(study) < CPU_LIMIT_S for _ in range(TRIES))


def _cpu_seconds_of_plan(study: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([TARE, "plan", study], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.usefixtures("nothing_may_start")
async def test_a_host_that_was_never_asked_is_planned_for_without_reaching_it() -> None:
    outlook = await planned(small("{ssh: xen1.example}"))
    assert outlook.plan.arms == ("bare", "kvm")
    assert "root@xen1.example was never checked: it is assumed to have the" in shown(outlook)


def found(study: Study, **changes: Any) -> dict[str, Verdict]:
    host = unasked(study)
    best = {name: best_case(host, study, name) for name in study.arms}
    return {name: replace(verdict, **changes) for name, verdict in best.items()}


def remember(study: Study, verdicts: Mapping[str, Verdict], **host: Any) -> None:
    asked = replace(unasked(study), **host)
    keep(asked, {question(asked, study, name, False): each for name, each in verdicts.items()})


@pytest.mark.parametrize(
    ("host", "cpus", "skipped"),
    [
        ("lab", "[0, 2]", True),
        ("lab", "[0, 1]", False),
        ("{ssh: xen1.example}", "[4095]", False),
    ],
)
async def test_a_cpu_that_an_arm_names_is_looked_for_where_the_cpus_are_known(
    host: str, cpus: str, skipped: bool
) -> None:
    text = SMALL.format(host=host).replace("kvm}}", f"kvm, emulator-cpus: {cpus}}}}}")
    study = parse_study(text.encode(), "s.yaml", build_catalog())
    if host == "lab":
        remember(study, {"kvm": found(study)["kvm"]})
    printed = shown(await planned(study))
    reason = "kvm skipped: `emulator-cpus`: the host has no CPU 2 (known without a check)"
    assert (reason in printed) == skipped, printed
    assert ("name some of those it has: 0, 1" in printed) == skipped


async def test_earlier_findings_are_shown_with_their_day() -> None:
    study = small()
    lacking = {"kvm": replace(found(study)["kvm"], usable=False, reason="there is no /dev/kvm")}
    remember(study, lacking)
    outlook = await planned(study)
    assert outlook.plan.arms == ("bare",)
    text = shown(outlook)
    assert "kvm skipped: there is no /dev/kvm (as checked now)" in text
    assert "bare: bare host (assumed to work, was never checked)" in text


async def test_facts_found_on_this_computer_are_forgotten_at_its_next_boot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    study, afar = small(), small("{ssh: xen1.example}")
    for each in (study, afar):
        remember(each, found(each))
    assert recall("local") is not None
    other = tmp_path / "boot_id"
    other.write_text("another boot")
    monkeypatch.setattr(remembered_checks, "BOOT_ID", other)
    assert recall("local") is None
    assert recall(unasked(afar).name) is not None


async def test_other_options_and_other_kernels_are_other_questions() -> None:
    study = small()
    remember(study, {"kvm": replace(found(study)["kvm"], usable=False)})
    for changed in ("accelerator: kvm, cpu: EPYC", "accelerator: kvm, kernel: cloud"):
        text = SMALL.format(host="local").replace("accelerator: kvm", changed)
        other = parse_study(text.encode(), "s.yaml", build_catalog())
        assert (await planned(other)).plan.arms == ("bare", "kvm")


def test_a_damaged_file_of_remembered_facts_is_ignored(state: Path) -> None:
    study = small()
    remember(study, found(study))
    (file,) = (state / "found").glob("*.json")
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    assert recall("local") is None
    remember(study, found(study))
    assert len(cast(RememberedHost, recall("local")).arms) == 2
    assert json.loads(file.read_text())["cpus"]["online"]


async def test_baseline_on_a_xen_host_runs_in_dom0_and_is_marked() -> None:
    study = small("{ssh: xen1.example}")
    remember(study, {}, hypervisor=XEN.name, cpus=HostCpus((0, 1, 2)))
    outlook = await planned(study)
    assert f"the baseline bare runs {XEN.mark}, and all ratios are to that" in shown(outlook)
    assert outlook.verdicts["kvm"].verdict.mark == ""


async def test_a_boot_menu_with_xen_alone_makes_dom0_the_baseline() -> None:
    outlook = await planned(small(MENU))
    assert outlook.verdicts["bare"].verdict.mark == XEN.mark
    assert {batch.boot for batch in outlook.plan.batches if batch.arm == "bare"} == {"xen"}


@pytest.mark.slow
@pytest.mark.boots
def test_the_next_plan_uses_the_facts_that_probing_found(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SMALL.format(host="local").replace("accelerator: kvm", "accelerator: tcg"))
    probed = tare("plan", path, "--probe")
    assert probed.returncode == 0, probed.stderr
    assert probed.stdout.count("(checked now)") == 2
    again = tare("plan", path)
    assert again.stdout.count("(as checked now)") == 2
    assert not list((tmp_path / "tare" / "ledgers").glob("*"))


def test_a_change_that_cannot_be_made_ends_a_command_before_anything_begins(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SMALL.format(host="local"))
    for command in (("plan", path), ("run", path, "--out", tmp_path / "run")):
        refused = tare(*command, "--set", "shape.memoy=1GiB", "--arm", "bare,kvm")
        assert refused.returncode == 2
        assert "--set shape.memoy=1GiB: shape.memoy: unknown key; did" in refused.stderr
    assert not (tmp_path / "run").exists()


async def test_hint_for_a_skipped_arm_is_that_of_doctor() -> None:
    outlook = await planned(small())
    verdicts = outlook.verdicts["kvm"]
    verdict = replace(
        verdicts.verdict, usable=False, reason="no KVM here", hint="modprobe kvm_intel"
    )
    skipped = replace(
        outlook,
        verdicts={**outlook.verdicts, "kvm": replace(verdicts, verdict=verdict)},
        plan=replace(outlook.plan, skipped=(Skip("kvm", None, None, "no KVM here"),)),
    )
    text = shown(skipped)
    assert "kvm skipped: no KVM here" in text
    assert "modprobe kvm_intel" in text
    assert "modprobe" not in shown(outlook)


async def test_with_an_arm_of_xen_every_guest_boots_the_general_kernel() -> None:
    study = load_study(STUDIES[0].with_name("realtime-short.yaml"), build_catalog())
    plan = (await planned(study)).plan
    assert plan.plain == tuple(arm for arm in plan.arms if arm.startswith("xen"))
    assert {plan.kernel_of(arm) for arm in plan.arms} == {"generic"}
    named = study.model_copy(update={"kernel": "cloud"})
    assert (await planned(named)).plan.kernel_of("kvm") == "cloud"
    others = {arm: study.arms[arm] for arm in study.arms if not arm.startswith("xen")}
    alone = (await planned(study.model_copy(update={"arms": others}))).plan
    assert (alone.plain, alone.kernel_of("kvm")) == ((), None)


async def test_arms_that_are_skipped_for_one_reason_share_a_line() -> None:
    outlook = await planned(small())
    verdicts = replace(outlook.verdicts["kvm"])
    absent = replace(verdicts.verdict, usable=False, reason="no Xen here", hint="install Xen")
    names = ("xen-pv", "xen-hvm")
    skips = tuple(Skip(name, None, None, "no Xen here") for name in names)
    skipped = replace(
        outlook,
        verdicts={**outlook.verdicts, **{n: replace(verdicts, verdict=absent) for n in names}},
        plan=replace(outlook.plan, skipped=(*skips, Skip("bare", "alone", "tick", "no clock"))),
    )
    text = shown(skipped)
    assert "xen-pv, xen-hvm skipped: no Xen here" in text
    assert "bare/alone/tick skipped: no clock" in text
    assert text.count("install Xen") == 1


@pytest.mark.parametrize("deadline", ["0s", "-5s"])
def test_a_deadline_that_nothing_can_meet_is_refused(deadline: str) -> None:
    text = SMALL.format(host="local").replace("1s}", f"1s, deadline: {deadline}}}")
    with pytest.raises(InputError) as caught:
        parse_study(text.encode(), "s.yaml", build_catalog())
    assert "deadline" in str(caught.value)


OWNED = """
study: owned
baseline: bare
arms:
  bare: {platform: bare}
  pve:
    platform: proxmox
    address: pve.example
    callback: "192.0.2.7:4460"
    image: "local:iso/t.iso"
scenarios: {full: {neighbours: [{load: cpu-load, count: fill}]}}
workloads: {tick: {duration: 1s}}
"""


@pytest.mark.usefixtures("nothing_may_start")
async def test_a_hypervisor_is_planned_for_by_its_own_cpus_once_it_was_asked() -> None:
    study = parse_study(OWNED.encode(), "s.yaml", build_catalog())
    warning = "the hypervisor of pve was never asked"
    assert warning in shown(await planned(study))
    carrier = Carrier("pve1", numbered(5, cores=5), 64 << 30, 60 << 30, 1)
    remember(study, {"pve": found(study, carrier=carrier)["pve"]})
    outlook = await planned(study)
    assert warning not in shown(outlook)
    (batch,) = (each for each in outlook.plan.batches if each.arm == "pve")
    assert len(batch.placement.neighbours) == 4 and batch.placement.carrier == "pve1"
    assert "CPUs of pve1, which runs pve: 5 CPUs on 5 cores in 1 socket" in shown(outlook)
    small = replace(carrier, memory=1 << 30, free=None)
    remember(study, {"pve": found(study, carrier=small)["pve"]})
    with pytest.raises(InputError, match="pve1 has 1 GiB"):
        await planned(study)
