//! `Field`: what may stand in a module's struct, and how it shows itself to a visitor.

use std::marker::PhantomData;

use fireclay_tensor::{Buffer, DType, Device, Parameter, Scalar, Shape};

use crate::mode::Mode;
use crate::module::ModuleFields;

/// The type of a field of a module: a [`Parameter`], a [`Buffer`], a [`Mode`], another module, a list or option of those, or
/// plain data such as numbers and texts. Types of plain data of your own become fields by
/// [`plain_fields!`](crate::plain_fields).
///
/// A bare tensor is none of these, since nothing says whether it is trained, saved or moved:
///
/// ```compile_fail
/// use fireclay_nn::Module;
/// use fireclay_tensor::Tensor;
///
/// #[derive(Module)]
/// struct Scale {
///     factor: Tensor, // error: `Tensor` is not a `Field`
/// }
/// ```
///
/// Say which it is, or leave it out and look after it yourself:
///
/// ```
/// use fireclay_nn::{Buffer, Module, ModuleExt, Parameter};
/// use fireclay_tensor::Tensor;
///
/// #[derive(Module)]
/// struct Scale {
///     factor: Parameter,
///     mask: Buffer,
///     #[module(skip)]
///     last_input: Option<Tensor>,
/// }
///
/// # fn main() -> fireclay_tensor::Result<()> {
/// let one = || Tensor::ones(&[1], "cpu");
/// let scale = Scale { factor: Parameter::new(one()?)?, mask: Buffer::new(one()?), last_input: None };
/// let names: Vec<String> = scale.state_dict().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["factor", "mask"]);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be a field of a module",
    label = "not a `Field`",
    note = "a trained tensor is a `Parameter`, any other tensor of the module a `Buffer`; `#[module(skip)]` leaves the field out; \
            `plain_fields!(YourType)` says that a type of yours holds no tensors"
)]
pub trait Field {
    /// Shows all that is in the field to `visitor`, under `name`.
    fn visit(&self, name: &str, visitor: &mut dyn FieldVisitor);
}

/// Is told of everything in a module, one level at a time.
pub trait FieldVisitor {
    /// A parameter.
    fn parameter(&mut self, name: &str, parameter: &Parameter);
    /// A buffer.
    fn buffer(&mut self, name: &str, buffer: &Buffer);
    /// The module's own mode.
    fn mode(&mut self, mode: &Mode);
    /// A nested module; the visitor decides whether to go into it.
    fn module(&mut self, name: &str, module: &dyn ModuleFields);
    /// A list: `visit` shows its items, whose names follow the list's.
    fn list(&mut self, name: &str, visit: &mut dyn FnMut(&mut dyn FieldVisitor));
}

impl Field for Parameter {
    fn visit(&self, name: &str, visitor: &mut dyn FieldVisitor) {
        visitor.parameter(name, self);
    }
}

impl Field for Buffer {
    fn visit(&self, name: &str, visitor: &mut dyn FieldVisitor) {
        visitor.buffer(name, self);
    }
}

impl Field for Mode {
    fn visit(&self, _name: &str, visitor: &mut dyn FieldVisitor) {
        visitor.mode(self);
    }
}

impl<M: ModuleFields> Field for M {
    fn visit(&self, name: &str, visitor: &mut dyn FieldVisitor) {
        visitor.module(name, self);
    }
}

impl<T: Field> Field for Option<T> {
    fn visit(&self, name: &str, visitor: &mut dyn FieldVisitor) {
        if let Some(field) = self {
            field.visit(name, visitor);
        }
    }
}

impl<T: Field> Field for [T] {
    fn visit(&self, name: &str, visitor: &mut dyn FieldVisitor) {
        visitor.list(name, &mut |visitor| {
            for (number, item) in self.iter().enumerate() {
                item.visit(&number.to_string(), visitor);
            }
        });
    }
}

impl<T: Field> Field for Vec<T> {
    fn visit(&self, name: &str, visitor: &mut dyn FieldVisitor) {
        self.as_slice().visit(name, visitor);
    }
}

impl<T: Field, const N: usize> Field for [T; N] {
    fn visit(&self, name: &str, visitor: &mut dyn FieldVisitor) {
        self.as_slice().visit(name, visitor);
    }
}

impl<T> Field for PhantomData<T> {
    fn visit(&self, _name: &str, _visitor: &mut dyn FieldVisitor) {}
}

/// Says of types of plain data, which hold no tensors, that they may be fields of modules.
///
/// ```
/// #[derive(Clone, Copy)]
/// struct Window { size: usize, step: usize }
/// fireclay_nn::plain_fields!(Window);
///
/// #[derive(fireclay_nn::Module)]
/// struct Crop { window: Window }
/// ```
#[macro_export]
macro_rules! plain_fields {
    ($($plain:ty),* $(,)?) => {
        $(impl $crate::Field for $plain {
            fn visit(&self, _name: &str, _visitor: &mut dyn $crate::FieldVisitor) {}
        })*
    };
}

plain_fields!(
    bool, char, u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64
);
plain_fields!(String, &'static str, Device, DType, Scalar, Shape);
