//! Sources of the credentials of S3. The store reads variables, web identities and containers'
//! endpoints itself; profiles of the shared credentials file are read here, and again after each
//! change of the file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use forebay_model::{Fault, Result, codes};
use object_store::CredentialProvider;
use object_store::aws::{AwsCredential, AwsCredentialProvider};

use super::environment::{env_flag, env_value, metadata_service_responds};
use crate::small_file::read_small_text;

/// Address of the metadata service of AWS's virtual machines, which issues credentials.
const METADATA_ENDPOINT: &str = "http://169.254.169.254";

const HINT: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN where \
                    they are temporary), or AWS_PROFILE with ~/.aws/credentials, or \
                    AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN; for public data, \
                    AWS_SKIP_SIGNATURE=true";

/// Credential provider of a profile, if one supplies the credentials. Fails if there are no
/// credentials at all.
pub fn credential_provider(bucket: &str) -> Result<Option<AwsCredentialProvider>> {
    let missing = |message: String| {
        Fault::new(codes::ACCESS, message)
            .file(format!("s3://{bucket}"))
            .hint(HINT)
    };
    let pairs = [
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
    ];
    for (first, second) in pairs {
        match (env_value(first).is_some(), env_value(second).is_some()) {
            (true, true) => return Ok(None),
            (false, false) => {}
            // A role alone may be meant for the profile.
            (false, true) if second == "AWS_ROLE_ARN" => {}
            (is_first, _) => {
                let (present, lacking) = if is_first {
                    (first, second)
                } else {
                    (second, first)
                };
                return Err(missing(format!("{present} is set, and {lacking} is not")));
            }
        }
    }
    let container = env_value("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").is_some()
        || (env_value("AWS_CONTAINER_CREDENTIALS_FULL_URI").is_some()
            && env_value("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").is_some());
    if container || env_flag("AWS_SKIP_SIGNATURE") {
        return Ok(None);
    }
    if let Some(profile) = AwsProfile::from_env()? {
        return Ok(Some(Arc::new(profile)));
    }
    let metadata =
        env_value("AWS_METADATA_ENDPOINT").unwrap_or_else(|| METADATA_ENDPOINT.to_owned());
    if !env_flag("AWS_EC2_METADATA_DISABLED") && metadata_service_responds(&metadata) {
        Ok(None)
    } else {
        Err(missing(format!(
            "there are no credentials for the bucket `{bucket}`"
        )))
    }
}

/// True if the next request may be signed with other credentials: variables do not change.
pub fn is_refreshable() -> bool {
    env_value("AWS_ACCESS_KEY_ID").is_none()
}

/// A profile of the shared credentials file.
#[derive(Debug)]
struct AwsProfile {
    file: PathBuf,
    name: String,
    /// Credentials that were read, and the time of the file's change before that.
    known: Mutex<Option<CachedCredential>>,
}

#[derive(Debug)]
struct CachedCredential {
    changed: Option<SystemTime>,
    credential: Arc<AwsCredential>,
}

impl AwsProfile {
    /// `AWS_PROFILE` of `AWS_SHARED_CREDENTIALS_FILE`. A profile that is named must be there.
    fn from_env() -> Result<Option<AwsProfile>> {
        let named = env_value("AWS_PROFILE");
        let file = env_value("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
        let file = file.or_else(|| std::env::home_dir().map(|home| home.join(".aws/credentials")));
        let Some(file) = file else { return Ok(None) };
        let name = named.clone().unwrap_or_else(|| "default".to_owned());
        let profile = AwsProfile {
            file,
            name,
            known: Mutex::default(),
        };
        match profile.read() {
            Ok(_) => Ok(Some(profile)),
            Err(why) if named.is_some() || profile.file.exists() => {
                let fault = Fault::new(codes::ACCESS, why).file(profile.file.display().to_string());
                Err(fault.hint(HINT))
            }
            Err(_) => Ok(None),
        }
    }

    fn modified_at(file: &Path) -> Option<SystemTime> {
        std::fs::metadata(file)
            .and_then(|meta| meta.modified())
            .ok()
    }

    fn read(&self) -> Result<Arc<AwsCredential>, String> {
        let mut cached = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = AwsProfile::modified_at(&self.file);
        if let Some(credential) = &*cached
            && credential.changed == changed
        {
            return Ok(credential.credential.clone());
        }
        let text = read_small_text(&self.file).map_err(|error| {
            format!(
                "the credentials of the profile `{}` cannot be read: {error}",
                self.name
            )
        })?;
        let credential = Arc::new(parse_profile(&text, &self.name)?);
        *cached = Some(CachedCredential {
            changed,
            credential: credential.clone(),
        });
        Ok(credential)
    }
}

/// The credentials of a profile in a file with `[profile]` lines and `key = value` lines.
fn parse_profile(text: &str, profile: &str) -> Result<AwsCredential, String> {
    let mut section = None;
    let mut values = [None, None, None];
    let names = [
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
    ];
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';']))
    {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            section = Some(name.trim());
        } else if section == Some(profile)
            && let Some((key, value)) = line.split_once('=')
            && let Some(at) = names.iter().position(|name| *name == key.trim())
        {
            values[at] = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
    }
    let lacks = |name: &str| format!("the profile `{profile}` has no `{name}`");
    let [key_id, secret_key, token] = values;
    let key_id = key_id.ok_or_else(|| lacks(names[0]))?;
    Ok(AwsCredential {
        key_id,
        secret_key: secret_key.ok_or_else(|| lacks(names[1]))?,
        token,
    })
}

#[async_trait::async_trait]
impl CredentialProvider for AwsProfile {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        self.read().map_err(|why| object_store::Error::Generic {
            store: "S3",
            source: why.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_profile_is_read_again_when_its_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials");
        let write = |key: &str, seconds: u64| {
            let other = "[other]\naws_access_key_id = x\naws_secret_access_key = y\n";
            let text = format!(
                "# keys\n{other}[nightly]\naws_access_key_id={key}\n aws_secret_access_key = s=1\n"
            );
            std::fs::write(&file, text).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            std::fs::File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_modified(at)
                .unwrap();
        };
        write("first", 1_000_000);
        let profile = AwsProfile {
            file: file.clone(),
            name: "nightly".to_owned(),
            known: Mutex::default(),
        };
        let read = || profile.read().unwrap();
        assert_eq!(
            (
                read().key_id.as_str(),
                read().secret_key.as_str(),
                &read().token
            ),
            ("first", "s=1", &None)
        );
        write("second", 1_000_001);
        assert_eq!(read().key_id, "second");
        assert!(
            parse_profile("[other]\naws_access_key_id=a", "other")
                .unwrap_err()
                .contains("aws_secret_access_key")
        );
    }
}
