//! `Sequential`: modules one after the other.

use fireclay_tensor::{Result, Tensor};

use crate::field::{Field, FieldVisitor};
use crate::module::{Module, ModuleFields};

/// Passes its input through modules in order, named "0", "1", ... (`torch.nn.Sequential`). See also
/// [`sequential!`](crate::sequential).
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Module>>,
}

impl Sequential {
    /// No modules yet: gives its input.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Adds a module at the end.
    #[must_use]
    pub fn push(mut self, module: impl Module + 'static) -> Sequential {
        self.layers.push(Box::new(module));
        self
    }

    /// How many modules there are.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The modules in order.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Module> {
        self.layers.iter().map(|layer| &**layer)
    }
}

impl From<Vec<Box<dyn Module>>> for Sequential {
    fn from(layers: Vec<Box<dyn Module>>) -> Sequential {
        Sequential { layers }
    }
}

impl FromIterator<Box<dyn Module>> for Sequential {
    fn from_iter<I: IntoIterator<Item = Box<dyn Module>>>(layers: I) -> Sequential {
        Sequential {
            layers: layers.into_iter().collect(),
        }
    }
}

impl ModuleFields for Sequential {
    fn visit_fields(&self, visitor: &mut dyn FieldVisitor) {
        for (number, layer) in self.layers.iter().enumerate() {
            layer.visit(&number.to_string(), visitor);
        }
    }

    fn type_name(&self) -> &'static str {
        "Sequential"
    }
}

impl Module for Sequential {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mut value = input.clone();
        for layer in &self.layers {
            value = layer.forward(&value)?;
        }
        Ok(value)
    }
}

/// A [`Sequential`](crate::Sequential) of the modules given.
#[macro_export]
macro_rules! sequential {
    ($($module:expr),* $(,)?) => {
        $crate::Sequential::new()$(.push($module))*
    };
}
