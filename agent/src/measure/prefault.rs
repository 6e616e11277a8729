//! Memory that is already there when the measured loop touches it.

#![expect(unsafe_code, reason = "a write that the compiler must not leave out")]

const PAGE: usize = 4096;

/// Allocate `length` values and write to every page, so that no page fault is left for later.
///
/// Call it in the pinned thread, so that the pages come from that CPU's memory node.
pub fn touched<T: Copy>(length: usize, fill: T) -> Vec<T> {
    let mut memory = vec![fill; length];
    touch(&mut memory, fill);
    memory
}

/// Write `fill` to one value in every page.
pub fn touch<T: Copy>(memory: &mut [T], fill: T) {
    let step = (PAGE / std::mem::size_of::<T>().max(1)).max(1);
    for slot in memory.iter_mut().step_by(step) {
        // SAFETY: `slot` is a valid, exclusive reference; the volatile write keeps the compiler
        // from seeing that a fresh zero page need not be written.
        unsafe { std::ptr::write_volatile(slot, fill) };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn has_the_requested_length_and_values() {
        assert_eq!(super::touched(5000, 7u32), vec![7u32; 5000]);
        assert!(super::touched(0, 0u64).is_empty());
    }
}
