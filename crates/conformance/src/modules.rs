//! Modules by PyTorch's names.

mod attention;
mod layers;
mod recurrent;

use std::collections::BTreeMap;

use fireclay_nn::{ModuleExt, ModuleFields};
use fireclay_tensor::Tensor;
use serde_json::Value;

use crate::call::{Call, Refusal};
use crate::judge::Run;

/// Makes the module that the case names, gives it the case's state and runs it.
pub(crate) fn run(call: &Call<'_>) -> Result<Run, Refusal> {
    match recurrent::run(call).or_else(|| attention::run(call)) {
        Some(run) => run,
        None => layers::run(call),
    }
}

/// Loads the case's state into `module` and runs it.
pub(super) fn run_made<M: ModuleFields>(
    call: &Call<'_>,
    module: M,
    forward: impl FnOnce(&M) -> Result<Vec<Tensor>, Refusal>,
) -> Result<Run, Refusal> {
    let case = call.case();
    let mut keys: BTreeMap<String, String> = BTreeMap::new();
    let mut state = Vec::new();
    for (name, key) in case.list("names").iter().zip(case.list("inputs")) {
        let (Some(name), Some(key)) = (name.as_str(), key.as_str()) else {
            // Of the call, not of the state: where nobody reads it, that is found later.
            continue;
        };
        if let Some(entry) = name.strip_prefix("self.") {
            keys.insert(entry.to_owned(), key.to_owned());
            state.push((entry.to_owned(), call.tensor(name)?.detach()));
        }
    }
    if let Some((_, tensor)) = state
        .iter()
        .find(|(_, tensor)| tensor.dtype().is_floating_point())
    {
        module.to_dtype(tensor.dtype())?;
    }
    module.load_state_dict(&state, true)?;
    module.set_training(case.field("training") == &Value::Bool(true));
    let outputs = forward(&module)?;
    let by_key = |named: Vec<(String, Tensor)>| -> BTreeMap<String, Tensor> {
        let known = named.into_iter();
        known
            .filter_map(|(name, tensor)| Some((keys.get(&name)?.clone(), tensor)))
            .collect()
    };
    let parameters = module.named_parameters().into_iter();
    let buffers = module.named_buffers().into_iter();
    Ok(Run {
        outputs,
        leaves: by_key(
            parameters
                .map(|(name, parameter)| (name, parameter.tensor()))
                .collect(),
        ),
        after: by_key(
            buffers
                .map(|(name, buffer)| (name, buffer.tensor()))
                .collect(),
        ),
        ..Run::default()
    })
}
