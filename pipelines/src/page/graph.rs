//! The graph of a pipeline: sources, steps, sinks.

use std::collections::BTreeMap;

use forebay_contract::PredictConfig;
use forebay_model::{Fault, FaultSite, NodeInput, Pipeline, PipelineNode, PipelineSink};
use layout::backends::svg::SVGWriter;
use layout::core::base::Orientation;
use layout::core::color::Color;
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;

use crate::present::diagnostic::step_of;

/// Steps of a node that are named: more would make a box of several screens.
const STEPS_SHOWN: usize = 40;

/// Room below the lowest box, for curves.
const BOTTOM_MARGIN: f64 = 40.0;

/// Margin after the last box, as wide as the library leaves before the first.
const RIGHT_MARGIN: f64 = 30.0;

/// A box of the graph.
struct GraphNode {
    label: String,
    fill: &'static str,
    inputs: Vec<String>,
}

/// A node in which a run failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FailedNode {
    /// Name of the node in the graph.
    node: String,
    /// Name for people, and the step, where that is known.
    pub shown: String,
}

impl FailedNode {
    fn new(node: &str, label: &str) -> FailedNode {
        FailedNode {
            node: node.to_owned(),
            shown: label.to_owned(),
        }
    }

    /// The node of a step, by the step's name: `features.lag` is one of `features`.
    fn of_step(step: &str) -> FailedNode {
        let node = step.split('.').next().unwrap_or_default();
        FailedNode::new(node, step)
    }
}

/// The nodes that faults are about; `folders` are those of sources, by name.
pub(super) fn failed_nodes(
    pipeline: &Pipeline,
    fault: &Fault,
    folders: &BTreeMap<String, String>,
) -> Vec<FailedNode> {
    let nodes = nodes(pipeline);
    let is_node = |name: &str| nodes.iter().any(|(node, _)| node == name);
    let mut failed_nodes: Vec<FailedNode> = Vec::new();
    for fault in std::iter::once(fault).chain(fault.others()) {
        let Some(failed) = failed_node(fault.site(), folders, &is_node) else {
            continue;
        };
        // Several faults may be about one node, which is marked once.
        if failed_nodes.iter().all(|listed| listed.node != failed.node) {
            failed_nodes.push(failed);
        }
    }
    failed_nodes
}

/// The node that a fault is about: by its step, by its place in the spec, or by the folder that its file lies in.
fn failed_node(
    site: &FaultSite,
    folders: &BTreeMap<String, String>,
    is_node: &dyn Fn(&str) -> bool,
) -> Option<FailedNode> {
    let by_step = site.step.as_deref().map(FailedNode::of_step);
    let candidates = [by_step, node_in_spec(site), source_of_file(site, folders)];
    candidates
        .into_iter()
        .flatten()
        .find(|candidate| is_node(&candidate.node))
}

/// The node at the place of the spec that a fault names.
fn node_in_spec(site: &FaultSite) -> Option<FailedNode> {
    let (kind, path) = site.spec.as_ref()?.path.split_once('.')?;
    let name = path.split(['.', '[']).next()?;
    match kind {
        "sinks" => Some(FailedNode::new(&sink_node_name(name), name)),
        "steps" => step_of(site).map(|step| FailedNode::of_step(&step)),
        _ => Some(FailedNode::new(name, name)),
    }
}

/// The source whose folder alone holds the file that a fault names.
fn source_of_file(site: &FaultSite, folders: &BTreeMap<String, String>) -> Option<FailedNode> {
    let file = site.file.as_deref()?;
    let mut source = None;
    for (name, folder) in folders {
        let below = file.strip_prefix(folder.as_str());
        if !below.is_some_and(|below| below.starts_with('/')) {
            continue;
        }
        if source.is_some() {
            return None;
        }
        source = Some(name);
    }
    source.map(|name| FailedNode::new(name, name))
}

