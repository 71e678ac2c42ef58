//! Functions of whole series over rows that are sorted by series and time.
//!
//! Batches are cut where a series ends, and the parts of a series that goes over several batches are joined. Several
//! whole series are computed side by side.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use forebay_model::{Fault, Result, SpecLocation, codes};
use forebay_plan::{BoundOp, CheckStop, ColumnKernel, GatherOp, SeriesOp, with_stop_check};
use forebay_storage::MemoryBudget;
use forebay_threads::parallel_map;

use crate::join_keys::JoinKeys;
use crate::sorted_operator::{BatchFn, GiveOutputsFn, SortedOperator};

/// Whole series that wait for a thread, for each thread.
const SERIES_PER_THREAD: usize = 16;

/// Copies of the rows of series: as they come, joined, as they are sent to a process, and its answer.
const COPIES: usize = 4;

/// Rows of a batch of outputs at most.
const BATCH_ROWS: usize = 8192;

/// A function of whole series, over rows sorted by series and time.
pub struct SeriesOperator {
    function: Arc<SeriesFunction>,
}

/// Resources of a function.
pub struct SeriesResources {
    pub memory: MemoryBudget,
    pub threads: usize,
    pub check_stop: CheckStop,
}

/// The rows that a function is given.
pub struct SeriesInput<'a> {
    /// Their columns, with the row's position as the last one.
    pub schema: &'a Schema,
    /// The columns that group rows, with the types in which they are compared.
    pub keys: &'a [(String, DataType)],
}

struct SeriesFunction {
    keys: JoinKeys,
    /// Position of the time in a batch.
    time: Option<usize>,
    /// Positions of the columns that the function receives.
    inputs: Vec<usize>,
    kernel: ColumnKernel,
    /// The outputs and the row's position.
    schema: SchemaRef,
    /// Bytes of rows that are held at most.
    bytes_max: usize,
    resources: SeriesResources,
    label: String,
    at: Option<SpecLocation>,
}

/// The outputs of a function, followed by the row's position.
pub fn series_outputs(series: &SeriesOp) -> SchemaRef {
    let mut fields = Vec::with_capacity(series.writes.len() + 1);
    for field in &series.writes {
        fields.push(field.clone().with_nullable(true));
    }
    fields.push(Field::new(GatherOp::ROW, DataType::UInt64, false));
    Arc::new(Schema::new(fields))
}

impl SeriesOperator {
    /// The function of an operation.
    pub fn new(
        op: &BoundOp,
        series: &SeriesOp,
        input: &SeriesInput<'_>,
        resources: SeriesResources,
    ) -> Result<SeriesOperator> {
        let time = match &series.time {
            Some(time) => Some(input.schema.index_of(time)?),
            None => None,
        };
        let mut inputs = Vec::with_capacity(series.reads.len());
        for name in &series.reads {
            inputs.push(input.schema.index_of(name)?);
        }
        let function = SeriesFunction {
            keys: JoinKeys::new(input.schema, input.keys)?,
            time,
            inputs,
            kernel: series.kernel.clone(),
            schema: series_outputs(series),
            bytes_max: resources.memory.waiting_bytes() / COPIES,
            resources,
            label: op.label.clone(),
            at: op.at.clone(),
        };
        Ok(SeriesOperator {
            function: Arc::new(function),
        })
    }
}

impl SortedOperator for SeriesOperator {
    fn schema(&self) -> &SchemaRef {
        &self.function.schema
    }

    fn start(&self) -> BatchFn {
        let mut cutter = SeriesCutter {
            function: self.function.clone(),
            last_key: None,
            open: Vec::new(),
            open_bytes: 0,
            whole: Vec::new(),
            whole_bytes: 0,
        };
        Box::new(move |batch, give| match batch {
            Some(batch) => cutter.push(batch, give),
            None => cutter.finish(give),
        })
    }
}

/// Cuts sorted rows into whole series.
struct SeriesCutter {
    function: Arc<SeriesFunction>,
    /// The key of the last row, encoded.
    last_key: Option<Vec<u8>>,
    /// Parts of the series that may go on in the next batch.
    open: Vec<RecordBatch>,
    open_bytes: usize,
    /// Series that are not computed yet.
    whole: Vec<RecordBatch>,
    whole_bytes: usize,
}

