//! The law of served windows: later rows, answered one by one and then appended, get the bits of a run over all rows.

use std::fmt::Write as _;
use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use forebay_model::{Fault, Result, codes};
use forebay_run::{ServingModel, SessionOptions};
use serde_json::{Map, Value, json};

use crate::Forebay;

/// Days of the history; the days after them are answered row by row.
const HISTORY_DAYS: u32 = 60;

/// Days in all.
pub(crate) const DAYS: u32 = 74;

/// Series: every pair of a store and an item.
pub(crate) const STORES: [&str; 2] = ["north", "south"];
pub(crate) const ITEMS: [&str; 3] = ["apple", "pear", "plum"];

/// Steps whose windows are served.
const SERVED: [(&str, &str); 15] = [
    (
        "lag",
        "{ lag: { columns: [qty, price, tag], by: [1d, 7d, 28d] } }",
    ),
    (
        "lag as of",
        "{ lag: { columns: [qty], by: [2d], as_of: 5d } }",
    ),
    (
        "diff and change",
        "{ diff: { columns: [qty], by: [1d] } }, { pct_change: { columns: [price], by: [7d] } }",
    ),
    (
        "rolling",
        "{ rolling: { columns: [qty, price], \
         compute: [mean, std, min, max, sum, count], over: [7d, 28d], gap: 1d } }",
    ),
    (
        "rolling with the row",
        "{ rolling: { columns: [qty], compute: [mean, median], over: [7d] } }",
    ),
    (
        "lag and rolling",
        "{ lag: { columns: [qty], by: [1d] } }, \
         { rolling: { columns: [qty_lag_1d, qty], compute: [mean], over: [7d] } }",
    ),
    (
        "expanding",
        "{ expanding: { columns: [qty], compute: [mean, max, std], gap: 1d } }",
    ),
    (
        "ewm",
        "{ ewm: { columns: [qty], compute: [mean, std], half_life: 7d, gap: 1d } }",
    ),
    (
        "seasonal rolling",
        "{ seasonal_rolling: { columns: [qty], compute: [mean], season: 7d, over: [4], gap: 7d } }",
    ),
    (
        "seasonal index",
        "{ seasonal_index: { columns: [qty], period: day_of_week, gap: 1d } }",
    ),
    (
        "fill forward",
        "{ fill_forward: { columns: [price, tag], gaps: count_rows } }",
    ),
    (
        "rows",
        "{ lag: { columns: [qty], by: [1, 3], gaps: count_rows } }, \
         { rolling: { columns: [qty], compute: [mean], over: [5], gaps: count_rows } }",
    ),
    (
        "missing periods",
        "{ rolling: { columns: [qty], compute: [sum, count], over: [5], \
         gaps: { complete: { every: 1d, fill: zero } } } }",
    ),
    (
        "filters",
        "{ filter: { sql: \"qty IS NOT NULL\", when: learning } }, \
         { lag: { columns: [qty], by: [1d] } }, \
         { filter: \"price < 8\" }, \
         { rolling: { columns: [qty], compute: [mean], over: [7d], gap: 1d } }",
    ),
    (
        "larger series",
        "{ derive: { double: \"qty * 2\" } }, \
         { rolling: { columns: [double], compute: [mean, sum], \
         over: [7d], gap: 1d, keys: [store] } }",
    ),
];

