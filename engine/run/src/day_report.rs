//! Reports of a run on days of its sources.

use serde::Serialize;

/// Days of a source that are not as others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DayReport {
    /// The source.
    pub source: String,
    /// The kind of the days.
    pub kind: DayProblem,
    /// Number of the days.
    pub days: u64,
    /// The newest of them, with their columns or files: at most five, in order.
    pub newest: Vec<String>,
}

/// A kind of days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DayProblem {
    /// Rows are usual, and there are none.
    Late,
    /// Several files hold the same rows.
    Duplicate,
    /// A column is null throughout that has values on the days before.
    Empty,
}

impl DayProblem {
    /// The name of the kind in specs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            DayProblem::Late => "late",
            DayProblem::Duplicate => "duplicate",
            DayProblem::Empty => "empty",
        }
    }
}

impl DayReport {
    /// A sentence about the days.
    pub fn text(&self) -> String {
        let is_one = self.days == 1;
        let days = if is_one { "day" } else { "days" };
        let problem = match (self.kind, is_one) {
            (DayProblem::Late, true) => "is late: it has no rows",
            (DayProblem::Late, false) => "are late: they have no rows",
            (DayProblem::Duplicate, true) => {
                "seems to have come twice: files have one size and one footer"
            }
            (DayProblem::Duplicate, false) => {
                "seem to have come twice: files have one size and one footer"
            }
            (DayProblem::Empty, true) => "is empty: a column is null in all of its rows",
            (DayProblem::Empty, false) => "are empty: a column is null in all of their rows",
        };
        let listed = self.newest.join(", ");
        let earlier = match self.days.saturating_sub(self.newest.len() as u64) {
            0 => String::new(),
            count => format!(", and {count} before"),
        };
        format!(
            "source `{}`: {} {days} {problem} ({listed}{earlier})",
            self.source, self.days
        )
    }

    /// The remedy for the days.
    pub(crate) fn hint(&self) -> String {
        let remedy = match self.kind {
            DayProblem::Late => "deliver the rows",
            DayProblem::Duplicate => "remove one of the files",
            DayProblem::Empty => "deliver the values",
        };
        let name = self.kind.name();
        format!("{remedy}, or declare `days: {{ {name}: allow }}` at the source")
    }
}
