//! Label leakage check. Every column has an age: how far before its row's time its data ends. Features written by a
//! sink must end before the label is predicted.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::{Field, Schema};
use forebay_contract::StepStrategy;
use forebay_model::{
    DAY_NANOSECONDS, Fault, Pipeline, PipelineSink, PredictionLabel, Result, SpecLocation, codes,
    month_nanoseconds,
};
use forebay_window::SeriesLength;

use crate::column_age::{AgeWalk, ColumnAges, WalkFocus};
use crate::data_age::{AgeTrace, DataAge};
use crate::feature_columns::{taken_columns, taken_of_step};
use crate::feature_facts::ReaderFacts;
use crate::label_horizon::LabelHorizon;
use crate::step_columns::FEED_FORMAT;
use crate::{
    BaseDataset, BoundPipeline, ColumnLineage, FutureFlow, NodeFlow, OpStream, base_column,
    unknown_column,
};

/// Rows with the columns that must be known when the label is predicted.
struct JudgedRows<'a> {
    /// Reader of the rows, for people: sink `net`.
    taker: String,
    at: Option<&'a SpecLocation>,
    flow: &'a NodeFlow,
    columns: Vec<String>,
    strategy: Option<StepStrategy>,
}

impl<'a> JudgedRows<'a> {
    /// The rows of a sink or a training: the columns that a model takes. A table that no training and no feed reads with
    /// it is one of features as a whole.
    fn of_sink(
        pipeline: &Pipeline,
        bound: &'a BoundPipeline,
        label: &PredictionLabel,
        readers: &ReaderFacts,
        sink: &'a PipelineSink,
    ) -> Option<JudgedRows<'a>> {
        let flow = flow_with_label(bound, label, &sink.from)?;
        let is_training = pipeline
            .trainings
            .iter()
            .any(|training| training.name == sink.name);
        let columns_taken = if is_training {
            let facts = readers.trainings.get(&sink.name)?;
            Some(taken_columns(pipeline, bound, &flow.schema, facts))
        } else {
            taken_of_step(pipeline, bound, &flow.schema, readers, &sink.from)
        };
        let strategy = if is_training {
            readers.strategy(sink)
        } else if sink.format == FEED_FORMAT {
            readers.feed_strategy(pipeline, &sink.from)
        } else {
            None
        };
        Some(JudgedRows {
            taker: format!("sink `{}`", sink.name),
            at: sink.at.as_ref(),
            flow,
            columns: judged_columns(flow, label, columns_taken.as_ref()),
            strategy,
        })
    }

    /// The rows of the feed, judged by the strategy of the first training that has one and reads the
    /// same rows.
    fn of_feed(
        pipeline: &'a Pipeline,
        bound: &'a BoundPipeline,
        label: &PredictionLabel,
        readers: &ReaderFacts,
    ) -> Option<JudgedRows<'a>> {
        let feed = pipeline.feed.as_ref()?;
        let facts = readers.feed.as_ref()?;
        let from = facts.from.as_deref()?;
        let flow = flow_with_label(bound, label, from)?;
        let mut trainings = pipeline
            .trainings
            .iter()
            .filter(|training| training.from == from);
        let columns_taken = taken_columns(pipeline, bound, &flow.schema, &facts.features);
        Some(JudgedRows {
            taker: "the feed".to_owned(),
            at: feed.at.as_ref(),
            flow,
            columns: judged_columns(flow, label, Some(&columns_taken)),
            strategy: trainings.find_map(|training| readers.strategy(training)),
        })
    }

    /// The columns that streams of the rows know too late.
    fn leaks(
        &self,
        ages: &ColumnAges<'_>,
        streams: &[OpStream],
        is_known: impl Fn(DataAge) -> bool,
    ) -> Vec<ColumnLeak> {
        let mut leaks = Vec::new();
        for column in &self.columns {
            let mut traces = streams.iter().map(|stream| ages.trace(stream, column));
            if let Some(trace) = traces.find(|trace| !is_known(trace.ends)) {
                leaks.push(ColumnLeak {
                    column: column.clone(),
                    trace,
                });
            }
        }
        leaks
    }
}

fn flow_with_label<'a>(
    bound: &'a BoundPipeline,
    label: &PredictionLabel,
    from: &str,
) -> Option<&'a NodeFlow> {
    let flow = bound.flows.get(from)?;
    let has_label = flow.schema.field_with_name(&label.column).is_ok();
    has_label.then_some(flow)
}

