"""The bundle for an OCI runtime: a root file system with only the agent, and ``config.json``.

The configuration follows the OCI runtime specification 1.0 (config.md and config-linux.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tare.platforms.linux.cgroups import RealtimeShare
from tare.platforms.oci.seccomp import SeccompName, filtered

AGENT_INSIDE = "/tare-agent"
DIRECTORIES = ("dev", "proc", "scratch", "sys", "tmp")
"""Mount points of file systems in the read-only root; they must exist before the mounts."""

CAPABILITIES = ("CAP_IPC_LOCK", "CAP_SYS_NICE")
"""The capabilities that mlockall and SCHED_FIFO need, and no others."""

PROCESSES = 4096
"""A limit above the most threads that a workload starts (1000); it stops a runaway workload."""


@dataclass(frozen=True)
class Device:
    """A character device that the container may use: its path, major and minor numbers."""

    path: str
    major: int
    minor: int


@dataclass(frozen=True)
class ContainerSpec:
    """Everything that makes one container differ from another.

    Args:
        name: The container's name, also that of its cgroup and its host name.
        root: Directory of the root file system, on the host.
        cpus: The host CPUs that it may use.
        memory: Its memory limit, in bytes.
        swap_limit: Whether the kernel can also limit swap; the limit is then zero.
        realtime: The share of real-time threads, if the kernel requires one.
        devices: Devices in addition to the standard ones.
        cpu: More of ``linux.resources.cpu``: ``shares``, ``quota`` and ``period`` in µs.
        unified: Maps files of version 2 control groups to their values.
        args: The command that it runs.
        env: Its environment, in addition to PATH.
        netns: The network namespace that it joins; empty for a new one.
        scratch: Directory of the host that serves as its own disk; None: it has none.
        toolbox: Directory of the toolbox's tree on the host, which then replaces the root; the
            agent of ``root`` is mounted in it. None: it has no toolbox.
        seccomp: The profile of system calls that it may not make.
        user: The host's user id that runs it without root and is root in it; None: root runs it.
    """

    name: str
    root: str
    cpus: tuple[int, ...]
    memory: int
    swap_limit: bool = False
    realtime: RealtimeShare | None = None
    devices: tuple[Device, ...] = ()
    cpu: Mapping[str, int] = field(default_factory=dict)
    unified: Mapping[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = (AGENT_INSIDE, "serve")
    env: tuple[tuple[str, str], ...] = ()
    netns: str = ""
    scratch: str | None = None
    toolbox: str | None = None
    seccomp: SeccompName = "none"
    user: int | None = None


def configuration(spec: ContainerSpec) -> dict[str, Any]:
    """Return the ``config.json`` of a container with its own namespaces and nothing of the host's.

    The network namespace is new, with only a loopback interface that is down, unless Tare made one
    for it. Without root the container has its own user namespace, no capability that is valid
    outside, and neither devices nor control groups.
    """
    kinds = ("pid", "ipc", "uts", "mount", *(("user",) if spec.user is not None else ()))
    return {
        "ociVersion": "1.0.2",
        "hostname": spec.name,
        "root": {"path": spec.toolbox or spec.root, "readonly": True},
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(spec.args),
            "env": ["PATH=/", *(f"{name}={value}" for name, value in spec.env)],
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": {
                kind: list(CAPABILITIES if spec.user is None else ())
                for kind in ("bounding", "effective", "permitted")
            },
            "rlimits": [
                # Only lowered: raising one needs CAP_SYS_RESOURCE on the host, and the
                # capabilities above already lift those of locked memory and priority.
                {"type": "RLIMIT_CORE", "soft": 0, "hard": 0}
            ],
        },
        "mounts": [
            _mount("/proc", "proc", "proc"),
            _mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=64k"),
            _mount("/sys", "sysfs", "sysfs", "nosuid", "noexec", "nodev", "ro"),
            *_groups(spec),
            _mount("/tmp", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=1777"),
            *_scratch(spec),
            *_toolbox(spec),
        ],
        "linux": {
            **_given_by_root(spec),
            "namespaces": [
                *({"type": kind} for kind in kinds),
                {"type": "network", **({"path": spec.netns} if spec.netns else {})},
            ],
            **filtered(spec.seccomp),
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/sys/firmware"],
            "readonlyPaths": [
                "/proc/bus",
                "/proc/fs",
                "/proc/irq",
                "/proc/sys",
                "/proc/sysrq-trigger",
            ],
        },
    }


def _given_by_root(spec: ContainerSpec) -> dict[str, Any]:
    """Return the settings that only root can make, or else the mapping of the container's root."""
    if spec.user is not None:
        only = [{"containerID": 0, "hostID": spec.user, "size": 1}]
        return {"uidMappings": only, "gidMappings": only}
    devices = [
        {
            "path": device.path,
            "type": "c",
            "major": device.major,
            "minor": device.minor,
            "fileMode": 0o600,
        }
        for device in spec.devices
    ]
    return {
        "cgroupsPath": f"/{spec.name}",
        "devices": devices,
        "resources": _resources(spec),
    }


def _groups(spec: ContainerSpec) -> list[Mapping[str, Any]]:
    if spec.user is not None:
        return []
    # The agent sees its own limits there, as a guest sees the size of its memory.
    return [_mount("/sys/fs/cgroup", "cgroup", "cgroup", "nosuid", "noexec", "nodev", "ro")]


def _toolbox(spec: ContainerSpec) -> list[Mapping[str, Any]]:
    if spec.toolbox is None:
        return []
    return [
        _mount(AGENT_INSIDE, "bind", f"{spec.root}{AGENT_INSIDE}", "bind", "ro"),
        _mount("/run", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=755"),
    ]


def _scratch(spec: ContainerSpec) -> list[Mapping[str, Any]]:
    if spec.scratch is None:
        return []
    return [_mount("/scratch", "bind", spec.scratch, "bind", "nosuid", "nodev", "rw")]


def _resources(spec: ContainerSpec) -> dict[str, Any]:
    memory: dict[str, Any] = {"limit": spec.memory}
    if spec.swap_limit:
        # The runtime specification counts memory and swap together here.
        memory["swap"] = spec.memory
    cpu: dict[str, Any] = {"cpus": ",".join(map(str, spec.cpus)), **spec.cpu}
    if spec.realtime is not None:
        cpu["realtimeRuntime"] = spec.realtime.runtime_us
        cpu["realtimePeriod"] = spec.realtime.period_us
    allowed = [
        {
            "allow": True,
            "type": "c",
            "major": device.major,
            "minor": device.minor,
            "access": "rw",
        }
        for device in spec.devices
    ]
    return {
        "devices": [{"allow": False, "access": "rwm"}, *allowed],
        "memory": memory,
        "cpu": cpu,
        "pids": {"limit": PROCESSES},
        **({"unified": dict(spec.unified)} if spec.unified else {}),
    }


def _mount(destination: str, kind: str, source: str, *options: str) -> Mapping[str, Any]:
    mount: dict[str, Any] = {"destination": destination, "type": kind, "source": source}
    return {**mount, "options": list(options)} if options else mount
