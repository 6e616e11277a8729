"""A cluster of Hadoop that exists already: it runs the jobs, and holds one folder of the run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tare.errors import InputError, MachineFault, TareError, WorkloadFault
from tare.run.topologies.cluster.contract import HadoopCluster
from tare.run.topologies.cluster.folder import KIND, deletion
from tare.run.topologies.cluster.state import objects_in
from tare.workloads.mapreduce.configuration import DATANODE_WEB, SET_UP, ClusterLayout
from tare.workloads.mapreduce.sizes import MIB, sizes_for

if TYPE_CHECKING:
    from tare.hosts import Entry
    from tare.platforms.contract import Context
    from tare.run.topologies.cluster.member import Member
    from tare.workloads.mapreduce.outside import Outside

CLIENT_MEMORY = 1024 * MIB
"""The assumed memory of the client's machine; it gets the same share of it as on a master."""
CLIENT = "client"
LOCAL, LOOPBACK = "localhost", "127.0.0.1"
_ASK = 'curl -sS --stderr - -m 20 "$@"; :'
_MAKE = 'curl -sS --stderr - -m 60 -X PUT "$1"; :'
_REMOVE = 'curl -sS --stderr - --fail-with-body -m 60 -X DELETE "$1"'
_RESOLVE_S = 20.0


