//! Mini-batches for trainings: rows, sequences, late steps and the cache.

mod batches;
mod bucket_cache;
mod late_steps;
mod sequences;
