//! The only error type. It stays structured until the terminal renders it as text.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

use crate::secrets::hide_secrets;

/// `Result` with a [`Fault`].
pub type Result<T, E = Fault> = std::result::Result<T, E>;

/// The party that has to act before the fault disappears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultDomain {
    /// The spec, the command line or the configuration is wrong.
    Spec,
    /// The data is not what the spec says.
    Data,
    /// Memory, disk, time or another limit ran out.
    Resource,
    /// Something outside Forebay failed: storage, network, a driver.
    External,
    /// A bug in Forebay.
    Internal,
}

impl FaultDomain {
    /// Lower-case name, used in events and summaries.
    pub fn name(self) -> &'static str {
        match self {
            FaultDomain::Spec => "spec",
            FaultDomain::Data => "data",
            FaultDomain::Resource => "resource",
            FaultDomain::External => "external",
            FaultDomain::Internal => "internal",
        }
    }
}

/// The chance that a retry succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAdvice {
    /// A retry fails in the same way.
    Never,
    /// The cause may disappear by itself.
    Later,
}

/// A stable code, referenced by documentation and alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultCode {
    /// `FB` and four digits; never reused for another meaning.
    pub name: &'static str,
    /// The party that has to act.
    pub domain: FaultDomain,
    /// The chance that a retry helps.
    pub retry: RetryAdvice,
}

impl FaultCode {
    /// Exit code of the process (sysexits): 75 if a retry can succeed; all other codes require action first.
    pub fn exit_code(self) -> u8 {
        match (self.retry, self.domain) {
            (RetryAdvice::Later, _) => 75,
            (RetryAdvice::Never, FaultDomain::Data) => 65,
            (RetryAdvice::Never, FaultDomain::Internal) => 70,
            (
                RetryAdvice::Never,
                FaultDomain::Spec | FaultDomain::Resource | FaultDomain::External,
            ) => 78,
        }
    }
}

/// All codes. The first two digits are the area: 01 spec, 02 data, 03 resources, 04 storage, 05 workers, 09 bugs.
pub mod codes {
    use super::{FaultCode, FaultDomain, RetryAdvice};

