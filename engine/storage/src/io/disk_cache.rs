//! A cache on a local disk of bytes that were read from a remote store.
//!
//! It keeps the bytes as they are stored, of the columns that were read: compressed, so that
//! nothing else would be smaller, and useful for any result that is computed from them. An entry is
//! named by the object, its etag and the ranges: a changed object has other names. Several
//! processes may share a cache. Entries appear whole, and end with a checksum that detects
//! corruption. A process that adds an entry reserves its bytes under a lock, so that the limit
//! holds for all processes together.
//!
//! An epoch reads all entries once. Under the least-recently-used rule, a cache smaller than the
//! data would evict each entry shortly before it is read. A full cache therefore keeps its entries
//! and bypasses the rest, as insertion policies for processor caches do (Qureshi et al., *Adaptive
//! insertion policies for high performance caching*, 2007). An entry that a process did not use
//! makes room for one for which the process asks a second time, and otherwise for a sixteenth of
//! the bytes that are bypassed: entries of data that changed are removed within some epochs.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use forebay_model::{ContentId, Fault, IdBuilder, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of the sum at the end of an entry.
const CHECKSUM_BYTES: usize = 8;

/// Staged files older than this were left by a process that ended during a write.
const STALE_WRITE_AGE: Duration = Duration::from_secs(3600);

/// Bytes of the numbers in [`SIZE_FILE`] at most.
const SIZE_BYTES_MAX: u64 = 64;

/// The file with the [`Totals`], which is also the lock.
const SIZE_FILE: &str = "sizes";

/// Of the bytes that do not fit, one in this many may replace bytes that this process did not use,
/// and a process replaces one in this many bytes of the cache so.
const REPLACED_PART: u64 = 16;

/// Entries that did not fit and are remembered at most: 16 bytes each.
const ASKED_ENTRIES_MAX: usize = 1 << 16;

/// A cache in a directory.
#[derive(Debug)]
pub struct DiskCache {
    dir: PathBuf,
    bytes_max: u64,
    /// Entries that were last used before this time may be removed.
    since: SystemTime,
    /// Seeds of the entries that did not fit when this process first asked for them.
    asked: Mutex<HashSet<u64>>,
    /// Bytes that this process replaced for entries for which it asked once.
    replaced: AtomicU64,
    counts: CacheCounters,
}

/// Sums over the entries of all processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Totals {
    /// Bytes of all entries, also of those that are being written.
    bytes: u64,
    /// Bytes of entries that may be replaced for entries for which a process asks once.
    credit_bytes: u64,
}

/// An entry as the directory lists it, in the order in which entries are removed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StoredEntry {
    used: SystemTime,
    bytes: u64,
    path: PathBuf,
}

