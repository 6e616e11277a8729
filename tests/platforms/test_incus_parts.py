"""An instance is asked for as an arm says it; what a server answers is read, whatever it is."""

from __future__ import annotations

import io
import json
import socket
import tarfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tare.errors import InputError, MachineFault
from tare.identity import identity
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.incus.client import Response, answer_of, ended, failed
from tare.platforms.incus.instance import (
    container,
    cost_in,
    differing,
    limits_of,
    project_of,
    virtual_machine,
)
from tare.platforms.incus.options import IncusOptions, client_certificate
from tare.platforms.incus.parcels import container_image, volume_backup
from tare.platforms.incus.platform import Incus
from tare.platforms.incus.server import Server, facts_of, threads_in
from tare.platforms.vendors.platform import ServerFindings
from tare.platforms.vendors.session import NoSuchObject, RequestRefused

MIB = 1 << 20
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        *("type", "metadata", "operation", "error", "error_code", "status", "status_code", "err"),
        *("environment", "driver", "driver_version", "server", "cpu", "memory", "usage", "pid"),
        *("expanded_config", "expanded_devices"),
    ]
)
ANSWERS = st.dictionaries(
    KEYS,
    JSON
    | st.sampled_from(["sync", "async", "error", "/1.0/operations/a?project=b", "lxc | qemu"])
    | st.dictionaries(KEYS, JSON, max_size=3),
    max_size=6,
)


def options(**settings: Any) -> IncusOptions:
    return IncusOptions.model_validate({"type": "container", **settings})


def vm(**settings: Any) -> IncusOptions:
    return options(type="vm", image="tare-live", callback="192.0.2.7:0", **settings)


def spec(cpus: tuple[int, ...] = (), vcpus: int = 1, role: str = "subject") -> MachineSpec:
    shape = Shape(vcpus, 256 * MIB)
    return MachineSpec(f"tare-t-1-{role}", shape, cpus, Path("/w"), False, role=role)


@pytest.mark.fuzz
@given(st.integers(100, 599), st.binary(max_size=60) | ANSWERS.map(json.dumps).map(str.encode))
def test_any_response_is_an_answer_or_a_fault(status: int, content: bytes) -> None:
    with suppress(MachineFault):
        assert isinstance(answer_of(status, content), Response)


@pytest.mark.fuzz
@given(ANSWERS | JSON)
def test_any_answer_of_a_server_is_read_without_error(reply: Any) -> None:
    with suppress(MachineFault):
        assert ended(reply) in (True, False)
    assert facts_of(reply).version
    assert threads_in(reply) in ("", "on", "off")
    if isinstance(reply, dict):
        assert all(value > 0 for value in cost_in(reply).values())
        assert differing({"config": {"limits.cpu": "1"}, "devices": {}}, reply)


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (
            {"type": "error", "error_code": 404, "error": "Instance not found"},
            NoSuchObject,
            "not found",
        ),
        (
            {"type": "error", "error_code": 403, "error": "not authorized"},
            RequestRefused,
            "refused",
        ),
        ({"type": "error", "error_code": 400, "error": "Instance is busy"}, RequestRefused, "busy"),
        ({"type": "error", "error_code": 400, "error": "No\nroot device"}, MachineFault, "No root"),
        ({"type": "async", "operation": "elsewhere"}, MachineFault, "which operation"),
        ({"hello": "world"}, MachineFault, "neither Incus nor LXD"),
    ],
)
def test_refusal_of_a_server_is_reported_in_its_words(
    content: dict[str, Any], kind: type[MachineFault], words: str
) -> None:
    with pytest.raises(kind, match=words) as found:
        status = 202 if content.get("type") == "async" else 400
        answer_of(status, json.dumps(content).encode())
    assert type(found.value) is kind


def test_failed_operation_reports_its_reason() -> None:
    assert not ended({"status_code": 103})
    assert ended({"status_code": 200})
    with pytest.raises(MachineFault, match="no space"):
        ended({"status_code": 400, "err": "no space left"})
    assert isinstance(failed(409, "twice"), RequestRefused)


def test_product_and_version_of_a_server_are_read() -> None:
    env = {
        "server": "lxd",
        "server_version": "5.0.2",
        "driver": "qemu | lxc",
        "driver_version": "7.2.22 | 5.0.2",
        "kernel_version": "6.1.0",
        "kernel_architecture": "x86_64",
    }
    facts = facts_of({"environment": env})
    assert (facts.product, facts.version) == ("LXD", "5.0.2")
    assert facts.drivers == {"qemu": "7.2.22", "lxc": "5.0.2"}
    assert facts_of({"environment": {"server": "incus"}}).product == "Incus"


