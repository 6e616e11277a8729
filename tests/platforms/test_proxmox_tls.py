"""What Python asks of a node's certificate: all of RFC 5280, unless its CA was named."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from platforms import loopback_server
from platforms.proxmox_schema import ROOT
from platforms.proxmox_server import Proxmox
from platforms.vendor_served import reached
from tare.errors import InputError
from tare.platforms.proxmox.session import STRICTLY, ProxmoxSession

requests = pytest.importorskip("requests", reason="pip install 'hypertare[proxmox]'")
pytest.importorskip("proxmoxer", reason="pip install 'hypertare[proxmox]'")
connections = pytest.importorskip("urllib3.connection")
TOKEN = "tare@pve!runs"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (f"certificate verify failed: {STRICTLY} (_ssl.c:1032)", "pve-root-ca.pem"),
        ("certificate verify failed: self-signed certificate in chain", "pve-root-ca.pem"),
    ],
)
def test_refused_certificate_is_reported_with_a_remedy(
    words: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_PROXMOX_USER", "root@pam")
    monkeypatch.setenv("TARE_PROXMOX_PASSWORD", "planted-word")
    way = {"address": "pve.example", "port": None, "ca": None, "credentials": None}
    fault = ProxmoxSession(way).fault(requests.exceptions.SSLError(words))
    assert isinstance(fault, InputError) and hint in fault.hint


def made_by_a_node(folder: Path, address: str = "127.0.0.1") -> tuple[Path, Path]:
    """Make a CA and what it signs as Proxmox VE 8 does: without the authority's key identifier.

    Returns:
        The CA's certificate; and the server's key with its certificate.
    """
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)])
        for each in ("Proxmox Virtual Environment", "pve.example")
    ]
    day, now = datetime.timedelta(days=1), datetime.datetime.now(datetime.UTC)

    def begun(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(names[0])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
        )

    signs = x509.KeyUsage(*(each in (5, 6) for each in range(9)))
    its_key = x509.SubjectKeyIdentifier.from_public_key(keys[0].public_key())
    root = (
        begun(names[0], keys[0])
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(signs, critical=True)
        .add_extension(its_key, critical=False)
        .sign(keys[0], hashes.SHA256())
    )
    names_of = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    leaf = (
        begun(names[1], keys[1])
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=False)
        .add_extension(names_of, critical=False)
        .sign(keys[0], hashes.SHA256())
    )
    key = keys[1].private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    ca, whole = folder / "pve-root-ca.pem", folder / "pve-ssl.pem"
    ca.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    whole.write_bytes(key + leaf.public_bytes(serialization.Encoding.PEM))
    return ca, whole


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have requests ask what it does with Python 3.13, whichever runs here."""
    usual = connections.create_urllib3_context

    def context(*words: Any, **more: Any) -> ssl.SSLContext:
        made: ssl.SSLContext = usual(*words, **more)
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        return made

    monkeypatch.setattr(connections, "create_urllib3_context", context)


@pytest.fixture
def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[tuple[Proxmox, Path]]:
    """A node whose certificate is for 127.0.0.1, or for the address that a test names."""
    address = getattr(request, "param", "127.0.0.1")
    ca, whole = made_by_a_node(tmp_path, address)
    monkeypatch.setattr(loopback_server, "certificate", lambda _: whole)
    server = Proxmox(tmp_path)
    server.start()
    try:
        yield server, ca
    finally:
        server.stop()


def who_of(server: Proxmox, user: str) -> tuple[str, str]:
    return user, server.tokens[user] if "!" in user else server.passwords[user]


async def asked(server: Proxmox, user: str, ca: Path) -> Any:
    way = {**reached(server, *who_of(server, user)), "ca": str(ca)}
    session = ProxmoxSession(way)
    try:
        return await session.call(lambda api: api.version.get())
    finally:
        await session.close()


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("user", [ROOT, TOKEN])
async def test_a_nodes_own_certificate_is_taken_where_its_ca_is_named(
    served: tuple[Proxmox, Path], user: str
) -> None:
    server, ca = served
    # By requests' own way it is none.
    with pytest.raises(requests.exceptions.SSLError, match=STRICTLY):
        requests.get(f"https://127.0.0.1:{server.port}/api2/json/version", verify=str(ca))
    assert (await asked(server, user, ca))["version"] == "8.4.1"


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("user", [ROOT, TOKEN])
async def test_another_ca_or_another_name_is_refused_all_the_same(
    tmp_path: Path, served: tuple[Proxmox, Path], user: str
) -> None:
    server, _ = served
    (tmp_path / "other").mkdir()
    other, _ = made_by_a_node(tmp_path / "other")
    with pytest.raises(InputError, match="is not trusted"):
        await asked(server, user, other)
    assert server.asked == []


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("user", [ROOT, TOKEN])
@pytest.mark.parametrize("served", ["127.0.0.9"], indirect=True)
async def test_a_certificate_of_another_address_is_refused_all_the_same(
    served: tuple[Proxmox, Path], user: str
) -> None:
    server, ca = served
    with pytest.raises(InputError, match="is not trusted"):
        await asked(server, user, ca)
    assert server.asked == []


async def test_a_ticket_is_renewed_in_time_by_the_same_way(served: tuple[Proxmox, Path]) -> None:
    server, ca = served
    session = ProxmoxSession({**reached(server, *who_of(server, ROOT)), "ca": str(ca)})
    try:
        await session.call(lambda api: api.version.get())

        def age(api: Any) -> Any:
            api._backend.auth.birth_time -= 2 * api._backend.auth.renew_age
            return api.version.get()

        await session.call(age)
    finally:
        await session.close()
    assert server.asked.count("POST /api2/json/access/ticket") == 2
