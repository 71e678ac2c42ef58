//! The contract of sinks whose output is a table with a log: a commit to the log makes files visible.

use std::collections::BTreeSet;
use std::fmt::Debug;

use arrow::datatypes::SchemaRef;
use forebay_model::Result;
use forebay_storage::{ScratchDir, StorageClient};

/// The log of the table that a sink writes.
pub trait TableLog: Debug + Send + Sync {
    /// Format of the table's files, by which a source reads them.
    fn file_format(&self) -> &'static str;

    /// True if the rows of a run are added to those of the table; otherwise they replace them.
    fn appends(&self) -> bool;

    /// Refuses columns that could not be committed to the current table.
    fn check(&self, io: &StorageClient, schema: &SchemaRef) -> Result<()>;

    /// The files of the latest version all of whose rows are in the table. Paths are relative to the table.
    fn live_files(&self, io: &StorageClient) -> Result<BTreeSet<String>>;

    /// True if this content was committed, and no commit since has changed any rows.
    fn shows(&self, io: &StorageClient, content: &str) -> Result<bool>;

    /// Shows readers some files, in one atomic step. Does nothing if the table already shows them, or if this content
    /// was committed before and nothing has changed it since. Changes of other writers in between are kept, or refused
    /// where both change the same rows. Files that hold rows of the interval and others are replaced, too: their other
    /// rows are written again.
    fn commit(&self, io: &StorageClient, commit: &TableCommit<'_>) -> Result<CopiedRows>;

    /// Merges small files, if the sink requires it; the rows stay the same.
    fn compact(&self, io: &StorageClient, scratch: &ScratchDir) -> Result<()>;

    /// Writes a checkpoint of the log, where one is due: readers begin with the latest one.
    fn checkpoint(&self, io: &StorageClient, scratch: &ScratchDir) -> Result<()>;
}

/// Content of a run's commit to a table.
pub struct TableCommit<'a> {
    /// Id of everything that determines the rows.
    pub content: &'a str,
    /// Schema of all columns.
    pub schema: &'a SchemaRef,
    /// The files, in row order. Those without rows are not shown.
    pub files: Vec<TableFile<'a>>,
    /// The rows of the table that they take the place of, unless the sink appends.
    pub scope: TableScope,
    /// Checks that the run may still publish; called after the table was read.
    pub may: &'a dyn Fn() -> Result<()>,
    /// Directory for files that are written for the commit.
    pub scratch: &'a ScratchDir,
}

/// Rows that a commit wrote again because they shared files with rows that it replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopiedRows {
    /// The files that held both.
    pub files: u64,
    /// The rows that were written again.
    pub rows: u64,
}

/// A file of a commit.
#[derive(Debug, Clone, Copy)]
pub struct TableFile<'a> {
    /// Relative to the table. Folders named `column=value` hold the values of partition columns.
    pub path: &'a str,
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Some rows of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableScope {
    /// All rows of the table.
    All,
    /// The rows of an interval of time.
    Interval {
        /// The column of times.
        column: String,
        /// The first tick, in the unit of the column.
        first: i64,
        /// The last tick.
        last: i64,
    },
}
