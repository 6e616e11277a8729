"""The user's own SSH configuration does not affect the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from hosts.hosts_sshd import Sshd, free_port
from run.run_driving import tare
from tare.hosts.ssh import finding
from tare.hosts.ssh.finding import options_for
from tare.images.cache import default_cache
from tare.study.reading.hosting import Login

STRAY = "127.0.0.9"
STUDY = """
study: afar
baseline: bare
host: {reached}
arms: {{bare: {{platform: bare}}, again: {{twin-of: bare}}}}
workloads: {{tick: {{duration: 300ms}}}}
"""


@pytest.fixture(autouse=True)
def stray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A home whose SSH configuration leads everywhere by a computer that does not answer."""
    # What Tare keeps between runs stays where it is.
    monkeypatch.setenv("XDG_CACHE_HOME", str(default_cache().parent))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    port = free_port()
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(
        f"Host {STRAY}\n  ProxyJump none\nHost *\n  Port {port}\n  ProxyJump nobody@{STRAY}\n"
    )
    return f"nobody@{STRAY}:{port}"


def test_tests_ignore_the_users_ssh_configuration(
    stray: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_for("vm", Login.model_validate({}), 30.0)
    assert (options.config, options.port, options.jumps) == (None, 22, ())
    # As a user of Tare has it.
    monkeypatch.setattr(finding, "CONFIG", "~/.ssh/config")
    astray = options_for("vm", Login.model_validate({}), 30.0)
    assert [each.place for each in astray.jumps] == [stray]
    assert stray.endswith(f":{astray.port}")


def test_nor_by_the_commands_that_they_start(sshd: Sshd, stray: str, tmp_path: Path) -> None:
    study, reached = tmp_path / "afar.yaml", sshd.in_a_study()
    study.write_text(STUDY.format(reached=f"{{{reached}}}"))
    found = tare("plan", study, "--probe")
    assert found.returncode == 0, found.stdout + found.stderr
    study.write_text(STUDY.format(reached=f"{{{reached.replace(', ssh-config: none', '')}}}"))
    astray = tare("plan", study, "--probe")
    output = " ".join((astray.stdout + astray.stderr).split())
    assert f"{stray} cannot be reached" in output, output
