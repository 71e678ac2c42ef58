//! Rows whose predictions are inputs of later rows: those of a recursive forecast, one time after
//! the other.
//!
//! The rows of a time pass through the chain with a copy of the window state, which gives their predictions. Then the
//! windows receive them with their predictions as values.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{cast, concat, partition};
use arrow::datatypes::{Field, Schema};
use forebay_model::{AnalyzerInput, Chunk, Fault, Result, codes};
use forebay_plan::{Carry, OpChain, PredictionFeedback, RowCounts, WindowRowOrder};

/// Receives the output of a chain for a tap.
pub type GiveFn<'g> = &'g mut dyn FnMut(usize, AnalyzerInput<'_>) -> Result<()>;

/// Runs rows in order of time through a chain whose predictions feed later rows.
pub struct RecursiveRows<'a> {
    chain: &'a OpChain,
    feedback: &'a PredictionFeedback,
    /// The place of the predictions among the columns of the first tap.
    prediction: usize,
    /// Rows of the newest time, which may go on in the next chunk.
    waiting: Vec<Chunk>,
}

impl<'a> RecursiveRows<'a> {
    /// Creates the executor for a chain with feedback; `None` if no window reads its predictions.
    /// `columns` are those of the chunks.
    pub fn new(chain: &'a OpChain, columns: &[String]) -> Result<Option<RecursiveRows<'a>>> {
        let Some(feedback) = chain
            .feedback()
            .filter(|window| chain.is_ordered() && columns.contains(&window.label))
        else {
            return Ok(None);
        };
        if chain.windows().iter().any(|window| window.is_join) {
            let message = "a step joins rows with those of another one, and recursive predictions \
                           follow each other in time";
            let hint = "use `strategy: per_step`, or a `join` with `strategy: lookup`";
            return Err(Fault::new(codes::UNSUPPORTED, message).hint(hint));
        }
        if chain
            .windows()
            .iter()
            .any(|window| window.row_order != WindowRowOrder::Time)
        {
            let message = "the history comes in no order of time, and recursive predictions \
                           follow each other in time";
            let hint = "order the files of the source by time, or use `strategy: per_step`";
            return Err(Fault::new(codes::UNSUPPORTED, message).hint(hint));
        }
        let prediction = chain
            .fields(0)
            .iter()
            .position(|field| *field.name() == feedback.prediction);
        let prediction =
            prediction.ok_or_else(|| Fault::internal("predictions that are not written"))?;
        Ok(Some(RecursiveRows {
            chain,
            feedback,
            prediction,
            waiting: Vec::new(),
        }))
    }

    /// Runs the rows of all times that end within consecutive chunks.
    pub fn push(
        &mut self,
        chunks: &[Chunk],
        carry: &mut Carry,
        give: GiveFn<'_>,
    ) -> Result<RowCounts> {
        let mut counts = RowCounts::default();
        for chunk in chunks {
            let times = partition(&[self.time(chunk)?])?;
            for rows in times.ranges() {
                let part = slice_chunk(chunk, rows.start, rows.len());
                if self.is_later(&part)? {
                    counts.add(&self.run_waiting(carry, give)?);
                }
                self.waiting.push(part);
            }
        }
        Ok(counts)
    }

    /// Runs the rows of the last time.
    pub fn finish(&mut self, carry: &mut Carry, give: GiveFn<'_>) -> Result<RowCounts> {
        self.run_waiting(carry, give)
    }

    fn time(&self, chunk: &Chunk) -> Result<ArrayRef> {
        let time = chunk.batch.column_by_name(&self.feedback.time);
        time.cloned()
            .ok_or_else(|| Fault::internal("rows of the future without their time"))
    }

    /// True if the rows have another time than the waiting rows.
    fn is_later(&self, chunk: &Chunk) -> Result<bool> {
        let Some(last) = self.waiting.last() else {
            return Ok(false);
        };
        let times = concat(&[
            &self.time(last)?.slice(0, 1),
            &self.time(chunk)?.slice(0, 1),
        ])?;
        Ok(partition(&[times])?.len() > 1)
    }

    /// Predicts the rows of one time, and lets the windows receive them with their predictions.
    fn run_waiting(&mut self, carry: &mut Carry, give: GiveFn<'_>) -> Result<RowCounts> {
        let chunks = std::mem::take(&mut self.waiting);
        if chunks.is_empty() {
            return Ok(RowCounts::default());
        }
        let mut predicted = Vec::with_capacity(chunks.len());
        let counts = self
            .chain
            .run(&chunks, &mut carry.fork(), &mut |tap, input| {
                if tap == 0 {
                    predicted.push(input.columns[self.prediction].clone());
                }
                give(tap, input)
            })?;
        if counts.filtered > 0 || counts.expanded != 0 || predicted.len() != chunks.len() {
            let message = "a step behind `future_rows` filters or adds rows, whose predictions \
                           feed later rows";
            return Err(Fault::new(codes::BAD_ROW, message).hint("move it before `future_rows`"));
        }
        let filled = chunks
            .iter()
            .zip(predicted)
            .map(|(chunk, predicted)| self.filled(chunk, &predicted));
        self.chain
            .advance(&filled.collect::<Result<Vec<_>>>()?, carry)?;
        Ok(counts)
    }

    /// A chunk for [`OpChain::advance`], with predictions in place of the label.
    fn filled(&self, chunk: &Chunk, predicted: &ArrayRef) -> Result<Chunk> {
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for name in self.chain.advance_columns() {
            let column = chunk.batch.column_by_name(name);
            let column = column
                .ok_or_else(|| Fault::internal(format!("rows of the future without `{name}`")))?;
            let column = if *name == self.feedback.label {
                cast(predicted, column.data_type())?
            } else {
                column.clone()
            };
            fields.push(Field::new(name, column.data_type().clone(), true));
            columns.push(column);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(chunk.batch.num_rows()));
        let batch =
            RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?;
        Ok(Chunk {
            batch,
            ..chunk.clone()
        })
    }
}

/// Some rows of a chunk.
fn slice_chunk(chunk: &Chunk, from: usize, rows: usize) -> Chunk {
    Chunk {
        batch: chunk.batch.slice(from, rows),
        keys: None,
        file: chunk.file.clone(),
        first_row: chunk.first_row + from as u64,
        skipped: if from == 0 { chunk.skipped } else { 0 },
        unfit: if from == 0 {
            chunk.unfit.clone()
        } else {
            Vec::new()
        },
    }
}
