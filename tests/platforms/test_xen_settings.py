"""Settings of Xen, with a program in place of ``xl`` that keeps them in files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tare.errors import MachineFault
from tare.hosts import Ledger, LocalHost, clean
from tare.platforms.contract import MachineSpec, Shape, changed
from tare.platforms.xen.options import XenOptions
from tare.platforms.xen.platform import Xen
from tare.platforms.xen.scheduling import apply_and_verify_scheduling, held_settings
from tare.platforms.xen.settings import Dom0Vcpus
from tare.platforms.xen.toolstack import DomainResource

XL = r"""#!/usr/bin/env -S python3 -I -S
import json, pathlib, sys
state = pathlib.Path(__file__).with_name("state.json")
xen = json.loads(state.read_text())
command, *words = sys.argv[1:]
xen["asked"].append(sys.argv[1:])
def value(flag):
    return words[words.index(flag) + 1]
if command == "cpupool-list":
    print("Name CPUs Sched Active Domains\nPool-0 4", xen["scheduler"], "y 1")
elif command == "info":
    print("nr_cpus :", xen["cpus"])
elif command == "list":
    print("Name ID Mem VCPUs State Time(s) UUID")
    print("Domain-0 0 512", xen["vcpus"], "r----- 1.0")
    for name, id in xen["domains"].items():
        print(name, id, 64, "1 --p--- 0.0")
elif command == "destroy":
    if xen["stubborn"]:
        print("libxl: error: it is in use", file=sys.stderr)
        sys.exit(3)
    xen["domains"] = {k: v for k, v in xen["domains"].items() if str(v) != words[0]}
elif command == "vcpu-list":
    print("Name ID VCPU CPU State Time(s) Affinity")
    for number, hard in xen["pins"][words[0]].items():
        print("d", words[0], number, "0 -b- 1.0", hard, "/ all")
elif command == "vcpu-pin":
    xen["pins"]["0"][words[1]] = "all" if xen["cpus"] == 1 else words[2]
elif command == "vcpu-set":
    xen["vcpus"] = min(int(words[1]), 2)
elif command.startswith("sched-credit") and "-d" in words:
    if "-w" in words and not xen["stubborn"]:
        xen["weights"][value("-d")][0] = int(value("-w"))
    print("Name ID Weight Cap\nd", value("-d"), *xen["weights"][value("-d")])
elif command.startswith("sched-credit"):
    if "-t" in words:
        xen["tslice"] = int(value("-t"))
    if "-r" in words:
        xen["ratelimit"] = int(value("-r"))
    print(f"Cpupool Pool-0: tslice={xen['tslice']}ms ratelimit={xen['ratelimit']}us")
elif command == "sched-rtds":
    if "-b" in words and not xen["stubborn"]:
        xen["grant"] = [value("-p"), value("-b"), "yes" if value("-e") == "1" else "no"]
    print("Name ID VCPU Period Budget Extratime\nd 5 0", *xen["grant"])
state.write_text(json.dumps(xen))
"""
SPEC = MachineSpec("tare-t-1-subject", Shape(1, 64 << 20), (2,), Path("/tmp/tare-t"), True)


class Played:
    """What the program in place of ``xl`` keeps."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __getitem__(self, name: str) -> Any:

        return json.loads(self._file.read_text())[name]

    def change(self, **values: Any) -> None:

        self._file.write_text(json.dumps({**json.loads(self._file.read_text()), **values}))


@pytest.fixture
def xen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    state = tmp_path / "bin" / "state.json"
    state.parent.mkdir()
    program = state.with_name("xl")
    program.write_text(XL)
    program.chmod(0o755)
    state.write_text("{}")
    played = Played(state)
    played.change(
        asked=[], scheduler="credit", cpus=4, vcpus=2, tslice=30, ratelimit=1000, stubborn=False
    )
    pins, weights = (
        {"0": {"0": "all", "1": "all"}, "5": {"0": "2"}},
        {"0": [256, 0], "5": [512, 50]},
    )
    played.change(pins=pins, weights=weights, grant=["10000", "4000", "yes"], domains={})
    monkeypatch.setenv("PATH", f"{state.parent}:/usr/bin:/bin")
    monkeypatch.setattr(Dom0Vcpus, "settling_s", 0.3)
    return played


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        yield ledger


def options(**given: Any) -> XenOptions:
    return XenOptions.model_validate({"type": "pv", **given})


async def test_settings_are_held_shared_and_restored(xen: Played, ledger: Ledger) -> None:
    host = LocalHost()
    asked = options(scheduling={"slice": "1ms"}, dom0_vcpus=1, dom0_weight=512, dom0_cpus=[0, 1])
    async with held_settings(host, ledger, asked) as held:
        assert held == {
            "scheduler": "credit",
            "pool": "Pool-0",
            "before": {"tslice": "30000", "ratelimit": "1000"},
            "dom0_vcpus": {"vcpus": "2"},
            "dom0": {"0": "all", "1": "all"},
            "dom0_weight": {"weight": "256"},
        }
        assert (xen["tslice"], xen["ratelimit"], xen["vcpus"]) == (1, 500, 1)
        assert xen["pins"]["0"] == {"0": "0-1", "1": "0-1"}
        async with held_settings(host, ledger, asked) as again:
            assert again == held
        assert xen["weights"]["0"] == [512, 0]
        with pytest.raises(
            MachineFault, match=r"Pool-0 is kept at tslice 1000, ratelimit 500 for another machine"
        ):
            async with held_settings(host, ledger, options(scheduling={"slice": "2ms"})):
                pass
    assert (xen["tslice"], xen["ratelimit"], xen["vcpus"]) == (30, 1000, 2)
    assert (xen["pins"]["0"], xen["weights"]["0"]) == ({"0": "all", "1": "all"}, [256, 0])
    assert ledger.open_entries() == ()


