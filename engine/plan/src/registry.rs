//! Registry of the transforms that specs can use.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use forebay_model::{ConfigError, ConfigResult, Fault, Result, Step, codes};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{StepChange, StepFacts, Transform};

/// A transform whose value is its configuration: serde gives the canonical form, schemars the JSON Schema.
/// Implement this and register the type to use it in specs.
pub trait ConfiguredTransform:
    Transform + Serialize + DeserializeOwned + JsonSchema + Sized + 'static
{
    /// The key in a spec: a snake_case noun or verb.
    const NAME: &'static str;

    /// Builds a step that uses this transform. Its configuration is read again as one from a spec is.
    fn step(&self) -> Result<Step> {
        let config = serde_json::to_value(self).map_err(|error| {
            Fault::internal(format!(
                "the configuration of `{}` cannot be serialized",
                Self::NAME
            ))
            .cause(error)
        })?;
        ConfigError::parse::<Self>(config.clone()).map_err(|error| error.into_fault(Self::NAME))?;
        Ok(Step {
            kind: Self::NAME.to_owned(),
            config,
            at: None,
        })
    }
}

type BuildTransform = Arc<dyn Fn(Value) -> ConfigResult<Arc<dyn Transform>> + Send + Sync>;

/// A registered transform.
#[derive(Clone)]
pub struct TransformKind {
    /// The key in a spec.
    pub name: &'static str,
    /// The configuration's JSON Schema.
    pub schema: fn(&mut SchemaGenerator) -> schemars::Schema,
    /// Validates a configuration and fills in its defaults.
    pub canonical: fn(Value) -> ConfigResult<Value>,
    build: BuildTransform,
}

/// Transforms by name.
#[derive(Clone, Default)]
pub struct TransformRegistry(BTreeMap<&'static str, TransformKind>);

impl fmt::Debug for TransformRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl TransformRegistry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a transform.
    pub fn register<T: ConfiguredTransform>(&mut self) -> &mut Self {
        self.register_with(T::NAME, |transform: T| -> Arc<dyn Transform> {
            Arc::new(transform)
        })
    }

    /// Adds a transform that needs more than its configuration: `build` makes it from that.
    pub fn register_with<C>(
        &mut self,
        name: &'static str,
        build: impl Fn(C) -> Arc<dyn Transform> + Send + Sync + 'static,
    ) -> &mut Self
    where
        C: Serialize + DeserializeOwned + JsonSchema + 'static,
    {
        let kind = TransformKind {
            name,
            schema: |generator| generator.subschema_for::<C>(),
            canonical: |config| {
                let config: C = ConfigError::parse(config)?;
                serde_json::to_value(config).map_err(|error| ConfigError::whole(error.to_string()))
            },
            build: Arc::new(move |config| Ok(build(ConfigError::parse::<C>(config)?))),
        };
        self.0.insert(name, kind);
        self
    }

    /// All transforms in order of their names.
    pub fn kinds(&self) -> impl Iterator<Item = &TransformKind> {
        self.0.values()
    }

    /// A transform by name; the fault contains the nearest name.
    pub fn kind(&self, name: &str) -> Result<&TransformKind> {
        self.0.get(name).ok_or_else(|| {
            let fault = Fault::new(
                codes::UNKNOWN_NAME,
                format!("there is no transform `{name}`"),
            );
            fault.suggest(name, self.0.keys().copied(), "the transforms are")
        })
    }

    /// Facts of a step's configuration.
    pub fn facts(&self, step: &Step) -> Result<StepFacts> {
        Ok(self.build(step)?.facts())
    }

    /// Makes a change to the configuration of a step, where the change concerns it.
    pub fn change(&self, step: &mut Step, change: &StepChange<'_>) -> Result<()> {
        self.build(step)?.change(&mut step.config, change);
        Ok(())
    }

    /// Builds the transform of a step.
    pub fn build(&self, step: &Step) -> Result<Arc<dyn Transform>> {
        (self.kind(&step.kind)?.build)(step.config.clone())
            .map_err(|error| error.into_fault(&step.kind))
    }
}
