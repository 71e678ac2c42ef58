//! Whole jobs from generated data to a served artifact, in YAML and from the builder.

mod builder;
mod end_to_end;
mod equal_bits;
mod equal_files;
mod written_specs;
