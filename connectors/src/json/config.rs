//! What a spec says about JSON.

use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Fields, SchemaRef};
use forebay_model::{ConfigError, ConfigResult, Result, TextRules};
use forebay_setters::Setters;
use forebay_storage::{Source, StorageClient};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::files::list::{FileMarks, ListedFile};
use crate::files::records::RecordSyntax;
use crate::files::rows::{BatchIterator, InputFile, RowFormat, RowSource};
use crate::files::{AddedColumnPolicy, ColumnType, ColumnTypes, PartitionPolicy};
use crate::format::{ConnectorConfig, SourceConfig, all_paths, check_paths};

use super::{infer, reader};

/// JSON files to read: one object per line, also packed (`.gz`, `.zst`). A field that an object
/// lacks is null. A line may have 16 MiB.
///
/// Without `columns`, the first rows give the fields and their types. Numbers are read as integers or floats where these
/// hold all of their digits, else as strings; fields that are always null or `{}` are strings, those that are always
/// `[]` lists of strings. A later value that does not fit the type is a fault.
///
/// ```yaml
/// sources:
///   sales: { json: { path: data/json }, time: date, keys: [store, item] }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Setters)]
#[serde(deny_unknown_fields, default)]
pub struct JsonSource {
    /// A file, a folder, or a pattern with `*`, `**` and `?`; local or a URL. In brackets, as in
    /// `[*]`, these characters stand for themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setters(skip)]
    pub path: Option<String>,
    /// Several of them, instead of `path`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The fields to read, and their types; taken from the first rows when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setters(skip)]
    pub columns: Option<ColumnTypes>,
    /// Rows to look at for the types of columns.
    pub infer_rows: usize,
    /// Treatment of a field, also of an object inside, that the first rows do not have. `include` looks at all rows
    /// of all files before any is read. Fields that `columns` does not name are left out.
    #[serde(skip_serializing_if = "AddedColumnPolicy::is_default")]
    pub added: AddedColumnPolicy,
    /// Whether folders named `column=value` give columns.
    pub partitions: PartitionPolicy,
}

impl Default for JsonSource {
    fn default() -> Self {
        JsonSource {
            path: None,
            paths: Vec::new(),
            columns: None,
            infer_rows: 10_000,
            added: AddedColumnPolicy::default(),
            partitions: PartitionPolicy::default(),
        }
    }
}

impl JsonSource {
    /// The files of a path, with all defaults.
    pub fn at(path: impl Into<String>) -> Self {
        JsonSource {
            path: Some(path.into()),
            ..JsonSource::default()
        }
    }

    /// Declares one more field; what is not declared is then not read.
    pub fn column(mut self, name: impl Into<String>, of: ColumnType) -> Self {
        self.columns
            .get_or_insert_default()
            .0
            .push((name.into(), of));
        self
    }
}

impl JsonSource {
    /// True if a field that is not known is a fault.
    fn refuses_added(&self) -> bool {
        self.columns.is_none() && self.added != AddedColumnPolicy::Ignore
    }

    fn text_rules(&self) -> TextRules {
        match self.columns {
            Some(_) => TextRules::declared(),
            None => TextRules::inferred(),
        }
    }
}

impl ConnectorConfig for JsonSource {
    fn check(&self) -> ConfigResult<()> {
        check_paths(self.path.as_deref(), &self.paths)?;
        if self.infer_rows == 0 {
            return Err(ConfigError::at(
                "infer_rows",
                "`infer_rows` must be at least 1",
            ));
        }
        match self.columns.as_ref().and_then(ColumnTypes::first_duplicate) {
            Some(name) => Err(ConfigError::at(
                "columns",
                format!("the column `{name}` is declared twice"),
            )),
            None => Ok(()),
        }
    }
}

impl SourceConfig for JsonSource {
    fn source(self) -> Arc<dyn Source> {
        Arc::new(RowSource::new(self))
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
        if let Some(columns) = &self.columns {
            return Ok(columns
                .0
                .iter()
                .map(|(name, of)| Field::new(name, of.data_type(), true))
                .collect());
        }
        let (rows_max, files_max) = match self.added {
            AddedColumnPolicy::Include => (usize::MAX, usize::MAX),
            _ => (self.infer_rows, infer::FILES_MAX),
        };
        infer::fields(io, &files[..files.len().min(files_max)], rows_max)
    }

    fn open_rows(
        &self,
        file: &InputFile,
        schema: &SchemaRef,
        wanted: &[FieldRef],
        batch_rows: usize,
    ) -> Result<(Vec<String>, BatchIterator)> {
        let schema = self.refuses_added().then_some(schema);
        reader::rows(file, schema, wanted, batch_rows, self.text_rules())
    }
}
