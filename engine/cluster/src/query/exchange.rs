//! Channels over which the workers of a query exchange rows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{ChannelResolver, WorkerChannel};
use forebay_model::WireFault;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use url::Url;

use crate::protocol::bad_request;
use crate::query::faults::wire_error;
use crate::security::ClusterSecurity;
use crate::worker_client::ProvedConnection;

/// Interval at which a worker pings a silent peer, and the time that it waits for the reply: the
/// coordinator only sees whether its own connections are alive.
const KEEPALIVE: Duration = Duration::from_secs(20);

type Connecting = Shared<BoxFuture<'static, Result<BoxCloneSyncChannel, Arc<WireFault>>>>;

/// Channels of one query on one worker: one to each other worker, opened on first use. Each worker
/// proves that it knows the cluster's token before it receives a request, and each request carries
/// a proof.
#[derive(Clone)]
pub struct ExchangeChannels(Arc<ExchangeInner>);

struct ExchangeInner {
    security: ClusterSecurity,
    channels: Mutex<BTreeMap<Url, Connecting>>,
}

impl ExchangeChannels {
    pub fn new(security: ClusterSecurity) -> ExchangeChannels {
        ExchangeChannels(Arc::new(ExchangeInner {
            security,
            channels: Mutex::default(),
        }))
    }

    fn channel(&self, url: &Url) -> Connecting {
        let mut channels = self
            .0
            .channels
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let open = || {
            let url = url.clone();
            let security = self.0.security.clone();
            let open = async move {
                let opened = match address(&url) {
                    Some(address) => {
                        ProvedConnection::open(&address, &security, Some(KEEPALIVE)).await
                    }
                    None => Err(bad_request()),
                };
                opened
                    .map(|opened| opened.channel)
                    .map_err(|fault| Arc::new(WireFault::from(&fault)))
            };
            open.boxed().shared()
        };
        channels.entry(url.clone()).or_insert_with(open).clone()
    }
}

/// The `host:port` of a URL.
fn address(url: &Url) -> Option<String> {
    Some(format!(
        "{}:{}",
        url.host_str()?,
        url.port_or_known_default()?
    ))
}

#[async_trait]
impl ChannelResolver for ExchangeChannels {
    async fn get_worker_client_for_url(
        &self,
        url: &Url,
    ) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        let opened = self.channel(url).await;
        opened
            .map(create_worker_client)
            .map_err(|fault| wire_error(&fault.as_ref().clone().into(), None))
    }
}