/// The columns of a flow but for the label: those that are taken, or all.
fn judged_columns(
    flow: &NodeFlow,
    label: &PredictionLabel,
    columns_taken: Option<&BTreeSet<String>>,
) -> Vec<String> {
    let names = flow.schema.fields().iter().map(|field| field.name());
    let is_judged = |name: &&String| {
        **name != label.column
            && columns_taken.is_none_or(|columns_taken| columns_taken.contains(*name))
    };
    names.filter(is_judged).cloned().collect()
}

/// Refuses sinks with features that are not known when the label is predicted.
pub(crate) fn check_leakage(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    readers: &ReaderFacts,
) -> Result<()> {
    let Some(label) = &pipeline.label else {
        return Ok(());
    };
    // If its values were known, every feature made of them would pass.
    if label.known.contains(&label.column) {
        let message = format!("`{0}` is the label, and `known` lists it", label.column);
        let fault = Fault::new(codes::LEAKAGE, message).column(&label.column);
        let hint = "take it out of `known`: its values are those that are predicted";
        return Err(fault.at(label.at.as_ref()).hint(hint));
    }
    let Some(horizon) = LabelHorizon::of(label, pipeline, bound)? else {
        return Ok(());
    };
    let ages = ColumnAges::new(pipeline, bound, label);
    let with_label = label.known.iter().chain([&label.column]).cloned().collect();
    let predicted_label = PredictionLabel {
        known: with_label,
        ..label.clone()
    };
    let predicted_ages = ColumnAges::new(pipeline, bound, &predicted_label);
    // A model for each step of the horizon takes what is known one step ahead.
    let one_step = PredictionLabel {
        horizon: Some("one step".to_owned()),
        ..label.clone()
    };
    // Rows that are written for a training may have columns that its own step drops: that step is checked.
    let sinks = pipeline.sinks.iter().filter(|sink| {
        !is_training_input(pipeline, sink) && !is_judged_by_readers(pipeline, readers, sink)
    });
    let judged = sinks
        .chain(&pipeline.trainings)
        .filter_map(|sink| JudgedRows::of_sink(pipeline, bound, label, readers, sink))
        .chain(JudgedRows::of_feed(pipeline, bound, label, readers));
    let mut faults = Vec::new();
    for rows in judged {
        let steps = rows
            .flow
            .future
            .as_deref()
            .filter(|_| rows.strategy.is_some());
        if steps.is_none() && rows.strategy.is_some() {
            // Refused with its training: without rows of the future there are no steps.
            continue;
        }
        let judged_label = if steps.is_some() { &one_step } else { label };
        let leaks = rows.leaks(&ages, &rows.flow.streams, |ends| match steps {
            Some(future) => horizon.steps_ahead(ends, future) > 0,
            None => horizon.allows(ends),
        });
        let is_clean = leaks.is_empty();
        let of_group =
            |group: &Vec<ColumnLeak>| leak_fault(&rows.taker, judged_label, group).at(rows.at);
        faults.extend(fault_groups(leaks).iter().map(of_group));
        let Some(future) =
            steps.filter(|_| is_clean && rows.strategy == Some(StepStrategy::Recursive))
        else {
            continue;
        };
        // Predictions of the label are known; all else that features look back at has to be known as for one model of
        // the whole horizon.
        let leaks = rows.leaks(&predicted_ages, &future.rows, |ends| horizon.allows(ends));
        let note = format!(
            "`strategy: recursive` predicts `{}` alone for the steps between",
            label.column
        );
        let of_group = |group: &Vec<ColumnLeak>| {
            let fault = leak_fault(&rows.taker, label, group).note(&note);
            fault.at(rows.at)
        };
        faults.extend(fault_groups(leaks).iter().map(of_group));
    }
    Fault::combine(faults).map_or(Ok(()), Err)
}

/// Distance beyond a time up to which the values of a column are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KnownAhead {
    /// A length in nanoseconds, or in ticks where times are whole numbers.
    Time(i128),
    /// Rows of each series.
    Rows(u64),
}

