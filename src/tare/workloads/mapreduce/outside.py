"""Read the configuration folder of a Hadoop cluster that exists already.

Tare reads only what a job's client needs: the HTTP addresses of HDFS and of the history server. The
client gets all files unchanged.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tare.errors import InputError
from tare.workloads.mapreduce.configuration import HISTORY_WEB, NAMENODE_WEB

SITES = ("core-site.xml", "hdfs-site.xml", "mapred-site.xml", "yarn-site.xml")
"""The files that a configuration must have; the folder may have other files that Hadoop reads."""
DEFAULT_COPIES = 3
"""The default of ``dfs.replication`` (hdfs-default.xml)."""
_MOST_BYTES = 1 << 20
_KINDS = (".xml", ".properties")
_EVERYWHERE = ("0.0.0.0", "")
_PLACES = ("address", "hostname")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.\-]*")


@dataclass(frozen=True)
class Outside:
    """A cluster that exists already.

    Args:
        files: The text of each configuration file, by file name.
        namenode: The HTTP address of HDFS: ``host:port``.
        history: The HTTP address of the history server.
        copies: The default number of copies of a block.
        mentioned: All computers that the configuration names.
    """

    files: Mapping[str, str]
    namenode: str
    history: str
    copies: int

    mentioned: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The computers that run its HTTP servers."""
        return tuple(dict.fromkeys((_host(self.namenode), _host(self.history))))

    def at(self, addresses: Mapping[str, str]) -> Outside:
        """Return a copy with addresses instead of names, for clients that cannot resolve names.

        Args:
            addresses: The address of each computer in :attr:`names`, by name.
        """

        def place(reported: str) -> str:
            return f"{addresses[_host(reported)]}:{reported.partition(':')[2]}"

        return replace(self, namenode=place(self.namenode), history=place(self.history))


def read_outside(folder: Path) -> Outside:
    """Read the configuration of a cluster that exists.

    Raises:
        InputError: A file is missing or is not a configuration, a required value is missing, HDFS
            has several NameNodes, or the cluster requires Kerberos.
    """
    files = {
        path.name: _text(path)
        for path in sorted(folder.glob("*"))
        if path.suffix in _KINDS and path.is_file()
    }
    for name in SITES:
        if name not in files:
            raise InputError(
                f"{folder} has no {name}, and so is not a configuration of a cluster",
                "name the folder that the cluster's own clients have as HADOOP_CONF_DIR",
            )
    reported: dict[str, str] = {}
    for name in SITES:
        reported |= properties_of(files[name], folder / name)
    if (asked := reported.get("hadoop.security.authentication", "simple")) != "simple":
        raise InputError(f"{folder}: the cluster asks for {asked}, which Tare cannot give")
    if services := reported.get("dfs.nameservices"):
        raise InputError(
            f"{folder / 'hdfs-site.xml'}: HDFS is {services}, of several NameNodes, which Tare "
            "cannot choose among",
            "copy the folder, and name one NameNode in it",
        )
    system = reported.get("fs.defaultFS", "")
    if not system.startswith("hdfs://"):
        raise InputError(
            f"{folder / 'core-site.xml'}: fs.defaultFS is {system or 'missing'}, and not HDFS",
            "write `hdfs://HOST:PORT`",
        )
    first = _host(system.removeprefix("hdfs://").rstrip("/"))
    namenode = reported.get("dfs.namenode.http-address", f"{first}:{NAMENODE_WEB}")
    default = f"{_host(reported.get('mapreduce.jobhistory.address', first))}:{HISTORY_WEB}"
    history = reported.get("mapreduce.jobhistory.webapp.address", default)
    try:
        copies = int(reported.get("dfs.replication", DEFAULT_COPIES))
    except ValueError:
        raise InputError(f"{folder / 'hdfs-site.xml'}: dfs.replication is not a number") from None
    mentioned = {_host(value) for name, value in reported.items() if name.endswith(_PLACES)} | {
        first
    }
    return Outside(
        files,
        _reached(namenode, first),
        _reached(history, first),
        copies,
        tuple(sorted(name for name in mentioned if _NAME.fullmatch(name) and name != "0.0.0.0")),
    )


def properties_of(text: str, path: Path) -> dict[str, str]:
    """Return the properties of one of Hadoop's files.

    Raises:
        InputError: The text is not XML.
    """
    try:
        found = ET.fromstring(text).iter("property")
    except ET.ParseError as error:
        raise InputError(f"{path}: this is not XML: {error}") from error
    return {
        one.findtext("name", "").strip(): one.findtext("value", "").strip()
        for one in found
        if one.findtext("name")
    }


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is larger than any configuration")
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _host(address: str) -> str:
    return address.partition(":")[0]


def _reached(address: str, first: str) -> str:
    """Return an address to connect to: ``first`` replaces a host that means all addresses."""
    host, _, port = address.partition(":")
    return f"{first if host in _EVERYWHERE else host}:{port}"
