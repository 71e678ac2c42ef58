//! Steps over series: what they ask for, what they refuse, what they are called.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use forebay_model::{
    Dataset, Fault, FaultCode, LeftOutFiles, NodeInput, Pipeline, PipelineNode, PipelineSource,
    Result, Step, codes,
};
use forebay_model::{ExactUnit, TimeLength};
use forebay_plan::{BoundPipeline, PlanOp, ReaderFacts, SqlCompiler, WindowOp, bind};
use forebay_transforms::LengthSpec;
use forebay_window::SeriesLength::{Rows, Ticks};
use forebay_window::{
    ClosedEnds, EwmDecay, GapHandling, PeriodFill, SeriesFrame, WindowFunction, WindowReach,
    WindowStat,
};
use serde_json::{Value, json};

fn source() -> Schema {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Schema::new(vec![
        field("day", DataType::Date32),
        field("at", DataType::Timestamp(TimeUnit::Second, None)),
        field("tick", DataType::Int64),
        field("store", DataType::Utf8),
        field("item", DataType::Int32),
        field("qty", DataType::Int32),
        field("n", DataType::Int64),
        field("u", DataType::UInt64),
        field("price", DataType::Float32),
        field("promo", DataType::Boolean),
        field("qty_lag_1d", DataType::Int32),
    ])
}

/// Binds one step over a source that declares its time and keys, or does not.
fn bind_step(step: &Value, declared: bool) -> Result<BoundPipeline> {
    let (kind, config) = step.as_object().unwrap().iter().next().unwrap();
    let registry = forebay_transforms::registry();
    let canonical = registry.kind(kind).unwrap().canonical;
    let config =
        canonical(config.clone()).map_err(|error| Fault::new(codes::BAD_VALUE, error.message))?;
    assert_eq!(
        config,
        canonical(config.clone()).unwrap(),
        "the canonical form of `{kind}` is not stable"
    );
    let pipeline = Pipeline {
        name: "test".into(),
        sources: vec![PipelineSource {
            name: "this".into(),
            format: "memory".into(),
            config: Value::Null,
            time: declared.then(|| "day".into()),
            keys: if declared {
                vec!["store".into(), "item".into()]
            } else {
                Vec::new()
            },
            ready: None,
            duplicates: None,
            lookback: None,
            days: Default::default(),
            at: None,
        }],
        nodes: vec![PipelineNode {
            name: "out".into(),
            input: NodeInput::From("this".into()),
            fit_on: None,
            allow_empty: false,
            refit: None,
            data_age: Default::default(),
            steps: vec![Step {
                kind: kind.clone(),
                config,
                at: None,
            }],
            optional: false,
            at: None,
        }],
        ..Pipeline::default()
    };
    let dataset = Dataset {
        schema: Arc::new(source()),
        spans: Vec::new(),
        column_bytes: None,
        null_counts: Vec::new(),
        watched: Vec::new(),
        version: None,
        left_out: LeftOutFiles::default(),
        files: Vec::new(),
    };
    bind(
        &pipeline,
        &registry,
        &SqlCompiler::default(),
        &BTreeMap::from([("this".to_owned(), dataset)]),
        &ReaderFacts::default(),
    )
}

/// The new columns, and the types of replaced ones.
fn new_columns(step: &Value) -> String {
    let bound = bind_step(step, true).unwrap();
    let known = source();
    let fields = bound.flows["out"].schema.fields().iter();
    let new = fields.filter(|field| {
        known
            .field_with_name(field.name())
            .ok()
            .map(Field::data_type)
            != Some(field.data_type())
    });
    new.map(|field| format!("{} {}", field.name(), field.data_type()))
        .collect::<Vec<_>>()
        .join(", ")
}

fn windows(step: &Value) -> Vec<WindowOp> {
    let ops = bind_step(step, true).unwrap().ops.into_iter();
    ops.filter_map(|op| {
        if let PlanOp::Window(window) = op.op {
            Some(window)
        } else {
            None
        }
    })
    .collect()
}

