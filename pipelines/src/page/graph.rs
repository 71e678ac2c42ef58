//! The graph of a pipeline: sources, steps, sinks.

use std::collections::BTreeMap;

use forebay_model::{Fault, FaultSite, NodeInput, Pipeline, PipelineSink};
use layout::backends::svg::SVGWriter;
use layout::core::base::Orientation;
use layout::core::color::Color;
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;

use crate::present::diagnostic::step_of;

/// Steps of a node that are named.
const STEPS_SHOWN: usize = 4;

/// Room below the lowest box, for curves.
const BOTTOM_MARGIN: f64 = 40.0;

/// Room beside the last box, as wide as the library leaves before the first.
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
    /// Its name in the graph.
    node: String,
    /// Its name for people, and its step, where that is known.
    pub shown: String,
}

/// The nodes that faults are about; `folders` are those of sources, by name.
pub(super) fn failed_nodes(
    pipeline: &Pipeline,
    fault: &Fault,
    folders: &BTreeMap<String, String>,
) -> Vec<FailedNode> {
    let nodes = nodes(pipeline);
    let mut failed: Vec<FailedNode> = Vec::new();
    for fault in std::iter::once(fault).chain(fault.others()) {
        let found = failed_node(fault.site(), folders, &|name| {
            nodes.iter().any(|(node, _)| node == name)
        });
        failed.extend(found.filter(|found| !failed.iter().any(|known| known.node == found.node)));
    }
    failed
}

/// The node that a fault is about: by its place in the spec, by its step, or by the folder that its file lies in.
fn failed_node(
    site: &FaultSite,
    folders: &BTreeMap<String, String>,
    is_node: &dyn Fn(&str) -> bool,
) -> Option<FailedNode> {
    let named = |node: String, shown: &str| {
        is_node(&node).then(|| FailedNode {
            node,
            shown: shown.to_owned(),
        })
    };
    let of_step = |step: &str| {
        let node = step.split('.').next().unwrap_or_default();
        named(node.to_owned(), step)
    };
    let step = site.step.as_deref().and_then(of_step);
    let path = || {
        let (kind, rest) = site.spec.as_ref()?.path.split_once('.')?;
        let name = rest.split(['.', '[']).next()?;
        match kind {
            "sinks" => named(format!("sink {name}"), name),
            "steps" => of_step(&step_of(site)?),
            _ => named(name.to_owned(), name),
        }
    };
    let file = || {
        let file = site.file.as_deref()?;
        let holds = |folder: &str| {
            file.strip_prefix(folder)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        let mut found = folders.iter().filter(|(_, folder)| holds(folder));
        let (source, _) = found.next().filter(|_| found.next().is_none())?;
        named(source.clone(), source)
    };
    step.or_else(path).or_else(file)
}

/// Draws the graph, and marks the nodes that failed.
pub(super) fn draw(pipeline: &Pipeline, failed: &[FailedNode]) -> Option<String> {
    let mut nodes = nodes(pipeline);
    for (name, node) in &mut nodes {
        let marks = failed.iter().filter(|failed| failed.node == *name);
        for FailedNode { shown, .. } in marks {
            node.fill = "lightpink";
            node.label += &match shown.split_once('.') {
                Some((_, step)) => format!("\nfailed: {step}"),
                None => "\nfailed".to_owned(),
            };
        }
    }
    let mut graph = VisualGraph::new(Orientation::LeftToRight);
    let mut handles = BTreeMap::new();
    for (name, node) in &nodes {
        let mut style = StyleAttr::simple();
        style.fill_color = Some(Color::from_name(node.fill)?);
        let longest = node.label.lines().map(str::len).max().unwrap_or(1);
        let size = Point::new(
            9.0 * longest as f64 + 24.0,
            22.0 * node.label.lines().count() as f64 + 18.0,
        );
        let element = Element::create(
            ShapeKind::new_box(&node.label),
            style,
            Orientation::LeftToRight,
            size,
        );
        handles.insert(name.clone(), graph.add_node(element));
    }
    for (name, node) in &nodes {
        for input in &node.inputs {
            if let (Some(from), Some(to)) = (handles.get(input), handles.get(name)) {
                graph.add_edge(Arrow::simple(""), *from, *to);
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

/// The drawing with another size: the library's ends at the last box, and curves make it far too high.
fn with_size(svg: &str, size: Point) -> String {
    let Some((before, rest)) = svg.split_once("viewBox=\"0 0 ") else {
        return svg.to_owned();
    };
    let Some((_, after)) = rest.split_once('"') else {
        return svg.to_owned();
    };
    let head = before.rfind("<svg").map_or(before, |at| &before[..at]);
    let Point {
        x: width,
        y: height,
    } = size;
    format!(
        "{head}<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\"{after}"
    )
}

fn nodes(pipeline: &Pipeline) -> Vec<(String, GraphNode)> {
    let sources = pipeline.sources.iter().map(|source| {
        let label = format!("{}\n({})", source.name, source.format);
        (
            source.name.clone(),
            GraphNode {
                label,
                fill: "lightblue",
                inputs: Vec::new(),
            },
        )
    });
    let names: Vec<&str> = pipeline
        .sources
        .iter()
        .map(|source| source.name.as_str())
        .collect();
    let names: Vec<&str> = names
        .into_iter()
        .chain(pipeline.nodes.iter().map(|node| node.name.as_str()))
        .collect();
    let steps = pipeline.nodes.iter().map(|node| {
        let mut inputs = match &node.input {
            NodeInput::From(from) => vec![from.clone()],
            NodeInput::Union(all) => all.clone(),
            NodeInput::Sql(query) => {
                let is_letter = |c: char| c.is_alphanumeric() || c == '_';
                let words: Vec<&str> = query.split(|c| !is_letter(c)).collect();
                names
                    .iter()
                    .filter(|name| words.contains(*name))
                    .map(|name| (*name).to_owned())
                    .collect()
            }
        };
        let joined = node
            .steps
            .iter()
            .filter_map(|step| step.config["with"].as_str());
        inputs.extend(
            joined
                .filter(|with| names.contains(with))
                .map(str::to_owned),
        );
        let mut kinds: Vec<&str> = node.steps.iter().map(|step| step.kind.as_str()).collect();
        kinds.dedup();
        let more = kinds.len().saturating_sub(STEPS_SHOWN);
        kinds.truncate(STEPS_SHOWN);
        let mut label = node.name.clone();
        kinds.iter().for_each(|kind| label += &format!("\n{kind}"));
        if more > 0 {
            label += &format!("\nand {more} more");
        }
        (
            node.name.clone(),
            GraphNode {
                label,
                fill: "white",
                inputs,
            },
        )
    });
    let sink = |sink: &PipelineSink, kind: &str| {
        let node = GraphNode {
            label: format!("{}\n({kind})", sink.name),
            fill: "lightgreen",
            inputs: vec![sink.from.clone()],
        };
        (format!("sink {}", sink.name), node)
    };
    let written = pipeline
        .sinks
        .iter()
        .map(|known| sink(known, &known.format));
    let trained = pipeline
        .trainings
        .iter()
        .map(|known| sink(known, &known.format));
    let forecasts = pipeline.predictions.iter().map(|known| {
        let (name, mut node) = sink(known, "predict");
        node.inputs.extend(
            known.config["model"]
                .as_str()
                .map(|model| format!("sink {model}")),
        );
        (name, node)
    });
    sources
        .chain(steps)
        .chain(written)
        .chain(trained)
        .chain(forecasts)
        .collect()
}

#[cfg(test)]
mod tests {
    use forebay_model::{SpecLocation, codes};

    use super::*;

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
