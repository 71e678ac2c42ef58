//! The graph of a pipeline: sources, steps, sinks.

use std::collections::BTreeMap;

use forebay_model::{NodeInput, Pipeline, PipelineSink};
use layout::backends::svg::SVGWriter;
use layout::core::base::Orientation;
use layout::core::color::Color;
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;

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

/// Draws the graph.
pub(super) fn draw(pipeline: &Pipeline) -> Option<String> {
    let nodes = nodes(pipeline);
    let mut graph = VisualGraph::new(Orientation::LeftToRight);
    let mut handles = BTreeMap::new();
    for (name, node) in &nodes {
        let mut style = StyleAttr::simple();
        style.fill_color = Some(Color::from_name(node.fill)?);
        let longest = node.label.lines().map(str::len).max().unwrap_or(1);
        let size = Point::new(9.0 * longest as f64 + 24.0, 22.0 * node.label.lines().count() as f64 + 18.0);
        let element = Element::create(ShapeKind::new_box(&node.label), style, Orientation::LeftToRight, size);
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
    let corners = handles.values().map(|handle| graph.pos(*handle).bbox(true).1);
    let corner = corners.fold(Point::zero(), |most, corner| Point::new(most.x.max(corner.x), most.y.max(corner.y)));
    Some(with_size(&svg.finalize(), Point::new(corner.x + RIGHT_MARGIN, corner.y + BOTTOM_MARGIN)))
}

/// The drawing with another size: the library's ends at the last box, and curves make it far too high.
fn with_size(svg: &str, size: Point) -> String {
    let Some((before, rest)) = svg.split_once("viewBox=\"0 0 ") else { return svg.to_owned() };
    let Some((_, after)) = rest.split_once('"') else { return svg.to_owned() };
    let head = before.rfind("<svg").map_or(before, |at| &before[..at]);
    let Point { x: width, y: height } = size;
    format!("{head}<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\"{after}")
}

fn nodes(pipeline: &Pipeline) -> Vec<(String, GraphNode)> {
    let sources = pipeline.sources.iter().map(|source| {
        let label = format!("{}\n({})", source.name, source.format);
        (source.name.clone(), GraphNode { label, fill: "lightblue", inputs: Vec::new() })
    });
    let names: Vec<&str> = pipeline.sources.iter().map(|source| source.name.as_str()).collect();
    let names: Vec<&str> = names.into_iter().chain(pipeline.nodes.iter().map(|node| node.name.as_str())).collect();
    let steps = pipeline.nodes.iter().map(|node| {
        let mut inputs = match &node.input {
            NodeInput::From(from) => vec![from.clone()],
            NodeInput::Union(all) => all.clone(),
            NodeInput::Sql(query) => {
                let is_letter = |c: char| c.is_alphanumeric() || c == '_';
                let words: Vec<&str> = query.split(|c| !is_letter(c)).collect();
                names.iter().filter(|name| words.contains(*name)).map(|name| (*name).to_owned()).collect()
            }
        };
        let joined = node.steps.iter().filter_map(|step| step.config["with"].as_str());
        inputs.extend(joined.filter(|with| names.contains(with)).map(str::to_owned));
        let mut kinds: Vec<&str> = node.steps.iter().map(|step| step.kind.as_str()).collect();
        kinds.dedup();
        let more = kinds.len().saturating_sub(STEPS_SHOWN);
        kinds.truncate(STEPS_SHOWN);
        let mut label = node.name.clone();
        kinds.iter().for_each(|kind| label += &format!("\n{kind}"));
        if more > 0 {
            label += &format!("\nand {more} more");
        }
        (node.name.clone(), GraphNode { label, fill: "white", inputs })
    });
    let sink = |sink: &PipelineSink, kind: &str| {
        let node = GraphNode {
            label: format!("{}\n({kind})", sink.name),
            fill: "lightgreen",
            inputs: vec![sink.from.clone()],
        };
        (format!("sink {}", sink.name), node)
    };
    let written = pipeline.sinks.iter().map(|known| sink(known, &known.format));
    let trained = pipeline.trainings.iter().map(|known| sink(known, &known.format));
    let forecasts = pipeline.predictions.iter().map(|known| {
        let (name, mut node) = sink(known, "predict");
        node.inputs.extend(known.config["model"].as_str().map(|model| format!("sink {model}")));
        (name, node)
    });
    sources.chain(steps).chain(written).chain(trained).chain(forecasts).collect()
}
