//! Steps that look at one row: which columns there are, of which types, and which rows.

use arrow::datatypes::TimeUnit;
use serde_json::Value as Json;

use super::config::StepConfigReader;
use super::expression;
use super::table::{
    CellKind, CellRow, CellTable, CellValue, DECIMAL, INT32, INT64, TypedColumn, ValueExactness,
};

type ChainResult<T> = std::result::Result<T, String>;

pub fn select(config: &Json, table: &CellTable) -> ChainResult<CellTable> {
    let names = config
        .as_array()
        .ok_or("no list")?
        .iter()
        .filter_map(Json::as_str);
    project(
        table,
        names
            .map(|name| Ok((table.find(name)?, name.to_owned())))
            .collect::<ChainResult<Vec<_>>>()?,
    )
}

pub fn drop(config: &Json, table: &CellTable) -> ChainResult<CellTable> {
    let gone: Vec<&str> = config
        .as_array()
        .ok_or("no list")?
        .iter()
        .filter_map(Json::as_str)
        .collect();
    gone.iter()
        .try_for_each(|name| table.find(name).map(|_| ()))?;
    let left = table
        .columns
        .iter()
        .enumerate()
        .filter(|(_, column)| !gone.contains(&column.name.as_str()));
    project(
        table,
        left.map(|(at, column)| (at, column.name.clone())).collect(),
    )
}

pub fn rename(config: &Json, table: &CellTable) -> ChainResult<CellTable> {
    let names = config.as_object().ok_or("no map")?;
    names
        .keys()
        .try_for_each(|old| table.find(old).map(|_| ()))?;
    let new = |column: &TypedColumn| {
        names
            .get(&column.name)
            .and_then(Json::as_str)
            .unwrap_or(&column.name)
            .to_owned()
    };
    project(
        table,
        table
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| (at, new(column)))
            .collect(),
    )
}

/// Columns by their places, with their new names.
pub fn project(table: &CellTable, wanted: Vec<(usize, String)>) -> ChainResult<CellTable> {
    if wanted.is_empty() {
        return Err("no columns are left".into());
    }
    let mut names: Vec<&String> = wanted.iter().map(|(_, name)| name).collect();
    names.sort();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("two columns of one name".into());
    }
    let columns = wanted.iter().map(|(at, name)| TypedColumn {
        name: name.clone(),
        ..table.columns[*at].clone()
    });
    let rows = table.rows.iter().map(|row| CellRow {
        cells: wanted
            .iter()
            .map(|(at, _)| row.cells[*at].clone())
            .collect(),
        fitted: row.fitted,
    });
    Ok(CellTable {
        columns: columns.collect(),
        rows: rows.collect(),
    })
}

pub fn filter(config: &Json, table: &CellTable) -> ChainResult<CellTable> {
    let condition = expression::parse(config.as_str().ok_or("no text")?, table)?;
    let mut rows = Vec::new();
    for row in &table.rows {
        if condition.value(&row.cells)? == CellValue::Bool(true) {
            rows.push(row.clone());
        }
    }
    Ok(CellTable {
        rows,
        ..table.clone()
    })
}

pub fn derive(config: &Json, table: &CellTable) -> ChainResult<CellTable> {
    let mut table = table.clone();
    for (name, text) in config.as_object().ok_or("no map")? {
        let text = text.as_str().ok_or("no text")?;
        let expression = expression::parse(text, &table)?;
        if table.has(name) && !text.contains(name.as_str()) {
            return Err("a column would be overwritten".into());
        }
        let values = table
            .rows
            .iter()
            .map(|row| expression.value(&row.cells))
            .collect::<ChainResult<Vec<_>>>()?;
        let kind = expression.kind();
        let care = if kind.is_float() {
            ValueExactness::Near(1e4)
        } else {
            ValueExactness::Tame
        };
        table.put(
            TypedColumn {
                care,
                ..TypedColumn::new(name, kind)
            },
            values,
        );
    }
    Ok(table)
}

pub fn explode(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let at = table.find(config.text("column").ok_or("no column")?)?;
    let CellKind::List(element) = &table.columns[at].kind else {
        return Err("not a list".into());
    };
    let mut columns = table.columns.clone();
    columns[at].kind = (**element).clone();
    let mut rows = Vec::new();
    for row in &table.rows {
        let elements = match &row.cells[at] {
            CellValue::List(elements) if !elements.is_empty() => elements.clone(),
            _ if config.flag("keep_empty") => vec![CellValue::Null],
            _ => Vec::new(),
        };
        for element in elements {
            let mut row = row.clone();
            row.cells[at] = element;
            rows.push(row);
        }
    }
    Ok(CellTable { columns, rows })
}

