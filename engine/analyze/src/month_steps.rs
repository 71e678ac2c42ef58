//! Times that lie whole months apart.

use forebay_model::{Fault, PlaceInMonth, Result, StateDecoder, StateEncoder, codes};

/// Tells whether times lie whole months apart, and how many.
///
/// They do where all have the same time of day and the same day of the month; in a month that is too short for this day
/// they have its last. A set of times that do not has one state only, so that states do not depend on the order of times.
///
/// ```
/// use forebay_analyze::MonthSteps;
/// use forebay_model::ColumnClock;
///
/// let clock = ColumnClock::of(&arrow::datatypes::DataType::Date32).unwrap().unwrap();
/// let mut steps = MonthSteps::default();
/// // The last days of January, February and April of 1970.
/// for day in [30, 58, 119] {
///     steps.push(clock.place_in_month(day));
/// }
/// assert_eq!(steps.months(), Some(1));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MonthSteps(MonthState);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum MonthState {
    #[default]
    Empty,
    Even(EvenMonths),
    Uneven,
}

/// Times with one day of the month and one time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EvenMonths {
    first: i64,
    last: i64,
    /// The greatest number of months that divides all distances; 0 where all times are equal.
    step: u64,
    /// The greatest day.
    day_max: u32,
    /// The least day that is not the last of its month.
    inner_day_min: Option<u32>,
    second_of_day: u32,
    nanosecond: u32,
}

impl EvenMonths {
    fn of(time: &PlaceInMonth) -> EvenMonths {
        EvenMonths {
            first: time.month,
            last: time.month,
            step: 0,
            day_max: time.day,
            inner_day_min: (!time.is_last_day).then_some(time.day),
            second_of_day: time.second_of_day,
            nanosecond: time.nanosecond,
        }
    }

    /// The times of both; `None` where these are not whole months apart.
    fn merged(&self, other: &EvenMonths) -> Option<EvenMonths> {
        let has_one_time =
            self.second_of_day == other.second_of_day && self.nanosecond == other.nanosecond;
        let day_max = self.day_max.max(other.day_max);
        let inner_days = self.inner_day_min.into_iter().chain(other.inner_day_min);
        let inner_day_min = inner_days.min();
        if !has_one_time || inner_day_min.is_some_and(|day| day < day_max) {
            return None;
        }
        let distance = self.first.abs_diff(other.first);
        let step = common_divisor(self.step, other.step);
        Some(EvenMonths {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            step: common_divisor(step, distance),
            day_max,
            inner_day_min,
            second_of_day: self.second_of_day,
            nanosecond: self.nanosecond,
        })
    }
}

pub(crate) fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Tags of states.
const EMPTY: u64 = 0;
const EVEN: u64 = 1;
const UNEVEN: u64 = 2;

impl MonthSteps {
    /// Adds a time by its place in its month; `None` for one that has no such place.
    pub fn push(&mut self, time: Option<PlaceInMonth>) {
        self.merge(&MonthSteps(match &time {
            Some(time) => MonthState::Even(EvenMonths::of(time)),
            None => MonthState::Uneven,
        }));
    }

    /// True if further times change nothing.
    pub fn is_uneven(&self) -> bool {
        self.0 == MonthState::Uneven
    }

    /// Adds the times of another state.
    pub fn merge(&mut self, other: &MonthSteps) {
        self.0 = match (&self.0, &other.0) {
            (MonthState::Empty, state) | (state, MonthState::Empty) => *state,
            (MonthState::Even(a), MonthState::Even(b)) => {
                a.merged(b).map_or(MonthState::Uneven, MonthState::Even)
            }
            (MonthState::Uneven, _) | (_, MonthState::Uneven) => MonthState::Uneven,
        };
    }

    /// The greatest number of months that divides all distances; 0 where all times are equal, `None` where they are not
    /// whole months apart.
    pub fn months(&self) -> Option<u64> {
        match &self.0 {
            MonthState::Even(even) => Some(even.step),
            MonthState::Empty | MonthState::Uneven => None,
        }
    }

    /// Months from the month of the first time to that of the last.
    pub(crate) fn span(&self) -> u64 {
        match &self.0 {
            MonthState::Even(even) => even.last.abs_diff(even.first),
            MonthState::Empty | MonthState::Uneven => 0,
        }
    }

    /// Months of the first and the last time.
    pub(crate) fn range(&self) -> Option<(i64, i64)> {
        match &self.0 {
            MonthState::Even(even) => Some((even.first, even.last)),
            MonthState::Empty | MonthState::Uneven => None,
        }
    }

    pub(crate) fn write(&self, out: &mut StateEncoder<'_>) -> Result<()> {
        let even = match &self.0 {
            MonthState::Empty => return out.varint(EMPTY),
            MonthState::Uneven => return out.varint(UNEVEN),
            MonthState::Even(even) => even,
        };
        out.varint(EVEN)?;
        out.signed(even.first)?;
        out.varint(self.span())?;
        out.varint(even.step)?;
        out.varint(even.day_max.into())?;
        out.varint(even.inner_day_min.unwrap_or(0).into())?;
        out.varint(even.second_of_day.into())?;
        out.varint(even.nanosecond.into())
    }

    pub(crate) fn read(input: &mut StateDecoder<'_>) -> Result<MonthSteps> {
        let wrong = || Fault::new(codes::CORRUPT, "a state holds months that are none");
        let state = match input.varint()? {
            EMPTY => MonthState::Empty,
            UNEVEN => MonthState::Uneven,
            EVEN => {
                let first = input.signed()?;
                let last = first
                    .checked_add_unsigned(input.varint()?)
                    .ok_or_else(wrong)?;
                let step = input.varint()?;
                let mut numbers = [0; 4];
                for number in &mut numbers {
                    *number = u32::try_from(input.varint()?).map_err(|_| wrong())?;
                }
                let [day_max, inner_day_min, second_of_day, nanosecond] = numbers;
                MonthState::Even(EvenMonths {
                    first,
                    last,
                    step,
                    day_max,
                    inner_day_min: Some(inner_day_min).filter(|day| *day > 0),
                    second_of_day,
                    nanosecond,
                })
            }
            _ => return Err(wrong()),
        };
        Ok(MonthSteps(state))
    }
}
