//! Pages to look at: one file each that needs nothing else.

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
    for outside in ["http://", "https://", "<script", "<link", "@import", "src="] {
        assert!(!own.contains(outside), "{name} holds {outside}");
    }
    for (open, close) in [("<section", "</section>"), ("<table", "</table>"), ("<svg", "</svg>"), ("<div", "</div>")] {
        assert_eq!(text.matches(open).count(), text.matches(close).count(), "{open} in {name}");
    }
    // Each link of the head leads to a section.
    for link in text.split("<a href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(text.contains(&format!("<section id=\"{link}\"")), "{name} has no section {link}");
    }
    text
}

#[test]
fn the_page_of_a_run_tells_what_it_did() {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    shop.write("spec.yaml", SPEC);
    shop.forebay(&["run", "spec.yaml", "--report=run.html"]).expect(0);
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
        "resident memory",
        &forebay::present::units::grouped(rows as u64),
    ] {
        assert!(text.contains(part), "no `{part}` in the page");
    }
    assert!(text.contains("&lt;b&gt;") && !text.contains("<b>"), "texts of the spec are escaped");
    // With those before it, where there are some.
    assert!(!text.contains("Cost of the last runs"));
    shop.write("spec.yaml", &SPEC.replace("- standardize", "- derive: { half: \"qty / 2\" }\n      - standardize"));
    shop.forebay(&["run", "spec.yaml", "--report=again.html"]).expect(0);
    let again = page(&shop, "again.html");
    assert!(again.contains("Cost of the last runs") && again.contains("longest pass"), "{again}");
    // A page that cannot be written.
    let call = shop.forebay(&["run", "spec.yaml", "--report=nowhere/run.html"]);
    assert!(call.code != 0 && call.stderr.contains("nowhere/run.html"), "{}", call.stderr);
}

#[test]
fn the_page_of_a_profile_has_a_card_for_each_column() {
    let shop = TestDirectory::new();
    shop.demand("data", 2_000);
    shop.forebay(&["profile", "data", "--report=profile.html"]).expect(0);
    let text = page(&shop, "profile.html");
    for column in ["store_id", "item_id", "qty", "price", "date"] {
        assert!(text.contains(&format!("<h3>{column} <span")), "no card of {column}");
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
    shop.forebay(&["run", "spec.yaml", "--report=run.html"]).expect(0);
    let text = page(&shop, "run.html");
    let sizes = text.split("font-size=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse::<f64>().unwrap());
    let least = sizes.fold(f64::INFINITY, f64::min);
    assert!((12.0..20.0).contains(&least), "texts of charts have {least} pixels");
    // Boxes of the graph lie inside of it, with room on the right for the last one.
    let graph = text.split("class=\"wide drawing\"").nth(1).unwrap().split("</svg>").next().unwrap();
    let number = |text: &str, name: &str| -> f64 {
        let rest = text.split(&format!("{name}=\"")).nth(1).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let (width, height) = (number(graph, "width"), number(graph, "height"));
    let boxes: Vec<&str> = graph.split("<rect ").skip(1).collect();
    assert_eq!(boxes.len(), 4);
    for rect in boxes {
        assert!(number(rect, "x") + number(rect, "width") <= width - 20.0, "{rect}");
        assert!(number(rect, "y") + number(rect, "height") <= height - 20.0, "{rect}");
    }
    // Long texts are broken; everything else scrolls in a region that the keyboard reaches.
    assert!(text.contains("<td class=\"long\">rows: at least 1000000</td>"));
    for region in text.split("<div class=\"wide").skip(1) {
        let tag = region.split('>').next().unwrap();
        assert!(tag.contains("tabindex=\"0\"") && tag.contains("role=\"region\"") && tag.contains("aria-label=\""));
    }
}

#[test]
fn the_page_of_three_hundred_columns_stays_small() {
    let shop = TestDirectory::new();
    let columns: Vec<String> = (0..300).map(|column| format!("a_column_with_a_name_{column}")).collect();
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
    shop.forebay(&["profile", "wide.csv", "--report=wide.html"]).expect(0);
    let text = page(&shop, "wide.html");
    assert_eq!(text.matches("<div class=\"column\">").count(), 300);
    assert_eq!(text.matches("<svg").count(), 150);
    assert!(text.len() < 5 << 20, "{} bytes", text.len());
}
