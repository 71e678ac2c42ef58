//! The cluster's token: where it comes from, and which files are not believed.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use forebay_model::{Fault, Result, codes};
use ring::rand::{SecureRandom, SystemRandom};

/// The variable that holds a token, where no file is given.
pub const VARIABLE: &str = "FOREBAY_TOKEN";

/// Bytes of a token file at most: a larger file is no token.
const BYTES_MAX: u64 = 4096;

/// Random bytes of a token that Forebay makes.
const RANDOM_BYTES: usize = 32;

/// A secret that all members of a cluster share. It is never sent: see the module `proof`.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterToken(String);

impl fmt::Debug for ClusterToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl ClusterToken {
    /// A new random token.
    pub fn random() -> Result<ClusterToken> {
        let mut bytes = [0; RANDOM_BYTES];
        let failed = |_| Fault::new(codes::STORAGE, "the system gives no random bytes");
        SystemRandom::new().fill(&mut bytes).map_err(failed)?;
        Ok(ClusterToken(BASE64_URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// A token that another process has made.
    pub(crate) fn of_text(text: &str) -> Result<ClusterToken> {
        match text.trim() {
            "" => Err(Fault::new(codes::STRANGER, "the token of the run is empty")),
            token => Ok(ClusterToken(token.to_owned())),
        }
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// True if a text is this token; takes as long for a wrong first byte as for a wrong last one.
    pub fn matches(&self, presented: &[u8]) -> bool {
        constant_time_eq(self.bytes(), presented)
    }

    /// True if the credentials of HTTP's scheme `Basic` have this token as their password. Browsers ask for them.
    pub fn matches_basic(&self, credentials: &str) -> bool {
        let Ok(decoded) = BASE64_STANDARD.decode(credentials.trim()) else {
            return false;
        };
        let colon = decoded.iter().position(|byte| *byte == b':');
        colon.is_some_and(|colon| self.matches(&decoded[colon + 1..]))
    }

    /// The token of a file that the user names. An empty file is a fault.
    pub fn of_file(path: &Path) -> Result<ClusterToken> {
        read_token(path, FileAccess::OthersMayRead)
    }

    /// The token of the variable `FOREBAY_TOKEN`, where it is set.
    pub fn of_environment() -> Result<Option<ClusterToken>> {
        let Some(text) = std::env::var_os(VARIABLE) else {
            return Ok(None);
        };
        let unset = format!("unset {VARIABLE}, or set it to the token of the cluster");
        let bad = |message: String| Fault::new(codes::STRANGER, message).hint(unset.clone());
        let text = text
            .into_string()
            .map_err(|_| bad(format!("{VARIABLE} is no text")))?;
        match text.trim() {
            "" => Err(bad(format!("{VARIABLE} is set, and empty"))),
            token => Ok(Some(ClusterToken(token.to_owned()))),
        }
    }

    /// The token of this user on this machine. The first process that needs it makes the file; a worker and a
    /// coordinator of the same user find the same one.
    pub fn of_user() -> Result<ClusterToken> {
        let path = user_file()?;
        match std::fs::symlink_metadata(&path) {
            Ok(_) => read_token(&path, FileAccess::UserOnly),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => create_token(&path),
            Err(error) => Err(unusable(&path, error)),
        }
    }
}

/// Users that may read a token file.
#[derive(Clone, Copy, PartialEq)]
enum FileAccess {
    /// Mounted secrets are often readable by all users of a container.
    OthersMayRead,
    UserOnly,
}

/// `$XDG_STATE_HOME/forebay/token`, else `~/.local/state/forebay/token`. Sessions without a login (cron, systemd
/// units) find it, too, which a runtime directory of a login would not allow.
fn user_file() -> Result<PathBuf> {
    let state_home = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || {
        std::env::home_dir()
            .filter(|home| home.is_absolute())
            .map(|home| home.join(".local/state"))
    };
    let root = state_home.or_else(home).ok_or_else(|| {
        let fault = Fault::new(
            codes::STRANGER,
            "there is no token, and no home directory to keep one in",
        );
        fault.hint(format!("give `--token-file`, or set {VARIABLE}, or HOME"))
    })?;
    Ok(root.join("forebay").join("token"))
}

fn unusable(path: &Path, error: std::io::Error) -> Fault {
    let fault = Fault::disk("the token of this user can neither be read nor made", error);
    fault
        .file(path.display().to_string())
        .hint(format!("give `--token-file`, or set {VARIABLE}"))
}

/// Makes the file whole or not at all; where another process was first, its token counts.
fn create_token(path: &Path) -> Result<ClusterToken> {
    let failed = |error| unusable(path, error);
    let dir = path.parent().unwrap_or(Path::new("/"));
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).map_err(failed)?;
    let token = ClusterToken::random()?;
    // Temporary files have mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
    writeln!(file, "{}", token.text())
        .and_then(|()| file.as_file().sync_all())
        .map_err(failed)?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(token),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
            read_token(path, FileAccess::UserOnly)
        }
        Err(error) => Err(failed(error.error)),
    }
}

fn read_token(path: &Path, access: FileAccess) -> Result<ClusterToken> {
    let path_text = path.display().to_string();
    let unreadable = |error| unreadable_file("the token cannot be read", path, error);
    let bad = |message: &str, hint: &str| {
        Fault::new(codes::STRANGER, message)
            .file(path_text.clone())
            .hint(hint)
    };
    // Opening a pipe would wait for its other end.
    let meta = std::fs::metadata(path).map_err(unreadable)?;
    if !meta.is_file() {
        return Err(bad(
            "the token file is no regular file",
            "give a file with one line, the token",
        ));
    }
    let mut file = std::fs::File::open(path).map_err(unreadable)?;
    permitted(&file.metadata().map_err(unreadable)?, access).map_err(|message| {
        bad(
            message,
            "make it readable and writable by its user alone: `chmod 600`; if others could read \
             it, change it",
        )
    })?;
    let mut bytes = Vec::new();
    (&mut file)
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(bad(
            "the token file is too large for a token",
            "give a file with one line, the token",
        ));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        bad(
            "the token file holds no text",
            "give a file with one line, the token",
        )
    })?;
    match text.trim() {
        "" => Err(bad(
            "the token file is empty",
            "write a token to it, such as the output of `head -c 24 /dev/urandom | base64`",
        )),
        token => Ok(ClusterToken(token.to_owned())),
    }
}