/// Steps that are computed from a row alone and what the run has learned of its part `train`, beside a window.
const ROW_WISE: [(&str, &str); 7] = [
    (
        "numbers",
        "{ lag: { columns: [qty], by: [1d] } }, \
         { impute: { columns: [qty], with: median, suffix: _filled } }, \
         { knn_impute: { columns: [qty, price], neighbors: 2, suffix: _near } }, \
         { missing_indicator: { columns: [qty] } }, \
         { standardize: { columns: [price], suffix: _scaled } }, \
         { standardize: { columns: [price], spread: range, suffix: _ranged } }, \
         { min_max: { columns: [price], suffix: _range } }, \
         { max_abs: { columns: [price], suffix: _portion } }, \
         { robust_scale: { columns: [price], suffix: _robust } }, \
         { robust_scale: { columns: [price], spread: mad, suffix: _deviation } }, \
         { winsorize: { columns: [price], suffix: _bounded } }, \
         { winsorize: { columns: [price], around: median, suffix: _middle } }, \
         { clip: { columns: [price], min: 1, max: 8, suffix: _clipped } }, \
         { log1p: { columns: [price], suffix: _log } }, \
         { power: { columns: [price], suffix: _power } }, \
         { g_and_h: { columns: [price], suffix: _bell } }, \
         { normalize: { columns: [price, qty_lag_1d], suffix: _unit } }, \
         { distance: { from: [price, price_clipped], to: [price_clipped, price], name: km } }, \
         { geohash: { place: [price, price_clipped], length: 5, name: cell } }, \
         { polynomial: { columns: [price, price_log], degree: 2 } }, \
         { spline: { columns: [price], knots: 4, suffix: _curve } }, \
         { pca: { columns: [price, price_log, price_range], components: 2 } }, \
         { keep_best: { columns: [price_log, price_range, price_unit], count: 2 } }, \
         { keep_best: { columns: [price_scaled, qty_filled], score: present, count: 1 } }",
    ),
    (
        "buckets",
        "{ lag: { columns: [qty], by: [1d] } }, \
         { apply_buckets: { columns: [price], boundaries: [1, 2, 5], suffix: _bucket } }, \
         { bucketize: { columns: [price], q: 4, suffix: _quarter } }, \
         { bucketize: { columns: [price], q: 4, weight: qty, suffix: _sold } }, \
         { k_bins: { columns: [price], bins: 5, suffix: _bin } }, \
         { k_bins: { columns: [price], bins: 3, strategy: tree, label: qty, suffix: _side } }, \
         { quantiles: { columns: [price], q: 4, suffix: _rank } }, \
         { normal_quantiles: { columns: [price], q: 5, suffix: _normal } }",
    ),
    (
        "categories",
        "{ lag: { columns: [qty], by: [1d] } }, \
         { vocabulary: { columns: [item], suffix: _id } }, \
         { ordinal: { columns: [store], suffix: _place } }, \
         { one_hot: { columns: [tag], suffix: _vector } }, \
         { multi_hot: { columns: [tag], delimiter: \" \", suffix: _flags } }, \
         { frequency_encoding: { columns: [item], suffix: _share } }, \
         { group_rare: { columns: [tag], min_share: 0.4, suffix: _group } }, \
         { hash_bucket: { columns: [item], buckets: 10, suffix: _bucket } }, \
         { cross: { columns: [store, item], buckets: 100, name: pair } }, \
         { target_encoding: { columns: [item], label: price, fold_by: [date], suffix: _level } }",
    ),
    (
        "texts and times",
        "{ lag: { columns: [qty], by: [1d] } }, \
         { normalize_text: { columns: [tag], suffix: _plain } }, \
         { ngrams: { columns: [tag], suffix: _words } }, \
         { bag_of_tokens: { columns: [tag_words], buckets: 4, suffix: _bag } }, \
         { tf_idf: { columns: [tag_words], min_count: 1, suffix: _weights } }, \
         { date_parts: { columns: [date], parts: [month, day_of_week] } }, \
         { calendar: { columns: [date], country: DE, parts: [holiday, is_business_day] } }",
    ),
    (
        "columns",
        "{ lag: { columns: [qty], by: [1d] } }, \
         { cast: { columns: { price: float32 } } }, \
         { derive: { revenue: \"qty * price\" } }, \
         { rename: { tag: mark } }, \
         { drop: [mark] }, \
         { select: [date, store, item, qty, price, revenue, qty_lag_1d] }",
    ),
    (
        "rules",
        // Rows that are served all pass samples; of the run, these do.
        "{ lag: { columns: [qty], by: [1d] } }, \
         { sample: { share: 0.5, by: [item], of: \"price < 0\", weight: weight } }, \
         { profile: { columns: [qty, price] } }, \
         { expect: [{ not_null: [price] }] }, \
         { violations: [{ sql: \"price < 0\" }] }",
    ),
    (
        "lists and programs",
        "{ lag: { columns: [qty], by: [1d] } }, \
         { derive: { parts: \"string_to_array(tag, ' ')\" } }, \
         { explode: { column: parts, keep_empty: true } }, \
         { derive: { prices: \"make_array(price, qty)\" } }, \
         { list_statistics: { columns: [prices], compute: [mean, max] } }, \
         { command: { run: [cat], columns: [qty], returns: { qty: float64 }, nullable: [qty] } }",
    ),
];

/// Steps that are served as far beyond the state as their gap reaches.
const POOLED: [&str; 5] = [
    "{ lag: { columns: [qty], by: [1d] } }, \
     { pooled: { columns: [qty], compute: [mean], over: [7d], gap: 2d } }",
    "{ lag: { columns: [qty], by: [1d] } }, \
     { target_encoding: { columns: [tag], label: price, cross_fit: time, gap: 2d, \
       suffix: _level } }",
    "{ seasonal_index: { columns: [qty], period: day_of_week, gap: 2d, \
       shrink: { strength: 3, parent: [store] } } }",
    "{ pooled: { columns: [qty], compute: [mean], over: [7d], gap: 2d } }",
    "{ target_encoding: { columns: [tag], label: price, cross_fit: time, gap: 2d, \
       suffix: _level } }",
];

/// Steps that are joined with rows of two other sources, `prices` and `brands`.
const JOINED: &str = "{ as_of_join: { with: prices, columns: [list] } }, \
                      { join: { with: brands, on: [item], columns: [brand], strategy: lookup } }, \
                      { lag: { columns: [qty], by: [1d] } }";

