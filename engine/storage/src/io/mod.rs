//! The way to storage: local paths and URLs, blocking calls over one async runtime.

mod coalesce;
mod concurrency;
mod disk_cache;
mod error;
mod fetch;
mod list;
mod location;
mod read_cache;
mod read_scheduler;
mod requests;
mod retry;
mod stores;
mod stragglers;
mod usage;

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
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use tokio::runtime::{Handle, Runtime};

use crate::cancellation::CancellationToken;
use crate::events::{Event, EventListener};
use crate::failpoint::step;
use crate::io::coalesce::REQUEST_BYTES_MAX;
use crate::io::error::{FailedRequest, is_bucket_missing, storage_fault};
use crate::io::location::without_parents;
use crate::io::read_cache::ReadCache;
use crate::io::read_scheduler::ReadScheduler;
use crate::io::retry::{CountingConnector, RetryBudget};
use crate::io::stores::ObjectUrl;
use crate::io::usage::UsageCounters;

pub use coalesce::COALESCE_BYTES_DEFAULT;
pub use disk_cache::{CacheStats, DiskCache};
pub use fetch::{FetchedParts, PlannedReads, RangeFetch};
pub use location::StorageLocation;
pub use requests::{RequestListener, StorageRequest};
pub use usage::StorageUsage;

/// Bytes of one part of an upload: S3 wants at least 5 MiB and at most 10,000 parts.
const UPLOAD_PART_BYTES: usize = 16 << 20;

/// Parts of an upload that are on their way at a time.
const UPLOAD_PARTS_MAX: usize = 4;

/// Requests for objects of one operation that are under way at the same time.
const REQUESTS_MAX: usize = 32;

/// How often a conditional write whose outcome is in doubt is begun anew.
const AMBIGUOUS_WRITES_MAX: usize = 3;

thread_local! {
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// How long this thread has waited for storage so far.
pub fn storage_wait() -> Duration {
    WAITED.get()
}

/// Waits for a local disk, which blocks the thread. What is in the system's cache takes next to no time.
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
    /// Where relative paths begin, if not where the process does.
    base: Option<Arc<std::path::Path>>,
    /// What keeps what is read of remote objects.
    cache: Option<Arc<DiskCache>>,
    /// What keeps what a run has read.
    recent: Option<Arc<ReadCache>>,
    /// The run that it serves.
    run: Option<Arc<ServedRun>>,
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
    /// How long a run waits for what another process holds.
    lock_wait_max: Duration,
    /// Buckets that were seen to be there.
    buckets: Mutex<BTreeSet<String>>,
    interrupt: CancellationToken,
    /// Orders all reads of ranges.
    scheduler: Arc<ReadScheduler>,
    counters: Arc<UsageCounters>,
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

/// An object, and what tells it from those that replace it.
#[derive(Clone)]
pub struct VersionedObject {
    /// All of it.
    pub bytes: Bytes,
    /// What the store calls this content.
    pub version: ObjectVersion,
}

/// What a store calls one content of an object: an etag, and on Google's store a generation, too. Empty where nothing
/// tells contents apart.
pub type ObjectVersion = UpdateVersion;

impl std::fmt::Debug for StorageClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Io")
    }
}

