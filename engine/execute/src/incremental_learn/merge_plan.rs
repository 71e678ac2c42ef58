//! Plan of a merge: the runs of spans that the state of all rows is merged of.
//!
//! Pure: facts in, a tree of [`StateSource`]s out. Some states are committed (`Kept`), some are learned from rows
//! (`Read`), and others are merged of these first (`Merged`).

use std::collections::BTreeSet;
use std::ops::Range;

use forebay_cluster::StateSource;
use forebay_model::Result;

/// The runs of spans whose states some analyzers of the lane keep.
pub(super) struct RunTree {
    /// Lowest level first.
    pub levels: Vec<Vec<Range<usize>>>,
    /// Indices of the analyzers.
    pub analyzers: Vec<usize>,
}

impl RunTree {
    fn runs_within(&self, level: usize, run: &Range<usize>) -> impl Iterator<Item = &Range<usize>> {
        let runs = self.levels[level].iter();
        runs.filter(move |part| run.start <= part.start && part.end <= run.end)
    }
}

/// The states that earlier runs have committed.
pub(super) trait CommittedStates {
    /// For each analyzer, true if its state of a run of spans is committed.
    fn committed(&self, run: &Range<usize>) -> Result<Vec<bool>>;
}

/// Sources whose states together are the state of all rows, in order.
pub(super) struct MergePlan {
    pub sources: Vec<StateSource>,
}

impl MergePlan {
    /// Plans the state of all rows. `grows` is true for a history: its last run may have been shorter in an earlier
    /// run.
    pub fn new(tree: &RunTree, grows: bool, states: &dyn CommittedStates) -> Result<MergePlan> {
        let planner = SourcePlanner {
            tree,
            grows,
            states,
        };
        let mut sources = Vec::new();
        if let Some(level) = tree.levels.len().checked_sub(1) {
            for run in &tree.levels[level] {
                sources.push(planner.source(level, run)?);
            }
        }
        Ok(MergePlan { sources })
    }

    /// True if the rows of all sources are read, so that none has a committed state or is merged of
    /// others.
    pub fn is_of_rows_read(&self) -> bool {
        let mut sources = self.sources.iter();
        sources.all(|source| matches!(source, StateSource::Read(_)))
    }

    /// The runs whose rows are read.
    pub fn reads(&self) -> Vec<Range<usize>> {
        let mut reads = Vec::new();
        for source in &self.sources {
            collect_reads(source, &mut reads);
        }
        reads
    }

    /// The runs whose states are read from the store, once the rows have been read.
    pub fn stored_runs(&self) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        for source in &self.sources {
            collect_stored(source, &mut runs);
        }
        runs
    }

    /// The runs whose states are read from the store or learned, and are not merged of others.
    pub fn lowest_runs(&self) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        for source in &self.sources {
            collect_lowest(source, &mut runs);
        }
        runs
    }

    /// The runs whose states are merged of others for an analyzer, those within a run before it.
    pub fn merged_runs(&self, analyzer: usize) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        for source in &self.sources {
            collect_merged(source, analyzer, &mut runs);
        }
        runs
    }

    /// Divides the merge between workers and the coordinator, which merges all that is left.
    pub fn for_workers(self, facts: &WorkerMergeFacts) -> WorkerMergePlan {
        let count: usize = self.sources.iter().map(count_sources).sum();
        let total_bytes = facts.state_bytes.saturating_mul(count as u64);
        let is_long = count >= facts.merges_min * facts.sources_per_merge;
        let pays = total_bytes >= facts.bytes_min && is_long;
        if !pays && !facts.has_large {
            return WorkerMergePlan {
                plan: self,
                runs: Vec::new(),
            };
        }
        let plan = if facts.is_history {
            self
        } else {
            self.grouped(facts)
        };
        let mut runs = Vec::new();
        for source in &plan.sources {
            collect_runs(source, facts.sources_per_merge, &mut runs);
        }
        WorkerMergePlan { plan, runs }
    }

    /// Neighbouring sources as runs of as many as a task merges: a dataset that is no history has no levels of runs.
    fn grouped(self, facts: &WorkerMergeFacts) -> MergePlan {
        let mut sources = Vec::new();
        for group in self.sources.chunks(facts.sources_per_merge) {
            match group {
                [first, .., last] => sources.push(StateSource::Merged {
                    tasks: spans_of(first).start..spans_of(last).end,
                    kept: vec![false; facts.analyzers],
                    of: group.to_vec(),
                }),
                alone => sources.extend_from_slice(alone),
            }
        }
        MergePlan { sources }
    }

    /// The plan once the states of these runs are committed.
    pub fn with_committed_runs(self, runs: &[StateSource]) -> MergePlan {
        let committed: BTreeSet<(usize, usize)> = runs
            .iter()
            .map(|run| (spans_of(run).start, spans_of(run).end))
            .collect();
        let sources = self.sources.into_iter();
        MergePlan {
            sources: sources
                .map(|source| with_committed(source, &committed))
                .collect(),
        }
    }
}

