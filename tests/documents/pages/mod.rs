//! Every example of the documentation is run as it is written, in the order of its page.
//!
//! Each page has a directory of its own with the specs of the repository, generated data and `spec.yaml`. There,
//!
//! - a whole spec is checked and run, and its `tests` are;
//! - a fragment of YAML is laid over the page's spec first (`fragments.rs`), or over the spec that a comment names:
//!   `<!-- over: FILE -->`;
//! - commands are run by a shell that finds the program under test, and a `cargo` that does nothing: all is built;
//! - a block with `<!-- file: NAME -->` is written to that file of the page's directory;
//! - a block with `<!-- output: of the commands above -->` is what the last commands printed. A line `...` in it stands for
//!   any lines;
//! - a block with `<!-- example: ... -->` is run by a test of its own;
//! - Rust is compiled with the tests (`rust_examples.rs`), and run;
//! - the examples of faults end with these faults, but for those of `FAULTS_THAT_ARE_NOT_SHOWN`.
//!
//! Generators make fewer rows than a page says. `<!-- checked: REASON -->` above a block keeps it from being run,
//! `<!-- not run: REASON -->` also from being checked, and `<!-- exit code 65: REASON -->` says how it ends. The test
//! prints all reasons. Python is run by the tests of the Python package (`pipelines/python/tests/test_readme.py`).

mod blocks;
mod fragments;
mod rust_examples;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int32Array, ListBuilder, StringArray,
    StringBuilder,
};

use self::blocks::{PageBlock, blocks};
use self::fragments::laid_over;
use crate::steps::edge_values::write;
use crate::support::watched_command::WatchedCommand;
use crate::support::{FOREBAY, ProgramOutput, TestDirectory, repository};

/// The pages, and the data of their directories.
const PAGES: [(&str, PageData); 25] = [
    ("README.md", PageData::None),
    ("pipelines/docs/index.md", PageData::Demand),
    ("pipelines/docs/install.md", PageData::None),
    ("pipelines/docs/tutorial.md", PageData::None),
    ("pipelines/docs/coming-from/index.md", PageData::Sales),
    ("pipelines/docs/gallery/click-through.md", PageData::None),
    ("pipelines/docs/gallery/demand.md", PageData::None),
    ("pipelines/docs/gallery/churn.md", PageData::None),
    ("pipelines/docs/gallery/sensors.md", PageData::None),
    ("pipelines/docs/gallery/quality.md", PageData::None),
    ("pipelines/docs/gallery/sequences.md", PageData::None),
    ("pipelines/docs/gallery/delta.md", PageData::None),
    ("pipelines/docs/gallery/workers.md", PageData::None),
    ("pipelines/docs/gallery/backtest.md", PageData::None),
    ("pipelines/docs/gallery/trees.md", PageData::None),
    ("pipelines/docs/gallery/airflow.md", PageData::None),
    ("pipelines/docs/gallery/own-transform.md", PageData::None),
    ("pipelines/GUIDE.md", PageData::Demand),
    ("pipelines/REFERENCE.md", PageData::Sales),
    ("pipelines/SERVING.md", PageData::None),
    ("pipelines/python/README.md", PageData::Demand),
    ("pipelines/airflow/README.md", PageData::Demand),
    ("pipelines/workers/README.md", PageData::Demand),
    ("pipelines/workers/CLUSTERS.md", PageData::None),
    ("pipelines/monitoring/README.md", PageData::Demand),
];

/// Other pages with examples, and the tests or the reasons for which none of them is run here.
const OTHER_PAGES: [(&str, &str); 4] = [
    (
        "benches/corpora/README.md",
        "needs checkouts of public corpora",
    ),
    (
        "pipelines/src/cli/init/readme.md",
        "a template: `init_makes_a_project_whose_test_passes_and_can_fail` runs its commands",
    ),
    (
        "pipelines/src/present/faults.md",
        "a part of `pipelines/REFERENCE.md`, where its examples are run",
    ),
    (
        "tests/corpus/small/README.md",
        "writes files of the repository with programs of others",
    ),
];

/// Folder of the parts of `pipelines/REFERENCE.md`, where their examples are run.
const REFERENCE_PARTS: &str = "connectors/examples/";

/// The languages of blocks that are examples.
const EXAMPLE_LANGUAGES: [&str; 6] = ["yaml", "sh", "bash", "shell", "rust", "python"];

