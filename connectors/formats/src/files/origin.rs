//! Origins of requested columns: the file, its folders, or neither.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{Field, FieldRef, Schema};
use forebay_contract::ScanRequest;
use forebay_model::{Fault, FileRange, NameIndex, Result};

use super::hive;

/// Origin of a requested column.
#[derive(Debug, Clone)]
pub(crate) enum FileColumnOrigin {
    /// The file, under the same name.
    File,
    /// The file's folder: one value.
    Folder(ArrayRef),
    /// Nowhere: nulls.
    Nowhere,
}

/// The origins of all requested columns, in order, with their fields in the dataset.
pub(crate) fn resolve_columns(
    piece: &FileRange,
    request: &ScanRequest,
    in_file: impl Fn(&str) -> bool,
) -> Result<Vec<(FieldRef, FileColumnOrigin)>> {
    let fields = request.schema.fields();
    let index = NameIndex::of_fields(fields);
    let origin = |name: &String| {
        let position = index.get(name).ok_or_else(|| {
            Fault::internal(format!(
                "the column `{name}` is wanted but not in the schema"
            ))
        })?;
        let field = &fields[position];
        let origin = match piece.partition.iter().find(|(column, _)| column == name) {
            Some((_, value)) => {
                FileColumnOrigin::Folder(hive::partition_scalar(value, field.data_type())?)
            }
            None if in_file(name) => FileColumnOrigin::File,
            None => FileColumnOrigin::Nowhere,
        };
        Ok((field.clone(), origin))
    };
    request
        .columns
        .iter()
        .map(origin)
        .collect::<Result<_>>()
        .map_err(|fault: Fault| fault.file(&piece.path))
}

/// A batch of all requested columns; `of_file` returns those that the file has.
pub(crate) fn assemble_batch(
    columns: &[(FieldRef, FileColumnOrigin)],
    rows: usize,
    mut of_file: impl FnMut(usize, &Field) -> Result<ArrayRef>,
) -> Result<RecordBatch> {
    let mut fields = Vec::with_capacity(columns.len());
    let mut arrays = Vec::with_capacity(columns.len());
    for (i, (field, origin)) in columns.iter().enumerate() {
        let array = match origin {
            FileColumnOrigin::File => of_file(i, field)?,
            FileColumnOrigin::Folder(one) => hive::repeat_scalar(one, rows)?,
            FileColumnOrigin::Nowhere => new_null_array(field.data_type(), rows),
        };
        fields.push(Field::new(field.name(), array.data_type().clone(), true));
        arrays.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::new(Schema::new(fields)),
        arrays,
        &options,
    )?)
}
