//! Windows by the calendar of a time column, against a naive computation, in any division of the rows.

#![allow(clippy::unwrap_used)] // Only tests are here.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, TimestampSecondArray};
use arrow::datatypes::{DataType, Float64Type, TimeUnit};
use forebay_model::{CalendarSpan, ColumnClock, DuplicateRows, TimeDistance};
use forebay_window::{
    ClosedEnds, DuplicateCheck, GapHandling, InputRows, PeriodFill, SeriesFrame, SeriesLength,
    WindowEngine, WindowFunction, WindowInput, WindowOutput, WindowPlan, WindowStat, WordEncoding,
};
use proptest::prelude::*;
use proptest::sample::select;

const ZONES: [&str; 5] = [
    "Europe/Berlin",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "UTC",
];

fn column(zone: &str) -> DataType {
    DataType::Timestamp(TimeUnit::Second, Some(zone.into()))
}

fn plan(zone: &str, functions: Vec<WindowFunction>, gaps: GapHandling) -> Arc<WindowPlan> {
    let output = |compute| WindowOutput {
        input: 0,
        compute,
        data_type: DataType::Float64,
    };
    Arc::new(WindowPlan {
        time: column(zone),
        keys: vec![DataType::Int64],
        inputs: vec![WindowInput {
            data_type: DataType::Float64,
            keep: WordEncoding::Number,
        }],
        functions: functions.into_iter().map(output).collect(),
        gaps,
        duplicates: DuplicateCheck {
            policy: DuplicateRows::Allow,
            ..DuplicateCheck::default()
        },
    })
}

/// The outputs of all rows of one series, pushed in pieces; the state is stored and read again between them.
fn run(
    plan: &Arc<WindowPlan>,
    zone: &str,
    times: &[i64],
    pieces: &[usize],
) -> Vec<Vec<Option<f64>>> {
    let mut engine = WindowEngine::new(plan.clone());
    let emit = vec![true; plan.functions.len()];
    let mut outputs = vec![Vec::new(); plan.functions.len()];
    let mut first = 0;
    let mut pieces = pieces.iter().cycle();
    while first < times.len() {
        let rows = (*pieces.next().unwrap()).clamp(1, times.len() - first);
        let piece = first..first + rows;
        let time = TimestampSecondArray::from(times[piece.clone()].to_vec()).with_timezone(zone);
        let values = Float64Array::from_iter_values(piece.clone().map(|row| row as f64));
        let keys: [ArrayRef; 1] = [Arc::new(Int64Array::from(vec![1; rows]))];
        let inputs: [ArrayRef; 1] = [Arc::new(values)];
        let time: ArrayRef = Arc::new(time);
        let pushed = InputRows {
            keys: &keys,
            time: &time,
            inputs: &inputs,
            rows,
        };
        for (output, column) in outputs.iter_mut().zip(engine.push(&pushed, &emit).unwrap()) {
            output.extend(column.as_primitive::<Float64Type>().iter());
        }
        let mut stored = Vec::new();
        engine.encode(&mut stored).unwrap();
        engine = WindowEngine::decode(plan.clone(), 1, &mut &stored[..]).unwrap();
        first = piece.end;
    }
    outputs
}

/// The time of the bound of a row: the rule in its own words, over all rows of the series.
fn bound(clock: &ColumnClock, times: &[i64], span: CalendarSpan) -> i64 {
    let row = *times.last().unwrap();
    let before = clock.earlier(row, span).unwrap();
    if times.contains(&before) {
        return before;
    }
    let unit = if span.months > 0 {
        CalendarSpan::months(1)
    } else {
        CalendarSpan::days(1)
    };
    let anchored = |first: i64| {
        let steps = (0..2_000).map(|count| clock.later(first, unit.times(count)));
        let grid: Vec<Option<i64>> = steps.take_while(|step| *step <= Some(row)).collect();
        let mut since = times.iter().filter(|time| **time >= first);
        let is_alone = times.iter().filter(|time| **time == first).count() == 1;
        is_alone
            && span.ticks == 0
            && clock.later(first, span) == Some(row)
            && since.all(|time| grid.contains(&Some(*time)))
    };
    let after = times.iter().copied().find(|time| *time > before);
    let last = times.iter().copied().rfind(|time| *time < before);
    let last = last.filter(|_| !clock.has_even_days());
    let mut next = [after, last].into_iter().flatten();
    next.find(|time| anchored(*time)).unwrap_or(before)
}

fn span() -> impl Strategy<Value = CalendarSpan> {
    prop_oneof![
        (1..4i64).prop_map(CalendarSpan::months),
        (1..9i64).prop_map(CalendarSpan::days),
        (1..3i64).prop_map(|days| CalendarSpan::days(days).plus(CalendarSpan::ticks(3_600))),
    ]
}

