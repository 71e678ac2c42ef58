//! Ranges of objects on their way.

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

/// Groups of ranges of an object that are being read, in the order in which they are taken. Dropping it gives the
/// reads up.
pub struct PlannedReads {
    io: StorageClient,
    shown: String,
    requests: Vec<(PlannedRequest, RequestState)>,
}

enum RequestState {
    Pending(PendingRead, Option<(Arc<DiskCache>, CacheKey)>),
    Done(Bytes),
    /// All its groups were taken.
    Released,
    /// It could not be submitted.
    Failed(Option<Fault>),
}

/// Ranges of an object that are being read.
pub struct RangeFetch {
    reads: PlannedReads,
    ranges: Vec<Range<u64>>,
}

impl StorageClient {
    /// Begins to read groups of ranges of an object, in the order in which the groups will be taken. With an `etag`,
    /// an object that has another one is a fault. Ranges with no more than `gap` bytes between them are asked for
    /// together.
    pub fn plan_reads(
        &self,
        place: &StorageLocation,
        etag: Option<&str>,
        groups: &[Vec<Range<u64>>],
        gap: u64,
    ) -> PlannedReads {
        // Weak etags match nothing.
        let etag = etag.filter(|etag| !etag.starts_with("W/"));
        let requests = plan_requests(groups, gap).into_iter().map(|request| {
            let state = self.submit(place, etag, &request.range);
            (request, state)
        });
        PlannedReads {
            io: self.clone(),
            shown: place.shown.clone(),
            requests: requests.collect(),
        }
    }

    fn submit(
        &self,
        place: &StorageLocation,
        etag: Option<&str>,
        range: &Range<u64>,
    ) -> RequestState {
        let keep = match (&self.cache, etag) {
            (Some(cache), Some(etag)) if place.local.is_none() => Some((
                cache.clone(),
                CacheKey::new(&place.shown, etag, std::slice::from_ref(range)),
            )),
            _ => None,
        };
        if let Some(found) = keep.as_ref().and_then(|(cache, entry)| cache.get(entry)) {
            return RequestState::Done(found.into_iter().next().unwrap_or_default());
        }
        match self.runtime_handle() {
            Ok(runtime) => {
                let send =
                    self.range_request(place.clone(), etag.map(str::to_owned), range.clone());
                RequestState::Pending(self.inner.scheduler.submit(range, runtime, send), keep)
            }
            Err(fault) => RequestState::Failed(Some(fault)),
        }
    }

    fn range_request(
        &self,
        place: StorageLocation,
        etag: Option<String>,
        range: Range<u64>,
    ) -> SendRequest {
        let patience = self.inner.patience;
        Box::new(move || {
            let (place, etag, range) = (place.clone(), etag.clone(), range.clone());
            async move {
                let options = || {
                    GetOptions::new()
                        .with_range(Some(range.clone()))
                        .with_if_match(etag.clone())
                };
                let got = patience.retry(|| async {
                    let got = place.store.get_opts(&place.path, options()).await?;
                    Ok((got.meta.e_tag.clone(), got.bytes().await?))
                });
                let (found, bytes) = got
                    .await
                    .map_err(|failed| storage_fault(&place.shown, failed))?;
                // Not every store looks at conditions.
                if etag.is_some() && found.is_some() && etag != found {
                    return Err(replaced_fault(&place.shown));
                }
                match bytes.len() as u64 == range.end - range.start {
                    true => Ok(bytes),
                    false => Err(short_read_fault(&place.shown)),
                }
            }
            .boxed()
        })
    }

    /// Begins to read ranges of an object; those that are close together are asked for together.
    /// With an `etag`, an object that has another one is a fault.
    pub fn fetch(
        &self,
        place: &StorageLocation,
        etag: Option<&str>,
        ranges: Vec<Range<u64>>,
    ) -> RangeFetch {
        let reads = self.plan_reads(
            place,
            etag,
            std::slice::from_ref(&ranges),
            COALESCE_BYTES_DEFAULT,
        );
        RangeFetch { reads, ranges }
    }

    /// Some ranges of an object.
    pub fn get_ranges(&self, place: &StorageLocation, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.fetch(place, None, ranges.to_vec()).finish()
    }

    /// A range of an object of which no version is known, with what the store knows of it. `None` where the object is
    /// not there, or has no such range.
    pub fn get_unversioned(
        &self,
        place: &StorageLocation,
        range: Range<u64>,
    ) -> Result<Option<(ObjectMeta, Bytes)>> {
        let options = || GetOptions::new().with_range(Some(range.clone()));
        let got = self.run_with_retries(place, || async {
            let got = place.store.get_opts(&place.path, options()).await?;
            Ok((got.meta.clone(), got.bytes().await?))
        })?;
        match got {
            Err(failed) if is_out_of_range(&failed) => Ok(None),
            got => Ok(if_present(place, got)?
                .filter(|(_, bytes)| bytes.len() as u64 == range.end - range.start)),
        }
    }

    /// Whether readers should ask for more ranges ahead of their use.
    pub fn wants_reads(&self) -> bool {
        self.inner.scheduler.wants_more()
    }

    /// Sets how many bytes all readers of the process may have asked for ahead of their use.
    pub fn set_read_ahead_bytes(&self, bytes: u64) {
        self.inner.scheduler.set_ahead_bytes(bytes);
    }
}

/// A fault for an object that gave less than it said.
pub fn short_read_fault(shown: &str) -> Fault {
    Fault::new(
        codes::STORAGE,
        "storage gave fewer bytes than it was asked for",
    )
    .file(shown)
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
    fn wait_for(&self, shown: &str, state: &mut RequestState) -> Result<Bytes> {
        let given_up = || Fault::new(codes::STORAGE, "a read was given up").file(shown);
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
        let place = self.0.partition_point(|(at, _)| *at <= start);
        self.0.insert(place, (start, bytes));
    }

    /// From a place to the end of a part that holds it; `None` where no part does. The end of a part is in none.
    pub fn tail_at(&self, start: u64) -> Option<Bytes> {
        let before = &self.0[..self.0.partition_point(|(at, _)| *at <= start)];
        let (at, bytes) = before
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
