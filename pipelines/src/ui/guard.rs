//! Steps before and after each request: the token, the host that the request names, and headers of security.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use forebay_run::ClusterToken;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode};

use super::service::UiService;

/// Pages hold styles, and read themselves again with the script of this server; they load nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Refuses a request without the right token or host.
pub(super) async fn guard(
    State(service): State<Arc<UiService>>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let mut response = match refusal(service.token.as_ref(), &request) {
        None => next.run(request).await,
        Some(refusal) => refusal,
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn refusal(token: Option<&ClusterToken>, request: &Request) -> Option<Response<Body>> {
    let Some(token) = token else {
        // A page of another site, whose name was pointed to this machine, could read the answers otherwise.
        let is_local = host_of(request).is_some_and(is_local_host);
        return (!is_local).then(refused_host);
    };
    let header = request.headers().get(AUTHORIZATION);
    let credentials = header.and_then(|header| header.to_str().ok());
    let is_right = credentials.is_some_and(|credentials| is_authorized(token, credentials));
    (!is_right).then(unauthorized)
}

/// True for credentials with the token: `Bearer TOKEN`, or those of a browser, which has the token as the password.
fn is_authorized(token: &ClusterToken, credentials: &str) -> bool {
    let Some((scheme, value)) = credentials.split_once(' ') else {
        return false;
    };
    if scheme.eq_ignore_ascii_case("bearer") {
        return token.matches(value.trim().as_bytes());
    }
    scheme.eq_ignore_ascii_case("basic") && token.matches_basic(value)
}

/// The host that a request names, with its port.
fn host_of(request: &Request) -> Option<&str> {
    if let Some(authority) = request.uri().authority() {
        return Some(authority.as_str());
    }
    request.headers().get(HOST)?.to_str().ok()
}

/// True for names and addresses of this machine.
fn is_local_host(host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let address: Option<IpAddr> = name.parse().ok();
    name.eq_ignore_ascii_case("localhost") || address.is_some_and(|address| address.is_loopback())
}

fn unauthorized() -> Response<Body> {
    let text = "This request carries no `Authorization: Bearer` with the right token. A browser \
                asks for a name and a password: the password is the token, and any name will do.\n";
    let mut response = text_response(StatusCode::UNAUTHORIZED, text);
    let challenge = HeaderValue::from_static("Basic realm=\"forebay\", charset=\"UTF-8\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

fn refused_host() -> Response<Body> {
    let text = "Without a token, pages are for this machine alone: open http://127.0.0.1 or \
                http://localhost with the port, or start the server with --token-file.\n";
    text_response(StatusCode::FORBIDDEN, text)
}

fn text_response(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_this_machine_are_local() {
        let cases = [
            ("127.0.0.1:7402", true),
            ("localhost", true),
            ("LocalHost:80", true),
            ("[::1]:7402", true),
            ("[::1]", true),
            ("127.8.8.8", true),
            ("evil.example:7402", false),
            ("localhost.evil.example", false),
            ("10.0.0.1:7402", false),
            ("", false),
        ];
        for (host, expected) in cases {
            assert_eq!(is_local_host(host), expected, "{host}");
        }
    }
}
