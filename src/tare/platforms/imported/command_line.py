"""Find QEMU's arguments in a command line, a script, a libvirt log, or the output of ps(1)."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tare.platforms.imported.cpu_tuning import OWN_CPU
from tare.platforms.imported.model import Description
from tare.platforms.imported.notes import shown
from tare.platforms.imported.parsing import cpu_set, fraction, parse_whole_number

PROGRAM = re.compile(
    r"(?:^|/)\.?(?:qemu-system-(?P<arch>[a-z0-9_]+?)(?:-(?:spice|wrapped|unstable))?"
    r"|qemu-kvm|kvm-spice|kvm)$"
)
KVM_BY_NAME = re.compile(r"(?:^|/)(?:qemu-kvm|kvm-spice|kvm)$")
"""Programs that use KVM by default."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_REDIRECTION = re.compile(r"(?:&|[0-9]*[<>].*|;|\|.*|&&)$")
_HEADER = re.compile(r"^\s*(?:UID|USER|PID|F|S)\b.*\b(?:CMD|COMMAND|ARGS)\b")
_COLUMN = re.compile(
    r"(?:[0-9]+|[0-9.]+%?|\?|[A-Za-z][\w.+-]*|pts/[0-9]+|tty[0-9]+|[0-9:.-]+|[A-Z][a-z]{2}[0-9]{2}"
    r"|[DRSTZIWX][<NLsl+]*|[├└│─ |`\\_-]+)"
)
_OPTION = re.compile(r"--?[a-z][\w-]*$", re.IGNORECASE)
_UNQUOTED_JSON = re.compile(r"\s--?[a-z][a-z-]*\s+\{\"")
_FIRST_WORDS = 60
_WHOLE = 2
"""If at least this many words follow the program, the line is considered the complete command."""
_LOGGED = "starting up libvirt version"


@dataclass(frozen=True)
class Wrapper:
    """A program that starts another one.

    Args:
        valued: Its options whose value is a separate word.
        operands: The number of words between its options and the next program.
    """

    valued: frozenset[str] = frozenset()
    operands: int = 0


def _valued(words: str, operands: int = 0) -> Wrapper:
    return Wrapper(frozenset(words.split()), operands)


WRAPPERS: Mapping[str, Wrapper] = {
    "taskset": _valued("", 1),
    "chrt": _valued("-T -P -D --sched-runtime --sched-period --sched-deadline", 1),
    "numactl": _valued(
        "-m -N -C -i -p -P -l --membind --cpunodebind --physcpubind --interleave --preferred "
        "--preferred-many --weighted-interleave"
    ),
    "nice": _valued("-n --adjustment"),
    "ionice": _valued("-c -n --class --classdata"),
    "systemd-run": _valued(
        "-p -u -M -H -E -t --property --unit --machine --host --setenv --description --slice "
        "--uid --gid --nice --working-directory"
    ),
    "prlimit": _valued("-o --output"),
    "env": _valued("-u -C -S --unset --chdir --split-string"),
    "sudo": _valued("-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir"),
    "doas": _valued("-u -C"),
    "nohup": Wrapper(),
    "setsid": Wrapper(),
    "exec": _valued("-a"),
    "time": _valued("-f -o"),
    "stdbuf": _valued("-i -o -e"),
    "cgexec": _valued("-g"),
    "timeout": _valued("-k -s --kill-after --signal", 1),
    "setpriv": _valued(
        "--reuid --regid --groups --inh-caps --ambient-caps --bounding-set --securebits"
    ),
    "unshare": Wrapper(),
    "ip": _valued("-n", 3),
    "capsh": Wrapper(),
    "firejail": Wrapper(),
    "gdb": Wrapper(),
    "strace": _valued("-e -o -p -s"),
    "perf": _valued("-e -o", 1),
}
"""The programs that commonly start QEMU, with their options (from their manual pages)."""


