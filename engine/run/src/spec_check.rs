//! Everything that a run would refuse before it reads rows, at once.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{Dataset, Fault, Pipeline, PipelineSink, Result, codes};
use forebay_plan::{
    BoundPipeline, PartialBinding, bind_all, check_label_names, check_split, label_in_features,
    scaled_ids, unfitted_steps,
};
use forebay_storage::StorageLocation;

use crate::feed::features::{choose_features, refuse_predicted_features};
use crate::feed::feed_rows;
use crate::null_checks::null_warnings_of_feed;
use crate::session::{Session, datasets};
use crate::training_checks::{check_training, label_column};
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
        let hint = "name the files to read by a pattern, or move the others away";
        let warning = Fault::new(codes::NO_INPUT, message).hint(hint);
        warnings.push(warning.at(source.at.as_ref()));
    }
    warnings
}

impl Session {
    /// Reads the schemas of all sources (footers and headers), and binds every step, sink, training and feed to them.
    /// The fault holds all problems. Reads no rows and writes nothing. Gives warnings, as faults that no run has.
    pub fn check(&self, pipeline: &Pipeline) -> Result<Vec<Fault>> {
        let mut warnings = Vec::new();
        let (inputs, mut faults) = self.discover_each(&self.io, pipeline, None, None);
        let datasets = datasets(&inputs);
        let binding = bind_all(pipeline, &self.registry, &self.sql, &datasets);
        faults.extend(self.check_bound(pipeline, &binding, &datasets));
        let PartialBinding {
            bound,
            faults: found,
            ..
        } = binding;
        if found.is_empty() {
            warnings = self.spec_warnings(pipeline, &bound, &datasets, true)?;
            warnings.extend(null_warnings_of_feed(pipeline, &bound, &datasets));
        }
        warnings.extend(left_out_warnings(pipeline, &datasets));
        faults.extend(found);
        let places = self.check_places(pipeline, &mut faults);
        let overlap = crate::output_overlap::check_overlap(&self.io, pipeline, &datasets, &places);
        faults.extend(overlap.err().into_iter().flat_map(Fault::into_each));
        let mut seen = BTreeSet::new();
        faults.retain(|fault| {
            seen.insert((
                fault.message().to_owned(),
                format!("{:?}", fault.site().spec),
            ))
        });
        faults.sort_by_key(|fault| fault.site().spec.as_ref().map(|at| (at.line, at.column)));
        Fault::combine(faults).map_or(Ok(warnings), Err)
    }

    /// Everything about a bound pipeline that is likely a mistake, and that no run refuses.
    pub(crate) fn spec_warnings(
        &self,
        pipeline: &Pipeline,
        bound: &BoundPipeline,
        datasets: &BTreeMap<String, Dataset>,
        trains: bool,
    ) -> Result<Vec<Fault>> {
        let mut warnings = check_split(pipeline, bound, &self.sql, datasets)?.warnings;
        warnings.extend(unfitted_steps(pipeline, bound));
        warnings.extend(scaled_ids(bound));
        if trains {
            warnings.extend(self.label_warnings(pipeline, bound));
            warnings.extend(self.null_warnings_of_trainings(pipeline, bound, datasets));
        }
        Ok(warnings)
    }

    /// Trainings on columns that are made from the label of the same row. Where the pipeline says how far ahead its
    /// label is predicted, such columns are faults already.
    fn label_warnings(&self, pipeline: &Pipeline, bound: &BoundPipeline) -> Vec<Fault> {
        if pipeline
            .label
            .as_ref()
            .is_some_and(|label| label.horizon.is_some())
        {
            return Vec::new();
        }
        let warning = |training: &PipelineSink| {
            let feed = self.trainer(training).ok()?.feed();
            let label = label_column(pipeline, &feed).ok()?;
            let flow = bound.flows.get(&training.from)?;
            let names = match choose_features(pipeline, bound, &flow.schema, &feed) {
                Ok(features) => {
                    let fields = features.dense.into_iter().chain(features.categorical);
                    fields.map(|field| field.column).collect::<Vec<_>>()
                }
                // Some widths are known only once something is learned.
                Err(_) => flow
                    .schema
                    .fields()
                    .iter()
                    .map(|field| field.name().clone())
                    .collect(),
            };
            label_in_features(bound, training, &label, &names)
        };
        pipeline.trainings.iter().filter_map(warning).collect()
    }

