//! Who belongs to a cluster: mutual TLS with certificates from files, and a token that both sides know.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use forebay_model::{Fault, IdBuilder, Result, codes};
use http::{HeaderMap, HeaderValue};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// The header that coordinators show their token in.
const HEADER: &str = "forebay-token";

/// Certificates in PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Who signs for everybody in the cluster.
    pub ca: PathBuf,
    /// This process's certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The name in workers' certificates, where it is not the host's.
    pub name: Option<String>,
}

/// What proves that a process belongs to the cluster.
#[derive(Clone, Default)]
pub struct Security {
    /// Without it, everything stays on this machine.
    pub tls: Option<TlsFiles>,
    /// What everybody in the cluster knows and nobody else.
    pub token: Option<String>,
}

impl std::fmt::Debug for Security {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A token is a secret.
        f.debug_struct("Security").field("tls", &self.tls).field("token", &self.token.is_some()).finish()
    }
}

impl Security {
    /// Refuses addresses that others can reach, unless they have to prove who they are.
    pub fn check(&self, address: &SocketAddr) -> Result<()> {
        if address.ip().is_loopback() || self.tls.is_some() {
            return Ok(());
        }
        let message = format!("{address} can be reached from other machines, and there is no TLS");
        Err(Fault::new(codes::STRANGER, message).hint(
            "give --tls-ca, --tls-cert and --tls-key to workers and coordinators, or use an address such as \
             127.0.0.1:7400",
        ))
    }

    /// What a coordinator sends with its plans.
    pub(super) fn headers(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        if let Some(token) = &self.token {
            let mut value = HeaderValue::from_str(token)
                .map_err(|_| Fault::new(codes::BAD_VALUE, "a token is made of visible ASCII characters"))?;
            value.set_sensitive(true);
            headers.insert(HEADER, value);
        }
        Ok(headers)
    }

    /// Whether the sender of a plan knows the token.
    pub(super) fn knows(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
        let expected = self.token.as_deref().unwrap_or_default().as_bytes();
        // As long for a wrong first byte as for a wrong last one.
        let differences = shown.iter().zip(expected).fold(0, |sum, (a, b)| sum | (a ^ b));
        shown.len() == expected.len() && differences == 0
    }

    /// What only somebody who knows the token can make of a nonce.
    pub(super) fn proof(&self, nonce: &str) -> String {
        let mut proof = IdBuilder::new("worker");
        proof.text(self.token.as_deref().unwrap_or_default()).text(nonce);
        proof.finish().to_string()
    }

    pub(super) fn client(&self) -> Result<Option<ClientTlsConfig>> {
        let Some(files) = &self.tls else { return Ok(None) };
        let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&files.ca)?));
        let config = config.identity(Identity::from_pem(read(&files.cert)?, read(&files.key)?));
        Ok(Some(match &files.name {
            Some(name) => config.domain_name(name),
            None => config,
        }))
    }

    pub(super) fn server(&self) -> Result<Option<ServerTlsConfig>> {
        let Some(files) = &self.tls else { return Ok(None) };
        let config = ServerTlsConfig::new().identity(Identity::from_pem(read(&files.cert)?, read(&files.key)?));
        Ok(Some(config.client_ca_root(Certificate::from_pem(read(&files.ca)?))))
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| Fault::disk("a certificate cannot be read", error).file(path.display().to_string()))
}
