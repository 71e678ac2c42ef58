//! Projection of one file to the requested columns.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use forebay_contract::ScanRequest;
use forebay_model::{FileRange, NameIndex, Result, logical_type};
use parquet::basic::{ConvertedType, Encoding, PageType, Type};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::schema::types::SchemaDescriptor;

use crate::files::nested_types::with_views;
use crate::files::origin::{self, FileColumnOrigin};

use super::footer::Footer;
use super::table::{TableFiles, stored_columns};

/// The share of pages of keys from which on strings are read as dictionaries: 2 in 3.
const KEYED_PAGES_PART_MIN: (i64, i64) = (2, 3);

/// Projection of one file to the requested columns.
#[derive(Debug)]
pub(super) struct FileProjection {
    /// Requested columns in order: field of the dataset, origin.
    pub(super) columns: Vec<(FieldRef, FileColumnOrigin)>,
    /// Names of the columns in the file, for those that come from it.
    pub(super) stored_names: Vec<String>,
    /// Leaves (stored columns) that are read.
    pub(super) leaves: Vec<usize>,
    /// True if any column of the file is read.
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
        let requested = request.columns.iter().map(String::as_str);
        let in_file = stored_columns(table, &footer.schema, requested);
        let columns = origin::resolve_columns(piece, request, |name| in_file.contains_key(name))?;
        let stored_name = |field: &FieldRef| in_file.get(field.name().as_str()).cloned();
        let stored_names: Vec<String> = columns
            .iter()
            .map(|(field, _)| stored_name(field).unwrap_or_default())
            .collect();
        let stored = footer.metadata.file_metadata().schema_descr();
        let from_file = columns.iter().zip(&stored_names);
        let from_file =
            from_file.filter(|((_, origin), _)| matches!(origin, FileColumnOrigin::File));
        let read_names: HashSet<&str> = from_file.map(|(_, stored)| stored.as_str()).collect();
        let leaves: Vec<usize> = (0..stored.num_columns())
            .filter(|leaf| read_names.contains(stored.get_column_root(*leaf).name()))
            .collect();
        Ok(FileProjection {
            reads: !leaves.is_empty(),
            leaves,
            columns,
            stored_names,
        })
    }

    /// Name of a requested column in the file, if it comes from it.
    pub(super) fn stored_name(&self, column: &str) -> Option<&str> {
        let at = self
            .columns
            .iter()
            .position(|(field, _)| field.name() == column)?;
        matches!(self.columns[at].1, FileColumnOrigin::File).then(|| self.stored_names[at].as_str())
    }

    /// The layout to read a row group in: strings as dictionaries where most of their pages are,
    /// else as views; binary values, and texts inside of other types, as views where they have a
    /// dictionary.
    pub(super) fn layout(&self, footer: &Footer, group: usize) -> SchemaRef {
        let stored = footer.metadata.file_metadata().schema_descr();
        let group = footer.metadata.row_group(group);
        let root_names = self.leaves.iter();
        let root_names = root_names.map(|leaf| stored.get_column_root(*leaf).name());
        let first_leaves = NameIndex::new(root_names);
        let layout = |field: &FieldRef| -> FieldRef {
            let plain = logical_type(field.data_type());
            let position = first_leaves.get(field.name());
            let leaf = position.map(|position| self.leaves[position]);
            let is_keyed =
                leaf.is_some_and(|leaf| group.column(leaf).dictionary_page_offset().is_some());
            if plain == DataType::Binary && is_keyed {
                // A row would get a copy of its value, however long, before its size is known.
                return with_type(field, DataType::BinaryView);
            }
            if plain != DataType::Utf8 {
                // Dictionaries of other types gain nothing, nor do long offsets.
                if matches!(field.data_type(), DataType::Dictionary(..)) {
                    return with_type(field, plain);
                }
                let first = position.filter(|_| plain.is_nested());
                let is_keyed =
                    first.is_some_and(|first| self.has_keyed_texts(stored, group, first));
                return if is_keyed {
                    with_views(field)
                } else {
                    field.clone()
                };
            }
            let keyed = leaf.is_some_and(|leaf| {
                stored.column(leaf).converted_type() == ConvertedType::UTF8
                    && is_mostly_dictionary(group.column(leaf))
            });
            if keyed {
                with_type(
                    field,
                    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
                )
            } else {
                with_type(field, DataType::Utf8View)
            }
        };
        let fields: Fields = footer.schema.fields().iter().map(layout).collect();
        Arc::new(Schema::new_with_metadata(
            fields,
            footer.schema.metadata().clone(),
        ))
    }

    /// True if texts or bytes of the column whose leaves begin at `first` have a dictionary. Each row would get a copy of
    /// its values, and not all writers store how long these are.
    fn has_keyed_texts(
        &self,
        stored: &SchemaDescriptor,
        group: &RowGroupMetaData,
        first: usize,
    ) -> bool {
        let root = stored.get_column_root_idx(self.leaves[first]);
        let mut leaves = self.leaves[first..]
            .iter()
            .take_while(|leaf| stored.get_column_root_idx(**leaf) == root);
        leaves.any(|leaf| {
            let column = group.column(*leaf);
            column.column_type() == Type::BYTE_ARRAY && column.dictionary_page_offset().is_some()
        })
    }
}

fn with_type(field: &Field, data_type: DataType) -> FieldRef {
    Arc::new(
        Field::new(field.name(), data_type, field.is_nullable())
            .with_metadata(field.metadata().clone()),
    )
}

/// True if most data pages of a column hold keys into its dictionary, so that it pays to build a
/// dictionary for the others.
fn is_mostly_dictionary(column: &ColumnChunkMetaData) -> bool {
    if column.dictionary_page_offset().is_none() {
        return false;
    }
    if let Some(stats) = column.page_encoding_stats() {
        let mut data_pages = 0;
        let mut keyed_pages = 0;
        for page in stats {
            if !matches!(page.page_type, PageType::DATA_PAGE | PageType::DATA_PAGE_V2) {
                continue;
            }
            data_pages += i64::from(page.count);
            if let Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY = page.encoding {
                keyed_pages += i64::from(page.count);
            }
        }
        let (numerator, denominator) = KEYED_PAGES_PART_MIN;
        return data_pages > 0 && data_pages * numerator <= keyed_pages * denominator;
    }
    // Without statistics only the old encoding decides it: there, `PLAIN` means values.
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
