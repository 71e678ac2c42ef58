//! Settings from environment variables. An empty variable counts as unset.

use forebay_model::{Fault, Result};

use super::value::{WrongValue, check_threads, memory_of, state_of};
use super::{Setting, SettingOrigin, SettingsLayer, WorkerSetting};

const MEMORY: &str = "FOREBAY_MEMORY";
const THREADS: &str = "FOREBAY_THREADS";
const STATE: &str = "FOREBAY_STATE";
const WORKERS: &str = "FOREBAY_WORKERS";
const LOCAL_WORKERS: &str = "FOREBAY_LOCAL_WORKERS";

/// Reads the variables of this process.
pub(super) fn read() -> Result<SettingsLayer> {
    let mut faults = Vec::new();
    let memory_bytes = variable(MEMORY, memory_of, &mut faults);
    let threads = variable(THREADS, |text| check_threads(count(text)?), &mut faults);
    let state = variable(STATE, state_of, &mut faults);
    let remote = variable(WORKERS, addresses_of, &mut faults);
    let local = variable(
        LOCAL_WORKERS,
        |text| count(text).map(WorkerSetting::Local),
        &mut faults,
    );
    if let (Some(_), Some(local)) = (&remote, &local) {
        let wrong = WrongValue::new(
            format!("and `{WORKERS}` exclude each other"),
            "unset one of the two",
        );
        faults.push(wrong.fault(&local.origin));
    }
    if let Some(fault) = Fault::combine(faults) {
        return Err(fault);
    }
    Ok(SettingsLayer {
        memory_bytes,
        threads,
        state,
        workers: remote.or(local),
    })
}

fn variable<T>(
    name: &'static str,
    read: impl Fn(&str) -> Result<T, WrongValue>,
    faults: &mut Vec<Fault>,
) -> Option<Setting<T>> {
    let text = std::env::var_os(name).filter(|text| !text.is_empty())?;
    let origin = SettingOrigin::Environment(name);
    let text = text
        .to_str()
        .ok_or_else(|| WrongValue::new("is not UTF-8", "set it to text in UTF-8"));
    match text.and_then(read) {
        Ok(value) => Some(Setting { value, origin }),
        Err(wrong) => {
            faults.push(wrong.fault(&origin));
            None
        }
    }
}

fn count(text: &str) -> Result<usize, WrongValue> {
    let wrong = |_| {
        WrongValue::new(
            format!("is `{text}`, not a whole number"),
            "write a number such as 4",
        )
    };
    text.trim().parse().map_err(wrong)
}

fn addresses_of(text: &str) -> Result<WorkerSetting, WrongValue> {
    let mut addresses = Vec::new();
    for address in text.split(',') {
        let address = address.trim();
        if !address.is_empty() {
            addresses.push(address.to_owned());
        }
    }
    Ok(WorkerSetting::Addresses(addresses))
}
