"""Power by Redfish and IPMI: accepted and refused readings, and the energy with its uncertainty."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import ValidationError

from run.redfish_server import PASSWORD, USER, RedfishServer
from tare.agent.client import Outcome
from tare.errors import InputError, TareError
from tare.hosts import Host
from tare.hosts.contract import Completed
from tare.run.probes import energy
from tare.run.probes.bmc import Ipmi, NoReading, Power, PowerMeter, dcmi_watts, meter_of
from tare.run.probes.energy import EnergyKind, EnergyProbe, power_facts
from tare.study.reading.hosting import BmcSpec, HostSpec

DCMI = """
    Instantaneous power reading:                   {watts} Watts
    Minimum during sampling period:                  6 Watts
    Maximum during sampling period:                317 Watts
    Average power reading over sample period:      117 Watts
    IPMI timestamp:                           Sat Nov 28 08:58:14 2026
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   {state}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedfishServer]:
    served = RedfishServer(tmp_path)
    served.start()
    yield served
    served.stop()


def meter(server: RedfishServer, folder: Path, password: str = PASSWORD, **more: Any) -> PowerMeter:
    file = folder / "account"
    file.write_text(f"user={USER}\npassword={password}\n")
    file.chmod(0o600)
    spec = {
        "redfish": "127.0.0.1",
        "port": server.port,
        "credentials": str(file),
        "ca": str(server.ca),
    }
    nowhere = cast("Host", None)
    return meter_of(BmcSpec.model_validate({**spec, **more}), nowhere, nowhere)


def reading(found: PowerMeter) -> Power:
    async def once() -> Power:
        await found.open()
        return await found.read()

    return asyncio.run(once())


def test_the_metrics_of_a_chassis_are_read(server: RedfishServer, tmp_path: Path) -> None:
    server.with_metrics()
    server.watts = 211.5
    found = meter(server, tmp_path)
    assert reading(found) == Power(211.5)
    assert found.source == "Redfish (EnvironmentMetrics)"


@pytest.mark.parametrize(
    ("stated", "watts"),
    [({"Accuracy": 2.0}, 4.0), ({"ReadingAccuracy": 3.0, "Accuracy": 2.0}, 3.0)],
)
def test_the_accuracy_that_a_sensor_states_is_kept(
    server: RedfishServer, tmp_path: Path, stated: Mapping[str, float], watts: float
) -> None:
    server.with_metrics(accuracy=stated)
    assert reading(meter(server, tmp_path)) == Power(200.0, watts)


def test_an_older_bmc_reports_the_power_that_is_consumed(
    server: RedfishServer, tmp_path: Path
) -> None:
    # The metrics that its chassis names do not exist: the deprecated resource is used.
    server.with_power(EnvironmentMetrics="/Chassis/1/EnvironmentMetrics")
    found = meter(server, tmp_path)
    assert reading(found) == Power(200.0) and found.source == "Redfish (Power)"


def test_the_input_of_all_supplies_is_added_up(server: RedfishServer, tmp_path: Path) -> None:
    server.with_supplies(2)
    server.watts = 105.0
    found = meter(server, tmp_path)
    assert reading(found) == Power(210.0) and found.source == "Redfish (PowerSubsystem)"


def test_one_of_several_chassis_must_be_named(server: RedfishServer, tmp_path: Path) -> None:
    server.with_metrics("node-1")
    server.with_metrics("node-2")
    server.chassis("fans")
    with pytest.raises(NoReading, match="several chassis: node-1, node-2"):
        reading(meter(server, tmp_path))
    assert reading(meter(server, tmp_path, chassis="node-2")) == Power(200.0)
    with pytest.raises(NoReading, match="does not report the power of the chassis fans"):
        reading(meter(server, tmp_path, chassis="fans"))


@pytest.mark.parametrize("watts", [None, 0])
def test_a_reading_of_null_or_zero_is_refused(
    server: RedfishServer, tmp_path: Path, watts: float | None
) -> None:
    server.with_metrics()
    server.watts = watts
    with pytest.raises(NoReading, match="does not report the power of any chassis"):
        reading(meter(server, tmp_path))


def test_a_wrong_password_is_reported_without_it(server: RedfishServer, tmp_path: Path) -> None:
    server.with_metrics()
    with pytest.raises(NoReading, match="refuses the account") as refused:
        reading(meter(server, tmp_path, password="another-word"))
    assert "another-word" not in str(refused.value)


def test_an_unknown_certificate_is_refused(server: RedfishServer, tmp_path: Path) -> None:
    server.with_metrics()
    with pytest.raises(NoReading, match="CERTIFICATE_VERIFY_FAILED"):
        reading(meter(server, tmp_path, ca=None))
    assert server.asked == []


def test_missing_credentials_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TARE_BMC_USER", raising=False)
    nowhere = cast("Host", None)
    with pytest.raises(InputError, match="TARE_BMC_USER"):
        meter_of(BmcSpec.model_validate({"redfish": "bmc.example"}), nowhere, nowhere)


