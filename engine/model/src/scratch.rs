//! Temporary storage for states that outgrow memory.

use std::io::{Cursor, Read, Write};
use std::sync::Arc;

use crate::Result;

/// Memory budget and spill storage of a state. The run provides one to every state. A spilled file exists until its
/// [`SpillFile`] is dropped.
pub trait ScratchSpace: Send + Sync {
    /// Bytes that the state may hold in memory before it has to spill.
    fn budget_bytes(&self) -> usize;

    /// Creates a temporary file.
    fn create(&self) -> Result<Box<dyn SpillWriter>>;

    /// Fails if the process would exceed its memory limit with `request`. Call it before allocating memory that cannot
    /// spill.
    fn admit(&self, request: MemoryRequest) -> Result<()> {
        let _ = request;
        Ok(())
    }
}

/// Size of a planned allocation.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryRequest {
    /// Bytes allocated now.
    pub now: usize,
    /// Bytes allocated later, while the finding is used: its index and its encoded form.
    pub later: usize,
}

/// A temporary file being written.
pub trait SpillWriter: Write + Send {
    /// Completes the file.
    fn finish(self: Box<Self>) -> Result<Arc<dyn SpillFile>>;
}

/// A temporary file that can be read any number of times and is removed when dropped.
pub trait SpillFile: Send + Sync {
    /// Opens a reader at the beginning.
    fn read(&self) -> Result<Box<dyn Read + Send>>;

    /// Size in bytes.
    fn bytes(&self) -> u64;
}

/// Scratch space in memory, for tests and small data.
#[derive(Debug, Clone, Copy)]
pub struct MemoryScratch {
    /// Budget in bytes, see `ScratchSpace::budget_bytes`.
    pub budget_bytes: usize,
}

impl Default for MemoryScratch {
    fn default() -> Self {
        MemoryScratch {
            budget_bytes: 64 << 20,
        }
    }
}

impl ScratchSpace for MemoryScratch {
    fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    fn create(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(MemorySpillWriter(Vec::new())))
    }
}

struct MemorySpillWriter(Vec<u8>);

impl Write for MemorySpillWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for MemorySpillWriter {
    fn finish(self: Box<Self>) -> Result<Arc<dyn SpillFile>> {
        Ok(Arc::new(MemorySpillFile(self.0.into())))
    }
}

struct MemorySpillFile(Arc<[u8]>);

impl SpillFile for MemorySpillFile {
    fn read(&self) -> Result<Box<dyn Read + Send>> {
        Ok(Box::new(Cursor::new(self.0.clone())))
    }

    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }
}