#[test]
fn names_and_types() {
    let cases = [
        (
            json!({"lag": {"columns": ["qty", "n", "promo", "at"], "by": ["1w", "48h"]}}),
            "qty_lag_1w Int32, qty_lag_48h Int32, n_lag_1w Int64, n_lag_48h Int64, promo_lag_1w Boolean, \
          promo_lag_48h Boolean, at_lag_1w Timestamp(s), at_lag_48h Timestamp(s)",
        ),
        (
            json!({"lag": {"columns": ["qty"], "by": [7], "gaps": "count_rows", "names": "mlforecast"}}),
            "lag7 Int32",
        ),
        (
            json!({"lag": {"columns": ["qty", "n"], "by": [7], "gaps": "count_rows", "names": "mlforecast"}}),
            "qty_lag7 Int32, n_lag7 Int64",
        ),
        (
            json!({"lag": {"columns": ["qty"], "by": ["2w"], "names": "mlforecast"}}),
            "lag14 Int32",
        ),
        (
            json!({"lag": {"columns": ["qty"], "by": ["2h"], "time": "at", "names": "mlforecast",
                        "gaps": {"error": {"every": "30m"}}}}),
            "lag4 Int32",
        ),
        (
            json!({"lag": {"columns": ["qty"], "by": ["7t"], "time": "tick"}}),
            "qty_lag_7t Int32",
        ),
        (
            json!({"diff": {"columns": ["qty", "n", "u", "price"], "by": ["7d"]}}),
            "qty_diff_7d Int64, n_diff_7d Int64, u_diff_7d Int64, price_diff_7d Float64",
        ),
        (
            json!({"pct_change": {"columns": ["price"], "by": [1], "gaps": "count_rows", "dtype": "float32"}}),
            "price_pct_change_1 Float32",
        ),
        (
            json!({"rolling": {"columns": ["qty"], "compute": ["mean", "std"], "over": ["7d", "28d"], "gap": "1d"}}),
            "qty_mean_7d Float64, qty_std_7d Float64, qty_mean_28d Float64, qty_std_28d Float64",
        ),
        (
            json!({"rolling": {"columns": ["n"], "dtype": "float32", "over": ["7d"], "compute": [
            {"quantile": 0.9}, {"quantile": 0.29}, {"quantile": 0.025}, "count", "first", "n_unique", "since_nonzero",
            "slope", "median"]}}),
            "n_q90_7d Float32, n_q29_7d Float32, n_q2.5_7d Float32, n_count_7d Int64, n_first_7d Int64, \
          n_n_unique_7d Int64, n_since_nonzero_7d Float32, n_slope_7d Float32, n_median_7d Float32",
        ),
        (
            json!({"rolling": {"columns": ["qty"], "compute": ["since_nonzero"], "over": [7], "gaps": "count_rows"}}),
            "qty_since_nonzero_7 Int64",
        ),
        (
            json!({"rolling": {"columns": ["qty"], "compute": ["mean", {"quantile": 0.9}], "over": [28], "gap": 1,
                            "gaps": "count_rows", "names": "mlforecast"}}),
            "rolling_mean_lag1_window_size28 Float64, rolling_quantile_lag1_p0.9_window_size28 Float64",
        ),
        (
            json!({"rolling": {"columns": ["qty"], "compute": ["mean"], "over": ["28d"], "gap": "1d", "min_periods": 7,
                            "names": "mlforecast"}}),
            "rolling_mean_lag1_window_size28_min_samples7 Float64",
        ),
        (
            json!({"expanding": {"columns": ["qty", "promo"], "compute": ["mean", "last"]}}),
            "qty_expanding_mean Float64, qty_expanding_last Int32, promo_expanding_mean Float64, \
          promo_expanding_last Boolean",
        ),
        (
            json!({"expanding": {"columns": ["qty"], "compute": ["mean"], "gap": "1d", "names": "mlforecast"}}),
            "expanding_mean_lag1 Float64",
        ),
        (
            json!({"ewm": {"columns": ["qty"], "compute": ["mean", "std"], "alpha": 0.3, "gaps": "count_rows"}}),
            "qty_ewm_mean_alpha0.3 Float64, qty_ewm_std_alpha0.3 Float64",
        ),
        (
            json!({"ewm": {"columns": ["qty"], "compute": ["mean"], "half_life": "7d"}}),
            "qty_ewm_mean_half_life7d Float64",
        ),
        (
            json!({"ewm": {"columns": ["qty"], "compute": ["mean"], "half_life": 3.5, "gaps": "count_rows"}}),
            "qty_ewm_mean_half_life3.5 Float64",
        ),
        (
            json!({"ewm": {"columns": ["qty"], "compute": ["mean"], "alpha": 0.3, "gap": 1, "gaps": "count_rows",
                        "names": "mlforecast"}}),
            "exponentially_weighted_mean_lag1_alpha0.3 Float64",
        ),
        (
            json!({"seasonal_rolling": {"columns": ["qty"], "compute": ["mean"], "season": 7, "over": [4],
                                     "gaps": "count_rows"}}),
            "qty_seasonal_mean_7x4 Float64",
        ),
        (
            json!({"seasonal_rolling": {"columns": ["qty"], "compute": ["mean"], "season": "7d", "over": [4], "gap": "1d",
                                     "names": "mlforecast"}}),
            "seasonal_rolling_mean_lag1_season_length7_window_size4 Float64",
        ),
        (
            json!({"seasonal_index": {"columns": ["qty", "n"], "period": "day_of_week", "gap": "1d"}}),
            "qty_day_of_week_index Float64, n_day_of_week_index Float64",
        ),
        (
            json!({"seasonal_index": {"columns": ["qty"], "period": {"expression": "store"}, "dtype": "float32",
                                   "shrink": {"strength": 5, "parent": ["item"]}}}),
            "qty_seasonal_index Float32",
        ),
        (json!({"fill_forward": {"columns": ["qty", "price"]}}), ""),
        (
            json!({"fill_forward": {"columns": ["at"], "suffix": "_filled"}}),
            "at_filled Timestamp(s)",
        ),
        (
            json!({"interpolate": {"columns": ["price", "qty"]}}),
            "qty Float64, price Float64",
        ),
        (
            json!({"interpolate": {"columns": ["price"], "suffix": "_line", "dtype": "float32"}}),
            "price_line Float32",
        ),
        (
            json!({"forecast_feature": {"columns": ["qty", "price"], "horizon": "14d", "every": "1d", "season": "7d"}}),
            "qty_theta_14d Float64, price_theta_14d Float64",
        ),
        (
            json!({"forecast_feature": {"columns": ["qty"], "horizon": "7d", "every": "1d", "model": "ets", "dtype": "float32"}}),
            "qty_ets_7d Float32",
        ),
        (
            json!({"pooled": {"columns": ["qty"], "compute": ["mean", "count"], "by": ["item", "promo"], "over": ["7d"]}}),
            "qty_item_promo_mean_7d Float64, qty_item_promo_count_7d Int64",
        ),
        (
            json!({"pooled": {"columns": ["qty"], "compute": ["median"], "aggregate": "sum", "over": ["7d"]}}),
            "qty_all_sum_median_7d Float64",
        ),
        (
            json!({"pooled": {"columns": ["qty"], "compute": ["max"], "by": ["item"]}}),
            "qty_item_expanding_max Float64",
        ),
    ];
    for (step, expected) in cases {
        assert_eq!(new_columns(&step), expected, "{step}");
    }
}

