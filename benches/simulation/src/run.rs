//! A job as a whole: the coordinator's sequential work, the passes, and the merging after them.

use forebay_commit::{MERGES_MIN, SHARES, SHARES_AT_ONCE};

use crate::cluster::{Cluster, Merging};
use crate::job::{Job, Pass};
use crate::pass::{PassOutcome, simulate};

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
    out.listing_seconds = (job.files as f64 / LISTED).ceil() * first_byte
        + (job.new_files as f64 / FOOTERS_AT_ONCE).ceil() * first_byte;
    out.seconds = out.listing_seconds;
    let mut slot_seconds = 0.0;
    let mut repeated = 0.0;
    let mut all_slots = 0.0;
    for pass in &job.passes {
        let outcome = simulate(cluster, pass, seed);
        let PassOutcome {
            seconds,
            message_seconds,
            scheduler_seconds,
            ..
        } = outcome;
        out.seconds += seconds;
        out.pass_seconds.push((pass.name, seconds));
        out.event_share = out
            .event_share
            .max((message_seconds + scheduler_seconds) / seconds);
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
    let slots = cluster.slots() as f64;
    let storage = &cluster.storage;
    // One task a share and analyzer.
    let tasks = SHARES as f64 * DIVIDED;
    let mut worker_seconds = 0.0;
    let divided = states.divisible_bytes as f64;
    out.merged_bytes += runs * (whole + divided);
    // What the merging of runs leaves: how many states, of how many bytes the divisible part has.
    let (left, left_divided, at_once) = match cluster.merging {
        Merging::OnCoordinator => (runs, divided, 1.0),
        Merging::InRuns { fan_in } if runs < (MERGES_MIN as u64 * fan_in) as f64 => {
            (runs, divided, SHARES_AT_ONCE as f64)
        }
        Merging::InRuns { fan_in } => {
            let groups = (runs / fan_in as f64).ceil();
            let rounds = (groups / slots).ceil();
            let bytes = fan_in.min(runs as u64) as f64 * (whole + divided);
            let network =
                bytes / (cluster.network_bytes_per_second / cluster.slots_per_worker as f64);
            let puts = tasks * groups
                / storage
                    .puts_per_second
                    .min(groups.min(slots) / storage.first_byte_seconds);
            worker_seconds += rounds * (bytes / rate).max(network) + puts;
            out.message_bytes += runs * PIECE_BYTES;
            // Tokens of neighbouring units are mostly the same.
            let merged = (2.0 * divided).min(states.merged_bytes as f64);
            out.merged_bytes += groups * (whole + merged);
            (groups, merged, SHARES_AT_ONCE as f64)
        }
    };
    if left == runs {
        // Each unit writes its shares as files.
        let puts = runs * tasks;
        worker_seconds += puts / storage.puts_per_second;
    }
    let rounds = (tasks / slots).ceil();
    let gets = left * storage.first_byte_seconds / at_once;
    let throttled = left * tasks / storage.gets_per_second;
    worker_seconds += (rounds * (left * left_divided / tasks / rate + gets)).max(throttled);
    out.message_bytes += tasks * left * PIECE_BYTES;
    // States that are not divided.
    let bytes = left * whole + states.merged_bytes as f64;
    let cpu = bytes / rate;
    let seconds = (cpu / cluster.coordinator.threads).max(bytes / cluster.network_bytes_per_second);
    out.worker_merge_seconds += worker_seconds;
    out.coordinator_merge_seconds += seconds;
    out.coordinator_cpu_seconds += cpu;
    out.coordinator_memory_bytes = out
        .coordinator_memory_bytes
        .max(2.0 * cluster.coordinator.threads * whole + states.merged_bytes as f64);
    out.seconds += worker_seconds + seconds;
}
