//! Workload identity federation of Google: the token of another identity provider is exchanged for
//! one of Google, and, if the file of credentials names a service account, that token for one of
//! the account.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_model::{Fault, Result, codes};
use http::{HeaderName, HeaderValue, Method, Uri, header};
use http_body_util::{BodyExt, Limited};
use object_store::client::{HttpClient, HttpConnector, HttpRequest};
use object_store::gcp::GcpCredential;
use object_store::{ClientOptions, CredentialProvider};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use url::form_urlencoded::Serializer;

use crate::io::retry::{CountingConnector, RetryBudget};
use crate::small_file::read_small_file;

const STORAGE_SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";
const PLATFORM_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Bytes of an answer with a token at most.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Lifetime of tokens in seconds, where an answer does not give it, and for requested tokens of a
/// service account.
const TOKEN_SECONDS: u64 = 3600;

/// Time before their expiry at which tokens are renewed.
const RENEWED_BEFORE: Duration = Duration::from_secs(240);

/// A file of credentials of the type `external_account`.
#[derive(Deserialize)]
pub struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    token_url: String,
    service_account_impersonation_url: Option<String>,
    #[serde(default)]
    service_account_impersonation: Impersonation,
    credential_source: TokenSource,
}

#[derive(Default, Deserialize)]
struct Impersonation {
    token_lifetime_seconds: Option<u64>,
}

/// Source of the token of the other provider.
#[derive(Deserialize)]
struct TokenSource {
    file: Option<PathBuf>,
    url: Option<String>,
    /// Set where the other provider is AWS, whose credentials are no tokens.
    environment_id: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    format: TokenFormat,
}

#[derive(Default, Deserialize)]
struct TokenFormat {
    /// Field of a JSON object that holds the token; `None`: the text is the token.
    subject_token_field_name: Option<String>,
}

#[derive(Deserialize)]
struct ExchangedToken {
    access_token: String,
    expires_in: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccountToken {
    access_token: String,
}

impl ExternalAccount {
    /// Reads the file of credentials. Faults do not contain its text.
    pub fn parse(text: &str) -> Result<ExternalAccount> {
        let wrong = |message: &str| Fault::new(codes::ACCESS, message);
        let account: ExternalAccount = serde_json::from_str(text).map_err(|_| {
            let message = "credentials of the type `external_account` need `audience`, \
                           `subject_token_type`, `token_url` and `credential_source`";
            wrong(message)
                .hint("make the file with `gcloud iam workload-identity-pools create-cred-config`")
        })?;
        let source = &account.credential_source;
        if source.environment_id.is_none() && (source.file.is_some() || source.url.is_some()) {
            return Ok(account);
        }
        let message = "credentials of the type `external_account` are used with a `file` or a \
                       `url` of tokens as their `credential_source` only";
        let hint = "use such a source, the key of a service account, or a machine or pod with \
                    one of its own";
        Err(wrong(message).hint(hint))
    }
}

/// Credentials of an external account, renewed before they expire.
pub struct FederatedCredentials {
    account: ExternalAccount,
    client: HttpClient,
    patience: RetryBudget,
    /// Locked while a token is requested: other requests wait for the same one.
    known: Mutex<Option<KnownToken>>,
}

struct KnownToken {
    credential: Arc<GcpCredential>,
    renewed_from: Instant,
}

impl fmt::Debug for FederatedCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FederatedCredentials")
    }
}

impl FederatedCredentials {
    pub fn new(
        account: ExternalAccount,
        retry: RetryBudget,
        connector: &CountingConnector,
    ) -> Result<Self> {
        let impersonation = account.service_account_impersonation_url.as_ref();
        let urls = [
            Some(&account.token_url),
            account.credential_source.url.as_ref(),
            impersonation,
        ];
        let is_plain = urls
            .into_iter()
            .flatten()
            .any(|url| url.starts_with("http://"));
        let client = connector.connect(&ClientOptions::new().with_allow_http(is_plain));
        let client = client.map_err(|error| {
            Fault::new(codes::ACCESS, "no HTTP client can be made").cause(error)
        })?;
        Ok(FederatedCredentials {
            account,
            client,
            patience: retry,
            known: Mutex::default(),
        })
    }

