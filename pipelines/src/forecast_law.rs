//! The law of served forecasts: they have the bits of the forecast that a run with the same state publishes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch, StringArray};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::DataType;
use forebay_model::{Result, codes};
use forebay_run::ServingModel;

use crate::serving_law::{DAYS, ITEMS, NO_PARAMS, STORES, Shop, bits, row_bits, rows_where};
use crate::{ForecastForm, ScoringRequest, TrainedModel};

/// A model of the rows of the future.
struct ForecastCase {
    name: &'static str,
    /// The steps of its features.
    steps: &'static str,
    /// Settings of its training besides the kind.
    train: &'static str,
    /// Source columns of the forecast.
    columns: &'static [&'static str],
}

const CASES: [ForecastCase; 11] = [
    ForecastCase {
        name: "a model for each step",
        steps: "{ filter: \"qty IS NOT NULL\" }, \
                { future_rows: { horizon: 5d, every: 1d, carry: [tag] } }, \
                { lag: { columns: [qty], by: [1d, 3d, 7d] } }, \
                { rolling: { columns: [qty], compute: [mean], over: [7d], gap: 2d } }",
        train: "strategy: per_step, quantiles: [0.1, 0.9], \
                dense: [qty_lag_1d, qty_lag_3d, qty_lag_7d, qty_mean_7d]",
        columns: &["tag"],
    },
    ForecastCase {
        name: "series that end at times of their own",
        steps: "{ filter: \"qty IS NOT NULL\" }, \
                { future_rows: { horizon: 5d, every: 1d, after: series, active_within: 30d } }, \
                { lag: { columns: [qty], by: [1d, 7d] } }",
        train: "strategy: per_step, dense: [qty_lag_1d, qty_lag_7d]",
        columns: &[],
    },
    ForecastCase {
        name: "predictions that feed windows",
        steps: "{ filter: \"qty IS NOT NULL\" }, { drop: [price, tag] }, \
                { future_rows: { horizon: 5d, every: 1d } }, \
                { lag: { columns: [qty], by: [1d, 2d] } }, \
                { rolling: { columns: [qty], compute: [max], over: [3d], gap: 1d } }",
        train: "strategy: recursive, dense: [qty_lag_1d, qty_lag_2d, qty_max_3d]",
        columns: &[],
    },
    ForecastCase {
        name: "differences that are undone",
        steps: "{ filter: \"qty IS NOT NULL\" }, { drop: [price, tag] }, \
                { future_rows: { horizon: 5d, every: 1d, after: series } }, \
                { target: { column: qty, do: [{ difference: 1d }] } }, \
                { lag: { columns: [qty], by: [5d, 7d] } }",
        train: "dense: [qty_lag_5d, qty_lag_7d]",
        columns: &[],
    },
    ForecastCase {
        name: "rows joined with plans",
        steps: "{ filter: \"qty IS NOT NULL\" }, \
                { future_rows: { horizon: 5d, every: 1d } }, \
                { as_of_join: { with: plans, columns: [list] } }, \
                { lag: { columns: [qty], by: [1d, 7d] } }",
        train: "strategy: per_step, dense: [qty_lag_1d, qty_lag_7d, list]",
        columns: &[],
    },
    ForecastCase {
        name: "predictions that feed windows beside joined plans",
        steps: "{ filter: \"qty IS NOT NULL\" }, { drop: [price, tag] }, \
                { future_rows: { horizon: 5d, every: 1d } }, \
                { as_of_join: { with: plans, columns: [list] } }, \
                { lag: { columns: [qty], by: [1d, 2d] } }, \
                { rolling: { columns: [qty], compute: [max], over: [3d], gap: 1d } }",
        train: "strategy: recursive, dense: [qty_lag_1d, qty_lag_2d, qty_max_3d, list]",
        columns: &[],
    },
    ForecastCase {
        name: "differences that are undone beside joined plans",
        steps: "{ filter: \"qty IS NOT NULL\" }, { drop: [price, tag] }, \
                { future_rows: { horizon: 5d, every: 1d, after: series } }, \
                { target: { column: qty, do: [{ difference: 1d }] } }, \
                { lag: { columns: [qty], by: [5d, 7d] } }, \
                { as_of_join: { with: plans, columns: [list] } }",
        train: "dense: [qty_lag_5d, qty_lag_7d, list]",
        columns: &[],
    },
    ForecastCase {
        name: "windows on both sides of the rows of the future",
        steps: "{ filter: \"qty IS NOT NULL\" }, \
                { rolling: { columns: [price], compute: [mean], over: [7d] } }, \
                { future_rows: { horizon: 5d, every: 1d } }, \
                { lag: { columns: [qty], by: [7d] } }, \
                { lag: { columns: [price_mean_7d], by: [7d] } }",
        train: "dense: [qty_lag_7d, price_mean_7d_lag_7d]",
        columns: &[],
    },
    ForecastCase {
        name: "windows on both sides of a filter for learning",
        steps: "{ filter: \"qty IS NOT NULL\" }, \
                { future_rows: { horizon: 5d, every: 1d } }, \
                { lag: { columns: [qty], by: [7d] } }, \
                { filter: { sql: \"price < 8\", when: learning } }, \
                { rolling: { columns: [qty], compute: [mean], over: [7d], gap: 5d } }",
        train: "dense: [qty_lag_7d, qty_mean_7d]",
        columns: &[],
    },
    ForecastCase {
        name: "a window that a filter for learning reads alone",
        steps: "{ filter: \"qty IS NOT NULL\" }, \
                { future_rows: { horizon: 5d, every: 1d } }, \
                { lag: { columns: [price], by: [6d] } }, \
                { lag: { columns: [qty], by: [7d] } }, \
                { filter: { sql: \"price_lag_6d IS NOT NULL\", when: learning } }, \
                { drop: [price_lag_6d] }",
        train: "dense: [qty_lag_7d]",
        columns: &[],
    },
    ForecastCase {
        name: "one model for all steps",
        steps: "{ filter: \"qty IS NOT NULL\" }, \
                { future_rows: { horizon: 5d, every: 1d, carry: [price] } }, \
                { lag: { columns: [qty], by: [5d, 7d] } }",
        train: "dense: [qty_lag_5d, qty_lag_7d]",
        columns: &["price"],
    },
];