@pytest.mark.parametrize(
    ("cpus", "vcpus", "words"),
    [((), 2, "2"), ((3,), 1, "3-3"), ((3,), 2, "3-3"), ((3, 1), 2, "1,3"), ((4, 5, 6), 2, "4,5")],
)
def test_cpus_are_pinned_by_range_and_counted_otherwise(
    cpus: tuple[int, ...], vcpus: int, words: str
) -> None:
    assert limits_of(options(), spec(cpus, vcpus))["limits.cpu"] == words


def test_two_vcpus_of_a_vm_do_not_share_a_cpu() -> None:
    with pytest.raises(InputError, match="a CPU of its own"):
        limits_of(vm(), spec((3,), 2))


def test_a_container_is_asked_for_as_the_arm_says() -> None:
    wanted = options(
        privileged=True,
        scheduling={"cap": 0.5, "period": "20ms"},
        extra_config={"raw.lxc": "lxc.prlimit.nofile = 99"},
    )
    asked = container(wanted, spec((1,)), "pool", "f00d", "192.0.2.7:4")
    assert asked["type"] == "container" and asked["profiles"] == []
    config, devices = asked["config"], asked["devices"]
    assert config["limits.cpu.allowance"] == "10ms/20ms"
    assert config["limits.memory"] == str(256 * MIB)
    assert config["security.privileged"] == "true"
    assert config["raw.lxc"].splitlines()[1:] == ["lxc.prlimit.nofile = 99"]
    assert devices["root"]["pool"] == "pool"
    assert devices["tare"]["connect"] == "tcp:192.0.2.7:4"
    neighbour = container(wanted, spec(role="neighbour-1"), "pool", "f00d", "192.0.2.7:4")
    assert "limits.cpu.allowance" not in neighbour["config"]
    # Each server refuses the other's name of it.
    of_incus = container(wanted, spec(), "pool", "f00d", "192.0.2.7:4", product="Incus")
    assert config["security.devlxd"] == of_incus["config"]["security.guestapi"] == "false"
    assert not {"security.devlxd"} & of_incus["config"].keys()


def test_a_weight_is_the_subjects_percentage() -> None:
    scheduled = options(scheduling={"weight": 50})
    assert limits_of(scheduled, spec())["limits.cpu.allowance"] == "50%"
    assert "limits.cpu.allowance" not in limits_of(scheduled, spec(role="neighbour-1"))


def test_hyper_threading_is_what_the_cores_have() -> None:
    def resources(*cores: int) -> dict[str, Any]:
        listed = [{"threads": [{"id": n} for n in range(threads)]} for threads in cores]
        return {"cpu": {"sockets": [{"cores": listed}], "total": sum(cores)}}

    found = [threads_in(resources(*cores)) for cores in ((2, 2), (1, 1), ())]
    assert [*found, threads_in({"cpu": {}})] == ["on", "off", "", ""]


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        ({"restricted": False}, "trusts, not restricted to projects"),
        ({"restricted": True}, "trusts, restricted to projects"),
        (None, "a client's certificate that the server trusts"),
    ],
)
async def test_rights_of_a_certificate_are_those_at_the_server(
    certificate: dict[str, Any] | None, words: str
) -> None:
    class AnsweringSession:
        host, name = None, "a server"

        async def ask(self, method: str, path: str) -> Any:
            if path == "/1.0":
                return {"auth_user_name": "f00d"}
            if certificate is None:
                raise NoSuchObject("no such certificate")
            return {"/1.0/certificates/f00d": certificate}[path]

    session: Any = AnsweringSession()
    (rights,) = await Server(session).rights()
    assert rights.endswith(words)


async def test_a_container_that_just_ends_is_asked_for_again() -> None:
    class Ending:
        host, name = None, "a server"

        def __init__(self, *answers: Any) -> None:
            self.answers = [*answers]

        async def ask(self, method: str, path: str) -> Any:
            answer = self.answers.pop(0)
            if isinstance(answer, MachineFault):
                raise answer
            return answer

    session: Any = Ending(MachineFault("Invalid PID '\ufffd'"), {"status": "Stopped"})
    assert await Server(session).state("p", "n") == {"status": "Stopped"}
    session = Ending(MachineFault("another fault"), {})
    with pytest.raises(MachineFault, match="another fault"):
        await Server(session).state("p", "n")


