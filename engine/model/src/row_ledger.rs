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
    /// A training leaves them out, since a value in them is not finite.
    NotFinite,
    /// A training or a step takes a sample of the rows, and they are not in it.
    Unsampled,
    /// A validation leaves them out, since no row that was learned from has their class.
    UnknownClass,
    /// A list gives a row for each of its values.
    Exploded,
    /// A join gives a row for each match.
    Multiplied,
    /// They continue a series beyond its last time.
    Future,
    /// A query gives more rows than it reads.
    Queried,
    /// An aggregate without keys gives a row, though it read none.
    EmptyTotal,
    /// They are made of rows that were not counted: by an earlier version, or by a query that ended before the end of a
    /// span whose source does not tell its rows.
    Uncounted,
    /// A value that could not be converted became null.
    Nulled,
    /// A missing value was filled in.
    Imputed,
    /// A value that is not finite became 0.
    Zeroed,
    /// A value was moved to a bound.
    Clipped,
    /// A number with a fraction became a whole number.
    FractionCut,
    /// A finite number became NaN or infinite.
    MadeNotFinite,
    /// Quantiles that crossed were sorted.
    Sorted,
    /// A join found no row of the other side, and keeps the row with nulls.
    NoMatch,
    /// A model predicted a row of the future without a value of a column that it predicts by.
    Missing,
    /// A list with a limit left a value out.
    BeyondLimit,
    /// A step neither learned a value nor lists it, and wrote what it writes for all such values.
    Unknown,
}

impl RowChange {
    /// An explanation of a reason that its words alone do not give.
    pub fn explanation(self) -> Option<&'static str> {
        match self {
            RowChange::Uncounted => Some(
                "the rows in are not known: a step ended before it had read files, such as CSV, \
                 that do not tell their numbers of rows, or an earlier version has counted them",
            ),
            _ => None,
        }
    }
}

/// The part of a sum that a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Rows that went in and did not come out.
    Removed,
    /// Rows that came out and did not go in.
    Added,
    /// Values that a step changed, also in rows that a later step or the split removes.
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
            | RowChange::OutsideInterval
            | RowChange::NotFinite
            | RowChange::Unsampled
            | RowChange::UnknownClass => ChangeKind::Removed,
            RowChange::Exploded
            | RowChange::Multiplied
            | RowChange::Future
            | RowChange::Queried
            | RowChange::EmptyTotal
            | RowChange::Uncounted => ChangeKind::Added,
            RowChange::Nulled
            | RowChange::Imputed
            | RowChange::Zeroed
            | RowChange::Clipped
            | RowChange::FractionCut
            | RowChange::MadeNotFinite
            | RowChange::Sorted
            | RowChange::NoMatch
            | RowChange::Missing
            | RowChange::BeyondLimit
            | RowChange::Unknown => ChangeKind::Values,
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
            RowChange::NotFinite => "not_finite",
            RowChange::Unsampled => "unsampled",
            RowChange::UnknownClass => "unknown_class",
            RowChange::Exploded => "exploded",
            RowChange::Multiplied => "multiplied",
            RowChange::Future => "future",
            RowChange::Queried => "queried",
            RowChange::EmptyTotal => "empty_total",
            RowChange::Uncounted => "uncounted",
            RowChange::Nulled => "nulled",
            RowChange::Imputed => "imputed",
            RowChange::Zeroed => "zeroed",
            RowChange::Clipped => "clipped",
            RowChange::FractionCut => "fraction_cut",
            RowChange::MadeNotFinite => "made_not_finite",
            RowChange::Sorted => "sorted",
            RowChange::NoMatch => "no_match",
            RowChange::Missing => "missing",
            RowChange::BeyondLimit => "beyond_limit",
            RowChange::Unknown => "unknown",
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
            RowChange::NotFinite => "with values that are not finite left out",
            RowChange::Unsampled => "not in the sample",
            RowChange::UnknownClass => "of classes that were not learned",
            RowChange::Exploded => "exploded",
            RowChange::Multiplied => "more matches",
            RowChange::Future => "of the future",
            RowChange::Queried => "more by the query",
            RowChange::EmptyTotal => "the total of no rows",
            RowChange::Uncounted => "of rows that were not counted",
            RowChange::Nulled => "made null",
            RowChange::Imputed => "filled in",
            RowChange::Zeroed => "not finite, became 0",
            RowChange::Clipped => "moved to a bound",
            RowChange::FractionCut => "cut to whole numbers",
            RowChange::MadeNotFinite => "became NaN or infinite",
            RowChange::Sorted => "crossing quantiles sorted",
            RowChange::NoMatch => "without a match, kept with nulls",
            RowChange::Missing => "missing, predicted without",
            RowChange::BeyondLimit => "beyond the limit of a list, left out",
            RowChange::Unknown => "neither learned nor listed",
        }
    }
}

