//! Membership of a cluster: mutual TLS with certificates from files, and a token that both sides
//! know.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use forebay_model::{Fault, Result, codes};
use forebay_storage::read_small_file;
use ring::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

use crate::run_credentials::{CERTIFICATE_NAME, RunCredentials};
use crate::token::{ClusterToken, unreadable_file};

/// Certificates in PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate of the authority that signs for all members of the cluster.
    pub ca: PathBuf,
    /// Certificate of this process.
    pub cert: PathBuf,
    /// Private key of this process.
    pub key: PathBuf,
    /// The name in workers' certificates, where it is not the host's.
    pub name: Option<String>,
}

/// Certificates of a process.
#[derive(Debug, Clone)]
enum TlsSource {
    Files(TlsFiles),
    /// Certificates that were made for one run.
    Run(RunCredentials),
}

/// Credentials of a process of the cluster: certificates, a token, or both.
#[derive(Debug, Clone)]
pub struct ClusterSecurity {
    tls: Option<TlsSource>,
    token: Option<ClusterToken>,
}

impl ClusterSecurity {
    /// Loads the token of this file, else that of the variable `FOREBAY_TOKEN`. Without both,
    /// certificates suffice; without certificates, the token of this user is used, and created if
    /// it is missing.
    pub fn new(tls: Option<TlsFiles>, token_file: Option<&Path>) -> Result<ClusterSecurity> {
        let token = match token_file {
            Some(file) => Some(ClusterToken::of_file(file)?),
            None => ClusterToken::of_environment()?,
        };
        let token = match token {
            None if tls.is_none() => Some(ClusterToken::of_user()?),
            token => token,
        };
        let tls = tls.map(TlsSource::Files);
        Ok(ClusterSecurity { tls, token })
    }

    /// Credentials that were made for one run.
    pub fn of_run(credentials: &RunCredentials) -> Result<ClusterSecurity> {
        Ok(ClusterSecurity {
            tls: Some(TlsSource::Run(credentials.clone())),
            token: Some(ClusterToken::of_text(&credentials.token)?),
        })
    }

    /// A token of its own, for processes of this machine, and the variable that hands it on.
    pub fn random() -> Result<(ClusterSecurity, (&'static str, String))> {
        let token = ClusterToken::random()?;
        let variable = (super::token::VARIABLE, token.text().to_owned());
        Ok((
            ClusterSecurity {
                tls: None,
                token: Some(token),
            },
            variable,
        ))
    }

    /// Refuses addresses that other machines can reach, unless peers have to authenticate by TLS.
    pub fn check(&self, address: &SocketAddr) -> Result<()> {
        if address.ip().is_loopback() || self.tls.is_some() {
            return Ok(());
        }
        let message = format!("{address} can be reached from other machines, and there is no TLS");
        Err(Fault::new(codes::STRANGER, message).hint(
            "give --tls-ca, --tls-cert and --tls-key to workers and coordinators, or use an \
             address such as 127.0.0.1:7400",
        ))
    }

    /// The name in workers' certificates, where it is not the host's.
    pub fn tls_name(&self) -> Option<&str> {
        self.tls.as_ref()?.name()
    }

    /// Sets another name in workers' certificates. Those of a run have a fixed one.
    pub fn with_tls_name(mut self, name: Option<String>) -> ClusterSecurity {
        if let Some(TlsSource::Files(files)) = &mut self.tls {
            files.name = name;
        }
        self
    }

    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The secret that both sides prove to know. Without a token, certificates are the proof.
    pub fn secret(&self) -> &[u8] {
        self.token
            .as_ref()
            .map(ClusterToken::bytes)
            .unwrap_or_default()
    }

    /// Fingerprint of this process's certificate.
    pub fn own_certificate(&self) -> Result<Option<Vec<u8>>> {
        let Some(tls) = &self.tls else {
            return Ok(None);
        };
        let bad = |error| {
            let fault = Fault::new(codes::STRANGER, "the certificate cannot be used").cause(error);
            match tls {
                TlsSource::Files(files) => fault.file(files.cert.display().to_string()),
                TlsSource::Run(_) => fault,
            }
        };
        let first = CertificateDer::from_pem_slice(&tls.cert()?).map_err(bad)?;
        Ok(Some(fingerprint(&first)))
    }

    pub fn client(&self) -> Result<Option<ClientTlsConfig>> {
        let Some(tls) = &self.tls else {
            return Ok(None);
        };
        let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(tls.ca()?));
        let config = config.identity(Identity::from_pem(tls.cert()?, tls.key()?));
        Ok(Some(match tls.name() {
            Some(name) => config.domain_name(name),
            None => config,
        }))
    }

    pub fn server(&self) -> Result<Option<ServerTlsConfig>> {
        let Some(tls) = &self.tls else {
            return Ok(None);
        };
        let config = ServerTlsConfig::new().identity(Identity::from_pem(tls.cert()?, tls.key()?));
        Ok(Some(
            config.client_ca_root(Certificate::from_pem(tls.ca()?)),
        ))
    }
}

impl TlsSource {
    fn ca(&self) -> Result<Vec<u8>> {
        match self {
            TlsSource::Files(files) => read(&files.ca),
            TlsSource::Run(credentials) => Ok(credentials.ca.clone().into_bytes()),
        }
    }

    fn cert(&self) -> Result<Vec<u8>> {
        match self {
            TlsSource::Files(files) => read(&files.cert),
            TlsSource::Run(credentials) => Ok(credentials.cert.clone().into_bytes()),
        }
    }

    fn key(&self) -> Result<Vec<u8>> {
        match self {
            TlsSource::Files(files) => read(&files.key),
            TlsSource::Run(credentials) => Ok(credentials.key.clone().into_bytes()),
        }
    }

    fn name(&self) -> Option<&str> {
        match self {
            TlsSource::Files(files) => files.name.as_deref(),
            TlsSource::Run(_) => Some(CERTIFICATE_NAME),
        }
    }
}

/// The SHA-256 digest of a certificate.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> Vec<u8> {
    digest(&SHA256, certificate).as_ref().to_vec()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    read_small_file(path)
        .map_err(|error| unreadable_file("the certificate or key cannot be read", path, error))
}
