//! Credentials of the processes of one run: a token, and certificates of an authority that signs nothing else.

use std::fmt;

use forebay_model::{Fault, Result, codes};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde::{Deserialize, Serialize};

use crate::token::ClusterToken;

/// The name in the certificate. Peers are checked against it, not against their addresses, which are known only once
/// the workers run.
pub(crate) const CERTIFICATE_NAME: &str = "forebay-run";

/// Time for which the certificates hold. No run is longer, and its private keys are gone with it.
const VALID_FOR: SignedDuration = SignedDuration::from_hours(366 * 24);

/// Clocks of other machines may be behind by this much.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_hours(24);

/// Token and certificates that the coordinator and all workers of one run share. A launcher hands them to each worker
/// on its standard input; they are never in a file, a command line or an environment.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunCredentials {
    pub(crate) token: String,
    /// Certificate of the authority (PEM).
    pub(crate) ca: String,
    /// Certificate of each process of the run (PEM).
    pub(crate) cert: String,
    /// Private key of that certificate (PEM).
    pub(crate) key: String,
}

impl fmt::Debug for RunCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunCredentials(..)")
    }
}

impl RunCredentials {
    /// Makes a token and certificates. The private key of the authority is dropped: it signs nothing more.
    pub fn new() -> Result<RunCredentials> {
        let failed = |error: rcgen::Error| {
            Fault::internal("certificates of the run cannot be made").cause(error)
        };
        let mut ca_params = CertificateParams::new(Vec::new()).map_err(failed)?;
        ca_params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca_params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        set_validity(&mut ca_params);
        let ca_key = KeyPair::generate().map_err(failed)?;
        let ca = CertifiedIssuer::self_signed(ca_params, ca_key).map_err(failed)?;
        let mut params =
            CertificateParams::new(vec![CERTIFICATE_NAME.to_owned()]).map_err(failed)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        set_validity(&mut params);
        let key = KeyPair::generate().map_err(failed)?;
        let cert = params.signed_by(&key, &ca).map_err(failed)?;
        Ok(RunCredentials {
            token: ClusterToken::random()?.text().to_owned(),
            ca: ca.pem(),
            cert: cert.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Names and contents of files that `--token-file` and the options of TLS take.
    pub fn files(&self) -> [(&'static str, &str); 4] {
        [
            ("token", &self.token),
            ("ca.pem", &self.ca),
            ("cert.pem", &self.cert),
            ("key.pem", &self.key),
        ]
    }

    /// Reads the line that a launcher writes to a worker.
    pub fn from_line(line: &str) -> Result<RunCredentials> {
        serde_json::from_str(line).map_err(|error| {
            let message = "the first line of standard input holds no credentials of a run";
            // The cause may repeat a part of the line.
            Fault::new(codes::STRANGER, message)
                .note(format!("column {} cannot be read", error.column()))
                .hint("launchers give `--credentials-stdin`, others `--token-file` and `--tls-ca`")
        })
    }

    /// The line for [`RunCredentials::from_line`], with its end.
    pub fn to_line(&self) -> Result<String> {
        let text = serde_json::to_string(self)
            .map_err(|error| Fault::internal("credentials cannot be written").cause(error))?;
        Ok(text + "\n")
    }
}

/// Sets the days on which a certificate is valid. Clocks of other machines may be behind: it begins a day ago.
fn set_validity(params: &mut CertificateParams) {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let [year, month, day] = numbers(today.saturating_sub(CLOCK_SKEW));
    params.not_before = date_time_ymd(year, month as u8, day as u8);
    let [year, month, day] = numbers(today.saturating_add(VALID_FOR));
    params.not_after = date_time_ymd(year, month as u8, day as u8);
}

fn numbers(date: Date) -> [i32; 3] {
    [date.year().into(), date.month().into(), date.day().into()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterSecurity;

    #[test]
    fn credentials_go_through_a_line_and_configure_both_sides() {
        let line = RunCredentials::new().unwrap().to_line().unwrap();
        assert_eq!(line.matches('\n').count(), 1);
        let read = RunCredentials::from_line(&line).unwrap();
        let security = ClusterSecurity::of_run(&read).unwrap();
        assert_eq!(security.tls_name(), Some(CERTIFICATE_NAME));
        assert_eq!(security.secret(), read.token.as_bytes());
        assert!(security.client().unwrap().is_some());
        assert!(security.server().unwrap().is_some());
        assert!(security.own_certificate().unwrap().is_some());
        assert!(security.check(&"10.0.0.1:7400".parse().unwrap()).is_ok());
    }

    #[test]
    fn each_run_has_other_credentials_and_no_text_shows_them() {
        let one = RunCredentials::new().unwrap();
        let two = RunCredentials::new().unwrap();
        assert_ne!(one.token, two.token);
        assert_ne!(one.key, two.key);
        let shown = format!("{one:?} {:?}", ClusterSecurity::of_run(&one).unwrap());
        assert!(
            !shown.contains(&one.token) && !shown.contains("BEGIN"),
            "{shown}"
        );
        let fault = RunCredentials::from_line(&format!("{{\"token\":\"{}\"}}", one.token));
        let text = fault.unwrap_err().to_string();
        assert!(!text.contains(&one.token), "{text}");
    }
}