def test_a_vm_is_asked_for_as_the_arm_says() -> None:
    nic = {"type": "nic", "network": "br"}
    wanted = vm(
        accelerator="tcg",
        hugepages=True,
        secure_boot=False,
        extra_config={"raw.qemu": "-no-hpet", "raw.qemu.conf": '[device "x"]'},
    )
    asked = virtual_machine(wanted, spec((1,)), "pool", "f00d", nic)
    config = asked["config"]
    assert asked["type"] == "virtual-machine"
    assert config["limits.memory.hugepages"] == "true"
    assert config["security.secureboot"] == "false"
    assert config["raw.qemu"] == "-cpu max -no-hpet"
    assert 'accel = "tcg"' in config["raw.qemu.conf"] and '[device "x"]' in config["raw.qemu.conf"]
    assert asked["devices"]["eth0"] == nic
    plain = virtual_machine(vm(), spec(), "pool", "f00d", nic)["config"]
    assert "raw.qemu" not in plain and plain["security.secureboot"] == "true"


def test_settings_that_differ_from_the_request_are_reported() -> None:
    wanted = {"config": {"limits.cpu": "1-1"}, "devices": {"root": {"pool": "p"}}}
    found = {"expanded_config": {"limits.cpu": "2"}, "expanded_devices": {"root": {"pool": "p"}}}
    assert differing(wanted, found) == "limits.cpu was to be 1-1, but the server reports 2"
    same = {f"expanded_{part}": values for part, values in wanted.items()}
    assert differing(wanted, same) == ""


def test_the_uploaded_image_is_an_archive_in_the_servers_form() -> None:
    image = container_image(b"agent", "x86_64")
    assert image == container_image(b"agent", "x86_64")
    with tarfile.open(fileobj=io.BytesIO(image)) as archive:
        assert archive.getmember("rootfs/sbin/init").mode & 0o111
        assert archive.getmember("rootfs/proc").isdir()
        metadata = archive.extractfile("metadata.yaml")
        assert metadata is not None and b"architecture: x86_64" in metadata.read()
    with tarfile.open(fileobj=io.BytesIO(volume_backup("cfg", "pool", b"x" * 4096))) as archive:
        index = archive.extractfile("backup/index.yaml")
        assert index is not None and b"content_type: block" in index.read()
        assert archive.getmember("backup/volume.img").size == 4096


def test_projects_have_short_names_of_their_own() -> None:
    names = {project_of(f"tare-a-{number}-subject") for number in range(100)}
    assert len(names) == 100
    assert all(name.startswith("tare-") and len(name) < 20 for name in names)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"image": "x"}, "`image` is of VMs"),
        ({"accelerator": "tcg"}, "`accelerator` is of VMs"),
        ({"hugepages": True}, "`hugepages` is of VMs"),
        ({"type": "vm", "privileged": True}, "`privileged` is of containers"),
        ({"type": "vm", "scheduling": {"cap": 1}}, "cap containers only"),
        ({"scheduling": {"weight": 50, "cap": 0.5}}, "either a weight or a cap"),
        ({"scheduling": {"nice": 2}}, "`nice` is not supported"),
        ({"address": "a", "socket": "/s"}, "either an `address` or a `socket`"),
        ({"ca": "f"}, "goes with an `address`"),
        ({"address": "https://a"}, "`a`"),
        ({"socket": "unix.socket"}, "a whole path"),
        ({"extra_config": {"limits.cpu": "1"}}, "is set by Tare"),
        ({"extra_config": {"user.x": "1"}}, "a configuration key"),
    ],
)
def test_incompatible_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        options(**settings)


def test_incomplete_arm_names_what_to_add() -> None:
    assert list(options().faults(True)) == []
    assert list(vm().faults(True)) == []
    faults = dict(options(type="vm").faults(True))
    assert (
        "guests reach themselves by 127.0.0.1" in faults["callback"] or "add" in faults["callback"]
    )
    assert "tare-live" in faults["image"]
    far = dict(options(address="far.example").faults(True))
    assert {"callback", "credentials"} == set(far)


