//! Steps over the rows of a series: every output from the whole list of rows before it.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::columns::{DAY, nanoseconds, part_of};
use super::config::StepConfigReader;
use super::interpreter::SeriesDeclaration;
use super::numeric::at_rank;
use super::table::{CellKind, CellRow, CellTable, CellValue, INT64, TypedColumn, ValueExactness};

type ChainResult<T> = std::result::Result<T, String>;

/// A length: rows, or ticks of the time column.
#[derive(Debug, Clone, Copy, PartialEq)]
enum WindowLength {
    Rows(i128),
    Ticks(i128),
}

impl WindowLength {
    fn is_rows(self) -> bool {
        matches!(self, WindowLength::Rows(_))
    }

    fn count(self) -> i128 {
        match self {
            WindowLength::Rows(count) | WindowLength::Ticks(count) => count,
        }
    }
}

/// Ticks of a length such as `7d`.
pub fn ticks(text: &str, time: &CellKind) -> ChainResult<i128> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or("no unit")?;
    let count: i128 = text[..digits].parse().map_err(|_| "no number")?;
    Ok(count * unit_ticks(&text[digits..], time)?)
}

fn unit_ticks(unit: &str, time: &CellKind) -> ChainResult<i128> {
    let tick = match time {
        CellKind::Date => DAY,
        CellKind::Time(unit) => nanoseconds(*unit),
        _ if unit == "t" => return Ok(1),
        _ => return Err("a time of integers".into()),
    };
    let long = match unit {
        "w" => 7 * DAY,
        "d" => DAY,
        "h" => DAY / 24,
        "m" => DAY / 1440,
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1_000,
        "ns" => 1,
        _ => return Err("no unit".into()),
    };
    if long % tick == 0 {
        Ok(long / tick)
    } else {
        Err("shorter than a tick".into())
    }
}

fn length(value: &Json, time: &CellKind) -> ChainResult<WindowLength> {
    match value {
        Json::Number(rows) => Ok(WindowLength::Rows(rows.as_i64().ok_or("no rows")?.into())),
        Json::String(text) => Ok(WindowLength::Ticks(ticks(text, time)?)),
        _ => Err("no length".into()),
    }
}

/// How a length stands in a name.
fn length_text(value: &Json) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// A row of a series, or a missing period.
#[derive(Debug, Clone)]
struct SeriesEntry {
    time: i128,
    /// The place in the table; absent for missing periods.
    row: Option<usize>,
    /// Of the columns that are computed with; null where missing.
    values: Vec<CellValue>,
}

/// The rows of all series in order of time.
struct SeriesLines {
    time: CellKind,
    lines: Vec<Vec<SeriesEntry>>,
}

impl SeriesLines {
    fn new(
        config: StepConfigReader<'_>,
        table: &CellTable,
        series: &SeriesDeclaration,
        inputs: &[usize],
    ) -> ChainResult<SeriesLines> {
        let at = table.find(
            config
                .text("time")
                .or(series.time.as_deref())
                .ok_or("no time")?,
        )?;
        let time = table.columns[at].kind.clone();
        if !time.is_time() {
            return Err("no type of times".into());
        }
        let keys: Vec<String> = match config.get("keys") {
            Some(_) => config
                .texts("keys")
                .into_iter()
                .map(str::to_owned)
                .collect(),
            None if series.keys.is_empty() => return Err("no keys".into()),
            None => series.keys.clone(),
        };
        let keys = keys
            .iter()
            .map(|key| table.find(key))
            .collect::<ChainResult<Vec<_>>>()?;
        if inputs.iter().any(|at| {
            table
                .values(*at)
                .any(|value| is_missing_sentinel(value, &table.columns[*at].kind))
        }) {
            return Err("a value that windows refuse".into());
        }
        let mut lines: BTreeMap<Vec<CellValue>, Vec<SeriesEntry>> = BTreeMap::new();
        for (place, row) in table.rows.iter().enumerate() {
            let key = keys.iter().map(|at| row.cells[*at].clone()).collect();
            let time = row.cells[at].int().ok_or("a row without a time")?;
            let values = inputs.iter().map(|at| row.cells[*at].clone());
            let values = values
                .map(|value| {
                    if value.is_missing() {
                        CellValue::Null
                    } else {
                        value
                    }
                })
                .collect();
            lines.entry(key).or_default().push(SeriesEntry {
                time,
                row: Some(place),
                values,
            });
        }
        let mut lines: Vec<Vec<SeriesEntry>> = lines.into_values().collect();
        lines
            .iter_mut()
            .for_each(|line| line.sort_by_key(|entry| entry.time));
        let zeros: Vec<CellValue> = inputs
            .iter()
            .map(|at| zero(&table.columns[*at].kind))
            .collect();
        for line in &mut lines {
            *line = fill_gaps(std::mem::take(line), config, &time, &zeros)?;
        }
        Ok(SeriesLines { time, lines })
    }

    /// One value for each row of the table.
    fn outputs(
        &self,
        rows: usize,
        of: impl Fn(&[SeriesEntry]) -> ChainResult<CellValue>,
    ) -> ChainResult<Vec<CellValue>> {
        let mut out = vec![CellValue::Null; rows];
        for line in &self.lines {
            for (at, entry) in line.iter().enumerate() {
                if let Some(row) = entry.row {
                    out[row] = of(&line[..=at])?;
                }
            }
        }
        Ok(out)
    }
}

