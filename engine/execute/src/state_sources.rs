//! The runs of spans that a state is merged of: which are read from the store, which are learned, which are merged first.

use std::ops::Range;

use forebay_cluster::StateSource;
use forebay_commit::sources_per_merge;

/// How many committed states a source is merged of.
pub(crate) fn count_sources(piece: &StateSource) -> usize {
    match piece {
        StateSource::Kept(_) | StateSource::Read(_) => 1,
        StateSource::Merged { of, .. } => of.iter().map(count_sources).sum(),
    }
}

/// Collects the largest runs that consist of as many states as a task merges, and of no fewer than two.
pub(crate) fn collect_runs<'a>(piece: &'a StateSource, into: &mut Vec<&'a StateSource>) {
    let StateSource::Merged { of, .. } = piece else {
        return;
    };
    let is_lowest = of.iter().all(|piece| count_sources(piece) == 1);
    match is_lowest || count_sources(piece) <= sources_per_merge() {
        true => into.push(piece),
        false => of.iter().for_each(|piece| collect_runs(piece, into)),
    }
}

/// The spans of a source.
pub(crate) fn tasks_of(piece: &StateSource) -> Range<usize> {
    match piece {
        StateSource::Kept(tasks) | StateSource::Read(tasks) | StateSource::Merged { tasks, .. } => {
            tasks.clone()
        }
    }
}

/// Neighbouring sources, as runs of as many as a task merges.
pub(crate) fn group_sources(pieces: &[StateSource], questions: usize) -> Vec<StateSource> {
    let group = |group: &[StateSource]| match group {
        [first, .., last] => {
            let tasks = tasks_of(first).start..tasks_of(last).end;
            vec![StateSource::Merged {
                tasks,
                kept: vec![false; questions],
                of: group.to_vec(),
            }]
        }
        alone => alone.to_vec(),
    };
    pieces.chunks(sources_per_merge()).flat_map(group).collect()
}

/// The source once the states of these runs are committed.
pub(crate) fn with_merged_runs(piece: StateSource, merged: &[Range<usize>]) -> StateSource {
    match piece {
        StateSource::Merged { tasks, .. } if merged.contains(&tasks) => StateSource::Kept(tasks),
        StateSource::Merged { tasks, kept, of } => {
            let of = of
                .into_iter()
                .map(|piece| with_merged_runs(piece, merged))
                .collect();
            StateSource::Merged { tasks, kept, of }
        }
        piece => piece,
    }
}

/// Collects the runs whose states are merged of others for an analyzer.
pub(crate) fn collect_merged(piece: &StateSource, question: usize, into: &mut Vec<Range<usize>>) {
    match piece {
        StateSource::Merged { tasks, kept, of } if !kept[question] => {
            of.iter()
                .for_each(|piece| collect_merged(piece, question, into));
            into.push(tasks.clone());
        }
        _ => {}
    }
}

/// Collects the runs whose states are read from the store.
pub(crate) fn collect_kept(piece: &StateSource, into: &mut Vec<Range<usize>>) {
    match piece {
        StateSource::Kept(tasks) | StateSource::Read(tasks) => into.push(tasks.clone()),
        StateSource::Merged { tasks, of, .. } => {
            into.push(tasks.clone());
            of.iter().for_each(|piece| collect_kept(piece, into));
        }
    }
}

/// Collects the runs whose states are read from the store or learned, and are not merged of others.
pub(crate) fn collect_lowest(piece: &StateSource, into: &mut Vec<Range<usize>>) {
    match piece {
        StateSource::Kept(tasks) | StateSource::Read(tasks) => into.push(tasks.clone()),
        StateSource::Merged { of, .. } => of.iter().for_each(|piece| collect_lowest(piece, into)),
    }
}

/// Collects the runs whose rows are read.
pub(crate) fn collect_reads(piece: &StateSource, into: &mut Vec<Range<usize>>) {
    match piece {
        StateSource::Kept(_) => {}
        StateSource::Read(tasks) => into.push(tasks.clone()),
        StateSource::Merged { of, .. } => of.iter().for_each(|piece| collect_reads(piece, into)),
    }
}
