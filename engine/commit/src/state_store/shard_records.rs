//! Records of the shards of outputs.

use bytes::Bytes;
use forebay_model::{ContentId, IdBuilder, Result};
use forebay_storage::StorageLocation;
use serde_json::Value;

use super::StateStore;

/// Name of the record of a shard: the same rows may lie in several outputs.
pub fn shard_name(out: &str, shard: &str) -> String {
    let mut name = IdBuilder::new("shard record");
    name.text(out).text(shard);
    name.finish().to_string()
}

impl StateStore {
    /// Record of a shard of an output, if it exists and is readable.
    pub fn shard_record(&self, out: &str, id: ContentId) -> Result<Option<Value>> {
        let bytes = self.io.get(&self.shard_location(out, id))?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Records a shard whose files are whole. Equal ids mean equal rows.
    pub fn put_shard_record(&self, out: &str, id: ContentId, record: &Value) -> Result<()> {
        let bytes = Bytes::from(forebay_model::canonical_json(record));
        self.io.put(&self.shard_location(out, id), bytes)
    }

    /// Records a shard; false if another run has already recorded it.
    pub fn put_shard_record_if_absent(
        &self,
        out: &str,
        id: ContentId,
        record: &Value,
    ) -> Result<bool> {
        let bytes = Bytes::from(forebay_model::canonical_json(record));
        self.io.put_if_absent(&self.shard_location(out, id), bytes)
    }

    fn shard_location(&self, out: &str, id: ContentId) -> StorageLocation {
        self.root
            .join(&format!("shards/{}.json", shard_name(out, &id.to_string())))
    }
}
