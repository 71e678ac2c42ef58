//! A sequence of spans beside what earlier runs saw of it. What is made of consecutive spans has an
//! id of everything that determines it; equal ids mean equal rows, so that it is never made twice.

use std::collections::BTreeMap;
use std::ops::Range;

use forebay_model::{Id, IdBuilder, Span};
use xxhash_rust::xxh3::xxh3_64;

use crate::output::Shard;

/// One small span in this many ends its shard. Boundaries depend on names, and not on everything
/// before: where spans come, go or change, the shards around them do, and the rest stay.
const BOUNDARY_EVERY: u64 = 8;

/// Stored bytes after which a shard ends: enough that its files are no burden.
const SHARD_BYTES_TARGET: u64 = 4 << 20;

/// What of the spans before it decides what comes out of a span.
pub(crate) enum Past<F> {
    /// Nothing.
    Nothing,
    /// Those since the task that this gives.
    Since(F),
    /// All of them.
    Everything,
}

/// The tasks of a pass, named by what they hold and by what is done with them.
pub(crate) struct History {
    shape: Id,
    marks: Vec<Mark>,
    /// For each task: the part of the past that matters to it.
    past: Vec<Id>,
    /// For each task, and the end: all tasks before it.
    before: Vec<Id>,
}

struct Mark {
    content: Id,
    bytes: u64,
    ends_shard: bool,
}

/// Consecutive tasks that are done together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    pub tasks: Range<usize>,
    pub id: Id,
    /// What an earlier run made of them.
    pub known: Option<Shard>,
}

impl History {
    /// `shape` names what is done with the rows of each span; `spans` come with their scans.
    pub fn new<'s, F: Fn(usize) -> usize>(
        shape: Id,
        spans: impl IntoIterator<Item = (usize, &'s Span)>,
        past: &Past<F>,
    ) -> Self {
        let mark = |(scan, span): (usize, &Span)| {
            let mut content = IdBuilder::new("task");
            content.bytes(&(scan as u64).to_le_bytes()).id(span.fingerprint());
            let name = span.pieces.last().map_or("", |piece| piece.relative.as_str());
            let ends_shard = xxh3_64(name.as_bytes()).is_multiple_of(BOUNDARY_EVERY);
            Mark { content: content.finish(), bytes: span.bytes(), ends_shard }
        };
        let marks: Vec<Mark> = spans.into_iter().map(mark).collect();
        let mut before = vec![IdBuilder::new("tasks").finish()];
        for mark in &marks {
            let mut id = IdBuilder::new("tasks");
            id.id(before[before.len() - 1]).id(mark.content);
            before.push(id.finish());
        }
        let matters = |task: usize| match past {
            Past::Nothing => before[0],
            Past::Everything => before[task],
            Past::Since(since) => id_of("past", &marks[since(task)..task]),
        };
        let past = (0..marks.len()).map(matters).collect();
        History { shape, past, before, marks }
    }

    /// The id of what is made of some tasks.
    pub fn id(&self, tasks: Range<usize>) -> Id {
        let mut id = IdBuilder::new("shard");
        id.id(self.shape).id(self.past[tasks.start]).id(id_of("content", &self.marks[tasks]));
        id.finish()
    }

    /// The id of what windows remember before a task, or at the end.
    pub fn carry_id(&self, task: usize) -> Id {
        let mut id = IdBuilder::new("carry");
        id.id(self.shape).id(self.before[task]);
        id.finish()
    }

    /// The contents of some tasks.
    pub fn contents(&self, tasks: Range<usize>) -> Vec<String> {
        self.marks[tasks].iter().map(|mark| mark.content.to_string()).collect()
    }

    /// Stored bytes of some tasks.
    pub fn bytes(&self, tasks: Range<usize>) -> u64 {
        self.marks[tasks].iter().map(|mark| mark.bytes).sum()
    }

    /// All tasks as parts, in order: what is known already, in the parts of then; the rest cut
    /// where names say so.
    pub fn parts(&self, known: &[Shard]) -> Vec<Part> {
        let mut by_first: BTreeMap<&str, Vec<&Shard>> = BTreeMap::new();
        for shard in known {
            by_first.entry(shard.spans.first().map_or("", String::as_str)).or_default().push(shard);
        }
        let mut parts = Vec::new();
        let (mut task, mut open) = (0, 0);
        while task < self.marks.len() {
            let candidates = by_first.get(self.marks[task].content.to_string().as_str());
            match candidates.into_iter().flatten().find(|shard| self.matches(shard, task)) {
                None => task += 1,
                Some(shard) => {
                    self.cut(open..task, &mut parts);
                    let tasks = task..task + shard.spans.len();
                    (task, open) = (tasks.end, tasks.end);
                    parts.push(Part { id: self.id(tasks.clone()), tasks, known: Some((*shard).clone()) });
                }
            }
        }
        self.cut(open..task, &mut parts);
        parts
    }

