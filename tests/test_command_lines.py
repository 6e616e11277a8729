"""Names from a study that reach other programs' command lines are names there, and no options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from tare.errors import InputError
from tare.hosts import LocalHost
from tare.images.packages import kernel_packages, require_kernel
from tare.images.toolbox.packages import unknown_packages
from tare.platforms.linux.preflight import preflight
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.xen.options import XenOptions
from tare.study.reading.hosting import GrubEntry
from tare.workloads.applications.kernel_compile import KernelCompile, KernelCompileParameters

OPTIONS = ["--help", "-rf", "-oDebug::pkgProblemResolver=yes", "--", "-"]


@pytest.mark.parametrize("name", OPTIONS)
async def test_a_kernel_name_is_not_taken_for_an_option_of_apt(name: str) -> None:
    host = LocalHost()
    with pytest.raises(InputError, match="no package"):
        await require_kernel(host, name)
    with pytest.raises(InputError, match="no package"):
        await kernel_packages(host, name)


async def test_a_toolbox_package_is_not_taken_for_an_option_of_apt() -> None:
    names = [name for name in OPTIONS if name != "--"]
    assert await unknown_packages(LocalHost(), names) == tuple(sorted(names))


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    ("model", "key"),
    [(GrubEntry, "entry"), (QemuOptions, "cpu"), (XenOptions, "cpupool")],
)
def test_a_name_that_looks_like_an_option_is_refused(
    model: type[BaseModel], key: str, name: str
) -> None:
    with pytest.raises(ValidationError):
        model.model_validate({key: name})


@pytest.mark.parametrize("target", [*OPTIONS, "CC=evil", "--eval=$(shell id)"])
def test_a_target_is_not_taken_for_an_option_of_make(target: str) -> None:
    with pytest.raises(ValidationError):
        KernelCompileParameters.model_validate({"targets": [target]})


def test_targets_come_behind_the_end_of_options() -> None:
    asked = KernelCompileParameters.model_validate({"targets": ["lib/", "arch/x86/boot/bzImage"]})
    steps: list[dict[str, Any]] = KernelCompile().request(asked)["steps"]
    (step,) = steps
    assert step["argv"][2].endswith(' -- "$@"')
    assert step["argv"][-2:] == ["lib/", "arch/x86/boot/bzImage"]


@pytest.mark.parametrize("name", ["-rf", "--help"])
async def test_a_folder_may_be_called_like_an_option(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    checks = await preflight(LocalHost(), Path(name))
    (disk,) = [check for check in checks if check.name == "disk"]
    assert "MiB free" in disk.found


def test_a_boot_entry_keeps_its_usual_names() -> None:
    for entry in ("0", "Debian GNU/Linux, with Xen 4.17", "1>2", "osprober-gnulinux-simple-ab-cd"):
        assert GrubEntry(entry=entry).entry == entry
