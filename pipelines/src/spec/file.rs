//! Files of specs.

use std::io::Read as _;
use std::path::Path;

use forebay_model::{Fault, Result, SPEC_BYTES_MAX, codes, nearest_word};

/// The text of the file of a spec.
pub fn read_text(path: &Path) -> Result<String> {
    let file = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        let message = "the spec cannot be read";
        let fault = match error.kind() {
            std::io::ErrorKind::NotFound => {
                let fault = Fault::new(codes::NOT_FOUND, message).cause(error);
                match nearest_spec(path) {
                    Some(near) => fault.hint(format!("did you mean `{near}`?")),
                    None => fault.hint("`forebay new DATA --out FILE` writes a first spec"),
                }
            }
            std::io::ErrorKind::InvalidData => Fault::new(codes::SYNTAX, "the spec is not text")
                .hint(
                    "a spec is a YAML file; `forebay new DATA --out FILE` writes one for some data",
                ),
            _ => Fault::disk(message, error),
        };
        fault.file(&file)
    };
    let bytes = std::fs::metadata(path).map_err(unreadable)?.len();
    if bytes > SPEC_BYTES_MAX as u64 {
        return Err(Fault::new(
            codes::LIMIT,
            format!("a spec of {bytes} bytes is longer than {SPEC_BYTES_MAX}"),
        )
        .file(&file)
        .hint("divide it into several pipelines"));
    }
    // Not all that can be opened has a length.
    let file = std::fs::File::open(path).map_err(unreadable)?;
    std::io::read_to_string(file.take(SPEC_BYTES_MAX as u64 + 1)).map_err(unreadable)
}

/// The YAML file in the directory of a path whose name is most similar to it.
fn nearest_spec(path: &Path) -> Option<String> {
    let file_name = path.file_name()?.to_str()?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(".".as_ref());
    let names = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| name.ends_with(".yaml") || name.ends_with(".yml"))
        .collect();
    names.sort_unstable();
    let near = nearest_word(file_name, names.iter().map(String::as_str))?;
    Some(path.with_file_name(near).display().to_string())
}
