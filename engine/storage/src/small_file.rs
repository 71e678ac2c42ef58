//! Files of settings and credentials, which people and other programs write.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Bytes of such a file at most.
const SMALL_FILE_BYTES_MAX: u64 = 1 << 20;

/// Content of a small file. Another one may be named instead, such as a device without an end: a longer one is an error.
pub fn read_small_file(path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut content = Vec::new();
    file.take(SMALL_FILE_BYTES_MAX + 1)
        .read_to_end(&mut content)?;
    if content.len() as u64 > SMALL_FILE_BYTES_MAX {
        let message = format!(
            "it has more than {} MiB, and is the wrong file",
            SMALL_FILE_BYTES_MAX >> 20
        );
        return Err(Error::new(ErrorKind::InvalidData, message));
    }
    Ok(content)
}

/// Like [`read_small_file`], for a text.
pub fn read_small_text(path: &Path) -> Result<String> {
    String::from_utf8(read_small_file(path)?)
        .map_err(|_| Error::new(ErrorKind::InvalidData, "it is no text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_an_end_are_refused() {
        let error = read_small_file(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("more than 1 MiB"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "token").unwrap();
        assert_eq!(read_small_text(&path).unwrap(), "token");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read_small_text(&path).is_err());
        std::fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(read_small_file(&path).unwrap().len(), 1 << 20);
    }
}
