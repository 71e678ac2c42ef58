//! Tables to and from Python by Arrow's C interface: pyarrow, Polars, pandas, DuckDB and others speak it.

use std::ffi::CStr;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, FixedSizeListArray, RecordBatch, RecordBatchIterator, RecordBatchReader,
    StructArray,
};
use arrow::array::{Float32Array, Int32Array, Int64Array};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field as ArrowField, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use forebay::feed::{BatchFeatures, FeatureField, FeedBatch, PartRole, ValueType};
use forebay::model::{Fault, codes, type_label};
use forebay::present::cells::CellTexts;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::fault::IntoPyResult;

/// The name of capsules that hold a stream.
const STREAM: &CStr = c"arrow_array_stream";

/// Rows that a table shows of itself.
const ROWS_SHOWN: usize = 20;

/// A capsule with a stream of batches.
pub(crate) fn stream_capsule<'py>(
    py: Python<'py>,
    schema: SchemaRef,
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
) -> PyResult<Bound<'py, PyCapsule>> {
    let stream = FFI_ArrowArrayStream::new(Box::new(RecordBatchIterator::new(batches, schema)));
    PyCapsule::new_with_value(py, stream, STREAM)
}

/// Rows and columns: anything that knows Arrow's C interface can take it, such as
/// `pyarrow.table(it)` and `polars.DataFrame(it)`.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Table {
    batch: RecordBatch,
}

impl Table {
    pub fn new(batch: RecordBatch) -> Table {
        Table { batch }
    }

    /// The columns of a batch by their own names.
    pub fn of_batch(batch: &FeedBatch, features: &BatchFeatures) -> Result<Table, Fault> {
        if features.series.is_some() {
            return Err(Fault::new(
                codes::UNSUPPORTED,
                "sequences are no table: each row has several steps",
            )
            .hint("take them as `torch`, `numpy` or `raw`"));
        }
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        let groups = [
            (PartRole::Dense, features.dense.as_slice()),
            (PartRole::Categorical, features.categorical.as_slice()),
            (PartRole::Label, features.label.as_slice()),
            (PartRole::Weight, features.weight.as_slice()),
        ];
        for (role, of_role) in groups {
            let width: usize = of_role.iter().map(|field| field.width as usize).sum();
            let mut first = 0;
            for field in of_role {
                let column = column(batch, role, field, first, width)?;
                fields.push(ArrowField::new(
                    &field.column,
                    column.data_type().clone(),
                    false,
                ));
                columns.push(column);
                first += field.width as usize;
            }
        }
        Ok(Table {
            batch: RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?,
        })
    }
}

/// A column of a part: each row has `width` values, of which those of the column begin at `first`.
fn column(
    batch: &FeedBatch,
    role: PartRole,
    field: &FeatureField,
    first: usize,
    width: usize,
) -> Result<ArrayRef, Fault> {
    let column_width = field.width as usize;
    fn pick<T: Copy>(
        values: &[T],
        rows: usize,
        first: usize,
        column_width: usize,
        width: usize,
    ) -> Vec<T> {
        let rows = values.chunks_exact(width.max(1)).take(rows);
        rows.flat_map(|row| row[first..first + column_width].iter().copied())
            .collect()
    }
    let data_type = batch.layout().part(role).map(|part| part.data_type);
    let rows = batch.rows();
    let values: ArrayRef = match data_type {
        Some(ValueType::F32) => Arc::new(Float32Array::from(pick(
            batch.numbers::<f32>(role),
            rows,
            first,
            column_width,
            width,
        ))),
        Some(ValueType::I32) => Arc::new(Int32Array::from(pick(
            batch.numbers::<i32>(role),
            rows,
            first,
            column_width,
            width,
        ))),
        Some(ValueType::I64) => Arc::new(Int64Array::from(pick(
            batch.numbers::<i64>(role),
            rows,
            first,
            column_width,
            width,
        ))),
        _ => {
            let message = format!(
                "`{}` has half precision, which tables do not hold",
                field.column
            );
            return Err(Fault::new(codes::UNSUPPORTED, message).hint("set `dense_type` to `f32`"));
        }
    };
    if column_width == 1 {
        return Ok(values);
    }
    let item = Arc::new(ArrowField::new_list_field(
        values.data_type().clone(),
        false,
    ));
    Ok(Arc::new(FixedSizeListArray::try_new(
        item,
        column_width as i32,
        values,
        None,
    )?))
}

