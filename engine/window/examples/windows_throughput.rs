//! Nanoseconds per row and bytes per series: `cargo run --release --example windows_throughput [days]`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Instant;

use arrow::array::*;
use arrow::datatypes::DataType;
use forebay_model::RowKeys;
use forebay_window::*;

const ITEMS: usize = 3049;
const STORES: usize = 10;
const BATCH_ROWS: usize = 8192;

/// Key, time and input columns per batch.
type InputBatches = Vec<(Vec<ArrayRef>, ArrayRef, Vec<ArrayRef>)>;

fn quantities(key: u64) -> Option<i32> {
    // Mostly zeros and small numbers, some missing.
    let draw = (key >> 32) as u32 % 100;
    (draw >= 5).then_some(if draw < 60 { 0 } else { (key % 9) as i32 })
}

/// A panel: one row per store, item and day, in order of days.
fn panel(days: usize) -> InputBatches {
    let series = ITEMS * STORES;
    let names = |prefix: &str, count: usize| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(
            (0..count).map(|number| format!("{prefix}_{number:04}")),
        ))
    };
    let stores = names("STORE", STORES);
    let items = names("ITEM", ITEMS);
    let random = RowKeys::sequence(3, 0, series * days);
    let random = random.as_slice();
    let coded = |keys: Vec<i32>, values: &ArrayRef| -> ArrayRef {
        Arc::new(DictionaryArray::new(Int32Array::from(keys), values.clone()))
    };
    (0..series * days)
        .step_by(BATCH_ROWS)
        .map(|start| {
            let rows = start..(start + BATCH_ROWS).min(series * days);
            let number = |row: usize| row % series;
            let keys = vec![
                coded(
                    rows.clone()
                        .map(|row| (number(row) / ITEMS) as i32)
                        .collect(),
                    &stores,
                ),
                coded(
                    rows.clone()
                        .map(|row| (number(row) % ITEMS) as i32)
                        .collect(),
                    &items,
                ),
            ];
            let days: Vec<i32> = rows
                .clone()
                .map(|row| 15_000 + (row / series) as i32)
                .collect();
            let weekdays = Int64Array::from_iter_values(days.iter().map(|day| i64::from(day % 7)));
            let inputs: Vec<ArrayRef> = vec![
                Arc::new(Int32Array::from_iter(
                    rows.clone().map(|row| quantities(random[row])),
                )),
                Arc::new(Float64Array::from_iter_values(
                    rows.map(|row| (random[row] % 1000) as f64 / 100.0),
                )),
                Arc::new(weekdays),
            ];
            (keys, Arc::new(Date32Array::from(days)) as ArrayRef, inputs)
        })
        .collect()
}

/// One long series with one row per second.
fn long_series(rows: usize) -> InputBatches {
    let random = RowKeys::sequence(4, 0, rows);
    let random = random.as_slice();
    (0..rows)
        .step_by(BATCH_ROWS)
        .map(|start| {
            let rows = start..(start + BATCH_ROWS).min(rows);
            let inputs: Vec<ArrayRef> = vec![
                Arc::new(Int32Array::from_iter(
                    rows.clone().map(|row| quantities(random[row])),
                )),
                Arc::new(Float64Array::from_iter_values(
                    rows.clone().map(|row| (random[row] % 1000) as f64 / 100.0),
                )),
                Arc::new(Int64Array::from_iter_values(
                    rows.clone().map(|row| (row % 7) as i64),
                )),
            ];
            (
                Vec::new(),
                Arc::new(Int64Array::from_iter_values(rows.map(|row| row as i64))) as ArrayRef,
                inputs,
            )
        })
        .collect()
}

fn plan(time: DataType, keys: usize, computes: Vec<(usize, WindowFunction)>) -> WindowPlan {
    let functions = computes.into_iter().map(|(input, compute)| {
        let copy = matches!(compute, WindowFunction::Lag { .. });
        WindowOutput {
            input,
            compute,
            data_type: if copy && input == 0 {
                DataType::Int32
            } else {
                DataType::Float64
            },
        }
    });
    let input = |data_type, keep| WindowInput { data_type, keep };
    WindowPlan {
        time,
        keys: vec![DataType::Utf8; keys],
        inputs: vec![
            input(DataType::Int32, WordEncoding::Number),
            input(DataType::Float64, WordEncoding::Number),
            input(DataType::Int64, WordEncoding::Bits),
        ],
        functions: functions.collect(),
        gaps: GapHandling::CountRows,
        duplicates: DuplicateCheck::default(),
    }
}

