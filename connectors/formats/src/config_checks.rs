//! Checks that configurations of several formats share.

use forebay_model::{ConfigError, ConfigResult};

/// Checks that exactly one of `path` and `paths` is given, and that none is empty.
pub(crate) fn check_paths(path: Option<&str>, paths: &[String]) -> ConfigResult<()> {
    match (path, paths) {
        (None, []) => Err(ConfigError::whole("`path` is missing")),
        (Some(_), [_, ..]) => Err(ConfigError::at(
            "paths",
            "either `path` or `paths`, not both",
        )),
        (Some(""), _) => Err(ConfigError::at("path", "the path is empty")),
        (_, paths) => match paths.iter().position(String::is_empty) {
            Some(i) => Err(ConfigError::at(format!("paths[{i}]"), "the path is empty")),
            None => Ok(()),
        },
    }
}

/// The paths of a configuration.
pub(crate) fn all_paths<'a>(path: &'a Option<String>, paths: &'a [String]) -> Vec<&'a str> {
    path.iter().chain(paths).map(String::as_str).collect()
}

/// Checks what all sinks of text have.
pub(crate) fn check_text_sink(
    path: &str,
    file_bytes_target: u64,
    group_rows_max: usize,
) -> ConfigResult<()> {
    if path.is_empty() {
        return Err(ConfigError::at("path", "the path is empty"));
    }
    if file_bytes_target == 0 {
        return Err(ConfigError::at(
            "file_bytes_target",
            "`file_bytes_target` must be at least 1",
        ));
    }
    if group_rows_max == 0 {
        return Err(ConfigError::at(
            "group_rows_max",
            "`group_rows_max` must be at least 1",
        ));
    }
    Ok(())
}
