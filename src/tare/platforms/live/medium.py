"""The medium that a bare machine keeps: who it dials, and the key by which it is known.

Machines of hypervisors get a key each and lose it with their end. A bare machine is booted by its
owner, again and again with the same stick in it: so its key and Tare's certificate are kept, the
former on the stick, the latter with its own key in a file beside the stick's image.
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
    """What a medium's image and the file beside it hold.

    Args:
        callback: Where the machine dials.
        key: What it says first.
        certificate: What is shown to it.
    """

    callback: CallbackAddress
    key: Secret
    certificate: OwnCertificate


def certificate_file(medium: Path) -> Path:
    """Return the file beside a medium's image that holds Tare's certificate, with its key."""
    return medium.with_name(f"{medium.name}.pem")


def make_medium(out: Path, callback: CallbackAddress) -> None:
    """Write a medium's image, to be put on a stick or CD, and the certificate beside it.

    Both are for their owner's eyes only; what was there is replaced.

    Args:
        out: The image.
        callback: Where the machine dials, as it reaches this computer.

    Raises:
        InputError: They cannot be written.
    """
    made = identity("ecdsa-p256")
    told = {
        "version": VERSION,
        "name": "bare-live",
        "callback": str(callback),
        "certificate": made.digest,
        "key": secrets.token_hex(KEY_BYTES),
        # One boot is one batch: when the host is done, the machine starts anew.
        "again": True,
        # The same medium serves arms that go over the network, and others.
        **REPORT_NETWORK,
    }
    try:
        _write(out, configuration_image(told))
        _write(certificate_file(out), json.dumps({**told, "key": "", "pem": made.pem}).encode())
    except OSError as error:
        raise InputError(
            f"{error.filename or out} cannot be written: {error.strerror}", "name another file"
        ) from error


def read_medium(file: Path) -> Medium:
    """Read a medium's image, and the certificate beside it.

    Raises:
        InputError: One is not there, is no such file, or others may read it; or they are not of
            the same medium.
    """
    told = configuration_in_file(file)
    beside = certificate_file(file)
    try:
        kept = json.loads(_read(beside))
        pem, digest = str(kept["pem"]), str(kept["certificate"])
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{beside} holds no certificate of a medium", MAKE_ONE) from None
    if digest != told["certificate"]:
        raise InputError(f"{beside} is of another medium than {file}", MAKE_ONE)
    try:
        certificate = OwnCertificate(served(pem), digest)
    except OSError as error:
        raise InputError(f"the certificate in {beside} cannot be used: {error}", MAKE_ONE) from None
    return Medium(parse_callback_address(told["callback"]), Secret(told["key"]), certificate)


def configuration_in_file(file: Path) -> dict[str, str]:
    """Return the configuration on a medium's image; raises InputError where it holds none."""
    try:
        found = read_configuration(_read(file))
        told = {name: str((found or {})[name]) for name in ("callback", "certificate", "key")}
        parse_callback_address(told["callback"])
    except (ValueError, KeyError):
        raise InputError(f"{file} is no medium's image", MAKE_ONE) from None
    return told


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