pub fn kind_of(word: &str) -> ChainResult<CellKind> {
    let int = |bits, signed| CellKind::Int { bits, signed };
    Ok(match word {
        "int8" => int(8, true),
        "int16" => int(16, true),
        "int32" => INT32,
        "int64" => INT64,
        "uint8" => int(8, false),
        "uint16" => int(16, false),
        "uint32" => int(32, false),
        "uint64" => int(64, false),
        "float32" => CellKind::F32,
        "float64" => CellKind::F64,
        "string" => CellKind::Text,
        "boolean" => CellKind::Bool,
        "date" => CellKind::Date,
        "timestamp" => CellKind::Time(TimeUnit::Microsecond),
        other => return Err(format!("no type {other}")),
    })
}

pub fn cast_columns(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let mut table = table.clone();
    let lenient = config.text("on_error") == Some("missing");
    for (name, wanted) in config
        .get("columns")
        .and_then(Json::as_object)
        .ok_or("no map")?
    {
        let at = table.find(name)?;
        let from = table.columns[at].kind.clone();
        let to = kind_of(wanted.as_str().ok_or("no type")?)?;
        let each = table
            .values(at)
            .map(|value| match cast_value(value, &from, &to)? {
                Some(value) => Ok(value),
                None if lenient => Ok(CellValue::Null),
                None => Err(format!("{value:?} is no {to:?}")),
            });
        let values = each.collect::<ChainResult<Vec<_>>>()?;
        table.columns[at].kind = to;
        let name = table.columns[at].clone();
        table.put(name, values);
    }
    Ok(table)
}

/// Nanoseconds of a unit.
pub fn nanoseconds(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

pub const DAY: i128 = 86_400_000_000_000;

/// A value in another type; `None` where it does not fit.
pub fn cast_value(
    value: &CellValue,
    from: &CellKind,
    to: &CellKind,
) -> ChainResult<Option<CellValue>> {
    let fits = |x: i128| {
        let (least, greatest) = to.range();
        (least..=greatest).contains(&x).then_some(CellValue::Int(x))
    };
    Ok(match (value, from, to) {
        (CellValue::Null, ..) => Some(CellValue::Null),
        _ if from == to => Some(value.clone()),
        (CellValue::Int(x), CellKind::Int { .. }, CellKind::Int { .. }) => fits(*x),
        (CellValue::Int(x), CellKind::Int { .. }, CellKind::F32) => {
            Some(CellValue::Float(f64::from(*x as f32)))
        }
        (CellValue::Int(_), CellKind::Int { .. } | CellKind::Decimal, CellKind::F64) => {
            value.double(from).map(CellValue::Float)
        }
        (CellValue::Int(x), CellKind::Int { .. }, CellKind::Bool) => Some(CellValue::Bool(*x != 0)),
        (CellValue::Int(x), CellKind::Decimal, CellKind::Int { .. }) => {
            fits(x / 10i128.pow(DECIMAL.1 as u32))
        }
        (CellValue::Int(x), CellKind::Time(unit), CellKind::Date) => {
            Some(CellValue::Int((x * nanoseconds(*unit)).div_euclid(DAY)))
        }
        (CellValue::Int(x), CellKind::Date, CellKind::Time(unit)) => {
            Some(CellValue::Int(x * DAY / nanoseconds(*unit)))
        }
        (CellValue::Float(x), _, CellKind::Int { .. }) if x.is_finite() => fits(x.trunc() as i128),
        (CellValue::Float(_), _, CellKind::Int { .. }) => None,
        (CellValue::Float(x), _, CellKind::F32 | CellKind::F64) => Some(CellValue::float(*x, to)),
        (CellValue::Float(x), _, CellKind::Bool) => Some(CellValue::Bool(*x != 0.0)),
        (CellValue::Bool(x), _, CellKind::Int { .. }) => Some(CellValue::Int(i128::from(*x))),
        (CellValue::Bool(x), _, CellKind::F32 | CellKind::F64) => {
            Some(CellValue::Float(f64::from(u8::from(*x))))
        }
        (_, _, CellKind::Text) => Some(CellValue::Text(text_of(value, from)?)),
        (CellValue::Text(text), _, CellKind::Int { .. }) if !text.starts_with('+') => {
            text.parse().ok().and_then(fits)
        }
        _ => return Err(format!("{from:?} to {to:?}")),
    })
}

/// A category as text.
pub fn text_of(value: &CellValue, kind: &CellKind) -> ChainResult<String> {
    Ok(match (value, kind) {
        (CellValue::Text(text), _) => text.clone(),
        (CellValue::Int(x), CellKind::Int { .. }) => x.to_string(),
        (CellValue::Bool(x), _) => x.to_string(),
        (CellValue::Int(days), CellKind::Date) => CivilDate::of(*days).text(),
        _ => return Err(format!("{kind:?} as text")),
    })
}

/// A day of the Gregorian calendar.
#[derive(Debug, Clone, Copy)]
pub struct CivilDate {
    /// Since 1970-01-01.
    pub days: i128,
    pub year: i128,
    pub month: i128,
    pub day: i128,
}

impl CivilDate {
    /// Walks from year to year and month to month: slow, and plainly right.
    pub fn of(days: i128) -> CivilDate {
        let leap = |year: i128| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let mut year = 1970;
        let mut left = days;
        while left < 0 {
            year -= 1;
            left += 365 + i128::from(leap(year));
        }
        while left >= 365 + i128::from(leap(year)) {
            left -= 365 + i128::from(leap(year));
            year += 1;
        }
        let february = 28 + i128::from(leap(year));
        let mut month = 1;
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if left < length {
                break;
            }
            left -= length;
            month += 1;
        }
        CivilDate {
            days,
            year,
            month,
            day: left + 1,
        }
    }

    pub fn text(self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }

    /// 0 on Mondays.
    pub fn weekday(self) -> i128 {
        (self.days + 3).rem_euclid(7)
    }

    /// From 1.
    pub fn of_year(self) -> i128 {
        (0..)
            .take_while(|back| CivilDate::of(self.days - back).year == self.year)
            .count() as i128
    }

    /// The week of ISO 8601: that of the Thursday nearby, counted in the Thursday's year.
    pub fn week(self) -> i128 {
        let thursday = CivilDate::of(self.days - self.weekday() + 3);
        (thursday.of_year() - 1) / 7 + 1
    }
}