@dataclass
class OutsideCluster(HadoopCluster):
    """An existing cluster, and the machine that submits jobs to it.

    Args:
        client: That machine.
        about: The cluster's configuration.
        context: The host of the client, whose ledger has the folder.
        user: The user of HDFS.
        processors: The number of CPUs for a client.
        slower: Factor by which everything may take longer than on hardware.
    """

    client: Member
    about: Outside
    context: Context
    user: str
    processors: int
    slower: float = 1.0
    took_s: float = 0.0
    folder: str = ""
    members: Mapping[str, Member] = field(default_factory=dict)
    lost: asyncio.Future[str] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    notes: dict[str, str] = field(default_factory=dict)
    _nodes: Mapping[str, str] = field(default_factory=dict)
    _entry: Entry | None = None
    outside = True

    layout: ClusterLayout = field(init=False)

    def __post_init__(self) -> None:
        self.layout = ClusterLayout(
            addresses={CLIENT: LOOPBACK},
            slaves=(),
            sizes=sizes_for(CLIENT_MEMORY, 1),
            processors=self.processors,
            replication=self.about.copies,
            block=0,
            sync=False,
            slow_start=0.0,
            slower=self.slower,
        )

    @property
    def master(self) -> Member:
        """The machine of the jobs' clients."""
        return self.client

    @property
    def slaves(self) -> tuple[Member, ...]:
        """Empty: none of its machines are Tare's."""
        return ()

    @property
    def namenode(self) -> str:
        """The HTTP address of HDFS."""
        return self.about.namenode

    @property
    def history(self) -> str:
        """The HTTP address of the history server."""
        return self.about.history

    def datanodes(self) -> Mapping[str, str]:
        """Return the HTTP address of each DataNode."""
        return self._nodes

    async def bring_up(self) -> None:
        """Check that the cluster answers, and create the run's folder in the user's home.

        Raises:
            MachineFault: It does not answer, or refuses to create the folder.
        """
        began = time.monotonic()
        try:
            self.about = self.about.at(await self._resolved(self.about.names))
            self._nodes, addresses = await self._asked()
            self.layout = replace(self.layout, slaves=tuple(self._nodes))
            await self._configure(addresses)
            await self._make_folder()
        except WorkloadFault as fault:
            raise MachineFault(f"the cluster cannot be used: {fault}") from fault
        self.took_s = time.monotonic() - began

    async def _configure(self, addresses: Mapping[str, str]) -> None:
        """Give the client the cluster's configuration, and the addresses of its names."""
        known = {**await self._resolved(self.about.mentioned, missing=True), **addresses}
        lines = [f"{LOOPBACK} {LOCAL}", *(f"{known[name]} {name}" for name in known)]
        words = [word for file in self.about.files.items() for word in file]
        await self.client.run(SET_UP, "\n".join((*lines, "")), LOOPBACK, *words)

    async def _resolved(self, names: tuple[str, ...], *, missing: bool = False) -> dict[str, str]:
        """Resolve names on the client's host, because a machine has no resolver of its own.

        Raises:
            MachineFault: One has no address, unless some may be ``missing``.
        """
        found: dict[str, str] = {}
        for name in names:
            if name == LOCAL:
                # It may have no address if only configured address families are looked up.
                found[name] = LOOPBACK
                continue
            done = await self.context.host.run(["getent", "ahostsv4", name], timeout_s=_RESOLVE_S)
            if done.ok and done.stdout.split():
                found[name] = done.stdout.split()[0].decode()
            elif not missing:
                raise MachineFault(f"{self.context.host.name} does not know the computer {name}")
        return found

    async def _asked(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the DataNodes, and the addresses of their computers by name."""
        answer = await self.client.output(
            _ASK,
            f"http://{self.namenode}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo",
            f"http://{self.history}/ws/v1/history/info",
        )
        objects = list(objects_in(answer))
        beans = [bean for each in objects for bean in each.get("beans", ())]
        namenode = next((bean for bean in beans if "LiveNodes" in bean), None)
        if namenode is None:
            raise MachineFault(f"the NameNode at {self.namenode} does not answer: {answer[-300:]}")
        if namenode.get("Safemode"):
            raise MachineFault(f"the NameNode at {self.namenode} is in safe mode")
        if not any("historyInfo" in each for each in objects):
            raise MachineFault(
                f"the history server at {self.history} does not answer: {answer[-300:]}"
            )
        nodes, addresses = {}, {}
        for name, about in json.loads(namenode["LiveNodes"]).items():
            host = name.partition(":")[0]
            addresses[host] = str(about["xferaddr"]).partition(":")[0]
            port = str(about.get("infoAddr", "")).partition(":")[2] or str(DATANODE_WEB)
            nodes[f"{host}:{port}"] = f"{addresses[host]}:{port}"
        if not nodes:
            raise MachineFault(f"the NameNode at {self.namenode} has no DataNode")
        return nodes, addresses

    async def _make_folder(self) -> None:
        base, user = f"http://{self.namenode}/webhdfs/v1", f"user.name={self.user}"
        home = next(
            (
                str(answer["Path"])
                for answer in objects_in(
                    await self.client.output(_ASK, f"{base}/?op=GETHOMEDIRECTORY&{user}")
                )
                if "Path" in answer
            ),
            None,
        )
        if home is None:
            raise MachineFault(f"HDFS at {self.namenode} reports no home folder of {self.user}")
        self.folder = f"{home}/{self.client.machine.name}"
        self._entry = self.context.ledger.record(
            KIND, namenode=self.namenode, path=self.folder, user=self.user
        )
        made = await self.client.output(
            _MAKE, f"{base}{self.folder}?op=MKDIRS&permission=700&{user}"
        )
        if not any(each.get("boolean") is True for each in objects_in(made)):
            self.context.ledger.done(self._entry)
            self._entry = None
            raise MachineFault(
                f"HDFS does not let {self.user} create {self.folder}: {made.strip()[-300:]}",
                f"ask its administrator to create {home} for {self.user}",
            )

    async def why(self, reason: str = "") -> str:
        """Return nothing: Tare does not read the logs of its daemons."""
        return ""

    async def logs(self, within_s: float) -> dict[str, str]:
        """Return none: Tare does not read the logs of its daemons."""
        return {}

    async def note_tasks(self) -> None:
        """Keep nothing: its tasks ran on machines other than Tare's."""

    async def stop(self) -> None:
        """Remove the run's own folder; if that fails, it stays in the ledger."""
        if self._entry is None or self.client.machine.died.done():
            return
        url = deletion(self.namenode, self.folder, self.user)
        with suppress(TareError):
            await self.client.run(_REMOVE, url)
            self.context.ledger.done(self._entry)
            self._entry = None

    def facts(self) -> dict[str, Any]:
        """Return the facts on the cluster, for the record."""
        return {
            "outside": True,
            "namenode": self.namenode,
            "slaves": len(self._nodes),
            "replication": self.about.copies,
            "effective_replication": self.layout.effective_replication,
            "folder": self.folder,
            "user": self.user,
        }


def require_name(user: str) -> str:
    """Return a user's name; raise InputError if HDFS does not accept it."""
    if not user or not all(char.isalnum() or char in "._-" for char in user):
        raise InputError(f"HDFS does not accept the user name {user!r}")
    return user
