"""A cluster of Hadoop that exists already: jobs are its, and one folder of it is the run's."""

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
from tare.workloads.mapreduce.configuration import DATANODE_WEB, SET_UP, Layout
from tare.workloads.mapreduce.sizes import MIB, sizes_for

if TYPE_CHECKING:
    from tare.hosts import Entry
    from tare.platforms.contract import Context
    from tare.run.topologies.cluster.member import Member
    from tare.workloads.mapreduce.outside import Outside

CLIENT_MEMORY = 1024 * MIB
"""Of which a job's client has the share that it has on a master of Tare's."""
CLIENT = "client"
LOCAL, LOOPBACK = "localhost", "127.0.0.1"
_ASK = 'curl -sS --stderr - -m 20 "$@"; :'
_MAKE = 'curl -sS --stderr - -m 60 -X PUT "$1"; :'
_REMOVE = 'curl -sS --stderr - --fail-with-body -m 60 -X DELETE "$1"'
_RESOLVE_S = 20.0


@dataclass
class OutsideCluster(HadoopCluster):
    """A cluster that exists, and the machine that gives it jobs.

    Args:
        client: That machine.
        about: What the cluster's configuration says.
        context: The host of the client, whose ledger knows the folder.
        user: As whom HDFS knows what is done.
        processors: How many CPUs a client is told that there are.
        slower: How many times longer than on hardware all may take.
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

    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        self.layout = Layout(
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
        """The machine that the jobs' clients run on."""
        return self.client

    @property
    def slaves(self) -> tuple[Member, ...]:
        """None of its machines are Tare's."""
        return ()

    @property
    def namenode(self) -> str:
        """Where HDFS answers by HTTP."""
        return self.about.namenode

    @property
    def history(self) -> str:
        """Where the history server answers by HTTP."""
        return self.about.history

    def datanodes(self) -> Mapping[str, str]:
        """Return where each DataNode answers by HTTP."""
        return self._nodes

    async def bring_up(self) -> None:
        """See that the cluster answers, and make the run's own folder in the user's home.

        Raises:
            MachineFault: It does not answer, or gives no such right.
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
        """Give the client the cluster's configuration, and what its names mean."""
        known = {**await self._resolved(self.about.mentioned, missing=True), **addresses}
        lines = [f"{LOOPBACK} {LOCAL}", *(f"{known[name]} {name}" for name in known)]
        words = [word for file in self.about.files.items() for word in file]
        await self.client.run(SET_UP, "\n".join((*lines, "")), LOOPBACK, *words)

    async def _resolved(self, names: tuple[str, ...], *, missing: bool = False) -> dict[str, str]:
        """Return what names mean on the client's host; a machine has no resolver of its own.

        Raises:
            MachineFault: One has no address, unless some may be ``missing``.
        """
        found: dict[str, str] = {}
        for name in names:
            if name == LOCAL:
                # Not where a name is looked up only in families that its computer has.
                found[name] = LOOPBACK
                continue
            told = await self.context.host.run(["getent", "ahostsv4", name], timeout_s=_RESOLVE_S)
            if told.ok and told.stdout.split():
                found[name] = told.stdout.split()[0].decode()
            elif not missing:
                raise MachineFault(f"{self.context.host.name} does not know the computer {name}")
        return found

    async def _asked(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the DataNodes, and the addresses of their computers by name."""
        said = await self.client.output(
            _ASK,
            f"http://{self.namenode}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo",
            f"http://{self.history}/ws/v1/history/info",
        )
        told = list(objects_in(said))
        beans = [bean for each in told for bean in each.get("beans", ())]
        namenode = next((bean for bean in beans if "LiveNodes" in bean), None)
        if namenode is None:
            raise MachineFault(f"the NameNode at {self.namenode} does not answer: {said[-300:]}")
        if namenode.get("Safemode"):
            raise MachineFault(f"the NameNode at {self.namenode} is in safe mode")
        if not any("historyInfo" in each for each in told):
            raise MachineFault(
                f"the history server at {self.history} does not answer: {said[-300:]}"
            )
        nodes, addresses = {}, {}
        for name, about in json.loads(namenode["LiveNodes"]).items():
            host = name.partition(":")[0]
            addresses[host] = str(about["xferaddr"]).partition(":")[0]
            port = str(about.get("infoAddr", "")).partition(":")[2] or str(DATANODE_WEB)
            nodes[f"{host}:{port}"] = f"{addresses[host]}:{port}"
        if not nodes:
            raise MachineFault(f"the NameNode at {self.namenode} knows no DataNode")
        return nodes, addresses

    async def _make_folder(self) -> None:
        base, user = f"http://{self.namenode}/webhdfs/v1", f"user.name={self.user}"
        home = next(
            (
                str(told["Path"])
                for told in objects_in(
                    await self.client.output(_ASK, f"{base}/?op=GETHOMEDIRECTORY&{user}")
                )
                if "Path" in told
            ),
            None,
        )
        if home is None:
            raise MachineFault(f"HDFS at {self.namenode} tells of no home of {self.user}")
        self.folder = f"{home}/{self.client.machine.name}"
        self._entry = self.context.ledger.record(
            KIND, namenode=self.namenode, path=self.folder, user=self.user
        )
        said = await self.client.output(
            _MAKE, f"{base}{self.folder}?op=MKDIRS&permission=700&{user}"
        )
        if not any(told.get("boolean") is True for told in objects_in(said)):
            self.context.ledger.done(self._entry)
            self._entry = None
            raise MachineFault(
                f"HDFS gives {self.user} no right to make {self.folder}: {said.strip()[-300:]}",
                f"have its administrator make {home} for {self.user}",
            )

    async def why(self, reason: str = "") -> str:
        """Return nothing: the logs of its daemons are not Tare's to read."""
        return ""

    async def logs(self, within_s: float) -> dict[str, str]:
        """Return none: the logs of its daemons are not Tare's to read."""
        return {}

    async def note_tasks(self) -> None:
        """Keep nothing: its tasks ran on machines that are not Tare's."""

    async def stop(self) -> None:
        """Remove the run's own folder; where that fails, the ledger still names it."""
        if self._entry is None or self.client.machine.died.done():
            return
        url = deletion(self.namenode, self.folder, self.user)
        with suppress(TareError):
            await self.client.run(_REMOVE, url)
            self.context.ledger.done(self._entry)
            self._entry = None

    def facts(self) -> dict[str, Any]:
        """Return what is known of it, for the record."""
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
    """Return a user's name; raises InputError where HDFS could not know it."""
    if not user or not all(char.isalnum() or char in "._-" for char in user):
        raise InputError(f"HDFS knows no user {user!r}")
    return user
