//! A worker, as a coordinator sees it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use datafusion::error::DataFusionError;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    DistributedConfig, DistributedExt, ExecuteTaskRequest, GetWorkerInfoRequest, MaybeEncoded,
    ProducerHead, SetPlanRequest, TaskKey,
};
use forebay_model::{Fault, Result, TRACE_HEADER, TraceContext, codes};
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tower::Service;
use url::Url;
use uuid::Uuid;

use crate::authentication::{AuthenticatedChannel, ChannelBinding, ProofFailure};
use crate::protocol::{TaskProgress, WorkerHello, WorkerMessage, WorkerRequest, protocol_version};
use crate::row_codec::PIECE_BYTES;
use crate::security::ClusterSecurity;
use crate::stage::{AttemptRows, ROWS_AHEAD};
use crate::task_exec::{TaskExec, TaskExecCodec, WorkerOutput, decode_outputs};

/// Time that a worker has to answer a greeting.
const GREETING: Duration = Duration::from_secs(10);

/// Window in bytes of one task's stream, of a worker's connection, and of the buffer that the engine holds per
/// task: enough for streams of rows to fill the network, and no more.
const WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_BYTES: u32 = 64 << 20;
const BUFFER_BYTES: usize = 2 << 20;

/// Bytes of rows in transit of one task, at most.
pub const ROWS_BYTES_MAX: u64 =
    (WINDOW_BYTES as u64) + (BUFFER_BYTES as u64) + ROWS_AHEAD as u64 * PIECE_BYTES;

/// A connection to a worker.
pub struct WorkerClient {
    url: Url,
    channel: BoxCloneSyncChannel,
    ctx: Arc<TaskContext>,
}

/// Connection to a worker, and the worker's description of itself.
pub struct WorkerConnection {
    pub link: WorkerClient,
    pub hello: WorkerHello,
}

/// Reason why a worker does not continue.
#[derive(Debug)]
pub enum WorkerLoss {
    /// The worker never took the plan.
    Unreached(String),
    /// The worker went silent, or the connection broke.
    Silent(String),
    /// The worker stopped because its rows are no longer needed.
    Unwanted,
}

/// Request to a worker, with its lease and trace.
pub struct WorkerCall {
    pub request: WorkerRequest,
    /// Time for which the worker may be silent.
    pub lease: Duration,
    /// Span that contains the work of the call, in a trace.
    pub trace: Option<TraceContext>,
}

/// Headers with the span, as W3C's Trace Context has it.
fn trace_header(trace: Option<TraceContext>) -> HeaderMap {
    let value = trace.and_then(|trace| HeaderValue::try_from(trace.to_string()).ok());
    value
        .map(|value| (HeaderName::from_static(TRACE_HEADER), value))
        .into_iter()
        .collect()
}

/// A connection to a worker of this version that has proved to know the cluster's token.
pub struct ProvedConnection {
    pub url: Url,
    pub channel: BoxCloneSyncChannel,
}

