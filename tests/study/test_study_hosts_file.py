"""The user's hosts file: names for computers, checked like a study's `host:`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.errors import InputError
from tare.study.reading.hosts_file import hosts_path, load_hosts, parse_hosts
from tare.study.reading.yamltext import StudyError

GOOD = """\
xen1:
  ssh: xen1.example
  key: ~/.ssh/lab
  boot: {xen: {entry: Xen}, patience: 5 min}
kvm.2: {ssh: 10.0.0.2, user: me, password-env: PW}
"""


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "tare").mkdir()
    return tmp_path / "tare" / "hosts.yaml"


def test_the_users_own_file_is_read_and_need_not_be_there(config: Path) -> None:
    assert hosts_path() == config
    assert load_hosts().hosts == {}
    config.write_text(GOOD)
    known = load_hosts()
    assert list(known.hosts) == ["xen1", "kvm.2"]
    assert known.path == config


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        load_hosts(tmp_path / "mine.yaml")
    (tmp_path / "mine.yaml").write_text(GOOD)
    assert "xen1" in load_hosts(tmp_path / "mine.yaml").hosts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("xen1: {shh: a}\n", "h.yaml:1:8: xen1.shh: unknown key; did you mean 'ssh'?"),
        ("xen1: {user: me}\n", "h.yaml:1:7: xen1: name the host, as in {ssh: NAME}"),
        (
            "xen1: xen1.example\n",
            "xen1: must be keys with values, such as {ssh: NAME}, not 'xen1.ex",
        ),
        ("xen1:\n", "xen1: must be keys with values"),
        ("lab: {ssh: a}\n", "h.yaml:1:1: lab: `lab` is a reserved host name"),
        ("Xen 1: {ssh: a}\n", "must be a short name"),
        ("a: {ssh: a, boot: {xn: {entry: X}}}\n", "a.boot.xn: unknown key; did you mean 'xen'?"),
        ("a: {ssh: a, password-env: A, password-file: b}\n", "not both"),
        ("a: {ssh: a}\na: {ssh: b}\n", "h.yaml:2:1: a: written twice, first in line 1"),
        ("", "the file is empty; see `tare help hosts` for an example"),
        ("- a\n", "a hosts file is a mapping: lines like `xen1: {ssh: xen1.example}`"),
    ],
)
def test_fault_is_reported_with_its_place(text: str, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        parse_hosts(text.encode(), "h.yaml")
    assert message in caught.value.message
