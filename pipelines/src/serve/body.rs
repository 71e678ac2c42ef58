//! Bodies of requests: bounded in bytes and time, and counted against the memory for requests.

use std::io::Read;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use flate2::read::{GzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, Response, StatusCode};
use http_body_util::BodyExt;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ServeError;
use super::service::{PERMIT_BYTES, ServeService};
use super::turns::in_turn;

/// Bytes that are read at a time when a body is decompressed.
const BLOCK_BYTES: usize = 64 << 10;

/// Bytes that a thread of the network decodes or writes itself at most: a change of threads takes as long as these.
const INLINE_BYTES: usize = 64 << 10;

/// A body that has been read. Its memory is given back when this is dropped.
pub(super) struct RequestBody {
    pub bytes: Bytes,
    memory: RequestMemory,
}

impl RequestBody {
    /// Decompresses a part of the body behind the bytes that `unpacked` begins with. The result counts as memory of the
    /// request.
    pub fn unpack(
        &mut self,
        decoder: impl Read,
        unpacked: Vec<u8>,
        most: usize,
    ) -> Result<Vec<u8>, ServeError> {
        decompress(decoder, unpacked, most, &mut self.memory)
    }

    /// The body with its content before compression.
    fn without_encoding(
        mut self,
        encoding: BodyEncoding,
        most: usize,
    ) -> Result<RequestBody, ServeError> {
        let compressed = self.bytes.clone();
        let unpacked = match encoding {
            BodyEncoding::Gzip => {
                self.unpack(GzDecoder::new(compressed.as_ref()), Vec::new(), most)?
            }
            BodyEncoding::Deflate => {
                self.unpack(ZlibDecoder::new(compressed.as_ref()), Vec::new(), most)?
            }
        };
        self.bytes = unpacked.into();
        Ok(self)
    }
}

/// Encoding of a compressed body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyEncoding {
    Gzip,
    Deflate,
}

impl BodyEncoding {
    /// The encoding of the body of a request; `None` for one as it is.
    fn of_request(headers: &HeaderMap) -> Result<Option<BodyEncoding>, ServeError> {
        match header_text(headers, &CONTENT_ENCODING).unwrap_or_default() {
            "identity" | "" => Ok(None),
            "gzip" => Ok(Some(BodyEncoding::Gzip)),
            "deflate" => Ok(Some(BodyEncoding::Deflate)),
            other => Err(ServeError::unknown_media_type(format!(
                "`{other}` is no known encoding of a body; gzip and deflate are"
            ))),
        }
    }
}

/// Memory of a request, a part of that for all requests.
struct RequestMemory {
    all: Arc<Semaphore>,
    permits: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl RequestMemory {
    fn new(service: &ServeService) -> RequestMemory {
        RequestMemory {
            all: service.request_memory.clone(),
            permits: None,
            bytes: 0,
        }
    }

    /// Reserves memory for so many bytes in all.
    fn grow_to(&mut self, bytes: usize) -> Result<(), ServeError> {
        let missing = bytes.saturating_sub(self.bytes).div_ceil(PERMIT_BYTES);
        if missing == 0 {
            return Ok(());
        }
        let count = u32::try_from(missing).unwrap_or(u32::MAX);
        let permits = self
            .all
            .clone()
            .try_acquire_many_owned(count)
            .map_err(|_| ServeError::busy("the memory for requests is taken"))?;
        self.bytes += missing * PERMIT_BYTES;
        match &mut self.permits {
            Some(reserved) => reserved.merge(permits),
            None => self.permits = Some(permits),
        }
        Ok(())
    }
}

/// Reads a body, and decompresses it.
pub(super) async fn read_body(
    service: &Arc<ServeService>,
    headers: &HeaderMap,
    body: Body,
) -> Result<RequestBody, ServeError> {
    let most = service.limits.request_bytes;
    let mut memory = RequestMemory::new(service);
    let length = header_text(headers, &CONTENT_LENGTH).and_then(|length| length.parse().ok());
    if let Some(length) = length {
        if length > most {
            return Err(too_many_bytes(most));
        }
        memory.grow_to(length)?;
    }
    let reading = collect_body(body, most, &mut memory);
    let bytes = tokio::time::timeout(service.limits.idle, reading)
        .await
        .map_err(|_| ServeError::timed_out(service.limits.idle))??;
    let body = RequestBody { bytes, memory };
    match BodyEncoding::of_request(headers)? {
        None => Ok(body),
        // A few bytes may become many.
        Some(encoding) => off_network(service, move || body.without_encoding(encoding, most)).await,
    }
}

/// Decodes or writes so many bytes: many of them off the threads of the network.
pub(super) async fn sized_work<T: Send + 'static>(
    service: &ServeService,
    bytes: usize,
    work: impl FnOnce() -> Result<T, ServeError> + Send + 'static,
) -> Result<T, ServeError> {
    if bytes <= INLINE_BYTES {
        return work();
    }
    off_network(service, work).await
}