/// Distance ahead of the known rows for which columns of a sink or a training must be known, in nanoseconds, or in ticks where
/// times are whole numbers: columns that a model takes, and that the label does not list as known. Those that it lists and
/// that are made of the label are none that is planned, and have to be known, too.
pub fn known_ahead(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    readers: &ReaderFacts,
    sink: &PipelineSink,
) -> Result<BTreeMap<String, KnownAhead>> {
    let mut lengths = BTreeMap::new();
    let Some(label) = &pipeline.label else {
        return Ok(lengths);
    };
    let Some(rows) = JudgedRows::of_sink(pipeline, bound, label, readers, sink) else {
        return Ok(lengths);
    };
    let Some(horizon) = LabelHorizon::of(label, pipeline, bound)? else {
        return Ok(lengths);
    };
    let of_steps = |steps: u64, future: &FutureFlow| match horizon {
        LabelHorizon::Time(_) => KnownAhead::Time(i128::from(steps) * step_length(future)),
        LabelHorizon::Rows(_) => KnownAhead::Rows(steps),
    };
    let ages = ColumnAges::new(pipeline, bound, label);
    let mut lineage = ColumnLineage::new(bound);
    let label_origins = lineage.label_origins(&label.column);
    for column in rows.columns {
        if label.known.contains(&column)
            && lineage
                .origins(rows.flow, &column)
                .is_disjoint(&label_origins)
        {
            continue;
        }
        let lengths_of_column = match (rows.strategy, rows.flow.future.as_deref()) {
            (Some(StepStrategy::PerStep), Some(future)) => {
                let steps = horizon.steps_ahead(ages.of(rows.flow, &column), future);
                of_steps(steps, future)
            }
            (Some(StepStrategy::Recursive), Some(future)) => of_steps(1, future),
            _ => match horizon {
                LabelHorizon::Time(length) => KnownAhead::Time(length.most()),
                LabelHorizon::Rows(rows) => KnownAhead::Rows(rows),
            },
        };
        lengths.insert(column, lengths_of_column);
    }
    Ok(lengths)
}

/// Reach of the data of a flow's rows beyond their times, in nanoseconds, or in ticks where times
/// are whole numbers: to the end of the bucket for rows of an aggregate.
pub fn row_extent(pipeline: &Pipeline, bound: &BoundPipeline, flow: &NodeFlow) -> i128 {
    let label = pipeline.label.clone().unwrap_or_else(|| PredictionLabel {
        column: String::new(),
        horizon: None,
        known: Vec::new(),
        at: None,
    });
    ColumnAges::new(pipeline, bound, &label).extent(flow)
}

/// The most that a step of the rows of the future lasts.
fn step_length(future: &FutureFlow) -> i128 {
    let steps = i128::from(future.steps.max(1));
    match future.horizon {
        SeriesLength::Ticks(ticks) => i128::from(ticks) / steps,
        SeriesLength::Calendar(span) => {
            let months = span.months / future.steps.max(1) as i64;
            let days = i128::from(span.days) * DAY_NANOSECONDS;
            month_nanoseconds(months, true) + (days + i128::from(span.ticks)) / steps
        }
        SeriesLength::Rows(_) => 1,
    }
}

/// The name of a sink that a run adds for the rows of a training; no spec can give it.
pub fn training_input_name(training: &PipelineSink, part: Option<&str>) -> String {
    format!("{}.{}", training.name, part.unwrap_or("all"))
}

fn is_training_input(pipeline: &Pipeline, sink: &PipelineSink) -> bool {
    let suffix_of = |training: &PipelineSink| sink.name.strip_prefix(&training.name);
    pipeline
        .trainings
        .iter()
        .filter_map(suffix_of)
        .any(|suffix| suffix.starts_with('.'))
}

/// True if the columns for which a sink would be judged are those of trainings and of the feed on
/// its rows, which are judged alike: the faults are theirs, and are reported once.
fn is_judged_by_readers(pipeline: &Pipeline, readers: &ReaderFacts, sink: &PipelineSink) -> bool {
    let is_fed = pipeline.feed.is_some()
        && readers
            .feed
            .as_ref()
            .is_some_and(|feed| feed.from.as_ref() == Some(&sink.from));
    if sink.format == FEED_FORMAT {
        return is_fed;
    }
    let mut is_trained = false;
    for training in &pipeline.trainings {
        if training.from != sink.from {
            continue;
        }
        // A training with a strategy is judged by another distance, and one without facts is not.
        let Some(facts) = readers.trainings.get(&training.name) else {
            return false;
        };
        if facts.strategy.is_some() {
            return false;
        }
        is_trained = true;
    }
    is_fed || is_trained
}

/// A label that no step has, and known columns that match none.
pub fn check_label_names(pipeline: &Pipeline, bound: &BoundPipeline) -> Result<()> {
    let Some(label) = &pipeline.label else {
        return Ok(());
    };
    let mut fields: Vec<Field> = Vec::new();
    for field in bound.flows.values().flat_map(|flow| flow.schema.fields()) {
        if !fields
            .iter()
            .any(|collected| collected.name() == field.name())
        {
            fields.push(field.as_ref().clone());
        }
    }
    let schema = Schema::new(fields);
    let named = std::iter::once(&label.column).chain(&label.known);
    let missing = named.filter(|name| schema.field_with_name(name).is_err());
    let faults = missing.map(|name| unknown_column(name, &schema).at(label.at.as_ref()));
    Fault::combine(faults.collect()).map_or(Ok(()), Err)
}

