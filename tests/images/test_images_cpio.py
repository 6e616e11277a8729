import random
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.images import cpio

NAMES = st.text("abcdefgh-_.", min_size=1, max_size=8).filter(lambda part: part not in {".", ".."})
FILES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=40), max_size=8
).filter(lambda held: not any(other.startswith(f"{path}/") for path in held for other in held))


def unpack(archive: bytes) -> list[tuple[str, list[int], bytes]]:
    """Read an archive by the kernel's description of the format, independently of the writer."""
    at = 0
    found: list[tuple[str, list[int], bytes]] = []
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * k : at + 14 + 8 * k], 16) for k in range(13)]
        name_at = at + 110
        name = archive[name_at : name_at + fields[11] - 1].decode()
        data_at = (name_at + fields[11] + 3) & ~3
        data = archive[data_at : data_at + fields[6]]
        at = (data_at + fields[6] + 3) & ~3
        if name == "TRAILER!!!":
            assert not archive[at:].strip(b"\0")
            return found
        found.append((name, fields, data))


@given(FILES, st.randoms(use_true_random=False))
def test_the_same_entries_give_the_same_bytes_in_any_order(
    files: dict[str, bytes], shuffler: random.Random
) -> None:
    entries = [cpio.file(path, data) for path, data in files.items()]
    shuffled = entries.copy()
    shuffler.shuffle(shuffled)
    assert cpio.archive(entries) == cpio.archive(shuffled)


@given(FILES)
def test_everything_is_in_it_after_its_directory(files: dict[str, bytes]) -> None:
    archive = cpio.archive(cpio.file(path, data) for path, data in files.items())
    assert len(archive) % 512 == 0
    found = unpack(archive)
    names = [name for name, _, _ in found]
    assert len(set(names)) == len(names)
    for number, (name, fields, data) in enumerate(found):
        parent = name.rpartition("/")[0]
        assert not parent or parent in names[:number]
        inode, mode, uid, gid, _, mtime = fields[:6]
        assert (inode, uid, gid, mtime) == (number + 1, 0, 0, 0)
        if stat.S_ISREG(mode):
            assert data == files[name]
    assert {name for name, fields, _ in found if stat.S_ISREG(fields[1])} == set(files)


def test_an_independent_program_reads_it(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(5000)
    archive = cpio.archive(
        [
            cpio.file("init", content, executable=True),
            cpio.file("etc/tare/modules", b"/lib/a.ko\n"),
            cpio.symlink("sbin", "bin"),
            cpio.character_device("dev/console", 5, 1),
        ]
    )
    subprocess.run(["busybox", "cpio", "-id"], input=archive, cwd=tmp_path, check=True)
    assert (tmp_path / "init").read_bytes() == content
    assert (tmp_path / "init").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "etc/tare/modules").read_text() == "/lib/a.ko\n"
    assert (tmp_path / "sbin").readlink().name == "bin"
    assert stat.S_ISCHR((tmp_path / "dev/console").stat().st_mode)


@pytest.mark.parametrize("path", ["", "/init", "a//b", "../x", "a/./b", "a\0b", "TRAILER!!!"])
def test_a_path_that_could_escape_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"path|archive"):
        cpio.archive([cpio.file(path, b"")])


def test_a_path_may_occur_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        cpio.archive([cpio.file("a", b"1"), cpio.file("a", b"2")])
