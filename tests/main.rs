//! Whole jobs through the front door: the program, the library, real files.

mod bits;
mod builder;
mod commands;
mod custom;
mod end_to_end;
mod faults;
mod relational;
mod resume;
mod semantics;
mod support;