/// Whether the value's bits stand for a missing one.
fn is_missing_sentinel(value: &CellValue, kind: &CellKind) -> bool {
    let bits = match kind {
        CellKind::Int {
            bits: 64,
            signed: false,
        } => Some(1 << 63),
        CellKind::Int { bits: 64, .. } | CellKind::Time(_) => Some(i128::from(i64::MIN)),
        _ => None,
    };
    bits.is_some() && value.int() == bits
}

fn zero(kind: &CellKind) -> CellValue {
    match kind {
        CellKind::Bool => CellValue::Bool(false),
        CellKind::F32 | CellKind::F64 => CellValue::Float(0.0),
        CellKind::Date | CellKind::Time(_) => CellValue::Null,
        _ => CellValue::Int(0),
    }
}

/// The entries with those that `gaps` adds.
fn fill_gaps(
    line: Vec<SeriesEntry>,
    config: StepConfigReader<'_>,
    time: &CellKind,
    zeros: &[CellValue],
) -> ChainResult<Vec<SeriesEntry>> {
    let Some(Json::Object(gaps)) = config.get("gaps") else {
        return Ok(line);
    };
    let (word, period) = gaps.iter().next().ok_or("no gaps")?;
    let every = ticks(period["every"].as_str().ok_or("no period")?, time)?;
    let mut out: Vec<SeriesEntry> = Vec::new();
    for entry in line {
        while let Some(last) = out.last().cloned() {
            let step = entry.time - last.time;
            match word.as_str() {
                "error" if step > every => return Err("a missing period".into()),
                "complete" if step % every != 0 => return Err("no multiple of the period".into()),
                "complete" if step > every => {}
                _ => break,
            }
            let values = match period.get("fill").and_then(Json::as_str) {
                Some("zero") => zeros.to_vec(),
                Some(_) => last.values,
                None => vec![CellValue::Null; zeros.len()],
            };
            out.push(SeriesEntry {
                time: last.time + every,
                row: None,
                values,
            });
        }
        out.push(entry);
    }
    Ok(out)
}

fn last_entry(entries: &[SeriesEntry]) -> &SeriesEntry {
    &entries[entries.len() - 1]
}

/// The entry so long before the last one; of several at that time the last.
fn entry_before(entries: &[SeriesEntry], by: WindowLength) -> Option<&SeriesEntry> {
    match by {
        WindowLength::Rows(rows) => (entries.len() as i128 - 1 - rows)
            .try_into()
            .ok()
            .and_then(|at: usize| entries.get(at)),
        WindowLength::Ticks(ticks) => entries
            .iter()
            .rfind(|entry| entry.time == last_entry(entries).time - ticks),
    }
}

/// The entries up to a gap before the last one.
fn entries_up_to_gap(entries: &[SeriesEntry], gap: WindowLength) -> &[SeriesEntry] {
    let count = match gap {
        WindowLength::Rows(rows) => entries.len().saturating_sub(rows as usize),
        WindowLength::Ticks(ticks) => entries
            .iter()
            .filter(|entry| entry.time <= last_entry(entries).time - ticks)
            .count(),
    };
    &entries[..count]
}

/// The width of a column's type for what may be off.
fn near(table: &CellTable, at: usize) -> ValueExactness {
    let kind = &table.columns[at].kind;
    let doubles = table
        .values(at)
        .filter_map(|value| value.double(kind))
        .filter(|x| x.is_finite());
    ValueExactness::Near(doubles.fold(1.0, |size: f64, x| size.max(x.abs())))
}

fn float_kind(config: StepConfigReader<'_>) -> CellKind {
    if config.text("dtype") == Some("float32") {
        CellKind::F32
    } else {
        CellKind::F64
    }
}

/// A gap beside a length of the same sort.
fn gap(
    config: StepConfigReader<'_>,
    beside: WindowLength,
    time: &CellKind,
) -> ChainResult<WindowLength> {
    let none = if beside.is_rows() {
        WindowLength::Rows(0)
    } else {
        WindowLength::Ticks(0)
    };
    let gap = config
        .get("gap")
        .map_or(Ok(none), |gap| length(gap, time))?;
    if gap.is_rows() == beside.is_rows() {
        Ok(gap)
    } else {
        Err("two sorts of lengths".into())
    }
}

/// What all of these steps share: the columns, each with its own lines.
fn for_each_window_column(
    config: StepConfigReader<'_>,
    table: &CellTable,
    series: &SeriesDeclaration,
    suits: impl Fn(&CellKind) -> bool,
    write: impl Fn(&mut CellTable, usize, &SeriesLines) -> ChainResult<()>,
) -> ChainResult<CellTable> {
    let mut out = table.clone();
    for name in config.texts("columns") {
        let at = table.find(name)?;
        if !suits(&table.columns[at].kind) {
            return Err(format!("{name} does not suit"));
        }
        let lines = SeriesLines::new(config, table, series, &[at])?;
        write(&mut out, at, &lines)?;
    }
    Ok(out)
}

fn put_new(out: &mut CellTable, column: TypedColumn, values: Vec<CellValue>) -> ChainResult<()> {
    if out.has(&column.name) {
        return Err(format!("{} exists", column.name));
    }
    out.put(column, values);
    Ok(())
}

fn is_copyable(kind: &CellKind) -> bool {
    !kind.is_nested() && !matches!(kind, CellKind::Text | CellKind::Decimal)
}

