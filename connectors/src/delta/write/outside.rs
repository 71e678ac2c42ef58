//! Rows outside of an interval, in files that also hold rows of the interval: they are written again, to files of their
//! own. Those before the interval and those after it lie in different files, so that the next run over it divides none.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{Fault, FileRange, Result};
use forebay_run::OutputFile;
use forebay_storage::CopiedRows;

use crate::delta::snapshot::LoggedFile;

use super::live_files::ReplacedInterval;
use super::rewriting::{RewrittenFiles, RowsWriter, partition_folder};

/// The writers at work at a time: one before the interval, and one after it.
const SIDES: usize = 2;

/// What names the content of a file: its path, and which of its rows were deleted.
type FileContents = BTreeMap<String, Option<String>>;

/// Rows that were written again.
pub(super) struct OutsideFiles {
    pub(super) files: Vec<OutputFile>,
    pub(super) copied: CopiedRows,
    /// The files that they come from.
    sources: FileContents,
}

impl OutsideFiles {
    /// Whether they are the rows of some files: another program may have put files together in the meantime.
    pub(super) fn are_of(&self, divided: &BTreeMap<&str, &LoggedFile>) -> bool {
        self.sources == contents(divided)
    }

    /// Writes the rows of some files that lie outside of an interval.
    pub(super) fn write(
        files: &RewrittenFiles<'_>,
        interval: &ReplacedInterval,
        divided: &BTreeMap<&str, &LoggedFile>,
    ) -> Result<OutsideFiles> {
        let sources = contents(divided);
        let paths: BTreeSet<String> = sources.keys().cloned().collect();
        let mut sides = Sides {
            files,
            paths: &paths,
            before: None,
            after: None,
        };
        let mut copied = CopiedRows {
            files: sources.len() as u64,
            rows: 0,
        };
        for path in &paths {
            let pieces = files.pieces(path)?;
            let folder = pieces.first().map(partition_folder).unwrap_or_default();
            for piece in pieces {
                copied.rows += sides.copy(&folder, piece, interval)?;
            }
            // A file of its own for each one that is divided: rows stay sorted inside, and of one partition.
            sides.end_files(&folder)?;
        }
        let mut written = Vec::new();
        for side in [sides.before, sides.after].into_iter().flatten() {
            written.extend(side.finish()?);
        }
        let rows = written.iter().map(|file| file.rows).sum::<u64>();
        match rows == copied.rows {
            true => Ok(OutsideFiles {
                files: written,
                copied,
                sources,
            }),
            false => Err(Fault::internal(format!(
                "{} rows became {rows}",
                copied.rows
            ))),
        }
    }
}

fn contents(divided: &BTreeMap<&str, &LoggedFile>) -> FileContents {
    let deleted = |file: &LoggedFile| file.deleted.as_ref().map(|deleted| format!("{deleted:?}"));
    divided
        .iter()
        .map(|(path, file)| ((*path).to_owned(), deleted(file)))
        .collect()
}

/// The files of both sides of an interval, while they are written. A side without rows has none.
struct Sides<'a> {
    files: &'a RewrittenFiles<'a>,
    paths: &'a BTreeSet<String>,
    before: Option<RowsWriter<'a>>,
    after: Option<RowsWriter<'a>>,
}

impl Sides<'_> {
    /// Writes the rows of a piece that lie outside of the interval, and counts them.
    fn copy(&mut self, folder: &str, piece: FileRange, interval: &ReplacedInterval) -> Result<u64> {
        let mut copied = 0;
        for rows in self.files.rows(piece)? {
            let outside = interval.outside(&rows?)?;
            let sides = [
                (&mut self.before, outside.before, "before"),
                (&mut self.after, outside.after, "after"),
            ];
            for (side, rows, label) in sides.into_iter().filter(|(_, rows, _)| rows.num_rows() > 0)
            {
                copied += rows.num_rows() as u64;
                let writer = match side {
                    Some(writer) => writer,
                    None => side.insert(self.files.writer(self.paths, label, SIDES)?),
                };
                writer.push(folder, rows)?;
            }
        }
        Ok(copied)
    }

    fn end_files(&mut self, folder: &str) -> Result<()> {
        [&mut self.before, &mut self.after]
            .into_iter()
            .flatten()
            .try_for_each(|side| side.flush(folder, true))
    }
}
