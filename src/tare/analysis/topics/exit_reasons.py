"""Reasons for which a processor leaves a virtual machine, by their architecture's names.

Numbers and names: VMX, Intel SDM volume 3, appendix C, and Linux' asm/vmx.h; SVM, AMD APM volume 2,
appendix C, and asm/svm.h; arm64, the exception classes of ESR_EL2 (Arm ARM, ESR_ELx) and asm/esr.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Reason(NamedTuple):
    """A reason of exits: its architecture's name for it, and one sentence."""

    name: str
    sentence: str


_INTERRUPT = "An interrupt arrived for the host while the guest ran."
_EXCEPTION = "The guest raised an exception that the hypervisor handles."
_TRIPLE = "The guest faulted while handling a double fault, which resets a computer."
_WINDOW = "The guest can take an interrupt again, for which the hypervisor waited."
_CPUID = "The guest asked what its processor can do (CPUID)."
_HLT = "The guest had nothing to do and halted its CPU."
_CACHES = "The guest flushed the caches."
_PAGE = "The guest invalidated one page's translation."
_COUNTERS = "The guest read a performance counter."
_TSC = "The guest read its cycle counter."
_CALL = "The guest called its hypervisor (a hypercall)."
_NESTED = "The guest, itself a hypervisor, used an instruction of virtualization."
_PORT = "The guest accessed an I/O port, as that of an emulated device."
_MSR = (
    "The guest accessed a model-specific register, as that of a timer or the interrupt controller."
)
_CR = "The guest accessed a control register."
_DR = "The guest accessed a debug register."
_DESCRIPTORS = "The guest accessed a descriptor table."
_TASK = "The guest switched tasks by hardware."
_WAITS = "The guest waits for a write to memory (MONITOR, MWAIT or alike)."
_PAUSE = "The guest spins on a lock, and executed PAUSE many times."
_PRIORITY = "The guest lowered the priority below which interrupts wait."
_APIC = "The guest accessed its interrupt controller in memory."
_RANDOM = "The guest asked for a random number."
_STATE = "The guest changed which registers are saved (XSETBV, XSAVES or XRSTORS)."
_MEMORY = (
    "The guest accessed memory that the host has not mapped: a page not yet there, or a device's "
    "registers (MMIO)."
)
_TIMER = "The time ended that the hypervisor gave the guest, as for one of the guest's timers."
_ENTRY = "The processor refused to run the guest in this state."

VMX: Mapping[int, Reason] = MappingProxyType(
    {
        0: Reason("EXCEPTION_NMI", "The guest raised an exception, or an NMI arrived."),
        1: Reason("EXTERNAL_INTERRUPT", _INTERRUPT),
        2: Reason("TRIPLE_FAULT", _TRIPLE),
        3: Reason("INIT_SIGNAL", "The virtual CPU was reset by another one."),
        4: Reason("SIPI_SIGNAL", "The virtual CPU was started by another one."),
        7: Reason("INTERRUPT_WINDOW", _WINDOW),
        8: Reason("NMI_WINDOW", "The guest can take an NMI again."),
        9: Reason("TASK_SWITCH", _TASK),
        10: Reason("CPUID", _CPUID),
        12: Reason("HLT", _HLT),
        13: Reason("INVD", _CACHES),
        14: Reason("INVLPG", _PAGE),
        15: Reason("RDPMC", _COUNTERS),
        16: Reason("RDTSC", _TSC),
        18: Reason("VMCALL", _CALL),
        **{
            19 + place: Reason(name, _NESTED)
            for place, name in enumerate(
                ("VMCLEAR", "VMLAUNCH", "VMPTRLD", "VMPTRST", "VMREAD", "VMRESUME", "VMWRITE")
            )
        },
        26: Reason("VMOFF", _NESTED),
        27: Reason("VMON", _NESTED),
        28: Reason("CR_ACCESS", _CR),
        29: Reason("DR_ACCESS", _DR),
        30: Reason("IO_INSTRUCTION", _PORT),
        31: Reason("MSR_READ", _MSR),
        32: Reason("MSR_WRITE", _MSR),
        33: Reason("INVALID_STATE", _ENTRY),
        34: Reason("MSR_LOAD_FAIL", _ENTRY),
        36: Reason("MWAIT_INSTRUCTION", _WAITS),
        37: Reason("MONITOR_TRAP_FLAG", "The hypervisor executes the guest step by step."),
        39: Reason("MONITOR_INSTRUCTION", _WAITS),
        40: Reason("PAUSE_INSTRUCTION", _PAUSE),
        41: Reason("MCE_DURING_VMENTRY", "The processor reported a hardware error."),
        43: Reason("TPR_BELOW_THRESHOLD", _PRIORITY),
        44: Reason("APIC_ACCESS", _APIC),
        45: Reason("EOI_INDUCED", "The guest ended an interrupt that the hypervisor watches."),
        46: Reason("GDTR_IDTR", _DESCRIPTORS),
        47: Reason("LDTR_TR", _DESCRIPTORS),
        48: Reason("EPT_VIOLATION", _MEMORY),
        49: Reason("EPT_MISCONFIG", "The guest accessed a device's registers in memory (MMIO)."),
        50: Reason("INVEPT", _NESTED),
        51: Reason("RDTSCP", _TSC),
        52: Reason("PREEMPTION_TIMER", _TIMER),
        53: Reason("INVVPID", _NESTED),
        54: Reason("WBINVD", _CACHES),
        55: Reason("XSETBV", _STATE),
        56: Reason("APIC_WRITE", "The guest wrote to its interrupt controller."),
        57: Reason("RDRAND", _RANDOM),
        58: Reason("INVPCID", "The guest invalidated translations of an address space."),
        59: Reason("VMFUNC", _NESTED),
        60: Reason("ENCLS", "The guest managed an enclave."),
        61: Reason("RDSEED", _RANDOM),
        62: Reason("PML_FULL", "The log of the pages that the guest wrote is full."),
        63: Reason("XSAVES", _STATE),
        64: Reason("XRSTORS", _STATE),
        67: Reason("UMWAIT", _WAITS),
        68: Reason("TPAUSE", _WAITS),
        74: Reason("BUS_LOCK", "The guest locked the memory bus."),
        75: Reason("NOTIFY", "The guest let no interrupt in for long."),
    }
)

