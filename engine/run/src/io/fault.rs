//! What storage answers, as faults.

use std::error::Error;
use std::io;

use forebay_model::{Fault, codes};

/// What an operation came to that storage did not do.
pub(super) struct Failed {
    pub error: object_store::Error,
    /// Requests that failed in a way that is worth another try.
    pub attempts: usize,
}

/// An error among those that led to another.
pub(super) fn among<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        if let Some(found) = inner.downcast_ref::<T>() {
            return Some(found);
        }
        cause = inner.source();
    }
    None
}

/// Whether an object is not the one that was asked for. While a body is read on, that is hidden
/// inside of another error.
fn is_replaced(error: &object_store::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(object_store::Error::Precondition { .. }) = inner.downcast_ref() {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// A fault for an object that is another one than it was.
pub(super) fn replaced(shown: &str) -> Fault {
    Fault::new(codes::CHANGED, "the object has changed since it was found")
        .file(shown)
        .hint("run again when nobody writes to it")
}

/// A fault for what storage answered.
pub(super) fn storage_fault(shown: &str, failed: Failed) -> Fault {
    use object_store::Error as E;
    let Failed { error, attempts } = failed;
    if is_replaced(&error) {
        return replaced(shown).cause(error);
    }
    let (code, message) = match &error {
        E::NotFound { .. } => (codes::NOT_FOUND, "the file is not there"),
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => (codes::ACCESS, "storage refused access"),
        E::AlreadyExists { .. } => (codes::STORAGE, "the file is there already"),
        _ if attempts > 0 => {
            let times = if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
            return Fault::new(codes::STORAGE, format!("storage did not do what it was asked in {times}"))
                .file(shown)
                .hint("run the same command again; AWS_MAX_ATTEMPTS and FOREBAY_RETRY_SECONDS make it more patient")
                .cause(error);
        }
        _ => match disk_error(&error).map(|disk| Fault::disk("the file cannot be read or written", disk)) {
            Some(fault) if fault.code() != codes::STORAGE => return fault.file(shown),
            _ => (codes::STORAGE, "storage did not do what it was asked"),
        },
    };
    Fault::new(code, message).file(shown).cause(error)
}

/// The error of the operating system that led to this one.
fn disk_error(error: &object_store::Error) -> Option<io::Error> {
    let disk = among::<io::Error>(error.source()?)?;
    Some(io::Error::new(disk.kind(), disk.to_string()))
}
