//! Destination of lineage events: a flag, else the variables of OpenLineage's clients.

use std::path::PathBuf;

use forebay_model::{Fault, Result, codes};

/// The path of events below the address of a service.
const PATH: &str = "api/v1/lineage";

/// Default namespace of jobs, if the environment sets none.
const NAMESPACE: &str = "default";

/// Destination of lineage events, and the names of their job.
#[derive(Debug)]
pub(super) struct LineageSettings {
    pub to: LineageTarget,
    pub namespace: String,
    pub parent: Option<ParentRun>,
}

/// Destination of events.
#[derive(Debug, Clone)]
pub(super) enum LineageTarget {
    /// Events are appended, one a line.
    File(PathBuf),
    /// A service that events are posted to.
    Service {
        url: String,
        headers: Vec<(String, String)>,
    },
}

/// The run that started this one, as `OPENLINEAGE_PARENT_ID` names it: namespace, job and run, between slashes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParentRun {
    pub namespace: String,
    pub job: String,
    pub run: String,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name)
        .ok()
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

impl LineageSettings {
    /// Settings from a flag, else from the environment; `None` if no events are requested.
    pub fn resolve(flag: Option<&str>) -> Result<Option<LineageSettings>> {
        let address = match flag {
            Some(flag) => Some(flag.to_owned()),
            None if is_disabled() => None,
            None => variable("OPENLINEAGE_URL"),
        };
        let Some(address) = address else {
            return Ok(None);
        };
        let parent = variable("OPENLINEAGE_PARENT_ID");
        Ok(Some(LineageSettings {
            to: LineageTarget::parse(&address)?,
            namespace: variable("OPENLINEAGE_NAMESPACE").unwrap_or_else(|| NAMESPACE.to_owned()),
            parent: parent.and_then(|text| ParentRun::parse(&text)),
        }))
    }
}

impl ParentRun {
    /// Namespaces may have slashes.
    fn parse(text: &str) -> Option<ParentRun> {
        let mut parts = text.rsplitn(3, '/').map(str::to_owned);
        let run = parts.next()?;
        let job = parts.next()?;
        let namespace = parts.next()?;
        Some(ParentRun {
            namespace,
            job,
            run,
        })
    }
}

impl LineageTarget {
    fn parse(text: &str) -> Result<LineageTarget> {
        if let Some((scheme, after_scheme)) = text.split_once("://") {
            return match scheme {
                "http" | "https" => {
                    let has_path = after_scheme
                        .split_once('/')
                        .is_some_and(|(_, path)| !path.is_empty());
                    let endpoint =
                        variable("OPENLINEAGE_ENDPOINT").unwrap_or_else(|| PATH.to_owned());
                    let url = if has_path {
                        text.to_owned()
                    } else {
                        format!(
                            "{}/{}",
                            text.trim_end_matches('/'),
                            endpoint.trim_start_matches('/')
                        )
                    };
                    let key = variable("OPENLINEAGE_API_KEY");
                    let headers =
                        key.map(|key| ("Authorization".to_owned(), format!("Bearer {key}")));
                    Ok(LineageTarget::Service {
                        url,
                        headers: headers.into_iter().collect(),
                    })
                }
                "file" => Ok(LineageTarget::File(PathBuf::from(after_scheme))),
                _ => {
                    let message =
                        "the address for lineage events is neither http:// or https:// nor a file";
                    Err(Fault::new(codes::BAD_VALUE, message)
                        .hint("write `--lineage http://127.0.0.1:5000`"))
                }
            };
        }
        Ok(LineageTarget::File(PathBuf::from(text)))
    }
}

fn is_disabled() -> bool {
    variable("OPENLINEAGE_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_end_with_their_job_and_run() {
        let parent = |namespace: &str| ParentRun {
            namespace: namespace.to_owned(),
            job: "nightly.forecast".to_owned(),
            run: "0197".to_owned(),
        };
        assert_eq!(
            ParentRun::parse("airflow/nightly.forecast/0197"),
            Some(parent("airflow"))
        );
        assert_eq!(
            ParentRun::parse("s3://a/b/nightly.forecast/0197"),
            Some(parent("s3://a/b"))
        );
        assert_eq!(ParentRun::parse("nightly.forecast/0197"), None);
    }

    #[test]
    fn services_have_a_path_and_files_have_none() {
        let url = |text: &str| match LineageTarget::parse(text) {
            Ok(LineageTarget::Service { url, .. }) => url,
            other => format!("{other:?}"),
        };
        assert_eq!(url("http://host:5000"), "http://host:5000/api/v1/lineage");
        assert_eq!(url("http://host:5000/"), "http://host:5000/api/v1/lineage");
        assert_eq!(url("https://host/custom"), "https://host/custom");
        for (text, expected) in [("file:///tmp/a", "/tmp/a"), ("a/b.jsonl", "a/b.jsonl")] {
            let parsed = LineageTarget::parse(text);
            assert!(
                matches!(parsed, Ok(LineageTarget::File(path)) if path.as_os_str() == expected)
            );
        }
        assert!(LineageTarget::parse("kafka://host").is_err());
    }
}