_SVM_EXCEPTIONS = {
    0: "DE", 1: "DB", 3: "BP", 4: "OF", 5: "BR", 6: "UD", 7: "NM", 8: "DF", 10: "TS", 11: "NP",
    12: "SS", 13: "GP", 14: "PF", 16: "MF", 17: "AC", 18: "MC", 19: "XF",
}  # fmt: skip

SVM: Mapping[int, Reason] = MappingProxyType(
    {
        **{n: Reason(f"CR{n}_READ", _CR) for n in range(16)},
        **{0x10 + n: Reason(f"CR{n}_WRITE", _CR) for n in range(16)},
        **{0x20 + n: Reason(f"DR{n}_READ", _DR) for n in range(16)},
        **{0x30 + n: Reason(f"DR{n}_WRITE", _DR) for n in range(16)},
        **{0x40 + n: Reason(f"EXCP_{each}", _EXCEPTION) for n, each in _SVM_EXCEPTIONS.items()},
        0x60: Reason("INTR", _INTERRUPT),
        0x61: Reason("NMI", "An NMI arrived while the guest ran."),
        0x62: Reason("SMI", "Firmware took the processor while the guest ran (SMI)."),
        0x63: Reason("INIT", "The processor was reset while the guest ran."),
        0x64: Reason("VINTR", _WINDOW),
        0x65: Reason("CR0_SEL_WRITE", _CR),
        **{
            0x66 + n: Reason(f"{each}_{what}", _DESCRIPTORS)
            for what, first in (("READ", 0), ("WRITE", 4))
            for n, each in enumerate(("IDTR", "GDTR", "LDTR", "TR"), first)
        },
        0x6E: Reason("RDTSC", _TSC),
        0x6F: Reason("RDPMC", _COUNTERS),
        0x70: Reason("PUSHF", "The guest read its flags."),
        0x71: Reason("POPF", "The guest wrote its flags."),
        0x72: Reason("CPUID", _CPUID),
        0x73: Reason("RSM", "The guest returned from its firmware's mode (SMM)."),
        0x74: Reason("IRET", "The guest returned from an NMI, for which the hypervisor waited."),
        0x75: Reason("SWINT", "The guest raised an interrupt by an instruction."),
        0x76: Reason("INVD", _CACHES),
        0x77: Reason("PAUSE", _PAUSE),
        0x78: Reason("HLT", _HLT),
        0x79: Reason("INVLPG", _PAGE),
        0x7A: Reason("INVLPGA", _NESTED),
        0x7B: Reason("IOIO", _PORT),
        0x7C: Reason("MSR", _MSR),
        0x7D: Reason("TASK_SWITCH", _TASK),
        0x7E: Reason("FERR_FREEZE", "The guest waits for an error of its old floating-point unit."),
        0x7F: Reason("SHUTDOWN", _TRIPLE),
        0x80: Reason("VMRUN", _NESTED),
        0x81: Reason("VMMCALL", _CALL),
        0x82: Reason("VMLOAD", _NESTED),
        0x83: Reason("VMSAVE", _NESTED),
        0x84: Reason("STGI", _NESTED),
        0x85: Reason("CLGI", _NESTED),
        0x86: Reason("SKINIT", _NESTED),
        0x87: Reason("RDTSCP", _TSC),
        0x88: Reason("ICEBP", "The guest executed a breakpoint for debuggers of hardware."),
        0x89: Reason("WBINVD", _CACHES),
        0x8A: Reason("MONITOR", _WAITS),
        0x8B: Reason("MWAIT", _WAITS),
        0x8C: Reason("MWAIT_CONDITIONAL", _WAITS),
        0x8D: Reason("XSETBV", _STATE),
        0x8E: Reason("RDPRU", _COUNTERS),
        0x8F: Reason("EFER_WRITE_TRAP", _MSR),
        **{0x90 + n: Reason(f"CR{n}_WRITE_TRAP", _CR) for n in range(16)},
        0xA2: Reason("INVPCID", "The guest invalidated translations of an address space."),
        0x400: Reason("NPF", _MEMORY),
        0x401: Reason("AVIC_INCOMPLETE_IPI", "The guest interrupted a CPU that does not run."),
        0x402: Reason("AVIC_NOACCEL", "The guest accessed its interrupt controller."),
        0x403: Reason("VMGEXIT", "The guest, whose memory is encrypted, asked its hypervisor."),
        0xFFFFFFFF: Reason("INVALID", _ENTRY),
    }
)

