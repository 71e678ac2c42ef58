//! Cursors: small, versioned, and of one dataset.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Only tests are here.

use forebay_feed::*;
use forebay_model::{ContentId, codes};

fn sequence(name: &str, datasets: usize, seed: u64) -> RowSequence {
    let blocks = [
        DatasetBlock {
            rows: 10,
            ..DatasetBlock::default()
        },
        DatasetBlock {
            rows: 7,
            ..DatasetBlock::default()
        },
    ];
    let datasets = vec![BlockDataset::new(ContentId::of(name.as_bytes()), blocks); datasets];
    let mix = (datasets.len() > 1).then(|| DatasetMixture {
        weights: vec![4_000_000_000; datasets.len()],
        epoch_rows: Some(u64::MAX >> 20),
    });
    SampleOrder {
        seed,
        mode: OrderMode::Shuffled {
            window_rows: u64::MAX >> 2,
        },
        mix,
    }
    .bind(datasets)
    .unwrap()
}

#[test]
fn the_largest_cursor_fits() {
    let cursor = FeedCursor::start(&sequence("a", 256, u64::MAX)).at(u64::MAX, u64::MAX);
    let bytes = cursor.encode().unwrap();
    assert!(bytes.len() <= CURSOR_BYTES_MAX, "{} bytes", bytes.len());
    assert_eq!(FeedCursor::decode(&bytes).unwrap(), cursor);
}

#[test]
fn other_data_and_orders_are_refused() {
    let ours = sequence("ours", 1, 1);
    let cursor = FeedCursor::start(&ours).at(3, 12);
    cursor.check(&ours).unwrap();
    let fault = cursor.check(&sequence("theirs", 1, 1)).unwrap_err();
    assert_eq!(fault.code(), codes::OTHER_DATA);
    assert!(
        fault.message().starts_with("the cursor belongs to dataset"),
        "{fault}"
    );
    assert!(
        cursor
            .check(&sequence("ours", 1, 2))
            .unwrap_err()
            .message()
            .contains("another order")
    );
    assert!(
        cursor
            .at(0, 18)
            .check(&ours)
            .unwrap_err()
            .message()
            .contains("row 18 of an epoch of 17")
    );
}

#[test]
fn other_versions_and_bytes_are_refused() {
    let bytes = FeedCursor::start(&sequence("a", 1, 1)).encode().unwrap();
    let later = String::from_utf8(bytes.clone())
        .unwrap()
        .replace("\"version\":6", "\"version\":7");
    assert_eq!(
        FeedCursor::decode(later.as_bytes()).unwrap_err().code(),
        codes::STATE_VERSION
    );
    for bad in [&bytes[..20], b"", b"{}", &[b' '; 10_000]] {
        assert_eq!(FeedCursor::decode(bad).unwrap_err().code(), codes::CORRUPT);
    }
}

#[test]
fn receipts_add_up_however_they_are_cut() {
    let sequence = sequence("a", 1, 1);
    let receipt = |places: std::ops::Range<u64>| {
        let mut receipt = DeliveryDigest::default();
        places
            .clone()
            .zip(sequence.rows(places))
            .for_each(|(place, row)| receipt.add(place, row));
        receipt
    };
    let mut sum = receipt(9..17);
    sum += receipt(0..9);
    assert_eq!(sum, receipt(0..17));
    assert_ne!(receipt(0..16), receipt(1..17));
    // Two rows that change places.
    let rows = sequence.rows(0..2);
    let mut swapped = DeliveryDigest::default();
    swapped.add(0, rows[1]);
    swapped.add(1, rows[0]);
    assert_ne!(swapped, receipt(0..2));
}
