//! Requests to services that are no stores: webhooks, lineage, traces, experiments.

use std::time::Duration;

use bytes::Bytes;
use forebay_model::{Fault, Result, codes};
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpRequest, ReqwestConnector};

use crate::io::StorageClient;

/// Time limit for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Sends requests to one service. A request is sent once.
pub struct WebClient {
    io: StorageClient,
    client: HttpClient,
    /// What faults call the service: its address may hold a secret.
    service: &'static str,
    headers: Vec<(String, String)>,
}

/// An answer.
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

    /// Sends a request and waits for the answer, whatever its status.
    pub fn send(
        &self,
        method: &str,
        url: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<WebAnswer> {
        let wrong = || {
            Fault::new(
                codes::BAD_VALUE,
                format!("the address of {} is no URL", self.service),
            )
        };
        let unreachable = || {
            Fault::new(
                codes::STORAGE,
                format!("{} cannot be reached", self.service),
            )
        };
        let mut request = HttpRequest::new(Bytes::from(body).into());
        *request.method_mut() = method.parse().map_err(|_| wrong())?;
        *request.uri_mut() = url.parse().map_err(|_| wrong())?;
        request
            .headers_mut()
            .insert("content-type", content_type.parse().map_err(|_| wrong())?);
        for (name, value) in &self.headers {
            let header = || {
                Fault::new(
                    codes::BAD_VALUE,
                    format!("a header of {} cannot be sent", self.service),
                )
            };
            let name: http::HeaderName = name.parse().map_err(|_| header())?;
            request
                .headers_mut()
                .insert(name, value.parse().map_err(|_| header())?);
        }
        let (status, body) = self.io.block_on(async {
            let answer = self
                .client
                .execute(request)
                .await
                .map_err(|_| unreachable())?;
            let status = answer.status().as_u16();
            let body = answer
                .into_body()
                .collect()
                .await
                .map_err(|_| unreachable())?;
            Ok::<_, Fault>((status, body.to_bytes()))
        })??;
        Ok(WebAnswer { status, body })
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
