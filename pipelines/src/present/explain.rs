//! A program, explained: as text for people, JSON for programs, Mermaid for pictures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use forebay_model::{Fault, Result};
use forebay_plan::{
    ExplainJoin, ExplainPass, ExplainProgram, ExplainState, ExplainTraining, ExplainWindow,
    StepRefit,
};

use super::{TERMINAL_COLUMNS, units};

/// Characters of an id that are shown: enough to tell a program's ids apart.
const ID_CHARS_SHOWN: usize = 8;

const TITLE: Style = AnsiColor::Blue.on_default().bold();
const FAINT: Style = Style::new().dimmed();

/// Aligned text with colours, which `anstream` takes out where they are not wanted.
pub fn text(explain: &ExplainProgram) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{TITLE}{}{TITLE:#}: {}",
        explain.pipeline,
        summary(explain)
    );
    if let Some(artifact) = &explain.continues {
        line(
            &mut out,
            "before",
            &format!("artifact {}: the run goes on from it", short(artifact)),
        );
    }
    for (index, refit) in explain.refits.iter().enumerate() {
        line(
            &mut out,
            if index == 0 { "refit" } else { "" },
            &refit_text(refit),
        );
    }
    for pass in &explain.passes {
        out.push('\n');
        pass_text(&mut out, pass);
    }
    for training in &explain.trainings {
        out.push('\n');
        training_text(&mut out, training);
    }
    out
}

/// The same without colours.
pub fn plain(explain: &ExplainProgram) -> String {
    anstream::adapter::strip_str(&text(explain)).to_string()
}

/// What is in force of a step that does not learn anew in each run.
pub(crate) fn refit_text(refit: &StepRefit) -> String {
    let StepRefit {
        step,
        refit,
        held,
        since,
        reason,
        drift,
    } = refit;
    let what = match (*held, since) {
        (true, Some(since)) => format!("in force since {since}"),
        (true, None) => "in force since an earlier run".to_owned(),
        (false, Some(since)) => format!("learned anew at {since}"),
        (false, None) => "learned anew".to_owned(),
    };
    let drift = drift.map_or_else(String::new, |drift| format!(", drift {drift:.4}"));
    format!("{step}: {what} ({reason}); refit: {refit}{drift}")
}

fn training_text(out: &mut String, training: &ExplainTraining) {
    let _ = writeln!(out, "{TITLE}training {}{TITLE:#}", training.number);
    line(
        out,
        "why",
        &format!("sink `{}` learns from `{}`", training.sink, training.from),
    );
    let reads = match &training.reads {
        Some(sink) => format!("what `{sink}` writes"),
        None => "the sources, with the steps done on the way".to_owned(),
    };
    let parts = training.parts.join(" and ");
    line(
        out,
        "reads",
        &if parts.is_empty() {
            reads
        } else {
            format!("{reads}: {parts}")
        },
    );
    line(out, "gives", &format!("the model `{}`", training.sink));
    line(
        out,
        "runs on",
        "threads here: trainings come after all passes",
    );
}

/// One JSON document.
pub fn json(explain: &ExplainProgram) -> Result<String> {
    serde_json::to_string_pretty(explain)
        .map_err(|error| Fault::internal("an explanation cannot be written as JSON").cause(error))
}

fn summary(explain: &ExplainProgram) -> String {
    let reused = explain.passes.iter().filter(|pass| pass.reused).count() as u64;
    let mut parts = vec![match explain.passes.len() as u64 {
        1 => "1 pass".to_owned(),
        count => format!("{count} passes"),
    }];
    if !explain.trainings.is_empty() {
        parts.push(units::counted(explain.trainings.len() as u64, "training"));
    }
    if reused > 0 {
        parts.push(format!("{reused} of them done already"));
    }
    let due: Vec<&ExplainPass> = explain.passes.iter().filter(|pass| !pass.reused).collect();
    if let Some(bytes) = due
        .iter()
        .filter(|pass| pass.work != "gather")
        .map(|pass| pass.bytes)
        .sum::<Option<u64>>()
    {
        parts.push(format!("{} to read", units::bytes(bytes)));
    }
    if let Some(memory) = due
        .iter()
        .map(|pass| pass.memory_bytes_max)
        .max()
        .filter(|memory| *memory > 0)
    {
        parts.push(format!("{} of states at most", units::bytes(memory)));
    }
    if let Some(seconds) = due
        .iter()
        .map(|pass| pass.seconds)
        .sum::<Option<f64>>()
        .filter(|_| !due.is_empty())
    {
        parts.push(about(seconds));
    }
    parts.join(", ")
}

/// How long something should take.
fn about(seconds: f64) -> String {
    format!(
        "about {}",
        units::duration(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))
    )
}

