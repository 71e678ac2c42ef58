//! A job as a whole: the coordinator's sequential work, the passes, and the merging after them.

use crate::cluster::{Cluster, Merging};
use crate::job::{Job, Pass};
use crate::pass::{PassOutcome, simulate};

/// Shares of a divisible state, as in `engine/commit`.
const SHARES: f64 = 16.0;
/// Vocabularies whose states are divided.
const DIVIDED: f64 = 6.0;
/// Names that one LIST returns, and footers that are read at the same time.
const LISTED: f64 = 1000.0;
const FOOTERS_AT_ONCE: f64 = 64.0;
/// Encoded bytes of a source in the message of a merging task.
const PIECE_BYTES: f64 = 60.0;

/// What became of a job.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobOutcome {
    pub seconds: f64,
    pub listing_seconds: f64,
    pub pass_seconds: Vec<(&'static str, f64)>,
    pub worker_merge_seconds: f64,
    pub coordinator_merge_seconds: f64,
    /// Bytes of states that travel through the store to be merged.
    pub merged_bytes: f64,
    pub message_bytes: f64,
    pub coordinator_cpu_seconds: f64,
    /// The greatest share of a pass that the thread of events is busy.
    pub event_share: f64,
    pub scheduler_seconds: f64,
    pub coordinator_memory_bytes: f64,
    pub gets_per_second: f64,
    pub puts_per_second: f64,
    pub deaths: usize,
    pub second_attempts: usize,
    /// The share of slot seconds whose results were thrown away.
    pub repeated_share: f64,
    /// The share of all slots' seconds, during passes, in which they had nothing to do.
    pub idle_share: f64,
}

/// Runs a job.
pub(crate) fn run(cluster: &Cluster, job: &Job, seed: u64) -> JobOutcome {
    let mut out = JobOutcome::default();
    let first_byte = cluster.storage.first_byte_seconds;
    out.listing_seconds =
        (job.files as f64 / LISTED).ceil() * first_byte + (job.new_files as f64 / FOOTERS_AT_ONCE).ceil() * first_byte;
    out.seconds = out.listing_seconds;
    let (mut slot_seconds, mut repeated, mut all_slots) = (0.0, 0.0, 0.0);
    for pass in &job.passes {
        let outcome = simulate(cluster, pass, seed);
        let PassOutcome { seconds, message_seconds, scheduler_seconds, .. } = outcome;
        out.seconds += seconds;
        out.pass_seconds.push((pass.name, seconds));
        out.event_share = out.event_share.max((message_seconds + scheduler_seconds) / seconds);
        out.scheduler_seconds += scheduler_seconds;
        out.coordinator_cpu_seconds += message_seconds + scheduler_seconds;
        out.gets_per_second = out.gets_per_second.max(outcome.gets_per_second);
        out.puts_per_second = out.puts_per_second.max(outcome.puts_per_second);
        out.deaths += outcome.deaths;
        out.second_attempts += outcome.second_attempts;
        slot_seconds += outcome.slot_seconds;
        repeated += outcome.repeated_seconds;
        all_slots += seconds * cluster.slots() as f64;
        let memory = outcome.tasks as f64 * cluster.coordinator.bytes_per_task
            + outcome.units as f64 * cluster.coordinator.bytes_per_unit
            + job.files as f64 * cluster.coordinator.bytes_per_file;
        out.coordinator_memory_bytes = out.coordinator_memory_bytes.max(memory);
        merge(cluster, pass, &mut out);
    }
    out.repeated_share = repeated / slot_seconds.max(1e-9);
    out.idle_share = 1.0 - slot_seconds / all_slots.max(1e-9);
    out
}

/// Merges the states of a pass.
fn merge(cluster: &Cluster, pass: &Pass, out: &mut JobOutcome) {
    let states = pass.states;
    let runs = (pass.units() as u64 + states.kept_runs) as f64;
    let rate = cluster.coordinator.merge_bytes_per_second;
    let whole = (states.small_bytes + states.sample_bytes) as f64;
    if whole == 0.0 {
        return;
    }
    let first_byte = cluster.storage.first_byte_seconds;
    // Divisible states: one task a share and analyzer.
    let shares = DIVIDED * SHARES;
    let rounds = (shares / cluster.slots() as f64).ceil();
    let share_bytes = runs * states.divisible_bytes as f64 / shares;
    let gets = runs / 16.0 * first_byte;
    out.worker_merge_seconds += rounds * (share_bytes / rate + gets);
    out.merged_bytes += runs * (whole + states.divisible_bytes as f64);
    out.message_bytes += shares * runs * PIECE_BYTES;
    // States that are not divided.
    let left = match cluster.merging {
        Merging::OnCoordinator => runs,
        Merging::InRuns { fan_in } => {
            let groups = (runs / fan_in as f64).ceil();
            let rounds = (groups / cluster.slots() as f64).ceil();
            out.worker_merge_seconds += rounds * (fan_in as f64 * whole / rate + 2.0 * first_byte);
            out.message_bytes += runs * PIECE_BYTES;
            out.merged_bytes += groups * whole;
            groups
        }
    };
    let bytes = left * whole + states.merged_bytes as f64;
    let cpu = bytes / rate;
    let seconds = (cpu / cluster.coordinator.threads).max(bytes / cluster.network_bytes_per_second);
    out.coordinator_merge_seconds += seconds;
    out.coordinator_cpu_seconds += cpu;
    out.coordinator_memory_bytes =
        out.coordinator_memory_bytes.max(2.0 * cluster.coordinator.threads * whole + states.merged_bytes as f64);
    out.seconds += out.worker_merge_seconds + out.coordinator_merge_seconds;
}
