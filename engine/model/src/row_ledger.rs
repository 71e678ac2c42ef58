//! The ledger of rows: the operations that removed, added or changed rows, each with its reason.
//!
//! The rows of an output add up: rows in + rows added = rows out + rows removed. Changes of values are listed beside them
//! and have no part in the sum.

use serde::{Deserialize, Serialize};

use crate::{Fault, Result};

/// A reason for which rows or values differ from those that went in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowChange {
    /// A condition was not true.
    Filtered,
    /// The source left them out: no row of their row groups can pass the filters or lies in the interval.
    Skipped,
    /// They violate a rule of an `expect` step whose policy takes them out.
    Quarantined,
    /// Another row has the same keys.
    Duplicate,
    /// An aggregate gives one row for several.
    Grouped,
    /// A join found no row of the other side, and keeps matches only.
    Unmatched,
    /// An anti join found a row of the other side.
    Matched,
    /// A list without values gives no row.
    EmptyList,
    /// A query gives fewer rows than it reads.
    QueriedAway,
    /// They belong to another part of the split.
    OtherPart,
    /// They lie outside of the interval that is written.
    OutsideInterval,
    /// A list gives a row for each of its values.
    Exploded,
    /// A join gives a row for each match.
    Multiplied,
    /// They continue a series beyond its last time.
    Future,
    /// A query gives more rows than it reads.
    Queried,
    /// They are made of rows that were not counted: by an earlier version, or by workers that read a source which does not
    /// tell its rows.
    Uncounted,
    /// A value that could not be converted became null.
    Nulled,
    /// A missing value was filled in.
    Imputed,
    /// A value was moved to a bound.
    Clipped,
    /// Quantiles that crossed were sorted.
    Sorted,
}

/// The part of a sum that a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Rows that went in and did not come out.
    Removed,
    /// Rows that came out and did not go in.
    Added,
    /// Values that changed in rows that came out.
    Values,
}

impl RowChange {
    /// The part of a sum that it is.
    pub fn kind(self) -> ChangeKind {
        match self {
            RowChange::Filtered
            | RowChange::Skipped
            | RowChange::Quarantined
            | RowChange::Duplicate
            | RowChange::Grouped
            | RowChange::Unmatched
            | RowChange::Matched
            | RowChange::EmptyList
            | RowChange::QueriedAway
            | RowChange::OtherPart
            | RowChange::OutsideInterval => ChangeKind::Removed,
            RowChange::Exploded
            | RowChange::Multiplied
            | RowChange::Future
            | RowChange::Queried
            | RowChange::Uncounted => ChangeKind::Added,
            RowChange::Nulled | RowChange::Imputed | RowChange::Clipped | RowChange::Sorted => {
                ChangeKind::Values
            }
        }
    }

    /// The name in JSON and in labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            RowChange::Filtered => "filtered",
            RowChange::Skipped => "skipped",
            RowChange::Quarantined => "quarantined",
            RowChange::Duplicate => "duplicate",
            RowChange::Grouped => "grouped",
            RowChange::Unmatched => "unmatched",
            RowChange::Matched => "matched",
            RowChange::EmptyList => "empty_list",
            RowChange::QueriedAway => "queried_away",
            RowChange::OtherPart => "other_part",
            RowChange::OutsideInterval => "outside_interval",
            RowChange::Exploded => "exploded",
            RowChange::Multiplied => "multiplied",
            RowChange::Future => "future",
            RowChange::Queried => "queried",
            RowChange::Uncounted => "uncounted",
            RowChange::Nulled => "nulled",
            RowChange::Imputed => "imputed",
            RowChange::Clipped => "clipped",
            RowChange::Sorted => "sorted",
        }
    }

    /// The words for people, after a number of rows or values.
    pub fn words(self) -> &'static str {
        match self {
            RowChange::Filtered => "filtered",
            RowChange::Skipped => "skipped in the source",
            RowChange::Quarantined => "quarantined",
            RowChange::Duplicate => "duplicates dropped",
            RowChange::Grouped => "grouped",
            RowChange::Unmatched => "without a match",
            RowChange::Matched => "with a match",
            RowChange::EmptyList => "with an empty list",
            RowChange::QueriedAway => "fewer by the query",
            RowChange::OtherPart => "of other parts",
            RowChange::OutsideInterval => "outside of the interval",
            RowChange::Exploded => "exploded",
            RowChange::Multiplied => "more matches",
            RowChange::Future => "of the future",
            RowChange::Queried => "more by the query",
            RowChange::Uncounted => "of rows that were not counted",
            RowChange::Nulled => "made null",
            RowChange::Imputed => "filled in",
            RowChange::Clipped => "moved to a bound",
            RowChange::Sorted => "crossing quantiles sorted",
        }
    }
}

/// Rows or values that a step changed for one reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// The step, such as `features.filter`; empty for what no step did.
    pub step: String,
    /// The column, for a change of values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The reason.
    pub change: RowChange,
    /// The number of rows, or of values.
    pub count: u64,
}

/// The changes of some rows, one entry for each step, column and reason, in the order in which they were first seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RowLedger {
    entries: Vec<LedgerEntry>,
}