fn pass_text(out: &mut String, pass: &ExplainPass) {
    let reused = if pass.reused { ", done already" } else { "" };
    let _ = writeln!(
        out,
        "{TITLE}pass {}{TITLE:#}  {}, level {}{reused}  {FAINT}{}{FAINT:#}",
        pass.number,
        pass.work,
        pass.level,
        short(&pass.id)
    );
    line(out, "why", &pass.why);
    for read in &pass.reads {
        let spans = read
            .spans
            .map(|spans| format!(", {}", units::counted(spans as u64, "span")))
            .unwrap_or_default();
        line(out, "reads", &format!("{}{spans}", read.dataset));
        list(out, "columns", &read.columns);
        list(out, "steps", &read.steps);
    }
    windows(out, &pass.windows);
    joins(out, &pass.joins);
    states(out, &pass.learns);
    if let Some(gives) = &pass.gives {
        line(out, "gives", gives);
    }
    if let Some((read, all)) = pass
        .spans_to_read
        .filter(|(read, all)| read < all && !pass.reused)
    {
        let spans = units::counted(all as u64, "span");
        let text = match read {
            0 => format!("what earlier runs made of all {spans}"),
            _ => {
                format!(
                    "what earlier runs made of all but {read} of {spans}, new or changed, or within reach of such"
                )
            }
        };
        line(out, "reuses", &text);
    }
    if let Some(beside) = pass.beside {
        let after =
            "backfills write it after the interval before it: windows need what that one remembers";
        line(
            out,
            "beside",
            if beside {
                "backfills write it while others are written"
            } else {
                after
            },
        );
    }
    if !pass.reused {
        let workers = "threads here, or workers where there are some";
        line(
            out,
            "runs on",
            if pass.runs_on == "workers" {
                workers
            } else {
                pass.runs_on
            },
        );
        for (number, stage) in pass
            .stages
            .iter()
            .flat_map(|stages| stages.lines())
            .enumerate()
        {
            line(out, if number == 0 { "stages" } else { "" }, stage);
        }
    }
    let mut costs: Vec<String> = Vec::new();
    costs.extend(
        pass.bytes
            .map(|bytes| format!("{} read", units::bytes(bytes))),
    );
    if pass.memory_bytes_max > 0 {
        costs.push(format!(
            "{} of states at most",
            units::bytes(pass.memory_bytes_max)
        ));
    }
    if pass.lanes > 1 {
        costs.push(format!("in {} lanes", pass.lanes));
    }
    costs.extend(pass.seconds.map(about));
    if !costs.is_empty() {
        line(out, "costs", &costs.join(", "));
    }
}

fn line(out: &mut String, label: &str, text: &str) {
    let _ = writeln!(out, "  {label:<8}{text}");
}

/// A list that goes on below its first line.
fn list(out: &mut String, label: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let mut current = format!("          {label:<9}");
    let mut empty = true;
    for (index, item) in items.iter().enumerate() {
        let comma = if index + 1 < items.len() { "," } else { "" };
        if !empty && current.chars().count() + item.chars().count() + 2 > TERMINAL_COLUMNS {
            let _ = writeln!(out, "{}", current.trim_end());
            current = " ".repeat(19);
        }
        current.push_str(&format!("{item}{comma} "));
        empty = false;
    }
    let _ = writeln!(out, "{}", current.trim_end());
}

fn states(out: &mut String, states: &[ExplainState]) {
    table(out, "learns", states.iter().map(state_row).collect());
}

fn joins(out: &mut String, joins: &[ExplainJoin]) {
    let row = |join: &ExplainJoin| {
        [
            join.step.clone(),
            join.method.to_owned(),
            format!("it {}", join.why),
        ]
    };
    table(out, "joins", joins.iter().map(row).collect());
}

fn windows(out: &mut String, windows: &[ExplainWindow]) {
    let row = |window: &ExplainWindow| {
        [
            window.step.clone(),
            window.row_order.to_owned(),
            format!("it {}", window.why),
        ]
    };
    table(out, "windows", windows.iter().map(row).collect());
}

/// Rows of cells, in columns.
fn table<const N: usize>(out: &mut String, label: &str, rows: Vec<[String; N]>) {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}", width = *width))
            .collect();
        line(
            out,
            if index == 0 { label } else { "" },
            cells.join("  ").trim_end(),
        );
    }
}

fn state_row(state: &ExplainState) -> [String; 5] {
    let rows = state
        .part
        .as_ref()
        .map_or("of all rows".to_owned(), |part| format!("of `{part}`"));
    let rows = if state.continues {
        format!("{rows}, after that of the run before")
    } else {
        rows
    };
    let known = match (state.held, state.reused) {
        (true, _) => "held".to_owned(),
        (false, true) => "known already".to_owned(),
        (false, false) => units::bytes(state.memory_bytes_max),
    };
    [
        state.analyzer.clone(),
        state.columns.join(", "),
        format!("for {}", state.step),
        rows,
        known,
    ]
}