/// What a page's directory holds before its first block.
#[derive(Clone, Copy, PartialEq)]
enum PageData {
    None,
    /// `data/demand` of a generator, and its last month as `data/tomorrow`.
    Demand,
    /// `data/sales` in all formats, `data/items` and `data/prices`.
    Sales,
}

/// The spec of pages over demand.
const DEMAND_SPEC: &str = "\
version: 1
name: example
sources:
  demand:
    parquet: { path: data/demand }
    time: date
    keys: [store_id, item_id]
steps:
  features:
    from: demand
    do:
      - filter: \"qty IS NOT NULL\"
      - impute: { columns: [price], with: median }
      - vocabulary: { columns: [store_id, item_id] }
split: { train: \"date < DATE '2016-04-25'\", validation: \"date >= DATE '2016-04-25'\" }
sinks:
  table: { from: features, parquet: { path: out/features } }
";

/// The spec of pages over sales.
const SALES_SPEC: &str = "\
version: 1
name: example
sources:
  sales:
    parquet: { path: data/sales }
    time: date
    keys: [store, item]
  items: { parquet: { path: data/items } }
  prices: { parquet: { path: data/prices }, time: date, keys: [store, item] }
steps:
  features: { from: sales, do: [{ select: [date, store, item, category, qty, price] }] }
split: { train: \"date < DATE '2024-03-01'\", validation: \"date >= DATE '2024-03-01'\" }
sinks:
  table: { from: features, parquet: { path: out/features } }
";

/// The examples of faults that show a way out, or need more than a spec: they are accepted by `check`.
const FAULTS_THAT_ARE_NOT_SHOWN: [(&str, &str); 10] = [
    ("FB0202", "shows how files may differ"),
    ("FB0204", "shows how no rows become right"),
    ("FB0205", "shows how such values are skipped"),
    ("FB0206", "shows how such values become null"),
    ("FB0212", "shows how such rows become right"),
    ("FB0213", "the generated data have no gap"),
    ("FB0214", "takes two runs"),
    ("FB0218", "takes a row that is served"),
    ("FB0219", "shows what a step declares"),
    ("FB0306", "would wait for two hours"),
];

/// The examples of faults that are no YAML, or none that can be laid over a spec: the text alone is checked.
const FAULTS_OF_WHOLE_TEXTS: [&str; 2] = ["FB0101", "FB0112"];

/// How the commands of faults end; those without a number need what the text says.
const FAULT_COMMANDS: [(&str, Result<i32, &str>); 6] = [
    ("FB0111", Ok(64)),
    ("FB0204", Ok(0)),
    ("FB0209", Err("an artifact of another version")),
    ("FB0217", Err("an artifact and a model")),
    ("FB0301", Ok(0)),
    ("FB0402", Ok(65)),
];

/// The directory of a page.
struct PageDirectory {
    shop: TestDirectory,
    data: PageData,
    /// The standard output of the last commands.
    printed: RefCell<String>,
}

/// What became of the blocks of a page.
#[derive(Default)]
struct PageTally {
    run: usize,
    checked: usize,
    python: usize,
    /// Lines and reasons.
    not_run: Vec<String>,
    failures: Vec<String>,
}

/// How a block went.
enum BlockEnd {
    Run,
    Checked(String),
    Python,
    NotRun(String),
    /// A block of no language that is run: a drawing, an output, JSON.
    NoExample,
}

impl PageDirectory {
    fn new(data: PageData) -> PageDirectory {
        let shop = TestDirectory::new();
        let link = |target: &std::path::Path, name: &str| {
            std::fs::create_dir_all(shop.path(name).parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, shop.path(name)).unwrap();
        };
        link(FOREBAY.as_ref(), "bin/forebay");
        link(FOREBAY.as_ref(), "target/release/forebay");
        link("/bin/true".as_ref(), "bin/cargo");
        link(&repository().join("pipelines"), "pipelines");
        let page = PageDirectory {
            shop,
            data,
            printed: RefCell::default(),
        };
        match data {
            PageData::None => {}
            PageData::Demand => page.write_demand(),
            PageData::Sales => page.write_sales(),
        }
        page
    }

    fn spec(&self) -> &'static str {
        match self.data {
            PageData::Sales => SALES_SPEC,
            PageData::None | PageData::Demand => DEMAND_SPEC,
        }
    }

    fn write_demand(&self) {
        self.shop.write("spec.yaml", DEMAND_SPEC);
        let generate = "forebay generate demand --rows 1 --out data/demand; mkdir data/tomorrow; cp \
                        data/demand/demand-2016-05.parquet data/tomorrow";
        self.shell(generate).expect(0);
    }

    fn write_sales(&self) {
        self.shop.write("spec.yaml", SALES_SPEC);
        for folder in ["data/sales", "data/items", "data/prices", "data/json"] {
            std::fs::create_dir_all(self.shop.path(folder)).unwrap();
        }
        let rows = 0..540;
        let texts = |text: &dyn Fn(i32) -> Option<&'static str>| {
            Arc::new(rows.clone().map(text).collect::<StringArray>()) as ArrayRef
        };
        let degrees = |angle: &dyn Fn(i32) -> f64| {
            let angles = rows.clone().map(|row| Some(angle(row)));
            Arc::new(angles.collect::<Float64Array>()) as ArrayRef
        };
        let day = |row: i32| Some(19_723 + row / 6);
        let item = |row: i32| ["a", "b", "c"][row as usize % 3];
        let store = |row: i32| ["s1", "s2"][row as usize / 3 % 2];
        let qty = |row: i32| (row % 37 != 0).then_some((row * 7 + row / 6) % 11);
        let price =
            |row: i32| (row % 29 != 0).then(|| 1.0 + f64::from(row % 3) + f64::from(row % 4) / 4.0);
        let mut tags = ListBuilder::new(StringBuilder::new());
        for row in rows.clone() {
            let count = row as usize % 3;
            tags.append_value(["new", "red"].into_iter().take(count).map(Some));
        }
        let columns: [(&str, ArrayRef); 13] = [
            (
                "date",
                Arc::new(rows.clone().map(day).collect::<Date32Array>()),
            ),
            ("store", texts(&|row| Some(store(row)))),
            ("item", texts(&|row| Some(item(row)))),
            ("category", texts(&|row| Some(["x", "y"][row as usize % 2]))),
            (
                "qty",
                Arc::new(rows.clone().map(qty).collect::<Int32Array>()),
            ),
            (
                "price",
                Arc::new(rows.clone().map(price).collect::<Float64Array>()),
            ),
            (
                "promotion",
                Arc::new(
                    rows.clone()
                        .map(|row| Some(row % 5 == 0))
                        .collect::<BooleanArray>(),
                ),
            ),
            ("event", texts(&|row| (row % 180 < 6).then_some("fair"))),
            ("tags", Arc::new(tags.finish())),
            ("latitude", degrees(&|row| 48.0 + (row % 3) as f64)),
            ("longitude", degrees(&|row| 11.0 + (row % 2) as f64)),
            ("depot_latitude", degrees(&|_| 50.1)),
            ("depot_longitude", degrees(&|_| 8.7)),
        ];
        write(&self.shop, "data/sales/a.parquet", columns);
        let strings = |texts: [&str; 3]| Arc::new(StringArray::from(texts.to_vec())) as ArrayRef;
        let prices = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0])) as ArrayRef;
        let items = [
            ("item", strings(["a", "b", "c"])),
            ("brand", strings(["m", "n", "m"])),
        ];
        write(&self.shop, "data/items/a.parquet", items);
        let listed: [(&str, ArrayRef); 4] = [
            ("date", Arc::new(Date32Array::from(vec![19_723; 3]))),
            ("store", strings(["s1", "s1", "s2"])),
            ("item", strings(["a", "b", "a"])),
            ("list_price", prices),
        ];
        write(&self.shop, "data/prices/a.parquet", listed);
        let mut lines = String::new();
        for row in rows.clone() {
            let date = format!("2024-01-{:02}", row / 6 % 28 + 1);
            let store = store(row);
            let item = item(row);
            let _ = writeln!(
                lines,
                "{{\"date\":\"{date}\",\"store\":\"{store}\",\"item\":\"{item}\",\"category\":\"x\",\"qty\":{},\"price\":1.5}}",
                row % 7
            );
        }
        self.shop.write("data/json/a.json", &lines);
        self.shop.write("sales.csv", "date,qty\n2024-01-01,1\n");
        let formats = "sinks:\n  arrow: { from: features, arrow: { path: data/arrow } }\n  csv: { from: features, csv: { path: \
                       data/csv } }\n  delta: { from: features, delta: { path: data/delta } }\n";
        self.shop
            .write("formats.yaml", &laid_over(SALES_SPEC, formats));
        self.shell("forebay run formats.yaml --state formats")
            .expect(0);
    }

    /// Runs commands as a page has them, but for the size of generated data.
    fn shell(&self, commands: &str) -> ProgramOutput {
        let mut text = String::new();
        for line in commands.lines() {
            let _ = writeln!(text, "{}", with_fewer_rows(line));
        }
        let mut shell = Command::new("bash");
        shell.args(["-ec", &text]);
        self.shop.isolate(&mut shell);
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}:{path}", self.shop.at("bin")));
        shell.watched().into()
    }

    fn block(&self, number: usize, block: &PageBlock) -> Result<BlockEnd, String> {
        if let Some(reason) = block.mark("not run") {
            return Ok(BlockEnd::NotRun(reason.to_owned()));
        }
        if block.mark("example").is_some() {
            return Ok(BlockEnd::NoExample);
        }
        if let Some(name) = block.mark("file") {
            self.shop.write(name, &block.text);
            return Ok(BlockEnd::NoExample);
        }
        if block.mark("output").is_some() {
            return self.output(block);
        }
        let is_fault = block.heading.starts_with("FB0");
        match block.language.as_str() {
            "yaml" if is_fault => self.fault(number, block),
            "yaml" => self.yaml(number, block),
            "" if is_fault => self.fault_command(block),
            "sh" => self.commands(block),
            "rust" => rust_examples::run(&block.text, &self.shop).map(|()| BlockEnd::Run),
            "python" => Ok(BlockEnd::Python),
            "" if block.text.starts_with("forebay") => Err("commands without `sh`".to_owned()),
            _ => Ok(BlockEnd::NoExample),
        }
    }

    fn commands(&self, block: &PageBlock) -> Result<BlockEnd, String> {
        let code = if block.mark("exit code 65").is_some() {
            65
        } else {
            0
        };
        let ended = expect(self.shell(&block.text), code)?;
        self.printed.replace(ended.stdout);
        Ok(BlockEnd::Run)
    }

    /// Compares a block with what the commands before it printed.
    fn output(&self, block: &PageBlock) -> Result<BlockEnd, String> {
        let printed = self.printed.borrow();
        if is_shown(&block.text, &printed) {
            return Ok(BlockEnd::Run);
        }
        Err(format!("the commands printed\n{printed}"))
    }

    /// Writes the spec of a block; gives its name.
    fn spec_of(&self, number: usize, block: &PageBlock) -> String {
        let over = block
            .mark("over")
            .map(|name| std::fs::read_to_string(repository().join(name)).unwrap());
        let base = over.as_deref().unwrap_or_else(|| self.spec());
        let text = if block.text.starts_with("version:") {
            block.text.clone()
        } else {
            laid_over(base, &block.text)
        };
        let name = format!("block_{number}.yaml");
        self.shop.write(&name, &text);
        name
    }

    fn yaml(&self, number: usize, block: &PageBlock) -> Result<BlockEnd, String> {
        let spec = self.spec_of(number, block);
        expect(self.shop.forebay(&["check", &spec]), 0)?;
        if let Some(reason) = block.mark("checked") {
            return Ok(BlockEnd::Checked(reason.to_owned()));
        }
        if block.text.contains("tests:\n") {
            expect(self.shop.forebay(&["test", &spec]), 0)?;
        }
        let state = format!("--state=state_{number}");
        let run = expect(self.shop.forebay(&["run", &spec, &state]), 0)?;
        if run.stderr.contains("can be null") {
            return Err(run.stderr);
        }
        Ok(BlockEnd::Run)
    }

    /// The example of a fault ends with it, in `check` or in `run`.
    fn fault(&self, number: usize, block: &PageBlock) -> Result<BlockEnd, String> {
        let code = block.heading.as_str();
        let spec = if FAULTS_OF_WHOLE_TEXTS.contains(&code) {
            self.shop.write("whole.yaml", &block.text)
        } else {
            self.spec_of(number, block)
        };
        let checked = self.shop.forebay(&["check", &spec]);
        let accepted = FAULTS_THAT_ARE_NOT_SHOWN
            .iter()
            .find(|(listed, _)| *listed == code);
        if let Some((_, reason)) = accepted {
            expect(checked, 0)?;
            return Ok(BlockEnd::Checked((*reason).to_owned()));
        }
        let shown = format!("error[{code}]");
        if checked.stderr.contains(&shown) {
            return Ok(BlockEnd::Run);
        }
        expect(checked, 0)?;
        let run = self.shop.forebay(&["run", &spec, "--state=fault"]);
        if run.stderr.contains(&shown) {
            return Ok(BlockEnd::Run);
        }
        Err(format!("no {shown} in {run:?}"))
    }

    fn fault_command(&self, block: &PageBlock) -> Result<BlockEnd, String> {
        let command = FAULT_COMMANDS
            .iter()
            .find(|(code, _)| *code == block.heading);
        let (_, end) = command.ok_or("a fault with commands that no test knows")?;
        match end {
            Ok(code) => {
                expect(self.shell(&block.text), *code)?;
                Ok(BlockEnd::Run)
            }
            Err(needs) => Ok(BlockEnd::NotRun(format!("takes {needs}"))),
        }
    }
}

