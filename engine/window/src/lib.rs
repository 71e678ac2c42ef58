//! Windows over series: lags, rolling, expanding and seasonal statistics.
//!
//! A `WindowEngine` holds the window state of every series for the windows of one step. Rows of a series are pushed
//! in time order; rows of different series may interleave in any order. The output of a row depends only on the
//! content of its windows. The same rows therefore give the same bits for any division into batches and spans. The
//! state can be encoded and decoded without changing any later output: it carries windows from one range of time to
//! the next.
//!
//! Pure: no files, no threads, no column names.

mod batch;
mod bounds;
mod cold_store;
mod compiled_plan;
mod cumulative;
mod duplicates;
mod encoding;
mod engine;
mod eviction;
mod eviction_stats;
mod gaps;
mod history;
mod input_rows;
mod kernels;
mod lag;
mod output;
mod partition;
mod plan;
mod reach;
mod retention;
mod rolling;
mod series_buffer;
mod series_column;
mod series_grouping;
mod series_hash;
mod series_states;
mod series_table;
mod slabs;
mod special_words;
mod state_codec;
mod stats;
mod ties;
mod validate;
mod value_store;

pub use engine::{ParallelFor, WindowEngine, run_sequentially};
pub use history::HistoryReach;
pub use input_rows::InputRows;
pub use output::count_undefined;
pub use plan::{
    ClosedEnds, DuplicateCheck, EwmDecay, EwmStat, GapHandling, PeriodFill, SeriesFrame,
    SeriesLength, WindowFunction, WindowInput, WindowOutput, WindowPlan, WindowStat, WordEncoding,
};
pub use reach::WindowReach;
pub use series_hash::series_hashes;
pub use series_states::SeriesStates;