/// Steps behind which rows cannot be served, with words of the reason.
const REFUSED: [(&str, &str); 9] = [
    ("{ interpolate: { columns: [qty] } }", "come later"),
    (
        "{ aggregate: { by: [store], compute: { sold: { sum: qty } } } }",
        "all rows at once",
    ),
    ("{ dedupe: { keys: [store, date] } }", "all rows at once"),
    (
        "{ command: { run: [cat], columns: [qty], returns: { qty: float64 }, by: series } }",
        "whole series",
    ),
    (
        "{ forecast_feature: { columns: [qty], horizon: 7d, every: 1d } }",
        "whole series",
    ),
    (
        "{ pooled: { columns: [qty], compute: [mean], over: [7d] } }",
        "with a `gap`",
    ),
    (
        "{ seasonal_index: { columns: [qty], period: day_of_week, \
           shrink: { strength: 3, parent: [store] } } }",
        "with a `gap`",
    ),
    (
        "{ as_of_join: { with: prices, columns: [list], direction: nearest } }",
        "may come later",
    ),
    (
        "{ as_of_join: { with: prices, columns: [list] } }, { lag: { columns: [list], by: [1d] } }",
        "joins by time",
    ),
];

/// Transforms that are served and that no law here holds, with the reason.
const HELD_ELSEWHERE: [(&str, &str); 4] = [
    (
        "python",
        "an operation like that of `command`, which needs pyarrow",
    ),
    (
        "estimator",
        "an operation like that of `python`, with a finding as those of other statistics",
    ),
    (
        "future_rows",
        "rows of the source pass it; forecasts of those of the future have a law of their own",
    ),
    (
        "target",
        "its windows are those of `lag`; predictions undo it",
    ),
];

/// Numbers from a seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Writes rows of all series for some days, day by day.
fn write_days(path: &Path, days: std::ops::Range<u32>) {
    let mut text = "date,store,item,qty,price,tag\n".to_owned();
    for day in days {
        let mut numbers = Numbers(u64::from(day) * 7919);
        for store in STORES {
            for item in ITEMS {
                // Some series skip days, and one begins late.
                if numbers.below(9) == 0 || (item == "plum" && day < 40) {
                    continue;
                }
                let date = jiff::civil::date(2024, 1, 1) + jiff::Span::new().days(i64::from(day));
                let qty = match numbers.below(7) {
                    0 => String::new(),
                    _ => (numbers.below(1000) as f64 / 7.0).to_string(),
                };
                let price = numbers.below(1000) as f64 / 100.0;
                let tag = ["", "sale", "new"][numbers.below(3) as usize];
                writeln!(text, "{date},{store},{item},{qty},{price},{tag}").unwrap();
            }
        }
    }
    std::fs::write(path, text).unwrap();
}

/// A directory with a history, later days, and a spec.
pub(crate) struct Shop {
    directory: tempfile::TempDir,
}

