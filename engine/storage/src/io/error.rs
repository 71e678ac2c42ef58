//! Errors of storage as faults.

use std::error::Error;
use std::io;
use std::time::Duration;

use forebay_model::{Fault, codes};

use super::object_url::ObjectUrl;

/// A failed storage operation, with its attempts.
pub struct FailedRequest {
    pub error: object_store::Error,
    /// Requests that failed in a way that is worth another try.
    pub attempts: usize,
    /// Time from the first attempt to the last one.
    pub waited: Duration,
}

/// An error among those that led to another.
pub fn find_cause<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        if let Some(cause) = inner.downcast_ref::<T>() {
            return Some(cause);
        }
        cause = inner.source();
    }
    None
}

/// True if an object is not the requested version. While a body is read, this error is the cause of
/// another one.
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

/// True if the text of an error, or of one of its causes, contains one of some words: storage
/// reports its codes in texts.
fn error_mentions(error: &object_store::Error, words: &[&str]) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        let text = inner.to_string();
        if words.iter().any(|word| text.contains(word)) {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// True if S3 reports that credentials have expired. Those of a profile may be renewed.
pub fn is_session_expired(error: &object_store::Error) -> bool {
    error_mentions(
        error,
        &[
            "<Code>ExpiredToken",
            "<Code>TokenRefreshRequired",
            "<Code>RequestExpired",
        ],
    )
}

/// True if credentials have expired. Azure also reports it of shared access signatures.
fn is_expired(error: &object_store::Error) -> bool {
    is_session_expired(error)
        || error_mentions(
            error,
            &[
                "Signature not valid in the specified time frame",
                "<Code>ExpiredAuthenticationToken",
            ],
        )
}

/// True if an object ends before the requested range.
pub fn is_out_of_range(failed: &FailedRequest) -> bool {
    failed.attempts == 0
        && error_mentions(
            &failed.error,
            &["416", "<Code>InvalidRange", "Invalid range"],
        )
}

/// True if the bucket does not exist, not only an object in it.
pub fn is_bucket_missing(error: &object_store::Error) -> bool {
    error_mentions(error, &["<Code>NoSuchBucket", "<Code>ContainerNotFound"])
}

/// A fault for an object that is another one than it was.
pub fn replaced_fault(location_text: &str) -> Fault {
    Fault::new(codes::CHANGED, "the object has changed since it was found")
        .file(location_text)
        .hint("run again when no other program writes to it")
}

/// Fault for an error of a storage request.
pub fn storage_fault(location_text: &str, failed: FailedRequest) -> Fault {
    use object_store::Error as E;
    let FailedRequest {
        error,
        attempts,
        waited,
    } = failed;
    if is_replaced(&error) {
        return replaced_fault(location_text).cause(error);
    }
    if is_bucket_missing(&error) {
        let url = ObjectUrl::parse(location_text).ok().flatten();
        let bucket = url.as_ref().map_or(location_text, |url| url.bucket);
        let variables = url
            .as_ref()
            .map_or("the endpoint", |url| url.kind.location_variables());
        let fault = Fault::new(
            codes::ACCESS,
            format!("the bucket `{bucket}` does not exist"),
        )
        .file(location_text);
        return fault
            .hint(format!("create it, or correct its name, {variables}"))
            .cause(error);
    }
    if is_expired(&error) {
        let fault = Fault::new(codes::EXPIRED, "the credentials for storage have expired")
            .file(location_text)
            .cause(error);
        return fault.hint("renew them, then run the same command again: what is committed stays");
    }
    let (code, message) = match &error {
        E::NotFound { .. } => (codes::NOT_FOUND, "the file is not there"),
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => {
            (codes::ACCESS, "storage refused access")
        }
        // Listings and uploads in parts fail with the status in their text alone.
        _ if error_mentions(&error, &["status code: 401", "status code: 403"]) => {
            (codes::ACCESS, "storage refused access")
        }
        E::AlreadyExists { .. } => (codes::STORAGE, "the file is there already"),
        _ if attempts > 0 => {
            let times = if attempts == 1 {
                "1 attempt".to_owned()
            } else {
                format!("{attempts} attempts")
            };
            return Fault::new(
                codes::STORAGE,
                format!(
                    "storage did not do what it was asked in {times} over {:.1} s",
                    waited.as_secs_f64()
                ),
            )
            .file(location_text)
            .hint("run the same command again; FOREBAY_RETRY_SECONDS (180) makes it more patient")
            .cause(error);
        }
        _ => match io_error_of(&error)
            .map(|disk| Fault::disk("the file cannot be read or written", disk))
        {
            Some(fault) if fault.code() != codes::STORAGE => return fault.file(location_text),
            _ => (codes::STORAGE, "storage did not do what it was asked"),
        },
    };
    Fault::new(code, message).file(location_text).cause(error)
}

/// The error of the operating system that led to this one.
fn io_error_of(error: &object_store::Error) -> Option<io::Error> {
    let disk = find_cause::<io::Error>(error.source()?)?;
    Some(io::Error::new(disk.kind(), disk.to_string()))
}
