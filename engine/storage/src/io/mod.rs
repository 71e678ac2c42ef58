//! The way to storage: local paths and URLs, blocking calls over one async runtime.

mod cached_reads;
mod coalesce;
mod concurrency;
mod disk_cache;
mod error;
mod fetch;
mod list;
mod location;
mod object_url;
mod read_cache;
mod read_scheduler;
mod requests;
mod retry;
mod stores;
mod stragglers;
mod trial;
mod usage;
mod versioned_object;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_model::{Fault, Result, codes};
use futures::stream::FuturesUnordered;
use futures::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tokio::runtime::{Handle, Runtime};

use crate::cancellation::CancellationToken;
use crate::events::{Event, EventListener};
use crate::failpoint::step;
use crate::io::coalesce::REQUEST_BYTES_MAX;
use crate::io::error::{FailedRequest, is_bucket_missing, storage_fault};
use crate::io::location::without_parents;
use crate::io::object_url::ObjectUrl;
use crate::io::read_cache::ReadCache;
use crate::io::read_scheduler::ReadScheduler;
use crate::io::retry::{CountingConnector, RetryBudget};
use crate::io::usage::UsageCounters;
use crate::memory::MemoryBudget;
use crate::memory_shortage::MemoryShortage;
use crate::read_memory::{ReadMemory, ReadReservation};
use crate::start_runtime;

pub use coalesce::COALESCE_BYTES_DEFAULT;
pub use disk_cache::{CacheStats, DiskCache};
pub use fetch::{FetchedParts, PlannedReads, RangeFetch};
pub use location::StorageLocation;
pub use requests::{RequestListener, StorageRequest};
pub use retry::parse_env;
pub use usage::StorageUsage;
pub use versioned_object::{ObjectVersion, VersionedObject};

/// Bytes of one part of an upload: S3 requires at least 5 MiB and at most 10,000 parts.
const UPLOAD_PART_BYTES: usize = 16 << 20;

/// Maximum number of concurrent part uploads of an object.
const UPLOAD_PARTS_MAX: usize = 4;

/// Objects of at least these bytes are reserved before they are read as a whole.
const LARGE_OBJECT_BYTES: u64 = 16 << 20;

/// Maximum number of concurrent requests for objects of one operation.
const REQUESTS_MAX: usize = 32;

/// Number of times that a conditional write with an unknown outcome is started again.
const AMBIGUOUS_WRITES_MAX: usize = 3;