    async fn fetch(&self) -> object_store::Result<KnownToken> {
        let asked_at = Instant::now();
        let account = &self.account;
        let impersonated = account.service_account_impersonation_url.as_ref();
        let subject = self.subject_token().await?;
        let form = Serializer::new(String::new())
            .append_pair(
                "grant_type",
                "urn:ietf:params:oauth:grant-type:token-exchange",
            )
            .append_pair(
                "requested_token_type",
                "urn:ietf:params:oauth:token-type:access_token",
            )
            .append_pair("audience", &account.audience)
            .append_pair(
                "scope",
                if impersonated.is_some() {
                    PLATFORM_SCOPE
                } else {
                    STORAGE_SCOPE
                },
            )
            .append_pair("subject_token_type", &account.subject_token_type)
            .append_pair("subject_token", &subject)
            .finish();
        let exchange = request(
            Method::POST,
            &account.token_url,
            "application/x-www-form-urlencoded",
            form,
        )?;
        let token: ExchangedToken = self.answer(exchange).await?;
        let (bearer, seconds) = match impersonated {
            None => (
                token.access_token,
                token.expires_in.unwrap_or(TOKEN_SECONDS),
            ),
            Some(url) => {
                let seconds = account
                    .service_account_impersonation
                    .token_lifetime_seconds
                    .unwrap_or(TOKEN_SECONDS);
                let lifetime = format!("{seconds}s");
                let body = serde_json::json!({ "scope": [STORAGE_SCOPE], "lifetime": lifetime });
                let mut asking = request(Method::POST, url, "application/json", body.to_string())?;
                let bearer = format!("Bearer {}", token.access_token)
                    .parse::<HeaderValue>()
                    .map_err(failed)?;
                asking.headers_mut().insert(header::AUTHORIZATION, bearer);
                (
                    self.answer::<AccountToken>(asking).await?.access_token,
                    seconds,
                )
            }
        };
        let lasts = Duration::from_secs(seconds).saturating_sub(RENEWED_BEFORE);
        Ok(KnownToken {
            credential: Arc::new(GcpCredential { bearer }),
            renewed_from: asked_at + lasts,
        })
    }

    /// The token of the other provider: it changes, and is read again each time.
    async fn subject_token(&self) -> object_store::Result<String> {
        let source = &self.account.credential_source;
        let text = match (&source.file, &source.url) {
            (Some(file), _) => {
                let unread = |error| denied(format!("{} cannot be read: {error}", file.display()));
                let path = file.clone();
                let read = tokio::task::spawn_blocking(move || read_small_file(&path));
                read.await.map_err(failed)?.map_err(unread)?
            }
            (None, url) => {
                let mut asking = request(
                    Method::GET,
                    url.as_deref().unwrap_or_default(),
                    "",
                    String::new(),
                )?;
                for (name, value) in &source.headers {
                    let name = name.parse::<HeaderName>().map_err(failed)?;
                    asking
                        .headers_mut()
                        .insert(name, value.parse::<HeaderValue>().map_err(failed)?);
                }
                self.text(asking).await?
            }
        };
        let wrong = || denied("the token of the identity provider cannot be read".to_owned());
        let text = String::from_utf8(text).map_err(|_| wrong())?;
        let Some(field) = &source.format.subject_token_field_name else {
            return Ok(text.trim().to_owned());
        };
        let object: serde_json::Value = serde_json::from_str(&text).map_err(|_| wrong())?;
        object
            .get(field)
            .and_then(serde_json::Value::as_str)
            .map(str::to_owned)
            .ok_or_else(wrong)
    }

    async fn answer<T: DeserializeOwned>(&self, asking: HttpRequest) -> object_store::Result<T> {
        let host = asking.uri().host().unwrap_or_default().to_owned();
        // The parser's text may contain the token.
        serde_json::from_slice(&self.text(asking).await?)
            .map_err(|_| denied(format!("{host} gave no token")))
    }

    async fn text(&self, asking: HttpRequest) -> object_store::Result<Vec<u8>> {
        let host = asking.uri().host().unwrap_or_default().to_owned();
        let answer = self.client.execute(asking).await.map_err(failed)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(|_| {
            let message = format!("the answer of {host} breaks off, or is too long");
            failed(std::io::Error::other(message))
        })?;
        if status.is_success() {
            return Ok(body.to_bytes().into());
        }
        // Requests that fail for a while are repeated.
        Err(
            if status.is_client_error() && !matches!(status.as_u16(), 408 | 429) {
                denied(format!("{host} refused a token: {status}"))
            } else {
                failed(std::io::Error::other(format!(
                    "{host} gave no token: {status}"
                )))
            },
        )
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> object_store::Error {
    object_store::Error::Generic {
        store: "GCS",
        source: Box::new(error),
    }
}

fn denied(why: String) -> object_store::Error {
    object_store::Error::Unauthenticated {
        path: "credentials".to_owned(),
        source: why.into(),
    }
}

fn request(
    method: Method,
    url: &str,
    content: &'static str,
    body: String,
) -> object_store::Result<HttpRequest> {
    let mut request = HttpRequest::new(body.into());
    *request.method_mut() = method;
    *request.uri_mut() = url.parse::<Uri>().map_err(failed)?;
    if !content.is_empty() {
        request
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(content));
    }
    Ok(request)
}

#[async_trait::async_trait]
impl CredentialProvider for FederatedCredentials {
    type Credential = GcpCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<GcpCredential>> {
        let mut cached_token = self.known.lock().await;
        if let Some(token) = cached_token
            .as_ref()
            .filter(|token| Instant::now() < token.renewed_from)
        {
            return Ok(token.credential.clone());
        }
        let token = self
            .patience
            .retry(|| self.fetch())
            .await
            .map_err(|failed| failed.error)?;
        let credential = token.credential.clone();
        *cached_token = Some(token);
        Ok(credential)
    }
}
