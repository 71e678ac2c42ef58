//! Settings files, in TOML.

use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

use forebay_model::{Fault, Result, SpecLocation, codes};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::value::{WrongValue, check_threads, memory_of, state_of};
use super::{Setting, SettingOrigin, SettingsLayer, WorkerSetting};

/// Bytes of a settings file at most.
const FILE_BYTES_MAX: u64 = 1 << 16;

const NAMES: [&str; 5] = ["memory", "threads", "state", "workers", "local_workers"];

/// Reads a file. Paths in it are relative to `base`; without it they must be absolute.
pub(super) fn read(path: &Path, base: Option<&Path>) -> Result<SettingsLayer> {
    let file = path.display().to_string();
    let unreadable = |error| Fault::disk("the settings cannot be read", error).file(&file);
    let opened = std::fs::File::open(path).map_err(unreadable)?;
    let text = std::io::read_to_string(opened.take(FILE_BYTES_MAX + 1)).map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let message = format!("settings of more than {FILE_BYTES_MAX} bytes are not read");
        return Err(Fault::new(codes::LIMIT, message).file(&file));
    }
    SettingsFile {
        shown: &file,
        text: &text,
        base,
    }
    .layer()
}

struct SettingsFile<'a> {
    shown: &'a str,
    text: &'a str,
    base: Option<&'a Path>,
}

impl SettingsFile<'_> {
    fn layer(&self) -> Result<SettingsLayer> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        if let Some(fault) = Fault::combine(errors.iter().map(|error| self.syntax(error)).collect())
        {
            return Err(fault);
        }
        let mut faults = Vec::new();
        let layer = self.values(table.get_ref(), &mut faults);
        Fault::combine(faults).map_or(Ok(layer), Err)
    }

    fn values(&self, table: &DeTable<'_>, faults: &mut Vec<Fault>) -> SettingsLayer {
        for (key, _) in table
            .iter()
            .filter(|(key, _)| !NAMES.contains(&key.get_ref().as_ref()))
        {
            let name = key.get_ref();
            let fault = Fault::new(
                codes::UNKNOWN_FIELD,
                format!("there is no setting `{name}`"),
            );
            let fault = fault.at(Some(&self.location(key.span(), name)));
            faults.push(fault.suggest(name, NAMES, "settings are"));
        }
        let memory_bytes = self.setting(
            table,
            "memory",
            |value| memory_of(text_of(value, "\"4GiB\"")?),
            faults,
        );
        let threads = self.setting(
            table,
            "threads",
            |value| check_threads(count_of(value)?),
            faults,
        );
        let state = self.setting(
            table,
            "state",
            |value| self.path(&state_of(text_of(value, "\"state\"")?)?),
            faults,
        );
        let remote = self.setting(table, "workers", |value| self.addresses(value), faults);
        let local = self.setting(
            table,
            "local_workers",
            |value| count_of(value).map(WorkerSetting::Local),
            faults,
        );
        if let (Some(_), Some(local)) = (&remote, &local) {
            faults.push(
                WrongValue::new("and `workers` exclude each other", "remove one of the two")
                    .fault(&local.origin),
            );
        }
        SettingsLayer {
            memory_bytes,
            threads,
            state,
            workers: remote.or(local),
        }
    }

    fn setting<T>(
        &self,
        table: &DeTable<'_>,
        name: &str,
        read: impl Fn(&DeValue<'_>) -> Result<T, WrongValue>,
        faults: &mut Vec<Fault>,
    ) -> Option<Setting<T>> {
        let value: &Spanned<DeValue<'_>> = table.get(name)?;
        let origin = SettingOrigin::File(self.location(value.span(), name));
        match read(value.get_ref()) {
            Ok(value) => Some(Setting { value, origin }),
            Err(wrong) => {
                faults.push(wrong.fault(&origin));
                None
            }
        }
    }

    fn addresses(&self, value: &DeValue<'_>) -> Result<WorkerSetting, WrongValue> {
        let example = "[\"host:7400\"]";
        let list = value
            .as_array()
            .ok_or_else(|| wrong_type(value, "a list", example))?;
        let addresses = list.iter().map(|address| {
            let address = text_of(address.get_ref(), example)?;
            match address.strip_prefix('@') {
                Some(path) => Ok(format!("@{}", self.path(path)?)),
                None => Ok(address.to_owned()),
            }
        });
        addresses
            .collect::<Result<_, _>>()
            .map(WorkerSetting::Addresses)
    }

    /// A path as the process reaches it from its working directory.
    fn path(&self, text: &str) -> Result<String, WrongValue> {
        if text.contains("://") || Path::new(text).is_absolute() {
            return Ok(text.to_owned());
        }
        match self.base {
            Some(base) => Ok(base.join(text).display().to_string()),
            None => Err(WrongValue::new(
                format!("names `{text}`, a relative path"),
                "write an absolute path or a URL: this file counts in every directory",
            )),
        }
    }

    fn syntax(&self, error: &toml::de::Error) -> Fault {
        let fault = Fault::new(
            codes::SYNTAX,
            format!("the settings are not TOML: {}", error.message()),
        );
        let fault = fault.at(Some(&self.location(error.span().unwrap_or(0..0), "")));
        fault.hint("write `memory = \"4GiB\"`, `threads = 4`, one a line")
    }

    fn location(&self, span: Range<usize>, path: &str) -> SpecLocation {
        let preceding = self.text.get(..span.start).unwrap_or_default();
        let line_start = preceding.rfind('\n').map_or(0, |at| at + 1);
        let words = self
            .text
            .get(span)
            .unwrap_or_default()
            .lines()
            .next()
            .unwrap_or_default();
        SpecLocation {
            file: self.shown.to_owned(),
            line: preceding.matches('\n').count() + 1,
            column: preceding[line_start..].chars().count() + 1,
            width: words.chars().count().max(1),
            path: path.to_owned(),
        }
    }
}

fn text_of<'a>(value: &'a DeValue<'_>, example: &str) -> Result<&'a str, WrongValue> {
    value
        .as_str()
        .ok_or_else(|| wrong_type(value, "a string", example))
}

fn count_of(value: &DeValue<'_>) -> Result<usize, WrongValue> {
    let number = value
        .as_integer()
        .ok_or_else(|| wrong_type(value, "a whole number", "4"))?;
    let wrong = |_| {
        WrongValue::new(
            format!("is {}, not a number of this size", number.as_str()),
            "write a number such as 4",
        )
    };
    usize::from_str_radix(number.as_str(), number.radix()).map_err(wrong)
}

fn wrong_type(value: &DeValue<'_>, expected: &str, example: &str) -> WrongValue {
    let actual = match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a decimal number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    WrongValue::new(
        format!("is {actual}, not {expected}"),
        format!("write {example}"),
    )
}
