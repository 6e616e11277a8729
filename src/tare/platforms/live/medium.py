"""The medium of a bare machine: the address that it dials, and the key that identifies it.

A hypervisor's machine gets its own key, which is removed with the machine. A bare machine is booted
by its owner many times from the same stick, so its key is kept on the stick. Tare's certificate,
with the certificate's key, is kept in a file next to the stick's image.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError
from tare.identity import identity
from tare.platforms.vendors.callback import KEY_BYTES, VERSION
from tare.platforms.vendors.configuration import (
    REPORT_NETWORK,
    configuration_image,
    read_configuration,
)
from tare.platforms.vendors.credentials import Secret
from tare.platforms.vendors.options import CallbackAddress, parse_callback_address
from tare.platforms.vendors.tls import OwnCertificate, served

MOST_BYTES = 1 << 22
MAKE_ONE = "make one: tare image medium --callback ADDRESS:PORT --out FILE"


@dataclass(frozen=True)
class Medium:
    """The content of a medium's image and of the file next to it.

    Args:
        callback: The address that the machine dials.
        key: The key that the machine sends first.
        certificate: The certificate that Tare shows to the machine.
    """

    callback: CallbackAddress
    key: Secret
    certificate: OwnCertificate


def certificate_file(medium: Path) -> Path:
    """Return the path of the file next to a medium's image with Tare's certificate and its key."""
    return medium.with_name(f"{medium.name}.pem")


def make_medium(out: Path, callback: CallbackAddress) -> None:
    """Write a medium's image for a stick or CD, and the certificate next to it.

    Only their owner may read them. Existing files are replaced.

    Args:
        out: The image.
        callback: The address of this computer that the machine dials.

    Raises:
        InputError: They cannot be written.
    """
    made = identity("ecdsa-p256")
    configuration = {
        "version": VERSION,
        "name": "bare-live",
        "callback": str(callback),
        "certificate": made.digest,
        "key": secrets.token_hex(KEY_BYTES),
        # One boot is one batch: the machine restarts when the host has finished the batch.
        "again": True,
        # The same medium serves arms that are measured over the network, and other arms.
        **REPORT_NETWORK,
    }
    try:
        _write(out, configuration_image(configuration))
        _write(
            certificate_file(out),
            json.dumps({**configuration, "key": "", "pem": made.pem}).encode(),
        )
    except OSError as error:
        raise InputError(
            f"{error.filename or out} cannot be written: {error.strerror}", "name another file"
        ) from error


def read_medium(file: Path) -> Medium:
    """Read a medium's image, and the certificate next to it.

    Raises:
        InputError: One of the files is missing or invalid, or other users may read it; or the files
            belong to different media.
    """
    configuration = configuration_in_file(file)
    kept_in = certificate_file(file)
    try:
        kept = json.loads(_read(kept_in))
        pem, digest = str(kept["pem"]), str(kept["certificate"])
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{kept_in} holds no certificate of a medium", MAKE_ONE) from None
    if digest != configuration["certificate"]:
        raise InputError(f"{kept_in} belongs to another medium than {file}", MAKE_ONE)
    try:
        certificate = OwnCertificate(served(pem), digest)
    except OSError as error:
        raise InputError(
            f"the certificate in {kept_in} cannot be used: {error}", MAKE_ONE
        ) from None
    callback = parse_callback_address(configuration["callback"])
    return Medium(callback, Secret(configuration["key"]), certificate)


def configuration_in_file(file: Path) -> dict[str, str]:
    """Return the configuration on a medium's image; raises InputError if there is none."""
    try:
        found = read_configuration(_read(file))
        configuration = {
            name: str((found or {})[name]) for name in ("callback", "certificate", "key")
        }
        parse_callback_address(configuration["callback"])
    except (ValueError, KeyError):
        raise InputError(f"{file} is not the image of a medium", MAKE_ONE) from None
    return configuration


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & 0o077:
                raise InputError(f"others may read {file}, which holds a key", f"chmod 600 {file}")
            return opened.read(MOST_BYTES)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", MAKE_ONE) from None


def _write(file: Path, content: bytes) -> None:
    draft = file.with_name(f".{file.name}.part")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(content)
    draft.replace(file)
