//! Real series whose last hours or days are answered row by row from the state of a run, and appended: no bit differs from
//! a run over all rows. `FOREBAY_LONG_TESTS` makes it 24 hours of each hourly series instead of two, and 28 days of flights
//! instead of one.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{cast, concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::util::display::array_value_to_string;
use forebay::prelude::*;
use parquet::arrow::ArrowWriter;

use crate::support::{TestDirectory, real_data};

const NO_PARAMS: [(&str, &str); 0] = [];

/// True for tests that take minutes.
fn is_long() -> bool {
    std::env::var_os("FOREBAY_LONG_TESTS").is_some()
}

/// The rows of a step or source of a spec.
fn rows_of(forebay: &Forebay, spec: &str, name: &str) -> RecordBatch {
    let pipeline = forebay.read_spec(spec, NO_PARAMS).unwrap();
    let batches = forebay.collect(&pipeline, name).unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

fn write(path: &Path, rows: &RecordBatch) {
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
}

fn texts_of(rows: &RecordBatch, column: &str) -> Vec<String> {
    let column = cast(&rows[column], &DataType::Utf8).unwrap();
    let texts = column.as_string::<i32>().iter();
    texts.map(|text| text.unwrap().to_owned()).collect()
}

/// The values of a row with the bits of its numbers.
fn bits(rows: &RecordBatch, row: usize) -> Vec<String> {
    let text = |column: &ArrayRef| match column.data_type() {
        DataType::Float64 if column.is_valid(row) => {
            let value = column.as_primitive::<Float64Type>().value(row);
            format!("{:x}", value.to_bits())
        }
        _ => array_value_to_string(column, row).unwrap(),
    };
    rows.columns().iter().map(text).collect()
}

/// Rows of real series, and steps whose windows are served.
struct RealSeries {
    /// The files.
    path: String,
    time: &'static str,
    keys: &'static [&'static str],
    steps: &'static str,
}

impl RealSeries {
    /// The series of each row.
    fn series_of(&self, rows: &RecordBatch) -> Vec<String> {
        let mut series = vec![String::new(); rows.num_rows()];
        for key in self.keys {
            for (series, text) in series.iter_mut().zip(texts_of(rows, key)) {
                series.push_str(&text);
                series.push('/');
            }
        }
        series
    }

    fn times_of(&self, rows: &RecordBatch) -> Vec<i64> {
        let column = cast(&rows[self.time], &DataType::Int64).unwrap();
        column.as_primitive::<Int64Type>().values().to_vec()
    }

    /// For each row, the number of rows of its series that come later.
    fn rows_behind(&self, rows: &RecordBatch) -> Vec<usize> {
        let series = self.series_of(rows);
        let times = self.times_of(rows);
        let mut times_of_series: HashMap<&str, Vec<i64>> = HashMap::new();
        for (series, time) in series.iter().zip(&times) {
            let series_times = times_of_series.entry(series.as_str()).or_default();
            series_times.push(*time);
        }
        for times in times_of_series.values_mut() {
            times.sort_unstable();
        }
        let pairs = series.iter().zip(&times);
        pairs
            .map(|(series, time)| {
                let times = &times_of_series[series.as_str()];
                times.len() - times.partition_point(|other| other <= time)
            })
            .collect()
    }

