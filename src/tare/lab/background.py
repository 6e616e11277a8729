"""The lab host of `tare lab up`, which stays in the background in a process of its own.

That process, the *caretaker*, holds the ledger ``lab``. So there is one lab at a time, and what a
killed caretaker leaves is found and removed. A note next to the ledgers has the lab's address.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.ledger.cleanup import clean
from tare.hosts.ledger.ledger import LAB, Ledger, LedgerInUse, ledger_path, state_dir
from tare.hosts.local import LocalHost
from tare.lab.command import LabPaths
from tare.lab.options import LabOptions

_DOWN_S = 30.0
_LOOK_S = 0.05


@dataclass(frozen=True)
class Note:
    """The record of the lab in the background.

    Args:
        caretaker: The id of the caretaker's process.
        options: The lab's options, the fields of :class:`LabOptions`.
        folder: The folder with the lab's files.
        port: The port of this computer's loopback that leads to its SSH server; 0 while it boots.
        ended: The reason why the lab ended unexpectedly; empty while it runs.
    """

    caretaker: int
    options: Mapping[str, Any]
    folder: str
    port: int = 0
    ended: str = ""

    @property
    def hypervisor(self) -> str:
        """The lab's hypervisor."""
        return str(self.options["hypervisor"])


def up(options: LabOptions, agent: Path, cache: Path, say: Callable[[str], None]) -> Note:
    """Boot a lab that outlives this process; return once it is up.

    Args:
        options: Its options.
        agent: The agent's program.
        cache: Directory of the images.
        say: Receives a sentence about each step.

    Raises:
        InputError: There is a lab already, or this computer cannot have one.
        MachineFault: It did not boot.
    """
    _refuse_second()
    order = {"options": asdict(options), "agent": str(agent), "cache": str(cache)}
    argv = [sys.executable, "-m", "tare.lab.background", json.dumps(order)]
    # Its own session: it outlives the terminal, and Ctrl-C is for this process alone.
    caretaker = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        return _listen(caretaker, say)
    except BaseException:
        caretaker.terminate()
        caretaker.wait()
        raise


def _refuse_second() -> None:
    if not _held():
        return
    note = read_note()
    if note is None or not note.port:
        raise InputError("a lab is being booted already", "wait for it, or run: tare lab down")
    raise InputError(
        f"a lab is up already, with the hypervisor {note.hypervisor} (process {note.caretaker})",
        "go there with `tare lab ssh`, or end it with `tare lab down`",
    )


def _listen(caretaker: subprocess.Popen[str], say: Callable[[str], None]) -> Note:
    """Read the caretaker's messages until the lab is up or has failed."""
    assert caretaker.stdout is not None
    other: list[str] = []
    for line in caretaker.stdout:
        try:
            message: dict[str, Any] = json.loads(line)
        except ValueError:
            other.append(line.rstrip())
            continue
        if "say" in message:
            say(message["say"])
        elif "up" in message:
            return Note(**message["up"])
        elif "input" in message:
            raise InputError(message["input"], message["hint"])
        elif "fault" in message:
            tail = tuple(message["console"])
            raise MachineFault(message["fault"], message["hint"], console_tail=tail)
    code = caretaker.wait()
    raise MachineFault(f"the lab's caretaker ended with status {code}: {'; '.join(other[-3:])}")


def down() -> Note | None:
    """End the lab in the background, and remove all its files here.

    Returns:
        Its note; None if there was no lab.

    Raises:
        MachineFault: It does not end.
    """
    note = read_note()
    if _held() and note is not None:
        os.kill(note.caretaker, signal.SIGTERM)
        deadline = time.monotonic() + _DOWN_S
        while _held():
            if time.monotonic() > deadline:
                raise MachineFault(
                    f"the lab's caretaker (process {note.caretaker}) does not end",
                    f"run: kill -9 {note.caretaker}; tare clean",
                )
            time.sleep(_LOOK_S)
    asyncio.run(_clean())
    _note_file().unlink(missing_ok=True)
    return note


