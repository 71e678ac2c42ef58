//! Artifacts: the findings of a fit, in files that people can read. They hold no code, apart from the pickles of
//! `estimator` steps.
//!
//! ```text
//! artifacts/<id>/artifact.json        the pipeline's steps, columns, and small findings
//! artifacts/<id>/findings/7.parquet   findings that are too long for JSON; where they are many, those of the same
//!                                     columns together, each in a row group
//! artifacts/<id>/serving.json         what windows need of the rows before (`serving_state.rs`), where the pipeline serves
//! artifacts/<id>/origin.json          facts of the fit's data that applying it needs: its beginning, the predicted columns
//! artifacts/<id>/lineage.json         its origin: spans, states, versions
//! artifacts/<name>.json               ids of the newest artifact of a pipeline and of the one before it
//! ```
//! The id is a hash of `artifact.json` and the findings: the findings, not the files that they were
//! learned from.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;
use forebay_model::{
    ContentId, DataSplit, Dataset, DuplicateRows, Fault, Finding, IdBuilder, LeftOutFiles,
    NodeInput, Pipeline, PipelineNode, PipelineSink, PipelineSource, RefitPolicy, Result, Step,
    codes,
};
use forebay_plan::{BoundPipeline, ReaderFacts, SqlCompiler, TransformRegistry, bind};
use forebay_storage::{StorageClient, StorageLocation};
use forebay_threads::parallel_map;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::artifact_findings::{
    FindingFile, finding_file, finding_from_json, finding_json, findings_parquet, group_findings,
};
use crate::artifact_parts::{LearnedFinding, corrupt_fault, simple_types};
use crate::serving_state::ServingReference;

/// The version of artifacts that have a file for each long finding.
const FORMAT: u32 = 1;

/// The version of artifacts with several findings in a file.
const FORMAT_GROUPED: u32 = 2;

/// The version of artifacts with steps that are not fitted in each run.
const FORMAT_HELD: u32 = 3;

/// Result of a fit: the pipeline, the columns of its sources, and a finding per analyzer.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// Hash of the content.
    pub id: ContentId,
    /// The pipeline without its sinks' paths and sources' paths: those belong to a run.
    pub pipeline: Pipeline,
    /// Columns of each source.
    pub schemas: BTreeMap<String, SchemaRef>,
    /// Findings in the order of the analyzers.
    pub findings: Vec<LearnedFinding>,
    /// Times since which the findings are in use, for steps that are not fitted in each run.
    pub fits: Vec<StepFit>,
    /// Facts about the data of the fit that applying the artifact needs. They are no part of the
    /// id.
    pub origin: ArtifactOrigin,
    /// Reference to what windows need of the rows before, where that is kept. It is no part of the id.
    pub serving: Option<ServingReference>,
}

/// Facts about the data of a fit that applying its artifact needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactOrigin {
    /// The first time of each source whose metadata records it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub begins: BTreeMap<String, String>,
    /// Predicted columns: the pipeline's label, and those of its trainings.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<String>,
    /// Columns that forecasts of a step need in advance, by step.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub known: BTreeMap<String, BTreeSet<String>>,
}

/// The name of the file with the origin.
const ORIGIN: &str = "origin.json";

/// Time and reason of a step's fit that is in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFit {
    /// The step.
    pub step: String,
    /// The time of the data then, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Reason for the fit.
    pub reason: String,
}

/// Names and contents, relative to the artifact's directory, in the reverse order of writing.
pub type ArtifactFiles = Vec<(String, Bytes)>;

#[derive(Serialize, Deserialize)]
struct WireArtifact {
    format: u32,
    name: String,
    sources: BTreeMap<String, WireSource>,
    steps: Vec<WireNode>,
    split: Value,
    sinks: Vec<WireSink>,
    findings: Vec<WireFinding>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fits: Vec<StepFit>,
}

#[derive(Serialize, Deserialize)]
struct WireSource {
    format: String,
    config: Value,
    time: Option<String>,
    keys: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duplicates: Option<DuplicateRows>,
    columns: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct WireNode {
    name: String,
    input: Value,
    fit_on: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refit: Option<RefitPolicy>,
    #[serde(rename = "do")]
    steps: Vec<(String, Value)>,
}

#[derive(Serialize, Deserialize)]
struct WireSink {
    name: String,
    from: String,
    format: String,
    split: Option<String>,
    config: Value,
}

#[derive(Serialize, Deserialize)]
struct WireFinding {
    step: String,
    analyzer: String,
    columns: Vec<String>,
    part: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// The row group of this finding, where several share the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    row_group: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<usize>,
}

fn json_fault(subject: &str) -> impl Fn(serde_json::Error) -> Fault + '_ {
    move |error| corrupt_fault(format!("{subject} cannot be read")).cause(error)
}

