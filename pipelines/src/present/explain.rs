//! A program, explained: as text for people, JSON for programs, Mermaid for pictures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use forebay_model::{Fault, Result};
use forebay_plan::{
    ExplainJoin, ExplainPass, ExplainProgram, ExplainRewrite, ExplainState, ExplainTraining,
    ExplainWindow, StepRefit,
};

use super::artifact::without_helper_prefix;
use super::{TERMINAL_COLUMNS, units};

/// Characters of an id that are shown: enough to distinguish a program's ids.
const ID_CHARS_SHOWN: usize = 8;

const TITLE: Style = AnsiColor::Blue.on_default().bold();
const FAINT: Style = Style::new().dimmed();

/// Aligned text with colours, which `anstream` removes where they are not shown.
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

/// Aligned text without colours.
pub fn plain(explain: &ExplainProgram) -> String {
    anstream::adapter::strip_str(&text(explain)).to_string()
}

/// State of a step that is not fitted in each run.
pub(crate) fn refit_text(refit: &StepRefit) -> String {
    let StepRefit {
        step,
        refit,
        held: is_held,
        since,
        reason,
        drift,
    } = refit;
    let state = match (*is_held, since) {
        (true, Some(since)) => format!("in force since {since}"),
        (true, None) => "in force since an earlier run".to_owned(),
        (false, Some(since)) => format!("learned anew at {since}"),
        (false, None) => "learned anew".to_owned(),
    };
    let drift = drift.map_or_else(String::new, |drift| format!(", drift {drift:.4}"));
    format!("{step}: {state} ({reason}); refit: {refit}{drift}")
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
    let mut parts = vec![match explain.passes.len() {
        1 => "1 pass".to_owned(),
        count => format!("{count} passes"),
    }];
    if !explain.trainings.is_empty() {
        parts.push(units::counted(explain.trainings.len() as u64, "training"));
    }
    let mut due_passes = Vec::new();
    for pass in &explain.passes {
        if !pass.reused {
            due_passes.push(pass);
        }
    }
    let reused = explain.passes.len() - due_passes.len();
    if reused > 0 {
        parts.push(format!("{reused} of them done already"));
    }
    let mut bytes = Some(0);
    let mut memory_bytes_max = 0;
    let mut seconds = Some(0.0);
    for pass in &due_passes {
        if pass.work != "gather" {
            bytes = bytes.zip(pass.bytes).map(|(sum, bytes)| sum + bytes);
        }
        memory_bytes_max = memory_bytes_max.max(pass.memory_bytes_max);
        seconds = seconds
            .zip(pass.seconds)
            .map(|(sum, seconds)| sum + seconds);
    }
    if let Some(bytes) = bytes {
        parts.push(format!("{} to read", units::bytes(bytes)));
    }
    if memory_bytes_max > 0 {
        let memory = units::bytes(memory_bytes_max);
        parts.push(format!("{memory} of states at most"));
    }
    if let Some(seconds) = seconds
        && !due_passes.is_empty()
    {
        parts.push(about(seconds));
    }
    parts.join(", ")
}

/// Expected duration, in words.
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
        let mut dataset = read.dataset.clone();
        if let Some(spans) = read.spans {
            dataset += &format!(", {}", units::counted(spans as u64, "span"));
        }
        line(out, "reads", &dataset);
        list(out, "columns", &read.columns);
        list(out, "steps", &read.steps);
    }
    windows(out, &pass.windows);
    joins(out, &pass.joins);
    states(out, &pass.learns);
    if let Some(gives) = &pass.gives {
        line(out, "gives", gives);
    }
    if let Some(text) = reuse_text(pass) {
        line(out, "reuses", &text);
    }
    rewrites(out, &pass.rewrites);
    if let Some(is_concurrent) = pass.beside {
        let text = if is_concurrent {
            "backfills write it while others are written"
        } else {
            "backfills write it after the interval before it: windows need what that one remembers"
        };
        line(out, "beside", text);
    }
    if !pass.reused {
        let runs_on = match pass.runs_on {
            "workers" => "threads here, or workers where there are some",
            runs_on => runs_on,
        };
        line(out, "runs on", runs_on);
        let mut label = "stages";
        for stage in pass.stages.iter().flat_map(|stages| stages.lines()) {
            line(out, label, stage);
            label = "";
        }
    }
    let costs = costs_text(pass);
    if !costs.is_empty() {
        line(out, "costs", &costs);
    }
}

