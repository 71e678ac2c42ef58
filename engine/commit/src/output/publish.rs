//! Publishing of manifests: the files first, then the manifest that makes them visible.
//!
//! On local disks a lock keeps other runs from publishing while files are removed. Buckets have no locks. There a
//! manifest also names the directories that are being removed, and no later manifest takes one of them back. Each
//! attempt to write a shard has a directory of its own, so that rows that are computed again never lie in one of these.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{Fault, IdBuilder, RelativePath, Result, codes};
use forebay_storage::{BackgroundTasks, ObjectVersion, StorageClient, StorageLocation};

use super::manifest::{FORMAT, IntervalEntry, MANIFEST, Manifest, PublishedNumbering};
use super::removal::{lock_output, remove_directory};
use super::shard::{Shard, intact_shards};
use crate::visible_files::{check_replaceable, is_shown, show};

/// The number of times that other runs may publish between reading the manifest and replacing it.
pub(super) const PUBLISHED_MEANWHILE_MAX: usize = 100;

/// An output that readers see.
pub struct PublishedOutput {
    /// The manifest that is visible now.
    pub manifest: Manifest,
    /// True if readers saw another output before, or none.
    pub is_new: bool,
}

/// Adds the numberings of the intervals that stay. Of one numbering, the longer list of tokens counts.
fn add_published(
    numbering: &mut BTreeMap<String, PublishedNumbering>,
    published: BTreeMap<String, PublishedNumbering>,
) {
    for (key, published_tokens) in published {
        match numbering.get_mut(&key) {
            Some(new)
                if new.epoch == published_tokens.epoch && new.tokens < published_tokens.tokens =>
            {
                *new = published_tokens
            }
            Some(_) => {}
            None => {
                numbering.insert(key, published_tokens);
            }
        }
    }
}

impl Manifest {
    /// Refuses an interval that does not fit among the published ones.
    pub fn check_interval(
        &self,
        io: &StorageClient,
        out: &StorageLocation,
        stretch: Option<&IntervalEntry>,
    ) -> Result<()> {
        let Some(stretch) = stretch else {
            return Ok(());
        };
        self.clone()
            .merge_interval(stretch.clone(), Manifest::read(io, out)?, out)
            .map(drop)
    }

    /// Adds an interval to the published ones, or replaces the one of the same bounds.
    pub(super) fn merge_interval(
        self,
        stretch: IntervalEntry,
        visible: Option<Manifest>,
        out: &StorageLocation,
    ) -> Result<Manifest> {
        let mut intervals: Vec<(IntervalEntry, Vec<Shard>)> = Vec::new();
        let mut numbering = self.numbering;
        if let Some(visible) = visible {
            add_published(&mut numbering, visible.numbering);
            if visible.columns != self.columns {
                let message = "the intervals that are there have other columns";
                let hint = "write to another directory, and backfill it";
                return Err(Fault::new(codes::OUTPUT_CLASH, message)
                    .file(&out.shown)
                    .hint(hint));
            }
            let mut shards = visible.shards.into_iter();
            for interval in visible.intervals {
                let of_it: Vec<Shard> = shards.by_ref().take(interval.shards).collect();
                if (interval.first, interval.last) == (stretch.first, stretch.last) {
                    continue;
                }
                if interval.first <= stretch.last && stretch.first <= interval.last {
                    let message = format!(
                        "the interval overlaps that from {} to {}",
                        interval.from, interval.to
                    );
                    let hint = "give the same interval again to replace it";
                    return Err(Fault::new(codes::OUTPUT_CLASH, message)
                        .file(&out.shown)
                        .hint(hint));
                }
                intervals.push((interval, of_it));
            }
        }
        intervals.push((stretch, self.shards));
        intervals.sort_by_key(|(stretch, _)| stretch.first);
        let mut id = IdBuilder::new("intervals");
        intervals.iter().for_each(|(stretch, _)| {
            id.text(&stretch.pass);
        });
        let (intervals, shards): (Vec<_>, Vec<_>) = intervals.into_iter().unzip();
        let whole = Manifest::from_columns(
            id.finish(),
            self.columns,
            shards.into_iter().flatten().collect(),
        )?;
        Ok(Manifest {
            intervals,
            numbering,
            ladder: self.ladder,
            ..whole
        })
    }