impl Artifact {
    /// Creates an artifact, and returns its files; its id follows from their content.
    pub fn new(
        pipeline: Pipeline,
        schemas: BTreeMap<String, SchemaRef>,
        findings: Vec<LearnedFinding>,
        fits: Vec<StepFit>,
        origin: ArtifactOrigin,
        threads: usize,
    ) -> Result<(Self, ArtifactFiles)> {
        let mut artifact = Artifact {
            id: ContentId::of(b""),
            pipeline,
            schemas,
            findings,
            fits,
            origin,
            serving: None,
        };
        let mut files = artifact.identified_files(threads)?;
        let mut id = IdBuilder::new("artifact");
        for (name, bytes) in &files {
            id.text(name).bytes(bytes);
        }
        artifact.id = id.finish();
        files.extend(artifact.origin_file()?);
        Ok((artifact, files))
    }

    /// The files of the artifact, except for the lineage, encoded by `threads` threads.
    pub fn files(&self, threads: usize) -> Result<ArtifactFiles> {
        let mut files = self.identified_files(threads)?;
        files.extend(self.origin_file()?);
        Ok(files)
    }

    /// The file with the origin; `None` for an artifact without one.
    fn origin_file(&self) -> Result<Option<(String, Bytes)>> {
        if self.origin == ArtifactOrigin::default() {
            return Ok(None);
        }
        let mut text = serde_json::to_vec_pretty(&self.origin)
            .map_err(|error| Fault::internal("the origin of an artifact").cause(error))?;
        text.push(b'\n');
        Ok(Some((ORIGIN.to_owned(), Bytes::from(text))))
    }

    /// The files that the id is a hash of.
    fn identified_files(&self, threads: usize) -> Result<ArtifactFiles> {
        let count = self.findings.len();
        let tables = parallel_map(threads, count, &|index| {
            Ok(finding_json(&self.findings[index].finding))
        })?;
        let groups = group_findings(&self.findings, &tables);
        let encoded = parallel_map(threads, groups.len(), &|group| {
            let members = groups[group]
                .iter()
                .map(|index| self.findings[*index].finding.as_ref());
            findings_parquet(members)
        })?;
        let mut findings = Vec::with_capacity(count);
        for (learned, table) in self.findings.iter().zip(tables) {
            findings.push(WireFinding {
                step: learned.step.clone(),
                analyzer: learned.analyzer.clone(),
                columns: learned.columns.clone(),
                part: learned.part.clone(),
                table,
                file: None,
                row_group: None,
                rows: None,
            });
        }
        let mut files = Vec::new();
        for (group, bytes) in groups.iter().zip(encoded) {
            let Some(first) = group.first() else { continue };
            let name = finding_file(*first);
            for (row_group, index) in group.iter().enumerate() {
                let stored = &mut findings[*index];
                stored.file = Some(name.clone());
                stored.row_group = (group.len() > 1).then_some(row_group);
                stored.rows = Some(self.findings[*index].finding.rows());
            }
            files.push((name, Bytes::from(bytes)));
        }
        let wire = self.wire(findings)?;
        let mut text = serde_json::to_vec_pretty(&wire)
            .map_err(|e| Fault::internal("an artifact").cause(e))?;
        text.push(b'\n');
        files.insert(0, ("artifact.json".to_owned(), Bytes::from(text)));
        Ok(files)
    }

    fn wire(&self, findings: Vec<WireFinding>) -> Result<WireArtifact> {
        let pipeline = &self.pipeline;
        let mut sources = BTreeMap::new();
        for source in &pipeline.sources {
            sources.insert(source.name.clone(), self.wire_source(source)?);
        }
        let is_grouped = findings.iter().any(|finding| finding.row_group.is_some());
        let format = if !self.fits.is_empty() {
            FORMAT_HELD
        } else if is_grouped {
            FORMAT_GROUPED
        } else {
            FORMAT
        };
        Ok(WireArtifact {
            format,
            name: pipeline.name.clone(),
            sources,
            steps: pipeline.nodes.iter().map(WireNode::of).collect(),
            split: match &pipeline.split {
                Some(split) => split.config(),
                None => Value::Null,
            },
            sinks: pipeline.sinks.iter().map(WireSink::of).collect(),
            findings,
            fits: self.fits.clone(),
        })
    }

