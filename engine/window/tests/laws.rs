//! The same rows give the same bits, however they are cut, carried over and asked for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Only tests are here.

mod common;

use std::sync::Arc;

use common::random::{any_function, any_gaps, any_rows};
use common::*;
use forebay_window::{Engine, WindowPlan};
use proptest::prelude::*;

/// Pushes rows in pieces; after some of them the engine is written down and read again.
fn in_pieces(
    plan: &Arc<WindowPlan>,
    rows: &[Row],
    emit: &[bool],
    pieces: &[(usize, bool)],
) -> (Vec<arrow::array::ArrayRef>, Vec<u8>) {
    let table = table(rows, true);
    let mut engine = Engine::new(plan.clone());
    let (mut parts, mut start) = (Vec::new(), 0);
    let mut pieces = pieces.iter().cycle();
    while start < rows.len() {
        let &(size, carry) = pieces.next().unwrap();
        let size = size.min(rows.len() - start);
        parts.push(table.slice(start, size).push(&mut engine, emit).unwrap());
        start += size;
        if carry {
            engine = Engine::decode(plan.clone(), &mut &encoded(&engine)[..]).unwrap();
        }
    }
    (joined(&parts), encoded(&engine))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn cuts_carries_and_choices_change_no_bit(
        functions in prop::collection::vec(any_function(), 1..6),
        gaps in any_gaps(),
        rows in any_rows(150),
        pieces in prop::collection::vec((1..60usize, any::<bool>()), 1..8),
        emit in prop::collection::vec(any::<bool>(), 6),
    ) {
        let plan = Arc::new(plan(functions, gaps));
        let all = vec![true; plan.functions.len()];
        let (whole, state) = in_pieces(&plan, &rows, &all, &[(usize::MAX, false)]);
        let (cut, cut_state) = in_pieces(&plan, &rows, &all, &pieces);
        prop_assert_eq!(&whole, &cut);
        prop_assert!(state == cut_state);
        let emit = &emit[..plan.functions.len()];
        let (some, some_state) = in_pieces(&plan, &rows, emit, &pieces);
        let wanted: Vec<_> = whole.iter().zip(emit).filter(|(_, wanted)| **wanted).map(|(output, _)| output.clone()).collect();
        prop_assert_eq!(&wanted, &some);
        prop_assert!(state == some_state);
    }
}
