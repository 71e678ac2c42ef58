//! The files of an output as its readers should see them, wherever it lies: those that the manifest names, or the log
//! of a table.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use forebay_connectors::{BuiltInConnectors, has_delta_log};
use forebay_contract::{ConnectorRegistry, ScanRequest, Source, literal_path};
use forebay_model::{
    Dataset, Fault, RelativePath, Result, Span, codes, encode_folder_value, encode_path_part,
    plain_batch,
};
use forebay_run::{DATA_SUFFIX, Manifest, OutputFile, output_root};
use forebay_storage::{StorageClient, StorageLocation};
use serde::Serialize;
use serde_json::json;

/// A file that readers may read.
///
/// ```no_run
/// use forebay::VisibleDataset;
/// use forebay::run::StorageClient;
///
/// let features = VisibleDataset::open(&StorageClient::new()?, "out/features")?;
/// let bytes: u64 = features.files().iter().map(|file| file.bytes).sum();
/// println!("{bytes} bytes in {} files", features.files().len());
/// # Ok::<(), forebay::model::Fault>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VisibleFile {
    /// A path from the root of the file system, or a URL.
    pub path: String,
    /// Below the output: folders of partition values, and a number in row order.
    pub name: RelativePath,
    /// Bytes.
    pub bytes: u64,
    /// Number of rows, where the format records it.
    pub rows: Option<u64>,
}

/// The rows of an output or a table, of one version from beginning to end.
///
/// ```no_run
/// use forebay::VisibleDataset;
/// use forebay::run::StorageClient;
///
/// let features = VisibleDataset::open(&StorageClient::new()?, "s3://bucket/out/features")?;
/// println!("{} files", features.files().len());
/// # Ok::<(), forebay::model::Fault>(())
/// ```
pub struct VisibleDataset {
    io: StorageClient,
    source: Arc<dyn Source>,
    dataset: Dataset,
    files: Vec<VisibleFile>,
    deleted_rows: bool,
}

/// A file in the manifest or the log.
struct NamedFile {
    place: StorageLocation,
    /// The folders of its partition values, and its extension.
    folder: String,
    extension: String,
    /// Name of the file, where it is no numbered file.
    own_name: Option<String>,
    bytes: u64,
    rows: Option<u64>,
}

impl VisibleDataset {
    /// Opens the published files at the path of an output, or of a Delta table.
    pub fn open(io: &StorageClient, path: &str) -> Result<VisibleDataset> {
        if has_delta_log(io, path)? {
            open_table(io, path)
        } else {
            open_output(io, path)
        }
    }

    /// The files, in row order.
    pub fn files(&self) -> &[VisibleFile] {
        &self.files
    }

    /// True if some rows of the files are deleted: then the files alone do not determine the rows.
    pub fn has_deleted_rows(&self) -> bool {
        self.deleted_rows
    }

    /// Schema of the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.dataset.schema
    }

    /// Reads its rows, in order. One file is read at a time.
    pub fn batches(&self) -> impl Iterator<Item = Result<RecordBatch>> + Send + use<> {
        let io = self.io.clone();
        let source = self.source.clone();
        let schema = self.dataset.schema.clone();
        let request = ScanRequest::of_all_columns(&schema);
        let spans = self.dataset.spans.clone().into_iter();
        spans.flat_map(
            move |span| -> Box<dyn Iterator<Item = Result<RecordBatch>> + Send> {
                let schema = schema.clone();
                match source.open(&io, &span, &request) {
                    Ok(chunks) => {
                        Box::new(chunks.map(move |chunk| plain_batch(&schema, &chunk?.batch)))
                    }
                    Err(fault) => Box::new(std::iter::once(Err(fault))),
                }
            },
        )
    }
}

fn open_table(io: &StorageClient, path: &str) -> Result<VisibleDataset> {
    let source = |config: serde_json::Value| BuiltInConnectors.source("delta", &config);
    let latest = source(json!({ "path": path }))?.discover(io, &[])?;
    // The same version when the rows are read.
    let source = source(json!({ "path": path, "version": latest.version }))?;
    let dataset = source.discover(io, &[])?;
    let mut named: Vec<NamedFile> = Vec::new();
    let mut at: HashMap<&str, usize> = HashMap::new();
    for piece in dataset.spans.iter().flat_map(|span| &span.pieces) {
        if let Some(index) = at.get(piece.path.as_str()) {
            let file = &mut named[*index];
            file.rows = file.rows.zip(piece.rows).map(|(a, b)| a + b);
            file.bytes += piece.bytes;
            continue;
        }
        at.insert(&piece.path, named.len());
        let folder = piece.partition.iter().map(|(column, value)| {
            format!(
                "{}={}",
                encode_path_part(column),
                encode_folder_value(value)
            )
        });
        named.push(NamedFile {
            place: io.resolve(&piece.path)?,
            folder: folder.collect::<Vec<_>>().join("/"),
            extension: "parquet".to_owned(),
            own_name: None,
            bytes: piece.bytes,
            rows: piece.rows,
        });
    }
    let deleted_rows = forebay_connectors::has_deleted_rows(io, path, dataset.version)?;
    let files = numbered(named)?;
    Ok(VisibleDataset {
        io: io.clone(),
        source,
        dataset,
        files,
        deleted_rows,
    })
}

