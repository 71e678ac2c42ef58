//! Artifacts: what a fit learned, in files that people can read. They hold no code.
//!
//! ```text
//! artifacts/<id>/artifact.json        the pipeline's steps, columns, and small findings
//! artifacts/<id>/findings/7.parquet   findings that are too long for JSON; where they are many, those of the same
//!                                     columns together, each in a row group
//! artifacts/<id>/lineage.json         where it came from: spans, states, versions
//! artifacts/<name>.json               the ids of the newest artifact of a pipeline and of the one before it
//! ```
//! The id is a hash of `artifact.json` and the findings: what was learned, not from which files.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;
use forebay_model::{
    ContentId, DataSplit, Dataset, DuplicateRows, Fault, Finding, IdBuilder, NodeInput, Pipeline,
    PipelineNode, PipelineSink, PipelineSource, RefitPolicy, Result, Step, codes,
};
use forebay_plan::{BoundPipeline, SqlCompiler, TransformRegistry, bind, config_without};
use forebay_storage::{StorageClient, StorageLocation};
use forebay_threads::parallel_map;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::artifact_findings::{
    FindingFile, finding_file, finding_from_json, finding_json, findings_parquet, group_findings,
};

/// The version of artifacts that have a file for each long finding.
const FORMAT: u32 = 1;

/// The version of artifacts with several findings in a file.
const FORMAT_GROUPED: u32 = 2;

/// The version of artifacts with steps that do not learn anew in each run.
const FORMAT_HELD: u32 = 3;

/// What a fit learned: the pipeline, the columns of its sources, and a finding per question.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// Hash of the content.
    pub id: ContentId,
    /// The pipeline without its sinks' paths and sources' paths: those belong to a run.
    pub pipeline: Pipeline,
    /// Columns of each source.
    pub schemas: BTreeMap<String, SchemaRef>,
    /// In the order of the questions.
    pub findings: Vec<LearnedFinding>,
    /// Since when the findings of steps that do not learn anew in each run are in force.
    pub fits: Vec<StepFit>,
}

/// When a step learned what is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFit {
    /// The step.
    pub step: String,
    /// The time of the data then, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Why it learned anew.
    pub reason: String,
}

/// Names and contents, below the artifact's directory; what is written last comes first.
pub type ArtifactFiles = Vec<(String, Bytes)>;

/// One finding and what it answers.
#[derive(Debug, Clone)]
pub struct LearnedFinding {
    /// The step that asked.
    pub step: String,
    /// The analyzer.
    pub analyzer: String,
    /// Its input columns.
    pub columns: Vec<String>,
    /// The part of the split that it saw.
    pub part: Option<String>,
    /// The answer.
    pub finding: Arc<Finding>,
}

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
    /// Where several findings share the file, the row group of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    row_group: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<usize>,
}

fn json_fault(what: &str) -> impl Fn(serde_json::Error) -> Fault + '_ {
    move |error| corrupt_fault(format!("{what} cannot be read")).cause(error)
}

pub(crate) fn corrupt_fault(message: impl Into<String>) -> Fault {
    Fault::new(codes::CORRUPT, message).hint("fit again; artifacts are not for editing")
}

impl Artifact {
    /// Puts an artifact together, and gives its files; its id follows from their content.
    pub fn new(
        pipeline: Pipeline,
        schemas: BTreeMap<String, SchemaRef>,
        findings: Vec<LearnedFinding>,
        fits: Vec<StepFit>,
        threads: usize,
    ) -> Result<(Self, ArtifactFiles)> {
        let mut artifact = Artifact {
            id: ContentId::of(b""),
            pipeline,
            schemas,
            findings,
            fits,
        };
        let files = artifact.files(threads)?;
        let mut id = IdBuilder::new("artifact");
        files.iter().for_each(|(name, bytes)| {
            id.text(name).bytes(bytes);
        });
        artifact.id = id.finish();
        Ok((artifact, files))
    }

