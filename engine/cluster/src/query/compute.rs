//! Threads that run stages of queries: separate from those of the network, which stay responsive
//! while a stage computes.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use crate::authentication::OPEN;

/// Serves requests on a separate runtime, except for pings.
#[derive(Debug, Clone)]
pub struct ComputeLayer(pub Handle);

impl<S> Layer<S> for ComputeLayer {
    type Service = ComputeService<S>;

    fn layer(&self, inner: S) -> ComputeService<S> {
        ComputeService {
            inner,
            runtime: self.0.clone(),
        }
    }
}

/// A service whose responses are computed on another runtime.
#[derive(Debug, Clone)]
pub struct ComputeService<S> {
    inner: S,
    runtime: Handle,
}

/// A task that ends with the request that waits for it.
struct JoinedTask<T>(JoinHandle<T>);

impl<T> Drop for JoinedTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<S> Service<Request<Body>> for ComputeService<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_sign_of_life = request.uri().path().rsplit('/').next() == Some(OPEN);
        let answer = self.inner.call(request);
        if is_sign_of_life {
            return Box::pin(answer);
        }
        let mut task = JoinedTask(self.runtime.spawn(answer));
        Box::pin(async move {
            match (&mut task.0).await {
                Ok(answer) => answer,
                Err(error) => Ok(
                    Status::internal(format!("the request was not served: {error}")).into_http(),
                ),
            }
        })
    }
}
