//! Commits to the log of a table.

use std::collections::BTreeSet;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use forebay_contract::{ConnectorConfig, CopiedRows, TableCommit, TableLog};
use forebay_formats::ParquetSource;
use forebay_model::{Fault, Result, codes};
use forebay_storage::{ScratchDir, StorageClient};

use crate::place::TablePlace;
use crate::snapshot::{TableSnapshot, VersionChoice};

use super::actions;
use super::checkpoints::write_due_checkpoint;
use super::compact::compact;
use super::config::{DeltaMode, DeltaSink};
use super::conflicts::{commit_name, first_change, is_committed};
use super::live_files::live_files;
use super::pending::PendingCommit;
use super::schema::WrittenColumns;
use super::writable::check_writable;

/// Number of versions that other writers may take before the commit fails.
const ATTEMPTS_MAX: usize = 100;

/// The log of the table of a sink.
#[derive(Debug)]
pub(super) struct DeltaLog {
    config: DeltaSink,
}

impl DeltaLog {
    pub(super) fn new(config: DeltaSink) -> DeltaLog {
        DeltaLog { config }
    }
}

impl TableLog for DeltaLog {
    fn file_format(&self) -> &'static str {
        ParquetSource::NAME
    }

    fn appends(&self) -> bool {
        self.config.mode == DeltaMode::Append
    }

    fn check(&self, io: &StorageClient, schema: &SchemaRef) -> Result<()> {
        let columns = WrittenColumns::new(schema, &self.config.partition_by)?;
        let table_place = TablePlace::new(io, &self.config.path)?;
        match TableSnapshot::find(io, &table_place, VersionChoice::Latest)? {
            Some(table) => check_writable(&table, &columns, &self.config).map(drop),
            None => Ok(()),
        }
    }

    fn live_files(&self, io: &StorageClient) -> Result<BTreeSet<String>> {
        let table_place = TablePlace::new(io, &self.config.path)?;
        let Some(table) = TableSnapshot::find(io, &table_place, VersionChoice::Latest)? else {
            return Ok(BTreeSet::new());
        };
        let whole = live_files(&table)?
            .into_iter()
            .filter(|(_, file)| file.deleted.is_none());
        Ok(whole.map(|(path, _)| path).collect())
    }

    fn shows(&self, io: &StorageClient, content: &str) -> Result<bool> {
        let table_place = TablePlace::new(io, &self.config.path)?;
        let table = TableSnapshot::find(io, &table_place, VersionChoice::Latest)?;
        table.map_or(Ok(false), |table| {
            is_committed(io, &table_place, &table, content, self.appends(), None)
        })
    }

    fn compact(&self, io: &StorageClient, scratch: &ScratchDir) -> Result<()> {
        self.config
            .compact_below_bytes
            .map_or(Ok(()), |below| compact(io, &self.config, below, scratch))
    }

    fn checkpoint(&self, io: &StorageClient, scratch: &ScratchDir) -> Result<()> {
        write_due_checkpoint(io, &self.config.path, scratch)
    }

    fn commit(&self, io: &StorageClient, commit: &TableCommit<'_>) -> Result<CopiedRows> {
        let table_place = TablePlace::new(io, &self.config.path)?;
        let mut pending = PendingCommit::new(io, &table_place, &self.config, commit)?;
        for _ in 0..ATTEMPTS_MAX {
            let table = TableSnapshot::find(io, &table_place, VersionChoice::Latest)?;
            let Some(actions) = pending.actions(table.as_ref())? else {
                return Ok(CopiedRows::default());
            };
            pending.check()?;
            let version = table.map_or(0, |table| table.version() + 1);
            let log = table_place.log().join(&commit_name(version));
            if io.put_durable_if_absent(&log, Bytes::from(actions::commit_text(&actions)))? {
                return Ok(pending.copied());
            }
            // Rows that are added replace none.
            let change = if self.appends() {
                None
            } else {
                first_change(io, &table_place, version, None, pending.interval.as_ref())?
            };
            if let Some(version) = change {
                let message = format!(
                    "another program changed the rows that this run replaces, in version {version}"
                );
                let fault = Fault::new(codes::LOST_RACE, message).file(&table_place.root.shown);
                return Err(fault.hint(
                    "run the same command again: its rows are kept, and replace the others",
                ));
            }
        }
        let message = "other programs commit to the Delta table all the time";
        let fault = Fault::new(codes::LOST_RACE, message).file(&table_place.root.shown);
        Err(fault.hint("its rows are kept; run the same command again to show them"))
    }
}
