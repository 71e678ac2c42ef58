//! What can be checked of a pipeline without its data.

use std::collections::BTreeSet;

use forebay_model::{
    DataSplit, DegradationLevel, Fault, FaultCode, NodeInput, Pipeline, PipelineDeadline,
    PipelineSink, codes, suggestion,
};
use forebay_plan::{FUTURE_PART, SqlCompiler};
use forebay_run::{DeadlineSpec, FeedConfig};

use super::expressions::ExpressionFinder;
use crate::cycles::step_cycles;
use crate::spec::name::{is_name, name_hint};
use crate::split_problems::{DURATION_HINT, is_duration_text, split_problems};

/// Transforms that look at another step or source beside their own rows, which they name under `with`.
const LOOKS_AT_OTHERS: [&str; 2] = ["join", "as_of_join"];

/// A name that a step uses.
struct NameUse {
    by: String,
    name: String,
}

/// All problems of a pipeline, in the order of its parts.
pub(super) fn problems(pipeline: &Pipeline) -> Vec<Fault> {
    let mut check = PipelineCheck {
        pipeline,
        sql: SqlCompiler::default(),
        faults: Vec::new(),
    };
    check.names();
    let uses = check.inputs();
    check.expressions();
    check.cycles(&uses);
    check.split();
    check.lengths();
    check.optional(&uses);
    check.predictions();
    if let Some(deadline) = &pipeline.deadline {
        check.deadline(deadline);
    }
    check.faults
}

struct PipelineCheck<'a> {
    pipeline: &'a Pipeline,
    sql: SqlCompiler,
    faults: Vec<Fault>,
}

impl<'a> PipelineCheck<'a> {
    fn report(&mut self, code: FaultCode, message: String, hint: Option<String>) {
        let fault = Fault::new(code, message);
        self.faults.push(match hint {
            Some(hint) => fault.hint(hint),
            None => fault,
        });
    }

    fn all_sinks(&self) -> impl Iterator<Item = &'a PipelineSink> + use<'a> {
        let pipeline = self.pipeline;
        pipeline
            .sinks
            .iter()
            .chain(&pipeline.trainings)
            .chain(&pipeline.predictions)
    }

