//! Everything that a run would refuse before it reads rows, at once.

use std::collections::{BTreeMap, BTreeSet};

use forebay_commit::{output_root, try_writing};
use forebay_model::{Dataset, DayRule, Fault, Pipeline, PipelineSink, Result, codes};
use forebay_plan::{
    BoundPipeline, FEED_FORMAT, PartialBinding, check_label_names, check_split, label_in_features,
    scaled_ids, uncounted_casts, unfitted_steps, windows_of_one_part,
};
use forebay_storage::StorageLocation;

use crate::feed::features::{check_feed, choose_features, refuse_predicted_features};
use crate::feed::feed_rows;
use crate::null_checks::null_warnings_of_feed;
use crate::output_overlap;
use crate::serving::{UnservedStep, check_serving, unserved_forecasts, unserved_steps};
use crate::session::{Session, datasets};
use crate::source_days::untold_rules;
use crate::training_checks::{check_training, check_training_columns, label_column};
use forebay_feed::FeedConfig;

/// Sources whose folders hold files that are not read.
fn left_out_warnings(pipeline: &Pipeline, datasets: &BTreeMap<String, Dataset>) -> Vec<Fault> {
    let mut warnings = Vec::new();
    for source in &pipeline.sources {
        let dataset = datasets.get(&source.name);
        let Some(text) = dataset.and_then(|dataset| dataset.left_out.text()) else {
            continue;
        };
        let message = format!("source `{}`: {text}", source.name);
        let mut warning = Fault::new(codes::NO_INPUT, message);
        if dataset.is_some_and(|dataset| dataset.left_out.files > 0) {
            warning = warning.hint("name the files to read by a pattern, or move the others away");
        }
        warnings.push(warning.at(source.at.as_ref()));
    }
    warnings
}

impl Session {
    /// Reads the schemas of all sources (footers and headers), and binds every step, sink, training and feed to them.
    /// The fault holds all problems. Writes nothing that stays, and reads no rows but the first ones of sources whose features are
    /// compared with a label. Gives warnings, as faults that no run has.
    pub fn check(&self, pipeline: &Pipeline) -> Result<Vec<Fault>> {
        let mut warnings = Vec::new();
        let (inputs, mut faults) = self.discover_each(&self.io, pipeline, None, None);
        let split = self.resolve_split(pipeline, &inputs, None);
        let resolved = match split {
            Ok(split) => Pipeline {
                split,
                ..pipeline.clone()
            },
            Err(fault) => {
                faults.push(fault);
                pipeline.clone()
            }
        };
        let pipeline = &resolved;
        let datasets = datasets(&inputs);
        let binding = self.bind_partly(pipeline, &datasets);
        faults.extend(self.check_bound(pipeline, &binding, &datasets));
        let PartialBinding {
            bound,
            faults: binding_faults,
            ..
        } = binding;
        if binding_faults.is_empty() {
            warnings = self.spec_warnings(pipeline, &bound, &datasets, true)?;
            warnings.extend(null_warnings_of_feed(pipeline, &bound, &datasets));
        }
        warnings.extend(left_out_warnings(pipeline, &datasets));
        for source in &pipeline.sources {
            if let Some(dataset) = datasets.get(&source.name) {
                faults.extend(untold_rules(source, dataset, DayRule::Error));
                warnings.extend(untold_rules(source, dataset, DayRule::Warn));
            }
        }
        faults.extend(binding_faults);
        let OutputPlaces { locations, roots } = self.check_places(pipeline, &mut faults);
        warnings.extend(self.unwritable_outputs(&roots));
        let paths = self.source_paths(pipeline);
        let overlap =
            output_overlap::check_overlap(&self.io, pipeline, &paths, &datasets, &locations);
        faults.extend(overlap.err().into_iter().flat_map(Fault::into_each));
        let mut seen = BTreeSet::new();
        faults.retain(|fault| {
            seen.insert((
                fault.message().to_owned(),
                format!("{:?}", fault.site().spec),
            ))
        });
        faults.sort_by_key(|fault| fault.site().spec.as_ref().map(|at| (at.line, at.column)));
        if faults.is_empty() {
            warnings.extend(self.warn_of_label_copies(pipeline, &bound));
        }
        Fault::combine(faults).map_or(Ok(warnings), Err)
    }

