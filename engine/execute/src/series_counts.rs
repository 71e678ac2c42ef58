//! Warnings of what windows count between the rows of series.

use forebay_model::SeriesCounts;
use forebay_storage::{Event, EventListener};

/// Warns of what windows counted between the rows of series.
pub fn warn_of_counts(listener: &dyn EventListener, counts: SeriesCounts) {
    if counts.gaps > 0 {
        let message = format!(
            "{} steps from one row of a series to the next were not the declared period; windows \
             count rows across them: set `gaps: {{ complete: {{ every: ... }} }}` to count the \
             missing periods, or `gaps: count_rows` where they are right",
            counts.gaps
        );
        listener.on_event(Event::Warning { message });
    }
    if counts.duplicates > 0 {
        let message = format!(
            "{} rows have the same keys and the same time as a row before them: windows take \
             rows of one time in the order in which they are read; a key may be missing. Name \
             all columns that tell series apart in `keys`, `dedupe` the rows, or declare \
             `duplicates: allow` beside `keys`",
            counts.duplicates
        );
        listener.on_event(Event::Warning { message });
    }
}