/// Steps whose forecasts cannot be served, with words of the reason.
const REFUSED: [(&str, &str); 1] = [(
    "{ filter: \"qty IS NOT NULL\" }, { lag: { columns: [price], by: [7d] } }, \
     { future_rows: { horizon: 5d, every: 1d, carry: [price_lag_7d] } }, \
     { lag: { columns: [qty], by: [7d] } }",
    "before `future_rows` to know the last rows",
)];

/// Steps whose series have a key that no column of the source is.
const COMPUTED_KEY: &str = "{ derive: { shop: \"upper(store)\" } }, \
                            { future_rows: { horizon: 5d, every: 1d, keys: [shop, item] } }, \
                            { lag: { columns: [qty], by: [7d], keys: [shop, item] } }";

/// Writes plans for all days and those after them.
fn write_plans(shop: &Shop) {
    write_plans_of(shop, (0..DAYS + 20).step_by(3));
}

/// Writes plans for some days.
fn write_plans_of(shop: &Shop, days: impl Iterator<Item = u32>) {
    let mut text = "date,store,item,list\n".to_owned();
    for day in days {
        for store in STORES {
            for item in ITEMS {
                let (date, list) = plan_of(day, item);
                writeln!(text, "{date},{store},{item},{list}").unwrap();
            }
        }
    }
    std::fs::write(shop.path("plans.csv"), text).unwrap();
}

/// The date of a day, and the plan of an item.
fn plan_of(day: u32, item: &str) -> (String, f64) {
    let date = jiff::civil::date(2024, 1, 1) + jiff::Span::new().days(i64::from(day));
    (date.to_string(), f64::from(day % 11) + item.len() as f64)
}

