//! Spans of a pass, compared with the results of earlier runs for them. The result of consecutive
//! spans has an id of everything that determines it. Equal ids mean equal rows, so that nothing is
//! computed twice.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use forebay_commit::Shard;
use forebay_model::{ContentId, IdBuilder, Span};
use xxhash_rust::xxh3::xxh3_64;

use crate::halo::HaloIndex;
use crate::range_bytes::bytes_min;

/// Spans of a shard at most.
const SHARD_SPANS_MAX: usize = 5;

/// In the tree of runs, one run in this many ends its parent run.
const RUNS_PER_RUN: u64 = 8;

/// Stored bytes after which a shard ends: large enough that the number of files is no burden.
const SHARD_BYTES_TARGET: u64 = 4 << 20;

/// For datasets that are no history: the least bytes that are read of a run, the least ratio of these bytes to the
/// bytes of its states of bounded size, and the most runs. Each run yields a state of every analyzer, which is written,
/// read back and merged. That must cost little compared with reading.
const RUN_BYTES_MIN: u64 = 64 << 20;
const RUN_BYTES_PER_STATE_BYTE: u64 = 3;
const RUNS_MAX: u64 = 1024;

/// The earlier spans that affect the output of a span.
pub enum SpanDependency {
    /// No earlier span.
    Nothing,
    /// The spans within some distances.
    Halos(HaloIndex),
    /// All earlier spans.
    Everything,
}

/// The spans of a pass, with ids of their contents and of the results computed from them.
pub struct SpanIndex {
    digests: Arc<SpanDigests>,
    pub past: SpanDependency,
    /// Halo of spans that starts with the span, and its id, computed on first use, for each span.
    past_ids: Vec<OnceLock<(Vec<Range<usize>>, ContentId)>>,
    /// The id of the windows whose rows are sorted, if there are any.
    sorted: Option<ContentId>,
    /// The other sides of as-of joins in order of time.
    joined: Vec<JoinedSpans>,
}

/// The spans of the other side of an as-of join, as far as they affect the spans of this side.
pub struct JoinedSpans {
    /// The spans of the other side.
    pub digests: Arc<SpanDigests>,
    /// First span of the other side that the rows of a span of this side may match, for each span.
    pub starts: Vec<usize>,
    /// End of the spans of the other side that the rows of a span of this side may match, for each
    /// span.
    pub ends: Vec<usize>,
}

impl JoinedSpans {
    /// Id of the rows that can match the rows of some spans.
    fn content(&self, tasks: &Range<usize>) -> ContentId {
        let end = tasks
            .end
            .checked_sub(1)
            .and_then(|last| self.ends.get(last))
            .copied()
            .unwrap_or(0);
        let start = self
            .starts
            .get(tasks.start)
            .copied()
            .unwrap_or(end)
            .min(end);
        self.digests.met(&(start..end))
    }
}

/// Digests of the contents of spans, independent of the operations on them.
pub struct SpanDigests {
    spans: Vec<SpanDigest>,
    /// For each span, and the end: the digest of all spans before it.
    before: Vec<ContentId>,
    /// For each span: the end of a range starting with it, and the range's digest, computed on first use.
    contents: Vec<OnceLock<(usize, ContentId)>>,
}

struct SpanDigest {
    content: ContentId,
    bytes: u64,
    /// Number of rows; `None` where the metadata do not record it.
    rows: Option<u64>,
    boundary: u64,
}

/// A work unit: consecutive spans whose result is committed together.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkUnit {
    pub tasks: Range<usize>,
    pub id: ContentId,
    /// The shard that an earlier run committed for the unit.
    pub known: Option<Shard>,
}

impl WorkUnit {
    /// A unit of spans without an earlier result.
    pub fn new(tasks: Range<usize>, id: ContentId) -> WorkUnit {
        WorkUnit {
            tasks,
            id,
            known: None,
        }
    }
}

