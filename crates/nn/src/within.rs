//! Tells in an error which layer of the model the failing op belongs to.

use fireclay_tensor::{Parameter, Result};

/// Adds the layer to an op's error.
pub(crate) trait Within {
    /// The same result; an error's hint also says `layer`, and the layer's name where its `parameter` knows it.
    fn within(self, parameter: Option<&Parameter>, layer: impl FnOnce() -> String) -> Self;
}

impl<T> Within for Result<T> {
    fn within(self, parameter: Option<&Parameter>, layer: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|mut error| {
            if let Some(context) = error.context_mut() {
                let name = parameter.and_then(Parameter::name);
                let path = name.as_deref().and_then(|name| name.rsplit_once('.'));
                let place = match path {
                    Some((path, _)) => format!("in {path}: {}", layer()),
                    None => format!("in {}", layer()),
                };
                if !context.hint.is_empty() {
                    context.hint.push_str("; ");
                }
                context.hint.push_str(&place);
            }
            error
        })
    }
}
