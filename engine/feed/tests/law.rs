//! The batch law over 100,000 cases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Only tests are here.

use forebay_feed::*;

/// Numbers that look random.
struct BatchRng(u64);

impl BatchRng {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

const POLICIES: [RemainderPolicy; 4] = [
    RemainderPolicy::Drop,
    RemainderPolicy::Short,
    RemainderPolicy::Pad,
    RemainderPolicy::Wrap,
];

#[test]
fn steps_are_equal_and_every_row_is_where_the_policy_says() {
    let mut random = BatchRng(11);
    let mut delivered = Vec::new();
    for case in 0..100_000 {
        let batch = 1 + random.below(20) as u32;
        let world = 1 + random.below(8) as u32;
        let law = BatchPlan {
            rows: random.below(300),
            batch,
            world,
            last: POLICIES[case % 4],
        };
        let step_rows = u64::from(batch) * u64::from(world);
        let full = law.rows / step_rows;
        assert!(law.steps() == full || law.steps() == full + 1);
        delivered.clear();
        for step in 0..law.steps() {
            for rank in 0..world {
                let RankSlice {
                    positions,
                    shape_rows,
                } = law.rank_slice(rank, step);
                let rows = positions.end - positions.start;
                delivered.extend(positions);
                assert!(
                    rows <= u64::from(shape_rows) && shape_rows <= batch,
                    "{law:?} step {step}"
                );
                if step < full || law.last == RemainderPolicy::Wrap {
                    assert_eq!(
                        (rows, shape_rows),
                        (u64::from(batch), batch),
                        "{law:?}: short before the last"
                    );
                } else {
                    let least = (law.rows - full * step_rows) / u64::from(world);
                    assert!(rows == least || rows == least + 1, "{law:?}: uneven");
                    assert!(law.last == RemainderPolicy::Short || shape_rows == batch);
                }
            }
            assert_eq!(
                law.consumed(step + 1),
                (delivered.len() as u64).min(law.rows).max(
                    if law.last == RemainderPolicy::Drop && step + 1 == law.steps() {
                        law.rows
                    } else {
                        0
                    }
                )
            );
        }
        let expected = match law.last {
            RemainderPolicy::Drop => full * step_rows,
            RemainderPolicy::Short | RemainderPolicy::Pad => law.rows,
            RemainderPolicy::Wrap => law.rows.div_ceil(step_rows) * step_rows,
        };
        // In order, none lost, none twice.
        assert!(delivered.iter().copied().eq(0..expected), "{law:?}");
    }
}

/// With the order: blocks, windows and resumes at other world sizes; every row exactly once.
#[test]
fn evaluation_delivers_every_row_once_also_when_the_world_changes() {
    let mut random = BatchRng(5);
    for case in 0..1000 {
        let blocks: Vec<DatasetBlock> = (0..1 + random.below(9))
            .map(|_| DatasetBlock {
                rows: random.below(40),
                ..DatasetBlock::default()
            })
            .collect();
        let data = BlockDataset::new(forebay_model::ContentId::of(b"law"), blocks);
        let rows = data.rows();
        let sequence = SampleOrder::shuffled(case, 1 + random.below(200))
            .bind(vec![data])
            .unwrap();
        let mut position = 0;
        let mut seen = vec![0; rows as usize];
        while position < rows {
            let world = 1 + random.below(8) as u32;
            let last = if case % 2 == 0 {
                RemainderPolicy::Short
            } else {
                RemainderPolicy::Pad
            };
            let law = BatchPlan {
                rows: rows - position,
                batch: 1 + random.below(12) as u32,
                world,
                last,
            };
            let steps = 1 + random.below(law.steps());
            for (step, rank) in (0..steps).flat_map(|step| (0..world).map(move |rank| (step, rank)))
            {
                let share = law.rank_slice(rank, step).positions;
                sequence
                    .rows(position + share.start..position + share.end)
                    .iter()
                    .for_each(|row| seen[row.row as usize] += 1);
            }
            position += law.consumed(steps);
        }
        assert!(seen.iter().all(|&times| times == 1));
    }
}

#[test]
fn ranks_outside_the_world_are_refused() {
    let fault = BatchPlan::check(8, 2, 2).unwrap_err();
    assert_eq!(fault.message(), "rank 2 is outside a world of 2");
    assert!(BatchPlan::check(0, 0, 1).is_err());
    assert!(BatchPlan::check(8, 1, 2).is_ok());
}

#[test]
fn an_epoch_without_a_step_is_refused() {
    for last in POLICIES {
        for (rows, batch, world) in [(0, 8, 1), (7, 8, 1), (15, 8, 2), (8, 8, 1), (16, 8, 2)] {
            let plan = BatchPlan {
                rows,
                batch,
                world,
                last,
            };
            let step_rows = u64::from(batch * world);
            let is_empty = rows == 0 || (last == RemainderPolicy::Drop && rows < step_rows);
            assert_eq!(plan.steps() == 0, is_empty, "{plan:?}");
            let Err(fault) = plan.require_steps() else {
                assert!(!is_empty, "{plan:?}");
                continue;
            };
            assert!(is_empty, "{plan:?}");
            assert_eq!(fault.code().name, "FB0204");
            let message = fault.message();
            if rows > 0 {
                assert!(message.contains(&format!("{rows} rows")), "{message}");
            }
            if rows > 0 && world > 1 {
                assert!(message.contains("8 for each of 2 consumers"), "{message}");
            }
        }
    }
}
