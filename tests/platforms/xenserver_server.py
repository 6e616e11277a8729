"""A server that keeps VMs as XenServer's XenAPI does, and refuses what it refuses.

What is refused, by xen-api's own list of errors (ocaml/idl/datamodel_errors.ml, which makes the
chapter "Error handling" of the maker's Management API) and the module that raises it. The errors of
each call, and the least role that may make it, are on the class's page below
docs.xenserver.com/en-us/xenserver/developer/xenserver-8/management-api (class-vm, class-vdi, …):

=============================================== ===============================================
an ended session: SESSION_INVALID               ocaml/xapi/session_check.ml
a wrong password: SESSION_AUTHENTICATION_FAILED ocaml/xapi/xapi_session.ml
a member of the pool: HOST_IS_SLAVE             ocaml/xapi/xapi_session.ml
a role that may not: RBAC_PERMISSION_DENIED     ocaml/xapi/rbac.ml; which may is ``allowed_roles``
                                                in ocaml/idl/datamodel.ml, datamodel_vm.ml and
                                                datamodel_host.ml
an unknown object: HANDLE_INVALID, UUID_INVALID ocaml/database/db_exn.ml, datamodel_errors.ml
a wrong state: VM_BAD_POWER_STATE               ocaml/xapi/xapi_vm_lifecycle.ml
what is busy: OTHER_OPERATION_IN_PROGRESS       ocaml/xapi/xapi_vm_lifecycle.ml
a disk in use: VDI_IN_USE                       ocaml/xapi/xapi_vdi.ml; people met it:
                                                vatesfr/xen-orchestra issue 7956
a network in use: NETWORK_CONTAINS_VIF          ocaml/xapi/xapi_network.ml, ``destroy``: a VIF
                                                counts while it is attached
a repository that is full: SR_FULL              datamodel_errors.ml
what the licence lacks: LICENCE_RESTRICTION     ocaml/xapi/pool_features.ml, ``assert_enabled``; an
                                                error of VM.start in "XenEnterprise Management API"
                                                (2.9, "RPC name: start"), and met at VM.create:
                                                vatesfr/xen-orchestra issue 964
a licence that is over: LICENSE_EXPIRED         ocaml/xapi/license_check.mli: the VM does not start
what is restricted: FEATURE_RESTRICTED          datamodel_errors.ml; ocaml/xapi/vgpuops.ml, at start
memory that cannot be: MEMORY_CONSTRAINT_…      ocaml/xapi/xapi_vm_helpers.ml, at VM.start only
an import without a session: 401                ocaml/xapi/xapi_http.ml
a mask that cannot be read: no refusal          ocaml/xapi/xapi_xenops.ml, ``with _ -> []``
=============================================== ===============================================
"""

from __future__ import annotations

import json
import secrets
import threading
import time
import uuid
import xmlrpc.client
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from platforms.loopback_server import Answer, Asked, LoopbackServer

NULL = "OpaqueRef:NULL"
USER = "tare"
WRITES = ("create", "destroy", "start_on", "hard_shutdown", "copy", "set_", "add_to_", "record_")
ROLES = ("read-only", "vm-operator", "vm-admin", "vm-power-admin", "pool-operator", "pool-admin")
"""From the least to the one that may do all (ocaml/idl/datamodel_roles.ml)."""
OF_WRITES = "vm-admin"
LEAST = {
    "VM.start_on": "vm-power-admin",
    "VM.hard_shutdown": "vm-operator",
    "task.destroy": "read-only",
}
"""The least role that may make a call, where it is another than that of writes."""
ROOT_ALONE = frozenset({"host.get_sched_gran"})


class XenFailure(Exception):
    """A failure of XenAPI: its code, and what it is about."""

    def __init__(self, *words: str) -> None:
        super().__init__(*words)
        self.words = list(words)


def ref() -> str:
    return f"OpaqueRef:{uuid.uuid4()}"