    fn wire_source(&self, source: &PipelineSource) -> Result<WireSource> {
        let mut columns = Map::new();
        if let Some(schema) = self.schemas.get(&source.name) {
            for field in schema.fields() {
                columns.insert(field.name().clone(), type_json(field)?);
            }
        }
        Ok(WireSource {
            format: source.format.clone(),
            config: source.config_without_run(),
            time: source.time.clone(),
            keys: source.keys.clone(),
            duplicates: source.duplicates,
            columns,
        })
    }

    /// Writes the artifact's files below `root` and makes it the newest of its pipeline. Data first, then the
    /// pointer.
    pub fn commit(
        &self,
        files: ArtifactFiles,
        io: &StorageClient,
        root: &StorageLocation,
        lineage: Vec<u8>,
    ) -> Result<StorageLocation> {
        let dir = self.write_files(files, io, root)?;
        io.put(&dir.join("lineage.json"), Bytes::from(lineage))?;
        let name = &self.pipeline.name;
        // A pointer that cannot be read is replaced.
        let newest = NewestArtifact::read(io, root, name).ok().flatten();
        let previous = newest.and_then(|newest| {
            if newest.id == self.id {
                newest.before
            } else {
                Some(newest.id)
            }
        });
        let mut pointer = json!({ "format": FORMAT, "artifact": self.id.to_string() });
        if let Some(previous) = previous {
            pointer["before"] = json!(previous.to_string());
        }
        io.put_durable(
            &Artifact::pointer(root, name),
            pointer.to_string().as_bytes(),
        )?;
        Ok(dir)
    }

    /// Writes the files that are needed to apply the artifact below `root`.
    fn write_files(
        &self,
        files: ArtifactFiles,
        io: &StorageClient,
        root: &StorageLocation,
    ) -> Result<StorageLocation> {
        let dir = Artifact::directory(root, self.id);
        for (name, bytes) in files.into_iter().rev() {
            // The last one names the others by their content: one that was lost is found out.
            if name == "artifact.json" {
                io.put_durable(&dir.join(&name), &bytes)?
            } else {
                io.put(&dir.join(&name), bytes)?
            }
        }
        Ok(dir)
    }

    /// Writes the files of the artifact below `root`, unless they exist and are complete.
    pub fn ensure_written(
        &self,
        io: &StorageClient,
        root: &StorageLocation,
        threads: usize,
    ) -> Result<()> {
        let stored = Artifact::load(io, &Artifact::directory(root, self.id));
        if stored.is_ok_and(|stored| stored.id == self.id) {
            return Ok(());
        }
        self.write_files(self.files(threads)?, io, root)?;
        Ok(())
    }

    /// The directory of an artifact below `root`.
    pub fn directory(root: &StorageLocation, id: ContentId) -> StorageLocation {
        root.join(&format!("artifacts/{id}"))
    }

    /// The file that names the newest artifact of a pipeline.
    pub fn pointer(root: &StorageLocation, name: &str) -> StorageLocation {
        root.join(&format!("artifacts/{name}.json"))
    }

    /// Reads an artifact from its directory.
    pub fn load(io: &StorageClient, dir: &StorageLocation) -> Result<Self> {
        Self::load_files(io, dir).map_err(|fault| fault.file(dir.join("artifact.json").shown))
    }