    macro_rules! codes {
        ($($(#[$doc:meta])* $name:ident = $text:literal $domain:ident $retry:ident;)*) => {
            $($(#[$doc])* pub const $name: FaultCode =
                FaultCode {
                    name: $text,
                    domain: FaultDomain::$domain,
                    retry: RetryAdvice::$retry,
                };)*
            /// Every code, for the reference and its test.
            pub const ALL: &[FaultCode] = &[$($name),*];
        };
    }

    codes! {
        /// The YAML text cannot be parsed.
        SYNTAX = "FB0101" Spec Never;
        /// An unknown field.
        UNKNOWN_FIELD = "FB0102" Spec Never;
        /// A required field is missing.
        MISSING_FIELD = "FB0103" Spec Never;
        /// A value of the wrong type or outside its range.
        BAD_VALUE = "FB0104" Spec Never;
        /// A name (step, source, parameter, transform) that is not defined.
        UNKNOWN_NAME = "FB0105" Spec Never;
        /// Steps that depend on each other in a cycle.
        CYCLE = "FB0106" Spec Never;
        /// A column that does not exist at this point.
        UNKNOWN_COLUMN = "FB0107" Spec Never;
        /// A column of a type that the step cannot use.
        COLUMN_TYPE = "FB0108" Spec Never;
        /// Two steps write the same column.
        COLUMN_CLASH = "FB0109" Spec Never;
        /// An invalid SQL expression.
        EXPRESSION = "FB0110" Spec Never;
        /// An invalid command-line argument.
        USAGE = "FB0111" Spec Never;
        /// Something that is defined twice.
        DUPLICATE = "FB0112" Spec Never;
        /// A feature that is not supported in this place or combination.
        UNSUPPORTED = "FB0113" Spec Never;
        /// An output path that overlaps an input or another output.
        OUTPUT_CLASH = "FB0114" Spec Never;
        /// A feature that uses data from after the prediction time of its label.
        LEAKAGE = "FB0115" Spec Never;

        /// No file matches the source's path.
        NO_INPUT = "FB0201" Data Never;
        /// Files of one source have schemas that differ beyond the declared policy.
        SCHEMA_DRIFT = "FB0202" Data Never;
        /// A file that is truncated or corrupt.
        CORRUPT = "FB0203" Data Never;
        /// No rows where a statistic needs at least one.
        EMPTY = "FB0204" Data Never;
        /// Values that are not finite where the spec refuses them.
        NOT_FINITE = "FB0205" Data Never;
        /// A row that cannot be parsed or cast.
        BAD_ROW = "FB0206" Data Never;
        /// A join whose declared cardinality does not hold.
        CARDINALITY = "FB0207" Data Never;
        /// The data changed while it was being read.
        CHANGED = "FB0208" Data Later;
        /// A state or artifact of a version or kind that this program does not read.
        STATE_VERSION = "FB0209" Data Never;
        /// Integer overflow or another value out of range in a computation.
        OVERFLOW = "FB0210" Data Never;
        /// An unknown value where the spec refuses them.
        UNKNOWN_VALUE = "FB0211" Data Never;
        /// Rows of a series that are not in time order.
        OUT_OF_ORDER = "FB0212" Data Never;
        /// A series with missing periods where the spec refuses them.
        GAP = "FB0213" Data Never;
        /// Output rows that depend on rows of a later time.
        LOOKAHEAD = "FB0214" Data Never;
        /// A feed cursor that was created for other data.
        OTHER_DATA = "FB0215" Data Never;
        /// Rows that are not as an `expect` step says.
        EXPECTATION = "FB0216" Data Never;
        /// Rows to score whose windows would find no history.
        NO_HISTORY = "FB0217" Data Never;
        /// A row to score that a filter takes.
        FILTERED = "FB0218" Data Never;
        /// A function of the spec that failed, or that returned something else than its step declares.
        FUNCTION = "FB0219" Data Never;

        /// The memory limit would be exceeded.
        MEMORY = "FB0301" Resource Never;
        /// The disk is full.
        DISK_FULL = "FB0302" Resource Later;
        /// A fixed limit of the program (see `limits`).
        LIMIT = "FB0303" Resource Never;
        /// The run was interrupted; the same command continues.
        INTERRUPTED = "FB0304" Resource Later;
        /// The deadline has passed and the spec says `fail`; the same command continues.
        DEADLINE = "FB0305" Resource Later;
        /// A source was not ready in time.
        NOT_READY = "FB0306" Resource Later;

        /// Storage failed after all retries.
        STORAGE = "FB0401" External Later;
        /// An object is missing.
        NOT_FOUND = "FB0402" Data Never;
        /// Storage refused the credentials, or the path cannot be read or written.
        ACCESS = "FB0403" Spec Never;
        /// Another run committed different bytes under the same id.
        LOST_RACE = "FB0404" External Later;
        /// A later attempt of the same run has fenced this one.
        TAKEN_OVER = "FB0405" External Later;
        /// The credentials for storage have expired.
        EXPIRED = "FB0406" External Later;
        /// A resource locked by another process.
        IN_USE = "FB0407" External Later;

        /// No worker is available; the same command continues.
        NO_WORKERS = "FB0501" External Later;
        /// A worker of another version, or an address that does not answer as a worker.
        WORKER_VERSION = "FB0502" Spec Never;
        /// Rows that crash every worker that reads them.
        KILLS_WORKERS = "FB0503" Data Never;
        /// A worker or coordinator that failed to authenticate to the cluster.
        STRANGER = "FB0504" Spec Never;
        /// A worker and the coordinator see different data.
        SEES_OTHER_DATA = "FB0505" External Later;

        /// A bug.
        INTERNAL = "FB0901" Internal Never;
    }
}

/// A place in a spec file; lines and columns count from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecLocation {
    /// The file as the user named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Number of characters that a caret line underlines.
    pub width: usize,
    /// The path inside the document, such as `steps.cleaned.do[1].filter`.
    pub path: String,
}

/// The location of a fault. Every field is optional; each layer adds the fields that it has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultSite {
    /// A place in the spec.
    pub spec: Option<SpecLocation>,
    /// The input or output file.
    pub file: Option<String>,
    /// The row group inside the file.
    pub row_group: Option<usize>,
    /// The column.
    pub column: Option<String>,
    /// Rows inside the file, counted from 0.
    pub rows: Vec<u64>,
    /// The step, such as `features.standardize`.
    pub step: Option<String>,
    /// The pass.
    pub pass: Option<String>,
    /// The worker that reported it.
    pub worker: Option<String>,
    /// The field of a step's configuration, such as `compute.total`. It stays in the process that read the spec.
    #[serde(skip)]
    pub field: Option<String>,
    /// The words of the spec's value that are wrong. They stay in the process that read the spec.
    #[serde(skip)]
    pub fragment: Option<TextFragment>,
}

/// Words inside a value of the spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFragment {
    /// The words.
    pub text: String,
    /// The occurrence of the word in the value: number of earlier ones.
    pub skip: usize,
}

