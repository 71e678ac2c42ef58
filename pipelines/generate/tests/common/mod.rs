//! Reading back what was written.
#![allow(clippy::unwrap_used, dead_code)]

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// The files of a directory, in the order of their names.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

/// A file's reader.
pub fn reader(path: &Path) -> ParquetRecordBatchReaderBuilder<File> {
    ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap()
}

/// All batches of a directory, in the order of the files.
pub fn batches(directory: &Path) -> impl Iterator<Item = RecordBatch> {
    files(directory)
        .into_iter()
        .flat_map(|path| reader(&path).build().unwrap().map(|batch| batch.unwrap()))
}

/// Every file's name and bytes.
pub fn bytes(directory: &Path) -> Vec<(String, Vec<u8>)> {
    files(directory)
        .iter()
        .map(|path| {
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                std::fs::read(path).unwrap(),
            )
        })
        .collect()
}
