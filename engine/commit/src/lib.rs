//! Kept results: states, manifests, published files and artifacts, and the leases and fences that
//! protect them.

mod artifact;
mod artifact_findings;
mod artifact_parts;
mod decide;
mod degradation_report;
mod fencing;
mod file_lock;
mod fit_history;
#[cfg(test)]
mod fuzz;
mod gc;
mod lease;
mod lease_holder;
mod mapped_file;
mod mapped_piece;
mod output;
mod output_layout;
mod serving_state;
mod state_store;
mod token_ledger;
mod visible_files;

/// Fuzz targets count memory.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: forebay_fuzz::CountingAllocator = forebay_fuzz::CountingAllocator;

pub use artifact::{Artifact, ArtifactFiles, ArtifactOrigin, StepFit};
pub use artifact_parts::LearnedFinding;
pub use decide::ReuseDecision;
pub use degradation_report::DegradationReport;
pub use fencing::AttemptFence;
pub use fit_history::{EarlierFit, FitHistory, FitNumbering, FitRange};
pub use gc::{
    CollectionReport, CorruptFile, HISTORY, KEPT_TABLES, KindUsage, RetentionPolicy,
    StateDirectory, TableReferences, VerifyReport,
};
pub use lease::StateLease;
pub use mapped_piece::MappedPiece;
pub use output::{
    IntervalEntry, Manifest, OutputFile, OutputWriter, PublishedNumbering, PublishedOutput,
    PublishedTable, Shard, TableTarget, intact_shards, record_is_intact, remove_directory,
    shard_directory, table_record_is_intact, table_shard_directory, try_writing,
    unique_shard_directory,
};
pub use output_layout::{DATA_SUFFIX, check_name_lengths, output_root, visible_location};
pub use serving_state::{
    PieceWriter, SeriesPiece, ServingManifest, ServingReference, SpanPrefix, StoredLatest,
    StoredPiece, StoredTable, StoredWindow, read_table, write_table,
};
pub use state_store::{
    MERGES_MIN, RetainedIds, SHARES, SHARES_AT_ONCE, StateStore, id_texts, merge_pairwise,
    shares_bytes_min, sources_per_merge,
};
pub use token_ledger::{NumberedTokens, TokenLedger, TokenNumbering};