/// Another place of the spec that explains a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelatedPlace {
    /// The note on the location.
    pub message: String,
    /// The location.
    pub at: SpecLocation,
}

/// Error numbers of Unix for a process, and for a system, that has too many files open.
const TOO_MANY_OPEN_FILES: i32 = 24;
const TOO_MANY_OPEN_IN_SYSTEM: i32 = 23;

/// Error number for symbolic links that lead to each other.
const TOO_MANY_LINKS: i32 = if cfg!(target_os = "linux") { 40 } else { 62 };

/// Beginnings of the panics of the standard library and of tokio where the system refuses a thread.
const REFUSED_THREAD_PANICS: [&str; 2] = ["failed to spawn thread", "OS can't spawn worker thread"];

/// Runs `work` and turns a panic into a fault, so that threads waiting for the result receive it.
pub fn catch_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_panic_at(|fault| fault, work)
}

/// Runs `work` and turns a panic into a fault; `locate` adds the location to it.
pub fn catch_panic_at<T>(
    locate: impl FnOnce(Fault) -> Fault,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(locate(Fault::panicked(panic.as_ref()))))
}

#[derive(Debug)]
struct FaultDetails {
    code: FaultCode,
    site: FaultSite,
    message: String,
    hint: Option<String>,
    notes: Vec<String>,
    related: Vec<RelatedPlace>,
    cause: Option<Box<dyn Error + Send + Sync>>,
    others: Vec<Fault>,
    /// True if the rows of `site` are counted from the begin of an operation's input.
    has_input_rows: bool,
}

/// A failure: its code, location, reason and remedy.
///
/// ```
/// use forebay_model::{codes, Fault};
/// let fault = Fault::new(codes::UNKNOWN_COLUMN, "there is no column `agee`")
///     .column("agee")
///     .hint("did you mean `age`?");
/// assert_eq!(fault.code().name, "FB0107");
/// ```
pub struct Fault(Box<FaultDetails>);

impl Fault {
    /// A fault with its code and one sentence, lower case, without a full stop.
    pub fn new(code: FaultCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Fault(Box::new(FaultDetails {
            code,
            site: FaultSite::default(),
            message: hide_secrets(&message).into_owned(),
            hint: None,
            notes: Vec::new(),
            related: Vec::new(),
            cause: None,
            others: Vec::new(),
            has_input_rows: false,
        }))
    }

    /// A broken invariant: a bug in Forebay, not a user error.
    pub fn internal(message: impl Into<String>) -> Self {
        Fault::new(codes::INTERNAL, message)
    }

