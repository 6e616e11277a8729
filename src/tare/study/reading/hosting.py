"""Where a study is carried out: on this computer, over SSH, or in the lab."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tare.study.model.forms import PACKAGE, absolute_path, host_alone
from tare.study.model.lab_nodes import Uneven, cpus_by_node
from tare.study.model.releases import Release
from tare.study.planning.cpu_choice import Cores, CpuChoice, CpuWords
from tare.study.reading.jump_hosts import jump_text
from tare.study.reading.own_files import kernel_file, program_file, xen_file
from tare.units import Duration, Size, format_size

LEAST_LAB_MEMORY = 1 << 30
"""Bytes; a Xen host alone takes the best part of it."""
MOST_LAB_CPUS = 64

BOOT_KEY = r"^[a-z0-9]{1,30}(-[a-z0-9]{1,30})?$"
"""A hypervisor's word and, behind a dash, its scheduler."""
Kind = Literal["local", "ssh", "lab"]
ALWAYS = ("local", "lab")
"""The names of hosts that are always there: this computer, and an emulated one."""


class Part(BaseModel):
    """What all parts of a study share: they hold, refuse unknown keys, and do nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _or_words(*words: str) -> Any:
    """Say in a schema that some words may stand for the whole mapping."""

    def change(schema: dict[str, Any]) -> None:
        mapping = dict(schema)
        schema.clear()
        mapping.get("properties", {}).pop("kind", None)
        for key in ("description", "title"):
            if key in mapping:
                schema[key] = mapping.pop(key)
        schema["anyOf"] = [{"enum": list(words)}, mapping]

    return change


class GrubEntry(Part):
    """One entry of a host's boot menu."""

    entry: str = Field(
        min_length=1,
        max_length=500,
        # `grub-reboot` takes `--help` for its own and ends well, with nothing chosen.
        pattern=r"^[^-\x00-\x1f][^\x00-\x1f]*$",
        description="Its title, id or number, as `grub-reboot` takes it; submenus with `>`.",
    )


class Boot(Part):
    """Which entry of the boot menu boots the host with which hypervisor."""

    none: GrubEntry | None = Field(
        None, description="The kernel without a hypervisor below it; that of `kvm` if left out."
    )
    kvm: GrubEntry | None = Field(
        None, description="The kernel whose KVM runs machines; that of `none` if left out."
    )
    xen: GrubEntry | None = Field(None, description="Xen, with its default scheduler.")
    xen_credit: GrubEntry | None = Field(
        None, description="Xen with `sched=credit`; where arms ask for that scheduler."
    )
    xen_rtds: GrubEntry | None = Field(
        None, description="Xen with `sched=rtds`, built with it; where arms ask for that."
    )
    others: dict[Annotated[str, Field(pattern=BOOT_KEY)], GrubEntry] = Field(
        default_factory=dict,
        description="Hypervisors that a platform of your own needs below the kernel, each by the "
        "word that the platform states: `{acrn: {entry: …}}`.",
    )
    patience: Duration = Field(
        600.0, gt=0, description="How long the host may take to come back; with a unit or in s."
    )

    def entry_of(self, boot: str) -> str | None:
        """Return the entry for a boot such as ``xen:credit``; None where there is none."""
        found = self._entries.get(boot)
        return found.entry if found else None

    @property
    def boots(self) -> tuple[str, ...]:
        """What the host can be booted with, what has no hypervisor below its kernel first."""
        return tuple(boot for boot, entry in self._entries.items() if entry)

    @property
    def _entries(self) -> dict[str, GrubEntry | None]:
        return {
            "none": self.none or self.kvm,
            "kvm": self.kvm or self.none,
            "xen": self.xen or self.xen_credit or self.xen_rtds,
            "xen:credit": self.xen_credit,
            "xen:rtds": self.xen_rtds,
            **{key.replace("-", ":", 1): entry for key, entry in self.others.items()},
        }


def menu_key(boot: str) -> str:
    """Return where an entry for a boot such as ``xen:credit`` is named in the menu."""
    key = boot.replace(":", "-")
    return key if key.replace("-", "_") in Boot.model_fields else f"others.{key}"


def _or_name(schema: dict[str, Any]) -> None:
    """Say in a schema that the name of a host may stand for the whole mapping."""
    _or_words(*ALWAYS)(schema)
    schema["anyOf"][0] = {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,39}$"}


def or_list_of_names(schema: dict[str, Any]) -> None:
    """Say in a schema that a list of names may stand for a mapping of them."""
    mapping = {key: schema.pop(key) for key in list(schema) if key != "description"}
    schema["anyOf"] = [{"type": "array", "items": {"type": "string"}, "minItems": 1}, mapping]


