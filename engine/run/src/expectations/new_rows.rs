//! The rows of a run that no run of an earlier day had read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_execute::{RunState, SourceInput};
use forebay_model::{ContentId, Dataset, FileRange, Finding, Result};
use forebay_plan::{
    AnalyzerId, BaseDataset, BoundAnalyzer, DriftBaseline, ExpectationJudge, compile_analyzers,
    needed_ops,
};
use forebay_storage::IgnoreEvents;
use serde::{Deserialize, Serialize};

use crate::executor::RunExecutor;
use crate::row_rules::expectation_of;
use crate::session::datasets;

/// Letters of a fingerprint that name a file.
const NAME_LETTERS: usize = 16;

/// The files of sources, each with the day, counted from 1970, of the first run that read it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct KnownFiles(BTreeMap<String, BTreeMap<String, i64>>);

impl KnownFiles {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if no run of a day before this one had read the content of the file.
    fn is_new(&self, source: &str, piece: &FileRange, day: i64) -> bool {
        let files = self.0.get(source);
        let first_day = files.and_then(|files| files.get(&content_name(piece)));
        first_day.is_none_or(|first_day| *first_day >= day)
    }

    /// Adds the files that a run of this day reads of a source. Files that are gone are forgotten,
    /// except for those of later days: an earlier day that is done again does not read them.
    fn insert(&mut self, source: &str, dataset: &Dataset, day: i64) {
        let known_files = self.0.remove(source).unwrap_or_default();
        let mut files: BTreeMap<String, i64> = BTreeMap::new();
        for piece in dataset.spans.iter().flat_map(|span| &span.pieces) {
            let name = content_name(piece);
            let first = match known_files.get(&name) {
                Some(first) => day.min(*first),
                None => day,
            };
            files.insert(name, first);
        }
        for (name, first) in known_files {
            if first > day {
                files.entry(name).or_insert(first);
            }
        }
        self.0.insert(source.to_owned(), files);
    }
}

fn piece_count(dataset: &Dataset) -> usize {
    dataset.spans.iter().map(|span| span.pieces.len()).sum()
}

/// Name of a file's content.
fn content_name(piece: &FileRange) -> String {
    let fingerprint = piece.fingerprint.to_string();
    fingerprint.chars().take(NAME_LETTERS).collect()
}

/// Findings about the rows that are new in a run.
#[derive(Default)]
pub(super) struct NewRows {
    /// The analyzers of rules that compare the new rows alone.
    compared: BTreeSet<AnalyzerId>,
    /// Findings of these analyzers in the new rows; empty if there is no new file.
    findings: BTreeMap<AnalyzerId, Arc<Finding>>,
    /// Files that the next run counts as read.
    pub known: KnownFiles,
}

impl NewRows {
    /// Findings of some analyzers in the new rows: empty if there is no new file. `None` where all
    /// rows are compared.
    pub fn findings(&self, asks: &[AnalyzerId]) -> Option<Vec<Arc<Finding>>> {
        if !asks.iter().all(|ask| self.compared.contains(ask)) {
            return None;
        }
        let findings = asks.iter().filter_map(|ask| self.findings.get(ask));
        Some(findings.cloned().collect())
    }
}

