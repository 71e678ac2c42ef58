//! Listings.

use forebay_model::Result;
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use object_store::path::Path;

use super::{StorageClient, StorageLocation};
use crate::io::error::{FailedRequest, storage_fault};
use crate::io::retry::RetryBudget;
use crate::io::stores::StoreKind;

/// Objects after which a listing is divided: stores give as many at a time.
const PAGE_OBJECTS: usize = 1000;

/// Parts of a listing that are asked for at the same time.
const PARTS_MAX: usize = 16;

/// A part of a listing: the keys after one and up to another.
#[derive(Debug, Clone, Default, PartialEq)]
struct KeyRange {
    after: Option<Path>,
    until: Option<Path>,
}

impl StorageClient {
    /// All objects below a prefix, in the order of their paths. A long listing of a remote store is divided at folders,
    /// and its parts are asked for at the same time.
    pub fn list(&self, place: &StorageLocation) -> Result<Vec<ObjectMeta>> {
        let listed = match place.local {
            Some(_) => self.run_with_retries(place, || {
                place.store.list(Some(&place.path)).try_collect::<Vec<_>>()
            })?,
            None => self.block_on_cancellable(list_in_parts(place, self.inner.patience))?,
        };
        let mut objects = listed.map_err(|failed| storage_fault(&place.shown, failed))?;
        if place.kind() == Some(StoreKind::Azure) {
            objects
                .iter_mut()
                .filter_map(|object| object.e_tag.as_mut())
                .for_each(quote_etag);
        }
        self.buckets().extend(place.root().map(str::to_owned));
        objects.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(objects)
    }

    /// The objects below a prefix whose names come after one, in the order of their paths.
    pub fn list_after(&self, place: &StorageLocation, name: &str) -> Result<Vec<ObjectMeta>> {
        let after = place.join(name).path;
        let listed = match place.local {
            Some(_) => {
                let list = || {
                    place
                        .store
                        .list_with_offset(Some(&place.path), &after)
                        .try_collect::<Vec<_>>()
                };
                self.run_with_retries(place, list)?
            }
            None => {
                let range = KeyRange {
                    after: Some(after),
                    until: None,
                };
                self.block_on_cancellable(list_range(
                    place,
                    self.inner.patience,
                    range,
                    usize::MAX,
                ))?
            }
        };
        let mut objects = listed.map_err(|failed| storage_fault(&place.shown, failed))?;
        objects.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(objects)
    }
}

/// Azure's listings leave out the quotes that belong to an etag, and that its other answers have.
fn quote_etag(etag: &mut String) {
    if !etag.starts_with(['"', 'W']) {
        *etag = format!("\"{etag}\"");
    }
}

async fn list_in_parts(
    place: &StorageLocation,
    patience: RetryBudget,
) -> Result<Vec<ObjectMeta>, FailedRequest> {
    let mut objects = list_range(place, patience, KeyRange::default(), PAGE_OBJECTS).await?;
    let Some(last) = objects.last().filter(|_| objects.len() >= PAGE_OBJECTS) else {
        return Ok(objects);
    };
    let folders = patience
        .retry(|| place.store.list_with_delimiter(Some(&place.path)))
        .await?;
    let parts = divide_keys(&last.location, folders.common_prefixes);
    let parts =
        futures::stream::iter(parts).map(|part| list_range(place, patience, part, usize::MAX));
    let rest: Vec<Vec<ObjectMeta>> = parts.buffered(PARTS_MAX).try_collect().await?;
    objects.extend(rest.into_iter().flatten());
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
    let after = |part: usize| {
        if part == 0 {
            Some(last.clone())
        } else {
            cut(part)
        }
    };
    (0..count)
        .map(|part| KeyRange {
            after: after(part),
            until: cut(part + 1),
        })
        .collect()
}

/// The objects of a range, or the first `most` of them and some more. A listing that is cut goes on after what it gave:
/// long ones would never end else.
async fn list_range(
    place: &StorageLocation,
    patience: RetryBudget,
    KeyRange { mut after, until }: KeyRange,
    most: usize,
) -> Result<Vec<ObjectMeta>, FailedRequest> {
    let mut objects: Vec<ObjectMeta> = Vec::new();
    loop {
        let listed = patience.retry(|| async {
            let mut stream = match &after {
                None => place.store.list(Some(&place.path)),
                Some(after) => place.store.list_with_offset(Some(&place.path), after),
            };
            let mut given: Vec<ObjectMeta> = Vec::new();
            while objects.len() + given.len() < most
                && let Some(object) = stream.next().await
            {
                match object {
                    Ok(object) if until.as_ref().is_some_and(|until| object.location > *until) => {
                        break;
                    }
                    Ok(object) => given.push(object),
                    Err(_) if !given.is_empty() => return Ok((given, false)),
                    Err(error) => return Err(error),
                }
            }
            Ok((given, true))
        });
        let (given, whole) = listed.await?;
        objects.extend(given);
        if whole {
            return Ok(objects);
        }
        after = objects.last().map(|last| last.location.clone()).or(after);
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
        let place = io.resolve("s3://lake/table").unwrap();
        let mut keys = Vec::new();
        for number in 0..2500 {
            let folder = ["", "a/", "b/c/", "z=1/"][number % 4];
            keys.push(format!("table/{folder}{number:05}"));
            io.put(
                &place.join(&format!("{folder}{number:05}")),
                bytes::Bytes::from_static(b"x"),
            )
            .unwrap();
        }
        keys.sort();
        let listed = io.list(&place).unwrap();
        assert_eq!(
            listed
                .iter()
                .map(|object| object.location.to_string())
                .collect::<Vec<_>>(),
            keys
        );
    }
}
