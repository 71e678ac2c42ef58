//! Requests to services that are no stores: webhooks, lineage, traces, experiments.

use std::time::Duration;

use bytes::Bytes;
use forebay_model::{Fault, Result, codes};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpRequest, ReqwestConnector};

use crate::io::StorageClient;

/// Time limit for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Bytes of an answer at most.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Sends requests to one service. A request is sent once.
pub struct WebClient {
    io: StorageClient,
    client: HttpClient,
    /// Name of the service in faults: its address may hold a secret.
    service: &'static str,
    headers: Vec<(String, String)>,
}

/// Response of a service.
#[derive(Debug)]
pub struct WebAnswer {
    /// The status code of HTTP.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

impl WebClient {
    /// A client that sends these headers with each request.
    pub fn new(
        io: &StorageClient,
        service: &'static str,
        headers: Vec<(String, String)>,
    ) -> Result<WebClient> {
        let options = ClientOptions::new()
            .with_timeout(ANSWER_MAX)
            .with_allow_http(true);
        let failed = |error| {
            Fault::new(codes::STORAGE, format!("{service} cannot be spoken to")).cause(error)
        };
        // A connection belongs to the runtime that it was made in.
        let client = io
            .block_on(async { ReqwestConnector::default().connect(&options) })?
            .map_err(failed)?;
        Ok(WebClient {
            io: io.clone(),
            client,
            service,
            headers,
        })
    }

    /// Sends a request and waits for the response, of any status.
    pub fn send(
        &self,
        method: &str,
        url: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<WebAnswer> {
        let mut request = HttpRequest::new(Bytes::from(body).into());
        *request.method_mut() = method.parse().map_err(|_| self.address_fault())?;
        *request.uri_mut() = url.parse().map_err(|_| self.address_fault())?;
        let content_type = content_type.parse().map_err(|_| self.address_fault())?;
        request.headers_mut().insert("content-type", content_type);
        for (name, value) in &self.headers {
            let name: http::HeaderName = name.parse().map_err(|_| self.header_fault())?;
            let value = value.parse().map_err(|_| self.header_fault())?;
            request.headers_mut().insert(name, value);
        }
        self.io.block_on(async {
            let answer = self.client.execute(request).await;
            let answer = answer.map_err(|_| self.unreachable_fault())?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
            let collected = body.collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    self.long_answer_fault()
                } else {
                    self.unreachable_fault()
                }
            })?;
            Ok(WebAnswer {
                status,
                body: collected.to_bytes(),
            })
        })?
    }

    fn address_fault(&self) -> Fault {
        let message = format!("the address of {} is no URL", self.service);
        Fault::new(codes::BAD_VALUE, message)
    }

    fn header_fault(&self) -> Fault {
        let message = format!("a header of {} cannot be sent", self.service);
        Fault::new(codes::BAD_VALUE, message)
    }

    fn unreachable_fault(&self) -> Fault {
        let message = format!("{} cannot be reached", self.service);
        Fault::new(codes::STORAGE, message)
    }

    fn long_answer_fault(&self) -> Fault {
        let mib = ANSWER_BYTES_MAX >> 20;
        let message = format!("{} answered with more than {mib} MiB", self.service);
        Fault::new(codes::STORAGE, message).hint("check that the address is the one of the service")
    }

    /// Posts, and fails unless the service accepts it.
    pub fn post(&self, url: &str, content_type: &str, body: Vec<u8>) -> Result<Bytes> {
        let answer = self.send("POST", url, content_type, body)?;
        match answer.status {
            200..=299 => Ok(answer.body),
            status => Err(Fault::new(
                codes::STORAGE,
                format!("{} answered {status}", self.service),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn answers_without_end_are_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let service = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            assert!(connection.read(&mut request).unwrap() > 0);
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            connection.write_all(head.as_bytes()).unwrap();
            let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
            let mut chunks = 0;
            while connection.write_all(chunk.as_bytes()).is_ok() {
                chunks += 1;
            }
            chunks
        });
        let io = StorageClient::new().unwrap();
        let client = WebClient::new(&io, "the lineage service", Vec::new()).unwrap();
        let url = format!("http://{address}/");
        let fault = client
            .post(&url, "application/json", b"{}".to_vec())
            .unwrap_err();
        assert_eq!(
            fault.message(),
            "the lineage service answered with more than 1 MiB"
        );
        drop(client);
        drop(io);
        // What lies in the buffers of both ends was sent, too.
        assert!(service.join().unwrap() < 1_000);
    }
}
