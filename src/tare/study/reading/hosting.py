"""The computers that a study runs on: this one, one over SSH, or the lab."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tare.study.model.forms import PACKAGE, absolute_path, host_alone, jump_text
from tare.study.model.lab_nodes import Uneven, cpus_by_node
from tare.study.model.releases import Release
from tare.study.planning.cpu_choice import Cores, CpuChoice, CpuWords
from tare.study.reading.own_files import kernel_file, program_file, xen_file
from tare.units import Duration, Size, format_size

LEAST_LAB_MEMORY = 1 << 30
"""Bytes; a Xen host alone takes most of it."""
MOST_LAB_CPUS = 64

BOOT_KEY = r"^[a-z0-9]{1,30}(-[a-z0-9]{1,30})?$"
"""The form of a key: a hypervisor, optionally followed by a dash and its scheduler."""
Kind = Literal["local", "ssh", "lab"]
ALWAYS = ("local", "lab")
"""The names of hosts that always exist: this computer, and an emulated one."""


class StudyPart(BaseModel):
    """Base of all parts of a study: immutable data that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def _allow_words(*words: str) -> Any:
    """Allow some words in a schema as a short form of the whole mapping."""

    def change(schema: dict[str, Any]) -> None:
        mapping = dict(schema)
        schema.clear()
        mapping.get("properties", {}).pop("kind", None)
        for key in ("description", "title"):
            if key in mapping:
                schema[key] = mapping.pop(key)
        schema["anyOf"] = [{"enum": list(words)}, mapping]

    return change


class GrubEntry(StudyPart):
    """One entry of a host's boot menu."""

    entry: str = Field(
        min_length=1,
        max_length=500,
        # `grub-reboot` treats `--help` as an option and exits with 0, without choosing an entry.
        pattern=r"^[^-\x00-\x1f][^\x00-\x1f]*$",
        description="Its title, id or number, as for `grub-reboot`; separate submenus with `>`.",
    )


class Boot(StudyPart):
    """The boot menu's entry for each hypervisor."""

    none: GrubEntry | None = Field(
        None, description="The kernel without a hypervisor. Default: that of `kvm`."
    )
    kvm: GrubEntry | None = Field(
        None, description="The kernel whose KVM runs machines. Default: that of `none`."
    )
    xen: GrubEntry | None = Field(None, description="Xen, with its default scheduler.")
    xen_credit: GrubEntry | None = Field(
        None, description="Xen with `sched=credit`, for arms that ask for that scheduler."
    )
    xen_rtds: GrubEntry | None = Field(
        None,
        description="Xen with `sched=rtds`, built with RTDS, for arms that ask for that scheduler.",
    )
    others: dict[Annotated[str, Field(pattern=BOOT_KEY)], GrubEntry] = Field(
        default_factory=dict,
        description="Hypervisors of your own platforms, each under the word that the platform "
        "declares: `{acrn: {entry: …}}`.",
    )
    patience: Duration = Field(
        600.0, gt=0, description="Time limit for the host to come back, in seconds or with a unit."
    )

    def entry_of(self, boot: str) -> str | None:
        """Return the entry for a boot such as ``xen:credit``, or None."""
        found = self._entries.get(boot)
        return found.entry if found else None

    @property
    def boots(self) -> tuple[str, ...]:
        """The possible boots of the host, those without a hypervisor first."""
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
    """Return the key of a boot such as ``xen:credit`` in the menu."""
    key = boot.replace(":", "-")
    return key if key.replace("-", "_") in Boot.model_fields else f"others.{key}"


def _allow_name(schema: dict[str, Any]) -> None:
    """Allow a host's name in a schema as a short form of the whole mapping."""
    _allow_words(*ALWAYS)(schema)
    schema["anyOf"][0] = {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,39}$"}


def allow_list_of_names(schema: dict[str, Any]) -> None:
    """Allow a list of names in a schema as a short form of a mapping."""
    mapping = {key: schema.pop(key) for key in list(schema) if key != "description"}
    schema["anyOf"] = [{"type": "array", "items": {"type": "string"}, "minItems": 1}, mapping]


