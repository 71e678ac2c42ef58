//! Refusals of requests, for all protocols.

use std::error::Error;
use std::time::Duration;

use forebay_model::{Fault, FaultCode, FaultDomain, RetryAdvice, codes};
use http::StatusCode;

/// An answer that is not the one asked for.
#[derive(Debug, Clone)]
pub(crate) struct ServeError {
    pub status: StatusCode,
    pub message: String,
}

impl ServeError {
    fn new(status: StatusCode, message: impl Into<String>) -> ServeError {
        ServeError {
            status,
            message: message.into(),
        }
    }

    /// A request that the client has to change.
    pub fn bad_request(message: impl Into<String>) -> ServeError {
        ServeError::new(StatusCode::BAD_REQUEST, message)
    }

    pub fn not_found(message: impl Into<String>) -> ServeError {
        ServeError::new(StatusCode::NOT_FOUND, message)
    }

    pub fn wrong_method(message: impl Into<String>) -> ServeError {
        ServeError::new(StatusCode::METHOD_NOT_ALLOWED, message)
    }

    pub fn too_large(message: impl Into<String>) -> ServeError {
        ServeError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    pub fn unknown_media_type(message: impl Into<String>) -> ServeError {
        ServeError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
    }

    /// A body that cannot be understood, in protocols that tell it from other mistakes.
    pub fn unprocessable(message: impl Into<String>) -> ServeError {
        ServeError::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    }

    pub fn unauthorized() -> ServeError {
        ServeError::new(
            StatusCode::UNAUTHORIZED,
            "the token is missing or wrong; send the header `Authorization: Bearer TOKEN`",
        )
    }

    /// A request that the server has no room for at the moment.
    pub fn busy(message: impl Into<String>) -> ServeError {
        ServeError::new(StatusCode::TOO_MANY_REQUESTS, message)
    }

    /// A request that was not answered within its time.
    pub fn timed_out(limit: Duration) -> ServeError {
        let message = format!("no answer within {} ms", limit.as_millis());
        ServeError::new(StatusCode::GATEWAY_TIMEOUT, message)
    }

    pub fn internal(message: impl Into<String>) -> ServeError {
        ServeError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// The number of the status in gRPC.
    pub fn grpc_code(&self) -> tonic::Code {
        match self.status {
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
                tonic::Code::InvalidArgument
            }
            StatusCode::NOT_FOUND => tonic::Code::NotFound,
            StatusCode::UNAUTHORIZED => tonic::Code::Unauthenticated,
            StatusCode::FORBIDDEN => tonic::Code::PermissionDenied,
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => {
                tonic::Code::ResourceExhausted
            }
            StatusCode::SERVICE_UNAVAILABLE => tonic::Code::Unavailable,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => tonic::Code::Unimplemented,
            StatusCode::GATEWAY_TIMEOUT => tonic::Code::DeadlineExceeded,
            _ => tonic::Code::Internal,
        }
    }
}

impl From<Fault> for ServeError {
    fn from(fault: Fault) -> ServeError {
        ServeError::new(status_of(fault.code()), fault_text(&fault))
    }
}

/// The status of a fault. One of rows is the client's: clients repeat requests that end with 5xx.
fn status_of(code: FaultCode) -> StatusCode {
    match code {
        // A file of the served version is gone: the client asked for nothing wrong.
        codes::NOT_FOUND => return StatusCode::INTERNAL_SERVER_ERROR,
        codes::ACCESS => return StatusCode::FORBIDDEN,
        // Fewer rows at once may fit.
        codes::MEMORY | codes::LIMIT => return StatusCode::PAYLOAD_TOO_LARGE,
        _ => {}
    }
    match (code.retry, code.domain) {
        (_, FaultDomain::Internal) => StatusCode::INTERNAL_SERVER_ERROR,
        (RetryAdvice::Later, _) => StatusCode::SERVICE_UNAVAILABLE,
        (_, FaultDomain::Spec | FaultDomain::Data) => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The message of a fault with its cause, hint and code, and the messages of the faults beside it.
fn fault_text(fault: &Fault) -> String {
    let mut text = fault.message().to_owned();
    if let Some(cause) = fault.source() {
        text += &format!(": {cause}");
    }
    if let Some(hint) = fault.hint_text() {
        text += &format!("; {hint}");
    }
    text += &format!(" ({})", fault.code().name);
    for other in fault.others() {
        text += &format!("; {}", fault_text(other));
    }
    text
}

impl From<ServeError> for tonic::Status {
    fn from(error: ServeError) -> tonic::Status {
        tonic::Status::new(error.grpc_code(), error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_the_status_of_the_party_that_has_to_act() {
        let statuses = [
            (codes::CORRUPT, 400),
            (codes::UNKNOWN_COLUMN, 400),
            (codes::NOT_FOUND, 500),
            (codes::ACCESS, 403),
            (codes::MEMORY, 413),
            (codes::LIMIT, 413),
            (codes::STORAGE, 503),
            (codes::INTERNAL, 500),
        ];
        for (code, status) in statuses {
            let error = ServeError::from(Fault::new(code, "it failed"));
            assert_eq!(error.status.as_u16(), status, "{}", code.name);
        }
    }

    #[test]
    fn errors_tell_cause_remedy_code_and_further_faults() {
        let first = Fault::new(codes::CORRUPT, "the request cannot be read")
            .cause(std::io::Error::other("too short"))
            .hint("send it again");
        let second = Fault::new(codes::BAD_VALUE, "a number is missing");
        let fault = Fault::combine(vec![first, second]).unwrap();
        let text = ServeError::from(fault).message;
        assert_eq!(
            text,
            "the request cannot be read: too short; send it again (FB0203); \
             a number is missing (FB0104)"
        );
    }
}
