//! Lengths of time of a clock.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// Reads a length of time: `90s`, `45m`, `2h30m`, `1d`, `2w`. Days have 24 hours; months and years have no length.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let span: Span = text.trim().parse().ok()?;
    Duration::try_from(span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?).ok()
}
