//! `forebay export MODEL FILE`: a model in the format of another runtime.

use std::path::Path;

use forebay_connectors::ModelPart;
use forebay_model::{Fault, Result, codes};
use forebay_storage::StorageClient;

use crate::predict::TrainedModel;

/// Formats of models, by the ending of the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ModelFormat {
    Onnx,
    LightGbm,
}

impl ModelFormat {
    /// The format that a file's ending names; none for directories of copied files.
    pub fn of_file(path: &str) -> Option<ModelFormat> {
        let extension = Path::new(path).extension()?.to_str()?;
        match extension {
            "onnx" => Some(ModelFormat::Onnx),
            "txt" => Some(ModelFormat::LightGbm),
            _ => None,
        }
    }
}

/// Format and part of an exported model.
pub(super) struct ModelExport {
    pub format: ModelFormat,
    pub part: ModelPart,
    /// The row-wise steps before the model are part of the file
    pub with_steps: bool,
}

/// Writes the model in a directory to a file, which must not be there. Returns its size in bytes.
pub(super) fn export_model(
    io: &StorageClient,
    model: &str,
    file: &str,
    request: &ModelExport,
) -> Result<u64> {
    let model = TrainedModel::load(io, model)?;
    let content = match request.format {
        ModelFormat::Onnx if request.with_steps => model.to_onnx(&request.part)?,
        ModelFormat::Onnx => model.to_onnx_without_steps(&request.part)?,
        ModelFormat::LightGbm => model.to_lightgbm(&request.part)?.into_bytes(),
    };
    write_new_file(Path::new(file), &content)?;
    Ok(content.len() as u64)
}

/// Readers see the whole file or none.
fn write_new_file(path: &Path, content: &[u8]) -> Result<()> {
    use std::io::Write;
    let failed = |error: std::io::Error| {
        Fault::disk("the model cannot be written", error).file(path.display().to_string())
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut staged = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    staged.write_all(content).map_err(failed)?;
    staged.as_file().sync_all().map_err(failed)?;
    make_readable(staged.as_file()).map_err(failed)?;
    staged.persist_noclobber(path).map_err(|error| {
        if path.exists() {
            let fault = Fault::new(codes::OUTPUT_CLASH, "the file is there already");
            let fault = fault.file(path.display().to_string());
            return fault.hint("remove it, or name another file");
        }
        failed(error.error)
    })?;
    Ok(())
}

/// Temporary files are private by default; an export is for others to read.
fn make_readable(file: &std::fs::File) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}
