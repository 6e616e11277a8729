//! What the agent asks of the kernel, in its own words: by rustix, and where that has no call for it
//! (`library`, `interfaces`, `datagrams`, `scheduling`, `counters`, and parts of `processes`) by the C library.

mod counters;
pub mod datagrams;
mod descriptors;
mod files;
mod interfaces;
mod library;
mod machine;
mod processes;
mod scheduling;
pub mod sockets;
mod threads;

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
    allow_descriptors, die_with_parent, exists, fork, in_own_session, in_room, limit, lockable,
    own_mounts, parent_id, signal, tell, wait_child, wait_ended, wait_with_usage, Ended, Room,
    Side, Usage,
};
pub use scheduling::{
    block_signals, involuntary_switches, scheduling_of, set_fifo, set_scheduling, yield_now,
    Attributes,
};
pub use threads::{affinity, current_cpu, set_affinity, thread_id, MOST_CPUS};

use std::io;

/// The result of a call to the C library.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
