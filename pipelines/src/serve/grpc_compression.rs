//! Compressed messages of gRPC calls: the message of a request is unpacked, and its answer is packed alike.
//!
//! Messages are whole in memory here, and what they become counts as memory for requests. The gRPC library would not
//! count it, and brings other versions of the libraries that compress.

use std::io::Read;

use axum::body::Body;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder, ZlibDecoder, ZlibEncoder};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::{BodyExt, Full};

use super::body::{RequestBody, header_text};
use super::error::ServeError;

/// The header with the encoding of messages.
pub(super) const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// The header with the encodings that the sender reads.
pub(super) const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// The encodings that the server reads.
pub(super) const ACCEPTED: &str = "gzip,deflate,zstd,identity";

/// Bytes before a message: a flag, and the message's length.
const PREFIX_BYTES: usize = 5;

/// Answers with fewer bytes are sent as they are.
const ANSWER_BYTES_MIN: usize = 1024;

/// Compression level of answers in Zstandard: clients wait for them.
const ZSTD_LEVEL: i32 = 1;

/// Logarithm of the greatest window of a message in Zstandard: 8 MiB, the most that HTTP permits (RFC 9659).
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Encoding of compressed messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageEncoding {
    Gzip,
    Deflate,
    Zstd,
}

impl MessageEncoding {
    /// The encoding of the messages of a request; `None` for messages as they are.
    pub fn of_request(headers: &HeaderMap) -> Result<Option<MessageEncoding>, ServeError> {
        match header_text(headers, &ENCODING).unwrap_or("identity") {
            "identity" => Ok(None),
            "gzip" => Ok(Some(MessageEncoding::Gzip)),
            "deflate" => Ok(Some(MessageEncoding::Deflate)),
            "zstd" => Ok(Some(MessageEncoding::Zstd)),
            other => Err(ServeError::unknown_media_type(format!(
                "messages are encoded as `{other}`; this server reads {ACCEPTED}"
            ))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            MessageEncoding::Gzip => "gzip",
            MessageEncoding::Deflate => "deflate",
            MessageEncoding::Zstd => "zstd",
        }
    }

    /// True if a client reads answers of this encoding.
    pub fn is_accepted(self, headers: &HeaderMap) -> bool {
        let accepted = header_text(headers, &ACCEPT_ENCODING).unwrap_or_default();
        accepted.split(',').any(|name| name.trim() == self.name())
    }

    /// A body whose message is the one before compression.
    pub fn unpack(self, mut body: RequestBody, most: usize) -> Result<RequestBody, ServeError> {
        let bytes = body.bytes.clone();
        let Some((prefix, message)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
            return Ok(body);
        };
        let [flag, length @ ..] = *prefix;
        if flag == 0 {
            return Ok(body);
        }
        if u32::from_be_bytes(length) as usize != message.len() {
            return Err(ServeError::bad_request(
                "the call takes one message, and the request has more or less than one",
            ));
        }
        let mut unpacked = body.unpack(self.decoder(message)?, vec![0; PREFIX_BYTES], most)?;
        let length = u32::try_from(unpacked.len() - PREFIX_BYTES)
            .map_err(|_| ServeError::too_large("a message of gRPC has less than 4 GiB"))?;
        unpacked[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
        body.bytes = unpacked.into();
        Ok(body)
    }

    fn decoder(self, message: &[u8]) -> Result<Box<dyn Read + '_>, ServeError> {
        let decoder: Box<dyn Read + '_> = match self {
            MessageEncoding::Gzip => Box::new(GzDecoder::new(message)),
            MessageEncoding::Deflate => Box::new(ZlibDecoder::new(message)),
            MessageEncoding::Zstd => {
                let mut decoder = zstd::Decoder::new(message)
                    .map_err(|_| ServeError::internal("Zstandard has no memory"))?;
                decoder
                    .window_log_max(ZSTD_WINDOW_LOG_MAX)
                    .map_err(|_| ServeError::internal("Zstandard takes no limit"))?;
                Box::new(decoder)
            }
        };
        Ok(decoder)
    }

    /// An answer whose message is compressed, where that makes it smaller.
    pub async fn pack(self, response: Response<Body>) -> Response<Body> {
        let (mut parts, body) = response.into_parts();
        // The message of an answer is whole in memory already.
        let Ok(collected) = body.collect().await else {
            return Response::from_parts(parts, Body::empty());
        };
        let trailers = collected.trailers().cloned();
        let mut frame = collected.to_bytes();
        if frame.is_empty() && trailers.is_none() {
            return Response::from_parts(parts, Body::empty());
        }
        if let Some(packed) = self.packed_frame(&frame) {
            let name = HeaderValue::from_static(self.name());
            parts.headers.insert(ENCODING, name);
            frame = packed;
        }
        let body = Full::new(frame).with_trailers(async move { trailers.map(Ok) });
        Response::from_parts(parts, Body::new(body))
    }

    /// A compressed message with its prefix; `None` where it would not be smaller.
    fn packed_frame(self, frame: &[u8]) -> Option<Bytes> {
        let message = frame.get(PREFIX_BYTES..)?;
        if message.len() < ANSWER_BYTES_MIN {
            return None;
        }
        let mut packed = vec![0; PREFIX_BYTES];
        let encoded = match self {
            MessageEncoding::Gzip => {
                GzEncoder::new(message, Compression::fast()).read_to_end(&mut packed)
            }
            MessageEncoding::Deflate => {
                ZlibEncoder::new(message, Compression::fast()).read_to_end(&mut packed)
            }
            MessageEncoding::Zstd => zstd::encode_all(message, ZSTD_LEVEL).map(|encoded| {
                packed.extend_from_slice(&encoded);
                encoded.len()
            }),
        };
        let length = encoded.ok().filter(|length| *length < message.len())?;
        packed[0] = 1;
        packed[1..PREFIX_BYTES].copy_from_slice(&u32::try_from(length).ok()?.to_be_bytes());
        Some(packed.into())
    }
}
