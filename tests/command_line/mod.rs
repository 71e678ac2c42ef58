//! Commands of the program: arguments, settings, faults, signals and previews.

mod commands;
mod drawn_arguments;
mod faults;
mod mistakes;
mod previews;
mod projects;
mod settings;
mod signals;
mod step_tests;
