//! Broken specs and what is said about them are in `broken.txt`; `FOREBAY_BLESS=1` rewrites it.

use std::collections::BTreeMap;
use std::time::Instant;

use forebay_model::{
    ConfigError, DataSplit, NodeInput, Pipeline, PipelineNode, PipelineSink, PipelineSource,
    Result, SpecLocation, Step,
};
use forebay_plan::{
    BindScope, ColumnSelector, ConfiguredTransform, PlanOp, Transform, TransformRegistry,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;
use crate::present::fault::{SpecText, plain};

const FILE: &str = "demand.yaml";

macro_rules! fakes {
    ($($name:ident $text:literal)*) => {
        $(impl Transform for $name {
            fn bind(&self, _: &BindScope<'_>) -> Result<Vec<PlanOp>> {
                Ok(Vec::new())
            }
        }
        impl ConfiguredTransform for $name {
            const NAME: &'static str = $text;
        })*

        fn registry() -> TransformRegistry {
            let mut registry = TransformRegistry::new();
            $(registry.register::<$name>();)*
            registry
        }
    };
}

fakes! { FakeFilter "filter" FakeDerive "derive" FakeStandardize "standardize" FakeImpute "impute" FakeClip "clip" FakeLag "lag" }

/// Keeps the rows for which a condition is true.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
struct FakeFilter(#[schemars(extend("format" = "sql"))] String);

/// New columns from expressions.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
struct FakeDerive(BTreeMap<String, FakeSqlText>);

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
struct FakeSqlText(#[schemars(extend("format" = "sql"))] String);

/// Mean 0, standard deviation 1.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FakeStandardize {
    columns: ColumnSelector,
    #[serde(default = "one")]
    ddof: u8,
    #[serde(default)]
    center: bool,
}

fn one() -> u8 {
    1
}

/// Fills what is missing.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FakeImpute {
    columns: ColumnSelector,
    with: FakeFill,
    #[serde(default)]
    on_empty: OnEmpty,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FakeFill {
    /// The middle value.
    Median,
    /// The mean.
    Mean,
    /// A given value.
    Constant(f64),
    /// A quantile.
    Quantile(FakeQuantile),
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FakeQuantile {
    at: f64,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnEmpty {
    #[default]
    Refuse,
    Zero,
}

/// Bounds that must make sense together.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, try_from = "FakeClipWire")]
#[schemars(!try_from)]
struct FakeClip {
    columns: ColumnSelector,
    bounds: (f64, f64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FakeClipWire {
    columns: ColumnSelector,
    bounds: (f64, f64),
}

impl TryFrom<FakeClipWire> for FakeClip {
    type Error = String;

    fn try_from(wire: FakeClipWire) -> Result<Self, String> {
        let FakeClipWire { columns, bounds } = wire;
        if bounds.0 > bounds.1 {
            Err("the first bound is above the second".into())
        } else {
            Ok(FakeClip { columns, bounds })
        }
    }
}

/// Values of earlier times.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FakeLag {
    columns: ColumnSelector,
    #[schemars(length(min = 1))]
    by: Vec<FakeDays>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
struct FakeDays(u32);

impl TryFrom<String> for FakeDays {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let days = text.strip_suffix('d').and_then(|days| days.parse().ok());
        days.map(FakeDays)
            .ok_or_else(|| format!("`{text}` is not a number of days such as 7d"))
    }
}

impl From<FakeDays> for String {
    fn from(days: FakeDays) -> String {
        format!("{}d", days.0)
    }
}

/// Files.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FakeFiles {
    /// Path of the files.
    path: String,
    #[serde(default = "rows")]
    batch_rows: u32,
}

fn rows() -> u32 {
    8192
}

const FORMATS: [ConnectorFormat; 2] = [format("parquet"), format("csv")];

const fn format(name: &'static str) -> ConnectorFormat {
    ConnectorFormat {
        name,
        schema: |generator| generator.subschema_for::<FakeFiles>(),
        canonical: |config| {
            let files: FakeFiles = ConfigError::parse(config)?;
            serde_json::to_value(files).map_err(|error| ConfigError::whole(error.to_string()))
        },
    }
}

fn parse_fixture(yaml: &str, params: &[(&str, &str)]) -> Result<Pipeline> {
    let registry = registry();
    let params = params
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    parse(
        yaml,
        FILE,
        &params,
        &SpecCatalog::new(&registry, &FORMATS, &FORMATS, &[], &[]),
    )
}

fn rendered_faults(yaml: &str, params: &[(&str, &str)]) -> String {
    match parse_fixture(yaml, params) {
        Ok(_) => "no fault\n".into(),
        Err(fault) => plain(
            &super::locate(fault, FILE, yaml),
            Some(SpecText {
                file: FILE,
                text: yaml,
            }),
        ),
    }
}

/// Cases look so: `== title`, further lines `--param name=value`, the spec, `--`, the faults.
#[test]
fn broken_specs_are_explained() {
    let all = include_str!("broken.txt");
    let mut blessed = String::new();
    let mut wrong = String::new();
    let mut count = 0;
    for case in all
        .split("\n== ")
        .map(|case| case.strip_prefix("== ").unwrap_or(case))
    {
        let (title, rest) = case.split_once('\n').unwrap();
        let (input, expect) = rest.split_once("\n--\n").unwrap();
        let (params, yaml): (Vec<&str>, Vec<&str>) =
            input.lines().partition(|line| line.starts_with("--param "));
        let values: Vec<_> = params
            .iter()
            .filter_map(|line| line["--param ".len()..].split_once('='))
            .collect();
        let got = rendered_faults(&(yaml.join("\n") + "\n"), &values);
        let got = got
            .lines()
            .map(str::trim_end)
            .collect::<Vec<_>>()
            .join("\n");
        if got != expect.trim_end() {
            wrong.push_str(&format!("\n== {title}\n{got}\n"));
        }
        count += 1;
        blessed.push_str(&format!("== {title}\n{input}\n--\n{got}\n\n"));
    }
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/spec/broken.txt");
        return std::fs::write(path, blessed.trim_end().to_owned() + "\n").unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 25);
}

const GOOD: &str = r#"
version: 1
name: demand
params:
  history: { type: path, default: data/demand }
  as_of: { type: date, default: 2016-05-22 }
  rows: { type: integer, default: 4096, description: rows per batch }
sources:
  demand:
    parquet: { path: "${history}/*.parquet", batch_rows: "${rows}" }
    time: date
    keys: &series [store_id, item_id]
  prices: { csv: { path: prices.csv }, keys: *series }
steps:
  cleaned:
    from: demand
    do:
      - filter: "date <= DATE '${as_of}' AND note <> '$${x}'"
      - derive: { revenue: qty * price }
  joined: { sql: SELECT * FROM cleaned JOIN prices USING (item_id) }
  features:
    union: [joined, joined]
    fit_on: train
    do:
      - impute: { columns: [price], with: median }
      - impute: { columns: [qty], with: { constant: 0 }, on_empty: zero }
      - standardize:
          columns: [price, qty_*]
split:
  train: "date < DATE '2016-04-25'"
  validation: "date >= DATE '2016-04-25'"
sinks:
  table: { from: features, split: train, parquet: { path: out/features } }
"#;

fn at(line: usize, column: usize, width: usize, path: &str) -> Option<SpecLocation> {
    Some(SpecLocation {
        file: FILE.into(),
        line,
        column,
        width,
        path: path.into(),
    })
}

#[test]
fn a_good_spec_equals_the_pipeline_made_by_hand() {
    let step = |step: Result<Step>, line, width, path: &str| Step {
        at: at(line, 9, width, path),
        ..step.unwrap()
    };
    let price = || ColumnSelector::from(["price"]);
    let expect = Pipeline {
        label: None,
        trainings: Vec::new(),
        predictions: Vec::new(),
        feed: None,
        name: "demand".into(),
        sources: vec![
            PipelineSource {
                name: "demand".into(),
                format: "parquet".into(),
                config: json!({ "path": "data/demand/*.parquet", "batch_rows": 100 }),
                time: Some("date".into()),
                keys: vec!["store_id".into(), "item_id".into()],
                ready: None,
                duplicates: None,
                lookback: None,
                days: Default::default(),
                at: at(9, 3, 6, "sources.demand"),
            },
            PipelineSource {
                name: "prices".into(),
                format: "csv".into(),
                config: json!({ "path": "prices.csv", "batch_rows": 8192 }),
                time: None,
                keys: vec!["store_id".into(), "item_id".into()],
                ready: None,
                duplicates: None,
                lookback: None,
                days: Default::default(),
                at: at(13, 3, 6, "sources.prices"),
            },
        ],
        nodes: vec![
            PipelineNode {
                name: "cleaned".into(),
                input: NodeInput::From("demand".into()),
                fit_on: None,
                allow_empty: false,
                refit: None,
                data_age: Default::default(),
                steps: vec![
                    step(
                        FakeFilter("date <= DATE '2016-05-22' AND note <> '${x}'".into()).step(),
                        18,
                        6,
                        "steps.cleaned.do[0].filter",
                    ),
                    step(
                        FakeDerive(
                            [("revenue".to_owned(), FakeSqlText("qty * price".into()))].into(),
                        )
                        .step(),
                        19,
                        6,
                        "steps.cleaned.do[1].derive",
                    ),
                ],
                optional: false,
                at: at(15, 3, 7, "steps.cleaned"),
            },
            PipelineNode {
                name: "joined".into(),
                input: NodeInput::Sql("SELECT * FROM cleaned JOIN prices USING (item_id)".into()),
                fit_on: None,
                allow_empty: false,
                refit: None,
                data_age: Default::default(),
                steps: vec![],
                optional: false,
                at: at(20, 3, 6, "steps.joined"),
            },
            PipelineNode {
                name: "features".into(),
                input: NodeInput::Union(vec!["joined".into(), "joined".into()]),
                fit_on: Some("train".into()),
                allow_empty: false,
                refit: None,
                data_age: Default::default(),
                steps: vec![
                    step(
                        FakeImpute {
                            columns: price(),
                            with: FakeFill::Median,
                            on_empty: OnEmpty::Refuse,
                        }
                        .step(),
                        25,
                        6,
                        "steps.features.do[0].impute",
                    ),
                    step(
                        FakeImpute {
                            columns: ["qty"].into(),
                            with: FakeFill::Constant(0.0),
                            on_empty: OnEmpty::Zero,
                        }
                        .step(),
                        26,
                        6,
                        "steps.features.do[1].impute",
                    ),
                    step(
                        FakeStandardize {
                            columns: ["price", "qty_*"].into(),
                            ddof: 1,
                            center: false,
                        }
                        .step(),
                        27,
                        11,
                        "steps.features.do[2].standardize",
                    ),
                ],
                optional: false,
                at: at(21, 3, 8, "steps.features"),
            },
        ],
        split: Some(DataSplit::Expressions(vec![
            ("train".into(), "date < DATE '2016-04-25'".into()),
            ("validation".into(), "date >= DATE '2016-04-25'".into()),
        ])),
        sinks: vec![PipelineSink {
            name: "table".into(),
            from: "features".into(),
            format: "parquet".into(),
            config: json!({ "path": "out/features", "batch_rows": 8192 }),
            split: Some("train".into()),
            optional: false,
            at: at(33, 3, 5, "sinks.table"),
        }],
        deadline: None,
        serving: None,
    };
    let got = parse_fixture(GOOD, &[("rows", "100")]).unwrap();
    assert_eq!(got, expect);
}

fn split(text: &str) -> DataSplit {
    let yaml = format!(
        "version: 1\nname: x\nsources: {{ d: {{ csv: {{ path: d.csv }} }} }}\nsplit: {text}\n"
    );
    parse_fixture(&yaml, &[])
        .unwrap_or_else(|fault| panic!("{fault}"))
        .split
        .unwrap()
}

#[test]
fn splits_by_time_and_hash() {
    let time =
        split("{ by_time: { column: date, parts: [a, b], ends: [2016-04-25], embargo: 7d } }");
    let expect = DataSplit::Time {
        column: "date".into(),
        parts: vec!["a".into(), "b".into()],
        ends: vec!["2016-04-25".into()],
        embargo: Some("7d".into()),
    };
    assert_eq!(time, expect);
    assert!(!time.is_relative());
    assert!(split("{ by_time: { column: date, parts: [a, b], ends: [last 28d] } }").is_relative());
    let third = "0.33333333333333";
    let hash = split(&format!(
        "{{ by_hash: {{ keys: [id], parts: {{ a: {third}, b: {third}, c: {third} }}, seed: 7 }} }}"
    ));
    let parts = [("a", 333_333), ("b", 333_333), ("c", 333_334)]
        .map(|(name, share)| (name.to_owned(), share));
    assert_eq!(
        hash,
        DataSplit::Hash {
            keys: vec!["id".into()],
            parts: parts.into(),
            seed: 7
        }
    );
}

#[test]
fn values_are_those_of_yaml_1_2() {
    let mut faults = Vec::new();
    let yaml = "[no, 0x1F, 0o17, 010, -5, +5, 1e3, .5, 1., 1_000, 12:30, 2016-05-22, ~, 18446744073709551615, 1.2.3, '7', -, e5]";
    let node = node::load(&yaml.replace("-, ", "--, "), FILE, &mut faults).unwrap();
    let expect = json!([
        "no",
        31,
        15,
        10,
        -5,
        5,
        1e3,
        0.5,
        1.0,
        "1_000",
        "12:30",
        "2016-05-22",
        null,
        u64::MAX,
        "1.2.3",
        "7",
        "--",
        "e5"
    ]);
    assert_eq!(node.value(), expect);
    assert!(faults.is_empty());
}

#[test]
fn hostile_texts_are_refused_in_bounded_time() {
    let registry = registry();
    let words = SpecCatalog::new(&registry, &FORMATS, &FORMATS, &[], &[]);
    let none = BTreeMap::new();
    let refuse = |text: &str| parse(text, FILE, &none, &words).unwrap_err().code().name;
    let mut bomb = "a0: &a0 [x, x]\n".to_owned();
    (1..40).for_each(|i| bomb.push_str(&format!("a{i}: &a{i} [*a{}, *a{}]\n", i - 1, i - 1)));
    assert_eq!(refuse(&bomb), "FB0303");
    // Few values, and much text.
    let long = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(1 << 20),
        "*a, ".repeat(1 << 15)
    );
    assert_eq!(refuse(&long), "FB0303");
    // What is kept for aliases, level by level.
    let nested = format!(
        "a: {}{}{}\n",
        "&a [".repeat(60),
        "x, ".repeat(1 << 15),
        "]".repeat(60)
    );
    assert_eq!(refuse(&nested), "FB0303");
    assert_eq!(refuse(&"[".repeat(100_000)), "FB0101");
    assert_eq!(refuse(&"- ".repeat(100_000)), "FB0303");
    assert_eq!(refuse(&"{a: ".repeat(200)), "FB0303");
    assert_eq!(refuse(&"#\n".repeat(4 << 20)), "FB0303");
    assert_eq!(refuse("a: &a [*a]"), "FB0101");
    for text in [
        "",
        "\u{feff}",
        "- 1",
        "x",
        "\0",
        "version: 1\n\tname: x",
        "? [a]\n: b",
        "*a",
        "%YAML 9.9\n---\na",
        "a: b: c",
    ] {
        refuse(text);
    }
}

#[test]
fn truncated_texts_give_faults_and_no_panics() {
    let registry = registry();
    let words = SpecCatalog::new(&registry, &FORMATS, &FORMATS, &[], &[]);
    let none = BTreeMap::new();
    let read = |text: &str| {
        if let Err(fault) = parse(text, FILE, &none, &words) {
            assert!(plain(&fault, Some(SpecText { file: FILE, text })).starts_with("error[FB"));
        }
    };
    let lines: Vec<&str> = GOOD.lines().collect();
    for at in 0..lines.len() {
        let without = lines
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != at)
            .map(|(_, line)| *line);
        read(&without.collect::<Vec<_>>().join("\n"));
    }
    GOOD.char_indices()
        .step_by(7)
        .for_each(|(at, _)| read(&GOOD[..at]));
    for from in ["{", "}", "[", "\"", ":", "- ", "'", "\n  ", ", "] {
        ["", "\t", "&a ", "é\r\n", "- "]
            .iter()
            .for_each(|to| read(&GOOD.replacen(from, to, 3)));
    }
}

#[test]
fn the_schema_knows_every_word_and_refuses_others() {
    let registry = registry();
    let words = SpecCatalog::new(&registry, &FORMATS, &FORMATS, &[], &[]);
    let schema = json_schema(&words);
    let transforms = schema["$defs"]["AnyTransform"]["oneOf"].as_array().unwrap();
    assert_eq!(transforms.len(), 6);
    assert!(
        transforms
            .iter()
            .all(|transform| transform["description"].is_string()),
        "{transforms:#?}"
    );
    assert_eq!(
        schema["$defs"]["Sink"]["properties"]
            .as_object()
            .unwrap()
            .len(),
        6
    );
    // Every reference leads somewhere, and every map with fields is closed.
    let text = schema.to_string();
    for reference in text
        .split("\"$ref\":\"#")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
    {
        assert!(schema.pointer(reference).is_some(), "{reference}");
    }
    fn closed(schema: &Value) {
        if schema["type"] == "object" && schema["properties"].is_object() {
            assert_eq!(schema["additionalProperties"], false, "{schema:#}");
        }
        match schema {
            Value::Object(fields) => fields.values().for_each(closed),
            Value::Array(items) => items.iter().for_each(closed),
            _ => {}
        }
    }
    closed(&schema);
}

/// Run in release with `--ignored --nocapture` to see the time.
#[test]
#[ignore = "a measurement"]
fn a_long_spec_takes_milliseconds() {
    let mut yaml = GOOD
        .split("split:")
        .next()
        .unwrap()
        .replace("    fit_on: train\n", "");
    (0..40).for_each(|i| {
        yaml.push_str(&format!("  s{i}:\n    from: features\n    do:\n      - filter: \"qty > {i} AND price < 10\"\n"));
        yaml.push_str("      - standardize: { columns: [price] }\n      - impute: { columns: [qty], with: mean }\n");
    });
    let begin = Instant::now();
    let registry = registry();
    let words = SpecCatalog::new(&registry, &FORMATS, &FORMATS, &[], &[]);
    for _ in 0..3 {
        parse(&yaml, FILE, &BTreeMap::new(), &words).unwrap();
        anstream::eprintln!(
            "{} lines, {:?} from the beginning",
            yaml.lines().count(),
            begin.elapsed()
        );
    }
}