fn is_countable(kind: &CellKind) -> bool {
    kind.is_number() || *kind == CellKind::Bool
}

pub fn lag(
    config: StepConfigReader<'_>,
    table: &CellTable,
    series: &SeriesDeclaration,
) -> ChainResult<CellTable> {
    for_each_window_column(config, table, series, is_copyable, |out, at, lines| {
        let column = table.columns[at].clone();
        for by in config.list("by") {
            let back = length(by, &lines.time)?;
            let within = match config.get("as_of") {
                Some(Json::Bool(true)) => Some(i128::MAX),
                Some(Json::String(text)) => Some(ticks(text, &lines.time)?),
                _ => None,
            };
            let values = lines.outputs(table.rows.len(), |entries| {
                let found = match (within, back) {
                    (Some(within), WindowLength::Ticks(ticks)) => {
                        let target = last_entry(entries).time - ticks;
                        entries
                            .iter()
                            .rfind(|entry| entry.time <= target)
                            .filter(|e| target - e.time <= within)
                    }
                    (Some(_), WindowLength::Rows(_)) => return Err("as_of of rows".into()),
                    _ => entry_before(entries, back),
                };
                Ok(found.map_or(CellValue::Null, |entry| entry.values[0].clone()))
            })?;
            put_new(
                out,
                TypedColumn {
                    name: format!("{}_lag_{}", column.name, length_text(by)),
                    ..column.clone()
                },
                values,
            )?;
        }
        Ok(())
    })
}

pub fn diff(
    config: StepConfigReader<'_>,
    table: &CellTable,
    series: &SeriesDeclaration,
) -> ChainResult<CellTable> {
    for_each_window_column(
        config,
        table,
        series,
        CellKind::is_number,
        |out, at, lines| {
            let kind = table.columns[at].kind.clone();
            let to = if kind.is_int() {
                INT64
            } else {
                float_kind(config)
            };
            for by in config.list("by") {
                let back = length(by, &lines.time)?;
                let values = lines.outputs(table.rows.len(), |entries| {
                    let Some(then) = entry_before(entries, back).map(|entry| &entry.values[0])
                    else {
                        return Ok(CellValue::Null);
                    };
                    Ok(match (&last_entry(entries).values[0], then) {
                        (CellValue::Int(a), CellValue::Int(b)) if kind.is_int() => {
                            match i64::try_from(a - b) {
                                Ok(i64::MIN) | Err(_) => CellValue::Null,
                                Ok(x) => CellValue::Int(x.into()),
                            }
                        }
                        (a, b) => match (a.double(&kind), b.double(&kind)) {
                            (Some(a), Some(b)) => nan_to_null(a - b, &to),
                            _ => CellValue::Null,
                        },
                    })
                })?;
                let name = format!("{}_diff_{}", table.columns[at].name, length_text(by));
                let care = if to.is_int() {
                    table.columns[at].care
                } else {
                    near(table, at)
                };
                put_new(
                    out,
                    TypedColumn {
                        name,
                        kind: to.clone(),
                        care,
                    },
                    values,
                )?;
            }
            Ok(())
        },
    )
}

fn nan_to_null(x: f64, kind: &CellKind) -> CellValue {
    if x.is_nan() {
        CellValue::Null
    } else {
        CellValue::float(x, kind)
    }
}

pub fn pct_change(
    config: StepConfigReader<'_>,
    table: &CellTable,
    series: &SeriesDeclaration,
) -> ChainResult<CellTable> {
    for_each_window_column(
        config,
        table,
        series,
        CellKind::is_number,
        |out, at, lines| {
            let kind = table.columns[at].kind.clone();
            let to = float_kind(config);
            for by in config.list("by") {
                let back = length(by, &lines.time)?;
                let values = lines.outputs(table.rows.len(), |entries| {
                    let then =
                        entry_before(entries, back).and_then(|entry| entry.values[0].double(&kind));
                    Ok(match (last_entry(entries).values[0].double(&kind), then) {
                        (Some(a), Some(b)) => nan_to_null(a / b - 1.0, &to),
                        _ => CellValue::Null,
                    })
                })?;
                let name = format!("{}_pct_change_{}", table.columns[at].name, length_text(by));
                put_new(
                    out,
                    TypedColumn {
                        name,
                        kind: to.clone(),
                        care: ValueExactness::Near(1.0),
                    },
                    values,
                )?;
            }
            Ok(())
        },
    )
}

/// A statistic with what it needs.
struct InterpretedStatistic<'c> {
    name: &'c str,
    quantile: f64,
    ddof: f64,
    /// Ticks of one unit of time, absent for rows.
    unit: Option<i128>,
    kind: CellKind,
    float: CellKind,
}

