# ruff: noqa: E501 - descriptions as their tools write them
"""Sources other than libvirt, QEMU, Proxmox and OVF: xl.cfg, .vmx, Firecracker, KubeVirt, XenCenter."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from platforms.test_imported import OVF, imported, left
from tare.errors import InputError
from tare.platforms.imported.read import import_bytes

XL = """\
# A guest of ours.
name = "web1"
type = 'hvm'
memory = 2048
maxmem = 4096
vcpus = 2
cpus = ["2", "3"]
cpu_weight = 512
cap = 150
pool = "fast"
disk = [
    'phy:/dev/vg/web1,xvda,w',
    'format=raw, vdev=xvdc, access=r, devtype=cdrom, target=/srv/x.iso',
]
vif = ['mac=00:16:3e:00:00:01,bridge=xenbr0,rate=10Mb/s']
vnc = 1; vncpasswd = "geheim"
viridian = 1
kernel = "/boot/vmlinuz"
on_crash = 'destroy'
"""
VMX = """\
.encoding = "UTF-8"
config.version = "8"
virtualHW.version = "19"
displayName = "Web 1"
numvcpus = "4"
cpuid.coresPerSocket = "2"
memSize = "8192"
firmware = "efi"
scsi0.present = "TRUE"
scsi0.virtualDev = "pvscsi"
scsi0:0.present = "TRUE"
scsi0:0.fileName = "web1.vmdk"
scsi0:1.fileName = "data.vmdk"
sata0:0.deviceType = "cdrom-image"
sata0:0.fileName = "x.iso"
ethernet0.present = "TRUE"
ethernet0.virtualDev = "vmxnet3"
sched.cpu.min = "0"
sched.cpu.max = "2000"
sched.cpu.latencySensitivity = "high"
RemoteDisplay.vnc.password = "geheim"
guestinfo.userdata = "Z2VoZWlt"
"""
FIRECRACKER = {
    "boot-source": {"kernel_image_path": "vmlinux", "boot_args": "token=geheim"},
    "drives": [
        {"drive_id": "data", "path_on_host": "/d", "is_root_device": False, "is_read_only": True},
        {
            "drive_id": "root",
            "path_on_host": "/r.ext4",
            "is_root_device": True,
            "is_read_only": False,
            "cache_type": "Writeback",
            "io_engine": "Async",
            "rate_limiter": {"ops": {"size": 100, "refill_time": 1000}},
        },
    ],
    "machine-config": {"vcpu_count": 2, "mem_size_mib": 1024, "smt": True, "huge_pages": "2M"},
    "network-interfaces": [{"iface_id": "eth0", "host_dev_name": "tap0"}],
    "balloon": {"amount_mib": 100, "deflate_on_oom": True},
    "vsock": {"guest_cid": 3, "uds_path": "/v"},
}
KUBEVIRT = """\
apiVersion: v1
kind: List
items:
- apiVersion: kubevirt.io/v1
  kind: VirtualMachine
  metadata: {name: web1, namespace: shop}
  spec:
    runStrategy: Always
    dataVolumeTemplates:
    - metadata: {name: web1-root}
      spec: {storage: {resources: {requests: {storage: 30Gi}}}}
    template:
      spec:
        domain:
          cpu:
            cores: 4
            threads: 1
            model: host-passthrough
            dedicatedCpuPlacement: true
            isolateEmulatorThread: true
            features: [{name: pcid, policy: disable}]
          memory: {guest: 4Gi, hugepages: {pageSize: 2Mi}}
          machine: {type: pc-q35-rhel9.4.0}
          ioThreadsPolicy: auto
          features:
            hyperv: {relaxed: {}, spinlocks: {spinlocks: 8191}}
          devices:
            blockMultiQueue: true
            networkInterfaceMultiqueue: true
            disks:
            - {name: seed, disk: {bus: virtio}}
            - {name: root, disk: {bus: virtio}, cache: none, io: native, bootOrder: 1}
            interfaces: [{name: default, masquerade: {}}]
            gpus: [{name: g, deviceName: vendor/gpu}]
        evictionStrategy: LiveMigrate
        networks: [{name: default, pod: {}}]
        volumes:
        - {name: seed, cloudInitNoCloud: {userData: "password: geheim"}}
        - {name: root, dataVolume: {name: web1-root}}