impl SpanDigests {
    /// `spans` come with the indexes of their scans.
    pub fn new<'s>(spans: impl IntoIterator<Item = (usize, &'s Span)>) -> Self {
        let mark = |(scan, span): (usize, &Span)| {
            let mut content = IdBuilder::new("task");
            content
                .bytes(&(scan as u64).to_le_bytes())
                .id(span.fingerprint());
            let name = span
                .pieces
                .last()
                .map_or("", |piece| piece.relative.as_str());
            let boundary = xxh3_64(name.as_bytes());
            SpanDigest {
                content: content.finish(),
                bytes: span.bytes(),
                rows: span.rows(),
                boundary,
            }
        };
        let spans: Vec<SpanDigest> = spans.into_iter().map(mark).collect();
        let mut prefix_ids = vec![IdBuilder::new("tasks").finish()];
        for mark in &spans {
            let mut id = IdBuilder::new("tasks");
            id.id(prefix_ids[prefix_ids.len() - 1]).id(mark.content);
            prefix_ids.push(id.finish());
        }
        let contents = spans.iter().map(|_| OnceLock::new()).collect();
        SpanDigests {
            spans,
            before: prefix_ids,
            contents,
        }
    }

    /// The digest of the spans of the other side of a join that rows may meet.
    pub fn met(&self, spans: &Range<usize>) -> ContentId {
        if spans.start == 0 {
            self.before[spans.end]
        } else {
            self.content(spans)
        }
    }

    /// The digest of the contents of some spans.
    fn content(&self, tasks: &Range<usize>) -> ContentId {
        let name = || id_of("content", contents_of(&self.spans[tasks.clone()]));
        let Some(first) = self.contents.get(tasks.start) else {
            return name();
        };
        let (end, id) = first.get_or_init(|| (tasks.end, name()));
        if *end == tasks.end { *id } else { name() }
    }
}

impl SpanIndex {
    /// `sorted` is the id of the windows whose rows are sorted, if there are any. The output of a span then depends on
    /// all spans, also on later ones.
    pub fn new(digests: Arc<SpanDigests>, past: SpanDependency, sorted: Option<ContentId>) -> Self {
        let past_ids = digests.spans.iter().map(|_| OnceLock::new()).collect();
        SpanIndex {
            digests,
            past,
            past_ids,
            sorted,
            joined: Vec::new(),
        }
    }

    /// Adds the other sides of as-of joins.
    pub fn with_joined(self, joined: Vec<JoinedSpans>) -> Self {
        SpanIndex { joined, ..self }
    }

    /// Adds the rows that rows of some spans may meet to an id.
    fn add_joined(&self, id: ContentId, tasks: &Range<usize>) -> ContentId {
        if self.joined.is_empty() {
            return id;
        }
        id_of(
            "joined",
            std::iter::once(id).chain(self.joined.iter().map(|joined| joined.content(tasks))),
        )
    }

    /// The earlier spans that affect some spans, if these are neither all nor none: ascending ranges that do not touch.
    pub fn halo_of(&self, tasks: &Range<usize>) -> Option<Vec<Range<usize>>> {
        match &self.past {
            SpanDependency::Halos(halos) => Some(halos.halo_of(tasks)),
            SpanDependency::Nothing | SpanDependency::Everything => None,
        }
    }

    /// The stored bytes of the halos of units; consecutive units share one halo.
    pub fn halo_bytes(&self, parts: &[WorkUnit]) -> Option<u64> {
        let halo_of =
            |run: &[WorkUnit]| self.halo_of(&(run.first()?.tasks.start..run.last()?.tasks.end));
        let runs = parts.chunk_by(|part, next| part.tasks.end == next.tasks.start);
        let bytes: Vec<u64> = runs
            .filter_map(halo_of)
            .map(|halo| self.bytes_of(&halo))
            .collect();
        (!bytes.is_empty()).then(|| bytes.iter().sum())
    }

    /// True if all spans that may affect rows after the last span lie in `halo` or in the spans
    /// from `from` on.
    pub fn covers_retention(&self, halo: &[Range<usize>], from: usize) -> bool {
        let SpanDependency::Halos(halos) = &self.past else {
            return false;
        };
        let first = halos.retention_start();
        first >= from
            || halo
                .last()
                .is_some_and(|last| last.start <= first && last.end >= from)
    }

    /// The id of all other rows that affect some spans: earlier spans, and joined rows.
    fn dependency_id(&self, tasks: &Range<usize>) -> ContentId {
        let first = match &self.past {
            SpanDependency::Nothing => tasks.start,
            SpanDependency::Everything => 0,
            SpanDependency::Halos(halos) => halos
                .halo_of(tasks)
                .first()
                .map_or(tasks.start, |halo| halo.start),
        };
        self.add_joined(self.past_id(tasks), &(first..tasks.end))
    }