impl<'c> InterpretedStatistic<'c> {
    fn new(
        wanted: &'c Json,
        config: StepConfigReader<'_>,
        kind: &CellKind,
        unit: Option<i128>,
    ) -> ChainResult<InterpretedStatistic<'c>> {
        let quantile = wanted.get("quantile").and_then(Json::as_f64);
        let name = wanted
            .as_str()
            .or(quantile.map(|_| "quantile"))
            .ok_or("no statistic")?;
        let ddof = config.number("ddof").unwrap_or(1.0);
        Ok(InterpretedStatistic {
            name,
            quantile: quantile.unwrap_or(0.5),
            ddof,
            unit,
            kind: kind.clone(),
            float: float_kind(config),
        })
    }

    fn word(&self) -> String {
        match self.name {
            "quantile" => format!("q{}", (self.quantile * 1e10).round() / 1e8),
            name => name.to_owned(),
        }
    }

    fn output(&self) -> CellKind {
        match self.name {
            "first" | "last" => self.kind.clone(),
            "count" | "n_unique" => INT64,
            "since_nonzero" if self.unit.is_none() => INT64,
            _ => self.float.clone(),
        }
    }

    fn care(&self, table: &CellTable, at: usize) -> ValueExactness {
        match (self.name, near(table, at)) {
            ("first" | "last", _) => table.columns[at].care,
            ("count" | "n_unique", _) => ValueExactness::Tame,
            ("var", ValueExactness::Near(size)) => ValueExactness::Near(size * size),
            (_, near) => near,
        }
    }

    /// Of entries in a window that ends somewhere before `now`; places are row numbers of the series.
    fn of(
        &self,
        window: &[(i128, &SeriesEntry)],
        now: (i128, &SeriesEntry),
        min_periods: usize,
    ) -> CellValue {
        let there: Vec<&(i128, &SeriesEntry)> = window
            .iter()
            .filter(|(_, entry)| !entry.values[0].is_null())
            .collect();
        if there.len() < min_periods {
            return CellValue::Null;
        }
        let place = |(place, entry): &(i128, &SeriesEntry)| match self.unit {
            None => *place as f64,
            Some(unit) => (entry.time - now.1.time) as f64 / unit as f64,
        };
        let values: Vec<f64> = there
            .iter()
            .map(|(_, e)| e.values[0].double(&self.kind).unwrap())
            .collect();
        match self.name {
            "first" => {
                return there
                    .first()
                    .map_or(CellValue::Null, |(_, entry)| entry.values[0].clone());
            }
            "last" => {
                return there
                    .last()
                    .map_or(CellValue::Null, |(_, entry)| entry.values[0].clone());
            }
            "count" => return CellValue::Int(there.len() as i128),
            "n_unique" => {
                let mut all: Vec<&CellValue> =
                    there.iter().map(|(_, entry)| &entry.values[0]).collect();
                all.sort();
                all.dedup();
                return CellValue::Int(all.len() as i128);
            }
            "since_nonzero" => {
                let last = there.iter().zip(&values).rfind(|(_, x)| **x != 0.0);
                return last.map_or(CellValue::Null, |(found, _)| match self.unit {
                    None => CellValue::Int(now.0 - found.0),
                    Some(_) => CellValue::float(-place(found), &self.float),
                });
            }
            _ => {}
        }
        let places: Vec<f64> = there.iter().map(|found| place(found)).collect();
        statistic_value(self.name, &values, &places, self.ddof, self.quantile)
            .map_or(CellValue::Null, |x| nan_to_null(x, &self.float))
    }
}

/// A statistic of numbers in order; `None` where there are too few.
fn statistic_value(
    name: &str,
    values: &[f64],
    places: &[f64],
    ddof: f64,
    quantile: f64,
) -> Option<f64> {
    let n = values.len() as f64;
    if values.is_empty() {
        return (name == "sum").then_some(0.0);
    }
    let mean = values.iter().sum::<f64>() / n;
    let moment = |power: i32| values.iter().map(|x| (x - mean).powi(power)).sum::<f64>() / n;
    let same = values[0].is_finite() && values.iter().all(|x| *x == values[0]);
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(match name {
        "sum" => values.iter().sum(),
        "mean" => mean,
        "var" | "std" => {
            if n <= ddof {
                return None;
            }
            let variance = moment(2) * n / (n - ddof);
            if name == "var" {
                variance
            } else {
                variance.sqrt()
            }
        }
        "min" => sorted[0],
        "max" => sorted[sorted.len() - 1],
        "median" => at_rank(&sorted, 0.5 * (n - 1.0)),
        "quantile" => at_rank(&sorted, quantile * (n - 1.0)),
        "skew" if n < 3.0 => return None,
        "skew" if same => 0.0,
        "skew" => (n * (n - 1.0)).sqrt() / (n - 2.0) * moment(3) / moment(2).powf(1.5),
        "kurtosis" if n < 4.0 => return None,
        "kurtosis" if same => -3.0,
        "kurtosis" => {
            let excess = (n + 1.0) * moment(4) / moment(2).powi(2) - 3.0 * (n - 1.0);
            (n - 1.0) / ((n - 2.0) * (n - 3.0)) * excess
        }
        "zero_share" => values.iter().filter(|x| **x == 0.0).count() as f64 / n,
        "slope" => {
            let middle = places.iter().sum::<f64>() / n;
            let squares: f64 = places.iter().map(|x| (x - middle).powi(2)).sum();
            if places.iter().all(|x| *x == places[0]) {
                return None;
            }
            places
                .iter()
                .zip(values)
                .map(|(x, y)| (x - middle) * (y - mean))
                .sum::<f64>()
                / squares
        }
        _ => return None,
    })
}

/// The unit of time in which a length is written.
fn unit_of(length: Option<&Json>, time: &CellKind) -> ChainResult<Option<i128>> {
    match length.and_then(Json::as_str) {
        Some(text) => {
            unit_ticks(text.trim_start_matches(|c: char| c.is_ascii_digit()), time).map(Some)
        }
        None => Ok(None),
    }
}