#[test]
fn one_step_is_one_window() {
    let step = json!({"rolling": {"columns": ["qty", "n"], "compute": ["mean", "last"], "over": ["7d", "28d"]}});
    let all = windows(&step);
    let [window] = all.as_slice() else {
        panic!("{} windows", all.len())
    };
    assert_eq!(
        (window.time.as_str(), window.keys.join(" ").as_str()),
        ("day", "store item")
    );
    // A mean of 64-bit integers is of numbers, a copy of one of its bits.
    assert_eq!(window.reads, ["qty", "n", "n"]);
    assert_eq!(window.plan.functions.len(), 8);
    // Of 28 days up to a row, the first lies 27 days before it.
    assert_eq!(window.plan.reach(), WindowReach::Ticks(vec![0..=27]));
    assert!(
        window
            .plan
            .functions
            .iter()
            .all(|function| function.compute.behind() == forebay_window::SeriesLength::ZERO)
    );
}

#[test]
fn reach_is_the_distances_of_what_decides() {
    let over = |closed| json!({"rolling": {"columns": ["qty"], "compute": ["mean"], "over": ["28d"], "gap": "1d", "closed": closed}});
    let lag = |by| json!({"lag": {"columns": ["qty"], "by": by}});
    for (step, reach) in [
        (over("right"), vec![0..=28]),
        (over("left"), vec![0..=29]),
        (over("both"), vec![0..=29]),
        (over("neither"), vec![0..=28]),
        (lag(json!(["28d"])), vec![0..=0, 28..=28]),
        (lag(json!(["2d", "7d", "8d"])), vec![0..=0, 2..=2, 7..=8]),
        (
            json!({"seasonal_rolling": {"columns": ["qty"], "compute": ["mean"], "season": "7d", "over": [3], "gap": "7d"}}),
            vec![0..=0, 7..=7, 14..=14, 21..=21],
        ),
    ] {
        assert_eq!(
            windows(&step)[0].plan.reach(),
            WindowReach::Ticks(reach),
            "{step}"
        );
    }
    // Windows over windows reach as far as both, and as each of them alone.
    let lags = |by| windows(&lag(json!([by])))[0].plan.reach();
    let week = lags("7d");
    let year = lags("364d");
    assert_eq!(
        week.clone().compose(year.clone()),
        WindowReach::Ticks(vec![0..=0, 7..=7, 364..=364, 371..=371])
    );
    assert_eq!(
        week.clone().union(year),
        WindowReach::Ticks(vec![0..=0, 7..=7, 364..=364])
    );
    let rows = json!({"lag": {"columns": ["qty"], "by": [1], "gaps": "count_rows"}});
    assert_eq!(
        week.union(windows(&rows)[0].plan.reach()),
        WindowReach::Unbounded
    );
}

