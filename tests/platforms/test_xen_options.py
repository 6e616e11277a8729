"""What can be chosen about a Xen domain, and the guest file that comes of it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from images.images_fakes import FakeHost
from tare.errors import MachineFault
from tare.hosts.contract import Completed
from tare.platforms.contract import TRIAL, Context, MachineSpec, Shape
from tare.platforms.linux.network import Link
from tare.platforms.xen.cpu_accounting import within
from tare.platforms.xen.disk import entry
from tare.platforms.xen.guest import Boots, guest_file, kernel_arguments
from tare.platforms.xen.options import XenOptions
from tare.platforms.xen.platform import Xen, _capabilities, _host_boot
from tare.platforms.xen.rtds import Rtds, granted
from tare.platforms.xen.scheduling import kept_on, listed, wanted_parameters

BOOTS = Boots(Path("/c/vmlinux"), Path("/c/initramfs"))
SPEC = MachineSpec("tare-t-1-subject", Shape(3, 192 << 20), (1, 2), Path("/tmp/tare-t"), True)
UUID = "12345678-1234-1234-1234-123456789abc"


def options(**given: Any) -> XenOptions:
    return XenOptions.model_validate(given)


def written(chosen: XenOptions, spec: MachineSpec = SPEC) -> dict[str, Any]:
    text = guest_file(chosen, spec, BOOTS, UUID, append=kernel_arguments(chosen))
    pairs = (line.partition(" = ") for line in text.splitlines())
    return {name: ast.literal_eval(value) for name, _, value in pairs}


def test_a_guest_file_says_all_that_was_asked_for() -> None:
    chosen = options(type="pv", scheduling={"weight": 200, "cap": "50 %"}, cpupool="fast")
    found = written(chosen)
    assert found["name"] == SPEC.name
    assert found["uuid"] == UUID
    assert found["type"] == "pv"
    assert (found["kernel"], found["ramdisk"]) == ("/c/vmlinux", "/c/initramfs")
    assert (found["memory"], found["vcpus"]) == (192, 3)
    assert found["cpus"] == ["1", "2", "1"]
    assert (found["cpu_weight"], found["cap"], found["pool"]) == (512, 50, "fast")
    assert found["tsc_mode"] == "native"
    assert {found[f"on_{end}"] for end in ("poweroff", "reboot", "crash")} == {"destroy"}


def test_disks_and_networks_reach_xen_and_the_agent() -> None:
    spec = replace(SPEC, shape=replace(SPEC.shape, disk=1 << 30))
    own = entry("xvde", "/dev/loop3", writable=True)
    tools = entry("xvdf", "/c/toolbox", writable=False)
    link = Link("vif", "10.1.2.10", 24, peer="10.1.2.2")
    text = guest_file(options(), spec, BOOTS, UUID, append=(), disks=[own, tools], link=link)
    found = {line.partition(" = ")[0]: line.partition(" = ")[2] for line in text.splitlines()}
    assert ast.literal_eval(found["disk"]) == [
        "format=raw,vdev=xvde,access=rw,target=/dev/loop3",
        "format=raw,vdev=xvdf,access=ro,target=/c/toolbox",
    ]
    assert "tare.scratch=tare-scratch" in found["extra"]
    assert "tare.net=10.1.2.10/24,mtu=1500" in found["extra"]
    assert "disk" not in written(options())


def test_settings_that_are_not_requested_keep_xens_defaults() -> None:
    found = written(options(), replace(SPEC, cpus=()))
    assert not {"cpus", "cpu_weight", "cap", "pool", "serial"} & found.keys()


def test_the_kernel_speaks_where_the_agent_does_not_in_a_hvm_guest() -> None:
    assert "console=ttyS0" in kernel_arguments(options(type="hvm"))
    assert "console=hvc0" in kernel_arguments(options(type="pvh"))
    assert written(options(type="hvm"))["serial"] == "pty"


def test_work_begins_at_whole_minutes_where_the_hosts_time_counts_instructions() -> None:
    assert "tare.align=600000000000" in kernel_arguments(options(), counted=True)
    assert not any(word.startswith("tare.align") for word in kernel_arguments(options()))


def test_emulated_devices_are_kept_from_being_unplugged() -> None:
    chosen = options(type="hvm", devices="emulated")
    assert "xen_emul_unplug=never" in kernel_arguments(chosen)
    assert "model=e1000" in written(chosen)["vif"][0]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"type": "pv", "devices": "emulated"}, "use `type: hvm`"),
        ({"scheduling": {"slice": "1.5ms"}}, "whole number of milliseconds"),
        ({"scheduling": {"slice": "1ms"}, "scheduler": "credit2"}, "use `scheduler: credit`"),
        ({"scheduling": {"slice": "1ms"}, "ratelimit": "2ms"}, "longer than the slice"),
        ({"ratelimit": "50us"}, "at least 100 µs"),
        ({"ratelimit": "1ms", "scheduler": "null"}, "null has no rate limit; use"),
        ({"scheduling": {"weight": 200}, "scheduler": "rtds"}, "rtds has no weight; use"),
        ({"neighbour_scheduling": {"cap": 0.5}, "scheduler": "rtds"}, "rtds has no cap; use"),
        (
            {"scheduling": {"slice": "1ms"}, "neighbour_scheduling": {"slice": "2ms"}},
            "one for the whole pool",
        ),
        ({"scheduling": {"cap": 656}}, "at most 655 CPUs"),
        ({"scheduling": {"policy": "fifo"}}, "`policy` is not supported by Xen"),
        ({"scheduling": {"nice": 3}}, "`nice` is not supported by Xen"),
        ({"scheduling": {"cap": 0.5, "period": "10ms"}}, "do not support a period"),
        ({"scheduling": {"reservation": 0.2}, "scheduler": "credit"}, "credit has no reservation"),
        ({"scheduling": {"reservation": 0.5}, "scheduler": "credit2"}, "use `scheduler: rtds`"),
        ({"scheduling": {"reservation": 0.1, "slice": "1ms"}}, "rtds has no slice"),
        ({"scheduling": {"reservation": 0.1, "weight": 9}}, "rtds has no weight"),
        ({"timeslice": "1ms"}, "timeslice"),
        ({"cpupool": 'a"b'}, "cpupool"),
    ],
)
def test_settings_unknown_to_xen_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        options(**given)


def test_a_reservation_is_rtds_budget() -> None:
    chosen = options(
        scheduling={"reservation": 0.5, "period": "20ms"},
        neighbour_scheduling={"reservation": 0.25},
    )
    assert chosen.wanted_scheduler == "rtds"
    assert _host_boot(chosen) == "xen:rtds"
    assert chosen.granted("subject", 1) == Rtds(20_000, 10_000, True)
    assert chosen.granted("subject", 2) == Rtds(20_000, 5_000, True)
    assert chosen.granted("neighbour-1", 1) == Rtds(10_000, 2_500, True)
    assert chosen.granted(TRIAL, 1) is None
    assert chosen.words().endswith(
        "reservation 50 % per 20 ms, neighbours reservation 25 % per 10 ms"
    )
    assert "reservation" in _capabilities(chosen, "rtds").knobs
    assert "reservation" in _capabilities(chosen, "credit").missing_knobs
    with pytest.raises(ValueError, match="up to its period of 20 ms"):
        options(scheduling={"reservation": 1.5, "period": "20ms"}).granted("subject", 1)


def test_extra_time_is_the_subjects_own() -> None:
    chosen = options(scheduler="rtds", scheduling={"reservation": 1.2}, extra_time=False)
    assert chosen.granted("subject", 4) == Rtds(10_000, 3_000, False)
    assert chosen.granted("neighbour-1", 1) is None
    assert options(extra_time=False).granted("subject", 1) == Rtds(10_000, 4_000, False)
    assert options(scheduler="rtds").granted("subject", 1) is None
    assert chosen.limit_of("subject") == "budget of RTDS"
    assert chosen.limit_of("neighbour-1") == ""
    assert chosen.words() == "Xen PVH, rtds, reservation 120 % per 10 ms, no extra time"


@given(st.floats(0.01, 1), st.integers(1, 8), st.integers(1_000, 1_000_000))
def test_the_granted_budget_equals_the_reservation(
    share: float, vcpus: int, period_us: int
) -> None:
    chosen = options(scheduling={"reservation": share * vcpus, "period": period_us / 1e6})
    found = chosen.granted("subject", vcpus)
    assert found is not None
    assert found.period_us == period_us
    assert abs(found.budget_us - share * period_us) <= 1


def test_rtds_budgets_are_read_from_xls_table() -> None:
    shown = """\
