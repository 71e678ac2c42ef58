//! A feed delivers the rows of its order, for any rank and thread count, and after any resume.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Only tests are here.

mod common;

use std::sync::Arc;

use common::*;
use forebay_feed::*;
use proptest::prelude::*;
use proptest::sample::select;

fn order() -> impl Strategy<Value = SampleOrder> {
    prop_oneof![
        1 => Just(SampleOrder::sequential()),
        3 => (any::<u64>(), 1..400_u64).prop_map(|(seed, window)| SampleOrder::shuffled(seed, window)),
    ]
}

fn blocks() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0..50_u64, 1..20)
}

/// `FOREBAY_CASES=100000 cargo test --workspace --test feed --test order` is the long form.
fn quick(quick: u32) -> ProptestConfig {
    ProptestConfig {
        cases: cases(quick),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(quick(200))]

    #[test]
    fn batches_hold_the_rows_of_the_order(
        blocks in blocks(), order in order(), batch_rows in 1..30_u32, threads in 1..4_usize, slots in 1..5_usize,
        read_ahead in 0..4_u32, world in 1..4_u32, last in select(vec![RemainderPolicy::Drop, RemainderPolicy::Short, RemainderPolicy::Pad, RemainderPolicy::Wrap]),
    ) {
        for rank in 0..world {
            let source = TestBlocks::rows("a", &blocks).source();
            let feed = Feed::start(FeedOptions {
                batch_rows, threads, slots, read_ahead, rank, world, last, epochs: 2, ..config(source, order.clone())
            }).unwrap();
            let sequence = order.bind(vec![TestBlocks::rows("a", &blocks).dataset()]).unwrap();
            let rows = sequence.epoch_rows();
            let law = BatchPlan { rows, batch: batch_rows, world, last };
            let mut batches = 0;
            for batch in feed {
                let batch = batch.unwrap();
                let RankSlice { positions, shape_rows } = law.rank_slice(rank, batch.step());
                let base = batch.epoch() * rows;
                let expected = sequence.rows(base + positions.start..base + positions.end);
                prop_assert_eq!(ids(&batch), expected.iter().map(|row| row.row as i64).collect::<Vec<_>>());
                prop_assert_eq!(batch.shape_rows(), shape_rows as usize);
                let mut receipt = DeliveryDigest::default();
                expected.iter().zip(base + positions.start..).for_each(|(row, place)| receipt.add(place, *row));
                prop_assert_eq!(batch.receipt(), receipt);
                batches += 1;
            }
            prop_assert_eq!(batches, 2 * law.steps());
        }
    }

    #[test]
    fn mixtures_of_datasets(
        first in blocks(), second in blocks(), order in order(), weights in (1..5_u32, 1..5_u32), batch_rows in 1..30_u32,
    ) {
        prop_assume!(first.iter().sum::<u64>() > 0 && second.iter().sum::<u64>() > 0);
        let sources = || [("a", &first), ("b", &second)].map(|(name, rows)| TestBlocks::rows(name, rows));
        let order = SampleOrder { mix: Some(DatasetMixture { weights: vec![weights.0, weights.1], epoch_rows: None }), ..order };
        let sequence = order.bind(sources().map(|source| source.dataset()).to_vec()).unwrap();
        let sources = sources().map(|source| Arc::new(source) as Arc<dyn BlockSource>).to_vec();
        let feed = Feed::start(FeedOptions { batch_rows, last: RemainderPolicy::Short, epochs: 2, ..config(sources, order) }).unwrap();
        let mut place = 0;
        for batch in feed {
            let expected = sequence.rows(place..place + batch.as_ref().unwrap().rows() as u64);
            prop_assert_eq!(ids(&batch.unwrap()), expected.iter().map(|row| row.row as i64).collect::<Vec<_>>());
            place += expected.len() as u64;
        }
        prop_assert_eq!(place, 2 * sequence.epoch_rows());
    }
}

proptest! {
    #![proptest_config(quick(60))]

    /// Feeds that stop at random points go on in worlds of 1 to 8, with other threads and slots:
    /// the rows of all ranks, put together, are the sequence.
    #[test]
    fn resumed_feeds_deliver_every_row_once_in_place(
        blocks in prop::collection::vec(1..50_u64, 1..20), order in order(),
        lives in prop::collection::vec((1..=8_u32, 1..12_u32, 1..4_usize, 1..4_usize, 1..9_u64), 40),
    ) {
        let sequence = order.bind(vec![TestBlocks::rows("a", &blocks).dataset()]).unwrap();
        let epochs = 2;
        let (mut cursor, mut seen, mut receipt) = (None, Vec::new(), DeliveryDigest::default());
        for (world, batch_rows, threads, slots, steps) in lives {
            let mut places = Vec::new();
            let mut cursors = Vec::new();
            for rank in 0..world {
                let mut feed = Feed::start(FeedOptions {
                    cursor: cursor.clone(), batch_rows, threads, slots, rank, world, epochs, last: RemainderPolicy::Short,
                    ..config(TestBlocks::rows("a", &blocks).source(), order.clone())
                }).unwrap();
                for batch in feed.by_ref().take(steps as usize) {
                    let batch = batch.unwrap();
                    receipt += batch.receipt();
                    places.extend((batch.first_place()..).zip(ids(&batch)));
                }
                // Killed here, with batches on their way; the cursor comes from a checkpoint.
                cursors.push(FeedCursor::decode(&feed.cursor().encode().unwrap()).unwrap());
            }
            prop_assert!(cursors.iter().all(|cursor| *cursor == cursors[0]));
            cursor = cursors.pop();
            places.sort_unstable();
            seen.extend(places);
        }
        let expected = sequence.rows(0..seen.len() as u64);
        let mut whole = DeliveryDigest::default();
        for ((place, id), (at, row)) in seen.iter().zip((0..).zip(&expected)) {
            prop_assert_eq!((*place, *id), (at, row.row as i64));
            whole.add(at, *row);
        }
        prop_assert_eq!(receipt, whole);
    }
}
