//! A cache on a local disk of bytes that were read from a remote store.
//!
//! It keeps the bytes as they are stored, of the columns that were read: compressed, so that
//! nothing else would be smaller, and useful for any result that is computed from them. An entry is
//! named by the object, its etag and the ranges: a changed object has other names. Several
//! processes may share a cache. Entries appear whole, and end with a checksum that detects
//! corruption. A process that adds an entry reserves its bytes under a lock, so that the limit
//! holds for all processes together.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use forebay_model::{ContentId, Fault, IdBuilder, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of the sum at the end of an entry.
const CHECKSUM_BYTES: usize = 8;

/// Staged files older than this were left by a process that ended during a write.
const STALE_WRITE_AGE: Duration = Duration::from_secs(3600);

/// Bytes of a number in [`SIZE_FILE`] at most.
const SIZE_BYTES_MAX: u64 = 64;

/// The file with the sum of all sizes, which is also the lock.
const SIZE_FILE: &str = "sizes";

/// A cache in a directory.
#[derive(Debug)]
pub struct DiskCache {
    dir: PathBuf,
    bytes_max: u64,
    /// Entries that were last used before this time may be removed.
    since: SystemTime,
    counts: CacheCounters,
}

#[derive(Debug, Default)]
struct CacheCounters {
    hits: AtomicU64,
    misses: AtomicU64,
    corrupt: AtomicU64,
    refused: AtomicU64,
    attempts: AtomicU64,
}

/// Hits and misses of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Bytes that came from the cache.
    pub hit_bytes: u64,
    /// Bytes that came from the store.
    pub missed_bytes: u64,
    /// Entries that the disk had not kept whole; they were read from the store again.
    pub corrupt: u64,
    /// Bytes that were not kept, because there was no room for them or the disk refused them.
    pub refused_bytes: u64,
}

/// Key of cached ranges of an object.
#[derive(Debug, Clone)]
pub struct CacheKey {
    id: ContentId,
    lengths: Vec<u64>,
}

impl CacheKey {
    /// Ranges of a version of an object.
    pub fn new(location_text: &str, etag: &str, ranges: &[Range<u64>]) -> CacheKey {
        let mut id = IdBuilder::new("cached ranges");
        id.text(location_text).text(etag);
        ranges.iter().for_each(|range| {
            id.bytes(&range.start.to_le_bytes())
                .bytes(&range.end.to_le_bytes());
        });
        CacheKey {
            id: id.finish(),
            lengths: ranges.iter().map(|range| range.end - range.start).collect(),
        }
    }

    fn bytes(&self) -> u64 {
        self.lengths.iter().sum()
    }

    /// Seed of the checksum, so that entries whose names were exchanged are detected as corrupt.
    fn seed(&self) -> u64 {
        self.id
            .to_string()
            .bytes()
            .fold(0, |seed: u64, byte| seed.rotate_left(5) ^ u64::from(byte))
    }
}

impl DiskCache {
    /// Opens a cache with a limit of `bytes_max` bytes for all processes together.
    pub fn open(dir: &Path, bytes_max: u64) -> Result<DiskCache> {
        let failed = |error| {
            Fault::disk("the cache of the feed cannot be used", error)
                .file(dir.display().to_string())
        };
        std::fs::create_dir_all(dir).map_err(failed)?;
        let cache = DiskCache {
            dir: dir.to_owned(),
            bytes_max,
            since: SystemTime::now(),
            counts: CacheCounters::default(),
        };
        cache
            .locked(|sizes| cache.counted(sizes).map(|_| ()))
            .map_err(failed)?;
        Ok(cache)
    }

