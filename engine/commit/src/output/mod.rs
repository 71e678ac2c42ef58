//! Output directories. `output_layout.rs` describes where their files lie.

mod manifest;
mod publish;
mod removal;
mod shard;
mod table;
mod trial;
mod writer;

pub use manifest::{IntervalEntry, Manifest, PublishedNumbering, record_is_intact};
pub use publish::PublishedOutput;
pub(crate) use removal::lock_output;
pub use removal::remove_directory;
pub(crate) use shard::{DATA, TABLE_DATA};
pub use shard::{
    OutputFile, Shard, intact_shards, shard_directory, table_shard_directory,
    unique_shard_directory,
};
pub use table::{PublishedTable, TableTarget, table_record_is_intact};
pub use trial::try_writing;
pub use writer::OutputWriter;
pub(crate) use writer::{ATTEMPT, attempt_dir};
