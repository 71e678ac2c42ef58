//! The files of an output, grouped in shards.

use forebay_model::{ChangeKind, ContentId, RelativePath, Result, RowChange, RowLedger};
use forebay_plan::{JoinsMet, RowCounts};
use forebay_storage::{StorageClient, StorageLocation};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Directory of an output's files, with a directory for each shard.
pub const DATA: &str = "_data";

/// Directory of a table's files. Programs that clean tables up skip names that begin with `_`.
pub const TABLE_DATA: &str = "data";

/// A finished file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Relative to the output.
    pub path: RelativePath,
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
    /// XXH3 of the bytes, 128 bits, hexadecimal.
    pub digest: String,
}

impl OutputFile {
    /// A file of a directory, seen from the output.
    pub fn in_directory(self, directory: &RelativePath) -> OutputFile {
        OutputFile {
            path: directory.join(&self.path),
            ..self
        }
    }
}

/// Files that were made from consecutive spans. They are kept as long as those spans stay the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// The id of everything that determines its rows.
    pub id: String,
    /// The contents of the spans.
    pub spans: Vec<String>,
    /// Rows that were read.
    pub rows_in: u64,
    /// Rows that filters removed.
    pub rows_filtered: u64,
    /// Rows that expansions added.
    pub rows_expanded: i64,
    /// Rows of which a prediction was moved to a bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows_clipped: u64,
    /// Rows whose predicted quantiles crossed, and were sorted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows_crossed: u64,
    /// Rows for which a window found no value.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows_without_history: u64,
    /// The steps that removed, added and changed rows. Shards of earlier versions have none.
    #[serde(default, skip_serializing_if = "RowLedger::is_empty")]
    pub changes: RowLedger,
    /// Results of joins for its rows.
    #[serde(default, skip_serializing_if = "JoinsMet::is_empty")]
    pub joins: JoinsMet,
    /// Rows with the keys and the time of an earlier row of their series, where windows warn of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows_duplicate: u64,
    /// Files in row order.
    pub files: Vec<OutputFile>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Shard {
    /// The directory of its files, relative to the output. Each attempt of a worker has a directory of its own.
    pub fn directory(&self) -> Result<RelativePath> {
        let of = |file: &OutputFile| file.path.parent_of(2);
        self.files
            .first()
            .and_then(of)
            .map_or_else(|| shard_directory(&self.id), Ok)
    }

    /// The counts of the rows that were read for it. How many of them the source left out is not kept.
    pub fn counts(&self) -> RowCounts {
        RowCounts {
            input: self.rows_in,
            filtered: self.rows_filtered,
            expanded: self.rows_expanded,
            clipped: self.rows_clipped,
            crossed: self.rows_crossed,
            duplicates: self.rows_duplicate,
            skipped: 0,
            without_history: self.rows_without_history,
            changes: self.attributed_changes(),
            joins: self.joins,
        }
    }

    /// The changes, with the counts that no step accounts for added: earlier versions kept the
    /// counts alone.
    fn attributed_changes(&self) -> RowLedger {
        let mut changes = self.changes.clone();
        let empty = changes.count_of(RowChange::EmptyList);
        let removed = changes.total(ChangeKind::Removed) - empty;
        let added = changes.total(ChangeKind::Added) as i64 - empty as i64;
        let missing = self.rows_filtered.saturating_sub(removed);
        changes.record("", RowChange::Filtered, missing);
        let grown = self.rows_expanded - added;
        changes.record("", RowChange::Exploded, grown.max(0).unsigned_abs());
        changes.record("", RowChange::EmptyList, grown.min(0).unsigned_abs());
        changes
    }

    /// Sum of both shards, with the id of this one.
    pub fn merged_with(mut self, other: Shard) -> Shard {
        self.rows_in += other.rows_in;
        self.rows_filtered += other.rows_filtered;
        self.rows_expanded += other.rows_expanded;
        self.rows_clipped += other.rows_clipped;
        self.rows_crossed += other.rows_crossed;
        self.rows_without_history += other.rows_without_history;
        self.changes.add(&other.changes);
        self.joins.add(other.joins);
        self.rows_duplicate += other.rows_duplicate;
        self.files.extend(other.files);
        self
    }

    /// True if every file exists with its size.
    pub fn intact(&self, io: &StorageClient, out: &StorageLocation) -> Result<bool> {
        Ok(intact_shards(io, out, [self])? == [true])
    }
}

/// For each shard, true if every file of it exists with its size.
pub fn intact_shards<'s>(
    io: &StorageClient,
    out: &StorageLocation,
    shards: impl IntoIterator<Item = &'s Shard>,
) -> Result<Vec<bool>> {
    let shards: Vec<&Shard> = shards.into_iter().collect();
    let locations = shards
        .iter()
        .flat_map(|shard| &shard.files)
        .map(|file| out.join(&file.path))
        .collect();
    let mut sizes = io.sizes(locations)?.into_iter();
    let whole = |shard: &&Shard| {
        let with_sizes = sizes.by_ref().take(shard.files.len()).zip(&shard.files);
        with_sizes
            .filter(|(size, file)| *size == Some(file.bytes))
            .count()
            == shard.files.len()
    };
    Ok(shards.iter().map(whole).collect())
}

/// The directory of a shard's files, relative to the output.
pub fn shard_directory(name: impl std::fmt::Display) -> Result<RelativePath> {
    RelativePath::new(format!("{DATA}/{name}"))
}

/// A directory that only one attempt to write a shard ever has.
pub fn unique_shard_directory(id: ContentId) -> Result<RelativePath> {
    shard_directory(unique_name(id))
}

/// Directory of a shard in a table.
pub fn table_shard_directory(id: ContentId) -> Result<RelativePath> {
    RelativePath::new(format!("{TABLE_DATA}/{}", unique_name(id)))
}

fn unique_name(id: ContentId) -> String {
    format!("{id}.{}", &Uuid::new_v4().simple().to_string()[..8])
}

/// True if a path is that of a directory of files, relative to the output.
pub(super) fn is_data_directory(path: &RelativePath) -> bool {
    let (above, name) = path.split_once('/').unwrap_or_default();
    [DATA, TABLE_DATA].contains(&above) && !name.contains('/')
}
