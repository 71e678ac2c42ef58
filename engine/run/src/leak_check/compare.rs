//! What two runs wrote, row by row, as far as the past reaches.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::{cast, concat_batches, filter_record_batch};
use arrow::datatypes::{Field, Schema};
use arrow::row::{OwnedRow, RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_model::{Result, logical_type, ticks};
use forebay_storage::{ChunkIterator, ScanRequest, StorageClient, literal_path};
use serde_json::json;

use crate::connector_registry::ConnectorRegistry;
use crate::leak_check::report::{LeakedColumn, RowMismatch, SinkComparison};

/// Two outputs with the same columns.
pub(super) struct OutputComparison<'a> {
    pub io: &'a StorageClient,
    pub connectors: &'a dyn ConnectorRegistry,
    /// The column that tells the rows' time.
    pub time: String,
    /// The last tick of the past.
    pub last: i64,
    /// How many ticks after it columns must still be known.
    pub ahead: BTreeMap<String, i64>,
    /// The columns that tell rows apart.
    pub keys: Vec<String>,
    /// The columns that count, where not all do.
    pub only: Option<Vec<String>>,
    /// A column that may know the future: the label.
    pub skip: Option<String>,
}

/// The rows of the past of one output, batch by batch.
struct PastRows<'a> {
    compared: &'a OutputComparison<'a>,
    chunks: Box<dyn Iterator<Item = Result<ChunkIterator>> + 'a>,
    open: Option<ChunkIterator>,
    batch: RecordBatch,
}

impl PastRows<'_> {
    /// Rows that are at hand; none at the end.
    fn fill(&mut self) -> Result<usize> {
        while self.batch.num_rows() == 0 {
            if self.open.is_none() {
                self.open = self.chunks.next().transpose()?;
            }
            match self.open.as_mut().map(Iterator::next) {
                None => break,
                Some(None) => self.open = None,
                Some(Some(chunk)) => self.batch = self.compared.past(&chunk?.batch)?,
            }
        }
        Ok(self.batch.num_rows())
    }

    fn take(&mut self, rows: usize) -> RecordBatch {
        let taken = self.batch.slice(0, rows);
        self.batch = self.batch.slice(rows, self.batch.num_rows() - rows);
        taken
    }
}