/// Results of earlier runs that a pass continues, if it does.
fn reuse_text(pass: &ExplainPass) -> Option<String> {
    let (read, total) = pass.spans_to_read?;
    if pass.reused || read >= total {
        return None;
    }
    let spans = units::counted(total as u64, "span");
    if read == 0 {
        return Some(format!("what earlier runs made of all {spans}"));
    }
    Some(format!(
        "what earlier runs made of all but {read} of {spans}, new or changed, or within reach of \
         such"
    ))
}

/// Bytes, memory and duration of a pass, as far as they are known.
fn costs_text(pass: &ExplainPass) -> String {
    let mut costs: Vec<String> = Vec::new();
    if let Some(bytes) = pass.bytes {
        costs.push(format!("{} read", units::bytes(bytes)));
    }
    if pass.memory_bytes_max > 0 {
        let memory = units::bytes(pass.memory_bytes_max);
        costs.push(format!("{memory} of states at most"));
    }
    if pass.lanes > 1 {
        costs.push(format!("in {} lanes", pass.lanes));
    }
    costs.extend(pass.seconds.map(about));
    costs.join(", ")
}

fn line(out: &mut String, label: &str, text: &str) {
    let _ = writeln!(out, "  {label:<8}{text}");
}

/// Writes a list whose items continue below the first line.
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
    let mut rows = Vec::with_capacity(joins.len());
    for join in joins {
        let why = format!("it {}", join.why);
        rows.push([join.step.clone(), join.method.to_owned(), why]);
    }
    table(out, "joins", rows);
}

fn windows(out: &mut String, windows: &[ExplainWindow]) {
    let mut rows = Vec::with_capacity(windows.len());
    for window in windows {
        let why = format!("it {}", window.why);
        rows.push([window.step.clone(), window.row_order.to_owned(), why]);
    }
    table(out, "windows", rows);
}

fn rewrites(out: &mut String, rewrites: &[ExplainRewrite]) {
    let mut rows = Vec::with_capacity(rewrites.len());
    for rewrite in rewrites {
        let cost = format!("writes all rows again {}", rewrite.when);
        rows.push([rewrite.step.clone(), cost]);
    }
    table(out, "nights", rows);
}

/// Rows of cells, in columns.
fn table<const N: usize>(out: &mut String, label: &str, rows: Vec<[String; N]>) {
    let mut widths = [0; N];
    for row in &rows {
        for (cell, width) in row.iter().zip(&mut widths) {
            *width = cell.chars().count().max(*width);
        }
    }
    for (index, row) in rows.iter().enumerate() {
        let mut cells = Vec::with_capacity(N);
        for (cell, width) in row.iter().zip(widths) {
            cells.push(format!("{cell:<width$}"));
        }
        let label = if index == 0 { label } else { "" };
        line(out, label, cells.join("  ").trim_end());
    }
}

fn state_row(state: &ExplainState) -> [String; 5] {
    let mut rows = match &state.part {
        Some(part) => format!("of `{part}`"),
        None => "of all rows".to_owned(),
    };
    if state.continues {
        rows += ", after that of the run before";
    }
    let origin = if state.held {
        "held".to_owned()
    } else if state.reused {
        "known already".to_owned()
    } else {
        units::bytes(state.memory_bytes_max)
    };
    let columns: Vec<&str> = state
        .columns
        .iter()
        .map(|column| without_helper_prefix(column))
        .collect();
    [
        state.analyzer.clone(),
        columns.join(", "),
        format!("for {}", state.step),
        rows,
        origin,
    ]
}

fn short(id: &str) -> &str {
    id.get(..ID_CHARS_SHOWN).unwrap_or(id)
}