impl ProvedConnection {
    /// Connects once: another process may have taken the address when the connection breaks. With `keepalive`, it
    /// breaks if the worker's machine does not answer for twice that time.
    pub async fn open(
        address: &str,
        security: &ClusterSecurity,
        keepalive: Option<Duration>,
    ) -> Result<ProvedConnection> {
        let unreached = |error: String| unreached_fault(address, &error);
        let scheme = if security.has_tls() { "https" } else { "http" };
        let url = Url::parse(&format!("{scheme}://{address}"));
        let url = url.map_err(|error| {
            Fault::new(codes::BAD_VALUE, format!("`{address}` is no address")).cause(error)
        })?;
        let mut endpoint = Endpoint::from_shared(url.to_string())
            .map_err(|error| {
                Fault::new(codes::BAD_VALUE, format!("`{address}` is no address")).cause(error)
            })?
            .connect_timeout(GREETING)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_BYTES);
        if let Some(tls) = security.client()? {
            let refused =
                |error| Fault::new(codes::STRANGER, "the certificates cannot be used").cause(error);
            endpoint = endpoint.tls_config(tls).map_err(refused)?;
        }
        if let Some(keepalive) = keepalive {
            endpoint = endpoint
                .http2_keep_alive_interval(keepalive)
                .keep_alive_timeout(keepalive);
        }
        let (dial, reached) = dial_once(address);
        let channel = endpoint
            .connect_with_connector(dial)
            .await
            .map_err(|error| unreached(error_chain(&error)))?;
        let mut client = create_worker_client(BoxCloneSyncChannel::new(channel.clone()));
        let info = timeout(GREETING, client.get_worker_info(GetWorkerInfoRequest {})).await;
        let info = info.map_err(|_| unreached("it does not answer".to_owned()))?;
        let info = info.map_err(|error| unreached(error.to_string()))?;
        if info.version != protocol_version() {
            let message = format!(
                "the worker is `{}`, and this is `{}`",
                info.version,
                protocol_version()
            );
            let fault = Fault::new(codes::WORKER_VERSION, message).worker(address);
            return Err(fault.hint("run the same version of forebay everywhere"));
        }
        let reached = *reached
            .get()
            .ok_or_else(|| unreached("the connection has no address".to_owned()))?;
        let binding = ChannelBinding::of_coordinator(security, reached)?;
        let proved = timeout(
            GREETING,
            AuthenticatedChannel::new(channel, security.secret(), binding),
        )
        .await;
        let proved = proved.map_err(|_| unreached("it does not answer".to_owned()))?;
        let proved = proved.map_err(|why| match why {
            ProofFailure::Fault(fault) => fault.worker(address),
            ProofFailure::Transport(error) => unreached(error_chain(&error)),
            ProofFailure::Stranger => {
                let message = "the worker does not know the cluster's token, or another process \
                               passes messages on";
                let hint = "give both sides the same --token-file, and the worker's own address; \
                            use TLS for addresses that are forwarded";
                Fault::new(codes::STRANGER, message)
                    .worker(address)
                    .hint(hint)
            }
        })?;
        Ok(ProvedConnection {
            url,
            channel: BoxCloneSyncChannel::new(proved),
        })
    }
}

fn unreached_fault(address: &str, error: &str) -> Fault {
    Fault::new(
        codes::NO_WORKERS,
        format!("the worker cannot be reached: {error}"),
    )
    .worker(address)
}

impl WorkerClient {
    /// Connects, and requests the description of the worker.
    pub async fn connect(address: &str, security: &ClusterSecurity) -> Result<WorkerConnection> {
        let unreached = |error: String| unreached_fault(address, &error);
        let ProvedConnection { url, channel } =
            ProvedConnection::open(address, security, None).await?;
        let mut config = DistributedConfig::default();
        config.worker_connection_buffer_budget_bytes = BUFFER_BYTES;
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_distributed_option_extension(config)
            .with_distributed_user_codec(TaskExecCodec::default())
            .build();
        let link = WorkerClient {
            url,
            channel,
            ctx: state.task_ctx(),
        };
        let hello_call = WorkerCall {
            request: WorkerRequest::Hello,
            lease: GREETING,
            trace: None,
        };
        let mut hello = None;
        let mut hear = |message| {
            if let WorkerMessage::Hello(worker_hello) = message {
                hello = Some(worker_hello);
            }
        };
        let hello_result = link.send_request(hello_call, &mut hear, None).await;
        hello_result.map_err(|lost| match lost {
            WorkerLoss::Unwanted => unreached("it gives rows".to_owned()),
            WorkerLoss::Unreached(why) | WorkerLoss::Silent(why) => unreached(why),
        })?;
        let hello =
            hello.ok_or_else(|| unreached("it does not answer as a worker does".to_owned()))?;
        Ok(WorkerConnection { link, hello })
    }

    pub fn url(&self) -> &Url {
        &self.url
    }

    pub fn channel(&self) -> &BoxCloneSyncChannel {
        &self.channel
    }