fn short(id: &str) -> &str {
    id.get(..ID_CHARS_SHOWN).unwrap_or(id)
}

/// A flowchart: datasets, passes, and what passes hand on to each other.
pub fn mermaid(explain: &ExplainProgram) -> String {
    let mut out = String::from("flowchart LR\n");
    let mut datasets: BTreeMap<&str, usize> = BTreeMap::new();
    let mut edges: Vec<String> = Vec::new();
    for pass in &explain.passes {
        let number = pass.number;
        let mut label = format!("pass {number}: {}", pass.work);
        label.extend(
            pass.bytes
                .map(|bytes| format!("<br/>{}", units::bytes(bytes))),
        );
        let class = if pass.reused { ":::done" } else { "" };
        let _ = writeln!(out, "  p{number}[\"{}\"]{class}", quoted(&label));
        for read in &pass.reads {
            let next = datasets.len();
            let dataset = *datasets.entry(&read.dataset).or_insert(next);
            let columns = units::counted(read.columns.len() as u64, "column");
            edges.push(format!("  d{dataset} -- \"{columns}\" --> p{number}"));
        }
        match (&pass.gives, pass.work) {
            (Some(gives), "write") => {
                let _ = writeln!(out, "  s{number}[/\"{}\"/]", quoted(gives));
                edges.push(format!("  p{number} --> s{number}"));
            }
            (Some(gives), _) => {
                let next = datasets.len();
                let dataset = *datasets.entry(gives).or_insert(next);
                edges.push(format!("  p{number} --> d{dataset}"));
            }
            (None, _) => {}
        }
        edges.extend(finding_edges(explain, pass));
    }
    for training in &explain.trainings {
        let number = training.number;
        let _ = writeln!(out, "  p{number}[\"training {number}\"]");
        let _ = writeln!(out, "  s{number}[/\"{}\"/]", quoted(&training.sink));
        let written = |pass: &&ExplainPass| pass.work == "write" && pass.gives == training.reads;
        match explain.passes.iter().find(written) {
            Some(pass) => edges.push(format!("  s{} --> p{number}", pass.number)),
            None => edges.extend(
                (1..number)
                    .rev()
                    .take(1)
                    .map(|before| format!("  p{before} --> p{number}")),
            ),
        }
        edges.push(format!("  p{number} --> s{number}"));
    }
    for (name, dataset) in &datasets {
        let _ = writeln!(out, "  d{dataset}[(\"{}\")]", quoted(name));
    }
    edges.iter().for_each(|edge| {
        let _ = writeln!(out, "{edge}");
    });
    if explain.passes.iter().any(|pass| pass.reused) {
        out.push_str("  classDef done stroke-dasharray: 4\n");
    }
    out
}

/// What a pass has learned goes to those later passes that run the steps that asked for it.
fn finding_edges(explain: &ExplainProgram, pass: &ExplainPass) -> Vec<String> {
    let later = explain
        .passes
        .iter()
        .filter(|later| later.number > pass.number);
    let edges = later.filter_map(|later| {
        let steps: Vec<&String> = later.reads.iter().flat_map(|read| &read.steps).collect();
        let count = pass
            .learns
            .iter()
            .filter(|state| steps.contains(&&state.step))
            .count() as u64;
        let states = units::counted(count, "state");
        (count > 0).then(|| format!("  p{} -. \"{states}\" .-> p{}", pass.number, later.number))
    });
    edges.collect()
}

