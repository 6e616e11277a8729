"""Disturb short runs at random; print the results, and write them into `tare help testing`.

usage: python -m torture [--faults N] [--seed S] [--only FAULT] [--at-once N] [--write PAGE]
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from hosts.hosts_sshd import Sshd
from torture import faults
from torture.judging import Verdict, lost_cells, spoilt_cells, unreasoned
from torture.table import between_marks, table
from torture.trial import CELLS, Trial

MOMENTS = 2 * CELLS + 2 * 6
MOST_RESUMES = 4


def torture(fault: str, seed: int, home: Path) -> Verdict:
    """Begin a run, break a part of it, resume it, and judge the result."""
    random = Random(seed)
    with _prepared(fault, home) as trial:
        trial.begin()
        trial.wait_for_moment(random.randrange(MOMENTS))
        time.sleep(random.uniform(0.0, 0.6))
        trial.note_processes()
        judge = faults.FAULTS[fault](trial, random)
        ended = trial.end()
        wrong = [*judge(ended, trial.events())]
        if ended.status == 2 and not trial.events() and fault not in faults.ENDS_ALL:
            wrong.append(f"the run never began: {ended.text[-300:]}")
        left: list[str] = []
        if ended.status < 0:
            left += _after_a_kill(trial)
        if fault not in faults.ENDS_ALL:
            wrong += _resume_until_end(trial)
        wrong += [
            f"traceback of {each.words[0]}" for each in trial.ends if "Traceback" in each.text
        ]
        wrong += unreasoned(trial.events())
        left += _settled(trial)
        # A run that never began has lost nothing.
        began = any(event["type"] == "run_started" for event in trial.events())
        lost = lost_cells(trial.events(), CELLS) if began else []
        spoilt = spoilt_cells(trial.events())
        return Verdict(fault, seed, tuple(lost), tuple(spoilt), tuple(left), tuple(wrong))


def _after_a_kill(trial: Trial) -> list[str]:
    """See that machines end with the command, and that what is left is removed by `tare clean`."""
    done = trial.tare("clean")
    return [] if done.status == 0 else [f"clean: {done.text[-200:]}"]


def _resume_until_end(trial: Trial) -> list[str]:
    """Resume the run until it has ended; return what was not reported rightly."""
    wrong: list[str] = []
    for _ in range(MOST_RESUMES):
        events = trial.events()
        if not any(event["type"] == "run_started" for event in events):
            return wrong
        if trial.tare("verify", str(trial.folder)).status != 0:
            wrong.append(f"verify: {trial.ends[-1].text[-200:]}")
        if events[-1]["type"] == "run_finished" and events[-1]["status"] == "complete":
            return wrong
        trial.tare("resume", str(trial.folder))
    last = trial.ends[-1]
    return [*wrong, f"it never became complete: {last.words[0]} {last.status} {last.text[-300:]}"]


def _settled(trial: Trial) -> list[str]:
    """Return what is left behind, after the kernel had a moment to end what was killed."""
    deadline = time.monotonic() + 10
    while (left := trial.remains()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


@contextmanager
def _prepared(fault: str, home: Path) -> Iterator[Trial]:
    trial = Trial(home)
    if fault in faults.OWN_DISK:
        faults.mount_disk(trial)
    server = None
    if fault in faults.AFAR:
        (home / "sshd").mkdir()
        server = Sshd(home / "sshd")
        server.start()
        faults.SERVERS[home] = server.cut
        trial.host = f"host: {{{server.in_a_study()}, patience: 30s}}\n"
    try:
        yield trial
    finally:
        if trial.alive and trial.process is not None:
            trial.process.kill()
            trial.process.wait()
        if server is not None:
            server.stop()
        if fault in faults.OWN_DISK:
            faults.unmount_disk(trial)


def drawn(seed: int, number: int, only: Sequence[str] = ()) -> list[tuple[str, int]]:
    """Return so many faults with their seeds, each kind as often as the others, in random order."""
    random = Random(seed)
    kinds = [name for name in faults.FAULTS if not only or name in only]
    chosen = [kinds[index % len(kinds)] for index in range(number)]
    random.shuffle(chosen)
    return [(fault, random.getrandbits(32)) for fault in chosen]


def _one(fault: str, seed: int, number: str) -> Verdict:
    """Run one trial, and print its result."""
    home = Path(tempfile.mkdtemp(prefix="torture-", dir="/var/tmp"))
    try:
        verdict = torture(fault, seed, home)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    mark = "ok" if verdict.well else "NOT WELL"
    print(f"{number} {fault} (seed {seed}): {mark}", flush=True)
    for what in ("lost", "left", "wrong", "spoilt"):
        for sentence in getattr(verdict, what):
            print(f"    {what}: {sentence}", flush=True)
    if verdict.well:
        shutil.rmtree(home, ignore_errors=True)
    else:
        print(f"    kept: {home}", flush=True)
    return verdict


def _all(todo: Sequence[tuple[str, int]], at_once: int) -> Iterator[Verdict]:
    """Run trials, some of them in parallel, and yield the result of each in their order."""
    with ThreadPoolExecutor(at_once) as pool:
        begun = [
            pool.submit(_one, fault, seed, f"{number}/{len(todo)}")
            for number, (fault, seed) in enumerate(todo, start=1)
        ]
        try:
            for each in begun:
                yield each.result()
        finally:
            pool.shutdown(cancel_futures=True)


def main() -> int:
    """Disturb runs; return 1 if anything was lost, left behind or reported wrongly."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), metavar="S")
    parser.add_argument("--only", action="append", choices=list(faults.FAULTS), default=[])
    parser.add_argument(
        "--again", type=int, metavar="SEED", help="one trial of --only, by its seed"
    )
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="trials side by side")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page that takes the table")
    asked = parser.parse_args()
    # Trials under way end in order then, as by Ctrl-C, which is ignored in the background.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    todo = drawn(asked.seed, asked.faults, asked.only)
    if asked.again is not None:
        todo = [(asked.only[0], asked.again)]
    print(f"{len(todo)} faults, seed {asked.seed}", flush=True)
    began = time.monotonic()
    verdicts: list[Verdict] = []
    with suppress(KeyboardInterrupt):
        # Finished trials are reported nevertheless.
        for verdict in _all(todo, asked.at_once):
            verdicts.append(verdict)
    text = table(verdicts, asked.seed, time.monotonic() - began)
    print(text)
    if asked.write is not None:
        asked.write.write_text(between_marks(asked.write.read_text(), text))
    return 0 if all(verdict.well for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
