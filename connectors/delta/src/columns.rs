//! The columns of a table, and their names in its files.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, GenericListArray, MapArray, OffsetSizeTrait, StructArray,
};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use delta_kernel::engine::arrow_conversion::TryIntoArrow as _;
use delta_kernel::schema::{ColumnMetadataKey, DataType as TableType, MetadataValue, StructField};
use delta_kernel::table_features::ColumnMappingMode;
use forebay_model::{NameIndex, Result, logical_type};

use super::snapshot::TableSnapshot;

/// Key of Parquet's field ids in the metadata of an Arrow field.
const FIELD_ID: &str = "PARQUET:field_id";

/// The name of a column, or of a field inside of one, in the files and in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StoredColumn {
    name: String,
    /// Field id in the files, where the table maps by ids.
    id: Option<String>,
}

impl StoredColumn {
    fn of(field: &StructField, mode: ColumnMappingMode) -> StoredColumn {
        let id = match field.get_config_value(&ColumnMetadataKey::ColumnMappingId) {
            Some(MetadataValue::Number(id)) if mode == ColumnMappingMode::Id => {
                Some(id.to_string())
            }
            _ => None,
        };
        StoredColumn {
            name: field.physical_name(mode).to_owned(),
            id,
        }
    }
}

/// The fields inside of a column, where files have other names for them.
#[derive(Debug)]
enum StoredParts {
    /// No fields.
    Value,
    Struct(Vec<StoredPart>),
    List(Box<StoredParts>),
    Map(Box<[StoredParts; 2]>),
}

/// A field of a struct.
#[derive(Debug)]
struct StoredPart {
    name: String,
    stored: StoredColumn,
    parts: StoredParts,
}

impl StoredParts {
    fn of(data_type: &TableType, mode: ColumnMappingMode) -> StoredParts {
        match data_type {
            TableType::Struct(fields) => {
                let mut parts = Vec::new();
                for field in fields.fields() {
                    parts.push(StoredPart {
                        name: field.name().clone(),
                        stored: StoredColumn::of(field, mode),
                        parts: StoredParts::of(&field.data_type, mode),
                    });
                }
                StoredParts::Struct(parts)
            }
            TableType::Array(list) => {
                StoredParts::List(Box::new(StoredParts::of(&list.element_type, mode)))
            }
            TableType::Map(map) => StoredParts::Map(Box::new([
                StoredParts::of(&map.key_type, mode),
                StoredParts::of(&map.value_type, mode),
            ])),
            _ => StoredParts::Value,
        }
    }

    /// Values of a file under the names that the table has for their fields. Fields that the table does not have are
    /// left out.
    fn named(&self, values: &ArrayRef) -> Result<ArrayRef> {
        match (self, values.data_type()) {
            (StoredParts::Struct(parts), DataType::Struct(_)) => {
                named_struct(values.as_struct(), parts)
            }
            (StoredParts::List(items), DataType::List(_)) => {
                named_list(values.as_list::<i32>(), items)
            }
            (StoredParts::List(items), DataType::LargeList(_)) => {
                named_list(values.as_list::<i64>(), items)
            }
            (StoredParts::Map(parts), DataType::Map(_, is_sorted)) => {
                named_map(values.as_map(), parts, *is_sorted)
            }
            _ => Ok(values.clone()),
        }
    }
}

fn named_struct(values: &StructArray, parts: &[StoredPart]) -> Result<ArrayRef> {
    let mut fields: Vec<FieldRef> = Vec::with_capacity(parts.len());
    let mut columns = Vec::with_capacity(parts.len());
    for part in parts {
        let mut stored = values.fields().iter();
        let position = match &part.stored.id {
            None => stored.position(|field| *field.name() == part.stored.name),
            Some(id) => stored.position(|field| field.metadata().get(FIELD_ID) == Some(id)),
        };
        if let Some(position) = position {
            let column = part.parts.named(values.column(position))?;
            let field = Field::new(&part.name, column.data_type().clone(), true);
            fields.push(field.into());
            columns.push(column);
        }
    }
    Ok(Arc::new(StructArray::try_new_with_length(
        fields.into(),
        columns,
        values.nulls().cloned(),
        values.len(),
    )?))
}

