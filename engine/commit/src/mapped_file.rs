//! Files that are mapped: all processes of the machine that read one share its memory, and the system takes it back.

use std::fs::File;

use bytes::Bytes;

/// The content of a file, mapped. The file must be one that no process writes any more; it may lose its name.
pub(crate) fn map_file(file: &File) -> std::io::Result<Bytes> {
    // SAFETY: files get their names in the state directory once they are complete, and no process writes them
    // after that; temporary files have no name. The contents of a removed file stay until the last process unmaps it.
    #[allow(unsafe_code)]
    let mapped = unsafe { memmap2::Mmap::map(file) }?;
    Ok(Bytes::from_owner(mapped))
}