class Login(StudyPart):
    """How to log in to a computer over SSH, and where its secrets are; it holds no secrets."""

    user: str | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="The user to log in as. Default: the one in `ssh-config`, or else root.",
    )
    port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="The TCP port of its SSH server. Default: the one in `ssh-config`, or else 22.",
    )
    known_hosts: str | None = Field(
        None,
        min_length=1,
        description="A file in OpenSSH's known_hosts format that holds the host's key. Default: "
        "those in `ssh-config`, or else `~/.ssh/known_hosts`. The check cannot be switched off.",
    )
    key: str | None = Field(
        None,
        description="A private key file. Default: those in `ssh-config`; without these and without "
        "a password, the SSH agent's keys and those in `~/.ssh`.",
    )
    ssh_config: str | None = Field(
        None,
        min_length=1,
        description="A file in OpenSSH's format (ssh_config(5)) in which to look up the name and "
        "those of `jump`. Default: `~/.ssh/config`, if it exists. `none`: look up nothing. Keys "
        "given here take precedence (`tare help hosts`).",
    )
    jump: Annotated[str, AfterValidator(jump_text)] | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="Computers to connect through, as for `ssh -J`: `[USER@]HOST[:PORT]`, several "
        "separated by commas, the first hop first. `none`: connect directly, whatever `ssh-config` "
        "says.",
    )
    passphrase_env: str | None = Field(
        None, description="The environment variable that holds the key's passphrase."
    )
    password_env: str | None = Field(
        None, description="The environment variable that holds the password."
    )
    password_file: str | None = Field(
        None, description="A file, readable only by its owner, whose first line is the password."
    )
    sudo: bool = Field(
        False,
        description="Work as root by `sudo`, which must not ask for a password.",
    )

    @model_validator(mode="after")
    def _check_password(self) -> Self:
        if self.password_env is not None and self.password_file is not None:
            raise ValueError("give `password-env` or `password-file`, not both")
        return self


class CpuKeys(StudyPart):
    """The CPUs of a host to use, in a study and in a host's description."""

    cpus: CpuWords | None = Field(
        None,
        description="The host's CPUs that machines run on, all of one kind of core: numbers like "
        "`[2, 3]` or `2-5,8`, a NUMA node like `{node: 1}`, or an L3 cache like `{l3: 0}` (counted "
        "from 0 in the order of the lowest CPU). Default: all that Tare may use.",
    )
    housekeeping: CpuWords | None = Field(
        None,
        description="The host's CPUs for everything other than vCPUs, written like `cpus`; no "
        "machine is placed on them. Default: all other CPUs.",
    )
    cores: Cores | None = Field(
        None,
        description="On a host with several kinds of cores, the kind that all machines run on: "
        "`performance` or `efficiency`. Default: the fastest kind with enough CPUs.",
    )

    @property
    def choice(self) -> CpuChoice:
        """The choice of the host's CPUs."""
        return CpuChoice(self.cpus or "", self.housekeeping or "", self.cores)


ON_THE_HOST = "host"
"""In place of a BMC's address: it is reached through the host's own driver."""


def _allow_ipmi(schema: dict[str, Any]) -> None:
    """Allow `ipmi` in a schema as a short form of the whole mapping."""
    _allow_words("ipmi")(schema)


