"""``scripts/setup`` finds a Rust that can build the agent, and lists without changing anything."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.apt_root import LIBC, AptRoot

ROOT = Path(__file__).parents[2]
SETUP = ROOT / "scripts/setup"
# All programs that the functions call, so that this computer's own Rust is not found.
TOOLS = ("bash", "cut", "dirname", "env", "id", "sed", "sort")
BASH = shutil.which("bash")


class Computer:
    """A computer with these tools alone."""

    def __init__(self, folder: Path) -> None:
        self.programs, self.other = folder / "bin", folder / "other"
        self.installed = folder / "installed"
        for made in (self.programs, self.other):
            made.mkdir()
        for tool in TOOLS:
            (self.programs / tool).symlink_to(shutil.which(tool) or tool)

    def has_cargo(self, version: str, folder: Path) -> None:
        self._program(folder / "cargo", f"echo 'cargo {version} (0123abcd 2025-01-01)'")

    def does(self, function: str) -> subprocess.CompletedProcess[str]:
        """Call one function of the script."""
        return subprocess.run(
            [self.programs / "bash", "-c", f". {SETUP}; cargos=({self.other}/cargo); {function}"],
            env={"PATH": str(self.programs), "HOME": str(self.other)},
            capture_output=True,
            text=True,
            timeout=30,
        )

    @staticmethod
    def _program(path: Path, text: str) -> None:
        path.write_text(f"#!{BASH}\n{text}\n")
        path.chmod(0o755)


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    return Computer(tmp_path)


@pytest.mark.parametrize(
    ("version", "enough"), [("1.85.0", True), ("1.100.1", True), ("1.84.1", False)]
)
def test_a_cargo_on_the_path_is_taken_where_it_is_new_enough(
    computer: Computer, version: str, enough: bool
) -> None:
    computer.has_cargo(version, computer.programs)
    found = computer.does("find_cargo")
    assert found.stdout.strip() == (str(computer.programs) if enough else "")
    assert (found.returncode == 0) is enough


def test_a_newer_cargo_elsewhere_is_taken_before_an_old_one(computer: Computer) -> None:
    computer.has_cargo("1.63.0", computer.programs)
    computer.has_cargo("1.86.0", computer.other)
    assert computer.does("find_cargo").stdout.strip() == str(computer.other)


def test_setup_with_no_install_lists_and_changes_nothing(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    for part in ("scripts", "src/tare/__init__.py", "src/tare/programs.py", "agent/Cargo.toml"):
        source, copy = ROOT / part, clone / part
        copy.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)
    apt = AptRoot(tmp_path / "root")
    apt.installs(LIBC)
    before = sorted(path for path in clone.rglob("*") if "__pycache__" not in path.parts)
    done = subprocess.run(
        [str(clone / "scripts/setup"), "setup"],
        env={**apt.environment, "NO_INSTALL": "1", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing was changed" in done.stdout
    after = sorted(path for path in clone.rglob("*") if "__pycache__" not in path.parts)
    assert after == before


def test_no_script_installs_packages_in_a_way_of_its_own() -> None:
    """Every installation goes through the one module that simulates it first."""
    for script in (ROOT / "scripts").rglob("*"):
        if script.is_file() and script.name != "apt_install.py" and script.suffix != ".pyc":
            text = script.read_text().replace("apt-get install --no-remove", "")
            assert "apt-get install -" not in text, script
            assert "systemctl mask" not in text, script


def script(words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f". {SETUP}; {words}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_agent_is_built_by_the_words_of_maturin(tmp_path: Path) -> None:
    """Otherwise maturin would build it a second time."""
    cargo = shutil.which("cargo") or "cargo"
    stub = tmp_path / "cargo"
    stub.write_text(
        f'#!{BASH}\ncase $1 in rustc) printf "%s\\n" "$@" >>{tmp_path}/words; exit 1;; esac\n'
        f'exec {cargo} "$@"\n'
    )
    stub.chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    asked = []
    for words in ("build_agent", "maturin pep517 build-wheel -i python --editable"):
        (tmp_path / "words").unlink(missing_ok=True)
        ended = script(words, PATH=path)
        assert ended.returncode != 0
        asked.append((tmp_path / "words").read_text().splitlines())
    ours, maturins = asked
    print_only = {"--quiet", "--message-format", "json-render-diagnostics"}
    assert sorted(set(ours) - print_only) == sorted(set(maturins) - print_only)


def test_jobs_begun_together_are_awaited_and_report_their_end() -> None:
    ended = script("a() { sleep 0.3; }; b() { :; }; begin A a; begin B b; end_all; say after")
    assert ended.returncode == 0, ended.stderr
    lines = [line.partition("tare setup:\033[0m ")[2] for line in ended.stdout.splitlines()]
    assert lines[-1] == "after"
    assert {"A", "B"} <= set(lines)
    done = [line.rpartition(": ")[2] for line in lines[:-1] if line.startswith("done after")]
    assert sorted(done) == ["A", "B"]
    assert ended.stderr == ""


def test_if_one_of_them_fails_the_others_are_ended(tmp_path: Path) -> None:
    words = (
        f"trap stop_all EXIT; a() {{ echo broken >&2; false; }}; "
        f"b() {{ sleep 3; touch {tmp_path}/went-on; }}; begin A a; begin B b; end_all; say after"
    )
    began = time.monotonic()
    ended = script(words)
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        "broken",
        "tare setup: set-up cannot continue; the reason is above",
    ]
    assert "after" not in ended.stdout.split()
    time.sleep(max(0.0, 4.5 - (time.monotonic() - began)))
    assert not (tmp_path / "went-on").exists()


class Clone:
    """What set-up builds the agent from, with a stand-in for cargo."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder, cache
        for part in ("agent", "scripts", ".cargo", "locks", "wheel", "pyproject.toml"):
            source = ROOT / part
            if source.is_dir():
                unneeded = shutil.ignore_patterns("target", "__pycache__")
                shutil.copytree(source, folder / part, ignore=unneeded, copy_function=shutil.copy)
            else:
                shutil.copy(source, folder / part)
        self.target = folder / "agent" / "target" / f"{os.uname().machine}-unknown-linux-gnu"

    def build(self) -> str:
        """Return whether cargo found the agent, or what else it did."""
        programs = self.folder / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "cargo").write_text(
            f'#!{BASH}\n[ "$1" = rustc ] || exec {shutil.which("cargo")} "$@"\n'
            f"cd {self.target.parent} 2>/dev/null && [ -e {self.target}/release/tare-agent ] &&\n"
            f"    echo found && exit\n"
            f"mkdir -p {self.target}/release/.fingerprint/agent {self.target.parent}/release\n"
            f"touch {self.target}/release/{{tare-agent,.fingerprint/agent/dep-bin}}\necho built\n"
        )
        (programs / "cargo").chmod(0o755)
        ended = subprocess.run(
            ["bash", "-c", f". {self.folder}/scripts/setup; build_agent"],
            env={
                **os.environ,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "XDG_CACHE_HOME": str(self.cache),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()


def test_clones_of_the_same_sources_share_a_built_agent(tmp_path: Path) -> None:
    first = Clone(tmp_path / "first", tmp_path / "cache")
    assert (first.build(), first.build()) == ("built", "found")
    second = Clone(tmp_path / "second", tmp_path / "cache")
    source = second.folder / "agent" / "src" / "main.rs"
    assert second.build() == "found"
    # Cargo compares these times, and builds what is older than its sources.
    record = second.target / "release" / ".fingerprint" / "agent" / "dep-bin"
    assert record.stat().st_mtime > source.stat().st_mtime
    third = Clone(tmp_path / "third", tmp_path / "cache")
    with (third.folder / "agent" / "src" / "main.rs").open("a") as changed:
        changed.write("\n")
    assert third.build() == "built"


def test_a_damaged_agent_in_the_cache_is_built_again(tmp_path: Path) -> None:
    assert Clone(tmp_path / "first", tmp_path / "cache").build() == "built"
    (kept,) = (tmp_path / "cache" / "tare" / "agents").glob("*.tar.gz")
    with kept.open("ab") as file:
        file.write(b"more")
    assert Clone(tmp_path / "second", tmp_path / "cache").build() == "built"


def test_the_cache_keeps_the_agents_of_the_last_two_sources(tmp_path: Path) -> None:
    for number in range(4):
        clone = Clone(tmp_path / str(number), tmp_path / "cache")
        with (clone.folder / "agent" / "src" / "main.rs").open("a") as changed:
            changed.write("\n" * number)
        assert clone.build() == "built"
    kept = sorted(path.name for path in (tmp_path / "cache" / "tare" / "agents").iterdir())
    assert len(kept) == 4
    assert {name.partition(".")[2] for name in kept} == {"tar.gz", "tar.gz.sha256"}