class Played:
    """A host whose ``ipmitool`` answers with a text."""

    def __init__(self, output: str, returncode: int = 0) -> None:
        self.output, self.returncode = output, returncode
        self.asked: list[tuple[Sequence[str], Mapping[str, str]]] = []

    async def run(
        self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str]
    ) -> Completed:
        self.asked.append((argv, env))
        return Completed(self.returncode, self.output.encode(), b"")

    async def first_lines(self, patterns: Sequence[str]) -> dict[str, str]:
        return {}


def test_ipmi_is_asked_on_the_host_or_over_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_BMC_USER", USER)
    monkeypatch.setenv("TARE_BMC_PASSWORD", PASSWORD)
    there, here = (Played(DCMI.format(watts=118, state="activated")) for _ in range(2))
    hosts = cast("Host", there), cast("Host", here)
    assert reading(meter_of(BmcSpec.model_validate("ipmi"), *hosts)) == Power(118.0)
    assert there.asked[-1] == (["ipmitool", "dcmi", "power", "reading"], {})
    assert here.asked == []
    assert reading(meter_of(BmcSpec.model_validate({"ipmi": "bmc.example"}), *hosts)) == Power(
        118.0
    )
    argv, env = here.asked[-1]
    assert list(argv[:5]) == ["ipmitool", "-I", "lanplus", "-H", "bmc.example"]
    assert PASSWORD not in argv and env == {"IPMI_PASSWORD": PASSWORD}


@pytest.mark.parametrize(
    "text",
    ["", DCMI.format(watts=0, state="activated"), DCMI.format(watts=9, state="deactivated")],
)
def test_a_bmc_without_a_meter_reports_nothing(text: str) -> None:
    with pytest.raises(NoReading):
        dcmi_watts(text)


def test_energy_is_the_integral_of_power_with_its_uncertainty() -> None:
    powers = [(float(second), Power(100.0 + (second >= 30))) for second in range(61)]
    facts = power_facts("IPMI (DCMI)", powers)
    assert facts["joules"] == pytest.approx(60 * 100 + 30.5)
    assert facts["resolution_w"] == 1.0 and facts["readings"] == 61
    # Half a watt for a minute, and a change of 1 W that may be 10 s late at each end.
    assert facts["uncertainty_j"] == pytest.approx(0.5 * 60 + 2 * 10 * 1)
    exact = power_facts("Redfish", [(at, Power(each.watts, 5.0)) for at, each in powers])
    assert exact["accuracy_w"] == 5.0
    assert exact["uncertainty_j"] == pytest.approx(50 + 5 * 60)


def test_short_cells_and_long_silences_have_no_energy() -> None:
    short = [(float(second), Power(100.0)) for second in range(20)]
    assert "less than 30 s" in power_facts("", short)["missing"]
    silent = [(0.0, Power(100.0)), (40.0, Power(100.0))]
    assert "did not answer" in power_facts("", silent)["missing"]
    assert power_facts("", silent, "no route")["missing"] == "no route"


class Steady(PowerMeter):
    source = "a test's"

    async def open(self) -> None:
        pass

    async def read(self) -> Power:
        return Power(150.0)


def test_a_host_without_counters_has_its_meter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "LEAST_BMC_S", 0.05)
    monkeypatch.setattr(energy, "LOOK_S", 0.02)

    async def cell() -> Mapping[str, Any]:
        probe = EnergyProbe(cast("Host", Played("")), Steady())
        await probe.open()
        await probe.begin()
        await asyncio.sleep(0.1)
        await probe.end(Outcome({}))
        return probe.facts

    facts = asyncio.run(cell())
    assert facts["domains"] == {} and "no energy counter" in facts["no_counters"]
    bmc = facts["bmc"]
    assert bmc["joules"] == pytest.approx(150 * bmc["seconds"]) and bmc["readings"] >= 4


def test_without_counters_and_meter_both_reasons_are_given() -> None:
    probe = EnergyProbe(
        cast("Host", Played("", 1)), Ipmi(cast("Host", Played("no such device", 1)))
    )
    with pytest.raises(
        TareError, match=r"no energy counter.*; ipmitool reports no power: no such device"
    ):
        asyncio.run(probe.open())


def test_a_machine_on_another_computer_has_no_energy() -> None:
    asked = SimpleNamespace(cell=SimpleNamespace(arm="esxi"), context=None)
    with pytest.raises(TareError, match="on another computer"):
        EnergyKind({}, ["esxi"]).probe(cast("Any", asked))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bmc": {"redfish": "a", "ipmi": "b"}}, "either `redfish` or `ipmi`"),
        ({"bmc": {}}, "either `redfish` or `ipmi`"),
        ({"bmc": {"ipmi": "host", "chassis": "1"}}, "only apply to `redfish`"),
        ({"bmc": "redfish"}, "must be `ipmi`"),
    ],
)
def test_a_meter_is_named_in_one_way(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        HostSpec.model_validate(wrong)


def test_hosts_here_and_over_ssh_have_meters() -> None:
    local = HostSpec.model_validate({"bmc": "ipmi"})
    assert local.kind == "local" and local.bmc == BmcSpec.model_validate("ipmi")
    distant = HostSpec.model_validate({"ssh": "kvm1", "bmc": {"redfish": "bmc1.example"}})
    assert distant.kind == "ssh" and distant.bmc is not None and distant.bmc.port == 443
