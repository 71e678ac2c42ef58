//! Contents of a state directory, for people and schedulers.

use std::process::ExitCode;
use std::time::SystemTime;

use forebay_model::{Fault, Result, codes};
use forebay_run::{CollectionReport, KindUsage, VerifyReport};
use jiff::Timestamp;
use serde_json::json;

use super::report::RunReporter;
use super::standard_output::write_text;
use super::units;

/// Prints the usage of each kind.
pub(crate) fn print_usage(
    reporter: &RunReporter,
    done: Result<Vec<KindUsage>>,
) -> Result<ExitCode> {
    let holdings = match done {
        Ok(holdings) => holdings,
        Err(fault) => return reporter.failed(fault, json!({})),
    };
    if reporter.json() {
        let (entries, bytes) = total(&holdings);
        return reporter.done(&json!({ "kinds": holdings, "entries": entries, "bytes": bytes }));
    }
    write_text(&table(&holdings))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the removed and the kept entries.
pub(crate) fn print_collected(
    reporter: &RunReporter,
    done: Result<CollectionReport>,
    max: Option<u64>,
) -> Result<ExitCode> {
    let collected = match done {
        Ok(collected) => collected,
        Err(fault) => return reporter.failed(fault, json!({})),
    };
    if reporter.json() {
        return reporter.done(&collected);
    }
    let mut text = table(&collected.removed);
    let (removed, removed_bytes) = total(&collected.removed);
    let (_, bytes) = total(&collected.kept);
    let verb = if collected.dry_run {
        "would go"
    } else {
        "removed"
    };
    text += &format!(
        "{verb}: {} with {}\n",
        units::counted(removed, "thing"),
        units::bytes(removed_bytes)
    );
    text += &format!(
        "left: {}, {} of it in use\n",
        units::bytes(bytes),
        units::bytes(collected.bytes_in_use)
    );
    if max.is_some_and(|max| bytes > max) {
        text +=
            "more is in use than --max-size allows: what newest artifacts and outputs need stays\n";
    }
    write_text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the corrupt files.
pub(crate) fn print_verified(
    reporter: &RunReporter,
    done: Result<VerifyReport>,
) -> Result<ExitCode> {
    let verified = match done {
        Ok(verified) => verified,
        Err(fault) => return reporter.failed(fault, json!({})),
    };
    if !reporter.json() {
        let mut text: String = verified
            .broken
            .iter()
            .map(|file| format!("{}: {}\n", file.path, file.why))
            .collect();
        let files = units::counted(verified.files, "file");
        let bytes = units::bytes(verified.bytes);
        text += &format!(
            "{files} with {bytes} read, {} broken\n",
            units::grouped(verified.broken.len() as u64)
        );
        write_text(&text)?;
    }
    match verified.broken.as_slice() {
        [] if reporter.json() => reporter.done(&verified),
        [] => Ok(ExitCode::SUCCESS),
        [first, ..] => {
            let message = format!(
                "{} broken",
                units::counted(verified.broken.len() as u64, "kept file")
            );
            let fault = Fault::new(codes::CORRUPT, message).file(&first.path);
            let fault = fault.hint("remove them, and run again: what is missing is made anew");
            reporter.failed(fault, json!(verified))
        }
    }
}

fn total(holdings: &[KindUsage]) -> (u64, u64) {
    holdings.iter().fold((0, 0), |(entries, bytes), kind| {
        (entries + kind.entries, bytes + kind.bytes)
    })
}

fn table(holdings: &[KindUsage]) -> String {
    let day = |time: SystemTime| {
        let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
        time.strftime("%Y-%m-%d %H:%M").to_string()
    };
    let line = |kind: &KindUsage| {
        let entries = units::grouped(kind.entries);
        let bytes = units::bytes(kind.bytes);
        format!(
            "{:10} {entries:>9}  {bytes:>9}  {} .. {}\n",
            kind.kind,
            day(kind.oldest),
            day(kind.newest)
        )
    };
    holdings.iter().map(line).collect()
}