/// Writes a spec that trains a model of the rows of the future, with or without its forecast.
fn write_spec(shop: &Shop, steps: &str, train: &str, forecast: &str) {
    let types = "date: date, store: string, item: string";
    let text = format!(
        "version: 1\nname: shop\nsources:\n  sales:\n    \
         csv: {{ path: \"{}/*.csv\", columns: {{ {types}, qty: float64, price: float64, \
         tag: string }} }}\n    time: date\n    keys: [store, item]\n  plans:\n    \
         csv: {{ path: \"{}\", columns: {{ {types}, list: float64 }} }}\n    \
         time: date\n    keys: [store, item]\n\
         steps:\n  features:\n    from: sales\n    do: [{steps}]\n\
         label: {{ column: qty, horizon: 5d, known: [list] }}\n\
         serving: {{ from: features }}\n\
         sinks:\n  trees: {{ from: features, train: {{ path: \"{}\", model: gbdt, rounds: 8, \
         leaves: 4, min_leaf_rows: 5, categorical: [], {train} }} }}\n{forecast}",
        shop.path("data"),
        shop.path("plans.csv"),
        shop.path("trees"),
    );
    // Steps without plans need no word of them.
    let text = if steps.contains("plans") {
        text
    } else {
        text.replace(", known: [list]", "")
    };
    std::fs::write(shop.path("spec.yaml"), text).unwrap();
}

impl ForecastCase {
    fn shop(&self) -> Shop {
        let shop = Shop::new(self.steps);
        write_plans(&shop);
        let forecast = format!(
            "  forecast: {{ from: features, predict: {{ model: trees, path: \"{}\", min: 0, \
             columns: [{}] }} }}\n",
            shop.path("forecast"),
            self.columns.join(", ")
        );
        write_spec(&shop, self.steps, self.train, &forecast);
        shop
    }

    fn form(&self) -> ForecastForm {
        ForecastForm {
            columns: self.columns.iter().map(ToString::to_string).collect(),
            bounds: (Some(0.0), None),
            ..ForecastForm::default()
        }
    }

    /// Forecasts of all data by the model of the first run.
    fn scored(&self, shop: &Shop, model: &TrainedModel) -> RecordBatch {
        let mut sources = BTreeMap::new();
        sources.insert("sales".to_owned(), shop.path("data/*.csv"));
        sources.insert("plans".to_owned(), shop.path("plans.csv"));
        let scoring = ScoringRequest {
            sources,
            output: shop.path("scored"),
            columns: self.form().columns,
            bounds: self.form().bounds,
            ..ScoringRequest::default()
        };
        let session = shop.forebay().session().unwrap();
        let scored = model.score(&session, &scoring);
        scored.unwrap_or_else(|fault| panic!("{}: {fault}", self.name));
        output_rows(shop, "scored")
    }
}

/// Runs the spec. Returns the model with the serving state of its run.
fn run(shop: &Shop) -> Result<TrainedModel> {
    let forebay = shop.forebay();
    let pipeline = forebay.read_spec(shop.path("spec.yaml"), NO_PARAMS)?;
    let report = forebay.run(&pipeline)?;
    let artifact = forebay.artifact(&report.artifact_path.unwrap())?;
    let session = forebay.session()?;
    let mut model = TrainedModel::load(session.io(), &shop.path("trees"))?;
    model.artifact.serving = artifact.serving;
    Ok(model)
}

/// The rows of an output.
fn output_rows(shop: &Shop, name: &str) -> RecordBatch {
    let text = format!(
        "version: 1\nname: read\nsources: {{ rows: {{ parquet: {{ path: \"{}\" }} }} }}\n",
        shop.path(name)
    );
    std::fs::write(shop.path("read.yaml"), text).unwrap();
    let forebay = shop.forebay();
    let read = forebay
        .read_spec(shop.path("read.yaml"), NO_PARAMS)
        .unwrap();
    let batches = forebay.collect(&read, "rows").unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

/// The keys of the series of each row.
fn keys_of(rows: &RecordBatch) -> Vec<[String; 2]> {
    let texts = |name: &str| {
        let column = cast(rows.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
        let column = column.as_string::<i32>().clone();
        column
            .iter()
            .map(|text| text.unwrap().to_owned())
            .collect::<Vec<String>>()
    };
    let pairs = texts("store").into_iter().zip(texts("item"));
    pairs.map(|(store, item)| [store, item]).collect()
}

/// A request for series.
fn request(series: &[[String; 2]]) -> RecordBatch {
    let column = |key: usize| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(
            series.iter().map(|keys| &keys[key]),
        ))
    };
    RecordBatch::try_from_iter([("store", column(0)), ("item", column(1))]).unwrap()
}

