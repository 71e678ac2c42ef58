//! A retailer's history: one row for each item, store and day on which the store lists the item.
//!
//! A cell depends only on the seed, the shape (items and stores) and the row's own store, item and
//! date: a later night adds its day to a history without changing it, and a shorter history is the
//! end of a longer one.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, DictionaryArray, Float64Array, Int32Array, PrimitiveArray,
    StringArray,
};
use arrow::datatypes::{DataType, Int32Type, Schema, UInt8Type};
use forebay_model::{Fault, Result, codes};
use serde_json::json;

use crate::calendar::{CalendarDay, EVENTS};
use crate::options::{GenerateSummary, OutputOptions, check_range, unknown_word};
use crate::random::{RandomStream, exp, normal, probability_threshold, unit, word_quarter};
use crate::write::{BATCH_ROWS, BatchCallback, GeneratedFiles, field};

/// The day that lives are laid out around, and the default last day: the end of the M5 competition's data.
const ANCHOR: CalendarDay = CalendarDay::of(2016, 5, 22);

/// Days of one history at most: a hundred years are no retailer's history, but a mistake.
const DAYS_MAX: u32 = 36_525;

/// Series at most: their numbers are keys of 32 bits in each store.
const SERIES_MAX: u64 = 1 << 40;

/// Stores at most: each day's factors are kept for each store.
const STORES_MAX: u32 = 100_000;

/// Items at most: their names are kept in memory.
const ITEMS_MAX: u64 = 10_000_000;

/// Departments with their categories, the M5 data's numbers of items, and how they sell.
struct DepartmentProfile {
    name: &'static str,
    category: u8,
    items: u64,
    /// The logarithm of the median item's daily units in a median store.
    level: f64,
    /// The logarithm of the median price.
    price: f64,
    /// The swing of the year, in the logarithm, and the day of the year on which it is highest.
    swing: f64,
    peak: f64,
    /// Effect of a promotion on the logarithm of demand, beyond the lower price.
    lift: f64,
}

const CATEGORIES: [&str; 3] = ["FOODS", "HOBBIES", "HOUSEHOLD"];

#[allow(clippy::too_many_arguments)]
const fn department(
    name: &'static str,
    category: u8,
    items: u64,
    level: f64,
    price: f64,
    swing: f64,
    peak: f64,
    lift: f64,
) -> DepartmentProfile {
    DepartmentProfile {
        name,
        category,
        items,
        level,
        price,
        swing,
        peak,
        lift,
    }
}

const DEPARTMENTS: [DepartmentProfile; 7] = [
    department("FOODS_1", 0, 216, -0.5, 1.0, 0.10, 200.0, 0.35),
    department("FOODS_2", 0, 398, -0.4, 1.2, 0.12, 20.0, 0.35),
    department("FOODS_3", 0, 823, 0.1, 0.8, 0.08, 190.0, 0.40),
    department("HOBBIES_1", 1, 416, -1.0, 1.6, 0.25, 345.0, 0.55),
    department("HOBBIES_2", 1, 149, -1.9, 0.9, 0.30, 345.0, 0.50),
    department("HOUSEHOLD_1", 2, 532, -0.7, 1.5, 0.10, 150.0, 0.30),
    department("HOUSEHOLD_2", 2, 515, -1.4, 1.7, 0.15, 160.0, 0.30),
];

/// All items of [`DEPARTMENTS`].
const ITEMS: u64 = 3_049;

/// Effect of each weekday, from Monday, on the logarithm of demand in each category.
const WEEKDAYS: [[f64; 7]; 3] = [
    [-0.08, -0.16, -0.15, -0.12, 0.02, 0.20, 0.22],
    [-0.10, -0.12, -0.10, -0.06, 0.06, 0.20, 0.10],
    [-0.10, -0.15, -0.15, -0.12, 0.02, 0.24, 0.20],
];

/// The first stores are the M5 data's.
const STORES: [&str; 10] = [
    "CA_1", "CA_2", "CA_3", "CA_4", "TX_1", "TX_2", "TX_3", "WI_1", "WI_2", "WI_3",
];
const STATES: [&str; 8] = ["FL", "GA", "IL", "MI", "NC", "NY", "OH", "PA"];

