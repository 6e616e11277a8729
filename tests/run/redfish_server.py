"""A BMC that answers by Redfish, as the DMTF's DSP0266 and DSP0268 (2024.1) describe.

=================================================== ===========================================
HTTP Basic authentication; 401 without              DSP0266, Authentication
the service root needs no account                   DSP0266, Authentication requirements
``Members`` and ``Members@odata.count``             DSP0266, Resource collections
``PowerWatts`` is a sensor excerpt                  DSP0268, EnvironmentMetrics 1.3, Sensor
``PowerConsumedWatts`` of ``PowerControl[0]``       DSP0268, Power 1.7 (deprecated)
``InputPowerWatts`` of each supply's ``Metrics``    DSP0268, PowerSupplyMetrics 1.1
a reading may be null                               DSP0266, Null values
=================================================== ===========================================
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platforms.loopback_server import Answer, Asked, LoopbackServer

ROOT = "/redfish/v1"
USER, PASSWORD = "reader", "a-word-of-a-test"


class RedfishServer(LoopbackServer):
    """Serves the chassis that a test adds.

    Args:
        folder: Where its certificate is made.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.watts: float | None = 200.0
        self.resources: dict[str, dict[str, Any]] = {}
        self.put("", "ServiceRoot.v1_17_0.ServiceRoot", Chassis=self.link("/Chassis"))
        self._collect("/Chassis", "Chassis", [])

    @staticmethod
    def link(path: str) -> dict[str, str]:
        return {"@odata.id": ROOT + path}

    def put(self, path: str, kind: str, **content: Any) -> None:
        name = path.rpartition("/")[2] or "RootService"
        self.resources[ROOT + path] = {
            "@odata.id": ROOT + path,
            "@odata.type": f"#{kind}",
            "Id": name,
            "Name": name,
            **content,
        }

    def _collect(self, path: str, kind: str, members: list[str]) -> None:
        self.put(
            path,
            f"{kind}Collection.{kind}Collection",
            **{
                "Members": [self.link(each) for each in members],
                "Members@odata.count": len(members),
            },
        )

    def chassis(self, name: str, **links: str) -> str:
        path = f"/Chassis/{name}"
        fields = {each: self.link(target) for each, target in links.items()}
        self.put(path, "Chassis.v1_25_0.Chassis", ChassisType="RackMount", **fields)
        listed = self.resources[f"{ROOT}/Chassis"]["Members"]
        members = [each["@odata.id"].removeprefix(ROOT) for each in listed]
        self._collect("/Chassis", "Chassis", [*members, path])
        return path

    def with_metrics(self, name: str = "1", accuracy: Mapping[str, float] | None = None) -> None:
        path = self.chassis(name, EnvironmentMetrics=f"/Chassis/{name}/EnvironmentMetrics")
        sensor = f"{path}/Sensors/TotalPower"
        self.put(
            f"{path}/EnvironmentMetrics",
            "EnvironmentMetrics.v1_3_1.EnvironmentMetrics",
            PowerWatts={"Reading": "watts", "DataSourceUri": ROOT + sensor},
            EnergykWh={"Reading": 36166},
        )
        self.put(
            sensor,
            "Sensor.v1_9_0.Sensor",
            ReadingType="Power",
            ReadingUnits="W",
            Reading="watts",
            **(accuracy or {}),
        )

    def with_power(self, name: str = "1", **more: str) -> None:
        path = self.chassis(name, Power=f"/Chassis/{name}/Power", **more)
        control = {"MemberId": "0", "PowerConsumedWatts": "watts", "PowerCapacityWatts": 1600}
        self.put(f"{path}/Power", "Power.v1_7_2.Power", PowerControl=[control])

    def with_supplies(self, count: int, name: str = "1") -> None:
        path = self.chassis(name, PowerSubsystem=f"/Chassis/{name}/PowerSubsystem")
        supplies = f"{path}/PowerSubsystem/PowerSupplies"
        members = [f"{supplies}/{number}" for number in range(count)]
        self.put(
            f"{path}/PowerSubsystem",
            "PowerSubsystem.v1_1_2.PowerSubsystem",
            PowerSupplies=self.link(supplies),
        )
        self._collect(supplies, "PowerSupply", members)
        for each in members:
            self.put(each, "PowerSupply.v1_6_0.PowerSupply", Metrics=self.link(f"{each}/Metrics"))
            self.put(
                f"{each}/Metrics",
                "PowerSupplyMetrics.v1_1_2.PowerSupplyMetrics",
                InputPowerWatts={"Reading": "watts"},
                OutputPowerWatts={"Reading": 1.0},
            )

    def answer(self, asked: Asked) -> Answer:
        path = asked.path.rstrip("/")
        proof = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if path != ROOT and asked.headers.get("authorization") != f"Basic {proof}":
            return Answer(401, b"{}", headers={"WWW-Authenticate": "Basic"})
        if asked.method != "GET":
            return Answer(405)
        found = self.resources.get(path)
        if found is None:
            return Answer(404, b'{"error": {"code": "Base.1.18.ResourceMissingAtURI"}}')
        text = json.dumps(found).replace('"watts"', json.dumps(self.watts))
        return Answer(200, text.encode(), headers={"Content-Type": "application/json"})
