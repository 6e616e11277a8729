"""Containers without root: what they are given, who they are, and what is skipped for it."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.platforms.contract import Context, MachineSpec, Platform, Shape
from tare.platforms.doctor import examine
from tare.platforms.linux.process_machine import temporary_folder
from tare.platforms.oci.bundle import ContainerSpec, Device, configuration
from tare.platforms.oci.options import OciOptions
from tare.platforms.oci.platform import Oci
from tare.platforms.oci.rootless import NO_REALTIME, User
from tare.platforms.qemu.platform import Qemu
from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.preflight.unmet_needs import lacking
from tare.study.reading.load import load_study

OCI = Oci()
ROOTLESS = OciOptions(rootless=True)
FOR_REAL = [
    pytest.mark.container,
    pytest.mark.skipif(not shutil.which("runc"), reason="runc is not installed"),
]
STUDY = """
study: without-root
baseline: bare
blocks: {least: 2, most: 2}
arms:
  bare: {platform: bare}
  box: {platform: oci, rootless: true}
workloads: {tick: {}, switch: {}, wakeup: {}, numeric-sort: {}, fio: {}}
"""


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent_program), ledger, tmp_path / "cache", agent_program)
        assert ledger.open_entries() == ()


def test_nothing_is_in_it_that_only_root_can_give() -> None:
    spec = ContainerSpec("c", "/root", (1,), 64 << 20, devices=(Device("/dev/x", 1, 2),))
    made = configuration(ContainerSpec(**{**vars(spec), "user": 1234}))
    assert {"type": "user"} in made["linux"]["namespaces"]
    only = [{"containerID": 0, "hostID": 1234, "size": 1}]
    assert made["linux"]["uidMappings"] == made["linux"]["gidMappings"] == only
    assert not {"resources", "cgroupsPath", "devices"} & set(made["linux"])
    assert not any(made["process"]["capabilities"].values())
    assert "/sys/fs/cgroup" not in [mount["destination"] for mount in made["mounts"]]
    usual = configuration(spec)["linux"]
    assert {"resources", "cgroupsPath", "devices"} <= set(usual) and "uidMappings" not in usual


def test_the_runtime_itself_has_no_rights_either() -> None:
    state = Path("/run/x")
    own = User(1234, own=True).around(["runc"], (0, 2), state)
    assert own[:4] == ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups"]
    assert "--no-new-privs" in own and own[-4:] == ["taskset", "-c", "0,2", "runc"]
    assert "setpriv" not in User(1000, own=False).around(["runc"], (0,), state)


def test_gvisor_is_refused_without_root() -> None:
    with pytest.raises(ValidationError, match="leave rootless out"):
        OciOptions(runtime="runsc", rootless=True)


def test_workloads_that_need_real_time_priority_or_a_toolbox_are_skipped_with_the_reason(
    tmp_path: Path,
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    study = load_study(path, build_catalog())
    offered = OCI.stated(ROOTLESS).capabilities
    found = lacking(installed().workloads, study, "box", offered)
    for name in ("tick", "switch", "wakeup"):
        assert found[name] == f"{name} needs real-time priority: {NO_REALTIME}"
    assert "toolbox" in found["fio"] and "numeric-sort" not in found
    usual = OCI.stated(OciOptions()).capabilities
    assert not {"tick", "switch"} & set(lacking(installed().workloads, study, "box", usual))


class TestForReal:
    pytestmark = FOR_REAL

    async def test_rootless_container_runs_as_an_ordinary_user_and_leaves_nothing(
        self, context: Context, tmp_path: Path
    ) -> None:
        verdict = await OCI.check(context, ROOTLESS)
        assert verdict.usable, verdict
        name = f"tare-test-rootless-{os.getpid()}"
        spec = MachineSpec(name, Shape(1, 64 << 20), (0,), tmp_path / name, realtime=False)
        prepared = await OCI.prepare(context, ROOTLESS, spec.shape, False)
        machine = await OCI.start(context, ROOTLESS, prepared, spec)
        try:
            hello = await machine.ready(60)
            applied = machine.applied["runs_as"]
            assert applied["uid"] and (os.geteuid() or applied["uid"] >= 1_920_000_000)
            assert int(applied["capabilities"], 16) == 0 and applied["no_new_privileges"]
            assert hello.proof["kernel"]["release"] == os.uname().release
            outcome = await machine.agent.run("numeric-sort", {"seconds": 0.05}, deadline_s=60)
            assert outcome.value["verified"]
            (pid, *_) = await machine.threads()
            assert "Cpus_allowed_list:\t0\n" in Path(f"/proc/{pid}/status").read_text()
            assert (await machine.host_cost())["rss_bytes"] > 0
        finally:
            await machine.stop()
        assert not list(temporary_folder(context.host).glob(f"{name}*"))
        assert not Path(f"/proc/{pid}").exists()

    async def test_where_its_user_may_have_real_time_priority_nothing_is_skipped_for_it(
        self, context: Context
    ) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_RTPRIO)
        assert (await OCI.check(context, ROOTLESS)).capabilities.no_realtime == (
            "" if soft else NO_REALTIME
        )
        try:
            most = hard if hard == resource.RLIM_INFINITY else max(hard, 1)
            resource.setrlimit(resource.RLIMIT_RTPRIO, (1, most))
        except (OSError, ValueError):
            pytest.skip("this user may not raise the limit")
        try:
            assert (await OCI.check(context, ROOTLESS)).capabilities.no_realtime == ""
        finally:
            resource.setrlimit(resource.RLIMIT_RTPRIO, (soft, hard))

    async def test_the_doctor_says_who_runs_and_why(self, context: Context) -> None:
        platforms: dict[str, Platform[Any]] = {"oci": OCI, "qemu": Qemu()}
        # The guest that KVM is tried with is kept with those of other tests.
        context = replace(context, cache=default_cache())
        found = {each.variant: each for each in await examine(context, platforms)}
        words = found["rootless"].runs_as
        assert "in a user namespace of its own" in words
        assert found["runc"].runs_as.startswith("root, which control groups")
        root = os.geteuid() == 0
        runs_as = found["tcg"].runs_as
        assert ("a user of its own" in runs_as and "no guest is trusted" in runs_as) or (
            "as Tare itself" in runs_as and (not root or ":" in runs_as)
        )


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed")
@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("cgroups in hybrid mode not supported", "apt-get install --no-remove runc"),
        ("setresuid: Operation not permitted", "unshare --user"),
    ],
)
async def test_refusal_of_a_runtime_is_reported_in_its_words(
    context: Context, monkeypatch: pytest.MonkeyPatch, words: str, advice: str
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        refusing = Path(place) / "crun"
        refusing.write_text(
            '#!/bin/sh\n[ "$1" != --version ] || { echo "crun version 1.8.1"; exit; }\n'
            f"echo '{words}' >&2\nexit 1\n"
        )
        for path in (Path(place), refusing):
            path.chmod(0o755)
        monkeypatch.setenv("PATH", place, prepend=":")
        refused = await OCI.check(context, OciOptions(rootless=True, runtime="crun"))
    assert not refused.usable and "crun 1.8.1 does not run" in refused.reason
    assert advice in refused.hint and words in refused.hint, refused.hint
