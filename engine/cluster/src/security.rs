//! Who belongs to a cluster: mutual TLS with certificates from files, and a token that both sides know.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use forebay_model::{Fault, Result, codes};
use ring::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

use crate::token::ClusterToken;

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

/// What proves that a process belongs to the cluster: certificates, a token, or both.
#[derive(Debug, Clone)]
pub struct ClusterSecurity {
    tls: Option<TlsFiles>,
    token: Option<ClusterToken>,
}

impl ClusterSecurity {
    /// With the token of this file, else that of the variable `FOREBAY_TOKEN`. Where there is neither, certificates
    /// have to do; without certificates, the token of this user is taken, and made where there is none.
    pub fn new(tls: Option<TlsFiles>, token_file: Option<&Path>) -> Result<ClusterSecurity> {
        let token = match token_file {
            Some(file) => Some(ClusterToken::of_file(file)?),
            None => ClusterToken::of_environment()?,
        };
        let token = match token {
            None if tls.is_none() => Some(ClusterToken::of_user()?),
            token => token,
        };
        Ok(ClusterSecurity { tls, token })
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

    /// The name in workers' certificates, where it is not the host's.
    pub fn tls_name(&self) -> Option<&str> {
        self.tls.as_ref()?.name.as_deref()
    }

    /// The same, with another name in workers' certificates.
    pub fn with_tls_name(mut self, name: Option<String>) -> ClusterSecurity {
        if let Some(files) = &mut self.tls {
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

    /// What names this process's certificate.
    pub fn own_certificate(&self) -> Result<Option<Vec<u8>>> {
        let Some(files) = &self.tls else {
            return Ok(None);
        };
        let bad = |error| {
            let fault = Fault::new(codes::STRANGER, "the certificate cannot be used").cause(error);
            fault.file(files.cert.display().to_string())
        };
        let first = CertificateDer::from_pem_slice(&read(&files.cert)?).map_err(bad)?;
        Ok(Some(fingerprint(&first)))
    }

    pub fn client(&self) -> Result<Option<ClientTlsConfig>> {
        let Some(files) = &self.tls else {
            return Ok(None);
        };
        let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&files.ca)?));
        let config = config.identity(Identity::from_pem(read(&files.cert)?, read(&files.key)?));
        Ok(Some(match &files.name {
            Some(name) => config.domain_name(name),
            None => config,
        }))
    }

    pub fn server(&self) -> Result<Option<ServerTlsConfig>> {
        let Some(files) = &self.tls else {
            return Ok(None);
        };
        let config = ServerTlsConfig::new()
            .identity(Identity::from_pem(read(&files.cert)?, read(&files.key)?));
        Ok(Some(
            config.client_ca_root(Certificate::from_pem(read(&files.ca)?)),
        ))
    }
}

/// The SHA-256 digest of a certificate.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> Vec<u8> {
    digest(&SHA256, certificate).as_ref().to_vec()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| unreadable_file("the certificate or key cannot be read", path, error))
}

/// A fault for a file that the user has named.
pub fn unreadable_file(message: &str, path: &Path, error: std::io::Error) -> Fault {
    let fault = match error.kind() {
        ErrorKind::NotFound => Fault::new(codes::ACCESS, message)
            .hint("correct its path")
            .cause(error),
        _ => Fault::disk(message, error),
    };
    fault.file(path.display().to_string())
}
