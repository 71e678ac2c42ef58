//! Outputs that are tables: a commit to the log of the table shows readers the files of a run.
//!
//! The manifest lies in the directory of the table, under a name that readers of tables skip. It is
//! written after the commit, and records for later runs the shards and intervals that the table has
//! from them. Files that a commit takes out of the table stay where they are, for readers of
//! earlier versions.

use std::collections::BTreeSet;

use arrow::datatypes::SchemaRef;
use forebay_contract::{CopiedRows, TableCommit, TableFile, TableLog, TableScope};
use forebay_model::{Fault, RelativePath, Result, codes};
use forebay_storage::{ObjectVersion, ScratchDir, StorageClient, StorageLocation};
use serde_json::Value;

use super::manifest::{FORMAT, IntervalEntry, MANIFEST, Manifest};
use super::publish::PUBLISHED_MEANWHILE_MAX;
use super::removal::lock_output;
use super::shard::intact_shards;

/// A table to publish to, and the rows that a run has for it.
pub struct TableTarget<'a> {
    /// The log of the table.
    pub log: &'a dyn TableLog,
    /// Schema of all columns.
    pub schema: &'a SchemaRef,
    /// The rows that the run replaces.
    pub scope: TableScope,
    /// Directory for files that are written for the commit.
    pub scratch: &'a ScratchDir,
}

/// State of a table that readers see after a run.
pub struct PublishedTable {
    /// The files of the run, and of earlier ones.
    pub manifest: Manifest,
    /// Rows that were written again for it.
    pub copied: CopiedRows,
    /// True if this run committed to its log.
    pub is_new: bool,
}

/// The manifest that a table has, and its version.
struct VisibleManifest {
    manifest: Option<Manifest>,
    version: Option<ObjectVersion>,
}

impl Manifest {
    /// Commits the data to the log of a table, as all of its rows, as those of one interval, or in addition to them.
    /// `may` checks that this run may still publish.
    pub fn publish_to_table(
        self,
        io: &StorageClient,
        out: &StorageLocation,
        table: &TableTarget<'_>,
        stretch: Option<&IntervalEntry>,
        may: &dyn Fn() -> Result<()>,
    ) -> Result<PublishedTable> {
        let _lock = lock_output(io, out)?;
        self.sync_names(out)?;
        let mut copied = CopiedRows::default();
        let mut is_new = false;
        // Another run may replace the manifest meanwhile; then it is read again.
        for _ in 0..PUBLISHED_MEANWHILE_MAX {
            let (manifest, version) = Manifest::read_versioned(io, out)?;
            let visible = VisibleManifest { manifest, version };
            let whole = match stretch {
                Some(stretch) => {
                    self.clone()
                        .merge_interval(stretch.clone(), visible.manifest.clone(), out)?
                }
                None => self.clone(),
            };
            // The log alone decides what readers see. A run that was killed after its commit only
            // replaces the manifest (decisions/delta-sink.md).
            if !table.log.shows(io, &self.pass)? {
                self.check_unremoved(io, out, visible.manifest.as_ref())?;
                if out.local.is_none() && !self.announce_needed(io, out, &visible)? {
                    continue;
                }
                let files = self.files().map(|file| TableFile {
                    path: &file.path,
                    rows: file.rows,
                    bytes: file.bytes,
                });
                let files = files.collect();
                let scope = table.scope.clone();
                let content = &self.pass;
                let schema = table.schema;
                let scratch = table.scratch;
                is_new = true;
                copied = table.log.commit(
                    io,
                    &TableCommit {
                        content,
                        schema,
                        files,
                        scope,
                        may,
                        scratch,
                    },
                )?;
            }
            if whole.replace_in_table(io, out, table.log, visible)? {
                return Ok(PublishedTable {
                    manifest: whole,
                    copied,
                    is_new,
                });
            }
        }
        let fault = Fault::new(
            codes::LOST_RACE,
            "other runs publish to this table all the time",
        )
        .file(&out.shown);
        Err(fault.hint("its rows are kept; run the same command again to show them"))
    }

    /// Replaces the manifest of a table, unless it names the same already; returns false if it has
    /// changed meanwhile.
    fn replace_in_table(
        &self,
        io: &StorageClient,
        out: &StorageLocation,
        log: &dyn TableLog,
        VisibleManifest {
            manifest: visible,
            version,
        }: VisibleManifest,
    ) -> Result<bool> {
        let removed = match &visible {
            // Nothing leaves a table that rows are added to.
            Some(visible) if !log.appends() => self.removed_after(visible, io, out)?,
            _ => Vec::new(),
        };
        let publication = visible.as_ref().map_or(0, |visible| visible.publication) + 1;
        let named = Manifest {
            format: FORMAT,
            removed,
            publication,
            ..self.clone()
        };
        let is_same = |visible: &Manifest| {
            Manifest {
                publication,
                ladder: named.ladder.clone(),
                ..visible.clone()
            } == named
        };
        if visible.as_ref().is_some_and(is_same) {
            return Ok(true);
        }
        let bytes = named.to_bytes()?;
        let location = out.join(MANIFEST);
        match &out.local {
            Some(_) => io.put_durable(&location, &bytes).map(|()| true),
            None => io.put_if(&location, bytes, version.as_ref()),
        }
    }