fn numbered_entries(entries: &[SeriesEntry]) -> Vec<(i128, &SeriesEntry)> {
    (0..).zip(entries).collect()
}

pub fn rolling(
    config: StepConfigReader<'_>,
    table: &CellTable,
    series: &SeriesDeclaration,
) -> ChainResult<CellTable> {
    let closed = config.text("closed").unwrap_or("right");
    let with_start = ["left", "both"].contains(&closed);
    let with_end = ["right", "both"].contains(&closed);
    for_each_window_column(config, table, series, is_countable, |out, at, lines| {
        let column = &table.columns[at];
        for over in config.list("over") {
            let width = length(over, &lines.time)?;
            let gap = gap(config, width, &lines.time)?.count();
            for wanted in config.list("compute") {
                let statistic = InterpretedStatistic::new(
                    wanted,
                    config,
                    &column.kind,
                    unit_of(Some(over), &lines.time)?,
                )?;
                let period = config
                    .get("gaps")
                    .and_then(Json::as_object)
                    .and_then(|gaps| gaps.values().next());
                let every = period
                    .and_then(|period| period["every"].as_str())
                    .map(|every| ticks(every, &lines.time));
                let rows = match (width, every.transpose()?) {
                    (WindowLength::Ticks(ticks), Some(every)) => Some(ticks / every),
                    (WindowLength::Ticks(_), None) => None,
                    (WindowLength::Rows(rows), _) => Some(rows),
                };
                let holds = match closed {
                    "both" => rows.map(|rows| rows + 1),
                    "neither" => rows.map(|rows| (rows - 1).max(0)),
                    _ => rows,
                };
                let min_periods = match (config.whole("min_periods"), statistic.name) {
                    (Some(least), _) if holds.is_some_and(|holds| i128::from(least) > holds) => {
                        return Err("too many".into());
                    }
                    (Some(least), _) => least as usize,
                    (None, "count") => 0,
                    (None, _) if width.is_rows() => holds.unwrap_or(0).min(width.count()) as usize,
                    _ => 1,
                };
                let values = lines.outputs(table.rows.len(), |entries| {
                    let all = numbered_entries(entries);
                    let now = all[all.len() - 1];
                    let place = |(place, entry): &(i128, &SeriesEntry)| {
                        if width.is_rows() { *place } else { entry.time }
                    };
                    let end = place(&now) - gap;
                    let start = end - width.count();
                    let inside = |x: i128| {
                        (x > start || x == start && with_start) && (x < end || x == end && with_end)
                    };
                    let window: Vec<_> = all
                        .iter()
                        .filter(|entry| inside(place(entry)))
                        .copied()
                        .collect();
                    Ok(statistic.of(&window, now, min_periods))
                })?;
                let name = format!("{}_{}_{}", column.name, statistic.word(), length_text(over));
                let care = statistic.care(table, at);
                put_new(
                    out,
                    TypedColumn {
                        name,
                        kind: statistic.output(),
                        care,
                    },
                    values,
                )?;
            }
        }
        Ok(())
    })
}

pub fn expanding(
    config: StepConfigReader<'_>,
    table: &CellTable,
    series: &SeriesDeclaration,
) -> ChainResult<CellTable> {
    for_each_window_column(config, table, series, is_countable, |out, at, lines| {
        let column = &table.columns[at];
        let gap = config
            .get("gap")
            .map_or(Ok(WindowLength::Rows(0)), |gap| length(gap, &lines.time))?;
        for wanted in config.list("compute") {
            let statistic = InterpretedStatistic::new(
                wanted,
                config,
                &column.kind,
                unit_of(config.get("gap"), &lines.time)?,
            )?;
            let unless_set = if statistic.name == "count" { 0 } else { 1 };
            let min_periods = config.whole("min_periods").unwrap_or(unless_set) as usize;
            let values = lines.outputs(table.rows.len(), |entries| {
                let now = (entries.len() as i128 - 1, last_entry(entries));
                Ok(statistic.of(
                    &numbered_entries(entries_up_to_gap(entries, gap)),
                    now,
                    min_periods,
                ))
            })?;
            let name = format!("{}_expanding_{}", column.name, statistic.word());
            let care = statistic.care(table, at);
            put_new(
                out,
                TypedColumn {
                    name,
                    kind: statistic.output(),
                    care,
                },
                values,
            )?;
        }
        Ok(())
    })
}

pub fn seasonal_rolling(
    config: StepConfigReader<'_>,
    table: &CellTable,
    series: &SeriesDeclaration,
) -> ChainResult<CellTable> {
    for_each_window_column(config, table, series, is_countable, |out, at, lines| {
        let column = &table.columns[at];
        let season = config.get("season").ok_or("no season")?;
        let turn = length(season, &lines.time)?;
        let gap = gap(config, turn, &lines.time)?;
        for over in config.list("over") {
            let count = i128::from(over.as_i64().ok_or("no over")?);
            for wanted in config.list("compute") {
                let statistic = InterpretedStatistic::new(
                    wanted,
                    config,
                    &column.kind,
                    unit_of(Some(season), &lines.time)?,
                )?;
                let min_periods = match (config.whole("min_periods"), statistic.name) {
                    (Some(least), _) if i128::from(least) > count => return Err("too many".into()),
                    (Some(least), _) => least as usize,
                    (None, "count") => 0,
                    (None, _) if turn.is_rows() => count as usize,
                    _ => 1,
                };
                let values = lines.outputs(table.rows.len(), |entries| {
                    let all = numbered_entries(entries);
                    let now = all[all.len() - 1];
                    let at = |k: i128| {
                        let back = gap.count() + k * turn.count();
                        match turn {
                            WindowLength::Rows(_) => {
                                all.iter().find(|(place, _)| *place == now.0 - back)
                            }
                            WindowLength::Ticks(_) => all
                                .iter()
                                .rfind(|(_, entry)| entry.time == now.1.time - back),
                        }
                    };
                    let window: Vec<_> = (0..count).rev().filter_map(at).copied().collect();
                    Ok(statistic.of(&window, now, min_periods))
                })?;
                let name = format!(
                    "{}_seasonal_{}_{}x{over}",
                    column.name,
                    statistic.word(),
                    length_text(season)
                );
                let care = statistic.care(table, at);
                put_new(
                    out,
                    TypedColumn {
                        name,
                        kind: statistic.output(),
                        care,
                    },
                    values,
                )?;
            }
        }
        Ok(())
    })
}

