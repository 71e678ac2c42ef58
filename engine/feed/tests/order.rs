//! Every order delivers every row once an epoch, and the same row at the same place.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Only tests are here.

mod common;

use common::cases;
use forebay_feed::*;
use forebay_model::ContentId;
use proptest::prelude::*;

/// Rows that stay together until a slice is shuffled.
const RUN_ROWS: usize = 16;

fn dataset(rows: &[u64]) -> BlockDataset {
    let blocks: Vec<DatasetBlock> = rows
        .iter()
        .map(|&rows| DatasetBlock {
            rows,
            ..DatasetBlock::default()
        })
        .collect();
    BlockDataset::new(ContentId::of(b"data"), blocks)
}

fn even(blocks: usize, rows: u64) -> BlockDataset {
    dataset(&vec![rows; blocks])
}

fn quality(sequence: &RowSequence) -> ShuffleQuality {
    let mut meter = QualityMeter::default();
    let rows = sequence.epoch_rows();
    for start in (0..rows).step_by(1 << 16) {
        sequence
            .rows(start..rows.min(start + (1 << 16)))
            .iter()
            .for_each(|row| meter.push(row.row));
    }
    meter.finish(rows).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_epoch_is_a_permutation(
        blocks in prop::collection::vec(0..60_u64, 1..40), window in 1..700_u64, seed: u64, epoch in 0..3_u64,
    ) {
        let data = dataset(&blocks);
        let rows = data.rows();
        for order in [SampleOrder::shuffled(seed, window), SampleOrder::sequential()] {
            let sequence = order.bind(vec![data.clone()]).unwrap();
            let mut seen: Vec<u64> = sequence.rows(epoch * rows..(epoch + 1) * rows).iter().map(|row| row.row).collect();
            if order == SampleOrder::sequential() {
                prop_assert!(seen.is_sorted());
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..rows).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_place_has_one_row(
        blocks in prop::collection::vec(1..50_u64, 1..30), window in 1..400_u64, from in 0..100_u64, to in 0..100_u64,
    ) {
        let data = dataset(&blocks);
        let places = from * 2 * data.rows() / 100..to.max(from) * 2 * data.rows() / 100;
        let all = SampleOrder::shuffled(7, window).bind(vec![data.clone()]).unwrap().rows(0..2 * data.rows());
        let some = SampleOrder::shuffled(7, window).bind(vec![data]).unwrap().rows(places.clone());
        prop_assert_eq!(&all[places.start as usize..places.end as usize], some);
    }

    /// What the driver holds stays within the window: the rows of read units that are not delivered.
    #[test]
    fn a_window_is_bounded(blocks in prop::collection::vec(1..60_u64, 1..60), window in 1..900_u64) {
        let data = dataset(&blocks);
        let epoch = SampleOrder::shuffled(7, window).bind(vec![data.clone()]).unwrap().epoch(0, 0);
        let widest = (0..epoch.units()).map(|unit| epoch.rows_of(unit)).max().unwrap();
        let (mut read, mut delivered) = (0, 0);
        for chunk in 0..epoch.chunks() {
            let units = epoch.units_for(chunk);
            read = read.max((0..units.end).map(|unit| epoch.rows_of(unit)).sum());
            prop_assert!(read - delivered <= window + widest + u64::from(epoch.span()), "{} rows", read - delivered);
            delivered += epoch.chunk(chunk).rows();
            for part in epoch.chunk(chunk).parts {
                prop_assert_eq!(epoch.part_rows(part.unit, part.tick), part.rows);
                prop_assert_eq!(epoch.chunk_of(part.unit, part.tick), chunk);
            }
        }
        prop_assert_eq!(delivered, data.rows());
    }

    /// The rows of a part, as the driver deals them, are those that the order tells.
    #[test]
    fn interleaved_rows_follow_the_order(blocks in prop::collection::vec(1..60_u64, 1..30), window in 1..900_u64) {
        let data = dataset(&blocks);
        let epoch = SampleOrder::shuffled(3, window).bind(vec![data.clone()]).unwrap().epoch(0, 1);
        let mut ticks = Vec::new();
        for unit in 0..epoch.units() {
            let source: Vec<_> =
                epoch.blocks_of(unit).iter().flat_map(|&block| (0..data.block_rows(block)).map(move |row| (block, row))).collect();
            epoch.interleave_runs(unit, &mut ticks);
            let mut parts: Vec<ChunkPart> = (0..epoch.span()).map(|tick| ChunkPart { unit, tick, rows: 0 }).collect();
            for (run, &tick) in source.chunks(RUN_ROWS).zip(&ticks) {
                let part = &mut parts[tick as usize];
                let number = part.rows / RUN_ROWS as u64;
                for (row, expected) in (0..).zip(run) {
                    prop_assert_eq!(epoch.source(&data, *part, number, row), *expected);
                }
                part.rows += run.len() as u64;
            }
            parts.iter().for_each(|part| assert_eq!(part.rows, epoch.part_rows(unit, part.tick)));
        }
    }

    #[test]
    fn mixtures_keep_their_shares(weights in prop::collection::vec(1..6_u32, 2..5), seed: u64) {
        let datasets: Vec<BlockDataset> = weights.iter().enumerate().map(|(i, _)| even(3 + i, 20)).collect();
        let order = SampleOrder { seed, mode: OrderMode::Shuffled { window_rows: 50 }, mix: Some(DatasetMixture { weights: weights.clone(), epoch_rows: None }) };
        let sequence = order.bind(datasets.clone()).unwrap();
        let rows = sequence.rows(0..sequence.epoch_rows());
        for (number, dataset) in datasets.iter().enumerate() {
            let own: Vec<u64> = rows.iter().filter(|row| row.dataset == number as u32).map(|row| row.row).collect();
            let all: u32 = weights.iter().sum();
            prop_assert_eq!(own.len() as u64 * u64::from(all), sequence.epoch_rows() * u64::from(weights[number]));
            let mut once = vec![0_u64; dataset.rows() as usize];
            own.iter().for_each(|&row| once[row as usize] += 1);
            let least = own.len() as u64 / dataset.rows();
            prop_assert!(least >= 1);
            prop_assert!(once.iter().all(|&times| times == least || times == least + 1 || times + 1 == least));
        }
        for (place, row) in rows.iter().enumerate() {
            let (dataset, own) = sequence.turn(place as u64);
            prop_assert_eq!(dataset, row.dataset);
            prop_assert!(sequence.turns_of(dataset, place as u64..place as u64 + 1).contains(&own));
        }
    }
}

#[test]
fn quality_tells_shuffles_apart() {
    let score = |order: SampleOrder| quality(&order.bind(vec![even(200, 1000)]).unwrap()).score;
    assert!(score(SampleOrder::sequential()) < 0.001);
    assert!(score(SampleOrder::shuffled(1, 200_000)) > 0.99); // The whole dataset.
    assert!(score(SampleOrder::shuffled(1, 1)) < 0.1); // Blocks permuted, nothing mixed.
    let quarter = score(SampleOrder::shuffled(1, 10_000));
    assert!((0.9..0.99).contains(&quarter), "{quarter}");
}

/// A sixteenth of 20 M rows in row groups of 65,536 and a window of 2.4 M rows, to save time; blocks and
/// window have the same proportions, which are what quality depends on.
#[test]
fn quality_of_a_sensible_window_is_that_of_a_permutation() {
    let sequence = SampleOrder::shuffled(5, 150_000)
        .bind(vec![even(306, 4096)])
        .unwrap();
    let quality = quality(&sequence);
    assert!(quality.score >= 0.98, "{quality:?}");
}

#[test]
fn epochs_and_seeds_differ() {
    let sequence = |seed| {
        SampleOrder::shuffled(seed, 300)
            .bind(vec![even(20, 50)])
            .unwrap()
    };
    let all = sequence(1).rows(0..2000);
    let same = |a: &[RowId], b: &[RowId]| a.iter().zip(b).filter(|(a, b)| a == b).count();
    assert!(same(&all[..1000], &all[1000..]) < 20);
    assert!(same(&all[..1000], &sequence(2).rows(0..1000)) < 20);
}

#[test]
fn time_orders_blocks_and_refuses_overlaps() {
    let blocks = |times: &[(i64, i64)]| {
        let blocks: Vec<DatasetBlock> = times
            .iter()
            .map(|&time| DatasetBlock {
                rows: 2,
                time: Some(time),
                ..DatasetBlock::default()
            })
            .collect();
        BlockDataset::new(ContentId::of(b"time"), blocks)
    };
    let sequence = SampleOrder::by_time()
        .bind(vec![blocks(&[(20, 29), (0, 9), (9, 19)])])
        .unwrap();
    let rows: Vec<u64> = sequence.rows(0..6).iter().map(|row| row.row).collect();
    assert_eq!(rows, [2, 3, 4, 5, 0, 1]);
    let fault = SampleOrder::by_time()
        .bind(vec![blocks(&[(0, 9), (5, 19)])])
        .unwrap_err();
    assert!(
        fault
            .to_string()
            .contains("blocks 0 and 1 overlap in time: 5 to 9"),
        "{fault}"
    );
}

/// The order is part of every cursor: it must never change by accident.
#[test]
fn sample_order_is_stable() {
    let sequence = SampleOrder::shuffled(42, 40)
        .bind(vec![even(10, 10)])
        .unwrap();
    let rows: Vec<u64> = sequence.rows(100..110).iter().map(|row| row.row).collect();
    assert_eq!(rows, [78, 38, 72, 32, 70, 76, 74, 39, 30, 75]);
}
