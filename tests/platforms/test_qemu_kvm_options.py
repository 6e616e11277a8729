"""What can be asked of KVM: enlightenments, places of threads, memory; and what cannot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from images.images_fakes import FakeHost
from tare.errors import InputError, MachineFault
from tare.hosts import Completed, LocalHost
from tare.hosts.units import kernel_units
from tare.images.guest_image import GuestImage
from tare.platforms.contract import Shape
from tare.platforms.qemu import kvm_trial as probe
from tare.platforms.qemu.command import PROGRAM, MachinePaths, command, trial
from tare.platforms.qemu.enlightenments import (
    HYPERV_FLAGS,
    KVM_FLAGS,
    Enlightenments,
    contradiction,
    kvm_features,
)
from tare.platforms.qemu.huge_pages import lacking_pages, require_whole_pages
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.platforms.qemu.threads import emulator_cpus

IMAGE = GuestImage(Path("/k"), Path("/elf"), Path("/initramfs"), "digest", "6.1-rt", True, 0.0)
PLACES = MachinePaths(*(Path("/run/t") / name for name in ("qmp", "agent", "console", "log")))
MIB = 1 << 20


def kvm(**options: Any) -> QemuOptions:
    return QemuOptions.model_validate({"accelerator": "kvm", **options})


def line(options: QemuOptions) -> list[str]:
    return command(options, IMAGE, "tare-x", Shape(1, 256 * MIB), PLACES, append=())


def after(argv: list[str], word: str) -> str:
    return argv[argv.index(word) + 1]


@pytest.mark.parametrize(
    ("asked", "flags"),
    [
        ({}, ()),
        ({"kvm": False}, ("kvm=off",)),
        ({"kvmclock": False}, ("kvmclock=off", "kvmclock-stable-bit=off")),
        ({"remove": ["kvm-pv-eoi"]}, ("kvm-pv-eoi=off",)),
        ({"add": ["kvm-hint-dedicated"]}, ("kvm-hint-dedicated=on",)),
        ({"kvm": False, "add": ["hv-time"]}, ("kvm=off", "hv-time=on")),
    ],
)
def test_enlightenments_become_flags_of_the_processor(
    asked: dict[str, Any], flags: tuple[str, ...]
) -> None:
    options = kvm(enlightenments=asked)
    assert options.enlightenments.flags == flags
    assert after(line(options), "-cpu") == ",".join(("host", "migratable=off", *flags))


def test_hyperv_sets_its_usual_enlightenments_except_removed_ones() -> None:
    flags = Enlightenments(hyperv=True, remove=("hv-ipi",), add=("hv-stimer-direct",)).flags
    assert "hv-time=on" in flags
    assert "hv-stimer-direct=on" in flags
    assert not any(flag.startswith("hv-ipi") for flag in flags)
    # Some need others, which must come first.
    assert flags.index("hv-vpindex=on") < flags.index("hv-synic=on") < flags.index("hv-stimer=on")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accelerator": "tcg", "enlightenments": {"kvm": False}}, "needs `accelerator: kvm`"),
        ({"accelerator": "tcg", "cpu_pm": True}, "cpu-pm needs `accelerator: kvm`"),
        ({"enlightenments": {"add": ["kvm-pv-eio"]}}, "kvm-pv-eoi"),
        ({"enlightenments": {"kvm": False, "add": ["kvm-pv-eoi"]}}, "cannot be added"),
        ({"enlightenments": {"kvmclock": False, "add": ["kvmclock"]}}, "cannot be added"),
        ({"enlightenments": {"remove": ["hv-time"]}}, "not there to be removed"),
        ({"enlightenments": {"add": ["kvm-mmu"], "remove": ["kvm-mmu"]}}, "both added and removed"),
        ({"emulator_cpus": []}, "list of CPU numbers"),
        ({"emulator_cpus": "elsewhere"}, "same"),
        ({"hugepage_size": 2 * MIB}, "needs `hugepages: true`"),
        ({"hugepages": True, "hugepage_size": 3 * MIB}, "a size of huge pages"),
        ({"hugepages": True, "prealloc": True}, "remove `prealloc`"),
    ],
)
def test_contradictory_options_are_refused_with_the_reason(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        kvm(**options)
    assert words in str(refused.value)


def test_a_report_shows_only_what_was_chosen() -> None:
    assert "enlightenments" not in kvm().model_dump(mode="json")
    chosen = kvm(enlightenments={"kvmclock": False, "remove": ["kvm-pv-eoi"]})
    stored = chosen.model_dump(mode="json")
    assert stored["enlightenments"] == {"kvmclock": False, "remove": ["kvm-pv-eoi"]}
    assert QemuOptions.model_validate(stored) == chosen


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"enlightenments": {"kvm": False, "hyperv": True}}, "with Hyper-V enlightenments without"),
        ({"enlightenments": {"remove": ["kvm-pv-eoi"]}}, "without pv-eoi"),
        ({"cpu_pm": True}, "idle guests keep their CPU"),
        ({"emulator_cpus": "same"}, "emulator on the same CPUs"),
        ({"emulator_cpus": [0, 2]}, "emulator on CPUs 0, 2"),
        ({"hugepages": True, "hugepage_size": 1 << 30}, "huge pages of 1 GiB"),
        ({"mlock": True}, "memory locked"),
    ],
)
def test_an_arm_says_what_is_special_about_it(options: dict[str, Any], words: str) -> None:
    assert words in Qemu().describe(kvm(**options))


def test_memory_is_locked_and_touched_as_asked() -> None:
    assert after(line(kvm(mlock=True, cpu_pm=True)), "-overcommit") == "mem-lock=on,cpu-pm=on"
    assert "-overcommit" not in line(kvm())
    touched = line(kvm(prealloc=True))
    assert after(touched, "-object").startswith("memory-backend-ram,id=memory")
    assert "memory-backend=memory" in after(touched, "-machine")
    pages = line(kvm(hugepages=True, hugepage_size=1 << 30))
    assert "hugetlbsize=1073741824" in after(pages, "-object")


# What the guest sees is held against what was asked for.

KVM_SEEN = {"signatures": ["KVMKVMKVM"], "leaves": {"40000001.0": "01007afb 0 0 0"}}
BOTH_SEEN = {
    "signatures": ["Microsoft Hv", "KVMKVMKVM"],
    "leaves": {"40000001.0": "31237648 0 0 0", "40000101.0": "01007afb 0 0 0"},
}
NOTHING_SEEN: dict[str, Any] = {"signatures": [], "leaves": {}}


@pytest.mark.parametrize(
    ("asked", "seen", "words"),
    [
        ({"kvm": False}, NOTHING_SEEN, ""),
        ({"kvm": False}, KVM_SEEN, "the guest sees KVM still"),
        ({}, NOTHING_SEEN, "does not see KVM"),
        ({"kvmclock": False}, KVM_SEEN, "kvmclock is still there"),
        ({"remove": ["kvm-pv-eoi"]}, KVM_SEEN, "kvm-pv-eoi is still there"),
        ({"add": ["kvm-mmu"]}, KVM_SEEN, "kvm-mmu is not there"),
        ({"add": ["kvm-pv-eoi"]}, KVM_SEEN, ""),
        ({"hyperv": True}, KVM_SEEN, "does not see Hyper-V"),
        ({"hyperv": True}, BOTH_SEEN, ""),
        ({"hyperv": True, "remove": ["kvm-pv-eoi"]}, BOTH_SEEN, "kvm-pv-eoi is still there"),
        ({"kvm": False, "hyperv": True}, BOTH_SEEN, "sees KVM still"),
        ({"remove": ["kvm-pv-eoi"]}, BOTH_SEEN, "the guest sees Hyper-V"),
    ],
)
def test_guest_with_other_enlightenments_is_noticed(
    asked: dict[str, Any], seen: dict[str, Any], words: str
) -> None:
    found = contradiction(Enlightenments.model_validate(asked), seen)
    assert words in found
    assert bool(words) == bool(found)


def test_features_have_qemus_names() -> None:
    assert kvm_features(0b1001) == ("kvmclock",)
    assert "kvm-steal-time" in kvm_features(1 << 5)
    assert set(kvm_features(0xFFFFFFFF)) <= set(KVM_FLAGS)


@pytest.mark.skipif(shutil.which(PROGRAM) is None, reason="there is no QEMU")
async def test_the_flags_are_flags_of_qemu() -> None:
    shown = await LocalHost().run([PROGRAM, "-device", "max-x86_64-cpu,help"])
    known = {word.partition("=")[0] for word in shown.stdout.decode().split()}
    # Younger than some QEMU that is in use; there it is refused in QEMU's words.
    assert {*KVM_FLAGS, *HYPERV_FLAGS} - known <= {"kvm-asyncpf-vmexit"}


@pytest.mark.skipif(shutil.which(PROGRAM) is None, reason="there is no QEMU")
async def test_flag_that_this_qemu_lacks_is_reported_in_its_words() -> None:
    options = QemuOptions(cpu="max,kvm-pv-nonsense=on")
    answer = await probe.taken(LocalHost(), trial(options))
    assert not answer.usable
    assert "kvm-pv-nonsense" in answer.words
    assert (await probe.taken(LocalHost(), trial(QemuOptions(cpu="max,kvm-pv-eoi=off")))).usable


# Where the emulator's threads run.


@pytest.mark.parametrize(
    ("chosen", "own", "cpus"),
    [
        ("any", (1,), ()),
        ("same", (1,), (1,)),
        ("same", (), ()),
        ("other", (1,), (0, 2)),
        ("other", (), ()),
        ((2, 0), (1,), (0, 2)),
        ((2,), (), (2,)),
    ],
)
def test_emulator_runs_on_the_chosen_cpus(
    chosen: str | tuple[int, ...], own: tuple[int, ...], cpus: tuple[int, ...]
) -> None:
    assert emulator_cpus(chosen, own, (0, 1, 2)) == cpus


@pytest.mark.parametrize(
    ("chosen", "words"), [("other", "all of the host's CPUs"), ((7,), "has no CPU 7")]
)
def test_cpus_that_are_not_there_are_a_fault(chosen: str | tuple[int, ...], words: str) -> None:
    with pytest.raises(MachineFault, match=words):
        emulator_cpus(chosen, (0, 1), (0, 1))


# Huge pages, and units.

POOL = "/sys/kernel/mm/hugepages/hugepages-2048kB"
MEMINFO = b"MemTotal: 8 kB\nHugepagesize:       2048 kB\n"


def host_with(**files: bytes) -> FakeHost:
    held = {"/proc/meminfo": MEMINFO, POOL: b"", f"{POOL}/free_hugepages": b"3\n"}
    listed = b"hugepages-2048kB\n"
    return FakeHost(lambda argv: Completed(0, listed, b""), {**held, **files})


async def test_huge_pages_must_be_there_in_the_size_that_is_asked_for() -> None:
    usual = kvm(hugepages=True)
    assert await lacking_pages(host_with(), usual, (6 * MIB,)) is None
    assert await lacking_pages(host_with(), kvm(), (8 << 30,)) is None
    lacking = await lacking_pages(host_with(), kvm(hugepages=True, hugepage_size=1 << 30))
    assert lacking == (
        "the host has no huge pages of 1 GiB",
        "it has pages of 2 MiB: name one as `hugepage-size`",
    )
    none = await lacking_pages(host_with(**{"/proc/meminfo": b"MemTotal: 8 kB"}), usual)
    assert none is not None


GIB = 1 << 30
GIANT = "/sys/kernel/mm/hugepages/hugepages-1048576kB"
NODE = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB"


@pytest.mark.parametrize(
    ("options", "memories", "pool", "counts", "wanted"),
    [
        # An 8 GiB machine on an empty host, and on one that has some pages already.
        ({}, (8 * GIB,), POOL, (0, 0, 0), 4096),
        ({}, (8 * GIB,), POOL, (100, 100, 0), 4096),
        # Others have some in use, and some are promised.
        ({}, (8 * GIB,), POOL, (512, 12, 0), 4596),
        ({}, (8 * GIB,), POOL, (4096, 4096, 1), 4097),
        # With neighbours, and with memory that is not a whole number of pages.
        ({}, (GIB, GIB, 256 * MIB), POOL, (0, 0, 0), 1152),
        ({}, (GIB + 1,), POOL, (0, 0, 0), 513),
        ({"hugepage_size": GIB}, (8 * GIB,), GIANT, (0, 0, 0), 8),
        ({"hugepage_size": GIB}, (8 * GIB,), GIANT, (3, 2, 0), 9),
        ({"numa_node": 1}, (8 * GIB,), NODE, (10, 10, 0), 4096),
    ],
)
async def test_the_hint_reserves_what_the_machines_lack(
    options: dict[str, Any],
    memories: tuple[int, ...],
    pool: str,
    counts: tuple[int, int, int],
    wanted: int,
) -> None:
    names = ("nr_hugepages", "free_hugepages", "resv_hugepages")
    files = {f"{pool}/{name}": b"%d\n" % count for name, count in zip(names, counts, strict=True)}
    host = host_with(**{GIANT: b""}, **files)
    lacking = await lacking_pages(host, kvm(hugepages=True, **options), memories)
    assert lacking is not None
    assert f"echo {wanted} > {pool}/nr_hugepages" in lacking[1]
    assert f"{counts[1] - counts[2]} are free" in lacking[0]
    # Done as it says, nothing is lacking any more.
    total, free, promised = counts
    after = {names[0]: wanted, names[1]: free + wanted - total, names[2]: promised}
    files = {f"{pool}/{name}": b"%d\n" % count for name, count in after.items()}
    host = host_with(**{GIANT: b""}, **files)
    assert await lacking_pages(host, kvm(hugepages=True, **options), memories) is None


async def test_host_with_too_little_memory_is_refused() -> None:
    meminfo = MEMINFO + b"MemAvailable:    1048576 kB\n"
    host = host_with(**{"/proc/meminfo": meminfo, f"{POOL}/free_hugepages": b"0"})
    lacking = await lacking_pages(host, kvm(hugepages=True), (8 << 30,))
    assert lacking is not None
    assert "8 GiB more" in lacking[1]
    assert "1 GiB available" in lacking[1]
    assert "echo" not in lacking[1]


async def test_memory_is_a_whole_number_of_pages() -> None:
    usual = kvm(hugepages=True)
    await require_whole_pages(host_with(), usual, Shape(1, 256 * MIB))
    await require_whole_pages(host_with(), kvm(), Shape(1, 1))
    with pytest.raises(InputError) as refused:
        await require_whole_pages(host_with(), usual, Shape(1, 255 * MIB))
    assert "256 MiB" in refused.value.hint


async def test_host_reports_its_own_units() -> None:
    here = await kernel_units(LocalHost())
    assert (here.ticks_per_s, here.page_bytes) == (100, 4096)
    vector = (17).to_bytes(8, "little") + (250).to_bytes(8, "little") + bytes(16) + b"torn"
    units = await kernel_units(
        FakeHost(lambda argv: Completed(0, b"", b""), {"/proc/self/auxv": vector})
    )
    assert (units.ticks_per_s, units.page_bytes) == (250, 4096)
    silent = await kernel_units(FakeHost(lambda argv: Completed(0, b"", b"")))
    assert silent.ticks_per_s == 100