/// Facts that decide how much of a merge workers do.
pub(super) struct WorkerMergeFacts {
    pub is_history: bool,
    /// Number of analyzers of the lane
    pub analyzers: usize,
    /// Bytes of the states of a source whose sizes are bounded by nature
    pub state_bytes: u64,
    /// True if some states are large and come from too many units for shares
    pub has_large: bool,
    /// Number of sources that a task merges
    pub sources_per_merge: usize,
    /// Minimum number of tasks that pay
    pub merges_min: usize,
    /// Minimum bytes of all states that pay
    pub bytes_min: u64,
}

/// Part of a merge that workers do, and the whole merge.
pub(super) struct WorkerMergePlan {
    pub plan: MergePlan,
    /// Runs whose states workers merge and commit before the coordinator merges the rest
    pub runs: Vec<StateSource>,
}

struct SourcePlanner<'a> {
    tree: &'a RunTree,
    grows: bool,
    states: &'a dyn CommittedStates,
}

impl SourcePlanner<'_> {
    /// The source of the state of a run at a level of the tree.
    fn source(&self, level: usize, run: &Range<usize>) -> Result<StateSource> {
        let committed = self.states.committed(run)?;
        if self.holds_all(&committed) {
            return Ok(StateSource::Kept(run.clone()));
        }
        let Some(below) = level.checked_sub(1) else {
            return self.lowest_source(run, committed);
        };
        let mut of = Vec::new();
        for part in self.tree.runs_within(below, run) {
            of.push(self.source(below, part)?);
        }
        // A run with a single child has the child's id and state.
        if of.len() == 1 {
            return Ok(of.remove(0));
        }
        Ok(StateSource::Merged {
            tasks: run.clone(),
            kept: committed,
            of,
        })
    }

    /// The source of a run without levels below, some of whose states are missing.
    fn lowest_source(&self, run: &Range<usize>, committed: Vec<bool>) -> Result<StateSource> {
        if !self.grows {
            return Ok(StateSource::Read(run.clone()));
        }
        // The run may have been shorter in an earlier run: the longest beginning is kept.
        for end in (run.start + 1..run.end).rev() {
            if !self.is_committed(&(run.start..end))? {
                continue;
            }
            // A killed run may have committed the rest.
            let remaining_run = end..run.end;
            let remaining_source = if self.is_committed(&remaining_run)? {
                StateSource::Kept(remaining_run)
            } else {
                StateSource::Read(remaining_run)
            };
            return Ok(StateSource::Merged {
                tasks: run.clone(),
                kept: committed,
                of: vec![StateSource::Kept(run.start..end), remaining_source],
            });
        }
        Ok(StateSource::Read(run.clone()))
    }

    fn is_committed(&self, run: &Range<usize>) -> Result<bool> {
        Ok(self.holds_all(&self.states.committed(run)?))
    }

    /// True if the states of all analyzers of the tree are among the committed ones.
    fn holds_all(&self, committed: &[bool]) -> bool {
        self.tree.analyzers.iter().all(|index| committed[*index])
    }
}

/// Number of committed states that a source merges.
pub(super) fn count_sources(source: &StateSource) -> usize {
    match source {
        StateSource::Kept(_) | StateSource::Read(_) => 1,
        StateSource::Merged { of, .. } => of.iter().map(count_sources).sum(),
    }
}

/// Collects the runs whose states are read from the store, once the rows have been read.
pub(super) fn collect_stored(source: &StateSource, into: &mut Vec<Range<usize>>) {
    into.push(spans_of(source));
    if let StateSource::Merged { of, .. } = source {
        of.iter().for_each(|source| collect_stored(source, into));
    }
}

/// Collects the largest runs that consist of as many states as a task merges, and of no fewer than two.
fn collect_runs(source: &StateSource, sources_per_merge: usize, into: &mut Vec<StateSource>) {
    let StateSource::Merged { of, .. } = source else {
        return;
    };
    let is_lowest = of.iter().all(|source| count_sources(source) == 1);
    if is_lowest || count_sources(source) <= sources_per_merge {
        into.push(source.clone());
        return;
    }
    for source in of {
        collect_runs(source, sources_per_merge, into);
    }
}

fn spans_of(source: &StateSource) -> Range<usize> {
    match source {
        StateSource::Kept(spans) | StateSource::Read(spans) => spans.clone(),
        StateSource::Merged { tasks, .. } => tasks.clone(),
    }
}

