"""A Hyper-V host as the network sees it: WinRM over HTTPS, and PowerShell's shells behind it.

An unmodified pypsrp speaks with it. PowerShell's remoting protocol is psrpcore's, from the server's
side; NTLM is pyspnego's, bound to the certificate. What WinRM itself refuses ([MS-WSMV] 3.1.4, and
wsmerror.h):

============================ ======================================================================
nobody yet, a wrong password 401, with what is offered
no right to open a shell     5, ERROR_ACCESS_DENIED ("about_Remote_Troubleshooting")
a shell that has ended       2150858843, ERROR_WSMAN_UNEXPECTED_SELECTORS (pypsrp, issue 22)
no output yet                2150858793, ERROR_WSMAN_OPERATION_TIMEDOUT
============================ ======================================================================
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import secrets
import uuid
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import spnego
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from psrpcore.types import RunspacePoolState
from spnego.channel_bindings import GssChannelBindings

from platforms.hyperv_host import USER, Host
from platforms.hyperv_shell import Shell
from platforms.loopback_server import Answer, Asked, LoopbackServer

DENIED, NO_SHELL, NOTHING_YET = 5, 2150858843, 2150858793
S = "http://www.w3.org/2003/05/soap-envelope"
WSA = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
WSMAN = "http://schemas.dmtf.org/wbem/wsman/1/wsman.xsd"
RSP = "http://schemas.microsoft.com/wbem/wsman/1/windows/shell"
FAULT = "http://schemas.microsoft.com/wbem/wsman/1/wsmanfault"
DONE = f"{RSP}/CommandState/Done"
MOST_WAIT_S = 5.0
_SECONDS = re.compile(r"PT([\d.]+)S")


class Refused(Exception):
    """A fault of WinRM's."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class HypervServer(LoopbackServer):
    """The server of one host.

    Args:
        folder: Where its certificate and its accounts are.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.host = Host()
        self.password = "hyperv-word-" + secrets.token_hex(8)
        self.may_open = True
        self.takes_basic = False
        self.shells: dict[str, Shell] = {}
        self._accounts = folder / "accounts"
        self._proofs: dict[str, Any] = {}
        """By connection: how far a login is, or that it is done."""
        pem = self.ca.read_bytes()
        der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
        self._binding = GssChannelBindings(
            application_data=b"tls-server-end-point:" + hashlib.sha256(der).digest()
        )

    @property
    def plug(self) -> Any:
        return self.host.plug

    @plug.setter
    def plug(self, work: Any) -> None:
        self.host.plug = work

    @property
    def unplug(self) -> Any:
        return self.host.unplug

    @unplug.setter
    def unplug(self, work: Any) -> None:
        self.host.unplug = work

    def powered_off(self, vm: Any) -> None:
        """Note that a guest has ended by itself."""
        self.host.powered_off(vm)

    @property
    def left(self) -> list[str]:
        return self.host.left

    def stop(self) -> None:
        super().stop()
        os.environ.pop("NTLM_USER_FILE", None)

    def answer(self, asked: Asked) -> Answer:
        if (refused := self._unproven(asked)) is not None:
            return refused
        envelope = ET.fromstring(asked.body)
        message = envelope.findtext(f"{{{S}}}Header/{{{WSA}}}MessageID") or ""
        try:
            body = self._act(asked, envelope)
            return self._envelope(200, message, body)
        except Refused as fault:
            return self._envelope(500, message, _fault(fault))

    # Authentication.

    def _unproven(self, asked: Asked) -> Answer | None:
        """Return the answer to callers that have not logged in yet; None: they have."""
        kind, _, proof = asked.headers.get("authorization", "").partition(" ")
        with self.lock:
            known = self._proofs.get(asked.peer)
        if not kind and known is True:
            return None
        asked.label = "login"
        if kind == "Basic" and self.takes_basic:
            named = base64.b64decode(proof).decode()
            return None if named == f"{USER}:{self.password}" else self._offered()
        if kind != "Negotiate":
            return self._offered()
        if known is None or known is True:
            # pyspnego has no other way to learn of accounts.
            self._accounts.touch(0o600)
            self._accounts.write_text(f"{USER.replace(chr(92), ':')}:{self.password}\n")
            os.environ["NTLM_USER_FILE"] = str(self._accounts)
            known = spnego.server(protocol="negotiate", channel_bindings=self._binding)
        try:
            token = known.step(base64.b64decode(proof))
        except Exception:
            return self._offered()
        with self.lock:
            self._proofs[asked.peer] = True if known.complete else known
        if known.complete:
            return None
        answer = base64.b64encode(token or b"").decode()
        return Answer(401, headers={"WWW-Authenticate": f"Negotiate {answer}"})

    def _offered(self) -> Answer:
        offered = 'Negotiate, Basic realm="WSMAN"' if self.takes_basic else "Negotiate"
        return Answer(401, headers={"WWW-Authenticate": offered})

    # What is asked.

    def _act(self, asked: Asked, envelope: ET.Element) -> ET.Element:
        header, body = envelope.find(f"{{{S}}}Header"), envelope.find(f"{{{S}}}Body")
        assert header is not None and body is not None
        action = (header.findtext(f"{{{WSA}}}Action") or "").rpartition("/")[2]
        asked.label = action
        if action == "Create":
            return self._create(body)
        chosen = header.findtext(f"{{{WSMAN}}}SelectorSet/{{{WSMAN}}}Selector") or ""
        with self.lock:
            shell = self.shells.get(chosen)
        if shell is None:
            words = (
                f"The request for the Windows Remote Shell with ShellId {chosen} failed because "
            )
            raise Refused(NO_SHELL, words + "the shell was not found on the server.")
        if action == "Receive":
            return self._receive(asked, header, body, shell)
        if action == "Delete":
            with self.lock:
                del self.shells[chosen]
            return ET.Element(f"{{{RSP}}}DeleteResponse")
        made = ET.Element(f"{{{RSP}}}{action}Response")
        if action == "Command":
            line = body.find(f"{{{RSP}}}CommandLine")
            assert line is not None
            command = line.attrib["CommandId"]
            data = line.findtext(f"{{{RSP}}}Arguments") or ""
            # The request is known before it runs.
            asked.label = f"Command {shell.begin(command, base64.b64decode(data))}".strip()
            ET.SubElement(made, f"{{{RSP}}}CommandId").text = command
        elif action == "Send":
            stream = body.find(f"{{{RSP}}}Send/{{{RSP}}}Stream")
            assert stream is not None
            into = stream.attrib.get("CommandId")
            asked.label = f"Send {shell.feed(into, base64.b64decode(stream.text or ''))}".strip()
        elif action == "Signal":
            signal = body.find(f"{{{RSP}}}Signal")
            assert signal is not None
            shell.forget(signal.attrib["CommandId"])
        return made

    def _create(self, body: ET.Element) -> ET.Element:
        if not self.may_open:
            raise Refused(DENIED, "Access is denied.")
        wanted = body.find(f"{{{RSP}}}Shell")
        assert wanted is not None
        (opening,) = (each for each in wanted if each.tag.endswith("creationXml"))
        name = wanted.attrib["ShellId"]
        shell = Shell(self.host)
        shell.feed(None, base64.b64decode(opening.text or ""))
        assert shell.pool.state == RunspacePoolState.Opened
        with self.lock:
            self.shells[name] = shell
        made = ET.Element(f"{{{RSP}}}Shell")
        ET.SubElement(made, f"{{{RSP}}}ShellId").text = name
        return _with_selector(made, name)

    def _receive(
        self, asked: Asked, header: ET.Element, body: ET.Element, shell: Shell
    ) -> ET.Element:
        stream = body.find(f"{{{RSP}}}Receive/{{{RSP}}}DesiredStream")
        assert stream is not None
        command = stream.attrib.get("CommandId")
        found = _SECONDS.search(header.findtext(f"{{{WSMAN}}}OperationTimeout") or "")
        patience = min(MOST_WAIT_S, float(found[1]) if found else MOST_WAIT_S)
        data, done = shell.taken(command, patience)
        asked.label = f"Receive {shell.label(command)}".strip()
        if not data and not done:
            raise Refused(NOTHING_YET, "The operation cannot be completed within the time.")
        made = ET.Element(f"{{{RSP}}}ReceiveResponse")
        stream = ET.SubElement(made, f"{{{RSP}}}Stream", Name="stdout")
        stream.text = base64.b64encode(data).decode()
        if command is not None:
            state = DONE if done else DONE.replace("Done", "Running")
            ET.SubElement(made, f"{{{RSP}}}CommandState", CommandId=command, State=state)
        return made

    def _envelope(self, status: int, message: str, body: ET.Element) -> Answer:
        envelope = ET.Element(f"{{{S}}}Envelope")
        header = ET.SubElement(envelope, f"{{{S}}}Header")
        ET.SubElement(header, f"{{{WSA}}}RelatesTo").text = message
        ET.SubElement(header, f"{{{WSA}}}MessageID").text = f"uuid:{uuid.uuid4()}"
        holder = ET.SubElement(envelope, f"{{{S}}}Body")
        # The answer to a shell's creation is two elements.
        holder.extend(list(body) if body.tag == "two" else [body])
        return Answer(
            status,
            ET.tostring(envelope, encoding="utf-8"),
            headers={"Content-Type": "application/soap+xml;charset=UTF-8"},
        )


def _with_selector(shell: ET.Element, name: str) -> ET.Element:
    both = ET.Element("two")
    transfer = "http://schemas.xmlsoap.org/ws/2004/09/transfer"
    created = ET.SubElement(both, f"{{{transfer}}}ResourceCreated")
    parameters = ET.SubElement(created, f"{{{WSA}}}ReferenceParameters")
    chosen = ET.SubElement(parameters, f"{{{WSMAN}}}SelectorSet")
    ET.SubElement(chosen, f"{{{WSMAN}}}Selector", Name="ShellId").text = name
    both.append(shell)
    return both


def _fault(fault: Refused) -> ET.Element:
    made = ET.Element(f"{{{S}}}Fault")
    reason = ET.SubElement(made, f"{{{S}}}Reason")
    ET.SubElement(reason, f"{{{S}}}Text").text = str(fault)
    detail = ET.SubElement(made, f"{{{S}}}Detail")
    found = ET.SubElement(detail, f"{{{FAULT}}}WSManFault", Code=str(fault.code), Machine="HYPERV1")
    ET.SubElement(found, f"{{{FAULT}}}Message").text = str(fault)
    return made
