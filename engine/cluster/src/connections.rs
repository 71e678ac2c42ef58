//! The connections to a worker: how long they may stay, and how much they may send before a proof.
//!
//! A connection is on probation until a request on it carries a proof. Meanwhile a few bytes are read of it, and few
//! connections of that kind exist at a time: a peer that knows no token takes neither memory nor descriptors.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::Stream;
use http::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::server::Connected;

/// Connections without a proof at a time; the one that was silent for longest makes room.
const UNPROVEN_MAX: usize = 64;

/// Bytes that are read of a connection before a proof. More wait in the kernel until the proof has come.
const UNPROVEN_BYTES_MAX: usize = 4 << 10;

/// Bytes that a TLS handshake may take beside those: chains of certificates, and one record, which is read whole.
const HANDSHAKE_BYTES_MAX: usize = 32 << 10;

/// Longest time of a connection without a proof.
const UNPROVEN_SECONDS_MAX: u64 = 10;

/// Longest time of a connection without a request.
const IDLE_SECONDS_MAX: u64 = 60;

/// Time between two checks of all connections.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Pause of accepting connections when there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// All connections to a worker.
#[derive(Debug, Clone)]
pub struct ConnectionTable(Arc<Mutex<OpenConnections>>);

#[derive(Debug)]
struct OpenConnections {
    by_number: BTreeMap<u64, Connection>,
    next: u64,
    bytes_max: usize,
}

/// One connection, as its stream and its requests share it.
#[derive(Debug, Clone)]
pub struct Connection(Arc<Mutex<ConnectionState>>);

#[derive(Debug)]
struct ConnectionState {
    opened: Instant,
    /// Time of the last bytes before a proof, or of the last begin or end of a request after it.
    used: Instant,
    received: usize,
    is_proven: bool,
    /// Number of requests whose answers are not complete.
    requests: usize,
    is_closed: bool,
    reader: Option<Waker>,
}

impl ConnectionState {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// True for a connection beyond its time limit.
    fn is_overdue(&self, now: Instant) -> bool {
        let seconds = |since: Instant| now.saturating_duration_since(since).as_secs();
        if self.is_proven {
            self.requests == 0 && seconds(self.used) >= IDLE_SECONDS_MAX
        } else {
            seconds(self.opened) >= UNPROVEN_SECONDS_MAX
        }
    }
}

impl Connection {
    fn new(now: Instant) -> Connection {
        Connection(Arc::new(Mutex::new(ConnectionState {
            opened: now,
            used: now,
            received: 0,
            is_proven: false,
            requests: 0,
            is_closed: false,
            reader: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request on it has carried a proof.
    pub fn prove(&self) {
        let mut state = self.state();
        if !state.is_proven {
            state.is_proven = true;
            state.wake();
        }
    }

    /// Counts a request until the returned value is dropped.
    pub fn begin_request(&self) -> ActiveRequest {
        let mut state = self.state();
        state.requests += 1;
        drop(state);
        ActiveRequest(self.clone())
    }

    fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.wake();
    }
}

/// A request whose answer is not at its end.
#[derive(Debug)]
pub struct ActiveRequest(Connection);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests -= 1;
        state.used = Instant::now();
    }
}

impl ConnectionTable {
    /// The connections of a worker, with or without TLS.
    pub fn new(has_tls: bool) -> ConnectionTable {
        let handshake = if has_tls { HANDSHAKE_BYTES_MAX } else { 0 };
        ConnectionTable(Arc::new(Mutex::new(OpenConnections {
            by_number: BTreeMap::new(),
            next: 0,
            bytes_max: UNPROVEN_BYTES_MAX + handshake,
        })))
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. Where too many are without a proof, the one ends that was silent for longest.
    fn add(&self, now: Instant) -> (u64, Connection) {
        self.drop_unproven(UNPROVEN_MAX - 1);
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        let connection = Connection::new(now);
        open.by_number.insert(number, connection.clone());
        (number, connection)
    }

    /// Ends connections without a proof, those first that were silent for longest, until so many are left.
    fn drop_unproven(&self, unproven_max: usize) {
        let open = self.open();
        let mut unproven: Vec<(Instant, &Connection)> = Vec::new();
        for connection in open.by_number.values() {
            let state = connection.state();
            if !state.is_proven && !state.is_closed {
                unproven.push((state.used, connection));
            }
        }
        unproven.sort_by_key(|(used, _)| *used);
        let surplus = unproven.len().saturating_sub(unproven_max);
        for (_, connection) in unproven.into_iter().take(surplus) {
            connection.close();
        }
    }

    fn close_overdue(&self, now: Instant) {
        for connection in self.open().by_number.values() {
            if connection.state().is_overdue(now) {
                connection.close();
            }
        }
    }

    /// Ends connections that have had their time, for as long as this is polled.
    pub async fn watch(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.close_overdue(Instant::now());
        }
    }

    /// The connections that come to a listener. Where there are no descriptors left, none is accepted for a while, and a
    /// connection without a proof makes room.
    pub fn accept(
        &self,
        listener: TcpListener,
    ) -> impl Stream<Item = io::Result<ConnectionStream>> + Send + Unpin + use<> {
        let table = self.clone();
        let accepted = futures::stream::unfold((listener, table), |(listener, table)| async {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let stream = ConnectionStream::new(stream, &table);
                        return Some((Ok(stream), (listener, table)));
                    }
                    Err(error) if is_exhausted(&error) => {
                        let unproven = table.unproven();
                        table.drop_unproven(unproven.saturating_sub(1));
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                    // A connection that broke before it was taken says nothing about the next.
                    Err(_) => {}
                }
            }
        });
        Box::pin(accepted)
    }