thread_local! {
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Time that this thread has waited for storage so far.
pub fn storage_wait() -> Duration {
    WAITED.get()
}

/// Reads from a local disk, and adds the time to [`storage_wait`]. Reads from the system's cache take
/// almost no time.
pub fn time_disk_wait<T>(read: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = read();
    WAITED.set(storage_wait() + begin.elapsed());
    done
}

/// Storage and the runtime that serves it. Cheap to clone.
#[derive(Clone)]
pub struct StorageClient {
    inner: Arc<StorageInner>,
    /// Directory that relative paths begin at, if not the working directory of the process.
    base: Option<Arc<std::path::Path>>,
    /// Disk cache of bytes of remote objects.
    cache: Option<Arc<DiskCache>>,
    /// Cache of bytes that a run has read.
    recent: Option<Arc<ReadCache>>,
    /// The run that it serves.
    run: Option<Arc<ServedRun>>,
    /// True if a source may have files without rows alone.
    allows_empty: bool,
}

/// A run, as its storage sees it.
struct ServedRun {
    cancellation: CancellationToken,
    listener: Arc<dyn EventListener>,
}

struct StorageInner {
    /// Made on the first network request; local disks need no runtime.
    runtime: OnceLock<Runtime>,
    /// Held by the thread that makes the runtime.
    making: Mutex<()>,
    stores: Mutex<BTreeMap<String, Arc<dyn ObjectStore>>>,
    patience: RetryBudget,
    /// Time that a run waits for a lock of another process.
    lock_wait_max: Duration,
    /// Buckets that were seen to be there.
    buckets: Mutex<BTreeSet<String>>,
    interrupt: CancellationToken,
    /// Orders all reads of ranges.
    scheduler: Arc<ReadScheduler>,
    counters: Arc<UsageCounters>,
    /// Admits what readers decode.
    read_memory: Arc<ReadMemory>,
}

impl Drop for StorageInner {
    fn drop(&mut self) {
        // The last client may be dropped by a task of the runtime, which must not wait for itself. And no command waits
        // for a computation that nothing needs any more.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for StorageClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Io")
    }
}

impl StorageClient {
    /// Creates a client with the settings of the environment.
    pub fn new() -> Result<StorageClient> {
        let inner = StorageInner {
            runtime: OnceLock::new(),
            making: Mutex::default(),
            stores: Mutex::default(),
            patience: RetryBudget::from_env()?,
            lock_wait_max: retry::lock_wait_max()?,
            buckets: Mutex::default(),
            interrupt: CancellationToken::default(),
            scheduler: Arc::default(),
            counters: Arc::default(),
            read_memory: Arc::default(),
        };
        Ok(StorageClient {
            inner: Arc::new(inner),
            base: None,
            cache: None,
            recent: None,
            run: None,
            allows_empty: false,
        })
    }

    /// Sets the memory of the process, of which all readers of this storage take their shares, and its threads.
    pub fn set_memory(&self, memory: MemoryBudget, threads: usize) {
        self.set_read_ahead_bytes(memory.read_ahead_bytes());
        self.inner
            .read_memory
            .set_limit(memory.limit_bytes, threads);
    }

    /// The memory that readers ask for what they decode.
    pub fn read_memory(&self) -> &Arc<ReadMemory> {
        &self.inner.read_memory
    }

    /// An own runtime with a few threads: storage waits, it does not compute.
    fn runtime(&self) -> Result<&Runtime> {
        let StorageInner {
            runtime, making, ..
        } = &*self.inner;
        if let Some(existing) = runtime.get() {
            return Ok(existing);
        }
        let _making = making
            .lock()
            .map_err(|_| Fault::internal("another thread failed while it made a runtime"))?;
        if let Some(existing) = runtime.get() {
            return Ok(existing);
        }
        let created = start_runtime("forebay-io", 2)?;
        Ok(runtime.get_or_init(|| created))
    }

    /// A client with another base for relative paths.
    pub fn with_base(&self, base: &std::path::Path) -> StorageClient {
        StorageClient {
            base: Some(base.into()),
            ..self.clone()
        }
    }

    /// A client for a run whose sources may have files without rows alone.
    pub fn allowing_empty(&self, allows_empty: bool) -> StorageClient {
        StorageClient {
            allows_empty,
            ..self.clone()
        }
    }

    /// True if a source may have files without rows alone, so that its columns have no known types.
    pub fn allows_empty(&self) -> bool {
        self.allows_empty
    }

    /// A client with a disk cache, for callers that read objects repeatedly.
    pub fn with_disk_cache(&self, cache: Arc<DiskCache>) -> StorageClient {
        StorageClient {
            cache: Some(cache),
            ..self.clone()
        }
    }

    /// Token that ends waits for storage, some seconds after its cancellation.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.inner.interrupt
    }

    /// A client for a run, which can be cancelled alone and whose listener receives the waits of
    /// its storage.
    pub fn for_run(
        &self,
        cancellation: CancellationToken,
        listener: Arc<dyn EventListener>,
    ) -> StorageClient {
        StorageClient {
            run: Some(Arc::new(ServedRun {
                cancellation,
                listener,
            })),
            ..self.clone()
        }
    }

    /// Cancellation of the run that this client serves.
    pub fn run_cancellation(&self) -> &CancellationToken {
        match &self.run {
            Some(run) => &run.cancellation,
            None => &self.inner.interrupt,
        }
    }

    /// Sends an event to the run that this client serves.
    pub fn emit(&self, event: Event) {
        if let Some(run) = &self.run {
            run.listener.on_event(event);
        }
    }

    /// Maximum time to wait for a lock of another process: `FOREBAY_LOCK_SECONDS`.
    pub fn lock_wait_max(&self) -> Duration {
        self.inner.lock_wait_max
    }

    /// Reports each request to an object store from now on to a listener. Only the first listener
    /// counts.
    pub fn listen(&self, listener: Arc<dyn RequestListener>) {
        let _ = self.inner.counters.listener.set(listener);
    }

    /// Requests to object stores so far.
    pub fn usage(&self) -> StorageUsage {
        self.inner.counters.usage()
    }

    /// Waits for a future. Must not be called from inside the runtime.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        let runtime = self.runtime()?;
        Ok(time_disk_wait(|| runtime.block_on(future)))
    }

    /// Waits for a computation, unless the run is cancelled. Must not be called from inside the
    /// runtime.
    ///
    /// The computation must yield from time to time; the streams of the query engine do.
    pub fn block_on_computation<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        use futures::future::{Either, select};
        // Without this, a computation that uses up its share of each turn would leave none for the timer.
        let stopped = tokio::task::unconstrained(self.run_cancellation().wait_cancelled());
        let work = std::pin::pin!(work);
        let stopped = std::pin::pin!(stopped);
        match self.block_on(select(work, stopped))? {
            Either::Left((done, _)) => Ok(done),
            Either::Right((fault, _)) => Err(fault),
        }
    }

    /// Waits for an answer of storage, unless the run was cancelled some seconds ago.
    fn block_on_cancellable<T>(&self, answer: impl Future<Output = T>) -> Result<T> {
        use futures::future::{Either, select};
        let answer = std::pin::pin!(answer);
        let overdue = std::pin::pin!(self.inner.interrupt.wait_past_grace());
        let wait_before = storage_wait();
        let answer = self.block_on(select(answer, overdue));
        self.inner.counters.count_wait(storage_wait() - wait_before);
        match answer? {
            Either::Left((answer, _)) => Ok(answer),
            Either::Right((stopped, _)) => Err(stopped),
        }
    }

    /// Runs a storage operation, and repeats it if connections fail.
    fn run_with_retries<T, F>(
        &self,
        location: &StorageLocation,
        work: impl Fn() -> F,
    ) -> Result<Result<T, FailedRequest>>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        // Outside of a runtime, this thread reads the disk itself, and the result is complete on
        // return.
        if location.local.is_some() && Handle::try_current().is_err() {
            let done = time_disk_wait(|| futures::executor::block_on(work()));
            return Ok(done.map_err(|error| FailedRequest {
                error,
                attempts: 0,
                waited: Duration::ZERO,
            }));
        }
        self.block_on_cancellable(self.inner.patience.retry(work))
    }

    /// The runtime, for callers that serve or spawn.
    pub fn runtime_handle(&self) -> Result<Handle> {
        Ok(self.runtime()?.handle().clone())
    }

    /// Resolves a local path or a URL: `s3://bucket/key`, `gs://bucket/key`, `az://container/key`,
    /// `abfss://container@account.dfs.core.windows.net/key` or `https://host/file`. Endpoints and
    /// credentials come from the environment (`AWS_REGION`, `GOOGLE_APPLICATION_CREDENTIALS`,
    /// `AZURE_STORAGE_ACCOUNT_NAME`, ...), and so does the time for which requests are retried
    /// (`AWS_MAX_ATTEMPTS`, `AWS_TIMEOUT`, `FOREBAY_RETRY_SECONDS`).
    pub fn resolve(&self, text: &str) -> Result<StorageLocation> {
        if let Some(url) = ObjectUrl::parse(text)? {
            let path = Path::parse(url.key).map_err(|error| {
                Fault::new(codes::BAD_VALUE, format!("`{text}` is not a valid URL")).cause(error)
            })?;
            let store = self.store(url.root, || {
                let connector = CountingConnector::new(&self.inner.counters, &self.inner.scheduler);
                url.connect(self.inner.patience, connector)
            })?;
            return Ok(StorageLocation {
                store,
                path,
                local: None,
                shown: text.to_owned(),
            });
        }
        let local = without_parents(&self.absolute_path(text)?);
        let store = self.store("file://", || Ok(Arc::new(LocalFileSystem::new())))?;
        let path = Path::from_absolute_path(&local).map_err(|error| {
            Fault::new(codes::BAD_VALUE, format!("`{text}` is not a valid path")).cause(error)
        })?;
        Ok(StorageLocation {
            store,
            path,
            local: Some(local),
            shown: text.to_owned(),
        })
    }

    /// A path of the file system, from its root.
    pub fn absolute_path(&self, text: &str) -> Result<PathBuf> {
        let plain = text.strip_prefix("file://").unwrap_or(text);
        let from_base = self
            .base
            .as_ref()
            .map_or_else(|| plain.into(), |base| base.join(plain));
        std::path::absolute(from_base).map_err(|error| {
            Fault::new(codes::BAD_VALUE, format!("`{text}` is not a valid path")).cause(error)
        })
    }

    /// Serves URLs that begin with `prefix` (such as `s3://lake`) from this store, instead of
    /// one made from the environment.
    pub fn with_store(self, prefix: &str, store: Arc<dyn ObjectStore>) -> Result<StorageClient> {
        self.store(prefix, || Ok(store))?;
        Ok(self)
    }

    fn store(
        &self,
        key: &str,
        build: impl FnOnce() -> Result<Arc<dyn ObjectStore>>,
    ) -> Result<Arc<dyn ObjectStore>> {
        let mut stores = self
            .inner
            .stores
            .lock()
            .map_err(|_| Fault::internal("another thread failed while it held the stores"))?;
        if let Some(store) = stores.get(key) {
            return Ok(store.clone());
        }
        let store = build()?;
        stores.insert(key.to_owned(), store.clone());
        Ok(store)
    }

    fn buckets(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.inner
            .buckets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a read-only location as a destination, or one whose bucket does not exist. Other
    /// errors of the listing are ignored: writers may have access where listing is not allowed.
    pub fn require_bucket(&self, location: &StorageLocation) -> Result<()> {
        require_writable(location)?;
        let Some(bucket) = location.root() else {
            return Ok(());
        };
        if self.buckets().contains(bucket) {
            return Ok(());
        }
        let listed = self.run_with_retries(location, || async {
            location
                .store
                .list(Some(&location.path))
                .next()
                .await
                .transpose()
                .map(drop)
        })?;
        match listed {
            Err(failed) if is_bucket_missing(&failed.error) => {
                Err(storage_fault(&location.shown, failed))
            }
            Err(failed) if failed.attempts > 0 => Err(storage_fault(&location.shown, failed)),
            _ => {
                self.buckets().insert(bucket.to_owned());
                Ok(())
            }
        }
    }

    /// Metadata of an object; `None` if it does not exist.
    pub fn head(&self, location: &StorageLocation) -> Result<Option<ObjectMeta>> {
        if_present(
            location,
            self.run_with_retries(location, || location.store.head(&location.path))?,
        )
    }

    /// Sizes of some objects in bytes, `None` for missing ones; several are requested at a time.
    pub fn sizes(&self, locations: Vec<StorageLocation>) -> Result<Vec<Option<u64>>> {
        let local = |location: &StorageLocation| {
            location
                .local
                .as_ref()
                .map(|path| std::fs::metadata(path).ok().map(|meta| meta.len()))
        };
        if locations.iter().all(|location| location.local.is_some()) {
            return Ok(locations.iter().filter_map(local).collect());
        }
        let retry = self.inner.patience;
        let size_of = |location: StorageLocation| async move {
            match local(&location) {
                Some(size) => Ok(size),
                None => Ok(if_present(
                    &location,
                    retry.retry(|| location.store.head(&location.path)).await,
                )?
                .map(|meta| meta.size)),
            }
        };
        self.block_on_cancellable(
            futures::stream::iter(locations)
                .map(size_of)
                .buffered(REQUESTS_MAX)
                .try_collect(),
        )?
    }

    /// A whole object; `None` when it is not there.
    pub fn get(&self, location: &StorageLocation) -> Result<Option<Bytes>> {
        Ok(self.get_versioned(location)?.map(|object| object.bytes))
    }

    /// A whole object and its version; `None` when it is not there. One that the run has read before is
    /// not read again while its version is the same.
    pub fn get_versioned(&self, location: &StorageLocation) -> Result<Option<VersionedObject>> {
        let recent = self.recent.as_deref();
        if let Some(cached) = recent.and_then(|cache| cache.object(&location.shown))
            && self
                .head(location)?
                .is_some_and(|meta| meta.e_tag == cached.version.e_tag)
        {
            return Ok(Some(cached));
        }
        let object = self.get_uncached(location)?;
        if let Some(object) = &object
            && let Some(cache) = recent
        {
            cache.insert_object(&location.shown, object);
        }
        Ok(object)
    }

    fn get_uncached(&self, location: &StorageLocation) -> Result<Option<VersionedObject>> {
        let got = self.run_with_retries(location, || async {
            let got = location.store.get(&location.path).await?;
            let size = got.meta.size;
            let version = ObjectVersion {
                e_tag: got.meta.e_tag.clone(),
                version: got.meta.version.clone(),
            };
            // Held until the bytes are read.
            let reservation = match self.reserve_object(size) {
                Ok(reservation) => reservation,
                Err(shortage) => return Ok(Err(shortage)),
            };
            let large = size > REQUEST_BYTES_MAX && location.local.is_none();
            let bytes = if large {
                None
            } else {
                Some(got.bytes().await?)
            };
            Ok(Ok((size, version, bytes, reservation)))
        })?;
        let Some(got) = if_present(location, got)? else {
            return Ok(None);
        };
        let (size, version, bytes, _reservation) =
            got.map_err(|shortage| large_object_fault(&shortage, location))?;
        let bytes = match bytes {
            Some(bytes) if bytes.len() as u64 == size => bytes,
            Some(_) => return Err(fetch::short_read_fault(&location.shown)),
            None => self.get_in_blocks(location, version.e_tag.as_deref(), size)?,
        };
        Ok(Some(VersionedObject { bytes, version }))
    }

    /// Memory for an object that is read as a whole; `None` where it is small. The caller may hold memory of its own, so
    /// this does not wait.
    fn reserve_object(&self, bytes: u64) -> Result<Option<ReadReservation>, MemoryShortage> {
        if bytes < LARGE_OBJECT_BYTES {
            return Ok(None);
        }
        self.read_memory().reserve(bytes, false).map(Some)
    }

    /// Reserves memory for a file that the caller reads as a whole, of a local disk; `None` where it is small. It is given
    /// back once the file is read.
    pub fn reserve_file(
        &self,
        location: &StorageLocation,
        bytes: u64,
    ) -> Result<Option<ReadReservation>> {
        self.reserve_object(bytes)
            .map_err(|shortage| large_object_fault(&shortage, location))
    }

    fn get_in_blocks(
        &self,
        location: &StorageLocation,
        etag: Option<&str>,
        size: u64,
    ) -> Result<Bytes> {
        let starts = (0..size.div_ceil(REQUEST_BYTES_MAX)).map(|block| block * REQUEST_BYTES_MAX);
        let ranges = starts.map(|start| start..(start + REQUEST_BYTES_MAX).min(size));
        let blocks: Vec<Vec<Range<u64>>> = ranges.map(|range| vec![range]).collect();
        let mut reads = self.plan_reads(location, etag, &blocks, COALESCE_BYTES_DEFAULT);
        let mut whole = Vec::with_capacity(size as usize);
        for block in 0..blocks.len() {
            let parts = reads.take(block)?;
            while let Some(bytes) = parts.tail_at(whole.len() as u64) {
                whole.extend_from_slice(&bytes);
            }
        }
        if whole.len() as u64 == size {
            Ok(whole.into())
        } else {
            Err(fetch::short_read_fault(&location.shown))
        }
    }

    /// Writes a whole object, and replaces an existing one.
    pub fn put(&self, location: &StorageLocation, bytes: Bytes) -> Result<()> {
        require_writable(location)?;
        step("put", &location.shown);
        let put = self.run_with_retries(location, || {
            location.store.put(&location.path, bytes.clone().into())
        })?;
        put.map_err(|failed| storage_fault(&location.shown, failed))?;
        step("have put", &location.shown);
        Ok(())
    }

    /// Like `put`, but a power failure leaves either the old content or all of the new one: on
    /// local disks, the bytes are synced before they get their name. For the few files that make
    /// others visible.
    pub fn put_durable(&self, location: &StorageLocation, bytes: &[u8]) -> Result<()> {
        let Some(local) = &location.local else {
            return self.put(location, Bytes::copy_from_slice(bytes));
        };
        step("put", &location.shown);
        time_disk_wait(|| replace_durably(local, bytes)).map_err(|error| {
            Fault::disk("the file cannot be written", error).file(&location.shown)
        })?;
        step("have put", &location.shown);
        Ok(())
    }

    /// Writes an object only if it does not exist. `Ok(false)`: another one exists.
    pub fn put_if_absent(&self, location: &StorageLocation, bytes: Bytes) -> Result<bool> {
        self.put_if(location, bytes, None)
    }

    /// Writes an object only if the existing one is of this version, or if there is none.
    /// `Ok(false)`: another one exists. A write whose outcome is in doubt is read back: identical
    /// bytes are our own success.
    pub fn put_if(
        &self,
        location: &StorageLocation,
        bytes: Bytes,
        version: Option<&ObjectVersion>,
    ) -> Result<bool> {
        require_writable(location)?;
        let mode = version.map_or(PutMode::Create, |version| PutMode::Update(version.clone()));
        let options = PutOptions {
            mode,
            ..PutOptions::default()
        };
        let mut doubts = 0;
        loop {
            step("put", &location.shown);
            let put = self.run_with_retries(location, || {
                location
                    .store
                    .put_opts(&location.path, bytes.clone().into(), options.clone())
            })?;
            step("have put", &location.shown);
            let Err(doubt) = put else { return Ok(true) };
            doubts += 1;
            let stored = self.get_versioned(location)?;
            if stored.as_ref().is_some_and(|stored| stored.bytes == bytes) {
                return Ok(true);
            }
            let unchanged = stored.as_ref().map(|stored| &stored.version) == version;
            match unchanged {
                true if doubts < AMBIGUOUS_WRITES_MAX => {}
                true => return Err(storage_fault(&location.shown, doubt)),
                false => return Ok(false),
            }
        }
    }

    /// Like `put_if_absent`, but without a version, and a power failure leaves either no file or
    /// all of it: on local disks, the bytes are synced before they get their name.
    pub fn put_durable_if_absent(&self, location: &StorageLocation, bytes: Bytes) -> Result<bool> {
        let Some(local) = &location.local else {
            return self.put_if_absent(location, bytes);
        };
        step("put", &location.shown);
        let is_created = time_disk_wait(|| create_durably(local, &bytes)).map_err(|error| {
            Fault::disk("the file cannot be written", error).file(&location.shown)
        })?;
        step("have put", &location.shown);
        Ok(is_created)
    }

    /// Like `put_durable`, with the content of a local file; replaces an existing object.
    pub fn upload_durable(&self, location: &StorageLocation, file: &std::path::Path) -> Result<()> {
        let Some(local) = &location.local else {
            return self.upload_file(location, file);
        };
        step("put", &location.shown);
        let copy = |staged: &mut std::fs::File| {
            std::io::copy(&mut std::fs::File::open(file)?, staged).map(drop)
        };
        time_disk_wait(|| name_durably(local, copy, |staged| std::fs::rename(staged, local)))
            .map_err(|error| {
                Fault::disk("the file cannot be written", error).file(&location.shown)
            })?;
        step("have put", &location.shown);
        Ok(())
    }

    /// Uploads a local file, in parts where it is large.
    pub fn upload_file(&self, location: &StorageLocation, file: &std::path::Path) -> Result<()> {
        require_writable(location)?;
        let failed = |error| Fault::disk("a temporary file cannot be read", error);
        let mut file = std::fs::File::open(file).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        if bytes <= UPLOAD_PART_BYTES as u64 {
            let mut content = Vec::with_capacity(bytes as usize);
            file.read_to_end(&mut content).map_err(failed)?;
            return self.put(location, content.into());
        }
        let fault = |failed| storage_fault(&location.shown, failed);
        let replaced = self.head(location)?;
        let mut upload = self
            .run_with_retries(location, || location.store.put_multipart(&location.path))?
            .map_err(fault)?;
        // Parts are read while others are on their way.
        let sent = async {
            let mut parts = FuturesUnordered::new();
            let parts_max = self.upload_parts_max();
            loop {
                let mut part = Vec::with_capacity(UPLOAD_PART_BYTES);
                let read = (&mut file)
                    .take(UPLOAD_PART_BYTES as u64)
                    .read_to_end(&mut part)
                    .map_err(failed)?;
                if read > 0 {
                    parts.push(self.inner.patience.try_once(upload.put_part(part.into())));
                }
                if read == 0 || parts.len() == parts_max {
                    match parts.next().await {
                        Some(sent) => sent.map_err(fault)?,
                        None => return Ok::<(), Fault>(()),
                    }
                }
            }
        };
        if let Err(fault) = self.block_on_cancellable(sent).flatten() {
            // The parts of the failed upload are invisible, so a failure to abort it is ignored.
            let _ = self.block_on_cancellable(upload.abort());
            return Err(fault);
        }
        let Err(doubt) =
            self.block_on_cancellable(self.inner.patience.try_once(upload.complete()))?
        else {
            return Ok(());
        };
        // A repeated request to complete an upload that is already complete is answered with "not found".
        match self.head(location)? {
            Some(now) if now.size == bytes && replaced.and_then(|meta| meta.e_tag) != now.e_tag => {
                Ok(())
            }
            _ => Err(fault(doubt)),
        }
    }

    /// Maximum number of concurrent part uploads: they take as much memory as parts that are read
    /// ahead.
    fn upload_parts_max(&self) -> usize {
        let fitting = self.inner.scheduler.ahead_bytes() / (2 * UPLOAD_PART_BYTES as u64);
        (fitting as usize).clamp(1, UPLOAD_PARTS_MAX)
    }

    /// Deletes an object; that it is gone already is fine.
    pub fn delete(&self, location: &StorageLocation) -> Result<()> {
        if_present(
            location,
            self.run_with_retries(location, || location.store.delete(&location.path))?,
        )
        .map(drop)
    }
}