_SYSTEM = "The guest accessed a system register, as that of a timer or the interrupt controller."
_FLOAT = "The guest used floating-point or vector registers that were not loaded."

ARM64: Mapping[int, Reason] = MappingProxyType(
    {
        0x00: Reason("UNKNOWN", "The processor gave no reason."),
        0x01: Reason("WFx", "The guest had nothing to do and waits (WFI or WFE)."),
        0x03: Reason("CP15_32", _SYSTEM),
        0x04: Reason("CP15_64", _SYSTEM),
        0x05: Reason("CP14_MR", _SYSTEM),
        0x06: Reason("CP14_LS", _SYSTEM),
        0x07: Reason("FP_ASIMD", _FLOAT),
        0x08: Reason("CP10_ID", _FLOAT),
        0x09: Reason("PAC", "The guest used pointer authentication that was not enabled."),
        0x0C: Reason("CP14_64", _SYSTEM),
        0x12: Reason("HVC32", _CALL),
        0x13: Reason("SMC32", "The guest called the firmware."),
        0x16: Reason("HVC64", _CALL),
        0x17: Reason("SMC64", "The guest called the firmware."),
        0x18: Reason("SYS64", _SYSTEM),
        0x19: Reason("SVE", _FLOAT),
        0x1A: Reason("ERET", _NESTED),
        0x20: Reason("IABT_LOW", "The guest executed memory that the host has not mapped."),
        0x24: Reason("DABT_LOW", _MEMORY),
        0x2F: Reason("SERROR", "The processor reported an error of memory or of a bus."),
        0x30: Reason("BREAKPT_LOW", _EXCEPTION),
        0x32: Reason("SOFTSTP_LOW", _EXCEPTION),
        0x34: Reason("WATCHPT_LOW", _EXCEPTION),
        0x38: Reason("BKPT32", _EXCEPTION),
        0x3C: Reason("BRK64", _EXCEPTION),
        # Interrupts and errors: their exception code after ARM_OTHER, see tare.hosts.trace.exits.
        0x100: Reason("IRQ", _INTERRUPT),
        0x101: Reason("EL1_SERROR", "The guest met an error of memory or of a bus."),
        0x103: Reason("IL", _ENTRY),
    }
)

