//! Reports of runs to people and to other systems: traces, metrics, lineage, pages.

mod column_lineage;
mod html_pages;
mod progress;
mod prometheus_metrics;
mod secrets;
mod telemetry;
mod ui_server;