@dataclass(frozen=True)
class QemuCommandLine:
    """A command line that runs QEMU.

    Args:
        before: The words before the program.
        program: The program.
        words: The words after it.
        others: The number of other QEMU command lines in the text.
        unread: The number of other lines in the text.
        in_table: Whether the words before the program are columns of ps(1).
    """

    before: tuple[str, ...]
    program: str
    words: tuple[str, ...]
    others: int = 0
    unread: int = 0
    in_table: bool = False

    @property
    def arch(self) -> str:
        """The processor architecture that the program emulates; empty if its name lacks it."""
        found = PROGRAM.search(self.program)
        return (found["arch"] or "") if found else ""

    @property
    def uses_kvm(self) -> bool:
        """Whether the program's name implies KVM."""
        return KVM_BY_NAME.search(self.program) is not None


def is_command(text: str) -> bool:
    """Return whether a text looks like a QEMU command line."""
    words = text.replace("\0", " ").split()
    # A process table lists many other programs first.
    several = words if _HEADER.match(text) else words[:_FIRST_WORDS]
    return any(PROGRAM.search(word) for word in several)


def find_line(text: str) -> QemuCommandLine:
    """Return the QEMU command line that a text contains: the first, or a log's last.

    Args:
        text: The text in a shell's form, in the form of ``/proc/PID/cmdline``, or from ps(1).

    Raises:
        ValueError: A quotation does not end, or the text contains no QEMU.
    """
    if "\0" in text:
        line = _line(text.rstrip("\0\n").split("\0"))
    elif _is_a_word_a_line(text):
        line = _line(text.strip().splitlines())
    elif _is_table(text):
        rows = [row for row in text.splitlines() if row.strip() and not _HEADER.match(row)]
        lines = [_line(_unquoted(row)) for row in rows]
        line = _chosen(lines)
        line = line and replace(line, in_table=True)
    else:
        line = _line_of_script(text)
    if line is None:
        raise ValueError("there is no QEMU in it")
    return line


def _chosen(lines: Sequence[QemuCommandLine | None], last: bool = False) -> QemuCommandLine | None:
    """Return the chosen QEMU command line, with the number of other ones."""
    found = [each for each in lines if each is not None]
    if not found:
        return None
    line = found[-1 if last else 0]
    return replace(line, others=len(found) - 1, unread=len(lines) - len(found))


def _line_of_script(text: str) -> QemuCommandLine | None:
    """Return the QEMU command line of a script, or the last one of a libvirt log."""
    kept = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    whole_text = re.sub(r"\\[ \t]*\n", " ", "\n".join(kept))
    lines = [_line(_parted(each)) for each in whole_text.splitlines() if each.strip()]
    line = _chosen(lines, last=_LOGGED in text)
    if line is not None and len(line.words) >= _WHOLE:
        return line
    # A quotation may extend over several lines, or each word may be on its own line.
    try:
        return _line(shlex.split(whole_text))
    except ValueError as error:
        raise ValueError(f"{error} in the command line") from None


def _parted(line: str) -> list[str]:
    """Return the words of one line; empty if a quotation does not end in it."""
    try:
        return shlex.split(line)
    except ValueError:
        return []


def _is_a_word_a_line(text: str) -> bool:
    """Return whether a text is ``/proc/PID/cmdline`` with a newline for each NUL."""
    lines = text.strip().splitlines()
    return len(lines) > 2 and PROGRAM.search(lines[0]) is not None and bool(_OPTION.match(lines[1]))


def _is_table(text: str) -> bool:
    """Return whether a text is from ps(1), top(1) or pgrep(1), which remove quotation marks."""
    if _HEADER.match(text) or _UNQUOTED_JSON.search(text):
        return True
    first = next((line for line in text.splitlines() if line.strip()), "").split()
    before = list(itertools.takewhile(lambda word: not PROGRAM.search(word), first))
    if not before or before[0].rpartition("/")[2] in WRAPPERS or before == first:
        return False
    # The process number is the first word, or the second, after the user.
    return before[0].isdigit() or (len(before) > 1 and before[1].isdigit())


def _unquoted(line: str) -> list[str]:
    """Split a line without quotation marks into words; a JSON object is one word."""
    words: list[str] = []
    depth = 0
    for word in line.split():
        if depth > 0:
            words[-1] += f" {word}"
        else:
            words.append(word)
        if depth > 0 or word.startswith("{"):
            depth += word.count("{") - word.count("}")
    return words


