//! The commit of a run: the actions that show its rows on top of a version of the table.

use std::collections::{BTreeMap, BTreeSet};

use forebay_contract::{CopiedRows, TableCommit, TableFile, TableScope};
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageClient;
use serde_json::{Value, json};

use crate::place::TablePlace;
use crate::snapshot::TableSnapshot;

use super::actions::{self, AddedFile};
use super::added_files::added_files;
use super::config::{DeltaMode, DeltaSink};
use super::conflicts::{app_id, is_committed};
use super::live_files::{ReplacedFiles, ReplacedInterval, live_files, replaced_files};
use super::outside::OutsideFiles;
use super::rewriting::{RewrittenFiles, are_whole, table_files};
use super::schema::WrittenColumns;
use super::writable::check_writable;

/// A commit, with state that is kept from one attempt to the next.
pub(super) struct PendingCommit<'a> {
    io: &'a StorageClient,
    place: &'a TablePlace,
    config: &'a DeltaSink,
    commit: &'a TableCommit<'a>,
    columns: WrittenColumns,
    /// The times of the rows that it replaces; `None` without an interval.
    pub(super) interval: Option<ReplacedInterval>,
    /// Log entries of files, by their paths: footers are read once.
    added: BTreeMap<String, AddedFile>,
    outside: Option<OutsideFiles>,
}

/// The change that a commit makes to a table, apart from the files that it adds.
struct TableChange {
    /// The version that the commit creates.
    version: u64,
    /// Actions that create the table, or change its columns.
    metadata: Vec<Value>,
    removed: Vec<Value>,
}

impl<'a> PendingCommit<'a> {
    pub(super) fn new(
        io: &'a StorageClient,
        table_place: &'a TablePlace,
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
            place: table_place,
            config,
            commit,
            columns,
            interval,
            added: BTreeMap::new(),
            outside: None,
        })
    }

    /// Rows that were written again for the latest attempt.
    pub(super) fn copied(&self) -> CopiedRows {
        self.outside
            .as_ref()
            .map(|outside| outside.copied)
            .unwrap_or_default()
    }

    /// The actions that show the rows; `None` if the table shows them.
    pub(super) fn actions(&mut self, table: Option<&TableSnapshot>) -> Result<Option<Vec<Value>>> {
        let time = actions::now();
        let mut info = self.commit_info(time);
        let mut new: Vec<TableFile<'_>> = Vec::new();
        let commit = self.commit;
        for file in &commit.files {
            if file.rows > 0 {
                new.push(*file);
            }
        }
        let change = match table {
            None => TableChange {
                version: 0,
                metadata: Vec::from(actions::new_table(time, &self.columns)?),
                removed: Vec::new(),
            },
            Some(table) => match self.change_of(table, &mut new, time)? {
                Some(change) => change,
                None => return Ok(None),
            },
        };
        let outside = self.outside.take();
        let mut files: Vec<TableFile<'_>> = Vec::new();
        if let Some(outside) = &outside {
            files.extend(table_files(&outside.files));
        }
        files.extend(new);
        let added = self.describe(&files)?;
        if let Some(outside) = &outside {
            let metrics = json!({
                "numCopiedRows": outside.copied.rows.to_string(),
                "numFiles": files.len().to_string(),
            });
            info["commitInfo"]["operationMetrics"] = metrics;
        }
        let mut all_actions = vec![info];
        all_actions.extend(change.metadata);
        // By this transaction a later run finds the content and the version of its commit.
        let transaction = actions::transaction(&app_id(commit.content), change.version, time);
        all_actions.push(transaction);
        all_actions.extend(change.removed);
        // Modification times rise in row order, in which Forebay's source reads the files
        // (decisions/delta-sink.md).
        for (file, modified) in added.iter().zip(time..) {
            all_actions.push(actions::add(file, modified, true));
        }
        self.outside = outside;
        Ok(Some(all_actions))
    }

    /// The change of an existing table; `None` if it shows the rows already. Takes those of the `new` files out that stay
    /// in the table.
    fn change_of(
        &mut self,
        table: &TableSnapshot,
        new: &mut Vec<TableFile<'_>>,
        time: i64,
    ) -> Result<Option<TableChange>> {
        let appends = self.config.mode == DeltaMode::Append;
        let changed_metadata = check_writable(table, &self.columns, self.config)?;
        // A content that was committed before is committed again only if its rows have
        // changed since (decisions/delta-sink.md).
        if is_committed(
            self.io,
            self.place,
            table,
            self.commit.content,
            appends,
            self.interval.as_ref(),
        )? {
            return Ok(None);
        }
        let live = live_files(table)?;
        // Unchanged shards stay in the table without an action.
        let mut unchanged: BTreeSet<&str> = BTreeSet::new();
        for file in new.iter() {
            let live_file = live.get(file.path);
            if live_file.is_some_and(|live_file| live_file.deleted.is_none()) {
                unchanged.insert(file.path);
            }
        }
        let replaced = if appends {
            ReplacedFiles::default()
        } else {
            replaced_files(&live, &unchanged, self.interval.as_ref())?
        };
        new.retain(|file| !unchanged.contains(file.path));
        self.write_outside(table, &replaced)?;
        let mut removed = Vec::new();
        for file in replaced
            .whole
            .into_iter()
            .chain(replaced.divided.into_values())
        {
            removed.push(actions::remove(file, time, true));
        }
        if new.is_empty() && removed.is_empty() && changed_metadata.is_none() {
            return Ok(None);
        }
        Ok(Some(TableChange {
            version: table.version() + 1,
            metadata: changed_metadata.into_iter().collect(),
            removed,
        }))
    }

    /// Checks that the run may still commit, and that the files that it wrote still exist.
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

    /// Writes the rows outside of the interval again from files that hold both.
    fn write_outside(&mut self, table: &TableSnapshot, replaced: &ReplacedFiles<'_>) -> Result<()> {
        let divided = &replaced.divided;
        let Some(interval) = self.interval.as_ref().filter(|_| !divided.is_empty()) else {
            self.outside = None;
            return Ok(());
        };
        // The copies of an earlier attempt are used again, unless the divided files have changed
        // since.
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

    /// Log entries of some files, in their order.
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