/// Draws the graph, and marks the nodes that failed.
pub(super) fn draw(pipeline: &Pipeline, failed: &[FailedNode]) -> Option<String> {
    let mut nodes = nodes(pipeline);
    for (name, node) in &mut nodes {
        let marks = failed.iter().filter(|failed| failed.node == *name);
        for FailedNode { shown: label, .. } in marks {
            node.fill = "lightpink";
            node.label += &match label.split_once('.') {
                Some((_, step)) => format!("\nfailed: {step}"),
                None => "\nfailed".to_owned(),
            };
        }
    }
    let mut graph = VisualGraph::new(Orientation::LeftToRight);
    let mut handles = BTreeMap::new();
    let mut numbers = BTreeMap::new();
    for (number, (name, node)) in nodes.iter().enumerate() {
        let mut style = StyleAttr::simple();
        style.fill_color = Some(Color::from_name(node.fill)?);
        let longest = node.label.lines().map(str::len).max().unwrap_or(1);
        let size = Point::new(
            9.0 * longest as f64 + 24.0,
            22.0 * node.label.lines().count() as f64 + 18.0,
        );
        // The script of the page lights up what a node is made of, and what is made of it.
        let element = Element::create_with_properties(
            ShapeKind::new_box(&node.label),
            style,
            Orientation::LeftToRight,
            size,
            format!(
                "class=\"node\" data-node=\"{number}\" data-name=\"{}\"",
                attribute(name)
            ),
        );
        numbers.insert(name.clone(), number);
        handles.insert(name.clone(), graph.add_node(element));
    }
    for (name, node) in &nodes {
        for input in &node.inputs {
            if let (Some(from), Some(to)) = (handles.get(input), handles.get(name)) {
                let ends = format!(
                    "class=\"edge\" data-from=\"{}\" data-to=\"{}\"",
                    numbers[input], numbers[name]
                );
                graph.add_edge(Arrow::simple_with_properties("", ends), *from, *to);
            }
        }
    }
    let mut svg = SVGWriter::new();
    graph.do_it(false, false, false, &mut svg);
    let corners = handles
        .values()
        .map(|handle| graph.pos(*handle).bbox(true).1);
    let corner = corners.fold(Point::zero(), |most, corner| {
        Point::new(most.x.max(corner.x), most.y.max(corner.y))
    });
    Some(with_size(
        &svg.finalize(),
        Point::new(corner.x + RIGHT_MARGIN, corner.y + BOTTOM_MARGIN),
    ))
}

