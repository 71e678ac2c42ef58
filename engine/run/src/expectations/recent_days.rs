//! Profiles of a column in the runs of the last days.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::profile::{ColumnProfile, NumericProfile};

/// Days before a run that it is compared with.
const WEEK: i64 = 7;

/// Profiles of a column by the day of the run, counted from 1970. Holds at most 16 days, in any
/// order of runs: the newest eight, and those that the last run was compared with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RecentDays(BTreeMap<i64, ColumnProfile>);

impl RecentDays {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The columns of the runs on the seven days before a day, oldest first.
    pub fn week_before(&self, day: i64) -> Vec<&ColumnProfile> {
        self.0
            .range(day - WEEK..day)
            .map(|(_, profile)| profile)
            .collect()
    }

    /// Copy with a run on this day added, which replaces an earlier one of that day.
    pub fn with(&self, day: i64, profile: &ColumnProfile) -> RecentDays {
        let mut days = self.0.clone();
        days.insert(day, compared_fields(profile));
        let newest = days
            .keys()
            .rev()
            .nth(WEEK as usize)
            .copied()
            .unwrap_or(i64::MIN);
        days.retain(|kept_day, _| *kept_day >= newest || (day - WEEK..=day).contains(kept_day));
        RecentDays(days)
    }
}

/// The part of a profile that comparisons read.
fn compared_fields(profile: &ColumnProfile) -> ColumnProfile {
    let numeric = profile.numeric.clone().map(|numeric| NumericProfile {
        histogram: Vec::new(),
        ..numeric
    });
    ColumnProfile {
        numeric,
        time: None,
        length: None,
        examples: Vec::new(),
        ..profile.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(known: impl IntoIterator<Item = i64>) -> RecentDays {
        known.into_iter().fold(RecentDays::default(), |days, day| {
            days.with(day, &ColumnProfile::empty("c", "Utf8"))
        })
    }

    #[test]
    fn a_bounded_number_of_days_is_kept_in_any_order_of_runs() {
        assert_eq!(
            days(1..=100).0.into_keys().collect::<Vec<_>>(),
            (93..=100).collect::<Vec<_>>()
        );
        // Earlier days are done again: each has its own week, and the newest stay.
        let again = days((200..=300).chain(100..=110));
        assert_eq!(
            again.0.keys().copied().collect::<Vec<_>>(),
            (103..=110).chain(293..=300).collect::<Vec<_>>()
        );
        assert_eq!(
            (again.week_before(110).len(), again.week_before(301).len()),
            (7, 7)
        );
        assert_eq!(
            (
                again.week_before(103).len(),
                days([1, 1, 9]).week_before(9).len()
            ),
            (0, 0)
        );
    }
}
