"""Plays Firecracker, its jailer and Cloud Hypervisor: their APIs, with an agent for the guest.

A saved guest is its configuration: memory and devices are not played.

usage: microvm_played.py AGENT PROGRAM [WORD...]

It refuses what the products' API descriptions and sources refuse. There is no guest: the agent runs
as a process, and is reached over the socket of vsock. Threads bear the names of vCPUs.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import re
import socket
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

SET_NAME = 15
"""The operation ``PR_SET_NAME`` of prctl(2)."""
AGENT_PORT = 1024
AGAIN = b"a"
"""What the process of a guest is sent along with a connection after which it awaits another."""
MOST_VCPUS = {"firecracker": 32, "cloud-hypervisor": 255}
DRIVE = {"drive_id", "path_on_host", "is_root_device", "is_read_only", "cache_type", "io_engine"}


class Refused(Exception):
    """What the product answers a wrong request."""


def start_vcpus(names: list[str], pins: Mapping[int, list[int]]) -> None:
    """Start a thread for each vCPU, which has its name and its CPUs before this returns."""
    ready = threading.Barrier(len(names) + 1)

    def idle(number: int, name: str) -> None:
        ctypes.CDLL(None).prctl(SET_NAME, name.encode(), 0, 0, 0)
        if number in pins:
            os.sched_setaffinity(0, pins[number])
        ready.wait()
        threading.Event().wait()

    for number, name in enumerate(names):
        threading.Thread(target=idle, args=(number, name), daemon=True).start()
    ready.wait()


def prepare_guest(agent: str) -> socket.socket:
    """Start a process that keeps its user, and runs the agent on a connection that it is sent."""
    ours, other = socket.socketpair()
    if not os.fork():
        ours.close()
        again = AGAIN
        while again == AGAIN:
            again, sent, _, _ = socket.recv_fds(other, 1, 1)
            if not sent:
                break
            if not (child := os.fork()):
                os.dup2(sent[0], 0)
                os.dup2(sent[0], 1)
                os.execv(agent, [agent, "serve"])
            os.close(sent[0])
            os.waitpid(child, 0)
        os._exit(0)
    other.close()
    return ours


def serve_vsock(path: str, product: Product, arguments: str) -> None:
    """Listen at the socket of vsock: the agent answers at its port, and nobody at others.

    A guest that does not run does not answer. One whose kernel has no ``tare.again`` ends with its
    first connection.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
    except OSError as error:
        raise Refused(f"Error binding to the host-side Unix socket: {error}") from error
    listener.listen()
    again = AGAIN if "tare.again=1" in arguments.split() else b"."

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            product.runs.wait()
            asked = b""
            while not asked.endswith(b"\n") and (byte := connection.recv(1)):
                asked += byte
            if asked == f"CONNECT {AGENT_PORT}\n".encode():
                connection.sendall(b"OK 1073741824\n")
                try:
                    socket.send_fds(product.guest, [again], [connection.fileno()])
                except BrokenPipeError:
                    os._exit(0)
                product.connections.append(connection)
            else:
                connection.close()

    threading.Thread(target=accept, daemon=True).start()


class Product:
    """What is configured so far of one guest."""

    def __init__(self, guest: socket.socket) -> None:
        self.guest = guest
        self.held: dict[str, Any] = {}
        self.runs = threading.Event()
        self.connections: list[socket.socket] = []

    def reset_connections(self) -> None:
        """End all connections over vsock, as a saved guest loses them."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def file(self, path: str) -> None:
        """Raise Refused where a file is not there."""
        if not Path(path).exists():
            raise Refused(f"No such file or directory (os error 2): {path}")

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Return status and body; raises Refused."""
        raise NotImplementedError