    /// Publishes the data in one atomic step: as the whole output, or as one interval among the published ones.
    /// If another run publishes concurrently, the step is repeated on top of its manifest. `may` checks that this
    /// run may still publish. It is called after the visible manifest was read: a run that publishes later makes the
    /// replacement fail. Unused directories are removed by a task in `background`.
    pub fn publish(
        self,
        io: &StorageClient,
        out: &StorageLocation,
        stretch: Option<&IntervalEntry>,
        (may, background): (&dyn Fn() -> Result<()>, &mut BackgroundTasks),
    ) -> Result<PublishedOutput> {
        let lock = lock_output(io, out)?;
        for _ in 0..PUBLISHED_MEANWHILE_MAX {
            let (visible, version) = Manifest::read_versioned(io, out)?;
            may()?;
            let whole = match stretch {
                Some(stretch) => {
                    self.clone()
                        .merge_interval(stretch.clone(), visible.clone(), out)?
                }
                None => self.clone(),
            };
            let is_same = |visible: &Manifest| {
                let is_numbered_alike = visible.numbering == whole.numbering;
                is_numbered_alike
                    && (&visible.pass, &visible.shards, &visible.ladder)
                        == (&whole.pass, &whole.shards, &whole.ladder)
            };
            let is_visible = visible.as_ref().is_some_and(is_same);
            if is_visible {
                let is_new = whole.show_again(out)?;
                return Ok(PublishedOutput {
                    manifest: whole,
                    is_new,
                });
            }
            whole.check_present(io, out, visible.as_ref())?;
            if let Some(removed) = whole.replace(visible, version.as_ref(), io, out)? {
                if !removed.is_empty() {
                    let io = io.clone();
                    background.spawn(move || {
                        // The lock keeps other runs from publishing during the removal.
                        let _lock = lock;
                        removed
                            .iter()
                            .try_for_each(|directory| remove_directory(&io, directory))
                    });
                }
                return Ok(PublishedOutput {
                    manifest: whole,
                    is_new: true,
                });
            }
        }
        let fault = Fault::new(
            codes::LOST_RACE,
            "other runs publish to this output all the time",
        )
        .file(&out.shown);
        Err(fault.hint("its rows are kept; run the same command again to show them"))
    }

    /// Fails where files are missing or being removed: another run, a collection with another state directory, or a
    /// person may have removed them since they were found. Files of the visible manifest and the one before it are
    /// kept by all runs; on local disks a lost directory of them is noticed.
    fn check_present(
        &self,
        io: &StorageClient,
        out: &StorageLocation,
        visible: Option<&Manifest>,
    ) -> Result<()> {
        let mut allowed: BTreeSet<RelativePath> = BTreeSet::new();
        if let Some(visible) = visible {
            allowed.extend(
                visible
                    .directories()?
                    .into_iter()
                    .chain(visible.previous.clone()),
            );
        }
        let is_lost = |directory: &RelativePath| match &out.local {
            Some(local) => !local.join(&**directory).is_dir(),
            None => visible.is_some_and(|visible| visible.removed.contains(directory)),
        };
        let mut lost = None;
        let mut unkept = Vec::new();
        for shard in self.shards.iter().filter(|shard| !shard.files.is_empty()) {
            let directory = shard.directory()?;
            if is_lost(&directory) {
                lost.get_or_insert(directory);
            } else if !allowed.contains(&directory) {
                unkept.push((shard, directory));
            }
        }
        if lost.is_none() {
            let whole = intact_shards(io, out, unkept.iter().map(|(shard, _)| *shard))?;
            lost = whole
                .into_iter()
                .zip(unkept)
                .find(|(whole, _)| !whole)
                .map(|(_, (_, directory))| directory);
        }
        match lost {
            Some(directory) => {
                let fault = Fault::new(
                    codes::LOST_RACE,
                    "data of the output was removed before it was published",
                );
                Err(fault
                    .file(out.join(&directory).shown)
                    .hint("run the same command again: it is written anew"))
            }
            None => Ok(()),
        }
    }

