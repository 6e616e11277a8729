"""A simulated Hyper-V host: its VMs, files, registry and counters."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

USER = "HYPERV1\\tare"
DIRECTORY = b"<a folder>"
FOLDER = "D:\\tare"
IMAGE, DISK = "D:\\images\\tare-live.iso", "D:\\images\\tare-live.vhdx"
HOST: dict[str, Any] = {
    "ComputerName": "HYPERV1",
    "LogicalProcessorCount": 16,
    "MemoryCapacity": 64 << 30,
    "VirtualMachinePath": FOLDER,
}
WINDOWS = "hklm:\\software\\microsoft\\windows nt\\currentversion"
POWER = "hklm:\\system\\currentcontrolset\\control\\power\\user\\powerschemes"
HARDWARE = "hklm:\\hardware\\description\\system"
COUNTERS = "Win32_PerfRawData_HvStats_HyperVHypervisorVirtualProcessor"


class PsError(Exception):
    """An error record of PowerShell's.

    Args:
        known: Its fully qualified id.
        words: Its message.
        terminating: Whether the pipeline fails by it, instead of continuing with the next object.
    """

    def __init__(self, known: str, words: str, *, terminating: bool = False) -> None:
        super().__init__(words)
        self.known = known
        self.words = words
        self.terminating = terminating


@dataclass(frozen=True)
class Named:
    """A value of an enumeration, which prints as its name."""

    kind: str
    name: str


@dataclass
class VmSwitch:
    """A virtual switch that was made."""

    name: str
    kind: str
    notes: str
    id: uuid.UUID = field(default_factory=uuid.uuid4)

    def properties(self, host: Host) -> dict[str, Any]:
        kind = Named("VMSwitchType", self.kind)
        return {"Name": self.name, "Id": self.id, "SwitchType": kind, "Notes": self.notes}


@dataclass
class Drive:
    number: int
    location: int
    path: str | None = None

    def properties(self, host: Host) -> dict[str, Any]:
        place = {"ControllerNumber": self.number, "ControllerLocation": self.location}
        return {**place, "Path": self.path}


@dataclass
class Card:
    legacy: bool
    switch: str | None
    mac: str = ""
    """Its address where it was given one; empty: the host chooses it."""
    most: int = 0
    """The most bits per second that it sends; 0: no limit."""

    def properties(self, host: Host) -> dict[str, Any]:
        return {
            "Name": "Network Adapter",
            "IsLegacy": self.legacy,
            "SwitchName": self.switch,
            "MacAddress": self.mac or "000000000000",
        }


@dataclass
class Vm:
    name: str
    generation: int
    memory: int
    path: str
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    state: str = "Off"
    dynamic: bool = False
    checkpoints: str = "Production"
    notes: str = ""
    boots: str = ""
    processor: dict[str, Any] = field(
        default_factory=lambda: {"Count": 1, "Maximum": 100, "Reserve": 0, "RelativeWeight": 100}
    )
    firmware: dict[str, Any] = field(default_factory=dict)
    drives: list[Drive] = field(default_factory=list)
    disks: list[str] = field(default_factory=list)
    added: list[tuple[str, str]] = field(default_factory=list)
    """Disks that were attached later: by what, and the file."""
    cards: list[Card] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    group: str = "00000000-0000-0000-0000-000000000000"
    """The id of its CPU group."""
    started: float = 0.0
    assigned: int | None = None
    status: str = "Ok"
    second: str | None = None
    replicated: str = "Disabled"

    def properties(self, host: Host) -> dict[str, Any]:
        runs = self.state == "Running"
        assigned = self.memory if self.assigned is None else self.assigned
        return {
            "Name": self.name,
            "Id": self.id,
            "State": Named("VMState", self.state),
            "Path": self.path,
            "Generation": self.generation,
            "Version": "10.0",
            "ComputerName": HOST["ComputerName"],
            "Uptime": timedelta(seconds=time.monotonic() - self.started if runs else 0),
            "ProcessorCount": self.processor["Count"],
            "MemoryStartup": self.memory,
            "MemoryAssigned": assigned if runs else 0,
            "DynamicMemoryEnabled": self.dynamic,
            "CheckpointType": Named("CheckpointType", self.checkpoints),
            "ReplicationState": Named("VMReplicationState", self.replicated),
            "PrimaryOperationalStatus": Named("VMOperationalStatus", self.status),
            "SecondaryOperationalStatus": self.second and Named("VMOperationalStatus", self.second),
        }


class Host:
    """The host, and what an account may do there."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held while a cmdlet works: there may be several shells."""
        self.plug: Callable[[Any, list[bytes]], None] = lambda *_: None
        self.unplug: Callable[[Any], None] = lambda _: None
        self.may_hyperv = self.may_write = self.may_wmi = self.may_log = True
        self.full = False
        # Everyone, and the groups of `tare help hyper-v` ("Well-known SIDs", learn.microsoft.com).
        self.groups = ["S-1-1-0", "S-1-5-32-578", "S-1-5-32-580"]
        self.booted = datetime.fromtimestamp(1_800_000_000, timezone(timedelta(hours=2)))
        self.moved = ""
        """Where VMs' files go, if not to where they were to."""
        self.held = ""
        """A file that somebody else holds open."""
        self.fails: dict[str, PsError] = {}
        """What a cmdlet dies with, once, by its name."""
        self.scheduler = 3
        self.switches = ["External"]
        """Those that were there before."""
        self.made: list[VmSwitch] = []
        self.vms: dict[uuid.UUID, Vm] = {}
        folders = ("D:", FOLDER, "D:\\images")
        self.files = {path_of(each): DIRECTORY for each in folders}
        self.files |= {path_of(IMAGE): b"an image", path_of(DISK): b"a disk"}
        self.first = dict(self.files)
        """The files that were there before."""
        self.registry: dict[str, dict[str, Any]] = {
            WINDOWS: {
                "ProductName": "Windows Server 2022 Standard",
                "CurrentBuild": "20348",
                "UBR": 2402,
                "EditionID": "ServerStandard",
                "DisplayVersion": "21H2",
            },
            POWER: {"ActivePowerScheme": "381b4222-f694-41f0-9685-ff5bb260df2e"},
            f"{HARDWARE}\\bios": {
                "SystemManufacturer": "A maker",
                "SystemProductName": "A server",
            },
            f"{HARDWARE}\\centralprocessor\\0": {"ProcessorNameString": "A CPU   "},
        }
        self.dispatches = 1000
        self.cpu_groups: dict[str, list[int]] = {}
        self.has_compute = True
        """Whether its Windows has computecore.dll."""
        self.hardware = dict(HOST)
        self.sockets, self.cores, self.nodes = 1, 8, 1

    def instances(self, kind: str) -> Iterator[dict[str, Any]]:
        if kind == "Win32_Processor":
            threads = self.hardware["LogicalProcessorCount"]
            for _ in range(self.sockets):
                yield {
                    "NumberOfCores": self.cores // self.sockets,
                    "NumberOfLogicalProcessors": threads // self.sockets,
                }
        if kind == "Msvm_ProcessorSettingData":
            for vm in self.vms.values():
                # As in https://learn.microsoft.com/windows/win32/hyperv_v2: upper case here.
                name = f"Microsoft:{str(vm.id).upper()}\\b637f346"
                yield {"InstanceID": name, "CpuGroupId": vm.group.upper()}
        if kind == "Win32_OperatingSystem":
            yield {"LastBootUpTime": self.booted}
        if kind != COUNTERS:
            return
        yield {"Name": "_Total", "CPUWaitTimePerDispatch": 1, "CPUWaitTimePerDispatch_Base": 1}
        self.dispatches += 500
        for vm in self.vms.values():
            for number in range(vm.processor["Count"] if vm.state == "Running" else 0):
                yield {
                    "Name": f"{vm.name}:Hv VP {number}",
                    "CPUWaitTimePerDispatch": (number + 2) * 1000 * self.dispatches,
                    "CPUWaitTimePerDispatch_Base": self.dispatches,
                }

    def start(self, vm: Vm) -> None:
        vm.state, vm.started = "Running", time.monotonic()
        content = (self.files.get(path_of(drive.path)) for drive in vm.drives if drive.path)
        self.plug(vm.id, [each for each in content if each is not None])

    def stop(self, vm: Vm) -> None:
        self.unplug(vm.id)
        vm.state = "Off"

    def powered_off(self, vm: Any) -> None:
        """Note that a guest has ended by itself."""
        if vm in self.vms:
            self.vms[vm].state = "Off"

    @property
    def left(self) -> list[str]:
        """What is there that was not there before."""
        vms = [vm.name for vm in self.vms.values()]
        vms += [switch.name for switch in self.made]
        vms += self.cpu_groups
        return vms + [path for path in self.files if path not in self.first]


def path_of(path: str) -> str:
    """Return a path as Windows compares it."""
    return path.rstrip("\\").lower()