/// Replaces a file.
fn replace_durably(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    name_durably(
        path,
        |file| file.write_all(bytes),
        |staged| std::fs::rename(staged, path),
    )
}

/// Creates a file. `Ok(false)`: a file of this name exists.
fn create_durably(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<bool> {
    let link = |staged: &std::path::Path| {
        let linked = std::fs::hard_link(staged, path);
        std::fs::remove_file(staged)?;
        linked
    };
    match name_durably(path, |file| file.write_all(bytes), link) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        created => created.map(|()| true),
    }
}

/// Writes a file whose bytes are durable before `name` renames it. A temporary file that a crash
/// leaves is named `name#3`, like those of the store.
fn name_durably(
    path: &std::path::Path,
    write: impl FnOnce(&mut std::fs::File) -> std::io::Result<()>,
    name: impl FnOnce(&std::path::Path) -> std::io::Result<()>,
) -> std::io::Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let Some(folder) = path.parent() else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let Some(file_name) = path.file_name() else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    std::fs::create_dir_all(folder)?;
    // Not the process's id: in containers a killed process and the next one may have the same.
    let number =
        (u64::from(fastrand::u32(..)) << 32) + u64::from(NUMBER.fetch_add(1, Ordering::Relaxed));
    let staged = path.with_file_name(format!("{}#{number}", file_name.display()));
    let written = std::fs::File::create_new(&staged).and_then(|mut file| {
        write(&mut file)?;
        file.sync_all()?;
        name(&staged)?;
        std::fs::File::open(folder)?.sync_all()
    });
    written.inspect_err(|_| drop(std::fs::remove_file(&staged)))
}

