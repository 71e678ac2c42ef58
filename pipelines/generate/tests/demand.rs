//! The retailer's history.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Date32Type, Float64Type, Int32Type};
use common::{batches, bytes, files, reader};
use forebay_generate::{CalendarDay, DemandOptions, FilePeriod, HistoryExtent, demand};
use forebay_model::codes;

fn options(extent: HistoryExtent, out: &std::path::Path) -> DemandOptions {
    let mut options = DemandOptions::new(extent, 1, out);
    options.output.threads = 2;
    options
}

/// One row, as it is read.
#[derive(Debug, Clone, PartialEq)]
struct DemandRecord {
    date: i32,
    store: String,
    item: String,
    category: String,
    department: String,
    qty: Option<i32>,
    price: Option<f64>,
    promotion: bool,
    event: Option<String>,
}

fn rows(directory: &std::path::Path) -> Vec<DemandRecord> {
    let mut rows = Vec::new();
    for batch in batches(directory) {
        let text = |column: usize, row: usize| {
            batch
                .column(column)
                .as_string::<i32>()
                .value(row)
                .to_owned()
        };
        for row in 0..batch.num_rows() {
            let some = |column: usize| batch.column(column).is_valid(row);
            rows.push(DemandRecord {
                date: batch.column(0).as_primitive::<Date32Type>().value(row),
                store: text(1, row),
                item: text(2, row),
                category: text(3, row),
                department: text(4, row),
                qty: some(5).then(|| batch.column(5).as_primitive::<Int32Type>().value(row)),
                price: some(6).then(|| batch.column(6).as_primitive::<Float64Type>().value(row)),
                promotion: batch.column(7).as_boolean().value(row),
                event: some(8).then(|| text(8, row)),
            });
        }
    }
    rows
}

#[test]
fn bytes_depend_on_the_seed_and_not_on_the_threads() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, seed, threads| {
        let mut options = options(HistoryExtent::Rows(60_000), &home.path().join(name));
        options.seed = seed;
        options.series = 700;
        options.output.threads = threads;
        let mut last = 0;
        let summary = demand(&options, &mut |rows| last = rows).unwrap();
        assert_eq!((summary.rows, last), (60_000, 60_000));
        bytes(&options.output.out)
    };
    let one = write("one", 1, 1);
    assert!(one == write("two", 1, 2));
    assert!(one[0].1 != write("other", 2, 1)[0].1);
}

#[test]
fn schema_is_plain() {
    let home = tempfile::tempdir().unwrap();
    demand(&options(HistoryExtent::Rows(10), home.path()), &mut |_| {}).unwrap();
    let reader = reader(&files(home.path())[0]);
    let columns: Vec<(&str, DataType, bool)> = reader
        .schema()
        .fields()
        .iter()
        .map(|f| (f.name().as_str(), f.data_type().clone(), f.is_nullable()))
        .collect();
    assert_eq!(
        columns,
        [
            ("date", DataType::Date32, false),
            ("store_id", DataType::Utf8, false),
            ("item_id", DataType::Utf8, false),
            ("category", DataType::Utf8, false),
            ("department", DataType::Utf8, false),
            ("qty", DataType::Int32, true),
            ("price", DataType::Float64, true),
            ("promotion", DataType::Boolean, false),
            ("event", DataType::Utf8, true),
        ]
    );
}

#[test]
fn the_default_shape_is_m5s() {
    let home = tempfile::tempdir().unwrap();
    let options = options(HistoryExtent::Rows(60_000), home.path());
    assert_eq!(options.rows().unwrap(), 60_000);
    demand(&options, &mut |_| {}).unwrap();
    let rows = rows(home.path());
    assert_eq!(rows.len(), 60_000);
    assert_eq!(rows.last().unwrap().date, CalendarDay(16_943).0);
    assert_eq!(rows.last().unwrap().store, "WI_3");
    assert!(rows.iter().any(|row| row.item == "HOBBIES_1_001"));
    assert!(
        rows.iter().all(|row| row.item.starts_with(&row.department)
            && row.department.starts_with(&row.category))
    );
    assert_eq!(files(home.path()).len(), 1);
    assert!(files(home.path())[0].ends_with("demand-2016-05.parquet"));
}

