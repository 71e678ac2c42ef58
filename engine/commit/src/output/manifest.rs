//! The manifest of an output: the file that makes its data visible.

use std::collections::BTreeMap;

use arrow::datatypes::Schema;
use bytes::Bytes;
use forebay_model::{ContentId, Fault, RelativePath, Result, codes};
use forebay_plan::RowCounts;
use forebay_storage::{ObjectVersion, StorageClient, StorageLocation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::shard::{DATA, OutputFile, Shard, TABLE_DATA, intact_shards, is_data_directory};
use crate::degradation_report::DegradationReport;
use crate::output_layout::visible_location;
use crate::visible_files::check_replaceable;

/// The name of manifests.
pub const MANIFEST: &str = "_manifest.json";

/// The version of manifests.
pub(super) const FORMAT: u32 = 3;

/// The oldest version that is read: it names no removed directories.
const FORMAT_MIN: u32 = 2;

/// Tokens whose ids an output shows or has shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedNumbering {
    /// The numbering in the state directory.
    pub epoch: u64,
    /// Number of tokens.
    pub tokens: u64,
    /// The id of these tokens in their order.
    pub digest: String,
    /// Other settings that determine the ids, such as reserved tokens.
    pub scheme: String,
}

/// The manifest of an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this file.
    pub format: u32,
    /// The pass that wrote the data.
    pub pass: String,
    /// The directory of all files, relative to the root of the output, or the one above theirs.
    pub data: RelativePath,
    /// Columns: name and type.
    pub columns: Vec<(String, String)>,
    /// Rows of all files.
    pub rows: u64,
    /// Shards in row order.
    pub shards: Vec<Shard>,
    /// Intervals of an output that was written interval by interval, in order of time. Each has the
    /// next of the shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<IntervalEntry>,
    /// The numberings of tokens whose ids the rows hold, by vocabulary.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbering: BTreeMap<String, PublishedNumbering>,
    /// Degradation of the run, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder: Option<DegradationReport>,
    /// Directories of the previous manifest. They are kept because readers may still have them open.
    #[serde(default)]
    pub previous: Vec<RelativePath>,
    /// In a bucket, directories that are being removed. No later manifest names their files. Each stays here until it
    /// is seen to be empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<RelativePath>,
    /// Number of this manifest among those of the output, from 1; unique.
    #[serde(default)]
    pub publication: u64,
}

/// The rows of an interval of time in an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalEntry {
    /// Start of the interval, as it was given.
    pub from: String,
    /// End of the interval, as it was given.
    pub to: String,
    /// First tick of the interval in the column of times.
    pub first: i64,
    /// Last tick of the interval.
    pub last: i64,
    /// The pass that wrote it.
    pub pass: String,
    /// Number of shards.
    pub shards: usize,
}

impl Manifest {
    /// The manifest of a pass.
    pub fn new(pass: ContentId, schema: &Schema, shards: Vec<Shard>) -> Result<Self> {
        let columns = schema
            .fields()
            .iter()
            .map(|field| (field.name().clone(), field.data_type().to_string()));
        Manifest::from_columns(pass, columns.collect(), shards)
    }

    pub(super) fn from_columns(
        pass: ContentId,
        columns: Vec<(String, String)>,
        shards: Vec<Shard>,
    ) -> Result<Self> {
        let above = shards
            .iter()
            .flat_map(|shard| &shard.files)
            .next()
            .and_then(|file| file.path.parent_of(1));
        let data = match shards.as_slice() {
            [shard] => shard.directory()?,
            _ => above.map_or_else(|| RelativePath::new(DATA), Ok)?,
        };
        let files = shards.iter().flat_map(|shard| &shard.files);
        Ok(Manifest {
            format: FORMAT,
            pass: pass.to_string(),
            data,
            columns,
            rows: files.map(|file| file.rows).sum(),
            shards,
            intervals: Vec::new(),
            numbering: BTreeMap::new(),
            ladder: None,
            previous: Vec::new(),
            removed: Vec::new(),
            publication: 0,
        })
    }