/// Names of streams.
const ITEM: u64 = 1;
const STORE: u64 = 2;
const SERIES: u64 = 3;

/// Purposes of a series' random words; the lower half of their index is a time.
const LIFE: u64 = 0;
const SIZE: u64 = 1 << 32;
const LEVEL: u64 = 2 << 32;
const WEEK: u64 = 3 << 32;
const PRICE: u64 = 4 << 32;
const DAY: u64 = 5 << 32;
const COUNT: u64 = 6 << 32;

/// Length of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryExtent {
    /// Exactly this many rows: as many whole days up to the last day as fit, and before them one day
    /// with only its first rows (in the order of stores and items).
    Rows(u64),
    /// Exactly this many days up to the last day, with the rows that they have.
    Days(u32),
}

/// Content of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FilePeriod {
    /// `demand-2016-05-22.parquet`.
    Day,
    /// Monday to Sunday, by its Monday: `demand-2016-05-16.parquet`.
    Week,
    /// `demand-2016-05.parquet`.
    #[default]
    Month,
}

impl FilePeriod {
    /// The words that the command line takes.
    pub const WORDS: [&'static str; 3] = ["day", "week", "month"];

    fn file(self, day: CalendarDay) -> String {
        match self {
            FilePeriod::Day => format!("demand-{day}.parquet"),
            FilePeriod::Week => format!(
                "demand-{}.parquet",
                CalendarDay(day.0 - day.weekday() as i32)
            ),
            FilePeriod::Month => {
                let (year, month, _) = day.date();
                format!("demand-{year:04}-{month:02}.parquet")
            }
        }
    }
}

impl FromStr for FilePeriod {
    type Err = Fault;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "day" => Ok(FilePeriod::Day),
            "week" => Ok(FilePeriod::Week),
            "month" => Ok(FilePeriod::Month),
            _ => Err(unknown_word("period", word, &Self::WORDS)),
        }
    }
}

/// Options of [`demand`].
#[derive(Debug, Clone)]
pub struct DemandOptions {
    /// The length of the history.
    pub extent: HistoryExtent,
    /// Which history.
    pub seed: u64,
    /// Pairs of an item and a store, exactly. Not all of them are on sale on every day.
    pub series: u64,
    /// Stores; when their number does not divide that of the series, the last one has fewer items.
    pub stores: u32,
    /// The last day of the history.
    pub last_day: CalendarDay,
    /// Content of one file.
    pub period: FilePeriod,
    /// The output directory and format.
    pub output: OutputOptions,
}

impl DemandOptions {
    /// 3,049 items in 10 stores up to 2016-05-22, a file per month; for the rest see [`OutputOptions::new`].
    pub fn new(extent: HistoryExtent, seed: u64, out: impl Into<PathBuf>) -> Self {
        DemandOptions {
            extent,
            seed,
            series: 30_490,
            stores: 10,
            last_day: ANCHOR,
            period: FilePeriod::default(),
            output: OutputOptions::new(out),
        }
    }

    /// The rows that [`demand`] will write.
    pub fn rows(&self) -> Result<u64> {
        Ok(HistoryDays::of(&DemandModel::new(self)?, self)?
            .rows
            .iter()
            .sum())
    }
}

/// Writes `demand-2016-05.parquet` and so on, each sorted by date, store and item.
///
/// `progress` is told the rows written so far, on the caller's thread. Other files in the directory are left alone, so that a night's file can be added to a history.
pub fn demand(options: &DemandOptions, progress: &mut dyn FnMut(u64)) -> Result<GenerateSummary> {
    options.output.check()?;
    let world = DemandModel::new(options)?;
    let window = HistoryDays::of(&world, options)?;
    // Days of the same file, as ranges of the window.
    let mut names: Vec<String> = Vec::new();
    let mut days: Vec<std::ops::Range<usize>> = Vec::new();
    for at in 0..window.rows.len() {
        let name = options.period.file(window.day(at));
        match days.last_mut() {
            Some(range) if names.last() == Some(&name) => range.end = at + 1,
            _ => {
                names.push(name);
                days.push(at..at + 1);
            }
        }
    }
    let files = GeneratedFiles {
        schema: Arc::new(schema()),
        note: json!({
            "data": "demand",
            "seed": options.seed,
            "series": options.series,
            "stores": options.stores,
        }),
        sorted_by: &[0, 1, 2],
        names: &names,
        output: &options.output,
    };
    files.write(
        &|index, put| world.file(&window, days[index].clone(), put),
        progress,
    )
}

