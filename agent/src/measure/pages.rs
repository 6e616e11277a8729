//! Memory in pages of a stated size, and the proof that it really is in such pages.

#![expect(
    unsafe_code,
    reason = "mappings are memory that the language knows nothing of"
)]

use super::prefault;
use crate::sys;
use std::fs;
use std::io;
use std::ptr::NonNull;

/// The size of a huge page on x86-64, and on aarch64 with base pages of 4 KiB.
const HUGE: usize = 2 << 20;

/// The size of pages to allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// 4 KiB, and never merged into larger ones.
    Small,
    /// 2 MiB.
    Huge,
}

impl PageSize {
    pub fn bytes(self) -> usize {
        match self {
            Self::Small => 4096,
            Self::Huge => HUGE,
        }
    }
}

/// A private mapping; every page has been written to.
pub struct Pages {
    base: NonNull<u8>,
    mapped: usize,
    /// Where the memory begins within the mapping, and its length.
    offset: usize,
    length: usize,
    /// Whether the kernel confirmed the size of the pages; false if it does not report it.
    pub proven: bool,
}

impl Pages {
    /// Map at least `length` bytes in pages of `size`.
    ///
    /// Huge pages come from the kernel's pool where it has enough, else transparently.
    ///
    /// Fails if not all of it came in such pages; the error states how much did.
    pub fn map(length: usize, size: PageSize) -> Result<Self, String> {
        let base_page = sys::page_size();
        if base_page != PageSize::Small.bytes() as u64 {
            return Err(format!(
                "this kernel's pages have {base_page} bytes, not 4096"
            ));
        }
        let length = length.max(1).next_multiple_of(size.bytes());
        let cannot = |error| format!("cannot map {} MiB: {error}", length >> 20);
        if size == PageSize::Huge {
            let pool = libc::MAP_HUGETLB | (21 << libc::MAP_HUGE_SHIFT);
            if let Ok(mut pages) = Self::anonymous(length, 0, pool) {
                pages.touch();
                pages.proven = true;
                return Ok(pages);
            }
        }
        let room = if size == PageSize::Huge { HUGE } else { 0 };
        let mut pages = Self::anonymous(length, room, 0).map_err(cannot)?;
        let advice = match size {
            PageSize::Small => libc::MADV_NOHUGEPAGE,
            PageSize::Huge => libc::MADV_HUGEPAGE,
        };
        // SAFETY: the range is within the mapping that `pages` owns; advice changes no content.
        let advised = unsafe { libc::madvise(pages.start().cast(), length, advice) };
        // A kernel without huge pages refuses the advice against them too.
        if advised != 0 && size == PageSize::Huge {
            let error = io::Error::last_os_error();
            return Err(format!("this kernel gives no huge pages: {error}"));
        }
        pages.touch();
        let huge_bytes = fs::read_to_string("/proc/self/smaps")
            .ok()
            .and_then(|text| transparent(&text, pages.start() as usize));
        pages.proven = huge_bytes.is_some();
        match (size, huge_bytes) {
            (PageSize::Huge, None) => {
                Err("this kernel does not report the size of its pages".into())
            }
            (PageSize::Huge, Some(huge)) if huge < length => Err(format!(
                "only {} of {} MiB came in pages of 2 MiB ({})",
                huge >> 20,
                length >> 20,
                policy()
            )),
            (PageSize::Small, Some(huge)) if huge > 0 => Err(format!(
                "{} KiB came in pages of 2 MiB against advice",
                huge >> 10
            )),
            _ => Ok(pages),
        }
    }

    /// Map `length` bytes, with `room` to begin at a multiple of it.
    fn anonymous(length: usize, room: usize, flags: libc::c_int) -> io::Result<Self> {
        let mapped = length + room;
        // SAFETY: a new anonymous mapping wherever the kernel likes; touches no other memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let address = base.as_ptr() as usize;
        let offset = match room {
            0 => 0,
            _ => address.next_multiple_of(room) - address,
        };
        Ok(Self {
            base,
            mapped,
            offset,
            length,
            proven: false,
        })
    }

    fn start(&self) -> *mut u8 {
        self.base.as_ptr().wrapping_add(self.offset)
    }

    fn touch(&mut self) {
        prefault::touch(self.words(), 0);
    }

    /// The memory, as 64-bit words.
    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: start to start + length is within the mapping, is writable and zeroed by the
        // kernel, is aligned to a page, and is borrowed as exclusively as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.start().cast(), self.length / 8) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

/// The number of bytes in transparent huge pages of the mapping that contains `address`, by the
/// text of `smaps`; `None` if it does not report that.
fn transparent(smaps: &str, address: usize) -> Option<usize> {
    let mut inside = false;
    for line in smaps.lines() {
        let first = line.split_whitespace().next()?;
        if let Some((low, high)) = first.split_once('-') {
            let bound = |text| usize::from_str_radix(text, 16).ok();
            inside = bound(low)? <= address && address < bound(high)?;
        } else if inside && first == "AnonHugePages:" {
            let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
            return Some(kib << 10);
        }
    }
    None
}

/// The kernel's settings for huge pages, for a message to the user.
fn policy() -> String {
    let policy = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let transparent = policy.map_or("not there".into(), |text| text.trim().to_string());
    format!("transparent huge pages: {transparent}; none free in the pool of huge pages")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pages_are_small_and_can_be_written() {
        let mut pages = Pages::map(5 << 20, PageSize::Small).unwrap();
        let words = pages.words();
        assert_eq!(words.len(), (5 << 20) / 8);
        assert!(words.iter().all(|&word| word == 0));
        words[words.len() - 1] = 7;
        assert_eq!(pages.words().last(), Some(&7));
    }

    #[test]
    fn huge_pages_are_given_and_proven_or_refused() {
        match Pages::map(3 << 20, PageSize::Huge) {
            Ok(mut pages) => {
                assert!(pages.proven);
                assert_eq!(pages.words().len() * 8, 4 << 20);
                assert_eq!(pages.words().as_ptr() as usize % HUGE, 0);
            }
            Err(reason) => assert!(reason.contains("pages"), "{reason}"),
        }
    }

    #[test]
    fn the_requested_mapping_is_found_in_smaps() {
        let text = "\
            00400000-00500000 r-xp 00000000 08:01 12   /bin/x\n\
            AnonHugePages:      2048 kB\n\
            7f0000000000-7f0000400000 rw-p 00000000 00:00 0\n\
            Size:               4096 kB\n\
            AnonHugePages:      4096 kB\n\
            VmFlags: rd wr mr mw me ac hg\n";
        assert_eq!(transparent(text, 0x7f00_0000_1000), Some(4 << 20));
        assert_eq!(transparent(text, 0x40_0000), Some(2 << 20));
        assert_eq!(transparent(text, 0x7f00_0040_0000), None);
        assert_eq!(transparent("", 0), None);
        assert_eq!(
            transparent("7f0000000000-7f0000400000 rw-p\n", 0x7f00_0000_1000),
            None
        );
    }
}