    /// Counts so far.
    pub fn stats(&self) -> CacheStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let CacheCounters {
            hits,
            misses,
            corrupt,
            refused,
            ..
        } = &self.counts;
        CacheStats {
            hit_bytes: of(hits),
            missed_bytes: of(misses),
            corrupt: of(corrupt),
            refused_bytes: of(refused),
        }
    }

    /// Ranges of an entry, if it exists and is not corrupt.
    pub fn get(&self, entry: &CacheKey) -> Option<Vec<Bytes>> {
        let path = self.path(entry);
        let read = self.read(&path, entry);
        if matches!(&read, Ok(None)) {
            self.counts.corrupt.fetch_add(1, Ordering::Relaxed);
            // Its bytes count towards the limit until the next full count.
            let _ = std::fs::remove_file(&path);
        }
        let ranges = read.ok().flatten();
        let count = if ranges.is_some() {
            &self.counts.hits
        } else {
            &self.counts.misses
        };
        count.fetch_add(entry.bytes(), Ordering::Relaxed);
        ranges
    }

    /// Reads the ranges of an entry; `None` if its content is not what was written.
    fn read(&self, path: &Path, entry: &CacheKey) -> io::Result<Option<Vec<Bytes>>> {
        let file = File::open(path)?;
        let stored_bytes = entry.bytes() as usize + CHECKSUM_BYTES;
        let mut bytes = Vec::with_capacity(stored_bytes);
        // A longer file is another one.
        (&file)
            .take(stored_bytes as u64 + 1)
            .read_to_end(&mut bytes)?;
        let Some((content, sum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else {
            return Ok(None);
        };
        if content.len() as u64 != entry.bytes()
            || xxh3_64_with_seed(content, entry.seed()) != u64::from_le_bytes(*sum)
        {
            return Ok(None);
        }
        // Entries are removed in the order of their last use.
        let _ = file.set_modified(SystemTime::now());
        let bytes = Bytes::from(bytes);
        let mut start = 0;
        let parts = entry.lengths.iter().map(|length| {
            let end = start + *length as usize;
            bytes.slice(std::mem::replace(&mut start, end)..end)
        });
        Ok(Some(parts.collect()))
    }

    /// Stores ranges, if there is room. Errors are only counted: a feed continues without the
    /// cache.
    pub fn put(&self, entry: &CacheKey, ranges: &[Bytes]) {
        if !self.kept(entry, ranges).unwrap_or(false) {
            self.counts
                .refused
                .fetch_add(entry.bytes(), Ordering::Relaxed);
        }
    }

    fn kept(&self, entry: &CacheKey, ranges: &[Bytes]) -> io::Result<bool> {
        let attempt = self.counts.attempts.fetch_add(1, Ordering::Relaxed);
        let staged = self
            .dir
            .join(format!("{}#{}-{attempt}", entry.id, std::process::id()));
        let size = entry.bytes() + CHECKSUM_BYTES as u64;
        let Some(mut file) = self.reserved(&staged, size)? else {
            return Ok(false);
        };
        let content = ranges.concat();
        let sum = xxh3_64_with_seed(&content, entry.seed());
        let written = file
            .write_all(&content)
            .and_then(|()| file.write_all(&sum.to_le_bytes()));
        let renamed = written.and_then(|()| {
            self.locked(|sizes| self.publish(sizes, &staged, &self.path(entry), size))
        });
        if renamed.is_err() {
            let _ = std::fs::remove_file(&staged);
        }
        renamed.map(|()| true)
    }

    /// Renames an entry to its final name. Another process may have done so before.
    fn publish(&self, sizes: &mut File, staged: &Path, path: &Path, size: u64) -> io::Result<()> {
        let replaced_size = path.metadata().map_or(0, |meta| meta.len());
        std::fs::rename(staged, path)?;
        let total_size = self.size(sizes)?;
        self.set_size(sizes, total_size.saturating_sub(replaced_size.min(size)))
    }

    /// A file of `size` bytes that are already reserved; `None` if there is no room.
    fn reserved(&self, staged: &Path, size: u64) -> io::Result<Option<File>> {
        if size > self.bytes_max {
            return Ok(None);
        }
        self.locked(|sizes| {
            let mut total_size = self.size(sizes)?;
            if total_size + size > self.bytes_max {
                total_size = self.make_room(sizes, size)?;
            }
            if total_size + size > self.bytes_max {
                return Ok(None);
            }
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(staged)?;
            // Extended at once, so that a concurrent count includes its full size.
            file.set_len(size)?;
            self.set_size(sizes, total_size + size)?;
            Ok(Some(file))
        })
    }

    /// Removes entries that were not used since this cache was opened, least recently used first. Entries
    /// that were used since are kept: an epoch reads everything once, and a cache smaller than the data
    /// would otherwise evict each entry before the next epoch reads it.
    fn make_room(&self, sizes: &mut File, size: u64) -> io::Result<u64> {
        let mut total_size = self.counted(sizes)?;
        let mut old: Vec<(SystemTime, u64, PathBuf)> = self.entries()?;
        old.retain(|(used, ..)| *used < self.since);
        old.sort();
        for (_, bytes, path) in old {
            if total_size + size <= self.bytes_max {
                break;
            }
            std::fs::remove_file(path)?;
            total_size -= bytes;
        }
        self.set_size(sizes, total_size)?;
        Ok(total_size)
    }

    /// Sums the sizes of all entries, and removes stale staged files of processes that ended during a write.
    fn counted(&self, sizes: &mut File) -> io::Result<u64> {
        let mut total_size = 0;
        for (written, bytes, path) in self.entries()? {
            let is_staged = path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().contains('#'));
            if is_staged && written.elapsed().is_ok_and(|age| age > STALE_WRITE_AGE) {
                std::fs::remove_file(path)?;
            } else {
                total_size += bytes;
            }
        }
        self.set_size(sizes, total_size)?;
        Ok(total_size)
    }

    fn entries(&self) -> io::Result<Vec<(SystemTime, u64, PathBuf)>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            // What vanishes meanwhile was found corrupt.
            if let Ok(meta) = entry.metadata()
                && meta.is_file()
                && entry.file_name() != SIZE_FILE
            {
                entries.push((meta.modified()?, meta.len(), entry.path()));
            }
        }
        Ok(entries)
    }

    fn path(&self, entry: &CacheKey) -> PathBuf {
        self.dir.join(entry.id.to_string())
    }

    fn locked<T>(&self, work: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
        let mut sizes = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.dir.join(SIZE_FILE))?;
        // Ends with the file.
        sizes.lock()?;
        work(&mut sizes)
    }

    fn size(&self, sizes: &mut File) -> io::Result<u64> {
        let mut text = String::new();
        sizes.seek(SeekFrom::Start(0))?;
        let mut digits = Read::by_ref(sizes).take(SIZE_BYTES_MAX);
        digits.read_to_string(&mut text)?;
        match text.trim().parse() {
            Ok(size) => Ok(size),
            Err(_) => self.counted(sizes),
        }
    }

    fn set_size(&self, sizes: &mut File, size: u64) -> io::Result<()> {
        sizes.seek(SeekFrom::Start(0))?;
        sizes.set_len(0)?;
        sizes.write_all(size.to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, bytes: u64) -> (CacheKey, Vec<Bytes>) {
        let ranges = [0..bytes / 2, bytes / 2..bytes];
        let content = |range: &Range<u64>| {
            Bytes::from(vec![name.len() as u8; (range.end - range.start) as usize])
        };
        (
            CacheKey::new("s3://lake/a", name, &ranges),
            ranges.iter().map(content).collect(),
        )
    }

    fn stored_bytes(dir: &Path) -> u64 {
        let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap());
        files
            .filter(|file| file.file_name() != SIZE_FILE)
            .map(|file| file.metadata().unwrap().len())
            .sum()
    }

    #[test]
    fn corrupt_entries_are_not_returned() {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::open(dir.path(), 1000).unwrap();
        let (one, bytes) = entry("1", 100);
        assert!(cache.get(&one).is_none());
        cache.put(&one, &bytes);
        assert_eq!(cache.get(&one).unwrap(), bytes);
        let (other, _) = entry("22", 100);
        assert!(cache.get(&other).is_none(), "another etag is another entry");
        // A flipped bit, an end that is missing, and an entry under the name of another.
        let path = cache.path(&one);
        let whole = std::fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[7] ^= 1;
        let mut corrupt = 0;
        let longer = [&whole[..], &[0u8; 100][..]].concat();
        for broken in [&flipped[..], &whole[..60], &longer[..], &[]] {
            std::fs::write(&path, broken).unwrap();
            assert!(cache.get(&one).is_none());
            corrupt += 1;
            assert_eq!((cache.stats().corrupt, path.exists()), (corrupt, false));
        }
        std::fs::write(cache.path(&other), &whole).unwrap();
        assert!(cache.get(&other).is_none());
    }

    #[test]
    fn eviction_keeps_the_limit_and_entries_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::open(dir.path(), 1000).unwrap();
        for name in ["1", "22", "333"] {
            let (entry, bytes) = entry(name, 400);
            cache.put(&entry, &bytes);
        }
        assert_eq!(stored_bytes(dir.path()), 816);
        assert!(
            cache.get(&entry("1", 400).0).is_some() && cache.get(&entry("333", 400).0).is_none()
        );
        assert_eq!(cache.stats().refused_bytes, 400);
        // To a later feed, what it does not use is old.
        for (_, _, path) in cache.entries().unwrap() {
            File::open(path)
                .unwrap()
                .set_modified(SystemTime::now() - STALE_WRITE_AGE)
                .unwrap();
        }
        let later = DiskCache::open(dir.path(), 1000).unwrap();
        assert!(later.get(&entry("22", 400).0).is_some());
        let (third, bytes) = entry("333", 400);
        later.put(&third, &bytes);
        assert!(later.get(&third).is_some() && later.get(&entry("22", 400).0).is_some());
        assert!(later.get(&entry("1", 400).0).is_none());
        assert_eq!(stored_bytes(dir.path()), 816);
        let small = DiskCache::open(dir.path(), 10).unwrap();
        small.put(&third, &bytes);
        assert!(
            small.get(&third).is_some(),
            "nothing that is in use goes for what does not fit anyway"
        );
    }

    /// Threads stand for processes: all that they share is the directory.
    #[test]
    fn concurrent_caches_share_one_limit() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for rank in 0..4 {
                let dir = dir.path();
                scope.spawn(move || {
                    let cache = DiskCache::open(dir, 5000).unwrap();
                    for number in 0..40 {
                        let (entry, bytes) = entry(&"x".repeat(1 + (number * 7 + rank) % 40), 200);
                        match cache.get(&entry) {
                            Some(found) => assert_eq!(found, bytes),
                            None => cache.put(&entry, &bytes),
                        }
                        // Under the lock, no entry is added or removed.
                        let held = cache.locked(|_| Ok(stored_bytes(dir))).unwrap();
                        assert!(held <= 5000, "{held}");
                    }
                    assert_eq!(cache.stats().corrupt, 0);
                });
            }
        });
        let size: u64 = std::fs::read_to_string(dir.path().join(SIZE_FILE))
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(size, stored_bytes(dir.path()));
    }
}