fn with_committed(source: StateSource, committed: &BTreeSet<(usize, usize)>) -> StateSource {
    let StateSource::Merged { tasks, kept, of } = source else {
        return source;
    };
    if committed.contains(&(tasks.start, tasks.end)) {
        return StateSource::Kept(tasks);
    }
    let of = of.into_iter();
    StateSource::Merged {
        tasks,
        kept,
        of: of.map(|source| with_committed(source, committed)).collect(),
    }
}

fn collect_merged(source: &StateSource, analyzer: usize, into: &mut Vec<Range<usize>>) {
    let StateSource::Merged { tasks, kept, of } = source else {
        return;
    };
    if kept[analyzer] {
        return;
    }
    for source in of {
        collect_merged(source, analyzer, into);
    }
    into.push(tasks.clone());
}

fn collect_lowest(source: &StateSource, into: &mut Vec<Range<usize>>) {
    match source {
        StateSource::Kept(spans) | StateSource::Read(spans) => into.push(spans.clone()),
        StateSource::Merged { of, .. } => of.iter().for_each(|source| collect_lowest(source, into)),
    }
}

fn collect_reads(source: &StateSource, into: &mut Vec<Range<usize>>) {
    match source {
        StateSource::Kept(_) => {}
        StateSource::Read(spans) => into.push(spans.clone()),
        StateSource::Merged { of, .. } => of.iter().for_each(|source| collect_reads(source, into)),
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "levels of one run")]
mod tests {
    use super::*;

    /// Committed runs of each analyzer.
    struct Committed(Vec<Vec<Range<usize>>>);

    impl CommittedStates for Committed {
        fn committed(&self, run: &Range<usize>) -> Result<Vec<bool>> {
            Ok(self.0.iter().map(|runs| runs.contains(run)).collect())
        }
    }

    fn render_source(source: &StateSource, depth: usize, text: &mut String) {
        let indent = "  ".repeat(depth);
        match source {
            StateSource::Kept(spans) => text.push_str(&format!("{indent}kept {spans:?}\n")),
            StateSource::Read(spans) => text.push_str(&format!("{indent}read {spans:?}\n")),
            StateSource::Merged { tasks, kept, of } => {
                let mut kept_by = String::new();
                for (index, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
                    kept_by.push_str(&format!(", kept by {index}"));
                }
                text.push_str(&format!("{indent}merge {tasks:?}{kept_by}\n"));
                for source in of {
                    render_source(source, depth + 1, text);
                }
            }
        }
    }

    fn render(sources: &[StateSource]) -> String {
        let mut text = String::new();
        for source in sources {
            render_source(source, 0, &mut text);
        }
        text
    }

    /// Runs of two spans, of four and of eight.
    fn tree(analyzers: &[usize]) -> RunTree {
        RunTree {
            levels: vec![vec![0..2, 2..4, 4..6, 6..8], vec![0..4, 4..8], vec![0..8]],
            analyzers: analyzers.to_vec(),
        }
    }

    fn facts(is_history: bool) -> WorkerMergeFacts {
        WorkerMergeFacts {
            is_history,
            analyzers: 1,
            state_bytes: 100,
            has_large: false,
            sources_per_merge: 2,
            merges_min: 2,
            bytes_min: 400,
        }
    }

    /// Lines that are indented by twelve columns here.
    fn unindented(expected: &str) -> String {
        let mut lines = String::new();
        for line in expected.lines().filter(|line| !line.trim().is_empty()) {
            lines.push_str(line.strip_prefix("            ").unwrap_or(line));
            lines.push('\n');
        }
        lines
    }

    #[track_caller]
    fn check(sources: &[StateSource], expected: &str) {
        assert_eq!(render(sources), unindented(expected));
    }

    #[test]
    fn plans_keep_what_is_committed_and_read_the_rest() {
        type Case = (&'static str, Vec<Vec<Range<usize>>>, &'static str);
        let cases: [Case; 5] = [
            (
                "nothing is committed",
                vec![vec![]],
                "
            merge 0..8
              merge 0..4
                read 0..2
                read 2..4
              merge 4..8
                read 4..6
                read 6..8",
            ),
            (
                "all is committed",
                vec![vec![0..8]],
                "
            kept 0..8",
            ),
            (
                "the first half is committed",
                vec![vec![0..4, 0..2]],
                "
            merge 0..8
              kept 0..4
              merge 4..8
                read 4..6
                read 6..8",
            ),
            (
                "the last run was shorter",
                vec![vec![0..4, 4..6, 6..7]],
                "
            merge 0..8
              kept 0..4
              merge 4..8
                kept 4..6
                merge 6..8
                  kept 6..7
                  read 7..8",
            ),
            (
                "a killed run has committed the rest of a run",
                vec![vec![0..4, 4..6, 6..7, 7..8]],
                "
            merge 0..8
              kept 0..4
              merge 4..8
                kept 4..6
                merge 6..8
                  kept 6..7
                  kept 7..8",
            ),
        ];
        for (case, committed, expected) in cases {
            let plan = MergePlan::new(&tree(&[0]), true, &Committed(committed)).unwrap();
            assert_eq!(render(&plan.sources), unindented(expected), "{case}");
        }
    }

