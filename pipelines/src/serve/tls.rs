//! TLS of a server: its certificate, and that of the authority whose clients are let in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_model::{Fault, Result, codes};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Certificates in PEM files.
#[derive(Debug, Clone)]
pub(crate) struct ServeTls {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// The authority of clients; without it, clients need no certificate.
    pub ca: Option<PathBuf>,
}

impl ServeTls {
    /// Accepts connections with these certificates.
    pub fn acceptor(&self) -> Result<TlsAcceptor> {
        let refused = |error: tokio_rustls::rustls::Error| {
            Fault::new(codes::STRANGER, "the certificates cannot be used").cause(error)
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(refused)?;
        let builder = match &self.ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                for certificate in read_certificates(ca)? {
                    roots.add(certificate).map_err(refused)?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.build().map_err(|error| {
                    let fault = Fault::new(codes::STRANGER, "the authority cannot be used");
                    fault.cause(error).file(ca.display().to_string())
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| {
            let fault = Fault::new(codes::STRANGER, "the key cannot be read").cause(error);
            fault.file(self.key.display().to_string())
        })?;
        let mut config = builder
            .with_single_cert(read_certificates(&self.cert)?, key)
            .map_err(refused)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let unusable = |error| {
        let fault = Fault::new(codes::STRANGER, "the certificate cannot be read").cause(error);
        fault.file(path.display().to_string())
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(unusable)?;
    let certificates: Vec<CertificateDer<'static>> =
        certificates.collect::<Result<_, _>>().map_err(unusable)?;
    if certificates.is_empty() {
        let fault = Fault::new(codes::STRANGER, "the file holds no certificate");
        return Err(fault.file(path.display().to_string()));
    }
    Ok(certificates)
}