fn schema() -> Schema {
    Schema::new(vec![
        field("date", DataType::Date32, false),
        field("store_id", DataType::Utf8, false),
        field("item_id", DataType::Utf8, false),
        field("category", DataType::Utf8, false),
        field("department", DataType::Utf8, false),
        field("qty", DataType::Int32, true),
        field("price", DataType::Float64, true),
        field("promotion", DataType::Boolean, false),
        field("event", DataType::Utf8, true),
    ])
}

/// The days to write and their rows.
struct HistoryDays {
    first: CalendarDay,
    rows: Vec<u64>,
}

impl HistoryDays {
    fn of(world: &DemandModel, options: &DemandOptions) -> Result<HistoryDays> {
        let days = match options.extent {
            HistoryExtent::Rows(rows) => {
                check_range("rows", rows, 1, u64::MAX)?;
                DAYS_MAX
            }
            HistoryExtent::Days(days) => {
                check_range("days", days.into(), 1, DAYS_MAX.into())?;
                days
            }
        };
        let first = CalendarDay(options.last_day.0 - days as i32 + 1);
        let mut rows = world.rows(first, options.last_day);
        let HistoryExtent::Rows(row_count) = options.extent else {
            return Ok(HistoryDays { first, rows });
        };
        // Counted back from the last day: the first day may be cut.
        let mut missing = row_count;
        for at in (0..rows.len()).rev() {
            if rows[at] >= missing {
                rows[at] = missing;
                return Ok(HistoryDays {
                    first: CalendarDay(first.0 + at as i32),
                    rows: rows.split_off(at),
                });
            }
            missing -= rows[at];
        }
        let fault = format!(
            "{} series have fewer than {row_count} rows in {DAYS_MAX} days",
            options.series
        );
        Err(Fault::new(codes::LIMIT, fault).hint("ask for more series"))
    }

    fn day(&self, at: usize) -> CalendarDay {
        CalendarDay(self.first.0 + at as i32)
    }
}

/// An item, wherever it is sold.
struct ItemProfile {
    department: u8,
    /// The logarithm of its daily units in a median store.
    level: f64,
    cents: f64,
    /// The change of the level in a day.
    trend: f64,
    /// The week in which its prices change, and the share of weeks on promotion.
    phase: i32,
    promotion: u32,
    lift: f64,
}

/// The parameters that all days share.
struct DemandModel {
    series: u64,
    items: Vec<ItemProfile>,
    /// The logarithm of each store's size.
    sizes: Vec<f64>,
    /// Factor of each store's weekly pattern.
    swings: Vec<f64>,
    series_stream: RandomStream,
    chain: RandomStream,
    store_names: Arc<StringArray>,
    item_names: Arc<StringArray>,
    category_names: Arc<StringArray>,
    department_names: Arc<StringArray>,
    event_names: Arc<StringArray>,
}