/// True if a block shows these lines. Its line `...` stands for any number of lines.
fn is_shown(block: &str, printed: &str) -> bool {
    let mut printed = printed.lines().map(str::trim_end);
    let mut lines = block.lines().map(str::trim_end).peekable();
    while let Some(line) = lines.next() {
        if line != "..." {
            if printed.next() != Some(line) {
                return false;
            }
            continue;
        }
        let Some(after) = lines.next() else {
            return true;
        };
        if !printed.any(|candidate| candidate == after) {
            return false;
        }
    }
    printed.next().is_none()
}

#[test]
fn outputs_are_compared_line_by_line() {
    assert!(is_shown("a\nb\n", "a  \nb\n"));
    assert!(is_shown("a\n...\nd\n", "a\nb\nc\nd\n"));
    assert!(is_shown("a\n...\n", "a\nb\n"));
    assert!(!is_shown("a\n", "a\nb\n"));
    assert!(!is_shown("a\nb\n", "a\n"));
    assert!(!is_shown("a\n...\ne\n", "a\nb\n"));
}

/// The output of a call that ended with a code, or what it said.
fn expect(output: ProgramOutput, code: i32) -> Result<ProgramOutput, String> {
    if output.code == code {
        return Ok(output);
    }
    let ProgramOutput {
        code: ended,
        stdout,
        stderr,
    } = output;
    Err(format!("exit code {ended}, not {code}\n{stdout}\n{stderr}"))
}

