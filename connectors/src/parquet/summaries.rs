//! What the footers of files tell, read or from notes of an earlier run.

use std::collections::HashMap;
use std::time::SystemTime;

use forebay_model::{Fault, Result};
use forebay_storage::{MetadataCache, StorageClient};

use super::extent::row_group_extents;
use super::footer::FooterCache;
use super::notes::{self, FooterSummary};
use super::null_counts::null_counts;
use super::table::stored_column;
use crate::files::cut::RowGroupSummary;
use crate::files::drift::{SchemaInterner, logical_fields};
use crate::files::list::ListedFile;
use crate::files::survey::inspect_parallel;

/// Notes of footers.
pub(crate) struct FooterNotes<'n> {
    cache: &'n MetadataCache,
    noted: HashMap<String, FooterSummary>,
    begun: SystemTime,
}

impl FooterNotes<'_> {
    /// Reads the notes. `begun` is a time before the files were listed.
    pub(crate) fn load(cache: &MetadataCache, begun: SystemTime) -> Result<FooterNotes<'_>> {
        Ok(FooterNotes {
            cache,
            noted: notes::decode(cache.load()?.as_deref()),
            begun,
        })
    }

    /// What the footers of some files tell: from the notes where a file is still what it was. Notes that are not those
    /// of these files are written anew.
    pub(crate) fn summaries(
        mut self,
        footers: &FooterCache,
        io: &StorageClient,
        files: &[&ListedFile],
        watch: &[String],
    ) -> Result<Vec<FooterSummary>> {
        let known = SchemaInterner::default();
        let facts = files.iter().map(|file| {
            let facts = self
                .noted
                .remove(&file.path)
                .filter(|facts| facts.listed == file.stamp)?;
            Some(FooterSummary {
                fields: known.one(facts.fields.clone()),
                ..facts
            })
        });
        let facts: Vec<Option<FooterSummary>> = facts.collect();
        // Threads are for those that have to be opened.
        let new = files
            .iter()
            .zip(&facts)
            .filter(|(_, facts)| facts.is_none())
            .map(|(file, _)| *file);
        let new: Vec<&ListedFile> = new.collect();
        let is_known = new.is_empty() && self.noted.is_empty();
        let mut new = inspect_parallel(&new, |file| {
            footer_summary(footers, io, file, &known, watch)
        })?
        .into_iter();
        let looked_at = || Fault::internal("a file was not looked at");
        let facts = facts
            .into_iter()
            .map(|facts| facts.or_else(|| new.next()).ok_or_else(looked_at));
        let facts = facts.collect::<Result<Vec<FooterSummary>>>()?;
        if !is_known {
            let named = files.iter().map(|file| file.path.as_str()).zip(&facts);
            self.cache.store(notes::encode(named, self.begun)?);
        }
        Ok(facts)
    }
}

/// What a file's footer tells.
fn footer_summary(
    footers: &FooterCache,
    io: &StorageClient,
    file: &ListedFile,
    known: &SchemaInterner,
    watch: &[String],
) -> Result<FooterSummary> {
    let table = footers.table();
    let footer = match &table {
        Some(_) => footers.open_logged(io, &file.path, file.stamp.size)?.footer,
        None => footers.open_listed(io, file)?.footer,
    };
    let metadata = &footer.metadata;
    let roots = metadata.file_metadata().schema_descr();
    let fields = known.one(logical_fields(footer.schema.fields()));
    let mut bytes = vec![0; fields.len()];
    let nulls = null_counts(metadata, &fields);
    let mut groups = Vec::with_capacity(metadata.num_row_groups());
    let extents = |column: &String| match stored_column(table.as_deref(), &footer.schema, column) {
        Some(stored) => row_group_extents(metadata, &footer.schema, &stored),
        None => vec![None; metadata.num_row_groups()],
    };
    let watched: Vec<_> = watch.iter().map(extents).collect();
    for (at, group) in metadata.row_groups().iter().enumerate() {
        for (leaf, column) in group.columns().iter().enumerate() {
            if let Some((field, _)) = fields.find(roots.get_column_root(leaf).name()) {
                bytes[field] += column.compressed_size().max(0) as u64;
            }
        }
        let extents = watched.iter().map(|groups| groups[at].clone()).collect();
        groups.push(RowGroupSummary {
            rows: group.num_rows() as u64,
            bytes: group.compressed_size().max(0) as u64,
            extents,
        });
    }
    let (listed, opened) = (file.stamp.clone(), footer.stamp.clone());
    Ok(FooterSummary {
        listed,
        opened,
        footer: footer.digest,
        fields,
        bytes,
        nulls,
        groups,
    })
}
