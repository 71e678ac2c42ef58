//! Secrets in text: passwords in URLs and signatures in their queries.

use std::borrow::Cow;

/// Stands in the place of a secret.
const HIDDEN: &str = "***";

/// Parameters of URLs that grant access: signatures of S3, Google and Azure, tokens and passwords. In lower case.
const SECRET_PARAMETERS: [&str; 11] = [
    "access_token",
    "api_key",
    "apikey",
    "password",
    "secret",
    "sig",
    "signature",
    "token",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-signature",
];

/// The text with `***` in the place of each user name and password of a URL (`scheme://user:password@host`, also without
/// its scheme) and of each parameter of a query that grants access (`?sig=...`).
///
/// ```
/// use forebay_model::hide_secrets;
///
/// assert_eq!(hide_secrets("GET http://me:pw@host/a?sig=x&b=1"), "GET http://***@host/a?sig=***&b=1");
/// assert_eq!(hide_secrets("nothing to hide"), "nothing to hide");
/// ```
pub fn hide_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains("://") && !text.contains('@') {
        return Cow::Borrowed(text);
    }
    let mut masked = String::with_capacity(text.len());
    let mut remaining = text;
    while let Some(position) = remaining.find("://") {
        let (prefix, suffix) = remaining.split_at(position + "://".len());
        push_plain(&mut masked, prefix);
        let end = suffix.find(ends_url).unwrap_or(suffix.len());
        let (url, others) = suffix.split_at(end);
        let name = prefix.trim_end_matches("://");
        let mut words = name.rsplit(|letter: char| !letter.is_ascii_alphanumeric());
        let scheme = words.next().unwrap_or_default();
        push_url(&mut masked, scheme, url);
        remaining = others;
    }
    push_plain(&mut masked, remaining);
    Cow::Owned(masked)
}

/// Appends text around URLs. Libraries log authorities without their scheme: `(user:password@host:80)`.
fn push_plain(masked: &mut String, text: &str) {
    let is_between = |letter: char| ends_url(letter) || matches!(letter, '(' | ')' | ',');
    for word in text.split_inclusive(is_between) {
        match word.rsplit_once('@') {
            Some((user, host)) if user.contains(':') && !user.contains('/') => {
                masked.push_str(HIDDEN);
                masked.push('@');
                masked.push_str(host);
            }
            _ => masked.push_str(word),
        }
    }
}

/// Characters that stand in no URL, and so end it within a sentence.
fn ends_url(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '"' | '\'' | '`' | '<' | '>')
}

/// True for a scheme whose URLs name a container where others name a user: `abfss://container@account.host/path`.
fn names_container(scheme: &str, user: &str) -> bool {
    matches!(scheme, "abfs" | "abfss" | "wasb" | "wasbs") && !user.contains(':')
}

/// Appends a URL behind its scheme.
fn push_url(masked: &mut String, scheme: &str, url: &str) {
    let authority_end = url.find(['/', '?', '#']).unwrap_or(url.len());
    let (authority, path) = url.split_at(authority_end);
    match authority.rsplit_once('@') {
        Some((user, _)) if names_container(scheme, user) => masked.push_str(authority),
        Some((_, host)) => {
            masked.push_str(HIDDEN);
            masked.push('@');
            masked.push_str(host);
        }
        None => masked.push_str(authority),
    }
    let Some((path, query)) = path.split_once('?') else {
        masked.push_str(path);
        return;
    };
    masked.push_str(path);
    for (number, parameter) in query.split('&').enumerate() {
        masked.push(if number == 0 { '?' } else { '&' });
        match parameter.split_once('=') {
            Some((name, _)) if is_secret(name) => {
                masked.push_str(name);
                masked.push('=');
                masked.push_str(HIDDEN);
            }
            _ => masked.push_str(parameter),
        }
    }
}

fn is_secret(parameter: &str) -> bool {
    SECRET_PARAMETERS.contains(&parameter.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_urls_are_hidden() {
        let cases = [
            (
                "error sending request for url (http://me:p%40ss@127.0.0.1:9/b/k?list-type=2)",
                "error sending request for url (http://***@127.0.0.1:9/b/k?list-type=2)",
            ),
            (
                "`s3://k:s@bucket/a` and https://u@h",
                "`s3://***@bucket/a` and https://***@h",
            ),
            (
                "https://h/c?sv=1&SIG=abc%3D&se=2",
                "https://h/c?sv=1&SIG=***&se=2",
            ),
            (
                "https://h/?X-Amz-Signature=q\"",
                "https://h/?X-Amz-Signature=***\"",
            ),
            (
                "s3://bucket/mail@example.org",
                "s3://bucket/mail@example.org",
            ),
            ("a@b and c://", "a@b and c://"),
            (
                "`abfss://lake@account.dfs.core.windows.net/a` or abfss://a:b@c",
                "`abfss://lake@account.dfs.core.windows.net/a` or abfss://***@c",
            ),
            (
                "idle connection: (\"http\", me:word@127.0.0.1:9)",
                "idle connection: (\"http\", ***@127.0.0.1:9)",
            ),
        ];
        for (text, shown) in cases {
            assert_eq!(hide_secrets(text), shown);
        }
    }
}