/// A command line whose generators make less.
fn with_fewer_rows(line: &str) -> String {
    let mut line = line.to_owned();
    for (generator, size) in [
        ("generate demand --rows ", "--days 150 --series 80"),
        ("generate clicks --rows ", "--rows 3000"),
    ] {
        if let Some((before, after)) = line.split_once(generator) {
            let rest = after.trim_start_matches(|letter: char| letter.is_ascii_digit());
            let generator = generator.trim_end_matches("--rows ");
            line = format!("{before}{generator}{size}{rest}");
        }
    }
    line
}

fn run_page(name: &str, data: PageData) -> PageTally {
    let text = std::fs::read_to_string(repository().join(name)).unwrap();
    let page = PageDirectory::new(data);
    let mut tally = PageTally::default();
    for (number, block) in blocks(&text).iter().enumerate() {
        let place = format!("{name}:{}", block.line);
        match page.block(number, block) {
            Ok(BlockEnd::Run) => tally.run += 1,
            Ok(BlockEnd::Python) => tally.python += 1,
            Ok(BlockEnd::NoExample) => {}
            Ok(BlockEnd::Checked(reason)) => {
                tally.checked += 1;
                tally
                    .not_run
                    .push(format!("{place} is only checked: {reason}"));
            }
            Ok(BlockEnd::NotRun(reason)) => {
                tally.not_run.push(format!("{place} is not run: {reason}"));
            }
            Err(failure) => tally
                .failures
                .push(format!("{place}\n{}{failure}", block.text)),
        }
    }
    tally
}

