"""The switches that people turn: each reaches QEMU, and none that does not go together."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from platforms.test_qemu_command import IMAGE, line, places
from tare.errors import MachineFault
from tare.hosts import LocalHost
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.linux.backed_disk import backed_disk, lacking_backing
from tare.platforms.linux.disk import OwnDisk
from tare.platforms.linux.sockets import reached
from tare.platforms.qemu import features, halt_polling, kvm_trial, microvm
from tare.platforms.qemu.command import command
from tare.platforms.qemu.disk import prove_disk, require_bus
from tare.platforms.qemu.disk_options import BUSES
from tare.platforms.qemu.drive import DISK_DEVICE, DISK_NODE, DISK_THREAD
from tare.platforms.qemu.kvm_trial import TrialResult
from tare.platforms.qemu.machine import QemuRequest
from tare.platforms.qemu.memory import bound_to, online_nodes
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.platforms.qemu.qmp import Monitor
from tare.platforms.qemu.threads import place_vhost_threads


def disk_of(argv: list[str]) -> tuple[str, str]:
    backend = next(word for word in argv if f"node-name={DISK_NODE}" in word)
    device = next(word for word in argv if f"id={DISK_DEVICE}," in word)
    return backend, device


def test_by_itself_qemu_decides_how_it_drives_a_disk() -> None:
    device = disk_of(line())[1]
    assert "num-queues" not in device
    assert "iothread" not in device
    assert "-object" not in line()


def test_the_disks_queues_and_thread_reach_qemu() -> None:
    argv = line(disk_queues=4, iothread=True)
    device = disk_of(argv)[1]
    assert "num-queues=4" in device.split(",")
    assert f"iothread={DISK_THREAD}" in device.split(",")
    assert f"iothread,id={DISK_THREAD}" in argv


def test_unknown_arguments_come_last_and_are_listed() -> None:
    extra = ("-global", "virtio-blk-pci.packed=on")
    argv = line(extra_args=extra)
    assert argv[-3:] == [*extra, "-S"]
    described = Qemu().describe(QemuOptions(extra_args=extra))
    assert (
        "extra arguments that Tare does not interpret: -global virtio-blk-pci.packed=on"
        in described
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"disk_queues": 2, "devices": "emulated"}, "disk-queues"),
        ({"iothread": True, "devices": "emulated"}, "iothread"),
        ({"iothread": True, "disk_bus": "nvme"}, "iothread"),
        ({"iothread_cpus": "other"}, "needs `iothread: true`"),
        ({"disk_bus": "ide"}, "needs `machine: pc`"),
        ({"disk_format": "lvm"}, "need each other"),
        ({"disk_volume_group": "vg0"}, "need each other"),
        ({"disk_format": "lvm", "disk_volume_group": "-x"}, "disk_volume_group"),
        ({"cpu_features": ["avx2"]}, "cpu_features"),
        ({"halt_poll": "0 s"}, "halt-poll needs `accelerator: kvm`"),
        ({"machine": "microvm", "devices": "emulated"}, "para-virtual devices only"),
        ({"machine": "microvm", "disk_bus": "nvme"}, "needs PCI"),
        ({"machine": "microvm", "nic": "e1000"}, "needs PCI"),
        ({"machine": "microvm", "iothread": True}, "needs `accelerator: kvm`"),
        ({"machine": "microvm", "clock": "instructions"}, "needs another mainboard"),
        ({"disk_aio": "native", "disk_cache": "writeback"}, "disk-aio: native"),
        ({"disk_queues": 0}, "disk_queues"),
        ({"vhost_cpus": "other", "vhost": "off"}, "vhost-cpus needs vhost"),
        ({"vhost_cpus": "other", "nic": "e1000"}, "vhost-cpus needs `nic: virtio`"),
        ({"vhost_cpus": "other", "network": "user"}, "need a tap"),
        (
            {"vhost_cpus": "other", "network": "sriov", "switch": "routed"},
            "vhost-cpus is of cards of QEMU's",
        ),
    ],
)
def test_incompatible_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        QemuOptions.model_validate(settings)


def test_unpinned_vcpus_are_a_capability_that_plans_know() -> None:
    pinned, free = (Qemu().stated(QemuOptions(pin_vcpus=each)) for each in (True, False))
    assert pinned.capabilities.pinning and not free.capabilities.pinning
    assert "vCPUs on any CPU" in Qemu().describe(QemuOptions(pin_vcpus=False))


async def test_the_threads_that_carry_packets_are_bound_by_their_name(tmp_path: Path) -> None:
    owner, cpu = 4_100_000, min(os.sched_getaffinity(0))
    program = tmp_path / f"vhost-{owner}"
    shutil.copy(shutil.which("sleep") or "sleep", program)
    processes = [subprocess.Popen([str(program), "60"]) for _ in range(2)]
    try:
        bound = await place_vhost_threads(LocalHost(), "x", owner, (cpu,))
        assert bound == {process.pid: [cpu] for process in processes}
        assert all(os.sched_getaffinity(process.pid) == {cpu} for process in processes)
        with pytest.raises(MachineFault, match="the host has no thread vhost-1 "):
            await place_vhost_threads(LocalHost(), "x", 1, (cpu,))
    finally:
        for process in processes:
            process.kill()
            process.wait()


class Answers:
    """A monitor that says what a test wants to hear; the real one is asked by the guests."""

    def __init__(self, settings: dict[str, object]) -> None:
        self._answers: dict[str, object] = {
            "type": "virtio-blk-pci",
            "num-queues": 2,
            "iothread": f"/objects/{DISK_THREAD}",
            "format": "raw",
            "protocol": "file",
            **settings,
        }

    async def execute(self, command: str, **asked: object) -> object:
        if command == "qom-get":
            return self._answers[str(asked["property"])]
        if command == "query-named-block-nodes":
            below = {"node-name": "#block1", "drv": self._answers["protocol"]}
            return [{"node-name": DISK_NODE, "drv": self._answers["format"]}, below]
        modes = {"writeback": True, "direct": True, "no-flush": False}
        return [{"inserted": {"node-name": DISK_NODE, "cache": modes}}]


@pytest.mark.parametrize(
    ("settings", "maps", "words"),
    [
        ({"num-queues": 1}, b"/[aio]", "num-queues"),
        ({"iothread": ""}, b"/[aio]", "iothread"),
        ({}, b"[heap]", "native"),
        ({"type": "nvme"}, b"/[aio]", "was to be a virtio-blk-pci, QEMU says nvme"),
        ({"format": "qcow2"}, b"/[aio]", "QEMU opened the disk as"),
        ({"protocol": "host_device"}, b"/[aio]", "QEMU opened the disk as"),
    ],
)
async def test_a_disk_that_is_driven_otherwise_fails_the_machine(
    settings: dict[str, object], maps: bytes, words: str
) -> None:
    wanted = QemuOptions(disk_queues=2, iothread=True, disk_aio="native")
    disk = OwnDisk(Path("/d"), 1 << 20, True)
    with pytest.raises(MachineFault, match=words):
        await prove_disk("x", wanted, Answers(settings), disk, maps)  # type: ignore[arg-type]
    proven = await prove_disk("x", wanted, Answers({}), disk, b"/[aio] (deleted)")  # type: ignore[arg-type]
    assert (proven["num_queues"], proven["aio"]) == (2, "native")


@pytest.mark.parametrize("bus", sorted(BUSES))
def test_the_guests_kernel_has_to_carry_the_disk_by_the_driver_of_its_bus(bus: str) -> None:
    require_bus("x", bus, {"drivers": ["sd", BUSES[bus].driver, "virtio-pci"]})
    require_bus("x", bus, None)
    with pytest.raises(MachineFault, match=f"was to be on {bus}"):
        require_bus("x", bus, {"drivers": ["sd", "other"]})


def test_description_names_only_changed_switches() -> None:
    description = Qemu().describe(
        QemuOptions(
            accelerator="kvm",
            machine="pc",
            disk_bus="virtio-scsi",
            disk_format="lvm",
            disk_volume_group="vg0",
            iothread=True,
            iothread_cpus=(1,),
            cpu_features=("-avx2",),
            halt_poll=0.0002,
            numa_node=1,
        )
    )
    for word in (
        "machine pc",
        "disk on virtio-scsi",
        "disk in a logical volume in vg0",
        "a thread for the disk on CPUs 1",
        "CPU features -avx2",
        "halt polling 200 µs",
        "memory of NUMA node 1",
    ):
        assert word in description, (word, description)


def test_memory_of_one_node_is_bound_before_the_guest_touches_it() -> None:
    argv = line(numa_node=1)
    backend = argv[argv.index("-object") + 1]
    assert backend.endswith("host-nodes=1,policy=bind")
    assert "memory-backend=memory" in argv[argv.index("-machine") + 1]
    assert line(numa_node=1, hugepages=True)[argv.index("-object") + 1].endswith("policy=bind")


@pytest.mark.parametrize(
    ("text", "nodes"), [("0\n", (0,)), ("0-1\n", (0, 1)), ("0,2-3\n", (0, 2, 3))]
)
def test_the_hosts_nodes_are_read_from_the_kernels_list(text: str, nodes: tuple[int, ...]) -> None:
    assert online_nodes(text) == nodes


def test_only_memory_that_comes_from_one_node_counts_as_bound() -> None:
    assert bound_to("7f00 bind:1 anon=3 N1=3", 1)
    assert bound_to("7f00 bind=static:1 anon=3", 1)
    for line_ in ("7f00 default anon=3", "7f00 bind:0-1 anon=3", "7f00 prefer:1", "7f00"):
        assert not bound_to(line_, 1)


@pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed")
async def test_arguments_that_qemu_does_not_take_make_an_arm_unusable(context: Context) -> None:
    verdict = await Qemu().check(context, QemuOptions(extra_args=("-no-such-argument",)))
    assert not verdict.usable
    assert "no-such-argument" in f"{verdict.reason} {verdict.hint}"
    good = await Qemu().check(context, QemuOptions(extra_args=("-overcommit", "cpu-pm=off")))
    assert good.usable, good


@pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed")
@pytest.mark.parametrize("settings", [{"machine": "microvm"}, {"cpu_features": ["+aes"]}])
async def test_optional_features_of_qemu_are_tried_before_a_run(
    context: Context, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    async def refusing(*_: object) -> TrialResult:
        return TrialResult(False, "this QEMU does not take it", "build another")

    monkeypatch.setattr(kvm_trial, "taken", refusing)
    verdict = await Qemu().check(context, QemuOptions.model_validate(settings))
    assert (verdict.usable, verdict.reason) == (False, "this QEMU does not take it")
    assert (await Qemu().check(context, QemuOptions())).usable


@pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed")
@pytest.mark.parametrize(
    "settings",
    [
        {"disk_queues": 3, "iothread": True, "disk_aio": "native"},
        {"machine": "pc", "disk_queues": 2, "disk_aio": "threads"},
        {"disk_aio": "io_uring", "disk_cache": "writeback"},
        {"devices": "emulated", "disk_aio": "native", "disk_cache": "directsync"},
        {"disk_bus": "virtio-scsi", "disk_queues": 2, "iothread": True, "disk_format": "block"},
        {"disk_bus": "nvme", "disk_queues": 2, "disk_format": "qcow2"},
        {"disk_bus": "ahci", "machine": "pc", "disk_cache": "writethrough"},
        {"disk_bus": "ide", "machine": "pc"},
        {"machine": "microvm", "disk_queues": 2},
        {"machine": "microvm", "disk_bus": "virtio-scsi", "numa_node": 0, "prealloc": True},
        {"cpu_features": ["-avx2", "+aes"], "iothread": True, "iothread_cpus": [0]},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
async def test_a_real_qemu_says_that_all_is_as_asked(
    context: Context, settings: dict[str, object]
) -> None:
    # Its guest waits for ever: only what QEMU and the kernel report is checked.
    wanted = QemuOptions.model_validate(settings)
    if wanted.disk_format == "block" and os.geteuid():
        pytest.skip("loop devices need root")
    host = context.host
    if problem := await lacking_backing(host, wanted.disk_format, None):
        pytest.skip(problem[0])
    folder = Path(tempfile.mkdtemp(prefix="tare-test-"))
    shape = Shape(2, 64 << 20, 16 << 20)
    spec = MachineSpec(f"tare-test-{os.getpid()}", shape, (), folder, False)
    root = places(str(folder))
    try:
        async with backed_disk(context, spec, wanted.disk_format, None) as disk:
            assert disk is not None
            argv = command(wanted, IMAGE, "x", shape, replace(root, disk=disk.file), append=())
            for option in ("-kernel", "-initrd", "-append"):
                place = argv.index(option)
                del argv[place : place + 2]
            process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
            try:
                died: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
                monitor = Monitor("x", await reached(host, root.qmp, died))
                await monitor.open()
                # QEMU 10 asks the kernel for native I/O with the first request, not before.
                read = f'qemu-io {DISK_NODE} "read 0 512"'
                await monitor.execute("human-monitor-command", **{"command-line": read})
                asked = QemuRequest("x", wanted, shape, monitor, disk)
                proven = await asked.proven(host, process.pid, await monitor.vcpu_threads(), ())
                await monitor.close()
            finally:
                process.kill()
                # Shown where the test fails.
                print(process.communicate()[1])
    finally:
        shutil.rmtree(folder)
    assert context.ledger.open_entries() == ()
    assert proven["disk"]["bus"] == wanted.bus
    assert proven["disk"].get("aio", "default") == wanted.disk_aio
    assert proven["disk"].get("num_queues") == wanted.disk_queues
    assert ("iothread" in proven["disk"]) == wanted.iothread
    assert proven.get("disk_thread") == (None if wanted.iothread_cpus is None else [0])
    assert proven.get("memory", {}).get("numa_node") == wanted.numa_node
    assert proven.get("cpu_features", {}) == features.wanted(wanted.cpu_features)


@pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed")
async def test_a_feature_that_cannot_be_had_makes_an_arm_unusable(context: Context) -> None:
    verdict = await Qemu().check(context, QemuOptions(cpu_features=("+avx512f",)))
    assert not verdict.usable
    assert "avx512f" in verdict.reason
    verdict = await Qemu().check(context, QemuOptions(cpu_features=("+no-such-feature",)))
    assert not verdict.usable
    assert "no-such-feature" in f"{verdict.reason} {verdict.hint}"


async def test_halt_polling_is_held_while_a_machine_runs_and_given_back(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = tmp_path / "halt_poll_ns"
    monkeypatch.setattr(halt_polling, "SETTING", setting)
    reason, _ = await halt_polling.lacking_polling(context.host, 0.0) or ("", "")
    assert "no parameter halt_poll_ns" in reason
    setting.write_text("200000\n")
    assert await halt_polling.lacking_polling(context.host, 0.0) is None
    async with AsyncExitStack() as held:
        proven = await halt_polling.hold_polling(held, context.host, context.ledger, "x", 0.00005)
        assert proven == {"halt_poll": {"ns": 50000, "before_ns": 200000}}
        assert setting.read_text() == "50000\n"
    assert setting.read_text() == "200000\n"


async def test_features_that_a_host_lacks_are_reported_with_the_reason(context: Context) -> None:
    nodes = online_nodes(Path("/sys/devices/system/node/online").read_text())
    verdict = await Qemu().check(context, QemuOptions(numa_node=max(nodes) + 1))
    assert not verdict.usable
    assert "NUMA" in verdict.reason or "no node" in verdict.reason
    for named in ({"emulator_cpus": (0, 4095)}, {"iothread": True, "iothread_cpus": (4095,)}):
        verdict = await Qemu().check(context, QemuOptions.model_validate(named))
        assert not verdict.usable
        assert verdict.reason.endswith("-cpus`: the host has no CPU 4095")
        assert verdict.hint.startswith("name some of those it has: 0")
    lvm = QemuOptions(disk_format="lvm", disk_volume_group="tare-no-such-group")
    verdict = await Qemu().check(context, lvm)
    assert not verdict.usable
    assert "disk-format: lvm" in verdict.reason


@pytest.mark.parametrize(
    ("files", "khz"),
    [
        ({"/proc/cpuinfo": "model name\t: x\ncpu MHz\t\t: 2445.430\n"}, 2445430),
        ({"/proc/cpuinfo": "model name\t: x\n"}, None),
        ({"/proc/cpuinfo": "cpu MHz : 800.000\n", microvm._SCALED: ""}, None),
    ],
)
async def test_guest_without_timers_gets_the_hosts_counter_frequency(
    files: dict[str, str], khz: int | None
) -> None:
    class Known(LocalHost):
        async def read(self, path: str | Path) -> bytes:
            return files[str(path)].encode()

        async def exists(self, path: str | Path) -> bool:
            return str(path) in files

    host, emulated = Known(), QemuOptions(machine="microvm")
    assert (await microvm.lacking_frequency(host, emulated) is None) == (khz is not None)
    if khz is not None:
        words = await microvm.frequency_words(host, emulated)
        assert words == (f"tsc_early_khz={khz}", "tsc=reliable")
    for other in (QemuOptions(), QemuOptions(machine="microvm", accelerator="kvm")):
        assert await microvm.lacking_frequency(host, other) is None
        assert await microvm.frequency_words(host, other) == ()
