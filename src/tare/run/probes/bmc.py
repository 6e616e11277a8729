"""Power meters of a computer's baseboard management controller (BMC), by Redfish and by IPMI.

Redfish: the DMTF's DSP0266 (protocol) and DSP0268 (data model). IPMI: the command *Get Power
Reading* of Intel's DCMI specification, sent by ``ipmitool``.

The DMTF's own Python client verifies a certificate only if the caller passes one. This module uses
Python's HTTP client, which is enough for a few GET requests and verifies as for every vendor's API.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tare.errors import TareError
from tare.hosts import Host
from tare.platforms.vendors.credentials import Credentials, credentials
from tare.platforms.vendors.tls import verifying
from tare.study.reading.hosting import ON_THE_HOST, BmcSpec

PREFIX = "TARE_BMC"
"""The prefix of the environment variables with user and password."""
ANSWER_S = 10.0
MOST_BYTES = 1 << 20
MOST_MEMBERS = 32
ROOT = "/redfish/v1/"


class NoReading(TareError):
    """The BMC reports no power."""


class _Absent(NoReading):
    """The BMC has no such resource."""


@dataclass(frozen=True)
class Power:
    """One reading.

    Args:
        watts: The power of the whole computer.
        accuracy_w: The largest error, as the BMC states it; None if it states none.
    """

    watts: float
    accuracy_w: float | None = None


class PowerMeter(ABC):
    """Reads the power of a computer; ``source`` names the resource, once `open` has found it."""

    source: str = ""

    @abstractmethod
    async def open(self) -> None:
        """Find the resource to read.

        Raises:
            TareError: The BMC does not answer, or has no reading.
        """

    @abstractmethod
    async def read(self) -> Power:
        """Return the present reading.

        Raises:
            TareError: The BMC has no reading.
        """


def meter_of(spec: BmcSpec, host: Host, here: Host) -> PowerMeter:
    """Return the meter that a study or the hosts file names.

    Args:
        spec: How the BMC is reached.
        host: The computer that it belongs to.
        here: This computer.

    Raises:
        InputError: The credentials or the certificates cannot be used.
    """
    if spec.redfish is not None:
        return Redfish(spec, credentials(PREFIX, spec.credentials))
    if spec.ipmi == ON_THE_HOST:
        return Ipmi(host)
    return Ipmi(here, spec.ipmi, credentials(PREFIX, spec.credentials))


class Ipmi(PowerMeter):
    """DCMI's power reading, by ``ipmitool``.

    Args:
        host: The host that runs ``ipmitool``: the computer itself, or this one.
        address: The BMC's address in the second case.
        account: Its account in the second case.
    """

    def __init__(
        self, host: Host, address: str | None = None, account: Credentials | None = None
    ) -> None:
        self._host = host
        self._argv, self._env = ["ipmitool"], dict[str, str]()
        if address is not None and account is not None:
            # -E takes the password from the environment: arguments are visible to everyone.
            self._argv += ["-I", "lanplus", "-H", address, "-U", account.user, "-E"]
            self._env["IPMI_PASSWORD"] = account.password.reveal()
        self._argv += ["dcmi", "power", "reading"]
        self.source = "IPMI (DCMI)"

    async def open(self) -> None:
        """Try a reading."""
        await self.read()

    async def read(self) -> Power:
        """Return the present reading."""
        done = await self._host.run(self._argv, timeout_s=ANSWER_S, env=self._env)
        if not done.ok:
            raise NoReading(f"ipmitool reports no power: {done.words()}")
        return Power(dcmi_watts(done.stdout.decode(errors="replace")))


_DCMI = re.compile(r"Instantaneous power reading:\s+(\d+) Watts")
_STATE = re.compile(r"Power reading state is:\s+(\w+)")


def dcmi_watts(text: str) -> float:
    """Return the power in the output of ``ipmitool dcmi power reading``.

    Raises:
        NoReading: The reading is missing, switched off, or 0, which BMCs without a meter report.
    """
    found, state = _DCMI.search(text), _STATE.search(text)
    if found is None or (state is not None and state[1] != "activated"):
        raise NoReading("ipmitool reports no active power reading")
    if not int(found[1]):
        raise NoReading("the BMC reports 0 W for a computer that is on")
    return float(found[1])


class Redfish(PowerMeter):
    """The power of one chassis, by Redfish.

    The first resource that has a reading is used: ``EnvironmentMetrics``, ``Power``, or the input
    power of all supplies in ``PowerSubsystem``.

    Args:
        spec: Its address, port, certificates and chassis.
        account: The account.
    """

    def __init__(self, spec: BmcSpec, account: Credentials) -> None:
        self._address, self._port = spec.redfish or "", spec.port
        self._tls = verifying(spec.ca)
        self._chassis = spec.chassis
        proof = f"{account.user}:{account.password.reveal()}".encode()
        self._headers = {
            "Authorization": "Basic " + base64.b64encode(proof).decode(),
            "Accept": "application/json",
            "OData-Version": "4.0",
        }
        self._paths: tuple[str, ...] = ()
        self._sensors: dict[str, Mapping[str, Any]] = {}

    async def open(self) -> None:
        """Find the chassis and the resource that has a reading."""
        await asyncio.to_thread(self._find)

    async def read(self) -> Power:
        """Return the present reading."""
        return await asyncio.to_thread(self._read)

    def _find(self) -> None:
        """Find the one chassis with a reading."""
        root = self._get(ROOT)
        chassis = [
            path
            for path in self._members(_link(root, "Chassis"))
            if self._chassis in (None, path.rstrip("/").rpartition("/")[2])
        ]
        found: dict[str, tuple[str, tuple[str, ...]]] = {}
        for path in chassis:
            for source, paths in self._sources(self._get(path)):
                if all(map(self._has_reading, paths)):
                    found[path] = source, paths
                    break
        if not found:
            where = f"the chassis {self._chassis}" if self._chassis else "any chassis"
            raise NoReading(
                f"{self._address} does not report the power of {where}",
                "see which ones /redfish/v1/Chassis lists there, and name one by `chassis`",
            )
        if len(found) > 1:
            names = ", ".join(path.rstrip("/").rpartition("/")[2] for path in found)
            raise NoReading(
                f"{self._address} reports the power of several chassis: {names}",
                "name one by `chassis`",
            )
        ((name, self._paths),) = found.values()
        self.source = f"Redfish ({name})"

    def _has_reading(self, path: str) -> bool:
        try:
            return _reading(self._get(path)) is not None
        except _Absent:
            return False

    def _sources(self, chassis: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
        for name in ("EnvironmentMetrics", "Power"):
            if path := _link(chassis, name):
                yield name, (path,)
        if path := _link(chassis, "PowerSubsystem"):
            supplies = self._members(_link(self._get(path), "PowerSupplies"))
            metrics = tuple(_link(self._get(each), "Metrics") for each in supplies)
            if metrics and all(metrics):
                yield "PowerSubsystem", metrics

    def _read(self) -> Power:
        watts, accuracies = 0.0, list[float | None]()
        for path in self._paths:
            content = self._get(path)
            reading = _reading(content)
            if reading is None:
                raise NoReading(f"{path} of {self._address} no longer has a reading")
            watts += reading
            accuracies.append(self._accuracy(content, reading))
        known = [each for each in accuracies if each is not None]
        return Power(watts, sum(known) if len(known) == len(accuracies) else None)

    def _accuracy(self, content: Mapping[str, Any], watts: float) -> float | None:
        """Return the accuracy that the sensor behind a reading states, in watts."""
        excerpt = content.get("PowerWatts") or content.get("InputPowerWatts")
        path = excerpt.get("DataSourceUri") if isinstance(excerpt, Mapping) else None
        if not isinstance(path, str):
            return None
        if path not in self._sensors:
            try:
                self._sensors[path] = self._get(path)
            except NoReading:
                self._sensors[path] = {}
        sensor = self._sensors[path]
        # Accuracy, in percent, is deprecated in favour of ReadingAccuracy, in the reading's unit.
        share = _number(sensor.get("Accuracy"))
        own = _number(sensor.get("ReadingAccuracy"))
        return own if own is not None else share * watts / 100 if share is not None else None

    def _members(self, path: str) -> list[str]:
        members = self._get(path).get("Members") if path else None
        listed = members if isinstance(members, list) else []
        found = [each.get("@odata.id") for each in listed if isinstance(each, Mapping)]
        return [each for each in found if isinstance(each, str)][:MOST_MEMBERS]

    def _get(self, path: str) -> Mapping[str, Any]:
        connection = http.client.HTTPSConnection(
            self._address, self._port, timeout=ANSWER_S, context=self._tls
        )
        try:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            content = answer.read(MOST_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = str(error) or type(error).__name__
            raise NoReading(f"{self._address} does not answer by Redfish: {why}") from None
        finally:
            connection.close()
        if answer.status in (401, 403):
            raise NoReading(
                f"{self._address} refuses the account for {path}",
                f"correct `credentials`, or {PREFIX}_USER and {PREFIX}_PASSWORD",
            )
        if answer.status == 404:
            raise _Absent(f"{self._address} has no {path}")
        if answer.status != 200:
            raise NoReading(f"{self._address} answers {path} with HTTP status {answer.status}")
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, Mapping):
            raise NoReading(f"{self._address} answers {path} with something other than Redfish")
        return found


def _link(content: Mapping[str, Any], name: str) -> str:
    """Return the path of a resource that another one names; empty if it names none."""
    found = content.get(name)
    path = found.get("@odata.id") if isinstance(found, Mapping) else None
    return path if isinstance(path, str) else ""


def _reading(content: Mapping[str, Any]) -> float | None:
    """Return the watts of ``EnvironmentMetrics``, ``Power`` or a supply's metrics."""
    for name in ("PowerWatts", "InputPowerWatts"):
        if isinstance(excerpt := content.get(name), Mapping):
            return _positive(excerpt.get("Reading"))
    controls = content.get("PowerControl")
    if isinstance(controls, list) and controls and isinstance(controls[0], Mapping):
        # The first one is about the whole chassis (DSP0268).
        return _positive(controls[0].get("PowerConsumedWatts"))
    return None


def _positive(value: object) -> float | None:
    found = _number(value)
    return found if found else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