class XenServer(LoopbackServer):
    """The server of a pool of one host.

    Args:
        folder: Where its certificate is made.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.plug: Callable[[Any, list[bytes]], None] = lambda *_: None
        self.unplug: Callable[[Any], None] = lambda _: None
        self.password = "xen-word-" + secrets.token_hex(8)
        self.sessions: set[str] = set()
        self.coordinator = ""
        """Where this host is none: the address of the one that is."""
        self.role = "vm-power-admin"
        self.is_superuser = False
        """Whether the account is the host's own root, who has every right and no role."""
        self.licence: list[str] = []
        """What a VM's start is refused with, for what the licence allows; empty: it allows it."""
        self.fails: dict[str, list[str]] = {}
        """What a task dies with, half-way, once, by its call."""
        self.rows: list[dict[str, Any]] = []
        self.legend: list[str] = []
        self.content: dict[str, bytes] = {}
        self.full = False
        machines = ("VM", "VDI", "VBD", "VIF", "VM_metrics")
        kinds = (*machines, "SR", "network", "host", "host_metrics", "PIF", "pool")
        self.objects: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in kinds}
        self.objects["task"] = {}
        self.network = self.add("network", name_label="Pool-wide network 0")
        pif = self.add("PIF", management=True, network=self.network)
        memory = {"memory_total": str(64 << 30), "memory_free": str(60 << 30)}
        self.host_metrics = self.add("host_metrics", live=True, **memory)
        self.host = self.add(
            "host",
            name_label="xen1",
            enabled=True,
            metrics=self.host_metrics,
            other_config={"boot_time": "1800000000."},
            address="127.0.0.1",
            PIFs=[pif],
            edition="free",
            software_version={
                "product_brand": "XCP-ng",
                "product_version": "8.3.0",
                "build_number": "cloud",
                "xen": "4.17.5",
                "linux": "4.19.0+1",
            },
            cpu_info={"cpu_count": "16", "threads_per_core": "2", "modelname": "A CPU"},
            sched_gran="cpu",
        )
        self.sr = self.add("SR", name_label="Local storage", content_type="user")
        self.isos = self.add("SR", name_label="ISOs", content_type="iso")
        self.add("pool", default_SR=self.sr, ha_enabled=False)
        self.image = self.add("VDI", name_label="tare-live.iso", SR=self.isos, virtual_size="4096")
        self.disk = self.add("VDI", name_label="tare-live.raw", SR=self.sr, virtual_size="4096")
        for each in (self.image, self.disk):
            self.objects["VDI"][each]["other_config"] = {}

    def add(self, kind: str, **record: Any) -> str:
        made = ref()
        self.objects[kind][made] = {"uuid": str(uuid.uuid4()), **record}
        return made

    def powered_off(self, vm: str) -> None:
        """Note that a guest has ended by itself."""
        if vm in self.objects["VM"]:
            off = {"power_state": "Halted", "domid": "-1", "resident_on": NULL}
            self.objects["VM"][vm] |= off

    def answer(self, asked: Asked) -> Answer:
        parts = urlsplit(asked.path)
        if parts.path in ("/import_raw_vdi", "/rrd_updates"):
            return self._handler(asked, parts.path, parse_qs(parts.query))
        given, method = xmlrpc.client.loads(asked.body)
        try:
            with self.lock:
                asked.label = str(method)
                value = self._call(str(method), list(given))
            answer = {"Status": "Success", "Value": value}
        except XenFailure as failure:
            answer = {"Status": "Failure", "ErrorDescription": failure.words}
        body = xmlrpc.client.dumps((answer,), methodresponse=True, allow_none=True).encode()
        return Answer(200, body, headers={"Content-Type": "text/xml"})

    def _handler(self, asked: Asked, path: str, query: dict[str, list[str]]) -> Answer:
        cookie = asked.headers.get("cookie", "").partition("session_id=")[2]
        with self.lock:
            if cookie not in self.sessions:
                return Answer(401, reason="Unauthorised")
            if path == "/import_raw_vdi":
                disk = query["vdi"][0]
                record = self.objects["VDI"].get(disk)
                if record is None or len(asked.body) > int(record["virtual_size"]):
                    return Answer(400, reason="Bad request")
                self.content[disk] = asked.body
                return Answer(200)
            meta = {"step": 5, "legend": self.legend, "rows": len(self.rows)}
            body = json.dumps({"meta": meta, "data": self.rows}).encode()
            return Answer(200, body, headers={"Content-Type": "application/json"})

    def _call(self, method: str, given: list[Any]) -> Any:
        if method == "session.login_with_password":
            if self.coordinator:
                raise XenFailure("HOST_IS_SLAVE", self.coordinator)
            if given[:2] != [USER, self.password]:
                raise XenFailure(
                    "SESSION_AUTHENTICATION_FAILED", given[0], "Authentication failure"
                )
            made = ref()
            self.sessions.add(made)
            return made
        session = given.pop(0)
        if session not in self.sessions:
            raise XenFailure("SESSION_INVALID", session)
        if method == "session.logout":
            self.sessions.discard(session)
            return ""
        if method.startswith(("session.get_", "subject.get_", "role.get_")):
            return self._account(method)
        begun = method.startswith("Async.")
        kind, _, verb = method.removeprefix("Async.").partition(".")
        self._require_role(kind, verb)
        if begun:
            return self._task(f"{kind}.{verb}", lambda: self._do(kind, verb, given))
        return self._do(kind, verb, given)

    def _require_role(self, kind: str, verb: str) -> None:
        if self.is_superuser:
            return
        least = LEAST.get(f"{kind}.{verb}", OF_WRITES if verb.startswith(WRITES) else ROLES[0])
        lacks = ROLES.index(self.role) < ROLES.index(least)
        if lacks or f"{kind}.{verb}" in ROOT_ALONE:
            raise XenFailure("RBAC_PERMISSION_DENIED", f"{kind}.{verb}".lower(), "No permission")

    def _account(self, method: str) -> Any:
        """Return what a session reports of its account: any role may ask (pages as above)."""
        answers = {
            "session.get_is_local_superuser": self.is_superuser,
            "session.get_subject": NULL if self.is_superuser else "OpaqueRef:subject",
            "subject.get_roles": ["OpaqueRef:role"],
            "role.get_name_label": self.role,
        }
        if method not in answers:
            raise XenFailure("MESSAGE_METHOD_UNKNOWN", method)
        return answers[method]

    def _do(self, kind: str, verb: str, given: list[Any]) -> Any:
        known = self.objects[kind]
        if verb == "get_all":
            return list(known)
        if verb == "get_by_name_label":
            return [each for each, record in known.items() if record.get("name_label") == given[0]]
        if verb == "get_by_uuid":
            found = [each for each, record in known.items() if record["uuid"] == given[0]]
            if not found:
                raise XenFailure("UUID_INVALID", kind, given[0])
            return found[0]
        if verb == "create":
            return self._create(kind, given[0])
        if given[0] not in known:
            raise XenFailure("HANDLE_INVALID", kind, given[0])
        record = known[given[0]]
        if verb == "get_record":
            return record
        if verb.startswith("get_"):
            return record[verb.removeprefix("get_")]
        if kind == "VM":
            return self._power(verb, given[0], record, given[1:])
        if kind == "VDI" and verb == "copy":
            into = given[3]
            if into not in known:
                raise XenFailure("HANDLE_INVALID", "VDI", into)
            self.content[into] = self.content.get(given[0], b"")
            return f"<value>{into}</value>"
        if verb == "destroy":
            if kind == "VDI":
                self._free(given[0])
            if kind == "network":
                self._require_unplugged(given[0])
            del known[given[0]]
            return ""
        if (kind, verb) == ("host", "compute_free_memory"):
            return self.objects["host_metrics"][self.host_metrics]["memory_free"]
        raise XenFailure("MESSAGE_METHOD_UNKNOWN", f"{kind}.{verb}")

    def _free(self, disk: str) -> None:
        for each in self.objects["VBD"].values():
            vm = self.objects["VM"].get(each["VM"])
            if each["VDI"] == disk and vm is not None and vm["power_state"] != "Halted":
                raise XenFailure("VDI_IN_USE", disk, "destroy")
        self.content.pop(disk, None)

    def _require_unplugged(self, network: str) -> None:
        """Refuse to remove a network while a running VM has a VIF on it."""
        plugged = [
            vif
            for vif, record in self.objects["VIF"].items()
            if record["network"] == network
            and self.objects["VM"][record["VM"]]["power_state"] != "Halted"
        ]
        if plugged:
            raise XenFailure("NETWORK_CONTAINS_VIF", *plugged)

    def _create(self, kind: str, record: dict[str, Any]) -> str:
        for key, of in (("SR", "SR"), ("VM", "VM"), ("VDI", "VDI"), ("network", "network")):
            if key in record and record[key] not in self.objects[of]:
                raise XenFailure("HANDLE_INVALID", of, record[key])
        if kind == "VDI" and self.full:
            raise XenFailure("SR_FULL", record["virtual_size"], "0")
        more: dict[str, Any] = {}
        if kind == "VM":
            actual = {"memory_actual": record["memory_static_max"]}
            more = {
                "power_state": "Halted",
                "domid": "-1",
                "resident_on": NULL,
                "snapshots": [],
                "current_operations": {},
                "domain_type": "hvm",
                "metrics": self.add("VM_metrics", **actual),
            }
        return self.add(kind, **record, **more)

    def _power(self, verb: str, vm: str, record: dict[str, Any], given: list[Any]) -> Any:
        if record["current_operations"]:
            what = next(iter(record["current_operations"].values()))
            raise XenFailure("OTHER_OPERATION_IN_PROGRESS", "VM", vm, what, ref())
        wanted = {"start_on": "Halted", "hard_shutdown": "Running", "destroy": "Halted"}
        if verb in wanted and record["power_state"] != wanted[verb]:
            words = (wanted[verb].lower(), record["power_state"].lower())
            raise XenFailure("VM_BAD_POWER_STATE", vm, *words)
        if verb == "record_data_source":
            self.legend.append(f"AVERAGE:vm:{record['uuid']}:{given[0]}")
        elif verb == "start_on":
            if given[0] not in self.objects["host"]:
                raise XenFailure("HANDLE_INVALID", "host", given[0])
            if self.licence:
                raise XenFailure(*self.licence)
            if int(record["memory_static_min"]) > int(record["memory_dynamic_min"]):
                raise XenFailure("MEMORY_CONSTRAINT_VIOLATION", "not min <= dynamic <= max")
            record |= {"power_state": "Running", "resident_on": given[0]}
            record["domid"] = str(len(self.asked))
            disks = [d["VDI"] for d in self.objects["VBD"].values() if d["VM"] == vm]
            self.plug(vm, [self.content.get(disk, b"") for disk in disks])
        elif verb == "hard_shutdown":
            self.unplug(vm)
            self.powered_off(vm)
        elif verb == "destroy":
            for kind in ("VBD", "VIF"):
                mine = self.objects[kind]
                self.objects[kind] = {k: each for k, each in mine.items() if each["VM"] != vm}
            del self.objects["VM"][vm]
        else:
            raise XenFailure("MESSAGE_METHOD_UNKNOWN", f"VM.{verb}")
        return ""

    def _task(self, what: str, work: Callable[[], Any]) -> str:
        task = self.add("task", status="pending", error_info=[], result="")
        record = self.objects["task"][task]

        def run() -> None:
            time.sleep(0.02)
            with self.lock:
                try:
                    if words := self.fails.pop(what, None):
                        raise XenFailure(*words)
                    record["result"] = str(work())
                    record["status"] = "success"
                except XenFailure as failure:
                    record.update(status="failure", error_info=failure.words)

        threading.Thread(target=run, daemon=True).start()
        return task
