//! Columns that processes compute from batches of rows, and checks of what they return.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::array::{Array, ArrayRef, RecordBatch, new_empty_array};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::array_value_to_string;
use forebay_model::{Fault, Result, codes, logical_type, shorten, type_words};

use super::process::{FunctionProcess, FunctionProgram};

/// Rows of a batch that a fault shows.
const SHOWN_ROWS: usize = 3;

/// A function in processes: one for each thread that computes it, from its first batch on.
pub(super) struct FunctionCall {
    /// The program of the processes.
    pub program: Arc<FunctionProgram>,
    /// The columns that the processes receive.
    pub inputs: SchemaRef,
    /// The columns that they return.
    pub outputs: Vec<Field>,
    /// Most rows of a batch.
    pub batch_rows: usize,
    /// Most time for the answer to a batch.
    pub timeout: Duration,
    /// Processes that no thread uses now.
    pub idle: Mutex<Vec<FunctionProcess>>,
}

impl Drop for FunctionCall {
    fn drop(&mut self) {
        // All processes end side by side.
        for process in self.idle_processes().iter_mut() {
            process.end_input();
        }
    }
}

impl FunctionCall {
    /// The returned columns of rows.
    pub fn apply(&self, inputs: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>> {
        if rows == 0 {
            let types = self.outputs.iter().map(Field::data_type);
            return Ok(types.map(new_empty_array).collect());
        }
        let batch = self.batch(inputs)?;
        let mut process = self.idle_or_new()?;
        let mut answers = Vec::new();
        let mut begin = 0;
        while begin < rows {
            let piece = batch.slice(begin, self.batch_rows.min(rows - begin));
            let answer = process.call(piece.clone(), self.timeout);
            // A process that failed ends here; other threads and batches have processes of their own.
            let columns = answer
                .and_then(|answer| self.checked(&answer, piece.num_rows()))
                .map_err(|fault| located(fault, begin as u64, &piece))?;
            answers.push(columns);
            begin += piece.num_rows();
        }
        self.idle_processes().push(process);
        self.joined(&answers)
    }

    fn idle_processes(&self) -> MutexGuard<'_, Vec<FunctionProcess>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle_or_new(&self) -> Result<FunctionProcess> {
        let idle = self.idle_processes().pop();
        match idle {
            Some(process) => Ok(process),
            None => FunctionProcess::start(&self.program, self.inputs.clone()),
        }
    }

    /// The rows in the types of the stream: all batches have one schema.
    fn batch(&self, inputs: &[ArrayRef]) -> Result<RecordBatch> {
        let mut columns = Vec::with_capacity(inputs.len());
        for (column, field) in inputs.iter().zip(self.inputs.fields()) {
            columns.push(with_type(column, field.data_type())?);
        }
        Ok(RecordBatch::try_new(self.inputs.clone(), columns)?)
    }

    /// The declared columns of an answer.
    fn checked(&self, answer: &RecordBatch, rows: usize) -> Result<Vec<ArrayRef>> {
        let name = &self.program.name;
        if answer.num_rows() != rows {
            let message = format!("{name} returned {} rows for {rows}", answer.num_rows());
            let fault = Fault::new(codes::FUNCTION, message);
            return Err(fault.hint("it must return one row for each row, in the same order"));
        }
        let schema = answer.schema();
        self.refuse_others(&schema)?;
        self.refuse_repeated(&schema)?;
        let mut columns = Vec::with_capacity(self.outputs.len());
        for field in &self.outputs {
            let Some(column) = answer.column_by_name(field.name()) else {
                let message = format!("{name} returned no column `{}`", field.name());
                return Err(Fault::new(codes::FUNCTION, message)
                    .column(field.name())
                    .hint(returned_columns(&schema)));
            };
            columns.push(self.checked_column(column, field)?);
        }
        Ok(columns)
    }

