//! Compares the outputs of two runs, row by row, up to the cutoff.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::{cast, concat_batches, filter_record_batch};
use arrow::datatypes::{Field, Schema};
use arrow::row::{OwnedRow, RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_contract::{ChunkIterator, ConnectorRegistry, ScanRequest};
use forebay_model::{Result, logical_type, ticks};
use forebay_storage::StorageClient;

use crate::intermediate_files::IntermediateFiles;
use crate::leak_check::later_rows::LaterRows;
use crate::leak_check::report::{LeakedColumn, RowMismatch, SinkComparison};

/// Two outputs with the same columns.
pub(super) struct OutputComparison<'a> {
    pub io: &'a StorageClient,
    pub connectors: &'a dyn ConnectorRegistry,
    /// The time column of the rows.
    pub time: String,
    /// The last tick of the past.
    pub last: i64,
    /// Number of ticks after the cutoff for which a column must still be known, by column.
    pub ahead: BTreeMap<String, i64>,
    /// Rows of each series after the cut for which columns must still be known.
    pub ahead_rows: BTreeMap<String, u64>,
    /// The rows of the source after it, where they can be counted.
    pub later_rows: Option<LaterRows>,
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
    /// Number of available rows; 0 at the end.
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
        let first_rows = self.batch.slice(0, rows);
        self.batch = self.batch.slice(rows, self.batch.num_rows() - rows);
        first_rows
    }
}

