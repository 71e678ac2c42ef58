//! Inputs in all formats: names, times, damage, and sources that a run waits for.

mod awaited_sources;
mod fuzz;
mod odd_names;
mod time_formats;
mod written_formats;
