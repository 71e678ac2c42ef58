//! Listings.

use forebay_model::Result;
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use object_store::path::Path;

use super::{StorageClient, StorageLocation};
use crate::io::error::{FailedRequest, storage_fault};
use crate::io::object_url::StoreKind;
use crate::io::retry::RetryBudget;

/// Objects after which a listing is divided: stores give as many at a time.
const PAGE_OBJECTS: usize = 1000;

/// Maximum number of parts of a listing that are requested at the same time.
const PARTS_MAX: usize = 16;

/// A part of a listing: the keys after one and up to another.
#[derive(Debug, Clone, Default, PartialEq)]
struct KeyRange {
    after: Option<Path>,
    until: Option<Path>,
}

impl StorageClient {
    /// All objects below a prefix, in the order of their paths. A long listing of a remote store is
    /// divided at folders, and its parts are requested at the same time.
    pub fn list(&self, location: &StorageLocation) -> Result<Vec<ObjectMeta>> {
        let listed = match location.local {
            Some(_) => self.run_with_retries(location, || {
                location
                    .store
                    .list(Some(&location.path))
                    .try_collect::<Vec<_>>()
            })?,
            None => self.block_on_cancellable(list_in_parts(location, self.inner.patience))?,
        };
        let mut objects = listed.map_err(|failed| storage_fault(&location.shown, failed))?;
        if location.kind() == Some(StoreKind::Azure) {
            objects
                .iter_mut()
                .filter_map(|object| object.e_tag.as_mut())
                .for_each(quote_etag);
        }
        self.buckets().extend(location.root().map(str::to_owned));
        objects.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(objects)
    }

    /// The objects below a prefix whose names come after one, in the order of their paths.
    pub fn list_after(&self, location: &StorageLocation, name: &str) -> Result<Vec<ObjectMeta>> {
        let offset = location.join(name).path;
        let listed = match location.local {
            Some(_) => {
                let list = || {
                    location
                        .store
                        .list_with_offset(Some(&location.path), &offset)
                        .try_collect::<Vec<_>>()
                };
                self.run_with_retries(location, list)?
            }
            None => {
                let range = KeyRange {
                    after: Some(offset),
                    until: None,
                };
                self.block_on_cancellable(list_range(
                    location,
                    self.inner.patience,
                    range,
                    usize::MAX,
                ))?
            }
        };
        let mut objects = listed.map_err(|failed| storage_fault(&location.shown, failed))?;
        objects.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(objects)
    }
}

/// Adds the quotes of an etag, which Azure's listings leave out and its other answers have.
fn quote_etag(etag: &mut String) {
    if !etag.starts_with(['"', 'W']) {
        *etag = format!("\"{etag}\"");
    }
}

async fn list_in_parts(
    location: &StorageLocation,
    retry: RetryBudget,
) -> Result<Vec<ObjectMeta>, FailedRequest> {
    let mut objects = list_range(location, retry, KeyRange::default(), PAGE_OBJECTS).await?;
    let Some(last) = objects.last().filter(|_| objects.len() >= PAGE_OBJECTS) else {
        return Ok(objects);
    };
    let folders = retry
        .retry(|| location.store.list_with_delimiter(Some(&location.path)))
        .await?;
    let parts = divide_keys(&last.location, folders.common_prefixes);
    let parts =
        futures::stream::iter(parts).map(|part| list_range(location, retry, part, usize::MAX));
    let listings: Vec<Vec<ObjectMeta>> = parts.buffered(PARTS_MAX).try_collect().await?;
    objects.extend(listings.into_iter().flatten());
    Ok(objects)
}

