//! Machines, storage, and what the coordinator spends on each of its events.

/// Where a job runs.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub workers: usize,
    pub slots_per_worker: usize,
    /// Of one machine, in either direction.
    pub network_bytes_per_second: f64,
    pub storage: Storage,
    pub coordinator: Coordinator,
    pub trouble: Trouble,
    /// Where large states are merged.
    pub merging: Merging,
}

/// Who merges the states of all units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merging {
    /// Workers merge shares of all units, and the coordinator every state that cannot be divided.
    OnCoordinator,
    /// Workers merge runs of `fan_in` states, then shares of these runs, and the coordinator the other states of these
    /// runs.
    InRuns { fan_in: u64 },
}

/// An object store in the same region.
#[derive(Debug, Clone)]
pub(crate) struct Storage {
    pub first_byte_seconds: f64,
    pub bytes_per_connection_second: f64,
    pub connections_per_slot: f64,
    pub bytes_per_request: u64,
    /// Requests a second that one prefix serves; above it, it answers 503, and clients wait.
    pub gets_per_second: f64,
    pub puts_per_second: f64,
}

/// Measured, see AT_SCALE.md.
#[derive(Debug, Clone)]
pub(crate) struct Coordinator {
    pub threads: f64,
    /// A unit that a worker committed: message, record, entry of the manifest.
    pub unit_seconds: f64,
    /// A heartbeat or another message.
    pub message_seconds: f64,
    pub beat_seconds: f64,
    /// Encoded states that one thread decodes and merges.
    pub merge_bytes_per_second: f64,
    pub bytes_per_task: f64,
    pub bytes_per_unit: f64,
    /// Footers and statistics of a file of five row groups and 40 columns.
    pub bytes_per_file: f64,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trouble {
    /// One worker in so many takes `slowdown` times as long.
    pub slow_one_in: usize,
    pub slowdown: f64,
    /// Hours that a worker lives on average, and the seconds until another takes its place.
    pub life_hours: f64,
    pub back_seconds: f64,
}

impl Cluster {
    pub(crate) fn new(workers: usize, merging: Merging, merge_bytes_per_second: f64) -> Cluster {
        Cluster {
            workers,
            slots_per_worker: 8,
            network_bytes_per_second: 1.25e9,
            storage: Storage {
                first_byte_seconds: 0.05,
                bytes_per_connection_second: 60e6,
                connections_per_slot: 4.0,
                bytes_per_request: 8 << 20,
                gets_per_second: 5500.0,
                puts_per_second: 3500.0,
            },
            coordinator: Coordinator {
                threads: 8.0,
                unit_seconds: 220e-6,
                message_seconds: 15e-6,
                beat_seconds: 3.0,
                merge_bytes_per_second,
                bytes_per_task: 600.0,
                bytes_per_unit: 1_500.0,
                bytes_per_file: 80_000.0,
            },
            trouble: Trouble {
                slow_one_in: 20,
                slowdown: 3.0,
                life_hours: 2.0,
                back_seconds: 60.0,
            },
            merging,
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.workers * self.slots_per_worker
    }
}