impl DemandModel {
    fn new(options: &DemandOptions) -> Result<DemandModel> {
        check_range("series", options.series, 1, SERIES_MAX)?;
        check_range("stores", options.stores.into(), 1, STORES_MAX.into())?;
        let count = options.series.div_ceil(options.stores.into());
        check_range("series / stores", count, 1, ITEMS_MAX)?;
        let least = CalendarDay::of(1900, 1, 1);
        let most = CalendarDay::of(9999, 12, 31);
        if !(least..=most).contains(&options.last_day) {
            let message = format!(
                "the last day is {}; it must be from {least} to {most}",
                options.last_day
            );
            return Err(Fault::new(codes::BAD_VALUE, message));
        }
        let mut items = Vec::with_capacity(count as usize);
        let mut names = Vec::with_capacity(count as usize);
        // Wide enough for the largest department, so that the order of names is that of numbers.
        let digits = (count * DEPARTMENTS[2].items / ITEMS + 1)
            .to_string()
            .len()
            .max(3);
        let stream = RandomStream::new(options.seed, ITEM);
        let mut items_before = 0;
        for (at, department) in DEPARTMENTS.iter().enumerate() {
            // As many items of each department as in the M5 data, in proportion.
            let items_after = items_before + department.items;
            let range = items_before * count / ITEMS..items_after * count / ITEMS;
            items_before = items_after;
            for (number, item) in range.enumerate() {
                let item_stream = stream.under(item);
                names.push(format!("{}_{:0digits$}", department.name, number + 1));
                items.push(ItemProfile {
                    department: at as u8,
                    level: department.level + 1.0 * normal(item_stream.at(0)),
                    cents: (100.0 * exp(department.price + 0.5 * normal(item_stream.at(1))))
                        .floor(),
                    trend: (0.10 * normal(item_stream.at(2)) + 0.02) / 365.25,
                    phase: word_quarter(item_stream.at(3), 0) as i32,
                    promotion: probability_threshold(0.12 * unit(item_stream.at(4))),
                    lift: department.lift * (0.5 + unit(item_stream.at(5))),
                });
            }
        }
        let mut stores: Vec<String> = Vec::with_capacity(options.stores as usize);
        for store in 0..options.stores as usize {
            let name = match STORES.get(store) {
                Some(name) => (*name).to_owned(),
                // Beyond the stores of the M5 data, states take turns.
                None => {
                    let index = store - STORES.len();
                    let state = STATES[index % STATES.len()];
                    format!("{state}_{}", index / STATES.len() + 1)
                }
            };
            stores.push(name);
        }
        stores.sort_unstable();
        let stream = RandomStream::new(options.seed, STORE);
        let words = |purpose: u64| {
            (0..options.stores.into()).map(move |store| normal(stream.under(store).at(purpose)))
        };
        let strings =
            |names: &mut dyn Iterator<Item = &str>| Arc::new(StringArray::from_iter_values(names));
        Ok(DemandModel {
            series: options.series,
            items,
            sizes: words(0).map(|z| 0.25 * z).collect(),
            swings: words(1).map(|z| 1.0 + 0.25 * z).collect(),
            series_stream: RandomStream::new(options.seed, SERIES),
            chain: RandomStream::new(options.seed, ITEM).under(u64::MAX),
            store_names: strings(&mut stores.iter().map(String::as_str)),
            item_names: strings(&mut names.iter().map(String::as_str)),
            category_names: strings(&mut CATEGORIES.iter().copied()),
            department_names: strings(&mut DEPARTMENTS.iter().map(|department| department.name)),
            event_names: strings(&mut EVENTS.iter().map(|event| event.0)),
        })
    }

    /// The first and last day on which a series is on sale. Three quarters have always been; the others
    /// came in the 1,941 days before the anchor (the length of the M5 data) or come in the half year
    /// after it. One in eight leaves within two years around the anchor, and not before half a year on sale.
    /// The very first series always stays, so that every day has a row.
    #[inline]
    fn life(series: u64, stream: RandomStream) -> (i32, i32) {
        if series == 0 {
            return (i32::MIN, i32::MAX);
        }
        let word = stream.at(LIFE);
        let start = if word_quarter(word, 0) < probability_threshold(0.75) {
            i32::MIN
        } else {
            ANCHOR.0 - 1_941 + ((word_quarter(word, 1) * 2_124) >> 16) as i32
        };
        let stop = if word_quarter(word, 2) < probability_threshold(0.875) {
            i32::MAX
        } else {
            (ANCHOR.0 - 730 + ((word_quarter(word, 3) * 1_460) >> 16) as i32)
                .max(start.saturating_add(182))
        };
        (start, stop)
    }

    /// The rows of each day.
    fn rows(&self, first: CalendarDay, last: CalendarDay) -> Vec<u64> {
        let days = (last.0 - first.0 + 1) as usize;
        let mut changes = vec![0i64; days + 1];
        for series in 0..self.series {
            let (start, stop) = Self::life(series, self.series_stream.under(series));
            let start = start.max(first.0);
            let stop = stop.min(last.0);
            if start <= stop {
                changes[(start - first.0) as usize] += 1;
                changes[(stop - first.0) as usize + 1] -= 1;
            }
        }
        let mut alive = 0;
        let mut rows = Vec::with_capacity(days);
        for change in &changes[..days] {
            alive += change;
            rows.push(alive as u64);
        }
        rows
    }