class Login(Part):
    """How to log in to a computer over SSH; where secrets are found, but none of them."""

    user: str | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="The user to log in as: else the one that `ssh-config` names, or root.",
    )
    port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="The TCP port of its SSH server: else the one that `ssh-config` names, or 22.",
    )
    known_hosts: str | None = Field(
        None,
        min_length=1,
        description="A file of OpenSSH's form that holds the host's key: else those that "
        "`ssh-config` names, or `~/.ssh/known_hosts`. There is no way to go without.",
    )
    key: str | None = Field(
        None,
        description="A private key file: else those that `ssh-config` names; without these and "
        "without a password, the SSH agent and the keys in `~/.ssh` are offered.",
    )
    ssh_config: str | None = Field(
        None,
        min_length=1,
        description="A file of OpenSSH's form (ssh_config(5)) in which the name is looked up, and "
        "those of `jump`: else `~/.ssh/config`, where it is there; `none`: nothing is looked up. "
        "What is said here goes before it (`tare help hosts`).",
    )
    jump: Annotated[str, AfterValidator(jump_text)] | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="Computers to go through, as `ssh -J` takes them: `[USER@]HOST[:PORT]`, "
        "several with commas between, the first one first; `none`: none, whatever `ssh-config` "
        "says.",
    )
    passphrase_env: str | None = Field(
        None, description="The environment variable that holds the key's passphrase."
    )
    password_env: str | None = Field(
        None, description="The environment variable that holds the password."
    )
    password_file: str | None = Field(
        None, description="A file, for its owner's eyes only, whose first line is the password."
    )
    sudo: bool = Field(
        False,
        description="Whether to work as root by `sudo`, which must not ask the user for a "
        "password.",
    )

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if self.password_env is not None and self.password_file is not None:
            raise ValueError("give `password-env` or `password-file`, not both")
        return self


class CpuKeys(Part):
    """Which CPUs of a host are used, as a study and a host's description say it."""

    cpus: CpuWords | None = Field(
        None,
        description="The host's CPUs that machines run on, all of one kind of core: numbers like "
        "`[2, 3]` or `2-5,8`, a NUMA node like `{node: 1}`, or an L3 cache like `{l3: 0}` (counted "
        "from 0 by the lowest CPU). All that Tare may use when left out.",
    )
    housekeeping: CpuWords | None = Field(
        None,
        description="The host's CPUs for all that is not a machine's vCPU, written like `cpus`; "
        "machines are not placed on them. All other CPUs when left out.",
    )
    cores: Cores | None = Field(
        None,
        description="On a host with several kinds of cores, the kind that all machines run on: "
        "`performance` or `efficiency`. The fastest kind that has enough CPUs when left out.",
    )

    @property
    def choice(self) -> CpuChoice:
        """What was asked for of the host's CPUs."""
        return CpuChoice(self.cpus or "", self.housekeeping or "", self.cores)


