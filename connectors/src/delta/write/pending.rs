//! The commit of a run: the actions that show its rows on top of a version of the table.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{Fault, Result, codes};
use forebay_storage::{CopiedRows, StorageClient, TableCommit, TableFile, TableScope};
use serde_json::{Value, json};

use crate::delta::place::TablePlace;
use crate::delta::snapshot::TableSnapshot;

use super::actions::{self, AddedFile};
use super::added_files::added_files;
use super::config::{DeltaMode, DeltaSink};
use super::conflicts::{app_id, is_committed};
use super::live_files::{ReplacedFiles, ReplacedInterval, live_files, replaced_files};
use super::outside::OutsideFiles;
use super::rewriting::{RewrittenFiles, are_whole, table_files};
use super::schema::WrittenColumns;
use super::writable::check_writable;

/// A commit, and what is known of it from one attempt to the next.
pub(super) struct PendingCommit<'a> {
    io: &'a StorageClient,
    place: &'a TablePlace,
    config: &'a DeltaSink,
    commit: &'a TableCommit<'a>,
    columns: WrittenColumns,
    /// The times of the rows that it replaces; `None` without an interval.
    pub(super) interval: Option<ReplacedInterval>,
    /// What the log is to tell of files, by their paths: footers are read once.
    added: BTreeMap<String, AddedFile>,
    outside: Option<OutsideFiles>,
}

impl<'a> PendingCommit<'a> {
    pub(super) fn new(
        io: &'a StorageClient,
        place: &'a TablePlace,
        config: &'a DeltaSink,
        commit: &'a TableCommit<'a>,
    ) -> Result<Self> {
        let columns = WrittenColumns::new(commit.schema, &config.partition_by)?;
        let interval = match &commit.scope {
            TableScope::Interval {
                column,
                first,
                last,
            } if config.mode == DeltaMode::Overwrite => {
                let of_rows = commit.schema.field_with_name(column)?.data_type();
                Some(ReplacedInterval::new(
                    &columns,
                    of_rows,
                    column,
                    (*first, *last),
                )?)
            }
            _ => None,
        };
        Ok(PendingCommit {
            io,
            place,
            config,
            commit,
            columns,
            interval,
            added: BTreeMap::new(),
            outside: None,
        })
    }

    /// What was written again for the latest attempt.
    pub(super) fn copied(&self) -> CopiedRows {
        self.outside
            .as_ref()
            .map(|outside| outside.copied)
            .unwrap_or_default()
    }

    /// The actions that show the rows; `None` if the table shows them.
    pub(super) fn actions(&mut self, table: Option<&TableSnapshot>) -> Result<Option<Vec<Value>>> {
        let (commit, time, appends) = (
            self.commit,
            actions::now(),
            self.config.mode == DeltaMode::Append,
        );
        let (mut info, mut all) = (self.commit_info(time), Vec::new());
        let mut new: Vec<TableFile<'_>> = commit
            .files
            .iter()
            .filter(|file| file.rows > 0)
            .copied()
            .collect();
        let (mut version, mut removed) = (0, Vec::new());
        match table {
            None => all.extend(actions::new_table(time, &self.columns)?),
            Some(table) => {
                version = table.version() + 1;
                let changed = check_writable(table, &self.columns, self.config)?;
                if is_committed(
                    self.io,
                    self.place,
                    table,
                    commit.content,
                    appends,
                    self.interval.as_ref(),
                )? {
                    return Ok(None);
                }
                let live = live_files(table)?;
                let is_whole =
                    |path: &str| live.get(path).is_some_and(|file| file.deleted.is_none());
                let kept: BTreeSet<&str> = new
                    .iter()
                    .map(|file| file.path)
                    .filter(|path| is_whole(path))
                    .collect();
                let replaced = match appends {
                    true => ReplacedFiles::default(),
                    false => replaced_files(&live, &kept, self.interval.as_ref())?,
                };
                new.retain(|file| !kept.contains(file.path));
                self.write_outside(table, &replaced)?;
                let all_replaced = replaced
                    .whole
                    .into_iter()
                    .chain(replaced.divided.into_values());
                removed.extend(all_replaced.map(|file| actions::remove(file, time, true)));
                if new.is_empty() && removed.is_empty() && changed.is_none() {
                    return Ok(None);
                }
                all.extend(changed);
            }
        }
        all.push(actions::transaction(&app_id(commit.content), version, time));
        all.extend(removed);
        let outside = self.outside.take();
        let copies = outside
            .iter()
            .flat_map(|outside| table_files(&outside.files));
        let files: Vec<TableFile<'_>> = copies.chain(new).collect();
        let added = self.describe(&files)?;
        all.extend(
            added
                .iter()
                .zip(time..)
                .map(|(file, time)| actions::add(file, time, true)),
        );
        if let Some(outside) = &outside {
            let metrics = json!({
                "numCopiedRows": outside.copied.rows.to_string(),
                "numFiles": files.len().to_string(),
            });
            info["commitInfo"]["operationMetrics"] = metrics;
        }
        all.insert(0, info);
        self.outside = outside;
        Ok(Some(all))
    }

    /// Checks that the run may still commit, and that what it wrote again is still there.
    pub(super) fn check(&self) -> Result<()> {
        (self.commit.may)()?;
        let Some(outside) = &self.outside else {
            return Ok(());
        };
        if are_whole(self.io, self.place, &outside.files)? {
            return Ok(());
        }
        let fault = Fault::new(
            codes::LOST_RACE,
            "rows of the table that were written again were removed meanwhile",
        );
        Err(fault
            .file(&self.place.root.shown)
            .hint("run the same command again: they are written anew"))
    }

    fn commit_info(&self, time: i64) -> Value {
        let predicate = match (&self.commit.scope, &self.interval) {
            (
                TableScope::Interval {
                    column,
                    first,
                    last,
                },
                Some(_),
            ) => Some(format!("{column} from tick {first} to {last}")),
            _ => None,
        };
        actions::commit_info(
            time,
            self.config.mode,
            &self.columns.partition_by,
            predicate.as_deref(),
        )
    }

    /// Writes the rows again that files hold beside those of the interval.
    fn write_outside(&mut self, table: &TableSnapshot, replaced: &ReplacedFiles<'_>) -> Result<()> {
        let divided = &replaced.divided;
        let Some(interval) = self.interval.as_ref().filter(|_| !divided.is_empty()) else {
            self.outside = None;
            return Ok(());
        };
        if !self
            .outside
            .as_ref()
            .is_some_and(|outside| outside.are_of(divided))
        {
            let paths = divided.keys().map(|path| (*path).to_owned()).collect();
            let files = RewrittenFiles::open(
                self.io,
                self.config,
                table.version(),
                paths,
                self.commit.scratch,
            )?;
            self.outside = Some(OutsideFiles::write(&files, interval, divided)?);
        }
        Ok(())
    }

    /// What the log is to tell of some files, in their order.
    fn describe(&mut self, files: &[TableFile<'_>]) -> Result<Vec<AddedFile>> {
        let unread: Vec<TableFile<'_>> = files
            .iter()
            .filter(|file| !self.added.contains_key(file.path))
            .copied()
            .collect();
        let read = added_files(self.io, self.place, &self.columns, &unread)?;
        self.added
            .extend(read.into_iter().map(|file| (file.path.clone(), file)));
        Ok(files
            .iter()
            .filter_map(|file| self.added.get(file.path).cloned())
            .collect())
    }
}