    /// Waits for the reply to a ping. The error describes the failure.
    pub async fn ping(&self, lease: Duration) -> Result<(), String> {
        let mut client = create_worker_client(self.channel.clone());
        match timeout(lease, client.get_worker_info(GetWorkerInfoRequest {})).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error_chain(&error)),
            Err(_) => Err(silence(lease)),
        }
    }

    /// Sends a plan and passes on its messages. Rows go to `rows`; while that is full, no more is
    /// read from the network.
    pub async fn send_request(
        &self,
        call: WorkerCall,
        heard: &mut (dyn FnMut(WorkerMessage) + Send),
        rows: Option<AttemptRows>,
    ) -> Result<(), WorkerLoss> {
        let WorkerCall {
            request,
            lease,
            trace,
        } = call;
        let silent = || WorkerLoss::Silent(silence(lease));
        let broken = |error: DataFusionError| WorkerLoss::Silent(error_chain(&error));
        let mut client = create_worker_client(self.channel.clone());
        let key = TaskKey {
            query_id: Uuid::new_v4(),
            stage_id: 1,
            task_number: 0,
        };
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let plan = SetPlanRequest {
            task_key: key,
            task_count: 1,
            plan: MaybeEncoded::Decoded(TaskExec::plan(request, TaskExecCodec::default())),
            work_unit_feed_declarations: Vec::new(),
            target_worker_url: self.url.clone(),
            query_start_time_ns: since.as_nanos() as usize,
        };
        // The worker forgets the plan once this ends.
        let (_open, closed) = tokio::sync::oneshot::channel::<()>();
        let until_closed = futures::stream::once(closed)
            .filter_map(|_| async { None })
            .boxed();
        let metrics = Default::default;
        let set = client.coordinator_channel(
            trace_header(trace),
            plan,
            until_closed,
            metrics(),
            &self.ctx,
        );
        let set = timeout(lease, set)
            .await
            .map_err(|_| WorkerLoss::Unreached(format!("{lease:?} without an answer")))?;
        let _answers = set.map_err(|error| WorkerLoss::Unreached(error_chain(&error)))?;
        // The worker has the plan: if it ends now, the plan may be the cause.
        heard(WorkerMessage::Beat(TaskProgress::default()));
        let run = ExecuteTaskRequest {
            task_key: key,
            target_partition_start: 0,
            target_partition_end: 1,
            producer_head: ProducerHead::None,
        };
        let run = client.execute_task(HeaderMap::new(), run, metrics(), &self.ctx);
        let streams = timeout(lease, run)
            .await
            .map_err(|_| silent())?
            .map_err(broken)?;
        let mut stream = futures::stream::iter(streams).flatten();
        while let Some(batch) = timeout(lease, stream.next()).await.map_err(|_| silent())? {
            for output in batch
                .and_then(|batch| decode_outputs(&batch))
                .map_err(broken)?
            {
                match (output, &rows) {
                    (WorkerOutput::Message(message), _) => heard(message),
                    (WorkerOutput::Rows(bytes), Some(AttemptRows { attempt, to })) => {
                        to.send((*attempt, bytes))
                            .await
                            .map_err(|_| WorkerLoss::Unwanted)?;
                    }
                    (WorkerOutput::Rows(_), None) => {
                        return Err(WorkerLoss::Silent("it gives rows, unasked".to_owned()));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Error text for a worker that is silent for longer than its lease.
pub fn silence(lease: Duration) -> String {
    format!("nothing was heard of it for {} s", lease.as_secs_f64())
}

/// Service that opens a TCP connection, as a channel to a worker takes it.
trait DialService:
    Service<Uri, Response = TokioIo<TcpStream>, Error = io::Error, Future: Send> + Send + 'static
{
}

impl<S> DialService for S where
    S: Service<Uri, Response = TokioIo<TcpStream>, Error = io::Error, Future: Send>
        + Send
        + 'static
{
}

/// Connects to an address, and stores the address that it reached. A second connection is refused.
fn dial_once(address: &str) -> (impl DialService, Arc<OnceLock<SocketAddr>>) {
    let reached = Arc::new(OnceLock::new());
    let address = address.to_owned();
    let tell = reached.clone();
    let dial = tower::service_fn(move |_: Uri| {
        let address = address.clone();
        let tell = tell.clone();
        async move {
            let closed = || {
                io::Error::new(
                    io::ErrorKind::NotConnected,
                    "the connection to the worker is gone",
                )
            };
            if tell.get().is_some() {
                return Err(closed());
            }
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            tell.set(stream.peer_addr()?).map_err(|_| closed())?;
            Ok(TokioIo::new(stream))
        }
    });
    (dial, reached)
}

/// Text of an error and of its causes.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
