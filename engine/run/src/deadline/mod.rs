//! Deadlines: the forecast of a run's end, and its degradation if that is too late.
//!
//! `cost` and `progress_curve` hold the costs of earlier runs, `forecast` estimates the end of this
//! run, and `decide` chooses the action: all are pure. `monitor` runs them with a clock and a
//! thread.

mod cost;
mod decide;
mod forecast;
mod monitor;
mod notify;
mod pass_plan;
mod progress_curve;
mod spec;

pub use cost::RunCost;
pub(crate) use cost::{CostHistory, PassKind, PlannedPass};
pub(crate) use forecast::PlanOption;
pub(crate) use monitor::{DeadlineMonitor, RunSignals};
pub(crate) use notify::Webhook;
pub(crate) use pass_plan::{ARTIFACT, PUBLISH, pass_names, planned_passes};
pub use spec::DeadlineSpec;