impl SeriesCutter {
    fn push(&mut self, batch: &RecordBatch, give: GiveOutputsFn<'_>) -> Result<()> {
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(());
        }
        self.function.refuse_null_times(batch)?;
        if self.function.keys.is_empty() {
            return self.extend(batch.clone(), give);
        }
        let function = self.function.clone();
        let keys = function.keys.rows(batch)?;
        let first_key = keys.row(0);
        if self.last_key.as_deref() != Some(first_key.as_ref()) {
            self.close(give)?;
        }
        let mut begin = 0;
        for row in 1..rows {
            if keys.row(row - 1) != keys.row(row) {
                self.extend(batch.slice(begin, row - begin), give)?;
                self.close(give)?;
                begin = row;
            }
        }
        self.extend(batch.slice(begin, rows - begin), give)?;
        let last_key = keys.row(rows - 1);
        self.last_key = Some(last_key.as_ref().to_vec());
        Ok(())
    }

    /// Adds rows to the series that is open.
    fn extend(&mut self, part: RecordBatch, give: GiveOutputsFn<'_>) -> Result<()> {
        self.open_bytes += row_bytes(&part)?;
        self.open.push(part);
        if self.open_bytes + self.whole_bytes > self.function.bytes_max {
            self.compute(give)?;
        }
        if self.open_bytes > self.function.bytes_max {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// Ends the series that is open.
    fn close(&mut self, give: GiveOutputsFn<'_>) -> Result<()> {
        let parts = std::mem::take(&mut self.open);
        let Some(first) = parts.first() else {
            return Ok(());
        };
        self.whole.push(concat_batches(&first.schema(), &parts)?);
        self.whole_bytes += std::mem::take(&mut self.open_bytes);
        let threads = self.function.resources.threads.max(1);
        if self.whole.len() >= threads * SERIES_PER_THREAD {
            self.compute(give)?;
        }
        Ok(())
    }

    /// Computes the series that are whole, and gives their outputs.
    fn compute(&mut self, give: GiveOutputsFn<'_>) -> Result<()> {
        let whole = std::mem::take(&mut self.whole);
        self.whole_bytes = 0;
        let function = &self.function;
        let threads = function.resources.threads.max(1);
        let computed = parallel_map(threads, whole.len(), &|number| {
            function.compute(&whole[number])
        })?;
        for outputs in computed {
            let mut begin = 0;
            while begin < outputs.num_rows() {
                let rows = BATCH_ROWS.min(outputs.num_rows() - begin);
                give(&outputs.slice(begin, rows))?;
                begin += rows;
            }
        }
        Ok(())
    }

    /// Computes the last series.
    fn finish(&mut self, give: GiveOutputsFn<'_>) -> Result<()> {
        self.close(give)?;
        self.compute(give)
    }

    /// The fault of a series whose rows do not fit into the memory.
    fn too_large(&self) -> Fault {
        let function = &self.function;
        let rows: usize = self.open.iter().map(RecordBatch::num_rows).sum();
        let series = match self.open.first() {
            Some(part) if !function.keys.is_empty() => {
                format!("the series {}", function.keys.text(part, 0))
            }
            _ => "the only series".to_owned(),
        };
        let message = format!(
            "{series} is given to a function as a whole, and its first {rows} rows have {} MiB, of \
             at most {} MiB with --memory {} MiB",
            self.open_bytes.div_ceil(1 << 20),
            function.bytes_max >> 20,
            function.resources.memory.limit_bytes >> 20
        );
        let fault = Fault::new(codes::MEMORY, message);
        let fault = fault.step(&function.label).at(function.at.as_ref());
        fault.hint(
            "raise --memory, give the function fewer columns, or group rows by more keys (`by`)",
        )
    }
}

impl SeriesFunction {
    /// The outputs of a series.
    fn compute(&self, series: &RecordBatch) -> Result<RecordBatch> {
        let mut inputs: Vec<ArrayRef> = Vec::with_capacity(self.inputs.len());
        for position in &self.inputs {
            inputs.push(series.column(*position).clone());
        }
        let check_stop = Some(&self.resources.check_stop);
        let computed = with_stop_check(check_stop, || (self.kernel)(&inputs, series.num_rows()));
        let mut outputs = computed.map_err(|fault| self.located(fault, series))?;
        outputs.push(series.column(series.num_columns() - 1).clone());
        Ok(RecordBatch::try_new(self.schema.clone(), outputs)?)
    }

    /// A fault of a series, with its name. The rows of a series are no rows of a file.
    fn located(&self, fault: Fault, series: &RecordBatch) -> Fault {
        let mut fault = fault.map_rows(|_| None).step(&self.label);
        if !self.keys.is_empty() {
            fault = fault.note(format!("the series is {}", self.keys.text(series, 0)));
        }
        fault.at(self.at.as_ref())
    }

    fn refuse_null_times(&self, batch: &RecordBatch) -> Result<()> {
        let Some(time) = self.time else {
            return Ok(());
        };
        if batch.column(time).logical_null_count() == 0 {
            return Ok(());
        }
        let fault = Fault::new(codes::BAD_ROW, "the time of a row is null");
        let fault = fault.step(&self.label).at(self.at.as_ref());
        Err(fault.hint("filter such rows before the step"))
    }
}

/// Bytes of the rows of a batch, which may be a part of larger columns.
fn row_bytes(batch: &RecordBatch) -> Result<usize> {
    let mut bytes = 0;
    for column in batch.columns() {
        bytes += column.to_data().get_slice_memory_size()?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Date32Array, Int64Array, StringArray, UInt64Array};
    use arrow::datatypes::{Int64Type, UInt64Type};
    use forebay_model::ContentId;
    use forebay_plan::PlanOp;

    use super::*;

    /// Memory in which all series of a test fit.
    const LARGE: u64 = 1 << 30;

    /// For each row, the sum of `x` in the rows of its series behind it, and the number of rows of the series.
    fn later_sums(inputs: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>> {
        let values = inputs[0].as_primitive::<Int64Type>();
        let mut later_sum: i64 = values.values().iter().sum();
        let mut sums = Vec::new();
        for value in values.values() {
            later_sum -= value;
            sums.push(later_sum);
        }
        let counts = Int64Array::from(vec![rows as i64; rows]);
        Ok(vec![Arc::new(Int64Array::from(sums)), Arc::new(counts)])
    }

    fn series_op(keys: &[&str], time: Option<&str>, kernel: ColumnKernel) -> SeriesOp {
        SeriesOp {
            time: time.map(str::to_owned),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            reads: vec!["x".to_owned()],
            writes: vec![
                Field::new("later", DataType::Int64, false),
                Field::new("rows", DataType::Int64, false),
            ],
            kernel,
            looks_ahead: true,
            behind: None,
            code: None,
        }
    }

    fn operator(
        series: &SeriesOp,
        rows: &RecordBatch,
        limit_bytes: u64,
        threads: usize,
    ) -> SeriesOperator {
        let op = BoundOp {
            label: "f.python".to_owned(),
            identity: ContentId::of(b"f"),
            op: PlanOp::Series(series.clone()),
            asks: Vec::new(),
            at: None,
        };
        let schema = rows.schema();
        let mut keys = Vec::new();
        for key in &series.keys {
            let field = schema.field_with_name(key).unwrap();
            keys.push((key.clone(), field.data_type().clone()));
        }
        let input = SeriesInput {
            schema: &schema,
            keys: &keys,
        };
        let resources = SeriesResources {
            memory: MemoryBudget::new(limit_bytes),
            threads,
            check_stop: Arc::new(|| Ok(())),
        };
        SeriesOperator::new(&op, series, &input, resources).unwrap()
    }

    /// The outputs of rows that come in batches of one size.
    fn outputs(
        operator: &SeriesOperator,
        rows: &RecordBatch,
        batch_rows: usize,
    ) -> Result<RecordBatch> {
        let mut run = operator.start();
        let mut outputs: Vec<RecordBatch> = Vec::new();
        let mut begin = 0;
        while begin < rows.num_rows() {
            let length = batch_rows.min(rows.num_rows() - begin);
            let batch = rows.slice(begin, length);
            run(Some(&batch), &mut |computed: &RecordBatch| {
                outputs.push(computed.clone());
                Ok(())
            })?;
            begin += length;
        }
        run(None, &mut |computed: &RecordBatch| {
            outputs.push(computed.clone());
            Ok(())
        })?;
        Ok(concat_batches(operator.schema(), &outputs)?)
    }

    /// Rows of series of these keys; `x` counts from 1, and positions count down.
    fn rows(keys: &[Option<&str>]) -> RecordBatch {
        let count = keys.len() as u64;
        let x: Vec<i64> = (1..=count as i64).collect();
        let k: ArrayRef = Arc::new(StringArray::from(keys.to_vec()));
        let x: ArrayRef = Arc::new(Int64Array::from(x));
        let t: ArrayRef = Arc::new(Date32Array::from(vec![7; keys.len()]));
        let positions: ArrayRef = Arc::new(UInt64Array::from_iter_values((0..count).rev()));
        let columns = [
            ("k", k, true),
            ("x", x, true),
            ("t", t, true),
            (GatherOp::ROW, positions, false),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    fn numbers(batch: &RecordBatch, column: usize) -> Vec<i64> {
        let column = batch.column(column).as_primitive::<Int64Type>();
        column.values().to_vec()
    }

    #[test]
    fn series_are_whole_in_any_batches() {
        let keys = [
            None,
            None,
            Some("a"),
            Some("b"),
            Some("b"),
            Some("b"),
            Some("c"),
        ];
        let rows = rows(&keys);
        // In pandas: `groupby("k", dropna=False)["x"]`, its sum less its cumulative sum, and its size.
        let cases: [(&[&str], [i64; 7], [i64; 7]); 2] = [
            (&["k"], [2, 0, 0, 11, 6, 0, 0], [2, 2, 1, 3, 3, 3, 1]),
            (&[], [27, 25, 22, 18, 13, 7, 0], [7; 7]),
        ];
        for (keys, later, counts) in cases {
            let series = series_op(keys, Some("t"), Arc::new(later_sums));
            for threads in [1, 3] {
                let operator = operator(&series, &rows, LARGE, threads);
                for batch_rows in [1, 2, 3, 5, 100] {
                    let computed = outputs(&operator, &rows, batch_rows).unwrap();
                    let case = format!("{keys:?}, {threads} threads, {batch_rows} rows");
                    assert_eq!(numbers(&computed, 0), later, "{case}");
                    assert_eq!(numbers(&computed, 1), counts, "{case}");
                    let positions = computed.column(2).as_primitive::<UInt64Type>();
                    assert_eq!(positions.values().to_vec(), [6, 5, 4, 3, 2, 1, 0], "{case}");
                }
            }
        }
    }

    #[test]
    fn no_rows_are_no_series() {
        let rows = rows(&[Some("a")]);
        let series = series_op(&["k"], None, Arc::new(later_sums));
        let computed = outputs(&operator(&series, &rows, LARGE, 2), &rows.slice(0, 0), 5).unwrap();
        assert_eq!(computed.num_rows(), 0);
    }

    #[test]
    fn many_series_pass_through_little_memory_and_a_large_one_is_named() {
        // One series may have 1 KiB.
        let limit_bytes = 16 << 10;
        let names: Vec<String> = (0..500).map(|number| format!("{number:04}")).collect();
        let mut keys: Vec<Option<&str>> = Vec::new();
        for name in &names {
            keys.extend([Some(name.as_str()); 4]);
        }
        let series = series_op(&["k"], None, Arc::new(later_sums));
        let small = rows(&keys);
        let computed = outputs(&operator(&series, &small, limit_bytes, 2), &small, 7).unwrap();
        assert_eq!(numbers(&computed, 1), [4; 2000]);
        keys.extend([Some("large"); 100]);
        let large = rows(&keys);
        let fault = outputs(&operator(&series, &large, limit_bytes, 2), &large, 7).unwrap_err();
        assert_eq!(fault.code(), codes::MEMORY);
        let message = fault.message();
        assert!(message.contains("the series k = large"), "{message}");
        assert_eq!(fault.site().step.as_deref(), Some("f.python"));
        assert!(fault.hint_text().unwrap_or_default().contains("--memory"));
        // Without keys all rows are one series.
        let series = series_op(&[], None, Arc::new(later_sums));
        let fault = outputs(&operator(&series, &small, limit_bytes, 2), &small, 7).unwrap_err();
        assert!(fault.message().contains("the only series"), "{fault}");
    }

    #[test]
    fn a_fault_of_a_function_names_the_series() {
        let rows = rows(&[Some("a"), Some("b"), Some("b")]);
        let failing = |_: &[ArrayRef], rows: usize| {
            let fault = Fault::new(codes::FUNCTION, "it fails").rows([1]);
            if rows > 1 { Err(fault) } else { Ok(Vec::new()) }
        };
        let mut series = series_op(&["k"], Some("t"), Arc::new(failing));
        series.writes.clear();
        let fault = outputs(&operator(&series, &rows, LARGE, 1), &rows, 2).unwrap_err();
        assert_eq!(fault.code(), codes::FUNCTION);
        assert_eq!(fault.notes(), ["the series is k = b"]);
        // A row of a series is no row of a file.
        assert!(fault.site().rows.is_empty());
    }

    #[test]
    fn a_row_without_a_time_is_refused() {
        let rows = rows(&[Some("a"), Some("a")]);
        let mut columns = rows.columns().to_vec();
        columns[2] = Arc::new(Date32Array::from(vec![None, Some(7)]));
        let rows = RecordBatch::try_new(rows.schema(), columns).unwrap();
        for (time, is_refused) in [(Some("t"), true), (None, false)] {
            let series = series_op(&["k"], time, Arc::new(later_sums));
            let computed = outputs(&operator(&series, &rows, LARGE, 1), &rows, 2);
            let code = computed.err().map(|fault| fault.code());
            assert_eq!(code, is_refused.then_some(codes::BAD_ROW));
        }
    }
}