class HostSpec(Login, CpuKeys):
    """The computer that machines run on: its name, or how it is reached over SSH."""

    model_config = ConfigDict(json_schema_extra=_or_name)

    kind: Kind = Field("local", description="`ssh` where the key of that name is given.")
    ssh: Annotated[str, AfterValidator(host_alone)] | None = Field(
        None, min_length=1, max_length=255, description="Name or address of the host."
    )
    patience: Duration = Field(
        30.0, gt=0, description="How long a broken connection is tried again; the cell goes on."
    )
    folder: Annotated[str, AfterValidator(absolute_path)] | None = Field(
        None,
        max_length=500,
        description="The folder of the host that keeps Tare's agent, in which programs must be "
        "allowed to run: else `$XDG_CACHE_HOME` or `~/.cache` there.",
    )
    boot: Boot | None = Field(
        None,
        description="Boot menu entries, so that one host serves arms of several hypervisors.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, data: Any) -> Any:
        if isinstance(data, str):
            if data not in ALWAYS:
                raise ValueError(
                    f"must be `local`, `lab` or {{ssh: NAME}}, not {data!r}; "
                    f"for a host over SSH write {{ssh: {data}}}"
                )
            return {"kind": data}
        if isinstance(data, Mapping) and data and "kind" not in data:
            if data.get("ssh") is None and data.keys() <= CpuKeys.model_fields.keys():
                return {**data, "kind": "local"}
            if data.get("ssh") is None:
                raise ValueError("name the host, as in {ssh: NAME}, or write `local` or `lab`")
            return {**data, "kind": "ssh"}
        return data

    @model_validator(mode="after")
    def _whole(self) -> HostSpec:
        if (self.kind == "ssh") != (self.ssh is not None):
            raise ValueError("name the host, as in {ssh: NAME}, or write `local` or `lab`")
        if self.kind != "ssh":
            fit = {"kind", "ssh", *CpuKeys.model_fields}
            extra = sorted(self.model_fields_set - fit - _unset(self))
            if extra:
                raise ValueError(f"`{extra[0].replace('_', '-')}` is of use with `ssh` only")
        return self


_ONCE = {"user": "root", "port": 22, "known_hosts": "~/.ssh/known_hosts"}
"""Defaults that were stored before the SSH configuration was read.

What is a default today may change (:mod:`tare.hosts.ssh.finding`); what was stored does not.
"""


def _unset(spec: HostSpec) -> set[str]:
    """Return the fields that a stored study gives as what they are, or once were, anyway."""
    return {
        name
        for name, info in HostSpec.model_fields.items()
        if getattr(spec, name) in (info.default, _ONCE.get(name, info.default))
    }


def _enough(value: int) -> int:
    if value < LEAST_LAB_MEMORY:
        raise ValueError(
            f"{format_size(value)} is too little for a hypervisor and its machines; "
            f"give at least {format_size(LEAST_LAB_MEMORY)}"
        )
    return value


LABS: Mapping[str, Mapping[str, Any]] = {
    "deterministic": {"deterministic": True},
    "large": {"cpus": 4, "memory": 8 << 30},
}
"""Words that stand for a lab's keys."""


class LabSpec(Part):
    """The emulated computer of `host: lab`; a word may stand for it.

    `deterministic` for that alone, `large` for 4 CPUs and 8 GiB: arms of four vCPUs, or scenarios
    of three neighbours.
    """

    model_config = ConfigDict(json_schema_extra=_or_words("deterministic", "large"))

    cpus: int = Field(
        2,
        ge=1,
        le=MOST_LAB_CPUS,
        description="How many CPUs it has; a deterministic one has 1, and that is its default.",
    )
    nodes: int = Field(
        1,
        ge=1,
        le=MOST_LAB_CPUS,
        description="How many NUMA nodes it has: CPUs and memory are dealt to them evenly.",
    )
    dom0_cpus: int = Field(
        1,
        ge=1,
        le=MOST_LAB_CPUS,
        description="Under Xen, of how many of its CPUs dom0 has one vCPU each, from the first "
        "CPU on. While an arm's machines run they are kept on the CPUs that the arm's `dom0-cpus` "
        "names, which is the first alone when left out.",
    )
    memory: Annotated[Size, AfterValidator(_enough)] = Field(
        4 << 30, description="How much memory it has, for the hypervisor and all its machines."
    )
    release: Release | None = Field(
        None,
        description="The release of Debian that it is made of, Linux, hypervisors, their tools and "
        "QEMU, and whose kernel its guests boot: `bookworm` (12) or `trixie` (13); this "
        "computer's own when left out. An arm may name another.",
    )
    xen: Annotated[str, AfterValidator(xen_file)] | None = Field(
        None,
        description="A Xen of your own: its file (`xen`, `xen.gz`), of the version that the lab's "
        "tools are of; or `rtds`, which is Debian's, built here with the scheduler RTDS. Where an "
        "arm asks for that scheduler, and nothing is given, it runs on the latter.",
    )
    kernel: Annotated[str, AfterValidator(kernel_file)] | None = Field(
        None,
        description="A Linux of your own for the lab itself, under its hypervisor or for KVM: the "
        "file of a vmlinuz, its modules beside it or in `/lib/modules`. What guests boot is the "
        "study's `kernel`.",
    )
    qemu: Annotated[str, AfterValidator(program_file)] | None = Field(
        None,
        description="An emulator of your own for the lab: the file of a `qemu-system-x86_64`.",
    )
    packages: tuple[Annotated[str, PACKAGE], ...] = Field(
        (),
        max_length=100,
        description="Further packages of its release, for what a driver needs there: `[lvm2]`. "
        "They are unpacked and not installed: no script of theirs runs, no service is started.",
    )
    deterministic: bool = Field(
        False,
        description="Time that counts instructions, not the computer's: slower, on one CPU of "
        "this computer, and much the same every time.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, data: Any) -> Any:
        if isinstance(data, str):
            if data not in LABS:
                raise ValueError(
                    f"must be `deterministic`, `large` or keys with values, not {data!r}"
                )
            data = LABS[data]
        if isinstance(data, Mapping) and data.get("deterministic") is True and "cpus" not in data:
            data = {**data, "cpus": 1}
        # What comes from here is no JSON any more, of which a list would do for a tuple.
        if isinstance(data, Mapping) and isinstance(named := data.get("packages"), list):
            data = {**data, "packages": tuple(named)}
        return data

    @model_validator(mode="after")
    def _counts_on_one_cpu(self) -> Self:
        if self.deterministic and self.cpus != 1:
            # See tare.lab.options: with more, Linux does not boot in counted time.
            raise ValueError(f"a deterministic lab has one CPU, not {self.cpus}")
        return self

    @model_validator(mode="after")
    def _has_those_of_dom0(self) -> Self:
        if self.dom0_cpus > self.cpus:
            raise ValueError(f"dom0 cannot have {self.dom0_cpus} of {self.cpus} CPUs")
        return self

    @model_validator(mode="after")
    def _nodes_are_alike(self) -> Self:
        try:
            cpus_by_node(self.cpus, self.nodes)
        except Uneven as error:
            raise ValueError(f"{error}; {error.hint}") from None
        return self
