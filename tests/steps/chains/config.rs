//! Reading the configuration of a step.

use serde_json::Value as Json;

/// What a step is configured with.
#[derive(Clone, Copy)]
pub struct StepConfigReader<'c>(pub &'c Json);

impl<'c> StepConfigReader<'c> {
    pub fn get(self, name: &str) -> Option<&'c Json> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub fn texts(self, name: &str) -> Vec<&'c str> {
        let list = self.get(name).and_then(Json::as_array);
        list.map(|list| list.iter().filter_map(Json::as_str).collect())
            .unwrap_or_default()
    }

    pub fn text(self, name: &str) -> Option<&'c str> {
        self.get(name).and_then(Json::as_str)
    }

    pub fn number(self, name: &str) -> Option<f64> {
        self.get(name).and_then(Json::as_f64)
    }

    pub fn whole(self, name: &str) -> Option<i64> {
        self.get(name).and_then(Json::as_i64)
    }

    pub fn flag(self, name: &str) -> bool {
        self.get(name).and_then(Json::as_bool).unwrap_or_default()
    }

    pub fn list(self, name: &str) -> Vec<&'c Json> {
        self.get(name)
            .and_then(Json::as_array)
            .map(|list| list.iter().collect())
            .unwrap_or_default()
    }

    /// What the output of a column is called.
    pub fn output(self, column: &str) -> String {
        format!("{column}{}", self.text("suffix").unwrap_or_default())
    }
}