    /// The files of the artifact, but for the lineage, encoded by so many threads.
    pub fn files(&self, threads: usize) -> Result<ArtifactFiles> {
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
        let mut places: Vec<Option<(String, Option<usize>)>> = vec![None; count];
        let mut files = Vec::new();
        for (group, bytes) in groups.iter().zip(encoded) {
            let Some(first) = group.first() else { continue };
            let name = finding_file(*first);
            for (row_group, index) in group.iter().enumerate() {
                places[*index] = Some((name.clone(), (group.len() > 1).then_some(row_group)));
            }
            files.push((name, Bytes::from(bytes)));
        }
        let findings =
            self.findings
                .iter()
                .zip(tables)
                .zip(places)
                .map(|((learned, table), place)| WireFinding {
                    step: learned.step.clone(),
                    analyzer: learned.analyzer.clone(),
                    columns: learned.columns.clone(),
                    part: learned.part.clone(),
                    table,
                    rows: place.is_some().then(|| learned.finding.rows()),
                    row_group: place.as_ref().and_then(|(_, row_group)| *row_group),
                    file: place.map(|(name, _)| name),
                });
        let wire = self.wire(findings.collect())?;
        let mut text = serde_json::to_vec_pretty(&wire)
            .map_err(|e| Fault::internal("an artifact").cause(e))?;
        text.push(b'\n');
        files.insert(0, ("artifact.json".to_owned(), Bytes::from(text)));
        Ok(files)
    }

