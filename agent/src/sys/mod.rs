//! System calls behind safe functions: by rustix, and if that has no call
//! (`library`, `interfaces`, `datagrams`, `counters`, `vsock`, and parts of `threads` and `processes`) by the C library.

mod counters;
pub mod datagrams;
mod descriptors;
mod files;
mod interfaces;
mod library;
mod machine;
mod processes;
mod registers;
pub mod sockets;
mod threads;
mod vsock;

pub use counters::{Counter, CYCLES, HARDWARE, SOFTWARE, THIS_THREAD};
pub use descriptors::{
    discard, drain, is_terminal, set_blocking, set_raw, standard_streams, wait_both, wait_either,
    wait_readable, wait_writable, Interest,
};
pub use files::{forget_cached, space, sync_file_system, Space};
pub use interfaces::{
    address, broadcasting, driver, ethtool, open_tap, raise_interface, set_address, set_gateway,
    set_mtu,
};
pub use library::{clock_ns, clock_step_ns, clock_ticks_per_s, page_size};
pub use machine::{device_events, end_machine, load_module, mount, uname, unmount, Off, Uname};
pub use processes::{
    allow_descriptors, die_with_parent, exists, fork, in_own_session, limit, lockable, notify,
    own_mounts, parent_id, signal, wait_child, wait_ended, wait_with_usage, with_setup, Ended,
    ProcessSetup, Side, Usage,
};
pub use registers::Registers;
pub use threads::{
    affinity, allow_barriers, barrier_everywhere, block_signals, current_cpu, involuntary_switches,
    scheduling_of, set_affinity, set_fifo, set_scheduling, thread_id, yield_now, Attributes,
    MOST_CPUS,
};
pub use vsock::{accept, end_connection, listen_vsock};
