"""The user's hosts file: names of computers that a study's ``host:`` accepts."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.study.reading.checking import KeyStyle, StudyErrors, checked, known_keys
from tare.study.reading.hosting import ALWAYS, HostSpec
from tare.study.reading.yamltext import Problem, Sort, StudyError, parse

SORT = Sort("a hosts file", "lines like `xen1: {ssh: xen1.example}`", "`tare help hosts`")
HINT = "`tare study host` describes every key of a host"
HYPERVISORS = "hypervisors"
"""The key of that file that is not a host's name."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


@dataclass(frozen=True)
class KnownHosts:
    """The computers that a user has named.

    Args:
        path: The file with the names, whether or not it exists.
        hosts: The meaning of each name, as written in a study.
        hypervisors: By platform, the options to reach the user's own hypervisor.
    """

    path: Path
    hosts: Mapping[str, Any] = field(default_factory=dict)
    hypervisors: Mapping[str, Any] = field(default_factory=dict)

    def without(self, keys: Collection[str]) -> KnownHosts:
        """Return the same computers without some keys."""
        hosts = {
            name: {key: value for key, value in spec.items() if key not in keys}
            if isinstance(spec, Mapping)
            else spec
            for name, spec in self.hosts.items()
        }
        return replace(self, hosts=hosts)


def hosts_path() -> Path:
    """Return the user's own hosts file, ``tare/hosts.yaml`` in ``$XDG_CONFIG_HOME``."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification requires that relative paths there are ignored.
    config = Path(base) if base.startswith("/") else Path.home() / ".config"
    return config / "tare" / "hosts.yaml"


def load_hosts(named: Path | None = None) -> KnownHosts:
    """Read the hosts file.

    Args:
        named: The file to read. By default the user's own, which need not exist.

    Raises:
        InputError: It cannot be read, or something in it is wrong; the message has one line per
            problem: file, line, column, key, and the correction.
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
    """Check the bytes of a hosts file, and return the meaning of each name.

    The part under :data:`HYPERVISORS` is checked by its platforms when a study needs it.

    Raises:
        StudyError: Something in it is wrong.
    """
    document = parse(content, name, SORT)
    findings = StudyErrors()
    for host, spec in document.data.items():
        if host == HYPERVISORS:
            if spec is not None and not isinstance(spec, Mapping):
                findings.add((host,), "must be platforms with options, such as {vsphere: {…}}")
        elif not _NAME.fullmatch(host) or host in ALWAYS:
            findings.add((host,), _bad_name(host), key=True)
        else:
            check_host(spec, (host,), KeyStyle(kebab=True), findings)
    problems = document.problems + [
        Problem(message, path, document.place_of(path, key=key))
        for (path, message), key in findings.found.items()
    ]
    if problems:
        raise StudyError(name, problems, HINT)
    return document.data


def check_host(
    spec: Any, path: tuple[str | int, ...], style: KeyStyle, findings: StudyErrors
) -> HostSpec | None:
    """Check the description of one host; return None if it is wrong.

    Args:
        spec: A mapping of keys, or a word.
        path: Its place.
        style: The spelling of its keys.
        findings: Collects the problems.
    """
    if not isinstance(spec, Mapping):
        message = f"must be keys with values, such as {{ssh: NAME}}, not {spec!r}"
        if spec not in ALWAYS:
            findings.add(path, message)
            return None
        spec = {"kind": spec}
    known = known_keys([HostSpec], spec, path, style, findings)
    return checked(HostSpec, known, path, style, findings)


def _bad_name(host: str) -> str:
    if host in ALWAYS:
        return f"`{host}` is a reserved host name; choose another"
    return "must be a short name (lower-case letters, digits, - _ .)"
