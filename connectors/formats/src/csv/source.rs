//! CSV files as a source.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Fields, SchemaRef};
use forebay_contract::{Source, SourceFormat};
use forebay_model::Result;
use forebay_storage::StorageClient;

use crate::config_checks::all_paths;
use crate::files::PartitionPolicy;
use crate::files::input_file::InputFile;
use crate::files::list::{FileMarks, ListedFile};
use crate::files::records::RecordSyntax;
use crate::files::rows::{BatchIterator, RowFormat, RowSource};

use super::config::CsvSource;
use super::opened::open_records;
use super::{infer, reader};

impl SourceFormat for CsvSource {
    const ENDINGS: &'static [&'static str] = &["csv", "tsv"];

    fn source(self) -> Arc<dyn Source> {
        Arc::new(RowSource::new(self))
    }
}

impl RowFormat for CsvSource {
    fn paths(&self) -> Vec<&str> {
        all_paths(&self.path, &self.paths)
    }

    fn marks(&self) -> FileMarks {
        FileMarks {
            endings: &[".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst"],
            magic: b"",
        }
    }

    fn partitions(&self) -> PartitionPolicy {
        self.partitions
    }

    fn syntax(&self) -> Option<RecordSyntax> {
        self.has_plain_records().then(|| RecordSyntax::Csv {
            delimiter: self.field_syntax().delimiter,
        })
    }

    /// A file of one column is not divided where its blank lines are rows.
    fn may_divide(&self, file: &InputFile) -> Result<bool> {
        let opened = open_records(self, file)?;
        Ok(opened.names.len() > 1 || !self.dialect.keeps_empty_lines())
    }

    fn header_records(&self) -> u64 {
        u64::from(self.header)
    }

    fn fingerprint_salt(&self) -> Option<String> {
        // Without a header, the order in which columns are declared gives them their content.
        let columns = self.columns.as_ref().filter(|_| !self.header)?;
        Some(
            columns
                .0
                .iter()
                .map(|(name, _)| format!("{name:?},"))
                .collect(),
        )
    }

    fn fields(&self, io: &StorageClient, files: &[ListedFile]) -> Result<Fields> {
        infer::fields(self, io, files)
    }

    fn open_rows(
        &self,
        file: &InputFile,
        _schema: &SchemaRef,
        requested: &[FieldRef],
        batch_rows: usize,
    ) -> Result<(Vec<String>, BatchIterator)> {
        reader::rows(self, file, requested, batch_rows)
    }
}
