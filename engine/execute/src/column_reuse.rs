//! Reuse of encoded columns. A change in a history reaches some columns of later days and leaves others as they are: a
//! mean over four weeks changes, a lag of a day does not. Unchanged columns are copied, still encoded, from the shard
//! that an earlier run wrote for the same spans; only the others are computed. If the shard also has all inputs of the
//! others, it is read instead of the spans.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_commit::Shard;
use forebay_model::{Dataset, Fault, Result};
use forebay_plan::{OpChain, OpStream, WindowRowOrder, base_column, column_reaches};
use forebay_storage::{EncodedPiece, FileLayout, WrittenFile};
use forebay_threads::parallel_map;
use forebay_window::WindowReach;

use crate::fused_learn::FusedLearner;
use crate::halo::HaloIndex;
use crate::ordered_scan::{OrderedScan, PriorFile, ReadMode, SpanTimeline};
use crate::span_index::{PriorShard, SpanDependency, SpanIndex, WorkUnit};
use crate::write_pass::{PreparedChains, WritePass};
use crate::write_target::WriteTarget;

/// The limit of bytes read, reused columns included, as a multiple of the stored bytes of the written days and of the
/// earlier days that their windows reach. Reading a shard takes less time than computing it again, but more bytes.
const READ_SHARE_MAX: f64 = 1.4;

/// Bytes read for each span in any case: its metadata, and those of its shard in the manifest.
const SPAN_BYTES: usize = 190;

/// Approximate bytes of a value on its way into a file.
const VALUE_BYTES: usize = 16;

/// Reused columns of units, by their first spans.
pub type ColumnReuse = BTreeMap<usize, ReusedColumns>;

/// The reused columns of a work unit.
pub struct ReusedColumns {
    /// What is read to compute the other columns.
    pub columns: ReadMode,
    /// The computed columns, by their positions in a file.
    pub computed: Vec<usize>,
    /// The schema of the computed columns.
    pub schema: SchemaRef,
    /// The reused columns, by their positions in a file.
    taken: Vec<usize>,
    /// The file that holds them.
    stored: Arc<dyn WrittenFile>,
}

impl ReusedColumns {
    /// The number of reused values.
    pub fn value_count(&self) -> u64 {
        self.stored.groups().iter().sum::<u64>() * self.taken.len() as u64
    }

    /// The reused columns of a group, with their positions. `rows` must be the group's rows in the file.
    pub fn encoded_columns(&self, group: usize, rows: u64) -> Result<Vec<(usize, EncodedPiece)>> {
        if self.stored.groups().get(group) != Some(&rows) {
            return Err(Fault::internal("the columns of a shard that stay are those of other rows"));
        }
        Ok(self.taken.iter().copied().zip(self.stored.pieces(group, &self.taken)?).collect())
    }
}

/// A unit, and its columns that did not change.
struct ReuseCandidate<'p> {
    part: &'p WorkUnit,
    before: &'p PriorShard,
    columns: Vec<usize>,
}

/// Decides which columns are reused.
struct ReusePlanner<'a> {
    history: &'a SpanIndex,
    halos: &'a HaloIndex,
    chain: &'a OpChain,
    dataset: &'a Dataset,
    /// How far back the rows lie that affect each column.
    reaches: Vec<WindowReach>,
    /// The names of the columns.
    names: &'a [String],
    /// For each column, the source column that it copies, if it is a plain copy.
    from: Vec<Option<String>>,
}

