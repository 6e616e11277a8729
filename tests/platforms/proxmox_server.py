"""A server that keeps VMs as Proxmox VE does, and refuses what it refuses.

What is refused, and the source of Proxmox that says so (git.proxmox.com):

=============================================== ===============================================
no ticket, an old one, a wrong secret: 401      pve-access-control, PVE/API2/AccessControl.pm;
                                                tickets last two hours (wiki/Proxmox_VE_API)
a write without the CSRF token: 401             pve-common, PVE/Ticket.pm
a right that is missing: 403                    pve-common, PVE/Exception.pm raise_perm_exc
a list without the right to see: 200 and empty  qemu-server, PVE/API2/Qemu.pm vmlist;
                                                pve-storage, PVE/API2/Storage/Status.pm index
`affinity`, `args` of others than root@pam      PVE/API2/Qemu.pm check_vm_modify_config_perm
out of range, unknown parameter: 400            pve-common, PVE/JSONSchema.pm
an unknown VM or storage                        PVE/QemuConfig.pm, PVE/Storage.pm
a number that is taken                          PVE/API2/Qemu.pm create_vm; cluster/nextid: 400
to start what runs: the task fails              PVE/QemuServer.pm vm_start_nolock
to remove what runs                             PVE/API2/Qemu.pm destroy_vm
what is locked: the task fails                  PVE/QemuServer.pm check_lock
a new disk in a storage without `images`        PVE/API2/Qemu.pm check_storage_access
an upload that is not .iso or .img             PVE/API2/Storage/Status.pm upload
a storage that does not take such content       the same
=============================================== ===============================================
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from platforms.loopback_server import Answer, Asked, LoopbackServer
from platforms.proxmox_schema import (
    DRIVE,
    NEW,
    RIGHTS,
    ROOT,
    ApiFault,
    check_settings,
    parts_of,
    wrong,
)

NODE = "pve"


def _sdn_name(kind: str, given: dict[str, Any]) -> str:
    """Return the name of a zone or a VNet (PVE/Network/SDN/Zones/Plugin.pm, Vnets/Plugin.pm)."""
    name = str(given[kind])
    if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9]*[a-zA-Z0-9]", name) or len(name) > 8:
        raise wrong(**{kind: f"invalid format - {kind} ID '{name}' contains illegal characters"})
    return name


class Proxmox(LoopbackServer):
    """The server of one node.

    Args:
        folder: Where its certificate is made.
        plug: Called with a VM's number and the images attached, when it is started.
        unplug: Called with the number when it is stopped at once.
    """

    def __init__(
        self,
        folder: Path,
        plug: Callable[[int, list[bytes]], None] = lambda *_: None,
        unplug: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__(folder)
        self.passwords = {ROOT: "root-word-" + secrets.token_hex(8)}
        self.tokens = {"tare@pve!runs": "token-word-" + secrets.token_hex(8)}
        self.rights: dict[str, dict[str, set[str]]] = {"tare@pve!runs": {}}
        self.tickets: dict[str, tuple[str, str]] = {}
        self.storages: dict[str, dict[str, Any]] = {
            "local": {"content": "iso,import", "volumes": {"local:iso/tare-live.iso": b"live"}},
            "fast": {"content": "images", "volumes": {}},
        }
        self.vms: dict[int, dict[str, Any]] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        self.points: list[dict[str, float]] = []
        self.fails: dict[str, str] = {}
        """What a task of a type dies with, half-way, once."""
        self.takes: dict[str, float] = {}
        """How long a task of a type waits before it does its work, in seconds."""
        self.zones: dict[str, dict[str, Any]] = {}
        self.vnets: dict[str, dict[str, Any]] = {}
        self.applied: list[frozenset[str]] = []
        """The VNets of each time that the network was applied."""
        self.cpus = 64
        self.sockets, self.threads = 1, 2
        self.memory = {"total": 64 << 30, "used": 4 << 30}
        self.state = "online"
        self.booted: float | None = time.time() - 5000
        self.plug, self.unplug = plug, unplug

    def expire(self) -> None:
        """End every ticket."""
        self.tickets.clear()

    def powered_off(self, number: int) -> None:
        """Note that a guest has ended by itself."""
        if number in self.vms:
            self.vms[number] |= {"status": "stopped", "pid": None}

    def disturb(self, number: int, kind: str) -> None:
        """Do something to a VM as somebody else would."""
        self._task(kind, str(number), "root@pam", lambda: None)

    def answer(self, asked: Asked) -> Answer:
        parts = urlsplit(asked.path)
        words = [unquote(word) for word in parts.path.removeprefix("/api2/json/").split("/")]
        given: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
        kind = asked.headers.get("content-type", "")
        if kind.startswith("multipart/"):
            given |= parts_of(kind, asked.body)
        elif asked.body:
            given |= dict(parse_qsl(asked.body.decode(), keep_blank_values=True))
        try:
            with self.lock:
                data = self._route(asked, words, given)
        except ApiFault as said:
            body = {"data": None, **({"errors": said.errors} if said.errors else {})}
            return Answer(said.status, json.dumps(body).encode(), said.words.replace("\n", " "))
        headers = {"Content-Type": "application/json;charset=UTF-8"}
        return Answer(200, json.dumps({"data": data}).encode(), headers=headers)

    def _route(self, asked: Asked, words: list[str], given: dict[str, Any]) -> Any:
        if words == ["access", "ticket"]:
            return self._log_in(given)
        who = self._who(asked)
        match asked.method, words:
            case "GET", ["version"]:
                return {"version": "8.4.1", "release": "8.4", "repoid": "2a5fa54a8503f96d"}
            case "GET", ["nodes"]:
                return [{"node": NODE, "status": self.state}]
            case "GET", ["cluster", "nextid"]:
                return str(next(n for n in range(100, 10**9) if n not in self.vms))
            case "GET", ["access", "permissions"]:
                path = given["path"]
                return {path: dict.fromkeys(sorted(self._rights_of(who, path)), 1)}
            case method, ["cluster", "sdn", *rest]:
                return self._sdn(method, rest, given, who)
            case method, ["nodes", node, *rest]:
                if node != NODE:
                    raise ApiFault(
                        500, f"hostname lookup '{node}' failed - failed to get address info"
                    )
                return self._node(method, rest, given, who)
        raise ApiFault(501, f"Method '{asked.method} /{'/'.join(words)}' not implemented")

    def _log_in(self, given: dict[str, Any]) -> Any:
        user, word = given["username"], given["password"]
        if self.passwords.get(user) != word and self.tickets.get(word, ("",))[0] != user:
            raise ApiFault(401, "authentication failure")
        ticket, csrf = f"PVE:{user}:{secrets.token_hex(16)}", secrets.token_hex(16)
        self.tickets[ticket] = (user, csrf)
        return {"ticket": ticket, "CSRFPreventionToken": csrf, "username": user}

    def _who(self, asked: Asked) -> str:
        if (header := asked.headers.get("authorization", "")).startswith("PVEAPIToken="):
            name, _, word = header.removeprefix("PVEAPIToken=").partition("=")
            if self.tokens.get(name) != word:
                raise ApiFault(401, "invalid token value!")
            return name
        found = re.search(r'PVEAuthCookie="?([^;"]+)', asked.headers.get("cookie", ""))
        if found is None:
            raise ApiFault(401, "No ticket")
        user, csrf = self.tickets.get(unquote(found[1]), ("", ""))
        if not user:
            raise ApiFault(401, "permission denied - invalid PVE ticket")
        if asked.method != "GET" and asked.headers.get("csrfpreventiontoken") != csrf:
            raise ApiFault(401, "Permission denied - invalid csrf token")
        return user

    def _rights_of(self, who: str, path: str) -> set[str]:
        everything = {*RIGHTS, "VM.Allocate", "VM.Audit", "VM.PowerMgmt", "VM.Config.CDROM"}
        everything |= {"Datastore.AllocateTemplate", "Datastore.Allocate", "Datastore.Audit"}
        everything |= {"Datastore.AllocateSpace", "SDN.Use", "SDN.Allocate", "Sys.Audit"}
        if who == ROOT:
            return everything
        mine = self.rights.get(who, {})
        inherited = [
            held for root, held in mine.items() if f"{path}/".startswith(root.rstrip("/") + "/")
        ]
        return set().union(*inherited)

    def need(self, who: str, path: str, *rights: str) -> None:
        if lacking := [right for right in rights if right not in self._rights_of(who, path)]:
            raise ApiFault(403, f"Permission check failed ({path}, {lacking[0]})")

    def _sdn(self, method: str, rest: list[str], given: dict[str, Any], who: str) -> Any:
        match method, rest:
            case "GET", ["zones"]:
                return list(self.zones.values())
            case "GET", ["vnets"]:
                return list(self.vnets.values())
            case "POST", ["zones"]:
                self.need(who, "/sdn/zones", "SDN.Allocate")
                zone = _sdn_name("zone", given)
                if zone in self.zones:
                    raise ApiFault(500, f"create sdn zone object failed: '{zone}' already defined")
                self.zones[zone] = given
                return None
            case "POST", ["vnets"]:
                self.need(who, f"/sdn/zones/{given['zone']}", "SDN.Allocate")
                vnet = _sdn_name("vnet", given)
                if given["zone"] not in self.zones:
                    raise ApiFault(500, f"zone {given['zone']} does not exist")
                self.vnets[vnet] = given
                return None
            case "DELETE", ["vnets", vnet]:
                if vnet not in self.vnets:
                    raise ApiFault(500, f"sdn '{vnet}' does not exist")
                self.need(who, f"/sdn/zones/{self.vnets[vnet]['zone']}", "SDN.Allocate")
                del self.vnets[vnet]
                return None
            case "DELETE", ["zones", zone]:
                self.need(who, f"/sdn/zones/{zone}", "SDN.Allocate")
                if zone not in self.zones:
                    raise ApiFault(500, f"sdn '{zone}' does not exist")
                if used := [v for v, each in self.vnets.items() if each["zone"] == zone]:
                    raise ApiFault(500, f"zone {zone} is used by vnet {used[0]}")
                del self.zones[zone]
                return None
            case "PUT", []:
                self.need(who, "/sdn", "SDN.Allocate")
                return self._task(
                    "reloadnetworkall", "", who, lambda: self.applied.append(frozenset(self.vnets))
                )
        raise ApiFault(501, f"Method '{method} /cluster/sdn' not implemented")

    def _node(self, method: str, rest: list[str], given: dict[str, Any], who: str) -> Any:
        match method, rest:
            case "GET", ["status"]:
                self.need(who, f"/nodes/{NODE}", "Sys.Audit")
                cpu = {
                    "cpus": self.cpus,
                    "cores": self.cpus // self.threads,
                    "sockets": self.sockets,
                    "model": "A CPU",
                }
                answer: dict[str, Any] = {"current-kernel": {"release": "6.8.12-9-pve"}}
                if self.booted is not None:
                    answer["uptime"] = int(time.time() - self.booted)
                return {"cpuinfo": cpu, "memory": self.memory, **answer}
            case "GET", ["subscription"]:
                return {"status": "notfound", "message": "There is no subscription key"}
            case "GET", ["tasks", task, "status"]:
                if task not in self.tasks:
                    raise ApiFault(500, "unable to parse worker upid")
                return self.tasks[task]
            case "GET", ["tasks"]:
                return self._listed(given)
            case _, ["storage", *more]:
                return self._storage(method, more, given, who)
            case "GET", ["qemu"]:
                return [
                    {"vmid": number, "name": vm["config"]["name"], "status": vm["status"]}
                    for number, vm in self.vms.items()
                    if "VM.Audit" in self._rights_of(who, f"/vms/{number}")
                ]
            case "POST", ["qemu"]:
                return self._create(given, who)
            case _, ["qemu", number, *more]:
                return self._vm(method, int(number), more, given, who)
        raise ApiFault(501, f"Method '{method} {'/'.join(rest)}' not implemented")

    def _listed(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the tasks as a list has them: one that has ended says when, and how."""
        wanted = {"id": given.get("vmid"), "type": given.get("typefilter")}
        return [
            {key: value for key, value in task.items() if key not in ("status", "exitstatus")}
            | ({"status": task["exitstatus"]} if "endtime" in task else {})
            for task in self.tasks.values()
            if all(value in (None, task[key]) for key, value in wanted.items())
        ]

    def _storage(self, method: str, rest: list[str], given: dict[str, Any], who: str) -> Any:
        seen = {"Datastore.Audit", "Datastore.AllocateSpace"}
        if not rest:
            return [
                {"storage": name, "content": known["content"], "active": 1}
                for name, known in self.storages.items()
                if seen & self._rights_of(who, f"/storage/{name}")
            ]
        name = rest[0]
        if name not in self.storages:
            raise ApiFault(500, f"storage '{name}' does not exist")
        known, path = self.storages[name], f"/storage/{name}"
        match method, rest[1:]:
            case "GET", ["content"]:
                if not seen & self._rights_of(who, path):
                    raise ApiFault(403, f"Permission check failed ({path}, Datastore.Audit)")
                listed = [{"volid": volume} for volume in known["volumes"]]
                kind = given.get("content")
                return [v for v in listed if kind is None or f":{kind}/" in v["volid"]]
            case "POST", ["upload"]:
                self.need(who, path, "Datastore.AllocateTemplate")
                file, content = given["filename"]
                if not re.search(r"\.(iso|img)$", file, re.I):
                    raise wrong(filename="wrong file extension")
                if given["content"] not in known["content"].split(","):
                    words = f"storage '{name}' does not support '{given['content']}' content"
                    raise ApiFault(500, words)
                volume = f"{name}:iso/{file}"
                return self._task(
                    "imgcopy", "", who, lambda: known["volumes"].__setitem__(volume, content)
                )
            case "DELETE", ["content", *volume]:
                self.need(who, path, "Datastore.Allocate")
                asked = "/".join(volume)
                if asked not in known["volumes"]:
                    raise ApiFault(500, f"volume '{asked}' does not exist")
                # What another task freed first is warned of, no fault (PVE/Storage/Plugin.pm
                # free_image).
                return self._task("imgdel", name, who, lambda: known["volumes"].pop(asked, None))
        raise ApiFault(501, f"Method '{method} /storage' not implemented")

    def _create(self, given: dict[str, Any], who: str) -> str:
        number, pool = int(given.pop("vmid")), given.pop("pool", None)
        self.need(who, f"/pool/{pool}" if pool else f"/vms/{number}", "VM.Allocate")
        if number in self.vms:
            raise ApiFault(
                500, f"unable to create VM {number} - VM {number} already exists on node '{NODE}'"
            )
        check_settings(self, given, who, f"/pool/{pool}" if pool else f"/vms/{number}")

        def make() -> None:
            # Disks first, as in PVE; what was made is freed where a later step fails.
            if words := self.fails.pop("disks", None):
                raise ApiFault(500, words)
            config = self._with_disks(number, given)
            self.vms[number] = {"config": config, "status": "stopped", "pool": pool}

        return self._task("qmcreate", str(number), who, make)

    def _with_disks(self, number: int, given: dict[str, Any]) -> dict[str, Any]:
        """Make the disks that a configuration asks for, and name them in it as PVE does."""
        config = dict(given)
        for key, value in given.items():
            volume, _, more = str(value).partition(",")
            found = NEW.fullmatch(volume) if DRIVE.fullmatch(key) else None
            if found is None:
                continue
            storage, source = volume.partition(":")[0], dict(parse_qsl(more.replace(",", "&")))
            made = f"{storage}:vm-{number}-disk-{len(self.storages[storage]['volumes'])}"
            copied = source.pop("import-from", None)
            self.storages[storage]["volumes"][made] = b""
            kibibytes = int(float(found[1]) * (1 << 20)) or 1024
            if copied is not None:
                # The source of the copy is not a part of the configuration.
                more = ",".join(f"{name}={value}" for name, value in source.items())
            config[key] = ",".join(filter(None, (made, more, f"size={kibibytes}K")))
        return config

    def _vm(
        self, method: str, number: int, rest: list[str], given: dict[str, Any], who: str
    ) -> Any:
        path = f"/vms/{number}"
        pool = self.vms.get(number, {}).get("pool")
        path = f"/pool/{pool}" if pool else path
        self.need(who, path, "VM.Audit" if method == "GET" else "VM.PowerMgmt")
        if number not in self.vms:
            words = f"Configuration file 'nodes/{NODE}/qemu-server/{number}.conf' does not exist"
            raise ApiFault(500, words)
        vm = self.vms[number]
        match method, rest:
            case "GET", ["config"]:
                return {**vm["config"], "digest": "0" * 40}
            case "GET", ["status", "current"]:
                more = {
                    "running-qemu": "9.2.0",
                    "running-machine": "pc-q35-9.2",
                    "memhost": 1 << 28,
                }
                on = vm["status"] == "running"
                lock = {"lock": vm["lock"]} if "lock" in vm else {}
                known = {"status": vm["status"], "vmid": number, "ha": {"managed": 0}, **lock}
                return {**known, "pid": vm["pid"], **more} if on else known
            case "GET", ["snapshot"]:
                return [{"name": "current"}]
            case "GET", ["rrddata"]:
                return self.points
            case "POST", ["status", "start"]:
                return self._task("qmstart", str(number), who, lambda: self._start(number))
            case "POST", ["status", "stop"]:
                return self._task("qmstop", str(number), who, lambda: self._stop(number))
            case "DELETE", []:
                self.need(who, path, "VM.Allocate")
                if vm["status"] == "running":
                    raise ApiFault(500, f"VM {number} is running - destroy failed")
                return self._task("qmdestroy", str(number), who, lambda: self._destroy(number))
        raise ApiFault(501, f"Method '{method} /qemu' not implemented")

    def _unlocked(self, number: int) -> dict[str, Any]:
        if lock := self.vms[number].get("lock"):
            raise ApiFault(500, f"VM is locked ({lock})")
        return self.vms[number]

    def _start(self, number: int) -> None:
        vm = self._unlocked(number)
        if vm["status"] == "running":
            raise ApiFault(500, f"VM {number} already running")
        images = []
        for key, value in vm["config"].items():
            if DRIVE.fullmatch(key):
                volume = value.split(",")[0]
                images.append(self.storages[volume.partition(":")[0]]["volumes"].get(volume, b""))
        vm |= {"status": "running", "pid": 1000 + len(self.tasks)}
        self.plug(number, images)

    def _stop(self, number: int) -> None:
        if self._unlocked(number)["status"] == "running":
            self.unplug(number)
            self.powered_off(number)

    def _destroy(self, number: int) -> None:
        self._unlocked(number)
        for known in self.storages.values():
            for volume in [each for each in known["volumes"] if f":vm-{number}-disk-" in each]:
                del known["volumes"][volume]
        del self.vms[number]

    def _task(self, kind: str, about: str, who: str, work: Callable[[], object]) -> str:
        now = int(time.time())
        task = f"UPID:{NODE}:{len(self.tasks):08X}:00000000:{now:08X}:{kind}:{about}:{who}:"
        state = {"upid": task, "type": kind, "id": about, "starttime": now, "status": "running"}
        self.tasks[task] = state

        def run() -> None:
            time.sleep(self.takes.get(kind, 0.02))
            with self.lock:
                try:
                    if words := self.fails.pop(kind, None):
                        held = [*self.passwords.values(), *self.tickets, *self.tokens.values()]
                        raise ApiFault(500, words.replace("{asked}", " ".join(held)))
                    work()
                except ApiFault as said:
                    state["exitstatus"] = said.words
                else:
                    state["exitstatus"] = "OK"
                finally:
                    # A task that a mistake of this server ends has ended, too: no client may wait.
                    state.update(status="stopped", endtime=int(time.time()))

        threading.Thread(target=run, daemon=True).start()
        return task