/// Does work that takes long, or waits for memory, on a thread for such work: the threads of the network go on. As much
/// is done at the same time as the server has threads, and within the time for an answer.
pub(super) async fn off_network<T: Send + 'static>(
    service: &ServeService,
    work: impl FnOnce() -> Result<T, ServeError> + Send + 'static,
) -> Result<T, ServeError> {
    let timeout = service.limits.timeout;
    let done = in_turn(service.decoding.clone(), work);
    tokio::time::timeout(timeout, done)
        .await
        .map_err(|_| ServeError::timed_out(timeout))?
}

/// Reads all of a body. Memory is reserved as it arrives, where its length is not known before.
async fn collect_body(
    mut body: Body,
    most: usize,
    memory: &mut RequestMemory,
) -> Result<Bytes, ServeError> {
    let mut blocks: Vec<Bytes> = Vec::new();
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ServeError::bad_request("the request broke off"))?;
        let Ok(block) = frame.into_data() else {
            continue;
        };
        size += block.len();
        if size > most {
            return Err(too_many_bytes(most));
        }
        memory.grow_to(size)?;
        blocks.push(block);
    }
    if blocks.len() == 1 {
        return Ok(blocks.remove(0));
    }
    Ok(blocks.concat().into())
}

/// Decompresses at most so many bytes behind those that are there.
fn decompress(
    mut decoder: impl Read,
    mut bytes: Vec<u8>,
    most: usize,
    memory: &mut RequestMemory,
) -> Result<Vec<u8>, ServeError> {
    let compressed = memory.bytes;
    let start = bytes.len();
    loop {
        let block = decoder
            .by_ref()
            .take(BLOCK_BYTES as u64)
            .read_to_end(&mut bytes);
        let read =
            block.map_err(|_| ServeError::bad_request("the compressed body cannot be read"))?;
        if bytes.len() - start > most {
            return Err(too_many_bytes(most));
        }
        if read == 0 {
            return Ok(bytes);
        }
        memory.grow_to(compressed + bytes.len())?;
    }
}

fn too_many_bytes(most: usize) -> ServeError {
    ServeError::too_large(format!(
        "the request has more than {most} bytes; send several, or raise `--request-bytes`"
    ))
}

/// The text of a header.
pub(super) fn header_text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// The type of a body, without parameters.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let text = header_text(headers, &CONTENT_TYPE).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

/// An answer with a body.
pub(super) fn respond(
    status: StatusCode,
    content_type: &str,
    body: impl Into<Body>,
) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    response
}

/// An answer of JSON.
pub(super) fn respond_json(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(body) {
        Ok(text) => respond(status, "application/json", text),
        Err(error) => respond(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain",
            error.to_string(),
        ),
    }
}

/// An answer without a body.
pub(super) fn respond_empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