/// Compares served forecasts with one that was published: of all series, of some, and as lists.
fn check_forecasts(name: &str, served: &ServingModel, expected: &RecordBatch) {
    let keys = keys_of(expected);
    let mut series = keys.clone();
    series.sort();
    series.dedup();
    assert!(series.len() > 3, "{name}: {series:?}");
    let forecast = |series: &[[String; 2]]| {
        let rows = served.forecast(&request(series));
        rows.unwrap_or_else(|fault| panic!("{name}: {fault}"))
    };
    let of_all = forecast(&series);
    let names = |rows: &RecordBatch| {
        let schema = rows.schema();
        let fields = schema.fields().iter();
        fields
            .map(|field| field.name().clone())
            .collect::<Vec<String>>()
    };
    assert_eq!(names(&of_all), names(expected), "{name}");
    assert_eq!(row_bits(&of_all), row_bits(expected), "{name}");
    // In another order, and one of them twice.
    let some = [series[2].clone(), series[0].clone(), series[2].clone()];
    let expected_rows = rows_where(expected, |row| some.contains(&keys[row]));
    assert_eq!(
        row_bits(&forecast(&some)),
        row_bits(&expected_rows),
        "{name}"
    );
    let lists = served.forecast_by_series(&request(&some)).unwrap();
    assert_eq!(lists.schema(), *served.series_output().unwrap(), "{name}");
    assert_eq!(lists.num_rows(), some.len());
    for (row, series) in some.iter().enumerate() {
        let expected = rows_where(expected, |row| keys[row] == *series);
        for (number, column) in lists.columns().iter().enumerate() {
            let steps = bits(expected.column(number));
            match column.as_fixed_size_list_opt() {
                Some(lists) => assert_eq!(bits(&lists.value(row)), steps, "{name}"),
                None => assert_eq!(bits(&column.slice(row, 1)), steps[..1], "{name}"),
            }
        }
    }
    let unknown = [series[0].clone(), ["west".to_owned(), "apple".to_owned()]];
    let fault = served.forecast(&request(&unknown)).unwrap_err();
    assert_eq!(fault.code(), codes::NO_HISTORY, "{name}");
    assert_eq!(fault.site().rows, [1], "{name}");
}

#[test]
fn served_forecasts_have_the_bits_of_published_ones() {
    for case in &CASES {
        let name = case.name;
        let shop = case.shop();
        let model = run(&shop).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let forebay = shop.forebay();
        let served = model
            .forecasts(&forebay, &case.form())
            .unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let published = output_rows(&shop, "forecast");
        check_forecasts(name, &served, &published);
        // Facts become part of the next forecasts, as if a run had read them.
        shop.add_later_days();
        let facts = shop.later_rows();
        for row in 0..facts.num_rows() {
            served.append(&facts.slice(row, 1)).unwrap();
            // Some appends are merged one by one, others wait for the next forecast.
            if row < 3 {
                let series = keys_of(&facts.slice(row, 1));
                served.forecast(&request(&series)).unwrap();
            }
        }
        let scored = case.scored(&shop, &model);
        assert_ne!(row_bits(&scored), row_bits(&published), "{name}");
        check_forecasts(name, &served, &scored);
        drop(served);
        // Another process goes on.
        let again = model.forecasts(&forebay, &case.form()).unwrap();
        check_forecasts(name, &again, &scored);
    }
}

/// Steps of a model that reads plans of the day itself.
const PLANNED: &str = "{ filter: \"qty IS NOT NULL\" }, \
                       { future_rows: { horizon: 5d, every: 1d } }, \
                       { as_of_join: { with: plans, columns: [list], tolerance: 0d } }, \
                       { lag: { columns: [qty], by: [5d, 7d] } }";

