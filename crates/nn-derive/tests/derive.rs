//! The derive compiled and run, against a small stand-in for `fireclay_nn` with the same traits.

extern crate self as fireclay_nn;

pub use stand_in::{Field, FieldVisitor, ModuleFields};

use fireclay_nn_derive::Module;

/// The traits that the generated code names.
pub mod stand_in {
    /// Told of each field.
    pub trait FieldVisitor {
        /// A leaf, with its name.
        fn leaf(&mut self, name: &str);
    }

    /// What may be a field of a module.
    pub trait Field {
        /// Shows itself under `name`.
        fn visit(&self, name: &str, visitor: &mut dyn FieldVisitor);
    }

    /// What the derive implements.
    pub trait ModuleFields {
        /// Shows every field in order.
        fn visit_fields(&self, visitor: &mut dyn FieldVisitor);
        /// The struct's name.
        fn type_name(&self) -> &'static str;
    }
}

struct Tensor;

impl Field for Tensor {
    fn visit(&self, name: &str, visitor: &mut dyn FieldVisitor) {
        visitor.leaf(name);
    }
}

impl<T: Field> Field for Option<T> {
    fn visit(&self, name: &str, visitor: &mut dyn FieldVisitor) {
        if let Some(field) = self {
            field.visit(name, visitor);
        }
    }
}

#[derive(Default)]
struct Names(Vec<String>);

impl FieldVisitor for Names {
    fn leaf(&mut self, name: &str) {
        self.0.push(name.to_owned());
    }
}

#[derive(Module)]
struct Net<T, U> {
    weight: Tensor,
    bias: Option<T>,
    #[module(rename = "running_mean")]
    mean: Tensor,
    #[module(skip)]
    note: U,
}

#[derive(Module)]
#[module(crate = "crate::stand_in")]
struct Pair(Tensor, Tensor);

#[derive(Module)]
struct Empty;

fn names_of(module: &dyn ModuleFields) -> Vec<String> {
    let mut names = Names::default();
    module.visit_fields(&mut names);
    names.0
}

#[test]
fn every_field_is_shown_under_its_name() {
    let net = Net {
        weight: Tensor,
        bias: Some(Tensor),
        mean: Tensor,
        note: "no Field",
    };
    assert_eq!(names_of(&net), ["weight", "bias", "running_mean"]);
    assert_eq!((net.type_name(), net.note), ("Net", "no Field"));
    let without = Net {
        weight: Tensor,
        bias: None::<Tensor>,
        mean: Tensor,
        note: 3,
    };
    assert_eq!(names_of(&without), ["weight", "running_mean"]);
}

#[test]
fn tuple_and_unit_structs_work() {
    assert_eq!(names_of(&Pair(Tensor, Tensor)), ["0", "1"]);
    assert!(names_of(&Empty).is_empty());
    assert_eq!(Empty.type_name(), "Empty");
}