    /// The problems of what reads steps: sinks, trainings, forecasts, the label and the feed.
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
        let mut report = |found: Result<()>, from: &str| {
            let found = found.err().into_iter().flat_map(Fault::into_each);
            faults.extend(found.filter(|fault| !binding.follows(fault, from)));
        };
        for (index, sink) in pipeline.sinks.iter().enumerate() {
            report(self.check_layouts(pipeline, &[index], bound), &sink.from);
        }
        let without_feed = Pipeline {
            feed: None,
            ..pipeline.clone()
        };
        for training in &pipeline.trainings {
            let place = |fault: Fault| fault.at(training.at.as_ref());
            report(
                check_training(self, pipeline, bound, training).map_err(place),
                &training.from,
            );
            let feed = self.trainer(training).map(|trainer| trainer.feed());
            let checked =
                feed.and_then(|feed| check_feed(&without_feed, bound, &training.from, &feed));
            report(checked.map_err(place), &training.from);
        }
        if let Some(feed) = &pipeline.feed
            && let Ok(config) = serde_json::from_value::<FeedConfig>(feed.config.clone())
            && let Ok((from, _)) = feed_rows(pipeline, &config)
        {
            report(check_feed(pipeline, bound, &from, &config), &from);
            let predicted = self.check_predicted(pipeline, bound, &from, &config);
            let at = feed.at.as_ref();
            report(predicted.map_err(|fault| fault.at(at)), &from);
        }
        let of_all = [
            check_label_names(pipeline, bound),
            self.check_forecasts(pipeline, bound),
        ];
        let of_all = of_all
            .into_iter()
            .flat_map(|found| found.err())
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
        // What else is wrong with the features is said already.
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
        for training in pipeline
            .trainings
            .iter()
            .filter(|training| training.from == from)
        {
            let label = self
                .trainer(training)
                .and_then(|trainer| label_column(pipeline, &trainer.feed()));
            if let Ok(label) = label {
                labels.insert(label, training.name.clone());
            }
        }
        labels
    }

    /// Where outputs go.
    fn check_places<'a>(
        &self,
        pipeline: &'a Pipeline,
        faults: &mut Vec<Fault>,
    ) -> Vec<(&'a PipelineSink, StorageLocation)> {
        let mut places = Vec::new();
        for (index, sink) in pipeline.sinks.iter().enumerate() {
            let place = self
                .sink(pipeline, index)
                .and_then(|writer| self.io.resolve(writer.path()));
            match place {
                Ok(place) => places.push((sink, place)),
                Err(fault) => faults.push(fault.at(sink.at.as_ref())),
            }
        }
        places
    }
}

/// The columns that a feed names. Its types and widths can depend on what is learned, and are not looked at.
fn check_feed(
    pipeline: &Pipeline,
    bound: &BoundPipeline,
    from: &str,
    config: &FeedConfig,
) -> Result<()> {
    let Some(flow) = bound.flows.get(from) else {
        return Ok(());
    };
    let faults = choose_features(pipeline, bound, &flow.schema, config)
        .err()
        .into_iter()
        .flat_map(Fault::into_each);
    let is_of_names =
        |fault: &Fault| [codes::UNKNOWN_COLUMN, codes::LEAKAGE].contains(&fault.code());
    Fault::combine(faults.filter(is_of_names).collect()).map_or(Ok(()), Err)
}
