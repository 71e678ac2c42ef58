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
        let entries = |key: &str| root.get(key).map(YamlNode::entries).unwrap_or_default();
        let names = |key: &str| {
            entries(key)
                .iter()
                .map(|(key, _)| key.text.as_str())
                .collect::<Vec<_>>()
        };
        let (steps, sources) = (names("steps"), names("sources"));
        let tests = entries("tests")
            .iter()
            .filter_map(|(key, node)| self.test(key, node, &steps, &sources));
        tests.collect()
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
        let before = self.faults.len();
        if !steps.contains(&wire.step.as_str()) {
            let (mark, found) = node.at_path("step");
            let message = format!("there is no step `{}`", wire.step);
            self.report_unknown_name(mark, &format!("{path}{found}"), message, &wire.step, steps);
        }
        let given = wire
            .given
            .0
            .iter()
            .map(|(source, _)| (source, format!("given.{source}")));
        let typed = wire
            .types
            .0
            .iter()
            .map(|(source, _)| (source, format!("types.{source}")));
        for (source, place) in given
            .chain(typed)
            .filter(|(source, _)| !sources.contains(&source.as_str()))
        {
            let (mark, found) = node.at_path(&place);
            let message = format!("there is no source `{source}`");
            self.report_unknown_name(mark, &format!("{path}{found}"), message, source, sources);
        }
        let expected = match (wire.expect, wire.fault) {
            (Some(rows), _) => ExpectedResult::Rows(rows),
            (None, fault) => {
                let name = fault.unwrap_or_default();
                let known: Vec<&str> = codes::ALL.iter().map(|code| code.name).collect();
                match codes::ALL.iter().find(|code| code.name == name) {
                    Some(code) => ExpectedResult::Fault(*code),
                    None => {
                        let (mark, found) = node.at_path("fault");
                        let message = format!("there is no fault `{name}`");
                        let fault = self.fault(
                            codes::UNKNOWN_NAME,
                            mark,
                            &format!("{path}{found}"),
                            message,
                        );
                        self.faults
                            .push(fault.hint(format!("the codes are {}", quoted(&known))));
                        return None;
                    }
                }
            }
        };
        let mut types = wire.types.0;
        let given = wire.given.0.into_iter().map(|(source, rows)| {
            let own = types.iter().position(|(name, _)| *name == source);
            let types = own.map(|own| types.swap_remove(own).1).unwrap_or_default();
            GivenRows {
                source,
                rows,
                types,
            }
        });
        let test = StepTest {
            name: key.text.clone(),
            step: wire.step,
            given: given.collect(),
            condition: wire.condition.map(|condition| condition.0),
            expected,
            tolerance: wire.tolerance,
            at: Some(key.mark.location(self.file, &path)),
        };
        (self.faults.len() == before).then_some(test)
    }
}
