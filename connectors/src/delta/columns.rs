//! The columns of a table, and their names in its files.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use delta_kernel::engine::arrow_conversion::TryIntoArrow as _;
use delta_kernel::schema::{ColumnMetadataKey, MetadataValue};
use delta_kernel::table_features::ColumnMappingMode;
use forebay_model::{Fault, Result, codes, logical_type};

use super::snapshot::TableSnapshot;

/// Where Parquet's field ids are kept in a schema of Arrow.
const FIELD_ID: &str = "PARQUET:field_id";

/// The name of a column in the files and in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StoredColumn {
    name: String,
    /// By which files name it, where the table says so.
    id: Option<String>,
}

/// The columns of a table.
#[derive(Debug, Default)]
pub(super) struct TableColumns {
    /// In the table's order, with logical types.
    pub(super) fields: Vec<FieldRef>,
    /// Those whose values the log tells.
    pub(super) partitions: Vec<String>,
    /// Of columns that have other names in the files.
    renamed: BTreeMap<String, StoredColumn>,
}

impl TableColumns {
    /// The columns of a table, of which the wanted ones are read; all if none is named.
    pub(super) fn new(table: &TableSnapshot, wanted: Option<&[String]>) -> Result<TableColumns> {
        let is_read = |name: &String| wanted.is_none_or(|wanted| wanted.contains(name));
        let configuration = table.snapshot.table_configuration();
        let mode = configuration.column_mapping_mode();
        let partitions = configuration.logical_partition_columns().to_vec();
        let (mut fields, mut renamed) = (Vec::new(), BTreeMap::new());
        for column in table.snapshot.schema().fields() {
            let stored: Field = column.try_into_arrow()?;
            let data_type = plain_type(stored.data_type());
            if mode != ColumnMappingMode::None {
                if data_type.is_nested() && is_read(column.name()) {
                    let message = format!(
                        "the column `{}` is nested, and the table maps columns",
                        column.name()
                    );
                    let fault = Fault::new(codes::UNSUPPORTED, message).column(column.name());
                    return Err(fault.hint(
                        "name the other columns under `columns`, or turn column mapping off",
                    ));
                }
                let id = match column.get_config_value(&ColumnMetadataKey::ColumnMappingId) {
                    Some(MetadataValue::Number(id)) if mode == ColumnMappingMode::Id => {
                        Some(id.to_string())
                    }
                    _ => None,
                };
                let name = column.physical_name(mode).to_owned();
                renamed.insert(column.name().clone(), StoredColumn { name, id });
            }
            fields.push(Field::new(column.name(), data_type, column.is_nullable()).into());
        }
        Ok(TableColumns {
            fields,
            partitions,
            renamed,
        })
    }

    /// A column's name in the log.
    pub(super) fn logged_name<'a>(&'a self, column: &'a str) -> &'a str {
        self.renamed
            .get(column)
            .map_or(column, |stored| &stored.name)
    }

    /// A column's name in a file of this schema; `None` where the file does not have it.
    pub(super) fn stored_name(&self, file: &Schema, column: &str) -> Option<String> {
        let by_name = |name: &str| {
            file.fields()
                .find(name)
                .map(|(_, field)| field.name().clone())
        };
        match self.renamed.get(column) {
            None => by_name(column),
            Some(StoredColumn { name, id: None }) => by_name(name),
            Some(StoredColumn { id: Some(id), .. }) => {
                let mut fields = file.fields().iter();
                fields
                    .find(|field| field.metadata().get(FIELD_ID) == Some(id))
                    .map(|field| field.name().clone())
            }
        }
    }

    pub(super) fn data_type(&self, column: &str) -> Option<&DataType> {
        self.fields
            .iter()
            .find(|field| field.name() == column)
            .map(|field| field.data_type())
    }
}

/// A type without what the log notes beside its parts.
fn plain_type(data_type: &DataType) -> DataType {
    let plain = |field: &FieldRef| -> FieldRef {
        Field::new(
            field.name(),
            plain_type(field.data_type()),
            field.is_nullable(),
        )
        .into()
    };
    match data_type {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain).collect()),
        DataType::List(item) => DataType::List(plain(item)),
        DataType::Map(entries, sorted) => DataType::Map(plain(entries), *sorted),
        other => logical_type(other),
    }
}
