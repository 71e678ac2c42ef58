//! Converts the checked tree to the pipeline. A wrong part is left out, so that the others can
//! still be checked.

use std::collections::BTreeSet;

use forebay_contract::parse_refit;
use forebay_model::{
    ConfigError, ConfigResult, DataSplit, DayRules, DegradationLevel, DuplicateRows, Fault,
    FaultCode, NodeInput, Pipeline, PipelineDeadline, PipelineFeed, PipelineNode as StepNode,
    PipelineServing, PipelineSink, PipelineSource, PredictionLabel, ReadinessCondition,
    SpecLocation, Step, codes,
};
use forebay_run::{DeadlineSpec, FeedConfig};
use forebay_transforms::add_quarantined_step;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::check::{describe_container, quoted, suggest_words};
use super::node::{TextPosition, YamlData, YamlKey, YamlNode};
use super::wire;
use super::words::{ConnectorFormat, SpecCatalog};
use crate::present::units;
use crate::split_problems::{SplitProblem, civil_duration_hint, is_duration_text, split_problems};

/// Place of the format of a source's time.
const TIME_FORMAT: &str = "time.format";

/// The time of a source that is read by a format.
struct FormattedTime {
    column: String,
    format: String,
}

impl FormattedTime {
    fn of(source: &YamlNode) -> Option<FormattedTime> {
        let time = source.get("time")?;
        Some(FormattedTime {
            column: time.get("column")?.text()?.to_owned(),
            format: time.get("format")?.text()?.to_owned(),
        })
    }
}

pub(super) struct SpecConverter<'a> {
    pub file: &'a str,
    pub words: &'a SpecCatalog<'a>,
    pub faults: Vec<Fault>,
    /// Paths in which the schema's check has found something.
    pub reported: Vec<SpecLocation>,
    /// Paths of steps that could not be read.
    pub unread: BTreeSet<String>,
}

