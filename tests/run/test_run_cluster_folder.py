"""A run's folder on a cluster that is not Tare's is removed by its ledger entry."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tare.hosts import Ledger, LocalHost
from tare.hosts.ledger.cleanup import clean
from tare.hosts.ledger.ledger import ledger_path
from tare.run.lifecycle.undoers import all_undoers
from tare.run.topologies.cluster.folder import KIND


@contextmanager
def namenode(status: int, answer: bytes) -> Iterator[tuple[str, list[str]]]:
    """Answer as a NameNode does; yield its address and the requests."""
    asked: list[str] = []

    class Answering(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


async def cleaned(host: LocalHost, ledger: Ledger, at: str, path: str) -> list[str]:
    ledger.record(KIND, namenode=at, path=path, user="me")
    return await clean(host, ledger, all_undoers())


@pytest.fixture
def host(agent_program: Path) -> LocalHost:
    return LocalHost(agent_program)


async def test_the_folder_is_removed_and_nothing_else(tmp_path: Path, host: LocalHost) -> None:
    with Ledger(tmp_path / "ledger") as ledger, namenode(200, b'{"boolean":true}') as (at, asked):
        messages = await cleaned(host, ledger, at, "/user/me/tare-1")
        assert messages == [f"Removed /user/me/tare-1 from HDFS at {at}."]
        assert asked == ["/webhdfs/v1/user/me/tare-1?op=DELETE&recursive=true&user.name=me"]
        (left,) = await cleaned(host, ledger, at, "/user/me")
        assert left.startswith("Left hdfs /user/me: ") and len(asked) == 1
        assert ledger.open_entries() == ()


async def test_a_refused_removal_stays_in_the_ledger(tmp_path: Path, host: LocalHost) -> None:
    with Ledger(tmp_path / "ledger") as ledger, namenode(403, b"Permission denied") as (at, _):
        (message,) = await cleaned(host, ledger, at, "/user/me/tare-1")
        assert message.startswith("Could not undo hdfs /user/me/tare-1: HDFS at ")
        assert "Permission denied" in message
        (entry,) = ledger.open_entries()
        ledger.done(entry)


def test_a_process_that_only_cleans_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with namenode(200, b'{"boolean":true}') as (at, asked):
        with Ledger(ledger_path("killed")) as ledger:
            ledger.record(KIND, namenode=at, path="/user/me/tare-1", user="me")
        done = subprocess.run(
            [sys.executable, "-m", "tare", "clean"], capture_output=True, text=True, check=True
        )
    removed = f"killed: Removed /user/me/tare-1 from HDFS at {at}."
    assert done.stdout.splitlines() == [removed, "clean: 1 removed"]
    assert len(asked) == 1
