//! The columns of a run, as a table has them.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Schema, SchemaRef, TimeUnit};
use delta_kernel::engine::arrow_conversion::TryFromArrow as _;
use delta_kernel::schema::{StructField, StructType};
use forebay_model::{Fault, Result, codes, type_words};

use super::table_types::table_schema;

/// The columns that a run writes.
#[derive(Debug)]
pub(super) struct WrittenColumns {
    /// Schema of all columns in the types of tables.
    pub(super) schema: SchemaRef,
    /// Schema of all columns in the types of the log.
    pub(super) fields: StructType,
    /// Partition columns, which files do not hold, in order.
    pub(super) partition_by: Vec<String>,
}

impl WrittenColumns {
    pub(super) fn new(schema: &Schema, partition_by: &[String]) -> Result<WrittenColumns> {
        let schema = table_schema(schema)?;
        let mut seen = BTreeMap::new();
        for field in schema.fields() {
            // Programs that read tables do not distinguish names by case.
            if let Some(other) = seen.insert(field.name().to_lowercase(), field.name()) {
                let message = format!(
                    "the columns `{other}` and `{}` of a Delta table differ in case only",
                    field.name()
                );
                return Err(Fault::new(codes::DUPLICATE, message)
                    .column(field.name())
                    .hint("rename one of them"));
            }
        }
        for name in partition_by {
            let data_type = schema
                .field_with_name(name)
                .ok()
                .map(|field| field.data_type());
            if let Some(data_type) = data_type.filter(|data_type| !is_partition_type(data_type)) {
                let message = format!(
                    "a Delta table cannot be partitioned by `{name}`, which is {}",
                    type_words(data_type)
                );
                return Err(Fault::new(codes::UNSUPPORTED, message)
                    .column(name)
                    .hint("choose a string, a date or an integer"));
            }
        }
        if partition_by.len() == schema.fields().len() {
            let fault = Fault::new(
                codes::UNSUPPORTED,
                "a Delta table cannot be partitioned by all of its columns",
            );
            return Err(fault.hint("leave one out of `partition_by`"));
        }
        let fields = StructType::try_from_arrow(schema.as_ref())?;
        Ok(WrittenColumns {
            schema,
            fields,
            partition_by: partition_by.to_vec(),
        })
    }

    /// The columns of a file.
    pub(super) fn file_schema(&self) -> Schema {
        let fields = self
            .schema
            .fields()
            .iter()
            .filter(|field| !self.partition_by.contains(field.name()));
        Schema::new(fields.cloned().collect::<Vec<_>>())
    }

    /// True if the table needs the feature of timestamps without a zone.
    pub(super) fn has_local_times(&self) -> bool {
        self.schema
            .fields()
            .iter()
            .any(|field| holds_local_times(field.data_type()))
    }

    /// The schema of a table that gets the columns which it lacks, as the log writes it.
    pub(super) fn with_added<'t>(
        &self,
        table: impl Iterator<Item = &'t StructField>,
        added: &[&str],
    ) -> Result<String> {
        let added_fields = self
            .fields
            .fields()
            .filter(|field| added.contains(&field.name().as_str()));
        let table_type = StructType::try_new(table.cloned().chain(added_fields.cloned()));
        let table_type =
            table_type.map_err(|error| Fault::internal("the columns of a table").cause(error))?;
        schema_text(&table_type)
    }
}

/// A schema as the log writes it.
pub(super) fn schema_text(schema: &StructType) -> Result<String> {
    serde_json::to_string(schema)
        .map_err(|error| Fault::internal("the schema of a table").cause(error))
}

fn is_partition_type(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Utf8
                | DataType::Date32
                | DataType::Timestamp(..)
                | DataType::Decimal128(..)
        )
}

fn holds_local_times(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(TimeUnit::Microsecond, None) => true,
        DataType::List(item) | DataType::Map(item, _) => holds_local_times(item.data_type()),
        DataType::Struct(fields) => fields
            .iter()
            .any(|field| holds_local_times(field.data_type())),
        _ => false,
    }
}
