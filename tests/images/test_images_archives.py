"""Packages of another release: asked for with lists of Tare's own, verified by Debian's keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from images import images_fakes as fakes
from images.test_images_kernels import package
from tare.errors import InputError
from tare.hosts import Completed
from tare.images import archives
from tare.images.archives import MIRROR, OWN, Archive, archive_of, kept_archive
from tare.images.cache import KEPT_DAYS
from tare.images.packages import kernel_packages, require_kernel

BOOKWORM = {"/etc/os-release": b'ID=debian\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian 12"\n'}
UBUNTU = {"/etc/os-release": b"ID=ubuntu\nVERSION_CODENAME=noble\nPRETTY_NAME=Ubuntu\n"}
TARGETS = b"""Packages bookworm main http://mirror.example/debian/
Packages bookworm-security main http://mirror.example/debian-security/
Packages bookworm-updates main http://mirror.example/debian/
Packages other main http://vendor.example/
"""


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    keyring = tmp_path / "keyring.gpg"
    keyring.write_bytes(b"")
    monkeypatch.setattr(archives, "KEYRING", keyring)
    return keyring


def apt(cache: Path, *, works: bool = True) -> Callable[[Sequence[str]], Completed]:
    """Answer as apt does: an update leaves lists in the folder that its options name."""

    def answer(argv: Sequence[str]) -> Completed:
        if "indextargets" in argv:
            return Completed(0, TARGETS, b"")
        if "update" in argv and works:
            (option,) = (word for word in argv if word.startswith("Dir::State::Lists="))
            (Path(option.partition("=")[2]) / "mirror_Packages").write_bytes(b"")
            return Completed(0, b"", b"")
        return Completed(100, b"", b"E: it does not answer")

    return answer


async def test_the_computers_own_release_is_its_own_lists(tmp_path: Path) -> None:
    host = fakes.FakeHost(apt(tmp_path), BOOKWORM)
    assert await archive_of(host, None, tmp_path) is OWN
    assert await archive_of(host, "bookworm", tmp_path) is OWN
    assert host.asked == []


async def test_another_release_is_asked_at_the_same_mirrors_and_once(
    tmp_path: Path, keys: Path
) -> None:
    host = fakes.FakeHost(apt(tmp_path), BOOKWORM)
    assert await kept_archive(host, "trixie", tmp_path) is None
    archive = await archive_of(host, "trixie", tmp_path)
    sources = (tmp_path / "apt" / "trixie" / "sources.list").read_text().splitlines()
    assert sources == [
        f"deb [signed-by={keys}] http://mirror.example/debian/ trixie main",
        f"deb [signed-by={keys}] http://mirror.example/debian-security/ trixie-security main",
    ]
    assert archive.state()
    assert archive.note("rt") != OWN.note("rt") == "rt.json"
    assert await archive_of(host, "trixie", tmp_path) == archive
    assert await kept_archive(host, "trixie", tmp_path) == archive
    assert sum("update" in argv for argv in host.asked) == 1
    # Lists of more than a month ago are fetched again.
    long_ago = (archive.lists.parent / "fetched").stat().st_mtime - (KEPT_DAYS + 1) * 86400
    os.utime(archive.lists.parent / "fetched", (long_ago, long_ago))
    await archive_of(host, "trixie", tmp_path)
    assert sum("update" in argv for argv in host.asked) == 2


async def test_another_distribution_gets_the_mirror_in_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = fakes.FakeHost(apt(tmp_path), UBUNTU)
    monkeypatch.delenv(MIRROR, raising=False)
    with pytest.raises(InputError, match="knows no mirror of Debian") as caught:
        await archive_of(host, "bookworm", tmp_path)
    assert "set TARE_DEBIAN_MIRROR" in caught.value.hint
    monkeypatch.setenv(MIRROR, "http://near.example/debian/")
    assert (await archive_of(host, "bookworm", tmp_path)).release == "bookworm"
    sources = (tmp_path / "apt" / "bookworm" / "sources.list").read_text()
    assert "http://near.example/debian/ bookworm main" in sources
    assert "vendor.example" not in sources


async def test_without_lists_or_keys_the_message_names_the_remedy(
    tmp_path: Path, keys: Path
) -> None:
    host = fakes.FakeHost(apt(tmp_path, works=False), BOOKWORM)
    with pytest.raises(InputError, match=r"Debian 13 \(trixie\): E: it does not answer") as caught:
        await archive_of(host, "trixie", tmp_path)
    assert "leave `release` out" in caught.value.hint
    assert await kept_archive(host, "trixie", tmp_path) is None
    keys.unlink()
    with pytest.raises(InputError, match="keys by which packages") as caught:
        await archive_of(host, "trixie", tmp_path)
    assert "apt-get install --no-remove debian-archive-keyring" in caught.value.hint


async def test_a_releases_kernel_comes_from_its_lists_regardless_of_the_host(
    tmp_path: Path,
) -> None:
    asked = ("-o", f"Dir::State::Lists={tmp_path}")
    archive = Archive("trixie", asked, tmp_path)
    held = {
        "linux-image-amd64": package("linux-image-amd64", "linux-image-6.12-amd64 (= 1-1)"),
        "linux-image-6.12-amd64": package("linux-image-6.12-amd64", "kmod", 400_000),
    }

    def answer(argv: Sequence[str]) -> Completed:
        match argv:
            case ["dpkg", *_]:
                return Completed(0, b"amd64\n", b"")
            case ["apt-cache", "-o", option, "show", *_, name] if name in held:
                assert option == asked[1]
                return Completed(0, held[name].encode(), b"")
            case _:
                return Completed(100, b"", b"E: nothing")

    host = fakes.FakeHost(answer, UBUNTU)
    found = await kernel_packages(host, "generic", archive)
    assert [part.name for part in found] == ["linux-image-6.12-amd64"]
    (tmp_path / "mirror_Packages").write_bytes(b"")
    with pytest.raises(InputError, match=r"Debian 13 \(trixie\) has no package"):
        await require_kernel(host, "linux-image-none", archive)
    assert not any("update" in argv for argv in host.asked)
