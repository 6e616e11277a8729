"""Containers in virtual machines: what ctr and Kata get, and a machine's life."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tare.errors import InputError, MachineFault
from tare.hosts import Ledger, LocalHost
from tare.hosts.trace.threads import allowed_cpus
from tare.images.cache import default_cache
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.oci import kata
from tare.platforms.oci.kata import KataMachine, sized, vcpus_in
from tare.platforms.oci.options import OciOptions
from tare.platforms.oci.platform import Oci
from tare.testing.conformance import PlatformCases

OCI = Oci()
TESTS = Path(__file__).parents[1]
MIB = 1 << 20
CONFIGURATION = """
[hypervisor.qemu]
path = "/opt/kata/bin/qemu-system-x86_64"
# default_vcpus is a comment here
default_vcpus = 1
  default_memory = 2048
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")


def play(where: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a ctr and a shim that are played first in PATH; return what has ctr's containers."""
    folder, state = where / "bin", where / "state"
    folder.mkdir()
    state.mkdir()
    (where / "configuration.toml").write_text(CONFIGURATION)
    played = shlex.join([sys.executable, "-m", "platforms.kata_played", str(state)])
    shim = "echo 'Kata Containers containerd shim: id: \"io.containerd.kata.v2\", version: 3.99.0'"
    scripts = {
        "ctr": f'PYTHONPATH={TESTS} exec {played} "$@"',
        "containerd-shim-kata-v2": shim,
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return state


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ctr and a shim that are played; the containers that ctr knows are files of this folder."""
    return play(tmp_path, monkeypatch)


@pytest.fixture
def options(tmp_path: Path) -> OciOptions:
    return OciOptions(runtime="kata", kata_config=str(tmp_path / "configuration.toml"))


class TestKata(PlatformCases):
    platform = OCI
    options = OciOptions(runtime="kata")
    killed_words = "ctr returned 255"

    @pytest.fixture(scope="class")
    @classmethod
    def context(
        cls, tmp_path_factory: pytest.TempPathFactory, agent_program: Path
    ) -> Iterator[Context]:
        folder = tmp_path_factory.mktemp("kata")
        configured = str(folder / "configuration.toml")
        cls.options = OciOptions(runtime="kata", kata_config=configured)
        with pytest.MonkeyPatch.context() as patched, Ledger(folder / "ledger") as ledger:
            state = play(folder, patched)
            yield Context(LocalHost(agent_program), ledger, default_cache(), agent_program)
            assert not list(state.iterdir())


def spec_of(tmp_path: Path, **more: Any) -> MachineSpec:
    given = {"shape": Shape(1, 512 * MIB), "cpus": (), "realtime": False, **more}
    name = f"tare-test-{os.getpid()}-kata"
    return MachineSpec(name=name, workdir=tmp_path / "machine", **given)


async def start(context: Context, options: OciOptions, spec: MachineSpec) -> KataMachine:
    prepared = await OCI.prepare(context, options, spec.shape, False)
    assert prepared.kernel == os.uname().release
    machine = await OCI.start(context, options, prepared, spec)
    assert isinstance(machine, KataMachine)
    return machine


async def test_missing_programs_are_reported_with_the_remedy(
    context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for tool in ("sh", "id", "env", "test"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    verdict = await OCI.check(context, OciOptions(runtime="kata"))
    assert verdict.reason == "Kata's shim, containerd-shim-kata-v2, is not installed"
    assert "kata-containers/releases" in verdict.hint
    (tmp_path / "containerd-shim-kata-v2").symlink_to("/bin/true")
    verdict = await OCI.check(context, OciOptions(runtime="kata"))
    assert verdict.reason == "containerd's client, ctr, is not installed"
    assert "containerd" in verdict.hint
    (tmp_path / "ctr").symlink_to("/bin/true")
    verdict = await OCI.check(context, OciOptions(runtime="kata", kata_config="/tare-none.toml"))
    assert verdict.reason == "there is no configuration of Kata, /tare-none.toml"


@pytest.mark.usefixtures("state")
async def test_a_check_runs_a_container(
    context: Context, options: OciOptions, tmp_path: Path
) -> None:
    verdict = await OCI.check(context, options)
    assert verdict.usable, verdict.hint
    assert verdict.reason == f"Kata 3.99.0 ran a container on Linux {os.uname().release}"
    assert verdict.versions["containerd"] == "1.7.99"
    assert not verdict.capabilities.disk and not verdict.capabilities.knobs
    (tmp_path / "bin" / "containerd-shim-kata-v2").chmod(0o644)
    assert not (await OCI.check(context, options)).usable
    assert not context.ledger.open_entries()


async def test_a_machine_has_its_size_and_its_cpus(
    context: Context, options: OciOptions, state: Path, tmp_path: Path
) -> None:
    online = context.host.topology().online
    spec = spec_of(tmp_path, cpus=(online[-1],))
    machine = await start(context, options, spec)
    try:
        hello = await machine.ready(30)
        assert hello.proof["topology"]["usable"]
        (vcpu,) = await machine.vcpu_threads()
        assert await allowed_cpus(context.host, vcpu) == (online[-1],)
        assert "vcpu0_run_delay_s" in await machine.host_cost()
        assert not machine.shares_clock
        container = json.loads((spec.workdir / "config.json").read_text())
        assert container["linux"]["resources"] == {} and container["linux"]["devices"] == []
        configured = (spec.workdir / "kata.toml").read_text()
        assert f"default_memory = {spec.shape.memory >> 20}\n" in configured
        assert {"kata-container", "cgroup"} <= {e.kind for e in context.ledger.open_entries()}
    finally:
        await machine.stop()
    assert not list(state.iterdir()) and not spec.workdir.exists()
    assert not context.ledger.open_entries()


async def test_a_machine_of_another_size_is_refused(
    context: Context,
    options: OciOptions,
    state: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kata, "sized", lambda text, shape: text)
    machine = await start(context, options, spec_of(tmp_path))
    try:
        with pytest.raises(MachineFault, match=r"at most 512 MiB were asked for"):
            await machine.ready(30)
    finally:
        await machine.stop()
    assert not list(state.iterdir())


@pytest.mark.parametrize("killed", ["machine", "ctr"])
async def test_a_killed_machine_leaves_nothing_behind(
    context: Context, options: OciOptions, state: Path, tmp_path: Path, killed: str
) -> None:
    spec = spec_of(tmp_path)
    machine = await start(context, options, spec)
    try:
        await machine.ready(30)
        if killed == "machine":
            os.kill(int((spec.workdir / "pid").read_text()), signal.SIGKILL)
        else:
            os.kill(machine._process.pid, signal.SIGKILL)
        fault = await asyncio.wait_for(machine.died, 20)
        words = {"machine": "ended unexpectedly: ctr returned 255", "ctr": "killed by signal 9"}
        assert words[killed] in fault.message
    finally:
        await machine.stop()
    assert not list(state.iterdir())
    assert not context.ledger.open_entries()


async def test_resources_left_by_a_killed_run_are_removed(
    context: Context, options: OciOptions, state: Path, tmp_path: Path
) -> None:
    machine = await start(context, options, spec_of(tmp_path))
    try:
        await machine.ready(30)
        (entry,) = [e for e in context.ledger.open_entries() if e.kind == "kata-container"]
        removed = await OCI.undoers["kata-container"](context.host, entry)
        assert removed == f"Removed Kata container {machine.name}."
        assert not list(state.iterdir())
    finally:
        await machine.stop()


def test_the_player_refuses_what_ctr_refuses(state: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    config = ("--config", str(tmp_path / "config.json"))
    calls = {
        ("--bogus", *config, "a"): "flag provided but not defined",
        (*config, "a", "b"): "only container id should be provided",
        ("image", "a"): "image ref must be provided",
        (*config, "--rm", "--detach", "a"): "cannot be specified together",
        (*config, "--runtime", "/tare-none", "a"): "failed to resolve runtime path",
    }
    for words, refusal in calls.items():
        argv = [str(tmp_path / "bin" / "ctr"), "--namespace", "tare", "run", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode and refusal in done.stderr


def test_a_configuration_is_sized() -> None:
    text = sized(CONFIGURATION, Shape(3, 512 * MIB))
    assert "\ndefault_vcpus = 3\n" in text and "\n  default_memory = 512\n" in text
    with pytest.raises(InputError, match="sets default_memory 0 times"):
        sized("default_vcpus = 1\n", Shape(1, 512 * MIB))


@pytest.mark.parametrize(
    "names",
    [
        {7: "qemu-system-x86", 9: "CPU 1/KVM", 8: "CPU 0/KVM"},
        {7: "vmm", 8: "vcpu0", 9: "vcpu1"},
        {7: "firecracker", 8: "fc_vcpu 0", 9: "fc_vcpu 1"},
        {7: "containerd-shim", 8: "db_vcpu0", 9: "db_vcpu1"},
    ],
)
def test_vcpus_are_known_by_their_threads_names(names: dict[int, str]) -> None:
    assert vcpus_in(names, 2) == (8, 9)
    assert vcpus_in(names, 3) == ()


@pytest.mark.parametrize(
    "given",
    [
        {"runtime": "kata", "seccomp": "docker"},
        {"runtime": "kata", "rootless": True},
        {"runtime": "runc", "kata_config": "/x"},
    ],
)
def test_options_that_kata_does_not_have_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Kata"):
        OciOptions.model_validate(given)


def test_a_named_configuration_is_access_to_the_host() -> None:
    options = OciOptions(runtime="kata", kata_config="/etc/kata.toml")
    (access,) = OCI.host_access(options)
    assert (access.option, access.value) == ("kata-config", "/etc/kata.toml")
    assert OCI.describe(options) == "container in a virtual machine (Kata)"