#[pymethods]
impl Table {
    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch
            .schema_ref()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// The first rows as text.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let first_rows = self.batch.slice(0, self.batch.num_rows().min(ROWS_SHOWN));
        let text = forebay::present::rows::short_table(&[first_rows]).into_py_result(py)?;
        Ok(if self.batch.num_rows() > ROWS_SHOWN {
            format!("{text}of {} in all\n", self.batch.num_rows())
        } else {
            text
        })
    }

    /// The first rows for a notebook.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let first_rows = self.batch.slice(0, self.batch.num_rows().min(ROWS_SHOWN));
        html_table(&first_rows, self.batch.num_rows()).into_py_result(py)
    }

    /// All rows as a pyarrow Table.
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.call_method1("table", (slf,))
    }

    /// All rows as a Polars DataFrame.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("polars")?.call_method1("DataFrame", (slf,))
    }

    /// All rows as a pandas DataFrame; this needs pyarrow, too.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Table::to_pyarrow(slf)?.call_method0("to_pandas")
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface permits another schema than the requested one.
        let _ = requested_schema;
        stream_capsule(
            py,
            self.batch.schema(),
            std::iter::once(Ok(self.batch.clone())),
        )
    }
}

/// Style of the cells of a type: notebooks align all of them to the right, and break dates.
fn cell_style(kind: &DataType) -> &'static str {
    match kind {
        kind if kind.is_numeric() => "",
        kind if kind.is_temporal() => " style=\"white-space:nowrap\"",
        _ => " style=\"text-align:left\"",
    }
}

/// Text in which nothing is markup.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A table of a page, with the number of all rows below it.
fn html_table(first_rows: &RecordBatch, rows: usize) -> Result<String, Fault> {
    let schema = first_rows.schema_ref();
    let heads = schema.fields().iter().map(|field| {
        let style = cell_style(field.data_type());
        let name = escape_html(field.name());
        format!(
            "<th{style}>{name}<br><small>{}</small></th>",
            type_label(field.data_type())
        )
    });
    let columns = first_rows
        .columns()
        .iter()
        .map(|column| Ok((cell_style(column.data_type()), CellTexts::new(column)?)));
    let columns = columns.collect::<Result<Vec<_>, Fault>>()?;
    let cell = |(style, column): &(&str, CellTexts<'_>), row: usize| {
        format!("<td{style}>{}</td>", escape_html(&column.text(row)))
    };
    let cells = |row: usize| -> String { columns.iter().map(|column| cell(column, row)).collect() };
    let body: String = (0..first_rows.num_rows())
        .map(|row| format!("<tr>{}</tr>", cells(row)))
        .collect();
    let head: String = heads.collect();
    Ok(format!(
        "<table style=\"margin-left:0\"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>\
         <p>{rows} rows</p>"
    ))
}

/// The batches of something that knows Arrow's C interface.
pub(crate) fn batches(table: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    reader(table)?.collect::<Result<_, _>>().map_err(broken)
}

/// The rows of something that knows Arrow's C interface, as one batch.
pub(crate) fn whole_batch(table: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let reader = reader(table)?;
    let schema = reader.schema();
    let batches: Vec<RecordBatch> = reader.collect::<Result<_, _>>().map_err(broken)?;
    concat_batches(&schema, &batches).map_err(broken)
}

fn broken(error: ArrowError) -> PyErr {
    PyValueError::new_err(format!("the table cannot be read: {error}"))
}

/// Reads the batches of something that knows Arrow's C interface, one after the other.
pub(crate) fn reader(table: &Bound<'_, PyAny>) -> PyResult<Box<dyn RecordBatchReader + Send>> {
    if table.hasattr("__arrow_c_stream__")? {
        let capsule = table
            .call_method0("__arrow_c_stream__")?
            .cast_into::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(STREAM))?.as_ptr();
        // SAFETY: the capsule's name promises a stream, which moves out of it and is released by us.
        let reader = unsafe { ArrowArrayStreamReader::from_raw(pointer.cast()) }.map_err(broken)?;
        return Ok(Box::new(reader));
    }
    if table.hasattr("__arrow_c_array__")? {
        let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) =
            table.call_method0("__arrow_c_array__")?.extract()?;
        let schema = schema
            .pointer_checked(Some(c"arrow_schema"))?
            .as_ptr()
            .cast::<FFI_ArrowSchema>();
        let array = array
            .pointer_checked(Some(c"arrow_array"))?
            .as_ptr()
            .cast::<FFI_ArrowArray>();
        // SAFETY: the names promise the structures; the array moves out of its capsule, the schema is
        // only read.
        let data =
            unsafe { from_ffi(FFI_ArrowArray::from_raw(array), &*schema) }.map_err(broken)?;
        let array = arrow::array::make_array(data);
        if !matches!(array.data_type(), DataType::Struct(_)) {
            return Err(PyTypeError::new_err(
                "the array is no table: give rows of named columns",
            ));
        }
        let rows: StructArray = array.as_struct().clone();
        let batch = RecordBatch::from(rows);
        let schema = batch.schema();
        return Ok(Box::new(RecordBatchIterator::new([Ok(batch)], schema)));
    }
    Err(PyTypeError::new_err(
        "no table: give something with `__arrow_c_stream__`, such as a pyarrow Table, a Polars or \
         a pandas DataFrame",
    ))
}