    /// Likely mistakes of a bound pipeline that no run refuses.
    pub(crate) fn spec_warnings(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        datasets: &BTreeMap<String, Dataset>,
        trains: bool,
    ) -> Result<Vec<Fault>> {
        let mut warnings = check_split(pipeline, bound, &self.sql, datasets)?.warnings;
        warnings.extend(unfitted_steps(pipeline, bound));
        warnings.extend(windows_of_one_part(pipeline, bound));
        warnings.extend(scaled_ids(bound));
        warnings.extend(uncounted_casts(bound));
        if trains {
            warnings.extend(self.label_warnings(pipeline, bound));
            warnings.extend(self.id_warnings(pipeline, bound));
            warnings.extend(self.null_warnings_of_trainings(pipeline, bound, datasets));
        }
        Ok(warnings)
    }

    /// Warnings about trainings on columns that are made from the label of the same row. If the
    /// pipeline declares the horizon of its label, such columns are faults already.
    fn label_warnings(&self, pipeline: &Pipeline, bound: &BoundPipeline) -> Vec<Fault> {
        let label = pipeline.label.as_ref();
        if label.is_some_and(|label| label.horizon.is_some()) {
            return Vec::new();
        }
        let mut warnings = Vec::new();
        for training in &pipeline.trainings {
            warnings.extend(self.label_warning(pipeline, bound, training));
        }
        warnings
    }

    fn label_warning(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        training: &PipelineSink,
    ) -> Option<Fault> {
        let feed = self.trainer(training).ok()?.feed();
        let label = label_column(pipeline, &feed).ok()?;
        let flow = bound.flows.get(&training.from)?;
        let mut names = Vec::new();
        match choose_features(pipeline, bound, &flow.schema, &feed) {
            Ok(features) => {
                for field in features.dense.into_iter().chain(features.categorical) {
                    names.push(field.column);
                }
            }
            // Some widths are known only once something is learned.
            Err(_) => {
                for field in flow.schema.fields() {
                    names.push(field.name().clone());
                }
            }
        }
        label_in_features(bound, training, &label, &names)
    }

    /// The steps behind which the rows of `node` cannot be served one by one, with the reasons, and the step itself where
    /// forecasts of its models cannot. Reads the schemas of the sources.
    pub fn unserved_steps(&self, pipeline: &Pipeline, node: &str) -> Result<Vec<UnservedStep>> {
        let (inputs, faults) = self.discover_each(&self.io, pipeline, None, None);
        if let Some(fault) = Fault::combine(faults) {
            return Err(fault);
        }
        let bound = self.bind(pipeline, &datasets(&inputs))?;
        let mut unserved = unserved_steps(&bound, node);
        if self.has_models_of_the_future(pipeline, &bound, node)?
            && let Some(reason) = unserved_forecasts(&bound, node)
        {
            unserved.push(UnservedStep {
                step: node.to_owned(),
                reason,
            });
        }
        Ok(unserved)
    }

