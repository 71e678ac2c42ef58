//! Generated data sets: what the examples, the tests and the benches read when no real data is at hand.
//!
//! * [`demand`] writes a retailer's history: one row for each item, store and day, in time order.
//! * [`clicks`] writes an advertiser's log: a label, 13 skewed numbers and 26 categories, the largest
//!   with millions of values.
//!
//! Both stream: any cell is a pure function of the seed and of the row's own name (its number; its
//! store, item and date), so files are written independently, by any number of threads, holding one
//! row group per thread in memory, and the same options always give files of the same bytes.

mod calendar;
mod clicks;
mod demand;
mod options;
mod random;
mod write;

pub use calendar::CalendarDay;
pub use clicks::{ClicksOptions, clicks};
pub use demand::{DemandOptions, FilePeriod, HistoryExtent, demand};
pub use options::{GenerateSummary, OutputCompression, OutputOptions};
