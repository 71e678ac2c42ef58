//! Ordinary memory as a device: everything is done at once, so that there is nothing to wait for.

use forebay_feed::SlotMemory;
use forebay_model::Result;

use super::device::ComputeDevice;

/// The host itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostDevice;

impl ComputeDevice for HostDevice {
    type Memory = Vec<u8>;
    type Event = ();

    fn memory(&self, bytes: usize) -> Result<Vec<u8>> {
        Ok(vec![0; bytes])
    }

    fn event(&self) -> Result<()> {
        Ok(())
    }

    fn copies_wait(&self, _event: &()) -> Result<()> {
        Ok(())
    }

    fn copy(&self, from: &dyn SlotMemory, to: &mut Vec<u8>) -> Result<()> {
        to.copy_from_slice(from.bytes());
        Ok(())
    }

    fn record_copied(&self, _event: &mut ()) -> Result<()> {
        Ok(())
    }

    fn compute_waits(&self, _event: &()) -> Result<()> {
        Ok(())
    }

    fn record_computed(&self, _event: &mut ()) -> Result<()> {
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        Ok(())
    }
}
