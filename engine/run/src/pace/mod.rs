//! On time: when a run will end, and what it does where that is too late.
//!
//! `cost` and `course` hold what earlier runs cost, `forecast` when this one will end, `decide` what to do
//! about it: all are pure. `keeper` is the machine around them, with a clock and a thread.

mod cost;
mod course;
mod decide;
mod forecast;
mod keeper;
mod moment;
mod ways;
mod webhook;

pub(crate) use cost::{CostHistory, PlannedPass};
pub(crate) use forecast::PlanOption;
pub(crate) use keeper::DeadlineMonitor;
pub use moment::DeadlineSpec;
pub(crate) use moment::parse_duration;
pub(crate) use ways::{ARTIFACT, lane_bytes, pass_names, planned_passes};
pub(crate) use webhook::Webhook;