    /// A caught panic: a bug in Forebay or in a custom step, or a thread that a library could not start.
    pub fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        if let Some(text) = text
            && REFUSED_THREAD_PANICS
                .iter()
                .any(|start| text.starts_with(start))
        {
            return Fault::refused_thread(text.to_owned());
        }
        let fault = Fault::internal(format!(
            "the program panicked: {}",
            text.unwrap_or("no message")
        ));
        fault.hint(
            "fix the step if it is your own code; else report this with the spec and the output of \
             the panic",
        )
    }

    /// A thread that the system did not start.
    pub fn refused_thread(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let fault = Fault::new(codes::MEMORY, "the system refuses to start another thread");
        let fault = fault.hint(
            "lower --threads, or raise the limit of threads: of the user (`ulimit -u`), \
             of the container (`pids.max`), or of memory for their stacks (`ulimit -v`)",
        );
        fault.cause(cause)
    }

    /// An I/O error, mapped to a code by its kind; `message` says which operation failed.
    pub fn disk(message: impl Into<String>, error: std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        let message = message.into();
        if is_full(&error) {
            return Fault::full(message, error);
        }
        if matches!(
            error.raw_os_error(),
            Some(TOO_MANY_OPEN_FILES | TOO_MANY_OPEN_IN_SYSTEM)
        ) {
            let reached = format!("{message}: the system's limit of open files is reached");
            let fault = Fault::new(codes::LIMIT, reached).cause(error);
            return fault.hint("raise the limit (`ulimit -n`), or lower --threads");
        }
        if is_unusable_name(&error) {
            return Fault::unusable_name(message, error);
        }
        let fault = match error.kind() {
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => Fault::new(codes::ACCESS, message)
                .hint("choose a writable directory, or change its permissions"),
            Kind::NotADirectory | Kind::AlreadyExists => Fault::new(codes::ACCESS, message)
                .hint("a part of the path is a file; choose another directory"),
            Kind::IsADirectory | Kind::DirectoryNotEmpty => Fault::new(codes::ACCESS, message)
                .hint("the path is a directory; give the path of a file"),
            _ => Fault::new(codes::STORAGE, message),
        };
        fault.cause(error)
    }

    /// A name that no retry makes usable, see [`is_unusable_name`]; `message` says which operation failed.
    pub fn unusable_name(message: impl Into<String>, error: std::io::Error) -> Self {
        let hint = match error.raw_os_error() {
            Some(TOO_MANY_LINKS) => "links on the path lead to each other; give another path",
            Some(_) => "the system does not accept this name; choose a shorter one",
            None => "the system does not accept this name; choose another one",
        };
        Fault::new(codes::ACCESS, message).hint(hint).cause(error)
    }

    /// A full disk or an exceeded size limit; `message` says which operation failed.
    fn full(message: impl Into<String>, error: impl Error + Send + Sync + 'static) -> Self {
        let limited = find_io_error(&error)
            .is_some_and(|error| error.kind() == std::io::ErrorKind::FileTooLarge);
        let mut why = "the disk is full";
        let mut hint =
            "free disk space, or put `--state` or the output on a larger disk; then run again";
        if limited {
            why = "the system's file size limit is reached";
            hint = "raise the limit (`ulimit -f`), then run again";
        }
        Fault::new(codes::DISK_FULL, format!("{}: {why}", message.into()))
            .hint(hint)
            .cause(error)
    }

    /// Sets the remedy.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        self.0.hint = Some(hide_secrets(&hint).into_owned());
        self
    }

    /// Sets the hint for an unknown word; see [`suggestion`].
    #[must_use]
    pub fn suggest<'a>(
        self,
        word: &str,
        words: impl IntoIterator<Item = &'a str>,
        list: &str,
    ) -> Self {
        match suggestion(word, words, list) {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    /// Adds a remark, such as what has been saved.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        let note = note.into();
        self.0.notes.push(hide_secrets(&note).into_owned());
        self
    }

    /// Adds another place of the spec that explains the fault.
    pub fn related(mut self, message: impl Into<String>, at: Option<&SpecLocation>) -> Self {
        self.0.related.extend(at.map(|at| RelatedPlace {
            message: message.into(),
            at: at.clone(),
        }));
        self
    }

    /// Sets the wrong words of the spec's value, unless they are set; `skip` equal ones stand before them.
    pub fn fragment(mut self, text: impl Into<String>, skip: usize) -> Self {
        self.0.site.fragment.get_or_insert_with(|| TextFragment {
            text: text.into(),
            skip,
        });
        self
    }

    /// Sets the field of the step's configuration, unless it is set.
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.0.site.field.get_or_insert_with(|| field.into());
        self
    }

    /// Sets the underlying error. One whose text holds a password or a signature becomes text without it.
    pub fn cause(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.0.cause = Some(without_secrets(cause.into()));
        self
    }

    /// Sets the file, unless a deeper layer has set it.
    pub fn file(mut self, file: impl Into<String>) -> Self {
        self.0
            .site
            .file
            .get_or_insert_with(|| hide_secrets(&file.into()).into_owned());
        self
    }

    /// Replaces the file, by a layer that alone knows which one the rows come from.
    pub fn replace_file(mut self, file: impl Into<String>) -> Self {
        self.0.site.file = Some(hide_secrets(&file.into()).into_owned());
        self
    }

    /// Sets the row group, unless it is set.
    pub fn row_group(mut self, row_group: usize) -> Self {
        self.0.site.row_group.get_or_insert(row_group);
        self
    }

    /// Sets the column, unless it is set.
    pub fn column(mut self, column: impl Into<String>) -> Self {
        self.0.site.column.get_or_insert_with(|| column.into());
        self
    }

    /// Renumbers the rows; rows that map to `None` are dropped.
    pub fn map_rows(mut self, number: impl Fn(u64) -> Option<u64>) -> Self {
        let rows = std::mem::take(&mut self.0.site.rows);
        self.0.site.rows = rows.into_iter().filter_map(number).collect();
        self
    }

    /// Sets the rows of the file, counted from 0, unless they are set. Keeps the first eight.
    pub fn rows(mut self, rows: impl IntoIterator<Item = u64>) -> Self {
        if self.0.site.rows.is_empty() {
            self.0.site.rows = rows.into_iter().take(8).collect();
        }
        self
    }

    /// Sets rows of the input of an analyzer, counted from its begin, unless rows are set. The chain that gave the input
    /// renumbers them to rows of the file.
    pub fn input_rows(mut self, rows: impl IntoIterator<Item = u64>) -> Self {
        if self.0.site.rows.is_empty() {
            self = self.rows(rows);
            self.0.has_input_rows = true;
        }
        self
    }

    /// True if the rows are those of [`Fault::input_rows`].
    pub fn has_input_rows(&self) -> bool {
        self.0.has_input_rows
    }

    /// Sets the step, unless it is set.
    pub fn step(mut self, step: impl Into<String>) -> Self {
        self.0.site.step.get_or_insert_with(|| step.into());
        self
    }

    /// Gives the step another name, here and in the faults reported with this one.
    pub fn rename_step(mut self, from: &str, to: &str) -> Self {
        if let Some(step) = self.0.site.step.as_mut().filter(|step| *step == from) {
            to.clone_into(step);
        }
        let others = std::mem::take(&mut self.0.others);
        self.0.others = others
            .into_iter()
            .map(|other| other.rename_step(from, to))
            .collect();
        self
    }

    /// Sets the pass, unless it is set.
    pub fn pass(mut self, pass: impl Into<String>) -> Self {
        self.0.site.pass.get_or_insert_with(|| pass.into());
        self
    }

    /// Sets the worker, unless it is set.
    pub fn worker(mut self, worker: impl Into<String>) -> Self {
        self.0.site.worker.get_or_insert_with(|| worker.into());
        self
    }

    /// Sets the location in the spec, unless it is set.
    pub fn at(mut self, at: Option<&SpecLocation>) -> Self {
        if self.0.site.spec.is_none() {
            self.0.site.spec = at.cloned();
        }
        self
    }

    /// Like [`Fault::at`], with the location of a step; the field of its configuration is added to the path.
    pub fn at_field(self, at: Option<&SpecLocation>) -> Self {
        let field = self.0.site.field.clone();
        let inside = at.zip(field).map(|(at, field)| SpecLocation {
            path: format!("{}.{field}", at.path),
            ..at.clone()
        });
        self.at(inside.as_ref().or(at))
    }

    /// Replaces the locations in the spec of this fault, of those reported with it and of related places.
    pub fn relocate(mut self, locate: &dyn Fn(&SpecLocation, &FaultSite) -> SpecLocation) -> Self {
        if let Some(at) = self.0.site.spec.take() {
            self.0.site.spec = Some(locate(&at, &self.0.site));
        }
        for place in &mut self.0.related {
            place.at = locate(&place.at, &FaultSite::default());
        }
        self.0.others = std::mem::take(&mut self.0.others)
            .into_iter()
            .map(|other| other.relocate(locate))
            .collect();
        self
    }

    /// This fault and those reported with it, one by one.
    pub fn into_each(mut self) -> Vec<Fault> {
        let others = std::mem::take(&mut self.0.others);
        std::iter::once(self)
            .chain(others.into_iter().flat_map(Fault::into_each))
            .collect()
    }

    /// Combines several faults into the first one; `None` if the list is empty.
    pub fn combine(faults: Vec<Fault>) -> Option<Fault> {
        let mut faults = faults.into_iter();
        let mut first = faults.next()?;
        for mut other in faults {
            let nested = std::mem::take(&mut other.0.others);
            first.0.others.push(other);
            first.0.others.extend(nested);
        }
        Some(first)
    }

    /// The other faults reported together with this one.
    pub fn others(&self) -> &[Fault] {
        &self.0.others
    }

    /// The stable code.
    pub fn code(&self) -> FaultCode {
        self.0.code
    }

    /// The location of the fault.
    pub fn site(&self) -> &FaultSite {
        &self.0.site
    }

    /// The message, one sentence.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The remedy.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Other places of the spec that explain it.
    pub fn related_places(&self) -> &[RelatedPlace] {
        &self.0.related
    }

    /// Further remarks.
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }
}

