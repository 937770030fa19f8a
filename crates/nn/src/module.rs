//! `Module`: the traits of modules, and what every module can do.

use std::collections::HashSet;
use std::sync::Arc;

use fireclay_tensor::{Buffer, DType, IntoDevice, Parameter, Result, Tensor, as_one_call};

use crate::field::FieldVisitor;
use crate::load::{self, LoadReport};
use crate::mode::Mode;

/// The fields of a module: implemented by `#[derive(Module)]`.
pub trait ModuleFields {
    /// Shows every field in order.
    fn visit_fields(&self, visitor: &mut dyn FieldVisitor);
    /// The struct's name.
    fn type_name(&self) -> &'static str;
}

/// A module of one input and one output (`torch.nn.Module`). Modules with other signatures have their own `forward` and need no
/// more than the derive.
pub trait Module: ModuleFields + Send + Sync {
    /// Computes the output for `input`.
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Result<Tensor>;
}

/// What every module can do. Names are dotted paths of fields, as PyTorch's: `layer1.0.conv.weight`.
pub trait ModuleExt: ModuleFields {
    /// All parameters in order with their names, each once, even if shared by several modules (`Module.named_parameters`).
    /// Their handles are told these names, so that errors can say them.
    fn named_parameters(&self) -> Vec<(String, Parameter)>;

    /// All parameters in order, each once: what an optimizer takes (`Module.parameters`).
    fn parameters(&self) -> Vec<Parameter> {
        let named = self.named_parameters().into_iter();
        named.map(|(_, parameter)| parameter).collect()
    }

    /// All buffers in order with their names, temporary ones too (`Module.named_buffers`).
    fn named_buffers(&self) -> Vec<(String, Buffer)>;

