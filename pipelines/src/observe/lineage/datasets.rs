//! Datasets as OpenLineage names them: <https://openlineage.io/docs/spec/naming>.

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::{NodeInput, Pipeline};
use forebay_run::{DatasetProfile, ExpectationReport, OutputReport, RunReport};
use serde_json::{Value, json};

use super::facets::{Facets, quality_metrics};

/// A source as it was found.
#[derive(Debug, Clone)]
pub(super) struct SeenSource {
    pub folder: Option<String>,
    pub spans: usize,
    pub rows: Option<u64>,
    pub bytes: u64,
}

/// The namespace and the name of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DatasetName {
    pub namespace: String,
    pub name: String,
}

impl DatasetName {
    /// Name of a path or URL: `file` and an absolute path, or `s3://bucket` and a key.
    pub fn of_path(path: &str) -> DatasetName {
        match path.split_once("://") {
            Some(("file", path)) => DatasetName {
                namespace: "file".to_owned(),
                name: path.to_owned(),
            },
            Some((scheme, after_scheme)) => {
                let (host, key) = after_scheme.split_once('/').unwrap_or((after_scheme, ""));
                let key = key.trim_matches('/');
                let name = if key.is_empty() { "/" } else { key };
                DatasetName {
                    namespace: format!("{scheme}://{host}"),
                    name: name.to_owned(),
                }
            }
            None => {
                let absolute = std::path::absolute(path)
                    .map_or_else(|_| path.to_owned(), |path| path.display().to_string());
                DatasetName {
                    namespace: "file".to_owned(),
                    name: absolute,
                }
            }
        }
    }

    /// Name of a source whose files are not known, as in a run that failed early.
    fn of_source(name: &str) -> DatasetName {
        DatasetName {
            namespace: "forebay".to_owned(),
            name: name.to_owned(),
        }
    }

    fn dataset(&self) -> Value {
        json!({ "namespace": self.namespace, "name": self.name })
    }
}

/// Inputs of the datasets of an event.
pub(super) struct EventData<'a> {
    pub pipeline: &'a Pipeline,
    pub seen: &'a BTreeMap<String, SeenSource>,
    /// Types of columns by source, as the artifact has them.
    pub columns: &'a BTreeMap<String, Vec<(String, String)>>,
    /// Profiles that the run has learned, by source.
    pub profiles: &'a BTreeMap<String, DatasetProfile>,
    /// Rules that were judged.
    pub rules: &'a [ExpectationReport],
    pub report: Option<&'a RunReport>,
}

impl EventData<'_> {
    fn name(&self, source: &str) -> DatasetName {
        let folder = self
            .seen
            .get(source)
            .and_then(|seen| seen.folder.as_deref());
        folder.map_or_else(|| DatasetName::of_source(source), DatasetName::of_path)
    }

    /// The datasets that were read.
    pub fn inputs(&self) -> Vec<Value> {
        let sources = self.pipeline.sources.iter();
        sources.map(|source| self.input(&source.name)).collect()
    }

    fn input(&self, source: &str) -> Value {
        let mut dataset = self.name(source).dataset();
        let mut facets = Facets::default();
        let columns = self.columns.get(source).into_iter().flatten();
        facets.add_schema(columns.map(|(name, kind)| (name.as_str(), kind.as_str())));
        dataset["facets"] = facets.into_value();
        let mut facets = Facets::default();
        if let Some(SeenSource {
            spans, rows, bytes, ..
        }) = self.seen.get(source)
        {
            let profile = self.profiles.get(source);
            let metrics = quality_metrics(*rows, *bytes, *spans, profile);
            facets.add("dataQualityMetrics", metrics);
        }
        let mut rules = Vec::new();
        for rule in self.rules {
            // A rule is one of all sources that the rows of its step may come from.
            let node = match rule.step.rsplit_once('.') {
                Some((node, _)) => node,
                None => rule.step.as_str(),
            };
            if sources_of(self.pipeline, node).contains(source) {
                rules.push(rule);
            }
        }
        facets.add_assertions(&rules);
        dataset["inputFacets"] = facets.into_value();
        dataset
    }

    /// The datasets that were written: outputs, forecasts and models.
    pub fn outputs(&self) -> Vec<Value> {
        let Some(report) = self.report else {
            return Vec::new();
        };
        let mut outputs: Vec<Value> = report
            .outputs
            .iter()
            .map(|output| self.output(output))
            .collect();
        for forecast in &report.forecasts {
            let mut dataset = DatasetName::of_path(&forecast.path).dataset();
            let mut facets = Facets::default();
            facets.add("outputStatistics", json!({ "rowCount": forecast.rows }));
            dataset["outputFacets"] = facets.into_value();
            outputs.push(dataset);
        }
        outputs.extend(
            report
                .models
                .iter()
                .map(|model| DatasetName::of_path(&model.path).dataset()),
        );
        outputs
    }

    fn output(&self, output: &OutputReport) -> Value {
        let mut dataset = DatasetName::of_path(&output.path).dataset();
        let mut facets = Facets::default();
        facets.add_schema(
            output
                .columns
                .iter()
                .map(|column| (column.name.as_str(), column.data_type.as_str())),
        );
        let mut fields = serde_json::Map::new();
        for column in output
            .columns
            .iter()
            .filter(|column| !column.from.is_empty())
        {
            let origins = column.from.iter().map(|origin| {
                let mut field = self.name(&origin.source).dataset();
                field["field"] = origin.column.as_str().into();
                field
            });
            fields.insert(
                column.name.clone(),
                json!({ "inputFields": origins.collect::<Vec<_>>() }),
            );
        }
        if !fields.is_empty() {
            facets.add("columnLineage", json!({ "fields": fields }));
        }
        dataset["facets"] = facets.into_value();
        let mut facets = Facets::default();
        let counts =
            json!({ "rowCount": output.rows, "size": output.bytes, "fileCount": output.files });
        facets.add("outputStatistics", counts);
        dataset["outputFacets"] = facets.into_value();
        dataset
    }
}

/// The sources that a node's rows may come from; all of them where a query names its tables.
fn sources_of(pipeline: &Pipeline, node: &str) -> BTreeSet<String> {
    let mut sources = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut open = vec![node.to_owned()];
    while let Some(name) = open.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        match pipeline.node(&name).map(|node| &node.input) {
            Some(NodeInput::From(from)) => open.push(from.clone()),
            Some(NodeInput::Union(of)) => open.extend(of.iter().cloned()),
            Some(NodeInput::Sql(_)) => {
                open.extend(pipeline.sources.iter().map(|source| source.name.clone()))
            }
            None => drop(sources.insert(name)),
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datasets_are_named_as_openlineage_says() {
        let name = |path: &str| {
            let DatasetName { namespace, name } = DatasetName::of_path(path);
            (namespace, name)
        };
        let expected = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        assert_eq!(
            name("s3://lake/features/demand/"),
            expected("s3://lake", "features/demand")
        );
        assert_eq!(name("s3://lake"), expected("s3://lake", "/"));
        assert_eq!(name("/data/demand"), expected("file", "/data/demand"));
        assert_eq!(
            name("file:///data/demand"),
            expected("file", "/data/demand")
        );
    }
}