    fn matches(&self, shard: &Shard, task: usize) -> bool {
        let tasks = task..task + shard.spans.len();
        let same = |(mark, span): (&Mark, &String)| mark.content.to_string() == *span;
        !tasks.is_empty()
            && tasks.end <= self.marks.len()
            && self.marks[tasks.clone()].iter().zip(&shard.spans).all(same)
            && self.id(tasks).to_string() == shard.id
    }

    fn cut(&self, tasks: Range<usize>, parts: &mut Vec<Part>) {
        let (mut start, mut bytes) = (tasks.start, 0);
        for task in tasks.clone() {
            let mark = &self.marks[task];
            bytes += mark.bytes;
            if mark.ends_shard || bytes >= SHARD_BYTES_TARGET || task + 1 == tasks.end {
                parts.push(Part { tasks: start..task + 1, id: self.id(start..task + 1), known: None });
                (start, bytes) = (task + 1, 0);
            }
        }
    }
}

fn id_of(kind: &str, marks: &[Mark]) -> Id {
    let mut id = IdBuilder::new(kind);
    marks.iter().for_each(|mark| {
        id.id(mark.content);
    });
    id.finish()
}

#[cfg(test)]
mod tests {
    use forebay_model::Piece;

    use super::*;

    fn span(name: &str, version: &str) -> Span {
        let piece = Piece {
            path: name.to_owned(),
            relative: name.to_owned(),
            row_groups: None,
            first_row: 0,
            rows: Some(1),
            bytes: 1,
            partition: Vec::new(),
            extents: Vec::new(),
            fingerprint: Id::of(format!("{name} {version}").as_bytes()),
        };
        Span { pieces: vec![piece] }
    }

    fn days(days: Range<usize>) -> Vec<Span> {
        days.map(|day| span(&format!("day-{day}"), "1")).collect()
    }

    fn history(spans: &[Span], reach: Option<usize>) -> History {
        let spans = spans.iter().map(|span| (0, span));
        let past = reach.map_or(Past::Everything, |reach| Past::Since(move |task: usize| task.saturating_sub(reach)));
        History::new(Id::of(b"shape"), spans, &past)
    }

    /// What the first run over some days leaves.
    fn left(history: &History) -> Vec<Shard> {
        let shard =
            |part: Part| Shard { id: part.id.to_string(), spans: history.contents(part.tasks), ..Shard::default() };
        history.parts(&[]).into_iter().map(shard).collect()
    }

    /// The days that have to be done again.
    fn redone(before: &[Span], after: &[Span], reach: Option<usize>) -> Vec<String> {
        let known = left(&history(before, reach));
        let parts = history(after, reach).parts(&known);
        let tasks: Vec<usize> = parts.iter().flat_map(|part| part.tasks.clone()).collect();
        assert_eq!(tasks, (0..after.len()).collect::<Vec<_>>(), "parts are all tasks in order");
        let new = parts.iter().filter(|part| part.known.is_none()).flat_map(|part| part.tasks.clone());
        new.map(|task| after[task].pieces[0].relative.clone()).collect()
    }

    #[test]
    fn a_new_day_is_all_that_is_done() {
        assert_eq!(redone(&days(0..200), &days(0..201), Some(28)), ["day-200"]);
        assert_eq!(redone(&days(0..200), &days(0..201), None), ["day-200"]);
        assert!(redone(&days(0..200), &days(0..200), None).is_empty());
    }

    #[test]
    fn a_day_that_goes_changes_what_it_reaches() {
        let again = redone(&days(0..200), &days(1..200), Some(28));
        assert!(again.contains(&"day-28".to_owned()) && again.len() < 28 + 40, "{again:?}");
        assert_eq!(redone(&days(0..200), &days(1..200), None).len(), 199);
    }

    #[test]
    fn a_day_that_changes_changes_what_it_reaches() {
        let mut after = days(0..200);
        after[100] = span("day-100", "2");
        let again = redone(&days(0..200), &after, Some(28));
        assert!(again.contains(&"day-100".to_owned()) && again.contains(&"day-128".to_owned()), "{again:?}");
        assert!(again.len() < 29 + 2 * 40, "{again:?}");
        assert!(again.iter().all(|day| !day.starts_with("day-1") || day.len() == 7 || day == "day-1"));
        assert_eq!(redone(&days(0..200), &after, None)[0].len(), "day-100".len());
    }
}
