//! Stores that hold state and outputs, their failures, and files that a crash leaves.

mod caches;
mod cloud_stores;
mod damaged_files;
mod failing_requests;
mod published_outputs;
mod retries;
mod s3;
