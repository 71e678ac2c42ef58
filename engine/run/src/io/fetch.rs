//! Ranges of objects on their way.

use std::ops::Range;

use bytes::Bytes;
use forebay_model::{Fault, Result, codes};
use object_store::{GetOptions, OBJECT_STORE_COALESCE_DEFAULT, ObjectStore, coalesce_ranges};
use tokio::task::JoinHandle;

use super::fault::{replaced, storage_fault};
use super::{Io, Place};

/// Bytes of a large object that are asked for at a time: one request must not outlast its time-out.
pub(super) const BLOCK_BYTES: u64 = 8 << 20;

/// Ranges of an object that are being read. Dropping it gives the read up.
pub struct Fetch {
    io: Io,
    shown: String,
    task: JoinHandle<Result<Vec<Bytes>>>,
}

impl Io {
    /// Begins to read ranges of an object; those that are close together are asked for together.
    /// With an `etag`, an object that has another one is a fault.
    pub fn fetch(&self, place: &Place, etag: Option<&str>, ranges: Vec<Range<u64>>) -> Fetch {
        // Weak etags match nothing.
        let etag = etag.filter(|etag| !etag.starts_with("W/")).map(str::to_owned);
        let (patience, whence) = (self.inner.patience, place.clone());
        let task = self.inner.runtime.spawn(async move {
            let one = |range: Range<u64>| {
                let (etag, place) = (etag.clone(), whence.clone());
                async move {
                    let options = || GetOptions::new().with_range(Some(range.clone())).with_if_match(etag.clone());
                    let got = patience.tried(|| async {
                        let got = place.store.get_opts(&place.path, options()).await?;
                        Ok((got.meta.e_tag.clone(), got.bytes().await?))
                    });
                    let (found, bytes) = got.await.map_err(|failed| storage_fault(&place.shown, failed))?;
                    // Not every store looks at conditions.
                    if etag.is_some() && found.is_some() && etag != found {
                        return Err(replaced(&place.shown));
                    }
                    match bytes.len() as u64 == range.end - range.start {
                        true => Ok(bytes),
                        false => Err(too_short(&place.shown)),
                    }
                }
            };
            coalesce_ranges(&ranges, one, OBJECT_STORE_COALESCE_DEFAULT).await
        });
        Fetch { io: self.clone(), shown: place.shown.clone(), task }
    }

    /// Some ranges of an object.
    pub fn get_ranges(&self, place: &Place, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.fetch(place, None, ranges.to_vec()).finish()
    }
}

/// A fault for an object that gave less than it said.
pub(super) fn too_short(shown: &str) -> Fault {
    Fault::new(codes::STORAGE, "storage gave fewer bytes than it was asked for").file(shown)
}

impl Fetch {
    /// Waits for the bytes.
    pub fn finish(mut self) -> Result<Vec<Bytes>> {
        let io = self.io.clone();
        let failed = |error| Fault::new(codes::STORAGE, "a read was given up").file(self.shown.clone()).cause(error);
        io.ask(&mut self.task)?.map_err(failed)?
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
