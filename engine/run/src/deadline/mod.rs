//! On time: when a run will end, and what it does where that is too late.
//!
//! `cost` and `progress_curve` hold what earlier runs cost, `forecast` when this one will end, `decide` what to do
//! about it: all are pure. `monitor` runs them, with a clock and a thread.

mod cost;
mod decide;
mod forecast;
mod monitor;
mod notify;
mod pass_plan;
mod progress_curve;
mod spec;

pub(crate) use cost::{CostHistory, PlannedPass};
pub(crate) use forecast::PlanOption;
pub(crate) use monitor::DeadlineMonitor;
pub(crate) use notify::Webhook;
pub(crate) use pass_plan::{ARTIFACT, pass_names, planned_passes};
pub use spec::{DeadlineSpec, parse_duration};
