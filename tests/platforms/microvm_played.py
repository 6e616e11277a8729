"""Plays Firecracker, its jailer and Cloud Hypervisor: their APIs, with an agent for the guest.

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
        _, sent, _, _ = socket.recv_fds(other, 1, 1)
        if sent:
            os.dup2(sent[0], 0)
            os.dup2(sent[0], 1)
            os.execv(agent, [agent, "serve"])
        os._exit(0)
    other.close()
    return ours


def serve_vsock(path: str, guest: socket.socket) -> None:
    """Listen at the socket of vsock: the agent answers at its port, and nobody at others."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            asked = b""
            while not asked.endswith(b"\n") and (byte := connection.recv(1)):
                asked += byte
            if asked == f"CONNECT {AGENT_PORT}\n".encode():
                connection.sendall(b"OK 1073741824\n")
                socket.send_fds(guest, [b"."], [connection.fileno()])
            connection.close()

    threading.Thread(target=accept, daemon=True).start()


class Product:
    """What is configured so far of one guest."""

    def __init__(self, guest: socket.socket) -> None:
        self.guest = guest
        self.held: dict[str, Any] = {}

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
    }

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Take one part of the configuration, or start."""
        kind, _, name = path.strip("/").partition("/")
        if method != "PUT" or kind not in self.KNOWN:
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
        if self.held.get("started"):
            raise Refused("The requested operation is not supported after starting the microVM.")
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
        self.held["started"] = True
        count = self.held["machine-config/"]["vcpu_count"]
        start_vcpus([f"fc_vcpu {number}" for number in range(count)], {})
        serve_vsock(self.held["vsock/"]["uds_path"], self.guest)
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
            cpus = config["cpus"]
            pins = {each["vcpu"]: each["host_cpus"] for each in cpus.get("affinity", ())}
            start_vcpus([f"vcpu{number}" for number in range(cpus["boot_vcpus"])], pins)
            serve_vsock(config["vsock"]["socket"], self.guest)
            return 204, None
        return 404, "Not Found"


def serve(path: str, product: Product, fault: str) -> None:
    """Answer requests at a socket, one connection after another."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

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