    /// Makes the files visible, if a run ended between writing the manifest and doing so. Returns whether it did.
    fn show_again(&self, out: &StorageLocation) -> Result<bool> {
        match &out.local {
            Some(local) if !is_shown(local, self.files())? => {
                show(local, self.files()).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Replaces the visible manifest, unless another run has replaced it. Returns the directories that only the manifest
    /// before the previous one names.
    fn replace(
        &self,
        visible: Option<Manifest>,
        version: Option<&ObjectVersion>,
        io: &StorageClient,
        out: &StorageLocation,
    ) -> Result<Option<Vec<StorageLocation>>> {
        self.sync_names(out)?;
        check_replaceable(out, visible.iter().flat_map(Manifest::files))?;
        let previous = visible
            .as_ref()
            .map_or_else(|| Ok(Vec::new()), Manifest::directories)?;
        let needed: BTreeSet<RelativePath> = self
            .directories()?
            .into_iter()
            .chain(previous.clone())
            .collect();
        let publication = visible.as_ref().map_or(0, |visible| visible.publication) + 1;
        let mut obsolete = match &visible {
            Some(visible) => visible.unemptied_directories(io, out)?,
            None => Vec::new(),
        };
        obsolete.extend(visible.map(|old| old.previous).unwrap_or_default());
        obsolete.retain(|old| !needed.contains(old));
        // The lock of a local output is held until they are removed.
        let removed = if out.local.is_some() {
            Vec::new()
        } else {
            obsolete.clone()
        };
        let named = Manifest {
            format: FORMAT,
            previous,
            removed,
            publication,
            ..self.clone()
        };
        let bytes = named.to_bytes()?;
        let location = out.join(MANIFEST);
        match &out.local {
            Some(local) => {
                io.put_durable(&location, &bytes)?;
                show(local, self.files())?;
            }
            None if !io.put_if(&location, bytes, version)? => return Ok(None),
            None => {}
        }
        Ok(Some(
            obsolete
                .iter()
                .map(|directory| out.join(directory))
                .collect(),
        ))
    }
}

#[cfg(test)]
#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow::datatypes::Schema;
    use forebay_model::ContentId;
    use serde_json::json;

    use super::*;

    /// A shard of one file, which is there.
    fn shard(out: &Path, name: &str) -> Shard {
        let path = format!("_data/{name}/part-00000.parquet");
        std::fs::create_dir_all(out.join("_data").join(name)).unwrap();
        std::fs::write(out.join(&path), name).unwrap();
        let file =
            json!({ "path": path, "rows": 1, "bytes": name.len(), "digest": "0".repeat(32) });
        serde_json::from_value(json!({
            "id": name,
            "spans": [],
            "rows_in": 1,
            "rows_filtered": 0,
            "rows_expanded": 0,
            "files": [file],
        }))
        .unwrap()
    }

    #[test]
    fn removed_files_are_not_published_again() {
        let io = StorageClient::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let out = io.resolve(folder.path().to_str().unwrap()).unwrap();
        let publish = |name: &str, shard: &Shard| {
            let manifest = Manifest::new(
                ContentId::of(name.as_bytes()),
                &Schema::empty(),
                vec![shard.clone()],
            )
            .unwrap();
            let mut later = BackgroundTasks::default();
            manifest
                .publish(&io, &out, None, (&|| Ok(()), &mut later))
                .and_then(|_| later.join_all())
        };
        let shards = ["a", "b", "c"].map(|name| shard(folder.path(), name));
        shards
            .iter()
            .for_each(|shard| publish("once", shard).unwrap());
        assert!(
            !folder.path().join("_data/a").exists(),
            "two manifests later"
        );
        let fault = publish("again", &shards[0]).unwrap_err();
        assert_eq!(fault.code(), codes::LOST_RACE);
        let visible = Manifest::read(&io, &out).unwrap().unwrap();
        assert!(visible.intact(&io, &out).unwrap());
        // The manifest before keeps its files.
        publish("again", &shards[1]).unwrap();
    }
}