    fn load_files(io: &StorageClient, dir: &StorageLocation) -> Result<Self> {
        let Some(bytes) = io.get(&dir.join("artifact.json"))? else {
            return Err(Fault::new(codes::NOT_FOUND, "there is no artifact here")
                .file(&dir.shown)
                .hint(
                    "give the directory that holds `artifact.json`, as `forebay fit` prints it",
                ));
        };
        let mut id = IdBuilder::new("artifact");
        id.text("artifact.json").bytes(&bytes);
        let wire = read_wire(&bytes)?;
        let mut reader = FindingReader {
            io,
            dir,
            id,
            files: BTreeMap::new(),
        };
        let mut findings = Vec::with_capacity(wire.findings.len());
        for (index, stored) in wire.findings.iter().enumerate() {
            let finding = reader.read(index, stored)?;
            findings.push(LearnedFinding {
                step: stored.step.clone(),
                analyzer: stored.analyzer.clone(),
                columns: stored.columns.clone(),
                part: stored.part.clone(),
                finding: Arc::new(finding),
            });
        }
        let fits = wire.fits.clone();
        let (pipeline, schemas) = from_wire(wire)?;
        // Artifacts of earlier versions have no such file.
        let origin = match io.get(&dir.join(ORIGIN))? {
            Some(bytes) => {
                serde_json::from_slice(&bytes).map_err(json_fault("the origin of the artifact"))?
            }
            None => ArtifactOrigin::default(),
        };
        let serving = ServingReference::read(io, dir)?;
        let id = reader.id.finish();
        if id_in_path(dir).is_some_and(|named| named != id) {
            let message = "the artifact has been changed since it was written";
            return Err(corrupt_fault(message));
        }
        Ok(Artifact {
            id,
            pipeline,
            schemas,
            findings,
            fits,
            origin,
            serving,
        })
    }

    /// Datasets with the columns of the fit's sources, without rows.
    pub fn datasets(&self) -> BTreeMap<String, Dataset> {
        let mut datasets = BTreeMap::new();
        for (name, schema) in &self.schemas {
            let dataset = Dataset {
                schema: schema.clone(),
                spans: Vec::new(),
                column_bytes: None,
                null_counts: Vec::new(),
                watched: Vec::new(),
                version: None,
                left_out: LeftOutFiles::default(),
                files: Vec::new(),
            };
            datasets.insert(name.clone(), dataset);
        }
        datasets
    }

    /// Its pipeline, bound to the columns of its sources.
    pub fn bind(&self, registry: &TransformRegistry, sql: &SqlCompiler) -> Result<BoundPipeline> {
        // The pipeline of an artifact has neither a label nor trainings.
        let readers = ReaderFacts::default();
        let bound = bind(&self.pipeline, registry, sql, &self.datasets(), &readers)?;
        let kinds = bound.asks.iter().map(|request| request.ask.analyzer.kind());
        let learned_kinds = self.findings.iter().map(|learned| &*learned.analyzer);
        if !kinds.eq(learned_kinds) {
            let message = "the artifact was made by a version of this program whose steps learn \
                           other statistics";
            return Err(
                Fault::new(codes::STATE_VERSION, message).hint("fit again with this program")
            );
        }
        Ok(bound)
    }

    /// The newest artifact of a pipeline below a state directory.
    pub fn latest(
        io: &StorageClient,
        root: &StorageLocation,
        name: &str,
    ) -> Result<Option<StorageLocation>> {
        let newest = NewestArtifact::read(io, root, name)?;
        Ok(newest.map(|newest| Artifact::directory(root, newest.id)))
    }

    /// The last artifact of a pipeline that differs from the newest one. It may have been removed.
    pub fn before_latest(
        io: &StorageClient,
        root: &StorageLocation,
        name: &str,
    ) -> Result<Option<StorageLocation>> {
        let previous = NewestArtifact::read(io, root, name)?.and_then(|newest| newest.before);
        Ok(previous.map(|id| Artifact::directory(root, id)))
    }
}

/// Content of the pointer of a pipeline.
struct NewestArtifact {
    id: ContentId,
    /// The newest artifact before this one.
    before: Option<ContentId>,
}

impl NewestArtifact {
    fn read(
        io: &StorageClient,
        root: &StorageLocation,
        name: &str,
    ) -> Result<Option<NewestArtifact>> {
        let Some(bytes) = io.get(&Artifact::pointer(root, name))? else {
            return Ok(None);
        };
        let pointer: Value =
            serde_json::from_slice(&bytes).map_err(json_fault("the artifact's pointer"))?;
        let Some(id) = id_from_json(&pointer["artifact"]) else {
            return Ok(None);
        };
        Ok(Some(NewestArtifact {
            id,
            before: id_from_json(&pointer["before"]),
        }))
    }
}

/// Reads findings, and adds the content of their files to the id of the artifact.
struct FindingReader<'a> {
    io: &'a StorageClient,
    dir: &'a StorageLocation,
    id: IdBuilder,
    /// Files with several findings, and a file whose only finding is read next
    files: BTreeMap<String, FindingFile>,
}