/// The columns among `columns` that are made from a label of the same row, in one warning; none where there are none.
pub fn label_in_features(
    bound: &BoundPipeline,
    sink: &PipelineSink,
    label: &str,
    columns: &[String],
) -> Option<Fault> {
    let flow = bound.flows.get(&sink.from)?;
    let mut leaks = Vec::new();
    for column in columns.iter().filter(|column| *column != label) {
        for stream in &flow.streams {
            let source = match &bound.bases[stream.base] {
                BaseDataset::Source(source) => Some(source.as_str()),
                BaseDataset::Gathered(_) => None,
            };
            let base = base_column(bound, stream, label);
            let focus = WalkFocus::Label {
                column: label,
                base: source.zip(base.as_deref()),
            };
            let walk = AgeWalk::new(bound, focus);
            let trace = walk.column(stream, stream.ops.len(), column);
            let is_of_row = match trace.ends {
                DataAge::After => true,
                DataAge::Behind { time, rows } => rows == 0 && time.least() <= 0,
                DataAge::Ahead => false,
            };
            if is_of_row {
                leaks.push(ColumnLeak {
                    column: column.clone(),
                    trace,
                });
                break;
            }
        }
    }
    let names: Vec<&str> = leaks.iter().map(|leak| leak.column.as_str()).collect();
    let message = format!(
        "`{}` learns `{label}` from {}, made from `{label}` of the same row",
        sink.name,
        listed_columns(&names)
    );
    let notes = leaks
        .iter()
        .take(COLUMNS_EXPLAINED_MAX)
        .map(|leak| leak.trace.path.join(" <- "));
    let fault = Fault::new(codes::LEAKAGE, message).hint(
        "lag it or let its window end earlier (`gap`), drop it, or declare `label: { column: \
         ..., horizon: 1d }`, which refuses such columns",
    );
    (!leaks.is_empty()).then(|| notes.fold(fault, Fault::note).at(sink.at.as_ref()))
}

/// Columns of one cause that a fault explains one by one.
const COLUMNS_EXPLAINED_MAX: usize = 8;

/// A column that knows too much.
struct ColumnLeak {
    column: String,
    trace: AgeTrace,
}

/// Causes up to which each has a fault of its own.
const CAUSES_MAX: usize = 3;

/// The columns that share a fault: those whose data comes from the same column and is of the same
/// age. Where there are more causes, those of one source or step share a fault: the remedy is
/// mostly one, too.
fn fault_groups(leaks: Vec<ColumnLeak>) -> Vec<Vec<ColumnLeak>> {
    let causes = grouped_by(leaks, |leak| leak.trace.path.last().cloned());
    if causes.len() <= CAUSES_MAX {
        return causes;
    }
    let leaks = causes.into_iter().flatten().collect();
    grouped_by(leaks, |leak| {
        leak.trace.path.last().map(|step| origin(step))
    })
}

/// The source or step that an element of a path names: `demand` of "`qty` (demand)".
fn origin(step: &str) -> String {
    let origin = step.rsplit_once(" (").map_or(step, |(_, origin)| origin);
    origin.to_owned()
}

