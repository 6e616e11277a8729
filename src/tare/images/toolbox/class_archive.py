"""An archive of the classes of Hadoop's daemons, from which they start in about half the CPU time.

Java finds, reads and checks every class again whenever it starts. It can keep what comes of that in
a file (*class data sharing*; java(1), ``-XX:SharedArchiveFile``), as its own packages do for
Java's own classes. Which classes Hadoop's daemons need is not known before they run, so all of them
are run once: on the loopback device of a network name space of their own, in the finished tree.
Java takes such an archive only where the archives of classes have the time and size that they had
when it was made: in a toolbox all times are 0.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host
from tare.images.toolbox.expected import run_inside
from tare.workloads.mapreduce.configuration import (
    HISTORY_WEB,
    MANAGER_WEB,
    NAMENODE_WEB,
    SET_UP,
    ClusterLayout,
    set_up_words,
)
from tare.workloads.mapreduce.daemons import (
    CLASSES,
    CLASSPATH,
    DAEMONS,
    ENVIRONMENT,
    HISTORY,
    HOME,
    LIBRARIES,
    LOGS,
    Daemon,
    daemon,
    format_command,
)
from tare.workloads.mapreduce.sizes import sizes_for

NAME, ADDRESS = "slave-1", "127.0.0.1"
_MEMORY = 2 << 30
_WAIT_S, _RUN_S = 240, 420.0
_LISTS, _MADE = "/scratch/lists", "/scratch/archive"
# A process has its own loopback device, so that no daemon of the host is met.
_APART = (
    'PATH=$PATH:/usr/sbin:/sbin; [ "$(id -u)" = 0 ] && root= || root=--map-root-user; '
    'exec unshare --net $root sh -c \'ip link set lo up && exec "$@"\' sh "$@"'
)
_HINT = (
    "Hadoop's daemons are run once when the toolbox is built, in a network of their own: root or "
    "user name spaces are needed, and `apt-get install --no-remove iproute2 util-linux`"
)


async def add_class_archive(host: Host, agent: Path, tree: Path, scratch: Path) -> None:
    """Run Hadoop's daemons in a toolbox's tree, and put an archive of their classes into it.

    Args:
        host: The computer that builds.
        agent: The agent, which runs them as it will later.
        tree: The toolbox's tree, with the times of its files as they will stay.
        scratch: A folder for what the daemons write, which is made and removed.

    Raises:
        InputError: They do not start, or Java does not take the archive.
    """
    layout = _layout()
    env = {**ENVIRONMENT, "LC_ALL": "C"}

    def step(script: str, *words: str) -> dict[str, object]:
        return {"argv": ["sh", "-c", script, "sh", *words], "cwd": "/tmp", "env": env}

    scratch.mkdir()
    try:
        request = {
            "timeout_s": _RUN_S,
            "steps": [
                step(SET_UP, *set_up_words(layout, NAME)),
                step(_runs(layout)),
                step(_dump()),
            ],
        }
        await run_inside(
            *(host, agent, tree, "Hadoop", request, _HINT),
            scratch=scratch,
            apart=["sh", "-c", _APART, "sh"],
        )
        archive = tree / CLASSES.lstrip("/")
        try:
            shutil.move(scratch / Path(_MADE).name, archive)
        except OSError as error:
            raise InputError(f"{archive} cannot be written: {error.strerror}", _HINT) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


async def require_class_archive(host: Host, agent: Path, tree: Path) -> None:
    """See that Java takes the archive of a finished tree.

    Raises:
        InputError: It does not.
    """
    options = ("-Xshare:on", f"-XX:SharedArchiveFile={CLASSES}", "-XX:+UseSerialGC")
    main = "org.apache.hadoop.util.VersionInfo"
    argv = [f"{HOME}/java/bin/java", *options, "-cp", CLASSPATH, main]
    request = {"steps": [{"argv": argv, "cwd": "/tmp", "env": ENVIRONMENT}]}
    await run_inside(host, agent, tree, "the archive of Hadoop's classes", request)


def _layout() -> ClusterLayout:
    return ClusterLayout(
        addresses={NAME: ADDRESS},
        slaves=(NAME,),
        sizes=sizes_for(_MEMORY, 1),
        processors=1,
        replication=1,
        block=1 << 20,
        sync=False,
        slow_start=1.0,
    )


def _runs(layout: ClusterLayout) -> str:
    """Return a script that runs all daemons until they can be used, and has Java list classes."""

    def start(which: Daemon) -> str:
        command = shlex.join(daemon(which, layout.sizes, layout.processors))
        return f'{_listing(which.name)} {command} & started="$started $!"'

    first = [start(which) for which in DAEMONS if which is not HISTORY]
    form = shlex.join(format_command(layout.sizes, layout.processors))
    asked = f"http://{ADDRESS}"
    up = (
        f"{asked}:{NAMENODE_WEB}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo",
        f"{asked}:{MANAGER_WEB}/ws/v1/cluster/metrics",
    )
    return "\n".join(
        (
            f"mkdir -p {_LISTS}; started=",
            "until_says() {",
            '  until curl -s -m 5 "$1" | grep -q "$2"; do',
            '    if [ "$(cut -d. -f1 /proc/uptime)" -gt "$end" ]; then',
            f"      tail -n 2 {LOGS}/*.log >&2",
            "      exit 1",
            "    fi",
            "    sleep 0.2",
            "  done",
            "}",
            f"end=$(($(cut -d. -f1 /proc/uptime) + {_WAIT_S}))",
            f"{_listing('format')} {form} >{LOGS}/format.log 2>&1 || "
            f"{{ tail -n 5 {LOGS}/format.log >&2; exit 1; }}",
            *first,
            f"until_says {shlex.quote(up[0])} remaining",
            start(HISTORY),
            f"until_says {shlex.quote(up[1])} '\"activeNodes\":1'",
            f"until_says {asked}:{HISTORY_WEB}/ws/v1/history/info historyInfo",
            # Java writes the rest of its list when it ends.
            "kill $started",
            "wait",
        )
    )


def _listing(name: str) -> str:
    return f"JAVA_TOOL_OPTIONS=-XX:DumpLoadedClassList={_LISTS}/{name}"


def _dump() -> str:
    """Return a script that makes the archive of what was listed; it is the same for the same."""
    java = f"{HOME}/java/bin/java -Xshare:dump -XX:+UseG1GC -Xmx512m"
    return (
        # What other loaders than Java's own found can be no part of it. Java 21 numbers classes
        # in each list by itself, and takes no two of a number; its own loaders need none.
        f"cat {_LISTS}/* | grep -v -e '^#' -e source: | sed 's/ id: .*//' | sort -u "
        ">/scratch/classes; "
        f"{java} -XX:SharedClassListFile=/scratch/classes -XX:SharedArchiveFile={_MADE} "
        f"-cp {LIBRARIES} >/scratch/dump.log 2>&1 || {{ tail -n 3 /scratch/dump.log >&2; exit 1; }}"
    )
