//! Windows over series: lags, rolling, expanding and seasonal statistics.
//!
//! A `WindowEngine` holds the window state of every series for the windows of one step. Rows of a series are pushed
//! in time order; rows of different series may interleave in any order. The output of a row depends only on the
//! content of its windows. The same rows therefore give the same bits for any division into batches and spans. The
//! state can be encoded and decoded without changing any later output: it carries windows from one range of time to
//! the next.
//!
//! Pure: no files, no threads, no column names.

mod arranged;
mod batch;
mod check;
mod codec;
mod column;
mod copies;
mod edge;
mod engine;
mod gaps;
mod history;
mod kernels;
mod keys;
mod output;
mod part;
mod plan;
mod program;
mod reach;
mod rest;
mod resting;
mod running;
mod slabs;
mod stats;
mod table;
mod windows;
mod words;

pub use engine::{InputRows, ParallelFor, WindowEngine, run_sequentially};
pub use plan::{
    ClosedEnds, EwmDecay, EwmStat, GapHandling, PeriodFill, SeriesFrame, SeriesLength, WindowFunction, WindowInput,
    WindowOutput, WindowPlan, WindowStat, WordEncoding,
};
pub use reach::WindowReach;