class Firecracker(Product):
    """Firecracker's API: src/firecracker/swagger/firecracker.yaml and vmm_config."""

    KNOWN: Mapping[str, set[str]] = {
        "machine-config": {
            *("vcpu_count", "mem_size_mib", "smt", "cpu_template"),
            *("track_dirty_pages", "huge_pages"),
        },
        "boot-source": {"kernel_image_path", "initrd_path", "boot_args"},
        "drives": DRIVE | {"partuuid", "rate_limiter", "socket"},
        "network-interfaces": {"iface_id", "host_dev_name", "guest_mac", "mtu"},
        "vsock": {"guest_cid", "uds_path", "vsock_id"},
        "actions": {"action_type"},
        "vm": {"state"},
        "snapshot/create": {"snapshot_type", "snapshot_path", "mem_file_path"},
        "snapshot/load": {
            *("snapshot_path", "mem_file_path", "mem_backend", "enable_diff_snapshots"),
            *("track_dirty_pages", "resume_vm", "network_overrides", "vsock_override"),
            *("clock_realtime", "huge_pages"),
        },
    }

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Take one part of the configuration, or start."""
        kind, _, name = path.strip("/").partition("/")
        if kind == "snapshot":
            kind, name = path.strip("/"), ""
        if method != ("PATCH" if kind == "vm" else "PUT") or kind not in self.KNOWN:
            raise Refused(f"Invalid request method and/or path: {method} {path.strip('/')}.")
        if not isinstance(body, dict):
            raise Refused("Empty PUT request.")
        for key in body:
            # The structures of the sources are marked with serde's deny_unknown_fields.
            if key not in self.KNOWN[kind]:
                raise Refused(
                    "An error occurred when deserializing the json body of a request: "
                    f"unknown field `{key}`."
                )
        if kind in ("vm", "snapshot/create"):
            if not self.held.get("started"):
                words = "The requested operation is not supported before starting the microVM."
                raise Refused(words)
            return self.set_state(body) if kind == "vm" else self.save(body)
        if self.held.get("started"):
            raise Refused("The requested operation is not supported after starting the microVM.")
        if kind == "snapshot/load":
            return self.load(body)
        if kind == "actions":
            return self.start(body)
        if kind == "machine-config" and not (
            0 < body["vcpu_count"] <= MOST_VCPUS["firecracker"] and body["mem_size_mib"] > 0
        ):
            raise Refused("The vCPU number is invalid!")
        if name and (not re.fullmatch(r"\w+", name) or name not in body.values()):
            raise Refused("The id from the path does not match the id from the body!")
        for key in ("kernel_image_path", "initrd_path", "path_on_host"):
            if key in body:
                self.file(body[key])
        if kind == "vsock" and body["guest_cid"] < 3:
            raise Refused("guest_cid must be at least 3")
        self.held[f"{kind}/{name}"] = body
        return 204, None

    def start(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        if body["action_type"] != "InstanceStart":
            raise Refused(f"unknown variant `{body['action_type']}`")
        if "boot-source/" not in self.held:
            raise Refused("Cannot start microvm without kernel configuration.")
        if "reboot=k" not in self.held["boot-source/"]["boot_args"].split():
            raise Refused("played: a guest that ends would not end Firecracker")
        self.begin()
        self.runs.set()
        return 204, None

    def begin(self) -> None:
        """Have the threads of the vCPUs and the socket of vsock."""
        self.held["started"] = True
        count = self.held["machine-config/"]["vcpu_count"]
        arguments = self.held["boot-source/"]["boot_args"]
        serve_vsock(self.held["vsock/"]["uds_path"], self, arguments)
        start_vcpus([f"fc_vcpu {number}" for number in range(count)], {})

    def set_state(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        if body["state"] not in ("Paused", "Resumed"):
            raise Refused(f"unknown variant `{body['state']}`, expected `Paused` or `Resumed`")
        (self.runs.set if body["state"] == "Resumed" else self.runs.clear)()
        return 204, None

    def save(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        for key in ("snapshot_path", "mem_file_path"):
            if key not in body:
                raise Refused(f"missing field `{key}`")
        if self.runs.is_set():
            raise Refused(
                "Create snapshot error: Cannot save Vcpu state: save/restore unavailable while "
                "running"
            )
        try:
            Path(body["snapshot_path"]).write_text(json.dumps(self.held))
            Path(body["mem_file_path"]).write_bytes(b"memory")
        except OSError as error:
            words = f"Cannot perform open on the snapshot backing file: {error}"
            raise Refused(f"Create snapshot error: {words}") from error
        # The device of vsock is reset.
        self.reset_connections()
        return 204, None

    def load(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        if "snapshot_path" not in body:
            raise Refused("missing field `snapshot_path`")
        if ("mem_backend" in body) == ("mem_file_path" in body):
            raise Refused("missing field: either `mem_backend` or `mem_file_path` is required")
        if self.held:
            raise Refused(
                "Load snapshot error: Loading a microVM snapshot not allowed after configuring "
                "boot-specific resources."
            )
        backend = body.get("mem_backend", {"backend_path": body.get("mem_file_path")})
        try:
            self.file(backend["backend_path"])
            self.file(body["snapshot_path"])
            self.held = json.loads(Path(body["snapshot_path"]).read_text())
            for kind, part in self.held.items():
                if kind.startswith("drives/"):
                    self.file(part["path_on_host"])
            self.begin()
        except Refused as refused:
            # A process that has begun to load is of no use afterwards, and ends.
            threading.Timer(0.5, os._exit, [153]).start()
            words = f"Failed to restore from snapshot: {refused}"
            raise Refused(f"Load snapshot error: {words}") from refused
        if body.get("resume_vm"):
            self.runs.set()
        return 204, None


class CloudHypervisor(Product):
    """Cloud Hypervisor's API: vmm/src/api/openapi/cloud-hypervisor.yaml and vmm/src/config.rs."""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Create or boot."""
        if method == "PUT" and path == "/api/v1/vm.create":
            if "config" in self.held:
                raise Refused("VM is already created")
            if not isinstance(body, dict) or "payload" not in body:
                raise Refused("missing field `payload`")
            cpus = body["cpus"]
            if cpus["max_vcpus"] < cpus["boot_vcpus"]:
                raise Refused("Max CPUs lower than boot CPUs")
            if cpus["boot_vcpus"] > MOST_VCPUS["cloud-hypervisor"]:
                raise Refused("Too many CPUs")
            self.held["config"] = body
            return 204, None
        if method == "PUT" and path == "/api/v1/vm.boot":
            if "config" not in self.held:
                raise Refused("VM is not created")
            config = self.held["config"]
            files = [config["payload"]["kernel"], config["payload"]["initramfs"]]
            for file in (*files, *(disk["path"] for disk in config.get("disks", ()))):
                self.file(file)
            self.begin(config)
            self.runs.set()
            self.held["state"] = "Running"
            return 204, None
        if method == "PUT" and path in ("/api/v1/vm.pause", "/api/v1/vm.resume"):
            new = "Paused" if path.endswith("pause") else "Running"
            if (old := self.held.get("state")) is None:
                raise Refused("VM is not running")
            if old == new:
                raise Refused(f"Invalid transition: InvalidStateTransition({old}, {new})")
            self.held["state"] = new
            (self.runs.set if new == "Running" else self.runs.clear)()
            return 204, None
        if method == "PUT" and path == "/api/v1/vm.snapshot":
            return self.save(body)
        if method == "PUT" and path == "/api/v1/vm.restore":
            return self.restore(body)
        return 404, "Not Found"

    def begin(self, config: Mapping[str, Any]) -> None:
        """Have the threads of the vCPUs and the socket of vsock."""
        cpus = config["cpus"]
        pins = {each["vcpu"]: each["host_cpus"] for each in cpus.get("affinity") or ()}
        start_vcpus([f"vcpu{number}" for number in range(cpus["boot_vcpus"])], pins)
        serve_vsock(config["vsock"]["socket"], self, config["payload"]["cmdline"])

    def folder(self, url: str) -> Path:
        """Return the folder that a URL names."""
        if not url.startswith("file://"):
            raise Refused(f"Could not extract path from URL: {url}")
        if not (path := Path(url.removeprefix("file://"))).is_dir():
            raise Refused(f"Destination is not a directory: {path}")
        return path

    def save(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        if "state" not in self.held:
            raise Refused("VM is not running")
        if self.held["state"] != "Paused":
            raise Refused("Trying to snapshot while VM is running")
        folder = self.folder(body["destination_url"])
        stored = {**self.held["config"], "watchdog": False}
        contents = {"config.json": stored, "state.json": {"snapshots": {}}, "memory-ranges": 0}
        for name, content in contents.items():
            try:
                descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            except OSError as error:
                raise Refused(f"Error creating {name}: {error}") from error
            os.write(descriptor, json.dumps(content).encode())
            os.close(descriptor)
        # It resets no connection: what is restored takes them for open.
        return 204, None

    def restore(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        if "config" in self.held:
            raise Refused("VM is already created")
        folder = self.folder(body["source_url"])
        for name in ("config.json", "state.json", "memory-ranges"):
            if not os.access(folder / name, os.R_OK):
                raise Refused(f"Error opening {folder / name}")
        config = json.loads((folder / "config.json").read_text())
        for disk in config.get("disks", ()):
            self.file(disk["path"])
        self.begin(config)
        self.held = {"config": config, "state": "Paused"}
        return 204, None


def serve(path: str, product: Product, fault: str) -> None:
    """Answer requests at a socket, one connection after another."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PATCH(self) -> None:
            self.do_PUT()

        def do_PUT(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            text = self.rfile.read(length)
            try:
                status, answer = product.answer(
                    self.command, self.path, json.loads(text) if text else None
                )
            except Refused as refused:
                # Firecracker names one reason; Cloud Hypervisor lists the causes.
                status = 400 if fault == "fault_message" else 500
                words = str(refused)
                answer = {fault: words} if fault == "fault_message" else ["played", words]
            content = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            if content:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if content:
                self.wfile.write(content)

        def address_string(self) -> str:
            return "unix"

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet: standard output is the guest's console."""

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    while True:
        connection, _ = listener.accept()
        # A client may close its connection early; no server ends because of that.
        with contextlib.suppress(ConnectionError):
            Handler(connection, ("unix", 0), None)  # type: ignore[arg-type]
        connection.close()


def main(agent: str, program: str, words: list[str]) -> None:
    """Play one of the programs."""
    if "--version" in words:
        print(f"{program} v1.2.3")
        return
    guest = prepare_guest(agent)
    if program == "jailer":
        jail = argparse.ArgumentParser()
        for name in ("--id", "--exec-file", "--uid", "--gid", "--chroot-base-dir"):
            jail.add_argument(name, required=True)
        jail.add_argument("--netns")
        end = words.index("--")
        asked, words = jail.parse_args(words[:end]), words[end + 1 :]
        if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", asked.id):
            sys.exit(f"Jailer error: Invalid instance ID: {asked.id}")
        name = Path(asked.exec_file).name
        root = str(Path(asked.chroot_base_dir) / name / asked.id / "root")
        program = "firecracker"
        os.chown(root, int(asked.uid), int(asked.gid))
        os.chroot(root)
        os.chdir("/")
        os.setgid(int(asked.gid))
        os.setuid(int(asked.uid))
    parser = argparse.ArgumentParser()
    if program == "firecracker":
        parser.add_argument("--api-sock", required=True)
        parser.add_argument("--level", choices=("Error", "Warning", "Info", "Debug"))
        parser.add_argument("--enable-pci", action="store_true")
        socket_path = parser.parse_args(words).api_sock
        print("played: Firecracker's console", flush=True)
        serve(socket_path, Firecracker(guest), "fault_message")
    parser.add_argument("--api-socket", required=True)
    parser.add_argument("--seccomp", choices=("true", "false", "log"))
    socket_path = parser.parse_args(words).api_socket.removeprefix("path=")
    serve(socket_path, CloudHypervisor(guest), "error")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