    /// Answers new rows one by one, appends each, and compares the answers with a run over all rows. Returns the number
    /// of new rows.
    fn check_replay(&self, is_new: impl Fn(&RecordBatch) -> Vec<bool>) -> usize {
        let shop = TestDirectory::new();
        let text = format!(
            "version: 1\nname: all\nsources: {{ rows: {{ parquet: {{ path: \"{}\" }} }} }}\n",
            self.path
        );
        let all_spec = shop.write("all.yaml", &text);
        let state = shop.path("state").display().to_string();
        let forebay = Forebay::new().with_options(SessionOptions::default().state(state));
        let all = rows_of(&forebay, &all_spec, "rows");
        let is_new = is_new(&all);
        let is_history: BooleanArray = is_new.iter().map(|is_new| Some(!is_new)).collect();
        std::fs::create_dir(shop.path("data")).unwrap();
        let history = filter_record_batch(&all, &is_history).unwrap();
        write(&shop.path("data/1.parquet"), &history);
        let text = format!(
            r#"
version: 1
name: replay
sources:
  rows: {{ parquet: {{ path: "{}" }}, time: {}, keys: [{}] }}
steps:
  features:
    from: rows
    do: [{}]
serving: {{ from: features }}
sinks: {{ table: {{ from: features, parquet: {{ path: "{}" }} }} }}
"#,
            shop.path("data").display(),
            self.time,
            self.keys.join(", "),
            self.steps,
            shop.path("out").display()
        );
        let spec = shop.write("spec.yaml", &text);
        let pipeline = forebay.read_spec(&spec, NO_PARAMS).unwrap();
        let artifact = forebay.fit(&pipeline).unwrap().artifact_path.unwrap();
        let model = forebay.model(&forebay.artifact(&artifact).unwrap(), None);
        let model = model.unwrap();
        let new_rows = filter_record_batch(&all, &BooleanArray::from(is_new)).unwrap();
        write(&shop.path("data/2.parquet"), &new_rows);
        let features = rows_of(&forebay, &spec, "features");
        let keys = self.series_of(&features).into_iter();
        let keys = keys.zip(self.times_of(&features));
        let positions: HashMap<(String, i64), usize> = keys.zip(0..).collect();
        // In order of time, series among each other.
        let times = self.times_of(&new_rows);
        let series = self.series_of(&new_rows);
        let mut order: Vec<usize> = (0..new_rows.num_rows()).collect();
        order.sort_by_key(|row| times[*row]);
        let mut differing = 0;
        for row in &order {
            let fact = new_rows.slice(*row, 1);
            let answer = model.apply(&fact).unwrap();
            let expected = positions[&(series[*row].clone(), times[*row])];
            differing += usize::from(bits(&answer, 0) != bits(&features, expected));
            model.append(&fact).unwrap();
        }
        assert_eq!(differing, 0);
        order.len()
    }
}

#[test]
fn last_hours_of_real_series_have_the_bits_of_a_run_over_all() {
    let Some(data) = real_data("m4/m4_hourly.parquet") else {
        return;
    };
    let series = RealSeries {
        path: data.join("m4/m4_hourly.parquet").display().to_string(),
        time: "timestamp",
        keys: &["series_id"],
        steps: "{ lag: { columns: [value], by: [1h, 24h, 168h] } }, \
                { rolling: { columns: [value], compute: [mean, std, median, min, max], \
                over: [24h, 168h], gap: 1h } }, \
                { ewm: { columns: [value], compute: [mean], half_life: 24h, gap: 1h } }, \
                { expanding: { columns: [value], compute: [mean, std], gap: 1h } }",
    };
    let hours = if is_long() { 24 } else { 2 };
    let replayed = series.check_replay(|rows| {
        let behind = series.rows_behind(rows).into_iter();
        behind.map(|rows| rows < hours).collect()
    });
    assert!(replayed >= 400 * hours);
}

#[test]
fn last_days_of_real_flights_have_the_bits_of_a_run_over_all() {
    let Some(data) = real_data("flights") else {
        return;
    };
    let flights = RealSeries {
        path: data.join("flights").display().to_string(),
        time: "time_hour",
        keys: &["carrier", "flight"],
        steps: "{ lag: { columns: [arr_delay, tailnum], by: [1, 2, 7], gaps: count_rows } }, \
                { rolling: { columns: [arr_delay, dep_delay], compute: [mean, std, max, count], \
                over: [7d, 28d], gap: 1d } }, \
                { ewm: { columns: [arr_delay], compute: [mean], half_life: 7d, gap: 1d } }, \
                { expanding: { columns: [air_time], compute: [mean, sum], gap: 1d } }, \
                { fill_forward: { columns: [tailnum], gaps: count_rows } }, \
                { date_parts: { columns: [time_hour], parts: [day_of_week] } }",
    };
    let days = if is_long() { 28 } else { 1 };
    let replayed = flights.check_replay(|rows| {
        let times = flights.times_of(rows);
        let last = times.iter().max().copied().unwrap_or_default();
        // Times are milliseconds.
        let first = last - days * 86_400_000;
        times.iter().map(|time| *time > first).collect()
    });
    assert!(replayed >= 500 * days as usize);
}