/// The keys after one, in parts of about the same number of folders.
fn divide_keys(last: &Path, mut folders: Vec<Path>) -> Vec<KeyRange> {
    folders.retain(|folder| folder > last);
    folders.sort_unstable();
    // The first folder begins the first part, with what comes before it.
    let count = folders.len().clamp(1, PARTS_MAX);
    let cut = |part: usize| {
        folders
            .get(folders.len() * part / count)
            .filter(|_| part < count)
            .cloned()
    };
    let start_of = |part: usize| {
        if part == 0 {
            Some(last.clone())
        } else {
            cut(part)
        }
    };
    (0..count)
        .map(|part| KeyRange {
            after: start_of(part),
            until: cut(part + 1),
        })
        .collect()
}

/// Objects of a range, or the first `most` of them and some more. An interrupted listing continues
/// after the last returned object; a long one would otherwise never end.
async fn list_range(
    location: &StorageLocation,
    retry: RetryBudget,
    KeyRange {
        after: mut last_key,
        until,
    }: KeyRange,
    most: usize,
) -> Result<Vec<ObjectMeta>, FailedRequest> {
    let mut objects: Vec<ObjectMeta> = Vec::new();
    loop {
        let listed = retry.retry(|| async {
            let mut stream = match &last_key {
                None => location.store.list(Some(&location.path)),
                Some(last_key) => location
                    .store
                    .list_with_offset(Some(&location.path), last_key),
            };
            let mut page: Vec<ObjectMeta> = Vec::new();
            while objects.len() + page.len() < most
                && let Some(object) = stream.next().await
            {
                match object {
                    Ok(object) if until.as_ref().is_some_and(|until| object.location > *until) => {
                        break;
                    }
                    Ok(object) => page.push(object),
                    Err(_) if !page.is_empty() => return Ok((page, false)),
                    Err(error) => return Err(error),
                }
            }
            Ok((page, true))
        });
        let (page, whole) = listed.await?;
        objects.extend(page);
        if whole {
            return Ok(objects);
        }
        last_key = objects
            .last()
            .map(|last| last.location.clone())
            .or(last_key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_listing_cover_all_keys_once() {
        let path = |number: usize| Path::from(format!("table/day={number:03}"));
        for folders in [0, 1, 2, 5, 16, 17, 300] {
            let last = Path::from("table/day=004/part.parquet");
            let parts = divide_keys(&last, (0..folders).rev().map(path).collect());
            assert_eq!(parts[0].after.as_ref(), Some(&last));
            assert_eq!(parts[parts.len() - 1].until, None);
            assert!(parts.len() <= PARTS_MAX);
            for pair in parts.windows(2) {
                assert!(
                    pair[0].until.is_some() && pair[0].until == pair[1].after,
                    "{parts:?}"
                );
                assert!(pair[0].after < pair[0].until, "{parts:?}");
            }
            let largest = folders.saturating_sub(5).div_ceil(PARTS_MAX);
            for KeyRange { after, until } in &parts {
                let within = |key: &Path| {
                    after.as_ref() < Some(key) && until.as_ref().is_none_or(|until| key <= until)
                };
                assert!(
                    (5..folders).map(path).filter(within).count() <= largest.max(1) + 1,
                    "{parts:?}"
                );
            }
        }
    }

    #[test]
    fn long_listings_are_whole() {
        let io = StorageClient::new().unwrap();
        let store = std::sync::Arc::new(object_store::memory::InMemory::new());
        let io = io.with_store("s3://lake", store.clone()).unwrap();
        let location = io.resolve("s3://lake/table").unwrap();
        let mut keys = Vec::new();
        for number in 0..2500 {
            let folder = ["", "a/", "b/c/", "z=1/"][number % 4];
            keys.push(format!("table/{folder}{number:05}"));
            io.put(
                &location.join(&format!("{folder}{number:05}")),
                bytes::Bytes::from_static(b"x"),
            )
            .unwrap();
        }
        keys.sort();
        let listed = io.list(&location).unwrap();
        assert_eq!(
            listed
                .iter()
                .map(|object| object.location.to_string())
                .collect::<Vec<_>>(),
            keys
        );
    }
}