    fn datasets(&self) -> Vec<&'a str> {
        let pipeline = self.pipeline;
        let sources = pipeline.sources.iter().map(|source| source.name.as_str());
        sources
            .chain(pipeline.nodes.iter().map(|node| node.name.as_str()))
            .collect()
    }

    /// Names are well-formed, and each is given once.
    fn names(&mut self) {
        // Quarantined rows have a step of their own, whose name no user can give.
        let own = |name: &&str| !name.ends_with(".quarantined");
        let datasets: Vec<&str> = self.datasets().into_iter().filter(own).collect();
        let sinks: Vec<&str> = self.all_sinks().map(|sink| sink.name.as_str()).collect();
        let mut found: Vec<(FaultCode, String, Option<String>)> = Vec::new();
        let pipeline = self.pipeline.name.as_str();
        for name in std::iter::once(&pipeline)
            .chain(&datasets)
            .chain(&sinks)
            .filter(|name| !is_name(name))
        {
            let message = format!(
                "`{name}` is not a name: use lower-case letters, digits and `_`, a letter first"
            );
            found.push((codes::BAD_VALUE, message, name_hint(name)));
        }
        for (names, what) in [(&datasets, "two steps or sources"), (&sinks, "two sinks")] {
            let mut seen = BTreeSet::new();
            for name in names.iter().filter(|name| !seen.insert(**name)) {
                found.push((
                    codes::DUPLICATE,
                    format!("{what} are called `{name}`"),
                    None,
                ));
            }
        }
        if datasets.is_empty() {
            found.push((
                codes::MISSING_FIELD,
                "the pipeline has no source".to_owned(),
                None,
            ));
        }
        found
            .into_iter()
            .for_each(|(code, message, hint)| self.report(code, message, hint));
    }

    /// Whatever is read is there. Returns what steps read.
    fn inputs(&mut self) -> Vec<NameUse> {
        let mut uses: Vec<NameUse> = Vec::new();
        for node in &self.pipeline.nodes {
            let names = match &node.input {
                NodeInput::From(name) => vec![name.clone()],
                NodeInput::Union(names) => names.clone(),
                NodeInput::Sql(query) => match self.sql.tables(query) {
                    Ok(tables) => tables,
                    Err(fault) => {
                        self.faults.push(fault.step(&node.name));
                        continue;
                    }
                },
            };
            let others = node
                .steps
                .iter()
                .filter(|step| LOOKS_AT_OTHERS.contains(&step.kind.as_str()));
            let others =
                others.filter_map(|step| Some(step.config.get("with")?.as_str()?.to_owned()));
            uses.extend(names.into_iter().chain(others).map(|name| NameUse {
                by: node.name.clone(),
                name,
            }));
        }
        let sinks = self.all_sinks().map(|sink| NameUse {
            by: sink.name.clone(),
            name: sink.from.clone(),
        });
        let feed = self
            .pipeline
            .feed
            .as_ref()
            .and_then(|feed| FeedConfig::from_json(feed.config.clone()).ok());
        let feed = feed.into_iter().flat_map(|feed| {
            feed.from
                .into_iter()
                .chain(feed.mix.into_iter().map(|mix| mix.from))
        });
        let feed = feed.map(|name| NameUse {
            by: "feed".to_owned(),
            name,
        });
        let ends: Vec<NameUse> = sinks.chain(feed).collect();
        let known = self.datasets();
        let unknown: Vec<(String, Option<String>)> = uses
            .iter()
            .chain(&ends)
            .filter(|used| !known.contains(&used.name.as_str()))
            .map(|used| {
                let others = known.iter().copied().filter(|name| *name != used.by);
                let hint = suggestion(&used.name, others, "the steps and sources are");
                (
                    format!(
                        "`{}` reads `{}`, and there is no such step or source",
                        used.by, used.name
                    ),
                    hint,
                )
            })
            .collect();
        unknown
            .into_iter()
            .for_each(|(message, hint)| self.report(codes::UNKNOWN_NAME, message, hint));
        uses
    }

    /// SQL in steps is SQL. Columns and types are looked at when the pipeline meets its data.
    fn expressions(&mut self) {
        let finder = ExpressionFinder::new();
        for node in &self.pipeline.nodes {
            for step in &node.steps {
                for text in finder.expressions(&step.kind, &step.config) {
                    let wrong = self.sql.parses(&text).err();
                    self.faults.extend(
                        wrong.map(|fault| fault.step(format!("{}.{}", node.name, step.kind))),
                    );
                }
            }
        }
    }

    fn cycles(&mut self, uses: &[NameUse]) {
        let steps: Vec<&str> = self
            .pipeline
            .nodes
            .iter()
            .map(|node| node.name.as_str())
            .collect();
        let between: Vec<(&str, &str)> = uses
            .iter()
            .filter(|used| steps.contains(&used.name.as_str()))
            .map(|used| (used.by.as_str(), used.name.as_str()))
            .collect();
        for cycle in step_cycles(&steps, &between) {
            self.report(
                codes::CYCLE,
                cycle.message(),
                Some("let one of them read a source".to_owned()),
            );
        }
    }

    /// The split, and its parts where they are used.
    fn split(&mut self) {
        let pipeline = self.pipeline;
        for problem in pipeline.split.iter().flat_map(split_problems) {
            let hint = Some(problem.hint.to_owned()).filter(|hint| !hint.is_empty());
            self.report(problem.code, format!("`split`: {}", problem.message), hint);
        }
        if let Some(DataSplit::Expressions(parts)) = &pipeline.split {
            for (_, condition) in parts {
                self.faults.extend(self.sql.parses(condition).err());
            }
        }
        let parts = pipeline.split.as_ref().map(|split| split.parts());
        let fitted = pipeline
            .nodes
            .iter()
            .filter_map(|node| Some((&node.name, node.fit_on.as_ref()?)));
        // Whether the rows have rows of the future shows when they are bound.
        let sinks = self
            .all_sinks()
            .filter_map(|sink| Some((&sink.name, sink.split.as_ref()?)));
        let used = fitted.chain(sinks.filter(|(_, part)| *part != FUTURE_PART));
        for (by, part) in used.filter(|(_, part)| {
            !parts
                .as_ref()
                .is_some_and(|parts| parts.contains(&part.as_str()))
        }) {
            match &parts {
                None => {
                    let message = format!("`{by}` takes the part `{part}`, and there is no split");
                    self.report(
                        codes::UNKNOWN_NAME,
                        message,
                        Some("declare one with `split`".to_owned()),
                    );
                }
                Some(parts) => {
                    let message = format!(
                        "`{by}` takes the part `{part}`, and the split has none of this name"
                    );
                    let hint = suggestion(part, parts.iter().copied(), "its parts are");
                    self.report(codes::UNKNOWN_NAME, message, hint);
                }
            }
        }
    }

    fn lengths(&mut self) {
        let lookbacks = self
            .pipeline
            .sources
            .iter()
            .filter_map(|source| source.lookback.as_deref());
        let wrong: Vec<&str> = lookbacks.filter(|text| !is_duration_text(text)).collect();
        for text in wrong {
            let hint = forebay_transforms::duration_hint(text).unwrap_or(DURATION_HINT.to_owned());
            self.report(
                codes::BAD_VALUE,
                format!("`{text}` is not a length of time"),
                Some(hint),
            );
        }
    }

    /// What is left out must not be missed: whatever reads an optional step is optional, and something is written all
    /// the same.
    fn optional(&mut self, uses: &[NameUse]) {
        let pipeline = self.pipeline;
        let is_optional = |name: &str| pipeline.node(name).is_some_and(|node| node.optional);
        let steps = uses
            .iter()
            .filter(|used| !is_optional(&used.by))
            .map(|used| (used.by.as_str(), used.name.as_str()));
        let sinks = self
            .all_sinks()
            .filter(|sink| !sink.optional)
            .map(|sink| (sink.name.as_str(), sink.from.as_str()));
        for (by, name) in steps.chain(sinks).filter(|(_, name)| is_optional(name)) {
            let hint = format!("make `{by}` optional too, or `{name}` not");
            self.report(
                codes::UNSUPPORTED,
                format!("`{by}` reads `{name}`, which may be left out"),
                Some(hint),
            );
        }
        if self.all_sinks().next().is_some() && self.all_sinks().all(|sink| sink.optional) {
            let message = "every sink may be left out, so that nothing would be written".to_owned();
            self.report(
                codes::UNSUPPORTED,
                message,
                Some("let one of them not be optional".to_owned()),
            );
        }
    }

    /// Forecasts name a training.
    fn predictions(&mut self) {
        let trainings: Vec<&str> = self
            .pipeline
            .trainings
            .iter()
            .map(|training| training.name.as_str())
            .collect();
        for prediction in &self.pipeline.predictions {
            let Some(model) = prediction
                .config
                .get("model")
                .and_then(|model| model.as_str())
            else {
                continue;
            };
            if !trainings.contains(&model) {
                let message = format!(
                    "`{}` predicts with `{model}`, and there is no such training",
                    prediction.name
                );
                let hint = suggestion(model, trainings.iter().copied(), "the trainings are");
                self.report(codes::UNKNOWN_NAME, message, hint);
            }
        }
    }

    fn deadline(&mut self, deadline: &PipelineDeadline) {
        self.faults.extend(
            deadline
                .by
                .as_deref()
                .and_then(|by| DeadlineSpec::parse(by).err()),
        );
        if !deadline.ladder.windows(2).all(|pair| pair[0] < pair[1]) {
            let message = "the ladder goes from the mildest rung to the last, each once".to_owned();
            let hint = "the order is skip_optional, reuse_states, last_model, naive".to_owned();
            self.report(codes::BAD_VALUE, message, Some(hint));
        }
        let is_optional = self.pipeline.nodes.iter().any(|node| node.optional)
            || self.all_sinks().any(|sink| sink.optional);
        if deadline.ladder.contains(&DegradationLevel::SkipOptional) && !is_optional {
            let message = "nothing is optional, so that nothing can be skipped".to_owned();
            self.report(
                codes::UNSUPPORTED,
                message,
                Some("mark steps or sinks with `optional`".to_owned()),
            );
        }
        let is_url = |url: &str| url.starts_with("http://") || url.starts_with("https://");
        if deadline.webhook.as_deref().is_some_and(|url| !is_url(url)) {
            self.report(
                codes::BAD_VALUE,
                "the webhook is no http:// or https:// URL".to_owned(),
                None,
            );
        }
    }
}