    /// The id of the earlier spans that affect some spans.
    fn past_id(&self, tasks: &Range<usize>) -> ContentId {
        let sorted = |matters: ContentId| match self.sorted {
            None => matters,
            Some(sorted) => {
                let mut id = IdBuilder::new("sorted");
                id.id(matters)
                    .id(self.digests.before[self.digests.spans.len()])
                    .id(sorted);
                id.finish()
            }
        };
        let halo = match &self.past {
            SpanDependency::Nothing => return sorted(self.digests.before[0]),
            SpanDependency::Everything => return sorted(self.digests.before[tasks.start]),
            SpanDependency::Halos(halos) => halos.halo_of(tasks),
        };
        let name = |halo: &[Range<usize>]| {
            sorted(id_of(
                "past",
                halo.iter()
                    .flat_map(|tasks| contents_of(&self.digests.spans[tasks.clone()])),
            ))
        };
        let (cached_halo, id) =
            self.past_ids[tasks.start].get_or_init(|| (halo.clone(), name(&halo)));
        if *cached_halo == halo {
            *id
        } else {
            name(&halo)
        }
    }

    /// The id of the result of some spans; `shape` is the id of the operations on their rows.
    pub fn result_id(&self, shape: ContentId, tasks: Range<usize>) -> ContentId {
        let mut id = IdBuilder::new("shard");
        id.id(shape)
            .id(self.dependency_id(&tasks))
            .id(self.digests.content(&tasks));
        id.finish()
    }

    /// The id of the window state before a span, or at the end.
    pub fn carry_id(&self, shape: ContentId, task: usize) -> ContentId {
        let mut id = IdBuilder::new("carry");
        id.id(shape).id(self.digests.before[task]);
        self.add_joined(id.finish(), &(0..task))
    }

    /// The content ids of some spans.
    pub fn contents(&self, tasks: Range<usize>) -> Vec<String> {
        self.digests.spans[tasks]
            .iter()
            .map(|mark| mark.content.to_string())
            .collect()
    }

    /// The number of spans.
    pub fn len(&self) -> usize {
        self.digests.spans.len()
    }

    /// Stored bytes of some spans.
    pub fn bytes(&self, tasks: Range<usize>) -> u64 {
        self.digests.spans[tasks]
            .iter()
            .map(|mark| mark.bytes)
            .sum()
    }

    /// Stored bytes of several ranges of spans.
    pub fn bytes_of(&self, ranges: &[Range<usize>]) -> u64 {
        ranges.iter().map(|tasks| self.bytes(tasks.clone())).sum()
    }

    /// Sum of the recorded rows of some spans; spans without a record count as 0.
    pub fn rows(&self, tasks: Range<usize>) -> u64 {
        self.digests.spans[tasks]
            .iter()
            .filter_map(|mark| mark.rows)
            .sum()
    }

    /// Rows of some spans; `None` if the metadata of one of them do not record them.
    pub fn known_rows(&self, tasks: impl IntoIterator<Item = usize>) -> Option<u64> {
        tasks
            .into_iter()
            .map(|task| self.digests.spans[task].rows)
            .sum()
    }

    /// Divides some spans into units, in order: those of the committed shards unchanged, the rest
    /// at content-defined cuts.
    pub fn work_units(
        &self,
        shape: ContentId,
        tasks: Range<usize>,
        prior_shards: &[Shard],
    ) -> Vec<WorkUnit> {
        let mut by_first: BTreeMap<&str, Vec<&Shard>> = BTreeMap::new();
        for shard in prior_shards {
            by_first
                .entry(shard.spans.first().map_or("", String::as_str))
                .or_default()
                .push(shard);
        }
        let mut parts = Vec::new();
        let mut task = tasks.start;
        let mut open = tasks.start;
        let end = tasks.end;
        while task < end {
            let first = self.digests.spans[task].content.to_string();
            let candidates = by_first.get(first.as_str()).into_iter().flatten();
            // The id decides, not the spans alone: it also names the operations and the earlier
            // spans that windows read (decisions/shard-boundaries.md).
            match candidates
                .copied()
                .find(|shard| self.matches(shape, shard, task..end))
            {
                None => task += 1,
                Some(shard) => {
                    parts.extend(self.new_units(shape, open..task));
                    let tasks = task..task + shard.spans.len();
                    (task, open) = (tasks.end, tasks.end);
                    parts.push(WorkUnit {
                        known: Some(shard.clone()),
                        ..WorkUnit::new(tasks.clone(), self.result_id(shape, tasks))
                    });
                }
            }
        }
        parts.extend(self.new_units(shape, open..task));
        parts
    }

