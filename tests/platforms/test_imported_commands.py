# ruff: noqa: E501 - command lines as their tools write them
"""QEMU's command lines as people have them: wrapped, printed by ps(1), written by other tools."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from platforms.test_imported import imported, left
from tare.errors import InputError

QEMU = "qemu-system-x86_64 -accel kvm -m 1G -smp 2"


def settings_of(text: str) -> dict[str, Any]:
    return dict(imported(text).settings)


@pytest.mark.parametrize(
    ("line", "accelerator"),
    [
        ("kvm -m 1G", "kvm"),
        ("/usr/bin/kvm -m 1G", "kvm"),
        ("/usr/libexec/qemu-kvm -m 1G", "kvm"),
        ("qemu-kvm -m 1G -accel tcg", "tcg"),
        ("qemu-kvm -m 1G -machine q35,accel=tcg", "tcg"),
        ("kvm -no-kvm -m 1G", "tcg"),
        ("qemu-system-x86_64 -m 1G", "tcg"),
        ("/opt/q/bin/.qemu-system-x86_64-wrapped -m 1G -enable-kvm", "kvm"),
        ("qemu-system-x86_64 -accel kvm -accel tcg -m 1G", "kvm"),
        ("qemu-system-x86_64 -accel tcg -accel kvm -m 1G", "tcg"),
        ("qemu-system-x86_64 -machine q35,accel=kvm:tcg -m 1G", "kvm"),
        ("qemu-system-x86_64 -machine q35,accel=hvf:tcg -m 1G", "tcg"),
        ("qemu-system-x86_64 -accel kvm:tcg -m 1G", "kvm"),
        ("qemu-system-x86_64 -accel hvf -m 1G", "kvm"),
    ],
)
def test_the_first_accelerator_that_works_is_taken(line: str, accelerator: str) -> None:
    assert settings_of(line)["accelerator"] == accelerator


def test_a_fallback_of_the_accelerator_is_listed() -> None:
    left(imported("qemu-system-x86_64 -accel kvm -accel tcg -m 1G"), "-accel tcg as a fallback")
    left(imported("qemu-system-x86_64 -accel hvf -accel tcg -m 1G"), "-accel hvf: tcg is taken")


DRIVE = "-drive id=d,file=/dev/vg/a,if=none,format=raw,cache=none,aio=native"
DEVICE = "-device virtio-blk-pci,drive=d,iothread=t,num-queues=3"


@pytest.mark.parametrize("words", [f"{DRIVE} {DEVICE}", f"{DEVICE} {DRIVE}"])
def test_a_device_may_come_before_what_holds_it(words: str) -> None:
    arm = settings_of(f"{QEMU} -object iothread,id=t {words}")
    assert (arm["disk-cache"], arm["disk-aio"], arm["disk-format"]) == ("none", "native", "block")
    assert (arm["disk-queues"], arm["iothread"]) == (3, True)


def test_several_threads_of_a_disk_are_one_and_the_others_are_listed() -> None:
    device = {
        "driver": "virtio-blk-pci",
        "drive": "d",
        "iothread-vq-mapping": [{"iothread": "a", "vqs": [0]}, {"iothread": "b"}],
    }
    arm = imported(f"{QEMU} {DRIVE} -device {shlex.quote(json.dumps(device))}")
    assert arm.settings["iothread"] is True
    left(arm, "2 I/O threads of the disk")


def test_a_chain_of_nodes_is_followed_to_what_holds_the_data() -> None:
    file = {"driver": "file", "filename": "/d.qcow2", "aio": "io_uring", "cache": {"direct": True}}
    nested = {
        "driver": "throttle",
        "throttle-group": "g",
        "node-name": "d",
        "file": {"driver": "qcow2", "cache": {"direct": True}, "file": file},
    }
    arm = settings_of(f"{QEMU} -blockdev {shlex.quote(json.dumps(nested))} -device scsi-hd,drive=d")
    assert (arm["disk-cache"], arm["disk-aio"], arm["disk-format"]) == ("none", "io_uring", "qcow2")
    # The same, each node by itself and by its name, the outermost first.
    lone = {**nested, "file": "f"}
    form = {**nested["file"], "node-name": "f", "file": "s"}  # type: ignore[dict-item]
    words = [json.dumps(each) for each in (lone, form, {**file, "node-name": "s"})]
    split = " ".join(f"-blockdev {shlex.quote(word)}" for word in words)
    assert settings_of(f"{QEMU} {split} -device scsi-hd,drive=d") == arm
    dots = (
        "driver=qcow2,node-name=d,cache.direct=on,file.driver=host_device,file.filename=/dev/x,"
        "file.aio=native"
    )
    arm = settings_of(f"{QEMU} -blockdev {dots} -device virtio-blk-pci,drive=d")
    assert (arm["disk-format"], arm["disk-aio"], arm["disk-cache"]) == ("block", "native", "none")


@pytest.mark.parametrize("form", ["json", "dots"])
def test_a_node_that_passes_requests_on_is_listed(form: str) -> None:
    file = {"driver": "copy-on-read", "file": {"driver": "file", "filename": "/d"}}
    nested = {"driver": "throttle", "throttle-group": "g", "node-name": "d", "file": file}
    dots = (
        "driver=throttle,throttle-group=g,node-name=d,file.driver=copy-on-read,"
        "file.file.driver=file,file.file.filename=/d"
    )
    word = shlex.quote(json.dumps(nested)) if form == "json" else dots
    arm = imported(f"{QEMU} -blockdev {word} -device virtio-blk-pci,drive=d")
    assert "disk throttle-group=g" in arm.aside
    left(arm, "disk driver=copy-on-read")


@pytest.mark.parametrize(
    ("wrapper", "options", "note"),
    [
        ("taskset -c 2-3", {"emulator-cpus": [2, 3]}, "vCPUs on CPUs 2-3"),
        ("/usr/bin/taskset --cpu-list --all-tasks 4,6", {"emulator-cpus": [4, 6]}, "CPUs 4,6"),
        ("taskset 0xc", {"emulator-cpus": [2, 3]}, "vCPUs on CPUs 2,3"),
        ("taskset -ac 1", {"emulator-cpus": [1]}, "vCPUs on CPUs 1"),
        ("chrt -f 50", {"scheduling": {"policy": "fifo", "priority": 50}}, None),
        ("chrt --fifo 99", {"scheduling": {"policy": "fifo", "priority": 98}}, "priority 99"),
        ("chrt -b 0", {"scheduling": {"policy": "batch"}}, None),
        ("chrt -r 10", {}, "chrt -r 10: Tare supports"),
        ("nice -n -5", {"scheduling": {"nice": -5}}, None),
        ("nice --adjustment=7", {"scheduling": {"nice": 7}}, None),
        ("nice -12", {"scheduling": {"nice": 12}}, None),
        ("nice", {"scheduling": {"nice": 10}}, None),
        ("nice -n-3 taskset -c 0", {"scheduling": {"nice": -3}, "emulator-cpus": [0]}, None),
        ("systemd-run -pCPUQuota=50% -q --scope --", {"scheduling": {"cap": 0.5}}, None),
        ("numactl -m0 -C1", {"numa-node": 0, "emulator-cpus": [1]}, None),
        ("cpulimit -l 50 --", {}, "before QEMU: cpulimit"),
        ("numactl --membind=1 --cpunodebind=1", {"numa-node": 1}, "numactl --cpunodebind 1"),
        ("numactl -m 0 -C 2,3", {"numa-node": 0, "emulator-cpus": [2, 3]}, "vCPUs on CPUs 2,3"),
        ("numactl --interleave=all", {}, "numactl --interleave all"),
        ("ionice -c 2 -n 0", {}, "ionice -c 2"),
        ("prlimit --memlock=unlimited", {}, "started by prlimit --memlock"),
        (
            "systemd-run --scope -p CPUQuota=150% -p CPUWeight=200 -p MemoryMax=1G",
            {"scheduling": {"cap": 1.5, "weight": 200}},
            "systemd-run MemoryMax",
        ),
        (
            "sudo -g kvm systemd-run --slice=vm.slice --property=AllowedCPUs=1,2 taskset -c 1",
            {"emulator-cpus": [1]},
            "vCPUs on CPUs 1,2",
        ),
    ],
)
def test_wrappers_that_start_qemu_are_imported_or_listed(
    wrapper: str, options: dict[str, Any], note: str | None
) -> None:
    arm = imported(f"{wrapper} {QEMU}")
    plain = settings_of(QEMU)
    assert {name: held for name, held in arm.settings.items() if plain.get(name) != held} == options
    if note:
        left(arm, note)


def test_memory_of_several_nodes_is_not_that_of_the_last() -> None:
    nodes = "-object memory-backend-ram,id=a{},size=1G,host-nodes={},policy=bind "
    arm = imported(f"{QEMU} {nodes.format(0, 0)}{nodes.format(1, 1)}")
    assert "numa-node" not in arm.settings
    left(arm, "memory of the NUMA nodes 0, 1")
    both = f"{QEMU} -object memory-backend-ram,id=a,size=1G,host-nodes=0,host-nodes=1,policy=bind"
    assert "numa-node" not in settings_of(both)
    assert settings_of(f"{QEMU} {nodes.format(0, 1)}{nodes.format(1, 1)}")["numa-node"] == 1
    of_proxmox = "memory: 512\nnuma: 1\nnuma0: cpus=0,hostnodes={},memory=512,policy=bind\n"
    assert settings_of(of_proxmox.format(1))["numa-node"] == 1
    assert "numa-node" not in settings_of(of_proxmox.format("0-1"))
    left(imported(of_proxmox.replace("bind", "preferred").format(1)), "numa0 hostnodes=1: ")


def test_a_machine_that_is_too_small_for_linux_is_one_still() -> None:
    arm = imported("qemu-system-x86_64 -m 16")
    assert arm.settings["shape"] == {"vcpus": 1}
    left(arm, "memory of 16 MiB: Tare's have at least 32 MiB")


def test_the_environment_is_named_without_its_values() -> None:
    arm = imported(f"sudo env TOKEN=s3cret-value LC_ALL=C {QEMU}")
    assert "s3cret-value" not in arm.text() and "environment TOKEN" in arm.text()


@pytest.mark.parametrize(
    ("words", "memory", "note"),
    [
        ("-m 8g", "8GiB", None),
        ("-m 8G", "8GiB", None),
        ("-m 8192", "8GiB", None),
        ("-m size=8g,slots=4,maxmem=32g", "8GiB", "-m maxmem=32g: memory is not added"),
        ("-m 1.5G", "1536MiB", None),
        ("-m 0x200", "512MiB", None),
        ("-m 524288k", "512MiB", None),
        ("-m 512MB", "512MiB", None),
        (
            "-m size=512M -object memory-backend-ram,id=a,size=256M -device pc-dimm,memdev=a",
            "768MiB",
            None,
        ),
        (
            "-object memory-backend-ram,id=a,size=256M -device pc-dimm,memdev=a -m 512",
            "768MiB",
            None,
        ),
        ("-machine q35,memory-backend=a -object memory-backend-ram,id=a,size=2G", "2GiB", None),
        ("-m 512 -device pc-dimm,id=x,memdev=none", "512MiB", "-device pc-dimm x: its size"),
    ],
)
def test_memory_is_read_as_qemu_reads_it(words: str, memory: str, note: str | None) -> None:
    arm = imported(f"qemu-system-x86_64 -enable-kvm {words}")
    size = arm.settings["shape"]["memory"]
    assert size == memory or (memory == "1536MiB" and size == 1536 << 20)
    if note:
        left(arm, note)


@pytest.mark.parametrize(
    ("words", "vcpus", "note"),
    [
        ("-smp 4", 4, None),
        ("-smp cpus=4,maxcpus=8", 4, "vCPUs that may be added, up to 8"),
        ("-smp maxcpus=8", 8, None),
        ("-smp 2,maxcpus=8,sockets=2,dies=2,cores=2", 2, "-smp dies=2"),
        ("-smp sockets=2,dies=2,clusters=1,cores=2,threads=2", 16, "threads of a core"),
        ("-smp cores=3", 3, None),
        ("-smp 4,sockets=2,clusters=2,cores=1", 4, "-smp clusters=2"),
        ("-device kvm64-x86_64-cpu,id=c1 -smp 1,maxcpus=4", 2, None),
        ("-smp 1,maxcpus=4 -device kvm64-x86_64-cpu,id=c1 -device kvm64-x86_64-cpu,id=c2", 3, None),
    ],
)
def test_vcpus_are_counted_as_qemu_counts_them(words: str, vcpus: int, note: str | None) -> None:
    arm = imported(f"qemu-system-x86_64 -enable-kvm -m 1G {words}")
    assert arm.settings["shape"]["vcpus"] == vcpus
    if note:
        left(arm, note)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("-object memory-backend-file,id=m,mem-path=/dev/shm,size=1G,share=on", {}),
        ("-mem-path /dev/shm", {}),
        (
            "-object memory-backend-file,id=m,mem-path=/dev/hugepages,size=1G,prealloc=on",
            {"hugepages": True},
        ),
        (
            "-object memory-backend-file,id=m,mem-path=/run/hugepages/kvm/1048576kB,size=1G",
            {"hugepages": True, "hugepage-size": 1 << 30},
        ),
        ("-mem-path /dev/hugepages1G -mem-prealloc", {"hugepages": True, "hugepage-size": 1 << 30}),
        (
            "-object memory-backend-memfd,id=m,hugetlb=on,hugetlbsize=2M,size=1G",
            {"hugepages": True, "hugepage-size": 2 << 20},
        ),
        ("-object memory-backend-memfd,id=m,share=on,prealloc=on,size=1G", {"prealloc": True}),
    ],
)
def test_only_huge_pages_are_huge_pages(words: str, options: dict[str, Any]) -> None:
    arm = imported(f"{QEMU} {words}")
    names = ("hugepages", "hugepage-size", "prealloc")
    assert {name: arm.settings[name] for name in names if name in arm.settings} == options
    if not options:
        left(arm, "/dev/shm")


def test_command_lines_printed_by_ps_are_read() -> None:
    blockdev = '{"driver":"qcow2","node-name":"d","file":{"driver":"file","filename":"/a b.qcow2"}}'
    words = f'/usr/bin/qemu-system-x86_64 -name guest=web,debug-threads=on -accel kvm -m 2G -smp 2 -blockdev {blockdev} -device {{"driver":"virtio-blk-pci","drive":"d"}}'
    plain = imported(words)
    assert (plain.name, plain.settings["disk-format"]) == ("web", "qcow2")
    full = (
        "UID          PID    PPID  C STIME TTY          TIME CMD\n"
        "root           1       0  0 Nov20 ?        00:00:09 /sbin/init\n"
        f"libvirt+    4242       1 99 10:02 ?        01:22:11 {words}\n"
        f"libvirt+    4243       1 99 10:02 ?        01:22:11 {words.replace('=web', '=other')}\n"
    )
    arm = imported(full)
    assert (arm.name, arm.settings) == ("web", plain.settings)
    left(arm, "1 further command lines of QEMU")
    left(arm, "1 further lines of the text")  # of init
    assert imported(f" 4242 pts/0    Sl     9:59 {words}").settings == plain.settings
    assert imported(f"4242 {words}").settings == plain.settings
    # One word a line, as `tr` makes it of /proc/PID/cmdline.
    assert (
        imported(
            "\n".join(
                [
                    *words.split(" {")[0].split(),
                    "{" + words.split(" {", 1)[1].split("} -device")[0] + "}",
                    "-S",
                ]
            )
        ).name
        == "web"
    )
    aux = f"root 4242 12.5 3.4 900000 80000 ? Sl 10:02 1:22 {words}"
    assert imported(aux).settings == plain.settings
    # What ps(1) shortened is refused in one sentence.
    with pytest.raises(InputError, match="JSON cannot be read"):
        imported(f"4242 {words[: words.index('filename')]}")


def test_libvirts_log_is_read_and_its_last_start_counts() -> None:
    start = (
        "2026-11-20 10:00:00.000+0000: starting up libvirt version: 9.0.0, qemu version: 7.2\n"
        "LC_ALL=C \\\nPATH=/usr/bin \\\n/usr/bin/qemu-system-x86_64 \\\n-name guest=a \\\n-m {} \\\n"
        "-accel kvm\nchar device redirected to /dev/pts/1 (label charserial0)\n"
    )
    arm = imported(start.format(1024) + start.format(2048))
    assert (arm.name, arm.settings["shape"]["memory"]) == ("a", "2GiB")
    left(arm, "further lines of the text")


def test_redirections_are_the_shells() -> None:
    arm = imported(f"{QEMU} -cpu max > /tmp/log 2>&1 &")
    assert not any("log" in each or "&" in each for each in arm.left)


SECRET = "hunter2-Tr0ub4dor"


@pytest.mark.parametrize(
    "words",
    [
        f"-vnc 127.0.0.1:1,password={SECRET}",
        f"-spice port=1,password={SECRET}",
        f"-object secret,id=s,data={SECRET}",
        f'-object \'{{"qom-type":"secret","id":"s","data":"{SECRET}"}}\'',
        f"-append console=ttyS0,token={SECRET}",
        f"-smbios type=11,value=io.systemd.credential:x={SECRET}",
        f"-fw_cfg name=opt/x,string={SECRET}",
        f"-iscsi user=u,password={SECRET}",
        f"-drive file=x,if=virtio,format=raw,password-secret={SECRET}",
        f"-chardev socket,id=c,key={SECRET}",
        f"-global driver.secret={SECRET}",
        f"-device ivshmem,token={SECRET}",
        f"-netdev user,id=n,password={SECRET} -device virtio-net-pci,netdev=n",
        f"passwd={SECRET} quiet",
        f"-zebra password={SECRET}",
    ],
)
def test_no_secret_of_a_command_line_is_printed(words: str) -> None:
    arm = imported(f"env PASSWORD={SECRET} {QEMU} {words}")
    assert SECRET not in arm.text() and SECRET not in "".join(arm.carried)


# Proxmox: a configuration, and the command line that Proxmox makes of it.

CONFIGURATION = """\
boot: order=scsi1;net0
cores: 2
cpu: {cpu}
memory: 4096
name: mail
net0: virtio=AA:BB:CC:DD:EE:FF,bridge=vmbr0,queues=2
ostype: {ostype}
scsi0: local:101/vm-101-disk-0.raw,size=4G,cache=writeback
scsi1: local:101/vm-101-disk-1.qcow2,cache={cache},iothread=1,size=32G
scsihw: virtio-scsi-single
sockets: 2
vmgenid: 1
"""


def command_of(cpu: str, cache: str) -> str:
    """Return a command line as Proxmox makes it for CONFIGURATION, with a disk behind throttles."""
    direct = cache in ("none", "directsync")
    flags = {"direct": direct, "no-flush": cache == "unsafe"}
    file = {"aio": "io_uring", "cache": flags, "driver": "file", "filename": "/v/d.qcow2"}
    node = {"cache": flags, "driver": "qcow2", "file": file, "node-name": "f"}
    outer = {"driver": "throttle", "file": node, "node-name": "drive-scsi1", "throttle-group": "t"}
    first = {
        "driver": "raw",
        "file": {"driver": "file", "filename": "/v/o.raw"},
        "node-name": "drive-scsi0",
    }
    written = "off" if cache in ("writethrough", "directsync") else "on"
    return " ".join(
        [
            "/usr/bin/kvm -id 101 -name mail,debug-threads=on -no-shutdown -daemonize",
            "-smp 4,sockets=2,cores=2,maxcpus=4 -nodefaults",
            f"-vnc unix:/run/101.vnc,password=on -cpu {cpu} -m 4096",
            "-object iothread,id=iothread-virtioscsi1",
            f"-blockdev {shlex.quote(json.dumps(first))} -device virtio-scsi-pci,id=virtioscsi0",
            "-device scsi-hd,bus=virtioscsi0.0,drive=drive-scsi0,id=scsi0",
            "-device virtio-scsi-pci,id=virtioscsi1,iothread=iothread-virtioscsi1",
            f"-blockdev {shlex.quote(json.dumps(outer))}",
            f"-device scsi-hd,bus=virtioscsi1.0,drive=drive-scsi1,bootindex=100,write-cache={written}",
            "-netdev type=tap,id=net0,ifname=tap101i0,vhost=on,queues=2",
            "-device virtio-net-pci,mac=AA:BB:CC:DD:EE:FF,netdev=net0,bus=pci.0,vectors=6,mq=on",
            "-machine hpet=off,type=pc+pve0",
        ]
    )


PLAIN = "+kvm_pv_eoi,+kvm_pv_unhalt"
WINDOWS = "hv_ipi,hv_relaxed,hv_reset,hv_runtime,hv_spinlocks=0x1fff,hv_stimer,hv_synic,hv_time,hv_vapic,hv_vpindex"


@pytest.mark.parametrize("cache", ["none", "writeback", "writethrough", "directsync", "unsafe"])
@pytest.mark.parametrize(
    ("cpu", "ostype", "words"),
    [
        ("kvm64", "l26", f"kvm64,enforce,{PLAIN},+lahf_lm,+sep"),
        ("host", "l26", f"host,{PLAIN}"),
        ("host,hidden=1", "l26", f"host,kvm=off,{PLAIN}"),
        ("host", "win10", f"host,{WINDOWS},{PLAIN}"),
        ("host,flags=-pcid;+pdpe1gb", "l26", f"host,{PLAIN},-pcid,+pdpe1gb"),
        ("kvm64", "solaris", f"kvm64,enforce,{PLAIN},+lahf_lm,+sep,-x2apic"),
        ("EPYC", "l26", f"EPYC,enforce,{PLAIN},vendor=AuthenticAMD"),
        ("Icelake-Client", "l26", f"Icelake-Server,enforce,{PLAIN},vendor=GenuineIntel"),
        (
            "x86-64-v2-AES",
            "l26",
            f"qemu64,+aes,enforce,{PLAIN},+pni,+popcnt,+sse4.1,+sse4.2,+ssse3",
        ),
    ],
)
def test_a_configuration_and_its_command_line_give_the_same_arm(
    cpu: str, ostype: str, words: str, cache: str
) -> None:
    configured = imported(CONFIGURATION.format(cpu=cpu, ostype=ostype, cache=cache))
    started = imported(command_of(words, cache))
    of_configuration, of_command = dict(configured.settings), dict(started.settings)
    # Only the configuration knows the disk's size.
    assert of_configuration["shape"].pop("disk") == "32GiB"
    assert of_configuration == of_command
    assert configured.name == started.name


def test_memory_that_proxmox_plugs_in_is_counted() -> None:
    objects = " ".join(
        f"-object memory-backend-ram,id=mem-dimm{n},size=512M -device pc-dimm,id=dimm{n},memdev=mem-dimm{n}"
        for n in range(6)
    )
    started = imported(f"kvm -name a -m size=1024,slots=255,maxmem=524288M {objects}")
    configured = imported("name: a\nmemory: 4096\nhotplug: memory\nnuma: 1\n")
    assert started.settings["shape"]["memory"] == configured.settings["shape"]["memory"] == "4GiB"
