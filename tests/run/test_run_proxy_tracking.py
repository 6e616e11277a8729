"""A switch whose table of connections is full: the cell says so, with its counts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deadlines import patient
from run.run_driving import Running, assert_no_ledger_is_left, of_type
from tare.errors import WorkloadFault
from tare.platforms.linux.network.tracking import COUNT, MOST, Tracked
from tare.run.cells.duet import Undivided
from tare.run.topologies.proxied_cell import ProxiedMachines

LOST = "the switch's conntrack lost"
STUDY = """
study: tracked
baseline: oci
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 128MiB}
arms: {oci: {platform: oci, switch: routed, conntrack: true}}
scenarios:
  proxied: {subject: {cpus: pinned}}
workloads:
  proxy:
    {size: 0B, most-connections: 4, step: 2s, duration: 2s, warmup: 100ms, timeout: 2s}
"""
FILLS = """
import contextlib, socket, struct, sys, time

most, port, each = int(sys.argv[1]), 9, 60_000
sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sink.bind(("0.0.0.0", port))
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

def packet(source, sport, destination, dport):
    ends = socket.inet_aton(source) + socket.inet_aton(destination)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, socket.IPPROTO_UDP, 0)
    return head + ends + struct.pack("!HHHH", sport, dport, 8, 0), (destination, 0)

pairs = [("127.0.1.%d" % (1 + n // each), 1024 + n % each) for n in range(most)]
asked = [packet("127.0.0.1", mine, to, port) for to, mine in pairs]
answered = [packet(to, port, "127.0.0.1", mine) for to, mine in pairs]
# The kernel gives up no connection that both sides were heard of in for two seconds.
while True:
    for packets in (asked, answered):
        for each in packets:
            # Refused where there is no room for its connection.
            with contextlib.suppress(PermissionError):
                raw.sendto(*each)
        time.sleep(2.1)
"""
"""Fills a table with connections that are not given up for others (net/netfilter/
nf_conntrack_proto_udp.c, ``nf_conntrack_udp_packet``): IPv4 and UDP by RFC 791 and 768."""


@contextmanager
def filled(ledgers: Path) -> Iterator[None]:
    """Keep full the table of the switch that a run has made, by what it notes of what it makes."""
    until = time.monotonic() + patient(60)
    while not (found := switches(ledgers)):
        assert time.monotonic() < until, "no switch was ever made"
        time.sleep(0.05)
    inside = ("ip", "netns", "exec", *found)
    subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
    most = int(Path(MOST).read_text())
    filling = subprocess.Popen([*inside, sys.executable, "-c", FILLS, str(most)])
    try:
        while int(subprocess.check_output([*inside, "cat", COUNT])) < 0.99 * most:
            assert time.monotonic() < until, "the table is not full"
            time.sleep(0.2)
        yield
    finally:
        filling.kill()
        filling.wait()


def switches(ledgers: Path) -> list[str]:
    """Return the switches that are there now."""
    noted = "".join(each.read_text() for each in ledgers.rglob("*") if each.is_file())
    names = sorted(set(re.findall(r"tare-[0-9a-f]{6}-switch", noted)))
    return [name for name in names if (Path("/run/netns") / name).exists()]


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.skipif(os.geteuid() != 0, reason="networks need root")
@pytest.mark.skipif(shutil.which("iptables") is None, reason="iptables is not installed")
@pytest.mark.skipif(not Path(MOST).exists(), reason="the kernel has no conntrack")
@pytest.mark.timeout(580)
def test_a_cell_whose_switch_has_a_full_table_of_connections_says_what_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "tracked.yaml", tmp_path / "run"
    study.write_text(STUDY)
    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(lambda e: e["type"] == "block_started" and e["block"] == 2, 500)
        with filled(tmp_path / "state"):
            running.wait_for(lambda e: e["type"] == "block_finished" and e["block"] == 2, 300)
        running.end()
    first, second = of_type(folder, "cell_finished")
    assert first["status"] == "ok", first["reason"]
    network = first["facts"]["proxy"]["network"]
    assert network["tracked"]["count"] > 0
    assert network["tracked"]["lost"].get("drop", 0) == 0
    # The kernel gives up connections that are being closed for new ones, so that some come through.
    (warnings,) = [text for text in (*second["warnings"], second["reason"]) if LOST in text]
    assert "packets (drop); its table has " in warnings
    assert_no_ledger_is_left(tmp_path)


class Switch:
    """A network that reports 3 lost packets before a load, and 5 after it."""

    def __init__(self) -> None:
        self.looks = [Tracked(1, 9, {"drop": 3}), Tracked(9, 9, {"drop": 5})]

    async def tracked(self) -> Tracked:
        return self.looks.pop(0)


async def test_failed_load_search_reports_what_the_switch_lost() -> None:
    nobody: Any = None
    network: Any = Switch()
    between = ProxiedMachines(nobody, nobody, nobody, network, cpus={}, watch=None)
    with pytest.raises(WorkloadFault) as failed:
        await between.run(
            nobody,
            barrier=nobody,
            deadline_s=1.0,
            on_progress=lambda *_: None,
            turns=Undivided(),
        )
    assert str(failed.value) == (
        "the use of the host's CPUs cannot be recorded: there is no sampler; "
        f"{LOST} 2 packets (drop); its table has 9 of 9 connections"
    )