    /// Names and types of the modules that are fields of this one, or items of its lists (`Module.named_children`).
    fn named_children(&self) -> Vec<(String, &'static str)>;

    /// Names and types of this module (named "") and all modules in it (`Module.named_modules`).
    fn named_modules(&self) -> Vec<(String, &'static str)>;

    /// Calls `each` with this module (named "") and all modules in it, outer before inner (`Module.apply`, whose order is the
    /// reverse).
    fn apply(&self, each: &mut dyn FnMut(&str, &dyn ModuleFields));

    /// Puts the module and all in it into training mode (`Module.train`).
    fn train(&self) {
        self.set_training(true);
    }

    /// Puts the module and all in it into evaluation mode: dropout passes its input on, batch norm uses its running
    /// statistics (`Module.eval`). Recording for backward is another matter: see `no_grad`.
    fn eval(&self) {
        self.set_training(false);
    }

    /// [`train`](ModuleExt::train) or [`eval`](ModuleExt::eval).
    fn set_training(&self, training: bool);

    /// Moves all parameters, their gradients and all buffers to `device` (`Module.to`). All move, or none on an error.
    /// Handles stay valid: an optimizer built before sees the moved parameters, and moves its own state at the next step.
    #[track_caller]
    fn to(&self, device: impl IntoDevice) -> Result<()>
    where
        Self: Sized;

    /// Casts all parameters, their gradients and the floating buffers to `dtype` (`Module.to(dtype)`). All or none.
    #[track_caller]
    fn to_dtype(&self, dtype: DType) -> Result<()>;

    /// Clears all gradients (`Module.zero_grad`).
    fn zero_grad(&self) {
        for parameter in self.parameters() {
            parameter.zero_grad();
        }
    }

    /// Unfreezes or freezes all parameters (`Module.requires_grad_`).
    fn requires_grad_(&self, requires_grad: bool) -> Result<()> {
        let parameters = self.parameters();
        parameters
            .iter()
            .try_for_each(|parameter| parameter.requires_grad_(requires_grad))
    }

    /// How many numbers are trained or frozen: the elements of all parameters.
    fn num_parameters(&self) -> usize {
        let parameters = self.parameters();
        parameters
            .iter()
            .map(|parameter| parameter.tensor().numel())
            .sum()
    }

    /// All parameters and persistent buffers in order by name, sharing the module's storage, without history
    /// (`Module.state_dict`). A shared parameter stands under each of its names.
    fn state_dict(&self) -> Vec<(String, Tensor)>;

    /// Copies `state` into the module's tensors, cast to their dtypes and moved to their devices
    /// (`Module.load_state_dict`).
    ///
    /// # Errors
    /// An [`Error::StateDictMismatch`](fireclay_tensor::Error::StateDictMismatch) that tells of all entries that have
    /// another shape and, if `strict`, of all that are missing or unexpected; then nothing was changed. Where not
    /// `strict`, the report tells of the latter.
    fn load_state_dict(&self, state: &[(String, Tensor)], strict: bool) -> Result<LoadReport>;
}

impl<M: ModuleFields> ModuleExt for M {
    fn named_parameters(&self) -> Vec<(String, Parameter)> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        walk(self, &mut |name, part| {
            if let Part::Parameter(parameter) = part
                && seen.insert(parameter.id())
            {
                parameter.set_name(name);
                found.push((name.to_owned(), parameter.clone()));
            }
        });
        found
    }

    fn named_buffers(&self) -> Vec<(String, Buffer)> {
        let mut found: Vec<(String, Buffer)> = Vec::new();
        walk(self, &mut |name, part| {
            if let Part::Buffer(buffer) = part
                && !found.iter().any(|(_, known)| known.same(buffer))
            {
                buffer.set_name(name);
                found.push((name.to_owned(), buffer.clone()));
            }
        });
        found
    }

    fn named_children(&self) -> Vec<(String, &'static str)> {
        let mut children = Children::default();
        self.visit_fields(&mut children);
        children.found
    }

    fn named_modules(&self) -> Vec<(String, &'static str)> {
        let mut found = Vec::new();
        self.apply(&mut |name, module| found.push((name.to_owned(), module.type_name())));
        found
    }

    fn apply(&self, each: &mut dyn FnMut(&str, &dyn ModuleFields)) {
        each("", self);
        walk(self, &mut |name, part| {
            if let Part::Module(module) = part {
                each(name, module);
            }
        });
    }

    fn set_training(&self, training: bool) {
        walk(self, &mut |_, part| {
            if let Part::Mode(mode) = part {
                mode.set_training(training);
            }
        });
    }

    #[track_caller]
    fn to(&self, device: impl IntoDevice) -> Result<()> {
        let device = device.into_device()?;
        change(self, &|parameter| parameter.moved_to(device), &|buffer| {
            buffer.moved_to(device)
        })
    }

    #[track_caller]
    fn to_dtype(&self, dtype: DType) -> Result<()> {
        change(self, &|parameter| parameter.cast_to(dtype), &|buffer| {
            buffer.cast_to(dtype)
        })
    }

    fn state_dict(&self) -> Vec<(String, Tensor)> {
        let mut entries = Vec::new();
        walk(self, &mut |name, part| {
            if let Some(tensor) = part.saved() {
                entries.push((name.to_owned(), tensor.detach()));
            }
        });
        entries
    }

    fn load_state_dict(&self, state: &[(String, Tensor)], strict: bool) -> Result<LoadReport> {
        let mut targets = Vec::new();
        walk(self, &mut |name, part| {
            if let Some(tensor) = part.saved() {
                targets.push((name.to_owned(), tensor));
            }
        });
        load::load(self.type_name(), &targets, state, strict)
    }
}

/// Prepares all changes, then makes them, so that an error changes nothing. New tensors count as made by the caller's line.
#[track_caller]
fn change(
    module: &dyn ModuleFields,
    of_parameter: &dyn Fn(&Parameter) -> Result<fireclay_tensor::Moved>,
    of_buffer: &dyn Fn(&Buffer) -> Result<fireclay_tensor::Moved>,
) -> Result<()> {
    let mut changes = Vec::new();
    let mut seen = HashSet::new();
    let mut buffers: Vec<Buffer> = Vec::new();
    let mut prepare = |name: &str, part: Part<'_>| match part {
        // Nothing more is tried once something has failed.
        _ if changes.last().is_some_and(Result::is_err) => {}
        Part::Parameter(parameter) if seen.insert(parameter.id()) => {
            parameter.set_name(name);
            changes.push(of_parameter(parameter));
        }
        Part::Buffer(buffer) if !buffers.iter().any(|known| known.same(buffer)) => {
            buffer.set_name(name);
            buffers.push(buffer.clone());
            changes.push(of_buffer(buffer));
        }
        _ => {}
    };
    as_one_call(|| walk(module, &mut prepare));
    let changes = changes.into_iter().collect::<Result<Vec<_>>>()?;
    changes
        .into_iter()
        .try_for_each(fireclay_tensor::Moved::commit)
}

