"""A server that keeps VMs as oVirt's engine does, and refuses what it refuses.

What is refused, in the engine's words (bundles/AppErrors.properties of ovirt-engine) and by the
HTTP status that its REST API gives them (the REST API guide, "Faults"), and where people met it:

======================================= ==========================================================
a wrong user or password                sso/oauth/token: ``access_denied``
                                        (oVirt/ovirt-ansible-collection issue 575)
an ended session                        401; the library asks for another token by itself
an unknown object                       404, "Entity not found"
a VM of a name that is taken            409, ACTION_TYPE_FAILED_VM_ALREADY_EXIST
a VM that runs already                  409, ACTION_TYPE_FAILED_VM_IS_RUNNING, at start and removal
a VM that is off                        409, ACTION_TYPE_FAILED_VM_IS_NOT_RUNNING, at stop
a VM or disk that is locked             409, ACTION_TYPE_FAILED_VM_IS_LOCKED, …_DISK_IS_LOCKED
                                        (oVirt/go-ovirt-client pull request 221,
                                        oVirt/terraform-provider-ovirt issue 37)
storage that is full                    409, ACTION_TYPE_FAILED_DISK_SPACE_LOW
pinned CPUs that the host has not       409, at start: the pinning is not compatible with the host;
                                        "Operation Failed", "[Cannot run VM. …]" as in
                                        myoung34/vagrant-ovirt4 issue 71
an account without a right              403; what it may not see is not in a list; its roles are at
                                        users/ID/permissions (docs.redhat.com, Red Hat
                                        Virtualization 4.0, rest_api_guide/services-users)
a QoS or CPU profile of a taken name    409, ACTION_TYPE_FAILED_QOS_NAME_EXIST,
                                        …_PROFILE_NAME_IN_USE
a CPU profile that a VM has             409, at removal (words recalled)
a network QoS with a missing value,     409, ACTION_TYPE_FAILED_NETWORK_QOS_… (words recalled)
beyond the engine's limits, or with a
peak below its average
a task that fails half-way              202 first, then the disk is gone: it is never there
======================================= ==========================================================
"""

from __future__ import annotations

import datetime
import json
import secrets
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, urlsplit

from platforms.loopback_server import Answer, Asked, LoopbackServer
from tare.platforms.vendors.configuration import configuration_image

API = "/ovirt-engine/api"
USER = "tare@internal"
STORAGE_S = 60.0
MOST_AVERAGE = 1024
"""Mbit/s, the default of ``MaxAverageNetworkQoSValue`` (engine-config)."""
XML = {"Content-Type": "application/xml"}
JSON = {"Content-Type": "application/json"}


class Fault(Exception):
    """A fault: its HTTP status and its words."""

    def __init__(self, status: int, *detail: str) -> None:
        super().__init__(*detail)
        self.status, self.detail = status, " ".join(detail)


def payload_image(label: str, name: str, content: str) -> bytes:
    """Return a payload's CD: as the host makes it (vdsm, mkimage.py) where its tool is here."""
    tool = shutil.which("genisoimage")
    if tool is None:
        return configuration_image(json.loads(content))
    with TemporaryDirectory() as folder:
        files, image = Path(folder) / "files", Path(folder) / "image"
        files.mkdir()
        (files / name).write_text(content)
        argv = [tool, "-quiet", "-R", "-J", "-o", str(image), "-V", label, str(files)]
        subprocess.run(argv, check=True, capture_output=True)
        return image.read_bytes()