    /// Directories that the table no longer needs, and that still hold files.
    fn removed_after(
        &self,
        visible: &Manifest,
        io: &StorageClient,
        out: &StorageLocation,
    ) -> Result<Vec<RelativePath>> {
        let needed: BTreeSet<RelativePath> = self.directories()?.into_iter().collect();
        let mut removed: BTreeSet<RelativePath> = visible
            .unemptied_directories(io, out)?
            .into_iter()
            .collect();
        removed.extend(visible.directories()?);
        Ok(removed
            .into_iter()
            .filter(|directory| !needed.contains(directory))
            .collect())
    }

    /// Names the directories in a bucket that are about to be committed, so that no collection
    /// removes them meanwhile; on local disks the lock prevents it. Returns false if the manifest
    /// has to be read again.
    fn announce_needed(
        &self,
        io: &StorageClient,
        out: &StorageLocation,
        visible: &VisibleManifest,
    ) -> Result<bool> {
        // In a table without a manifest, nothing is collected.
        let Some(manifest) = &visible.manifest else {
            return Ok(true);
        };
        let named: BTreeSet<RelativePath> = manifest
            .directories()?
            .into_iter()
            .chain(manifest.previous.clone())
            .collect();
        let unnamed = self
            .directories()?
            .into_iter()
            .filter(|directory| !named.contains(directory));
        let previous: Vec<RelativePath> = unnamed.chain(manifest.previous.clone()).collect();
        if previous.len() == manifest.previous.len() {
            return Ok(true);
        }
        let named = Manifest {
            format: FORMAT,
            previous,
            publication: manifest.publication + 1,
            ..manifest.clone()
        };
        io.put_if(
            &out.join(MANIFEST),
            named.to_bytes()?,
            visible.version.as_ref(),
        )?;
        Ok(false)
    }

    /// Fails where files are missing, or were taken out of the table: programs that clean up may remove these.
    fn check_unremoved(
        &self,
        io: &StorageClient,
        out: &StorageLocation,
        visible: Option<&Manifest>,
    ) -> Result<()> {
        let removed = visible
            .map(|visible| visible.removed.as_slice())
            .unwrap_or_default();
        let whole = intact_shards(io, out, &self.shards)?;
        for (shard, whole) in self.shards.iter().zip(whole) {
            let directory = shard.directory()?;
            if !whole || removed.contains(&directory) {
                let fault = Fault::new(
                    codes::LOST_RACE,
                    "data of the table was removed before it was committed",
                );
                return Err(fault
                    .file(out.join(&directory).shown)
                    .hint("run the same command again: it is written anew"));
            }
        }
        Ok(())
    }

    /// The directories of a table whose files a run must not commit again: those that were taken out of the table, by a
    /// run or by another program.
    pub fn removed_from_table(
        io: &StorageClient,
        out: &StorageLocation,
        log: &dyn TableLog,
    ) -> Result<BTreeSet<RelativePath>> {
        let Some(visible) = Manifest::read(io, out)? else {
            return Ok(BTreeSet::new());
        };
        let live = log.live_files(io)?;
        let mut removed: BTreeSet<RelativePath> = visible.removed.into_iter().collect();
        for shard in &visible.shards {
            if shard
                .files
                .iter()
                .any(|file| file.rows > 0 && !live.contains(&*file.path))
            {
                removed.insert(shard.directory()?);
            }
        }
        Ok(removed)
    }
}

/// True if the data that the record of a pass names is whole, and the table shows it or can still
/// show it.
pub fn table_record_is_intact(
    io: &StorageClient,
    out: &StorageLocation,
    log: &dyn TableLog,
    record: &Value,
) -> Result<bool> {
    // A record that this program cannot read names nothing: the pass is done again.
    let Ok(manifest) = Manifest::from_record(record) else {
        return Ok(false);
    };
    if !manifest.intact(io, out)? {
        return Ok(false);
    }
    Ok(log.shows(io, &manifest.pass)?
        || !manifest.is_being_removed(&Manifest::removed_from_table(io, out, log)?)?)
}
