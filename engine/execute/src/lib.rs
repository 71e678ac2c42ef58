//! Passes: learning, writing, materializing, sorting, shuffling, and the reuse of results of
//! earlier runs.

#![allow(
    missing_docs,
    reason = "the interface of engine crates: what a field or method is called says what it is"
)]

mod admission;
mod as_of_join;
mod batch_iter;
mod chunk_groups;
mod chunk_source;
mod cluster_handle;
mod dedupe_shuffle;
mod distributed_query;
mod external_sort;
mod flow_table;
mod fused_coverage;
mod fused_learn;
mod group_by;
mod grouped_sort;
mod halo;
mod hash_join;
mod incremental_learn;
mod interval_filter;
mod join_keys;
mod join_pairs;
mod kept_rows;
mod learn_pass;
mod learn_run;
mod loop_joins;
mod materialize;
mod one_per_key;
mod ordered_rows;
mod ordered_scan;
mod partition_merge;
mod pass_context;
mod query_engine;
mod query_joins;
mod query_memory;
mod range_bytes;
mod read_ahead;
mod recursive_rows;
mod remote;
mod restore_order;
mod row_groups;
mod row_order;
mod row_position;
mod run_state;
mod scan_progress;
mod series_counts;
mod series_operator;
mod shard_writer;
mod shuffle;
mod shuffle_read;
mod sort_keys;
mod sorted_file;
mod sorted_operator;
mod sorted_outputs;
mod sorted_pass;
mod sorted_run;
mod source_input;
mod span_index;
mod time_join;
mod time_merge;
mod truncated_source;
mod unsharded_writer;
mod window_operator;
mod write_pass;
mod write_run;
mod write_target;

pub use cluster_handle::ClusterHandle;
pub use dedupe_shuffle::DedupeStage;
pub use distributed_query::WorkerCounts;
pub use fused_coverage::FusedCoverage;
pub use fused_learn::FusionRequest;
pub use incremental_learn::IncrementalLane;
pub use interval_filter::IntervalFilter;
pub use learn_pass::{LaneExecution, LearnPass, LearnResult, lane_bytes};
pub use learn_run::FusedLearnFn;
pub use materialize::{
    FlowReader, GatheredCounts, MaterializePass, MaterializePlan, columns_to_read,
    fallible_batch_stream,
};
pub use ordered_scan::SpanTimeline;
pub use pass_context::{PassContext, stop_check_of};
pub use query_engine::{stage_config, stage_runtime};
pub use read_ahead::{PlannedSpan, ReadAhead};
pub use recursive_rows::{GiveFn, JoinedOutputs, RecursiveRows};
pub use row_groups::FOLDER_BYTES_MAX;
pub use run_state::{RunState, scan_request};
pub use shard_writer::new_shard;
pub use shuffle::ShuffleStage;
pub use shuffle_read::ShuffleReader;
pub use sorted_outputs::SortedOutputs;
pub use sorted_pass::SortedPass;
pub use source_input::SourceInput;
pub use time_join::{TimeJoin, TimeJoinSetup};
pub use truncated_source::truncate_at;
pub use write_pass::{WritePass, WriteResult};
pub use write_target::WriteTarget;
