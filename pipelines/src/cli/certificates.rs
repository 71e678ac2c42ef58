//! `forebay certificates`.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use forebay_model::{Fault, Result, codes};
use forebay_run::RunCredentials;

/// Make a token and certificates for a cluster of workers: `token`, `ca.pem`, `cert.pem` and `key.pem`, for all
/// workers and coordinators. They hold for a year. Coordinators need --tls-name=forebay-run, too.
#[derive(Debug, Args)]
pub(crate) struct CertificatesCommand {
    /// A directory that does not hold such files; it is made where it is missing.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl CertificatesCommand {
    pub fn run(self) -> Result<ExitCode> {
        let unwritable = |path: &Path, error: std::io::Error| {
            Fault::disk("credentials cannot be written", error).file(path.display().to_string())
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)
            .map_err(|error| unwritable(&self.directory, error))?;
        let credentials = RunCredentials::new()?;
        for (name, text) in credentials.files() {
            let path = self.directory.join(name);
            if path.exists() {
                let fault = Fault::new(codes::ACCESS, "credentials are not replaced");
                return Err(fault
                    .file(path.display().to_string())
                    .hint("processes may use them: choose another directory, or remove this one"));
            }
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .map_err(|error| unwritable(&path, error))?;
            file.write_all(text.as_bytes())
                .map_err(|error| unwritable(&path, error))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