def way_in(command: list[str]) -> list[str]:
    """Return the ssh command that logs in to the lab in the background.

    Args:
        command: The command to run there; empty for a shell.

    Raises:
        InputError: There is no lab, or it is not up.
    """
    note = read_note()
    if note is not None and note.ended:
        raise InputError(f"the lab is gone: {note.ended}", "start one with: tare lab up")
    if note is None or not _held():
        raise InputError("there is no lab", "start one with: tare lab up")
    if not note.port:
        raise InputError("the lab is still booting", "try again in some seconds")
    return login(LabPaths(Path(note.folder)), note.port, command)


def login(places: LabPaths, port: int, command: list[str]) -> list[str]:
    """Return the ssh command that logs in to a lab, in the background or not.

    Args:
        places: Its files.
        port: The port of this computer's loopback that leads to its SSH server.
        command: The command to run there; empty for a shell.
    """
    options = {
        "UserKnownHostsFile": places.known_hosts,
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "LogLevel": "ERROR",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    reach = ["-F", "none", "-i", str(places.key), *words, "-p", str(port)]
    return ["ssh", *reach, *(() if command else ("-t",)), "root@127.0.0.1", *command]


def read_note() -> Note | None:
    """Return the note of the lab in the background; None if there is no lab."""
    try:
        return Note(**json.loads(_note_file().read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _note_file() -> Path:
    return state_dir() / "tare-lab.json"


def _write(note: Note) -> None:
    draft = _note_file().with_suffix(".part")
    draft.write_text(json.dumps(asdict(note)))
    draft.chmod(0o600)
    draft.replace(_note_file())


def _held() -> bool:
    """Return whether a caretaker holds the lab's ledger."""
    path = ledger_path(LAB)
    if not path.exists():
        return False
    try:
        Ledger(path).close()
    except LedgerInUse:
        return True
    return False


async def _clean(agent: Path | None = None) -> None:
    path = ledger_path(LAB)
    if path.exists():
        ledger = Ledger(path)
        try:
            await clean(LocalHost(agent), ledger, {})
        finally:
            ledger.discard()


async def take_care(order: Mapping[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Boot the lab that was ordered, and keep it until SIGTERM or its own end.

    Args:
        order: ``options``, ``agent`` and ``cache``, as :func:`up` writes them.
        say: Sends one message to the process that ordered it.
    """
    # Imported here, because `tare lab ssh` also uses this module and does not need it.
    from tare.lab.host import lab_up
    from tare.platforms.contract import Context

    agent = Path(order["agent"])
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in order["options"].items()
    }
    options = LabOptions(**values)
    here = asyncio.current_task()
    assert here is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, here.cancel)
    await _clean(agent)
    folder = Path(tempfile.gettempdir()) / f"tare-lab-{os.getpid()}"
    note = Note(os.getpid(), asdict(options), str(folder))
    ledger = Ledger(ledger_path(LAB))
    try:
        _write(note)
        context = Context(LocalHost(agent), ledger, Path(order["cache"]), agent)
        say({"say": f"booting a lab with the hypervisor {options.hypervisor} …"})
        lab = await lab_up(context, options, folder, tell=lambda words: say({"say": words}))
        async with lab:
            # `tare lab ssh` does not need a session of Tare's own.
            await lab.host.close()
            note = Note(note.caretaker, note.options, note.folder, lab.port)
            _write(note)
            say({"up": asdict(note)})
            died = await asyncio.shield(lab.died)
            note = Note(note.caretaker, note.options, note.folder, ended=died.message)
        _write(note)
    except BaseException:
        _note_file().unlink(missing_ok=True)
        raise
    finally:
        ledger.discard()


def main(argv: list[str]) -> int:
    """Run the caretaker; ``argv`` holds the order as JSON."""

    def say(message: Mapping[str, Any]) -> None:
        print(json.dumps(message), flush=True)
        if "up" in message:
            # The reader ends now, and no later output may fail because nobody reads it.
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            os.dup2(null, 2)

    try:
        asyncio.run(take_care(json.loads(argv[0]), say))
    except InputError as error:
        say({"input": error.message, "hint": error.hint})
        return 2
    except TareError as error:
        tail = error.console_tail if isinstance(error, MachineFault) else ()
        say({"fault": error.message, "hint": error.hint, "console": tail})
        return 1
    except (asyncio.CancelledError, KeyboardInterrupt):
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