impl StoredEntry {
    /// True while a process writes it.
    fn is_staged(&self) -> bool {
        self.path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().contains('#'))
    }
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
            asked: Mutex::default(),
            replaced: AtomicU64::new(0),
            counts: CacheCounters::default(),
        };
        cache
            .locked(|sizes| cache.counted(sizes).map(drop))
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
            // A corrupt entry that stays is read from the store again.
            let _ = self.locked(|sizes| self.remove_corrupt(sizes, &path));
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
        mark_used(&file);
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
        let Some(mut file) = self.reserved(entry, &staged, size)? else {
            return Ok(false);
        };
        let content = ranges.concat();
        let sum = xxh3_64_with_seed(&content, entry.seed());
        let written = file
            .write_all(&content)
            .and_then(|()| file.write_all(&sum.to_le_bytes()));
        mark_used(&file);
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
        let totals = self.totals(sizes)?;
        let bytes = totals.bytes.saturating_sub(replaced_size.min(size));
        self.set_totals(sizes, Totals { bytes, ..totals })
    }

    /// Removes an entry that the disk did not keep whole, and what it counted.
    fn remove_corrupt(&self, sizes: &mut File, path: &Path) -> io::Result<()> {
        remove_if_present(path)?;
        self.counted(sizes).map(drop)
    }

    /// A file of `size` bytes that are already reserved; `None` if there is no room.
    fn reserved(&self, entry: &CacheKey, staged: &Path, size: u64) -> io::Result<Option<File>> {
        if size > self.bytes_max {
            return Ok(None);
        }
        self.locked(|sizes| {
            let mut totals = self.totals(sizes)?;
            if totals.bytes.saturating_add(size) > self.bytes_max {
                let is_asked_again = self.is_asked_again(entry);
                totals = self.make_room(sizes, totals, size, is_asked_again)?;
            }
            if totals.bytes.saturating_add(size) > self.bytes_max {
                let credit_bytes = totals.credit_bytes.saturating_add(size / REPLACED_PART);
                totals.credit_bytes = credit_bytes.min(self.bytes_max);
                self.set_totals(sizes, totals)?;
                return Ok(None);
            }
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(staged)?;
            // Extended at once, so that a concurrent count includes its full size.
            file.set_len(size)?;
            totals.bytes += size;
            self.set_totals(sizes, totals)?;
            Ok(Some(file))
        })
    }

    /// True if this process asked for the entry before, and it did not fit. An epoch lies between
    /// the two: an entry that was not used meanwhile is worth less.
    fn is_asked_again(&self, entry: &CacheKey) -> bool {
        let mut seeds = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let seed = entry.seed();
        if seeds.contains(&seed) {
            return true;
        }
        if seeds.len() < ASKED_ENTRIES_MAX {
            seeds.insert(seed);
        }
        false
    }

    /// Removes entries that were not used since this cache was opened, least recently used first,
    /// if they make room for `size` bytes. Entries that were used since are kept.
    fn make_room(
        &self,
        sizes: &mut File,
        totals: Totals,
        size: u64,
        is_asked_again: bool,
    ) -> io::Result<Totals> {
        let allowed_bytes = self.replaceable_bytes(totals, is_asked_again);
        let needed_bytes = totals
            .bytes
            .saturating_add(size)
            .saturating_sub(self.bytes_max);
        // A list of the directory costs more than most entries are worth.
        if needed_bytes > allowed_bytes {
            return Ok(totals);
        }
        let mut totals = self.counted(sizes)?;
        let needed_bytes = totals
            .bytes
            .saturating_add(size)
            .saturating_sub(self.bytes_max);
        let mut unused = self.entries()?;
        unused.retain(|entry| entry.used < self.since && !entry.is_staged());
        unused.sort_unstable();
        let mut freed_bytes = 0;
        let mut victim_count = 0;
        for entry in &unused {
            if freed_bytes >= needed_bytes {
                break;
            }
            freed_bytes += entry.bytes;
            victim_count += 1;
        }
        // Nothing goes for what does not fit anyway.
        if freed_bytes < needed_bytes || freed_bytes > allowed_bytes {
            return Ok(totals);
        }
        for victim in &unused[..victim_count] {
            remove_if_present(&victim.path)?;
            totals.bytes = totals.bytes.saturating_sub(victim.bytes);
        }
        if !is_asked_again {
            totals.credit_bytes = totals.credit_bytes.saturating_sub(freed_bytes);
            self.replaced.fetch_add(freed_bytes, Ordering::Relaxed);
        }
        self.set_totals(sizes, totals)?;
        Ok(totals)
    }

    /// Bytes of entries that this process did not use and may replace at once.
    fn replaceable_bytes(&self, totals: Totals, is_asked_again: bool) -> u64 {
        if is_asked_again {
            return u64::MAX;
        }
        // A process may always replace one entry: a small cache has few.
        match self.replaced.load(Ordering::Relaxed) {
            0 => totals.credit_bytes,
            replaced => {
                let share = self.bytes_max / REPLACED_PART;
                totals.credit_bytes.min(share.saturating_sub(replaced))
            }
        }
    }

    /// Sums the sizes of all entries, and removes stale staged files of processes that ended during
    /// a write.
    fn counted(&self, sizes: &mut File) -> io::Result<Totals> {
        let mut bytes = 0;
        for entry in self.entries()? {
            let is_stale =
                entry.is_staged() && entry.used.elapsed().is_ok_and(|age| age > STALE_WRITE_AGE);
            if is_stale {
                remove_if_present(&entry.path)?;
            } else {
                bytes += entry.bytes;
            }
        }
        let credit_bytes = stored_totals(sizes)?.map_or(0, |totals| totals.credit_bytes);
        let totals = Totals {
            bytes,
            credit_bytes: credit_bytes.min(self.bytes_max),
        };
        self.set_totals(sizes, totals)?;
        Ok(totals)
    }

    fn entries(&self) -> io::Result<Vec<StoredEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            // What vanishes meanwhile was found corrupt.
            if let Ok(meta) = entry.metadata()
                && meta.is_file()
                && entry.file_name() != SIZE_FILE
            {
                entries.push(StoredEntry {
                    used: meta.modified()?,
                    bytes: meta.len(),
                    path: entry.path(),
                });
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

    fn totals(&self, sizes: &mut File) -> io::Result<Totals> {
        match stored_totals(sizes)? {
            Some(totals) => Ok(totals),
            None => self.counted(sizes),
        }
    }

    fn set_totals(&self, sizes: &mut File, totals: Totals) -> io::Result<()> {
        let text = format!("{} {}", totals.bytes, totals.credit_bytes);
        sizes.seek(SeekFrom::Start(0))?;
        sizes.set_len(0)?;
        sizes.write_all(text.as_bytes())
    }
}

