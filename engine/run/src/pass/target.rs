//! The output of a writing pass: where it writes shards, and where it finds those of earlier runs.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use forebay_model::{Fault, Id, RelativePath, Result};
use forebay_storage::{Io, Place, ScratchDir, Sink};
use serde_json::{Value, json};

use super::history::{History, Part};
use crate::commit::Store;
use crate::interval::Within;
use crate::output::{Files, Manifest, Shard, Written, intact, remove, shard_directory};

pub(crate) struct Target<'a> {
    pub io: &'a Io,
    pub sink: &'a dyn Sink,
    pub out: &'a Place,
    pub store: &'a Store,
    pub scratch: &'a ScratchDir,
    pub pass: Id,
    /// The id of the operations on the rows of each span.
    pub shape: Id,
    /// The id of those operations and of the interval, if one is given.
    pub shards: Id,
    /// Selects the rows of an interval, if one is given.
    pub within: Option<Within>,
    /// Distinguishes the files of workers that may be writing the same shard.
    pub attempt: Option<String>,
}

impl<'a> Target<'a> {
    /// Begins the files of a shard; `schema` has all columns.
    pub fn begin(&self, schema: SchemaRef, shard: Id) -> Result<Files<'a>> {
        let partitions = self.sink.layout().partition_by;
        let fields = schema.fields().iter().filter(|field| !partitions.contains(field.name())).cloned();
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let metadata = vec![("forebay.shard".to_owned(), shard.to_string())];
        let place = self.out.join(&self.directory(shard)?);
        Files::begin(self.io, self.sink, schema, metadata, place, self.scratch)
    }

    /// The files of a shard, relative to the output.
    pub fn placed(&self, shard: Id, files: Vec<Written>) -> Result<Vec<Written>> {
        let directory = self.directory(shard)?;
        Ok(files.into_iter().map(|file| file.in_directory(&directory)).collect())
    }

    /// The directory of a shard's files, relative to the output.
    fn directory(&self, shard: Id) -> Result<RelativePath> {
        match &self.attempt {
            Some(attempt) => shard_directory(format_args!("{shard}.{attempt}")),
            None => shard_directory(shard),
        }
    }

    /// The wanted spans as units: the committed ones, and the rest.
    pub fn parts(&self, history: &History, wanted: Range<usize>) -> Result<Vec<Part>> {
        let mut parts = history.parts(self.shards, wanted, &self.visible()?);
        for part in parts.iter_mut().filter(|part| part.known.is_none()) {
            part.known = self.kept(part.id)?;
        }
        Ok(parts)
    }

    /// The shards that readers see now, if their files are intact.
    fn visible(&self) -> Result<Vec<Shard>> {
        let mut shards = Manifest::read(self.io, self.out)?.map(|manifest| manifest.shards).unwrap_or_default();
        shards.retain(|shard| !shard.spans.is_empty());
        let mut whole = intact(self.io, self.out, &shards)?.into_iter();
        shards.retain(|_| whole.next().unwrap_or(false));
        Ok(shards)
    }

    /// A shard that an earlier attempt committed.
    pub fn kept(&self, id: Id) -> Result<Option<Shard>> {
        let Some(record) = self.store.shard(&self.out.shown, id)? else { return Ok(None) };
        let shard: Option<Shard> = serde_json::from_value(record["shard"].clone()).ok();
        match shard.filter(|shard| shard.id == id.to_string()) {
            Some(shard) if shard.intact(self.io, self.out)? => Ok(Some(shard)),
            _ => Ok(None),
        }
    }

    /// Commits a shard whose files are complete. If another worker was first, its shard counts and this worker's files
    /// are removed.
    pub fn keep(&self, id: Id, shard: Shard) -> Result<Shard> {
        let record: Value =
            serde_json::to_value(&shard).map_err(|error| Fault::internal("a shard's record").cause(error))?;
        let record = json!({ "out": self.out.shown, "shard": record });
        if self.attempt.is_some()
            && !self.store.put_shard_if_absent(&self.out.shown, id, &record)?
            && let Some(first) = self.kept(id)?
        {
            if first.files != shard.files {
                remove(self.io, &self.out.join(&self.directory(id)?))?;
            }
            return Ok(first);
        }
        self.store.put_shard(&self.out.shown, id, &record)?;
        Ok(shard)
    }
}