/// Most values that an entry shows.
pub const EXAMPLES_MAX: usize = 3;

/// A value that was changed, and its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueExample {
    /// The file, by its path below the source's root.
    pub file: String,
    /// Its row of the file, from 0.
    pub row: u64,
    /// The value as it was, cut where it is long.
    pub value: String,
}

/// Values of a column that a source read as null, since they are not of the column's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfitValues {
    /// The column.
    pub column: String,
    /// Number of the values.
    pub count: u64,
    /// The first of them.
    pub examples: Vec<ValueExample>,
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
    /// The first values, by file and row, where they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<ValueExample>,
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
        self.record_examples(step, column, change, count, &[]);
    }

    /// Counts values that a source read as null.
    pub fn record_unfit(&mut self, source: &str, values: &UnfitValues) {
        let column = Some(values.column.as_str());
        let examples = &values.examples;
        self.record_examples(source, column, RowChange::Nulled, values.count, examples);
    }

    fn record_examples(
        &mut self,
        step: &str,
        column: Option<&str>,
        change: RowChange,
        count: u64,
        examples: &[ValueExample],
    ) {
        if count == 0 {
            return;
        }
        // A search: a run has a few dozen entries.
        let entry = self.entries.iter_mut().find(|entry| {
            entry.change == change && entry.step == step && entry.column.as_deref() == column
        });
        if let Some(entry) = entry {
            entry.count += count;
            if !examples.is_empty() {
                // The first ones by place, so that the order of merging does not matter.
                entry.examples.extend_from_slice(examples);
                entry.examples.sort();
                entry.examples.dedup();
                entry.examples.truncate(EXAMPLES_MAX);
            }
            return;
        }
        self.entries.push(LedgerEntry {
            step: step.to_owned(),
            column: column.map(str::to_owned),
            change,
            count,
            examples: examples.to_vec(),
        });
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
            let examples = &entry.examples;
            self.record_examples(&entry.step, column, entry.change, entry.count, examples);
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
        let available = rows_in + self.total(ChangeKind::Added);
        let removed = self.total(ChangeKind::Removed);
        if removed > available {
            let message = format!("{removed} rows were removed of {available} that were there");
            return Err(Fault::internal(message));
        }
        Ok(available - removed)
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
    fn the_first_examples_are_kept_in_any_order_of_merging() {
        let unfit = |row: u64| UnfitValues {
            column: "qty".to_owned(),
            count: 1,
            examples: vec![ValueExample {
                file: "a.csv".to_owned(),
                row,
                value: "x".to_owned(),
            }],
        };
        let ledger = |rows: &[u64]| {
            let mut ledger = RowLedger::default();
            for row in rows {
                let mut other = RowLedger::default();
                other.record_unfit("sales", &unfit(*row));
                ledger.add(&other);
            }
            ledger
        };
        let merged = ledger(&[5, 1, 9, 3, 2]);
        assert_eq!(merged, ledger(&[2, 3, 9, 5, 1]));
        let entry = &merged.entries()[0];
        let rows: Vec<u64> = entry.examples.iter().map(|example| example.row).collect();
        assert_eq!((entry.count, rows), (5, vec![1, 2, 3]));
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
            RowChange::NoMatch,
            RowChange::Missing,
            RowChange::BeyondLimit,
            RowChange::Unknown,
            RowChange::NotFinite,
            RowChange::Unsampled,
            RowChange::UnknownClass,
            RowChange::Zeroed,
        ] {
            let name = serde_json::to_value(change).unwrap();
            assert_eq!(name, change.name());
        }
    }
}