/// Text inside Mermaid's quotes; `<br/>` is meant.
fn quoted(text: &str) -> String {
    text.replace('"', "#quot;").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_plan::ExplainRead;

    fn example() -> ExplainProgram {
        let read = |dataset: &str, columns: &[&str], steps: &[&str]| ExplainRead {
            dataset: dataset.into(),
            spans: Some(12),
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            steps: steps.iter().map(|step| (*step).to_owned()).collect(),
        };
        let state = |analyzer: &str, column: &str, step: &str, reused| ExplainState {
            id: "00".into(),
            analyzer: analyzer.into(),
            columns: vec![column.into()],
            step: step.into(),
            part: (analyzer == "moments").then(|| "train".into()),
            memory_bytes_max: 64 << 20,
            reused,
            continues: false,
            held: false,
        };
        let pass = |number, work| ExplainPass {
            number,
            id: format!("{number}a2b3c4d5e6f7"),
            level: 1,
            work,
            why: "2 statistics need all rows".into(),
            reads: Vec::new(),
            learns: Vec::new(),
            windows: Vec::new(),
            joins: Vec::new(),
            gives: None,
            lanes: 1,
            bytes: Some(4_200_000_000),
            memory_bytes_max: 0,
            seconds: (number == 1).then_some(75.4),
            reused: false,
            runs_on: "workers",
            stages: None,
            spans_to_read: None,
            beside: None,
        };
        let long: Vec<String> = (0..30).map(|i| format!("column_{i}")).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let passes = vec![
            ExplainPass {
                reads: vec![read("demand", &["price", "item_id"], &["cleaned.filter"])],
                learns: vec![
                    state("moments", "price", "features.standardize", true),
                    state("vocabulary", "item_id", "features.vocabulary", false),
                ],
                lanes: 2,
                memory_bytes_max: 128 << 20,
                ..pass(1, "learn")
            },
            ExplainPass {
                reads: vec![read("demand", &["price"], &[])],
                gives: Some("joined.join (gathered)".into()),
                why: "joined.join needs all rows at once".into(),
                reused: true,
                bytes: None,
                ..pass(2, "gather")
            },
            ExplainPass {
                reads: vec![read(
                    "joined.join (gathered)",
                    &long,
                    &["cleaned.filter", "features.standardize"],
                )],
                windows: vec![ExplainWindow {
                    step: "windows.rolling".into(),
                    row_order: "in order of time",
                    why: "reads spans that follow each other in time",
                }],
                runs_on: "workers",
                spans_to_read: Some((1, 12)),
                beside: Some(true),
                gives: Some("table".into()),
                why: "sink `table` is written".into(),
                ..pass(3, "write")
            },
        ];
        let training = ExplainTraining {
            number: 4,
            sink: "net".into(),
            from: "features".into(),
            parts: vec!["train".into(), "validation".into()],
            reads: Some("table".into()),
        };
        ExplainProgram {
            pipeline: "demand".into(),
            passes,
            trainings: vec![training],
            continues: None,
            refits: Vec::new(),
        }
    }

    #[test]
    fn as_text() {
        let text = anstream::adapter::strip_str(&text(&example())).to_string();
        let expect = "
demand: 3 passes, 1 training, 1 of them done already, 8.4 GB to read, 134.2 MB of states at most

pass 1  learn, level 1  1a2b3c4d
  why     2 statistics need all rows
  reads   demand, 12 spans
          columns  price, item_id
          steps    cleaned.filter
  learns  moments     price    for features.standardize  of `train`   known already
          vocabulary  item_id  for features.vocabulary   of all rows  67.1 MB
  runs on threads here, or workers where there are some
  costs   4.2 GB read, 134.2 MB of states at most, in 2 lanes, about 1 min 15 s

pass 2  gather, level 1, done already  2a2b3c4d
  why     joined.join needs all rows at once
  reads   demand, 12 spans
          columns  price
  gives   joined.join (gathered)

pass 3  write, level 1  3a2b3c4d
  why     sink `table` is written
  reads   joined.join (gathered), 12 spans
          columns  column_0, column_1, column_2, column_3, column_4, column_5,
                   column_6, column_7, column_8, column_9, column_10,
                   column_11, column_12, column_13, column_14, column_15,
                   column_16, column_17, column_18, column_19, column_20,
                   column_21, column_22, column_23, column_24, column_25,
                   column_26, column_27, column_28, column_29
          steps    cleaned.filter, features.standardize
  windows windows.rolling  in order of time  it reads spans that follow each other in time
  gives   table
  reuses  what earlier runs made of all but 1 of 12 spans, new or changed, or within reach of such
  beside  backfills write it while others are written
  runs on threads here, or workers where there are some
  costs   4.2 GB read

training 4
  why     sink `net` learns from `features`
  reads   what `table` writes: train and validation
  gives   the model `net`
  runs on threads here: trainings come after all passes
";
        assert!(text == expect.trim_start_matches('\n'), "got:\n{text}");
    }

    #[test]
    fn as_a_picture() {
        let text = mermaid(&example());
        let expect = "
flowchart LR
  p1[\"pass 1: learn<br/>4.2 GB\"]
  p2[\"pass 2: gather\"]:::done
  p3[\"pass 3: write<br/>4.2 GB\"]
  s3[/\"table\"/]
  p4[\"training 4\"]
  s4[/\"net\"/]
  d0[(\"demand\")]
  d1[(\"joined.join (gathered)\")]
  d0 -- \"2 columns\" --> p1
  p1 -. \"1 state\" .-> p3
  d0 -- \"1 column\" --> p2
  p2 --> d1
  d1 -- \"30 columns\" --> p3
  p3 --> s3
  s3 --> p4
  p4 --> s4
  classDef done stroke-dasharray: 4
";
        assert!(text == expect.trim_start_matches('\n'), "got:\n{text}");
    }

    #[test]
    fn as_json() {
        let value: serde_json::Value = serde_json::from_str(&json(&example()).unwrap()).unwrap();
        assert_eq!(value["passes"][0]["learns"][0]["part"], "train");
        assert_eq!(value["passes"][2]["gives"], "table");
    }
}
