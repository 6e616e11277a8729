//! Read a workload's parameters.

use crate::contract::Failure;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Turn the host's `params` object into `T`; nothing at all means every default.
pub fn parse<T: DeserializeOwned>(params: &Value) -> Result<T, Failure> {
    let object = match params {
        Value::Null => Value::Object(serde_json::Map::new()),
        other => other.clone(),
    };
    serde_json::from_value(object).map_err(|error| Failure(format!("parameters: {error}")))
}

/// Refuse a parameter with the reason, unless `holds`.
pub fn require(holds: bool, reason: &str) -> Result<(), Failure> {
    if holds {
        Ok(())
    } else {
        Err(Failure(format!("parameters: {reason}")))
    }
}