def _line(words: Sequence[str]) -> QemuCommandLine | None:
    """Return the QEMU command line among words; None if there is none."""
    place = _program(words)
    if place is None:
        return None
    after = list(words[place + 1 :])
    return QemuCommandLine(tuple(words[:place]), words[place], tuple(after))


def _program(words: Sequence[str]) -> int | None:
    """Return QEMU's position, skipping options' values, which may also be ``kvm``."""
    place = 0
    while place < len(words):
        word = words[place]
        if PROGRAM.search(word) and not (place and words[place - 1] in ("-g", "--group", "-u")):
            return place
        place += 1
    return None


def take_wrappers(found: Description, words: Sequence[str], *, in_table: bool) -> None:
    """Import the wrappers before QEMU, which choose CPUs, memory and scheduling.

    Args:
        found: The description read so far.
        words: Wrappers such as ``taskset -c 2-3 chrt -f 50``, assignments, or columns of ps(1).
        in_table: Whether the words may be columns of ps(1).
    """
    place = 0
    while place < len(words):
        word = words[place]
        name = word.rpartition("/")[2]
        place += 1
        if _ASSIGNMENT.match(word):
            found.set_aside(f"environment {word.partition('=')[0]}")
        elif name in WRAPPERS:
            place = _take_one(found, name, words, place)
        elif in_table and _COLUMN.fullmatch(word):
            found.set_aside(f"column {word}")
        else:
            found.leave(f"before QEMU: {shown('', word).removeprefix('=') or 'a word'}")


def _take_one(found: Description, name: str, words: Sequence[str], place: int) -> int:
    """Import a wrapper with its options; return the position of the next word."""
    wrapper = WRAPPERS[name]
    options: list[tuple[str, str]] = []
    operands: list[str] = []
    while place < len(words):
        word = words[place]
        if word.startswith("-") and word != "-" and not operands:
            option, equals, value = word.partition("=")
            if word[:2] in wrapper.valued and len(word) > 2:
                # This is a short option whose value is in the same word.
                option, equals, value = word[:2], "=", word[2:]
            place += 1
            if not equals and option in wrapper.valued and place < len(words):
                value = words[place]
                place += 1
            if option != "--":
                options.append((option, value))
        elif len(operands) < wrapper.operands:
            operands.append(word)
            place += 1
        elif name == "env" and _ASSIGNMENT.match(word):
            found.set_aside(f"environment {word.partition('=')[0]}")
            place += 1
        else:
            break
    found.carry(f"started by {name}")
    _TAKERS.get(name, _take_unknown)(found, name, options, operands)
    return place


def _listed(found: Description, name: str, options: Sequence[tuple[str, str]]) -> None:
    for option, value in options:
        found.leave(f"{name} {option} {value if len(value) < 60 else ''}".rstrip())


def _take_unknown(
    found: Description, name: str, options: Sequence[tuple[str, str]], operands: Sequence[str]
) -> None:
    if name in ("sudo", "doas", "env", "exec", "nohup", "setsid", "time", "stdbuf"):
        found.set_aside(f"started by {name} {' '.join(option for option, _ in options)}".rstrip())
        return
    found.leave(f"started by {' '.join([name, *(option for option, _ in options), *operands])}")


def bind_all_threads(found: Description, words: str, cpus: str) -> None:
    """Record that all threads of QEMU run on some CPUs.

    Args:
        found: The description read so far.
        words: The text of the note.
        cpus: A list such as ``2-3``.
    """
    numbers = cpu_set(cpus)
    if numbers is not None:
        found.options["emulator_cpus"] = list(numbers)
    found.leave(words, OWN_CPU if numbers else "it is not a list of CPUs")


def _taskset(
    found: Description, name: str, options: Sequence[tuple[str, str]], operands: Sequence[str]
) -> None:
    cpus = operands[0] if operands else ""
    names = [option for option, _ in options]
    listed = any(each in ("--cpu-list",) or "c" in each.lstrip("-")[:3] for each in names)
    if not listed:
        cpus = ",".join(map(str, _cpus_of_mask(cpus)))
    bind_all_threads(found, f"vCPUs on CPUs {cpus or 'of no mask'}", cpus)