impl WritePass<'_> {
    /// Plans the reuse of columns for the units that are to be written, and adds the projections for the rest to the
    /// sequence.
    pub fn plan_column_reuse(
        &self,
        sequence: &mut OrderedScan<'_>,
        prepared: &PreparedChains,
        line: &SpanTimeline,
        target: &WriteTarget<'_>,
        parts: &[WorkUnit],
        along: Option<&FusedLearner<'_>>,
    ) -> Result<ColumnReuse> {
        let layout = self.sink.layout();
        let is_plain = layout.partition_by.is_empty() && layout.sort_by.is_empty() && target.within.is_none();
        let choice = self.reuse_planner(sequence, prepared, line)?.filter(|_| is_plain && self.cluster.is_none());
        let Some(choice) = choice else { return Ok(ColumnReuse::new()) };
        let found = self.open_candidates(choice.candidates(parts), target, &layout)?;
        let bytes_of = |part: &WorkUnit| line.history.bytes(part.tasks.clone());
        let all: u64 = found.iter().map(|(candidate, _)| bytes_of(candidate.part)).sum();
        let spare = choice.spare_bytes(parts) / all.max(1) as f64;
        // The columns that each projection computes, and the analyzers that it feeds.
        let mut paths: Vec<(Vec<usize>, Vec<bool>)> = Vec::new();
        let mut staying = ColumnReuse::new();
        for (candidate, stored) in found {
            let [file] = candidate.before.shard.files.as_slice() else { continue };
            let part = candidate.part;
            let sizes: Vec<f64> = stored.column_bytes().into_iter().map(|bytes| bytes as f64).collect();
            let asked = along.map(|along| along.missing_states(&part.tasks).to_vec()).unwrap_or_default();
            let bytes = bytes_of(part) as f64;
            let of_file = choice.columns_from_file(&candidate, &sizes, &asked, (1.0 + spare) * bytes);
            let is_read = of_file.is_some();
            let taken = of_file
                .unwrap_or_else(|| choice.columns_to_copy(&candidate.columns, &sizes, &asked, bytes, spare * bytes));
            if taken.is_empty() {
                continue;
            }
            let computed = choice.remaining_columns(&taken);
            let schema = prepared.schema.project(&computed)?.into();
            let is_it = |(known, known_asked): &(Vec<usize>, Vec<bool>)| (known, known_asked) == (&computed, &asked);
            let path = paths.iter().position(is_it).unwrap_or_else(|| {
                sequence.narrow.push(choice.chain.narrow(&computed, &asked));
                paths.push((computed.clone(), asked));
                paths.len() - 1
            });
            let columns = match is_read {
                true => {
                    let shown = target.out.join(&file.path).shown;
                    sequence.written.push(PriorFile { path, stored: stored.clone(), shown });
                    ReadMode::Written(sequence.written.len() - 1)
                }
                false => ReadMode::Narrow(path),
            };
            staying.insert(part.tasks.start, ReusedColumns { columns, computed, schema, taken, stored });
        }
        Ok(staying)
    }

    /// `None` if windows reach everything, or get their rows in another order than time.
    fn reuse_planner<'a>(
        &'a self,
        sequence: &OrderedScan<'a>,
        prepared: &'a PreparedChains,
        line: &'a SpanTimeline,
    ) -> Result<Option<ReusePlanner<'a>>> {
        let history = &line.history;
        let (SpanDependency::Halos(halos), [scan], [chain]) = (&history.past, sequence.scans, prepared.chains()) else {
            return Ok(None);
        };
        let ([own], true) =
            (scan.streams.as_slice(), chain.windows().iter().all(|window| window.row_order == WindowRowOrder::Time))
        else {
            return Ok(None);
        };
        let (bound, want) = (&self.program.bound, &prepared.want);
        let stream = OpStream { base: own.stream.base, ops: own.stream.ops[..want.after].to_vec() };
        let dataset = &self.known.input(self.program, scan.base)?.dataset;
        let reaches = column_reaches(bound, &stream, &own.needed, want);
        let from = want.columns.iter().map(|column| base_column(bound, &stream, column)).collect();
        Ok(Some(ReusePlanner { history, halos, chain, dataset, reaches, names: &want.columns, from }))
    }

    /// The candidates whose shards can be read, with their files.
    fn open_candidates<'p>(
        &self,
        candidates: Vec<ReuseCandidate<'p>>,
        target: &WriteTarget<'_>,
        layout: &FileLayout,
    ) -> Result<Vec<(ReuseCandidate<'p>, Arc<dyn WrittenFile>)>> {
        let open = |candidate: usize| match candidates[candidate].before.shard.files.as_slice() {
            // If a file cannot be read, everything is computed.
            [file] => Ok(self.sink.open_written(self.io, &target.out.join(&file.path)).unwrap_or_default()),
            _ => Ok(None),
        };
        let stored = parallel_map(self.threads, candidates.len(), &open)?;
        let group_bytes_max = self.memory.output_bytes() / (self.threads + 1);
        // Row groups take the file's sizes; these must be the sizes that rows alone determine.
        let fits = |stored: &dyn WrittenFile| {
            let groups = stored.groups();
            let largest = groups.iter().copied().max().unwrap_or(0) as usize;
            let value_bytes = largest * VALUE_BYTES * stored.column_bytes().len();
            groups.iter().rev().skip(1).all(|rows| *rows == layout.group_rows_max as u64)
                && largest <= layout.group_rows_max
                && value_bytes <= group_bytes_max
        };
        let found = candidates.into_iter().zip(stored).filter_map(|(candidate, stored)| {
            let stored = stored.filter(|stored| fits(stored.as_ref()))?;
            Some((candidate, Arc::from(stored)))
        });
        Ok(found.collect())
    }
}

