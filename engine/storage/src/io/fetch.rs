//! Requests for ranges of objects.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_model::{Fault, Result, codes};
use futures::FutureExt;
use object_store::{GetOptions, ObjectMeta};

use super::coalesce::{COALESCE_BYTES_DEFAULT, PlannedRequest, plan_requests};
use super::read_scheduler::{PendingRead, SendRequest};
use super::{DiskCache, StorageClient, StorageLocation, if_present};
use crate::io::disk_cache::CacheKey;
use crate::io::error::{is_out_of_range, replaced_fault, storage_fault};

/// Requests for groups of ranges of an object, in the order in which they are taken. Dropping it
/// cancels the requests.
pub struct PlannedReads {
    io: StorageClient,
    shown: String,
    requests: Vec<(PlannedRequest, RequestState)>,
}

enum RequestState {
    Pending(PendingRead, Option<(Arc<DiskCache>, CacheKey)>),
    Done(Bytes),
    /// All groups of the request were taken.
    Released,
    /// The request could not be submitted.
    Failed(Option<Fault>),
}

/// Ranges of an object that are being read.
pub struct RangeFetch {
    reads: PlannedReads,
    ranges: Vec<Range<u64>>,
}

impl StorageClient {
    /// Begins to read groups of ranges of an object, in the order in which the groups will be
    /// taken. With an `etag`, an object that has another one is a fault. Ranges with no more than
    /// `gap` bytes between them share a request.
    pub fn plan_reads(
        &self,
        location: &StorageLocation,
        etag: Option<&str>,
        groups: &[Vec<Range<u64>>],
        gap: u64,
    ) -> PlannedReads {
        // Weak etags match nothing.
        let etag = etag.filter(|etag| !etag.starts_with("W/"));
        let requests = plan_requests(groups, gap).into_iter().map(|request| {
            let state = self.submit(location, etag, &request.range);
            (request, state)
        });
        PlannedReads {
            io: self.clone(),
            shown: location.shown.clone(),
            requests: requests.collect(),
        }
    }

    fn submit(
        &self,
        location: &StorageLocation,
        etag: Option<&str>,
        range: &Range<u64>,
    ) -> RequestState {
        let keep = match (&self.cache, etag) {
            (Some(cache), Some(etag)) if location.local.is_none() => Some((
                cache.clone(),
                CacheKey::new(&location.shown, etag, std::slice::from_ref(range)),
            )),
            _ => None,
        };
        if let Some(cached) = keep.as_ref().and_then(|(cache, entry)| cache.get(entry)) {
            return RequestState::Done(cached.into_iter().next().unwrap_or_default());
        }
        match self.runtime_handle() {
            Ok(runtime) => {
                let send =
                    self.range_request(location.clone(), etag.map(str::to_owned), range.clone());
                RequestState::Pending(self.inner.scheduler.submit(range, runtime, send), keep)
            }
            Err(fault) => RequestState::Failed(Some(fault)),
        }
    }

    fn range_request(
        &self,
        location: StorageLocation,
        etag: Option<String>,
        range: Range<u64>,
    ) -> SendRequest {
        let retry = self.inner.patience;
        Box::new(move || {
            let location = location.clone();
            let etag = etag.clone();
            let range = range.clone();
            async move {
                let options = || {
                    GetOptions::new()
                        .with_range(Some(range.clone()))
                        .with_if_match(etag.clone())
                };
                let got = retry.retry(|| async {
                    let got = location.store.get_opts(&location.path, options()).await?;
                    Ok((got.meta.e_tag.clone(), got.bytes().await?))
                });
                let (served_etag, bytes) = got
                    .await
                    .map_err(|failed| storage_fault(&location.shown, failed))?;
                // Not every store looks at conditions.
                if etag.is_some() && served_etag.is_some() && etag != served_etag {
                    return Err(replaced_fault(&location.shown));
                }
                if bytes.len() as u64 == range.end - range.start {
                    Ok(bytes)
                } else {
                    Err(short_read_fault(&location.shown))
                }
            }
            .boxed()
        })
    }

    /// Begins to read ranges of an object; ranges that are close together share a request. With an
    /// `etag`, an object that has another one is a fault.
    pub fn fetch(
        &self,
        location: &StorageLocation,
        etag: Option<&str>,
        ranges: Vec<Range<u64>>,
    ) -> RangeFetch {
        let reads = self.plan_reads(
            location,
            etag,
            std::slice::from_ref(&ranges),
            COALESCE_BYTES_DEFAULT,
        );
        RangeFetch { reads, ranges }
    }

