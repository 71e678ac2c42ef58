//! Stored text of a window plan. A change of this text changes ids of operations and hashes in
//! window states.

#![allow(clippy::unwrap_used)] // Only tests are here.

use arrow::datatypes::{DataType, TimeUnit};
use forebay_window::{
    ClosedEnds, DuplicateCheck, EwmDecay, EwmStat, GapHandling, PeriodFill, SeriesFrame,
    SeriesLength, WindowFunction, WindowInput, WindowOutput, WindowPlan, WindowStat, WordEncoding,
};

#[test]
fn a_plan_is_stored_as_before() {
    let function = |compute| WindowOutput {
        input: 0,
        compute,
        data_type: DataType::Float64,
    };
    let window = |frame, stat| {
        function(WindowFunction::Window {
            frame,
            stat,
            min_periods: 1,
        })
    };
    let rolling = SeriesFrame::Rolling {
        over: SeriesLength::Rows(7),
        gap: SeriesLength::ZERO,
        closed: ClosedEnds::Left,
    };
    let seasonal = SeriesFrame::Seasonal {
        season: SeriesLength::Ticks(7),
        over: 4,
        gap: SeriesLength::Ticks(1),
    };
    let plan = WindowPlan {
        time: DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        keys: vec![DataType::Utf8, DataType::Decimal128(20, 0)],
        inputs: vec![WindowInput {
            data_type: DataType::Float64,
            keep: WordEncoding::Number,
        }],
        functions: vec![
            function(WindowFunction::Lag {
                by: SeriesLength::Ticks(7),
                as_of: Some(2.into()),
            }),
            function(WindowFunction::LastValid { limit: None }),
            window(rolling, WindowStat::Quantile(0.5)),
            window(seasonal, WindowStat::Var { ddof: 1 }),
            window(
                SeriesFrame::Expanding {
                    gap: SeriesLength::ZERO,
                },
                WindowStat::SinceNonzero { unit: None },
            ),
            function(WindowFunction::Ewm {
                decay: EwmDecay::HalfLife(2.5),
                adjust: true,
                ignore_na: false,
                stat: EwmStat::Mean,
                gap: SeriesLength::ZERO,
                min_periods: 0,
            }),
        ],
        duplicates: DuplicateCheck::default(),
        gaps: GapHandling::Complete {
            every: 86_400_000_000.into(),
            fill: PeriodFill::Forward,
        },
    };
    let stored = serde_json::json!({
        "time": "Timestamp(µs, \"UTC\")",
        "keys": ["Utf8", "Decimal128(20, 0)"],
        "inputs": [{ "data_type": "Float64", "keep": "number" }],
        "functions": [
            { "input": 0, "data_type": "Float64", "compute": { "lag": { "by": { "ticks": 7 }, "as_of": 2 } } },
            { "input": 0, "data_type": "Float64", "compute": { "last_valid": { "limit": null } } },
            { "input": 0, "data_type": "Float64", "compute": { "window": {
                "frame": { "rolling": { "over": { "rows": 7 }, "gap": { "rows": 0 }, "closed": "left" } },
                "stat": { "quantile": 0.5 },
                "min_periods": 1,
            } } },
            { "input": 0, "data_type": "Float64", "compute": { "window": {
                "frame": { "seasonal": { "season": { "ticks": 7 }, "over": 4, "gap": { "ticks": 1 } } },
                "stat": { "var": { "ddof": 1 } },
                "min_periods": 1,
            } } },
            { "input": 0, "data_type": "Float64", "compute": { "window": {
                "frame": { "expanding": { "gap": { "rows": 0 } } },
                "stat": { "since_nonzero": { "unit": null } },
                "min_periods": 1,
            } } },
            { "input": 0, "data_type": "Float64", "compute": { "ewm": {
                "decay": { "half_life": 2.5 },
                "adjust": true,
                "ignore_na": false,
                "stat": "mean",
                "gap": { "rows": 0 },
                "min_periods": 0,
            } } },
        ],
        "gaps": { "complete": { "every": 86_400_000_000_i64, "fill": "forward" } },
    });
    assert_eq!(plan.to_json().unwrap(), stored);
}