/// CPU nanoseconds of this thread: other work on the machine does not count.
fn running_ns(start: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ran = stat
        .as_ref()
        .and_then(|stat| stat.split(' ').next()?.parse().ok());
    ran.unwrap_or(start.elapsed().as_nanos() as f64)
}

fn measure(name: &str, plan: &WindowPlan, batches: &InputBatches) {
    if std::env::args().nth(2).is_some_and(|only| only != name) {
        return;
    }
    let plan = Arc::new(plan.clone());
    let emit = vec![true; plan.functions.len()];
    let rows: usize = batches.iter().map(|(_, time, _)| time.len()).sum();
    let mut best = f64::INFINITY;
    let mut engine = WindowEngine::new(plan.clone());
    for _ in 0..2 {
        engine = WindowEngine::new(plan.clone());
        let clock = Instant::now();
        let start = running_ns(clock);
        for (keys, time, inputs) in batches {
            std::hint::black_box(
                engine
                    .push(
                        &InputRows {
                            keys,
                            time,
                            inputs,
                            rows: time.len(),
                        },
                        &emit,
                    )
                    .unwrap(),
            );
        }
        best = best.min(running_ns(clock) - start);
    }
    let per_row = best / rows as f64;
    let per_series = engine.bytes() as f64 / engine.series() as f64;
    let start = Instant::now();
    let mut bytes = Vec::new();
    engine.encode(&mut bytes).unwrap();
    let encoded = start.elapsed().as_secs_f64();
    let start = Instant::now();
    WindowEngine::decode(plan, 1, &mut &bytes[..]).unwrap();
    let decoded = start.elapsed().as_secs_f64();
    let size = bytes.len() as f64 / engine.series() as f64;
    println!(
        "{name:<34} {per_row:8.1} ns/row {per_series:9.0} bytes/series, state {size:7.0} bytes/series, written in \
         {encoded:.3} s, read in {decoded:.3} s"
    );
}

fn main() {
    let days = std::env::args()
        .nth(1)
        .and_then(|days| days.parse().ok())
        .unwrap_or(150);
    let day = SeriesLength::Ticks(1);
    let rolling = |days: i64, stat| WindowFunction::Window {
        frame: SeriesFrame::Rolling {
            over: SeriesLength::Ticks(days),
            gap: day,
            closed: ClosedEnds::Right,
        },
        stat,
        min_periods: 1,
    };
    let lag = |days| WindowFunction::Lag {
        by: SeriesLength::Ticks(days),
        as_of: None,
    };
    let expanding = WindowFunction::Window {
        frame: SeriesFrame::Expanding { gap: day },
        stat: WindowStat::Mean,
        min_periods: 1,
    };
    let index = WindowFunction::SeasonalIndex {
        slot: 2,
        gap: day,
        min_periods: 1,
        strength: 0.0,
        parent: None,
    };
    let mean = WindowStat::Mean;
    let std = WindowStat::Std { ddof: 1 };
    let all = vec![
        (0, lag(1)),
        (0, lag(7)),
        (0, lag(28)),
        (0, rolling(7, mean)),
        (0, rolling(7, std)),
        (0, rolling(28, mean)),
        (0, rolling(28, std)),
        (0, expanding.clone()),
        (0, index.clone()),
        (1, lag(1)),
    ];
    let some = |names: &[usize]| names.iter().map(|&at| all[at].clone()).collect::<Vec<_>>();
    let by_day = panel(days);
    let kinds = [
        ("all ten", (0..10).collect::<Vec<_>>()),
        ("no function", vec![]),
        ("lag 1", vec![0]),
        ("lags 1, 7, 28", vec![0, 1, 2]),
        ("mean and std of 7", vec![3, 4]),
        ("mean and std of 28", vec![5, 6]),
        ("expanding mean", vec![7]),
        ("seasonal index", vec![8]),
    ];
    for (name, functions) in &kinds {
        measure(
            &format!("panel: {name}"),
            &plan(DataType::Date32, 2, some(functions)),
            &by_day,
        );
    }
    drop(by_day);
    let second_by_second = long_series(4 << 20);
    for (name, functions) in kinds {
        measure(
            &format!("one series: {name}"),
            &plan(DataType::Int64, 0, some(&functions)),
            &second_by_second,
        );
    }
    drop(second_by_second);
    let few = panel(6);
    measure(
        "panel of six days: two lags",
        &plan(DataType::Date32, 2, some(&[2, 9])),
        &few,
    );
}
