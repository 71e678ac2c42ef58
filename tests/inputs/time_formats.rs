//! Sources whose time is a column of texts or whole numbers: whole jobs as with a column of dates.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray,
};
use arrow::datatypes::{Date32Type, Float64Type};
use forebay::prelude::*;
use parquet::arrow::ArrowWriter;
use serde_json::{Map, Value, json};

use crate::support::TestDirectory;

/// Days around the end of February of a leap year, with one missing.
const DAYS: [i32; 6] = [19_780, 19_781, 19_782, 19_784, 19_785, 19_786];

const NUMBERS: [i64; 6] = [
    20_240_227, 20_240_228, 20_240_229, 20_240_302, 20_240_303, 20_240_304,
];

const STEPS: &str = "steps:\n  made:\n    from: rows\n    do:\n      - lag: { columns: [y], by: [1d], keys: [] }\n      \
                     - filter: \"day >= DATE '2024-02-28'\"\nsinks:\n  table: { from: made, parquet: { path: out } }\n";

fn write(shop: &TestDirectory, name: &str, day: ArrayRef) {
    let y: ArrayRef = Arc::new(Float64Array::from_iter_values(
        (0..6).map(|row| f64::from(row) + 0.5),
    ));
    let batch = RecordBatch::try_from_iter([("day", day), ("y", y)]).unwrap();
    let file = File::create(shop.path(name)).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn spec(source: &str, time: &str) -> String {
    format!(
        "version: 1\nname: days\nsources:\n  rows: {{ {source}, time: {time}, keys: [] }}\n{STEPS}"
    )
}

fn result(shop: &TestDirectory) -> (Vec<Option<i32>>, Vec<Option<f64>>) {
    let rows = shop.visible("out");
    let days = rows["day"].as_primitive::<Date32Type>().iter().collect();
    let lags = rows["y_lag_1d"]
        .as_primitive::<Float64Type>()
        .iter()
        .collect();
    (days, lags)
}

#[test]
fn texts_and_numbers_are_series_as_dates_are() {
    let shop = TestDirectory::new();
    write(
        &shop,
        "dates.parquet",
        Arc::new(Date32Array::from(DAYS.to_vec())),
    );
    write(
        &shop,
        "numbers.parquet",
        Arc::new(Int64Array::from(NUMBERS.to_vec())),
    );
    let texts = NUMBERS.map(|number| number.to_string());
    write(
        &shop,
        "texts.parquet",
        Arc::new(StringArray::from_iter_values(&texts)),
    );
    let rows = texts.iter().zip(0..);
    let csv: String = rows
        .clone()
        .map(|(day, y)| format!("{day},{y}.5\n"))
        .collect();
    shop.write("rows.csv", &format!("day,y\n{csv}"));
    let json: String = rows
        .map(|(day, y)| format!("{{\"day\": {day}, \"y\": {y}.5}}\n"))
        .collect();
    shop.write("rows.jsonl", &json);
    let time = "{ column: day, format: \"%Y%m%d\" }";
    let cases = [
        ("parquet: { path: dates.parquet }", "day"),
        ("parquet: { path: numbers.parquet }", time),
        ("parquet: { path: texts.parquet }", time),
        ("csv: { path: rows.csv }", time),
        ("json: { path: rows.jsonl }", time),
    ];
    let mut whole = Vec::new();
    let mut parts = Vec::new();
    for (source, time) in cases {
        shop.write("spec.yaml", &spec(source, time));
        shop.forebay(&["check", "spec.yaml"]).expect(0);
        shop.forebay(&["run", "spec.yaml"]).expect(0);
        whole.push(result(&shop));
        shop.remove_output("out");
        let interval = ["run", "spec.yaml", "--interval", "2024-02-29", "2024-03-03"];
        shop.forebay(&interval).expect(0);
        parts.push(result(&shop));
        shop.remove_output("out");
    }
    for (source, (case, part)) in cases.iter().zip(whole.iter().zip(&parts)) {
        assert_eq!(case, &whole[0], "{source:?}");
        assert_eq!(part, &parts[0], "{source:?}");
    }
    assert_eq!(
        whole[0].0,
        DAYS[1..].iter().copied().map(Some).collect::<Vec<_>>()
    );
    assert_eq!(whole[0].1[..3], [Some(0.5), Some(1.5), None]);
    assert_eq!(parts[0].0, [Some(DAYS[2]), Some(DAYS[3])]);
}

/// Served rows are written as those of the files are.
#[test]
fn rows_are_served_in_the_format_of_the_source() {
    let shop = TestDirectory::new();
    write(
        &shop,
        "numbers.parquet",
        Arc::new(Int64Array::from(NUMBERS.to_vec())),
    );
    let served = "version: 1\nname: days\nsources:\n  rows: { parquet: { path: numbers.parquet }, time: { column: day, \
                  format: \"%Y%m%d\" } }\nsteps:\n  made: { from: rows, do: [{ derive: { weekday: \"date_part('dow', day)\" } }] }\n\
                  sinks:\n  table: { from: made, parquet: { path: out } }\n";
    shop.write("spec.yaml", served);
    let run = shop.forebay(&["run", "spec.yaml", "--json"]).expect(0);
    let front = Forebay::new();
    let session = front.clone().session().unwrap();
    let relative_path = run.summary()["artifact_path"].as_str().unwrap().to_owned();
    let artifact_path = shop.path(&relative_path).display().to_string();
    let artifact =
        Artifact::load(session.io(), &session.io().resolve(&artifact_path).unwrap()).unwrap();
    let model = front.model(&artifact, None).unwrap();
    let row = |value: Value| -> Map<String, Value> { value.as_object().unwrap().clone() };
    for day in [json!("20240302"), json!(20_240_302)] {
        let answer = model
            .apply_row(&row(json!({ "day": day, "y": 1.0 })))
            .unwrap();
        // A Saturday.
        assert_eq!(answer["weekday"].as_f64(), Some(6.0), "{day}");
        assert_eq!(answer["day"], "2024-03-02", "{day}");
    }
    for day in ["2024-03-02", "20240231", "240302"] {
        let fault = model
            .apply_row(&row(json!({ "day": day, "y": 1.0 })))
            .unwrap_err();
        assert!(fault.message().contains("%Y%m%d"), "{fault}");
    }
}

#[test]
fn a_format_is_part_of_what_a_run_is() {
    let shop = TestDirectory::new();
    // The tenth of November, or the eleventh of October.
    let days = ["20241011"; 6];
    write(
        &shop,
        "texts.parquet",
        Arc::new(StringArray::from_iter_values(days)),
    );
    let mut read_days = Vec::new();
    for format in ["%Y%m%d", "%Y%d%m"] {
        let text = format!(
            "version: 1\nname: days\nsources:\n  rows: {{ parquet: {{ path: texts.parquet }}, time: {{ column: day, format: \
             \"{format}\" }} }}\nsinks:\n  table: {{ from: rows, parquet: {{ path: out }} }}\n"
        );
        shop.write("spec.yaml", &text);
        shop.forebay(&["run", "spec.yaml"]).expect(0);
        read_days.push(
            shop.visible("out")["day"]
                .as_primitive::<Date32Type>()
                .value(0),
        );
    }
    assert_eq!(read_days, [20_007, 20_037]);
}

#[test]
fn yaml_and_builder_are_one_with_a_format() {
    let forebay = Forebay::new();
    let shop = TestDirectory::new();
    shop.write(
        "spec.yaml",
        "version: 1\nname: days\nsources:\n  rows: { parquet: { path: rows.parquet }, time: { column: day, format: \"%Y%m%d\" } }\n\
         sinks:\n  table: { from: rows, parquet: { path: out } }\n",
    );
    let from_yaml = forebay
        .read_spec(shop.path("spec.yaml"), [("", ""); 0])
        .unwrap();
    let pipeline = PipelineBuilder::new("days");
    let rows = pipeline
        .source("rows", ParquetSource::at("rows.parquet"))
        .formatted_time("day", "%Y%m%d");
    pipeline.sink("table", &rows, ParquetSink::at("out"));
    let built = pipeline.build().unwrap();
    assert_eq!(built.sources[0].config, from_yaml.sources[0].config);
    assert_eq!(built.sources[0].time, from_yaml.sources[0].time);
    let pipeline = PipelineBuilder::new("days");
    pipeline
        .source("rows", ParquetSource::at("rows.parquet"))
        .formatted_time("day", "%H:%M");
    let fault = pipeline.build().unwrap_err();
    assert!(fault.message().contains("%H:%M"), "{fault}");
}
