//! A device's registers in this process's memory.

#![expect(
    unsafe_code,
    reason = "registers are memory that is written by address"
)]

use super::library::page_size;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::ptr::{null_mut, NonNull};

/// The first page of a device's registers.
pub struct Registers {
    base: NonNull<u32>,
}

impl Registers {
    /// Map them from the file that stands for them in sysfs.
    pub fn map(file: &File) -> io::Result<Self> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping where the kernel likes; it replaces no other memory.
        let base = unsafe { mmap(null_mut(), page_size() as usize, prot, flags, file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base })
    }

    /// Read the first register.
    pub fn first(&self) -> u32 {
        // SAFETY: the mapping is readable, aligned to a page, and lives as long as `self`.
        unsafe { self.base.as_ptr().read_volatile() }
    }

    /// Write the first register.
    pub fn write_first(&mut self, value: u32) {
        // SAFETY: the mapping is writable, aligned to a page, and lives as long as `self`.
        unsafe { self.base.as_ptr().write_volatile(value) }
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: nothing else refers to the mapping, which `map` made with this size.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), page_size() as usize) };
    }
}