impl FindingReader<'_> {
    fn read(&mut self, index: usize, stored: &WireFinding) -> Result<Finding> {
        if let Some(table) = &stored.table {
            return finding_from_json(table);
        }
        let Some(file) = &stored.file else {
            return Err(corrupt_fault("a finding of the artifact is empty"));
        };
        // Never a path of the artifact's own choosing.
        let first = match stored.row_group {
            None => index,
            Some(_) => file
                .trim_matches(|letter: char| !letter.is_ascii_digit())
                .parse()
                .unwrap_or(index),
        };
        let name = finding_file(first);
        let location = self.dir.join(&name);
        if !self.files.contains_key(&name) {
            let bytes = self.io.get(&location)?;
            let Some(bytes) = bytes.filter(|_| *file == name) else {
                let message = "a finding of the artifact is missing";
                return Err(Fault::new(codes::NOT_FOUND, message)
                    .file(&location.shown)
                    .hint("copy the whole directory of the artifact, or fit again"));
            };
            self.id.text(&name).bytes(&bytes);
            let opened = FindingFile::open(bytes);
            let opened = opened.map_err(|fault| fault.file(&location.shown))?;
            self.files.insert(name.clone(), opened);
        }
        let finding = match stored.row_group {
            None => self.files.remove(&name).map(|file| file.finding(None)),
            Some(group) => self.files.get(&name).map(|file| file.finding(Some(group))),
        };
        let finding =
            finding.unwrap_or_else(|| Err(corrupt_fault("a finding of the artifact is empty")));
        finding.map_err(|fault| fault.file(&location.shown))
    }
}

/// The id that a directory is called by, if it is where the artifact was written.
fn id_in_path(dir: &StorageLocation) -> Option<ContentId> {
    let name = dir.path.parts().next_back()?;
    ContentId::parse(name.as_ref())
}

fn id_from_json(value: &Value) -> Option<ContentId> {
    ContentId::parse(value.as_str()?)
}

/// Decodes `artifact.json`. Refuses other versions of the format.
fn read_wire(bytes: &[u8]) -> Result<WireArtifact> {
    let version: Value = serde_json::from_slice(bytes).map_err(json_fault("the artifact"))?;
    if !(FORMAT..=FORMAT_HELD).any(|format| version["format"] == format) {
        let message = format!(
            "the artifact has format {}, this program reads {FORMAT} to {FORMAT_HELD}",
            version["format"]
        );
        return Err(Fault::new(codes::STATE_VERSION, message).hint("fit again with this program"));
    }
    serde_json::from_value(version).map_err(json_fault("the artifact"))
}

fn from_wire(wire: WireArtifact) -> Result<(Pipeline, BTreeMap<String, SchemaRef>)> {
    let mut schemas = BTreeMap::new();
    let mut sources = Vec::new();
    for (name, source) in wire.sources {
        let mut fields = Vec::with_capacity(source.columns.len());
        for (column, stored) in &source.columns {
            fields.push(field_from_json(column, stored)?);
        }
        schemas.insert(name.clone(), Arc::new(Schema::new(fields)));
        sources.push(source.into_source(name));
    }
    let pipeline = Pipeline {
        name: wire.name,
        sources,
        nodes: wire.steps.into_iter().map(WireNode::into_node).collect(),
        split: split_from_json(&wire.split)?,
        sinks: wire.sinks.into_iter().map(WireSink::into_sink).collect(),
        ..Pipeline::default()
    };
    Ok((pipeline, schemas))
}

impl WireSource {
    fn into_source(self, name: String) -> PipelineSource {
        PipelineSource {
            name,
            format: self.format,
            config: self.config,
            time: self.time,
            keys: self.keys,
            ready: None,
            duplicates: self.duplicates,
            lookback: None,
            days: Default::default(),
            at: None,
        }
    }
}

impl WireNode {
    fn of(node: &PipelineNode) -> WireNode {
        let mut steps = Vec::with_capacity(node.steps.len());
        for step in &node.steps {
            steps.push((step.kind.clone(), step.config.clone()));
        }
        WireNode {
            name: node.name.clone(),
            input: match &node.input {
                NodeInput::From(name) => json!({ "from": name }),
                NodeInput::Union(names) => json!({ "union": names }),
                NodeInput::Sql(query) => json!({ "sql": query }),
            },
            fit_on: node.fit_on.clone(),
            refit: node.refit.clone(),
            steps,
        }
    }