/// A fault serialized for another process; causes become text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WireFault {
    code: String,
    site: FaultSite,
    message: String,
    hint: Option<String>,
    notes: Vec<String>,
    cause: Option<String>,
    others: Vec<WireFault>,
}

impl From<&Fault> for WireFault {
    fn from(fault: &Fault) -> Self {
        let inner = &fault.0;
        WireFault {
            code: inner.code.name.to_owned(),
            site: inner.site.clone(),
            message: inner.message.clone(),
            hint: inner.hint.clone(),
            notes: inner.notes.clone(),
            cause: inner.cause.as_ref().map(|cause| cause.to_string()),
            others: inner.others.iter().map(WireFault::from).collect(),
        }
    }
}

impl From<WireFault> for Fault {
    /// An unknown code maps to `INTERNAL`: both processes have the same version.
    fn from(sent: WireFault) -> Self {
        let code = codes::ALL
            .iter()
            .find(|code| code.name == sent.code)
            .copied()
            .unwrap_or(codes::INTERNAL);
        Fault(Box::new(FaultDetails {
            code,
            site: sent.site,
            message: sent.message,
            hint: sent.hint,
            notes: sent.notes,
            related: Vec::new(),
            cause: sent.cause.map(Into::into),
            others: sent.others.into_iter().map(Fault::from).collect(),
            has_input_rows: false,
        }))
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// One line for logs and test failures; the terminal form lives in `pipelines/src/present`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.0.code.name, self.0.message)?;
        let site = &self.0.site;
        if let Some(file) = &site.file {
            write!(f, ", in {file}")?;
        }
        if let Some(row_group) = site.row_group {
            write!(f, ", row group {row_group}")?;
        }
        if let Some(column) = &site.column {
            write!(f, ", column `{column}`")?;
        }
        if !site.rows.is_empty() {
            write!(f, ", rows {:?}", site.rows)?;
        }
        if let Some(step) = &site.step {
            write!(f, ", step {step}")?;
        }
        if let Some(cause) = &self.0.cause {
            write!(f, ": {cause}")?;
        }
        for other in &self.0.others {
            write!(f, "; {other}")?;
        }
        Ok(())
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0
            .cause
            .as_deref()
            .map(|cause| cause as &(dyn Error + 'static))
    }
}

impl From<arrow::error::ArrowError> for Fault {
    fn from(error: arrow::error::ArrowError) -> Self {
        use arrow::error::ArrowError as E;
        let code = match &error {
            E::IoError(_, disk) if is_full(disk) => {
                return Fault::full("a temporary file cannot be written", error);
            }
            E::ArithmeticOverflow(_) | E::DivideByZero => codes::OVERFLOW,
            E::CastError(_) | E::ParseError(_) | E::CsvError(..) | E::JsonError(_) => {
                codes::BAD_ROW
            }
            E::IoError(..) | E::IpcError(_) | E::ParquetError(_) => codes::CORRUPT,
            E::MemoryError(_) => codes::MEMORY,
            E::ExternalError(_) => codes::STORAGE,
            _ => codes::INTERNAL,
        };
        Fault::new(code, "a column could not be computed").cause(error)
    }
}

/// An error and its causes as texts, in the place of errors that show secrets.
#[derive(Debug)]
struct RedactedError {
    text: String,
    source: Option<Box<RedactedError>>,
}

impl RedactedError {
    fn new(error: &(dyn Error + 'static)) -> RedactedError {
        RedactedError {
            text: hide_secrets(&error.to_string()).into_owned(),
            source: error
                .source()
                .map(|source| Box::new(RedactedError::new(source))),
        }
    }
}

impl fmt::Display for RedactedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for RedactedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}

/// The error itself, or its texts where one of them shows a secret.
fn without_secrets(error: Box<dyn Error + Send + Sync>) -> Box<dyn Error + Send + Sync> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error.as_ref());
    while let Some(part) = next {
        let text = part.to_string();
        if hide_secrets(&text) != text {
            return Box::new(RedactedError::new(error.as_ref()));
        }
        next = part.source();
    }
    error
}