    /// True if a shard is the result of the first of some spans.
    fn matches(&self, shape: ContentId, shard: &Shard, among: Range<usize>) -> bool {
        let tasks = among.start..among.start + shard.spans.len();
        tasks.end <= among.end
            && self.covers(&tasks, shard)
            && self.result_id(shape, tasks).to_string() == shard.id
    }

    /// True if a shard covers exactly some spans.
    fn covers(&self, tasks: &Range<usize>, shard: &Shard) -> bool {
        let is_same = |(mark, span): (&SpanDigest, &String)| mark.content.to_string() == *span;
        !tasks.is_empty()
            && tasks.len() == shard.spans.len()
            && self.digests.spans[tasks.clone()]
                .iter()
                .zip(&shard.spans)
                .all(is_same)
    }

    fn new_units(&self, shape: ContentId, tasks: Range<usize>) -> impl Iterator<Item = WorkUnit> {
        let cut = self.content_defined_cut(tasks).into_iter();
        cut.map(move |tasks| WorkUnit::new(tasks.clone(), self.result_id(shape, tasks)))
    }

    /// True if a small span ends its shard: if the hash of its name is less than those of its
    /// neighbours. So shards have three spans on average, and nearly all have two to five. If spans
    /// are added, removed or changed, only the shards around them change. Shorter shards are more
    /// files. With longer shards, or shards of very different lengths, more unchanged rows are
    /// computed again.
    fn is_boundary(&self, task: usize) -> bool {
        let of = |task: usize| self.digests.spans.get(task).map(|mark| mark.boundary);
        let previous = task.checked_sub(1).and_then(of);
        let following = of(task + 1);
        of(task).zip(previous).is_some_and(|(current, previous)| {
            current < previous && following.is_none_or(|following| current < following)
        })
    }

    /// Content-defined cuts: divides spans into runs whose ends depend on the names of neighbouring spans alone.
    fn content_defined_cut(&self, tasks: Range<usize>) -> Vec<Range<usize>> {
        let mut cut = Vec::new();
        let mut start = tasks.start;
        let mut bytes = 0;
        for task in tasks.clone() {
            let mark = &self.digests.spans[task];
            bytes += mark.bytes;
            let full = bytes >= SHARD_BYTES_TARGET || task + 1 - start == SHARD_SPANS_MAX;
            if full || self.is_boundary(task) || task + 1 == tasks.end {
                cut.push(start..task + 1);
                (start, bytes) = (task + 1, 0);
            }
        }
        cut
    }

    /// Divides all spans into runs of about the same size. `read` are the bytes that the work reads in all, `state` the
    /// bytes of its states for each run.
    pub fn runs(&self, read: u64, state: u64) -> Vec<Range<usize>> {
        let total_bytes = self.bytes(0..self.digests.spans.len());
        let least = bytes_min(RUN_BYTES_MIN.max(state.saturating_mul(RUN_BYTES_PER_STATE_BYTE)));
        let target = total_bytes.div_ceil((read / least).clamp(1, RUNS_MAX));
        let mut runs: Vec<Range<usize>> = Vec::new();
        let mut bytes = 0;
        for (task, mark) in self.digests.spans.iter().enumerate() {
            match runs.last_mut().filter(|_| bytes < target) {
                Some(run) => run.end = task + 1,
                None => {
                    runs.push(task..task + 1);
                    bytes = 0;
                }
            }
            bytes += mark.bytes;
        }
        runs
    }

    /// All spans as a tree of runs, lowest level first. Its shape depends on names alone, so that adding, removing or
    /// changing a span affects one run of each level.
    pub fn tree(&self) -> Vec<Vec<Range<usize>>> {
        let mut levels = vec![self.content_defined_cut(0..self.digests.spans.len())];
        let mut every = 1;
        loop {
            every *= RUNS_PER_RUN;
            let mut level: Vec<Range<usize>> = Vec::new();
            let mut open = false;
            for run in levels.last().into_iter().flatten() {
                match level.last_mut().filter(|_| open) {
                    Some(last) => last.end = run.end,
                    None => level.push(run.clone()),
                }
                open = !self.digests.spans[run.end - 1]
                    .boundary
                    .is_multiple_of(every);
            }
            if level.len() <= 1 {
                return levels;
            }
            levels.push(level);
        }
    }
}