#[test]
fn rows_are_exact_ordered_and_alive() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("months");
    let mut options = options(HistoryExtent::Days(800), &out);
    options.series = 150;
    options.stores = 4;
    let summary = demand(&options, &mut |_| {}).unwrap();
    assert_eq!(summary.rows, options.rows().unwrap());
    assert_eq!(summary.files, 27);
    let whole = rows(&out);
    assert_eq!(whole.len() as u64, summary.rows);
    // In order of time across the files, then by store and item; never twice.
    let key = |row: &DemandRecord| (row.date, row.store.clone(), row.item.clone());
    assert!(whole.windows(2).all(|pair| key(&pair[0]) < key(&pair[1])));

    // A series is on sale without a gap; some come late, some leave early, and days differ.
    let mut lives: HashMap<(String, String), (i32, i32, i32)> = HashMap::new();
    let mut days: HashMap<i32, u32> = HashMap::new();
    for row in &whole {
        let life = lives
            .entry((row.store.clone(), row.item.clone()))
            .or_insert((row.date, row.date, 0));
        life.1 = row.date;
        life.2 += 1;
        *days.entry(row.date).or_default() += 1;
    }
    assert!(
        lives
            .values()
            .all(|(first, last, count)| last - first + 1 == *count)
    );
    let first = whole[0].date;
    let last = whole[whole.len() - 1].date;
    assert_eq!(last - first, 799);
    assert!(lives.values().any(|life| life.0 > first));
    assert!(lives.values().any(|life| life.1 < last));
    assert!(days.values().max() > days.values().min());

    // Fewer rows are the end of it, and other periods hold the same rows.
    let out = home.path().join("rows");
    let half = DemandOptions {
        extent: HistoryExtent::Rows(50_001),
        period: FilePeriod::Week,
        ..options.clone()
    };
    demand(
        &DemandOptions {
            output: forebay_generate::OutputOptions::new(&out),
            ..half
        },
        &mut |_| {},
    )
    .unwrap();
    let some = rows(&out);
    assert_eq!(some.len(), 50_001);
    let cut = some.iter().position(|row| row.date > some[0].date).unwrap();
    assert!(whole.ends_with(&some[cut..]));
    let start = whole
        .iter()
        .position(|row| row.date == some[0].date)
        .unwrap();
    assert!(whole[start..].starts_with(&some[..cut]));

    // A night's file continues the history.
    let night = DemandOptions {
        extent: HistoryExtent::Days(2),
        last_day: "2016-05-23".parse().unwrap(),
        period: FilePeriod::Day,
        output: forebay_generate::OutputOptions::new(home.path().join("night")),
        ..options
    };
    demand(&night, &mut |_| {}).unwrap();
    let names: Vec<String> = bytes(&night.output.out)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        ["demand-2016-05-22.parquet", "demand-2016-05-23.parquet"]
    );
    let old: Vec<DemandRecord> = rows(&night.output.out)
        .into_iter()
        .filter(|row| row.date == 16_943)
        .collect();
    assert!(whole.ends_with(&old));
}

