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
