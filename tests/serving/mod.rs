//! Rows that are applied and served after a run, and the server's state.

mod image;
mod kills;
mod new_rows;
mod replayed_series;