/// A text as the value of an attribute.
fn attribute(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

/// The drawing with another size: the library's ends at the last box, and curves make it far too high.
fn with_size(svg: &str, size: Point) -> String {
    let Some((head, from_width)) = svg.split_once("viewBox=\"0 0 ") else {
        return svg.to_owned();
    };
    let Some((_, tail)) = from_width.split_once('"') else {
        return svg.to_owned();
    };
    let head = head.rfind("<svg").map_or(head, |at| &head[..at]);
    let Point {
        x: width,
        y: height,
    } = size;
    format!(
        "{head}<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\"{tail}"
    )
}

/// The boxes of the graph by their names: sources, steps, sinks.
fn nodes(pipeline: &Pipeline) -> Vec<(String, GraphNode)> {
    let mut nodes = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for source in &pipeline.sources {
        names.push(&source.name);
        let node = GraphNode {
            label: format!("{}\n({})", source.name, source.format),
            fill: "lightblue",
            inputs: Vec::new(),
        };
        nodes.push((source.name.clone(), node));
    }
    names.extend(pipeline.nodes.iter().map(|node| node.name.as_str()));
    for node in &pipeline.nodes {
        let graph_node = GraphNode {
            label: step_label(node),
            fill: "white",
            inputs: inputs_of(node, &names),
        };
        nodes.push((node.name.clone(), graph_node));
    }
    for output in pipeline.sinks.iter().chain(&pipeline.trainings) {
        nodes.push(sink_node(output, &output.format));
    }
    for prediction in &pipeline.predictions {
        let (name, mut node) = sink_node(prediction, "predict");
        if let Ok(config) = serde_json::from_value::<PredictConfig>(prediction.config.clone()) {
            let models = config.models().into_iter();
            node.inputs.extend(models.map(sink_node_name));
        }
        nodes.push((name, node));
    }
    nodes
}

fn sink_node(sink: &PipelineSink, kind: &str) -> (String, GraphNode) {
    let node = GraphNode {
        label: format!("{}\n({kind})", sink.name),
        fill: "lightgreen",
        inputs: vec![sink.from.clone()],
    };
    (sink_node_name(&sink.name), node)
}

/// Name of the box of a sink: a step may be called like it.
pub(super) fn sink_node_name(sink: &str) -> String {
    format!("sink {sink}")
}

/// The name of a step and the kinds of its transforms, one a line.
fn step_label(node: &PipelineNode) -> String {
    let mut kinds: Vec<&str> = node.steps.iter().map(|step| step.kind.as_str()).collect();
    kinds.dedup();
    let hidden = kinds.len().saturating_sub(STEPS_SHOWN);
    kinds.truncate(STEPS_SHOWN);
    let mut label = node.name.clone();
    for kind in kinds {
        label += &format!("\n{kind}");
    }
    if hidden > 0 {
        label += &format!("\nand {hidden} more");
    }
    label
}

/// The datasets that a step reads, of those with these names.
fn inputs_of(node: &PipelineNode, names: &[&str]) -> Vec<String> {
    let mut inputs = match &node.input {
        NodeInput::From(from) => vec![from.clone()],
        NodeInput::Union(inputs) => inputs.clone(),
        NodeInput::Sql(query) => {
            let is_letter = |c: char| c.is_alphanumeric() || c == '_';
            let words: Vec<&str> = query.split(|c| !is_letter(c)).collect();
            let named = names.iter().filter(|name| words.contains(*name));
            named.map(|name| (*name).to_owned()).collect()
        }
    };
    for step in &node.steps {
        if let Some(joined) = step.config["with"].as_str()
            && names.contains(&joined)
        {
            inputs.push(joined.to_owned());
        }
    }
    inputs
}

#[cfg(test)]
mod tests {
    use forebay_model::{SpecLocation, Step, codes};

    use super::*;

    #[test]
    fn each_step_of_a_node_is_named() {
        let node = |count: usize| {
            let mut steps = Vec::new();
            for number in 0..count {
                steps.push(Step {
                    kind: format!("step_{number}"),
                    config: serde_json::Value::Null,
                    at: None,
                });
            }
            PipelineNode::new("features", NodeInput::From("demand".to_owned()), steps)
        };
        assert_eq!(step_label(&node(2)), "features\nstep_0\nstep_1");
        let label = step_label(&node(12));
        assert!(label.ends_with("\nstep_11"), "{label}");
        assert!(step_label(&node(42)).ends_with("\nstep_39\nand 2 more"));
    }

    #[test]
    fn a_fault_is_about_a_node() {
        let at = |path: &str| SpecLocation {
            file: "spec.yaml".to_owned(),
            line: 1,
            column: 1,
            width: 1,
            path: path.to_owned(),
        };
        let fault = || Fault::new(codes::BAD_ROW, "wrong");
        let placed = |path: &str| fault().at(Some(&at(path)));
        let cases = [
            (
                placed("steps.features.do[1].lag.columns[0]"),
                Some(("features", "features.lag")),
            ),
            (
                placed("steps.features.do[1].lag").step("features.lag[2]"),
                Some(("features", "features.lag[2]")),
            ),
            (
                placed("steps.features.from"),
                Some(("features", "features")),
            ),
            (
                placed("sources.demand.parquet.path"),
                Some(("demand", "demand")),
            ),
            (placed("sinks.out.parquet"), Some(("sink out", "out"))),
            (placed("split.train"), None),
            (
                fault().step("features.expect"),
                Some(("features", "features.expect")),
            ),
            (fault().step("gone.expect"), None),
            (
                fault().file("/data/demand/a.parquet"),
                Some(("demand", "demand")),
            ),
            (fault().file("/data/demand_of_2016/a.parquet"), None),
            (fault(), None),
        ];
        let folders = BTreeMap::from([("demand".to_owned(), "/data/demand".to_owned())]);
        let is_node = |name: &str| ["demand", "features", "sink out"].contains(&name);
        for (fault, expected) in cases {
            let found = failed_node(fault.site(), &folders, &is_node);
            let expected = expected.map(|(node, shown)| FailedNode {
                node: node.to_owned(),
                shown: shown.to_owned(),
            });
            assert_eq!(found, expected, "{fault:?}");
        }
    }
}