    fn into_node(self) -> PipelineNode {
        let input = if let Some(name) = self.input["from"].as_str() {
            NodeInput::From(name.to_owned())
        } else if let Some(query) = self.input["sql"].as_str() {
            NodeInput::Sql(query.to_owned())
        } else {
            NodeInput::Union(texts(&self.input["union"]))
        };
        let mut steps = Vec::with_capacity(self.steps.len());
        for (kind, config) in self.steps {
            steps.push(Step {
                kind,
                config,
                at: None,
            });
        }
        PipelineNode {
            name: self.name,
            input,
            fit_on: self.fit_on,
            allow_empty: false,
            refit: self.refit,
            data_age: BTreeMap::new(),
            steps,
            optional: false,
            at: None,
        }
    }
}

impl WireSink {
    fn of(sink: &PipelineSink) -> WireSink {
        WireSink {
            name: sink.name.clone(),
            from: sink.from.clone(),
            format: sink.format.clone(),
            split: sink.split.clone(),
            config: sink.config_without_run(),
        }
    }

    fn into_sink(self) -> PipelineSink {
        PipelineSink {
            name: self.name,
            from: self.from,
            format: self.format,
            config: self.config,
            split: self.split,
            optional: false,
            at: None,
        }
    }
}

/// The texts of an array.
fn texts(value: &Value) -> Vec<String> {
    let mut texts = Vec::new();
    for text in value.as_array().into_iter().flatten() {
        texts.extend(text.as_str().map(str::to_owned));
    }
    texts
}

fn split_from_json(value: &Value) -> Result<Option<DataSplit>> {
    if value.is_null() {
        return Ok(None);
    }
    if let Some(parts) = value.get("expressions") {
        return Ok(Some(DataSplit::Expressions(split_value(parts)?)));
    }
    if let Some(time) = value.get("time") {
        return Ok(Some(DataSplit::Time {
            column: split_value(&time["column"])?,
            parts: split_value(&time["parts"])?,
            ends: split_value(&time["ends"])?,
            embargo: split_value(&time["embargo"])?,
        }));
    }
    let hash = &value["hash"];
    Ok(Some(DataSplit::Hash {
        keys: split_value(&hash["keys"])?,
        parts: split_value(&hash["parts"])?,
        seed: split_value(&hash["seed"])?,
    }))
}

fn split_value<T: DeserializeOwned>(value: &Value) -> Result<T> {
    serde_json::from_value(value.clone()).map_err(json_fault("the split of the artifact"))
}

/// Simple types by name; all others as an Arrow IPC schema in hexadecimal.
fn type_json(field: &Field) -> Result<Value> {
    for (name, data_type) in simple_types() {
        if data_type == *field.data_type() {
            return Ok(name.into());
        }
    }
    let schema = Schema::new(vec![field.clone()]);
    let mut bytes = Vec::new();
    StreamWriter::try_new(&mut bytes, &schema)?.finish()?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(json!({ "type": field.data_type().to_string(), "ipc": hex }))
}

fn field_from_json(name: &str, stored: &Value) -> Result<Field> {
    let field = if let Some(type_name) = stored.as_str() {
        simple_field(name, type_name)
    } else if let Some(hex) = stored["ipc"].as_str() {
        ipc_field(hex)?
    } else {
        None
    };
    field.ok_or_else(|| {
        corrupt_fault(format!(
            "the type of `{name}` in the artifact cannot be read"
        ))
    })
}

fn simple_field(name: &str, type_name: &str) -> Option<Field> {
    let mut types = simple_types().into_iter();
    let (_, data_type) = types.find(|(simple_name, _)| *simple_name == type_name)?;
    Some(Field::new(name, data_type, true))
}

/// The field of an Arrow IPC schema in hexadecimal.
fn ipc_field(hex: &str) -> Result<Option<Field>> {
    let mut bytes = Vec::with_capacity(hex.len() / 2);
    for index in 0..hex.len() / 2 {
        let digits = hex.get(2 * index..2 * index + 2);
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            return Ok(None);
        };
        bytes.push(byte);
    }
    let reader = StreamReader::try_new(Cursor::new(bytes), None)?;
    let schema = reader.schema();
    let field = schema.fields().first();
    Ok(field.map(|field| field.as_ref().clone().with_nullable(true)))
}
