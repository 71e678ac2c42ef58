//! Temporary space for states that outgrow memory.

use std::io::{Cursor, Read, Write};
use std::sync::Arc;

use crate::Result;

/// Where a state may put what does not fit its share of memory. The run gives one to every state;
/// what is written lives as long as the reader that [`Scratch::read`] returns can be asked for.
pub trait Scratch: Send + Sync {
    /// How many bytes the state may hold in memory before it has to spill.
    fn budget_bytes(&self) -> usize;

    /// Begins a new temporary file.
    fn create(&self) -> Result<Box<dyn SpillWriter>>;

    /// Fails where the process would break its memory limit with so many bytes more. To be called before
    /// memory is taken that cannot spill.
    fn admit(&self, more: Growth) -> Result<()> {
        let _ = more;
        Ok(())
    }
}

/// Memory that is about to be taken.
#[derive(Debug, Clone, Copy, Default)]
pub struct Growth {
    /// Bytes now.
    pub now: usize,
    /// Bytes later, while the answer is used: its index, its encoded form.
    pub later: usize,
}

/// A temporary file being written.
pub trait SpillWriter: Write + Send {
    /// Ends writing.
    fn finish(self: Box<Self>) -> Result<Arc<dyn SpillFile>>;
}

/// A temporary file that can be read any number of times and goes away when dropped.
pub trait SpillFile: Send + Sync {
    /// Reads from the beginning.
    fn read(&self) -> Result<Box<dyn Read + Send>>;

    /// Its size.
    fn bytes(&self) -> u64;
}

/// Scratch in memory, for tests and for data that is small by nature.
#[derive(Debug, Clone, Copy)]
pub struct MemoryScratch {
    /// See [`Scratch::budget_bytes`].
    pub budget_bytes: usize,
}

impl Default for MemoryScratch {
    fn default() -> Self {
        MemoryScratch { budget_bytes: 64 << 20 }
    }
}

impl Scratch for MemoryScratch {
    fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    fn create(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(MemorySpill(Vec::new())))
    }
}

struct MemorySpill(Vec<u8>);

impl Write for MemorySpill {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for MemorySpill {
    fn finish(self: Box<Self>) -> Result<Arc<dyn SpillFile>> {
        Ok(Arc::new(MemoryFile(self.0.into())))
    }
}

struct MemoryFile(Arc<[u8]>);

impl SpillFile for MemoryFile {
    fn read(&self) -> Result<Box<dyn Read + Send>> {
        Ok(Box::new(Cursor::new(self.0.clone())))
    }

    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }
}