impl ReusePlanner<'_> {
    /// The units with unchanged columns.
    fn candidates<'p>(&self, parts: &'p [WorkUnit]) -> Vec<ReuseCandidate<'p>> {
        let candidate = |part: &'p WorkUnit| {
            let before = part.before.as_ref()?;
            let is_same =
                |distances: &RangeInclusive<i64>| before.is_unchanged(&self.halos.spans_at(distances, &part.tasks));
            let stays = |reach: &WindowReach| match reach {
                WindowReach::Ticks(distances) => distances.iter().all(is_same),
                WindowReach::Unbounded => false,
            };
            let columns: Vec<usize> = (0..self.reaches.len()).filter(|column| stays(&self.reaches[*column])).collect();
            (!columns.is_empty()).then_some(ReuseCandidate { part, before, columns })
        };
        parts.iter().filter_map(candidate).collect()
    }

    /// The columns to reuse when the spans are read. `bytes` are the stored bytes of the unit, `left` the bytes that
    /// may be read in addition. First columns whose source columns then need not be read, then columns that need not be
    /// computed, then columns that need not be encoded; small ones first.
    fn columns_to_copy(&self, columns: &[usize], sizes: &[f64], asked: &[bool], bytes: f64, left: f64) -> Vec<usize> {
        let read_anyway = self.chain.narrow(&[], asked);
        let rank = |column: usize| {
            let size = size_of(sizes, column);
            match &self.from[column] {
                Some(base) if read_anyway.columns().contains(base) => (2, size),
                Some(base) => (0, size - bytes * self.stored_share(std::slice::from_ref(base))),
                None => (1, size),
            }
        };
        let mut taken = greedy_within_budget(columns, rank, left);
        taken.sort_unstable();
        taken
    }

    /// The columns to reuse when the file replaces the spans: `None` unless the file has all source columns to read,
    /// and the reused columns have at most `left` bytes in all. Columns that are read as inputs anyway are reused at no
    /// cost.
    fn columns_from_file(
        &self,
        ReuseCandidate { before, columns, .. }: &ReuseCandidate<'_>,
        sizes: &[f64],
        asked: &[bool],
        left: f64,
    ) -> Option<Vec<usize>> {
        let Shard { rows_in, rows_filtered, rows_expanded, files, .. } = &before.shard;
        let rows: u64 = files.iter().map(|file| file.rows).sum();
        if (*rows_filtered, *rows_expanded, rows) != (0, 0, *rows_in) {
            return None;
        }
        let (mut taken, computed): (Vec<usize>, Vec<usize>) =
            columns.iter().partition(|column| self.from[**column].is_some());
        let left = left - taken.iter().map(|column| size_of(sizes, *column)).sum::<f64>();
        if left < 0.0 {
            return None;
        }
        taken.extend(greedy_within_budget(&computed, |column| (0, size_of(sizes, column)), left));
        taken.sort_unstable();
        let is_it =
            |column: usize, name: &String| self.names[column] == *name && self.from[column].as_ref() == Some(name);
        let is_there = |name: &String| taken.iter().any(|column| is_it(*column, name));
        self.chain.narrow(&self.remaining_columns(&taken), asked).columns().iter().all(is_there).then_some(taken)
    }

    /// All columns except some.
    fn remaining_columns(&self, taken: &[usize]) -> Vec<usize> {
        (0..self.from.len()).filter(|column| !taken.contains(column)).collect()
    }

    /// Bytes that may be read in addition to what has to be read.
    fn spare_bytes(&self, parts: &[WorkUnit]) -> f64 {
        let todo: Vec<WorkUnit> = parts.iter().filter(|part| part.known.is_none()).cloned().collect();
        let own: u64 = todo.iter().map(|part| self.history.bytes(part.tasks.clone())).sum();
        let halo = self.history.halo_bytes(&todo).unwrap_or(0);
        let remembered = self.stored_share(self.chain.advance_columns());
        let known = (SPAN_BYTES * self.history.len()) as f64;
        READ_SHARE_MAX * (own + halo) as f64 - own as f64 - remembered * halo as f64 - known
    }

    /// The share of the stored bytes in some columns.
    fn stored_share(&self, columns: &[String]) -> f64 {
        self.dataset.share_of_columns(columns)
    }
}

/// Bytes of a column of a file.
fn size_of(sizes: &[f64], column: usize) -> f64 {
    sizes.get(column).copied().unwrap_or(f64::INFINITY)
}

/// Greedily takes columns by rank and cost within a budget.
fn greedy_within_budget(columns: &[usize], rank: impl Fn(usize) -> (u8, f64), mut left: f64) -> Vec<usize> {
    let mut ranked: Vec<((u8, f64), usize)> = columns.iter().map(|column| (rank(*column), *column)).collect();
    ranked.sort_by(|((rank, cost), _), ((other, dearer), _)| rank.cmp(other).then(cost.total_cmp(dearer)));
    let mut taken = Vec::new();
    for ((_, cost), column) in ranked {
        if cost <= left {
            left -= cost;
            taken.push(column);
        }
    }
    taken
}
