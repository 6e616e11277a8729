"""What Tare reads of a host's CPUs, compared with what hwloc reads of the same files."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hosts.hosts_sshd import Sshd
from hosts.snapshots import HWLOC, NAMES, snapshot, snapshot_text
from tare.hosts.cpusets import cpu_list
from tare.hosts.local import LocalHost
from tare.hosts.ssh.host import SshHost
from tare.hosts.topology import (
    KERNEL_ALLOWS,
    cpus_of,
    currently_usable,
    files_below,
    read_topology,
    show_topology,
)
from tare.study.planning.host_cpus import HostCpus

CPU = "/sys/devices/system/cpu"


def listed(groups: Iterable[str]) -> set[tuple[int, ...]]:
    return set(map(cpu_list, groups))


def grouped(where: Mapping[int, int]) -> set[tuple[int, ...]]:
    groups: dict[int, list[int]] = {}
    for cpu, group in sorted(where.items()):
        groups.setdefault(group, []).append(cpu)
    return set(map(tuple, groups.values()))


def test_every_snapshot_has_its_table() -> None:
    assert set(NAMES) == set(HWLOC)
    assert len(NAMES) == 16


@pytest.mark.parametrize("name", NAMES)
def test_the_topology_agrees_with_hwloc(name: str) -> None:
    cpus, theirs = snapshot(name), HWLOC[name]
    assert cpus.online == cpu_list(theirs["cpus"])
    assert {tuple(sorted(cpus.core(cpu))) for cpu in cpus.online} == listed(theirs["cores"])
    assert grouped(cpus.packages) == listed(theirs["packages"])
    assert {str(node) for node in cpus.memory} == set(theirs["nodes"])
    assert grouped(cpus.caches) == listed(theirs["l3"])
    assert {kind.cpus for kind in cpus.kinds} == listed(theirs["kinds"])
    for node, own in theirs["nodes"].items():
        mine = tuple(cpu for cpu in cpus.online if cpus.nodes.get(cpu) == int(node))
        # hwloc gives nodes that have memory only the CPUs near to them.
        assert mine == cpu_list(own) or (not mine and name == "fakeheterocpunuma")


def test_kinds_are_ranked_and_designs_differ_from_favoured_cores() -> None:
    hybrid = snapshot("20em64t-hybrid-1p6c2t+2ca4co1t")
    assert [(kind.name, kind.cpus) for kind in hybrid.kinds] == [
        ("performance", tuple(range(12))),
        ("efficiency", tuple(range(12, 20))),
    ]
    arm = snapshot("nvidia-dgx-gb10")
    assert [len(kind.cpus) for kind in arm.kinds] == [1, 4, 5, 5, 5]
    assert sum(arm.design(cpu) == 0 for cpu in arm.online) == 10
    assert {kind.name for kind in snapshot("48amd64-4pa2n6c-sparse").kinds} == {""}


@pytest.mark.parametrize(
    "name", ["16amd64-4n4c-cgroup-distance-merge", "20em64t-hybrid-1p6c2t+2ca4co1t"]
)
def test_the_script_prints_the_files_of_a_copied_tree(name: str, tmp_path: Path) -> None:
    contents: dict[str, list[str]] = {}
    for line in snapshot_text(name).split("\n"):
        path, colon, content = line.partition(":")
        if colon and path.startswith("/") and not path.startswith("/proc/stat"):
            contents.setdefault(path, []).append(content.removeprefix("- "))
    for path, lines in contents.items():
        file = tmp_path / path.strip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = [f"cgroup {row}" for row in lines] if path == "/proc/mounts" else lines
        file.write_text("\n".join(rows) + "\n")
    shown = subprocess.run(show_topology(str(tmp_path)), capture_output=True, text=True, check=True)
    assert read_topology(shown.stdout, str(tmp_path)) == snapshot(name)
    assert cpus_of(files_below(str(tmp_path))) == snapshot(name)


def text(**files: str) -> str:
    """Return what the script prints on a host of four CPUs, with other files."""
    known = {
        f"{CPU}/online": "0-3",
        "/proc/self/status": "Cpus_allowed_list:\t0-3",
        **{f"{CPU}/cpu{cpu}/topology/core_id": str(cpu) for cpu in range(4)},
        **{path.replace("__", "/"): content for path, content in files.items()},
    }
    return "".join(
        f"{path}:{row}\n" for path, content in known.items() for row in content.split("\n")
    )


def read(files: Mapping[str, str]) -> HostCpus:
    return read_topology(text(**files))


def test_isolated_cpus_are_the_hosts_though_a_process_does_not_get_them_by_itself() -> None:
    cpus = read({f"{CPU}/isolated": "2-3", "/proc/self/status": "Cpus_allowed_list:\t0-1"})
    assert cpus.online == (0, 1, 2, 3)
    assert cpus.isolated == {2, 3}
    assert cpus.roaming == (0, 1)
    ticking = read({f"{CPU}/nohz_full": "3", "/proc/self/status": "Cpus_allowed_list:\t0-2"})
    assert ticking.online == (0, 1, 2, 3)
    assert ticking.isolated == {3}
    none = read({f"{CPU}/nohz_full": "  (null)", f"{CPU}/isolated": ""})
    assert not none.isolated


@pytest.mark.parametrize(
    "files",
    [
        {KERNEL_ALLOWS: "0-2"},
        {
            "/proc/self/cgroup": "0::/job",
            "/proc/mounts": "- /sys/fs/cgroup cgroup2 rw,nosuid",
            "/sys/fs/cgroup/job/cpuset.cpus.effective": "0-2",
        },
        {
            "/proc/self/cgroup": "0::/job/step",
            "/proc/mounts": "- /sys/fs/cgroup cgroup2 rw",
            "/sys/fs/cgroup/job/cpuset.cpus.effective": "0-2",
        },
        {
            "/proc/self/cgroup": "4:cpuset,cpu:/job\n0::/else",
            "/proc/mounts": "- /sys/fs/cgroup/unified cgroup2 rw\n- /mnt/sets cgroup rw,cpuset",
            "/mnt/sets/job/cpuset.cpus": "0-2",
            "/sys/fs/cgroup/unified/else/cpuset.cpus.effective": "0",
        },
        {
            "/proc/self/cpuset": "/job",
            "/proc/mounts": "- /dev/cpuset cpuset rw",
            "/dev/cpuset/job/cpus": "0-2",
        },
    ],
    ids=["kernel", "unified", "its parent's", "hybrid", "cpuset"],
)
def test_isolated_cpus_stay_within_what_the_control_group_allows(files: dict[str, str]) -> None:
    cpus = read({f"{CPU}/isolated": "2-3", "/proc/self/status": "Cpus_allowed_list:\t0-1", **files})
    assert cpus.online == (0, 1, 2)
    assert cpus.isolated == {2}
    assert "control group" in cpus.refused[3]


def test_cpus_that_taskset_took_away_stay_away() -> None:
    cpus = read({"/proc/self/status": "Cpus_allowed_list:\t1-2"})
    assert cpus.online == (1, 2)
    assert "taskset" in cpus.refused[0]


def test_an_isolated_partition_is_isolated_as_a_whole() -> None:
    cpus = read(
        {
            "/proc/self/cgroup": "0::/rt",
            "/proc/mounts": "- /sys/fs/cgroup cgroup2 rw",
            "/sys/fs/cgroup/rt/cpuset.cpus.effective": "2-3",
            "/sys/fs/cgroup/rt/cpuset.cpus.partition": "isolated",
        }
    )
    assert cpus.online == (2, 3)
    assert cpus.isolated == {2, 3}
    assert cpus.roaming == (2, 3)


def test_offline_cpus_are_not_used_and_are_named() -> None:
    cpus = read({f"{CPU}/online": "0-1,3"})
    assert cpus.online == (0, 1, 3)
    assert cpus.refused[2] == "is offline"


def test_a_host_without_topology_files_has_its_cpus() -> None:
    bare = read_topology(f"{CPU}/online:0-1\n")
    assert bare.online == (0, 1)
    assert bare.core(1) == {1}
    stat = read_topology("/proc/stat:cpu0\n/proc/stat:cpu3\n")
    assert stat.online == (0, 3)


def test_unknown_ids_and_capacities_of_arm_are_read() -> None:
    files = {f"{CPU}/cpu{cpu}/topology/physical_package_id": "-1" for cpu in range(4)}
    files |= {f"{CPU}/cpu{cpu}/cpu_capacity": "1024" if cpu > 1 else "446" for cpu in range(4)}
    cpus = read(files)
    assert [kind.cpus for kind in cpus.kinds] == [(2, 3), (0, 1)]
    assert [kind.name for kind in cpus.kinds] == ["performance", "efficiency"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "lists no CPU"),
        (text(**{KERNEL_ALLOWS: "7"}), "control group .* leave none"),
        (text(**{"/proc/self/status": "Cpus_allowed_list:\t9"}), "was started on leave none"),
    ],
)
def test_where_no_cpu_may_be_used_the_reason_is_named(answer: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_topology(answer)


def test_usable_cpus_follow_hotplug_and_the_control_group() -> None:
    cpus = read({f"{CPU}/isolated": "3"})
    look = f"{CPU}/online:{{}}\n/proc/self/status:Cpus_allowed_list:\t{{}}\n{KERNEL_ALLOWS}:{{}}"
    assert currently_usable(look.format("0-3", "0-2", "0-3"), cpus) == (0, 1, 2, 3)
    assert currently_usable(look.format("0-1,3", "0-2", "0-3"), cpus) == (0, 1, 3)
    assert currently_usable(look.format("0-3", "0-1", "0-1"), cpus) == (0, 1)


def test_this_computer_reports_the_same_twice() -> None:
    host = LocalHost()
    assert asyncio.run(host.usable_cpus()) == host.topology().online


def test_cpu_lists() -> None:
    assert cpu_list("0-2,8\n") == (0, 1, 2, 8)
    assert cpu_list("\n") == ()


async def test_host_over_ssh_reports_what_it_reports_locally(
    shared_sshd: Sshd, agent_program: Path
) -> None:
    here = LocalHost()
    async with SshHost(shared_sshd.options(), agent_program) as far:
        # A computer that is itself a virtual machine may get more memory meanwhile.
        assert replace(far.topology(), memory={}) == replace(here.topology(), memory={})
        assert await far.usable_cpus() == here.topology().online
        last = here.topology().online[-1]
        far.arrange(lambda cpus: replace(cpus, measured=(last,)))
        assert far.topology().machines == (last,)
        await far.look_again()
        assert far.topology().machines == (last,)
