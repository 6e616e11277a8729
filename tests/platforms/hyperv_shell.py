"""A shell of PowerShell's on a simulated host: psrpcore's runspace pool, and what runs in it."""

from __future__ import annotations

import threading
import uuid
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

from psrpcore import PSRPPayload, ServerPipeline, ServerRunspacePool, StreamType
from psrpcore.types import (
    ErrorCategory,
    ErrorCategoryInfo,
    ErrorRecord,
    NETException,
    PSCustomObject,
    PSDateTime,
    PSDuration,
    PSEnumBase,
    PSGuid,
    PSInt64,
    PSInvocationState,
    PSRPMessageType,
    PSType,
)

from platforms import hyperv_cmdlets, hyperv_compute, hyperv_vm_cmdlets
from platforms.hyperv_host import Host, Named, PsError
from tare.platforms.hyperv.cpu_groups import BIND, COMPUTE

WRITES = "param([string]$Path, [byte[]]$Bytes) [IO.File]::WriteAllBytes($Path, $Bytes)"
GROUPS = "[Security.Principal.WindowsIdentity]::GetCurrent().Groups | ForEach-Object Value"
SCRIPTS = {
    WRITES: "WriteAllBytes",
    GROUPS: "WindowsIdentity",
    COMPUTE: "computecore.dll",
    BIND: "ModifyResourceSettings",
}
"""The scripts that Tare may run, and their names here: there are no others."""
LARGE = 1 << 31
assert hyperv_vm_cmdlets.PERCENT, "its cmdlets are known by its import"


class Shell:
    """One runspace: pipelines run one after the other, in threads.

    Args:
        host: Where they run.
    """

    def __init__(self, host: Host) -> None:
        self.pool = ServerRunspacePool()
        self._host = host
        self._changed = threading.Condition()
        self._one = threading.Lock()
        self._out: dict[str | None, bytearray] = defaultdict(bytearray)
        self._pipelines: dict[str, ServerPipeline] = {}
        self._done: set[str] = set()
        self._labels: dict[str, str] = {}

    def begin(self, command: str, data: bytes) -> str:
        """Take a command's first piece; returns the cmdlets, where they are known by it."""
        with self._changed:
            # It has to be there before its data.
            self._pipelines[command] = ServerPipeline(self.pool, uuid.UUID(command))
        return self.feed(command, data)

    def feed(self, command: str | None, data: bytes) -> str:
        """Take a piece of data; returns the cmdlets that became known by it."""
        with self._changed:
            pipeline = self._pipelines.get(command or "")
            target = None if pipeline is None else pipeline.pipeline_id
            self.pool.receive_data(PSRPPayload(data, StreamType.default, target))
            while self.pool.next_event() is not None:
                pass
            self._flush()
            if command is None or pipeline is None or pipeline.metadata is None:
                return ""
            if command not in self._labels:
                commands = pipeline.metadata.commands
                names = [
                    SCRIPTS.get(each.command_text, "") if each.is_script else each.command_text
                    for each in commands
                ]
                self._labels[command] = " ".join(names)
                work = (command, pipeline, commands)
                threading.Thread(target=self._run, args=work, daemon=True).start()
            return self._labels[command]

    def label(self, command: str | None) -> str:
        return self._labels.get(command or "", "")

    def taken(self, command: str | None, patience: float) -> tuple[bytes, bool]:
        """Wait for output; returns it, and whether there will be no more."""
        with self._changed:
            self._changed.wait_for(
                lambda: bool(self._out[command]) or command in self._done, patience
            )
            return bytes(self._out.pop(command, b"")), command in self._done

    def forget(self, command: str) -> None:
        with self._changed:
            self._pipelines.pop(command, None)
            self._out.pop(command, None)

    def _flush(self) -> None:
        while (payload := self.pool.data_to_send()) is not None:
            target = payload.pipeline_id
            known = [key for key, each in self._pipelines.items() if each.pipeline_id == target]
            self._out[known[0] if known else None] += payload.data
        self._changed.notify_all()

    def _run(self, command: str, pipeline: ServerPipeline, commands: list[Any]) -> None:
        with self._one:
            with self._changed:
                pipeline.start()
            failed: PsError | None = None
            objects: list[Any] = []
            try:
                with self._host.lock:
                    for each in commands:
                        objects = self._command(each, objects)
            except PsError as error:
                objects, failed = [], error
            with self._changed:
                for each in objects:
                    pipeline.write_output(_sent(each, self._host))
                if failed is None:
                    pipeline.complete()
                elif failed.terminating:
                    pipeline._change_state(PSInvocationState.Failed, _record(failed))
                else:
                    self.pool.prepare_message(
                        _record(failed), PSRPMessageType.ErrorRecord, pipeline.pipeline_id
                    )
                    pipeline.complete()
                self._done.add(command)
                self._flush()

    def _command(self, command: Any, objects: list[Any]) -> list[Any]:
        given = [(str(name), _plain(value)) for name, value in command.parameters]
        if command.is_script:
            # Only known scripts run: this server has no PowerShell.
            assert command.command_text in SCRIPTS, command.command_text
            if command.command_text == GROUPS:
                return list(self._host.groups)
            if command.command_text == COMPUTE:
                return hyperv_compute.call(self._host, dict(given))
            if command.command_text == BIND:
                hyperv_compute.bind(self._host, dict(given))
                return []
            hyperv_cmdlets.write_all_bytes(self._host, dict(given))
            return []
        return hyperv_cmdlets.run(self._host, command.command_text, given, objects)


def _plain(value: Any) -> Any:
    """Return a value as Python has it."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, uuid.UUID):
        return uuid.UUID(str(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return bytes(value)


def _sent(value: Any, host: Host) -> Any:
    """Return a value as it travels."""
    if isinstance(value, dict):
        return PSCustomObject(**{name: _sent(each, host) for name, each in value.items()})
    if isinstance(value, Named):
        return _enumeration(value)
    if isinstance(value, timedelta):
        return PSDuration(days=value.days, seconds=value.seconds, microseconds=value.microseconds)
    if isinstance(value, datetime):
        return PSDateTime(value)
    if isinstance(value, uuid.UUID):
        return PSGuid(str(value))
    if isinstance(value, int) and not isinstance(value, bool) and value >= LARGE:
        return PSInt64(value)
    return _sent(value.properties(host), host) if hasattr(value, "properties") else value


def _enumeration(value: Named) -> Any:
    """Return a value of an enumeration of Hyper-V's, with all the types that one travels with."""
    made: Any = PSEnumBase
    kind: Any = made(value.kind, {value.name: 1})
    return PSType(type_names=[f"Microsoft.HyperV.PowerShell.{value.kind}"])(kind)[value.name]


def _record(error: PsError) -> ErrorRecord:
    return ErrorRecord(
        Exception=NETException(Message=error.words),
        CategoryInfo=ErrorCategoryInfo(Category=ErrorCategory.NotSpecified),
        FullyQualifiedErrorId=error.known,
    )