pub fn date_parts(config: StepConfigReader<'_>, table: &CellTable) -> ChainResult<CellTable> {
    let mut table = table.clone();
    for name in config.texts("columns") {
        let at = table.find(name)?;
        let tick = match &table.columns[at].kind {
            CellKind::Date => DAY,
            CellKind::Time(unit) => nanoseconds(*unit),
            other => return Err(format!("date_parts of {other:?}")),
        };
        for part in config.texts("parts") {
            if tick == DAY && ["hour", "minute", "second"].contains(&part) {
                return Err("a date has no clock".into());
            }
            let values: Vec<CellValue> = table
                .values(at)
                .map(|value| match value {
                    CellValue::Int(ticks) => part_of(ticks * tick, part),
                    _ => CellValue::Null,
                })
                .collect();
            let output = format!("{name}_{part}");
            if table
                .columns
                .iter()
                .any(|column| column.name.starts_with(&output))
            {
                return Err(format!("{output} exists"));
            }
            let first_and_count = match part {
                "quarter" => Some((1, 4)),
                "month" => Some((1, 12)),
                "week" => Some((1, 53)),
                "day" => Some((1, 31)),
                "day_of_week" => Some((0, 7)),
                "day_of_year" => Some((1, 366)),
                "hour" => Some((0, 24)),
                "minute" | "second" => Some((0, 60)),
                _ => None,
            };
            match first_and_count {
                Some((first, count)) if config.flag("cyclic") => {
                    for (word, of) in [("sin", f64::sin as fn(f64) -> f64), ("cos", f64::cos)] {
                        let angle =
                            |x: i128| std::f64::consts::TAU * (x - first) as f64 / f64::from(count);
                        let values = values.iter().map(|value| match value {
                            CellValue::Int(x) => CellValue::float(of(angle(*x)), &CellKind::F32),
                            _ => CellValue::Null,
                        });
                        let column = TypedColumn::new(format!("{output}_{word}"), CellKind::F32);
                        let values = values.collect();
                        table.put(
                            TypedColumn {
                                care: ValueExactness::Near(1.0),
                                ..column
                            },
                            values,
                        );
                    }
                }
                _ if part == "is_weekend" => {
                    table.put(TypedColumn::new(output, CellKind::Bool), values)
                }
                _ => table.put(TypedColumn::new(output, INT32), values),
            }
        }
    }
    Ok(table)
}

/// A part of a time in nanoseconds.
pub fn part_of(time: i128, part: &str) -> CellValue {
    let date = CivilDate::of(time.div_euclid(DAY));
    let seconds = time.rem_euclid(DAY) / 1_000_000_000;
    CellValue::Int(match part {
        "year" => date.year,
        "quarter" => (date.month - 1) / 3 + 1,
        "month" => date.month,
        "week" => date.week(),
        "day" => date.day,
        "day_of_week" => date.weekday(),
        "day_of_year" => date.of_year(),
        "hour" => seconds / 3600,
        "minute" => seconds / 60 % 60,
        "second" => seconds % 60,
        _ => return CellValue::Bool(date.weekday() >= 5),
    })
}