/// Totals in [`SIZE_FILE`]; `None` where it holds others.
fn stored_totals(sizes: &mut File) -> io::Result<Option<Totals>> {
    let mut content = Vec::new();
    sizes.seek(SeekFrom::Start(0))?;
    Read::by_ref(sizes)
        .take(SIZE_BYTES_MAX)
        .read_to_end(&mut content)?;
    let text = String::from_utf8_lossy(&content);
    let Some((bytes, credit_bytes)) = text.trim().split_once(' ') else {
        return Ok(None);
    };
    Ok(match (bytes.parse::<u64>(), credit_bytes.parse::<u64>()) {
        (Ok(bytes), Ok(credit_bytes)) => Some(Totals {
            bytes,
            credit_bytes,
        }),
        _ => None,
    })
}

/// Sets the time of the last use, which orders the entries. The time that a write sets by itself
/// may lag behind the clock of this process.
fn mark_used(file: &File) {
    // Without it, the entry is removed earlier.
    let _ = file.set_modified(SystemTime::now());
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
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

    /// Makes all entries older than any cache that is opened next.
    fn age_entries(cache: &DiskCache) {
        for entry in cache.entries().unwrap() {
            let file = File::open(&entry.path).unwrap();
            file.set_modified(entry.used - Duration::from_secs(60))
                .unwrap();
        }
    }

    /// Entries of equal sizes.
    fn equal_entries(etag: &str, count: usize) -> Vec<(CacheKey, Vec<Bytes>)> {
        (0..count)
            .map(|number| entry(&format!("{etag}{number:04}"), ENTRY_BYTES))
            .collect()
    }

    /// Bytes of one of the [`equal_entries`], and on the disk with its checksum.
    const ENTRY_BYTES: u64 = 56;
    const STORED_ENTRY_BYTES: u64 = ENTRY_BYTES + CHECKSUM_BYTES as u64;

    /// Reads all entries once, and counts hits. The order is drawn from a seed.
    fn scan(cache: &DiskCache, entries: &[(CacheKey, Vec<Bytes>)], seed: u64) -> usize {
        let mut order: Vec<usize> = (0..entries.len()).collect();
        if seed > 0 {
            order.sort_by_key(|number| xxh3_64_with_seed(&number.to_le_bytes(), seed));
        }
        let mut hits = 0;
        for number in order {
            let (entry, ranges) = &entries[number];
            match cache.get(entry) {
                Some(found) => {
                    assert_eq!(&found, ranges);
                    hits += 1;
                }
                None => cache.put(entry, ranges),
            }
        }
        hits
    }

    /// Law: of a cache with room for `capacity` of `count` entries, each scan after the first hits
    /// `capacity` of them, less a sixteenth or one; in the same order or another, in one process or
    /// in one process for each scan.
    #[test]
    fn scans_of_more_data_than_fits_hit_what_fits() {
        let sizes: [(usize, usize); 6] = [(3, 1), (3, 2), (16, 8), (64, 4), (40, 32), (9, 9)];
        for (count, capacity) in sizes {
            let entries = equal_entries("a", count);
            for seeds in [[0, 0, 0, 0], [1, 2, 3, 4], [5, 6, 5, 6]] {
                for scans_of_a_process in [1, 4] {
                    let dir = tempfile::tempdir().unwrap();
                    let bytes_max = capacity as u64 * STORED_ENTRY_BYTES;
                    let mut cache = DiskCache::open(dir.path(), bytes_max).unwrap();
                    for (number, seed) in seeds.into_iter().enumerate() {
                        if number % scans_of_a_process == 0 {
                            age_entries(&cache);
                            cache = DiskCache::open(dir.path(), bytes_max).unwrap();
                        }
                        let hits = scan(&cache, &entries, seed);
                        let fewest = capacity - (capacity / 16).max(1);
                        let scanned = format!("scan {number} of {count} entries, {seeds:?}");
                        assert!(number == 0 || hits >= fewest, "{hits} hits, {scanned}");
                        assert!(stored_bytes(dir.path()) <= bytes_max, "{scanned}");
                    }
                }
            }
        }
    }

    #[test]
    fn entries_of_changed_data_make_room_at_last() {
        const CAPACITY: usize = 4;
        let bytes_max = CAPACITY as u64 * STORED_ENTRY_BYTES;
        let changed = equal_entries("b", CAPACITY);
        let full = || {
            let dir = tempfile::tempdir().unwrap();
            let cache = DiskCache::open(dir.path(), bytes_max).unwrap();
            scan(&cache, &equal_entries("a", CAPACITY), 0);
            age_entries(&cache);
            dir
        };
        // A process of several epochs finds that the old entries are not used.
        let dir = full();
        let cache = DiskCache::open(dir.path(), bytes_max).unwrap();
        let hits: Vec<usize> = (0..3).map(|seed| scan(&cache, &changed, seed)).collect();
        assert_eq!(hits, [0, 0, CAPACITY]);
        // Processes of one epoch each replace the old entries one by one.
        let dir = full();
        let mut last_hits = 0;
        for seed in 0..64 {
            let cache = DiskCache::open(dir.path(), bytes_max).unwrap();
            last_hits = scan(&cache, &changed, seed);
            assert!(stored_bytes(dir.path()) <= bytes_max);
            age_entries(&cache);
        }
        assert_eq!(last_hits, CAPACITY);
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
        // To a later feed, entries that it does not use are old.
        age_entries(&cache);
        let later = DiskCache::open(dir.path(), 1000).unwrap();
        assert!(later.get(&entry("22", 400).0).is_some());
        let (third, bytes) = entry("333", 400);
        later.put(&third, &bytes);
        assert!(
            later.get(&third).is_none(),
            "it may never be asked for again"
        );
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
        let mut sizes = File::open(dir.path().join(SIZE_FILE)).unwrap();
        let totals = stored_totals(&mut sizes).unwrap().unwrap();
        assert_eq!(totals.bytes, stored_bytes(dir.path()));
    }
}