    fn file(
        &self,
        window: &HistoryDays,
        days: std::ops::Range<usize>,
        put: BatchCallback<'_>,
    ) -> Result<()> {
        let mut rows = DemandColumns::default();
        for at in days {
            self.day(window.day(at), window.rows[at], &mut rows, put)?;
        }
        rows.put(self, put)
    }

    /// The first rows of a day.
    fn day(
        &self,
        day: CalendarDay,
        mut remaining: u64,
        rows: &mut DemandColumns,
        put: BatchCallback<'_>,
    ) -> Result<()> {
        let week = day.week();
        let time = u64::from(day.0 as u32);
        let event = day.event();
        let (year, ..) = day.date();
        let of_year = f64::from(day.0 - CalendarDay::of(year, 1, 1).0);
        let since = f64::from(day.0 - ANCHOR.0);
        let knot = u64::from((day.0 >> 5) as u32);
        let between = f64::from(day.0 & 31) * (1.0 / 32.0);
        let rain = self.chain.under(1);
        for store in 0..self.sizes.len() {
            // What all items of a department share in this store on this day.
            let weather = 0.06 * normal(rain.under(time).at(store as u64));
            let mut shared = [0.0; DEPARTMENTS.len()];
            for (shared, department) in shared.iter_mut().zip(&DEPARTMENTS) {
                let weekday =
                    WEEKDAYS[usize::from(department.category)][day.weekday()] * self.swings[store];
                let season = department.swing * cosine((of_year - department.peak) / 365.25);
                let event = event.map_or(0.0, |event| EVENTS[event].1);
                *shared = self.sizes[store] + weather + weekday + season + event;
            }
            let first = store as u64 * self.items.len() as u64;
            for (at, item) in self.items.iter().enumerate() {
                let series = first + at as u64;
                if remaining == 0 || series >= self.series {
                    return Ok(());
                }
                let stream = self.series_stream.under(series);
                let (start, stop) = Self::life(series, stream);
                if day.0 < start || day.0 > stop {
                    continue;
                }
                remaining -= 1;
                let this_week = stream.at(WEEK | u64::from(week as u32));
                // Most promotions are the chain's, some the store's own.
                let chain = self.chain.at((at as u64) << 32 | u64::from(week as u32));
                let promotion = word_quarter(chain, 0) < item.promotion
                    || word_quarter(this_week, 0) < probability_threshold(0.01);
                let listed = word_quarter(this_week, 1) >= probability_threshold(0.03);
                // Prices change every 13 weeks, most of them little, and follow inflation in steps.
                let quarters = (week + item.phase).div_euclid(13);
                let step = normal(stream.at(PRICE | u64::from(quarters as u32)));
                let drift =
                    0.02 * f64::from(quarters * 13 - item.phase - ANCHOR.week()) * (7.0 / 365.25);
                let ratio = (1.0 + drift).max(0.2)
                    * (1.0 + 0.03 * step)
                    * if promotion { 0.8 } else { 1.0 };
                let cents = (item.cents * ratio * 0.2 + 0.5).floor().max(1.0) * 5.0 - 2.0;

                let level = normal(stream.at(LEVEL | knot)) * (1.0 - between)
                    + normal(stream.at(LEVEL | u64::from((knot as u32).wrapping_add(1)))) * between;
                let today = stream.at(DAY | time);
                let trend = (item.trend * since).clamp(-2.0, 1.0);
                let elastic = -0.8 * (0.03 * step) + if promotion { item.lift } else { 0.0 };
                let rate = item.level
                    + 0.4 * normal(stream.at(SIZE))
                    + 0.45 * level
                    + trend
                    + elastic
                    + shared[usize::from(item.department)]
                    + 0.25 * normal(today);
                let counted = stream.at(COUNT | time);
                let qty = if listed {
                    poisson(exp(rate), counted)
                } else {
                    0
                };

                rows.date.push(day.0);
                rows.store.push(store as i32);
                rows.item.push(at as i32);
                rows.category
                    .push(DEPARTMENTS[usize::from(item.department)].category);
                rows.department.push(item.department);
                // Now and then a day's count is lost.
                rows.qty.push((counted & 0x7ff != 0).then_some(qty));
                rows.price.push(listed.then_some(cents / 100.0));
                rows.promotion.push(promotion && listed);
                rows.event.push(event.map(|event| event as u8));
                if rows.date.len() == BATCH_ROWS {
                    rows.put(self, put)?;
                }
            }
        }
        Ok(())
    }
}