    fn wire(&self, findings: Vec<WireFinding>) -> Result<WireArtifact> {
        let mut sources = BTreeMap::new();
        for source in &self.pipeline.sources {
            let schema = self
                .schemas
                .get(&source.name)
                .cloned()
                .unwrap_or_else(|| Arc::new(Schema::empty()));
            let columns = schema
                .fields()
                .iter()
                .map(|field| Ok((field.name().clone(), type_json(field)?)));
            sources.insert(
                source.name.clone(),
                WireSource {
                    format: source.format.clone(),
                    config: without_paths(&source.config),
                    time: source.time.clone(),
                    keys: source.keys.clone(),
                    duplicates: source.duplicates,
                    columns: columns.collect::<Result<_>>()?,
                },
            );
        }
        let steps = self
            .pipeline
            .nodes
            .iter()
            .map(|node| WireNode {
                name: node.name.clone(),
                input: match &node.input {
                    NodeInput::From(name) => json!({ "from": name }),
                    NodeInput::Union(names) => json!({ "union": names }),
                    NodeInput::Sql(query) => json!({ "sql": query }),
                },
                fit_on: node.fit_on.clone(),
                refit: node.refit.clone(),
                steps: node
                    .steps
                    .iter()
                    .map(|step| (step.kind.clone(), step.config.clone()))
                    .collect(),
            })
            .collect();
        let sinks = self
            .pipeline
            .sinks
            .iter()
            .map(|sink| WireSink {
                name: sink.name.clone(),
                from: sink.from.clone(),
                format: sink.format.clone(),
                split: sink.split.clone(),
                config: without_paths(&sink.config),
            })
            .collect();
        let split = self
            .pipeline
            .split
            .as_ref()
            .map_or(Value::Null, DataSplit::config);
        let is_grouped = findings.iter().any(|finding| finding.row_group.is_some());
        let format = match (self.fits.is_empty(), is_grouped) {
            (false, _) => FORMAT_HELD,
            (true, true) => FORMAT_GROUPED,
            (true, false) => FORMAT,
        };
        let (name, fits) = (self.pipeline.name.clone(), self.fits.clone());
        Ok(WireArtifact {
            format,
            name,
            sources,
            steps,
            split,
            sinks,
            findings,
            fits,
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
        let before = newest.and_then(|newest| {
            if newest.id == self.id {
                newest.before
            } else {
                Some(newest.id)
            }
        });
        let mut pointer = json!({ "format": FORMAT, "artifact": self.id.to_string() });
        if let Some(before) = before {
            pointer["before"] = json!(before.to_string());
        }
        io.put_durable(
            &Artifact::pointer(root, name),
            pointer.to_string().as_bytes(),
        )?;
        Ok(dir)
    }

    /// Writes what is needed to apply the artifact below `root`.
    fn write_files(
        &self,
        files: ArtifactFiles,
        io: &StorageClient,
        root: &StorageLocation,
    ) -> Result<StorageLocation> {
        let dir = Artifact::directory(root, self.id);
        for (name, bytes) in files.into_iter().rev() {
            // The last one names the others by their content: one that was lost is found out.
            match name == "artifact.json" {
                true => io.put_durable(&dir.join(&name), &bytes)?,
                false => io.put(&dir.join(&name), bytes)?,
            }
        }
        Ok(dir)
    }

    /// The same, unless it is there and whole.
    pub fn ensure_written(
        &self,
        io: &StorageClient,
        root: &StorageLocation,
        threads: usize,
    ) -> Result<()> {
        let there = Artifact::load(io, &Artifact::directory(root, self.id));
        if there.is_ok_and(|there| there.id == self.id) {
            Ok(())
        } else {
            self.write_files(self.files(threads)?, io, root).map(drop)
        }
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
        let bytes = io.get(&dir.join("artifact.json"))?.ok_or_else(|| {
            Fault::new(codes::NOT_FOUND, "there is no artifact here")
                .file(&dir.shown)
                .hint("give the directory that holds `artifact.json`, as `forebay fit` prints it")
        })?;
        let mut id = IdBuilder::new("artifact");
        id.text("artifact.json").bytes(&bytes);
        let version: Value = serde_json::from_slice(&bytes).map_err(json_fault("the artifact"))?;
        if !(FORMAT..=FORMAT_HELD).any(|format| version["format"] == format) {
            let message = format!(
                "the artifact has format {}, this program reads {FORMAT} to {FORMAT_HELD}",
                version["format"]
            );
            return Err(
                Fault::new(codes::STATE_VERSION, message).hint("fit again with this program")
            );
        }
        let wire: WireArtifact =
            serde_json::from_value(version).map_err(json_fault("the artifact"))?;
        let mut findings = Vec::new();
        let mut files: BTreeMap<String, FindingFile> = BTreeMap::new();
        for (index, stored) in wire.findings.iter().enumerate() {
            let finding = match (&stored.table, &stored.file) {
                (Some(table), _) => finding_from_json(table)?,
                (None, Some(file)) => {
                    // Never a path of the artifact's own choosing.
                    let first = match stored.row_group {
                        None => index,
                        Some(_) => file
                            .trim_matches(|letter: char| !letter.is_ascii_digit())
                            .parse()
                            .unwrap_or(index),
                    };
                    let name = finding_file(first);
                    let broken = |fault: Fault| fault.file(dir.join(&name).shown);
                    if !files.contains_key(&name) {
                        let bytes = io
                            .get(&dir.join(&name))?
                            .filter(|_| *file == name)
                            .ok_or_else(|| {
                                Fault::new(codes::NOT_FOUND, "a finding of the artifact is missing")
                                    .file(&dir.join(&name).shown)
                                    .hint("copy the whole directory of the artifact, or fit again")
                            })?;
                        id.text(&name).bytes(&bytes);
                        files.insert(name.clone(), FindingFile::open(bytes).map_err(broken)?);
                    }
                    let found = match stored.row_group {
                        None => files.remove(&name).map(|file| file.finding(None)),
                        Some(group) => files.get(&name).map(|file| file.finding(Some(group))),
                    };
                    found
                        .unwrap_or_else(|| Err(corrupt_fault("a finding of the artifact is empty")))
                        .map_err(broken)?
                }
                (None, None) => return Err(corrupt_fault("a finding of the artifact is empty")),
            };
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
        let id = id.finish();
        // The directory that it was written to is called by its id.
        let name = dir
            .path
            .parts()
            .next_back()
            .and_then(|name| ContentId::parse(name.as_ref()));
        if name.is_some_and(|name| name != id) {
            return Err(corrupt_fault(
                "the artifact has been changed since it was written",
            ));
        }
        Ok(Artifact {
            id,
            pipeline,
            schemas,
            findings,
            fits,
        })
    }

    /// Its pipeline, bound to the columns of its sources.
    pub fn bind(&self, registry: &TransformRegistry, sql: &SqlCompiler) -> Result<BoundPipeline> {
        let datasets: BTreeMap<String, Dataset> = self
            .schemas
            .iter()
            .map(|(name, schema)| {
                let schema = schema.clone();
                (
                    name.clone(),
                    Dataset {
                        schema,
                        spans: Vec::new(),
                        column_bytes: None,
                        watched: Vec::new(),
                        version: None,
                    },
                )
            })
            .collect();
        let bound = bind(&self.pipeline, registry, sql, &datasets)?;
        let asked = bound.asks.iter().map(|ask| ask.ask.analyzer.kind());
        if !asked.eq(self
            .findings
            .iter()
            .map(|learned| learned.analyzer.as_str()))
        {
            let message = "the artifact was made by a version of this program whose steps learn other statistics";
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
        let before = NewestArtifact::read(io, root, name)?.and_then(|newest| newest.before);
        Ok(before.map(|id| Artifact::directory(root, id)))
    }
}

/// What the pointer of a pipeline names.
struct NewestArtifact {
    id: ContentId,
    /// The one that was the newest before.
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
        let id = |name: &str| pointer[name].as_str().and_then(ContentId::parse);
        Ok(id("artifact").map(|newest| NewestArtifact {
            id: newest,
            before: id("before"),
        }))
    }
}

fn from_wire(wire: WireArtifact) -> Result<(Pipeline, BTreeMap<String, SchemaRef>)> {
    let mut schemas = BTreeMap::new();
    let mut sources = Vec::new();
    for (name, source) in wire.sources {
        let fields = source
            .columns
            .iter()
            .map(|(name, stored)| field_from_json(name, stored));
        schemas.insert(
            name.clone(),
            Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?)),
        );
        let WireSource {
            format,
            config,
            time,
            keys,
            duplicates,
            ..
        } = source;
        sources.push(PipelineSource {
            name,
            format,
            config,
            time,
            keys,
            ready: None,
            duplicates,
            lookback: None,
            at: None,
        });
    }
    let mut nodes = Vec::new();
    for node in wire.steps {
        let texts = |value: &Value| -> Vec<String> {
            value
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect()
        };
        let input = match (node.input["from"].as_str(), node.input["sql"].as_str()) {
            (Some(name), _) => NodeInput::From(name.to_owned()),
            (None, Some(query)) => NodeInput::Sql(query.to_owned()),
            (None, None) => NodeInput::Union(texts(&node.input["union"])),
        };
        let steps = node.steps.iter().map(|(kind, config)| Step {
            kind: kind.clone(),
            config: config.clone(),
            at: None,
        });
        let steps = steps.collect();
        let WireNode {
            name,
            fit_on,
            refit,
            ..
        } = node;
        nodes.push(PipelineNode {
            name,
            input,
            fit_on,
            refit,
            steps,
            optional: false,
            at: None,
        });
    }
    let sinks = wire.sinks.into_iter().map(|sink| {
        let WireSink {
            name,
            from,
            format,
            split,
            config,
        } = sink;
        PipelineSink {
            name,
            from,
            format,
            config,
            split,
            optional: false,
            at: None,
        }
    });
    let split = split_from_json(&wire.split)?;
    let (name, sinks) = (wire.name, sinks.collect());
    Ok((
        Pipeline {
            name,
            sources,
            nodes,
            split,
            sinks,
            ..Pipeline::default()
        },
        schemas,
    ))
}

fn split_from_json(value: &Value) -> Result<Option<DataSplit>> {
    let read = json_fault("the split of the artifact");
    let get = |value: &Value| value.clone();
    if value.is_null() {
        return Ok(None);
    }
    if let Some(parts) = value.get("expressions") {
        return Ok(Some(DataSplit::Expressions(
            serde_json::from_value(get(parts)).map_err(read)?,
        )));
    }
    if let Some(time) = value.get("time") {
        return Ok(Some(DataSplit::Time {
            column: serde_json::from_value(get(&time["column"])).map_err(&read)?,
            parts: serde_json::from_value(get(&time["parts"])).map_err(&read)?,
            ends: serde_json::from_value(get(&time["ends"])).map_err(&read)?,
            embargo: serde_json::from_value(get(&time["embargo"])).map_err(&read)?,
        }));
    }
    let hash = &value["hash"];
    Ok(Some(DataSplit::Hash {
        keys: serde_json::from_value(get(&hash["keys"])).map_err(&read)?,
        parts: serde_json::from_value(get(&hash["parts"])).map_err(&read)?,
        seed: serde_json::from_value(get(&hash["seed"])).map_err(&read)?,
    }))
}

/// A configuration without the places that belong to a run.
fn without_paths(config: &Value) -> Value {
    config_without(config, &["path", "paths", "cache", "version", "timestamp"])
}

/// Simple types by name; all others as an Arrow IPC schema in hexadecimal.
fn type_json(field: &Field) -> Result<Value> {
    if let Some(name) = simple_types()
        .iter()
        .find(|(_, data_type)| data_type == field.data_type())
        .map(|(n, _)| *n)
    {
        return Ok(name.into());
    }
    let schema = Schema::new(vec![field.clone()]);
    let mut bytes = Vec::new();
    StreamWriter::try_new(&mut bytes, &schema)?.finish()?;
    Ok(
        json!({ "type": field.data_type().to_string(), "ipc": bytes.iter().map(|b| format!("{b:02x}")).collect::<String>() }),
    )
}

fn field_from_json(name: &str, stored: &Value) -> Result<Field> {
    let broken = || {
        corrupt_fault(format!(
            "the type of `{name}` in the artifact cannot be read"
        ))
    };
    if let Some(text) = stored.as_str() {
        let known = simple_types()
            .into_iter()
            .find(|(simple, _)| *simple == text)
            .ok_or_else(broken)?;
        return Ok(Field::new(name, known.1, true));
    }
    let text = stored["ipc"].as_str().ok_or_else(broken)?;
    let bytes: Option<Vec<u8>> = (0..text.len() / 2)
        .map(|i| {
            text.get(2 * i..2 * i + 2)
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
        })
        .collect();
    let reader = arrow::ipc::reader::StreamReader::try_new(
        std::io::Cursor::new(bytes.ok_or_else(broken)?),
        None,
    )?;
    let schema = reader.schema();
    let field = schema.fields().first().ok_or_else(broken)?;
    Ok(field.as_ref().clone().with_nullable(true))
}

pub(crate) fn simple_types() -> Vec<(&'static str, DataType)> {
    use arrow::datatypes::TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    vec![
        ("boolean", DataType::Boolean),
        ("int8", DataType::Int8),
        ("int16", DataType::Int16),
        ("int32", DataType::Int32),
        ("int64", DataType::Int64),
        ("uint8", DataType::UInt8),
        ("uint16", DataType::UInt16),
        ("uint32", DataType::UInt32),
        ("uint64", DataType::UInt64),
        ("float32", DataType::Float32),
        ("float64", DataType::Float64),
        ("string", DataType::Utf8),
        ("binary", DataType::Binary),
        ("date", DataType::Date32),
        ("timestamp_s", DataType::Timestamp(Second, None)),
        ("timestamp_ms", DataType::Timestamp(Millisecond, None)),
        ("timestamp_us", DataType::Timestamp(Microsecond, None)),
        ("timestamp_ns", DataType::Timestamp(Nanosecond, None)),
    ]
}
