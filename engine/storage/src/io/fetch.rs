//! Ranges of objects on their way.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use forebay_model::{Fault, Result, codes};
use object_store::{GetOptions, OBJECT_STORE_COALESCE_DEFAULT, ObjectStore, coalesce_ranges};
use tokio::task::JoinHandle;

use super::{DiskCache, StorageClient, StorageLocation};
use crate::io::disk_cache::CacheKey;
use crate::io::error::{replaced_fault, storage_fault};

/// Bytes of a large object that are asked for at a time: one request must not outlast its time-out.
pub const BLOCK_BYTES: u64 = 8 << 20;

/// Ranges with no more bytes between them are asked for together, unless told otherwise.
pub const COALESCE_BYTES_DEFAULT: u64 = OBJECT_STORE_COALESCE_DEFAULT;

/// Ranges of an object that are being read. Dropping it gives the read up.
pub struct RangeFetch {
    io: StorageClient,
    shown: String,
    task: Option<Result<JoinHandle<Result<Vec<Bytes>>>>>,
    /// What the cache had.
    found: Option<Vec<Bytes>>,
    /// Who keeps it under which name.
    keep: Option<(Arc<DiskCache>, CacheKey)>,
}

impl StorageClient {
    /// Begins to read ranges of an object; those that are close together are asked for together.
    /// With an `etag`, an object that has another one is a fault.
    pub fn fetch(&self, place: &StorageLocation, etag: Option<&str>, ranges: Vec<Range<u64>>) -> RangeFetch {
        self.fetch_apart(place, etag, ranges, COALESCE_BYTES_DEFAULT)
    }

    /// The same; only ranges with no more than `gap` bytes between them are asked for together.
    pub fn fetch_apart(
        &self,
        place: &StorageLocation,
        etag: Option<&str>,
        ranges: Vec<Range<u64>>,
        gap: u64,
    ) -> RangeFetch {
        // Weak etags match nothing.
        let etag = etag.filter(|etag| !etag.starts_with("W/")).map(str::to_owned);
        let keep = match (&self.cache, &etag) {
            (Some(cache), Some(etag)) if place.local.is_none() => {
                Some((cache.clone(), CacheKey::new(&place.shown, etag, &ranges)))
            }
            _ => None,
        };
        let shown = place.shown.clone();
        if let Some(found) = keep.as_ref().and_then(|(cache, entry)| cache.get(entry)) {
            return RangeFetch { io: self.clone(), shown, task: None, found: Some(found), keep: None };
        }
        let (patience, whence) = (self.inner.patience, place.clone());
        let task = self.runtime().map(|runtime| {
            runtime.spawn(async move {
                let one = |range: Range<u64>| {
                    let (etag, place) = (etag.clone(), whence.clone());
                    async move {
                        let options = || GetOptions::new().with_range(Some(range.clone())).with_if_match(etag.clone());
                        let got = patience.retry(|| async {
                            let got = place.store.get_opts(&place.path, options()).await?;
                            Ok((got.meta.e_tag.clone(), got.bytes().await?))
                        });
                        let (found, bytes) = got.await.map_err(|failed| storage_fault(&place.shown, failed))?;
                        // Not every store looks at conditions.
                        if etag.is_some() && found.is_some() && etag != found {
                            return Err(replaced_fault(&place.shown));
                        }
                        match bytes.len() as u64 == range.end - range.start {
                            true => Ok(bytes),
                            false => Err(short_read_fault(&place.shown)),
                        }
                    }
                };
                coalesce_ranges(&ranges, one, gap).await
            })
        });
        RangeFetch { io: self.clone(), shown, task: Some(task), found: None, keep }
    }

    /// Some ranges of an object.
    pub fn get_ranges(&self, place: &StorageLocation, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.fetch(place, None, ranges.to_vec()).finish()
    }
}

/// A fault for an object that gave less than it said.
pub fn short_read_fault(shown: &str) -> Fault {
    Fault::new(codes::STORAGE, "storage gave fewer bytes than it was asked for").file(shown)
}

impl RangeFetch {
    /// Waits for the bytes.
    pub fn finish(mut self) -> Result<Vec<Bytes>> {
        let failed = |error| Fault::new(codes::STORAGE, "a read was given up").file(self.shown.clone()).cause(error);
        if let Some(Err(fault)) = self.task.take_if(|task| task.is_err()) {
            return Err(fault);
        }
        let Some(Ok(task)) = &mut self.task else { return Ok(self.found.take().unwrap_or_default()) };
        let bytes = self.io.block_on_cancellable(task)?.map_err(failed)??;
        if let Some((cache, entry)) = self.keep.take() {
            cache.put(&entry, &bytes);
        }
        Ok(bytes)
    }
}

impl Drop for RangeFetch {
    fn drop(&mut self) {
        self.task.iter().flatten().for_each(JoinHandle::abort);
    }
}
