//! Distance of a computed column of times from the time that it is computed of.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};

use crate::calendar_moves::MOVED_TIME_NAME;

/// Nanoseconds of a day.
const DAY: i128 = 86_400_000_000_000;

/// Days of the shortest and of the longest month.
const MONTH_DAYS: [i128; 2] = [28, 31];

/// The function of the query engine that gives the local time of a time with a zone.
const LOCAL_TIME_NAME: &str = "to_local_time";

/// The farthest a time zone is from UTC.
const ZONE_HOURS_MAX: i128 = 14;

/// Bounds of the distance from one time to another, in nanoseconds; in ticks where times are whole numbers. Positive
/// distances lead to later times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeShift {
    /// The least distance.
    pub least: i128,
    /// The greatest distance.
    pub most: i128,
}

impl TimeShift {
    /// No distance.
    pub const NONE: TimeShift = TimeShift { least: 0, most: 0 };

    /// One known distance.
    fn exactly(distance: i128) -> TimeShift {
        TimeShift {
            least: distance,
            most: distance,
        }
    }

    /// Shift down to a multiple of `length`, for times that are multiples of `tick`.
    pub(crate) fn floor(length: i128, tick: i128) -> TimeShift {
        TimeShift {
            least: tick - length,
            most: 0,
        }
    }

    /// One shift after the other.
    pub(crate) fn then(self, next: TimeShift) -> TimeShift {
        TimeShift {
            least: self.least + next.least,
            most: self.most + next.most,
        }
    }

    /// The shift back.
    pub(crate) fn reversed(self) -> TimeShift {
        TimeShift {
            least: -self.most,
            most: -self.least,
        }
    }

    /// The bounds of either.
    pub(crate) fn or(self, other: TimeShift) -> TimeShift {
        TimeShift {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }

    /// Uncertainty of the distance.
    pub(crate) fn spread(self) -> i128 {
        self.most - self.least
    }
}

/// A column of times, and how far an expression lies from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShiftedColumn {
    pub column: Column,
    pub shift: TimeShift,
    /// Values are multiples of it.
    grid: i128,
}

impl ShiftedColumn {
    fn moved(self, by: TimeShift) -> Option<ShiftedColumn> {
        let is_on_grid = by.least % self.grid == 0 && by.most % self.grid == 0;
        Some(ShiftedColumn {
            shift: self.shift.then(by),
            grid: if is_on_grid { self.grid } else { 1 },
            ..self
        })
    }

    fn truncated(self, length: i128) -> Option<ShiftedColumn> {
        let by = TimeShift::floor(length, self.grid);
        Some(ShiftedColumn {
            shift: self.shift.then(by),
            grid: if length % DAY == 0 { DAY } else { 1 },
            ..self
        })
    }

    fn cast(self, from: &DataType, to: &DataType) -> Option<ShiftedColumn> {
        let by = cast_shift(from, to)?;
        let is_date = matches!(to, DataType::Date32 | DataType::Date64);
        let is_whole =
            is_date && self.grid % DAY == 0 && !matches!(from, DataType::Timestamp(_, Some(_)));
        let by = if is_whole { TimeShift::NONE } else { by };
        let grid = if is_date { DAY } else { self.grid };
        Some(ShiftedColumn {
            shift: self.shift.then(by),
            grid,
            ..self
        })
    }
}

/// The column that an expression only moves in time, by a distance that is known or bounded. `None` of other
/// expressions.
pub(crate) fn shifted_column(expression: &Expr, schema: &DFSchema) -> Option<ShiftedColumn> {
    let moved = |inner: &Expr, by: TimeShift| shifted_column(inner, schema)?.moved(by);
    match expression {
        Expr::Column(column) => Some(ShiftedColumn {
            column: column.clone(),
            shift: TimeShift::NONE,
            grid: nanoseconds_per_tick(&expression.get_type(schema).ok()?),
        }),
        Expr::Alias(alias) => shifted_column(&alias.expr, schema),
        Expr::Cast(cast) => {
            let from = cast.expr.get_type(schema).ok()?;
            shifted_column(&cast.expr, schema)?.cast(&from, cast.field.data_type())
        }
        Expr::TryCast(cast) => {
            let from = cast.expr.get_type(schema).ok()?;
            shifted_column(&cast.expr, schema)?.cast(&from, cast.field.data_type())
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::Plus => {
                let from = left.get_type(schema).ok()?;
                if let Some(by) = literal_shift(right, &from) {
                    return moved(left, by);
                }
                let from = right.get_type(schema).ok()?;
                moved(right, literal_shift(left, &from)?)
            }
            Operator::Minus => {
                let from = left.get_type(schema).ok()?;
                moved(left, literal_shift(right, &from)?.reversed())
            }
            _ => None,
        },
        Expr::ScalarFunction(call) if call.func.name() == MOVED_TIME_NAME => {
            let [time, length] = call.args.as_slice() else {
                return None;
            };
            let from = time.get_type(schema).ok()?;
            moved(time, literal_shift(length, &from)?)
        }
        Expr::ScalarFunction(call) if call.func.name() == LOCAL_TIME_NAME => {
            let [time] = call.args.as_slice() else {
                return None;
            };
            moved(time, zone_shift(true))
        }
        Expr::ScalarFunction(call) => {
            let period = match (call.func.name(), call.args.as_slice()) {
                ("date_trunc", [unit, time]) => (truncated_length(unit)?, time),
                ("date_bin", [stride, time]) | ("date_bin", [stride, time, _]) => {
                    let from = time.get_type(schema).ok()?;
                    (literal_shift(stride, &from)?.most, time)
                }
                _ => return None,
            };
            let (length, time) = period;
            shifted_column(time, schema)?.truncated(length)
        }
        _ => None,
    }
}