impl OutputComparison<'_> {
    /// Compares the files of two directories.
    pub fn run(&self, plain_dir: &str, other_dir: &str) -> Result<SinkComparison> {
        let mut plain = self.open(plain_dir)?;
        let mut other = self.open(other_dir)?;
        let mut found = SinkComparison {
            sink: String::new(),
            rows: 0,
            rows_ahead: 0,
            columns: 0,
            moved: Vec::new(),
            misplaced: None,
        };
        loop {
            let rows = plain.fill()?.min(other.fill()?);
            if rows == 0 {
                self.compare_ahead([plain_dir, other_dir], &mut found)?;
                let left = |past: &PastRows<'_>| {
                    (past.batch.num_rows() > 0).then(|| self.name(&past.batch, 0))
                };
                let (here, there) = (left(&plain), left(&other));
                if here.is_some() || there.is_some() {
                    let (found_row, other) = (here.transpose()?, there.transpose()?);
                    found.misplaced = Some(RowMismatch {
                        row: found.rows,
                        found: found_row,
                        other,
                    });
                }
                return Ok(found);
            }
            if self.rows(&plain.take(rows), &other.take(rows), &mut found)? {
                return Ok(found);
            }
        }
    }

    fn open<'s>(&'s self, dir: &str) -> Result<PastRows<'s>> {
        let source = self
            .connectors
            .source("parquet", &json!({ "path": literal_path(dir) }))?;
        let dataset = source.discover(self.io, &[])?;
        let request = ScanRequest::of_all_columns(&dataset.schema);
        let chunks = dataset
            .spans
            .into_iter()
            .map(move |span| source.open(self.io, &span, &request));
        let batch = RecordBatch::new_empty(Arc::new(Schema::empty()));
        Ok(PastRows {
            compared: self,
            chunks: Box::new(chunks),
            open: None,
            batch,
        })
    }

    /// The rows at or before the time, every column in its logical type.
    fn past(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.rows_of_times(batch, i64::MIN..=self.last)
    }

    /// The rows of some times, every column in its logical type.
    fn rows_of_times(
        &self,
        batch: &RecordBatch,
        wanted: RangeInclusive<i64>,
    ) -> Result<RecordBatch> {
        let times = ticks(batch.column(batch.schema().index_of(&self.time)?))?;
        let keep: BooleanArray = times
            .iter()
            .map(|time| Some(time.is_some_and(|time| wanted.contains(&time))))
            .collect();
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            let column = cast(column, &logical_type(column.data_type()))?;
            fields.push(Field::new(field.name(), column.data_type().clone(), true));
            columns.push(column);
        }
        Ok(filter_record_batch(
            &RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?,
            &keep,
        )?)
    }

    /// Compares as many rows of both; whether other rows were found, so that no more can be compared.
    fn rows(
        &self,
        plain: &RecordBatch,
        other: &RecordBatch,
        found: &mut SinkComparison,
    ) -> Result<bool> {
        let who: Vec<&str> = self.who(plain).collect();
        let moved_from = |name: &str| -> Result<Option<usize>> {
            let (Some(a), Some(b)) = (plain.column_by_name(name), other.column_by_name(name))
            else {
                return Ok(Some(0));
            };
            Ok(first_difference(a, b))
        };
        let mut elsewhere = None;
        for name in &who {
            elsewhere = elsewhere.into_iter().chain(moved_from(name)?).min();
        }
        if let Some(row) = elsewhere {
            let (here, there) = (self.name(plain, row)?, self.name(other, row)?);
            found.misplaced = Some(RowMismatch {
                row: found.rows + row as u64,
                found: Some(here),
                other: Some(there),
            });
            return Ok(true);
        }
        let schema = plain.schema();
        let names = schema.fields().iter().map(|field| field.name());
        let compared: Vec<&String> = names
            .filter(|name| self.counts(name) && !who.contains(&name.as_str()))
            .collect();
        for name in &compared {
            let Some(first) = moved_from(name)? else {
                continue;
            };
            let (Some(a), Some(b)) = (plain.column_by_name(name), other.column_by_name(name))
            else {
                continue;
            };
            let rows = (first..a.len())
                .filter(|row| a.slice(*row, 1) != b.slice(*row, 1))
                .count() as u64;
            match found.moved.iter_mut().find(|moved| moved.column == **name) {
                Some(moved) => moved.rows += rows,
                None => found.moved.push(LeakedColumn {
                    column: (*name).clone(),
                    rows,
                    first: format!(
                        "in row {} ({})",
                        found.rows + first as u64,
                        row_label(plain, first, &who)?
                    ),
                    value: value_text(a, first)?,
                    other: value_text(b, first)?,
                    step: None,
                    cause: None,
                    is_ahead: false,
                    hint: String::new(),
                    at: None,
                }),
            }
        }
        found.columns = compared.len();
        found.rows += plain.num_rows() as u64;
        Ok(false)
    }

    /// Compares the rows after the past in the columns that must be known by then. Other rows come and go there with the
    /// values that were scrambled: those are compared that are in both outputs once.
    fn compare_ahead(&self, dirs: [&str; 2], found: &mut SinkComparison) -> Result<()> {
        let columns: Vec<(&String, i64)> = self
            .ahead
            .iter()
            .filter(|(name, ticks)| **ticks > 0 && self.counts(name))
            .map(|(name, ticks)| (name, self.last.saturating_add(*ticks)))
            .collect();
        let Some(end) = columns.iter().map(|(_, end)| *end).max() else {
            return Ok(());
        };
        let [plain, other] = dirs;
        let plain = self.rows_ahead(plain, end)?;
        let other = self.rows_ahead(other, end)?;
        let who: Vec<&str> = self.who(&plain).collect();
        let mut converter = key_converter(&plain, &who)?;
        let plain_rows = rows_by_key(&mut converter, &plain, &who)?;
        let other_rows = rows_by_key(&mut converter, &other, &who)?;
        if plain.num_rows() == 0 || other.num_rows() == 0 {
            return Ok(());
        }
        let times = ticks(plain.column(plain.schema().index_of(&self.time)?))?;
        let pairs: Vec<(usize, usize)> = plain_rows
            .iter()
            .filter_map(|(key, row)| Some(((*row)?, (*other_rows.get(key)?)?)))
            .collect();
        found.rows_ahead = pairs.len() as u64;
        for (name, end) in columns {
            let (Some(a), Some(b)) = (plain.column_by_name(name), other.column_by_name(name))
            else {
                continue;
            };
            let mut moved: Vec<(usize, usize)> = pairs
                .iter()
                .copied()
                .filter(|(row, at)| times.value(*row) <= end && a.slice(*row, 1) != b.slice(*at, 1))
                .collect();
            moved.sort_unstable();
            let is_known = found.moved.iter().any(|moved| moved.column == *name);
            let Some((row, at)) = moved.first().filter(|_| !is_known) else {
                continue;
            };
            found.moved.push(LeakedColumn {
                column: name.clone(),
                rows: moved.len() as u64,
                first: format!("in the row {}", row_label(&plain, *row, &who)?),
                value: value_text(a, *row)?,
                other: value_text(b, *at)?,
                step: None,
                cause: None,
                is_ahead: true,
                hint: String::new(),
                at: None,
            });
        }
        Ok(())
    }

    /// The rows after the past, up to a tick: as many as memory should hold.
    fn rows_ahead(&self, dir: &str, end: i64) -> Result<RecordBatch> {
        let source = self
            .connectors
            .source("parquet", &json!({ "path": literal_path(dir) }))?;
        let dataset = source.discover(self.io, &[])?;
        let names = dataset.schema.fields().iter().map(|field| field.name());
        let is_read = |name: &&String| {
            self.ahead.contains_key(*name) || self.keys.contains(name) || **name == self.time
        };
        let columns: Vec<String> = names.filter(is_read).cloned().collect();
        let request = ScanRequest::of_columns(columns, &dataset.schema);
        let mut batches = Vec::new();
        let mut rows = 0;
        'spans: for span in &dataset.spans {
            for chunk in source.open(self.io, span, &request)? {
                let later = self.last.saturating_add(1)..=end;
                let batch = self.rows_of_times(&chunk?.batch, later)?;
                rows += batch.num_rows();
                batches.push(batch);
                if rows >= ROWS_AHEAD_MAX {
                    break 'spans;
                }
            }
        }
        let Some(first) = batches.first() else {
            let schema = Arc::new(dataset.schema.project(&[])?);
            return Ok(RecordBatch::new_empty(schema));
        };
        Ok(concat_batches(&first.schema(), &batches)?)
    }

    fn counts(&self, name: &String) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(name))
            && Some(name) != self.skip.as_ref()
    }

    /// The columns that tell a row apart from others.
    fn who<'s>(&'s self, batch: &'s RecordBatch) -> impl Iterator<Item = &'s str> {
        let keys = self.keys.iter().chain([&self.time]).map(String::as_str);
        keys.filter(|key| batch.column_by_name(key).is_some())
    }

    fn name(&self, batch: &RecordBatch, row: usize) -> Result<String> {
        row_label(batch, row, &self.who(batch).collect::<Vec<_>>())
    }
}