/// The I/O error among an error and its causes, if there is one.
pub fn find_io_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e std::io::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(disk) = error.downcast_ref::<std::io::Error>() {
            // Libraries wrap one I/O error in another, which then loses its kind.
            return disk
                .get_ref()
                .and_then(|inner| find_io_error(inner))
                .or(Some(disk));
        }
        cause = error.source();
    }
    None
}

/// True for the error of a path that is too long, has a NUL byte, or whose links lead to each other.
pub fn is_unusable_name(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    match error.kind() {
        Kind::InvalidFilename => true,
        // The standard library refuses a NUL byte itself. Errors of decoders have a cause.
        Kind::InvalidInput => error.raw_os_error().is_none() && error.get_ref().is_none(),
        _ => error.raw_os_error() == Some(TOO_MANY_LINKS),
    }
}

/// True if the error means that a disk, quota or file size limit is full.
fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge
    )
}

/// The entry of `words` nearest to `word`, if it is near enough to be a typing error. A transposition is one error.
pub fn nearest_word<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (word.chars().count() / 3).max(1);
    let mut nearest: Option<(usize, &str)> = None;
    for candidate in words {
        let distance = strsim::osa_distance(word, candidate);
        // Of candidates at one distance, the first in the order of letters.
        if distance <= allowed && nearest.is_none_or(|nearest| (distance, candidate) < nearest) {
            nearest = Some((distance, candidate));
        }
    }
    nearest.map(|(_, candidate)| candidate)
}

