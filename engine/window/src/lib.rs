//! Windows over series: lags, rolling, expanding and seasonal statistics.
//!
//! One [`Engine`] holds what the windows of one step remember of every series. Rows are pushed
//! series by series in order of time (rows of different series may come in any order), and their
//! windows come out: for each row, a function of the content of its windows alone, so that the
//! same rows give the same bits however they are cut into batches and spans. What an engine
//! remembers can be written down and read again with the same bits: the carry from one range of
//! time to the next.
//!
//! Pure: no files, no threads, no names of columns.

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

pub use engine::{Engine, Rows, Together, alone};
pub use plan::{
    Closed, Compute, Decay, EwmStat, Fill, Frame, Function, Gaps, Keep, Length, Stat, WindowInput, WindowPlan,
};
pub use reach::Reach;