_HYPERCALLS = {
    0: ("set_trap_table", "to set the handlers of its exceptions"),
    1: ("mmu_update", "to change page tables"),
    2: ("set_gdt", "to set its descriptor table"),
    3: ("stack_switch", "to switch the stack of its kernel"),
    4: ("set_callbacks", "to set the handlers of events"),
    5: ("fpu_taskswitch", "to lend it the floating-point unit"),
    6: ("sched_op_compat", "to halt or to yield its CPU"),
    7: ("platform_op", "for something of the computer itself"),
    8: ("set_debugreg", "to write a debug register"),
    9: ("get_debugreg", "to read a debug register"),
    10: ("update_descriptor", "to change a descriptor"),
    12: ("memory_op", "to change which memory it has"),
    13: ("multicall", "for several things at once"),
    14: ("update_va_mapping", "to change the mapping of one page"),
    15: ("set_timer_op", "to set its timer"),
    16: ("event_channel_op_compat", "for something of an event channel"),
    17: ("xen_version", "for its version, or only to deliver events"),
    18: ("console_io", "to read from or write to the console"),
    19: ("physdev_op_compat", "for something of a device's interrupts"),
    20: ("grant_table_op", "to share memory with another domain"),
    21: ("vm_assist", "for help with its memory"),
    22: ("update_va_mapping_otherdomain", "to map a page of another domain"),
    23: ("iret", "to return from an interrupt or exception"),
    24: ("vcpu_op", "for something of a virtual CPU, as its timer"),
    25: ("set_segment_base", "to switch the memory of a thread"),
    26: ("mmuext_op", "to switch page tables or to flush translations"),
    27: ("xsm_op", "for something of the security policy"),
    28: ("nmi_op", "to set the handler of NMIs"),
    29: ("sched_op", "to halt or to yield its CPU"),
    30: ("callback_op", "to set the handlers of events"),
    31: ("xenoprof_op", "for a profile"),
    32: ("event_channel_op", "to notify another domain or CPU"),
    33: ("physdev_op", "for something of a device's interrupts"),
    34: ("hvm_op", "for something of a guest with hardware virtualization"),
    35: ("sysctl", "for something of the computer itself"),
    36: ("domctl", "to control a domain"),
    37: ("kexec_op", "for something of a crash kernel"),
    39: ("argo_op", "to send a message to another domain"),
    40: ("xenpmu_op", "for performance counters"),
    41: ("dm_op", "to emulate a device"),
    42: ("hypfs_op", "for a setting of Xen"),
}

XEN_PV: Mapping[int, Reason] = MappingProxyType(
    {
        **{
            number: Reason(f"hypercall_{name}", f"The guest asked Xen {what}.")
            for number, (name, what) in _HYPERCALLS.items()
        },
        # Other events come after the hypercalls, see tare.platforms.xen.trace.records.
        0x1003: Reason("trap", _EXCEPTION),
        0x1004: Reason("page_fault", "The guest accessed a page that it has not mapped."),
        0x1005: Reason("forced_invalid_op", "The guest asked Xen what its processor can do."),
        0x1006: Reason("emulate_privop", "The guest executed a privileged instruction."),
        0x1007: Reason("emulate_4gb", "The guest used a segment beyond its memory."),
        0x1008: Reason("math_state_restore", _FLOAT),
        0x1009: Reason("paging_fixup", "The guest used a page table that Xen had to complete."),
        0x100A: Reason("gdt_ldt_mapping_fault", _DESCRIPTORS),
        0x100B: Reason("ptwr_emulation", "The guest wrote to a page table."),
        0x100C: Reason(
            "ptwr_emulation_pae", "The guest wrote to a page table of 8 bytes an entry."
        ),
    }
)
"""Hypercalls by their number (xen/include/public/xen.h) and other events (public/trace.h)."""
XEN_PV_ISA = "xen-pv"
"""The name in place of the architecture for PV guests of Xen, whose exits have no known time."""

_TABLES_OF = MappingProxyType({"vmx": VMX, "svm": SVM, "arm64": ARM64, XEN_PV_ISA: XEN_PV})
_IDLE = frozenset(
    {"HLT", "hypercall_sched_op", "WFx", "MWAIT", "MWAIT_CONDITIONAL", "MWAIT_INSTRUCTION"}
)
_INTERRUPTS = frozenset({"EXTERNAL_INTERRUPT", "INTR", "IRQ"})
_VMX_BASIC = 0xFFFF
"""The basic reason of VMX; the bits above it say that entering the guest failed."""


def reason_of(isa: str, code: int) -> Reason:
    """Return a reason by its architecture (``vmx``, ``svm``, ``arm64``) and number."""
    basic = code & _VMX_BASIC if isa == "vmx" else code
    known = _TABLES_OF.get(isa, {}).get(basic)
    return known or Reason(f"{code:#x}", "Tare does not know this reason.")


def is_idle(name: str) -> bool:
    """Return whether the time of such exits is the guest's own idle time."""
    return name in _IDLE


def is_interrupt(name: str) -> bool:
    """Return whether such exits are interrupts of the host, at which it may switch threads."""
    return name in _INTERRUPTS
