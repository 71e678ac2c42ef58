//! `tests:` of a spec.

use forebay_model::codes;

use super::check::quoted;
use super::convert::SpecConverter;
use super::node::{YamlKey, YamlNode};
use super::wire;
use crate::step_test::{ExpectedResult, GivenRows, StepTest};

impl SpecConverter<'_> {
    /// The tests of steps, in the order of the spec.
    pub fn tests(&mut self, root: &YamlNode) -> Vec<StepTest> {
        let steps = entry_names(root, "steps");
        let sources = entry_names(root, "sources");
        let mut tests = Vec::new();
        for (key, node) in root.section("tests") {
            tests.extend(self.test(key, node, &steps, &sources));
        }
        tests
    }

    fn test(
        &mut self,
        key: &YamlKey,
        node: &YamlNode,
        steps: &[&str],
        sources: &[&str],
    ) -> Option<StepTest> {
        let path = format!("tests.{}", key.text);
        if !self.is_valid_so_far(node, &path) {
            return None;
        }
        let wire: wire::YamlTest = self.read(node, node.value(), &path)?;
        let faults_before = self.faults.len();
        if !steps.contains(&wire.step.as_str()) {
            let (mark, below) = node.at_path("step");
            let message = format!("there is no step `{}`", wire.step);
            self.report_unknown_name(mark, &format!("{path}{below}"), message, &wire.step, steps);
        }
        let given_paths = wire
            .given
            .0
            .iter()
            .map(|(source, _)| (source, format!("given.{source}")));
        let typed = wire
            .types
            .0
            .iter()
            .map(|(source, _)| (source, format!("types.{source}")));
        for (source, source_path) in given_paths
            .chain(typed)
            .filter(|(source, _)| !sources.contains(&source.as_str()))
        {
            let (mark, below) = node.at_path(&source_path);
            let message = format!("there is no source `{source}`");
            self.report_unknown_name(mark, &format!("{path}{below}"), message, source, sources);
        }
        let expected = match (wire.expect, wire.fault) {
            (Some(rows), _) => ExpectedResult::Rows(rows),
            (None, fault) => {
                let name = fault.unwrap_or_default();
                let names: Vec<&str> = codes::ALL.iter().map(|code| code.name).collect();
                match codes::ALL.iter().find(|code| code.name == name) {
                    Some(code) => ExpectedResult::Fault(*code),
                    None => {
                        let (mark, below) = node.at_path("fault");
                        let message = format!("there is no fault `{name}`");
                        let fault = self.fault(
                            codes::UNKNOWN_NAME,
                            mark,
                            &format!("{path}{below}"),
                            message,
                        );
                        self.faults
                            .push(fault.hint(format!("the codes are {}", quoted(&names))));
                        return None;
                    }
                }
            }
        };
        let mut types = wire.types.0;
        let tables = wire.given.0.into_iter().map(|(source, rows)| {
            let position = types.iter().position(|(name, _)| *name == source);
            let types = position
                .map(|index| types.swap_remove(index).1)
                .unwrap_or_default();
            GivenRows {
                source,
                rows,
                types,
            }
        });
        let test = StepTest {
            name: key.text.clone(),
            step: wire.step,
            given: tables.collect(),
            condition: wire.condition.map(|condition| condition.0),
            expected,
            tolerance: wire.tolerance,
            at: Some(key.mark.location(self.file, &path)),
        };
        (self.faults.len() == faults_before).then_some(test)
    }
}

fn entry_names<'n>(root: &'n YamlNode, section: &str) -> Vec<&'n str> {
    let entries = root.section(section).iter();
    entries.map(|(key, _)| key.text.as_str()).collect()
}
