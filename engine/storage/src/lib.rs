//! Storage: object stores with retries and caches, events, cancellation, fail points,
//! and the accounting of memory and temporary files.

mod background;
mod cancellation;
mod events;
pub mod failpoint;
mod io;
mod memory;
mod memory_shortage;
mod metadata_cache;
mod pending_memory;
mod read_memory;
mod runtime;
pub mod scratch;
mod shell_path;
mod small_file;
pub mod timestamp;
mod web;

pub use background::{BackgroundTask, BackgroundTasks};
pub use cancellation::CancellationToken;
pub use events::{
    AttemptOrigin, DriftMeasures, EpochReport, Event, EventListener, IgnoreEvents, TrainingUnit,
};
pub use io::{
    COALESCE_BYTES_DEFAULT, CacheStats, DiskCache, FetchedParts, ObjectVersion, PlannedReads,
    RangeFetch, RequestListener, StorageClient, StorageLocation, StorageRequest, StorageUsage,
    VersionedObject, parse_env, storage_wait, time_disk_wait,
};
pub use memory::{
    MemoryBudget, machine_bytes, peak_resident_bytes, resident_bytes, set_release_hook,
};
pub use memory_shortage::MemoryShortage;
pub use metadata_cache::{METADATA_CACHE_BYTES_MAX, MetadataCache, metadata_cache_id};
pub use pending_memory::ThreadReservation;
pub use read_memory::{ReadLease, ReadMemory, ReadReservation};
pub use runtime::start_runtime;
pub use scratch::ScratchDir;
pub use shell_path::shell_path_hint;
pub use small_file::{read_small_file, read_small_text};
pub use web::{WebAnswer, WebClient};