/// A shop whose plans reach as far as some days, with its served model.
fn planned_shop(days: u32) -> (Shop, ServingModel) {
    let shop = Shop::new(PLANNED);
    write_plans_of(&shop, 0..days);
    write_spec(&shop, PLANNED, "dense: [qty_lag_5d, qty_lag_7d, list]", "");
    let model = run(&shop).unwrap();
    let form = ForecastForm::default();
    let served = model.forecasts(&shop.forebay(), &form).unwrap();
    (shop, served)
}

/// Rows with the plans of series for some days.
fn plans_of(series: &[[String; 2]], days: std::ops::Range<u32>, shift: f64) -> RecordBatch {
    let mut keys = Vec::new();
    let mut dates = Vec::new();
    let mut lists = Vec::new();
    for day in days {
        for of_series in series {
            let (date, list) = plan_of(day, &of_series[1]);
            keys.push(of_series.clone());
            dates.push(date);
            lists.push(list + shift);
        }
    }
    let named = request(&keys);
    let dates: ArrayRef = Arc::new(StringArray::from(dates));
    let lists: ArrayRef = Arc::new(Float64Array::from(lists));
    let columns = [
        ("store", named.column(0).clone()),
        ("item", named.column(1).clone()),
        ("date", dates),
        ("list", lists),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Days of the horizon: those behind the history.
const FUTURE_DAYS: std::ops::Range<u32> = 60..65;

fn predictions(rows: &RecordBatch) -> Vec<String> {
    bits(rows.column_by_name("prediction").unwrap())
}

#[test]
fn plans_of_a_request_count_like_those_of_the_table() {
    let (_planned_shop, planned) = planned_shop(FUTURE_DAYS.end);
    let (_short_shop, short) = planned_shop(FUTURE_DAYS.start + 1);
    let columns: Vec<&str> = short
        .forecast_values()
        .into_iter()
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!(columns, ["date", "list"]);
    let series = [["north", "apple"], ["south", "pear"]];
    let series: Vec<[String; 2]> = series.map(|keys| keys.map(str::to_owned)).to_vec();
    let expected = predictions(&planned.forecast(&request(&series)).unwrap());
    let missing = short.forecast(&request(&series)).unwrap_err();
    assert_eq!(missing.code(), codes::BAD_ROW);
    assert!(
        missing.message().contains("8 of 10 rows") && missing.message().contains("2024-03-02"),
        "{}",
        missing.message()
    );
    // All of them, and those that the table lacks; days outside the horizon do not count.
    for days in [0..70, FUTURE_DAYS.start + 1..FUTURE_DAYS.end] {
        let answer = short.forecast(&plans_of(&series, days, 0.0)).unwrap();
        assert_eq!(predictions(&answer), expected);
    }
    let too_few = plans_of(&series, FUTURE_DAYS.start..FUTURE_DAYS.end - 1, 0.0);
    let missing = short.forecast(&too_few).unwrap_err();
    assert!(
        missing.message().contains("2 of 10 rows") && missing.message().contains("2024-03-05"),
        "{}",
        missing.message()
    );
    // A request prevails over the table, and each of its rows has an answer.
    let other = plans_of(&series, FUTURE_DAYS, -40.0);
    let moved = planned.forecast(&other).unwrap();
    assert_eq!(moved.num_rows(), expected.len());
    assert_eq!(
        planned.forecast_by_series(&other).unwrap().num_rows(),
        other.num_rows()
    );
    let again = predictions(&planned.forecast(&request(&series)).unwrap());
    assert_eq!(again, expected);
}

#[test]
fn values_of_a_request_without_a_time_or_with_two_are_refused() {
    let (_shop, served) = planned_shop(FUTURE_DAYS.end);
    let series = [["north".to_owned(), "apple".to_owned()]];
    let plans = plans_of(&series, FUTURE_DAYS, 0.0);
    let without_time = plans.project(&[0, 1, 3]).unwrap();
    let fault = served.forecast(&without_time).unwrap_err();
    assert_eq!(fault.code(), codes::UNKNOWN_COLUMN);
    assert!(fault.message().contains("`date`"), "{}", fault.message());
    let twice = concat_batches(&plans.schema(), [&plans, &plans.slice(1, 1)]).unwrap();
    let fault = served.forecast(&twice).unwrap_err();
    assert_eq!(fault.code(), codes::DUPLICATE);
    assert_eq!(fault.site().rows, [5]);
    assert!(
        fault.message().contains("2024-03-02"),
        "{}",
        fault.message()
    );
}

#[test]
fn the_next_run_goes_on_from_the_last_rows() {
    let case = &CASES[0];
    let shop = case.shop();
    run(&shop).unwrap();
    shop.add_later_days();
    let grown = run(&shop).unwrap();
    let latest = |model: &TrainedModel| {
        let manifest = &model.artifact.serving.as_ref().unwrap().manifest;
        manifest.latest.clone().unwrap()
    };
    let served = grown.forecasts(&shop.forebay(), &case.form()).unwrap();
    let published = output_rows(&shop, "forecast");
    check_forecasts(case.name, &served, &published);
    // The same rows, read from the beginning.
    std::fs::remove_dir_all(shop.path("state")).unwrap();
    assert_eq!(latest(&grown), latest(&run(&shop).unwrap()));
}

#[test]
fn forecasts_that_cannot_be_served_say_so() {
    for (steps, reason) in REFUSED {
        let shop = Shop::new(steps);
        write_plans(&shop);
        write_spec(&shop, steps, "dense: [qty_lag_7d]", "");
        let model = run(&shop).unwrap_or_else(|fault| panic!("{steps}: {fault}"));
        let refused = model.forecasts(&shop.forebay(), &ForecastForm::default());
        let Err(fault) = refused else {
            panic!("{steps}: served");
        };
        assert_eq!(fault.code(), codes::UNSUPPORTED, "{steps}");
        assert!(
            fault.message().contains(reason),
            "{steps}: {}",
            fault.message()
        );
    }
}

#[test]
fn forecasts_that_cannot_be_served_are_named_where_models_need_them() {
    for (steps, reason) in REFUSED.into_iter().chain([(COMPUTED_KEY, "key `shop`")]) {
        let shop = Shop::new(steps);
        write_plans(&shop);
        for (strategy, is_named) in [("direct", false), ("per_step", true), ("recursive", true)] {
            let train = format!("strategy: {strategy}, dense: [qty_lag_7d]");
            write_spec(&shop, steps, &train, "");
            let forebay = shop.forebay();
            let spec = forebay.read_spec(shop.path("spec.yaml"), NO_PARAMS);
            let session = forebay.session().unwrap();
            let unserved = session
                .unserved_steps(&spec.unwrap(), "features")
                .unwrap_or_else(|fault| panic!("{steps}: {fault}"));
            let mut of_forecasts = unserved.iter().filter(|step| step.step == "features");
            let is_told = of_forecasts.any(|step| step.reason.contains(reason));
            assert_eq!(is_told, is_named, "{steps} {strategy}: {unserved:?}");
        }
    }
}

#[test]
fn models_without_a_state_and_facts_of_too_few_columns_are_refused() {
    let case = &CASES[0];
    let shop = case.shop();
    let mut model = run(&shop).unwrap();
    let served = model.forecasts(&shop.forebay(), &case.form()).unwrap();
    shop.add_later_days();
    let facts = shop.later_rows();
    let columns: Vec<usize> = (0..facts.num_columns())
        .filter(|column| facts.schema().field(*column).name() != "tag")
        .collect();
    // The forecast carries it on.
    let fault = served
        .append(&facts.project(&columns).unwrap())
        .unwrap_err();
    assert_eq!(fault.code(), codes::UNKNOWN_COLUMN);
    assert!(fault.message().contains("`tag`"), "{}", fault.message());
    model.artifact.serving = None;
    let Err(fault) = model.forecasts(&shop.forebay(), &case.form()) else {
        panic!("served without a state");
    };
    assert_eq!(fault.code(), codes::UNSUPPORTED);
    let features = shop.forebay().model(&model.artifact, Some("features"));
    assert_eq!(
        features.err().map(|fault| fault.code()),
        Some(codes::UNSUPPORTED)
    );
}
