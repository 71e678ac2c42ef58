//! `cargo xtask tidy --report`: the figures as a table.

use super::House;
use super::circles;
use super::figures::{Figures, per_thousand};

pub fn print(house: &House) {
    let by_package = house.figures();
    let mut total = Figures::default();
    for figures in by_package.values() {
        total.merge(figures);
    }
    anstream::println!(
        "| package | files | lines | tests a line | tokens a line | closures / 1,000 | tuple lets / 1,000 \
         | bool matches / 1,000 | long lines % | comments % | docs % | vague bindings % \
         | vague docs % | functions p99 | files in the largest circle |"
    );
    anstream::println!("|{}", "---|".repeat(15));
    for (folder, figures) in &by_package {
        if figures.files > 0 {
            let circle = circles::largest(&house.files[folder]);
            anstream::println!("{}", row(folder, figures, circle));
        }
    }
    let largest = house
        .files
        .values()
        .map(|files| circles::largest(files))
        .max();
    anstream::println!("{}", row("all", &total, largest.unwrap_or(0)));
}

fn row(name: &str, figures: &Figures, circle: usize) -> String {
    let code_lines = figures.code_lines;
    let tokens = figures.tokens as f64 / code_lines.max(1) as f64;
    let tests = figures.test_lines as f64 / figures.lines.max(1) as f64;
    let closures = per_thousand(figures.closures, code_lines);
    let tuple_lets = per_thousand(figures.breaches_of("tuple_lets"), code_lines);
    let bool_matches = per_thousand(figures.breaches_of("bool_matches"), code_lines);
    let long_lines = per_thousand(figures.breaches_of("long_lines"), code_lines) / 10.0;
    let comments = per_thousand(figures.comment_lines, figures.lines) / 10.0;
    let docs = per_thousand(figures.doc_lines, figures.lines) / 10.0;
    let bindings = per_thousand(figures.breaches_of("word_bindings"), figures.bindings) / 10.0;
    let beginnings = per_thousand(figures.breaches_of("doc_beginnings"), figures.docs) / 10.0;
    let files = figures.files;
    let lines = figures.lines;
    let longest = figures.function_percentile(99);
    format!(
        "| {name} | {files} | {lines} | {tests:.2} | {tokens:.1} | {closures:.0} | {tuple_lets:.2} \
         | {bool_matches:.2} | {long_lines:.1} | {comments:.1} | {docs:.1} | {bindings:.1} \
         | {beginnings:.1} | {longest} | {circle} |"
    )
}