def _cpus_of_mask(mask: str) -> list[int]:
    plain = mask.lower().removeprefix("0x").replace(",", "")
    if not re.fullmatch(r"[0-9a-f]{1,1024}", plain):
        return []
    bits = int(plain, 16)
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


def _chrt(
    found: Description, name: str, options: Sequence[tuple[str, str]], operands: Sequence[str]
) -> None:
    words = " ".join(option for option, _ in options)
    policies = {
        **dict.fromkeys(("-f", "--fifo"), "fifo"),
        **dict.fromkeys(("-b", "--batch"), "batch"),
        **dict.fromkeys(("-o", "--other"), "other"),
    }
    chosen = [policies[option] for option, _ in options if option in policies]
    unknown = [option for option, _ in options if option in ("-r", "--rr", "-i", "-d", "--idle")]
    priority = parse_whole_number(operands[0] if operands else "")
    if unknown or not chosen:
        found.leave(f"chrt {words} {priority}", "Tare supports `batch`, `fifo` and `other`")
    elif chosen[0] == "fifo":
        found.schedule(policy="fifo", priority=max(1, min(priority or 1, 98)))
        if (priority or 1) > 98:
            found.leave(f"priority {priority}", "98 is taken")
    else:
        found.schedule(policy=chosen[0])


def _numactl(
    found: Description, name: str, options: Sequence[tuple[str, str]], operands: Sequence[str]
) -> None:
    for option, value in options:
        if option in ("-m", "--membind"):
            found.bind_memory(value)
        elif option in ("-C", "--physcpubind"):
            bind_all_threads(found, f"vCPUs on CPUs {value}", value)
        else:
            found.leave(f"numactl {option} {value}".rstrip())


def _nice(
    found: Description, name: str, options: Sequence[tuple[str, str]], operands: Sequence[str]
) -> None:
    nice = "10"
    for option, value in options:
        nice = value or option.removeprefix("-").removeprefix("n")
    number = parse_whole_number(nice.lstrip("+-"))
    if number is None or number > 20:
        found.leave(f"nice {nice}", "it is not a nice value")
        return
    found.schedule(nice=max(-20, min(19, -number if nice.startswith("-") else number)))


def _systemd(
    found: Description, name: str, options: Sequence[tuple[str, str]], operands: Sequence[str]
) -> None:
    for option, value in options:
        if option in ("-p", "--property"):
            _property(found, value)
        elif option == "--nice":
            _nice(found, "nice", [("-n", value)], ())
        elif option in ("-E", "--setenv"):
            found.set_aside(f"environment {value.partition('=')[0]}")
        else:
            found.set_aside(f"systemd-run {option}")


def _property(found: Description, text: str) -> None:
    name, _, value = text.partition("=")
    cap = fraction(value.removesuffix("%"))
    if name == "CPUQuota" and value.endswith("%") and cap:
        found.schedule(cap=cap / 100)
    elif name == "CPUWeight" and (weight := parse_whole_number(value)) and weight <= 10_000:
        found.schedule(weight=weight)
    elif name == "Nice":
        _nice(found, "nice", [("-n", value)], ())
    elif name in ("AllowedCPUs", "CPUAffinity"):
        bind_all_threads(found, f"vCPUs on CPUs {value}", value.replace(" ", ","))
    elif name == "AllowedMemoryNodes":
        found.bind_memory(value)
    else:
        found.leave(f"systemd-run {name}")


def _ionice(
    found: Description, name: str, options: Sequence[tuple[str, str]], operands: Sequence[str]
) -> None:
    _listed(found, name, options or [("-c", "2")])


_Taker = Callable[[Description, str, Sequence[tuple[str, str]], Sequence[str]], None]
_TAKERS: Mapping[str, _Taker] = {
    "taskset": _taskset,
    "chrt": _chrt,
    "numactl": _numactl,
    "nice": _nice,
    "ionice": _ionice,
    "systemd-run": _systemd,
}


def without_shell(words: Sequence[str]) -> Iterator[str]:
    """Yield a command's words without the shell's parts: redirections, and ``&`` at the end."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif re.fullmatch(r"[0-9]?(?:>>?|<)", word):
            skip = True
        elif not _REDIRECTION.match(word):
            yield word
