"""``scripts/setup`` finds what distributions have each in a way of their own, or has it installed.

That is a Rust that can build the agent, and the server of containers that the tests start.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[2] / "scripts/setup"
# All that the functions call, so that nothing of this computer's own Rust is found.
TOOLS = ("bash", "cut", "dirname", "env", "id", "sed", "sort")
BASH, CHMOD = shutil.which("bash"), shutil.which("chmod")

DEBIAN_12 = {"cargo": "0.66.0+ds1-1", "rustc": "1.63.0+dfsg1-2"}
DEBIAN_12_WEB = {"cargo-web": "1.96.0+dfsg1-1~deb12u2", "rustc-web": "1.96.0+dfsg1-1~deb12u2"}
DEBIAN_13 = {"cargo": "1.85.1+dfsg1-1+deb13u1", "rustc": "1.85.1+dfsg1-1+deb13u1"}
UBUNTU_24 = {
    "cargo": "1.75.0+dfsg0ubuntu1",
    "rustc": "1.75.0+dfsg0ubuntu1",
    "cargo-1.80": "1.80.1+dfsg0ubuntu1",
    "rustc-1.80": "1.80.1+dfsg0ubuntu1",
    "cargo-1.91": "1.91.1+dfsg",
    "rustc-1.91": "1.91.1+dfsg",
    "cargo-1.85": "1.85.1+dfsg",
    "rustc-1.85": "1.85.1+dfsg",
}


class Computer:
    """One with these tools alone, whose distribution has what it is told to offer."""

    def __init__(self, folder: Path) -> None:
        self.programs, self.other = folder / "bin", folder / "other"
        self.installed = folder / "installed"
        for made in (self.programs, self.other):
            made.mkdir()
        for tool in TOOLS:
            (self.programs / tool).symlink_to(shutil.which(tool) or tool)

    def has_cargo(self, version: str, folder: Path) -> None:
        self._program(folder / "cargo", f"echo 'cargo {version} (0123abcd 2025-01-01)'")

    def offers(self, packages: dict[str, str]) -> None:
        """Let apt know these packages; to install Rust puts the chosen one beside PATH."""
        policy = "".join(
            f"{name}) echo '{name}:'; echo '  Installed: (none)'; echo '  Candidate: {version}';;"
            for name, version in packages.items()
        )
        search = "".join(
            f"echo '{name} - Rust package manager';"
            for name in packages
            if name.startswith("cargo-1")
        )
        lookup = f'if [ "$1" = policy ]; then case $2 in {policy} esac; else {search} true; fi'
        self._program(self.programs / "apt-cache", lookup)
        new = f"#!{BASH}\\necho cargo 1.99.0\\n"
        self._program(
            self.programs / "apt-get",
            f'if [ "$1" = install ]; then echo "$*" >>{self.installed}; '
            f"printf '{new}' >{self.other}/cargo; {CHMOD} +x {self.other}/cargo; fi",
        )
        self._program(self.programs / "sudo", '"$@"')

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
    ("packages", "chosen"),
    [
        (DEBIAN_12 | DEBIAN_12_WEB, "cargo-web rustc-web"),
        (DEBIAN_13, "cargo rustc"),
        (DEBIAN_13 | DEBIAN_12_WEB, "cargo rustc"),
        (UBUNTU_24, "cargo-1.85 rustc-1.85"),
        (DEBIAN_12, ""),
        ({"rustc-web": "1.96.0"}, ""),
        ({"cargo": "(none)", "rustc": "(none)"}, ""),
        ({}, ""),
    ],
)
def test_the_distributions_first_rust_that_is_new_enough_is_chosen(
    computer: Computer, packages: dict[str, str], chosen: str
) -> None:
    computer.offers(packages)
    assert computer.does("rust_packages").stdout.strip() == chosen


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


def test_rust_is_installed_where_there_is_none_and_only_there(computer: Computer) -> None:
    computer.offers(DEBIAN_12 | DEBIAN_12_WEB)
    done = computer.does("install_rust; install_rust; find_cargo")
    assert done.stdout.strip().endswith(str(computer.other))
    [asked] = computer.installed.read_text().splitlines()
    assert asked.endswith("cargo-web rustc-web")
    assert "--no-remove" in asked


def test_a_distribution_without_a_rust_new_enough_is_told(computer: Computer) -> None:
    computer.offers(DEBIAN_12)
    done = computer.does("install_rust")
    assert done.returncode == 1
    assert "needs Rust" in done.stderr
    assert not computer.installed.exists()


@pytest.mark.parametrize(
    ("packages", "chosen"),
    [
        ({"lxd": "5.0.2-5+deb12u6"}, "lxd"),
        ({"lxd": "5.0.2+git20231211.1364ae4-9+deb13u7", "incus": "6.0.4-2+deb13u12"}, "incus"),
        ({"lxd": "5.0.2-5+deb12u6", "incus": "(none)"}, "lxd"),
        # A name that installs a snap.
        ({"lxd": "1:0.10"}, ""),
        ({"lxd": "(none)", "incus": "(none)"}, ""),
        ({}, ""),
    ],
)
def test_the_server_of_containers_is_the_distributions_newest(
    computer: Computer, packages: dict[str, str], chosen: str
) -> None:
    computer.offers(packages)
    done = computer.does("instance_server")
    assert (done.stdout.strip(), done.returncode) == (chosen, 0)


@pytest.mark.parametrize("there", ["lxd", "incus"])
def test_a_server_of_containers_that_is_there_is_enough(computer: Computer, there: str) -> None:
    computer.offers({"lxd": "5.0.2-5+deb12u6", "incus": "6.0.4-2+deb13u12"})
    done = computer.does(f"is_installed() {{ [ $1 = {there} ]; }}; instance_server")
    assert (done.stdout, done.returncode) == ("", 0)