/// Distance by which a cast moves a time; `None` where the result is no time, or one of other
/// units.
pub fn cast_shift(from: &DataType, to: &DataType) -> Option<TimeShift> {
    use DataType as T;
    match (from, to) {
        (a, b) if a == b => Some(TimeShift::NONE),
        (a, b) if a.is_integer() && b.is_integer() => Some(TimeShift::NONE),
        (T::Date32 | T::Date64, T::Date32 | T::Date64) => Some(TimeShift::NONE),
        (T::Date32 | T::Date64, T::Timestamp(_, zone)) => Some(zone_shift(zone.is_some())),
        (T::Timestamp(unit, zone), T::Date32 | T::Date64) => {
            let tick = nanoseconds_per_tick(&T::Timestamp(*unit, None));
            Some(TimeShift::floor(DAY, tick).then(zone_shift(zone.is_some())))
        }
        (T::Timestamp(_, a), T::Timestamp(unit, b)) => {
            let coarser = TimeShift::floor(nanoseconds_per_tick(&T::Timestamp(*unit, None)), 1);
            Some(coarser.then(zone_shift(a != b)))
        }
        _ => None,
    }
}

fn zone_shift(is_moved: bool) -> TimeShift {
    let most = if is_moved {
        ZONE_HOURS_MAX * DAY / 24
    } else {
        0
    };
    TimeShift { least: -most, most }
}

/// The distance of a literal that is added to a time of this type.
fn literal_shift(literal: &Expr, time: &DataType) -> Option<TimeShift> {
    let value = match literal {
        Expr::Literal(value, _) => value.clone(),
        Expr::Negative(inner) => return Some(literal_shift(inner, time)?.reversed()),
        Expr::Cast(cast) => return literal_shift(&cast.expr, time),
        _ => return None,
    };
    if value.data_type().is_integer() {
        let ScalarValue::Int64(Some(count)) = value.cast_to(&DataType::Int64).ok()? else {
            return None;
        };
        let tick = match time {
            DataType::Date32 => DAY,
            whole if whole.is_integer() => 1,
            _ => return None,
        };
        return Some(TimeShift::exactly(i128::from(count) * tick));
    }
    let to = DataType::Interval(IntervalUnit::MonthDayNano);
    let ScalarValue::IntervalMonthDayNano(Some(length)) = value.cast_to(&to).ok()? else {
        return None;
    };
    let months = i128::from(length.months);
    let of_months = MONTH_DAYS.map(|days| months * days * DAY);
    let others = i128::from(length.days) * DAY + i128::from(length.nanoseconds);
    Some(TimeShift {
        least: of_months[0].min(of_months[1]) + others,
        most: of_months[0].max(of_months[1]) + others,
    })
}

/// The longest period of a unit of `date_trunc`.
fn truncated_length(unit: &Expr) -> Option<i128> {
    let Expr::Literal(unit, _) = unit else {
        return None;
    };
    let second: i128 = 1_000_000_000;
    Some(match unit.try_as_str()??.to_lowercase().as_str() {
        "microsecond" => 1_000,
        "millisecond" => 1_000_000,
        "second" => second,
        "minute" => 60 * second,
        "hour" => 3_600 * second,
        "day" => DAY,
        "week" => 7 * DAY,
        "month" => 31 * DAY,
        "quarter" => 92 * DAY,
        "year" => 366 * DAY,
        _ => return None,
    })
}

/// Nanoseconds per tick; integer time columns count in their own unit.
pub(crate) fn nanoseconds_per_tick(time: &DataType) -> i128 {
    match time {
        DataType::Date32 => DAY,
        DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
        _ => 1,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow::datatypes::{Field, Schema};

    use super::*;
    use crate::SqlCompiler;

    #[test]
    fn expressions_that_move_a_time_have_bounds() {
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into()));
        let schema = Schema::new(vec![
            Field::new("day", DataType::Date32, true),
            Field::new("zoned", zoned, true),
            Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true),
            Field::new("hour", DataType::Int64, true),
            Field::new("other", DataType::Date32, true),
        ]);
        let cases = [
            ("day", Some((0, 0))),
            ("day - INTERVAL '28 days'", Some((-28 * DAY, -28 * DAY))),
            (
                "CAST(day - INTERVAL '28' DAY AS DATE)",
                Some((-28 * DAY, -28 * DAY)),
            ),
            ("INTERVAL '2' DAY + day", Some((2 * DAY, 2 * DAY))),
            ("day + INTERVAL '1 month'", Some((28 * DAY, 31 * DAY))),
            ("date_trunc('week', day)", Some((-6 * DAY, 0))),
            ("CAST(date_trunc('week', day) AS DATE)", Some((-6 * DAY, 0))),
            ("date_trunc('month', at)", Some((1_000 - 31 * DAY, 0))),
            (
                "date_bin(INTERVAL '7 days', at)",
                Some((1_000 - 7 * DAY, 0)),
            ),
            ("CAST(at AS DATE)", Some((1_000 - DAY, 0))),
            (
                "CAST(zoned AS TIMESTAMP)",
                Some((-14 * DAY / 24, 14 * DAY / 24)),
            ),
            ("hour + 24", Some((24, 24))),
            ("hour * 2", None),
            ("DATE '2024-01-01'", None),
            ("coalesce(day, other)", None),
            ("CASE WHEN hour > 3 THEN day ELSE other END", None),
        ];
        for (text, expected) in cases {
            let compiled = SqlCompiler::default().expression(text, &schema).unwrap();
            let expected = expected.map(|(least, most)| TimeShift { least, most });
            let shift = compiled.moved.map(|moved| moved.shift);
            assert_eq!(shift, expected, "{text}");
        }
    }
}
