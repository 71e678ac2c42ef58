//! Rows outside of an interval, in files that also hold rows of the interval: they are written again, to files of their
//! own. Those before the interval and those after it lie in different files, so that the next run over it divides none.

use std::collections::{BTreeMap, BTreeSet};

use forebay_commit::OutputFile;
use forebay_contract::CopiedRows;
use forebay_model::{Fault, FileRange, Result};

use crate::snapshot::LoggedFile;

use super::live_files::ReplacedInterval;
use super::rewriting::{RewrittenFiles, RowsWriter, partition_folder};

/// Number of concurrent writers: one before the interval, and one after it.
const SIDES: usize = 2;

/// Content of files: the path of each, and its deletion vector, if any.
type FileContents = BTreeMap<String, Option<String>>;

/// Rows that were written again.
pub(super) struct OutsideFiles {
    pub(super) files: Vec<OutputFile>,
    pub(super) copied: CopiedRows,
    /// The files that they come from.
    sources: FileContents,
}

impl OutsideFiles {
    /// True if they are the rows of some files: another program may have merged files in the
    /// meantime.
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
        if rows == copied.rows {
            Ok(OutsideFiles {
                files: written,
                copied,
                sources,
            })
        } else {
            Err(Fault::internal(format!(
                "{} rows became {rows}",
                copied.rows
            )))
        }
    }
}

fn contents(divided: &BTreeMap<&str, &LoggedFile>) -> FileContents {
    let mut contents = FileContents::new();
    for (path, file) in divided {
        let deleted = file.deleted.as_ref();
        let deleted = deleted.map(|deleted| format!("{deleted:?}"));
        contents.insert((*path).to_owned(), deleted);
    }
    contents
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