fn named_list<O: OffsetSizeTrait>(
    lists: &GenericListArray<O>,
    items: &StoredParts,
) -> Result<ArrayRef> {
    let values = items.named(lists.values())?;
    let item = Field::new_list_field(values.data_type().clone(), true);
    Ok(Arc::new(GenericListArray::<O>::try_new(
        item.into(),
        lists.offsets().clone(),
        values,
        lists.nulls().cloned(),
    )?))
}

fn named_map(maps: &MapArray, parts: &[StoredParts; 2], is_sorted: bool) -> Result<ArrayRef> {
    let [key_parts, value_parts] = parts;
    let keys = key_parts.named(maps.keys())?;
    let values = value_parts.named(maps.values())?;
    let fields = vec![
        Field::new("key", keys.data_type().clone(), false),
        Field::new("value", values.data_type().clone(), true),
    ];
    let entries = StructArray::try_new(fields.into(), vec![keys, values], None)?;
    let entry = Field::new("entries", entries.data_type().clone(), false);
    Ok(Arc::new(MapArray::try_new(
        entry.into(),
        maps.offsets().clone(),
        entries,
        maps.nulls().cloned(),
        is_sorted,
    )?))
}

/// The columns of a table.
#[derive(Debug, Default)]
pub(super) struct TableColumns {
    /// Columns in the table's order, with logical types.
    pub(super) fields: Vec<FieldRef>,
    /// Columns whose values are in the log.
    pub(super) partitions: Vec<String>,
    /// Stored columns that have other names in the files.
    renamed: BTreeMap<String, StoredColumn>,
    /// The fields of those that are nested.
    nested: BTreeMap<String, StoredParts>,
}

impl TableColumns {
    /// The columns of a table.
    pub(super) fn new(table: &TableSnapshot) -> Result<TableColumns> {
        let configuration = table.snapshot.table_configuration();
        let mode = configuration.column_mapping_mode();
        let partitions = configuration.logical_partition_columns().to_vec();
        let mut fields = Vec::new();
        let mut renamed = BTreeMap::new();
        let mut nested = BTreeMap::new();
        for column in table.snapshot.schema().fields() {
            let stored: Field = column.try_into_arrow()?;
            let data_type = plain_type(stored.data_type());
            if mode != ColumnMappingMode::None {
                if data_type.is_nested() {
                    let parts = StoredParts::of(&column.data_type, mode);
                    nested.insert(column.name().clone(), parts);
                }
                renamed.insert(column.name().clone(), StoredColumn::of(column, mode));
            }
            fields.push(Field::new(column.name(), data_type, column.is_nullable()).into());
        }
        Ok(TableColumns {
            fields,
            partitions,
            renamed,
            nested,
        })
    }

    /// A column's name in the log.
    pub(super) fn logged_name<'a>(&'a self, column: &'a str) -> &'a str {
        self.renamed
            .get(column)
            .map_or(column, |stored| &stored.name)
    }

    /// Gives the name of a column in a file of this schema; `None` where the file does not have it.
    pub(super) fn stored_names<'f>(
        &'f self,
        file: &'f Schema,
    ) -> impl Fn(&str) -> Option<String> + 'f {
        let fields = file.fields();
        let names = NameIndex::of_fields(fields);
        let field_ids = fields.iter().map(|field| field.metadata().get(FIELD_ID));
        let field_ids = NameIndex::new(field_ids.map(|id| id.map_or("", String::as_str)));
        move |column| {
            let position = match self.renamed.get(column) {
                None => names.get(column),
                Some(StoredColumn { name, id: None }) => names.get(name),
                Some(StoredColumn { id: Some(id), .. }) => field_ids.get(id),
            };
            Some(file.field(position?).name().clone())
        }
    }

    /// The values of a column of a file, with the names that their fields have in the table.
    pub(super) fn with_table_names(&self, column: &str, values: &ArrayRef) -> Result<ArrayRef> {
        match self.nested.get(column) {
            Some(parts) => parts.named(values),
            None => Ok(values.clone()),
        }
    }

    pub(super) fn data_type(&self, column: &str) -> Option<&DataType> {
        self.fields
            .iter()
            .find(|field| field.name() == column)
            .map(|field| field.data_type())
    }
}

/// A type without the metadata that the log adds to its parts.
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
