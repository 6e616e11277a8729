"""Pass a virtual function of the host (SR-IOV) to a virtual machine while the machine exists.

Linux binds a device only to the driver that its ``driver_override`` names. Without a name it binds
the device to any driver that fits. (Source, for the same file of another bus:
Documentation/ABI/testing/sysfs-bus-platform.) While the device is bound to ``vfio-pci``, its IOMMU
group has a file. The owner of that file may use the device without other rights
(Documentation/driver-api/vfio.rst). The file disappears when the device is given back.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry, Ledger
from tare.hosts.ledger.undoing import NotOwn
from tare.platforms.linux.network.functions import UNSET, VFIO
from tare.platforms.network import PCI_ADDRESS, VirtualFunction
from tare.platforms.statement import Write

FUNCTION = "pci-function"
"""The kind of ledger entries for functions that are bound to vfio-pci."""
CONTAINER = Path("/dev/vfio/vfio")
"""The file that a program which uses functions opens first; it gives no rights by itself."""
FUNCTION_WRITE = Write(
    FUNCTION,
    f"{VFIO} to driver_override of a free virtual function, unbind and drivers_probe; the "
    "interface of another one into a network namespace of Tare's",
    "driver_override cleared, unbind and drivers_probe; the interface goes back with the namespace",
    "/sys/bus/pci",
)
_DEVICES, _DRIVERS = Path("/sys/bus/pci/devices"), Path("/sys/bus/pci/drivers")
_PROBE = Path("/sys/bus/pci/drivers_probe")
_ASK_S = 20.0


@asynccontextmanager
async def bound_to_vfio(
    host: Host, ledger: Ledger, function: VirtualFunction
) -> AsyncIterator[Path]:
    """Bind a function to vfio-pci, and give it back to its former driver at the end.

    Args:
        host: The host that has the function.
        ledger: Records each change before it is made.
        function: The function, which nobody else uses.

    Yields:
        The file of its IOMMU group.

    Raises:
        MachineFault: The function cannot be bound, or cannot be given back.
    """
    override = await _override(host, function.address)
    if override:
        # Another process uses it, and would lose it when it is given back at the end.
        raise MachineFault(f"{function.address} was taken for {override} meanwhile", transient=True)
    entry = ledger.record(FUNCTION, address=function.address, driver=function.driver)
    try:
        group = await _bind(host, function)
        yield group
    finally:
        await rebind(host, entry)
        ledger.done(entry)


async def _bind(host: Host, function: VirtualFunction) -> Path:
    address, device = function.address, _DEVICES / function.address
    try:
        await host.write(device / "driver_override", VFIO.encode())
        if function.driver:
            await host.write(_DRIVERS / function.driver / "unbind", address.encode())
        await host.write(_PROBE, address.encode())
    except OSError as error:
        raise MachineFault(f"{address} cannot be bound to {VFIO}: {error}") from error
    has = await _driver(host, address)
    if has != VFIO:
        raise MachineFault(f"{address} cannot be bound to {VFIO}: {has or 'no driver'} has it")
    group = Path("/dev/vfio") / function.group
    if not await host.exists(group):
        # Without an IOMMU vfio names its groups differently, and does not protect the host.
        raise MachineFault(f"{address} is bound to {VFIO}, and there is no {group}")
    return group


async def rebind(host: Host, entry: Entry) -> str:
    """Give a function back to its former driver, unless that was already done.

    Returns:
        The action in one sentence; empty if there was nothing to do.

    Raises:
        NotOwn: The entry names no PCI function.
        OSError, MachineFault: It cannot be given back.
    """
    address, driver = str(entry.details["address"]), str(entry.details["driver"])
    if not re.fullmatch(PCI_ADDRESS, address) or "/" in driver:
        raise NotOwn("it names no PCI function")
    device = _DEVICES / address
    # After a reboot, or if its owner created the functions again, no change of Tare's remains.
    if entry.boot != host.boot_id() or not await host.exists(device):
        return ""
    override = await _override(host, address)
    if override not in (VFIO, ""):
        return f"{address} is kept for {override}, which Tare did not ask for: left."
    has = await _driver(host, address)
    if override == VFIO:
        if has == VFIO:
            await host.write(_DRIVERS / VFIO / "unbind", address.encode())
        await host.write(device / "driver_override", b"\n")
        has = await _driver(host, address)
    elif has:
        return ""
    if driver and has != driver:
        await host.write(_PROBE, address.encode())
        if (has := await _driver(host, address)) != driver:
            raise MachineFault(f"{address} is with {has or 'no driver'}, and was with {driver}")
    return f"Gave {address} back to {driver or 'nobody, as before'}."


async def _override(host: Host, address: str) -> str:
    """Return the only driver that may bind a device; empty: any driver that fits."""
    text = (await host.read(_DEVICES / address / "driver_override")).decode().strip()
    return "" if text == UNSET else text


async def _driver(host: Host, address: str) -> str:
    """Return the driver to which a device is bound; empty: none."""
    link = ["readlink", str(_DEVICES / address / "driver")]
    done = await host.run(link, timeout_s=_ASK_S)
    return Path(done.stdout.decode(errors="replace").strip()).name
