"""Select the modules of a live image, and list the devices that need them.

The agent loads a module when a device reports one of the module's aliases, as udev does. The list
in the image therefore holds each module's file, its dependencies and its aliases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tare.errors import InputError
from tare.images import cpio
from tare.images.guest_image import MODULE_LIST
from tare.images.modules import Module, ModuleTree, modinfo
from tare.images.vmlinux import NotExtractable

DRIVER_LIST = "etc/tare/drivers"

ALWAYS = ("crc32c_generic", "erofs", "ext4")
"""Modules that every machine loads at boot: no device reports that it needs a file system."""

NAMED = ("brd",)
"""Modules that the agent loads by name when it needs them."""

REQUIRED = (
    *("e1000", "e1000e", "8139cp", "tulip", "vmxnet3", "virtio_net", "hv_netvsc", "xen_netfront"),
    *("ahci", "ata_piix", "nvme", "mptspi", "vmw_pvscsi", "virtio_blk", "virtio_scsi"),
    *("hv_storvsc", "xen_blkfront", "sd_mod", "sr_mod", "virtio_pci", "virtio_console", "hv_vmbus"),
)
"""Drivers of the devices that hypervisors emulate, and of their paravirtual replacements. A kernel
that lacks one is refused."""

OPTIONAL = (
    # Buses, and disks by USB.
    *("ehci_pci", "ohci_pci", "uhci_hcd", "xhci_pci", "usb_storage", "uas", "hv_utils"),
    # Further network cards of hypervisors and clouds.
    *("8139too", "pcnet32", "ne2k_pci", "ena", "gve", "igbvf", "ixgbevf", "iavf"),
    # Network cards of real machines that need no firmware in addition to the kernel.
    *("igb", "igc", "ixgbe", "i40e", "ice", "r8169", "realtek", "tg3", "broadcom", "bnxt_en"),
    *("mlx4_en", "mlx5_core", "atlantic", "forcedeth", "sky2", "alx", "atl1c"),
    # Controllers of disks, emulated and real.
    *("ata_generic", "mptsas", "sym53c8xx", "BusLogic", "mpt3sas", "megaraid_sas", "hpsa"),
    *("aacraid", "smartpqi", "sata_sil24", "sata_nv", "sata_via"),
)
"""Modules that the image includes if the kernel has them."""

_BUSES = re.compile(r"(pci|usb|virtio|vmbus|xen|scsi|mdio|acpi)[*:]")
_BEFORE = re.compile(r"pre:((?: +(?!post:|pre:)\S+)*)")


@dataclass(frozen=True)
class Drivers:
    """The modules of an image, in an order in which each comes after those it needs.

    Args:
        modules: All modules of the image.
        always: Modules to load at boot, in load order.
    """

    modules: tuple[Module, ...]
    always: tuple[Module, ...]

    def entries(self) -> list[cpio.CpioEntry]:
        """Return their entries in the initramfs: the files, and the agent's two lists."""
        always = "".join(f"/{_path(module)}\n" for module in self.always)
        return [
            cpio.file(MODULE_LIST, always.encode()),
            cpio.file(DRIVER_LIST, driver_list(self.modules).encode()),
            *(cpio.file(_path(module), module.data) for module in self.modules),
        ]


def find_drivers(tree: ModuleTree, version: str) -> Drivers:
    """Return the modules of a live image.

    Args:
        tree: All modules of the kernel.
        version: The kernel's version, for messages.

    Raises:
        InputError: The kernel lacks a module of :data:`REQUIRED`, or one cannot be read.
    """
    required = (*ALWAYS, *NAMED, *REQUIRED)
    if missing := tree.missing(required):
        raise InputError(
            f"the kernel {version} has no module {', '.join(missing)}, which the live image needs",
            "leave --kernel out: Debian's full kernel has them all",
        )
    try:
        named = tree.sort_by_dependency((*required, *OPTIONAL))
        # A module may ask for another one without depending on it.
        wished = [name for module in named for name in _soft_dependencies(module)]
        modules = tree.sort_by_dependency((*wished, *required, *OPTIONAL))
        return Drivers(modules, tree.sort_by_dependency(ALWAYS))
    except NotExtractable as error:
        raise InputError(f"a module of the kernel {version} cannot be used: {error}") from error


def driver_list(modules: Iterable[Module]) -> str:
    """Return the agent's list: for each module a line with file, dependencies and aliases."""
    held = tuple(modules)
    names = {module.name for module in held}
    lines = []
    for module in held:
        needs = [name for name in (*module.depends, *_soft_dependencies(module)) if name in names]
        aliases = [text for text in modinfo(module.data).get("alias", ()) if _BUSES.match(text)]
        lines.append(" ".join((f"/{_path(module)}", ",".join(needs) or "-", *aliases)))
    return "".join(f"{line}\n" for line in lines)


def _soft_dependencies(module: Module) -> tuple[str, ...]:
    """Return the modules that this one wants loaded before it (``softdep`` of modprobe.d(5))."""
    found = [
        name
        for text in modinfo(module.data).get("softdep", ())
        for part in _BEFORE.findall(text)
        for name in part.split()
    ]
    return tuple(name.replace("-", "_") for name in found)


def _path(module: Module) -> str:
    return f"lib/modules/{module.name}.ko"
