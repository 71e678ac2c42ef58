//! forebay

pub mod present;
pub mod spec;