#[cfg(unix)]
fn permitted(meta: &std::fs::Metadata, access: FileAccess) -> Result<(), &'static str> {
    use std::os::unix::fs::MetadataExt;

    let mode = meta.mode() & 0o777;
    // Linux reports the user of this process; elsewhere, only the mode is checked.
    let user = std::fs::metadata("/proc/self")
        .ok()
        .map(|metadata| metadata.uid());
    match access {
        FileAccess::OthersMayRead if mode & 0o002 != 0 => {
            Err("every user may write the token file")
        }
        FileAccess::UserOnly if mode & 0o077 != 0 => {
            Err("other users may read or write the token file")
        }
        FileAccess::UserOnly if user.is_some_and(|user| user != meta.uid()) => {
            Err("the token file is another user's")
        }
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn permitted(_: &std::fs::Metadata, _: FileAccess) -> Result<(), &'static str> {
    Ok(())
}

/// Compares in a time that does not depend on the bytes.
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .fold(0, |sum, (a, b)| std::hint::black_box(sum | (a ^ b)))
            == 0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_a_browser_is_the_token() {
        let token = ClusterToken::of_text("secret:7").unwrap();
        let cases = [
            ("anyone:secret:7", true),
            (":secret:7", true),
            ("secret:7", false),
            ("anyone:secret", false),
            ("anyone:", false),
            ("", false),
        ];
        for (credentials, expected) in cases {
            let encoded = BASE64_STANDARD.encode(credentials);
            assert_eq!(token.matches_basic(&encoded), expected, "{credentials}");
        }
        assert!(!token.matches_basic("no base64!"));
    }
}
