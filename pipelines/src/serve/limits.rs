//! Limits of a server: each queue and buffer has one.

use std::time::Duration;

/// Limits on requests and on what waits.
#[derive(Debug, Clone)]
pub(crate) struct ServeLimits {
    /// Bytes of a request at most, as it arrives and after decompression.
    pub request_bytes: usize,
    /// Rows of a request at most.
    pub request_rows: usize,
    /// Bytes of all requests that are being read or answered at most.
    pub in_flight_bytes: usize,
    /// Requests that are being answered at most.
    pub in_flight_requests: usize,
    /// Connections at most; others wait until one closes.
    pub connections: usize,
    /// Rows that wait for a thread at most.
    pub queue_rows: usize,
    /// Rows of several requests that are computed as one batch at most.
    pub batch_rows: usize,
    /// Time that a request waits for others to be computed with it.
    pub batch_delay: Duration,
    /// Time for an answer, from the last byte of the request on.
    pub timeout: Duration,
    /// Time that a connection may stay without a request, and that a client has to send one.
    pub idle: Duration,
    /// Time that requests have to end after the signal to stop.
    pub drain: Duration,
}