impl RunExecutor<'_> {
    /// Learns the findings of rules that compare with the trailing week, from the files that no run
    /// of an earlier day had read. The findings of the steps before a rule stay in use.
    pub(super) fn learn_new_rows(&self, known_files: &KnownFiles, day: i64) -> Result<NewRows> {
        let mut new = NewRows {
            known: known_files.clone(),
            ..NewRows::default()
        };
        let mut sources: BTreeSet<&str> = BTreeSet::new();
        for ask in self.asks_of_weeks() {
            if let Some(ask_sources) = self.sources_of_own_rows(ask) {
                new.compared.insert(ask);
                sources.extend(ask_sources);
            }
        }
        let mut inputs = self.state.sources.clone();
        let mut is_partial = false;
        let mut has_rows = false;
        for source in sources {
            let Some(input) = inputs.get_mut(source) else {
                continue;
            };
            new.known.insert(source, &input.dataset, day);
            let mut dataset = input.dataset.as_ref().clone();
            let all_pieces = piece_count(&dataset);
            for span in &mut dataset.spans {
                span.pieces
                    .retain(|piece| known_files.is_new(source, piece, day));
            }
            dataset.spans.retain(|span| !span.pieces.is_empty());
            is_partial |= piece_count(&dataset) < all_pieces;
            has_rows |= !dataset.spans.is_empty();
            *input = SourceInput {
                dataset: Arc::new(dataset),
                ..input.clone()
            };
        }
        if !is_partial {
            // All rows are new.
            new.compared.clear();
        } else if has_rows {
            new.findings = self.learn_from(inputs, &new.compared)?;
        }
        Ok(new)
    }

    /// The analyzers of rules that compare with the trailing week.
    fn asks_of_weeks(&self) -> impl Iterator<Item = AnalyzerId> {
        let compares = |judge: &ExpectationJudge| match judge {
            ExpectationJudge::Drift(rule) => rule.against == DriftBaseline::TrailingWeek,
            _ => false,
        };
        let ops = self.program.bound.ops.iter();
        let rules = ops.filter(move |op| {
            expectation_of(op).is_some_and(|expectation| compares(&expectation.judge))
        });
        rules.flat_map(|op| op.asks.iter().copied())
    }

    /// The sources whose rows an analyzer reads; `None` where its input in a row depends on other
    /// rows: after windows, joins, aggregates and queries.
    fn sources_of_own_rows(&self, ask: AnalyzerId) -> Option<Vec<&str>> {
        let bound = &self.program.bound;
        let scans = self.program.scans_for(ask);
        let is_alone = needed_ops(&scans).all(|op| !bound.ops[op].op.is_over_series());
        let source = |base: usize| match &bound.bases[base] {
            BaseDataset::Source(name) => Some(name.as_str()),
            BaseDataset::Gathered(_) => None,
        };
        scans
            .iter()
            .map(|scan| source(scan.base).filter(|_| is_alone))
            .collect()
    }

    /// The findings of some analyzers over other rows of the sources.
    fn learn_from(
        &self,
        sources: BTreeMap<String, SourceInput>,
        asks: &BTreeSet<AnalyzerId>,
    ) -> Result<BTreeMap<AnalyzerId, Arc<Finding>>> {
        let mut bound = self.program.bound.clone();
        let mut copies = BTreeMap::new();
        for ask in asks {
            copies.insert(*ask, bound.asks.len());
            bound.asks.push(BoundAnalyzer {
                held: None,
                ..bound.asks[*ask].clone()
            });
        }
        for ask in 0..self.program.bound.asks.len() {
            bound.asks[ask].held = self.state.finding(&self.program, ask).ok();
        }
        let analyzers: Vec<_> = bound
            .asks
            .iter()
            .map(|ask| ask.ask.analyzer.clone())
            .collect();
        let memory = self.session.memory();
        let share = self
            .scratch
            .scratch_with_budget(memory, memory.states_bytes());
        let mut findings: BTreeMap<ContentId, Arc<Finding>> = BTreeMap::new();
        let copied_asks: BTreeSet<AnalyzerId> = copies.values().copied().collect();
        let program = compile_analyzers(
            self.pipeline,
            bound,
            &datasets(&sources),
            copied_asks,
            &mut |ask, state| {
                self.store
                    .load_finding(state, analyzers[ask].as_ref(), &share, &mut findings)
            },
        )?;
        let state = RunState {
            sources,
            findings,
            ..RunState::default()
        };
        let session = self
            .session
            .for_extra_learning()
            .with_listener(Arc::new(IgnoreEvents));
        let run = RunExecutor::new(
            &session,
            self.pipeline,
            self.store.clone(),
            self.scratch.clone(),
            program,
            state,
        );
        let run = run.learn_only()?;
        copies
            .into_iter()
            .map(|(ask, copy)| Ok((ask, run.state.finding(&run.program, copy)?)))
            .collect()
    }
}