    /// Makes the names of its files durable. The contents of the files are durable already.
    pub fn sync_names(&self, out: &StorageLocation) -> Result<()> {
        let Some(local) = &out.local else {
            return Ok(());
        };
        [DATA, TABLE_DATA].iter().try_for_each(|above| {
            match std::fs::File::open(local.join(above)).and_then(|data| data.sync_all()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Fault::disk(
                    "the names of an output's files cannot be kept",
                    error,
                )),
                _ => Ok(()),
            }
        })
    }

    /// Bytes of the file, without whitespace, since every run reads and writes all of them.
    pub(super) fn to_bytes(&self) -> Result<Bytes> {
        let bytes =
            serde_json::to_vec(self).map_err(|error| Fault::internal("a manifest").cause(error))?;
        Ok(Bytes::from(bytes))
    }

    /// All files of the output, in row order.
    pub fn files(&self) -> impl Iterator<Item = &OutputFile> {
        self.shards.iter().flat_map(|shard| &shard.files)
    }

    /// The counts of the rows that were read for all shards.
    pub fn counts(&self) -> RowCounts {
        let mut sums = RowCounts::default();
        self.shards
            .iter()
            .for_each(|shard| sums.add(&shard.counts()));
        sums
    }

    /// True if every file exists with its size.
    pub fn intact(&self, io: &StorageClient, out: &StorageLocation) -> Result<bool> {
        Ok(intact_shards(io, out, &self.shards)?
            .into_iter()
            .all(|whole| whole))
    }

    /// The manifest of an output, if there is one.
    pub fn read(io: &StorageClient, out: &StorageLocation) -> Result<Option<Manifest>> {
        Ok(Manifest::read_versioned(io, out)?.0)
    }

    /// The manifest of an output, and the version of the file that should hold it.
    pub(super) fn read_versioned(
        io: &StorageClient,
        out: &StorageLocation,
    ) -> Result<(Option<Manifest>, Option<ObjectVersion>)> {
        let location = out.join(MANIFEST);
        let Some(file) = io.get_versioned(&location)? else {
            return Ok((None, None));
        };
        let manifest =
            Manifest::decode(&file.bytes).map_err(|fault| fault.file(&location.shown))?;
        Ok((Some(manifest), Some(file.version)))
    }

    /// Reads a manifest. One that cannot be read is never taken for an absent one: publishing would replace it.
    fn decode(bytes: &[u8]) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct ManifestVersion {
            format: u32,
        }
        let decoded = serde_json::from_slice::<Manifest>(bytes);
        let format = match &decoded {
            Ok(manifest) => Some(manifest.format),
            Err(_) => serde_json::from_slice::<ManifestVersion>(bytes)
                .ok()
                .map(|version| version.format),
        };
        if let Some(other) = format.filter(|format| !(FORMAT_MIN..=FORMAT).contains(format)) {
            let message = format!(
                "the manifest has format {other}, this program reads {FORMAT_MIN} to {FORMAT}"
            );
            let fault = Fault::new(codes::STATE_VERSION, message);
            return Err(fault
                .hint("use the version of Forebay that wrote it, or write to another directory"));
        }
        decoded
            .map_err(|error| Fault::new(codes::CORRUPT, "the manifest cannot be read").cause(error))
            .and_then(Manifest::validated)
            .map_err(|fault| {
                fault.hint(
                    "restore the file, or move the output away and run again: it is written anew",
                )
            })
    }

    /// The manifest in the record of a pass.
    pub fn from_record(record: &Value) -> Result<Manifest> {
        serde_json::from_value(record["manifest"].clone())
            .map_err(|error| {
                Fault::new(codes::STATE_VERSION, "the record of a pass cannot be read").cause(error)
            })
            .and_then(Manifest::validated)
    }

    /// Refuses paths outside the data directories: files that a manifest names are read, and removed later.
    fn validated(self) -> Result<Manifest> {
        let is_file = |file: &&OutputFile| {
            file.path
                .parent_of(2)
                .is_some_and(|of| is_data_directory(&of))
        };
        let wrong = self
            .previous
            .iter()
            .chain(&self.removed)
            .find(|path| !is_data_directory(path));
        let is_above = |data: &RelativePath| [DATA, TABLE_DATA].contains(&&**data);
        let wrong =
            wrong.or(Some(&self.data).filter(|data| !is_above(data) && !is_data_directory(data)));
        let wrong = wrong.or_else(|| {
            self.files()
                .find(|file| !is_file(file))
                .map(|file| &file.path)
        });
        match wrong {
            Some(path) => Err(Fault::new(
                codes::CORRUPT,
                format!("the manifest names `{path}`, which is no data of an output"),
            )),
            None => Ok(self),
        }
    }

    /// Refuses to mix intervals with an output that was written whole, and the other way round.
    pub fn check_interval_mode(&self, interval: bool) -> Result<()> {
        let (is, hint) = match (interval, self.intervals.is_empty()) {
            (true, true) => ("whole", "run without --interval"),
            (false, false) => ("interval by interval", "run with --interval"),
            _ => return Ok(()),
        };
        let fault = Fault::new(codes::OUTPUT_CLASH, format!("the output was written {is}"));
        Err(fault.hint(format!("{hint}, or write to another directory")))
    }

    /// The directories of its shards.
    pub fn directories(&self) -> Result<Vec<RelativePath>> {
        self.shards.iter().map(Shard::directory).collect()
    }

    /// Refuses a location where readers could not see the output.
    pub fn check_place(io: &StorageClient, out: &StorageLocation) -> Result<()> {
        let visible = if out.local.is_some() {
            Manifest::read(io, out)?
        } else {
            None
        };
        check_replaceable(out, visible.iter().flat_map(Manifest::files))
    }

    /// Directory in which users find its files: the visible directory, or the data directory in a
    /// bucket.
    pub fn shown_at(&self, out: &StorageLocation) -> String {
        match &out.local {
            Some(_) => visible_location(out).shown,
            None => out.join(&self.data).shown,
        }
    }
}

/// True if the data that a pass's record names is whole.
pub fn record_is_intact(io: &StorageClient, out: &StorageLocation, record: &Value) -> Result<bool> {
    // A record that this program cannot read names nothing: the pass is done again.
    let Ok(manifest) = Manifest::from_record(record) else {
        return Ok(false);
    };
    Ok(
        !manifest.is_being_removed(&Manifest::removed_directories(io, out)?)?
            && manifest.intact(io, out)?,
    )
}
