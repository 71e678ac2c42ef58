//! Pages to look at: one file each that needs nothing else.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::forecasts::quantiles::{date, numbers, series_days, values_by_day};
use crate::support::TestDirectory;

const SPEC: &str = r#"
version: 1
name: pages
sources:
  demand: { parquet: { path: data }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    do:
      - expect: [{ sql: "qty < 1000 AND '<b>' = '<b>'" }, { rows: { min: 1000000 }, policy: warn }]
      - standardize: { columns: [price] }
sinks: { out: { from: features, parquet: { path: out } } }
"#;

/// The text of a page, after a look at what it may not hold.
fn page(shop: &TestDirectory, name: &str) -> String {
    let text = std::fs::read_to_string(shop.path(name)).unwrap();
    let own = text.replace("http://www.w3.org/", "");
    // A script is in the page itself.
    for outside in [
        "http://", "https://", "<script ", "<link", "@import", "src=",
    ] {
        assert!(!own.contains(outside), "{name} holds {outside}");
    }
    for (open, close) in [
        ("<section", "</section>"),
        ("<table", "</table>"),
        ("<svg", "</svg>"),
        ("<div", "</div>"),
    ] {
        assert_eq!(
            text.matches(open).count(),
            text.matches(close).count(),
            "{open} in {name}"
        );
    }
    // Each link of the head leads to a section.
    for link in text
        .split("<a href=\"#")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
    {
        assert!(
            text.contains(&format!("<section id=\"{link}\"")),
            "{name} has no section {link}"
        );
    }
    text
}

#[test]
fn the_page_of_a_run_tells_what_it_did() {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    shop.write("spec.yaml", SPEC);
    shop.forebay(&["run", "spec.yaml", "--report=run.html"])
        .expect(0);
    let text = page(&shop, "run.html");
    let rows = shop.visible("out").num_rows();
    for part in [
        "<h1>pages</h1>",
        "learn",
        "demand.price",
        "does not hold",
        "rows: at least 1000000",
        "(parquet)",
        "role=\"img\"",
        "resident memory, MiB",
        // Tiles at its head.
        "At a glance",
        "<p class=\"muted\">Rows</p>",
        "<p class=\"value bad\">1 failed</p>",
        "of 2 rules",
        &forebay::present::units::grouped(rows as u64),
    ] {
        assert!(text.contains(part), "no `{part}` in the page");
    }
    assert!(
        text.contains("&lt;b&gt;") && !text.contains("<b>"),
        "texts of the spec are escaped"
    );
    // With those before it, where there are some.
    assert!(!text.contains("Cost of the last runs"));
    shop.write(
        "spec.yaml",
        &SPEC.replace(
            "- standardize",
            "- derive: { half: \"qty / 2\" }\n      - standardize",
        ),
    );
    shop.forebay(&["run", "spec.yaml", "--report=again.html"])
        .expect(0);
    let again = page(&shop, "again.html");
    assert!(
        again.contains("Cost of the last runs") && again.contains("longest pass"),
        "{again}"
    );
    assert!(
        again.contains("By the last 2, the next run takes about"),
        "{again}"
    );
    assert!(!again.contains("aria-label=\"Workers\""));
    // With what workers did, where there are some.
    shop.forebay(&[
        "run",
        "spec.yaml",
        "--report=again.html",
        "--local-workers=2",
        "--state=workers",
    ])
    .expect(0);
    let again = page(&shop, "again.html");
    let (_, table) = again.split_once("aria-label=\"Workers\"").unwrap();
    let rows: Vec<&str> = table
        .split("</table>")
        .next()
        .unwrap()
        .split("<td>127.0.0.1:")
        .skip(1)
        .collect();
    assert_eq!(rows.len(), 2, "{table}");
    let cells = |row: &str| -> Vec<u64> {
        let cells = row
            .split("<td class=\"number\">")
            .skip(1)
            .map(|cell| cell.split('<').next().unwrap());
        cells
            .map(|cell| cell.replace(',', "").parse().unwrap_or_default())
            .collect()
    };
    // Slots, memory, tasks, tasks that were not done, rows.
    let (tasks, read) = rows
        .iter()
        .map(|row| cells(row))
        .fold((0, 0), |sum, row| (sum.0 + row[2], sum.1 + row[4]));
    assert!(
        tasks >= 1 && read >= shop.visible("out").num_rows() as u64,
        "{table}"
    );
    assert!(again.contains("<body class=\"done\">"), "{again}");
    // Missing directories of a page are made, as those of outputs are.
    shop.forebay(&["run", "spec.yaml", "--report=pages/2016/run.html"])
        .expect(0);
    assert!(page(&shop, "pages/2016/run.html").contains("<body class=\"done\">"));
    // A page that cannot be written: nothing is done.
    shop.remove_output("out");
    let call = shop.forebay(&["run", "spec.yaml", "--report=spec.yaml/run.html"]);
    assert!(
        call.code != 0 && call.stderr.contains("spec.yaml/run.html"),
        "{}",
        call.stderr
    );
    assert!(!shop.path("out").exists());
}

/// Where a page is, nothing else is left of writing it.
fn assert_no_other_page(shop: &TestDirectory) {
    let names = std::fs::read_dir(shop.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names
        .filter(|name| name.to_string_lossy().contains(".writing"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_page_of_a_run_that_failed_tells_why_and_how_far_it_came() {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    shop.write("spec.yaml", SPEC);
    shop.forebay(&["run", "spec.yaml", "--report=run.html"])
        .expect(0);
    assert!(page(&shop, "run.html").contains("<body class=\"done\">"));
    // In place of that of the run before, whatever is seen of the failure elsewhere.
    shop.write(
        "spec.yaml",
        &SPEC.replace("{ sql:", "{ range: { qty: [0, 2] } }, { sql:"),
    );
    for more in [&["--json"][..], &["--quiet"], &["--local-workers=1"]] {
        let call = shop
            .forebay(&[&["run", "spec.yaml", "--report=run.html"][..], more].concat())
            .expect(65);
        assert!(call.stderr.contains("FB0216"), "{}", call.stderr);
        let text = page(&shop, "run.html");
        for part in [
            "<body class=\"failed\">",
            "<h1>pages: failed</h1>",
            "<title>pages: failed</title>",
            "failed after",
            "FB0216: `range: qty` does not hold in step features.expect",
            "nothing was published; correct the data",
            "data&#x2f;demand-",
            "spec.yaml, line 10, column 9 (steps.features.do[0].expect)",
            "the first rows that violate it",
            "<td class=\"good\">holds</td>",
            "rows: at least 1000000",
            "<td>write out</td>",
            "The run failed after pass 2 of 2.",
            "what failed: features.expect",
        ] {
            assert!(text.contains(part), "no `{part}` in the page of {more:?}");
        }
        assert!(
            !text.contains("complete") && !text.contains("<h2 id=\"outputs-title\">"),
            "{more:?}"
        );
        assert_eq!(
            text.matches("fill=\"#ffb6c1").count(),
            1,
            "one step is marked"
        );
        assert_no_other_page(&shop);
    }
}

#[test]
fn the_page_of_a_pass_that_failed_shows_it_as_such() {
    let shop = TestDirectory::new();
    std::fs::create_dir(shop.path("data")).unwrap();
    let rows: String = (0..3_000)
        .map(|row| format!("{row},{}.5\n", row % 7))
        .collect();
    shop.write("data/1.csv", &format!("id,price\n{rows}"));
    shop.write("data/2.csv", &format!("id,price\n{rows}3000,dear\n"));
    shop.write(
        "spec.yaml",
        "version: 1\nname: torn\nsources:\n  rows: { csv: { path: data, columns: { id: int64, price: float64 } } }\nsteps:\n  \
         scaled: { from: rows, do: [standardize: { columns: [price] }] }\nsinks: { out: { from: scaled, parquet: { path: \
         out } } }\n",
    );
    shop.forebay(&["run", "spec.yaml", "--report=run.html"])
        .expect(65);
    let text = page(&shop, "run.html");
    for part in [
        "<h1>torn: failed</h1>",
        "did not end",
        "The run failed in pass 1 of 2.",
        "data&#x2f;2.csv",
        "<td>rows</td>",
    ] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    assert!(text.contains("what failed: rows\""), "{text}");
    assert_eq!(text.matches("fill=\"#ffb6c1").count(), 1);
}

#[test]
fn whatever_fails_before_a_run_has_its_page_too() {
    let shop = TestDirectory::new();
    shop.demand("data", 500);
    shop.write("spec.yaml", SPEC);
    let broken = shop.write("broken.yaml", &SPEC.replace("standardize", "standardise"));
    let gone = shop.write("gone.yaml", &SPEC.replace("path: data", "path: nothing"));
    let commands: [(&[&str], i32, &[&str]); 7] = [
        (
            &["run", "missing.yaml"],
            65,
            &["missing.yaml: failed", "FB0", "No pass has begun."],
        ),
        (
            &["run", &broken],
            78,
            &[
                "FB0105",
                "did you mean `standardize`?",
                "steps.features.do[1]",
            ],
        ),
        (
            &["run", &gone],
            65,
            &["pages: failed", "FB0201", "what failed: demand\""],
        ),
        (
            &["run", "spec.yaml", "--batch-rows=0"],
            64,
            &["FB0111", "--batch-rows"],
        ),
        (
            &["profile", "nothing", "--json"],
            65,
            &["nothing: failed", "FB0201"],
        ),
        (
            &["profile", "spec.yaml", "no_step"],
            78,
            &["spec.yaml: failed", "there is no step or source `no_step`"],
        ),
        (
            &["backtest", "spec.yaml"],
            78,
            &["spec.yaml: failed", "FB0"],
        ),
    ];
    for (words, code, parts) in commands {
        shop.write("page.html", "<body class=\"done\">");
        shop.forebay(&[words, &["--report=page.html"]].concat())
            .expect(code);
        let text = page(&shop, "page.html");
        for part in [&["<body class=\"failed\">", "What failed"], parts].concat() {
            assert!(text.contains(part), "{words:?}: no `{part}` in {text}");
        }
        assert_no_other_page(&shop);
    }
}

#[test]
fn the_page_of_a_run_that_was_killed_shows_no_success() {
    let shop = TestDirectory::new();
    shop.demand("data", 500);
    shop.write("spec.yaml", SPEC);
    shop.forebay(&["run", "spec.yaml", "--report=run.html"])
        .expect(0);
    shop.write(
        "spec.yaml",
        &SPEC.replace(
            "path: data }",
            "path: data }, ready: { marker: done, timeout: 10m }",
        ),
    );
    let mut command = shop.command(&["run", "spec.yaml", "--json", "--report=run.html"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let waits = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .next()
        .unwrap()
        .unwrap();
    assert!(waits.contains("\"event\":\"waiting\""), "{waits}");
    child.kill().unwrap();
    child.wait().unwrap();
    let text = page(&shop, "run.html");
    assert!(
        text.contains("<body class=\"running\">") && text.contains("spec.yaml: not ended"),
        "{text}"
    );
}

#[test]
fn columns_stand_in_one_table_with_all_that_is_known_of_them() {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    shop.write("spec.yaml", SPEC);
    shop.forebay(&["run", "spec.yaml", "--report=page.html"])
        .expect(0);
    let text = page(&shop, "page.html");
    assert!(!text.contains("<section id=\"columns\""));
    // The graph lights up along its edges, by the numbers of their ends.
    assert_eq!(text.matches("<script>").count(), 1);
    let nodes = text.matches("class=\"node\" data-node=").count();
    let edges = text.matches("class=\"edge\" data-from=").count();
    // Columns of outputs light up boxes of these names.
    assert!(text.contains("data-name=\"sink out\"") && text.contains("data-sink=\"sink out\""));
    assert!(
        nodes > 2 && edges + 1 >= nodes,
        "{nodes} nodes, {edges} edges"
    );
    shop.write(
        "spec.yaml",
        &SPEC.replace("do:\n", "do:\n      - profile: {}\n"),
    );
    shop.forebay(&["run", "spec.yaml", "--report=page.html"])
        .expect(0);
    let text = page(&shop, "page.html");
    let (_, section) = text.split_once("<section id=\"columns\"").unwrap();
    let section = section.split("</section>").next().unwrap();
    let columns = shop.visible("out").num_columns();
    assert_eq!(section.matches("<tr>").count(), 1 + columns);
    for part in [
        "data-label=\"column\" data-sink=\"sink out\" \
         data-origins=\"[[&quot;demand&quot;,&quot;price&quot;]]\">price</td>",
        "<svg class=\"spark\"",
        "data-label=\"nulls\" data-sort=\"0.0",
        " %</td>",
    ] {
        assert!(section.contains(part), "no `{part}` in {section}");
    }
    assert_eq!(text.matches("<script>").count(), 1);
}

#[test]
fn a_page_tells_what_runs_have_left() {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    shop.write(
        "spec.yaml",
        &SPEC.replace("do:\n", "do:\n      - profile: {}\n"),
    );
    shop.forebay(&["report", "spec.yaml", "page.html"])
        .expect(0);
    let text = page(&shop, "page.html");
    assert!(
        text.contains("nothing is published") && !text.contains("profiles-title"),
        "{text}"
    );
    shop.forebay(&["run", "spec.yaml"]).expect(0);
    shop.forebay(&["report", "spec.yaml", "page.html"])
        .expect(0);
    let text = page(&shop, "page.html");
    let rows = forebay::present::units::grouped(shop.visible("out").num_rows() as u64);
    for part in [
        "<h1>pages</h1>",
        "as its runs have left it",
        &format!("<td class=\"number\">{rows}</td>"),
        "(parquet)",
    ] {
        assert!(text.contains(part), "no `{part}` in the page");
    }
    assert!(text.contains("Histogram of price") && !text.contains("nothing is published"));
    // The spec has changed: what was learned of other steps is not shown.
    shop.write("spec.yaml", SPEC);
    shop.forebay(&["report", "spec.yaml", "page.html"])
        .expect(0);
    assert!(!page(&shop, "page.html").contains("Histogram of"));
    shop.write("spec.yaml", &SPEC.replace("standardize", "standardise"));
    shop.forebay(&["report", "spec.yaml", "page.html"])
        .expect(78);
    assert!(page(&shop, "page.html").contains("<body class=\"failed\">"));
}

#[test]
fn profiles_of_parts_stand_side_by_side() {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    let of_part = |part: &str| {
        format!("  {part}_profile: {{ from: demand, fit_on: {part}, do: [profile: {{}}] }}\n")
    };
    let steps = format!("{}{}sinks:", of_part("train"), of_part("test"));
    let split = "split: { train: \"qty < 1\", test: \"qty >= 1\" }\nsteps:";
    shop.write(
        "spec.yaml",
        &SPEC.replace("steps:", split).replace("sinks:", &steps),
    );
    shop.forebay(&["run", "spec.yaml", "--report=run.html"])
        .expect(0);
    shop.forebay(&["report", "spec.yaml", "kept.html"])
        .expect(0);
    for name in ["run.html", "kept.html"] {
        let text = page(&shop, name);
        let (_, section) = text
            .split_once("<section id=\"profiles\"")
            .unwrap_or_else(|| panic!("{name}: {text}"));
        let section = section.split("</section>").next().unwrap();
        assert!(
            section.contains("demand, train: ") && section.contains("demand, test: "),
            "{name}: {section}"
        );
        // For each column a card of each part, next to each other.
        let cards = section
            .split("<h3>")
            .skip(1)
            .filter_map(|card| card.split([' ', '<']).next());
        let cards: Vec<&str> = cards
            .filter(|name| ["train", "test"].contains(name))
            .collect();
        assert!(
            cards.len() >= 10 && cards.chunks(2).all(|pair| pair == ["train", "test"]),
            "{name}: {cards:?}"
        );
    }
}

/// The cards of the section with profiles, by their heads, and the section.
fn profile_cards(shop: &TestDirectory, name: &str) -> (Vec<String>, String) {
    let text = page(shop, name);
    let (_, section) = text
        .split_once("<section id=\"profiles\"")
        .unwrap_or_else(|| panic!("{name}: {text}"));
    let section = section.split("</section>").next().unwrap();
    let cards = section.split("<div class=\"column\"><h3>").skip(1);
    (
        cards
            .map(|card| card.split(" <span").next().unwrap().to_owned())
            .collect(),
        section.to_owned(),
    )
}

#[test]
fn the_profile_of_the_run_before_stands_beside() {
    let shop = TestDirectory::new();
    let day = |name: &str, rows: u32| {
        let rows: String = (0..rows)
            .map(|row| format!("{row},{}\n", row % 7 * rows))
            .collect();
        shop.write(&format!("data/{name}.csv"), &format!("id,price\n{rows}"));
    };
    std::fs::create_dir(shop.path("data")).unwrap();
    day("1", 40);
    let part = |part: &str| {
        format!("  {part}_known: {{ from: rows, fit_on: {part}, do: [profile: {{}}] }}\n")
    };
    let spec = |steps: &str| {
        format!(
            "version: 1\nname: nights\nsources:\n  rows: {{ csv: {{ path: data, columns: {{ id: int64, price: int64 }} }} \
             }}\nsplit: {{ train: \"id % 3 > 0\", test: \"id % 3 = 0\" }}\nsteps:\n{steps}sinks: {{ out: {{ from: rows, \
             parquet: {{ path: out }} }} }}\n"
        )
    };
    let known = "  known: { from: rows, do: [profile: {}] }\n";
    // What each run and the page after it have: the cards, and what the section says.
    let one = ["this run", "run before"];
    let parts = ["train", "train, run before", "test", "test, run before"];
    let nights: [(&str, u32, String, &[&str], &str); 6] = [
        (
            "a first run",
            0,
            spec(known),
            &["id", "price"],
            "rows, all rows: 40 rows",
        ),
        (
            "a second night",
            60,
            spec(known),
            &one,
            "rows, all rows: 100 rows, 40 in the run before",
        ),
        (
            "nothing new",
            0,
            spec(known),
            &one,
            "rows, all rows: 100 rows, 40 in the run before",
        ),
        (
            "another spec",
            0,
            spec(&(part("train") + &part("test"))),
            &["train", "test"],
            "rows, train: 66 rows",
        ),
        (
            "parts",
            30,
            spec(&(part("train") + &part("test"))),
            &parts,
            "rows, test: 44 rows, 34 in the run before",
        ),
        (
            "no profile",
            0,
            spec("  known: { from: rows, do: [filter: \"id > 0\"] }\n"),
            &[],
            "",
        ),
    ];
    for (what, rows, spec, expected, told) in nights {
        shop.write("spec.yaml", &spec);
        if rows > 0 {
            day(&rows.to_string(), rows);
        }
        shop.forebay(&["run", "spec.yaml", "--report=run.html"])
            .expect(0);
        shop.forebay(&["report", "spec.yaml", "kept.html"])
            .expect(0);
        for name in ["run.html", "kept.html"] {
            if expected.is_empty() {
                assert!(
                    !page(&shop, name).contains("profiles-title"),
                    "{what}: {name}"
                );
                continue;
            }
            let (cards, section) = profile_cards(&shop, name);
            assert!(section.contains(told), "{what}: {name}: {section}");
            let groups: Vec<&str> = cards.iter().map(String::as_str).collect();
            let repeats = if expected[0] == "id" { 1 } else { 2 };
            assert_eq!(groups, expected.repeat(repeats), "{what}: {name}");
        }
    }
    // Prices are up to 240 in the first night and up to 360 in the second: each side has its own.
    let (_, section) = {
        shop.write(
            "spec.yaml",
            &spec(known).replace("name: nights", "name: others"),
        );
        shop.remove_output("out");
        std::fs::remove_file(shop.path("data/60.csv")).unwrap();
        std::fs::remove_file(shop.path("data/30.csv")).unwrap();
        shop.forebay(&["run", "spec.yaml"]).expect(0);
        day("60", 60);
        shop.forebay(&["run", "spec.yaml", "--report=run.html"])
            .expect(0);
        profile_cards(&shop, "run.html")
    };
    // Both over the same axes.
    let (_, chart) = section
        .split_once("aria-label=\"Distributions of price\"")
        .unwrap();
    let chart = chart.split("</svg>").next().unwrap();
    for name in ["this run", "run before", "density"] {
        assert!(chart.contains(name), "no `{name}` in {chart}");
    }
    let cards: Vec<&str> = section.split("<div class=\"column\">").skip(1).collect();
    assert!(
        cards[2].contains("this run") && cards[2].contains("max 360"),
        "{}",
        cards[2]
    );
    assert!(
        cards[3].contains("run before") && cards[3].contains("max 240"),
        "{}",
        cards[3]
    );
    // The artifact of the run before is gone: nothing stands beside.
    let pointer: serde_json::Value = serde_json::from_str(
        &std::fs::read_to_string(shop.path(".forebay/artifacts/others.json")).unwrap(),
    )
    .unwrap();
    let before = pointer["before"].as_str().unwrap();
    std::fs::remove_dir_all(shop.path(&format!(".forebay/artifacts/{before}"))).unwrap();
    shop.forebay(&["report", "spec.yaml", "kept.html"])
        .expect(0);
    assert_eq!(profile_cards(&shop, "kept.html").0, ["id", "price"]);
}

#[test]
fn the_page_of_a_profile_has_a_card_for_each_column() {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    shop.forebay(&["profile", "data", "--report=profile.html"])
        .expect(0);
    let text = page(&shop, "profile.html");
    for column in ["store_id", "item_id", "qty", "price", "date"] {
        assert!(
            text.contains(&format!("<h3>{column} <span")),
            "no card of {column}"
        );
    }
    assert!(text.contains("Histogram of qty") && text.matches("<svg").count() >= 2);
}

#[test]
fn the_page_of_a_run_draws_graph_and_charts_at_a_size_that_can_be_read() {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    shop.write(
        "spec.yaml",
        &SPEC.replace(
            "sinks: {",
            "sinks: { net: { from: features, train: { path: net, label: qty, dense: [price], model: linear, epochs: 1, \
             batch_rows: 512 } },",
        )
        .replace("- standardize", "- filter: \"qty IS NOT NULL AND price IS NOT NULL\"\n      - standardize"),
    );
    shop.forebay(&["run", "spec.yaml", "--report=run.html"])
        .expect(0);
    let text = page(&shop, "run.html");
    let sizes = text
        .split("font-size=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().parse::<f64>().unwrap());
    let least = sizes.fold(f64::INFINITY, f64::min);
    assert!(
        (12.0..20.0).contains(&least),
        "texts of charts have {least} pixels"
    );
    // Boxes of the graph lie inside of it, with room on the right for the last one.
    let graph = text
        .split("class=\"wide drawing\"")
        .nth(1)
        .unwrap()
        .split("</svg>")
        .next()
        .unwrap();
    let number = |text: &str, name: &str| -> f64 {
        let rest = text.split(&format!("{name}=\"")).nth(1).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let width = number(graph, "width");
    let height = number(graph, "height");
    let boxes: Vec<&str> = graph.split("<rect ").skip(1).collect();
    assert_eq!(boxes.len(), 4);
    for rect in boxes {
        assert!(
            number(rect, "x") + number(rect, "width") <= width - 20.0,
            "{rect}"
        );
        assert!(
            number(rect, "y") + number(rect, "height") <= height - 20.0,
            "{rect}"
        );
    }
    // Long texts are broken; everything else scrolls in a region that the keyboard reaches.
    assert!(text.contains("<td class=\"long\">rows: at least 1000000</td>"));
    for region in text.split("<div class=\"wide").skip(1) {
        let tag = region.split('>').next().unwrap();
        assert!(
            tag.contains("tabindex=\"0\"")
                && tag.contains("role=\"region\"")
                && tag.contains("aria-label=\"")
        );
    }
}

#[test]
fn the_page_of_three_hundred_columns_stays_small() {
    let shop = TestDirectory::new();
    let columns: Vec<String> = (0..300)
        .map(|column| format!("a_column_with_a_name_{column}"))
        .collect();
    let mut csv = columns.join(",") + "\n";
    for row in 0..60_u64 {
        // Every second column holds numbers, the others long texts.
        let value = |column: u64| {
            let number = (row * 7_919 + column * 104_729) % 1_009;
            if column.is_multiple_of(2) {
                format!("{number}.25")
            } else {
                format!("some longer text with the number {number}")
            }
        };
        csv += &((0..300).map(value).collect::<Vec<_>>().join(",") + "\n");
    }
    shop.write("wide.csv", &csv);
    shop.forebay(&["profile", "wide.csv", "--report=wide.html"])
        .expect(0);
    let text = page(&shop, "wide.html");
    assert_eq!(text.matches("<div class=\"column\">").count(), 300);
    assert_eq!(text.matches("<svg").count(), 150);
    assert!(text.len() < 5 << 20, "{} bytes", text.len());
}

/// A forecast of demand; `HISTORY`, `UNTIL`, `BEFORE`, `BEHIND`, `TRAIN` and `PREDICT` are replaced.
const FORECAST: &str = r#"
version: 1
name: drawn
sources:
  demand: { parquet: { path: HISTORY }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    fit_on: train
    do:
      - filter: "qty IS NOT NULL"
      - select: [date, store_id, item_id, qty]
      - derive: { qty: "CAST(qty AS DOUBLE)" }
BEFORE
      - future_rows: { horizon: 3d, every: 1d }
      - lag: { columns: [qty], by: [3d, 4d, 7d] }
BEHIND
split: { train: "date < DATE 'UNTIL'", validation: "date >= DATE 'UNTIL'" }
label: { column: qty, horizon: 3d }
sinks:
  trees:
    from: features
    train: { path: out/trees, model: gbdt, label: qty, dense: [qty_lag_3d, qty_lag_4d, qty_lag_7d], categorical: [], rounds: 10, leaves: 6, TRAIN }
  forecast: { from: features, predict: { model: trees, path: out/forecast, min: 0, season: 3d, PREDICT } }
"#;

fn forecast_spec(shop: &TestDirectory, changes: &[(&str, &str)]) {
    let mut text = FORECAST.to_owned();
    let none = ["BEFORE\n", "BEHIND\n", ", TRAIN", ", PREDICT"].map(|place| (place, ""));
    for (place, with) in changes.iter().copied().chain(none) {
        text = text.replace(place, with);
    }
    shop.write("spec.yaml", &text);
}

/// A chart of a series: its keys, its known values, its predicted ones, and the drawing.
#[derive(Debug, Clone, PartialEq)]
struct DrawnSeries {
    keys: String,
    known: usize,
    predicted: usize,
    svg: String,
}

fn drawn_series(text: &str) -> Vec<DrawnSeries> {
    let charts = text
        .split("aria-label=\"")
        .skip(1)
        .filter_map(|rest| rest.split_once('"'));
    let series = charts.filter_map(|(label, rest)| {
        let (keys, counts) = label
            .split_once(": ")
            .filter(|(_, counts)| counts.contains(" known values, then "))?;
        let counts: Vec<usize> = counts
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        let svg = rest
            .split("<svg")
            .nth(1)
            .unwrap()
            .split("</svg>")
            .next()
            .unwrap()
            .to_owned();
        Some(DrawnSeries {
            keys: keys.to_owned(),
            known: counts[0],
            predicted: counts[1],
            svg,
        })
    });
    series.collect()
}

#[test]
fn the_page_of_a_forecast_draws_series_beside_the_end_of_their_history() {
    let shop = TestDirectory::new();
    let days = shop.days("history");
    let until = date(&days, 33);
    let known = values_by_day(&shop.rows("history"));
    let last = *known.keys().map(|(_, _, day)| day).max().unwrap();
    let draw = |changes: &[(&str, &str)], state: &str, threads: &str| {
        forecast_spec(
            &shop,
            &[
                &[("HISTORY", "history"), ("UNTIL", until.as_str())],
                changes,
            ]
            .concat(),
        );
        shop.forebay(&["run", "spec.yaml", "--report=run.html", state, threads])
            .expect(0);
        page(&shop, "run.html")
    };
    for (number, train) in [
        "",
        ", quantiles: [0.1, 0.5, 0.9]",
        ", strategy: per_step",
        ", strategy: recursive",
    ]
    .into_iter()
    .enumerate()
    {
        let text = draw(
            &[(", TRAIN", train)],
            &format!("--state=state-{number}"),
            "--threads=2",
        );
        let drawn = drawn_series(&text);
        assert_eq!(drawn.len(), 6, "{train}: {text}");
        let forecast = shop.rows("out/forecast");
        let mut totals: BTreeMap<String, f64> = BTreeMap::new();
        for ((store, item, _), value) in series_days(&forecast)
            .into_iter()
            .zip(numbers(&forecast, "prediction"))
        {
            *totals
                .entry(format!("store_id {store}, item_id {item}"))
                .or_default() += value.unwrap();
        }
        let mut largest: Vec<f64> = totals.values().copied().collect();
        largest.sort_by(|a, b| b.total_cmp(a));
        let shown: Vec<f64> = drawn.iter().map(|series| totals[&series.keys]).collect();
        assert_eq!(shown[..3], largest[..3], "{train}");
        assert!(
            shown[3..].iter().any(|total| *total < largest[3]),
            "{train}: not the largest alone: {shown:?}"
        );
        for series in &drawn {
            // At least 28 days, in whole lengths of the forecast.
            let is_own = |(store, item, day): &&(String, String, i32)| {
                format!("store_id {store}, item_id {item}") == series.keys && *day > last - 30
            };
            assert_eq!(
                (series.known, series.predicted),
                (known.keys().filter(is_own).count(), 3),
                "{}",
                series.keys
            );
            assert!(series.svg.contains("polyline"), "{}", series.svg);
            assert_eq!(
                series.svg.contains("<polygon"),
                train.contains("quantiles"),
                "{train}"
            );
        }
        assert_eq!(text.contains("q10 to q90"), train.contains("quantiles"));
        // The same again, without a state, on one thread.
        let again = drawn_series(&draw(
            &[(", TRAIN", train)],
            &format!("--state=again-{number}"),
            "--threads=1",
        ));
        assert_eq!(again, drawn, "{train}");
        assert!(text.len() < 200_000, "{} bytes", text.len());
    }
    // From text files, and after steps that look at rows or learn from them.
    let before = "      - profile: {}\n      - expect: [{ range: { qty: [0, 1] }, policy: warn }]\n      - impute: { \
                  columns: [qty], with: mean }\n";
    let text = draw(
        &[("BEFORE\n", before), (", PREDICT", ", format: csv")],
        "--state=csv",
        "--threads=2",
    );
    let drawn = drawn_series(&text);
    assert!(
        drawn.len() == 6
            && drawn
                .iter()
                .all(|series| series.known > 5 && series.predicted == 3),
        "{drawn:?}"
    );
    // The naive forecast, where there is no time for more.
    forecast_spec(
        &shop,
        &[
            ("HISTORY", "history"),
            ("UNTIL", &until),
            ("\nlabel:", "\ndeadline: { ladder: [naive] }\nlabel:"),
        ],
    );
    shop.forebay(&[
        "run",
        "spec.yaml",
        "--report=run.html",
        "--state=naive",
        "--deadline=0s",
    ])
    .expect(0);
    let text = page(&shop, "run.html");
    assert!(text.contains("did less, to be on time: naive"), "{text}");
    assert_eq!(drawn_series(&text).len(), 6);
}