    #[test]
    fn a_run_that_one_analyzer_has_kept_is_merged_for_the_other() {
        let committed = Committed(vec![vec![0..4, 4..8], vec![4..8, 0..2]]);
        let plan = MergePlan::new(&tree(&[0, 1]), true, &committed).unwrap();
        check(
            &plan.sources,
            "
            merge 0..8
              merge 0..4, kept by 0
                read 0..2
                read 2..4
              kept 4..8",
        );
        assert_eq!(plan.merged_runs(0), [0..8]);
        assert_eq!(plan.merged_runs(1), [0..4, 0..8]);
        assert_eq!(plan.reads(), [0..2, 2..4]);
        assert_eq!(plan.lowest_runs(), [0..2, 2..4, 4..8]);
        assert_eq!(plan.stored_runs(), [0..8, 0..4, 0..2, 2..4, 4..8]);
    }

    #[test]
    fn other_trees_do_not_ask_for_the_states_of_an_analyzer() {
        let committed = Committed(vec![vec![], vec![0..8]]);
        let plan = MergePlan::new(&tree(&[1]), true, &committed).unwrap();
        check(&plan.sources, "kept 0..8");
    }

    #[test]
    fn a_run_with_one_child_is_the_child() {
        let tree = RunTree {
            levels: vec![vec![0..3], vec![0..3]],
            analyzers: vec![0],
        };
        let plan = MergePlan::new(&tree, true, &Committed(vec![vec![0..2]])).unwrap();
        check(
            &plan.sources,
            "
            merge 0..3
              kept 0..2
              read 2..3",
        );
    }

    #[test]
    fn a_dataset_that_is_no_history_has_no_shorter_runs() {
        let tree = RunTree {
            levels: vec![vec![0..3, 3..6]],
            analyzers: vec![0],
        };
        let committed = Committed(vec![vec![0..2, 3..6]]);
        let plan = MergePlan::new(&tree, false, &committed).unwrap();
        check(
            &plan.sources,
            "
            read 0..3
            kept 3..6",
        );
        assert!(!plan.is_of_rows_read());
        let fresh_plan = MergePlan::new(&tree, false, &Committed(vec![vec![]])).unwrap();
        assert!(fresh_plan.is_of_rows_read());
    }

    #[test]
    fn workers_merge_runs_of_many_large_states() {
        let plan = MergePlan::new(&tree(&[0]), true, &Committed(vec![vec![]])).unwrap();
        let divided = plan.for_workers(&facts(true));
        check(
            &divided.runs,
            "
            merge 0..4
              read 0..2
              read 2..4
            merge 4..8
              read 4..6
              read 6..8",
        );
        let coordinator_plan = divided.plan.with_committed_runs(&divided.runs);
        check(
            &coordinator_plan.sources,
            "
            merge 0..8
              kept 0..4
              kept 4..8",
        );
    }

    #[test]
    fn small_and_few_states_are_merged_by_the_coordinator() {
        let small = WorkerMergeFacts {
            state_bytes: 99,
            ..facts(true)
        };
        let few = WorkerMergeFacts {
            merges_min: 3,
            ..facts(true)
        };
        for facts in [small, few] {
            let plan = MergePlan::new(&tree(&[0]), true, &Committed(vec![vec![]])).unwrap();
            assert!(plan.for_workers(&facts).runs.is_empty());
        }
        // A state that is too large for the coordinator is merged by workers in any case.
        let large = WorkerMergeFacts {
            state_bytes: 0,
            has_large: true,
            ..facts(true)
        };
        let plan = MergePlan::new(&tree(&[0]), true, &Committed(vec![vec![]])).unwrap();
        assert_eq!(plan.for_workers(&large).runs.len(), 2);
    }

    #[test]
    fn units_of_a_dataset_without_levels_are_grouped_for_workers() {
        let tree = RunTree {
            levels: vec![vec![0..1, 1..2, 2..3, 3..4, 4..5]],
            analyzers: vec![0],
        };
        let plan = MergePlan::new(&tree, false, &Committed(vec![vec![]])).unwrap();
        let divided = plan.for_workers(&facts(false));
        check(
            &divided.plan.sources,
            "
            merge 0..2
              read 0..1
              read 1..2
            merge 2..4
              read 2..3
              read 3..4
            read 4..5",
        );
        assert_eq!(divided.runs.len(), 2);
    }
}
