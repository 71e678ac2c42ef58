//! Fixed limits that the user does not set, each with its unit and reason.

/// Default rows per batch: enough to amortise dispatch, small enough for L2 caches.
pub const BATCH_ROWS_DEFAULT: usize = 8192;

/// Most rows per batch: row indices inside a batch are 32 bits wide.
pub const BATCH_ROWS_MAX: usize = 1 << 24;

/// Target for the stored bytes of a span: large enough that opening a file is negligible, small enough that the
/// last spans of a pass spread over all threads.
pub const SPAN_BYTES_TARGET: u64 = 64 << 20;

/// Bytes that each row counts for at least when spans are cut: a span has a million rows at most, however well they are
/// packed. Ten million rows of few columns can be smaller than the target, and would be work for one thread.
pub const SPAN_ROW_BYTES_MIN: u64 = 64;

/// Most files in one coalesced span: a lost span costs little.
pub const SPAN_FILES_MAX: usize = 256;

/// Most spans of one dataset: the plan holds them all in memory (about 200 bytes each).
pub const SPANS_MAX: usize = 1_000_000;

/// Most threads of a process: more are a mistake, and each takes memory.
pub const THREADS_MAX: usize = 1024;

/// Most worker processes that a run starts on its own machine.
pub const LOCAL_WORKERS_MAX: usize = 256;

/// Most bytes of a spec: specs are written by people.
pub const SPEC_BYTES_MAX: usize = 4 << 20;

/// Most values in a spec with aliases expanded: a few nested aliases can expand to billions.
pub const SPEC_NODES_MAX: usize = 1 << 20;

/// Most bytes of text in a spec with aliases expanded; parameters may add as many again. A long text with many
/// aliases can expand to terabytes.
pub const SPEC_TEXT_BYTES_MAX: usize = 16 << 20;

/// Most nested maps and lists in a spec: the code that walks a spec recurses.
pub const SPEC_DEPTH_MAX: usize = 64;

/// Most levels of lists, structs and maps in a column that is written: encoders recurse, in a debug program with 40 KiB of
/// stack for each.
pub const TYPE_LEVELS_MAX: usize = 32;

/// Most bytes of a vocabulary token: longer values are data, not words.
pub const TOKEN_BYTES_MAX: usize = 1 << 20;

/// Most bytes of one record of a text format. A longer record means that the file is not made of records, or that a
/// quote is not closed.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// Target for the bytes of text records per batch: bounds memory when records are long.
pub const RECORDS_BYTES_TARGET: usize = 16 << 20;

/// Most window bytes of a compressed (Zstandard) file, as a power of two: the memory that decompression needs. It
/// is the largest window that `zstd` accepts by default.
pub const WINDOW_LOG_MAX: u32 = 27;

/// Most rows of a finding stored in the artifact as JSON; longer findings are stored as Parquet.
pub const FINDING_JSON_ROWS_MAX: usize = 256;

/// Most flows of rows that a union consists of with the unions among its inputs. The plan holds the operations of each.
pub const UNION_STREAMS_MAX: usize = 4096;

/// Smallest memory limit under which the program can run.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;