/// Follows the recursion of pandas' `ewm`, whose weights are kept beside the mean and the variance.
pub fn ewm(
    config: StepConfigReader<'_>,
    table: &CellTable,
    series: &SeriesDeclaration,
) -> ChainResult<CellTable> {
    for_each_window_column(
        config,
        table,
        series,
        CellKind::is_number,
        |out, at, lines| {
            let column = &table.columns[at];
            let mut by_time = None;
            let mut beside = WindowLength::Rows(1);
            let (alpha, decay) = if let Some(alpha) = config.number("alpha") {
                (alpha, format!("alpha{alpha}"))
            } else if let Some(span) = config.number("span") {
                (2.0 / (span + 1.0), format!("span{span}"))
            } else if let Some(com) = config.number("com") {
                (1.0 / (1.0 + com), format!("com{com}"))
            } else if let Some(rows) = config.number("half_life") {
                (1.0 - 0.5f64.powf(1.0 / rows), format!("half_life{rows}"))
            } else {
                let text = config.text("half_life").ok_or("no decay")?;
                let half_life = ticks(text, &lines.time)?;
                (by_time, beside) = (Some(half_life as f64), WindowLength::Ticks(half_life));
                (0.5, format!("half_life{text}"))
            };
            let gap = gap(config, beside, &lines.time)?;
            let adjust = config.get("adjust") != Some(&Json::Bool(false));
            let ignore = config.flag("ignore_na");
            let least = config.whole("min_periods").unwrap_or(1).max(1);
            for wanted in config.list("compute") {
                let wanted = wanted.as_str().ok_or("no statistic")?;
                let kind = float_kind(config);
                let values = lines.outputs(table.rows.len(), |entries| {
                    let mut mean = f64::NAN;
                    let mut variance = 0.0;
                    let mut seen = 0;
                    let mut old = 1.0;
                    let mut sum = 1.0;
                    let mut squares = 1.0;
                    let mut last: Option<i128> = None;
                    for entry in entries_up_to_gap(entries, gap) {
                        let x = entry.values[0].double(&column.kind);
                        // pandas fades by the time since the row before, whether that had a value or not.
                        let Some(before) = last.replace(entry.time).filter(|_| seen > 0) else {
                            if let Some(x) = x {
                                (mean, seen) = (x, 1);
                            }
                            continue;
                        };
                        if x.is_some() || !ignore {
                            let fade = match by_time {
                                Some(half_life) => {
                                    0.5f64.powf((entry.time - before) as f64 / half_life)
                                }
                                None => 1.0 - alpha,
                            };
                            old *= fade;
                            sum *= fade;
                            squares *= fade * fade;
                        }
                        let Some(x) = x else { continue };
                        let new = if adjust { 1.0 } else { alpha };
                        let before = mean;
                        mean = if x == mean {
                            mean
                        } else {
                            (old * mean + new * x) / (old + new)
                        };
                        variance = (old * (variance + (before - mean).powi(2))
                            + new * (x - mean).powi(2))
                            / (old + new);
                        sum += new;
                        squares += new * new;
                        old += new;
                        if !adjust {
                            sum /= old;
                            squares /= old * old;
                            old = 1.0;
                        }
                        seen += 1;
                    }
                    let rest = sum * sum - squares;
                    Ok(match wanted {
                        _ if seen < least => CellValue::Null,
                        "mean" => nan_to_null(mean, &kind),
                        _ if rest <= 0.0 || seen < 2 => CellValue::Null,
                        // Where one value has nearly all the weight, rounding decides.
                        _ if rest < 1e-6 * sum * sum => {
                            return Err("one value has all the weight".into());
                        }
                        "var" => nan_to_null(sum * sum / rest * variance, &kind),
                        _ => nan_to_null((sum * sum / rest * variance).sqrt(), &kind),
                    })
                })?;
                let name = format!("{}_ewm_{wanted}_{decay}", column.name);
                let care = match (wanted, near(table, at)) {
                    ("var", ValueExactness::Near(size)) => ValueExactness::Near(size * size),
                    (_, near) => near,
                };
                put_new(
                    out,
                    TypedColumn {
                        name,
                        kind: float_kind(config),
                        care,
                    },
                    values,
                )?;
            }
            Ok(())
        },
    )
}

