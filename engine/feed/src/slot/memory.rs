//! The memory of slots: ordinary, or whatever an allocator lends (pinned buffers of a device).

use std::any::Any;

use forebay_model::{Fault, Result, codes};

use super::layout::ALIGN;

/// The memory of one slot, of which the first byte is aligned to [`ALIGN`] bytes.
pub trait SlotMemory: Send + Sync + Any {
    /// The bytes, to read.
    fn bytes(&self) -> &[u8];

    /// The bytes, to write a new batch. Waits for a copy to a device that still reads the last batch.
    fn bytes_mut(&mut self) -> Result<&mut [u8]>;
}

/// Allocator of slots. Slots live as long as the feed or their last batch and are used again
/// and again.
pub trait SlotAllocator: Send + Sync {
    /// A slot of so many bytes, zeroed.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn SlotMemory>>;
}

/// Ordinary memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostMemory;

impl SlotAllocator for HostMemory {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn SlotMemory>> {
        let mut buffer = Vec::new();
        if let Err(error) = buffer.try_reserve_exact(bytes + ALIGN) {
            let message = format!("no memory for a slot of {bytes} bytes");
            let fault = Fault::new(codes::MEMORY, message).cause(error);
            return Err(fault.hint("lower `batch_rows` or the number of slots"));
        }
        buffer.resize(bytes + ALIGN, 0_u8);
        // The buffer never grows again, so that its address, and with it the offset, stays.
        let offset = buffer.as_ptr().align_offset(ALIGN);
        Ok(Box::new(HostSlot {
            buffer,
            offset,
            bytes,
        }))
    }
}

struct HostSlot {
    buffer: Vec<u8>,
    offset: usize,
    bytes: usize,
}

impl SlotMemory for HostSlot {
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.offset..self.offset + self.bytes]
    }

    fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        Ok(&mut self.buffer[self.offset..self.offset + self.bytes])
    }
}