class BmcSpec(StudyPart):
    """How to read a computer's power from its management controller (BMC); it holds no secrets.

    `ipmi` means `{ipmi: host}`.
    """

    model_config = ConfigDict(json_schema_extra=_allow_ipmi)

    redfish: Annotated[str, AfterValidator(host_alone)] | None = Field(
        None,
        min_length=1,
        max_length=255,
        description="Name or address of the BMC, as its certificate has it, to ask by Redfish.",
    )
    ipmi: Annotated[str, AfterValidator(host_alone)] | None = Field(
        None,
        min_length=1,
        max_length=255,
        description="`host`: run `ipmitool` on the host itself, as root. Or the address of the "
        "BMC, to run `ipmitool` on this computer (IPMI 2.0 over LAN).",
    )
    port: int = Field(443, ge=1, le=65535, description="The TCP port of Redfish.")
    credentials: str | None = Field(
        None,
        min_length=1,
        description="A file readable only by its owner (mode 600) with the lines `user=…` and "
        "`password=…`. Default: the environment.",
    )
    ca: str | None = Field(
        None,
        min_length=1,
        description="A file of PEM certificates to trust instead of the system's: a private CA's, "
        "or the server's own. Certificates are always verified.",
    )
    chassis: str | None = Field(
        None,
        min_length=1,
        max_length=255,
        description="The id of the chassis in `/redfish/v1/Chassis`, if several report power.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, data: Any) -> Any:
        if isinstance(data, str):
            if data != "ipmi":
                raise ValueError(f"must be `ipmi` or {{redfish: ADDRESS}}, not {data!r}")
            return {"ipmi": ON_THE_HOST}
        return data

    @model_validator(mode="after")
    def _check_protocol(self) -> Self:
        if (self.redfish is None) == (self.ipmi is None):
            raise ValueError("give either `redfish` or `ipmi`")
        if self.redfish is None and (self.ca or self.chassis or self.port != 443):
            raise ValueError("`port`, `ca` and `chassis` only apply to `redfish`")
        return self


class HostSpec(Login, CpuKeys):
    """The computer that machines run on: its name, or how to reach it over SSH."""

    model_config = ConfigDict(json_schema_extra=_allow_name)

    kind: Kind = Field("local", description="`ssh` if the key of that name is given.")
    ssh: Annotated[str, AfterValidator(host_alone)] | None = Field(
        None, min_length=1, max_length=255, description="Name or address of the host."
    )
    patience: Duration = Field(
        30.0,
        gt=0,
        description="How long to retry a broken connection; the cell continues meanwhile.",
    )
    folder: Annotated[str, AfterValidator(absolute_path)] | None = Field(
        None,
        max_length=500,
        description="The folder on the host for Tare's agent, from which programs must be "
        "executable. Default: `$XDG_CACHE_HOME` or `~/.cache` there.",
    )
    boot: Boot | None = Field(
        None,
        description="Boot menu entries, with which one host can run arms of several hypervisors.",
    )
    bmc: BmcSpec | None = Field(
        None,
        description="The power meter in the host's management controller, which the probe "
        "`energy` reads.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, data: Any) -> Any:
        if isinstance(data, str):
            if data not in ALWAYS:
                raise ValueError(
                    f"must be `local`, `lab` or {{ssh: NAME}}, not {data!r}; "
                    f"for a host over SSH, write {{ssh: {data}}}"
                )
            return {"kind": data}
        if isinstance(data, Mapping) and data and "kind" not in data:
            if data.get("ssh") is None and data.keys() <= {*CpuKeys.model_fields, "bmc"}:
                return {**data, "kind": "local"}
            if data.get("ssh") is None:
                raise ValueError("name the host, as in {ssh: NAME}, or write `local` or `lab`")
            return {**data, "kind": "ssh"}
        return data

    @model_validator(mode="after")
    def _check_kind(self) -> HostSpec:
        if (self.kind == "ssh") != (self.ssh is not None):
            raise ValueError("name the host, as in {ssh: NAME}, or write `local` or `lab`")
        if self.kind != "ssh":
            fit = {"kind", "ssh", "bmc", *CpuKeys.model_fields}
            extra = sorted(self.model_fields_set - fit - _unset(self))
            if extra:
                raise ValueError(
                    f"`{extra[0].replace('_', '-')}` only applies to a host with `ssh`"
                )
        return self


_ONCE = {"user": "root", "port": 22, "known_hosts": "~/.ssh/known_hosts"}
"""Defaults that were stored before the SSH configuration was read.

Today's defaults may change (:mod:`tare.hosts.ssh.finding`); stored ones do not.
"""


def _unset(spec: HostSpec) -> set[str]:
    """Return the fields that a stored study sets to their current or former default."""
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
"""Short forms of a lab's keys."""


class LabSpec(StudyPart):
    """The emulated computer of `host: lab`; a word is a short form.

    `deterministic` sets only that key; `large` means 4 CPUs and 8 GiB, enough for arms of four
    vCPUs or scenarios with three neighbours.
    """

    model_config = ConfigDict(json_schema_extra=_allow_words("deterministic", "large"))

    cpus: int = Field(
        2,
        ge=1,
        le=MOST_LAB_CPUS,
        description="Number of CPUs. Default: 2; a deterministic lab has 1.",
    )
    nodes: int = Field(
        1,
        ge=1,
        le=MOST_LAB_CPUS,
        description="Number of NUMA nodes; CPUs and memory are split evenly over them.",
    )
    dom0_cpus: int = Field(
        1,
        ge=1,
        le=MOST_LAB_CPUS,
        description="With Xen, the number of vCPUs of dom0, one for each CPU from the first on. "
        "While an arm's machines run, they are kept on the CPUs in the arm's `dom0-cpus`. Default: "
        "only the first CPU.",
    )
    memory: Annotated[Size, AfterValidator(_enough)] = Field(
        4 << 30, description="Memory for the hypervisor and all its machines."
    )
    release: Release | None = Field(
        None,
        description="The Debian release of its Linux, hypervisors, their tools and QEMU, whose "
        "kernel its guests boot: `bookworm` (12) or `trixie` (13). Default: this computer's own. "
        "An arm may name another.",
    )
    xen: Annotated[str, AfterValidator(xen_file)] | None = Field(
        None,
        description="Your own build of Xen: its file (`xen`, `xen.gz`), of the same version as the "
        "lab's tools. Or `rtds`: Debian's Xen, built here with the RTDS scheduler; this is the "
        "default if an arm asks for that scheduler.",
    )
    kernel: Annotated[str, AfterValidator(kernel_file)] | None = Field(
        None,
        description="Your own Linux kernel for the lab itself, under its hypervisor or for KVM: a "
        "vmlinuz file, with its modules next to it or in `/lib/modules`. Guests boot the study's "
        "`kernel`.",
    )
    qemu: Annotated[str, AfterValidator(program_file)] | None = Field(
        None,
        description="Your own emulator for the lab: a `qemu-system-x86_64` file.",
    )
    packages: tuple[Annotated[str, PACKAGE], ...] = Field(
        (),
        max_length=100,
        description="Additional packages of its release that a driver needs there, such as "
        "`[lvm2]`. They are unpacked, not installed: none of their scripts runs, and no service "
        "starts.",
    )
    deterministic: bool = Field(
        False,
        description="Derive time from the number of instructions instead of this computer's clock: "
        "slower, on one CPU of this computer, and nearly identical in every run.",
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
        # This value is not parsed from JSON, where a list would do for a tuple.
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