fn open_output(io: &StorageClient, path: &str) -> Result<VisibleDataset> {
    let root = output_root(io, path)?;
    let Some(manifest) = Manifest::read(io, &root)? else {
        let fault = Fault::new(codes::NOT_FOUND, "there is no output here").file(path);
        return Err(fault.hint(
            "give the path of a sink, as `forebay run` prints it, or the directory of \
             a Delta table",
        ));
    };
    let named: Vec<NamedFile> = manifest
        .files()
        .map(|file| named_file(&root, file))
        .collect();
    let shown_paths: Vec<String> = named.iter().map(|file| file.place.shown.clone()).collect();
    let files = numbered(named)?;
    let extension = files
        .first()
        .and_then(|file| file.name.rsplit_once('.'))
        .map(|(_, extension)| extension.to_owned());
    let format = extension
        .as_deref()
        .and_then(|extension| BuiltInConnectors.format_of_name(&format!("x.{extension}")));
    let Some(format) = format else {
        let fault = Fault::new(
            codes::UNSUPPORTED,
            "the output holds no rows that a format can read",
        )
        .file(path);
        return Err(fault.hint("give the path of a sink that writes a table, not a model"));
    };
    let paths: Vec<String> = shown_paths.iter().map(|path| literal_path(path)).collect();
    let source = BuiltInConnectors.source(format, &json!({ "paths": paths }))?;
    let dataset = in_order(source.discover(io, &[])?, &manifest, &shown_paths)?;
    Ok(VisibleDataset {
        io: io.clone(),
        source,
        dataset,
        files,
        deleted_rows: false,
    })
}

fn named_file(root: &StorageLocation, file: &OutputFile) -> NamedFile {
    // Below the directory of a shard come partitions and a name.
    let inside = file.path.splitn(3, '/').nth(2).unwrap_or(&file.path);
    let (folder, name) = inside.rsplit_once('/').unwrap_or(("", inside));
    let name = name.strip_suffix(DATA_SUFFIX).unwrap_or(name);
    let numbered = name
        .split_once('.')
        .filter(|(start, _)| start.starts_with("part-"));
    NamedFile {
        place: root.join(&file.path),
        folder: folder.to_owned(),
        extension: numbered.map_or("", |(_, extension)| extension).to_owned(),
        own_name: numbered.is_none().then(|| name.to_owned()),
        bytes: file.bytes,
        rows: Some(file.rows),
    }
}

/// The files with names: numbers in row order, in each partition.
fn numbered(named: Vec<NamedFile>) -> Result<Vec<VisibleFile>> {
    let mut counters: BTreeMap<String, usize> = BTreeMap::new();
    let mut files = Vec::with_capacity(named.len());
    for file in named {
        let counter = counters.entry(file.folder.clone()).or_default();
        let mut name = match file.own_name {
            Some(name) => name,
            None => format!("part-{counter:05}.{}", file.extension),
        };
        *counter += 1;
        if !file.folder.is_empty() {
            name = format!("{}/{name}", file.folder);
        }
        let path = match &file.place.local {
            Some(local) => local.display().to_string(),
            None => file.place.shown,
        };
        files.push(VisibleFile {
            path,
            name: RelativePath::new(name)?,
            bytes: file.bytes,
            rows: file.rows,
        });
    }
    Ok(files)
}

/// The pieces in the order of the manifest.
fn in_order(mut dataset: Dataset, manifest: &Manifest, paths: &[String]) -> Result<Dataset> {
    // All files lie equally deep below the output.
    let depth = manifest
        .files()
        .next()
        .map_or(0, |file| file.path.matches('/').count());
    let mut pieces_by_file: HashMap<String, Vec<_>> = HashMap::new();
    for piece in dataset.spans.into_iter().flat_map(|span| span.pieces) {
        let start = piece
            .path
            .rmatch_indices('/')
            .nth(depth)
            .map_or(0, |(slash, _)| slash + 1);
        pieces_by_file
            .entry(piece.path[start..].to_owned())
            .or_default()
            .push(piece);
    }
    let mut spans = Vec::new();
    for (file, path) in manifest.files().zip(paths) {
        let Some(pieces) = pieces_by_file.remove(&*file.path) else {
            let fault = Fault::new(codes::NOT_FOUND, "a file of the output is missing").file(path);
            return Err(fault.hint(
                "open the output again: a run may have replaced it; else run its spec again",
            ));
        };
        spans.extend(pieces.into_iter().map(|piece| Span {
            pieces: vec![piece],
        }));
    }
    dataset.spans = spans;
    Ok(dataset)
}
