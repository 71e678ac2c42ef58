//! Trial of a bucket: a run that may not write there says so before it computes anything.

use bytes::Bytes;
use forebay_model::{Result, codes};
use object_store::ObjectStoreExt;

use super::error::{FailedRequest, storage_fault};
use super::{StorageClient, StorageLocation, require_writable};

/// Name of the object whose upload is begun. No upload of it ever ends.
const TRIED_NAME: &str = "_forebay_trial";

impl StorageClient {
    /// Begins an upload into a directory of a bucket, and aborts it: no object is there at any time, also where the
    /// process is killed, and removing objects need not be allowed. Failures other than a refusal are left to the
    /// writes that follow.
    pub fn try_upload(&self, directory: &StorageLocation) -> Result<()> {
        require_writable(directory)?;
        let object = directory.join(TRIED_NAME);
        let begun = self.run_with_retries(&object, || object.store.put_multipart(&object.path))?;
        let mut upload = match begun {
            Ok(upload) => upload,
            Err(failed) => return refusal(directory, failed),
        };
        // Azure hears of an upload with its first part only.
        let part = upload.put_part(Bytes::from_static(b"0").into());
        let sent = self.block_on_cancellable(self.inner.patience.try_once(part))?;
        // Without a right to abort uploads, stores remove this one after a while.
        let _ = self.block_on_cancellable(upload.abort());
        match sent {
            Ok(()) => Ok(()),
            Err(failed) => refusal(directory, failed),
        }
    }
}

/// The fault of a request that storage refused.
fn refusal(directory: &StorageLocation, failed: FailedRequest) -> Result<()> {
    let fault = storage_fault(&directory.shown, failed);
    if fault.code() == codes::ACCESS {
        Err(fault)
    } else {
        Ok(())
    }
}
