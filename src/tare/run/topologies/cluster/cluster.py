"""A cluster of Hadoop on a batch's machines: its daemons, their state and their logs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tare.errors import InputError, MachineFault, TareError, WorkloadFault
from tare.run.topologies.cluster.contract import LOGS_S, HadoopCluster
from tare.run.topologies.cluster.member import SHORT_S, Member
from tare.run.topologies.cluster.state import error_lines, is_ready_for_history, missing_part
from tare.workloads.mapreduce.configuration import (
    DATA,
    DATANODE_WEB,
    HISTORY_WEB,
    MANAGER_WEB,
    NAMENODE_WEB,
    SET_UP,
    ClusterLayout,
    set_up_words,
)
from tare.workloads.mapreduce.daemons import (
    HISTORY,
    LOGS,
    MANAGER,
    NAMENODE,
    OF_SLAVE,
    Daemon,
    daemon,
    format_command,
)
from tare.workloads.mapreduce.job import FOLDER as OWN_FOLDER
from tare.workloads.mapreduce.sizes import sizes_for

if TYPE_CHECKING:
    from tare.agent.client import LoadHandle
    from tare.study.model.scenario import Cluster

UP_S = 300.0
"""Seconds a cluster may take to be up on hardware."""
EMULATED = 15.0
"""Factor by which an emulated cluster may take longer."""
LOOK_S = 0.2
"""Seconds between an answer that the cluster is not up and the next request."""
ANSWER_S = 5.0
STOP_S = 60.0
LOG_BYTES = 200_000
TASK_LOG_BYTES = 20_000
MASTER = "master"
ASKED = 3
# One program queries all three, because it takes CPU time from the starting daemons.
_ASK = (
    'curl -sS -m "$2" '
    f'"http://$1:{NAMENODE_WEB}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo" '
    f'"http://$1:{MANAGER_WEB}/ws/v1/cluster/metrics" '
    f'"http://$1:{HISTORY_WEB}/ws/v1/history/info"; :'
)
# All containers of the newest application, the most recently written one last.
_TASKS = f"""newest=$(ls -td {DATA}/containers/application_* 2>/dev/null | head -n 1)
[ -n "$newest" ] || exit 0
{{ for log in $(ls -tr "$newest"/*/syslog "$newest"/*/stdout "$newest"/*/stderr 2>/dev/null); do
  [ -s "$log" ] && echo "=== ${{log#{DATA}/containers/}}" && tail -c {TASK_LOG_BYTES} "$log"
done; }} | tail -c {LOG_BYTES}
"""


@dataclass
class RunningCluster(HadoopCluster):
    """A cluster of Tare's own machines.

    Args:
        members: Its machines by name, the master's first.
        layout: Its configuration.
    """

    members: Mapping[str, Member]
    layout: ClusterLayout
    lost: asyncio.Future[str] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """A future that is set with name and machine if a daemon ends by itself."""
    took_s: float = 0.0
    """Seconds from ready machines to a ready cluster."""
    notes: dict[str, str] = field(default_factory=dict)
    _daemons: dict[tuple[str, str], LoadHandle] = field(default_factory=dict)
    _stopping: bool = False
    folder = OWN_FOLDER
    user = "root"
    outside = False

    @property
    def master(self) -> Member:
        """The master's machine."""
        return self.members[self.layout.master]

    @property
    def slaves(self) -> tuple[Member, ...]:
        """The machines that hold data and run tasks."""
        return tuple(self.members[name] for name in self.layout.slaves)

    @property
    def namenode(self) -> str:
        """The HTTP address of HDFS."""
        return f"{self.master.address}:{NAMENODE_WEB}"

    @property
    def history(self) -> str:
        """The HTTP address of the history server."""
        return f"{self.master.address}:{HISTORY_WEB}"

    def datanodes(self) -> dict[str, str]:
        """Return the HTTP address of each DataNode."""
        return {
            f"{each.name}:{DATANODE_WEB}": f"{each.address}:{DATANODE_WEB}" for each in self.slaves
        }

    async def bring_up(self) -> None:
        """Configure all machines and start all daemons; return when the cluster is ready.

        Raises:
            MachineFault: It does not come up; the message names what is missing, with its log.
        """
        began = time.monotonic()
        try:
            await asyncio.gather(*(self._set_up(member) for member in self.members.values()))
            starting = [self._start(member, each) for member in self.slaves for each in OF_SLAVE]
            await asyncio.gather(self._format_and_start(), *starting)
            await self._await_up(began + self.patience(UP_S))
        except WorkloadFault as fault:
            raise MachineFault(f"Hadoop cannot be started: {fault}") from fault
        self.took_s = time.monotonic() - began

    async def _set_up(self, member: Member) -> None:
        await member.run(SET_UP, *set_up_words(self.layout, member.name))

    async def _format_and_start(self) -> None:
        await self._start(self.master, MANAGER)
        form = format_command(self.layout.sizes, self.layout.processors)
        log = f"{LOGS}/format.log"
        await self.master.run(
            f'"$@" >{log} 2>&1 || {{ tail -n 5 {log} >&2; exit 1; }}',
            *form,
            timeout_s=self.patience(UP_S),
        )
        await self._start(self.master, NAMENODE)

    async def _start(self, member: Member, which: Daemon) -> None:
        handle = await member.start(daemon(which, self.layout.sizes, self.layout.processors))
        self._daemons[member.name, which.name] = handle
        handle.on_end(lambda: self._lose(member.name, which.name, handle.failure))

    def _lose(self, machine: str, which: str, failure: str) -> None:
        if not self._stopping and not self.lost.done():
            reason = f": {failure}" if failure else ""
            self.lost.set_result(f"the {which} on {machine} ended unexpectedly{reason}")

    async def _await_up(self, until: float) -> None:
        history = False
        # Requests take CPU time from emulated daemons that start, and answers are slow.
        answer_s = self.patience(ANSWER_S)
        patience_s = SHORT_S + ASKED * answer_s
        while True:
            answers = await self.master.output(
                _ASK, self.master.address, f"{answer_s:.0f}", timeout_s=patience_s
            )
            reason = missing_part(answers, len(self.layout.slaves))
            if not reason:
                return
            if not history and is_ready_for_history(answers):
                history = True
                await self._start(self.master, HISTORY)
            if self.lost.done():
                raise MachineFault(f"{self.lost.result()}{await self.why()}")
            if time.monotonic() > until:
                waited = self.patience(UP_S)
                raise MachineFault(
                    f"the cluster is not up after {waited:.0f} s: {reason}{await self.why(reason)}"
                )
            await asyncio.sleep(self.patience(LOOK_S))

    async def why(self, reason: str = "") -> str:
        """Return the most relevant log lines on a fault, to append to a sentence."""
        text = reason or (self.lost.result() if self.lost.done() else "")
        for machine, which in self._daemons:
            named = which in text.lower() and (machine in text or machine == self.layout.master)
            if named:
                lines = error_lines(await self.log(machine, which, self.patience(LOGS_S)))
                return f"; its log says: {lines}" if lines else ""
        return ""

    async def log(self, machine: str, which: str, within_s: float) -> str:
        """Return the end of a daemon's log; empty if it cannot be read in time."""
        path = f"{LOGS}/{which}.log"
        with suppress(TareError, TimeoutError):
            async with asyncio.timeout(within_s):
                return await self.members[machine].output(f"tail -c {LOG_BYTES} {path} || :")
        return ""

    async def logs(self, within_s: float) -> dict[str, str]:
        """Return the end of every daemon's log that can be read in time, by file name."""
        daemons = tuple(self._daemons)
        logs = await asyncio.gather(*(self.log(*each, within_s) for each in daemons))
        names = (f"{machine}-{which}.log" for machine, which in daemons)
        return dict(zip(names, logs, strict=True))

    async def note_tasks(self) -> None:
        """Keep the end of the newest application's container logs in :attr:`notes`."""

        async def note(slave: Member) -> None:
            with suppress(TareError):
                self.notes[f"{slave.name}-containers.log"] = await slave.output(_TASKS)

        await asyncio.gather(*map(note, self.slaves))

    async def stop(self) -> None:
        """Stop all daemons, those of the slaves first."""
        self._stopping = True
        for (machine, _), handle in reversed(self._daemons.items()):
            if not self.members[machine].machine.died.done():
                # They are killed, because their data are not needed any more.
                with suppress(TareError):
                    await handle.stop(STOP_S)

    def facts(self) -> dict[str, Any]:
        """Return the cluster's configuration, for the record."""
        layout = self.layout
        return {
            "slaves": len(layout.slaves),
            "addresses": dict(layout.addresses),
            "replication": layout.replication,
            "effective_replication": layout.effective_replication,
            "block_bytes": layout.block,
            "sync_on_close": layout.sync,
            "slow_start": layout.slow_start,
            "slower": layout.slower,
            "tasks": layout.sizes.tasks,
            "heaps_mib": {
                "task": layout.sizes.task,
                "application_master": layout.sizes.manager,
                "daemon": layout.sizes.daemon,
                "namenode": layout.sizes.master,
                "sort_buffer": layout.sizes.sort,
            },
            "processors": layout.processors,
            "collector": "serial",
            "speculation": False,
            "uber": False,
        }


def layout_for(
    wanted: Cluster,
    addresses: Mapping[str, str],
    memory: int,
    processors: int,
    slower: float = 1.0,
) -> ClusterLayout:
    """Return the layout of a cluster.

    Args:
        wanted: The cluster in the study.
        addresses: The addresses of all machines by role.
        memory: A slave's memory, in bytes.
        processors: A slave's number of vCPUs.
        slower: Factor by which everything may take longer than on hardware.

    Raises:
        MachineFault: A slave has too little memory.
    """
    apart = wanted.master == "apart"
    own = MASTER if apart else "slave-1"
    names = {own: addresses["subject"], **{role: addresses[role] for role in wanted.roles}}
    slaves = wanted.roles if apart else (own, *wanted.roles)
    try:
        sizes = sizes_for(memory, wanted.tasks, master=not apart)
    except InputError as error:
        raise MachineFault(error.message, error.hint) from error
    return ClusterLayout(
        addresses=names,
        slaves=slaves,
        sizes=sizes,
        processors=processors,
        replication=wanted.replication,
        block=wanted.block,
        sync=wanted.sync,
        slow_start=wanted.slow_start,
        slower=slower,
    )
