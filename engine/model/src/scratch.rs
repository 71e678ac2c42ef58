//! Temporary storage for states that outgrow memory.

use std::any::Any;
use std::fmt;
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

    /// Reserves the memory of `request`, and fails if the process would exceed its limit. Call it before allocating memory
    /// that cannot spill, and hold the answer until the memory is filled.
    fn admit(&self, request: MemoryRequest) -> Result<AdmittedMemory> {
        let _ = request;
        Ok(AdmittedMemory::default())
    }
}

/// Memory that is reserved for what a thread makes next. Dropping it says that the memory is resident or free again.
#[derive(Default)]
pub struct AdmittedMemory(Option<Box<dyn Any>>);

impl AdmittedMemory {
    /// Memory that `reservation` gives back when it is dropped.
    pub fn reserved_by(reservation: impl Any) -> AdmittedMemory {
        AdmittedMemory(Some(Box::new(reservation)))
    }

    /// Asks for more, once what was admitted is resident.
    pub fn renew(&mut self, admit: impl FnOnce() -> Result<AdmittedMemory>) -> Result<()> {
        self.0 = None;
        *self = admit()?;
        Ok(())
    }
}

impl fmt::Debug for AdmittedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AdmittedMemory")
            .field(&self.0.is_some())
            .finish()
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