/// Columns with equal keys whose data is of the same age, in the order of their first ones.
fn grouped_by(
    leaks: Vec<ColumnLeak>,
    key: fn(&ColumnLeak) -> Option<String>,
) -> Vec<Vec<ColumnLeak>> {
    let mut groups: Vec<(GroupKey, Vec<ColumnLeak>)> = Vec::new();
    for leak in leaks {
        let group_key = GroupKey {
            cause: key(&leak),
            is_after: leak.trace.ends == DataAge::After,
        };
        match groups.iter_mut().find(|(earlier, _)| *earlier == group_key) {
            Some((_, group)) => group.push(leak),
            None => groups.push((group_key, vec![leak])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Facts that all columns of one fault share.
#[derive(PartialEq)]
struct GroupKey {
    cause: Option<String>,
    is_after: bool,
}

/// The first names of a list and the number of the others, as in "`a`, `b` and 3 more".
fn listed_columns(names: &[&str]) -> String {
    let explained: Vec<String> = names
        .iter()
        .take(COLUMNS_EXPLAINED_MAX)
        .map(|name| format!("`{name}`"))
        .collect();
    match names.len() - explained.len() {
        0 => explained.join(", "),
        others => format!("{} and {others} more", explained.join(", ")),
    }
}

fn leak_fault(taker: &str, label: &PredictionLabel, group: &[ColumnLeak]) -> Fault {
    let names: Vec<&str> = group.iter().map(|leak| leak.column.as_str()).collect();
    let ends = group.first().map_or(DataAge::After, |leak| leak.trace.ends);
    let until = if ends.is_later() {
        "from after its own row"
    } else {
        "that is known too late"
    };
    let (uses, columns) = match names.as_slice() {
        [only] => ("uses", format!("`{only}`")),
        _ => ("use", format!("{} columns", names.len())),
    };
    let path = match group {
        [only] => format!("; {}", only.trace.path.join(" <- ")),
        _ => format!(": {}", listed_columns(&names)),
    };
    let message = format!(
        "{columns} in {taker} {uses} data {until}: `{}` is predicted {} ahead{path}",
        label.column,
        horizon_text(label),
    );
    let fault = Fault::new(codes::LEAKAGE, message);
    let fault = match names.as_slice() {
        [only] => fault.column(*only),
        _ => fault,
    };
    let fault = fault.hint(
        "let its window end earlier (`gap`), lag it, drop it before the sink, or list it under \
         the label's `known`",
    );
    let mut advice: Vec<&str> = group.iter().filter_map(advice_on_later_data).collect();
    advice.dedup();
    let fault = advice.into_iter().fold(fault, Fault::note);
    let explained = group.iter().take(COLUMNS_EXPLAINED_MAX);
    explained.fold(fault, |fault, leak| {
        let age = describe_age(leak.trace.ends);
        match group.len() {
            1 => fault.note(format!(
                "its data {age}, and has to end {} before",
                horizon_text(label)
            )),
            _ => fault.note(format!(
                "`{}` {age}: {}",
                leak.column,
                leak.trace.path.join(" <- ")
            )),
        }
    })
}

/// Horizon of a label, in words.
fn horizon_text(label: &PredictionLabel) -> &str {
    label.horizon.as_deref().unwrap_or_default()
}

/// Advice about data of later rows, by the step that brings it.
fn advice_on_later_data(leak: &ColumnLeak) -> Option<&'static str> {
    let is_of = |kind: &str| {
        let ending = format!(".{kind})");
        leak.trace.path.iter().any(|step| step.ends_with(&ending))
    };
    let is_joined = is_of("join") || is_of("as_of_join");
    if is_joined && is_of("aggregate") {
        return Some(
            "a bucket of an aggregate is known at its end, and a group without a time holds rows \
             of any time: join it by the time of its end (`derive: { day: \"CAST(day + INTERVAL \
             '6 days' AS DATE)\" }` behind one of weeks)",
        );
    }
    if !leak.trace.ends.is_later() {
        return None;
    }
    if is_of("target_encoding") {
        return Some(
            "labels of other folds may be later than the row: encode in order of time, from labels \
             that are known by then (`cross_fit: time`, with the horizon as its `gap`)",
        );
    }
    if is_of("python") || is_of("command") {
        return Some(
            "a function that is given whole series (`by`) may use rows behind each row: let it \
             compute each value from rows up to its own, and declare `looks_ahead: none`, which \
             `check --perturb-future` proves",
        );
    }
    if is_of("sql") {
        return Some(
            "a query computes it over rows of other times: let frames and groups end with the \
             row's time, or declare how long before its row the data ends (`data_age: { column: \
             7d }` beside `sql`), and prove that with `check --perturb-future`",
        );
    }
    is_joined.then_some(
        "rows of another step are met by keys that do not bind their times: join by the time of \
         the rows, moved by a known length at most",
    )
}

/// Age of data, in words.
fn describe_age(ends: DataAge) -> String {
    let DataAge::Behind { time, rows } = ends else {
        return "ends after its row".to_owned();
    };
    if time.months > 0 && time.nanoseconds == 0 {
        return format!("ends {}mo before its row", time.months);
    }
    let signed = time.least();
    let time = signed.abs();
    let side = if signed < 0 { "after" } else { "before" };
    let units: [(i128, &str); 4] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
    ];
    let length = match units
        .iter()
        .find(|(unit, _)| time >= *unit && time % unit == 0)
    {
        Some((unit, word)) => format!("{}{word}", time / unit),
        None if time > 0 => format!("{time}ns"),
        None if rows == 1 => "1 row".to_owned(),
        None if rows > 0 => format!("{rows} rows"),
        None => return "ends with its row".to_owned(),
    };
    format!("ends {length} {side} its row")
}