impl OutputComparison<'_> {
    /// Compares the files of two directories.
    pub fn run(&self, plain_dir: &str, other_dir: &str) -> Result<SinkComparison> {
        let mut plain = self.open(plain_dir)?;
        let mut other = self.open(other_dir)?;
        let mut comparison = SinkComparison {
            sink: String::new(),
            rows: 0,
            rows_ahead: 0,
            rows_ahead_left_out: 0,
            rows_ahead_cut: false,
            columns: 0,
            moved: Vec::new(),
            misplaced: None,
        };
        loop {
            let rows = plain.fill()?.min(other.fill()?);
            if rows == 0 {
                self.compare_ahead([plain_dir, other_dir], &mut comparison)?;
                self.compare_rows_ahead([plain_dir, other_dir], &mut comparison)?;
                let plain_row = self.first_row_name(&plain)?;
                let other_row = self.first_row_name(&other)?;
                if plain_row.is_some() || other_row.is_some() {
                    comparison.misplaced = Some(RowMismatch {
                        row: comparison.rows,
                        found: plain_row,
                        other: other_row,
                    });
                }
                return Ok(comparison);
            }
            if self.rows(&plain.take(rows), &other.take(rows), &mut comparison)? {
                return Ok(comparison);
            }
        }
    }

    fn open<'s>(&'s self, dir: &str) -> Result<PastRows<'s>> {
        let source = IntermediateFiles::new(self.connectors).source(dir)?;
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

    /// Name of the first row that is left to compare; `None` where there is none.
    fn first_row_name(&self, past: &PastRows<'_>) -> Result<Option<String>> {
        if past.batch.num_rows() == 0 {
            return Ok(None);
        }
        self.name(&past.batch, 0).map(Some)
    }

    /// The rows of some times, every column in its logical type.
    fn rows_of_times(
        &self,
        batch: &RecordBatch,
        range: RangeInclusive<i64>,
    ) -> Result<RecordBatch> {
        let times = ticks(batch.column(batch.schema().index_of(&self.time)?))?;
        let keep: BooleanArray = times
            .iter()
            .map(|time| Some(time.is_some_and(|time| range.contains(&time))))
            .collect();
        let mut fields = Vec::new();
        let mut columns = Vec::new();
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
        comparison: &mut SinkComparison,
    ) -> Result<bool> {
        let key_names: Vec<&str> = self.who(plain).collect();
        let moved_from = |name: &str| -> Result<Option<usize>> {
            let Some((plain, other)) = columns_of_both(plain, other, name) else {
                return Ok(Some(0));
            };
            Ok(first_difference(plain, other))
        };
        let mut elsewhere = None;
        for name in &key_names {
            elsewhere = elsewhere.into_iter().chain(moved_from(name)?).min();
        }
        if let Some(row) = elsewhere {
            comparison.misplaced = Some(RowMismatch {
                row: comparison.rows + row as u64,
                found: Some(self.name(plain, row)?),
                other: Some(self.name(other, row)?),
            });
            return Ok(true);
        }
        let schema = plain.schema();
        let names = schema.fields().iter().map(|field| field.name());
        let compared: Vec<&String> = names
            .filter(|name| self.counts(name) && !key_names.contains(&name.as_str()))
            .collect();
        for name in &compared {
            let Some(first) = moved_from(name)? else {
                continue;
            };
            let Some((a, b)) = columns_of_both(plain, other, name) else {
                continue;
            };
            let rows = (first..a.len())
                .filter(|row| a.slice(*row, 1) != b.slice(*row, 1))
                .count() as u64;
            match comparison
                .moved
                .iter_mut()
                .find(|moved| moved.column == **name)
            {
                Some(moved) => moved.rows += rows,
                None => comparison.moved.push(LeakedColumn {
                    column: (*name).clone(),
                    rows,
                    first: format!(
                        "in row {} ({})",
                        comparison.rows + first as u64,
                        row_label(plain, first, &key_names)?
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
        comparison.columns = compared.len();
        comparison.rows += plain.num_rows() as u64;
        Ok(false)
    }

    /// Compares the rows after the past in the columns that must be known by then. Other rows come and go there with the
    /// values that were scrambled: those are compared that are in both outputs once.
    fn compare_ahead(&self, dirs: [&str; 2], comparison: &mut SinkComparison) -> Result<()> {
        let columns: Vec<(&String, i64)> = self
            .ahead
            .iter()
            .filter(|(name, ticks)| **ticks > 0 && self.counts(name))
            .map(|(name, ticks)| (name, self.last.saturating_add(*ticks)))
            .collect();
        let Some(end) = columns.iter().map(|(_, end)| *end).max() else {
            return Ok(());
        };
        let [plain_dir, other_dir] = dirs;
        let plain = self.rows_ahead(plain_dir, end, comparison)?;
        let other = self.rows_ahead(other_dir, end, comparison)?;
        let rows = plain.num_rows() + other.num_rows();
        if plain.num_rows() == 0 || other.num_rows() == 0 {
            comparison.count_ahead(0, rows as u64);
            return Ok(());
        }
        let key_names: Vec<&str> = self.who(&plain).collect();
        let mut converter = key_converter(&plain, &key_names)?;
        let plain_rows = rows_by_key(&mut converter, &plain, &key_names)?;
        let other_rows = rows_by_key(&mut converter, &other, &key_names)?;
        let times = ticks(plain.column(plain.schema().index_of(&self.time)?))?;
        let pairs: Vec<(usize, usize)> = plain_rows
            .iter()
            .filter_map(|(key, row)| Some(((*row)?, (*other_rows.get(key)?)?)))
            .collect();
        comparison.count_ahead(pairs.len() as u64, (rows - 2 * pairs.len()) as u64);
        for (name, end) in columns {
            let Some(columns) = columns_of_both(&plain, &other, name) else {
                continue;
            };
            let within = pairs.iter().filter(|(row, _)| times.value(*row) <= end);
            let label = |row: usize| row_label(&plain, row, &key_names);
            record_moved_ahead(name, within, columns, &label, comparison)?;
        }
        Ok(())
    }

    /// Compares the first rows of each series after the past in the columns that must be known so many rows ahead. A row
    /// counts at its place among the rows of the source: steps that drop rows before a window bring it nearer to the
    /// past, never farther away. Rows whose place among the written rows depends on scrambled values are left out.
    fn compare_rows_ahead(&self, dirs: [&str; 2], comparison: &mut SinkComparison) -> Result<()> {
        let Some(later_rows) = &self.later_rows else {
            return Ok(());
        };
        let columns: Vec<(&String, u64)> = self
            .ahead_rows
            .iter()
            .filter(|(name, rows)| **rows > 0 && self.counts(name))
            .map(|(name, rows)| (name, *rows))
            .collect();
        if columns.is_empty() {
            return Ok(());
        }
        let [plain_dir, other_dir] = dirs;
        let longest = columns.iter().map(|(_, rows)| *rows).max();
        let plain = self.rows_ahead(plain_dir, i64::MAX, comparison)?;
        let other = self.rows_ahead(other_dir, i64::MAX, comparison)?;
        if plain.num_rows() == 0 || other.num_rows() == 0 {
            let mut rows = 0;
            for output in [&plain, &other] {
                rows += self.rows_within(output, later_rows, longest)?;
            }
            comparison.count_ahead(0, rows);
            return Ok(());
        }
        let key_names: Vec<&str> = self.who(&plain).collect();
        let mut converter = key_converter(&plain, &key_names)?;
        let plain_rows = rows_by_key(&mut converter, &plain, &key_names)?;
        let other_rows = rows_by_key(&mut converter, &other, &key_names)?;
        let times = ticks(plain.column(plain.schema().index_of(&self.time)?))?;
        let plain_series = later_rows.series_of(&plain)?;
        let plain_places = self.places(&plain, &plain_series)?;
        let other_places = self.places(&other, &later_rows.series_of(&other)?)?;
        let mut pairs = Vec::new();
        for (key, row) in &plain_rows {
            let Some(row) = *row else {
                continue;
            };
            let Some(Some(at)) = other_rows.get(key) else {
                continue;
            };
            if plain_places[row] == other_places[*at] {
                let position = later_rows.place(&plain_series[row], times.value(row));
                // A step may make several rows of one.
                pairs.push((position.max(plain_places[row]), (row, *at)));
            }
        }
        let pairs_ahead = pairs
            .iter()
            .filter(|(position, _)| Some(*position) <= longest);
        let compared = pairs_ahead.count() as u64;
        let mut rows = 0;
        for output in [&plain, &other] {
            rows += self.rows_within(output, later_rows, longest)?;
        }
        comparison.count_ahead(compared, rows.saturating_sub(2 * compared));
        for (name, rows) in columns {
            let Some(columns) = columns_of_both(&plain, &other, name) else {
                continue;
            };
            let within = pairs
                .iter()
                .filter(|(position, _)| *position <= rows)
                .map(|(_, pair)| pair);
            let label = |row: usize| row_label(&plain, row, &key_names);
            record_moved_ahead(name, within, columns, &label, comparison)?;
        }
        Ok(())
    }

    /// Number of rows among the first ones of their series after the past.
    fn rows_within(
        &self,
        rows: &RecordBatch,
        later_rows: &LaterRows,
        longest: Option<u64>,
    ) -> Result<u64> {
        if rows.num_rows() == 0 {
            return Ok(0);
        }
        let times = ticks(rows.column(rows.schema().index_of(&self.time)?))?;
        let series = later_rows.series_of(rows)?;
        let positions = self.places(rows, &series)?;
        let mut count = 0;
        for (row, place) in positions.iter().enumerate() {
            let position = later_rows.place(&series[row], times.value(row));
            if Some(position.max(*place)) <= longest {
                count += 1;
            }
        }
        Ok(count)
    }

    /// The place of each row among those of its series, in order of time.
    fn places(&self, rows: &RecordBatch, series: &[Vec<u8>]) -> Result<Vec<u64>> {
        let times = ticks(rows.column(rows.schema().index_of(&self.time)?))?;
        let mut order: Vec<usize> = (0..rows.num_rows()).collect();
        order.sort_by_key(|row| times.value(*row));
        let mut counts: HashMap<&[u8], u64> = HashMap::new();
        let mut positions = vec![0; rows.num_rows()];
        for row in order {
            let count = counts.entry(series[row].as_slice()).or_default();
            *count += 1;
            positions[row] = *count;
        }
        Ok(positions)
    }

    /// The rows after the past, up to a tick: as many as memory should hold.
    fn rows_ahead(
        &self,
        dir: &str,
        end: i64,
        comparison: &mut SinkComparison,
    ) -> Result<RecordBatch> {
        let source = IntermediateFiles::new(self.connectors).source(dir)?;
        let dataset = source.discover(self.io, &[])?;
        let names = dataset.schema.fields().iter().map(|field| field.name());
        let is_read = |name: &&String| {
            let is_ahead = self.ahead.contains_key(*name) || self.ahead_rows.contains_key(*name);
            is_ahead || self.keys.contains(name) || **name == self.time
        };
        let columns: Vec<String> = names.filter(is_read).cloned().collect();
        let request = ScanRequest::of_columns(columns, &dataset.schema);
        let mut batches = Vec::new();
        let mut rows = 0;
        'spans: for span in &dataset.spans {
            for chunk in source.open(self.io, span, &request)? {
                let times = self.last.saturating_add(1)..=end;
                let batch = self.rows_of_times(&chunk?.batch, times)?;
                rows += batch.num_rows();
                batches.push(batch);
                if rows >= ROWS_AHEAD_MAX {
                    comparison.rows_ahead_cut = true;
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

    /// The columns that identify a row.
    fn who<'s>(&'s self, batch: &'s RecordBatch) -> impl Iterator<Item = &'s str> {
        let keys = self.keys.iter().chain([&self.time]).map(String::as_str);
        keys.filter(|key| batch.column_by_name(key).is_some())
    }

    fn name(&self, batch: &RecordBatch, row: usize) -> Result<String> {
        row_label(batch, row, &self.who(batch).collect::<Vec<_>>())
    }
}

impl SinkComparison {
    /// Counts rows after the cut. Columns with a horizon in time and those with one in rows may count the same rows.
    fn count_ahead(&mut self, compared: u64, left_out: u64) {
        self.rows_ahead = self.rows_ahead.max(compared);
        self.rows_ahead_left_out = self.rows_ahead_left_out.max(left_out);
    }
}

/// A column of both outputs.
fn columns_of_both<'b>(
    plain: &'b RecordBatch,
    other: &'b RecordBatch,
    name: &str,
) -> Option<(&'b ArrayRef, &'b ArrayRef)> {
    let plain_column = plain.column_by_name(name)?;
    let other_column = other.column_by_name(name)?;
    Some((plain_column, other_column))
}

/// Records a column whose values differ in some pairs of rows, unless that is known of it.
fn record_moved_ahead<'p>(
    name: &str,
    pairs: impl Iterator<Item = &'p (usize, usize)>,
    (a, b): (&ArrayRef, &ArrayRef),
    label: &dyn Fn(usize) -> Result<String>,
    comparison: &mut SinkComparison,
) -> Result<()> {
    let mut moved: Vec<(usize, usize)> = pairs
        .copied()
        .filter(|(row, at)| a.slice(*row, 1) != b.slice(*at, 1))
        .collect();
    moved.sort_unstable();
    let is_known = comparison.moved.iter().any(|moved| moved.column == name);
    let Some((row, at)) = moved.first().filter(|_| !is_known) else {
        return Ok(());
    };
    comparison.moved.push(LeakedColumn {
        column: name.to_owned(),
        rows: moved.len() as u64,
        first: format!("in the row {}", label(*row)?),
        value: value_text(a, *row)?,
        other: value_text(b, *at)?,
        step: None,
        cause: None,
        is_ahead: true,
        hint: String::new(),
        at: None,
    });
    Ok(())
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
    let mut rows_of_keys = HashMap::new();
    if rows.num_rows() == 0 || columns.is_empty() {
        return Ok(rows_of_keys);
    }
    let converted = converter.convert_columns(&columns)?;
    for (row_index, row) in converted.iter().enumerate() {
        rows_of_keys
            .entry(row.owned())
            .and_modify(|row_of_key| *row_of_key = None)
            .or_insert(Some(row_index));
    }
    Ok(rows_of_keys)
}

/// The first row whose bits differ.
fn first_difference(a: &ArrayRef, b: &ArrayRef) -> Option<usize> {
    if a.data_type() == b.data_type() && a.to_data() == b.to_data() {
        return None;
    }
    (0..a.len()).find(|row| a.slice(*row, 1) != b.slice(*row, 1))
}