/// Fault for a file that does not fit into the memory as a whole.
fn large_object_fault(shortage: &MemoryShortage, location: &StorageLocation) -> Fault {
    shortage
        .fault("reading the file")
        .file(&location.shown)
        .hint(format!("give {}", shortage.sufficient_option()))
}

/// Refuses a place that is only read.
fn require_writable(location: &StorageLocation) -> Result<()> {
    if location.is_web() {
        Err(Fault::new(codes::UNSUPPORTED, "https:// is only read")
            .file(&location.shown)
            .hint("write to a local path, s3://, gs:// or az://"))
    } else {
        Ok(())
    }
}

/// Answer of storage about an object; `None` if it does not exist.
fn if_present<T>(
    location: &StorageLocation,
    answer: Result<T, FailedRequest>,
) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(FailedRequest { error, .. })
            if matches!(error, object_store::Error::NotFound { .. })
                && !is_bucket_missing(&error) =>
        {
            Ok(None)
        }
        Err(failed) => Err(storage_fault(&location.shown, failed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_the_memory_cannot_hold_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        let file = std::fs::File::create(&path).unwrap();
        // No byte of it is on the disk.
        file.set_len(1 << 33).unwrap();
        let io = StorageClient::new().unwrap();
        io.set_memory(MemoryBudget::new(64 << 20), 1);
        let location = io.resolve(path.to_str().unwrap()).unwrap();
        let fault = io.get(&location).map(drop).unwrap_err();
        assert_eq!(fault.code(), codes::MEMORY, "{fault:?}");
        assert!(
            fault
                .hint_text()
                .is_some_and(|hint| hint.contains("--memory"))
        );
        file.set_len(3).unwrap();
        assert_eq!(io.get(&location).unwrap().as_deref(), Some(&[0, 0, 0][..]));
    }

    #[test]
    fn local_disk_works_without_a_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let io = StorageClient::new().unwrap();
        let location = |name: &str| {
            io.resolve(folder.path().join(name).to_str().unwrap())
                .unwrap()
        };
        let a = location("below/a");
        let b = location("below/b");
        io.put(&a, Bytes::from_static(b"first")).unwrap();
        assert_eq!(io.get(&a).unwrap().as_deref(), Some(&b"first"[..]));
        assert!(!io.put_if_absent(&a, Bytes::from_static(b"second")).unwrap());
        assert!(io.put_if_absent(&b, Bytes::from_static(b"second")).unwrap());
        assert_eq!(
            io.sizes(vec![a.clone(), location("c"), b.clone()]).unwrap(),
            [Some(5), None, Some(6)]
        );
        assert_eq!(io.head(&b).unwrap().map(|meta| meta.size), Some(6));
        assert_eq!(io.list(&location("below")).unwrap().len(), 2);
        io.delete(&a).unwrap();
        assert!(io.get(&a).unwrap().is_none());
        io.put_durable(&b, b"third").unwrap();
        io.put_durable(&location("deep/er/c"), b"fourth").unwrap();
        assert_eq!(io.get(&b).unwrap().as_deref(), Some(&b"third"[..]));
        assert!(
            !io.put_durable_if_absent(&b, Bytes::from_static(b"fourth"))
                .unwrap()
        );
        assert!(
            io.put_durable_if_absent(&location("new/d"), Bytes::from_static(b"fourth"))
                .unwrap()
        );
        assert_eq!(
            io.get(&location("new/d")).unwrap().as_deref(),
            Some(&b"fourth"[..])
        );
        io.upload_durable(&location("new/d"), &folder.path().join("below/b"))
            .unwrap();
        assert_eq!(
            io.get(&location("new/d")).unwrap().as_deref(),
            Some(&b"third"[..])
        );
        assert_eq!(
            io.list(&location("below")).unwrap().len(),
            1,
            "something staged is left"
        );
        io.put(&b, Bytes::from_static(b"second")).unwrap();
        assert!(io.inner.runtime.get().is_none());
        // From within a runtime, another one is used.
        let within = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let got = within.block_on(async {
            tokio::task::spawn_blocking({
                let io = io.clone();
                let b = b.clone();
                move || io.get(&b).unwrap()
            })
            .await
            .unwrap()
        });
        assert_eq!(got.as_deref(), Some(&b"second"[..]));
    }

    #[test]
    fn a_task_of_the_runtime_may_drop_the_last_client() {
        let io = StorageClient::new().unwrap();
        let runtime = io.runtime_handle().unwrap();
        let (alone, is_alone) = tokio::sync::oneshot::channel();
        let (dropped, is_dropped) = std::sync::mpsc::channel();
        let last = io.clone();
        runtime.spawn(async move {
            is_alone.await.unwrap();
            drop(last);
            dropped.send(()).unwrap();
        });
        drop(io);
        alone.send(()).unwrap();
        is_dropped.recv().unwrap();
    }

    /// Never ends, and stops its run on the way.
    async fn use_up_turns(stop: Arc<std::sync::atomic::AtomicBool>) {
        loop {
            stop.store(true, Ordering::Relaxed);
            tokio::task::consume_budget().await;
        }
    }

    #[test]
    fn a_computation_that_goes_on_ends_when_its_run_is_stopped() {
        let cancellation = CancellationToken::default();
        let io = StorageClient::new().unwrap();
        let io = io.for_run(cancellation.clone(), Arc::new(crate::events::IgnoreEvents));
        assert_eq!(io.block_on_computation(async { 7 }).unwrap(), 7);
        // It uses up its share of each turn, as streams of the query engine do.
        let stopped = io
            .block_on_computation(use_up_turns(cancellation.flag()))
            .unwrap_err();
        assert_eq!(stopped.code(), codes::INTERRUPTED);
    }
}