    fn unproven(&self) -> usize {
        let open = self.open();
        let is_unproven = |connection: &&Connection| !connection.state().is_proven;
        open.by_number.values().filter(is_unproven).count()
    }
}

/// True where the process or the machine has no descriptor or no memory for another connection.
fn is_exhausted(error: &io::Error) -> bool {
    // EMFILE, ENFILE, ENOBUFS and ENOMEM on Linux; ENOBUFS is another number elsewhere.
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 55 | 12))
}

/// A connection to a worker.
#[derive(Debug)]
pub struct ConnectionStream {
    stream: TcpStream,
    number: u64,
    connection: Connection,
    table: ConnectionTable,
    bytes_max: usize,
}

impl ConnectionStream {
    fn new(stream: TcpStream, table: &ConnectionTable) -> ConnectionStream {
        // A socket that takes no option works without it.
        let _ = stream.set_nodelay(true);
        let (number, connection) = table.add(Instant::now());
        ConnectionStream {
            stream,
            number,
            connection,
            table: table.clone(),
            bytes_max: table.open().bytes_max,
        }
    }
}

impl Drop for ConnectionStream {
    fn drop(&mut self) {
        self.table.open().by_number.remove(&self.number);
    }
}

fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "the connection has had its time",
    )
}

impl AsyncRead for ConnectionStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.connection.state();
        if state.is_closed {
            return Poll::Ready(Err(closed()));
        }
        state.reader = Some(context.waker().clone());
        if state.is_proven {
            drop(state);
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let remaining_bytes = self.bytes_max.saturating_sub(state.received);
        drop(state);
        if remaining_bytes == 0 {
            // The proof, or the end of its time, wakes the reader.
            return Poll::Pending;
        }
        let mut bytes = [0; UNPROVEN_BYTES_MAX];
        let length = remaining_bytes
            .min(buffer.remaining())
            .min(UNPROVEN_BYTES_MAX);
        let mut part = ReadBuf::new(&mut bytes[..length]);
        let read = Pin::new(&mut self.stream).poll_read(context, &mut part);
        buffer.put_slice(part.filled());
        let mut state = self.connection.state();
        state.received += part.filled().len();
        if !part.filled().is_empty() {
            state.used = Instant::now();
        }
        read
    }
}

impl AsyncWrite for ConnectionStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The connection of a request, and the address at which the worker was reached.
#[derive(Debug, Clone)]
pub struct WorkerConnectInfo {
    pub local: Option<SocketAddr>,
    /// `None` in tests without a network.
    pub connection: Option<Connection>,
}

impl Connected for ConnectionStream {
    type ConnectInfo = WorkerConnectInfo;

    fn connect_info(&self) -> WorkerConnectInfo {
        WorkerConnectInfo {
            local: self.stream.local_addr().ok(),
            connection: Some(self.connection.clone()),
        }
    }
}

/// The body of a request of which no more than so many bytes are taken.
pub struct LimitedBody {
    body: Body,
    left: u64,
}

impl LimitedBody {
    /// A body that ends with an error behind `bytes_max` bytes.
    pub fn limit(body: Body, bytes_max: u64) -> Body {
        Body::new(LimitedBody {
            body,
            left: bytes_max,
        })
    }
}

impl HttpBody for LimitedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            match self.left.checked_sub(data.len() as u64) {
                Some(remaining) => self.left = remaining,
                None => {
                    let status = Status::resource_exhausted("the message is too long");
                    return Poll::Ready(Some(Err(status)));
                }
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. Its request counts until this is dropped.
struct AnswerBody {
    body: Body,
    _request: ActiveRequest,
}

/// Counts the request of an answer until the answer is at its end.
pub fn count_until_end(answer: Response<Body>, request: Option<ActiveRequest>) -> Response<Body> {
    match request {
        Some(request) => answer.map(|body| {
            Body::new(AnswerBody {
                body,
                _request: request,
            })
        }),
        None => answer,
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(now: Instant, seconds: u64) -> Instant {
        now + Duration::from_secs(seconds)
    }

    fn is_closed(connection: &Connection) -> bool {
        connection.state().is_closed
    }

    #[test]
    fn connections_without_a_proof_end_after_ten_seconds() {
        let table = ConnectionTable::new(false);
        let now = Instant::now();
        let (_, silent) = table.add(now);
        let (_, proven) = table.add(now);
        proven.prove();
        table.close_overdue(later(now, 9));
        assert!(!is_closed(&silent));
        table.close_overdue(later(now, 10));
        assert!(is_closed(&silent) && !is_closed(&proven));
    }

    #[test]
    fn idle_connections_end_after_a_minute_and_busy_ones_stay() {
        let table = ConnectionTable::new(false);
        let now = Instant::now();
        let (_, connection) = table.add(now);
        connection.prove();
        let request = connection.begin_request();
        table.close_overdue(later(now, 3600));
        assert!(!is_closed(&connection));
        drop(request);
        table.close_overdue(later(now, 59));
        assert!(!is_closed(&connection));
        table.close_overdue(later(now, 3600));
        assert!(is_closed(&connection));
    }

    #[test]
    fn the_most_silent_of_many_connections_makes_room() {
        let table = ConnectionTable::new(false);
        let now = Instant::now();
        let (_, proven) = table.add(now);
        proven.prove();
        let first: Vec<Connection> = (0..UNPROVEN_MAX as u64)
            .map(|number| table.add(later(now, number)).1)
            .collect();
        assert!(!first.iter().any(is_closed));
        // The oldest one has just sent something.
        first[0].state().used = later(now, 1000);
        table.add(later(now, 1001));
        let closed: Vec<usize> = (0..first.len())
            .filter(|at| is_closed(&first[*at]))
            .collect();
        assert_eq!(closed, [1]);
        assert!(!is_closed(&proven));
    }
}
