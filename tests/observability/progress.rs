//! What a run tells while it is at work and when it has ended.

use serde_json::Value;

use crate::support::TestDirectory;

const SPEC: &str = "version: 1\nname: week\nsources:\n  demand:\n    parquet: { path: data }\n    time: date\n    keys: \
                    [store_id, item_id]\nsteps:\n  features:\n    from: demand\n    do:\n      - standardize: { \
                    columns: [price] }\nsinks:\n  table: { from: features, parquet: { path: out } }\n";

fn workshop() -> TestDirectory {
    let shop = TestDirectory::new();
    shop.demand("data", 1000);
    shop.write("spec.yaml", SPEC);
    shop
}

/// The bytes that each pass said it would read, and those that it said it had read.
fn bytes_of_passes(events: &str) -> Vec<(u64, u64)> {
    let mut passes: Vec<(u64, u64)> = Vec::new();
    for line in events.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let bytes = event["bytes"].as_u64().unwrap_or(0);
        match event["event"].as_str().unwrap() {
            "pass_started" => passes.push((bytes, 0)),
            "progress" => {
                let number = event["number"].as_u64().unwrap() as usize;
                assert_eq!(number, passes.len(), "{line}");
                passes.last_mut().unwrap().1 += bytes;
            }
            _ => {}
        }
        assert!(
            event["event"] == "summary" || event["time"].as_str().unwrap().ends_with('Z'),
            "{line}"
        );
    }
    passes
}

#[test]
fn progress_counts_the_bytes_of_its_pass_once() {
    let shop = workshop();
    let whole = shop
        .forebay(&["run", "spec.yaml", "--json", "--state=whole"])
        .expect(0);
    let whole = bytes_of_passes(&whole.stdout);
    assert_eq!(whole.len(), 2);
    assert!(
        whole
            .iter()
            .all(|(announced, read)| *read > 0 && read <= announced),
        "{whole:?}"
    );

    // The last file of the interval is read in part, and does not tell how many of its rows that are.
    let mut weeks: Vec<String> = std::fs::read_dir(shop.path("data"))
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .into_string()
                .unwrap()
                .replace("demand-", "")
                .replace(".parquet", "")
        })
        .collect();
    weeks.sort();
    let end: jiff::civil::Date = weeks[3].parse().unwrap();
    let end = end
        .checked_add(jiff::Span::new().days(3))
        .unwrap()
        .to_string();
    shop.write("spec.yaml", &SPEC.replace("path: out", "path: part"));
    let args = [
        "run",
        "spec.yaml",
        "--json",
        "--state=other",
        "--interval",
        &weeks[2],
        &end,
    ];
    let call = shop.forebay(&args).expect(0);
    let week = bytes_of_passes(&call.stdout);
    assert!(
        week.iter()
            .all(|(announced, read)| *read > 0 && read <= announced),
        "{week:?}"
    );
    let costs = &call.summary()["costs"];
    let read: u64 = week.iter().map(|(_, read)| read).sum();
    assert_eq!(costs["bytes_read"].as_u64().unwrap(), read);
    assert!(
        costs["duration_seconds"].as_f64().unwrap() > 0.0
            && costs["peak_memory_bytes"].as_u64().unwrap() > 0
    );
}

#[test]
fn text_files_are_counted_in_bytes() {
    let shop = TestDirectory::new();
    std::fs::create_dir(shop.path("csv")).unwrap();
    std::fs::create_dir(shop.path("json")).unwrap();
    let csv: String = (0..5000)
        .map(|row| format!("{row},{}\n", row % 7))
        .collect();
    let json: String = (0..5000)
        .map(|row| format!("{{\"a\":{row},\"b\":{}}}\n", row % 7))
        .collect();
    for format in ["csv", "json"] {
        for part in ["one", "two"] {
            let text = match format {
                "csv" => format!("a,b\n{csv}"),
                _ => json.clone(),
            };
            shop.write(&format!("{format}/{part}.{format}"), &text);
        }
        let size: u64 = std::fs::read_dir(shop.path(format))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        let spec = format!(
            "version: 1\nname: {format}\nsources: {{ s: {{ {format}: {{ path: {format} }} }} }}\nsteps: {{ f: {{ from: s, do: [ \
             {{ standardize: {{ columns: [a] }} }}, {{ min_max: {{ columns: [b] }} }} ] }} }}\nsinks: {{ t: {{ from: f, parquet: {{ path: \
             out-{format} }} }} }}\n"
        );
        shop.write("text.yaml", &spec);
        let call = shop.forebay(&["run", "text.yaml", "--json"]).expect(0);
        let passes = bytes_of_passes(&call.stdout);
        assert_eq!(passes, [(size, size), (size, size)], "{format}");
    }
}

#[test]
fn without_a_terminal_each_pass_has_a_plain_line() {
    let shop = workshop();
    let call = shop.forebay(&["run", "spec.yaml"]).expect(0);
    let lines: Vec<&str> = call.stderr.lines().collect();
    assert!(
        lines[0].starts_with("pass 1 of 2 (learn 1 statistic): begins, "),
        "{}",
        call.stderr
    );
    assert!(
        lines[1].starts_with("pass 2 of 2 (write table): begins, "),
        "{}",
        call.stderr
    );
    assert!(
        !call.stderr.contains('\u{1b}') && !call.stderr.contains('\r'),
        "{:?}",
        call.stderr
    );
    // The directory that readers use, never one that a later run replaces.
    assert!(
        call.stdout.contains("\n  out\n") && !call.stdout.contains("_data"),
        "{}",
        call.stdout
    );
    assert!(
        call.stdout.lines().last().unwrap().starts_with("took "),
        "{}",
        call.stdout
    );

    let again = shop.forebay(&["run", "spec.yaml", "-v"]).expect(0);
    assert!(
        again.stderr.contains("source `demand`: "),
        "{}",
        again.stderr
    );
    assert!(
        again
            .stderr
            .contains("pass 2 of 2 (write table): done, reused"),
        "{}",
        again.stderr
    );

    let quiet = shop.forebay(&["run", "spec.yaml", "-q"]).expect(0);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
}