#[test]
fn every_example_of_the_pages_runs() {
    let tallies: Vec<PageTally> = std::thread::scope(|scope| {
        let pages = PAGES.map(|(name, data)| scope.spawn(move || run_page(name, data)));
        pages.map(|page| page.join().unwrap()).into_iter().collect()
    });
    let mut total = PageTally::default();
    for tally in tallies {
        total.run += tally.run;
        total.checked += tally.checked;
        total.python += tally.python;
        total.not_run.extend(tally.not_run);
        total.failures.extend(tally.failures);
    }
    let mut report = format!(
        "documentation: {} blocks run, {} only checked, {} not run, {} of Python left to pytest\n",
        total.run,
        total.checked,
        total.not_run.len() - total.checked,
        total.python
    );
    for reason in &total.not_run {
        let _ = writeln!(report, "  {reason}");
    }
    // Not by the macro: the harness would keep it for tests that fail.
    let _ = write!(std::io::stderr(), "{report}");
    assert!(total.failures.is_empty(), "{}", total.failures.join("\n\n"));
    assert!(total.run > 90, "{report}");
}

/// The pages below a folder, relative to the repository.
fn markdown_pages(folder: &std::path::Path, pages: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_str().unwrap();
        if entry.file_type().unwrap().is_dir() {
            // Build outputs, and folders of tools.
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                markdown_pages(&path, pages);
            }
        } else if name.ends_with(".md") {
            let page = path.strip_prefix(repository()).unwrap();
            pages.push(page.to_str().unwrap().to_owned());
        }
    }
}

