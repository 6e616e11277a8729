"""Jobs on a cluster that exists already, of another user who gives a home and no more."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deadlines import patient
from run.run_clusters import NEEDS, assert_nothing_is_left, written
from run.run_driving import TARE, of_type
from tare.hosts import LocalHost
from tare.images.cache import default_cache
from tare.images.toolbox.toolbox import prepare_toolbox
from tare.run.topologies.cluster.state import missing_part
from tare.workloads.mapreduce.configuration import SET_UP, ClusterLayout, files_for, set_up_words
from tare.workloads.mapreduce.daemons import (
    DAEMONS,
    ENVIRONMENT,
    HISTORY,
    daemon,
    format_command,
)
from tare.workloads.mapreduce.sizes import sizes_for

pytestmark = [*NEEDS, pytest.mark.acceptance, pytest.mark.timeout(2400)]
NOBODY = 65534
UP_S = 300.0
LAYOUT = ClusterLayout(
    addresses={"localhost": "127.0.0.1"},
    slaves=("localhost",),
    sizes=sizes_for(2 << 30, 1),
    processors=1,
    replication=1,
    block=32 << 20,
    sync=False,
    slow_start=1.0,
)
STUDY = """
study: outside
baseline: bare
blocks: {{least: 2, most: 2}}
shape: {{vcpus: 1, memory: 1GiB, disk: 1GiB}}
arms:
  bare: {{platform: bare}}
scenarios:
  theirs: {{cluster: {{external: {conf}}}}}
workloads:
  wordcount: {{copies: 1}}
  dfsio: {{size: 16MiB, files: 2}}
  terasort: {{size: 10MB}}
"""
# A root of its own, and processes that end with the first of them.
_ROOM = """tree=$1; disk=$2; shift 2
mount --bind "$tree" "$tree" && mount -o remount,bind,ro "$tree" &&
mount -t tmpfs -o mode=1777 tmpfs "$tree/tmp" && mount -t proc proc "$tree/proc" &&
mount --rbind /dev "$tree/dev" && mount --bind "$disk" "$tree/scratch" &&
exec chroot --userspec=65534:65534 "$tree" "$@"
"""


def configuration() -> dict[str, str]:
    """Return its files: those of a cluster of Tare's, but that it asks for rights."""
    files = files_for(LAYOUT, "localhost")
    asks = "<name>dfs.permissions.enabled</name><value>{}</value>"
    before = files["hdfs-site.xml"]
    files["hdfs-site.xml"] = before.replace(asks.format("false"), asks.format("true"))
    assert files["hdfs-site.xml"] != before
    return files


def script() -> str:
    """Return the script that starts its daemons and keeps running."""
    started = [
        shlex.join(daemon(which, LAYOUT.sizes, LAYOUT.processors)) + " &"
        for which in DAEMONS
        if which is not HISTORY
    ]
    words = set_up_words(LAYOUT, "localhost")[:2]
    files = [word for file in configuration().items() for word in file]
    return "\n".join(
        (
            f"sh -c {shlex.quote(SET_UP)} sh {shlex.join([*words, *files])} || exit 1",
            f"{shlex.join(format_command(LAYOUT.sizes, 1))} >/scratch/format.log 2>&1 || exit 1",
            *started,
            "until [ -e /scratch/homes ]; do sleep 0.2; done",
            f"{shlex.join(daemon(HISTORY, LAYOUT.sizes, LAYOUT.processors))} &",
            "wait",
        )
    )


class Theirs:
    """A pseudo-distributed Hadoop, in a network name space that only has a loopback device."""

    def __init__(self, space: str, disk: Path) -> None:
        self.inside = ["nsenter", f"--net=/run/netns/{space}"]
        self.disk = disk

    def ask(self, url: str, method: str = "GET") -> str:
        argv = [*self.inside, sys.executable, "-c", _ASK, method, f"http://127.0.0.1:{url}"]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout

    def wait(self, *enough: str) -> None:
        """Wait until nothing is missing_part, or only what begins with one of these words."""
        until = time.monotonic() + patient(UP_S)
        while True:
            answer = "".join(map(self.ask, _STATES))
            reason = missing_part(answer, 1)
            if not reason or reason.startswith(enough):
                return
            assert time.monotonic() < until, reason
            time.sleep(0.5)

    def give(self, path: str, *, owner: str = "", mode: str = "755") -> None:
        at = f"9870/webhdfs/v1{path}?user.name=nobody&op="
        assert json.loads(self.ask(f"{at}MKDIRS&permission={mode}", "PUT")) == {"boolean": True}
        if owner:
            self.ask(f"{at}SETOWNER&owner={owner}", "PUT")

    def listed(self, path: str) -> list[str]:
        answer: dict[str, Any] = json.loads(
            self.ask(f"9870/webhdfs/v1{path}?user.name=nobody&op=LISTSTATUS")
        )
        return [each["pathSuffix"] for each in answer["FileStatuses"]["FileStatus"]]