pub fn fill_forward(
    config: StepConfigReader<'_>,
    table: &CellTable,
    series: &SeriesDeclaration,
) -> ChainResult<CellTable> {
    let limit = config
        .whole("limit")
        .map_or(usize::MAX, |limit| limit as usize);
    for_each_window_column(config, table, series, is_copyable, |out, at, lines| {
        let column = table.columns[at].clone();
        let values = lines.outputs(table.rows.len(), |entries| {
            let found = entries
                .iter()
                .rev()
                .take(limit.saturating_add(1))
                .find(|entry| !entry.values[0].is_null());
            Ok(found.map_or(CellValue::Null, |entry| entry.values[0].clone()))
        })?;
        out.put(
            TypedColumn {
                name: config.output(&column.name),
                ..column
            },
            values,
        );
        Ok(())
    })
}

pub fn interpolate(
    config: StepConfigReader<'_>,
    table: &CellTable,
    series: &SeriesDeclaration,
) -> ChainResult<CellTable> {
    let limit = config
        .whole("limit")
        .map_or(usize::MAX, |limit| limit as usize);
    for_each_window_column(
        config,
        table,
        series,
        CellKind::is_number,
        |out, at, lines| {
            let column = table.columns[at].clone();
            let kind = float_kind(config);
            let double = |entry: &SeriesEntry| entry.values[0].double(&column.kind);
            let mut values = vec![CellValue::Null; table.rows.len()];
            for line in &lines.lines {
                for (place, entry) in line.iter().enumerate() {
                    let Some(row) = entry.row else { continue };
                    let before = line[..=place]
                        .iter()
                        .rposition(|entry| double(entry).is_some());
                    let after = line[place..].iter().find(|entry| double(entry).is_some());
                    let (Some(before), Some(after)) = (before, after) else {
                        continue;
                    };
                    let first = &line[before];
                    let last = after;
                    let a = double(first).unwrap();
                    let b = double(last).unwrap();
                    let x = if before == place {
                        a
                    } else if place - before > limit {
                        continue;
                    } else if first.time == last.time {
                        a
                    } else {
                        let share =
                            (entry.time - first.time) as f64 / (last.time - first.time) as f64;
                        match (a.is_infinite(), b.is_infinite()) {
                            // As numpy's `interp` does: the line is infinite beside an infinity, and there is none
                            // between two of either sign.
                            (true, true) if a != b => continue,
                            (true, _) => a,
                            (_, true) if share > 0.0 => b,
                            (_, true) => a,
                            _ => a + (b - a) * share,
                        }
                    };
                    values[row] = nan_to_null(x, &kind);
                }
            }
            out.put(
                TypedColumn {
                    name: config.output(&column.name),
                    kind,
                    care: near(table, at),
                },
                values,
            );
            Ok(())
        },
    )
}

/// The slot of a time.
fn slot(time: i128, kind: &CellKind, period: &str) -> ChainResult<CellValue> {
    let tick = match kind {
        CellKind::Date if period == "hour" => return Err("a date has no hours".into()),
        CellKind::Date => DAY,
        CellKind::Time(unit) => nanoseconds(*unit),
        _ => return Err("no date".into()),
    };
    let part = match period {
        "day_of_month" => "day",
        "week_of_year" => "week",
        other => other,
    };
    Ok(part_of(time * tick, part))
}

pub fn seasonal_index(
    config: StepConfigReader<'_>,
    table: &CellTable,
    series: &SeriesDeclaration,
) -> ChainResult<CellTable> {
    let period = config.text("period").ok_or("no period")?;
    let strength = config
        .get("shrink")
        .and_then(|shrink| shrink["strength"].as_f64());
    let least = config.whole("min_periods").unwrap_or(1).max(1) as usize;
    for_each_window_column(
        config,
        table,
        series,
        CellKind::is_number,
        |out, at, lines| {
            let column = &table.columns[at];
            let gap = config
                .get("gap")
                .map_or(Ok(WindowLength::Rows(0)), |gap| length(gap, &lines.time))?;
            let kind = float_kind(config);
            slot(0, &lines.time, period)?;
            let values = lines.outputs(table.rows.len(), |entries| {
                let of_row = slot(last_entry(entries).time, &lines.time, period)?;
                let mut all = Vec::new();
                let mut ours = Vec::new();
                for entry in entries_up_to_gap(entries, gap) {
                    // A missing period has no slot.
                    let (Some(x), Some(_)) = (entry.values[0].double(&column.kind), entry.row)
                    else {
                        continue;
                    };
                    all.push(x);
                    if slot(entry.time, &lines.time, period)? == of_row {
                        ours.push(x);
                    }
                }
                let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
                let n = ours.len() as f64;
                let strength = strength.unwrap_or(0.0);
                Ok(if ours.len() < least || mean(&all) == 0.0 {
                    if strength > 0.0 {
                        CellValue::Float(1.0)
                    } else {
                        CellValue::Null
                    }
                } else {
                    nan_to_null(
                        (n * (mean(&ours) / mean(&all)) + strength) / (n + strength),
                        &kind,
                    )
                })
            })?;
            // A mean near zero makes indices large.
            let size = values
                .iter()
                .filter_map(|value| value.double(&kind))
                .fold(1.0, |size: f64, x| size.max(x.abs()));
            let name = format!("{}_{period}_index", column.name);
            put_new(
                out,
                TypedColumn {
                    name,
                    kind: kind.clone(),
                    care: ValueExactness::Near(size * size),
                },
                values,
            )
        },
    )
}

