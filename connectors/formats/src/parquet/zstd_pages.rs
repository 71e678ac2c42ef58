//! Pages that are compressed by Zstandard.

use std::cell::RefCell;
use std::io::Cursor;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use zstd::bulk::Decompressor;

thread_local! {
    /// The context of this thread. To make one takes longer than to decompress a small page.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Decompresses a page that becomes so many bytes, behind levels that are stored as they are.
pub(super) fn decompress_zstd(
    stored: &Bytes,
    levels_bytes: usize,
    uncompressed_bytes: usize,
) -> Result<Bytes> {
    let outside = || ParquetError::General("the levels of a page lie outside of it".to_owned());
    let levels = stored.get(..levels_bytes).ok_or_else(outside)?;
    let values_bytes = uncompressed_bytes
        .checked_sub(levels_bytes)
        .ok_or_else(outside)?;
    let mut page = Vec::with_capacity(uncompressed_bytes);
    page.extend_from_slice(levels);
    // A page without any value may have nothing behind its levels.
    if values_bytes > 0 {
        append_decompressed(&stored[levels_bytes..], &mut page)?;
    }
    if page.len() != uncompressed_bytes {
        return Err(ParquetError::General(format!(
            "a page becomes {} bytes, and its header tells {uncompressed_bytes}",
            page.len()
        )));
    }
    Ok(page.into())
}

/// Decompresses into the spare capacity behind what there is.
fn append_decompressed(compressed: &[u8], page: &mut Vec<u8>) -> Result<()> {
    DECOMPRESSOR.with_borrow_mut(|kept_context| {
        let context = match kept_context {
            Some(context) => context,
            None => kept_context.insert(Decompressor::new()?),
        };
        let mut end = Cursor::new(&mut *page);
        end.set_position(end.get_ref().len() as u64);
        context.decompress_to_buffer(compressed, &mut end)?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_decompressed_behind_their_levels() {
        let values = vec![7_u8; 1000];
        let compressed = zstd::bulk::compress(&values, 3).unwrap();
        for levels in [&b""[..], b"levels"] {
            let stored = Bytes::from([levels, &compressed].concat());
            let whole = [levels, &values].concat();
            let page = decompress_zstd(&stored, levels.len(), whole.len()).unwrap();
            assert_eq!(page, whole);
            for other_size in [0, whole.len() - 1, whole.len() + 1] {
                let page = decompress_zstd(&stored, levels.len(), other_size);
                assert!(page.is_err() || other_size == levels.len(), "{other_size}");
            }
        }
        assert!(decompress_zstd(&Bytes::from_static(b"le"), 6, 10).is_err());
        // Nothing but levels.
        let levels = Bytes::from_static(b"levels");
        assert_eq!(decompress_zstd(&levels, 6, 6).unwrap(), levels);
        // The context of the thread stays usable after bytes that are no frame.
        assert!(decompress_zstd(&Bytes::from_static(b"no frame"), 0, 10).is_err());
        let stored = Bytes::from(compressed);
        assert_eq!(decompress_zstd(&stored, 0, 1000).unwrap(), values);
    }
}
