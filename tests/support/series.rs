//! Rows of many series: the same rows in any order, cut into any number of files.

use std::fs;
use std::sync::Arc;

use arrow::array::{
    Array, AsArray, BooleanArray, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray,
};
use arrow::compute::{sort_to_indices, take_record_batch};
use arrow::datatypes::{Float64Type, Int64Type};
use forebay::model::RowKeys;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use crate::support::TestDirectory;

/// Reproducible random numbers (SplitMix64).
pub struct SplitMixRng(pub u64);

impl SplitMixRng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A row of demand.
#[derive(Debug, Clone)]
pub struct DemandRow {
    pub id: i64,
    pub day: i32,
    pub store: &'static str,
    pub item: Option<i64>,
    pub qty: Option<f64>,
    pub units: Option<i64>,
    pub open: Option<bool>,
    pub price: f64,
}

impl DemandRow {
    pub fn series(&self) -> (&'static str, Option<i64>) {
        (self.store, self.item)
    }
}

/// Series that start and stop anywhere: daily ones and sparse ones, with missing values, NaN, long
/// stretches of zeros, and now and then several rows of one day. Ids follow the time.
pub fn demand(seed: u64, days: i32) -> Vec<DemandRow> {
    let mut random = SplitMixRng(seed);
    let mut rows = Vec::new();
    for store in ["a", "b", "c"] {
        for item in [None, Some(1), Some(2), Some(7), Some(9)] {
            let percent = random.pick(&[100, 100, 70, 10]);
            let ties = random.pick(&[0, 0, 5, 30]);
            let from = random.below(days as u64 / 2) as i32;
            let to = days - random.below(days as u64 / 3) as i32;
            let level = random.pick(&[1.0, 40.0, 1e7]);
            let mut zeros = 0;
            for day in from..to {
                for _ in 0..=u64::from(random.chance(ties)) + u64::from(random.chance(ties / 2)) {
                    if !random.chance(percent) {
                        continue;
                    }
                    zeros = if random.chance(3) { 12 } else { zeros - 1 };
                    let value = (random.below(1000) as f64 / 8.0 - 20.0) * level;
                    let qty = match random.below(100) {
                        0..6 => None,
                        6..9 => Some(f64::NAN),
                        _ if zeros > 0 => Some(0.0),
                        _ => Some(value),
                    };
                    let units = (!random.chance(7)).then(|| random.below(9) as i64 - 2);
                    let open = (!random.chance(5)).then(|| random.chance(60));
                    let price = 1.0 + random.below(997) as f64 / 7.0;
                    rows.push(DemandRow {
                        id: 0,
                        day: 16_000 + day,
                        store,
                        item,
                        qty,
                        units,
                        open,
                        price,
                    });
                }
            }
        }
    }
    rows.sort_by_key(|row| row.day);
    rows.iter_mut()
        .zip(1000..)
        .for_each(|(row, id)| row.id = id);
    rows
}

/// In which order rows lie. Rows of one series and day always follow each other by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOrder {
    Time,
    Key,
    Shuffled,
    /// By time from file to file, and backward inside each.
    Backward,
}

pub fn rows_in_order(rows: &[DemandRow], order: FileOrder, seed: u64) -> Vec<DemandRow> {
    let mut random = SplitMixRng(seed);
    let mut rows = rows.to_vec();
    let mut dice: Vec<u64> = rows.iter().map(|_| random.next()).collect();
    match order {
        FileOrder::Time | FileOrder::Backward => rows.sort_by_key(|row| (row.day, row.id)),
        FileOrder::Key => rows.sort_by_key(|row| (row.store, row.item, row.day, row.id)),
        FileOrder::Shuffled => {
            rows.sort_by_key(|_| dice.pop());
            let mut ties: std::collections::BTreeMap<_, Vec<usize>> = Default::default();
            for (place, row) in rows.iter().enumerate() {
                ties.entry((row.series(), row.day)).or_default().push(place);
            }
            for places in ties.values() {
                let mut tied: Vec<DemandRow> =
                    places.iter().map(|place| rows[*place].clone()).collect();
                tied.sort_by_key(|row| row.id);
                places
                    .iter()
                    .zip(tied)
                    .for_each(|(place, row)| rows[*place] = row);
            }
        }
    }
    rows
}