_ASK = """import sys, urllib.request, urllib.error
try:
    asked = urllib.request.Request(sys.argv[2], method=sys.argv[1])
    print(urllib.request.urlopen(asked, timeout=10).read().decode())
except urllib.error.HTTPError as error:
    print(error.read().decode())
except OSError:
    pass
"""
_STATES = (
    "9870/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo",
    "8088/ws/v1/cluster/metrics",
    "19888/ws/v1/history/info",
)


@contextmanager
def another_users_cluster(agent: Path, disk: Path) -> Iterator[Theirs]:
    host = LocalHost(agent)
    box = asyncio.run(prepare_toolbox(host, "hadoop", agent=agent, cache=default_cache()))
    space = f"tare-test-{os.getpid()}"
    disk.mkdir()
    os.chown(disk, NOBODY, NOBODY)
    subprocess.run(["ip", "netns", "add", space], check=True)
    theirs = Theirs(space, disk)
    try:
        subprocess.run([*theirs.inside, "ip", "link", "set", "lo", "up"], check=True)
        room = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _ROOM, "sh"]
        env = {**os.environ, **ENVIRONMENT}
        started = subprocess.Popen(
            [*theirs.inside, *room, str(box.tree), str(disk), "sh", "-c", script()], env=env
        )
        try:
            theirs.wait("the ResourceManager", "the history server")
            theirs.give("/history")
            theirs.give("/user")
            theirs.give("/user/root", owner="root")
            theirs.give("/staging", mode="1777")
            (disk / "homes").touch()
            theirs.wait()
            yield theirs
        finally:
            # The first process of theirs, with which all others end.
            first = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
            for pid in map(int, first):
                os.kill(pid, signal.SIGKILL)
            started.wait()
    finally:
        subprocess.run(["ip", "netns", "delete", space], check=True)
        shutil.rmtree(disk, ignore_errors=True)


def test_jobs_are_done_on_a_cluster_of_another_user_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent_program: Path
) -> None:
    conf = tmp_path / "conf"
    study, folder = written(tmp_path, monkeypatch, STUDY.format(conf=conf))
    conf.mkdir()
    for name, text in configuration().items():
        (conf / name).write_text(text)
    with another_users_cluster(agent_program, tmp_path / "disk") as theirs:
        argv = [*theirs.inside, str(TARE), "run", str(study), "--out", str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=1500)
        assert done.returncode == 0, done.stdout + done.stderr
        ended = of_type(folder, "cell_finished")
        assert [cell["status"] for cell in ended] == ["ok"] * 6, ended
        for event in of_type(folder, "cluster_ready"):
            facts = event["facts"]
            assert (facts["outside"], facts["user"], facts["slaves"]) == (True, "root", 1)
            assert facts["folder"].startswith("/user/root/tare-")
        # Its own folder is gone, and no other one was there.
        assert theirs.listed("/user/root") == []
        assert sorted(theirs.listed("/")) == ["history", "staging", "user"]
        # If the cluster's owner takes the home away, that is reported.
        at = "9870/webhdfs/v1/user/root?user.name=nobody&op="
        theirs.ask(f"{at}SETOWNER&owner=nobody", "PUT")
        argv[-1] = str(tmp_path / "refused")
        refused = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
        assert refused.returncode == 1, refused.stdout
        first, *_ = of_type(tmp_path / "refused", "cell_finished")
        assert "HDFS does not let root create /user/root/tare-" in first["reason"]
    assert_nothing_is_left(tmp_path, folder)