/// Flowchart of datasets, passes, and the results that passes exchange.
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
                    .map(|earlier| format!("  p{earlier} --> p{number}")),
            ),
        }
        edges.push(format!("  p{number} --> s{number}"));
    }
    for (name, dataset) in &datasets {
        let _ = writeln!(out, "  d{dataset}[(\"{}\")]", quoted(name));
    }
    for edge in edges.iter() {
        let _ = writeln!(out, "{edge}");
    }
    if explain.passes.iter().any(|pass| pass.reused) {
        out.push_str("  classDef done stroke-dasharray: 4\n");
    }
    out
}

/// Edges from a pass to the later passes that run the steps which use its findings.
fn finding_edges(explain: &ExplainProgram, pass: &ExplainPass) -> Vec<String> {
    let mut edges = Vec::new();
    for other in &explain.passes {
        if other.number <= pass.number {
            continue;
        }
        let steps: Vec<&String> = other.reads.iter().flat_map(|read| &read.steps).collect();
        let mut count = 0;
        for state in &pass.learns {
            count += u64::from(steps.contains(&&state.step));
        }
        if count > 0 {
            let states = units::counted(count, "state");
            let from = pass.number;
            let to = other.number;
            edges.push(format!("  p{from} -. \"{states}\" .-> p{to}"));
        }
    }
    edges
}

/// Text inside Mermaid's quotes; `<br/>` is meant.
fn quoted(text: &str) -> String {
    text.replace('"', "#quot;").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_plan::ExplainRead;

    fn read(dataset: &str, columns: &[&str], steps: &[&str]) -> ExplainRead {
        ExplainRead {
            dataset: dataset.into(),
            spans: Some(12),
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            steps: steps.iter().map(|step| (*step).to_owned()).collect(),
        }
    }

    fn state(analyzer: &str, column: &str, step: &str, reused: bool) -> ExplainState {
        ExplainState {
            id: "00".into(),
            analyzer: analyzer.into(),
            columns: vec![column.into()],
            step: step.into(),
            part: (analyzer == "moments").then(|| "train".into()),
            memory_bytes_max: 64 << 20,
            reused,
            continues: false,
            held: false,
        }
    }

    fn pass(number: usize, work: &'static str) -> ExplainPass {
        ExplainPass {
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
            rewrites: Vec::new(),
            beside: None,
        }
    }

    fn learn_pass() -> ExplainPass {
        ExplainPass {
            reads: vec![read("demand", &["price", "item_id"], &["cleaned.filter"])],
            learns: vec![
                state("moments", "price", "features.standardize", true),
                state("vocabulary", "item_id", "features.vocabulary", false),
            ],
            lanes: 2,
            memory_bytes_max: 128 << 20,
            ..pass(1, "learn")
        }
    }

    fn gather_pass() -> ExplainPass {
        ExplainPass {
            reads: vec![read("demand", &["price"], &[])],
            gives: Some("joined.join (gathered)".into()),
            why: "joined.join needs all rows at once".into(),
            reused: true,
            bytes: None,
            ..pass(2, "gather")
        }
    }

    fn write_pass() -> ExplainPass {
        let columns: Vec<String> = (0..30).map(|i| format!("column_{i}")).collect();
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let steps = ["cleaned.filter", "features.standardize"];
        ExplainPass {
            reads: vec![read("joined.join (gathered)", &columns, &steps)],
            windows: vec![ExplainWindow {
                step: "windows.rolling".into(),
                row_order: "in order of time",
                why: "reads spans that follow each other in time",
            }],
            runs_on: "workers",
            spans_to_read: Some((1, 12)),
            rewrites: vec![ExplainRewrite {
                step: "features.standardize".into(),
                when: "when what it learned changed: `refit` holds it",
            }],
            beside: Some(true),
            gives: Some("table".into()),
            why: "sink `table` is written".into(),
            ..pass(3, "write")
        }
    }

    fn example() -> ExplainProgram {
        let training = ExplainTraining {
            number: 4,
            sink: "net".into(),
            from: "features".into(),
            parts: vec!["train".into(), "validation".into()],
            reads: Some("table".into()),
        };
        ExplainProgram {
            pipeline: "demand".into(),
            passes: vec![learn_pass(), gather_pass(), write_pass()],
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
  nights  features.standardize  writes all rows again when what it learned changed: `refit` holds it
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