    fn refuse_others(&self, schema: &Schema) -> Result<()> {
        for field in schema.fields() {
            if self
                .outputs
                .iter()
                .any(|output| output.name() == field.name())
            {
                continue;
            }
            let message = format!(
                "{} returned a column `{}` that `returns` does not declare",
                self.program.name,
                field.name()
            );
            return Err(Fault::new(codes::FUNCTION, message)
                .column(field.name())
                .hint("declare it under `returns`, or return the declared columns alone"));
        }
        Ok(())
    }

    fn refuse_repeated(&self, schema: &Schema) -> Result<()> {
        let mut names = HashSet::new();
        for field in schema.fields() {
            if !names.insert(field.name()) {
                let message = format!("{} returned `{}` twice", self.program.name, field.name());
                return Err(Fault::new(codes::FUNCTION, message)
                    .column(field.name())
                    .hint("return each of the declared columns once"));
            }
        }
        Ok(())
    }

    fn checked_column(&self, column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
        if logical_type(column.data_type()) != *field.data_type() {
            let message = format!(
                "{} returned {} as `{}`, which is declared as {}",
                self.program.name,
                type_words(column.data_type()),
                field.name(),
                type_words(field.data_type())
            );
            return Err(Fault::new(codes::FUNCTION, message)
                .column(field.name())
                .hint("declare that type under `returns`, or convert the column in the function"));
        }
        let nulls = column.logical_nulls();
        if let Some(nulls) = nulls
            && nulls.null_count() > 0
            && !field.is_nullable()
        {
            let rows: Vec<u64> = (0..column.len() as u64)
                .filter(|row| nulls.is_null(*row as usize))
                .collect();
            let message = format!(
                "{} returned null as `{}` in {} of {} rows",
                self.program.name,
                field.name(),
                nulls.null_count(),
                column.len()
            );
            return Err(Fault::new(codes::FUNCTION, message)
                .column(field.name())
                .rows(rows)
                .hint("list the column under `nullable` if it may be null"));
        }
        with_type(column, field.data_type())
    }

    /// The columns of all answers, one after the other.
    fn joined(&self, answers: &[Vec<ArrayRef>]) -> Result<Vec<ArrayRef>> {
        if let [columns] = answers {
            return Ok(columns.clone());
        }
        let mut joined = Vec::with_capacity(self.outputs.len());
        for position in 0..self.outputs.len() {
            let parts: Vec<&dyn Array> = answers
                .iter()
                .map(|columns| columns[position].as_ref())
                .collect();
            joined.push(concat(&parts)?);
        }
        Ok(joined)
    }
}

fn with_type(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if column.data_type() == data_type {
        return Ok(column.clone());
    }
    Ok(cast(column, data_type)?)
}

fn returned_columns(schema: &Schema) -> String {
    let names: Vec<String> = schema
        .fields()
        .iter()
        .map(|field| format!("`{}`", field.name()))
        .collect();
    format!("it returned {}", names.join(", "))
}

/// A fault of a batch, with the rows that it is about. `begin` is the first row of the batch.
pub(super) fn located(fault: Fault, begin: u64, batch: &RecordBatch) -> Fault {
    if fault.code() != codes::FUNCTION {
        return fault;
    }
    let mut named_rows: Vec<usize> = Vec::new();
    for row in &fault.site().rows {
        named_rows.extend(usize::try_from(*row).ok());
    }
    named_rows.retain(|row| *row < batch.num_rows());
    let mut label = "the rows";
    if named_rows.is_empty() {
        label = "the first rows of the batch";
        named_rows.extend(0..batch.num_rows());
    }
    named_rows.truncate(SHOWN_ROWS);
    let rows: Vec<String> = named_rows.iter().map(|row| row_text(batch, *row)).collect();
    fault
        .map_rows(|row| Some(begin + row))
        .note(format!("{label} are\n{}", rows.join("\n")))
}

/// The values of a row by their columns.
fn row_text(batch: &RecordBatch, row: usize) -> String {
    let schema = batch.schema();
    let mut values = Vec::new();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let mut text = "null".to_owned();
        if column.is_valid(row) {
            text = shorten(&array_value_to_string(column, row).unwrap_or_default());
        }
        values.push(format!("{}: {text}", field.name()));
    }
    values.join(", ")
}
