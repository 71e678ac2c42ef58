//! Checks of a pipeline that need no data.

use std::collections::BTreeSet;

use forebay_contract::PredictConfig;
use forebay_model::{
    DataSplit, DegradationLevel, Fault, FaultCode, NodeInput, Pipeline, PipelineDeadline,
    PipelineSink, codes, suggestion,
};
use forebay_plan::{FUTURE_PART, SqlCompiler, TransformRegistry};
use forebay_run::{DeadlineSpec, FeedConfig};

use super::expressions::ExpressionFinder;
use crate::cycles::step_cycles;
use crate::spec::name::{is_name, name_complaint, name_hint};
use crate::split_problems::{civil_duration_hint, is_duration_text, split_problems};

/// A name that a step uses.
struct NameUse {
    by: String,
    name: String,
}

/// All problems of a pipeline, in the order of its parts. `transforms` are those of its steps.
pub(super) fn problems(pipeline: &Pipeline, transforms: &TransformRegistry) -> Vec<Fault> {
    let mut check = PipelineCheck {
        pipeline,
        transforms,
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
    transforms: &'a TransformRegistry,
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

    /// Checks that names are well-formed, and that each is given once.
    fn names(&mut self) {
        // Quarantined rows have a step of their own, whose name no user can give.
        let is_named_by_user = |name: &&str| !name.ends_with(".quarantined");
        let datasets: Vec<&str> = self
            .datasets()
            .into_iter()
            .filter(is_named_by_user)
            .collect();
        let sinks: Vec<&str> = self.all_sinks().map(|sink| sink.name.as_str()).collect();
        let mut complaints: Vec<(FaultCode, String, Option<String>)> = Vec::new();
        let pipeline = self.pipeline.name.as_str();
        for name in std::iter::once(&pipeline)
            .chain(&datasets)
            .chain(&sinks)
            .filter(|name| !is_name(name))
        {
            complaints.push((codes::BAD_VALUE, name_complaint(name), name_hint(name)));
        }
        for (names, subject) in [(&datasets, "two steps or sources"), (&sinks, "two sinks")] {
            let mut seen = BTreeSet::new();
            for name in names.iter().filter(|name| !seen.insert(**name)) {
                complaints.push((
                    codes::DUPLICATE,
                    format!("{subject} are called `{name}`"),
                    None,
                ));
            }
        }
        if datasets.is_empty() {
            complaints.push((
                codes::MISSING_FIELD,
                "the pipeline has no source".to_owned(),
                None,
            ));
        }
        for (code, message, hint) in complaints {
            self.report(code, message, hint);
        }
    }

    /// Checks that all inputs exist. Returns the inputs of steps.
    fn inputs(&mut self) -> Vec<NameUse> {
        let uses = self.step_inputs();
        let mut end_uses: Vec<NameUse> = Vec::new();
        for sink in self.all_sinks() {
            end_uses.push(NameUse {
                by: sink.name.clone(),
                name: sink.from.clone(),
            });
        }
        for name in self.feed_inputs() {
            end_uses.push(NameUse {
                by: "feed".to_owned(),
                name,
            });
        }
        let datasets = self.datasets();
        for NameUse { by, name } in uses.iter().chain(&end_uses) {
            if datasets.contains(&name.as_str()) {
                continue;
            }
            let others = datasets.iter().copied().filter(|dataset| dataset != by);
            let hint = suggestion(name, others, "the steps and sources are");
            let message = format!("`{by}` reads `{name}`, and there is no such step or source");
            self.report(codes::UNKNOWN_NAME, message, hint);
        }
        uses
    }

    /// Inputs of steps, and of their transforms. Queries that cannot be parsed are reported.
    fn step_inputs(&mut self) -> Vec<NameUse> {
        let mut uses: Vec<NameUse> = Vec::new();
        for node in &self.pipeline.nodes {
            let mut names = match &node.input {
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
            for step in &node.steps {
                // Steps that the builder adds itself read no other rows.
                if let Ok(facts) = self.transforms.facts(step) {
                    names.extend(facts.other_input);
                }
            }
            for name in names {
                uses.push(NameUse {
                    by: node.name.clone(),
                    name,
                });
            }
        }
        uses
    }

    /// Datasets that the feed reads. A feed that cannot be parsed is reported elsewhere.
    fn feed_inputs(&self) -> Vec<String> {
        let Some(feed) = &self.pipeline.feed else {
            return Vec::new();
        };
        let Ok(feed) = FeedConfig::from_json(feed.config.clone()) else {
            return Vec::new();
        };
        let mixed = feed.mix.into_iter().map(|mix| mix.from);
        feed.from.into_iter().chain(mixed).collect()
    }

    /// Checks the syntax of SQL in steps. Columns and types are checked when the pipeline is bound
    /// to data.
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
        let mut used: Vec<(String, String)> = Vec::new();
        for node in &pipeline.nodes {
            if let Some(part) = &node.fit_on {
                used.push((node.name.clone(), part.clone()));
            }
        }
        for sink in self.all_sinks() {
            // Rows of the future are known when sources are bound.
            if let Some(part) = &sink.split
                && part != FUTURE_PART
            {
                used.push((sink.name.clone(), part.clone()));
            }
        }
        let Some(split) = &pipeline.split else {
            for (by, part) in used {
                let message = format!("`{by}` takes the part `{part}`, and there is no split");
                let hint = "declare one with `split`".to_owned();
                self.report(codes::UNKNOWN_NAME, message, Some(hint));
            }
            return;
        };
        let parts = split.parts();
        for (by, part) in used {
            if parts.contains(&part.as_str()) {
                continue;
            }
            let message =
                format!("`{by}` takes the part `{part}`, and the split has none of this name");
            let hint = suggestion(&part, parts.iter().copied(), "its parts are");
            self.report(codes::UNKNOWN_NAME, message, hint);
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
            self.report(
                codes::BAD_VALUE,
                format!("`{text}` is not a length of time"),
                Some(civil_duration_hint(text)),
            );
        }
    }

    /// Checks that optional steps can be left out: each reader of an optional step is optional, and
    /// at least one output is written without them.
    fn optional(&mut self, uses: &[NameUse]) {
        let pipeline = self.pipeline;
        let is_optional = |name: &str| pipeline.node(name).is_some_and(|node| node.optional);
        let mut reads: Vec<(String, String)> = Vec::new();
        for used in uses {
            if !is_optional(&used.by) && is_optional(&used.name) {
                reads.push((used.by.clone(), used.name.clone()));
            }
        }
        for sink in self.all_sinks() {
            if !sink.optional && is_optional(&sink.from) {
                reads.push((sink.name.clone(), sink.from.clone()));
            }
        }
        for (by, name) in reads {
            let message = format!("`{by}` reads `{name}`, which may be left out");
            let hint = format!("make `{by}` optional too, or `{name}` not");
            self.report(codes::UNSUPPORTED, message, Some(hint));
        }
        if self.all_sinks().next().is_some() && self.all_sinks().all(|sink| sink.optional) {
            let message = "every sink may be left out, so that nothing would be written".to_owned();
            let hint = "let one of them not be optional".to_owned();
            self.report(codes::UNSUPPORTED, message, Some(hint));
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
            // A configuration that cannot be read is reported where it is declared.
            let Ok(config) = serde_json::from_value::<PredictConfig>(prediction.config.clone())
            else {
                continue;
            };
            for model in config.models() {
                if trainings.contains(&model) {
                    continue;
                }
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
        if let Some(by) = &deadline.by {
            self.faults.extend(DeadlineSpec::parse(by).err());
        }
        if !deadline.ladder.windows(2).all(|pair| pair[0] < pair[1]) {
            let message = "the ladder goes from the mildest rung to the last, each once".to_owned();
            let hint = "the order is skip_optional, reuse_states, last_model, naive".to_owned();
            self.report(codes::BAD_VALUE, message, Some(hint));
        }
        let has_optional = self.pipeline.nodes.iter().any(|node| node.optional)
            || self.all_sinks().any(|sink| sink.optional);
        if deadline.ladder.contains(&DegradationLevel::SkipOptional) && !has_optional {
            let message = "nothing is optional, so that nothing can be skipped".to_owned();
            let hint = "mark steps or sinks with `optional`".to_owned();
            self.report(codes::UNSUPPORTED, message, Some(hint));
        }
        let Some(webhook) = &deadline.webhook else {
            return;
        };
        if !webhook.starts_with("http://") && !webhook.starts_with("https://") {
            let message = "the webhook is no http:// or https:// URL".to_owned();
            self.report(codes::BAD_VALUE, message, None);
        }
    }
}