/// Times of a series: civil steps from an anchor, some of them missing, twice, or off the grid.
fn times(zone: &'static str) -> impl Strategy<Value = Vec<i64>> {
    // Around the changes of the clock of all zones, and Samoa's day that there was not.
    let anchors = vec![
        "2018-11-01T00:00:00",
        "2018-10-30T00:30:00",
        "2024-01-31T00:00:00",
        "2024-03-29T02:30:00",
        "2024-04-05T01:45:00",
        "2011-12-27T00:00:00",
        "2023-08-30T12:00:00",
    ];
    let unit = select(vec![
        CalendarSpan::days(1),
        CalendarSpan::months(1),
        CalendarSpan::ticks(7_200),
    ]);
    let kept = prop::collection::vec((0..10u8, 0..20i64), 1..40);
    (select(anchors), unit, kept).prop_map(move |(anchor, unit, kept)| {
        let clock = ColumnClock::of(&column(zone)).unwrap().unwrap();
        let anchor = clock.read(anchor).unwrap() / 1_000_000_000;
        let mut times = Vec::new();
        for (step, (fate, shift)) in kept.into_iter().enumerate() {
            let time = clock.later(anchor as i64, unit.times(step as i64)).unwrap();
            match fate {
                0 => {}
                1 => times.extend([time, time]),
                2 => times.extend([time, time + shift * 1_800]),
                _ => times.push(time),
            }
        }
        times.sort_unstable();
        times
    })
}

fn any_case() -> impl Strategy<Value = (&'static str, Vec<i64>)> {
    select(ZONES.to_vec()).prop_flat_map(|zone| (Just(zone), times(zone)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn windows_are_those_of_the_rule(
        (zone, times) in any_case(),
        spans in prop::collection::vec(span(), 1..4),
        pieces in prop::collection::vec(1..9usize, 1..5),
    ) {
        let clock = ColumnClock::of(&column(zone)).unwrap().unwrap();
        let lags = spans.iter().map(|span| WindowFunction::Lag {
            by: SeriesLength::Calendar(*span),
            as_of: None,
        });
        let counts = spans.iter().map(|span| WindowFunction::Window {
            frame: SeriesFrame::Rolling {
                over: SeriesLength::Calendar(*span),
                gap: SeriesLength::ZERO,
                closed: ClosedEnds::Right,
            },
            stat: WindowStat::Count,
            min_periods: 0,
        });
        let sums = spans.iter().map(|span| WindowFunction::Window {
            frame: SeriesFrame::Expanding {
                gap: SeriesLength::Calendar(*span),
            },
            stat: WindowStat::Count,
            min_periods: 0,
        });
        let functions: Vec<WindowFunction> = lags.chain(counts).chain(sums).collect();
        let plan = plan(zone, functions, GapHandling::CountRows);
        let found = run(&plan, zone, &times, &pieces);
        let number = spans.len();
        for (place, span) in spans.iter().enumerate() {
            for row in 0..times.len() {
                let times = &times[..=row];
                let bound = bound(&clock, times, *span);
                let lag = times.iter().rposition(|time| *time == bound);
                prop_assert_eq!(found[place][row], lag.map(|row| row as f64), "lag {:?} at {}", span, row);
                let count = times.iter().filter(|time| **time > bound).count() as f64;
                prop_assert_eq!(found[number + place][row], Some(count), "window {:?} at {}", span, row);
            }
        }
        let whole = run(&plan, zone, &times, &[times.len().max(1)]);
        prop_assert_eq!(found, whole);
    }
}

/// Local midnights of days that follow each other.
fn midnights(zone: &str, first: &str, days: i64) -> Vec<i64> {
    let clock = ColumnClock::of(&column(zone)).unwrap().unwrap();
    let first = (clock.read(first).unwrap() / 1_000_000_000) as i64;
    let day = |count| clock.later(first, CalendarSpan::days(count)).unwrap();
    (0..days).map(day).collect()
}

#[test]
fn days_keep_their_neighbours_when_the_clock_changes() {
    for (zone, first) in [
        ("Europe/Berlin", "2024-03-28"),
        ("Europe/Berlin", "2024-10-24"),
        ("America/Sao_Paulo", "2018-11-01"),
        ("Australia/Lord_Howe", "2024-04-04"),
    ] {
        let times = midnights(zone, first, 8);
        let day = TimeDistance::Calendar(CalendarSpan::days(1));
        let lag = WindowFunction::Lag {
            by: day.into(),
            as_of: None,
        };
        let before: Vec<Option<f64>> = std::iter::once(None)
            .chain((0..7).map(|row| Some(f64::from(row))))
            .collect();
        let by_time = plan(zone, vec![lag], GapHandling::CountRows);
        assert_eq!(run(&by_time, zone, &times, &[3])[0], before, "{zone}");
        let by_rows = WindowFunction::Lag {
            by: SeriesLength::Rows(1),
            as_of: None,
        };
        let gaps = GapHandling::Error { every: day };
        let by_rows_plan = plan(zone, vec![by_rows.clone()], gaps);
        assert_eq!(run(&by_rows_plan, zone, &times, &[2])[0], before, "{zone}");
        // A missing day is a row.
        let fill = PeriodFill::Null;
        let complete = plan(
            zone,
            vec![by_rows],
            GapHandling::Complete { every: day, fill },
        );
        for missing in 1..7 {
            let mut times = times.clone();
            times.remove(missing);
            let lagged = run(&complete, zone, &times, &[8])[0].clone();
            let expected = (0..7).map(|row| match row {
                0 => None,
                row if row == missing => None,
                row => Some(row as f64 - 1.0),
            });
            assert_eq!(
                lagged,
                expected.collect::<Vec<_>>(),
                "{zone} without {missing}"
            );
        }
    }
}
