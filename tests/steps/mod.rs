//! Transforms, joins, windows and queries beside oracles, peers and plain computations.

pub mod as_of_joins;
mod business_days;
mod chains;
mod combined_steps;
mod days_of_zones;
pub mod edge_values;
mod far_times;
mod gathers;
mod joins;
mod own_functions;
pub mod peer_values;
mod random_windows;
mod series_functions;
mod sql_queries;
pub mod windows;