/// The columns of one batch, in the making.
#[derive(Default)]
struct DemandColumns {
    date: Vec<i32>,
    store: Vec<i32>,
    item: Vec<i32>,
    category: Vec<u8>,
    department: Vec<u8>,
    qty: Vec<Option<i32>>,
    price: Vec<Option<f64>>,
    promotion: Vec<bool>,
    event: Vec<Option<u8>>,
}

impl DemandColumns {
    fn put(&mut self, world: &DemandModel, put: BatchCallback<'_>) -> Result<()> {
        if self.date.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(self);
        let wide = |keys: Vec<i32>, names: &Arc<StringArray>| -> Result<ArrayRef> {
            let keys = PrimitiveArray::<Int32Type>::from(keys);
            Ok(Arc::new(DictionaryArray::try_new(
                keys,
                Arc::clone(names) as ArrayRef,
            )?))
        };
        let narrow =
            |keys: PrimitiveArray<UInt8Type>, names: &Arc<StringArray>| -> Result<ArrayRef> {
                Ok(Arc::new(DictionaryArray::try_new(
                    keys,
                    Arc::clone(names) as ArrayRef,
                )?))
            };
        put(vec![
            Arc::new(Date32Array::from(rows.date)),
            wide(rows.store, &world.store_names)?,
            wide(rows.item, &world.item_names)?,
            narrow(rows.category.into(), &world.category_names)?,
            narrow(rows.department.into(), &world.department_names)?,
            Arc::new(Int32Array::from(rows.qty)),
            Arc::new(Float64Array::from(rows.price)),
            Arc::new(BooleanArray::from(rows.promotion)),
            narrow(rows.event.into(), &world.event_names)?,
        ])
    }
}

/// cos(2 pi x), to three digits: Bhaskara's approximation on each half period.
fn cosine(x: f64) -> f64 {
    let x = x - x.floor();
    // The distance from the nearest peak, in turns: 0 to 1/2.
    let turns = if x > 0.5 { 1.0 - x } else { x };
    let half = |turns: f64| (1.0 - 16.0 * turns * turns) / (1.0 + 4.0 * turns * turns);
    if turns <= 0.25 {
        half(turns)
    } else {
        -half(0.5 - turns)
    }
}

/// A Poisson number by inversion (Devroye, "Non-Uniform Random Variate Generation", X.3.3); where the
/// mean is large, the normal law near it.
#[inline]
fn poisson(mean: f64, word: u64) -> i32 {
    if mean > 30.0 {
        // `sqrt`, unlike `exp`, is rounded exactly everywhere.
        return (mean + mean.sqrt() * normal(word) + 0.5)
            .floor()
            .clamp(0.0, 1e6) as i32;
    }
    let mut remaining = unit(word);
    let mut weight = exp(-mean);
    let mut count = 0;
    while remaining >= weight && count < 200 {
        remaining -= weight;
        count += 1;
        weight *= mean / f64::from(count);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosine_is_near() {
        for step in -400..400 {
            let x = f64::from(step) * 0.01;
            assert!(
                (cosine(x) - (x * std::f64::consts::TAU).cos()).abs() < 2e-3,
                "{x}"
            );
        }
    }

    #[test]
    fn poisson_has_its_mean() {
        let stream = RandomStream::new(1, 1);
        for mean in [0.05, 1.0, 7.5, 29.0, 200.0] {
            let n = 50_000;
            let sum: f64 = (0..n)
                .map(|index| f64::from(poisson(mean, stream.at(index))))
                .sum();
            assert!(
                (sum / n as f64 - mean).abs() < 6.0 * (mean / n as f64).sqrt(),
                "{mean}: {}",
                sum / n as f64
            );
        }
    }

    #[test]
    fn items_add_up() {
        assert!(
            DEPARTMENTS
                .iter()
                .all(|department| department.items <= DEPARTMENTS[2].items)
        );
        assert_eq!(
            DEPARTMENTS
                .iter()
                .map(|department| department.items)
                .sum::<u64>(),
            ITEMS
        );
    }
}
