from __future__ import annotations

import hashlib
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from tare.hosts import Ledger, LocalHost
from tare.platforms.contract import Context
from tare.platforms.linux.cgroups import RealtimeShare, parse_mounts
from tare.platforms.oci import runtime
from tare.platforms.oci.bundle import AGENT_INSIDE, ContainerSpec, Device, configuration
from tare.platforms.oci.options import OciOptions
from tare.platforms.oci.runtime import Runtime, root_file_system

HYBRID = """\
31 23 0:27 / /sys/fs/cgroup rw shared:9 - tmpfs tmpfs rw,mode=755
32 31 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct
33 31 0:29 / /sys/fs/cgroup/memory rw shared:11 - cgroup cgroup rw,memory
34 31 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
35 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
36 31 0:29 / /mnt/again rw shared:11 - cgroup cgroup rw,memory
"""
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def test_hybrid_mounts() -> None:
    mounts = parse_mounts(HYBRID)
    assert mounts.of("cpuacct", "tare-x") == Path("/sys/fs/cgroup/cpu,cpuacct/tare-x")
    assert mounts.of("memory", "tare-x") == Path("/sys/fs/cgroup/memory/tare-x")
    assert mounts.of("pids", "tare-x") == Path("/sys/fs/cgroup/unified/tare-x")
    assert Path("/sys/fs/cgroup/systemd") in mounts.folders


def test_unified_mounts() -> None:
    mounts = parse_mounts(UNIFIED)
    assert mounts.folders == (Path("/sys/fs/cgroup"),)
    assert mounts.of("memory", "tare-x") == Path("/sys/fs/cgroup/tare-x")
    assert mounts.controllers == {}


def test_no_mounts() -> None:
    assert parse_mounts("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n").of("memory", "x") is None


def test_configuration_confines() -> None:
    spec = ContainerSpec(
        name="tare-x",
        root="/root/fs",
        cpus=(1, 3),
        memory=256 << 20,
        swap_limit=True,
        realtime=RealtimeShare(10_000, 1_000_000),
        devices=(Device("/dev/cpu_dma_latency", 10, 259),),
    )
    config = json.loads(json.dumps(configuration(spec)))
    assert config["root"] == {"path": "/root/fs", "readonly": True}
    kinds = {namespace["type"] for namespace in config["linux"]["namespaces"]}
    assert kinds == {"pid", "network", "ipc", "uts", "mount"}
    resources = config["linux"]["resources"]
    assert resources["memory"] == {"limit": 256 << 20, "swap": 256 << 20}
    assert resources["cpu"] == {
        "cpus": "1,3",
        "realtimeRuntime": 10_000,
        "realtimePeriod": 1_000_000,
    }
    assert resources["devices"][0] == {"allow": False, "access": "rwm"}
    assert resources["devices"][1]["minor"] == 259
    held = {name for names in config["process"]["capabilities"].values() for name in names}
    assert held == {"CAP_IPC_LOCK", "CAP_SYS_NICE"}


def test_configuration_asks_only_for_what_the_kernel_has() -> None:
    spec = ContainerSpec(name="tare-x", root="/r", cpus=(0,), memory=1 << 26)
    resources = configuration(spec)["linux"]["resources"]
    assert resources["cpu"] == {"cpus": "0"}
    assert resources["memory"] == {"limit": 1 << 26}


def test_runtime_calls() -> None:
    runtime = Runtime("runsc", ("--network=none",))
    assert runtime.run_command(Path("/s"), Path("/b"), "tare-x") == (
        ["runsc", "--root", "/s", "--network=none", "run", "--bundle", "/b", "tare-x"]
    )
    assert "--keep" in Runtime("runc", keeps=True).run_command(Path("/s"), Path("/b"), "x")


@pytest.mark.parametrize("times", [1, 2])
async def test_root_file_system_is_made_once_by_content(tmp_path: Path, times: int) -> None:
    agent = tmp_path / "agent"
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        context = Context(LocalHost(agent), ledger, tmp_path / "cache", agent)
        agent.write_bytes(b"program")
        made = {await root_file_system(context) for _ in range(times)}
        (root,) = made
        assert (root / "tare-agent").read_bytes() == b"program"
        assert (root / "tare-agent").stat().st_mode & 0o111
        assert root.stat().st_mode & 0o005 == 0o005
        agent.write_bytes(b"another")
        assert await root_file_system(context) != root
    assert len(list((tmp_path / "cache" / "oci").iterdir())) == 2


def test_the_system_call_filter_equals_dockers_and_is_off_by_default() -> None:
    spec = ContainerSpec(name="tare-x", root="/r", cpus=(0,), memory=1 << 26)
    assert "seccomp" not in configuration(spec)["linux"]
    profile = configuration(replace(spec, seccomp="docker"))["linux"]["seccomp"]
    assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
    whole = {name for rule in profile["syscalls"] if "args" not in rule for name in rule["names"]}
    assert {"mount", "bpf", "kexec_load", "unshare", "setns", "perf_event_open"} <= whole
    # What measuring and any program needs, and what CAP_SYS_NICE covers.
    assert not whole & {"clone", "read", "sched_setscheduler", "mlockall", "mbind", "execve"}
    asked = [
        (rule["names"], each["op"], each["value"], each["valueTwo"])
        for rule in profile["syscalls"]
        for each in rule.get("args", ())
    ]
    # Docker's own mask of all seven (moby, profiles/seccomp): clone is let through without them.
    assert sum(value for _, _, value, _ in asked) == 2114060288
    assert all(each_rule[:2] == (["clone"], "SCMP_CMP_MASKED_EQ") for each_rule in asked)
    assert all(value == mask for _, _, value, mask in asked)


def test_gvisor_takes_no_filter_of_an_arms() -> None:
    with pytest.raises(ValidationError, match="gVisor filters"):
        OciOptions.model_validate({"runtime": "runsc", "seccomp": "docker"})


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_an_agent_in_a_cache_that_is_mounted_noexec_is_not_called_damaged(tmp_path: Path) -> None:
    root = tmp_path / "root"
    script = (
        'mount -t tmpfs -o noexec,size=1m none "$1"; mkdir "$2"; echo agent >"$2$4"; '
        'chmod 755 "$2$4"; shift; exec sh -c "$0" sh "$@"'
    )
    digest = hashlib.sha256(b"agent\n").hexdigest()
    words = ["sh", "-c", script, runtime._WHOLE, tmp_path, root, digest, AGENT_INSIDE]
    done = subprocess.run(["unshare", "--mount", *map(str, words)], check=False, timeout=60)
    assert done.returncode == 0