impl RowLedger {
    /// The entries.
    pub fn entries(&self) -> &[LedgerEntry] {
        &self.entries
    }

    /// True if nothing changed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Counts a change of rows. Nothing is recorded for a count of 0.
    pub fn record(&mut self, step: &str, change: RowChange, count: u64) {
        self.record_values(step, None, change, count);
    }

    /// Counts a change of the values of a column. Nothing is recorded for a count of 0.
    pub fn record_values(
        &mut self,
        step: &str,
        column: Option<&str>,
        change: RowChange,
        count: u64,
    ) {
        if count == 0 {
            return;
        }
        let entry = self.entries.iter_mut().find(|entry| {
            entry.change == change && entry.step == step && entry.column.as_deref() == column
        });
        match entry {
            Some(entry) => entry.count += count,
            None => self.entries.push(LedgerEntry {
                step: step.to_owned(),
                column: column.map(str::to_owned),
                change,
                count,
            }),
        }
    }

    /// Counts the difference of the rows that an operation gave from those that it read.
    pub fn record_difference(
        &mut self,
        step: &str,
        (rows_in, rows_out): (u64, u64),
        (removed, added): (RowChange, RowChange),
    ) {
        self.record(step, removed, rows_in.saturating_sub(rows_out));
        self.record(step, added, rows_out.saturating_sub(rows_in));
    }

    /// Adds the changes of other rows.
    pub fn add(&mut self, other: &RowLedger) {
        for entry in &other.entries {
            let column = entry.column.as_deref();
            self.record_values(&entry.step, column, entry.change, entry.count);
        }
    }

    /// The sum of the changes of a kind.
    pub fn total(&self, kind: ChangeKind) -> u64 {
        let entries = self.entries.iter();
        let of_kind = entries.filter(|entry| entry.change.kind() == kind);
        of_kind.map(|entry| entry.count).sum()
    }

    /// The sum of the changes for a reason.
    pub fn count_of(&self, change: RowChange) -> u64 {
        let entries = self.entries.iter();
        let of_reason = entries.filter(|entry| entry.change == change);
        of_reason.map(|entry| entry.count).sum()
    }

    /// The rows that come out of `rows_in` rows. Fails where more are removed than there are.
    pub fn rows_out(&self, rows_in: u64) -> Result<u64> {
        let there = rows_in + self.total(ChangeKind::Added);
        let removed = self.total(ChangeKind::Removed);
        there.checked_sub(removed).ok_or_else(|| {
            Fault::internal(format!(
                "{removed} rows were removed of {there} that were there"
            ))
        })
    }

    /// Refuses a sum that does not hold.
    pub fn check_sum(&self, rows_in: u64, rows_out: u64) -> Result<()> {
        let expected = self.rows_out(rows_in)?;
        if expected == rows_out {
            return Ok(());
        }
        Err(Fault::internal(format!(
            "{rows_in} rows in should be {expected} rows out, and {rows_out} came out"
        )))
    }
}

/// The rows of an output, from its sources on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowSum {
    /// Rows of the sources that were read for it.
    pub rows_in: u64,
    /// The changes on the way.
    pub changes: RowLedger,
}

impl RowSum {
    /// The rows that come out.
    pub fn rows_out(&self) -> Result<u64> {
        self.changes.rows_out(self.rows_in)
    }

    /// Adds the rows of another sum.
    pub fn add(&mut self, other: &RowSum) {
        self.rows_in += other.rows_in;
        self.changes.add(&other.changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_step_and_a_reason_are_one() {
        let mut ledger = RowLedger::default();
        ledger.record("a.filter", RowChange::Filtered, 3);
        ledger.record("a.filter", RowChange::Filtered, 0);
        ledger.record("a.dedupe", RowChange::Duplicate, 0);
        let mut sum = ledger.clone();
        sum.add(&ledger);
        sum.record_values("a.cast", Some("day"), RowChange::Nulled, 5);
        let counts: Vec<(&str, u64)> = sum
            .entries()
            .iter()
            .map(|entry| (entry.change.name(), entry.count))
            .collect();
        assert_eq!(counts, [("filtered", 6), ("nulled", 5)]);
    }

    #[test]
    fn a_sum_must_hold() {
        for (rows_in, rows_out, removed, added, holds) in [
            (4, 3, 1, 0, true),
            (4, 6, 1, 3, true),
            (4, 4, 1, 0, false),
            (0, 5, 0, 5, true),
            (1, 0, 2, 0, false),
        ] {
            let mut ledger = RowLedger::default();
            ledger.record("f", RowChange::Duplicate, removed);
            ledger.record("f", RowChange::Exploded, added);
            ledger.record("f", RowChange::Nulled, 9);
            let checked = ledger.check_sum(rows_in, rows_out);
            assert_eq!(checked.is_ok(), holds, "{rows_in} {rows_out}");
        }
    }

    #[test]
    fn names_are_those_of_json() {
        for change in [
            RowChange::EmptyList,
            RowChange::Nulled,
            RowChange::Duplicate,
        ] {
            let name = serde_json::to_value(change).unwrap();
            assert_eq!(name, change.name());
        }
    }
}
