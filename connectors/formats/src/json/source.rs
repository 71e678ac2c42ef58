//! JSON files as a source.

use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Fields, SchemaRef};
use forebay_contract::{Source, SourceFormat};
use forebay_model::Result;
use forebay_storage::StorageClient;

use crate::config_checks::all_paths;
use crate::files::formatted::with_formats;
use crate::files::input_file::InputFile;
use crate::files::list::{FileMarks, ListedFile};
use crate::files::records::RecordSyntax;
use crate::files::rows::{BatchIterator, RowFormat, RowSource};
use crate::files::{AddedColumnPolicy, PartitionPolicy};

use super::config::JsonSource;
use super::{infer, reader};

impl JsonSource {
    /// True if a field that is not known is a fault.
    fn refuses_added(&self) -> bool {
        self.columns.is_none() && self.added != AddedColumnPolicy::Ignore
    }

    fn known_fields(&self, io: &StorageClient, files: &[ListedFile]) -> Result<Fields> {
        if let Some(columns) = &self.columns {
            return Ok(columns
                .0
                .iter()
                .map(|(name, of)| Field::new(name, of.data_type(), true))
                .collect());
        }
        let (rows_max, files_max) = if self.added.includes() {
            (usize::MAX, usize::MAX)
        } else {
            (self.infer_rows, infer::FILES_MAX)
        };
        infer::fields(io, &files[..files.len().min(files_max)], rows_max)
    }
}

impl SourceFormat for JsonSource {
    const ENDINGS: &'static [&'static str] = &["json", "jsonl", "ndjson"];

    fn source(self) -> Arc<dyn Source> {
        let formats = self.formats.clone();
        let on_error = self.on_error.clone();
        with_formats(
            Arc::new(RowSource::new(self.into_written())),
            &formats,
            on_error,
        )
    }
}

impl RowFormat for JsonSource {
    fn paths(&self) -> Vec<&str> {
        all_paths(&self.path, &self.paths)
    }

    fn marks(&self) -> FileMarks {
        FileMarks {
            endings: &[
                ".json",
                ".jsonl",
                ".ndjson",
                ".json.gz",
                ".jsonl.gz",
                ".ndjson.gz",
                ".json.zst",
                ".jsonl.zst",
                ".ndjson.zst",
            ],
            magic: b"",
        }
    }

    fn partitions(&self) -> PartitionPolicy {
        self.partitions
    }

    fn syntax(&self) -> Option<RecordSyntax> {
        Some(RecordSyntax::Lines)
    }

    fn fields(&self, io: &StorageClient, files: &[ListedFile]) -> Result<Fields> {
        let fields = self.known_fields(io, files)?;
        self.on_error.check_columns(&fields)?;
        Ok(fields)
    }

    fn open_rows(
        &self,
        file: &InputFile,
        schema: &SchemaRef,
        selected: &[FieldRef],
        batch_rows: usize,
    ) -> Result<(Vec<String>, BatchIterator)> {
        let schema = self.refuses_added().then_some(schema);
        reader::rows(file, schema, selected, batch_rows, self)
    }
}
