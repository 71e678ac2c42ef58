//! How one file gives the wanted columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use forebay_model::{FileRange, Result, logical_type};
use forebay_storage::ScanRequest;
use parquet::arrow::ProjectionMask;
use parquet::basic::{ConvertedType, Encoding, PageType};
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};

use crate::files::origin::{self, FileColumnOrigin};

use super::footer::Footer;
use super::table::{TableFiles, stored_column};

/// The share of pages of keys from which on strings are read as dictionaries: 2 in 3.
const KEYED_PAGES_PART_MIN: (i64, i64) = (2, 3);

/// How one file gives the wanted columns.
#[derive(Debug)]
pub(super) struct FileProjection {
    /// Wanted columns in order: field of the dataset, origin.
    pub(super) columns: Vec<(FieldRef, FileColumnOrigin)>,
    /// Their names in the file, where they come from it.
    pub(super) stored_names: Vec<String>,
    /// What is read of the file.
    pub(super) mask: ProjectionMask,
    /// Leaves (stored columns) that are read.
    pub(super) leaves: Vec<usize>,
    /// Whether anything is read of the file.
    pub(super) reads: bool,
}

impl FileProjection {
    /// `table` is the one whose file it is, if any.
    pub(super) fn new(
        footer: &Footer,
        piece: &FileRange,
        request: &ScanRequest,
        table: Option<&dyn TableFiles>,
    ) -> Result<Self> {
        let stored_name = |name: &str| stored_column(table, &footer.schema, name);
        let columns = origin::resolve_columns(piece, request, |name| stored_name(name).is_some())?;
        let stored_names: Vec<String> = columns
            .iter()
            .map(|(field, _)| stored_name(field.name()).unwrap_or_default())
            .collect();
        let stored = footer.metadata.file_metadata().schema_descr();
        let wanted = |name: &str| {
            let mut named = columns.iter().zip(&stored_names);
            named.any(|((_, origin), stored)| {
                matches!(origin, FileColumnOrigin::File) && stored == name
            })
        };
        let leaves: Vec<usize> = (0..stored.num_columns())
            .filter(|leaf| wanted(stored.get_column_root(*leaf).name()))
            .collect();
        let mask = ProjectionMask::leaves(stored, leaves.iter().copied());
        Ok(FileProjection {
            mask,
            reads: !leaves.is_empty(),
            leaves,
            columns,
            stored_names,
        })
    }

    /// A wanted column's name in the file, if it comes from it.
    pub(super) fn stored_name(&self, column: &str) -> Option<&str> {
        let at = self
            .columns
            .iter()
            .position(|(field, _)| field.name() == column)?;
        matches!(self.columns[at].1, FileColumnOrigin::File).then(|| self.stored_names[at].as_str())
    }

    /// The layout to read a row group in: strings as dictionaries where most of their pages are,
    /// else as views.
    pub(super) fn layout(&self, footer: &Footer, group: usize) -> SchemaRef {
        let stored = footer.metadata.file_metadata().schema_descr();
        let group = footer.metadata.row_group(group);
        let layout = |field: &FieldRef| -> FieldRef {
            let plain = logical_type(field.data_type());
            if plain != DataType::Utf8 {
                // Dictionaries of other types gain nothing, nor do long offsets.
                let changed = matches!(field.data_type(), DataType::Dictionary(..));
                return if changed {
                    with_type(field, plain)
                } else {
                    field.clone()
                };
            }
            let leaf = self
                .leaves
                .iter()
                .copied()
                .find(|leaf| stored.get_column_root(*leaf).name() == field.name());
            let keyed = leaf.is_some_and(|leaf| {
                stored.column(leaf).converted_type() == ConvertedType::UTF8
                    && is_mostly_dictionary(group.column(leaf))
            });
            match keyed {
                true => with_type(
                    field,
                    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
                ),
                false => with_type(field, DataType::Utf8View),
            }
        };
        let fields: Fields = footer.schema.fields().iter().map(layout).collect();
        Arc::new(Schema::new_with_metadata(
            fields,
            footer.schema.metadata().clone(),
        ))
    }
}

fn with_type(field: &Field, data_type: DataType) -> FieldRef {
    Arc::new(
        Field::new(field.name(), data_type, field.is_nullable())
            .with_metadata(field.metadata().clone()),
    )
}

/// Whether most data pages of a column hold keys into its dictionary, so that it pays to make a
/// dictionary of what the others hold.
fn is_mostly_dictionary(column: &ColumnChunkMetaData) -> bool {
    if column.dictionary_page_offset().is_none() {
        return false;
    }
    if let Some(stats) = column.page_encoding_stats() {
        let is_data = |page: &&PageEncodingStats| {
            matches!(page.page_type, PageType::DATA_PAGE | PageType::DATA_PAGE_V2)
        };
        let has_keys = |page: &&PageEncodingStats| {
            matches!(
                page.encoding,
                Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY
            )
        };
        let pages = |page: &PageEncodingStats| i64::from(page.count);
        let all: i64 = stats.iter().filter(is_data).map(pages).sum();
        let keyed: i64 = stats
            .iter()
            .filter(is_data)
            .filter(has_keys)
            .map(pages)
            .sum();
        return 0 < all && all * KEYED_PAGES_PART_MIN.0 <= keyed * KEYED_PAGES_PART_MIN.1;
    }
    // Without statistics only the old encoding tells: there, `PLAIN` means values.
    let mut dictionary = false;
    for encoding in column.encodings() {
        match encoding {
            Encoding::PLAIN_DICTIONARY => dictionary = true,
            #[expect(deprecated, reason = "old files hold it")]
            Encoding::RLE | Encoding::BIT_PACKED => {}
            _ => return false,
        }
    }
    dictionary
}
