//! Facts from the footers of files, read or from notes of an earlier run.

use std::collections::HashMap;
use std::time::SystemTime;

use forebay_model::{Fault, NameIndex, Result};
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
pub struct FooterNotes<'n> {
    cache: &'n MetadataCache,
    noted: HashMap<String, FooterSummary>,
    begun: SystemTime,
}

impl FooterNotes<'_> {
    /// Reads the notes. `begun` is a time before the files were listed.
    pub fn load(cache: &MetadataCache, begun: SystemTime) -> Result<FooterNotes<'_>> {
        Ok(FooterNotes {
            cache,
            noted: notes::decode(cache.load()?.as_deref()),
            begun,
        })
    }

    /// Facts from the footers of some files: from the notes for files that have not changed. The
    /// notes are written again if they are not exactly those of these files.
    pub fn summaries(
        mut self,
        footers: &FooterCache,
        io: &StorageClient,
        files: &[&ListedFile],
        watch: &[String],
    ) -> Result<Vec<FooterSummary>> {
        let interner = SchemaInterner::default();
        let mut noted: Vec<Option<FooterSummary>> = Vec::with_capacity(files.len());
        let mut unread: Vec<&ListedFile> = Vec::new();
        for file in files {
            let facts = self.noted.remove(&file.path);
            let mut facts = facts.filter(|facts| facts.listed == file.stamp);
            match &mut facts {
                Some(facts) => facts.fields = interner.one(facts.fields.clone()),
                None => unread.push(file),
            }
            noted.push(facts);
        }
        let is_known = unread.is_empty() && self.noted.is_empty();
        // Threads are for files that have to be opened.
        let read = inspect_parallel(&unread, |file| {
            footer_summary(footers, io, file, &interner, watch)
        })?;
        let mut read = read.into_iter();
        let mut summaries = Vec::with_capacity(files.len());
        for facts in noted {
            let facts = facts.or_else(|| read.next());
            let facts = facts.ok_or_else(|| Fault::internal("a file was not looked at"))?;
            summaries.push(facts);
        }
        if !is_known {
            let paths = files.iter().map(|file| file.path.as_str());
            let content = notes::encode(paths.zip(&summaries), self.begun)?;
            self.cache.store(content);
        }
        Ok(summaries)
    }
}

/// Reads the facts of a file from its footer.
fn footer_summary(
    footers: &FooterCache,
    io: &StorageClient,
    file: &ListedFile,
    interner: &SchemaInterner,
    watch: &[String],
) -> Result<FooterSummary> {
    let table = footers.table();
    let footer = match &table {
        Some(_) => footers.open_logged(io, &file.path, file.stamp.size)?.footer,
        None => footers.open_listed(io, file)?.footer,
    };
    let metadata = &footer.metadata;
    let roots = metadata.file_metadata().schema_descr();
    let fields = interner.one(logical_fields(footer.schema.fields()));
    let mut bytes = vec![0; fields.len()];
    let nulls = null_counts(metadata, &fields);
    let mut groups = Vec::with_capacity(metadata.num_row_groups());
    let extents = |column: &String| match stored_column(table.as_deref(), &footer.schema, column) {
        Some(stored) => row_group_extents(metadata, &footer.schema, &stored),
        None => vec![None; metadata.num_row_groups()],
    };
    let watched: Vec<_> = watch.iter().map(extents).collect();
    let index = NameIndex::of_fields(&fields);
    for (at, group) in metadata.row_groups().iter().enumerate() {
        for (leaf, column) in group.columns().iter().enumerate() {
            if let Some(field) = index.get(roots.get_column_root(leaf).name()) {
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
    let listed = file.stamp.clone();
    let opened = footer.stamp.clone();
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