impl Shop {
    pub fn new(steps: &str) -> Shop {
        let directory = tempfile::tempdir().unwrap();
        let shop = Shop { directory };
        std::fs::create_dir(shop.path("data")).unwrap();
        write_days(&shop.directory.path().join("data/1.csv"), 0..HISTORY_DAYS);
        shop.write_spec(steps);
        shop
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn write_spec(&self, steps: &str) {
        self.write_spec_with(steps, "{ from: features }");
    }

    /// Writes a spec whose appended facts may come late.
    fn replay_late_facts(&self, steps: &str) {
        self.write_spec_with(steps, "{ from: features, late: replay }");
    }

    /// Writes a spec whose steps learn from the days of the history alone.
    fn learn_from_history(&self, steps: &str) {
        self.write_spec(steps);
        let spec = std::fs::read_to_string(self.path("spec.yaml")).unwrap();
        let last_day = "DATE '2024-02-29'";
        let split = format!(
            "split: {{ train: \"date <= {last_day}\", validation: \"date > {last_day}\" }}\n\
             serving:"
        );
        let spec = spec.replace(
            "from: sales\n    do:",
            "from: sales\n    fit_on: train\n    do:",
        );
        std::fs::write(self.path("spec.yaml"), spec.replace("serving:", &split)).unwrap();
    }

    /// Adds the sources `prices` (of some days in the north) and `brands` to the spec.
    fn add_other_sources(&self) {
        let mut prices = "date,store,item,list\n".to_owned();
        for day in (0..DAYS).step_by(9) {
            let date = jiff::civil::date(2024, 1, 1) + jiff::Span::new().days(i64::from(day));
            for item in ITEMS {
                let list = f64::from(day) / 3.0 + item.len() as f64;
                writeln!(prices, "{date},north,{item},{list}").unwrap();
            }
        }
        std::fs::write(self.path("prices.csv"), prices).unwrap();
        std::fs::write(self.path("brands.csv"), "item,brand\napple,m\nplum,n\n").unwrap();
        let sources = format!(
            "sources:\n  prices:\n    csv: {{ path: \"{}\", columns: {{ date: date, store: string, \
             item: string, list: float64 }} }}\n    time: date\n    keys: [store, item]\n  \
             brands: {{ csv: {{ path: \"{}\" }} }}\n",
            self.path("prices.csv"),
            self.path("brands.csv")
        );
        let spec = std::fs::read_to_string(self.path("spec.yaml")).unwrap();
        let spec = spec.replacen("sources:\n", &sources, 1);
        std::fs::write(self.path("spec.yaml"), spec).unwrap();
    }

    fn write_spec_with(&self, steps: &str, serving: &str) {
        let types = "{ date: date, store: string, item: string, \
                     qty: float64, price: float64, tag: string }";
        let text = format!(
            "version: 1\nname: shop\nsources:\n  sales:\n    \
             csv: {{ path: \"{}/*.csv\", columns: {types} }}\n    time: date\n    \
             keys: [store, item]\nsteps:\n  features:\n    from: sales\n    do: [{steps}]\n\
             serving: {serving}\n\
             sinks: {{ table: {{ from: features, parquet: {{ path: \"{}\" }} }} }}\n",
            self.path("data"),
            self.path("table")
        );
        std::fs::write(self.path("spec.yaml"), text).unwrap();
    }

    pub fn add_later_days(&self) {
        write_days(
            &self.directory.path().join("data/2.csv"),
            HISTORY_DAYS..DAYS,
        );
    }

    pub fn forebay(&self) -> Forebay {
        Forebay::new().with_options(
            SessionOptions::default()
                .state(self.path("state"))
                .threads(2),
        )
    }

    /// Learns from the data, and returns the directory of the artifact.
    fn fit(&self) -> Result<String> {
        let forebay = self.forebay();
        let pipeline = forebay.read_spec(self.path("spec.yaml"), NO_PARAMS)?;
        Ok(forebay.fit(&pipeline)?.artifact_path.unwrap())
    }

    fn model(&self, artifact: &str) -> Result<ServingModel> {
        let forebay = self.forebay();
        forebay.model(&forebay.artifact(artifact)?, None)
    }

    /// All rows of a step or source.
    fn rows(&self, step: &str) -> RecordBatch {
        let forebay = self.forebay();
        let pipeline = forebay
            .read_spec(self.path("spec.yaml"), NO_PARAMS)
            .unwrap();
        let batches = forebay.collect(&pipeline, step).unwrap();
        concat_batches(&batches[0].schema(), &batches).unwrap()
    }

    /// The later rows of the source.
    pub fn later_rows(&self) -> RecordBatch {
        let rows = self.rows("sales");
        let dates = cast(rows.column_by_name("date").unwrap(), &DataType::Utf8).unwrap();
        let first = jiff::civil::date(2024, 1, 1) + jiff::Span::new().days(i64::from(HISTORY_DAYS));
        let first = first.to_string();
        let dates = dates.as_string::<i32>().clone();
        let begin = (0..rows.num_rows())
            .find(|row| dates.value(*row) >= first.as_str())
            .unwrap();
        rows.slice(begin, rows.num_rows() - begin)
    }
}

pub(crate) const NO_PARAMS: [(&str, &str); 0] = [];

/// The values of a column with the bits of numbers.
pub(crate) fn bits(column: &ArrayRef) -> Vec<String> {
    let text = |row: usize| {
        if column.is_null(row) {
            return "null".to_owned();
        }
        match column.data_type() {
            DataType::Float64 => format!(
                "{:x}",
                column.as_primitive::<Float64Type>().value(row).to_bits()
            ),
            DataType::Float32 => format!(
                "{:x}",
                column.as_primitive::<Float32Type>().value(row).to_bits()
            ),
            _ => arrow::util::display::array_value_to_string(column, row).unwrap(),
        }
    };
    (0..column.len()).map(text).collect()
}

/// The rows as texts, column by column: equal texts are equal bits.
pub(crate) fn row_bits(rows: &RecordBatch) -> Vec<Vec<String>> {
    let columns: Vec<Vec<String>> = rows.columns().iter().map(bits).collect();
    let row = |row: usize| columns.iter().map(|column| column[row].clone()).collect();
    (0..rows.num_rows()).map(row).collect()
}

/// Answers the days after the history row by row, appends each, and compares the answers with a run over all days.
fn check_replay(name: &str, shop: &Shop) {
    let artifact = shop.fit().unwrap_or_else(|fault| panic!("{name}: {fault}"));
    let mut model = shop
        .model(&artifact)
        .unwrap_or_else(|fault| panic!("{name}: {fault}"));
    assert_eq!(model.state().unwrap().as_of, "2024-02-29", "{name}");
    shop.add_later_days();
    let new_rows = shop.later_rows();
    // A row that a filter for learning removes is no fact, and is not in the table of the run.
    let is_open = name == "filters";
    let expected = row_bits(&shop.rows("features"));
    let mut answers = Vec::new();
    for row in 0..new_rows.num_rows() {
        if row == new_rows.num_rows() / 2 {
            // Another process goes on: the log holds what was appended.
            drop(model);
            model = shop.model(&artifact).unwrap();
        }
        let row = new_rows.slice(row, 1);
        let answer = model
            .apply(&row)
            .unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let qty = row.column_by_name("qty").unwrap();
        if !(is_open && qty.is_null(0)) {
            answers.extend(row_bits(&answer));
        }
        assert_eq!(model.append(&row).unwrap().rows, 1);
    }
    let first = expected.len() - answers.len();
    assert!(answers.len() > 30, "{name}: {} answers", answers.len());
    assert_eq!(answers, expected[first..], "{name}");
    // All at once, in one batch: rows see those before them.
    let whole = shop.model(&artifact).unwrap();
    assert_eq!(whole.state().unwrap().as_of, "2024-03-14", "{name}");
    let late = whole.apply(&new_rows.slice(0, 1)).unwrap_err();
    assert_eq!(late.code(), codes::OUT_OF_ORDER, "{name}");
}

#[test]
fn rows_that_are_answered_and_appended_have_the_bits_of_a_run_over_all() {
    for (name, steps) in SERVED {
        check_replay(name, &Shop::new(steps));
    }
}

#[test]
fn steps_of_single_rows_have_the_bits_of_a_run_over_all() {
    for (name, steps) in ROW_WISE {
        let shop = Shop::new(steps);
        shop.learn_from_history(steps);
        check_replay(name, &shop);
    }
}

#[test]
fn faults_of_given_rows_name_their_source_and_the_row() {
    let shop = Shop::new("{ lag: { columns: [qty], by: [1d] } }");
    let model = shop.model(&shop.fit().unwrap()).unwrap();
    shop.add_later_days();
    let new_rows = shop.later_rows();
    model.append(&new_rows).unwrap();
    // Rows that are appended may not come again.
    let late = model.apply(&new_rows).unwrap_err();
    assert_eq!(late.code(), codes::OUT_OF_ORDER);
    assert_eq!(late.site().file.as_deref(), Some("source sales"));
    assert_eq!(late.site().rows, [0]);
}

#[test]
fn each_transform_is_served_or_refused_with_a_reason() {
    let laws = SERVED.iter().chain(&ROW_WISE).map(|(_, steps)| *steps);
    let laws = laws.chain(POOLED).chain([JOINED]);
    let laws: Vec<&str> = laws
        .chain(REFUSED.iter().map(|(steps, _)| *steps))
        .collect();
    for kind in forebay_transforms::registry().kinds() {
        let step = format!("{{ {}: ", kind.name);
        let has_law = laws.iter().any(|steps| steps.contains(&step));
        let is_listed = HELD_ELSEWHERE.iter().any(|(name, _)| *name == kind.name);
        assert!(
            has_law != is_listed,
            "list `{}` among the steps that are served or refused, once",
            kind.name
        );
    }
}

/// The rows of a batch whose positions meet a condition.
pub(crate) fn rows_where(batch: &RecordBatch, is_meant: impl Fn(usize) -> bool) -> RecordBatch {
    let rows: Vec<RecordBatch> = (0..batch.num_rows())
        .filter(|row| is_meant(*row))
        .map(|row| batch.slice(row, 1))
        .collect();
    concat_batches(&batch.schema(), &rows).unwrap()
}

#[test]
fn late_facts_that_are_replayed_leave_the_bits_of_a_run_over_all() {
    for (name, steps) in SERVED {
        let shop = Shop::new(steps);
        shop.replay_late_facts(steps);
        let artifact = shop.fit().unwrap_or_else(|fault| panic!("{name}: {fault}"));
        shop.add_later_days();
        let all = shop.later_rows();
        let expected = row_bits(&shop.rows("features"));
        let dates = cast(all.column_by_name("date").unwrap(), &DataType::Utf8).unwrap();
        let dates = dates.as_string::<i32>();
        let last_day = dates.value(all.num_rows() - 1);
        let facts = rows_where(&all, |row| dates.value(row) != last_day);
        let questions = rows_where(&all, |row| dates.value(row) == last_day);
        let model = shop.model(&artifact).unwrap();
        let early = rows_where(&facts, |row| row % 2 == 0);
        for row in 0..early.num_rows() {
            model.append(&early.slice(row, 1)).unwrap();
        }
        let late = rows_where(&facts, |row| row % 2 == 1);
        let half = late.num_rows() / 2;
        // The newest first.
        for row in (half..late.num_rows()).rev() {
            model
                .append(&late.slice(row, 1))
                .unwrap_or_else(|fault| panic!("{name}: {fault}"));
        }
        drop(model);
        // Another process goes on, and appends the others at once.
        let model = shop.model(&artifact).unwrap();
        model
            .append(&late.slice(0, half))
            .unwrap_or_else(|fault| panic!("{name}: {fault}"));
        for model in [model, shop.model(&artifact).unwrap()] {
            let mut answers = Vec::new();
            for row in 0..questions.num_rows() {
                let question = questions.slice(row, 1);
                // A row that a filter for learning removes is not in the table of the run.
                let qty = question.column_by_name("qty").unwrap();
                if name == "filters" && qty.is_null(0) {
                    continue;
                }
                answers.extend(row_bits(&model.apply(&question).unwrap()));
            }
            assert!(!answers.is_empty(), "{name}");
            let first = expected.len() - answers.len();
            assert_eq!(answers, expected[first..], "{name}");
        }
    }
}

/// Days of the history of many series.
const MANY_DAYS: u32 = 25;

/// Stores of many series.
const MANY_STORES: u32 = 40;

/// Items of many series: 112,000 rows, or 1,120,000 in long tests.
fn many_items() -> u32 {
    if std::env::var_os("FOREBAY_LONG_TESTS").is_some() {
        return 1000;
    }
    100
}

/// Writes rows of many series for some days, day by day.
fn write_many(path: &Path, days: std::ops::Range<u32>) {
    let mut text = "date,store,item,qty,price,tag\n".to_owned();
    for day in days {
        let mut numbers = Numbers(u64::from(day) * 104_729);
        let date = jiff::civil::date(2024, 1, 1) + jiff::Span::new().days(i64::from(day));
        for series in 0..MANY_STORES * many_items() {
            let store = series % MANY_STORES;
            let item = series / MANY_STORES;
            let qty = numbers.below(1000) as f64 / 7.0;
            let price = numbers.below(1000) as f64 / 100.0;
            writeln!(text, "{date},s{store},i{item},{qty},{price},new").unwrap();
        }
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn many_series_have_the_bits_of_a_run_over_all_from_mapped_states_and_those_in_memory() {
    let steps = "{ lag: { columns: [qty, price], by: [1d, 7d] } }, \
                 { rolling: { columns: [qty], compute: [mean, std, max], over: [7d, 14d], \
                   gap: 1d } }, \
                 { ewm: { columns: [qty], compute: [mean], half_life: 7d, gap: 1d } }";
    let shop = Shop {
        directory: tempfile::tempdir().unwrap(),
    };
    std::fs::create_dir(shop.path("data")).unwrap();
    let history = HISTORY_DAYS - MANY_DAYS..HISTORY_DAYS;
    write_many(&shop.directory.path().join("data/1.csv"), history);
    shop.write_spec(steps);
    let artifact = shop.fit().unwrap();
    let new_days = HISTORY_DAYS..HISTORY_DAYS + 3;
    write_many(&shop.directory.path().join("data/2.csv"), new_days);
    let new_rows = shop.later_rows();
    let all = shop.rows("features");
    let expected = all.slice(all.num_rows() - new_rows.num_rows(), new_rows.num_rows());
    let expected = row_bits(&expected);
    let series = (MANY_STORES * many_items()) as usize;
    assert_eq!(new_rows.num_rows(), 3 * series);
    // Without memory for states, all lie in mapped files.
    let mapped = shop.model(&artifact).unwrap().with_state_bytes(0);
    let in_memory = shop.model(&artifact).unwrap();
    // Files that the first one writes are those of the second one.
    let sharing = [(); 2].map(|()| {
        let model = shop.model(&artifact).unwrap();
        model.with_shared_states(shop.path("shared"))
    });
    assert_eq!(mapped.state().unwrap().series, series as u64);
    for day in 0..3 {
        let rows = new_rows.slice(day * series, series);
        let expected = &expected[day * series..][..series];
        assert_eq!(
            row_bits(&mapped.apply(&rows).unwrap()),
            expected,
            "day {day}"
        );
        mapped.append(&rows).unwrap();
    }
    for model in [in_memory].into_iter().chain(sharing) {
        let answers = row_bits(&model.apply(&new_rows).unwrap());
        assert_eq!(answers, expected);
    }
    let shared_files = std::fs::read_dir(shop.path("shared")).unwrap();
    assert!(shared_files.count() > 0);
    let again = shop.model(&artifact).unwrap();
    assert_eq!(again.state().unwrap().as_of, mapped.state().unwrap().as_of);
}

#[test]
fn late_facts_of_the_run_and_repeated_ones_are_refused_where_others_are_replayed() {
    let steps = "{ lag: { columns: [qty], by: [1d] } }";
    let shop = Shop::new(steps);
    shop.replay_late_facts(steps);
    let artifact = shop.fit().unwrap();
    let model = shop.model(&artifact).unwrap();
    shop.add_later_days();
    let new_rows = shop.later_rows();
    let last = new_rows.num_rows() - 1;
    model.append(&new_rows.slice(last, 1)).unwrap();
    model.append(&new_rows.slice(0, 1)).unwrap();
    let state = model.state().unwrap();
    let of_the_run = model.append(&shop.rows("sales").slice(0, 1)).unwrap_err();
    assert_eq!(of_the_run.code(), codes::OUT_OF_ORDER);
    // The second row of this batch is a repeated one, and the first is taken with it or not at all.
    let rows = [new_rows.slice(last - 1, 1), new_rows.slice(0, 1)];
    let rows = concat_batches(&new_rows.schema(), &rows).unwrap();
    let repeated = model.append(&rows).unwrap_err();
    assert_eq!(repeated.code(), codes::OUT_OF_ORDER);
    assert_eq!(repeated.site().rows, [1]);
    assert_eq!(model.state().unwrap(), state);
    assert_eq!(model.appended().unwrap().len(), 2);
}

#[test]
fn a_batch_in_any_order_is_answered_in_order_of_time() {
    let shop = Shop::new(
        "{ lag: { columns: [qty], by: [1d] } }, \
         { rolling: { columns: [qty], compute: [mean], over: [7d] } }",
    );
    let artifact = shop.fit().unwrap();
    let model = shop.model(&artifact).unwrap();
    shop.add_later_days();
    let new_rows = shop.later_rows();
    let expected = row_bits(&model.apply(&new_rows).unwrap());
    let all = row_bits(&shop.rows("features"));
    assert_eq!(expected, all[all.len() - expected.len()..]);
    let rows = new_rows.num_rows() as u32;
    let backward: arrow::array::UInt32Array = (0..rows).rev().collect();
    let columns = new_rows.columns().iter();
    let columns = columns.map(|column| arrow::compute::take(column, &backward, None).unwrap());
    let backward = RecordBatch::try_new(new_rows.schema(), columns.collect()).unwrap();
    let mut answers = row_bits(&model.apply(&backward).unwrap());
    answers.reverse();
    assert_eq!(answers, expected);
}

#[test]
fn the_next_run_goes_on_from_the_state_and_shares_pieces() {
    let steps = "{ expanding: { columns: [qty], compute: [sum], gap: 1d } }";
    let shop = Shop::new(steps);
    let first = shop.fit().unwrap();
    let before = std::fs::read_to_string(format!("{first}/serving.json")).unwrap();
    // Nothing new: the same state.
    assert_eq!(shop.fit().unwrap(), first);
    let again = std::fs::read_to_string(format!("{first}/serving.json")).unwrap();
    assert_eq!(again, before);
    shop.add_later_days();
    let grown = shop.fit().unwrap();
    let manifest: Value =
        serde_json::from_str(&std::fs::read_to_string(format!("{grown}/serving.json")).unwrap())
            .unwrap();
    assert_eq!(manifest["as_of"], "2024-03-14");
    // The answers equal those that are computed from the whole history.
    std::fs::remove_dir_all(shop.path("state")).unwrap();
    let whole = shop.fit().unwrap();
    let from_whole: Value =
        serde_json::from_str(&std::fs::read_to_string(format!("{whole}/serving.json")).unwrap())
            .unwrap();
    assert_eq!(manifest["windows"], from_whole["windows"]);
}

#[test]
fn facts_that_are_late_or_too_many_are_refused_whole() {
    let shop = Shop::new("{ lag: { columns: [qty], by: [1d] } }");
    let artifact = shop.fit().unwrap();
    let model = shop.model(&artifact).unwrap();
    shop.add_later_days();
    let new_rows = shop.later_rows();
    let state = model.state().unwrap();
    let late: Fault = model.append(&shop.rows("sales").slice(0, 1)).unwrap_err();
    assert_eq!(late.code(), codes::OUT_OF_ORDER);
    assert!(
        late.message().contains("`store` north"),
        "{}",
        late.message()
    );
    assert_eq!(model.state().unwrap(), state);
    model.append(&new_rows.slice(0, 1)).unwrap();
    let again = model.append(&new_rows.slice(0, 1)).unwrap_err();
    assert_eq!(again.code(), codes::OUT_OF_ORDER);
    let small = shop.model(&artifact);
    drop(model);
    let small = small.unwrap().with_appended_bytes(10);
    assert_eq!(
        small.append(&new_rows.slice(1, 1)).unwrap_err().code(),
        codes::MEMORY
    );
}

#[test]
fn single_rows_are_answered_without_their_label() {
    let shop = Shop::new("{ lag: { columns: [qty], by: [1d] } }");
    let artifact = shop.fit().unwrap();
    let model = shop.model(&artifact).unwrap();
    let row = json!({ "date": "2024-03-01", "store": "north", "item": "apple", "price": 1.5 });
    let row: &Map<String, Value> = row.as_object().unwrap();
    let answer = model.apply_row(row).unwrap();
    assert!(answer.contains_key("qty_lag_1d"), "{answer:?}");
}

#[test]
fn steps_that_cannot_be_served_are_named() {
    for (steps, reason) in REFUSED {
        let shop = Shop::new(steps);
        shop.add_other_sources();
        let forebay = shop.forebay();
        let pipeline = forebay
            .read_spec(shop.path("spec.yaml"), NO_PARAMS)
            .unwrap_or_else(|fault| panic!("{steps}: {fault}"));
        let session = forebay.session().unwrap();
        let unserved = session
            .unserved_steps(&pipeline, "features")
            .unwrap_or_else(|fault| panic!("{steps}: {fault}"));
        let Some(first) = unserved.first() else {
            panic!("{steps}: served");
        };
        assert!(first.reason.contains(reason), "{steps}: {}", first.reason);
    }
    let shop = Shop::new("{ interpolate: { columns: [qty] } }");
    let fault = shop.fit().unwrap_err();
    assert!(
        fault.message().contains("features.interpolate"),
        "{}",
        fault.message()
    );
}

#[test]
fn new_rows_alone_are_applied_from_the_state() {
    let shop = Shop::new(
        "{ lag: { columns: [qty], by: [1d] } }, \
         { rolling: { columns: [qty], compute: [mean], over: [7d] } }",
    );
    let forebay = shop.forebay();
    let artifact = forebay.artifact(&shop.fit().unwrap()).unwrap();
    shop.add_later_days();
    let mut pipeline = artifact.pipeline.clone();
    pipeline.sources[0].config["path"] = Value::from(shop.path("data/2.csv"));
    pipeline.sinks[0].config["path"] = Value::from(shop.path("applied"));
    let report = forebay
        .session()
        .unwrap()
        .apply(&pipeline, &artifact)
        .unwrap();
    assert_eq!(report.artifact, Some(artifact.id.to_string()));
    let text = format!(
        "version: 1\nname: read\nsources: {{ applied: {{ parquet: {{ path: \"{}\" }} }} }}\n",
        shop.path("applied")
    );
    std::fs::write(shop.path("read.yaml"), text).unwrap();
    let read = forebay
        .read_spec(shop.path("read.yaml"), NO_PARAMS)
        .unwrap();
    let batches = forebay.collect(&read, "applied").unwrap();
    let applied = row_bits(&concat_batches(&batches[0].schema(), &batches).unwrap());
    let expected = row_bits(&shop.rows("features"));
    assert!(applied.len() > 30);
    assert_eq!(applied, expected[expected.len() - applied.len()..]);
}

#[test]
fn pooled_steps_answer_as_far_as_their_gap_reaches() {
    for steps in POOLED {
        let shop = Shop::new(steps);
        let artifact = shop
            .fit()
            .unwrap_or_else(|fault| panic!("{steps}: {fault}"));
        let model = shop.model(&artifact).unwrap();
        let has_windows = model.state().unwrap().series > 0;
        shop.add_later_days();
        let new_rows = shop.later_rows();
        let all = row_bits(&shop.rows("features"));
        let expected = &all[all.len() - new_rows.num_rows()..];
        let dates = bits(new_rows.column_by_name("date").unwrap());
        for (row, date) in dates.iter().enumerate() {
            let fact = new_rows.slice(row, 1);
            let answer = model.apply(&fact);
            if date.as_str() > "2024-03-02" {
                assert_eq!(
                    answer.unwrap_err().code(),
                    codes::NO_HISTORY,
                    "{steps} {date}"
                );
                continue;
            }
            assert_eq!(
                row_bits(&answer.unwrap()),
                expected[row..=row],
                "{steps} {date}"
            );
            let appended = model.append(&fact);
            if has_windows {
                appended.unwrap();
            } else {
                // Facts would change no answer.
                assert_eq!(appended.unwrap_err().code(), codes::UNSUPPORTED, "{steps}");
            }
        }
    }
}

#[test]
fn rows_are_joined_with_those_that_were_there() {
    let shop = Shop::new(JOINED);
    shop.add_other_sources();
    let artifact = shop.fit().unwrap();
    let model = shop.model(&artifact).unwrap();
    shop.add_later_days();
    let new_rows = shop.later_rows();
    let all = row_bits(&shop.rows("features"));
    let expected = &all[all.len() - new_rows.num_rows()..];
    for row in 0..new_rows.num_rows() {
        let row_of = new_rows.slice(row, 1);
        assert_eq!(
            row_bits(&model.apply(&row_of).unwrap()),
            expected[row..=row]
        );
        model.append(&row_of).unwrap();
    }
}

/// The long form: as many series as `FOREBAY_REPLAY_SERIES` says, 28 days row by row, with sizes and times.
#[test]
#[ignore = "takes minutes: cargo test -p forebay --lib -- --ignored --nocapture serving_law::many"]
#[allow(clippy::print_stdout)] // Figures are what it is for.
fn many_series_are_replayed_row_by_row() {
    let series = std::env::var("FOREBAY_REPLAY_SERIES").ok();
    let series: u32 = series.and_then(|text| text.parse().ok()).unwrap_or(1000);
    let shop = Shop::new(
        "{ lag: { columns: [qty], by: [1d, 7d, 14d, 28d] } }, \
         { rolling: { columns: [qty], compute: [mean, std], over: [7d, 28d], gap: 1d } }",
    );
    let write = |name: &str, days: std::ops::Range<u32>| {
        let mut text = "date,store,item,qty,price,tag\n".to_owned();
        for day in days {
            let date = jiff::civil::date(2024, 1, 1) + jiff::Span::new().days(i64::from(day));
            let mut numbers = Numbers(u64::from(day));
            for one in 0..series {
                let qty = numbers.below(12) * numbers.below(2);
                writeln!(text, "{date},s{},i{one},{qty},1,", one % 10).unwrap();
            }
        }
        std::fs::write(shop.path(name), text).unwrap();
    };
    write("data/1.csv", 0..56);
    let artifact = shop.fit().unwrap();
    let model = shop.model(&artifact).unwrap();
    let state = model.state().unwrap();
    println!(
        "{} series, {} bytes of state, {:.1} each",
        state.series,
        state.bytes,
        state.bytes as f64 / state.series as f64
    );
    write("data/2.csv", 56..84);
    let new_rows = shop
        .rows("sales")
        .slice(56 * series as usize, 28 * series as usize);
    let all = shop.rows("features");
    let expected = row_bits(&all.slice(56 * series as usize, 28 * series as usize));
    let mut differing = 0;
    let mut answering = std::time::Duration::ZERO;
    let mut slowest = std::time::Duration::ZERO;
    for (row, expected) in expected.iter().enumerate() {
        let row = new_rows.slice(row, 1);
        let begin = std::time::Instant::now();
        let answer = model.apply(&row).unwrap();
        answering += begin.elapsed();
        slowest = slowest.max(begin.elapsed());
        differing += usize::from(row_bits(&answer) != [expected.clone()]);
        model.append(&row).unwrap();
    }
    println!(
        "{} rows, {differing} of them differ; {:.1} us an answer, {:.1} ms the slowest",
        expected.len(),
        answering.as_secs_f64() * 1e6 / expected.len() as f64,
        slowest.as_secs_f64() * 1e3
    );
    assert_eq!(differing, 0);
}