/// What is found on a walk through a module.
enum Part<'a> {
    Module(&'a dyn ModuleFields),
    Parameter(&'a Parameter),
    Buffer(&'a Buffer),
    Mode(&'a Mode),
}

impl Part<'_> {
    /// The tensor, if the state dict holds it.
    fn saved(&self) -> Option<Tensor> {
        match self {
            Part::Parameter(parameter) => Some(parameter.tensor()),
            Part::Buffer(buffer) if buffer.is_persistent() => Some(buffer.tensor()),
            _ => None,
        }
    }
}

/// Calls `each` with everything in `module`, in order, under its dotted name.
fn walk(module: &dyn ModuleFields, each: &mut dyn FnMut(&str, Part<'_>)) {
    module.visit_fields(&mut Walk {
        path: String::new(),
        each,
    });
}

struct Walk<'a> {
    path: String,
    each: &'a mut dyn FnMut(&str, Part<'_>),
}

impl Walk<'_> {
    /// Runs `inside` with the path lengthened by `name`.
    fn within(&mut self, name: &str, inside: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        inside(self);
        self.path.truncate(length);
    }
}

impl FieldVisitor for Walk<'_> {
    fn parameter(&mut self, name: &str, parameter: &Parameter) {
        self.within(name, |walk| {
            (walk.each)(&walk.path, Part::Parameter(parameter))
        });
    }

    fn buffer(&mut self, name: &str, buffer: &Buffer) {
        self.within(name, |walk| (walk.each)(&walk.path, Part::Buffer(buffer)));
    }

    fn mode(&mut self, mode: &Mode) {
        (self.each)(&self.path, Part::Mode(mode));
    }

    fn module(&mut self, name: &str, module: &dyn ModuleFields) {
        self.within(name, |walk| {
            (walk.each)(&walk.path, Part::Module(module));
            module.visit_fields(walk);
        });
    }

    fn list(&mut self, name: &str, visit: &mut dyn FnMut(&mut dyn FieldVisitor)) {
        self.within(name, |walk| visit(walk));
    }
}

/// The modules one level down.
#[derive(Default)]
struct Children {
    path: String,
    found: Vec<(String, &'static str)>,
}

impl FieldVisitor for Children {
    fn parameter(&mut self, _name: &str, _parameter: &Parameter) {}
    fn buffer(&mut self, _name: &str, _buffer: &Buffer) {}
    fn mode(&mut self, _mode: &Mode) {}

    fn module(&mut self, name: &str, module: &dyn ModuleFields) {
        self.found
            .push((format!("{}{name}", self.path), module.type_name()));
    }

    fn list(&mut self, name: &str, visit: &mut dyn FnMut(&mut dyn FieldVisitor)) {
        let length = self.path.len();
        self.path.push_str(name);
        self.path.push('.');
        visit(self);
        self.path.truncate(length);
    }
}

macro_rules! through_pointer {
    ($($pointer:ty),*) => {
        $(
            impl<M: ModuleFields + ?Sized> ModuleFields for $pointer {
                fn visit_fields(&self, visitor: &mut dyn FieldVisitor) {
                    (**self).visit_fields(visitor);
                }

                fn type_name(&self) -> &'static str {
                    (**self).type_name()
                }
            }

            impl<M: Module + ?Sized> Module for $pointer {
                fn forward(&self, input: &Tensor) -> Result<Tensor> {
                    (**self).forward(input)
                }
            }
        )*
    };
}

through_pointer!(&M, Box<M>, Arc<M>);
