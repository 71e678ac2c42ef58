//! Places in a text: lines and characters.

use std::io::{self, Read};

use crate::files::stream::BUFFER_BYTES;

/// A place in a text, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextPlace {
    pub(super) line: u64,
    pub(super) column: u64,
}

/// The place of a byte of a text.
pub(super) fn text_place(stream: impl Read, at: u64) -> io::Result<TextPlace> {
    let mut stream = stream.take(at);
    let mut block = vec![0; BUFFER_BYTES];
    let mut position = TextPlace { line: 1, column: 1 };
    let mut is_behind_return = false;
    loop {
        let read = match stream.read(&mut block) {
            Ok(0) => return Ok(position),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        for byte in &block[..read] {
            match byte {
                b'\n' if is_behind_return => {}
                b'\n' | b'\r' => {
                    position.line += 1;
                    position.column = 1;
                }
                // Bytes that go on with a letter.
                0x80..=0xbf => {}
                _ => position.column += 1,
            }
            is_behind_return = *byte == b'\r';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_lines_and_characters() {
        let text = "\u{e4}b\r\nc\rd\ne";
        for (at, line, column) in [
            (0, 1, 1),
            (2, 1, 2),
            (3, 1, 3),
            (5, 2, 1),
            (7, 3, 1),
            (9, 4, 1),
        ] {
            let computed = text_place(text.as_bytes(), at).unwrap();
            assert_eq!(computed, TextPlace { line, column }, "{at}");
        }
    }
}
