//! Pages that runs have written themselves, read from the disk of this machine.

use std::fs::File;
use std::io::Read as _;
use std::time::{Duration, SystemTime};

use forebay_run::RunRecord;
use forebay_storage::AttemptOrigin;

/// Largest page that is served. Pages of thousands of columns take a few MiB.
const BYTES_MAX: u64 = 64 << 20;

/// Time from the end of a run to the end of its page. A later change is that of another run.
const WRITTEN_WITHIN: Duration = Duration::from_secs(600);

/// Beginning of each page.
const DOCTYPE: &str = "<!doctype html>";

/// Mark of pages of Forebay in their head: a record names a file, and no other kind of file is served.
const GENERATOR: &str = "<meta name=\"generator\" content=\"forebay\">";

/// The text of the page that a run has written to a file; `None` if it is not on this machine or not there any more.
pub(super) fn report_text(record: &RunRecord, file: &str) -> Option<String> {
    if record.host != AttemptOrigin::current_process().host {
        return None;
    }
    // A pipe would be waited for when it is opened.
    let metadata = std::fs::metadata(file).ok()?;
    if !metadata.is_file() || !is_of_run(record, metadata.modified().ok()?) {
        return None;
    }
    let mut text = String::new();
    let file = File::open(file).ok()?;
    file.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    served_text(&text)
}

/// True if a file that was changed at a time is that of a run, not of a later one.
fn is_of_run(record: &RunRecord, modified: SystemTime) -> bool {
    let modified = modified
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    modified <= Duration::from_secs(record.seen) + WRITTEN_WITHIN
}

/// A page of a file with the script of the server in the place of its own, which served pages may not have.
fn served_text(text: &str) -> Option<String> {
    let head = text.split("</head>").next()?;
    if !text.starts_with(DOCTYPE) || !head.contains(GENERATOR) {
        return None;
    }
    let Some((body, script)) = text.rsplit_once("<script>") else {
        return Some(text.to_owned());
    };
    let (_, end) = script.split_once("</script>")?;
    Some(format!(
        "{body}<script src=\"/page.js\" defer></script>{end}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_runs_are_served() {
        let head = format!("{DOCTYPE}<head>{GENERATOR}</head>");
        let cases = [
            (format!("{head}a"), Some(format!("{head}a"))),
            (
                format!("{head}a<script>\nb</script>c"),
                Some(format!("{head}a<script src=\"/page.js\" defer></script>c")),
            ),
            (format!("{DOCTYPE}<head></head>{GENERATOR}"), None),
            (format!("root:x:0:0 {GENERATOR}</head>"), None),
        ];
        for (text, expected) in cases {
            assert_eq!(served_text(&text), expected);
        }
    }

    #[test]
    fn a_page_of_a_later_run_is_not_that_of_this_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.html");
        let path = path.to_str().unwrap();
        std::fs::write(path, format!("{DOCTYPE}<head>{GENERATOR}</head>")).unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap().as_secs();
        let record = |host: String, seen: u64| RunRecord {
            host,
            seen,
            ..RunRecord::default()
        };
        let host = AttemptOrigin::current_process().host;
        assert!(report_text(&record(host.clone(), now), path).is_some());
        assert_eq!(report_text(&record(host.clone(), now - 86_400), path), None);
        assert_eq!(report_text(&record(host.clone(), now), "/gone"), None);
        assert_eq!(report_text(&record(format!("{host}2"), now), path), None);
    }
}