def test_a_client_s_certificate_is_for_its_owner_s_eyes(tmp_path: Path) -> None:
    file = tmp_path / "client.pem"
    with pytest.raises(InputError, match="cannot be read"):
        client_certificate(str(file))
    file.write_text(identity("ecdsa-p256").pem)
    file.chmod(0o644)
    with pytest.raises(InputError, match="others may read"):
        client_certificate(str(file))
    file.chmod(0o600)
    client_certificate(str(file))
    file.write_text("nothing")
    with pytest.raises(InputError, match="not a client's certificate"):
        client_certificate(str(file))


async def test_where_no_server_listens_the_doctor_says_so(context: Context, tmp_path: Path) -> None:
    wanted = options(socket=str(tmp_path / "nobody.socket"))
    verdict = await Incus().check(context, wanted)
    assert not verdict.usable and "nobody.socket" in verdict.reason and verdict.hint


@contextmanager
def answering(folder: Path, content: bytes) -> Iterator[str]:
    """Answer every request on a socket by the same."""
    path = str(folder / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    caller, _ = server.accept()
                    with caller:
                        caller.recv(1 << 16)
                        caller.sendall(content)

        threading.Thread(target=serve, daemon=True).start()
        yield path
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "broke|no HTTP"),
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "neither Incus nor LXD"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 47\r\n\r\n"
            b'{"type":"sync","metadata":{"auth":"untrusted"}}',
            "does not trust",
        ),
    ],
)
async def test_a_server_that_does_not_trust_tare_is_reported(
    context: Context, tmp_path: Path, content: bytes, words: str
) -> None:
    with answering(tmp_path, content) as path:
        verdict = await Incus().check(context, options(socket=path))
    assert not verdict.usable
    assert any(word in verdict.reason for word in words.split("|")), verdict.reason


def test_description_names_only_special_settings() -> None:
    platform = Incus()
    description = platform.describe(options(privileged=True, extra_config={"raw.lxc": "a = b"}))
    assert (
        "container" in description
        and "host's root" in description
        and "raw.lxc: a = b" in description
    )
    description = platform.describe(vm(accelerator="tcg", secure_boot=False, hugepages=True))
    for word in ("virtual machine", "without KVM", "without Secure Boot", "huge pages"):
        assert word in description


def test_only_emulated_vms_are_stated_as_emulated() -> None:
    platform = Incus()
    assert platform.stated(vm(accelerator="tcg")).emulated
    assert not platform.stated(vm()).emulated
    assert platform.stated(options(address="a")).elsewhere
    assert not platform.stated(options()).elsewhere


PAGE = 2 << 20


@pytest.mark.parametrize(
    ("reported", "memories", "reason", "hint"),
    [
        ({}, (1 << 30,), "has no huge pages", "CONFIG_HUGETLBFS"),
        (
            {"hugepages_size": PAGE, "hugepages_total": 64 * PAGE, "hugepages_used": 4 * PAGE},
            (1 << 30, 1 << 30),
            "2 machines with 2 GiB of memory need 1024 huge pages of 2 MiB on the host of played, "
            "and 60 are free",
            "echo 1028 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        ),
        (
            {"hugepages_size": PAGE, "hugepages_total": 9999 * PAGE, "hugepages_used": 0},
            ((1 << 30) + 1,),
            "not a whole number of huge pages of 2 MiB",
            "give the shape",
        ),
        (
            {"hugepages_size": PAGE, "hugepages_total": 512 * PAGE, "hugepages_used": 0},
            (1 << 30,),
            "",
            "",
        ),
    ],
)
async def test_a_vm_whose_huge_pages_the_server_lacks_is_skipped_with_what_to_reserve(
    context: Context,
    monkeypatch: pytest.MonkeyPatch,
    reported: dict[str, int],
    memories: tuple[int, ...],
    reason: str,
    hint: str,
) -> None:
    class Session:
        name = "played"

        async def ask(self, method: str, path: str) -> Any:
            assert (method, path) == ("GET", "/1.0/resources")
            return {"memory": reported}

    @asynccontextmanager
    async def logged_in(*_: object) -> AsyncIterator[Any]:
        yield Session()

    async def look(*_: object) -> ServerFindings:
        return ServerFindings("played", {}, Incus().stated(vm()).capabilities)

    monkeypatch.setattr(Incus, "logged_in", logged_in)
    monkeypatch.setattr(Incus, "look", look)
    wanted = replace(context, memories=memories)
    verdict = await Incus().check(wanted, vm(hugepages=True))
    assert verdict.usable == (not reason), verdict.reason
    if reason:
        assert reason in verdict.reason and hint in verdict.hint and verdict.lasting
    assert (await Incus().check(wanted, vm())).usable
