"""Plays ``ctr`` of containerd with Kata's shim: virtual machines with an agent for the guest.

usage: kata_played.py STATE [WORD...]

It refuses what ctr refuses (cmd/ctr/commands/run/run.go) and what Kata refuses of a bundle. There
is no guest: the agent runs as a process on as many CPUs as the configuration has vCPUs, and sees
its memory in /proc/meminfo and the interface of the container's network namespace. The process
above it plays QEMU and has threads with the names of QEMU's vCPUs.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from platforms.microvm_played import start_vcpus

SET_DEATH_SIGNAL = 1
"""The operation ``PR_SET_PDEATHSIG`` of prctl(2)."""


def refuse(words: str) -> NoReturn:
    sys.exit(f"ctr: {words}")


class Words(argparse.ArgumentParser):
    """Options as ctr has them: none may be shortened, and an unknown one is refused."""

    def __init__(self) -> None:
        super().__init__(allow_abbrev=False, add_help=False)

    def error(self, message: str) -> NoReturn:
        refuse(f"flag provided but not defined: {message}")


def machine_size(configured: Path, container: dict[str, Any]) -> tuple[int, int]:
    """Return the vCPUs and MiB of a machine: Kata adds a container's limits to its own."""
    (hypervisor,) = tomllib.loads(configured.read_text())["hypervisor"].values()
    limits = container["linux"].get("resources", {})
    cpu = limits.get("cpu", {})
    more = math.ceil(cpu.get("quota", 0) / cpu.get("period", 100_000))
    memory = limits.get("memory", {}).get("limit", 0) >> 20
    return hypervisor["default_vcpus"] + more, hypervisor["default_memory"] + memory


def play_machine(container: dict[str, Any], vcpus: int, memory: int, folder: Path) -> NoReturn:
    """Be the hypervisor's process until the agent ends, which sees the memory of the machine."""
    os.setsid()
    seen = folder / "meminfo"
    total = int(0.9 * memory * 1024)
    seen.write_text(f"MemTotal: {total} kB\nMemFree: {total} kB\nMemAvailable: {total} kB\n")

    def confine() -> None:
        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:vcpus])

    args = container["process"]["args"]
    program = Path(container["root"]["path"]) / args[0].lstrip("/")
    bind = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /proc/meminfo && exec "$@"', str(seen)]
    argv = [*joined(container), *bind, str(program), *args[1:]]
    agent = subprocess.Popen(argv, preexec_fn=confine, env={**os.environ, **environment(container)})
    start_vcpus([f"CPU {number}/KVM" for number in range(vcpus)], {})
    os._exit(agent.wait())


def joined(container: dict[str, Any]) -> list[str]:
    """Return what comes before a command that is to have the container's network interface."""
    (kind,) = (each for each in container["linux"]["namespaces"] if each["type"] == "network")
    return ["ip", "netns", "exec", Path(kind["path"]).name] if "path" in kind else []


def environment(container: dict[str, Any]) -> dict[str, str]:
    """Return the agent's variables."""
    given = [str(each).split("=", 1) for each in container["process"]["env"]]
    return {name: value for name, value in given if name != "PATH"}


def run(state: Path, words: list[str]) -> int:
    """Run a container in the foreground."""
    options = Words()
    for name in ("--runtime", "--runtime-config-path", "--config", "--pid-file", "--fifo-dir"):
        options.add_argument(name)
    options.add_argument("--rm", action="store_true")
    options.add_argument("--detach", action="store_true")
    options.add_argument("names", nargs="*")
    given = options.parse_args(words)
    if given.config is None:
        refuse("image ref must be provided")
    if len(given.names) > 1:
        refuse("with spec config file, only container id should be provided")
    if not given.names:
        refuse("container id must be provided")
    if given.rm and given.detach:
        refuse("flags --detach and --rm cannot be specified together")
    record = state / given.names[0]
    if record.exists():
        refuse(f'container "{record.name}": already exists')
    if not os.access(given.runtime, os.X_OK):
        refuse(f'failed to start shim: failed to resolve runtime path: runtime "{given.runtime}"')
    container = json.loads(Path(given.config).read_text())
    if not Path(container["root"]["path"]).is_dir():
        refuse("failed to create shim task: the root file system is missing")
    vcpus, memory = machine_size(Path(given.runtime_config_path), container)
    if memory < 256:
        refuse("failed to create shim task: memory is below the minimum of 256 MiB")
    Path(given.fifo_dir).mkdir(exist_ok=True)
    if not (machine := os.fork()):
        play_machine(container, vcpus, memory, Path(given.config).parent)
    record.write_text(json.dumps({"pid": machine}))
    Path(given.pid_file).write_text(str(machine))
    _, status = os.waitpid(machine, 0)
    if given.rm:
        record.unlink(missing_ok=True)
    # What has lost its virtual machine ends with 255.
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 255


def handle(state: Path, words: list[str]) -> int:
    """Handle a subcommand of containers or tasks."""
    kind, action, *rest = words
    name = rest[-1]
    record = state / name
    if not record.exists():
        refuse(f'container "{name}" in namespace "tare": not found')
    machine = json.loads(record.read_text())["pid"]
    runs = machine and Path(f"/proc/{machine}").exists()
    if (kind, action) == ("containers", "delete"):
        if runs:
            refuse(f'cannot delete a non stopped container: "{name}"')
        record.unlink()
    elif (kind, action) in (("tasks", "delete"), ("tasks", "kill")):
        if action == "delete" and runs and "--force" not in rest:
            refuse(f'task must be stopped before deletion: "{name}"')
        if runs:
            os.kill(machine, signal.SIGKILL)
        if action == "delete":
            record.write_text(json.dumps({"pid": 0}))
    elif (kind, action) != ("containers", "info"):
        refuse(f"No help topic for '{action}'")
    return 0


def main(state: Path, words: list[str]) -> int:
    """Play one call."""
    if words == ["--version"]:
        print("ctr github.com/containerd/containerd 1.7.99")
        return 0
    if words[:2] != ["--namespace", "tare"]:
        refuse("played: these containers are in the namespace tare")
    return run(state, words[3:]) if words[2] == "run" else handle(state, words[2:])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