Name                                ID VCPU    Period    Budget  Extratime
tare-x y                             3    0     10000      4000        yes
tare-x y                             3    1     20000       500         no
"""
    assert granted(shown) == {0: Rtds(10_000, 4_000, True), 1: Rtds(20_000, 500, False)}


@given(st.text(max_size=300))
def test_any_text_of_xls_is_read(shown: str) -> None:
    assert isinstance(granted(shown), dict)


def test_the_general_weight_and_cap_become_xens_own() -> None:
    chosen = options(
        scheduling={"weight": 200, "cap": 0.25}, neighbour_scheduling={"weight": 50, "cap": 1.5}
    )
    assert (chosen.weight_of("subject"), chosen.cap_of("subject")) == (512, 25)
    assert (chosen.weight_of("neighbour-1"), chosen.cap_of("neighbour-1")) == (128, 150)
    assert (chosen.weight_of(TRIAL), chosen.cap_of(TRIAL)) == (None, None)


@given(st.integers(1, 10_000))
def test_every_weight_of_the_model_is_one_of_xens(weight: int) -> None:
    found = options(scheduling={"weight": weight}).weight_of("subject")
    assert found is not None
    assert 1 <= found <= 65_535


@given(st.integers(1, 1000), st.integers(0, 500_000))
def test_the_rate_limit_never_exceeds_the_slice(slice_ms: int, now_us: int) -> None:
    chosen = options(scheduling={"slice": slice_ms / 1000})
    assert chosen.slice_ms == slice_ms
    now = {"tslice": "30000", "ratelimit": str(now_us)}
    after = {**now, **wanted_parameters(chosen, now)}
    assert after["tslice"] == str(slice_ms * 1000)
    assert int(after["ratelimit"]) < int(after["tslice"])


def test_a_rate_limit_alone_leaves_the_slice() -> None:
    now = {"tslice": "30000", "ratelimit": "1000"}
    assert wanted_parameters(options(ratelimit="2ms"), now) == {"ratelimit": "2000"}
    assert wanted_parameters(options(), now) == {}


def test_reports_contain_only_chosen_options() -> None:
    assert options(type="pv").model_dump(mode="json") == {
        "type": "pv",
        "devices": "paravirtual",
        "dom0": "pinned",
    }
    chosen = options(type="pv", scheduler="credit", scheduling={"slice": "1ms"})
    assert chosen.words() == "Xen PV, credit, slice 1 ms"


@pytest.mark.parametrize(
    ("asked", "vif", "unplugged", "needs"),
    [
        ({"type": "pvh"}, "script=/bin/true", None, {"xen"}),
        ({"type": "hvm"}, "type=vif,script=/bin/true", None, {"xen"}),
        (
            {"type": "hvm", "nic": "rtl8139"},
            "type=ioemu,model=rtl8139,script=/bin/true",
            "xen_emul_unplug=ide-disks",
            {"xen", "rtl8139"},
        ),
        (
            {"type": "hvm", "devices": "emulated"},
            "type=ioemu,model=e1000,script=/bin/true",
            "xen_emul_unplug=never",
            {"e1000", "ide"},
        ),
        (
            {"type": "hvm", "devices": "emulated", "nic": "netfront"},
            "type=vif,script=/bin/true",
            "xen_emul_unplug=nics",
            {"ide", "xen"},
        ),
    ],
)
def test_a_guest_keeps_what_xen_emulates_only_where_it_is_to_use_it(
    asked: dict[str, Any], vif: str, unplugged: str | None, needs: set[str]
) -> None:
    chosen = options(**asked)
    assert written(chosen)["vif"] == [vif]
    found = [word for word in kernel_arguments(chosen) if word.startswith("xen_emul_unplug")]
    assert found == ([unplugged] if unplugged else [])
    assert chosen.needs == needs
    firmware = written(chosen).get("device_model_args_hvm")
    assert firmware == (["-global", f"{chosen.card}.romfile="] if "ioemu" in vif else None)


def test_dom0_settings_are_described_and_misfits_refused() -> None:
    chosen = options(dom0_cpus=[0, 1], dom0_vcpus=2, dom0_weight=512, nic="auto")
    assert chosen.words().endswith("dom0 on CPUs 0, 1, dom0 with 2 vCPUs, dom0 weight 512 of 256")
    assert "dom0_cpus" not in options().model_dump()
    with pytest.raises(ValidationError, match="a pvh guest has no e1000"):
        options(nic="e1000")
    with pytest.raises(ValidationError, match="dom0-cpus says where dom0 is kept"):
        options(dom0="as-is", dom0_cpus=[1])
    with pytest.raises(ValidationError, match="the scheduler null has no weight"):
        options(scheduler="null", dom0_weight=100)


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(1, 40))
def test_cpus_are_written_as_xen_writes_them(cpus: set[int], all_cpus: int) -> None:
    words = listed(sorted(cpus), all_cpus)
    if cpus == set(range(all_cpus)):
        assert words == "all"
        return
    found: list[int] = []
    for part in words.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
        # Two runs that touch are one.
        assert int(first) - 1 not in found
    assert found == sorted(cpus)


@given(st.sets(st.integers(0, 40)), st.integers(1, 40))
def test_cpus_that_xen_writes_are_read_again(cpus: set[int], all_cpus: int) -> None:
    there = sorted(cpu for cpu in cpus if cpu < all_cpus)
    assert within([listed(there, all_cpus)], all_cpus) == tuple(there)
    # One vCPU of several that may run elsewhere takes its host's kernel there.
    assert within([listed(there, all_cpus), "all"], all_cpus) == tuple(range(all_cpus))
    assert within(["none", "-", "1-", "x-3"], 1) == ()


def test_dom0_is_kept_on_cpus_that_the_host_has() -> None:
    assert kept_on(options(dom0_cpus=[0, 1]), 4) == "0-1"
    with pytest.raises(MachineFault, match="the host has no CPU 2, only 2 CPUs") as fault:
        kept_on(options(dom0_cpus=[0, 2]), 2)
    assert fault.value.hint == "name CPUs from 0 to 1"


XL = {
    "uname": "x86_64\n",
    "xenstore-read": "0\n",
    "xl info": "nr_cpus : 4\nvirt_caps : pv hvm hap\n",
    "xl cpupool-list": "Name    CPUs  Sched  Active  Domain count\nPool-0   4  credit  y  1\n",
}


@pytest.mark.parametrize(
    ("cpus", "usable", "hint"),
    [([0, 3], True, ""), ([0, 4, 7], False, "name some of those it has: 0 to 3")],
)
async def test_a_cpu_for_dom0_that_is_not_there_is_found_before_anything_starts(
    context: Context, cpus: list[int], usable: bool, hint: str
) -> None:
    def answer(argv: Sequence[str]) -> Completed:
        output = next((text for words, text in XL.items() if " ".join(argv).startswith(words)), "")
        return Completed(0, output.encode(), b"")

    signs = {"/sys/hypervisor/type": b"xen\n", "/proc/xen/capabilities": b"control_d\n"}
    where = replace(context, host=FakeHost(answer, signs))
    verdict = await Xen().check(where, options(type="pv", dom0_cpus=cpus))
    assert (verdict.usable, verdict.hint) == (usable, hint), verdict.reason
    if not usable:
        assert verdict.reason == "`dom0-cpus`: the host has no CPU 4, 7"


def test_runs_of_cpus_are_one_word() -> None:
    assert listed([0, 1, 3], 8) == "0-1,3"
    assert listed([2], 8) == "2"
    assert listed([1, 0], 2) == "all"