/// As a table; `pad` makes each row so many bytes larger.
pub fn table(rows: &[DemandRow], pad: usize) -> RecordBatch {
    let pads: StringArray = rows.iter().map(|_| Some("x".repeat(pad))).collect();
    let columns: [(&str, Arc<dyn Array>); 9] = [
        (
            "id",
            Arc::new(rows.iter().map(|row| row.id).collect::<Int64Array>()),
        ),
        (
            "day",
            Arc::new(
                rows.iter()
                    .map(|row| Some(row.day))
                    .collect::<Date32Array>(),
            ),
        ),
        (
            "store",
            Arc::new(
                rows.iter()
                    .map(|row| Some(row.store))
                    .collect::<StringArray>(),
            ),
        ),
        (
            "item",
            Arc::new(rows.iter().map(|row| row.item).collect::<Int64Array>()),
        ),
        (
            "qty",
            Arc::new(rows.iter().map(|row| row.qty).collect::<Float64Array>()),
        ),
        (
            "units",
            Arc::new(rows.iter().map(|row| row.units).collect::<Int64Array>()),
        ),
        (
            "open",
            Arc::new(rows.iter().map(|row| row.open).collect::<BooleanArray>()),
        ),
        (
            "price",
            Arc::new(
                rows.iter()
                    .map(|row| Some(row.price))
                    .collect::<Float64Array>(),
            ),
        ),
        ("pad", Arc::new(pads)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

/// A name for a file that ends a span, however small: where its hash says so (see the connectors' cut).
fn last_of_span(file: usize) -> String {
    let names = (0..).map(|salt| format!("part-{file:03}-{salt}.parquet"));
    names
        .into_iter()
        .find(|name| RowKeys::file_seed(name).is_multiple_of(32))
        .unwrap()
}

/// Writes a table as Parquet files, each a span of its own.
pub fn write(
    shop: &TestDirectory,
    name: &str,
    batch: &RecordBatch,
    files: usize,
    group_rows: usize,
) -> String {
    let dir = shop.path(name);
    fs::create_dir_all(&dir).unwrap();
    let each = batch.num_rows().div_ceil(files.max(1)).max(1);
    let properties = || {
        WriterProperties::builder()
            .set_max_row_group_row_count(Some(group_rows))
            .set_dictionary_enabled(false)
            .build()
    };
    for file in 0..batch.num_rows().div_ceil(each).max(1) {
        let from = file * each;
        let part = batch.slice(from, each.min(batch.num_rows() - from));
        let out = fs::File::create(dir.join(last_of_span(file))).unwrap();
        let mut writer = ArrowWriter::try_new(out, batch.schema(), Some(properties())).unwrap();
        writer.write(&part).unwrap();
        writer.close().unwrap();
    }
    shop.at(name)
}

/// Writes rows in an order.
pub fn write_in_order(
    shop: &TestDirectory,
    name: &str,
    rows: &[DemandRow],
    order: FileOrder,
    files: usize,
    group_rows: usize,
) -> String {
    let mut rows = rows_in_order(rows, order, 3);
    if order == FileOrder::Backward {
        let each = rows.len().div_ceil(files);
        // Rows of one series and day keep their order.
        rows.chunks_mut(each)
            .for_each(|part| part.sort_by_key(|row| (-row.day, row.id)));
    }
    let pad = if files >= 50 { 16_000 } else { 0 };
    write(shop, name, &table(&rows, pad), files, group_rows)
}

/// The rows by their ids.
pub fn by_id(batch: &RecordBatch) -> RecordBatch {
    let order = sort_to_indices(batch.column_by_name("id").unwrap(), None, None).unwrap();
    take_record_batch(batch, &order).unwrap()
}

/// The numbers of a column; NaN counts as missing.
pub fn numbers(batch: &RecordBatch, name: &str) -> Vec<Option<f64>> {
    let column = batch
        .column_by_name(name)
        .unwrap_or_else(|| panic!("no column {name} in {:?}", batch.schema()));
    match column.as_primitive_opt::<Int64Type>() {
        Some(whole) => whole
            .iter()
            .map(|value| value.map(|value| value as f64))
            .collect(),
        None => column
            .as_primitive::<Float64Type>()
            .iter()
            .map(|v| v.filter(|v| !v.is_nan()))
            .collect(),
    }
}
