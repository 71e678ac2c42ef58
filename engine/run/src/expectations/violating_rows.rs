//! Finds the first rows that violate expectations, by one more read of the columns of their rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use forebay_analyze::{FileRowKeys, FirstRows};
use forebay_model::{Dataset, Finding, Result, RowKeys};
use forebay_plan::{AnalyzerId, AnalyzerRequest, BaseDataset, BoundAnalyzer, ViolatingRow};
use indexmap::IndexMap;

use crate::executor::RunExecutor;

/// Rows that a fault names.
const ROWS_SHOWN: usize = 10;

/// Assumed number of rows of a file whose format does not record it.
const ROWS_UNKNOWN: u64 = 1 << 40;

/// The files of the sources of a run, in reading order.
#[derive(Default)]
struct ReadFiles {
    paths: Vec<String>,
    keys: Arc<FileRowKeys>,
}

impl ReadFiles {
    fn of<'d>(datasets: impl IntoIterator<Item = &'d Dataset>) -> ReadFiles {
        let mut rows: IndexMap<&str, u64> = IndexMap::new();
        let mut paths = Vec::new();
        for piece in datasets
            .into_iter()
            .flat_map(|dataset| &dataset.spans)
            .flat_map(|span| &span.pieces)
        {
            let last = piece
                .rows
                .map_or(ROWS_UNKNOWN, |rows| piece.first_row + rows);
            let file_rows = rows.entry(&piece.relative).or_insert_with(|| {
                paths.push(piece.path.clone());
                0
            });
            *file_rows = last.max(*file_rows);
        }
        let seeds = rows
            .into_iter()
            .map(|(relative, rows)| (RowKeys::file_seed(relative), rows));
        ReadFiles {
            paths,
            keys: Arc::new(FileRowKeys::new(seeds)),
        }
    }

    fn rows(&self, finding: &Finding) -> Result<Vec<ViolatingRow>> {
        let files = finding
            .column("file")?
            .as_primitive::<UInt64Type>()
            .values();
        let rows = finding.column("row")?.as_primitive::<UInt64Type>().values();
        let values = finding.column("value")?.as_string::<i32>().iter();
        let rows = files
            .iter()
            .zip(rows)
            .zip(values)
            .map(|((file, row), value)| ViolatingRow {
                file: self.paths.get(*file as usize).cloned().unwrap_or_default(),
                row: *row,
                value: value.unwrap_or_default().to_owned(),
            });
        Ok(rows.collect())
    }
}

impl RunExecutor<'_> {
    /// The first rows with a value in the input of each of some analyzers: at most ten. Rows that were derived from
    /// others, and those of gathered datasets, are in no file.
    pub(super) fn first_rows(
        &self,
        asks: &[AnalyzerId],
    ) -> Result<BTreeMap<AnalyzerId, Vec<ViolatingRow>>> {
        if asks.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut copies = Vec::new();
        let mut files = Vec::new();
        for ask in asks {
            let bound_analyzer = &self.program.bound.asks[*ask];
            let sources = bound_analyzer.streams.iter().map(|stream| {
                match &self.program.bound.bases[stream.base] {
                    BaseDataset::Source(name) => self
                        .state
                        .sources
                        .get(name)
                        .map(|source| source.dataset.as_ref()),
                    BaseDataset::Gathered(_) => None,
                }
            });
            let Some(datasets) = sources.collect::<Option<Vec<&Dataset>>>() else {
                continue;
            };
            let read_files = ReadFiles::of(datasets);
            let analyzer = FirstRows {
                most: ROWS_SHOWN,
                files: read_files.keys.clone(),
            };
            let request = AnalyzerRequest {
                analyzer: Arc::new(analyzer),
                ..bound_analyzer.ask.clone()
            };
            copies.push(BoundAnalyzer {
                ask: request,
                ..bound_analyzer.clone()
            });
            files.push((*ask, read_files));
        }
        let findings = self.learn_extra(copies)?;
        let mut rows = BTreeMap::new();
        for ((ask, files), finding) in files.into_iter().zip(findings) {
            rows.insert(ask, files.rows(&finding)?);
        }
        Ok(rows)
    }
}
