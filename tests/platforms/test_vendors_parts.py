"""What drivers share: credentials, secrets, certificates, the configuration's image, sessions."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import pickle
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tare.errors import InputError, MachineFault, TareError
from tare.platforms.contract import Context
from tare.platforms.linux.network import Addresses, Isolated, spanning_network
from tare.platforms.vendors.configuration import configuration_image, read_configuration
from tare.platforms.vendors.credentials import HIDDEN, LEAST, Secret, credentials, scrubbed
from tare.platforms.vendors.machine import other_kernel, wrong_isolated_card
from tare.platforms.vendors.options import VendorOptions, parse_callback_address
from tare.platforms.vendors.session import Expired, Session, load_library
from tare.platforms.vendors.tls import own_certificate, verifying

PLANTED = "correct-horse-battery"


def written(folder: Path, text: str, mode: int = 0o600) -> str:
    file = folder / "credentials"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_credentials_come_from_the_environment() -> None:
    found = credentials("TARE_X", None, {"TARE_X_USER": "me", "TARE_X_PASSWORD": PLANTED})
    assert (found.user, found.password.reveal()) == ("me", PLANTED)
    assert PLANTED not in repr(found) + str(found) + f"{found}"
    with pytest.raises(InputError, match="TARE_X_PASSWORD is not set"):
        credentials("TARE_X", None, {"TARE_X_USER": "me"})


def test_credentials_come_from_a_file_for_its_owner_only(tmp_path: Path) -> None:
    found = credentials("TARE_X", written(tmp_path, f"# mine\nuser = me\npassword={PLANTED}=\n"))
    assert (found.user, found.password.reveal()) == ("me", f"{PLANTED}=")
    with pytest.raises(InputError, match="others may read") as refusal:
        credentials("TARE_X", written(tmp_path, f"user=me\npassword={PLANTED}\n", 0o640))
    assert "chmod 600" in refusal.value.hint


@pytest.mark.parametrize(
    "text",
    [
        f"me\n{PLANTED}\n",
        f"user=me\npassphrase={PLANTED}\n",
        f"password={PLANTED}\n",
        f"user=me\n{PLANTED}",
        f"user=me\npassword={PLANTED}\n\udcff",
    ],
)
def test_a_bad_file_is_reported_without_its_lines(tmp_path: Path, text: str) -> None:
    file = tmp_path / "credentials"
    file.write_bytes(text.encode(errors="surrogateescape"))
    file.chmod(0o600)
    with pytest.raises(InputError) as refusal:
        credentials("TARE_X", str(file))
    assert str(file) in str(refusal.value) and PLANTED not in repr(refusal.value)
    assert refusal.value.__cause__ is None


def test_a_secret_is_not_stored() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Secret(PLANTED))


@given(st.text(max_size=30), st.text(min_size=LEAST, max_size=20), st.text(max_size=30))
def test_secrets_are_cut_out(before: str, secret: str, after: str) -> None:
    text = scrubbed(f"{before}{secret}{after}", [Secret(secret)])
    assert secret not in text.replace(HIDDEN, "\0")


def test_the_longer_of_two_secrets_is_replaced_first() -> None:
    text = scrubbed("abcdef abcd", [Secret("abcd"), Secret("abcdef")])
    assert text == f"{HIDDEN} {HIDDEN}"


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=200), max_size=8))
def test_the_image_returns_its_configuration(configuration: dict[str, Any]) -> None:
    image = configuration_image(configuration)
    assert len(image) == 1 << 20
    assert read_configuration(image) == configuration


@pytest.mark.fuzz
@given(st.binary(max_size=3000), st.integers(0, 3000))
def test_an_image_that_is_damaged_is_refused_or_read(noise: bytes, at: int) -> None:
    image = bytearray(configuration_image({"key": "k"}))
    start = 16 * 2048 + at * 4
    image[start : start + len(noise)] = noise
    with contextlib.suppress(ValueError):
        read_configuration(bytes(image))
    assert read_configuration(noise) is None


def test_another_program_knows_the_image(tmp_path: Path) -> None:
    """Its content is read by another too: the agent, in ``test_vendors_callback``."""
    image = tmp_path / "cfg.iso"
    image.write_bytes(configuration_image({"version": 1}))
    blkid = subprocess.run(
        ["blkid", "-p", "-o", "export", image], capture_output=True, text=True, timeout=60
    )
    assert {"LABEL=TARE-CFG", "TYPE=iso9660"} <= set(blkid.stdout.splitlines()), blkid.stderr


def test_a_place_is_an_address_and_a_port() -> None:
    assert str(parse_callback_address("192.0.2.7:4460")) == "192.0.2.7:4460"
    for wrong in ("host:1", "192.0.2.7", "192.0.2.7:70000", ":1", "192.0.2.7:-1", "192.0.2.7:x"):
        with pytest.raises(ValueError):
            parse_callback_address(wrong)
        with pytest.raises(ValidationError, match="callback"):
            VendorOptions(address="a", callback=wrong)


def test_a_password_has_no_place_in_a_study() -> None:
    with pytest.raises(ValidationError):
        VendorOptions.model_validate({"address": "a", "password": PLANTED})
    options = VendorOptions(address="a", credentials="/root/c")
    assert options.connection() == {
        "address": "a",
        "port": None,
        "credentials": "/root/c",
        "ca": None,
    }
    # What was left is removed from any folder.
    assert VendorOptions(address="a", ca="x.pem").connection()["ca"] == str(Path.cwd() / "x.pem")


def test_certificates_are_verified_against_the_ca_that_is_named(tmp_path: Path) -> None:
    assert verifying(None).verify_mode is ssl.CERT_REQUIRED
    assert verifying(None).check_hostname
    empty = tmp_path / "ca.pem"
    for text in (None, "no certificate"):
        if text is not None:
            empty.write_text(text)
        with pytest.raises(InputError, match=r"ca\.pem"):
            verifying(str(empty))


def signed(folder: Path, *, named: str = "esxi.example", days: int = 2) -> tuple[Path, Path]:
    """Return a server's certificate, signed by a CA that nobody has, and the same with its key."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (named, "CA")]
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(names[0])
        .issuer_name(names[1])
        .public_key(keys[0].public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(named)]), critical=False)
        .sign(keys[1], hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    key = keys[0].private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    own, whole = folder / f"{named}-{days}.pem", folder / f"{named}-{days}-key.pem"
    own.write_bytes(made)
    whole.write_bytes(key + made)
    return own, whole


def greet(trusting: ssl.SSLContext, shown: Path, name: str = "esxi.example") -> None:
    """Shake hands in memory with a server that shows a certificate."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(shown)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(back, there, server_hostname=name)
    server = serving.wrap_bio(there, back, server_side=True)
    for _ in range(3):
        for end in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert client.version()


def test_a_servers_own_certificate_is_accepted_regardless_of_its_issuer(tmp_path: Path) -> None:
    own, whole = signed(tmp_path)
    greet(verifying(str(own)), whole)
    # And nothing else: not another's, not under another name, not after its time.
    (tmp_path / "other").mkdir()
    other, _ = signed(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError, match="issuer"):
        greet(verifying(str(other)), whole)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname"):
        greet(verifying(str(own)), whole, "esxi2.example")
    old, late = signed(tmp_path, days=-1)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        greet(verifying(str(old)), late)


def test_own_certificates_are_each_of_their_own() -> None:
    one, two = own_certificate(), own_certificate()
    assert one.digest != two.digest and len(one.digest) == 64
    assert one.context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_missing_library_is_reported_with_the_command() -> None:
    with pytest.raises(InputError) as refusal:
        load_library("no_such_library_at_all", "vsphere", "vSphere")
    assert refusal.value.hint == "pip install 'hypertare[vsphere]'"


class Faked(Session[int]):
    """Logs in at every request, and notes it."""

    def __init__(self) -> None:
        super().__init__("fake", Secret(PLANTED))
        self.logins = 0
        self.logouts: list[int] = []

    def log_in(self) -> int:
        self.logins += 1
        return self.logins

    def log_out(self, client: int) -> None:
        self.logouts.append(client)

    def fault(self, error: Exception) -> TareError:
        kind = Expired if isinstance(error, PermissionError) else MachineFault
        return kind(f"it answered: {error}")


async def test_an_expired_session_is_renewed_once() -> None:
    session = Faked()

    def work(client: int) -> int:
        if client == 1:
            raise PermissionError("who are you?")
        return client

    await session.open()
    assert await session.call(work) == 2
    assert (session.logins, session.logouts) == (2, [1])

    def never(client: int) -> int:
        raise PermissionError("who are you?")

    with pytest.raises(Expired):
        await session.call(never)
    assert session.logins == 3
    await session.close()
    assert session.logouts[-1] == 3


async def test_an_error_is_reported_without_the_secret_that_it_repeats() -> None:
    session = Faked()

    def work(_: int) -> None:
        raise ValueError(f"bad login {PLANTED}")

    with pytest.raises(MachineFault) as refusal:
        await session.call(work)
    assert str(refusal.value) == f"it answered: bad login {HIDDEN}"
    assert PLANTED not in repr(refusal.value) and refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__


def test_a_live_image_must_have_the_real_time_kernel_that_its_arm_names() -> None:
    general = {"kernel": {"release": "6.1.0-28-amd64", "preempt": "voluntary"}}
    realtime = {"kernel": {"release": "6.1.0-28-rt-amd64", "preempt": "rt"}}
    assert not other_kernel(realtime, "rt")
    assert not other_kernel(general, None) and not other_kernel(general, "generic")
    why = other_kernel(general, "rt")
    assert "6.1.0-28-amd64" in why and "tare image live --kernel rt" in why
    assert other_kernel({}, "rt")


@pytest.mark.parametrize(
    ("devices", "driver", "words"),
    [
        ("paravirtual", "virtio_net", ""),
        ("emulated", "e1000e", ""),
        ("emulated", "virtio_net", "is driven by virtio_net, and not as emulated"),
        ("paravirtual", "8139cp", "is driven by 8139cp, and not as paravirtual"),
        # A local agent plays the guest.
        ("emulated", "veth", ""),
    ],
)
def test_the_card_on_an_isolated_network_has_the_driver_of_the_arms_devices(
    devices: str, driver: str, words: str
) -> None:
    # The other card does not matter: the load does not use it.
    proof = {"nics": [{"driver": "rtl8139"}], "network": {"driver": driver, "error": None}}
    found = wrong_isolated_card(proof, devices)
    assert words in found and bool(found) == bool(words)


async def test_packets_are_counted_on_the_card_that_the_machine_reports(context: Context) -> None:
    addresses = Addresses(ipaddress.IPv4Network("10.1.2.0/24"))
    isolated = Isolated("tare-0123abcd", addresses)
    async with spanning_network([context], rooted=False, isolated=isolated) as whole:
        network = whole.on(context.host.name)
        await network.isolated("subject")
        # Runs of older versions count on this one.
        assert network.interface_of("subject") == "eth0"
        whole.record_interface("subject", "ens4")
        assert network.interface_of("subject") == "ens4"
        assert await network.addresses("subject", 4) == ("10.1.2.10",)
