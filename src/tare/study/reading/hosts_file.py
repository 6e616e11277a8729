"""The user's computers by name: what a study's ``host:`` takes, kept in a file of the user's."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.study.reading.checking import Findings, KeyStyle, checked, known_keys
from tare.study.reading.hosting import ALWAYS, HostSpec
from tare.study.reading.yamltext import Problem, Sort, StudyError, parse

SORT = Sort("a hosts file", "lines like `xen1: {ssh: xen1.example}`", "`tare help hosts`")
HINT = "`tare study host` describes every key of a host"
HYPERVISORS = "hypervisors"
"""The key of that file which names no host."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


@dataclass(frozen=True)
class KnownHosts:
    """The computers that a user gave names to.

    Args:
        path: The file that names them, there or not.
        hosts: What each name stands for, as it is written in a study.
        hypervisors: By platform, the options by which the user's own hypervisor is reached.
    """

    path: Path
    hosts: Mapping[str, Any] = field(default_factory=dict)
    hypervisors: Mapping[str, Any] = field(default_factory=dict)

    def without(self, keys: Collection[str]) -> KnownHosts:
        """Return the same computers without what is said of them under some keys."""
        hosts = {
            name: {key: value for key, value in said.items() if key not in keys}
            if isinstance(said, Mapping)
            else said
            for name, said in self.hosts.items()
        }
        return replace(self, hosts=hosts)


def hosts_path() -> Path:
    """Return the user's own hosts file, ``tare/hosts.yaml`` in ``$XDG_CONFIG_HOME``."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification says that a relative path there is to be ignored.
    config = Path(base) if base.startswith("/") else Path.home() / ".config"
    return config / "tare" / "hosts.yaml"


def load_hosts(named: Path | None = None) -> KnownHosts:
    """Read the hosts file.

    Args:
        named: The file to read; the user's own when not given, which need not be there.

    Raises:
        InputError: It cannot be read, or something in it is wrong; the message has one line per
            problem: file, line, column, key, and what to write instead.
    """
    path = named or hosts_path()
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        if named is None:
            return KnownHosts(path)
        raise InputError(f"{path}: there is no such file", "name a hosts file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    hosts = parse_hosts(content, str(path))
    return KnownHosts(path, hosts, hosts.pop(HYPERVISORS, None) or {})


def parse_hosts(content: bytes, name: str) -> dict[str, Any]:
    """Check the bytes of a hosts file, and return what each name stands for.

    What stands under :data:`HYPERVISORS` is checked where a study needs it, by its platforms.

    Raises:
        StudyError: Something in it is wrong.
    """
    document = parse(content, name, SORT)
    findings = Findings()
    for host, said in document.data.items():
        if host == HYPERVISORS:
            if said is not None and not isinstance(said, Mapping):
                findings.add((host,), "must be platforms with options, as {vsphere: {…}}")
        elif not _NAME.fullmatch(host) or host in ALWAYS:
            findings.add((host,), _bad_name(host), key=True)
        else:
            check_host(said, (host,), KeyStyle(kebab=True), findings)
    problems = document.problems + [
        Problem(message, path, document.place_of(path, key=key))
        for (path, message), key in findings.found.items()
    ]
    if problems:
        raise StudyError(name, problems, HINT)
    return document.data


def check_host(
    said: Any, path: tuple[str | int, ...], style: KeyStyle, findings: Findings
) -> HostSpec | None:
    """Check what is said of one host; None when something is wrong with it.

    Args:
        said: A mapping of keys, or a word.
        path: Where it stands.
        style: How its keys are written.
        findings: Takes the problems.
    """
    if not isinstance(said, Mapping):
        message = f"must be keys with values, like {{ssh: NAME}}, not {said!r}"
        if said not in ALWAYS:
            findings.add(path, message)
            return None
        said = {"kind": said}
    known = known_keys([HostSpec], said, path, style, findings)
    return checked(HostSpec, known, path, style, findings)


def _bad_name(host: str) -> str:
    if host in ALWAYS:
        return f"`{host}` is the name of a host that is always there; choose another"
    return "must be a short name (lower-case letters, digits, - _ .)"
