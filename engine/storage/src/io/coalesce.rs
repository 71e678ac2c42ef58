//! Plans requests for ranges of an object. Pure.

use std::ops::Range;

/// Default for the gap in bytes up to which ranges share a request: a request takes as long as
/// reading these bytes.
pub const COALESCE_BYTES_DEFAULT: u64 = 1 << 20;

/// Bytes of a request at most: one must not outlast its time-out, and several of them share the memory.
pub const REQUEST_BYTES_MAX: u64 = 8 << 20;

/// A request for a range of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRequest {
    pub range: Range<u64>,
    /// The groups of ranges that it serves.
    pub groups: Range<usize>,
}

/// Requested ranges that are close to each other.
struct RangeRun {
    range: Range<u64>,
    wanted: Vec<WantedRange>,
}

struct WantedRange {
    range: Range<u64>,
    group: usize,
}

/// The requests for groups of ranges, in the order in which the groups are read. Ranges with no more
/// than `gap` bytes between them share requests, also those of different groups; long ones are divided.
pub fn plan_requests(groups: &[Vec<Range<u64>>], gap: u64) -> Vec<PlannedRequest> {
    let mut runs: Vec<RangeRun> = Vec::new();
    for (group, ranges) in groups.iter().enumerate() {
        let mut ranges: Vec<Range<u64>> = ranges
            .iter()
            .filter(|range| !range.is_empty())
            .cloned()
            .collect();
        ranges.sort_unstable_by_key(|range| range.start);
        for range in ranges {
            match runs.last_mut() {
                Some(run)
                    if run.range.start <= range.start && range.start <= run.range.end + gap =>
                {
                    run.range.end = run.range.end.max(range.end);
                    run.wanted.push(WantedRange { range, group });
                }
                _ => runs.push(RangeRun {
                    range: range.clone(),
                    wanted: vec![WantedRange { range, group }],
                }),
            }
        }
    }
    runs.iter().flat_map(divide_run).collect()
}

/// Divides a run into requests of about the same length.
fn divide_run(run: &RangeRun) -> Vec<PlannedRequest> {
    let length = run.range.end - run.range.start;
    let count = length.div_ceil(REQUEST_BYTES_MAX);
    let mut requests = Vec::new();
    for piece in 0..count {
        let start = run.range.start + length * piece / count;
        let end = run.range.start + length * (piece + 1) / count;
        // A piece of nothing but a gap serves no group.
        if let Some(groups) = run.groups_within(start..end) {
            requests.push(PlannedRequest {
                range: start..end,
                groups,
            });
        }
    }
    requests
}

impl RangeRun {
    /// The groups that want bytes of a range, from the first of them to the last.
    fn groups_within(&self, range: Range<u64>) -> Option<Range<usize>> {
        let mut groups: Option<Range<usize>> = None;
        for wanted in &self.wanted {
            if wanted.range.start >= range.end || range.start >= wanted.range.end {
                continue;
            }
            groups = Some(match groups {
                None => wanted.group..wanted.group + 1,
                Some(groups) => groups.start.min(wanted.group)..groups.end.max(wanted.group + 1),
            });
        }
        groups
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "groups of one range")]
mod tests {
    use super::*;

    fn plan(groups: &[&[Range<u64>]]) -> Vec<(Range<u64>, Range<usize>)> {
        let groups: Vec<Vec<Range<u64>>> = groups.iter().map(|group| group.to_vec()).collect();
        plan_requests(&groups, MIB)
            .into_iter()
            .map(|request| (request.range, request.groups))
            .collect()
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn requests_cover_what_is_wanted_in_order() {
        assert_eq!(plan(&[&[0..10, 20..30], &[30..40]]), [(0..40, 0..2)]);
        assert_eq!(
            plan(&[&[20..30, 0..10], &[3 * MIB..4 * MIB]]),
            [(0..30, 0..1), (3 * MIB..4 * MIB, 1..2)]
        );
        // Long runs are divided evenly, and what spans two groups serves both.
        let long = plan(&[&[0..10 * MIB], &[10 * MIB..20 * MIB]]);
        let a = 20 * MIB / 3;
        let b = 40 * MIB / 3;
        assert_eq!(long, [(0..a, 0..1), (a..b, 0..2), (b..20 * MIB, 1..2)]);
        // A later group may lie before an earlier one.
        assert_eq!(
            plan(&[&[9 * MIB..10 * MIB], &[0..1]]),
            [(9 * MIB..10 * MIB, 0..1), (0..1, 1..2)]
        );
        assert_eq!(plan(&[&[], &[5..5]]), []);
    }

    #[test]
    fn every_wanted_byte_is_requested_by_its_group() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let groups: Vec<Vec<Range<u64>>> = (0..random.usize(1..6))
                .map(|_| {
                    let range = |_| {
                        let start = random.u64(0..64 * MIB);
                        start..start + random.u64(0..12 * MIB)
                    };
                    (0..3).map(range).collect()
                })
                .collect();
            let requests = plan_requests(&groups, MIB);
            assert!(
                requests
                    .iter()
                    .all(|request| request.range.end - request.range.start <= REQUEST_BYTES_MAX)
            );
            for (number, group) in groups.iter().enumerate() {
                for range in group {
                    let mut at = range.start;
                    while at < range.end {
                        let serves = |request: &&PlannedRequest| {
                            request.groups.contains(&number) && request.range.contains(&at)
                        };
                        at = requests
                            .iter()
                            .find(serves)
                            .unwrap_or_else(|| panic!("{groups:?} {requests:?}"))
                            .range
                            .end;
                    }
                }
            }
        }
    }
}