class OvirtServer(LoopbackServer):
    """The engine of a cluster of one host.

    Args:
        folder: Where its certificate is made.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import ovirtsdk4
        from ovirtsdk4 import types

        self.sdk, self.types = ovirtsdk4, types
        self.plug: Callable[[Any, list[bytes]], None] = lambda *_: None
        self.unplug: Callable[[Any], None] = lambda _: None
        self.password = "ovirt-word-" + secrets.token_hex(8)
        self.tokens: set[str] = set()
        self.may_write = True
        self.full = False
        self.loses_limits = False
        self.copy_fails = False
        self.storage = threading.Event()
        """While it is not set, VMs and copies that are made stay locked."""
        self.storage.set()
        self.vms: dict[str, Any] = {}
        self.drives: dict[str, str] = {}
        self.cards: dict[str, list[Any]] = {}
        self.attached: dict[str, list[Any]] = {}
        self.snapshots: dict[str, list[Any]] = {}
        self.backups: dict[str, list[Any]] = {}
        cluster = types.Cluster(
            id="c1",
            name="Default",
            data_center=types.DataCenter(id="dc1"),
            ballooning_enabled=True,
            threads_as_cores=False,
            ksm=types.Ksm(enabled=True),
            ha_reservation=False,
            scheduling_policy=types.SchedulingPolicy(id="p1"),
        )
        host = types.Host(
            id="h1",
            name="node1",
            status=types.HostStatus.UP,
            cluster=types.Cluster(id="c1"),
            cpu=types.Cpu(name="A CPU", topology=types.CpuTopology(sockets=1, cores=8, threads=2)),
            version=types.Version(full_version="vdsm-4.50.5.1-1.el9"),
            libvirt_version=types.Version(full_version="libvirt-9.5.0-7.el9"),
            os=types.OperatingSystem(type="RHEL", version=types.Version(full_version="9 - 1.el9")),
            memory=64 << 30,
            max_scheduling_memory=60 << 30,
        )
        gigabytes = types.StorageDomain(id="s1", name="data")
        kinds = types.DiskContentType
        self.there: dict[str, list[Any]] = {
            "clusters": [cluster],
            "hosts": [host],
            "vnicprofiles": [types.VnicProfile(id="n1", name="ovirtmgmt")],
            "cpuprofiles": [types.CpuProfile(id="q1", name="half", cluster=types.Cluster(id="c1"))],
            "storagedomains": [gigabytes, types.StorageDomain(id="s2", name="fast")],
        }
        self.qualities: list[Any] = []
        self.networks: dict[str, Any] = {}
        self.providers: list[Any] = [
            types.OpenStackNetworkProvider(id="ovn1", name="ovirt-provider-ovn")
        ]
        self.attached_networks: set[str] = set()
        self.nodes: list[Any] = []
        self.booted = 1_800_000_000
        self.disks: dict[str, Any] = {}
        for disk, name, kind in (
            ("d1", "tare-live.iso", kinds.ISO),
            ("d2", "tare-live.raw", kinds.DATA),
        ):
            self.disks[disk] = types.Disk(
                id=disk,
                name=name,
                content_type=kind,
                status=types.DiskStatus.OK,
                storage_domains=[gigabytes],
            )
        self.given = set(self.disks)

    @property
    def left(self) -> list[str]:
        """What is there that was not there at first."""
        profiles = [each.name for each in self.there["cpuprofiles"] if each.id != "q1"]
        qualities = [each.name for each in self.qualities]
        return [*self.vms, *(set(self.disks) - self.given), *profiles, *qualities]

    def powered_off(self, vm: str) -> None:
        """Note that a guest has ended by itself."""
        if vm in self.vms:
            self.vms[vm].status = self.types.VmStatus.DOWN
            self.vms[vm].host = None

    def answer(self, asked: Asked) -> Answer:
        parts = urlsplit(asked.path)
        if parts.path == "/ovirt-engine/sso/oauth/token":
            return self._log_in(parse_qs(asked.body.decode()))
        if parts.path == "/ovirt-engine/services/sso-logout":
            self.tokens.discard(parse_qs(asked.body.decode())["token"][0])
            return Answer(200, b"{}", headers=dict(JSON))
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.tokens:
            return self._fault(Fault(401, "The session has ended"))
        way = parts.path.removeprefix(API).strip("/").split("/")
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        body = asked.body.decode()
        given = self.sdk.reader.Reader.read(body) if body.strip() else None
        try:
            with self.lock:
                if asked.method != "GET" and not self.may_write:
                    raise Fault(403, "User is not authorized to perform this action.")
                return self._do(asked.method, [step for step in way if step], query, given)
        except Fault as said:
            return self._fault(said)

    def _log_in(self, form: dict[str, list[str]]) -> Answer:
        if (form["username"], form["password"]) != ([USER], [self.password]):
            answer = {"error_code": "access_denied", "error": "Cannot authenticate user: no."}
            return Answer(400, json.dumps(answer).encode(), headers=dict(JSON))
        token = secrets.token_hex(16)
        self.tokens.add(token)
        return Answer(200, json.dumps({"access_token": token}).encode(), headers=dict(JSON))

    def _fault(self, failure: Fault) -> Answer:
        fault = self.types.Fault(reason="Operation Failed", detail=f"[{failure.detail}]")
        return Answer(failure.status, self._written(fault).encode(), headers=dict(XML))

    def _written(self, value: Any, root: str | None = None) -> str:
        return str(self.sdk.writer.Writer.write(value, root=root))

    def _answer(self, value: Any, root: str | None = None) -> Answer:
        return Answer(200, self._written(value, root).encode(), headers=dict(XML))

    def _do(self, method: str, way: list[str], query: dict[str, str], given: Any) -> Answer:
        match method, *way:
            case ("GET",):
                version = self.types.Version(full_version="4.5.4-1.el8")
                product = self.types.ProductInfo(name="oVirt Engine", version=version)
                user = self.types.User(id="u1")
                return self._answer(self.types.Api(product_info=product, authenticated_user=user))
            case "GET", "users", "u1", "permissions":
                role, cluster = self.types.Role(id="r1"), self.types.Cluster(id="c1")
                given = self.types.Permission(id="p1", role=role, cluster=cluster)
                return self._answer([given], "permissions")
            case "GET", "roles":
                return self._answer([self.types.Role(id="r1", name="TareMeasures")], "roles")
            case "GET", "schedulingpolicies", "p1":
                return self._answer(self.types.SchedulingPolicy(id="p1", name="none"))
            case "GET", "hosts", "h1", "numanodes":
                return self._answer(self.nodes, "host_numa_nodes")
            case "GET", "hosts", "h1", "statistics":
                return self._answer(list(self._figures()), "statistics")
            case "GET", ("vms" | "disks") as kind:
                there = (self.vms if kind == "vms" else self.disks).values()
                name = query.get("search", "").removeprefix("name=")
                found = [each for each in there if name in ("", each.name)]
                return self._answer(found, kind)
            case "GET", "openstacknetworkproviders":
                return self._answer(self.providers, "openstack_network_providers")
            case "GET", "networks":
                name = query.get("search", "").removeprefix("name=")
                found = [each for each in self.networks.values() if name in ("", each.name)]
                return self._answer(found, "networks")
            case "POST", "networks":
                return self._answer(self._add_network(given))
            case "POST", "clusters", "c1", "networks":
                self.attached_networks.add(self._known(self.networks, given.id).id)
                return self._answer(given)
            case "DELETE", "networks", network:
                name = self._known(self.networks, network).name
                profiles = self.there["vnicprofiles"]
                gone = {each.id for each in profiles if each.name == name}
                if any(c.vnic_profile.id in gone for vm in self.vms for c in self.cards[vm]):
                    raise Fault(409, "Cannot remove Network. The network is in use by a VM.")
                self.there["vnicprofiles"] = [p for p in profiles if p.id not in gone]
                del self.networks[network]
                return self._done()
            case "PUT", "vnicprofiles", profile:
                return self._answer(self._limit_profile(self._profile(profile), given.qos))
            case "GET", "vnicprofiles", profile:
                return self._answer(self._profile(profile))
            case "GET", "datacenters":
                return self._answer([self.types.DataCenter(id="dc1")], "data_centers")
            case "GET", kind if kind in self.there:
                roots = {
                    "vnicprofiles": "vnic_profiles",
                    "cpuprofiles": "cpu_profiles",
                    "storagedomains": "storage_domains",
                }
                return self._answer(self.there[kind], roots.get(kind, kind))
            case "GET", "datacenters", "dc1", "qoss":
                return self._answer(self.qualities, "qoss")
            case "POST", "datacenters", "dc1", "qoss":
                return self._answer(self._make_quality(given))
            case "DELETE", "datacenters", "dc1", "qoss", quality:
                self.qualities = [each for each in self.qualities if each.id != quality]
                return self._done()
            case "POST", "cpuprofiles":
                return self._answer(self._make_profile(given))
            case "DELETE", "cpuprofiles", profile:
                self._remove_profile(profile)
                return self._done()
            case "POST", "vms":
                return self._answer(self._make(given))
            case _, "vms", vm, *more:
                return self._vm(method, self._known(self.vms, vm), more, given)
            case "POST", "disks":
                return self._answer(self._empty(given))
            case "POST", "disks", disk, "copy":
                self._copy(self._known(self.disks, disk), given)
                return self._done()
            case "DELETE", "disks", disk:
                if self._known(self.disks, disk).status != self.types.DiskStatus.OK:
                    raise Fault(409, f"Cannot remove Virtual Disk: The disk {disk} is locked.")
                del self.disks[disk]
                return self._done()
        raise Fault(404, "Entity not found:", "/".join(way))

    def _add_network(self, network: Any) -> Any:
        if network.data_center.id != "dc1" or network.external_provider.id not in {
            each.id for each in self.providers
        }:
            raise Fault(404, "Entity not found: the data center or the provider")
        network.id = str(uuid.uuid4())
        self.networks[network.id] = network
        # The engine adds a profile of the network's name by itself.
        profile = self.types.VnicProfile(
            id=f"p-{network.id}", name=network.name, network=self.types.Network(id=network.id)
        )
        self.there["vnicprofiles"].append(profile)
        return network

    def _profile(self, profile: str) -> Any:
        return self._known({each.id: each for each in self.there["vnicprofiles"]}, profile)

    def _limit_profile(self, profile: Any, quality: Any) -> Any:
        """Give a vNIC profile a quality of service, unless it is lost half-way."""
        kinds = {each.id: each.type for each in self.qualities}
        if kinds.get(quality.id) != self.types.QosType.NETWORK:
            raise Fault(409, "Cannot edit VM network interface profile. Invalid QoS.")
        if not self.loses_limits:
            profile.qos = quality
        return profile

    def _figures(self) -> Iterator[Any]:
        figures = {"memory.total": 1 << 34, "boot.time": self.booted}
        for name, value in figures.items():
            datum = self.types.Value(datum=float(value))
            yield self.types.Statistic(name=name, values=[datum], type=self.types.ValueType.INTEGER)

    def _done(self) -> Answer:
        return self._answer(self.types.Action(status="complete"))

    def _known(self, there: dict[str, Any], key: str) -> Any:
        if key not in there:
            raise Fault(404, "Entity not found:", key)
        return there[key]

    def _make_quality(self, quality: Any) -> Any:
        self._require_values(quality)
        if any(each.name == quality.name for each in self.qualities):
            raise Fault(409, "Cannot add QoS. QoS name already exists.")
        quality.id = str(uuid.uuid4())
        self.qualities.append(quality)
        return quality

    def _require_values(self, quality: Any) -> None:
        """Refuse what the engine's validators refuse (CpuQosValidator, NetworkQosValidator)."""
        if quality.type == self.types.QosType.CPU:
            if not 1 <= quality.cpu_limit <= 100:
                raise Fault(409, "Cannot add QoS. Values are out of range.")
            return
        for direction in ("inbound", "outbound"):
            average, peak, burst = (
                getattr(quality, f"{direction}_{key}") for key in ("average", "peak", "burst")
            )
            if None in (average, peak, burst):
                raise Fault(409, "Cannot add Network QoS. Some values are missing.")
            if average > MOST_AVERAGE or peak > 2048 or burst > 10240:
                raise Fault(409, "Cannot add Network QoS. Values are out of range.")
            if peak < average:
                raise Fault(409, "Cannot add Network QoS. Peak is lower than average.")

    def _make_profile(self, profile: Any) -> Any:
        known = {each.id for each in self.qualities}
        if profile.cluster.id != "c1" or profile.qos.id not in known:
            raise Fault(404, "Entity not found: the cluster or the QoS")
        if any(each.name == profile.name for each in self.there["cpuprofiles"]):
            raise Fault(409, "Cannot add CPU Profile. The Profile name is already in use.")
        profile.id = str(uuid.uuid4())
        self.there["cpuprofiles"].append(profile)
        return profile

    def _remove_profile(self, profile: str) -> None:
        if any(vm.cpu_profile and vm.cpu_profile.id == profile for vm in self.vms.values()):
            raise Fault(409, "Cannot remove CPU Profile. It is in use by VMs.")
        there = self.there["cpuprofiles"]
        self.there["cpuprofiles"] = [each for each in there if each.id != profile]

    def _make(self, vm: Any) -> Any:
        states = self.types.VmStatus
        if any(each.name == vm.name for each in self.vms.values()):
            raise Fault(409, "Cannot add VM. VM with the same name already exists.")
        if vm.cluster.id != "c1" or vm.template.name != "Blank":
            raise Fault(404, "Entity not found: the cluster or the template")
        if vm.placement_policy.hosts[0].id != "h1":
            raise Fault(404, "Entity not found: the host")
        if vm.high_availability.enabled:
            raise Fault(409, "Cannot add VM. A highly available VM cannot be pinned to a Host")
        vm.id, vm.status = str(uuid.uuid4()), states.IMAGE_LOCKED
        vm.cpu_shares = vm.cpu_shares or 0
        self.vms[vm.id] = vm
        active = self.types.Snapshot(id="active", snapshot_type=self.types.SnapshotType.ACTIVE)
        self.snapshots[vm.id], self.backups[vm.id] = [active], []
        self.cards[vm.id], self.attached[vm.id] = [], []
        self._later(lambda: setattr(vm, "status", states.DOWN))
        return vm

    def _later(self, work: Callable[[], None]) -> None:
        def run() -> None:
            time.sleep(0.02)
            self.storage.wait(STORAGE_S)
            with self.lock:
                work()

        threading.Thread(target=run, daemon=True).start()

    def _vm(self, method: str, vm: Any, more: list[str], given: Any) -> Answer:
        down = self.types.VmStatus.DOWN
        match method, *more:
            case ("GET",):
                return self._answer(vm)
            case "GET", "snapshots":
                return self._answer(self.snapshots[vm.id], "snapshots")
            case "GET", "backups":
                return self._answer(self.backups[vm.id], "backups")
            case "GET", "cdroms":
                return self._answer([self.types.Cdrom(id="cd")], "cdroms")
            case "PUT", "cdroms", "cd":
                self.drives[vm.id] = self._known(self.disks, given.file.id).id
                return self._answer(given)
            case "POST", "nics":
                self.cards[vm.id].append(given)
                return self._answer(given)
            case "POST", "diskattachments":
                if self._known(self.disks, given.disk.id).status != self.types.DiskStatus.OK:
                    words = f"Cannot attach Virtual Disk: The disk {given.disk.id} is locked."
                    raise Fault(409, words)
                self.attached[vm.id].append(given)
                return self._answer(given)
            case "POST", "start":
                self._start(vm)
                return self._done()
            case "POST", "stop":
                if vm.status == down:
                    raise Fault(409, "Cannot stop VM. VM is not running.")
                self.unplug(vm.id)
                self.powered_off(vm.id)
                return self._done()
            case ("DELETE",):
                if vm.status == self.types.VmStatus.IMAGE_LOCKED:
                    raise Fault(409, "Cannot remove VM: VM is locked. Please try again.")
                if vm.status != down:
                    raise Fault(409, "Cannot remove VM. VM is running.")
                for attachment in self.attached.pop(vm.id):
                    self.disks.pop(attachment.disk.id, None)
                del self.vms[vm.id]
                return self._done()
        raise Fault(404, "Entity not found:", *more)

    def _start(self, vm: Any) -> None:
        if vm.status == self.types.VmStatus.IMAGE_LOCKED:
            raise Fault(409, "Cannot run VM: VM is locked. Please try again in a few minutes.")
        if vm.status != self.types.VmStatus.DOWN:
            raise Fault(409, "Cannot run VM. VM is running.")
        tune = vm.cpu.cpu_tune
        for pin in (tune.vcpu_pins if tune is not None else None) or ():
            if int(pin.cpu_set) >= 16:
                raise Fault(409, "Cannot run VM. The CPU pinning does not suit the host.")
        vm.status = self.types.VmStatus.UP
        vm.host = self.types.Host(id="h1")
        vm.start_time = datetime.datetime.now(datetime.UTC)
        images = [
            payload_image(payload.volume_id, payload.files[0].name, payload.files[0].content)
            for payload in vm.payloads
        ]
        self.plug(vm.id, images)

    def _empty(self, disk: Any) -> Any:
        domains = {each.id for each in self.there["storagedomains"]}
        if disk.storage_domains[0].id not in domains:
            raise Fault(404, "Entity not found: the storage domain")
        if disk.format == self.types.DiskFormat.RAW and disk.sparse is not False:
            words = "Cannot add Virtual Disk. Disk configuration (RAW Sparse) is incompatible with"
            raise Fault(409, f"{words} the storage domain type.")
        if self.full:
            raise Fault(409, "Cannot add Virtual Disk. Low disk space on the Storage Domain data.")
        disk.id, disk.status = str(uuid.uuid4()), self.types.DiskStatus.LOCKED
        self.disks[disk.id] = disk
        self._later(lambda: setattr(disk, "status", self.types.DiskStatus.OK))
        return disk

    def _copy(self, disk: Any, action: Any) -> None:
        types = self.types
        if self.full:
            raise Fault(409, "Cannot copy Virtual Disk. Low disk space on the Storage Domain data.")
        copy = types.Disk(
            id=str(uuid.uuid4()),
            name=action.disk.name,
            content_type=disk.content_type,
            status=types.DiskStatus.LOCKED,
            storage_domains=[types.StorageDomain(id=action.storage_domain.id)],
        )
        self.disks[copy.id] = copy

        def end() -> None:
            if self.copy_fails:
                del self.disks[copy.id]
            else:
                copy.status = types.DiskStatus.OK

        self._later(end)