/// Words that a hint lists.
const WORDS_LISTED_MAX: usize = 30;

/// A replacement for a word that is not among `words`: the nearest of them, or all of them after `list`, such as
/// `the columns are`. Nothing where none is near and `list` is empty.
pub fn suggestion<'a>(
    word: &str,
    words: impl IntoIterator<Item = &'a str>,
    list: &str,
) -> Option<String> {
    // A word in other letters' case is nearer than any other word.
    let words: Vec<&str> = words.into_iter().collect();
    let same_letters = words
        .iter()
        .copied()
        .find(|candidate| candidate.eq_ignore_ascii_case(word));
    match same_letters.or_else(|| nearest_word(word, words.iter().copied())) {
        Some(near) => Some(format!("did you mean `{near}`?")),
        None => (!list.is_empty() && !words.is_empty()).then(|| listing(&words, list)),
    }
}

/// The first words of a list after what introduces them.
pub fn listing(words: &[&str], list: &str) -> String {
    let first_words = words[..words.len().min(WORDS_LISTED_MAX)].join(", ");
    match words.len().saturating_sub(WORDS_LISTED_MAX) {
        0 => format!("{list}: {first_words}"),
        count => format!("{list}: {first_words} and {count} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word_accepts_small_typing_errors() {
        assert_eq!(
            nearest_word("standarize", ["standardize", "min_max"]),
            Some("standardize")
        );
        assert_eq!(nearest_word("ab", ["ba", "xy"]), Some("ba"));
        assert_eq!(nearest_word("price", ["quantity"]), None);
    }

    #[test]
    fn codes_are_unique() {
        let mut names: Vec<_> = codes::ALL.iter().map(|code| code.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), codes::ALL.len());
    }

    #[test]
    fn a_limit_of_open_files_is_named() {
        let error = std::io::Error::from_raw_os_error(TOO_MANY_OPEN_FILES);
        let fault = Fault::disk("the output cannot be listed", error);
        assert_eq!(fault.code(), codes::LIMIT);
        assert!(
            fault
                .hint_text()
                .is_some_and(|hint| hint.contains("ulimit -n"))
        );
    }

    #[test]
    fn names_that_never_work_are_not_tried_again() {
        let long = std::fs::metadata("a".repeat(5_000)).err().unwrap();
        let nul = std::fs::metadata("a\0b").err().unwrap();
        let looped = std::io::Error::from_raw_os_error(TOO_MANY_LINKS);
        for error in [long, nul, looped] {
            let shown = error.to_string();
            let fault = Fault::disk("the file cannot be read", error);
            assert_eq!(fault.code(), codes::ACCESS, "{shown}");
            assert!(fault.hint_text().is_some(), "{shown}");
        }
        let decoder = std::io::Error::new(std::io::ErrorKind::InvalidInput, "corrupt stream");
        assert!(!is_unusable_name(&decoder));
        let broken = std::io::Error::from_raw_os_error(5);
        assert_eq!(Fault::disk("a read", broken).code(), codes::STORAGE);
    }

    #[test]
    fn a_panic_about_a_refused_thread_says_what_to_do() {
        for (panic, code) in [
            (
                "OS can't spawn worker thread: Resource temporarily unavailable",
                codes::MEMORY,
            ),
            ("failed to spawn thread: Os { code: 11 }", codes::MEMORY),
            ("index out of bounds", codes::INTERNAL),
        ] {
            let fault = Fault::panicked(&panic.to_owned());
            assert_eq!(fault.code(), code, "{panic}");
            let names_limit = fault
                .hint_text()
                .is_some_and(|hint| hint.contains("ulimit -u"));
            assert_eq!(names_limit, code == codes::MEMORY, "{panic}");
        }
    }
}
