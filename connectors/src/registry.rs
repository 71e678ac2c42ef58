//! Registry of the sources, sinks and trainers that specs and builders can use.

use std::sync::Arc;

use forebay_contract::{
    ConnectorConfig, ConnectorFormat, ConnectorRegistry, ModelPredictor, ReadModelFile, Sink,
    SinkFormat, Source, SourceFormat, Trainer, TrainerFormat, parse_config,
};
use forebay_formats::{ArrowSource, ParquetSource};
use forebay_model::{Fault, Result, codes};
use serde_json::Value;

type OpenSource = fn(&Value) -> Result<Arc<dyn Source>>;
type OpenSink = fn(&Value) -> Result<Arc<dyn Sink>>;
type OpenTrainer = fn(&Value) -> Result<Arc<dyn Trainer>>;
type ReadPredictor = fn(ReadModelFile<'_>) -> Result<Option<Arc<dyn ModelPredictor>>>;

/// Endings of compressed files, which follow that of the format.
const COMPRESSED_ENDINGS: [&str; 2] = [".gz", ".zst"];

/// Formats of one role, each with the function that configures it.
#[derive(Debug, Clone)]
struct FormatTable<O> {
    formats: Vec<ConnectorFormat>,
    open: Vec<O>,
}

impl<O: Copy> FormatTable<O> {
    const EMPTY: FormatTable<O> = FormatTable {
        formats: Vec::new(),
        open: Vec::new(),
    };

    fn insert(&mut self, format: ConnectorFormat, open: O) {
        self.remove(format.name);
        self.formats.push(format);
        self.open.push(open);
    }

    fn remove(&mut self, name: &str) {
        if let Some(index) = self.position(name) {
            self.formats.remove(index);
            self.open.remove(index);
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.formats.iter().position(|format| format.name == name)
    }

    /// The format of this name; the fault suggests the nearest name.
    fn find(&self, role: &str, name: &str) -> Result<(ConnectorFormat, O)> {
        let Some(index) = self.position(name) else {
            let message = format!("there is no {role} format `{name}`");
            let names = self.formats.iter().map(|format| format.name);
            let listing = format!("the {role} formats are");
            return Err(Fault::new(codes::UNKNOWN_NAME, message).suggest(name, names, &listing));
        };
        Ok((self.formats[index], self.open[index]))
    }
}

/// Endings of file names of a source.
#[derive(Debug, Clone, Copy)]
struct FormatEndings {
    format: &'static str,
    endings: &'static [&'static str],
}

/// Sources, sinks and trainers by name.
///
/// Specs, the JSON Schema, suggestions of names and file endings follow from what is registered. A
/// kind replaces one of the same name and role; sinks and trainers share their names, since a spec
/// has both below `sinks`.
///
/// ```
/// use forebay_connectors::FormatRegistry;
///
/// let registry = FormatRegistry::built_in();
/// assert!(registry.sources().iter().any(|format| format.name == "csv"));
/// ```
#[derive(Debug, Clone)]
pub struct FormatRegistry {
    sources: FormatTable<OpenSource>,
    sinks: FormatTable<OpenSink>,
    trainers: FormatTable<OpenTrainer>,
    predictors: Vec<ConnectorFormat>,
    endings: Vec<FormatEndings>,
    read_predictor: Vec<ReadPredictor>,
}

impl FormatRegistry {
    /// A registry without any kind.
    pub fn empty() -> FormatRegistry {
        FormatRegistry {
            sources: FormatTable::EMPTY,
            sinks: FormatTable::EMPTY,
            trainers: FormatTable::EMPTY,
            predictors: Vec::new(),
            endings: Vec::new(),
            read_predictor: Vec::new(),
        }
    }

    /// Adds a source.
    pub fn register_source<T: SourceFormat>(&mut self) -> &mut Self {
        self.sources.insert(ConnectorFormat::of::<T>(), |config| {
            Ok(parse_config::<T>(config)?.source())
        });
        self.endings.retain(|endings| endings.format != T::NAME);
        self.endings.push(FormatEndings {
            format: T::NAME,
            endings: T::ENDINGS,
        });
        self
    }

    /// Adds a sink.
    pub fn register_sink<T: SinkFormat>(&mut self) -> &mut Self {
        self.trainers.remove(T::NAME);
        self.sinks.insert(ConnectorFormat::of::<T>(), |config| {
            Ok(parse_config::<T>(config)?.sink())
        });
        self
    }

    /// Adds a trainer. The trainer that was added last among those that recognise the files of a
    /// model reads it.
    pub fn register_trainer<T: TrainerFormat>(&mut self) -> &mut Self {
        self.sinks.remove(T::NAME);
        self.trainers.insert(ConnectorFormat::of::<T>(), |config| {
            Ok(Arc::new(parse_config::<T>(config)?))
        });
        self.read_predictor.push(T::predictor);
        self
    }

    /// Adds a trainer whose configuration is one of several types, and the reader of its models.
    pub(crate) fn register_trainers(
        &mut self,
        format: ConnectorFormat,
        open: OpenTrainer,
        read_predictor: ReadPredictor,
    ) -> &mut Self {
        self.trainers.insert(format, open);
        self.read_predictor.push(read_predictor);
        self
    }

    /// Adds sinks that write predictions.
    pub(crate) fn register_predictor(&mut self, format: ConnectorFormat) -> &mut Self {
        self.predictors.push(format);
        self
    }

    /// Formats that can be read.
    pub fn sources(&self) -> &[ConnectorFormat] {
        &self.sources.formats
    }

    /// Formats that can be written.
    pub fn sinks(&self) -> &[ConnectorFormat] {
        &self.sinks.formats
    }

    /// Trainers that sinks can use.
    pub fn trainers(&self) -> &[ConnectorFormat] {
        &self.trainers.formats
    }

    /// Predictors for the models of a run.
    pub fn predictors(&self) -> &[ConnectorFormat] {
        &self.predictors
    }

    /// A source's configuration with all defaults filled in.
    pub fn canonical_source(&self, format: &str, config: Value) -> Result<Value> {
        let (format, _) = self.sources.find("source", format)?;
        format.fill_defaults(config)
    }
}

impl ConnectorRegistry for FormatRegistry {
    fn intermediate_format(&self) -> &'static str {
        ParquetSource::NAME
    }

    fn exact_format(&self) -> Option<&'static str> {
        Some(ArrowSource::NAME)
    }

    fn format_of_name(&self, name: &str) -> Option<&'static str> {
        let mut name = name;
        for compressed in COMPRESSED_ENDINGS {
            name = name.trim_end_matches(compressed);
        }
        let (_, ending) = name.rsplit_once('.')?;
        let mut formats = self.endings.iter();
        let format = formats.find(|format| format.endings.contains(&ending))?;
        Some(format.format)
    }

    fn canonical(&self, format: &str, config: Value) -> Result<Value> {
        let (format, _) = self.sinks.find("sink", format)?;
        format.fill_defaults(config)
    }

    fn source(&self, format: &str, config: &Value) -> Result<Arc<dyn Source>> {
        let (_, open) = self.sources.find("source", format)?;
        open(config)
    }

    fn sink(&self, format: &str, config: &Value) -> Result<Arc<dyn Sink>> {
        let (_, open) = self.sinks.find("sink", format)?;
        open(config)
    }

    fn trainer(&self, format: &str, config: &Value) -> Result<Arc<dyn Trainer>> {
        let (_, open) = self.trainers.find("trainer", format)?;
        open(config)
    }

    fn predictor(&self, files: ReadModelFile<'_>) -> Result<Arc<dyn ModelPredictor>> {
        for read in self.read_predictor.iter().rev() {
            if let Some(predictor) = read(files)? {
                return Ok(predictor);
            }
        }
        let fault = Fault::new(codes::NOT_FOUND, "there is no model here");
        Err(fault.hint("give the directory of a `train` sink, as `forebay run` prints it"))
    }
}
