//! What a run reads, computes, keeps and sends: the figures that the simulation starts from.

/// One way to run: passes in order, on workers, between sequential work of the coordinator.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub name: &'static str,
    /// Files that the coordinator lists.
    pub files: u64,
    /// Files of which it reads the footer.
    pub new_files: u64,
    pub passes: Vec<Pass>,
}

/// One read of the data, in units whose results are committed.
#[derive(Debug, Clone)]
pub(crate) struct Pass {
    pub name: &'static str,
    /// Stored bytes that workers read.
    pub bytes: u64,
    /// Stored bytes of a unit.
    pub unit_bytes: u64,
    /// Stored bytes that a slot reads, decodes and computes in a second of CPU.
    pub bytes_per_slot_second: f64,
    /// Bytes written for each byte read.
    pub written_share: f64,
    /// The states of a unit that the coordinator, or a task of a worker, merges.
    pub states: States,
}

/// The states of a unit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct States {
    /// Runs of spans whose states are kept, and merged with those of the units that are read.
    pub kept_runs: u64,
    /// Moments, counts, extremes: bytes of a unit.
    pub small_bytes: u64,
    /// Samples of quantiles: bytes of a unit.
    pub sample_bytes: u64,
    /// Vocabularies and groups: bytes of a unit, which are merged in shares.
    pub divisible_bytes: u64,
    /// The divisible state once all is merged.
    pub merged_bytes: u64,
}

impl Pass {
    pub(crate) fn units(&self) -> usize {
        self.bytes.div_ceil(self.unit_bytes) as usize
    }
}

const TB: u64 = 1_000_000_000_000;
const GB: u64 = 1_000_000_000;
const MB: u64 = 1_000_000;

/// A file of the history, and a span of it.
const FILE_BYTES: u64 = 640 * MB;
const SPAN_BYTES: u64 = 128 * MB;

/// 40 columns: 30 with moments, 10 with quantiles, 6 with vocabularies of 2 million tokens in all.
fn states(kept_runs: u64, sample_bytes: u64) -> States {
    States {
        kept_runs,
        small_bytes: 30 * 2_500,
        sample_bytes: 10 * sample_bytes,
        divisible_bytes: 6 * MB,
        merged_bytes: 60 * MB,
    }
}

/// Everything over `terabytes` for the first time: statistics, then windows and features.
pub(crate) fn first_run(terabytes: u64, sample_bytes: u64) -> Job {
    let bytes = terabytes * TB;
    let files = bytes / FILE_BYTES;
    Job {
        name: "first run",
        files,
        new_files: files,
        passes: vec![
            Pass {
                name: "learn",
                // Half of the columns.
                bytes: bytes / 2,
                unit_bytes: SPAN_BYTES / 2,
                bytes_per_slot_second: 176.0 * MB as f64,
                written_share: 0.0,
                states: states(0, sample_bytes),
            },
            Pass {
                name: "write",
                bytes,
                unit_bytes: SPAN_BYTES,
                bytes_per_slot_second: 62.0 * MB as f64,
                written_share: 1.3,
                states: States::default(),
            },
        ],
    }
}

/// A day more, of two years: it is read and written with 28 days of history before it; the states of all other runs
/// are kept.
pub(crate) fn night(terabytes: u64, sample_bytes: u64) -> Job {
    let day = terabytes * TB / 730;
    let files = terabytes * TB / FILE_BYTES;
    Job {
        name: "night",
        files,
        new_files: day / FILE_BYTES,
        passes: vec![
            Pass {
                name: "learn",
                bytes: (day / 2).max(GB),
                unit_bytes: SPAN_BYTES / 2,
                bytes_per_slot_second: 176.0 * MB as f64,
                written_share: 0.0,
                // Seven runs on each of the five levels of the tree of runs.
                states: states(35, sample_bytes),
            },
            Pass {
                name: "write",
                // Of the halo, the keys and the columns of the windows alone.
                bytes: day + 28 * day / 10,
                unit_bytes: SPAN_BYTES,
                bytes_per_slot_second: 62.0 * MB as f64,
                written_share: 0.35,
                states: States::default(),
            },
        ],
    }
}
