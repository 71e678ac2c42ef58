//! Every limit that is not the user's, in one place, with its unit and reason.

/// Rows per batch unless told otherwise: enough to amortise dispatch, small enough for L2 caches.
pub const BATCH_ROWS_DEFAULT: usize = 8192;

/// Rows per batch at most: row indices inside a batch are 32 bits wide.
pub const BATCH_ROWS_MAX: usize = 1 << 24;

/// A span's stored bytes to aim at: large enough that opening a file is noise, small enough that
/// the last spans of a pass spread over all threads.
pub const SPAN_BYTES_TARGET: u64 = 64 << 20;

/// Files in one coalesced span at most, so that a lost span costs little.
pub const SPAN_FILES_MAX: usize = 256;

/// Spans of one dataset at most: the plan holds them all in memory (about 200 bytes each).
pub const SPANS_MAX: usize = 1_000_000;

/// The longest spec in bytes: a spec is read by people.
pub const SPEC_BYTES_MAX: usize = 4 << 20;

/// Values in one spec at most, aliases expanded: a few aliases of aliases can stand for billions.
pub const SPEC_NODES_MAX: usize = 1 << 20;

/// Bytes of text in one spec at most, aliases expanded, and as many again from parameters: a long text
/// with many aliases can stand for terabytes.
pub const SPEC_TEXT_BYTES_MAX: usize = 16 << 20;

/// Maps and lists inside each other in a spec at most: what walks the spec recurses.
pub const SPEC_DEPTH_MAX: usize = 64;

/// The longest token of a vocabulary in bytes: longer ones are data, not words.
pub const TOKEN_BYTES_MAX: usize = 1 << 20;

/// The longest record of a text format in bytes: a longer one is a file that is not made of records, or one in which a
/// quote is left open.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// Bytes of records of a text format per batch: long records must not fill the memory.
pub const RECORDS_BYTES_TARGET: usize = 16 << 20;

/// The window of a packed file (Zstandard) in bytes, as a power of two: what unpacking it takes. It is the largest one
/// that `zstd` itself accepts unasked.
pub const WINDOW_LOG_MAX: u32 = 27;

/// Findings up to this many rows are stored in the artifact as JSON, longer ones as Parquet.
pub const FINDING_JSON_ROWS_MAX: usize = 256;

/// The smallest memory limit that the program itself can live in.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;