/// Each page with examples is among those that are run, or says why it is not: a new page needs a decision.
#[test]
fn every_page_with_examples_is_known() {
    let mut pages = Vec::new();
    markdown_pages(&repository(), &mut pages);
    let mut with_examples = Vec::new();
    pages.retain(|page| !page.starts_with(REFERENCE_PARTS));
    for page in pages {
        let text = std::fs::read_to_string(repository().join(&page)).unwrap();
        let fences = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("```"));
        let mut fences =
            fences.map(|language| language.split([' ', ',']).next().unwrap_or_default());
        if fences.any(|language| EXAMPLE_LANGUAGES.contains(&language)) {
            with_examples.push(page);
        }
    }
    let mut known: Vec<&str> = PAGES.iter().map(|(page, _)| *page).collect();
    known.extend(OTHER_PAGES.iter().map(|(page, _)| *page));
    with_examples.sort();
    known.sort();
    assert_eq!(with_examples, known);
    for (page, reason) in OTHER_PAGES {
        let _ = writeln!(
            std::io::stderr(),
            "documentation: {page} is not run: {reason}"
        );
    }
}

/// The commands that the comments of a spec have between backquotes.
fn commands_in_comments(spec: &str) -> Vec<String> {
    let comments: Vec<&str> = spec
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(str::trim)
        .collect();
    let text = comments.join(" ");
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter(|quoted| quoted.starts_with("forebay "))
        .map(str::to_owned)
        .collect()
}

/// The comments of ready-made specs are true: their commands run, in their order, after the spec itself.
#[test]
fn commands_in_comments_of_specs_run() {
    let mut count = 0;
    for entry in std::fs::read_dir(repository().join("pipelines/specs")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let page = PageDirectory::new(PageData::None);
        let run = format!("forebay run pipelines/specs/{name}");
        for command in commands_in_comments(&std::fs::read_to_string(&path).unwrap()) {
            let ended = page.shell(&command);
            assert_eq!(ended.code, 0, "{name}: {command}\n{}", ended.stderr);
            count += 1;
            if command.starts_with("forebay generate") {
                page.shell(&run).expect(0);
            }
        }
    }
    assert!(count > 6, "{count} commands");
}

/// The sources of the program, without their tests.
fn sources(folder: &std::path::Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let name = path.file_name().unwrap();
            if name != "tests" && name != "target" {
                sources(&path, text);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let whole = std::fs::read_to_string(&path).unwrap();
            text.push_str(whole.split("#[cfg(test)]\nmod").next().unwrap());
        }
    }
}

/// Each code of a fault is given to one somewhere: a page describes nothing that cannot happen.
#[test]
fn every_fault_code_is_raised() {
    let mut text = String::new();
    for folder in ["engine", "connectors", "transforms", "pipelines"] {
        sources(&repository().join(folder), &mut text);
    }
    let names = std::fs::read_to_string(repository().join("engine/model/src/fault.rs")).unwrap();
    let names = names
        .lines()
        .filter_map(|line| line.trim().split_once(" = \"FB"))
        .map(|(name, _)| name);
    let is_raised = |name: &str| {
        let used = format!("codes::{name}");
        text.match_indices(&used).any(|(place, _)| {
            let before = text[..place].trim_end();
            let after = &text[place + used.len()..];
            let is_compared = before.ends_with("==") || before.ends_with("!=");
            let is_longer =
                after.starts_with(|letter: char| letter.is_ascii_uppercase() || letter == '_');
            !is_compared && !is_longer
        })
    };
    let mut count = 0;
    for name in names {
        // Bugs are made by `Fault::internal`.
        assert!(
            name == "INTERNAL" || is_raised(name),
            "no path raises {name}"
        );
        count += 1;
    }
    assert_eq!(count, forebay::model::codes::ALL.len());
}