async def test_dom0_of_one_cpu_is_left_on_it(xen: Played, ledger: Ledger) -> None:
    xen.change(cpus=1)
    async with held_settings(LocalHost(), ledger, options()) as held:
        assert held["dom0"] == {"0": "all", "1": "all"}
    assert not [words for words in xen["asked"] if words[0] == "vcpu-pin"]


async def test_a_killed_runs_settings_are_restored_by_the_ledger_alone(
    xen: Played, ledger: Ledger
) -> None:
    # As the version before wrote its entries.
    pool = {"what": "scheduler", "scheduler": "credit", "pool": "Pool-0"}
    ledger.record("xen-setting", before={"tslice": "30000"}, value={"tslice": "1000"}, **pool)
    pinned = {"before": {"0": "all"}, "value": {"0": "0"}}
    ledger.record("xen-setting", what="pin", **pinned)
    weight = {"what": "dom0-weight", "scheduler": "credit"}
    ledger.record("xen-setting", before={"weight": "256"}, value={"weight": "512"}, **weight)
    ledger.record("xen-setting", before={"vcpus": "2"}, value={"vcpus": "1"}, what="dom0-vcpus")
    xen.change(tslice=1, vcpus=1, pins={"0": {"0": "0"}}, weights={"0": [300, 0]})
    messages = await clean(LocalHost(), ledger, Xen().undoers)
    assert messages == [
        "Xen's number of dom0's vCPUs is vcpus 2 again; Tare had set vcpus 1.",
        "Xen's weight of dom0 is weight 300, which is neither what Tare set (weight 512) nor what "
        "it was: left.",
        "Xen's placement of dom0's vCPUs is 0 all again; Tare had set 0 0.",
        "Xen's scheduler credit of pool Pool-0 is tslice 30000 again; Tare had set tslice 1000.",
    ]
    assert (xen["tslice"], xen["vcpus"], xen["pins"]) == (30, 2, {"0": {"0": "all"}})
    assert ledger.open_entries() == ()


async def test_setting_that_dom0_ignores_is_reported_with_a_remedy(
    xen: Played, ledger: Ledger
) -> None:
    setting = Dom0Vcpus(LocalHost())
    with pytest.raises(MachineFault, match="was set to vcpus 3, but reads vcpus 2") as fault:
        async with changed(ledger, setting, {"vcpus": "3"}):
            pass
    assert "dom0_max_vcpus" in fault.value.hint
    assert ledger.open_entries() == ()


async def test_a_domains_scheduling_is_verified(xen: Played) -> None:
    asked, held = options(scheduling={"weight": 200, "cap": 0.5}), {"scheduler": "credit"}
    held["pool"] = "Pool-0"
    found = await apply_and_verify_scheduling(LocalHost(), asked, SPEC, 5, held)
    assert found["scheduling"] == {
        **held,
        "vcpus": {"0": "2"},
        "now": {"tslice": "30000", "ratelimit": "1000"},
        "weight": 512,
        "cap_percent": 50,
    }
    for differs, says in (
        ({"weights": {"5": [256, 50]}}, "Xen was set to .*512.*, and reports .*256"),
        ({"pins": {"5": {"0": "all"}}}, "vCPU 0 was pinned to CPU 2, but Xen lets it run on all"),
    ):
        xen.change(**differs)
        with pytest.raises(MachineFault, match=says):
            await apply_and_verify_scheduling(LocalHost(), asked, SPEC, 5, held)


async def test_a_budget_is_set_and_verified(xen: Played) -> None:
    held = {"scheduler": "rtds", "pool": "Pool-0"}
    asked = options(scheduling={"reservation": 0.3, "period": "20ms"}, extra_time=False)
    found = await apply_and_verify_scheduling(LocalHost(), asked, SPEC, 5, held)
    granted = {"period_us": 20_000, "budget_us": 6_000, "extra_time": False}
    assert found["scheduling"]["granted"] == granted
    as_it_is = await apply_and_verify_scheduling(LocalHost(), options(), SPEC, 5, held)
    assert as_it_is["scheduling"]["granted"] == granted
    xen.change(stubborn=True)
    more = options(scheduling={"reservation": 0.5})
    with pytest.raises(
        MachineFault,
        match=r"budget of each vCPU was set to 5000 of 10000 µs and what is left over \(vCPU 0\), "
        r"but reads 6000 of 20000 µs \(vCPU 0\)",
    ):
        await apply_and_verify_scheduling(LocalHost(), more, SPEC, 5, held)


async def test_domain_in_the_ledger_is_destroyed_or_reported(
    xen: Played, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DomainResource, "removal_s", 0.3)
    xen.change(domains={"tare-x": 7, "other": 8}, stubborn=True)
    ledger.record("domain", id="tare-x", uuid="")
    ledger.record("domain", id="other", uuid="")
    messages = await clean(LocalHost(), ledger, Xen().undoers)
    assert "its name does not start with tare-" in messages[0]
    assert "the domain tare-x (id 7) survives its destruction: it is paused" in messages[1]
    assert "and holds 64 MiB: it is in use" in messages[1]
    xen.change(stubborn=False)
    assert await clean(LocalHost(), ledger, Xen().undoers) == ["Destroyed domain tare-x."]
    assert xen["domains"] == {"other": 8}
