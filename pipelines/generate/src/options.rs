//! Options of both generators.

use std::path::PathBuf;
use std::str::FromStr;

use forebay_model::{Fault, Result, codes};

/// Rows per row group: large enough for good dictionaries, small enough to hold one per thread.
const ROW_GROUP_ROWS_DEFAULT: usize = 500_000;

/// Rows per row group at most: one of them per thread is held in memory.
const ROW_GROUP_ROWS_MAX: usize = 16 << 20;

/// Threads at most: each holds a row group.
const THREADS_MAX: usize = 1024;

/// Compression of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputCompression {
    /// Not at all.
    None,
    /// Fast; what most writers of Parquet choose.
    #[default]
    Snappy,
    /// Smaller.
    Zstd,
}

impl OutputCompression {
    /// The words that the command line takes.
    pub const WORDS: [&'static str; 3] = ["none", "snappy", "zstd"];
}

impl FromStr for OutputCompression {
    type Err = Fault;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "none" => Ok(OutputCompression::None),
            "snappy" => Ok(OutputCompression::Snappy),
            "zstd" => Ok(OutputCompression::Zstd),
            _ => Err(unknown_word("compression", word, &Self::WORDS)),
        }
    }
}

/// Directory and format of the files.
#[derive(Debug, Clone)]
pub struct OutputOptions {
    /// The directory; made when it is missing.
    pub out: PathBuf,
    /// Compression of pages.
    pub compression: OutputCompression,
    /// Rows per row group at most.
    pub row_group_rows: usize,
    /// Files written at the same time. The bytes do not depend on it.
    pub threads: usize,
    /// Replaces files of the same names. Otherwise they are a fault, before any work.
    pub replace: bool,
}

impl OutputOptions {
    /// Snappy, row groups of 500,000 rows, all processors, nothing replaced.
    pub fn new(out: impl Into<PathBuf>) -> Self {
        OutputOptions {
            out: out.into(),
            compression: OutputCompression::default(),
            row_group_rows: ROW_GROUP_ROWS_DEFAULT,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            replace: false,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_range(
            "row_group_rows",
            self.row_group_rows as u64,
            1,
            ROW_GROUP_ROWS_MAX as u64,
        )?;
        check_range("threads", self.threads as u64, 1, THREADS_MAX as u64)
    }
}

/// Summary of the written files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerateSummary {
    /// Files.
    pub files: usize,
    /// Rows in all files.
    pub rows: u64,
    /// Stored bytes of all files.
    pub bytes: u64,
}

/// A fault unless `least <= value <= most`.
pub(crate) fn check_range(name: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Fault::new(
        codes::BAD_VALUE,
        format!("`{name}` is {value}; it must be from {least} to {most}"),
    ))
}

/// The fault for a word that is not one of `words`.
pub(crate) fn unknown_word(name: &str, word: &str, words: &[&str]) -> Fault {
    let fault = Fault::new(codes::BAD_VALUE, format!("`{word}` is not a {name}"));
    fault.suggest(word, words.iter().copied(), "choose one of")
}
