//! Output of a writing pass: the place of its shards, and of those of earlier runs.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use forebay_commit::{
    Manifest, OutputWriter, Shard, StateStore, intact_shards, remove_directory, shard_directory,
    table_shard_directory, unique_shard_directory,
};
use forebay_contract::Sink;
use forebay_model::{ContentId, Fault, RelativePath, Result, check_type_levels};
use forebay_storage::{ScratchDir, StorageClient, StorageLocation};
use serde_json::{Value, json};

use crate::interval_filter::IntervalFilter;
use crate::span_index::{SpanIndex, WorkUnit};

pub struct WriteTarget<'a> {
    pub io: &'a StorageClient,
    pub sink: &'a dyn Sink,
    pub out: &'a StorageLocation,
    pub store: &'a StateStore,
    pub scratch: &'a ScratchDir,
    pub pass: ContentId,
    /// The id of the operations on the rows of each span.
    pub shape: ContentId,
    /// The id of those operations and of the interval, if one is given.
    pub shards: ContentId,
    /// Selects the rows of an interval, if one is given.
    pub within: Option<IntervalFilter>,
    /// True if other processes may write the same shard, or remove its earlier files: each write
    /// then has a directory of its own.
    pub shared: bool,
    /// The directories of the output that were being removed when the pass began.
    pub removed: BTreeSet<RelativePath>,
}

impl<'a> WriteTarget<'a> {
    /// Begins the files of a shard; `schema` has all columns.
    pub fn begin(&self, schema: SchemaRef, shard: ContentId) -> Result<OutputWriter<'a>> {
        let partitions = self.sink.layout().partition_by;
        let fields = schema
            .fields()
            .iter()
            .filter(|field| !partitions.contains(field.name()))
            .cloned();
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        // Types of gathered rows are known only now.
        check_type_levels(&schema)?;
        let directory = match self.shared {
            _ if self.sink.table().is_some() => table_shard_directory(shard)?,
            true => unique_shard_directory(shard)?,
            false => shard_directory(shard)?,
        };
        OutputWriter::begin(
            self.io,
            self.sink,
            schema,
            self.out,
            directory,
            self.scratch,
        )
    }

    /// The spans as units: the committed ones, and the rest.
    pub fn parts(&self, history: &SpanIndex, spans: Range<usize>) -> Result<Vec<WorkUnit>> {
        let mut parts = history.work_units(self.shards, spans, &self.visible()?);
        for part in parts.iter_mut().filter(|part| part.known.is_none()) {
            part.known = self.kept(part.id)?;
        }
        Ok(parts)
    }

    /// The spans as one unit.
    pub fn whole_part(&self, history: &SpanIndex, spans: Range<usize>) -> Result<Vec<WorkUnit>> {
        let id = history.result_id(self.shards, spans.clone());
        let visible = self
            .visible()?
            .into_iter()
            .find(|shard| shard.id == id.to_string());
        let kept_shard = visible.map_or_else(|| self.kept(id), |shard| Ok(Some(shard)))?;
        Ok(vec![WorkUnit {
            known: kept_shard,
            ..WorkUnit::new(spans, id)
        }])
    }

    /// The shards that readers see now, if their files are intact. Rows that are added to a table are other ones.
    fn visible(&self) -> Result<Vec<Shard>> {
        if self.sink.table().is_some_and(|table| table.appends()) {
            return Ok(Vec::new());
        }
        let mut shards = Manifest::read(self.io, self.out)?
            .map(|manifest| manifest.shards)
            .unwrap_or_default();
        for shard in std::mem::take(&mut shards) {
            if !shard.spans.is_empty() && !self.removed.contains(&shard.directory()?) {
                shards.push(shard);
            }
        }
        let mut whole = intact_shards(self.io, self.out, &shards)?.into_iter();
        shards.retain(|_| whole.next().unwrap_or(false));
        Ok(shards)
    }

    /// A shard that an earlier attempt committed.
    pub fn kept(&self, id: ContentId) -> Result<Option<Shard>> {
        let Some(record) = self.store.shard_record(&self.out.shown, id)? else {
            return Ok(None);
        };
        let shard: Option<Shard> = serde_json::from_value(record["shard"].clone()).ok();
        let Some(shard) = shard.filter(|shard| shard.id == id.to_string()) else {
            return Ok(None);
        };
        if self.removed.contains(&shard.directory()?) || !shard.intact(self.io, self.out)? {
            return Ok(None);
        }
        Ok(Some(shard))
    }

    /// Commits a shard whose files are complete. If another process was first, its shard counts and this one's files
    /// are removed.
    pub fn keep(&self, id: ContentId, shard: Shard) -> Result<Shard> {
        let record: Value = serde_json::to_value(&shard)
            .map_err(|error| Fault::internal("a shard's record").cause(error))?;
        let record = json!({ "out": self.out.shown, "shard": record });
        if self.shared
            && !self
                .store
                .put_shard_record_if_absent(&self.out.shown, id, &record)?
            && let Some(first) = self.kept(id)?
        {
            if first.files != shard.files {
                remove_directory(self.io, &self.out.join(&shard.directory()?))?;
            }
            return Ok(first);
        }
        self.store.put_shard_record(&self.out.shown, id, &record)?;
        Ok(shard)
    }
}