impl SpecConverter<'_> {
    pub fn document(&mut self, root: &YamlNode) -> Pipeline {
        let mut pipeline = Pipeline {
            name: root
                .get("name")
                .and_then(YamlNode::text)
                .unwrap_or_default()
                .to_owned(),
            ..Pipeline::default()
        };
        for (key, node) in root.section("sources") {
            pipeline.sources.extend(self.source(key, node));
        }
        for (key, node) in root.section("steps") {
            pipeline.nodes.extend(self.step(key, node));
        }
        if let Some(node) = root.get("split") {
            pipeline.split = self.split(node);
        }
        if let Some((key, node)) = root.entry("label") {
            pipeline.label = self.label(key, node);
        }
        for (key, node) in root.section("sinks") {
            let Some(sink) = self.sink(key, node, &mut pipeline) else {
                continue;
            };
            if has_format(self.words.trainers, &sink.format) {
                pipeline.trainings.push(sink);
            } else if has_format(self.words.predictors, &sink.format) {
                pipeline.predictions.push(sink);
            } else {
                pipeline.sinks.push(sink);
            }
        }
        if let Some((key, node)) = root.entry("feed") {
            pipeline.feed = self.feed(key, node);
        }
        if let Some((key, node)) = root.entry("deadline") {
            pipeline.deadline = self.deadline(key, node);
        }
        if let Some((key, node)) = root.entry("serving") {
            pipeline.serving = self.serving(key, node);
        }
        pipeline
    }

    pub fn fault(&self, code: FaultCode, mark: TextPosition, path: &str, message: String) -> Fault {
        Fault::new(code, message).at(Some(&mark.location(self.file, path)))
    }

    fn key_location(&self, key: &YamlKey, path: &str) -> Option<SpecLocation> {
        Some(key.mark.location(self.file, path))
    }

    /// True if the check has found no fault in here; otherwise no more are reported.
    pub fn is_valid_so_far(&self, node: &YamlNode, path: &str) -> bool {
        let inside = |reported: &str| {
            reported
                .strip_prefix(path)
                .is_some_and(|below| below.is_empty() || below.starts_with(['.', '[']))
        };
        !node.wrong() && !self.reported.iter().any(|location| inside(&location.path))
    }

    pub fn read<T: DeserializeOwned>(
        &mut self,
        node: &YamlNode,
        value: Value,
        path: &str,
    ) -> Option<T> {
        match ConfigError::parse(value) {
            Ok(wire) => Some(wire),
            Err(error) => {
                self.report_unreadable(node, path, &error);
                None
            }
        }
    }

    fn report_unreadable(&mut self, node: &YamlNode, path: &str, error: &ConfigError) {
        let (mark, below) = node.at_path(&error.path);
        let path = format!("{path}{below}");
        let (message, hint) = error.split_hint();
        let fault = self.fault(
            codes::BAD_VALUE,
            mark,
            &path,
            format!(
                "{}: {}",
                describe_container(&path),
                message.trim_end_matches('.')
            ),
        );
        self.faults.push(match hint {
            Some(hint) => fault.hint(hint.trim_end_matches('.')),
            None => fault,
        });
    }

    fn canonical(
        &mut self,
        node: &YamlNode,
        path: &str,
        canonical: fn(Value) -> ConfigResult<Value>,
    ) -> Option<Value> {
        match canonical(node.value()) {
            Ok(config) => Some(config),
            Err(error) => {
                self.report_unreadable(node, path, &error);
                None
            }
        }
    }

    /// The format of a source or sink, and its other fields.
    fn format(
        &mut self,
        node: &YamlNode,
        path: &str,
        formats: &[ConnectorFormat],
    ) -> Option<(&'static str, Value, Value)> {
        let (format, (_, config)) = formats
            .iter()
            .find_map(|format| Some((format, node.entry(format.name)?)))?;
        let config_path = format!("{path}.{}", format.name);
        let canonical = match FormattedTime::of(node) {
            Some(time) => self.config_with_time(node, config, &time, path, format)?,
            None => self.canonical(config, &config_path, format.canonical)?,
        };
        let mut fields_value = node.value();
        if let Some(fields) = fields_value.as_object_mut() {
            fields.remove(format.name);
        }
        Some((format.name, canonical, fields_value))
    }

    /// The configuration of a source with the format of its time among its formats.
    fn config_with_time(
        &mut self,
        node: &YamlNode,
        config: &YamlNode,
        time: &FormattedTime,
        path: &str,
        format: &ConnectorFormat,
    ) -> Option<Value> {
        let mut value = config.value();
        let formats = value
            .as_object_mut()
            .map(|fields| fields.entry("formats").or_insert_with(|| json!({})));
        if let Some(Value::Object(formats)) = formats
            && formats
                .insert(time.column.clone(), time.format.clone().into())
                .is_some()
        {
            let message = format!("`formats` has a format of `{}`, too", time.column);
            let error = ConfigError::at(TIME_FORMAT, format!("{message}; hint: leave one out"));
            self.report_unreadable(node, path, &error);
            return None;
        }
        match (format.canonical)(value) {
            Ok(config) => Some(config),
            Err(error) if error.path == format!("formats.{}", time.column) => {
                let error = ConfigError::at(TIME_FORMAT, error.message);
                self.report_unreadable(node, path, &error);
                None
            }
            Err(error) => {
                self.report_unreadable(config, &format!("{path}.{}", format.name), &error);
                None
            }
        }
    }

    fn source(&mut self, key: &YamlKey, node: &YamlNode) -> Option<PipelineSource> {
        let path = format!("sources.{}", key.text);
        if !self.is_valid_so_far(node, &path) {
            return None;
        }
        let (format, config, fields_value) = self.format(node, &path, self.words.sources)?;
        let wire: wire::YamlSource = self.read(node, fields_value, &path)?;
        let name = key.text.clone();
        let format = format.to_owned();
        let ready = wire.ready.and_then(|ready| self.ready(node, ready, &path));
        if let Some(text) = wire
            .lookback
            .as_deref()
            .filter(|text| !is_duration_text(text))
        {
            self.report_bad_duration(node, &format!("{path}.lookback"), text);
        }
        if wire.days.is_some() && wire.time.is_none() {
            let (mark, _) = node.at_path("days");
            let message = "`days` needs the `time` of the source, by which rows have a day";
            let path = format!("{path}.days");
            let fault = self.fault(codes::MISSING_FIELD, mark, &path, message.to_owned());
            let hint = "declare `time: COLUMN` beside it, or leave out `days`";
            self.faults.push(fault.hint(hint));
        }
        if let Some(days) = &wire.days {
            self.check_days_of_files(node, days, &format, &path);
        }
        let at = self.key_location(key, &path);
        Some(PipelineSource {
            name,
            format,
            config,
            time: wire.time.map(wire::YamlTime::column),
            keys: wire.keys,
            duplicates: wire.duplicates.map(DuplicateRows::from),
            ready,
            lookback: wire.lookback,
            days: wire.days.map(DayRules::from).unwrap_or_default(),
            at,
        })
    }

    /// Reports rules of days that could never say anything: no footers of files tell them.
    fn check_days_of_files(
        &mut self,
        node: &YamlNode,
        days: &wire::YamlDays,
        format: &str,
        path: &str,
    ) {
        let reason = match format {
            "arrow" | "csv" | "json" => format!("and {format} files have none"),
            "delta" => "which are not read for Delta tables".to_owned(),
            _ => return,
        };
        for (rule_name, rule, instead) in [
            ("duplicate", days.duplicate, "unique"),
            ("empty", days.empty, "not_null"),
        ] {
            let Some(wire::YamlDayRule::Error | wire::YamlDayRule::Warn) = rule else {
                continue;
            };
            let rule_path = format!("days.{rule_name}");
            let (mark, _) = node.at_path(&rule_path);
            let message =
                format!("`{rule_path}` is judged by the footers of Parquet files, {reason}");
            let path = format!("{path}.{rule_path}");
            let fault = self.fault(codes::BAD_VALUE, mark, &path, message);
            let hint = format!(
                "leave out `{rule_name}`, and declare `{instead}` in `expect` of the step that \
                 reads the source"
            );
            self.faults.push(fault.hint(hint));
        }
    }

    fn sink(
        &mut self,
        key: &YamlKey,
        node: &YamlNode,
        pipeline: &mut Pipeline,
    ) -> Option<PipelineSink> {
        let path = format!("sinks.{}", key.text);
        if !self.is_valid_so_far(node, &path) {
            return None;
        }
        let (format, config, fields_value) = self.format(node, &path, &self.words.sinks)?;
        let wire: wire::YamlSink = self.read(node, fields_value, &path)?;
        let name = key.text.clone();
        let format = format.to_owned();
        let optional = wire.optional;
        let at = self.key_location(key, &path);
        let mut from = wire.from;
        // What is wrong with the step is reported there.
        if wire.quarantined && pipeline.nodes.iter().any(|node| node.name == from) {
            match add_quarantined_step(pipeline, &from, at.as_ref()) {
                Ok(quarantined) => from = quarantined,
                Err(fault) => self.faults.push(fault),
            }
        }
        Some(PipelineSink {
            name,
            from,
            format,
            config,
            split: wire.split,
            optional,
            at,
        })
    }

    fn step(&mut self, key: &YamlKey, node: &YamlNode) -> Option<StepNode> {
        let path = format!("steps.{}", key.text);
        let mut steps = Vec::new();
        for (index, item) in node
            .get("do")
            .map(YamlNode::items)
            .unwrap_or_default()
            .iter()
            .enumerate()
        {
            steps.push(self.transform(item, &format!("{path}.do[{index}]")));
        }
        let is_right = |(field, node): &(YamlKey, YamlNode)| {
            field.text == "do" || self.is_valid_so_far(node, &format!("{path}.{}", field.text))
        };
        let is_reported = self.reported.iter().any(|location| location.path == path);
        if is_reported
            || !matches!(node.data, YamlData::Map(_))
            || !node.entries().iter().all(is_right)
        {
            return None;
        }
        let mut value = node.value();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("do");
        }
        let wire: wire::YamlStep = self.read(node, value, &path)?;
        let input = match (wire.from, wire.union, wire.sql) {
            (Some(name), _, _) => NodeInput::From(name),
            (_, Some(names), _) => NodeInput::Union(names),
            (_, _, Some(query)) => NodeInput::Sql(query),
            (None, None, None) => return None,
        };
        let refit = wire.refit.as_deref().map(parse_refit).transpose();
        if let Err(fault) = &refit {
            let mark = node.get("refit").map_or(node.mark, |refit| refit.mark);
            let refit_fault = self.fault(
                fault.code(),
                mark,
                &format!("{path}.refit"),
                fault.message().to_owned(),
            );
            self.faults
                .push(refit_fault.hint(fault.hint_text().unwrap_or_default()));
        }
        let optional = wire.optional;
        let at = self.key_location(key, &path);
        let name = key.text.clone();
        let refit = refit.ok()?.flatten();
        Some(StepNode {
            name,
            input,
            fit_on: wire.fit_on,
            allow_empty: wire.allow_empty,
            refit,
            data_age: wire.data_age,
            steps,
            optional,
            at,
        })
    }

    /// Converts a step. A wrong one is kept as written, so that those after it are still checked.
    fn transform(&mut self, item: &YamlNode, path: &str) -> Step {
        let [(key, config)] = item.entries() else {
            self.unread.insert(path.to_owned());
            let at = Some(item.mark.location(self.file, path));
            return Step {
                kind: String::new(),
                config: item.value(),
                at,
            };
        };
        let path = format!("{path}.{}", key.text);
        let words = self.words;
        let kind = words.registry.kind(&key.text).ok();
        let valid = kind.filter(|_| self.is_valid_so_far(config, &path));
        let canonical = valid.and_then(|kind| self.canonical(config, &path, kind.canonical));
        if canonical.is_none() {
            self.unread.insert(path.clone());
        }
        let kind = kind.map_or(key.text.clone(), |kind| kind.name.to_owned());
        Step {
            kind,
            config: canonical.unwrap_or_else(|| config.value()),
            at: self.key_location(key, &path),
        }
    }

    fn label(&mut self, key: &YamlKey, node: &YamlNode) -> Option<PredictionLabel> {
        if !self.is_valid_so_far(node, "label") {
            return None;
        }
        let wire: wire::YamlLabel = self.read(node, node.value(), "label")?;
        let at = self.key_location(key, "label");
        Some(PredictionLabel {
            column: wire.column,
            horizon: wire.horizon,
            known: wire.known,
            at,
        })
    }

    fn feed(&mut self, key: &YamlKey, node: &YamlNode) -> Option<PipelineFeed> {
        if !self.is_valid_so_far(node, "feed") {
            return None;
        }
        let wire: FeedConfig = self.read(node, node.value(), "feed")?;
        let config = serde_json::to_value(wire).ok()?;
        Some(PipelineFeed {
            config,
            at: self.key_location(key, "feed"),
        })
    }

    fn ready(
        &mut self,
        source: &YamlNode,
        wire: wire::YamlReadiness,
        path: &str,
    ) -> Option<ReadinessCondition> {
        let path = format!("{path}.ready");
        let mut length = |field: &str, text: Option<String>| {
            let read = text.as_deref().map(units::parse_duration);
            if let (Some(text), Some(Err(_))) = (&text, &read) {
                self.report_bad_duration(source, &format!("{path}.{field}"), text);
            }
            read.and_then(Result::ok)
        };
        let min_age = length("min_age", wire.min_age);
        let timeout = length("timeout", wire.timeout);
        if wire.marker.is_none() && wire.files.is_none() && min_age.is_none() {
            let mark = source
                .entry("ready")
                .map_or(source.mark, |(key, _)| key.mark);
            let fault = self.fault(
                codes::MISSING_FIELD,
                mark,
                &path,
                "`ready` says nothing to wait for".into(),
            );
            self.faults
                .push(fault.hint("name a `marker`, a number of `files` or a `min_age`"));
        }
        Some(ReadinessCondition {
            marker: wire.marker,
            files: wire.files,
            min_age,
            timeout: timeout.unwrap_or_default(),
        })
    }

    fn report_bad_duration(&mut self, node: &YamlNode, path: &str, text: &str) {
        // The path inside the node has the last names of the whole one.
        let (mark, _) = node.at_path(path.splitn(3, '.').nth(2).unwrap_or_default());
        let fault = self.fault(
            codes::BAD_VALUE,
            mark,
            path,
            format!("`{text}` is not a length of time"),
        );
        self.faults.push(fault.hint(civil_duration_hint(text)));
    }

    fn serving(&mut self, key: &YamlKey, node: &YamlNode) -> Option<PipelineServing> {
        if !self.is_valid_so_far(node, "serving") {
            return None;
        }
        let wire: wire::YamlServing = self.read(node, node.value(), "serving")?;
        Some(PipelineServing {
            from: wire.from,
            late: wire.late.into(),
            at: self.key_location(key, "serving"),
        })
    }

    fn deadline(&mut self, key: &YamlKey, node: &YamlNode) -> Option<PipelineDeadline> {
        if !self.is_valid_so_far(node, "deadline") {
            return None;
        }
        let wire: wire::YamlDeadline = self.read(node, node.value(), "deadline")?;
        let at = |field: &str| node.get(field).map_or(key.mark, |node| node.mark);
        if let Some(Err(fault)) = wire.by.as_deref().map(DeadlineSpec::parse) {
            let location = at("by").location(self.file, "deadline.by");
            self.faults.push(fault.at(Some(&location)));
        }
        let ladder: Vec<DegradationLevel> = wire.ladder.iter().map(degradation_level).collect();
        if !ladder.windows(2).all(|pair| pair[0] < pair[1]) {
            let message = "the ladder goes from the mildest rung to the last, each once".to_owned();
            let fault = self.fault(codes::BAD_VALUE, at("ladder"), "deadline.ladder", message);
            self.faults
                .push(fault.hint("the order is skip_optional, reuse_states, last_model, naive"));
        }
        if let Some(webhook) = &wire.webhook
            && !webhook.starts_with("http://")
            && !webhook.starts_with("https://")
        {
            let message = "the webhook is no http:// or https:// URL".to_owned();
            let fault = self.fault(codes::BAD_VALUE, at("webhook"), "deadline.webhook", message);
            self.faults.push(fault);
        }
        let fail = wire.on_deadline == wire::OnDeadline::Fail;
        Some(PipelineDeadline {
            by: wire.by,
            ladder,
            fail,
            webhook: wire.webhook,
            at: self.key_location(key, "deadline"),
        })
    }

    fn split(&mut self, node: &YamlNode) -> Option<DataSplit> {
        if !self.is_valid_so_far(node, "split") {
            return None;
        }
        let faults_before = self.faults.len();
        let split = match (node.entry("by_time"), node.entry("by_hash")) {
            (Some((key, inner)), _) => {
                let wire: wire::YamlTimeSplit = self.read(inner, inner.value(), "split.by_time")?;
                let parts = wire.parts.into_iter().map(|name| name.0).collect();
                let split = DataSplit::Time {
                    column: wire.column,
                    parts,
                    ends: wire.ends,
                    embargo: wire.embargo,
                };
                self.report_split_problems(key, inner, &split);
                split
            }
            (_, Some((key, inner))) => {
                let wire: wire::YamlHashSplit = self.read(inner, inner.value(), "split.by_hash")?;
                let mut split = DataSplit::by_hash(
                    wire.keys,
                    wire.parts
                        .0
                        .into_iter()
                        .map(|(name, share)| (name, share.0)),
                );
                if let DataSplit::Hash { seed, .. } = &mut split {
                    *seed = wire.seed;
                }
                self.report_split_problems(key, inner, &split);
                split
            }
            _ => {
                let wire: wire::NamedMap<wire::SqlExpression> =
                    self.read(node, node.value(), "split")?;
                DataSplit::Expressions(
                    wire.0
                        .into_iter()
                        .map(|(name, sql)| (name, sql.0))
                        .collect(),
                )
            }
        };
        (self.faults.len() == faults_before).then_some(split)
    }

    fn report_split_problems(&mut self, key: &YamlKey, node: &YamlNode, split: &DataSplit) {
        for SplitProblem {
            code,
            path,
            message,
            hint,
        } in split_problems(split)
        {
            let field = path.split('[').next().unwrap_or_default();
            let mark = node.get(field).map_or(key.mark, |_| node.at_path(&path).0);
            let fault = self.fault(code, mark, &format!("split.{}.{path}", key.text), message);
            self.faults.push(if hint.is_empty() {
                fault
            } else {
                fault.hint(hint)
            });
        }
    }

    /// Reports a name that is not defined.
    pub fn report_unknown_name(
        &mut self,
        mark: TextPosition,
        path: &str,
        message: String,
        name: &str,
        names: &[&str],
    ) {
        let fault = self
            .fault(codes::UNKNOWN_NAME, mark, path, message)
            .fragment(name, 0);
        self.faults.push(if names.is_empty() {
            fault
        } else {
            fault.hint(suggest_words(name, names))
        });
    }

    /// A fault for a part that the split does not have.
    pub fn report_unknown_part(
        &mut self,
        mark: TextPosition,
        path: &str,
        part: &str,
        parts: Option<&[&str]>,
    ) {
        match parts {
            None => {
                let message = format!("there is no part `{part}`, because there is no split");
                let fault = self.fault(codes::UNKNOWN_NAME, mark, path, message);
                self.faults
                    .push(fault.hint("declare the parts under `split:`"));
            }
            Some(parts) => {
                let fault = self.fault(
                    codes::UNKNOWN_NAME,
                    mark,
                    path,
                    format!("the split has no part `{part}`"),
                );
                let hint = format!("its parts are {}", quoted(parts));
                self.faults
                    .push(fault.hint(hint).suggest(part, parts.iter().copied(), ""));
            }
        }
    }
}

fn has_format(formats: &[ConnectorFormat], name: &str) -> bool {
    formats.iter().any(|format| format.name == name)
}

fn degradation_level(rung: &wire::YamlRung) -> DegradationLevel {
    match rung {
        wire::YamlRung::SkipOptional => DegradationLevel::SkipOptional,
        wire::YamlRung::ReuseStates => DegradationLevel::ReuseStates,
        wire::YamlRung::LastModel => DegradationLevel::LastModel,
        wire::YamlRung::Naive => DegradationLevel::Naive,
    }
}
