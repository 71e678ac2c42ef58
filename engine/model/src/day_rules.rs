//! Days of a source that have not come, have come twice, or have a column without values.

use serde::{Deserialize, Serialize};

/// Treatment of a kind of days.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DayRule {
    /// Says nothing.
    Allow,
    /// Reports them in a warning where metadata tell them; says nothing where they do not.
    #[default]
    WarnIfKnown,
    /// Reports them in a warning, and warns where nothing tells them. Times that metadata do not tell are read.
    Warn,
    /// Refuses them.
    Error,
}

/// Treatment of days of a source by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DayRules {
    /// Days on which rows are usual, and that have none.
    pub late: DayRule,
    /// Days of which several files hold the same rows.
    pub duplicate: DayRule,
    /// Days on which a column is null throughout that has values on the days before.
    pub empty: DayRule,
}

impl DayRules {
    /// True for the usual treatment, which need not be written.
    pub fn is_default(&self) -> bool {
        *self == DayRules::default()
    }
}