    /// True if a model of a step is served by forecasts alone: it predicts rows of the future one step ahead, or a
    /// transformed target.
    fn has_models_of_the_future(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        node: &str,
    ) -> Result<bool> {
        let flow = bound.flows.get(node);
        let target = flow.and_then(|flow| Some(flow.target.as_ref()?.column.as_str()));
        for training in &pipeline.trainings {
            if training.from != node {
                continue;
            }
            let trainer = self.trainer(training)?;
            let label = label_column(pipeline, &trainer.feed())?;
            if trainer.step_strategy().is_some() || target == Some(label.as_str()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The problems of the readers of steps: sinks, trainings, forecasts, the label and the feed.
    pub(crate) fn check_bound(
        &self,
        pipeline: &Pipeline,
        binding: &PartialBinding,
        datasets: &BTreeMap<String, Dataset>,
    ) -> Vec<Fault> {
        let mut faults = Vec::new();
        // Where a source cannot be read, steps are missing for that reason.
        if datasets.len() < pipeline.sources.len() {
            return faults;
        }
        let bound = &binding.bound;
        let mut report = |result: Result<()>, from: &str| {
            let result = result.err().into_iter().flat_map(Fault::into_each);
            faults.extend(result.filter(|fault| !binding.follows(fault, from)));
        };
        for (index, sink) in pipeline.sinks.iter().enumerate() {
            // The sink that stands for a feed is never written.
            if sink.format == FEED_FORMAT {
                continue;
            }
            report(self.check_layouts(pipeline, &[index], bound), &sink.from);
            report(self.check_formats(pipeline, &[index], bound), &sink.from);
        }
        for training in &pipeline.trainings {
            let at_training = |fault: Fault| fault.at(training.at.as_ref());
            report(
                check_training(self, pipeline, bound, training).map_err(at_training),
                &training.from,
            );
            let checked = check_training_columns(self, pipeline, bound, training);
            report(checked.map_err(at_training), &training.from);
        }
        if let Some(feed) = &pipeline.feed
            && let Ok(config) = FeedConfig::from_json(feed.config.clone())
            && let Ok((from, _)) = feed_rows(pipeline, &config)
        {
            report(check_feed(pipeline, bound, &from, &config), &from);
            let predicted = self.check_predicted(pipeline, bound, &from, &config);
            let at = feed.at.as_ref();
            report(predicted.map_err(|fault| fault.at(at)), &from);
        }
        if let Some(serving) = &pipeline.serving {
            report(check_serving(pipeline, bound), &serving.from);
        }
        let of_all = [
            check_label_names(pipeline, bound),
            self.check_forecasts(pipeline, bound),
        ];
        let of_all = of_all
            .into_iter()
            .flat_map(|result| result.err())
            .flat_map(Fault::into_each);
        faults.extend(of_all.filter(|fault| !binding.follows_from_any(fault)));
        faults
    }

    /// Refuses a feed without a label that has the label of a training among its features.
    fn check_predicted(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        from: &str,
        config: &FeedConfig,
    ) -> Result<()> {
        let Some(flow) = bound.flows.get(from) else {
            return Ok(());
        };
        // Other faults of the features are reported already.
        match choose_features(pipeline, bound, &flow.schema, config) {
            Ok(features) => {
                refuse_predicted_features(&features, &self.predicted_labels(pipeline, from))
            }
            Err(_) => Ok(()),
        }
    }

    /// The labels of the trainings on the rows of a step, with the name of a training of each.
    pub(crate) fn predicted_labels(
        &self,
        pipeline: &Pipeline,
        from: &str,
    ) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        for training in &pipeline.trainings {
            if training.from != from {
                continue;
            }
            let label = self
                .trainer(training)
                .and_then(|trainer| label_column(pipeline, &trainer.feed()));
            if let Ok(label) = label {
                labels.insert(label, training.name.clone());
            }
        }
        labels
    }

    /// Resolves the locations of outputs.
    fn check_places<'a>(
        &self,
        pipeline: &'a Pipeline,
        faults: &mut Vec<Fault>,
    ) -> OutputPlaces<'a> {
        let mut outputs = OutputPlaces::default();
        for (index, sink) in pipeline.sinks.iter().enumerate() {
            let location = self.output(pipeline, index).and_then(|root| {
                outputs.roots.push((sink, root));
                self.io.resolve(self.sink(pipeline, index)?.path())
            });
            match location {
                Ok(location) => outputs.locations.push((sink, location)),
                Err(fault) => faults.push(fault.at(sink.at.as_ref())),
            }
        }
        // A configuration that cannot be read is reported already.
        for training in &pipeline.trainings {
            let trainer = self.trainer(training).ok();
            if let Some(path) = trainer.as_ref().and_then(|trainer| trainer.path()) {
                outputs.add_root(training, output_root(&self.io, path), faults);
            }
        }
        for prediction in &pipeline.predictions {
            if let Ok(config) = self.predict_config(prediction) {
                outputs.add_root(prediction, output_root(&self.io, &config.path), faults);
            }
        }
        outputs
    }

    /// Outputs on disks of this machine that this process cannot write. A run here would be refused; the run may be meant
    /// for another machine or user.
    fn unwritable_outputs(&self, roots: &[(&PipelineSink, StorageLocation)]) -> Vec<Fault> {
        let mut warnings = Vec::new();
        for (sink, root) in roots {
            if root.local.is_some()
                && let Err(fault) = try_writing(&self.io, root)
            {
                warnings.push(fault.at(sink.at.as_ref()));
            }
        }
        warnings
    }
}

/// Locations of outputs.
#[derive(Default)]
struct OutputPlaces<'a> {
    /// Those of sinks, as they are given.
    locations: Vec<(&'a PipelineSink, StorageLocation)>,
    /// The roots of all outputs.
    roots: Vec<(&'a PipelineSink, StorageLocation)>,
}

impl<'a> OutputPlaces<'a> {
    fn add_root(
        &mut self,
        sink: &'a PipelineSink,
        root: Result<StorageLocation>,
        faults: &mut Vec<Fault>,
    ) {
        match root {
            Ok(root) => self.roots.push((sink, root)),
            Err(fault) => faults.push(fault.at(sink.at.as_ref())),
        }
    }
}