    /// Some ranges of an object.
    pub fn get_ranges(
        &self,
        location: &StorageLocation,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>> {
        self.fetch(location, None, ranges.to_vec()).finish()
    }

    /// A range of an object of which no version is known, with the store's metadata of it. `None`
    /// if the object does not exist, or has no such range.
    pub fn get_unversioned(
        &self,
        location: &StorageLocation,
        range: Range<u64>,
    ) -> Result<Option<(ObjectMeta, Bytes)>> {
        let options = || GetOptions::new().with_range(Some(range.clone()));
        let got = self.run_with_retries(location, || async {
            let got = location.store.get_opts(&location.path, options()).await?;
            Ok((got.meta.clone(), got.bytes().await?))
        })?;
        match got {
            Err(failed) if is_out_of_range(&failed) => Ok(None),
            got => Ok(if_present(location, got)?
                .filter(|(_, bytes)| bytes.len() as u64 == range.end - range.start)),
        }
    }

    /// True if readers should submit more ranges ahead of their use.
    pub fn wants_reads(&self) -> bool {
        self.inner.scheduler.wants_more()
    }

    /// Sets how many bytes all readers of the process may have asked for ahead of their use.
    pub(super) fn set_read_ahead_bytes(&self, bytes: u64) {
        self.inner.scheduler.set_ahead_bytes(bytes);
    }
}

/// Fault for an object with fewer bytes than it declared.
pub fn short_read_fault(location_text: &str) -> Fault {
    Fault::new(
        codes::STORAGE,
        "storage gave fewer bytes than it was asked for",
    )
    .file(location_text)
}

impl PlannedReads {
    /// Waits for the bytes of a group. Parts may hold more than its ranges, and a range may lie in several that follow
    /// one another. Groups are taken in order.
    pub fn take(&mut self, group: usize) -> Result<FetchedParts> {
        let serves = |request: &PlannedRequest| request.groups.contains(&group);
        for (request, state) in &self.requests {
            match state {
                RequestState::Pending(pending, _) if serves(request) => pending.demand(),
                _ => {}
            }
        }
        let mut parts = Vec::new();
        for (request, state) in &mut self.requests {
            if serves(request) {
                let bytes = self.io.wait_for(&self.shown, state)?;
                parts.push((request.range.start, bytes));
            }
            if request.groups.end <= group + 1 {
                *state = RequestState::Released;
            }
        }
        Ok(FetchedParts::new(parts))
    }
}

impl StorageClient {
    fn wait_for(&self, location_text: &str, state: &mut RequestState) -> Result<Bytes> {
        let given_up = || Fault::new(codes::STORAGE, "a read was given up").file(location_text);
        match state {
            RequestState::Done(bytes) => Ok(bytes.clone()),
            RequestState::Released => {
                Err(Fault::internal("a range was read after it was released"))
            }
            RequestState::Failed(fault) => Err(fault.take().unwrap_or_else(given_up)),
            RequestState::Pending(pending, keep) => {
                let bytes = self
                    .block_on_cancellable(pending.wait())?
                    .ok_or_else(given_up)??;
                if let Some((cache, entry)) = keep.take() {
                    cache.put(&entry, std::slice::from_ref(&bytes));
                }
                *state = RequestState::Done(bytes.clone());
                Ok(bytes)
            }
        }
    }
}

impl RangeFetch {
    /// Waits for the bytes.
    pub fn finish(mut self) -> Result<Vec<Bytes>> {
        let parts = self.reads.take(0)?;
        let missing = || Fault::internal("a range was not read");
        self.ranges
            .iter()
            .map(|range| parts.slice(range.clone()).ok_or_else(missing))
            .collect()
    }
}

/// Parts of an object, in the order of their places. They may overlap.
#[derive(Debug, Default)]
pub struct FetchedParts(Vec<(u64, Bytes)>);

impl FetchedParts {
    /// Parts by where they begin.
    pub fn new(mut parts: Vec<(u64, Bytes)>) -> FetchedParts {
        parts.sort_unstable_by_key(|(start, _)| *start);
        FetchedParts(parts)
    }

    /// Adds a part.
    pub fn insert(&mut self, start: u64, bytes: Bytes) {
        let position = self.0.partition_point(|(at, _)| *at <= start);
        self.0.insert(position, (start, bytes));
    }

    /// Bytes from an offset to the end of the part that holds it; `None` where no part does. The
    /// end of a part is in none.
    pub fn tail_at(&self, start: u64) -> Option<Bytes> {
        let up_to_start = &self.0[..self.0.partition_point(|(at, _)| *at <= start)];
        let (at, bytes) = up_to_start
            .iter()
            .rev()
            .find(|(at, bytes)| start - at < bytes.len() as u64)?;
        Some(bytes.slice((start - at) as usize..))
    }

    /// A range, copied where it lies in several parts; `None` where some of it is in none.
    pub fn slice(&self, range: Range<u64>) -> Option<Bytes> {
        let length = (range.end - range.start) as usize;
        if length == 0 {
            return Some(Bytes::new());
        }
        let head = self.tail_at(range.start)?;
        if head.len() >= length {
            return Some(head.slice(..length));
        }
        let mut whole = BytesMut::with_capacity(length);
        whole.extend_from_slice(&head);
        while whole.len() < length {
            let part = self.tail_at(range.start + whole.len() as u64)?;
            whole.extend_from_slice(&part[..part.len().min(length - whole.len())]);
        }
        Some(whole.freeze())
    }
}