#[test]
fn demand_looks_like_demand() {
    let home = tempfile::tempdir().unwrap();
    let mut options = options(HistoryExtent::Days(730), home.path());
    options.series = 300;
    demand(&options, &mut |_| {}).unwrap();
    let rows = rows(home.path());
    let mean = |keep: &dyn Fn(&DemandRecord) -> bool| {
        let kept: Vec<f64> = rows
            .iter()
            .filter(|row| keep(row))
            .filter_map(|row| row.qty)
            .map(f64::from)
            .collect();
        assert!(!kept.is_empty());
        kept.iter().sum::<f64>() / kept.len() as f64
    };
    let share = |keep: &dyn Fn(&DemandRecord) -> bool| {
        rows.iter().filter(|row| keep(row)).count() as f64 / rows.len() as f64
    };
    let all = mean(&|_| true);
    assert!((0.5..3.0).contains(&all), "{all} units a day");
    let zeros = share(&|row| row.qty == Some(0));
    assert!(
        (0.4..0.8).contains(&zeros),
        "{zeros} of the days without a sale"
    );
    assert!((0.0001..0.001).contains(&share(&|row| row.qty.is_none())));
    // Not listed, not sold, not promoted.
    let unlisted = share(&|row| row.price.is_none());
    assert!((0.02..0.04).contains(&unlisted), "{unlisted}");
    assert!(
        rows.iter()
            .filter(|row| row.price.is_none())
            .all(|row| row.qty.unwrap_or(0) == 0 && !row.promotion)
    );
    assert!(
        rows.iter()
            .filter_map(|row| row.price)
            .all(|price| (0.03..200.0).contains(&price))
    );
    // Weekends, promotions and Christmas (2014 and 2015).
    let weekend = |row: &DemandRecord| (row.date + 3).rem_euclid(7) >= 5;
    assert!(mean(&weekend) > 1.2 * mean(&|row| !weekend(row)));
    let promoted = share(&|row| row.promotion);
    assert!((0.03..0.12).contains(&promoted), "{promoted}");
    let lift = {
        // Series by series: the promoted ones are no others.
        let mut sums: HashMap<(&str, &str), [(f64, f64); 2]> = HashMap::new();
        for row in rows.iter().filter(|row| row.price.is_some()) {
            let sum =
                &mut sums.entry((&row.store, &row.item)).or_default()[usize::from(row.promotion)];
            sum.0 += f64::from(row.qty.unwrap_or(0));
            sum.1 += 1.0;
        }
        let both = sums
            .values()
            .filter(|[plain, promoted]| plain.0 > 0.0 && promoted.1 > 0.0);
        let (with, without) = both.fold((0.0, 0.0), |(with, without), [plain, promoted]| {
            (with + promoted.0, without + plain.0 / plain.1 * promoted.1)
        });
        with / without
    };
    assert!(
        (1.2..2.0).contains(&lift),
        "promotions lift demand by {lift}"
    );
    assert!(mean(&|row| row.event.as_deref() == Some("Christmas")) < 0.05 * all);
    // Prices move by the week only.
    let mut prices: HashMap<(&str, &str, i32), f64> = HashMap::new();
    let mut changes = 0;
    for row in &rows {
        if let Some(price) = row.price {
            let week = (row.date + 3).div_euclid(7);
            assert_eq!(
                *prices.entry((&row.store, &row.item, week)).or_insert(price),
                price
            );
            changes += usize::from(
                prices
                    .get(&(row.store.as_str(), row.item.as_str(), week - 1))
                    .is_some_and(|p| *p != price),
            );
        }
    }
    assert!(changes > 100);
}

#[test]
fn shapes_of_all_sizes() {
    let home = tempfile::tempdir().unwrap();
    for (series, stores) in [(1, 1), (1, 10), (7, 3), (23, 23), (40, 12), (5_000, 1)] {
        let out = home.path().join(format!("{series}-{stores}"));
        let mut options = options(HistoryExtent::Rows(3_000), &out);
        (options.series, options.stores) = (series, stores);
        demand(&options, &mut |_| {}).unwrap();
        let rows = rows(&out);
        assert_eq!(rows.len(), 3_000, "{series} series in {stores} stores");
        let mut keys: Vec<_> = rows.iter().map(|row| (&row.store, &row.item)).collect();
        keys.sort();
        keys.dedup();
        assert!(keys.len() as u64 <= series);
        assert!(rows.windows(2).all(|pair| {
            (pair[0].date, &pair[0].store, &pair[0].item)
                < (pair[1].date, &pair[1].store, &pair[1].item)
        }));
    }
}

#[test]
fn faults_name_what_is_wrong() {
    let home = tempfile::tempdir().unwrap();
    let code = |change: &dyn Fn(&mut DemandOptions)| {
        let mut options = options(HistoryExtent::Rows(100), &home.path().join("out"));
        options.series = 10;
        change(&mut options);
        demand(&options, &mut |_| {}).unwrap_err().code()
    };
    assert_eq!(
        code(&|options| options.extent = HistoryExtent::Rows(0)),
        codes::BAD_VALUE
    );
    assert_eq!(
        code(&|options| options.extent = HistoryExtent::Days(0)),
        codes::BAD_VALUE
    );
    assert_eq!(
        code(&|options| options.extent = HistoryExtent::Days(u32::MAX)),
        codes::BAD_VALUE
    );
    assert_eq!(
        code(&|options| options.extent = HistoryExtent::Rows(10_000_000)),
        codes::LIMIT
    );
    assert_eq!(code(&|options| options.series = 0), codes::BAD_VALUE);
    assert_eq!(code(&|options| options.series = u64::MAX), codes::BAD_VALUE);
    assert_eq!(code(&|options| options.stores = 0), codes::BAD_VALUE);
    assert_eq!(
        code(&|options| options.last_day = CalendarDay(i32::MIN)),
        codes::BAD_VALUE
    );
    assert!(!home.path().join("out").exists());
    assert_eq!(
        "mouth".parse::<FilePeriod>().unwrap_err().hint_text(),
        Some("did you mean `month`?")
    );
}
