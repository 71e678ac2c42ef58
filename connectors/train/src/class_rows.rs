//! Rows of a feed whose labels are classes: numbers take their place, so that batches can be made of them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Float32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use forebay_contract::{FeedSource, TrainingContext};
use forebay_feed::{BlockDataset, BlockSource};
use forebay_model::{ContentId, Fault, Result};

use super::classes::{ClassLabels, ClassNumbers, SortedClasses, refuse_single_class};

/// Rows of a training with the ranks of their classes as labels.
pub struct ClassRows {
    /// The rows to learn from.
    pub rows: FeedSource,
    /// The rows to validate on. Those of classes that were not learned have the number of classes as their label.
    pub validation: Option<FeedSource>,
    /// The classes.
    pub classes: Arc<SortedClasses>,
}

impl ClassRows {
    /// Reads the classes of the rows to learn from. Fewer than two are a fault.
    pub fn read(context: &TrainingContext<'_>) -> Result<ClassRows> {
        let label = context.rows.features.label.as_ref();
        let Some(label) = label.map(|label| label.column.clone()) else {
            return Err(Fault::internal("a training of classes without a label"));
        };
        let classes = Arc::new(read_classes(context, &label)?);
        refuse_single_class(&label, &classes.classes)?;
        let validation = context.validation;
        Ok(ClassRows {
            rows: ranked_rows(context.rows, &label, &classes),
            validation: validation.map(|fed| ranked_rows(fed, &label, &classes)),
            classes,
        })
    }
}

/// The classes of the rows to learn from, which are read once for that.
fn read_classes(context: &TrainingContext<'_>, label: &str) -> Result<SortedClasses> {
    // A worker sends the columns of a batch, whatever is requested.
    let columns = context.rows.features.columns();
    let position = columns.iter().position(|column| column == label);
    let position = position.ok_or_else(|| Fault::internal("rows without their label"))?;
    let mut numbers = ClassNumbers::default();
    for blocks in &context.rows.blocks {
        for block in 0..blocks.dataset().blocks() {
            context.check()?;
            let block = block as u32;
            let mut failed = None;
            blocks.read(block, &columns, &mut |batch| {
                let added = add_classes(&mut numbers, label, batch.column(position));
                match added {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(fault) => {
                        failed = Some(fault);
                        ControlFlow::Break(())
                    }
                }
            })?;
            if let Some(fault) = failed {
                return Err(blocks.locate_fault(block, fault));
            }
        }
    }
    Ok(numbers.sort())
}

fn add_classes(numbers: &mut ClassNumbers, label: &str, column: &ArrayRef) -> Result<()> {
    let labels = ClassLabels::read(label, column)?;
    numbers.add(label, &labels).map(drop)
}

fn ranked_rows(fed: &FeedSource, label: &str, classes: &Arc<SortedClasses>) -> FeedSource {
    let mut ranked = fed.clone();
    ranked.features.label_as_is = false;
    for blocks in &mut ranked.blocks {
        *blocks = Arc::new(RankedBlocks {
            inner: blocks.clone(),
            label: label.to_owned(),
            classes: classes.clone(),
        });
    }
    ranked
}

/// Blocks whose labels are the ranks of their classes.
struct RankedBlocks {
    inner: Arc<dyn BlockSource>,
    label: String,
    classes: Arc<SortedClasses>,
}

impl RankedBlocks {
    /// A batch with the ranks of its labels, which are in this column.
    fn ranked(&self, batch: &RecordBatch, position: usize) -> Result<RecordBatch> {
        let labels = ClassLabels::read(&self.label, batch.column(position))?;
        let unknown = self.classes.classes.count() as f32;
        let mut ranks = Vec::with_capacity(batch.num_rows());
        for class in labels.texts() {
            ranks.push(self.classes.rank_of(class).unwrap_or(unknown));
        }
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        columns[position] = Arc::new(Float32Array::from(ranks));
        let mut fields = Vec::with_capacity(columns.len());
        for (number, field) in batch.schema().fields().iter().enumerate() {
            fields.push(if number == position {
                Arc::new(Field::new(&self.label, DataType::Float32, true))
            } else {
                field.clone()
            });
        }
        Ok(RecordBatch::try_new(
            Arc::new(Schema::new(fields)),
            columns,
        )?)
    }
}

impl BlockSource for RankedBlocks {
    fn dataset(&self) -> BlockDataset {
        self.inner.dataset()
    }

    fn read(
        &self,
        block: u32,
        columns: &[String],
        rows: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<Duration> {
        let position = columns.iter().position(|column| *column == self.label);
        let Some(position) = position else {
            return self.inner.read(block, columns, rows);
        };
        let mut failed = None;
        let waited = self.inner.read(block, columns, &mut |batch| match self
            .ranked(&batch, position)
        {
            Ok(ranked) => rows(ranked),
            Err(fault) => {
                failed = Some(fault);
                ControlFlow::Break(())
            }
        })?;
        match failed {
            None => Ok(waited),
            Some(fault) => Err(self.inner.locate_fault(block, fault)),
        }
    }

    fn announce(&self, blocks: &[u32]) {
        self.inner.announce(blocks);
    }

    fn block_id(&self, block: u32) -> Option<ContentId> {
        self.inner.block_id(block)
    }

    fn locate_fault(&self, block: u32, fault: Fault) -> Fault {
        self.inner.locate_fault(block, fault)
    }
}
