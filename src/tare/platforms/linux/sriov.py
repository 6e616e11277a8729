"""A virtual function of the host (SR-IOV), passed to a virtual machine while that exists.

Linux binds a device to the one driver that its ``driver_override`` names, and to whatever fits once
that is cleared (the same file of another bus: Documentation/ABI/testing/sysfs-bus-platform). Bound
to ``vfio-pci``, its IOMMU group has a file, by whose owner a user without rights may be given it
(Documentation/driver-api/vfio.rst); that file goes when the device is given back.
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
"""The kind of the ledger's entries for functions that are bound to vfio-pci."""
CONTAINER = Path("/dev/vfio/vfio")
"""What a program that uses functions opens first; it gives no rights by itself."""
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
    """Bind a function to vfio-pci, and give it back to the driver that it had.

    Args:
        host: Whose it is.
        ledger: Records each change before it is made.
        function: The function, which nobody uses.

    Yields:
        The file of its IOMMU group.

    Raises:
        MachineFault: It does not let itself be bound, or given back.
    """
    override = await _override(host, function.address)
    if override:
        # Another process uses it, and would lose it if it were given back here.
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
        # Without an IOMMU vfio names its groups otherwise, and keeps nothing from the host.
        raise MachineFault(f"{address} is bound to {VFIO}, and there is no {group}")
    return group


async def rebind(host: Host, entry: Entry) -> str:
    """Give a function back to the driver that it had; nothing happens if it is back.

    Returns:
        What was done, in one sentence; empty if there was nothing to do.

    Raises:
        Refused: The entry names no PCI function.
        OSError, MachineFault: It cannot be given back.
    """
    address, driver = str(entry.details["address"]), str(entry.details["driver"])
    if not re.fullmatch(PCI_ADDRESS, address) or "/" in driver:
        raise NotOwn("it names no PCI function")
    device = _DEVICES / address
    # After a boot, or if its owner made the functions again, no change of Tare's is left.
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
    """Return the one driver that may have a device; empty: any that fits."""
    text = (await host.read(_DEVICES / address / "driver_override")).decode().strip()
    return "" if text == UNSET else text


async def _driver(host: Host, address: str) -> str:
    """Return the driver that has a device; empty: none."""
    link = ["readlink", str(_DEVICES / address / "driver")]
    done = await host.run(link, timeout_s=_ASK_S)
    return Path(done.stdout.decode(errors="replace").strip()).name