impl StorageClient {
    /// With what the environment says of storage.
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
        };
        Ok(StorageClient {
            inner: Arc::new(inner),
            base: None,
            cache: None,
            recent: None,
            run: None,
        })
    }

    /// An own runtime with a few threads: storage waits, it does not compute.
    fn runtime(&self) -> Result<&Runtime> {
        let StorageInner {
            runtime, making, ..
        } = &*self.inner;
        if let Some(made) = runtime.get() {
            return Ok(made);
        }
        let _making = making
            .lock()
            .map_err(|_| Fault::internal("another thread failed while it made a runtime"))?;
        if let Some(made) = runtime.get() {
            return Ok(made);
        }
        let made = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("forebay-io")
            .enable_all()
            .build()
            .map_err(|error| {
                Fault::new(codes::STORAGE, "the I/O threads cannot be started").cause(error)
            })?;
        Ok(runtime.get_or_init(|| made))
    }

    /// The same client with another base for relative paths.
    pub fn with_base(&self, base: &std::path::Path) -> StorageClient {
        StorageClient {
            base: Some(base.into()),
            ..self.clone()
        }
    }

    /// The same client with a disk cache, for callers that read objects repeatedly.
    pub fn with_disk_cache(&self, cache: Arc<DiskCache>) -> StorageClient {
        StorageClient {
            cache: Some(cache),
            ..self.clone()
        }
    }

    /// What stops waiting for storage, some seconds after it was asked to.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.inner.interrupt
    }

    /// The same client for a run, which can be stopped alone and is told of what its storage waits for.
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

    /// What stops the run that this client serves.
    pub fn run_cancellation(&self) -> &CancellationToken {
        match &self.run {
            Some(run) => &run.cancellation,
            None => &self.inner.interrupt,
        }
    }

    /// Tells the run that this client serves of an event.
    pub fn emit(&self, event: Event) {
        if let Some(run) = &self.run {
            run.listener.on_event(event);
        }
    }

    /// How long to wait for what another process holds: `FOREBAY_LOCK_SECONDS`.
    pub fn lock_wait_max(&self) -> Duration {
        self.inner.lock_wait_max
    }

    /// Tells a listener of each request to an object store from now on. Only the first listener counts.
    pub fn listen(&self, listener: Arc<dyn RequestListener>) {
        let _ = self.inner.counters.listener.set(listener);
    }

    /// What was asked of object stores so far.
    pub fn usage(&self) -> StorageUsage {
        self.inner.counters.usage()
    }

    /// Waits for a future. Must not be called from inside the runtime.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        let runtime = self.runtime()?;
        Ok(time_disk_wait(|| runtime.block_on(future)))
    }

    /// Waits for a computation, unless the run is asked to stop. Must not be called from inside the runtime.
    ///
    /// The computation must yield from time to time; the streams of the query engine do.
    pub fn block_on_computation<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        use futures::future::{Either, select};
        // Without this, a computation that uses up its share of each turn would leave none for the timer.
        let stopped = tokio::task::unconstrained(self.run_cancellation().wait_cancelled());
        let (work, stopped) = (std::pin::pin!(work), std::pin::pin!(stopped));
        match self.block_on(select(work, stopped))? {
            Either::Left((done, _)) => Ok(done),
            Either::Right((fault, _)) => Err(fault),
        }
    }

    /// Waits for an answer of storage, unless the run was asked to stop some seconds ago.
    fn block_on_cancellable<T>(&self, answer: impl Future<Output = T>) -> Result<T> {
        use futures::future::{Either, select};
        let (answer, overdue) = (
            std::pin::pin!(answer),
            std::pin::pin!(self.inner.interrupt.wait_past_grace()),
        );
        let before = storage_wait();
        let answer = self.block_on(select(answer, overdue));
        self.inner.counters.count_wait(storage_wait() - before);
        match answer? {
            Either::Left((answer, _)) => Ok(answer),
            Either::Right((stopped, _)) => Err(stopped),
        }
    }

    /// What storage does, again where connections fail.
    fn run_with_retries<T, F>(
        &self,
        place: &StorageLocation,
        work: impl Fn() -> F,
    ) -> Result<Result<T, FailedRequest>>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        // Outside of a runtime, a disk is asked by this thread, and has answered when that returns.
        if place.local.is_some() && Handle::try_current().is_err() {
            let done = time_disk_wait(|| futures::executor::block_on(work()));
            return Ok(done.map_err(|error| FailedRequest {
                error,
                attempts: 0,
                waited: Duration::ZERO,
            }));
        }
        self.block_on_cancellable(self.inner.patience.retry(work))
    }

    /// The runtime, for those who serve or spawn.
    pub fn runtime_handle(&self) -> Result<Handle> {
        Ok(self.runtime()?.handle().clone())
    }

    /// Resolves a local path or a URL: `s3://bucket/key`, `gs://bucket/key`, `az://container/key`,
    /// `abfss://container@account.dfs.core.windows.net/key` or `https://host/file`. Endpoints and credentials come from
    /// the environment (`AWS_REGION`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME`, ...), and so does
    /// how long storage is asked again (`AWS_MAX_ATTEMPTS`, `AWS_TIMEOUT`, `FOREBAY_RETRY_SECONDS`).
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

    /// Refuses a place to write to that is only read, or whose bucket does not exist. What else a listing answers is left
    /// to those who write: they may be allowed to where listing is not.
    pub fn require_bucket(&self, place: &StorageLocation) -> Result<()> {
        require_writable(place)?;
        let Some(bucket) = place.root() else {
            return Ok(());
        };
        if self.buckets().contains(bucket) {
            return Ok(());
        }
        let listed = self.run_with_retries(place, || async {
            place
                .store
                .list(Some(&place.path))
                .next()
                .await
                .transpose()
                .map(drop)
        })?;
        match listed {
            Err(failed) if is_bucket_missing(&failed.error) => {
                Err(storage_fault(&place.shown, failed))
            }
            Err(failed) if failed.attempts > 0 => Err(storage_fault(&place.shown, failed)),
            _ => {
                self.buckets().insert(bucket.to_owned());
                Ok(())
            }
        }
    }

    /// What the store knows of one object; `None` when it is not there.
    pub fn head(&self, place: &StorageLocation) -> Result<Option<ObjectMeta>> {
        if_present(
            place,
            self.run_with_retries(place, || place.store.head(&place.path))?,
        )
    }

    /// The bytes of some objects, where they are there; several are asked for at a time.
    pub fn sizes(&self, places: Vec<StorageLocation>) -> Result<Vec<Option<u64>>> {
        let local = |place: &StorageLocation| {
            place
                .local
                .as_ref()
                .map(|path| std::fs::metadata(path).ok().map(|meta| meta.len()))
        };
        if places.iter().all(|place| place.local.is_some()) {
            return Ok(places.iter().filter_map(local).collect());
        }
        let patience = self.inner.patience;
        let one = |place: StorageLocation| async move {
            match local(&place) {
                Some(size) => Ok(size),
                None => Ok(if_present(
                    &place,
                    patience.retry(|| place.store.head(&place.path)).await,
                )?
                .map(|meta| meta.size)),
            }
        };
        self.block_on_cancellable(
            futures::stream::iter(places)
                .map(one)
                .buffered(REQUESTS_MAX)
                .try_collect(),
        )?
    }

    /// A whole object; `None` when it is not there.
    pub fn get(&self, place: &StorageLocation) -> Result<Option<Bytes>> {
        Ok(self.get_versioned(place)?.map(|object| object.bytes))
    }

    /// A whole object and its version; `None` when it is not there. One that the run has read before is
    /// not read again while its version is the same.
    pub fn get_versioned(&self, place: &StorageLocation) -> Result<Option<VersionedObject>> {
        if let Some(known) = self.cached_object(&place.shown)
            && self
                .head(place)?
                .is_some_and(|meta| meta.e_tag == known.version.e_tag)
        {
            return Ok(Some(known));
        }
        let found = self.get_uncached(place)?;
        found
            .iter()
            .for_each(|found| self.cache_object(&place.shown, found));
        Ok(found)
    }

    fn get_uncached(&self, place: &StorageLocation) -> Result<Option<VersionedObject>> {
        let got = self.run_with_retries(place, || async {
            let got = place.store.get(&place.path).await?;
            let size = got.meta.size;
            let version = ObjectVersion {
                e_tag: got.meta.e_tag.clone(),
                version: got.meta.version.clone(),
            };
            let large = size > REQUEST_BYTES_MAX && place.local.is_none();
            let bytes = if large {
                None
            } else {
                Some(got.bytes().await?)
            };
            Ok((size, version, bytes))
        })?;
        let Some((size, version, bytes)) = if_present(place, got)? else {
            return Ok(None);
        };
        let bytes = match bytes {
            Some(bytes) if bytes.len() as u64 == size => bytes,
            Some(_) => return Err(fetch::short_read_fault(&place.shown)),
            None => self.get_in_blocks(place, version.e_tag.as_deref(), size)?,
        };
        Ok(Some(VersionedObject { bytes, version }))
    }

    fn get_in_blocks(
        &self,
        place: &StorageLocation,
        etag: Option<&str>,
        size: u64,
    ) -> Result<Bytes> {
        let starts = (0..size.div_ceil(REQUEST_BYTES_MAX)).map(|block| block * REQUEST_BYTES_MAX);
        let ranges = starts.map(|start| start..(start + REQUEST_BYTES_MAX).min(size));
        let blocks: Vec<Vec<Range<u64>>> = ranges.map(|range| vec![range]).collect();
        let mut reads = self.plan_reads(place, etag, &blocks, COALESCE_BYTES_DEFAULT);
        let mut whole = Vec::with_capacity(size as usize);
        for block in 0..blocks.len() {
            let parts = reads.take(block)?;
            while let Some(bytes) = parts.tail_at(whole.len() as u64) {
                whole.extend_from_slice(&bytes);
            }
        }
        match whole.len() as u64 == size {
            true => Ok(whole.into()),
            false => Err(fetch::short_read_fault(&place.shown)),
        }
    }

    /// Writes an object whole, replacing what was there.
    pub fn put(&self, place: &StorageLocation, bytes: Bytes) -> Result<()> {
        require_writable(place)?;
        step("put", &place.shown);
        let put =
            self.run_with_retries(place, || place.store.put(&place.path, bytes.clone().into()))?;
        put.map_err(|failed| storage_fault(&place.shown, failed))?;
        step("have put", &place.shown);
        Ok(())
    }

    /// The same, so that a loss of power leaves what was there before or all of this: on local disks, the bytes are
    /// safe before they get their name. For the few files that make others visible.
    pub fn put_durable(&self, place: &StorageLocation, bytes: &[u8]) -> Result<()> {
        let Some(local) = &place.local else {
            return self.put(place, Bytes::copy_from_slice(bytes));
        };
        step("put", &place.shown);
        time_disk_wait(|| replace_durably(local, bytes))
            .map_err(|error| Fault::disk("the file cannot be written", error).file(&place.shown))?;
        step("have put", &place.shown);
        Ok(())
    }

    /// Writes an object only if nothing is there. `Ok(false)`: something else is there.
    pub fn put_if_absent(&self, place: &StorageLocation, bytes: Bytes) -> Result<bool> {
        self.put_if(place, bytes, None)
    }

    /// Writes an object only if what is there is this version, or if there is nothing. `Ok(false)`:
    /// something else is there. A write whose outcome is in doubt is read back: identical bytes are
    /// our own success.
    pub fn put_if(
        &self,
        place: &StorageLocation,
        bytes: Bytes,
        version: Option<&ObjectVersion>,
    ) -> Result<bool> {
        require_writable(place)?;
        let mode = version.map_or(PutMode::Create, |version| PutMode::Update(version.clone()));
        let options = PutOptions {
            mode,
            ..PutOptions::default()
        };
        let mut doubts = 0;
        loop {
            step("put", &place.shown);
            let put = self.run_with_retries(place, || {
                place
                    .store
                    .put_opts(&place.path, bytes.clone().into(), options.clone())
            })?;
            step("have put", &place.shown);
            let Err(doubt) = put else { return Ok(true) };
            doubts += 1;
            let there = self.get_versioned(place)?;
            if there.as_ref().is_some_and(|there| there.bytes == bytes) {
                return Ok(true);
            }
            let unchanged = there.as_ref().map(|there| &there.version) == version;
            match unchanged {
                true if doubts < AMBIGUOUS_WRITES_MAX => {}
                true => return Err(storage_fault(&place.shown, doubt)),
                false => return Ok(false),
            }
        }
    }

    /// The same without a version, so that a loss of power leaves nothing or all of it: on local disks, the bytes are
    /// safe before they get their name.
    pub fn put_durable_if_absent(&self, place: &StorageLocation, bytes: Bytes) -> Result<bool> {
        let Some(local) = &place.local else {
            return self.put_if_absent(place, bytes);
        };
        step("put", &place.shown);
        let made = time_disk_wait(|| create_durably(local, &bytes))
            .map_err(|error| Fault::disk("the file cannot be written", error).file(&place.shown))?;
        step("have put", &place.shown);
        Ok(made)
    }

    /// The same with the content of a local file, whatever is there already.
    pub fn upload_durable(&self, place: &StorageLocation, file: &std::path::Path) -> Result<()> {
        let Some(local) = &place.local else {
            return self.upload_file(place, file);
        };
        step("put", &place.shown);
        let copy = |staged: &mut std::fs::File| {
            std::io::copy(&mut std::fs::File::open(file)?, staged).map(drop)
        };
        time_disk_wait(|| name_durably(local, copy, |staged| std::fs::rename(staged, local)))
            .map_err(|error| Fault::disk("the file cannot be written", error).file(&place.shown))?;
        step("have put", &place.shown);
        Ok(())
    }

    /// Uploads a local file, in parts where it is large.
    pub fn upload_file(&self, place: &StorageLocation, file: &std::path::Path) -> Result<()> {
        require_writable(place)?;
        let failed = |error| Fault::disk("a temporary file cannot be read", error);
        let mut file = std::fs::File::open(file).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        if bytes <= UPLOAD_PART_BYTES as u64 {
            let mut all = Vec::with_capacity(bytes as usize);
            file.read_to_end(&mut all).map_err(failed)?;
            return self.put(place, all.into());
        }
        let fault = |failed| storage_fault(&place.shown, failed);
        let before = self.head(place)?;
        let mut upload = self
            .run_with_retries(place, || place.store.put_multipart(&place.path))?
            .map_err(fault)?;
        // Parts are read while others are on their way.
        let sent = async {
            let (mut parts, parts_max) = (FuturesUnordered::new(), self.upload_parts_max());
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
            // What is left of the upload is invisible; that it cannot be aborted changes nothing.
            let _ = self.block_on_cancellable(upload.abort());
            return Err(fault);
        }
        let Err(doubt) =
            self.block_on_cancellable(self.inner.patience.try_once(upload.complete()))?
        else {
            return Ok(());
        };
        // A repeated request to complete an upload that is already complete is answered with "not found".
        match self.head(place)? {
            Some(now)
                if now.size == bytes && before.and_then(|before| before.e_tag) != now.e_tag =>
            {
                Ok(())
            }
            _ => Err(fault(doubt)),
        }
    }

    /// Parts of an upload that are on their way at a time: they take as much memory as parts that are read ahead.
    fn upload_parts_max(&self) -> usize {
        let fitting = self.inner.scheduler.ahead_bytes() / (2 * UPLOAD_PART_BYTES as u64);
        (fitting as usize).clamp(1, UPLOAD_PARTS_MAX)
    }

    /// Deletes an object; that it is gone already is fine.
    pub fn delete(&self, place: &StorageLocation) -> Result<()> {
        if_present(
            place,
            self.run_with_retries(place, || place.store.delete(&place.path))?,
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

/// Creates a file. `Ok(false)`: there is one of this name.
fn create_durably(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<bool> {
    let link = |staged: &std::path::Path| {
        let linked = std::fs::hard_link(staged, path);
        std::fs::remove_file(staged)?;
        linked
    };
    match name_durably(path, |file| file.write_all(bytes), link) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
}

/// Writes a file whose bytes are safe before `name` gives it its name. What a crash leaves on the way is called
/// `name#3`, as the store calls it.
fn name_durably(
    path: &std::path::Path,
    write: impl FnOnce(&mut std::fs::File) -> std::io::Result<()>,
    name: impl FnOnce(&std::path::Path) -> std::io::Result<()>,
) -> std::io::Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (Some(folder), Some(file_name)) = (path.parent(), path.file_name()) else {
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

/// Refuses a place that is only read.
fn require_writable(place: &StorageLocation) -> Result<()> {
    match place.is_web() {
        false => Ok(()),
        true => Err(Fault::new(codes::UNSUPPORTED, "https:// is only read")
            .file(&place.shown)
            .hint("write to a local path, s3://, gs:// or az://")),
    }
}

/// What storage told of an object, if that is there.
fn if_present<T>(place: &StorageLocation, answer: Result<T, FailedRequest>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(FailedRequest { error, .. })
            if matches!(error, object_store::Error::NotFound { .. })
                && !is_bucket_missing(&error) =>
        {
            Ok(None)
        }
        Err(failed) => Err(storage_fault(&place.shown, failed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_disk_works_without_a_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let io = StorageClient::new().unwrap();
        let place = |name: &str| {
            io.resolve(folder.path().join(name).to_str().unwrap())
                .unwrap()
        };
        let (a, b) = (place("below/a"), place("below/b"));
        io.put(&a, Bytes::from_static(b"first")).unwrap();
        assert_eq!(io.get(&a).unwrap().as_deref(), Some(&b"first"[..]));
        assert!(!io.put_if_absent(&a, Bytes::from_static(b"second")).unwrap());
        assert!(io.put_if_absent(&b, Bytes::from_static(b"second")).unwrap());
        assert_eq!(
            io.sizes(vec![a.clone(), place("c"), b.clone()]).unwrap(),
            [Some(5), None, Some(6)]
        );
        assert_eq!(io.head(&b).unwrap().map(|meta| meta.size), Some(6));
        assert_eq!(io.list(&place("below")).unwrap().len(), 2);
        io.delete(&a).unwrap();
        assert!(io.get(&a).unwrap().is_none());
        io.put_durable(&b, b"third").unwrap();
        io.put_durable(&place("deep/er/c"), b"fourth").unwrap();
        assert_eq!(io.get(&b).unwrap().as_deref(), Some(&b"third"[..]));
        assert!(
            !io.put_durable_if_absent(&b, Bytes::from_static(b"fourth"))
                .unwrap()
        );
        assert!(
            io.put_durable_if_absent(&place("new/d"), Bytes::from_static(b"fourth"))
                .unwrap()
        );
        assert_eq!(
            io.get(&place("new/d")).unwrap().as_deref(),
            Some(&b"fourth"[..])
        );
        io.upload_durable(&place("new/d"), &folder.path().join("below/b"))
            .unwrap();
        assert_eq!(
            io.get(&place("new/d")).unwrap().as_deref(),
            Some(&b"third"[..])
        );
        assert_eq!(
            io.list(&place("below")).unwrap().len(),
            1,
            "something staged is left"
        );
        io.put(&b, Bytes::from_static(b"second")).unwrap();
        assert!(io.inner.runtime.get().is_none());
        // From within a runtime, another one is asked.
        let within = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let got = within.block_on(async {
            tokio::task::spawn_blocking({
                let (io, b) = (io.clone(), b.clone());
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
