//! Defaults for memory, threads, state and workers, from the environment and from settings files.
//!
//! For each value the first of these counts: the flag or argument, the environment variable, the project file
//! (`forebay.toml` in the working directory, else in the nearest directory above), the user file
//! (`~/.config/forebay/config.toml`), the built-in default.

mod environment;
mod file;
mod value;

use std::fmt;
use std::path::PathBuf;

use forebay_model::{Fault, Result, SpecLocation, codes};
use forebay_run::SessionOptions;

pub use value::local_worker_memory;
use value::{check_memory, check_threads};

/// The name of a project's file.
pub const PROJECT_FILE: &str = "forebay.toml";

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOrigin {
    /// A flag of the command line, or an argument of a call.
    Flag(&'static str),
    /// An environment variable.
    Environment(&'static str),
    /// A line of a settings file.
    File(SpecLocation),
    /// The built-in default.
    BuiltIn,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOrigin::Flag(name) | SettingOrigin::Environment(name) => f.write_str(name),
            SettingOrigin::File(at) => write!(f, "{}:{}", at.file, at.line),
            SettingOrigin::BuiltIn => f.write_str("the default"),
        }
    }
}

/// Effective value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Origin of the value.
    pub origin: SettingOrigin,
}

/// Workers that take part in runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerSetting {
    /// Workers at these addresses; without any, runs stay in their own process.
    Addresses(Vec<String>),
    /// Processes that each run starts on this machine.
    Local(usize),
}

/// The values of one origin.
#[derive(Debug, Default)]
struct SettingsLayer {
    memory_bytes: Option<Setting<u64>>,
    threads: Option<Setting<usize>>,
    state: Option<Setting<String>>,
    workers: Option<Setting<WorkerSetting>>,
}

/// The settings of the environment and of files, the strongest first.
///
/// ```
/// use forebay::settings::Settings;
///
/// // What is given comes before what is set.
/// let memory = Settings::default().memory_bytes(Some(4 << 30))?;
/// assert_eq!(memory.value, 4 << 30);
/// # Ok::<(), forebay::model::Fault>(())
/// ```
#[derive(Debug, Default)]
pub struct Settings {
    layers: Vec<SettingsLayer>,
    files: Vec<PathBuf>,
}

impl Settings {
    /// Reads the environment, the project file of the working directory and the user file. All problems are reported
    /// at once.
    pub fn load() -> Result<Settings> {
        let directory = std::env::current_dir().map_err(|error| {
            Fault::new(codes::STORAGE, "the working directory cannot be read").cause(error)
        })?;
        let mut settings = Settings::default();
        let mut faults = Vec::new();
        let mut add = |layer: Result<SettingsLayer>| match layer {
            Ok(layer) => settings.layers.push(layer),
            Err(fault) => faults.push(fault),
        };
        add(environment::read());
        let mut files = Vec::new();
        if let Some(project) = directory
            .ancestors()
            .find(|directory| directory.join(PROJECT_FILE).is_file())
        {
            // Paths stay as short as the user wrote them.
            let (path, base) = if project == directory {
                (PathBuf::from(PROJECT_FILE), PathBuf::new())
            } else {
                (project.join(PROJECT_FILE), project.to_owned())
            };
            add(file::read(&path, Some(&base)));
            files.push(path);
        }
        if let Some(path) = user_file().filter(|path| path.is_file()) {
            add(file::read(&path, None));
            files.push(path);
        }
        settings.files = files;
        Fault::combine(faults).map_or(Ok(settings), Err)
    }

    /// The files that were read, the strongest first.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Memory that the process may use: the value of a flag, or the setting, or half of the machine's.
    pub fn memory_bytes(&self, flag: Option<u64>) -> Result<Setting<u64>> {
        if let Some(bytes) = flag {
            let origin = SettingOrigin::Flag("--memory");
            check_memory(bytes).map_err(|wrong| wrong.fault(&origin))?;
            return Ok(Setting {
                value: bytes,
                origin,
            });
        }
        let machine = || built_in(SessionOptions::default().memory_bytes);
        Ok(self
            .first(|layer| layer.memory_bytes.clone())
            .unwrap_or_else(machine))
    }

    /// Threads: the value of a flag, or the setting, or all of the machine's.
    pub fn threads(&self, flag: Option<usize>) -> Result<Setting<usize>> {
        if let Some(threads) = flag {
            let origin = SettingOrigin::Flag("--threads");
            check_threads(threads).map_err(|wrong| wrong.fault(&origin))?;
            return Ok(Setting {
                value: threads,
                origin,
            });
        }
        let machine = || built_in(SessionOptions::default().threads);
        Ok(self
            .first(|layer| layer.threads.clone())
            .unwrap_or_else(machine))
    }

    /// The state directory: the value of a flag, or the setting, or `.forebay`.
    pub fn state(&self, flag: Option<&str>) -> Setting<String> {
        match flag {
            Some(state) => Setting {
                value: state.to_owned(),
                origin: SettingOrigin::Flag("--state"),
            },
            None => self
                .first(|layer| layer.state.clone())
                .unwrap_or_else(|| built_in(SessionOptions::default().state)),
        }
    }

    /// Workers, where no flag names any.
    pub fn workers(&self) -> Setting<WorkerSetting> {
        self.first(|layer| layer.workers.clone())
            .unwrap_or_else(|| built_in(WorkerSetting::Addresses(Vec::new())))
    }

    fn first<T>(&self, of: impl Fn(&SettingsLayer) -> Option<Setting<T>>) -> Option<Setting<T>> {
        self.layers.iter().find_map(of)
    }
}

fn built_in<T>(value: T) -> Setting<T> {
    Setting {
        value,
        origin: SettingOrigin::BuiltIn,
    }
}

/// Path of the user file, even if it does not exist.
pub fn user_file() -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(config.join("forebay/config.toml"))
}
