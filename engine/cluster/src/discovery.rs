//! Who should be there: addresses in a list, in a file, or behind a name that stands for many.

use std::collections::BTreeSet;

use forebay_model::{Fault, Result, codes};

/// Where addresses come from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AddressSource {
    /// `host:port`; a host may stand for many addresses.
    Name(String),
    /// One such a line; may change while a run goes on.
    File(std::path::PathBuf),
}

/// The addresses of workers, as far as one can know them now.
#[derive(Debug, Clone)]
pub struct WorkerDiscovery(Vec<AddressSource>);

impl WorkerDiscovery {
    /// `host:port`, or `@file`, one or more.
    pub fn new(texts: &[String]) -> Result<WorkerDiscovery> {
        let from = |text: &String| match text.strip_prefix('@') {
            Some(file) => Ok(AddressSource::File(file.into())),
            None if is_address(text) => Ok(AddressSource::Name(text.clone())),
            None => {
                let fault = Fault::new(codes::USAGE, format!("`{text}` is no address of a worker"));
                Err(fault.hint("write host:port, or @file for a file with one such a line"))
            }
        };
        texts
            .iter()
            .map(from)
            .collect::<Result<_>>()
            .map(WorkerDiscovery)
    }

    /// Those of now. A name that is not known yet has none: its workers may come later.
    pub async fn addresses(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for from in &self.0 {
            match from {
                AddressSource::Name(name) => found.extend(resolve(name).await),
                AddressSource::File(file) => {
                    let text = tokio::fs::read_to_string(file).await.unwrap_or_default();
                    for line in text.lines().map(str::trim).filter(|line| is_address(line)) {
                        found.extend(resolve(line).await);
                    }
                }
            }
        }
        found
    }
}

fn is_address(text: &str) -> bool {
    let port = text
        .rsplit_once(':')
        .filter(|(host, _)| !host.is_empty())
        .map(|(_, port)| port.parse::<u16>());
    matches!(port, Some(Ok(_))) && !text.starts_with('#')
}

/// A name that stands for one address is kept as it is: certificates are made out to names.
async fn resolve(name: &str) -> Vec<String> {
    let Ok(found) = tokio::net::lookup_host(name).await else {
        return Vec::new();
    };
    let found: BTreeSet<_> = found.collect();
    match found.len() {
        1 => vec![name.to_owned()],
        // `localhost` has two addresses and is one machine.
        _ if found.iter().all(|address| address.ip().is_loopback()) => vec![name.to_owned()],
        _ => found
            .into_iter()
            .map(|address| address.to_string())
            .collect(),
    }
}