/// Statistics over all series, or those of the row's group, of the rows that are learned from.
pub fn pooled(
    config: StepConfigReader<'_>,
    table: &CellTable,
    series: &SeriesDeclaration,
) -> ChainResult<CellTable> {
    let time = table.find(
        config
            .text("time")
            .or(series.time.as_deref())
            .ok_or("no time")?,
    )?;
    let time_kind = table.columns[time].kind.clone();
    if !time_kind.is_time() {
        return Err("no type of times".into());
    }
    let by = config.texts("by");
    let keys = by
        .iter()
        .map(|key| table.find(key))
        .collect::<ChainResult<Vec<_>>>()?;
    let group = |row: &CellRow| {
        keys.iter()
            .map(|at| row.cells[*at].clone())
            .collect::<Vec<_>>()
    };
    let closed = config.text("closed").unwrap_or("right");
    let with_start = ["left", "both"].contains(&closed);
    let with_end = ["right", "both"].contains(&closed);
    let gap = config
        .text("gap")
        .map_or(Ok(0), |gap| ticks(gap, &time_kind))?;
    let aggregate = config.text("aggregate");
    let overs = if config.list("over").is_empty() {
        vec![None]
    } else {
        config.list("over").into_iter().map(Some).collect()
    };
    let mut out = table.clone();
    for name in config.texts("columns") {
        let at = table.find(name)?;
        let kind = table.columns[at].kind.clone();
        if !kind.is_number() {
            return Err(format!("{name} is no number"));
        }
        let values_of = |row: &CellRow| {
            let x = row.cells[at].double(&kind).filter(|x| !x.is_nan());
            x.zip(row.cells[time].int())
        };
        let mut groups: BTreeMap<Vec<CellValue>, BTreeMap<i128, Vec<f64>>> = BTreeMap::new();
        for row in table.rows.iter().filter(|row| row.fitted) {
            if let Some((x, time)) = values_of(row) {
                groups
                    .entry(group(row))
                    .or_default()
                    .entry(time)
                    .or_default()
                    .push(x);
            }
        }
        for over in &overs {
            let width = over
                .map(|over| ticks(over.as_str().ok_or("no time")?, &time_kind))
                .transpose()?;
            let unit = unit_of(over.or(config.get("gap")), &time_kind)?;
            for wanted in config.list("compute") {
                let entry_kind = CellKind::F64;
                let statistic = InterpretedStatistic::new(
                    wanted,
                    config,
                    &entry_kind,
                    Some(unit.unwrap_or(1)),
                )?;
                if unit.is_none() && ["slope", "since_nonzero"].contains(&statistic.name) {
                    return Err("no unit of time".into());
                }
                let kept = ["mean", "sum", "count", "std", "var", "min", "max"];
                if aggregate.is_none() && !kept.contains(&statistic.name) {
                    return Err("not kept for each time".into());
                }
                let to = match statistic.name {
                    "count" | "n_unique" => INT64,
                    _ => statistic.float.clone(),
                };
                let unless_set = if statistic.name == "count" { 0 } else { 1 };
                let least = config.whole("min_periods").unwrap_or(unless_set) as usize;
                let none = BTreeMap::new();
                let each = table.rows.iter().map(|row| {
                    let Some(now) = row.cells[time].int() else {
                        return CellValue::Null;
                    };
                    let end = now - gap;
                    let start = width.map(|width| end - width);
                    let after_start =
                        |x: i128| start.is_none_or(|start| x > start || x == start && with_start);
                    let inside = |x: i128| after_start(x) && (x < end || x == end && with_end);
                    let times = groups.get(&group(row)).unwrap_or(&none);
                    let mut window = Vec::new();
                    for (time, values) in times.iter().filter(|(time, _)| inside(**time)) {
                        let mut push = |x: f64| {
                            window.push(SeriesEntry {
                                time: *time,
                                row: None,
                                values: vec![CellValue::Float(x)],
                            });
                        };
                        match aggregate {
                            None => values.iter().for_each(|x| push(*x)),
                            Some("count") => push(values.len() as f64),
                            Some(of) => push(statistic_value(of, values, &[], 0.0, 0.0).unwrap()),
                        }
                    }
                    let own = SeriesEntry {
                        time: now,
                        row: None,
                        values: vec![CellValue::Null],
                    };
                    match statistic.of(
                        &numbered_entries(&window),
                        (window.len() as i128, &own),
                        least,
                    ) {
                        CellValue::Float(x) => CellValue::float(x, &to),
                        other => other,
                    }
                });
                let values = each.collect();
                let group = if by.is_empty() {
                    "all".to_owned()
                } else {
                    by.join("_")
                };
                let middle = aggregate.map_or(String::new(), |of| format!("{of}_"));
                let name = match over {
                    Some(over) => format!(
                        "{name}_{group}_{middle}{}_{}",
                        statistic.word(),
                        length_text(over)
                    ),
                    None => format!("{name}_{group}_{middle}expanding_{}", statistic.word()),
                };
                let care = match near(table, at) {
                    ValueExactness::Near(size) if to.is_float() => {
                        ValueExactness::Near((size * (1.0 + table.rows.len() as f64)).powi(2))
                    }
                    _ => ValueExactness::Tame,
                };
                put_new(
                    &mut out,
                    TypedColumn {
                        name,
                        kind: to,
                        care,
                    },
                    values,
                )?;
            }
        }
    }
    Ok(out)
}