fn contents_of(spans: &[SpanDigest]) -> impl Iterator<Item = ContentId> {
    spans.iter().map(|mark| mark.content)
}

fn id_of(kind: &str, contents: impl IntoIterator<Item = ContentId>) -> ContentId {
    let mut id = IdBuilder::new(kind);
    contents.into_iter().for_each(|content| {
        id.id(content);
    });
    id.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::RangeInclusive;

    use forebay_model::{BoundValue, ColumnExtent, FileRange};

    use super::*;

    fn span(name: &str, version: &str) -> Span {
        let piece = FileRange {
            path: name.to_owned(),
            relative: name.to_owned(),
            row_groups: None,
            row_range: None,
            byte_range: None,
            first_row: 0,
            rows: Some(1),
            bytes: 1,
            partition: Vec::new(),
            extents: Vec::new(),
            fingerprint: ContentId::of(format!("{name} {version}").as_bytes()),
        };
        Span {
            pieces: vec![piece],
        }
    }

    fn days(days: Range<usize>) -> Vec<Span> {
        days.map(|day| span(&format!("day-{day}"), "1")).collect()
    }

    /// Rows affect others at these distances in days, or at any distance.
    fn history(spans: &[Span], distances: Option<&[RangeInclusive<i64>]>) -> SpanIndex {
        let day =
            |span: &Span| BoundValue::Int(span.pieces[0].path["day-".len()..].parse().unwrap());
        let extent = |span: &Span| ColumnExtent {
            min: day(span),
            max: day(span),
            nulls: false,
        };
        let halos = |distances: &[_]| {
            HaloIndex::new(spans.iter().map(extent).collect(), distances.to_vec())
        };
        let past = distances.map_or(SpanDependency::Everything, |distances| {
            SpanDependency::Halos(halos(distances))
        });
        SpanIndex::new(
            Arc::new(SpanDigests::new(spans.iter().map(|span| (0, span)))),
            past,
            None,
        )
    }

    fn shape() -> ContentId {
        ContentId::of(b"shape")
    }

    /// The shards that the first run over some days commits.
    fn first_shards(history: &SpanIndex) -> Vec<Shard> {
        let shard = |part: WorkUnit| Shard {
            id: part.id.to_string(),
            spans: history.contents(part.tasks),
            ..Shard::default()
        };
        history
            .work_units(shape(), 0..history.digests.spans.len(), &[])
            .into_iter()
            .map(shard)
            .collect()
    }

    /// The days that are computed again.
    fn recomputed_days(
        before: &[Span],
        after: &[Span],
        distances: Option<&[RangeInclusive<i64>]>,
    ) -> Vec<String> {
        let known = first_shards(&history(before, distances));
        let parts = history(after, distances).work_units(shape(), 0..after.len(), &known);
        let tasks: Vec<usize> = parts.iter().flat_map(|part| part.tasks.clone()).collect();
        assert_eq!(
            tasks,
            (0..after.len()).collect::<Vec<_>>(),
            "parts are all tasks in order"
        );
        let new = parts
            .iter()
            .filter(|part| part.known.is_none())
            .flat_map(|part| part.tasks.clone());
        new.map(|task| after[task].pieces[0].relative.clone())
            .collect()
    }

    #[test]
    fn a_tree_of_runs_changes_in_one_run_of_each_level() {
        let runs = |spans: &[Span]| {
            let history = history(spans, Some(&[0..=0]));
            let tree = history.tree();
            for pair in tree.windows(2) {
                let ends =
                    |level: &[Range<usize>]| level.iter().map(|run| run.end).collect::<Vec<_>>();
                assert!(
                    ends(&pair[1])
                        .iter()
                        .all(|end| ends(&pair[0]).contains(end))
                );
            }
            let ids = |level: &Vec<Range<usize>>| {
                let starts: Vec<usize> = level.iter().map(|run| run.start).collect();
                assert!(
                    level.windows(2).all(|pair| pair[0].end == pair[1].start) && starts[0] == 0
                );
                level
                    .iter()
                    .map(|run| history.result_id(shape(), run.clone()))
                    .collect::<BTreeSet<_>>()
            };
            tree.iter().map(ids).collect::<Vec<_>>()
        };
        let before = runs(&days(0..2000));
        assert!(before.len() >= 3, "{} levels", before.len());
        let mut changed = days(0..2000);
        changed[1000] = span("day-1000", "2");
        for after in [runs(&days(0..2001)), runs(&days(1..2000)), runs(&changed)] {
            let new: Vec<usize> = before
                .iter()
                .zip(&after)
                .map(|(before, after)| after.difference(before).count())
                .collect();
            assert!(new.iter().all(|new| *new <= 1), "{new:?}");
        }
    }

    #[test]
    fn only_a_new_day_is_computed() {
        assert_eq!(
            recomputed_days(&days(0..200), &days(0..201), Some(&[0..=28])),
            ["day-200"]
        );
        assert_eq!(
            recomputed_days(&days(0..200), &days(0..201), None),
            ["day-200"]
        );
        assert!(recomputed_days(&days(0..200), &days(0..200), None).is_empty());
    }

    #[test]
    fn a_removed_day_changes_what_it_reaches() {
        let again = recomputed_days(&days(0..200), &days(1..200), Some(&[0..=28]));
        assert!(
            again.contains(&"day-28".to_owned()) && again.len() < 28 + SHARD_SPANS_MAX,
            "{again:?}"
        );
        assert_eq!(
            recomputed_days(&days(0..200), &days(1..200), None).len(),
            199
        );
    }

    #[test]
    fn a_changed_day_changes_only_days_at_its_distances() {
        let distances = Some(&[0..=2, 100..=100][..]);
        let mut after = days(0..200);
        after[50] = span("day-50", "2");
        let changed: Vec<usize> = recomputed_days(&days(0..200), &after, distances)
            .iter()
            .map(|day| day["day-".len()..].parse().unwrap())
            .collect();
        assert!(
            [50, 51, 52, 150].iter().all(|day| changed.contains(day)),
            "{changed:?}"
        );
        let is_near = |day: &usize| {
            [50, 52, 150]
                .iter()
                .any(|near| day.abs_diff(*near) < SHARD_SPANS_MAX)
        };
        assert!(changed.iter().all(is_near), "{changed:?}");
        // A removed day is missed a hundred days later.
        let again = recomputed_days(&days(0..200), &days(1..200), distances);
        assert!(
            again.contains(&"day-100".to_owned()) && again.len() < 3 * SHARD_SPANS_MAX,
            "{again:?}"
        );
    }

    #[test]
    fn halos_hold_the_spans_within_reach() {
        let after = days(0..200);
        let history = history(&after, Some(&[0..=2, 7..=7, 100..=101]));
        let halo = |tasks: Range<usize>| history.halo_of(&tasks).unwrap();
        assert_eq!(halo(150..151), [49..51, 143..144, 148..150]);
        assert_eq!(halo(150..156), [49..56, 143..150]);
        assert_eq!(halo(9..10), [2..3, 7..9]);
        assert!(halo(0..1).is_empty());
        // Rows after the last day may reach back to the day 101 days before it.
        assert!(
            history.covers_retention(&[3..5, 98..150], 150) && history.covers_retention(&[], 98)
        );
        assert!(
            !history.covers_retention(&halo(150..151), 150)
                && !history.covers_retention(&[3..5, 99..150], 150)
        );
    }

    #[test]
    fn a_changed_day_changes_what_it_reaches() {
        let mut after = days(0..200);
        after[100] = span("day-100", "2");
        let again = recomputed_days(&days(0..200), &after, Some(&[0..=28]));
        assert!(
            again.contains(&"day-100".to_owned()) && again.contains(&"day-128".to_owned()),
            "{again:?}"
        );
        assert!(again.len() < 29 + 2 * SHARD_SPANS_MAX, "{again:?}");
        let first =
            recomputed_days(&days(0..200), &after, None)[0]["day-".len()..].parse::<usize>();
        assert!(
            first.is_ok_and(|first| (100 - SHARD_SPANS_MAX + 1..=100).contains(&first)),
            "{again:?}"
        );
    }
}