#[test]
fn lengths_in_ticks_of_the_time() {
    let by = |time: &str, by: Value| {
        let step =
            json!({"lag": {"columns": ["qty"], "by": [by], "time": time, "gaps": "count_rows"}});
        windows(&step)[0].plan.functions[0].compute.clone()
    };
    let ticks = |by| WindowFunction::Lag {
        by: Ticks(by),
        as_of: None,
    };
    assert_eq!(by("day", json!("2w")), ticks(14));
    assert_eq!(by("day", json!("48h")), ticks(2));
    assert_eq!(by("at", json!("90min")), ticks(5400));
    assert_eq!(by("at", json!("3000ms")), ticks(3));
    assert_eq!(by("tick", json!("3t")), ticks(3));
    assert_eq!(
        by("tick", json!(3)),
        WindowFunction::Lag {
            by: Rows(3),
            as_of: None
        }
    );
    assert_eq!(
        "90min".parse(),
        Ok(LengthSpec::Time(TimeLength::Exact {
            count: 90,
            unit: ExactUnit::Minute
        }))
    );
    assert_eq!(LengthSpec::from(7).to_string(), "7");
}

#[test]
fn the_plan_says_what_was_asked() {
    let compute = |step: Value| windows(&step)[0].plan.functions[0].compute.clone();
    let lag =
        |as_of: Value| compute(json!({"lag": {"columns": ["qty"], "by": ["7d"], "as_of": as_of}}));
    assert_eq!(
        lag(json!("3d")),
        WindowFunction::Lag {
            by: Ticks(7),
            as_of: Some(3.into())
        }
    );
    assert_eq!(
        lag(json!(true)),
        WindowFunction::Lag {
            by: Ticks(7),
            as_of: Some(i64::MAX.into())
        }
    );
    let rolling = |rest: Value| {
        let mut step = json!({"columns": ["qty"], "compute": ["slope"], "over": ["2w"]});
        rest.as_object()
            .unwrap()
            .iter()
            .for_each(|(key, value)| step[key] = value.clone());
        compute(json!({ "rolling": step }))
    };
    let window = |over, gap, closed, stat, min_periods| WindowFunction::Window {
        frame: SeriesFrame::Rolling { over, gap, closed },
        stat,
        min_periods,
    };
    let by_time =
        |stat, min_periods| window(Ticks(14), Ticks(1), ClosedEnds::Left, stat, min_periods);
    assert_eq!(
        rolling(json!({"gap": "1d", "closed": "left"})),
        by_time(WindowStat::Slope { unit: Some(7) }, 1)
    );
    assert_eq!(
        rolling(json!({"gap": "1d", "closed": "left", "compute": ["count"]})),
        by_time(WindowStat::Count, 0)
    );
    assert_eq!(
        rolling(
            json!({"gap": "1d", "closed": "left", "compute": ["std"], "ddof": 0, "min_periods": "50%",
                       "gaps": {"warn": {"every": "1d"}}})
        ),
        by_time(WindowStat::Std { ddof: 0 }, 7)
    );
    let by_rows = |closed, stat, min_periods| window(Rows(5), Rows(0), closed, stat, min_periods);
    assert_eq!(
        rolling(json!({"over": [5], "gaps": "count_rows"})),
        by_rows(ClosedEnds::Right, WindowStat::Slope { unit: None }, 5)
    );
    assert_eq!(
        rolling(
            json!({"over": [5], "compute": ["median"], "min_periods": "50%", "gaps": "count_rows"})
        ),
        by_rows(ClosedEnds::Right, WindowStat::Quantile(0.5), 3)
    );
    assert_eq!(
        rolling(
            json!({"over": [5], "compute": ["sum"], "closed": "neither", "gaps": "count_rows"})
        ),
        by_rows(ClosedEnds::Neither, WindowStat::Sum, 4)
    );
    let ewm = |decay: &str, value: Value| {
        let step = json!({"ewm": {"columns": ["qty"], "compute": ["mean"], decay: value, "gaps": "count_rows"}});
        match compute(step) {
            WindowFunction::Ewm { decay, .. } => decay,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ewm("span", json!(3)), EwmDecay::Alpha(0.5));
    assert_eq!(ewm("com", json!(1)), EwmDecay::Alpha(0.5));
    assert_eq!(ewm("half_life", json!(1)), EwmDecay::Alpha(0.5));
    assert_eq!(ewm("half_life", json!("1w")), EwmDecay::HalfLife(7.0));
    let gaps = |gaps: Value| {
        windows(&json!({"lag": {"columns": ["qty"], "by": [1], "gaps": gaps}}))[0]
            .plan
            .gaps
    };
    let complete = |fill: Value| gaps(json!({"complete": {"every": "1d", "fill": fill}}));
    assert_eq!(gaps(json!("count_rows")), GapHandling::CountRows);
    assert_eq!(
        gaps(json!({"error": {"every": "1w"}})),
        GapHandling::Error { every: 7.into() }
    );
    assert_eq!(
        complete(json!(null)),
        GapHandling::Complete {
            every: 1.into(),
            fill: PeriodFill::Null
        }
    );
    assert_eq!(
        complete(json!("forward")),
        GapHandling::Complete {
            every: 1.into(),
            fill: PeriodFill::Forward
        }
    );
}

#[test]
fn helpers_stay_hidden() {
    let step = json!({"seasonal_index": {"columns": ["qty"], "period": "month", "shrink": {"strength": 1, "parent": []}}});
    let bound = bind_step(&step, true).unwrap();
    assert!(
        bound.flows["out"]
            .schema
            .fields()
            .iter()
            .all(|field| !field.name().starts_with("__"))
    );
    assert_eq!(bound.flows["out"].series, bound.flows["this"].series);
    let both = windows(&json!({"interpolate": {"columns": ["price"]}}));
    assert_eq!(
        both.iter()
            .map(|window| window.backward)
            .collect::<Vec<_>>(),
        [false, true]
    );
}

#[test]
fn faults() {
    let lag = |rest: Value| with_fields(json!({"columns": ["qty"], "by": ["1w"]}), "lag", rest);
    let rolling = |rest: Value| {
        with_fields(
            json!({"columns": ["qty"], "compute": ["mean"], "over": ["7d"]}),
            "rolling",
            rest,
        )
    };
    let ewm = |rest: Value| {
        with_fields(
            json!({"columns": ["qty"], "compute": ["mean"], "gaps": "count_rows"}),
            "ewm",
            rest,
        )
    };
    let pooled = |rest: Value| {
        with_fields(
            json!({"columns": ["qty"], "compute": ["mean"], "over": ["7d"]}),
            "pooled",
            rest,
        )
    };
    let index = |rest: Value| {
        with_fields(
            json!({"columns": ["qty"], "period": "day_of_week"}),
            "seasonal_index",
            rest,
        )
    };
    let forecast = |rest: Value| {
        with_fields(
            json!({"columns": ["qty"], "horizon": "7d", "every": "1d"}),
            "forecast_feature",
            rest,
        )
    };
    let cases: Vec<(Value, FaultCode, &str)> = vec![
        (
            lag(json!({"by": [7]})),
            codes::MISSING_FIELD,
            "`lag` counts rows: say what a missing period of a series means",
        ),
        (lag(json!({"by": []})), codes::BAD_VALUE, "`by` is empty"),
        (
            lag(json!({"by": [0]})),
            codes::BAD_VALUE,
            "`by: 0` is the row itself",
        ),
        (
            lag(json!({"by": [-1]})),
            codes::BAD_VALUE,
            "`-1` would look ahead",
        ),
        (
            lag(json!({"by": ["7"]})),
            codes::BAD_VALUE,
            "`7` has no unit; hint: write `7d` for days, or without quotes for rows",
        ),
        (
            lag(json!({"by": ["7x"]})),
            codes::BAD_VALUE,
            "`7x` is not a length; hint: write a number of rows (7), or a whole number and a unit (7d, 12h)",
        ),
        (
            lag(json!({"by": ["d"]})),
            codes::BAD_VALUE,
            "`d` is not a length; hint: write a number of rows (7), or a whole number and a unit (7d, 12h)",
        ),
        (
            lag(json!({"by": ["12h"]})),
            codes::BAD_VALUE,
            "`12h` is not a whole number of days, and `day` holds dates",
        ),
        (
            lag(json!({"by": ["5ms"], "time": "at"})),
            codes::BAD_VALUE,
            "`5ms` is finer than `at`, which is a timestamp_s",
        ),
        (
            lag(json!({"by": ["7t"]})),
            codes::BAD_VALUE,
            "`7t` counts integers, and `day` is a date",
        ),
        (
            lag(json!({"time": "tick"})),
            codes::BAD_VALUE,
            "`1w` cannot be told from `tick`, which is an integer",
        ),
        (
            lag(json!({"time": "price"})),
            codes::COLUMN_TYPE,
            "`price` is float32, not a date, timestamp or signed integer",
        ),
        (
            lag(json!({"time": "dya"})),
            codes::UNKNOWN_COLUMN,
            "there is no column `dya` here",
        ),
        (
            lag(json!({"keys": ["stores"]})),
            codes::UNKNOWN_COLUMN,
            "there is no column `stores` here",
        ),
        (
            lag(json!({"by": ["1d"]})),
            codes::COLUMN_CLASH,
            "`lag` writes `qty_lag_1d`, which exists already",
        ),
        (
            lag(json!({"by": ["1w", "1w"]})),
            codes::COLUMN_CLASH,
            "`out.lag` writes `qty_lag_1w`, which exists already and is not its input",
        ),
        (
            lag(json!({"by": [7], "as_of": true, "gaps": "count_rows"})),
            codes::BAD_VALUE,
            "`as_of` goes with lengths of time, and `by: 7` is rows",
        ),
        (
            lag(json!({"gaps": {"error": {"every": 7}}})),
            codes::BAD_VALUE,
            "`7` is a number of rows where a length of time is needed",
        ),
        (
            lag(json!({"gaps": {"complete": {"every": "0d"}}})),
            codes::BAD_VALUE,
            "`every` of `gaps` is zero",
        ),
        (
            lag(json!({"time": "at", "names": "mlforecast"})),
            codes::BAD_VALUE,
            "`names: mlforecast` counts periods, and `1w` is a time",
        ),
        (
            lag(json!({"by": ["3d"], "names": "mlforecast", "gaps": {"warn": {"every": "2d"}}})),
            codes::BAD_VALUE,
            "`3d` is no whole number of the periods that `gaps` declares",
        ),
        (
            rolling(json!({"compute": []})),
            codes::BAD_VALUE,
            "`compute` is empty",
        ),
        (
            rolling(json!({"over": [0]})),
            codes::BAD_VALUE,
            "a window of `over: 0` holds nothing",
        ),
        (
            rolling(json!({"gap": 1})),
            codes::BAD_VALUE,
            "`gap: 1` and `over: 7d` are not both rows or both lengths of time",
        ),
        (
            rolling(json!({"over": [7], "gap": "1d"})),
            codes::BAD_VALUE,
            "`gap: 1d` and `over: 7` are not both rows or both lengths of time",
        ),
        (
            rolling(json!({"over": [7]})),
            codes::MISSING_FIELD,
            "`rolling` counts rows: say what a missing period of a series means",
        ),
        (
            rolling(json!({"over": [7], "min_periods": 8, "gaps": "count_rows"})),
            codes::BAD_VALUE,
            "`min_periods` is 8, and the window holds 7 rows at most",
        ),
        (
            rolling(json!({"min_periods": "50%"})),
            codes::BAD_VALUE,
            "`min_periods: 50%` needs to know how many rows a window of time holds",
        ),
        (
            rolling(json!({"min_periods": "half"})),
            codes::BAD_VALUE,
            "`half` is neither a number of values (14) nor a share of the rows (50%)",
        ),
        (
            rolling(json!({"compute": [{"quantile": 1.5}]})),
            codes::BAD_VALUE,
            "`quantile: 1.5` is not between 0 and 1",
        ),
        (
            rolling(json!({"columns": ["day"]})),
            codes::COLUMN_TYPE,
            "`day` is a date, not a number or boolean",
        ),
        (
            with_fields(
                json!({"columns": ["qty"], "compute": ["slope"]}),
                "expanding",
                json!({}),
            ),
            codes::MISSING_FIELD,
            "`expanding` counts rows: say what a missing period of a series means",
        ),
        (
            ewm(json!({})),
            codes::BAD_VALUE,
            "exactly one of `alpha`, `span`, `com` and `half_life` has to be given",
        ),
        (
            ewm(json!({"alpha": 0.5, "span": 3})),
            codes::BAD_VALUE,
            "exactly one of `alpha`, `span`, `com` and `half_life` has to be given",
        ),
        (
            ewm(json!({"alpha": 0})),
            codes::BAD_VALUE,
            "`alpha: 0` is not above 0 and at most 1",
        ),
        (
            ewm(json!({"span": 0.5})),
            codes::BAD_VALUE,
            "`span: 0.5` is not at least 1",
        ),
        (
            ewm(json!({"com": -1})),
            codes::BAD_VALUE,
            "`com: -1` is not at least 0",
        ),
        (
            ewm(json!({"half_life": "7d", "adjust": false})),
            codes::BAD_VALUE,
            "`adjust: false` does not go with a half-life of time",
        ),
        (
            ewm(json!({"half_life": "7d", "gap": 1})),
            codes::BAD_VALUE,
            "`gap: 1` and `half_life: 7d` are not both rows or both lengths of time",
        ),
        (
            with_fields(
                json!({"columns": ["qty"], "compute": ["mean"], "season": "0d", "over": [4]}),
                "seasonal_rolling",
                json!({}),
            ),
            codes::BAD_VALUE,
            "`season: 0d` is no distance",
        ),
        (
            index(json!({"period": "hour"})),
            codes::COLUMN_TYPE,
            "`day` is a date, not a timestamp",
        ),
        (
            index(json!({"time": "tick"})),
            codes::COLUMN_TYPE,
            "`tick` is int64, not a date or timestamp",
        ),
        (
            index(json!({"period": {"expression": "price / 2"}})),
            codes::EXPRESSION,
            "`price / 2` is float32, not an integer, string, boolean or date",
        ),
        (
            index(json!({"shrink": {"strength": -1}})),
            codes::BAD_VALUE,
            "`strength: -1` is not a number of values",
        ),
        (
            index(json!({"gap": 1, "gaps": "count_rows", "shrink": {"strength": 1, "parent": []}})),
            codes::BAD_VALUE,
            "`gap: 1` is rows, and a `parent` takes a length of time",
        ),
        (
            with_fields(
                json!({"columns": ["qty"], "limit": 2}),
                "fill_forward",
                json!({}),
            ),
            codes::MISSING_FIELD,
            "`fill_forward` counts rows: say what a missing period of a series means",
        ),
        (
            with_fields(json!({"columns": ["item"]}), "fill_forward", json!({})),
            codes::COLUMN_CLASH,
            "`fill_forward` writes `item`, which exists already",
        ),
        (
            pooled(json!({"over": [7]})),
            codes::BAD_VALUE,
            "`7` is a number of rows where a length of time is needed",
        ),
        (
            pooled(json!({"compute": ["median"]})),
            codes::BAD_VALUE,
            "`median` of all rows' values is not kept for each time",
        ),
        (
            pooled(json!({"compute": ["slope"], "over": [], "aggregate": "sum"})),
            codes::BAD_VALUE,
            "`slope` of everything before needs a unit of time",
        ),
        (
            forecast(json!({"horizon": 7})),
            codes::BAD_VALUE,
            "`7` is a number of rows where a length of time is needed",
        ),
        (
            forecast(json!({"every": "2d"})),
            codes::BAD_VALUE,
            "`horizon: 7d` is no whole number of steps of `every: 2d`",
        ),
        (
            forecast(json!({"every": "0d"})),
            codes::BAD_VALUE,
            "`every: 0d` is no distance",
        ),
        (
            forecast(json!({"refit": "0d"})),
            codes::BAD_VALUE,
            "`refit: 0d` is no whole number of steps of `every: 1d`",
        ),
        (
            forecast(json!({"season": "1mo"})),
            codes::BAD_VALUE,
            "`season: 1mo` is no whole number of steps of `every: 1d`",
        ),
        (
            forecast(json!({"season": "10001d"})),
            codes::BAD_VALUE,
            "a season has at most 10000 steps",
        ),
    ];
    for (step, code, message) in cases {
        let fault = bind_step(&step, true)
            .err()
            .unwrap_or_else(|| panic!("{step}"));
        assert_eq!(
            (fault.code().name, fault.message()),
            (code.name, message),
            "{step}"
        );
    }
    let fault = bind_step(&lag(json!({})), false).err().unwrap();
    assert_eq!(
        (fault.code().name, fault.message()),
        (
            codes::MISSING_FIELD.name,
            "`lag` needs the event-time column"
        )
    );
    let fault = bind_step(&lag(json!({"time": "day"})), false)
        .err()
        .unwrap();
    assert_eq!(
        fault.message(),
        "`lag` needs the columns that tell series apart"
    );
    assert!(bind_step(&lag(json!({"time": "day", "keys": []})), false).is_ok());
}

/// A step of these fields, some of them replaced.
fn with_fields(mut fields: Value, kind: &str, rest: Value) -> Value {
    rest.as_object()
        .unwrap()
        .iter()
        .for_each(|(key, value)| fields[key] = value.clone());
    json!({ kind: fields })
}
