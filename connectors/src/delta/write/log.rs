//! Commits to the log of a table.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use forebay_model::{Fault, Result, codes};
use forebay_storage::{ScratchDir, StorageClient, TableCommit, TableFile, TableLog, TableScope};
use serde_json::Value;

use crate::delta::place::TablePlace;
use crate::delta::snapshot::{TableSnapshot, VersionChoice};

use super::actions::{self, AddedFile};
use super::added_files::added_files;
use super::compact::compact;
use super::config::{DeltaMode, DeltaSink};
use super::conflicts::{commit_name, first_change};
use super::live_files::{ReplacedInterval, live_files, replaced_files};
use super::schema::WrittenColumns;
use super::writable::check_writable;

/// How often other writers may take a version before a run gives up.
const ATTEMPTS_MAX: usize = 100;

/// The log of the table of a sink.
#[derive(Debug)]
pub(super) struct DeltaLog {
    config: DeltaSink,
}

/// A commit, and what it is made of.
struct CommitPlan<'a> {
    commit: &'a TableCommit<'a>,
    columns: WrittenColumns,
    /// The times of the rows that it replaces; `None` without an interval.
    interval: Option<ReplacedInterval>,
}

/// Names the rows of a run in the log: they are committed once.
fn app_id(content: &str) -> String {
    format!("forebay-{content}")
}

impl DeltaLog {
    pub(super) fn new(config: DeltaSink) -> DeltaLog {
        DeltaLog { config }
    }

    fn plan<'a>(&self, commit: &'a TableCommit<'a>) -> Result<CommitPlan<'a>> {
        let columns = WrittenColumns::new(commit.schema, &self.config.partition_by)?;
        let interval = match &commit.scope {
            TableScope::Interval { column, first, last } if !self.appends() => {
                let of_rows = commit.schema.field_with_name(column)?.data_type();
                Some(ReplacedInterval::new(&columns, of_rows, column, (*first, *last))?)
            }
            _ => None,
        };
        Ok(CommitPlan { commit, columns, interval })
    }

    /// Whether the table shows the rows already: they were committed, and no commit since has changed them.
    fn is_committed(
        &self,
        io: &StorageClient,
        place: &TablePlace,
        table: &TableSnapshot,
        (content, interval): (&str, Option<&ReplacedInterval>),
    ) -> Result<bool> {
        let committed = table.snapshot.get_app_id_version(&app_id(content), &table.engine);
        let Some(committed) = committed.map_err(|error| table.fault(error))? else { return Ok(false) };
        if self.appends() {
            return Ok(true);
        }
        let from = committed.unsigned_abs().saturating_add(1);
        Ok(first_change(io, place, from, Some(table.version()), interval)?.is_none())
    }

    /// The actions that show the rows; `None` if the table shows them.
    fn actions<'a>(
        &self,
        io: &StorageClient,
        place: &TablePlace,
        table: Option<&TableSnapshot>,
        plan: &CommitPlan<'a>,
        added: &mut BTreeMap<&'a str, AddedFile<'a>>,
    ) -> Result<Option<Vec<Value>>> {
        let time = actions::now();
        let partition_by = &plan.columns.partition_by;
        let mut all = vec![actions::commit_info(time, self.config.mode, partition_by, plan.predicate().as_deref())];
        let wanted = plan.commit.files.iter().filter(|file| file.rows > 0).copied();
        let (mut new, mut removed): (Vec<TableFile<'a>>, Vec<Value>) = (wanted.collect(), Vec::new());
        match table {
            None => all.extend(actions::new_table(time, &plan.columns)?),
            Some(table) => {
                let changed = check_writable(table, &plan.columns, &self.config)?;
                if self.is_committed(io, place, table, (plan.commit.content, plan.interval.as_ref()))? {
                    return Ok(None);
                }
                let live = live_files(table)?;
                let is_whole = |path: &str| live.get(path).is_some_and(|file| file.deleted.is_none());
                let kept: BTreeSet<&str> = new.iter().map(|file| file.path).filter(|path| is_whole(path)).collect();
                if !self.appends() {
                    let replaced = replaced_files(&live, &kept, plan.interval.as_ref())?;
                    removed.extend(replaced.into_iter().map(|file| actions::remove(file, time, true)));
                }
                new.retain(|file| !kept.contains(file.path));
                if new.is_empty() && removed.is_empty() && changed.is_none() {
                    return Ok(None);
                }
                all.extend(changed);
            }
        }
        all.push(actions::transaction(
            &app_id(plan.commit.content),
            table.map_or(0, |table| table.version() + 1),
            time,
        ));
        all.extend(removed);
        // Footers are read once, also where the commit is tried again.
        let unread: Vec<TableFile<'a>> = new.iter().filter(|file| !added.contains_key(file.path)).copied().collect();
        added.extend(added_files(io, place, &plan.columns, &unread)?.into_iter().map(|file| (file.path, file)));
        let new = new.iter().filter_map(|file| added.get(file.path));
        all.extend(new.zip(time..).map(|(file, time)| actions::add(file, time, true)));
        Ok(Some(all))
    }
}

