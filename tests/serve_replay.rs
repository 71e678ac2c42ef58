//! Real series whose last hours are answered row by row from the state of a run, and appended: no bit differs from a run
//! over all rows. `FOREBAY_LONG_TESTS` makes it 24 hours of each series instead of two.

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

fn series_of(rows: &RecordBatch) -> Vec<String> {
    let column = cast(&rows["series_id"], &DataType::Utf8).unwrap();
    let texts = column.as_string::<i32>().iter();
    texts.map(|text| text.unwrap().to_owned()).collect()
}

fn times_of(rows: &RecordBatch) -> Vec<i64> {
    let column = cast(&rows["timestamp"], &DataType::Int64).unwrap();
    column.as_primitive::<Int64Type>().values().to_vec()
}

/// For each row, the number of rows of its series that come later.
fn rows_behind(rows: &RecordBatch) -> Vec<usize> {
    let series = series_of(rows);
    let times = times_of(rows);
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

#[test]
fn last_hours_of_real_series_have_the_bits_of_a_run_over_all() {
    let Some(data) = real_data("m4/m4_hourly.parquet") else {
        return;
    };
    let is_long = std::env::var_os("FOREBAY_LONG_TESTS").is_some();
    let hours = if is_long { 24 } else { 2 };
    let shop = TestDirectory::new();
    let m4 = data.join("m4/m4_hourly.parquet");
    let text = format!(
        "version: 1\nname: all\nsources: {{ m4: {{ parquet: {{ path: \"{}\" }} }} }}\n",
        m4.display()
    );
    let all_spec = shop.write("all.yaml", &text);
    let state = shop.path("state").display().to_string();
    let forebay = Forebay::new().with_options(SessionOptions::default().state(state));
    let all = rows_of(&forebay, &all_spec, "m4");
    let behind = rows_behind(&all);
    let is_history: BooleanArray = behind.iter().map(|rows| Some(*rows >= hours)).collect();
    let is_new: BooleanArray = behind.iter().map(|rows| Some(*rows < hours)).collect();
    std::fs::create_dir(shop.path("data")).unwrap();
    let history = filter_record_batch(&all, &is_history).unwrap();
    write(&shop.path("data/1.parquet"), &history);
    let text = format!(
        r#"
version: 1
name: hours
sources:
  m4: {{ parquet: {{ path: "{}" }}, time: timestamp, keys: [series_id] }}
steps:
  features:
    from: m4
    do:
      - lag: {{ columns: [value], by: [1h, 24h, 168h] }}
      - rolling:
          {{ columns: [value], compute: [mean, std, median, min, max], over: [24h, 168h], gap: 1h }}
      - ewm: {{ columns: [value], compute: [mean], half_life: 24h, gap: 1h }}
      - expanding: {{ columns: [value], compute: [mean, std], gap: 1h }}
serving: {{ from: features }}
sinks: {{ table: {{ from: features, parquet: {{ path: "{}" }} }} }}
"#,
        shop.path("data").display(),
        shop.path("out").display()
    );
    let spec = shop.write("spec.yaml", &text);
    let pipeline = forebay.read_spec(&spec, NO_PARAMS).unwrap();
    let artifact = forebay.fit(&pipeline).unwrap().artifact_path.unwrap();
    let model = forebay.model(&forebay.artifact(&artifact).unwrap(), None);
    let model = model.unwrap();
    let new_rows = filter_record_batch(&all, &is_new).unwrap();
    write(&shop.path("data/2.parquet"), &new_rows);
    let features = rows_of(&forebay, &spec, "features");
    let keys = series_of(&features).into_iter().zip(times_of(&features));
    let positions: HashMap<(String, i64), usize> = keys.zip(0..).collect();
    // In order of time, series among each other.
    let times = times_of(&new_rows);
    let series = series_of(&new_rows);
    let mut order: Vec<usize> = (0..new_rows.num_rows()).collect();
    order.sort_by_key(|row| times[*row]);
    assert!(order.len() >= 400 * hours);
    let mut differing = 0;
    for row in order {
        let fact = new_rows.slice(row, 1);
        let answer = model.apply(&fact).unwrap();
        let expected = positions[&(series[row].clone(), times[row])];
        differing += usize::from(bits(&answer, 0) != bits(&features, expected));
        model.append(&fact).unwrap();
    }
    assert_eq!(differing, 0);
}
