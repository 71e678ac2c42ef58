//! Chunks that go through a chain together.

use forebay_model::Chunk;

/// Chunks that wait for others.
pub(super) struct Waiting {
    chunks: Vec<Chunk>,
    rows: usize,
    /// Rows that go together at most, where chunks have no more.
    rows_max: usize,
}

impl Waiting {
    pub fn new(rows_max: usize) -> Self {
        Waiting { chunks: Vec::new(), rows: 0, rows_max }
    }

    /// Takes a chunk. Gives those that wait, if another one like it would be too much.
    pub fn push(&mut self, chunk: Chunk) -> Vec<Chunk> {
        let rows = chunk.batch.num_rows();
        self.rows += rows;
        self.chunks.push(chunk);
        if self.rows + rows > self.rows_max { self.rest() } else { Vec::new() }
    }

    /// Those that wait.
    pub fn rest(&mut self) -> Vec<Chunk> {
        self.rows = 0;
        std::mem::take(&mut self.chunks)
    }
}