impl CommitPlan<'_> {
    /// What the log says of the rows that are replaced.
    fn predicate(&self) -> Option<String> {
        let TableScope::Interval { column, first, last } = &self.commit.scope else { return None };
        self.interval.as_ref().map(|_| format!("{column} from tick {first} to {last}"))
    }
}

impl TableLog for DeltaLog {
    fn appends(&self) -> bool {
        self.config.mode == DeltaMode::Append
    }

    fn check(&self, io: &StorageClient, schema: &SchemaRef) -> Result<()> {
        let columns = WrittenColumns::new(schema, &self.config.partition_by)?;
        let place = TablePlace::new(io, &self.config.path)?;
        match TableSnapshot::find(io, &place, VersionChoice::Latest)? {
            Some(table) => check_writable(&table, &columns, &self.config).map(drop),
            None => Ok(()),
        }
    }

    fn live_files(&self, io: &StorageClient) -> Result<BTreeSet<String>> {
        let place = TablePlace::new(io, &self.config.path)?;
        let Some(table) = TableSnapshot::find(io, &place, VersionChoice::Latest)? else { return Ok(BTreeSet::new()) };
        let whole = live_files(&table)?.into_iter().filter(|(_, file)| file.deleted.is_none());
        Ok(whole.map(|(path, _)| path).collect())
    }

    fn shows(&self, io: &StorageClient, content: &str) -> Result<bool> {
        let place = TablePlace::new(io, &self.config.path)?;
        let table = TableSnapshot::find(io, &place, VersionChoice::Latest)?;
        table.map_or(Ok(false), |table| self.is_committed(io, &place, &table, (content, None)))
    }

    fn compact(&self, io: &StorageClient, scratch: &ScratchDir) -> Result<()> {
        self.config.compact_below_bytes.map_or(Ok(()), |below| compact(io, &self.config, below, scratch))
    }

    fn commit(&self, io: &StorageClient, commit: &TableCommit<'_>) -> Result<()> {
        let place = TablePlace::new(io, &self.config.path)?;
        let plan = self.plan(commit)?;
        let mut added = BTreeMap::new();
        for _ in 0..ATTEMPTS_MAX {
            let table = TableSnapshot::find(io, &place, VersionChoice::Latest)?;
            let Some(all) = self.actions(io, &place, table.as_ref(), &plan, &mut added)? else { return Ok(()) };
            (commit.may)()?;
            let version = table.map_or(0, |table| table.version() + 1);
            let log = place.log().join(&commit_name(version));
            if io.put_durable_if_absent(&log, Bytes::from(actions::commit_text(&all)))? {
                return Ok(());
            }
            // Rows that are added replace none.
            let change = match self.appends() {
                true => None,
                false => first_change(io, &place, version, None, plan.interval.as_ref())?,
            };
            if let Some(version) = change {
                let message = format!("another program changed the rows that this run replaces, in version {version}");
                let fault = Fault::new(codes::LOST_RACE, message).file(&place.root.shown);
                return Err(fault.hint("run the same command again: its rows are kept, and replace the others"));
            }
        }
        let message = "other programs commit to the Delta table all the time";
        let fault = Fault::new(codes::LOST_RACE, message).file(&place.root.shown);
        Err(fault.hint("its rows are kept; run the same command again to show them"))
    }
}
