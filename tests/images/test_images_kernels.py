import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from images import images_fakes as fakes
from tare.errors import InputError
from tare.hosts import Completed, LocalHost
from tare.images.archives import Archive
from tare.images.kernels import find_kernel, missing_kernels, version_of
from tare.images.packages import kernel_packages

DEBIAN = {"/etc/os-release": b'ID=debian\nPRETTY_NAME="Debian 12"\n'}
UBUNTU = {"/etc/os-release": b'ID=ubuntu\nID_LIKE=debian\nPRETTY_NAME="Ubuntu 24.04"\n'}


def package(name: str, depends: str = "", size: int = 9) -> str:
    return (
        f"Package: {name}\nVersion: 1-1\nInstalled-Size: {size}\nDepends: {depends}\n"
        f"Description: x\n more: words\nSHA256: {name:0<64}\n"
    )


def archive(held: dict[str, str], *, root: bool = False) -> Callable[[Sequence[str]], Completed]:
    """Answer as apt does on a computer whose lists hold these packages."""

    def answer(argv: Sequence[str]) -> Completed:
        match argv:
            case ["dpkg", *_]:
                return Completed(0, b"amd64\n", b"")
            case ["id", "-u"]:
                return Completed(0, b"0\n" if root else b"1000\n", b"")
            case ["apt-cache", "show", "--no-all-versions", "--", name] if name in held:
                return Completed(0, held[name].encode(), b"")
            case ["apt-cache", "search", *_]:
                listed = "".join(f"{name} - Linux\n" for name in held)
                return Completed(0, listed.encode(), b"")
            case _:
                return Completed(100, b"", b"E: nothing")

    return answer


async def test_an_alias_leads_through_the_meta_package_to_the_kernel() -> None:
    held = {
        "linux-image-rt-amd64": package("linux-image-rt-amd64", "linux-image-6.1-rt-amd64 (= 1-1)"),
        "linux-image-6.1-rt-amd64": package("linux-image-6.1-rt-amd64", "kmod, a | b", 400_000),
    }
    found = await kernel_packages(fakes.FakeHost(archive(held), DEBIAN), "rt")
    assert [part.name for part in found] == ["linux-image-6.1-rt-amd64"]


async def test_on_ubuntu_the_modules_are_a_package_of_their_own() -> None:
    held = {
        "linux-image-generic": package(
            "linux-image-generic", "linux-image-6.8-generic, linux-modules-6.8-generic, thermald"
        ),
        "linux-image-6.8-generic": package(
            "linux-image-6.8-generic", "kmod, linux-modules-6.8-generic", 15_000
        ),
        "linux-modules-6.8-generic": package("linux-modules-6.8-generic", "", 150_000),
    }
    found = await kernel_packages(fakes.FakeHost(archive(held), UBUNTU), "generic")
    assert {part.name for part in found} == {
        "linux-image-6.8-generic",
        "linux-modules-6.8-generic",
    }


async def test_an_alias_without_a_package_says_which_kernels_there_are() -> None:
    held = {"linux-image-generic": package("linux-image-generic")}
    with pytest.raises(InputError) as error:
        await kernel_packages(fakes.FakeHost(archive(held), UBUNTU), "rt")
    assert "Ubuntu 24.04 has no package linux-image-realtime" in error.value.message
    assert "linux-image-generic" in error.value.hint


async def test_without_package_lists_the_hint_is_to_fetch_them() -> None:
    with pytest.raises(InputError, match="apt-get update"):
        await kernel_packages(fakes.FakeHost(archive({}), DEBIAN), "rt")


async def test_root_fetches_the_lists_once() -> None:
    host = fakes.FakeHost(archive({}, root=True), DEBIAN)
    with pytest.raises(InputError):
        await kernel_packages(host, "rt")
    assert sum(argv[:2] == ["apt-get", "update"] for argv in host.asked) == 1


async def test_a_host_without_packages_names_what_works_there() -> None:
    def answer(argv: Sequence[str]) -> Completed:
        raise InputError(f"there is no command {argv[0]}")

    host = fakes.FakeHost(answer, {"/etc/os-release": b"ID=fedora\nPRETTY_NAME=Fedora\n"})
    with pytest.raises(InputError, match=r"hypertare-images.*tare image import FILE.*kernel: host"):
        await kernel_packages(host, "rt")


async def test_a_kernel_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nope/vmlinuz cannot be read: No such file"):
        await find_kernel(LocalHost(), tmp_path / "nope" / "vmlinuz", tmp_path)


async def test_a_file_without_a_kernel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vmlinuz").write_text("no kernel")
    with pytest.raises(InputError, match="is not a Linux kernel"):
        await find_kernel(LocalHost(), tmp_path / "vmlinuz", tmp_path)


async def test_modules_are_found_next_to_a_file_or_reported_as_missing(tmp_path: Path) -> None:
    file = fakes.kernel_tree(tmp_path / "unpacked", {"virtio": []})
    found = await find_kernel(LocalHost(), str(file), tmp_path)
    assert found.version == fakes.VERSION
    assert found.modules == tmp_path / "unpacked" / "lib" / "modules" / fakes.VERSION
    alone = tmp_path / "vmlinuz"
    alone.write_bytes(file.read_bytes())
    (note,) = (await find_kernel(LocalHost(), alone, tmp_path)).notes
    assert "all must be built in" in note


def test_the_version_is_read_from_either_form() -> None:
    assert version_of(fakes.bzimage(b"x" * 100)) == fakes.VERSION
    assert version_of(fakes.pvh_kernel()) == fakes.VERSION
    assert version_of(b"nothing") is None


@pytest.mark.parametrize("lists", ["unchanged", "fetched again"])
async def test_a_kernel_that_the_same_lists_named_before_is_not_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lists: str
) -> None:
    own = Archive(lists=tmp_path / "lists")
    own.lists.mkdir()
    (own.lists / "debian_Packages").touch()
    monkeypatch.setattr("tare.images.archives.OWN", own)
    notes = tmp_path / "cache" / "kernels"
    notes.mkdir(parents=True)
    for name in ("rt", "generic"):
        note = {"lists": own.state(), "needs": "of another version of Tare", "key": "0" * 64}
        (notes / own.note(name)).write_text(json.dumps(note))
    if lists == "fetched again":
        os.utime(own.lists / "debian_Packages", ns=(1, 1))
    host = fakes.FakeHost(archive({}), DEBIAN)
    found = await missing_kernels(host, tmp_path / "cache", None)
    if lists == "fetched again":
        assert set(found.missing) == {"rt", "generic"}
    else:
        assert not found.missing and not host.asked
