//! Connections: HTTP/1.1 and HTTP/2 on one port, with or without TLS, and their end in good order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use forebay_model::{Fault, Result, codes};
use forebay_storage::CancellationToken;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use prometheus::IntGauge;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// Time between two looks at the signal.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Pause of accepting connections after one that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time that a client has for the handshake of TLS.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Requests at the same time in one connection of HTTP/2 at most.
const STREAMS_MAX: u32 = 256;

/// Bytes of the headers of a request at most.
const HEADER_BYTES_MAX: u32 = 32 << 10;

/// Limits on connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// Connections at most; others wait until one closes.
    pub connections: usize,
    /// Time that a connection may stay without a request, and that a client has to send one.
    pub idle: Duration,
    /// Time that requests have to end after the signal to stop.
    pub drain: Duration,
}

/// Parts of a listening server.
pub(crate) struct HttpListener {
    pub tls: Option<TlsAcceptor>,
    pub router: Router,
    pub limits: ConnectionLimits,
    /// Becomes true at the signal to stop.
    pub is_draining: Arc<AtomicBool>,
    /// Number of open connections, where it is a metric.
    pub open_connections: Option<IntGauge>,
}

impl HttpListener {
    /// Serves until the signal, then ends the requests that have begun.
    pub async fn serve(
        self,
        listener: std::net::TcpListener,
        ended: &CancellationToken,
    ) -> Result<()> {
        let failed = |error| Fault::new(codes::STORAGE, "the server cannot listen").cause(error);
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let most = self.limits.connections;
        let connections = Arc::new(Semaphore::new(most));
        let (stop, stopped) = watch::channel(false);
        tokio::select! {
            () = self.accept(&listener, &connections, &stopped) => {}
            () = signalled(ended) => {}
        }
        self.is_draining.store(true, Ordering::Relaxed);
        // Connections that clients have made already are served, too.
        let waiting = self.accept(&listener, &connections, &stopped);
        let _ = tokio::time::timeout(ACCEPT_PAUSE, waiting).await;
        drop(listener);
        let _ = stop.send(true);
        let permits = u32::try_from(most).unwrap_or(u32::MAX);
        let all_closed = connections.acquire_many(permits);
        let _ = tokio::time::timeout(self.limits.drain, all_closed).await;
        Ok(())
    }

    async fn accept(
        &self,
        listener: &TcpListener,
        connections: &Arc<Semaphore>,
        stopped: &watch::Receiver<bool>,
    ) {
        loop {
            let Ok(permit) = connections.clone().acquire_owned().await else {
                return;
            };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                // The process has no descriptors left: it accepts no connection for a while.
                Err(_) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Answers are small, and clients wait for them.
            let _ = stream.set_nodelay(true);
            let connection = Connection {
                router: self.router.clone(),
                idle: self.limits.idle,
                open_connections: self.open_connections.clone(),
                tls: self.tls.clone(),
                stopped: stopped.clone(),
                _permit: permit,
            };
            tokio::spawn(connection.serve(stream));
        }
    }
}

async fn signalled(ended: &CancellationToken) {
    while ended.check().is_ok() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A connection, which counts against the limit.
struct Connection {
    router: Router,
    idle: Duration,
    open_connections: Option<IntGauge>,
    tls: Option<TlsAcceptor>,
    stopped: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        if let Some(gauge) = &self.open_connections {
            gauge.inc();
        }
        match &self.tls {
            None => self.serve_stream(stream).await,
            Some(tls) => {
                let handshake = tokio::time::timeout(HANDSHAKE_MAX, tls.accept(stream)).await;
                // A client that does not finish the handshake is dropped.
                if let Ok(Ok(stream)) = handshake {
                    self.serve_stream(stream).await;
                }
            }
        }
        if let Some(gauge) = &self.open_connections {
            gauge.dec();
        }
    }

    async fn serve_stream<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.idle);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEADER_BYTES_MAX)
            .keep_alive_interval(self.idle)
            .keep_alive_timeout(self.idle);
        let service = TowerToHyperService::new(self.router.clone());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let mut stopped = self.stopped.clone();
        // A connection that breaks concerns its client alone.
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = stopped.wait_for(|is_stopped| *is_stopped) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}
