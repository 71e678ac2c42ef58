//! Rows whose predictions are inputs of later rows: those of a recursive forecast, one time after
//! the other.
//!
//! The rows of a time pass through the chain with a copy of the window state, which gives their predictions. Then the
//! windows receive them with their predictions as values.
//!
//! Outputs of joins are the same in both passes. Those of an earlier pass are read in the order of the rows, when the rows
//! come: the outputs of a span end with it, and rows of its last time may wait for the next one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{cast, concat, partition};
use arrow::datatypes::{Field, Schema};
use forebay_model::{AnalyzerInput, Chunk, Fault, Result, codes};
use forebay_plan::{
    BoundPipeline, Carry, ColumnScan, OpChain, OpId, OpStream, PlanOp, PrecomputedByOp,
    PrecomputedOutputs, PredictionFeedback, RowCounts, TakenOutputs, WindowRowOrder,
    slice_for_columns,
};

/// Receives the output of a chain for a tap.
pub type GiveFn<'g> = &'g mut dyn FnMut(usize, AnalyzerInput<'_>) -> Result<()>;

/// The origin of the outputs of joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinedOutputs {
    /// An earlier pass has computed them for all rows, in their order.
    Computed,
    /// They are looked up when rows reach the join. No window reads them.
    LookedUp,
}

/// Runs rows in order of time through a chain whose predictions feed later rows.
pub struct RecursiveRows<'a> {
    chain: &'a OpChain,
    feedback: &'a PredictionFeedback,
    /// The place of the predictions among the columns of the first tap.
    prediction: usize,
    joined: JoinedOutputs,
    /// Rows of the newest time, which may go on in the next chunk.
    waiting: Vec<WaitingRows>,
}

/// Rows of one time.
struct WaitingRows {
    chunk: Chunk,
    /// The outputs of joins that an earlier pass has computed.
    joined: BTreeMap<OpId, TakenOutputs>,
}

/// The outputs of a join for consecutive chunks.
struct QueuedOutputs(VecDeque<TakenOutputs>);

impl PrecomputedOutputs for QueuedOutputs {
    fn take(&mut self, rows: usize, emit: &[bool]) -> Result<TakenOutputs> {
        let outputs = self.0.pop_front();
        let outputs = outputs
            .filter(|outputs| outputs.columns.iter().all(|column| column.len() == rows))
            .ok_or_else(|| Fault::internal("a join was read for other rows than its own"))?;
        let mut columns = Vec::with_capacity(outputs.columns.len());
        for (column, is_emitted) in outputs.columns.into_iter().zip(emit) {
            if *is_emitted {
                columns.push(column);
            }
        }
        Ok(TakenOutputs {
            columns,
            unmatched: outputs.unmatched,
        })
    }
}

