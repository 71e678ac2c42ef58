//! What is kept: states, manifests, published files and artifacts, and the leases and fences that protect them.

mod artifact;
mod artifact_findings;
mod decide;
mod degradation_report;
mod fencing;
mod fit_history;
#[cfg(test)]
mod fuzz;
mod gc;
mod lease;
mod output;
mod output_layout;
mod state_store;
mod token_ledger;
mod visible_files;

/// Fuzz targets count memory.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: forebay_fuzz::CountingAllocator = forebay_fuzz::CountingAllocator;

pub use artifact::{Artifact, ArtifactFiles, LearnedFinding, StepFit};
pub use decide::ReuseDecision;
pub use degradation_report::DegradationReport;
pub use fencing::AttemptFence;
pub use fit_history::{EarlierFit, FitHistory, FitNumbering, FitRange};
pub use gc::{
    CollectionReport, CorruptFile, KindUsage, RetentionPolicy, StateDirectory, TableReferences,
    VerifyReport,
};
pub use lease::StateLease;
pub use output::{
    IntervalEntry, Manifest, OutputFile, OutputWriter, PublishedNumbering, PublishedOutput,
    PublishedTable, Shard, TableTarget, intact_shards, record_is_intact, remove_directory,
    shard_directory, table_record_is_intact, table_shard_directory, unique_shard_directory,
};
pub use output_layout::{DATA_SUFFIX, output_root, visible_location};
pub use state_store::{
    MERGES_MIN, RetainedIds, SHARES, SHARES_AT_ONCE, StateStore, id_texts, merge_pairwise,
    shares_bytes_min, sources_per_merge,
};
pub use token_ledger::{NumberedTokens, TokenLedger, TokenNumbering};
