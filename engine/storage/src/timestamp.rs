//! Instants as text.

use jiff::{Timestamp, Unit};

/// Whole seconds in UTC.
pub fn format_utc(moment: Timestamp) -> String {
    moment.round(Unit::Second).unwrap_or(moment).to_string()
}