impl<'a> RecursiveRows<'a> {
    /// Creates the executor for a chain with feedback; `None` if no window reads its predictions.
    /// `columns` are those of the chunks.
    pub fn new(
        chain: &'a OpChain,
        columns: &[String],
        joined: JoinedOutputs,
    ) -> Result<Option<RecursiveRows<'a>>> {
        let Some(feedback) = feedback_of(chain, columns) else {
            return Ok(None);
        };
        if joined == JoinedOutputs::Computed && chain.may_change_rows_before_joins() {
            return Err(changed_rows_fault());
        }
        if chain
            .windows()
            .iter()
            .any(|window| !window.is_join && window.row_order != WindowRowOrder::Time)
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
            joined,
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
                let chunk = slice_chunk(chunk, rows.start, rows.len());
                if self.is_later(&chunk)? {
                    counts.add(&self.run_waiting(carry, give)?);
                }
                let joined = match self.joined {
                    JoinedOutputs::Computed => self.chain.take_joined(rows.len(), carry)?,
                    JoinedOutputs::LookedUp => BTreeMap::new(),
                };
                self.waiting.push(WaitingRows { chunk, joined });
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
            &self.time(&last.chunk)?.slice(0, 1),
            &self.time(chunk)?.slice(0, 1),
        ])?;
        Ok(partition(&[times])?.len() > 1)
    }

    /// Predicts the rows of one time, and lets the windows receive them with their predictions.
    fn run_waiting(&mut self, carry: &mut Carry, give: GiveFn<'_>) -> Result<RowCounts> {
        let mut chunks = Vec::with_capacity(self.waiting.len());
        let mut joined: BTreeMap<OpId, VecDeque<TakenOutputs>> = BTreeMap::new();
        for rows in self.waiting.drain(..) {
            chunks.push(rows.chunk);
            for (op, outputs) in rows.joined {
                joined.entry(op).or_default().push_back(outputs);
            }
        }
        if chunks.is_empty() {
            return Ok(RowCounts::default());
        }
        let mut predicted = Vec::with_capacity(chunks.len());
        let mut predicting = carry.fork();
        let mut of_carry = carry.replace_precomputed(queued_outputs(&joined));
        match self.joined {
            JoinedOutputs::Computed => predicting.replace_precomputed(queued_outputs(&joined)),
            // Windows read no rows that are looked up: the predictions alone need them.
            JoinedOutputs::LookedUp => {
                predicting.replace_precomputed(std::mem::take(&mut of_carry))
            }
        };
        let counts = self
            .chain
            .run(&chunks, &mut predicting, &mut |tap, input| {
                if tap == 0 {
                    predicted.push(input.columns[self.prediction].clone());
                }
                give(tap, input)
            })?;
        if self.joined == JoinedOutputs::LookedUp {
            of_carry = predicting.replace_precomputed(PrecomputedByOp::new());
        }
        if counts.filtered > 0 || counts.expanded != 0 || predicted.len() != chunks.len() {
            return Err(changed_rows_fault());
        }
        let filled = chunks
            .iter()
            .zip(predicted)
            .map(|(chunk, predicted)| self.filled(chunk, &predicted));
        self.chain
            .advance(&filled.collect::<Result<Vec<_>>>()?, carry)?;
        carry.replace_precomputed(of_carry);
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

/// Predictions that are values of the label in later rows of these columns.
pub fn feedback_of<'a>(chain: &'a OpChain, columns: &[String]) -> Option<&'a PredictionFeedback> {
    chain
        .feedback()
        .filter(|feedback| chain.is_ordered() && columns.contains(&feedback.label))
}

/// Refuses operations whose outputs an earlier pass computes from columns that predictions change: series as a whole, and
/// joins by columns of windows.
pub fn refuse_early_outputs(bound: &BoundPipeline, scan: &ColumnScan) -> Result<()> {
    let Some(scanned) = scan.streams.first() else {
        return Ok(());
    };
    let ops = &scanned.stream.ops;
    for position in &scanned.needed {
        let op = &bound.ops[ops[*position]];
        let reason = match &op.op {
            PlanOp::Series(_) => "is given whole series",
            PlanOp::Join(join) => {
                let upstream = OpStream {
                    base: scanned.stream.base,
                    ops: ops.first(*position),
                };
                let reads: Vec<&str> = join.columns_here().map(String::as_str).collect();
                let needed = slice_for_columns(bound, &upstream, &reads).0;
                let mut needed = needed.iter().map(|position| &bound.ops[ops[*position]].op);
                if !needed.any(|op| matches!(op, PlanOp::Window(_))) {
                    continue;
                }
                "joins rows by columns that windows compute"
            }
            _ => continue,
        };
        let message = format!(
            "`{}` {reason} before predictions are there, and recursive predictions follow each \
             other in time",
            op.label
        );
        return Err(Fault::new(codes::UNSUPPORTED, message)
            .step(&op.label)
            .hint(
                "use `strategy: per_step` or `direct`, without a `target` that adds up its steps",
            ));
    }
    Ok(())
}

/// The fault of operations that change the number of rows whose predictions feed later rows.
fn changed_rows_fault() -> Fault {
    let message = "a step behind `future_rows` filters or adds rows, whose predictions feed later \
                   rows";
    Fault::new(codes::BAD_ROW, message).hint("move it before `future_rows`")
}

/// Outputs of joins for consecutive chunks, to be taken once.
fn queued_outputs(joined: &BTreeMap<OpId, VecDeque<TakenOutputs>>) -> PrecomputedByOp {
    let mut queued = PrecomputedByOp::new();
    for (op, outputs) in joined {
        queued.insert(*op, Box::new(QueuedOutputs(outputs.clone())));
    }
    queued
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