"""


def test_a_guest_of_xens_is_an_arm_of_xen() -> None:
    arm = imported(XL)
    assert arm.name == "web1" and arm.pinned
    assert arm.settings == {
        "platform": "xen",
        "type": "hvm",
        "scheduling": {"weight": 200, "cap": 1.5},
        "cpupool": "fast",
        "shape": {"vcpus": 2, "memory": "2GiB"},
    }
    left(arm, "maxmem=4096", "vCPU 0 on CPUs 2: Tare chooses", "viridian=1", "vif rate=10Mb/s")
    left(arm, "a block device of the host", "what it boots")
    assert {"vncpasswd", "on_crash"} <= set(arm.aside)
    pv = imported("memory = 512\nvcpus = 1\nvif = ['']\ncpus = '0-3'\n")
    assert pv.settings["type"] == "pv" and not pv.pinned
    emulated = imported(
        "builder='hvm'\nmemory=512\nxen_platform_pci=0\nvif=['type=ioemu,model=rtl8139']\n"
    )
    assert (emulated.settings["devices"], emulated.settings["nic"]) == ("emulated", "rtl8139")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vif = ['a',\n'b'", "line 1: the list does not end"),
        ("vif = [\nmemory = 1", "line 2 has no value"),
        ("vif = ['']\nmemory = 512 MiB\n", "line 2: only one value for `memory`"),
        ("vif = ['']\nmemory = __import__('os')\n", "line 2: only one value"),
        ("vif = ['']\nmemory\n", "line 2 is not"),
        ("vif = ['']\n$x = 1\n", "line 2 is not"),
    ],
)
def test_a_wrong_line_of_a_xen_guest_is_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        imported(text)


def test_a_machine_of_vmwares_is_an_arm() -> None:
    arm = imported(VMX)
    assert arm.name == "web-1"
    assert arm.settings == {
        "platform": "qemu",
        "accelerator": "kvm",
        "nic": "vmxnet3",
        "devices": "paravirtual",
        "disk-bus": "virtio-scsi",
        "shape": {"vcpus": 4, "memory": "8GiB"},
    }
    left(arm, "UEFI", "pvscsi: virtio-scsi", "disk 2 on scsi", "coresPerSocket 2")
    left(arm, "sched.cpu.max=2000", "latency sensitivity high")
    assert "remotedisplay.vnc.password" in arm.aside
    with pytest.raises(InputError, match="line 2 is not"):
        imported('memsize = "512"\nnumvcpus = 2\n')


def test_a_microvm_of_firecrackers_is_an_arm() -> None:
    arm = imported(json.dumps(FIRECRACKER))
    assert arm.settings == {
        "platform": "qemu",
        "accelerator": "kvm",
        "machine": "microvm",
        "hugepages": True,
        "hugepage-size": 2 << 20,
        "vhost": "off",
        # Those of the root device, though it is not the first.
        "disk-cache": "writeback",
        "disk-aio": "io_uring",
        "devices": "paravirtual",
        "shape": {"vcpus": 2, "memory": "1GiB"},
    }
    left(arm, "Firecracker itself", "threads of a core", "drives.1.rate_limiter.ops.size=100")
    left(arm, "balloon.amount_mib=100: all of its memory", "disk 1 on virtio")
    small = imported('{"machine-config": {}}')
    assert small.settings["shape"] == {"vcpus": 1, "memory": "128MiB"}


def test_a_machine_of_kubevirts_is_an_arm() -> None:
    arm = imported(KUBEVIRT)
    assert arm.name == "web1" and arm.pinned
    assert arm.settings == {
        "platform": "qemu",
        "accelerator": "kvm",
        "machine": "q35",
        "enlightenments": arm.settings["enlightenments"],
        "cpu": "host,-pcid",
        "emulator-cpus": "other",
        "hugepages": True,
        "hugepage-size": 2 << 20,
        "nic-queues": 4,
        "disk-cache": "none",
        "disk-aio": "native",
        "disk-queues": 4,
        "iothread": True,
        "devices": "paravirtual",
        "shape": {"vcpus": 4, "memory": "4GiB", "disk": "30GiB"},
    }
    assert arm.settings["enlightenments"]["hyperv"] is True
    left(arm, "gpus.0.deviceName=vendor/gpu: Tare's machines", "pc-q35-rhel9.4.0")
    assert imported(json.dumps(yaml.safe_load(KUBEVIRT))).settings == arm.settings
    # An instance is the same, without the template around it.
    machine = yaml.safe_load(KUBEVIRT)["items"][0]
    instance = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "web1"},
        "spec": copy.deepcopy(machine["spec"]["template"]["spec"]),
    }
    alone = imported(yaml.safe_dump(instance))
    assert alone.settings["shape"] == {"vcpus": 4, "memory": "4GiB"}
    assert {**alone.settings, "shape": 0} == {**arm.settings, "shape": 0}


def test_kubevirt_real_time_and_i_o_threads_that_are_imported_differently_are_listed() -> None:
    machine = yaml.safe_load(KUBEVIRT)["items"][0]
    domain = machine["spec"]["template"]["spec"]["domain"]
    domain["cpu"]["realtime"] = {}
    assert imported(yaml.safe_dump(machine)).settings["scheduling"]["policy"] == "fifo"
    domain["cpu"]["realtime"] = {"mask": "0-1,^1"}
    domain["ioThreads"] = {"supplementalPoolThreadCount": 4}
    arm = imported(yaml.safe_dump(machine))
    left(arm, "domain.cpu.realtime.mask", "all vCPUs are scheduled in the same way")
    left(arm, "domain.ioThreads.supplementalPoolThreadCount=4", "one I/O thread")


@pytest.mark.parametrize(
    ("domain", "vcpus", "memory"),
    [
        ({"resources": {"requests": {"memory": "512Mi", "cpu": "500m"}}}, 1, "512MiB"),
        ({"resources": {"limits": {"cpu": "2500m"}}, "memory": {"guest": "1G"}}, 3, 10**9),
        (
            {"cpu": {"cores": 2, "sockets": 2, "threads": 2}, "memory": {"guest": "1.5Gi"}},
            8,
            3 << 29,
        ),
    ],
)
def test_the_machine_size_is_what_kubernetes_grants(
    domain: dict[str, Any], vcpus: int, memory: object
) -> None:
    spec = {"domain": {"devices": {}, **domain}}
    text = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "spec": spec}
    assert imported(json.dumps(text)).settings["shape"] == {"vcpus": vcpus, "memory": memory}


def test_an_instance_type_has_the_size_and_is_named() -> None:
    machine = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "spec": {"instancetype": {"name": "u1.medium"}, "template": {"spec": {"domain": {}}}},
    }
    arm = imported(json.dumps(machine))
    assert "shape" not in arm.settings
    left(arm, "instancetype.name=u1.medium: `kubectl get` it")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("apiVersion: v1\nkind: Pod\n", "has no VirtualMachine"),
        ("apiVersion: v1\nkind: [\n", "is not YAML"),
        ("apiVersion: &a v1\nkind: *a\n", "alias"),
        ('{"a": 1}', "is JSON, but not"),
        ('{"a": ', "line 1 is not JSON"),
    ],
)
def test_other_kubernetes_objects_are_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        imported(text)


def test_the_disks_of_xencenter_are_disks() -> None:
    text = OVF.replace("<rasd:ResourceType>17<", "<rasd:ResourceType>19<").replace(
        "<rasd:Parent>3</rasd:Parent>", "<rasd:Connection>device=0,bootable</rasd:Connection>"
    )
    assert imported(text).settings["shape"]["disk"] == "40GiB"
    system = "<System><VirtualSystemType>hvm-3.0-unknown</VirtualSystemType></System>"
    xen = text.replace("<VirtualHardwareSection>", f"<VirtualHardwareSection>{system}")
    assert (imported(xen).settings["devices"], imported(xen).settings.get("disk-bus")) == (
        "paravirtual",
        None,
    )


PASSED = "memory: 512\nscsihw: virtio-scsi-pci\n"


@pytest.mark.parametrize(
    ("volume", "form"),
    [
        ("/dev/disk/by-id/ata-WDC_WD40.EFRX-1", "block"),
        ("/dev/sdg", "block"),
        ("/mnt/file.raw", "raw"),
        ("/mnt/v1.2/plain", "raw"),
        ("local:101/vm-101-disk-0.qcow2", "qcow2"),
        ("local-lvm:vm-101-disk-0", "block"),
        ("zfs.fast:vm-101-disk-1", "block"),
        ("local:101/vm-101-v1.1", "block"),
    ],
)
def test_a_proxmox_disks_format_is_recognized(volume: str, form: str) -> None:
    arm = imported(f"{PASSED}scsi0: {volume},size=8G\n")
    assert arm.settings.get("disk-format", "raw") == form
    assert not any("disk format" in each for each in arm.left)


RICH = """<domain type='kvm'><name>rich</name><memory unit='GiB'>1</memory><vcpu>2</vcpu>
<resource><partition>/machine/prod</partition></resource>
<numatune><memory mode='interleave' nodeset='0-1'/></numatune>
<os><type machine='q35'>hvm</type></os>
<features><smm state='on'/><hyperv mode='custom'><relaxed state='on'/><vapic state='on'/></hyperv>
<kvm><hidden state='off'/><poll-control state='on'/></kvm></features>
<cpu mode='host-passthrough' migratable='off'/>
<devices><channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
<graphics type='spice' passwd='geheim'/><video><model type='qxl' vram='65536'/></video>
<controller type='usb' model='qemu-xhci'/><redirdev bus='usb' type='spicevmc'/></devices></domain>"""


def test_a_rich_domain_is_carried_over_or_listed_in_full() -> None:
    arm = imported(RICH)
    assert arm.settings["enlightenments"]["hyperv"] is True
    assert "kvm-poll-control" in arm.settings["enlightenments"]["add"]
    assert "cpu" not in arm.settings  # `host,migratable=off` is Tare's own
    listed = "\n".join(arm.left + arm.aside)
    for word in ("smm", "graphics", "video", "qxl", "type=usb", "redirdev", "guest_agent"):
        assert word in listed, word
    for word in ("/machine/prod", "memory mode=interleave 0-1"):
        assert word in listed, word
    assert "migratable" in "\n".join(arm.carried)


def test_vcpus_that_are_scheduled_alike_have_one_policy() -> None:
    tune = "".join(f"<vcpusched vcpus='{n}' scheduler='fifo' priority='5'/>" for n in range(2))
    text = f"<domain type='kvm'><vcpu>2</vcpu><cputune>{tune}</cputune></domain>"
    assert imported(text).settings["scheduling"] == {"policy": "fifo", "priority": 5}
    other = imported(
        text.replace("vcpus='1' scheduler='fifo' priority='5'", "vcpus='1' scheduler='batch'")
    )
    assert "scheduling" not in other.settings
    left(
        other,
        "vcpusched fifo 5 of the vCPUs 0: Tare supports one",
        "vcpusched batch of the vCPUs 1",
    )


SEVERAL = """<domain type='kvm'><vcpu>2</vcpu><iothreads>2</iothreads><devices><disk type='block'>
<driver name='qemu' type='raw' cache='none' io='native'><iothreads><iothread id='1'><queue id='0'/></iothread>
<iothread id='2'/></iothreads></driver><source dev='/dev/vg/x'/><target dev='vda' bus='virtio'/></disk>
</devices></domain>"""


def test_several_threads_of_a_domains_disk_are_listed() -> None:
    arm = imported(SEVERAL)
    assert (arm.settings["iothread"], arm.settings["disk-format"]) == (True, "block")
    left(arm, "2 I/O threads of the disk", "queue 0 of an I/O thread")


SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"memory: 512\ncipassword: $5${SECRET}\nsshkeys: ssh-rsa%20{SECRET}\nciuser: {SECRET}\n"
        f"cicustom: user=local:snippets/{SECRET}.yml\nargs: -vnc 0.0.0.0:1,password={SECRET}\n"
        f"smbios1: serial={SECRET}\ndescription: {SECRET}\nhookscript: local:{SECRET}\n"
        f"zebra-password: {SECRET}\n",
        XL.replace("geheim", SECRET) + f"spicepasswd='{SECRET}'\nextra='token={SECRET}'\n",
        VMX.replace("geheim", SECRET).replace("Z2VoZWlt", SECRET)
        + f'encryption.data = "{SECRET}"\nzebra.password = "{SECRET}"\n',
        json.dumps(FIRECRACKER).replace("geheim", SECRET),
        KUBEVIRT.replace("geheim", SECRET),
        RICH.replace("geheim", SECRET).replace(
            "<devices>",
            f"<metadata><x>{SECRET}</x></metadata><description>{SECRET}</description><devices>"
            f"<disk type='network'><auth username='{SECRET}'><secret type='ceph' uuid='{SECRET}'/></auth>"
            f"<source protocol='rbd' name='p'/><target dev='vda' bus='virtio'/></disk>",
        )
        + "",
        f"<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><vcpu>1</vcpu>"
        f"<sysinfo type='smbios'><oemStrings><entry>{SECRET}</entry></oemStrings></sysinfo>"
        f"<os><type>hvm</type><cmdline>token={SECRET}</cmdline></os><qemu:commandline>"
        f"<qemu:arg value='-fw_cfg'/><qemu:arg value='name=opt/x,string={SECRET}'/>"
        f"<qemu:env name='TOKEN' value='{SECRET}'/></qemu:commandline></domain>",
    ],
    ids=["proxmox", "xl", "vmx", "firecracker", "kubevirt", "libvirt", "libvirt-qemu"],
)
def test_no_secret_is_printed(text: str) -> None:
    arm = imported(text)
    assert SECRET not in arm.text() and SECRET not in "\n".join(arm.carried)


@pytest.mark.parametrize(
    "text",
    [
        f"memory: 512\n{SECRET}\n",
        f"vif = ['']\nmemory = 1\nvncpasswd = '{SECRET}\n",
        f'memsize = "1"\nRemoteDisplay.vnc.password = {SECRET}\n',
        f'{{"machine-config": {{"a": {SECRET}}}}}',
        f"apiVersion: v1\nkind: VirtualMachine\npassword: '{SECRET}\n",
        f"qemu-system-x86_64 -vnc :1,password='{SECRET}",
    ],
)
def test_no_secret_is_in_a_refusal(text: str) -> None:
    with pytest.raises(InputError) as refused:
        imported(text)
    assert SECRET not in str(refused.value)


PIECES = st.sampled_from(
    ["vif", "=", "[", "]", "(", ")", "'", '"', "'''", "#", "\n", ";", ",", "memory", "512", "+=",
     "0x1", "\\\n", "scsi0:0.", "present", '"TRUE"', "memsize", "ethernet0.virtualDev", "{", "}",
     ":", "drives", "machine-config", "apiVersion: ", "kind: VirtualMachine\n", "spec: ", "- ",
     "  ", "domain", "devices", "disks", "&a ", "*a", "<<: ", "!!python/object:os.system ", "é",
     "\0", "|", "9" * 30]
)  # fmt: skip


@pytest.mark.fuzz
@given(st.lists(PIECES, max_size=30).map("".join))
def test_any_text_of_the_new_sources_is_an_arm_or_refused(text: str) -> None:
    try:
        arm = import_bytes(text.encode(), "file")
    except InputError:
        return
    assert set(yaml.safe_load(arm.text())["arms"]) == {arm.name}


@pytest.mark.fuzz
@given(st.data())
def test_a_damaged_description_of_the_new_sources_is_an_arm_or_refused(data: st.DataObject) -> None:
    sources = [XL, VMX, json.dumps(FIRECRACKER), KUBEVIRT, RICH, SEVERAL]
    text = data.draw(st.sampled_from(sources))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    inserted = data.draw(st.text(max_size=8))
    try:
        arm = imported(text[:start] + inserted + text[end:])
    except (InputError, UnicodeEncodeError):
        return
    assert yaml.safe_load(arm.text())["arms"]
    assert all(each.isprintable() for each in (*arm.left, *arm.aside))


def test_aliases_cannot_make_much_of_a_short_text() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"b{n}: &b{n} [*{'a' if n == 0 else f'b{n - 1}'}, *{'a' if n == 0 else f'b{n - 1}'}]\n"
        for n in range(40)
    )
    with pytest.raises(InputError, match="alias"):
        imported(f"apiVersion: v1\nkind: VirtualMachine\n{bomb}")


@pytest.mark.parametrize(
    ("disk", "note"),
    [
        ("/dev/vg/guest-volume,raw,xvda,rw", "a block device of the host"),
        ("/srv/x.qcow2,qcow2,xvda,rw", "disk format qcow2"),
        ("phy:/dev/vg/x,xvda,w", "a block device of the host"),
        ("format=vhd, vdev=xvda, access=rw, target=/srv/x.vhd", "disk format vhd"),
        ("backendtype=phy, vdev=xvda, target=/srv/x", "disk backendtype=phy"),
    ],
)
def test_a_disk_of_a_xen_guest_is_read_in_both_notations(disk: str, note: str) -> None:
    arm = imported(f"vif = ['']\nmemory = 512\ndisk = ['{disk}']\n")
    left(arm, note)
    assert "disk xvda" in arm.carried and arm.has_disk
    assert not any("disk format /" in each for each in arm.left)


def test_a_memory_balloon_is_listed_unless_its_model_is_none() -> None:
    text = "<domain type='kvm'><vcpu>1</vcpu><devices><memballoon model='{}'/></devices></domain>"
    left(imported(text.format("virtio")), "memballoon model=virtio: all of its memory")
    assert not any("balloon" in each for each in imported(text.format("none")).left)


@pytest.mark.parametrize(
    "text",
    [
        "<domain type='kvm'>" + "".join(f"<z{n} a='{n}'/>" for n in range(20_000)) + "</domain>",
        "qemu-system-x86_64 " + " ".join(f"-z{n} {n}" for n in range(20_000)),
        "memory: 512\nboot: order=" + ";".join(f"scsi{n}" for n in range(5_000)) + "\n"
        + "".join(f"scsi{n}: local:1/d.raw,z=1\n" for n in range(5_000)),
        "vif = ['']\nmemory = 64\n" + "".join(f"z{n} = [1, [2, 3]]\n" for n in range(20_000)),
        'memsize = "512"\n' + "".join(f'scsi0:{n}.fileName = "x.vmdk"\n' for n in range(20_000)),
    ],
    ids=["libvirt", "qemu", "proxmox", "xl", "vmx"],
)  # fmt: skip
def test_a_long_description_takes_seconds(text: str) -> None:
    start = time.process_time()
    imported(text)
    assert time.process_time() - start < 20