/// `store=a, date=2016-04-24`.
fn row_label(batch: &RecordBatch, row: usize, columns: &[&str]) -> Result<String> {
    let mut parts = Vec::new();
    for name in columns {
        if let Some(column) = batch.column_by_name(name) {
            parts.push(format!("{name}={}", value_text(column, row)?));
        }
    }
    Ok(parts.join(", "))
}

fn value_text(column: &ArrayRef, row: usize) -> Result<String> {
    let options = FormatOptions::default().with_null("null");
    Ok(ArrayFormatter::try_new(column, &options)?
        .value(row)
        .to_string())
}

/// Rows after a cut that are compared at most.
const ROWS_AHEAD_MAX: usize = 2_000_000;

fn key_converter(rows: &RecordBatch, keys: &[&str]) -> Result<RowConverter> {
    let schema = rows.schema();
    let fields = keys
        .iter()
        .filter_map(|key| schema.field_with_name(key).ok())
        .map(|field| SortField::new(field.data_type().clone()));
    Ok(RowConverter::new(fields.collect())?)
}

/// The place of the row of each key; `None` where several rows have it.
fn rows_by_key(
    converter: &mut RowConverter,
    rows: &RecordBatch,
    keys: &[&str],
) -> Result<HashMap<OwnedRow, Option<usize>>> {
    let columns: Vec<ArrayRef> = keys
        .iter()
        .filter_map(|key| rows.column_by_name(key).cloned())
        .collect();
    let mut places = HashMap::new();
    if rows.num_rows() == 0 || columns.is_empty() {
        return Ok(places);
    }
    let converted = converter.convert_columns(&columns)?;
    for (place, row) in converted.iter().enumerate() {
        places
            .entry(row.owned())
            .and_modify(|known| *known = None)
            .or_insert(Some(place));
    }
    Ok(places)
}

/// The first row whose bits differ.
fn first_difference(a: &ArrayRef, b: &ArrayRef) -> Option<usize> {
    if a.data_type() == b.data_type() && a.to_data() == b.to_data() {
        return None;
    }
    (0..a.len()).find(|row| a.slice(*row, 1) != b.slice(*row, 1))
}
