//! Memory of the device, which is the host's, and page-locked memory of the host: who owns which bytes.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::fault::{CudaStatus, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS};
use crate::{number, report};

/// Allocations are aligned as CUDA's.
const ALIGN: usize = 256;

/// What memory holds before it is written and after it is freed: floats of this pattern are NaN.
const POISON: u8 = 0xff;

/// Allocations by their first address.
pub struct AllocationTable {
    lengths: Mutex<BTreeMap<u64, usize>>,
    name: &'static str,
}

/// Memory of the device.
pub static DEVICE: AllocationTable = AllocationTable::new("device memory");

/// Page-locked memory.
pub static PINNED: AllocationTable = AllocationTable::new("page-locked memory");

impl AllocationTable {
    const fn new(name: &'static str) -> AllocationTable {
        AllocationTable {
            lengths: Mutex::new(BTreeMap::new()),
            name,
        }
    }

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.max(1), ALIGN).ok()
    }

    /// Memory of so many bytes, unless there would be more than `limit` in all.
    pub fn allocate(&self, bytes: usize, limit: u64) -> Result<u64, CudaStatus> {
        let mut lengths = self.lengths.lock().unwrap_or_else(PoisonError::into_inner);
        let used: usize = lengths.values().sum();
        if (used + bytes) as u64 > limit {
            return Err(OUT_OF_MEMORY);
        }
        let layout = Self::layout(bytes).ok_or(INVALID_VALUE)?;
        // SAFETY: the layout has at least one byte.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: so many bytes were just allocated.
        unsafe { start.write_bytes(POISON, bytes) };
        lengths.insert(start as u64, bytes);
        Ok(start as u64)
    }

    /// Frees memory.
    pub fn free(&self, start: u64) -> CudaStatus {
        let removed = self
            .lengths
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&start);
        let Some((bytes, layout)) = removed.and_then(|bytes| Some((bytes, Self::layout(bytes)?)))
        else {
            report::violation(&format!("{} is freed that was not allocated", self.name));
            return INVALID_VALUE;
        };
        // SAFETY: it was allocated with this layout, and is freed once.
        unsafe {
            (start as *mut u8).write_bytes(POISON, bytes);
            dealloc(start as *mut u8, layout);
        }
        SUCCESS
    }

    /// Whether all these bytes lie in one allocation.
    pub fn holds(&self, start: u64, bytes: usize) -> bool {
        let lengths = self.lengths.lock().unwrap_or_else(PoisonError::into_inner);
        let found = lengths.range(..=start).next_back();
        found.is_some_and(|(first, length)| start + bytes as u64 <= first + *length as u64)
    }
}

/// How many bytes the device has.
pub fn device_limit() -> u64 {
    number("FAKE_CUDA_MEMORY", 1 << 30)
}
