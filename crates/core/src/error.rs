//! `Error`: everything that can go wrong, as one typed enum.
//!
//! An error names the op, the operands (shape, dtype, device, where they were made), what was expected and
//! the way out. The text is `op: what is wrong, expected .., got ..`, then the operands, then a hint.

use std::fmt;
use std::panic::Location;
use std::path::PathBuf;

use crate::device::Device;
use crate::dtype::DType;
use crate::shape::Shape;

/// The result of anything that a user's input can make fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How a tensor came to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// By an op or a factory.
    Made,
    /// By a move or a cast (`to`, `cpu`, `cuda`).
    Moved,
    /// From a file.
    Loaded,
}

/// Where in the user's code a tensor was made or moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// How.
    pub made: Made,
    /// The line that called into Fireclay.
    pub location: &'static Location<'static>,
}

impl Origin {
    /// A tensor made by the line of the user that called.
    #[track_caller]
    pub fn here() -> Origin {
        Origin {
            made: Made::Made,
            location: crate::call_site(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.made {
            Made::Made => "made",
            Made::Moved => "moved",
            Made::Loaded => "loaded",
        };
        write!(f, "{verb} at {}", self.location)
    }
}

/// What an error tells of one operand.
#[derive(Clone, PartialEq, Debug)]
pub struct Operand {
    /// What the operand is called: `input 0`, `out`, `grad`, ...
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// Its dtype.
    pub dtype: DType,
    /// Its device.
    pub device: Device,
    /// Where it came from.
    pub origin: Origin,
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}{} on {}, {}",
            self.name, self.dtype, self.shape, self.device, self.origin
        )
    }
}

/// The operands of the op that failed, and the way out: what most errors carry besides their own facts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Context {
    /// The operands, in the order of the op's arguments.
    pub operands: Vec<Operand>,
    /// What to do about it; may be empty.
    pub hint: String,
}

impl Context {
    /// A context of a hint alone; the door adds the operands.
    pub fn hint(hint: impl Into<String>) -> Box<Context> {
        Box::new(Context {
            operands: Vec::new(),
            hint: hint.into(),
        })
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for operand in &self.operands {
            write!(f, "\n  {operand}")?;
        }
        if !self.hint.is_empty() {
            write!(f, "\n  hint: {}", self.hint)?;
        }
        Ok(())
    }
}

/// Everything that can go wrong.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Sizes or numbers of dimensions that do not fit.
    #[error("{op}: {what}{context}")]
    ShapeMismatch {
        /// The op.
        op: &'static str,
        /// What does not fit: expected and got.
        what: String,
        /// The operands and the way out.
        context: Box<Context>,
    },

    /// A dtype that the op does not take, or dtypes that do not go together.
    #[error("{op}: {what}{context}")]
    DTypeUnsupported {
        /// The op.
        op: &'static str,
        /// What is not taken, and what is.
        what: String,
        /// The operands and the way out.
        context: Box<Context>,
    },

    /// Operands on different devices.
    #[error("{op}: all operands must be on one device, got {devices}{context}")]
    DeviceMismatch {
        /// The op.
        op: &'static str,
        /// The devices met.
        devices: String,
        /// The operands and the way out.
        context: Box<Context>,
    },

    /// A dimension that the tensor does not have.
    #[error("{op}: dimension {dim} is out of range for {ndim} dimensions, expected {} to {}", -(*ndim.max(&1) as isize), *ndim.max(&1) as isize - 1)]
    DimOutOfRange {
        /// The op.
        op: &'static str,
        /// The dimension asked for.
        dim: isize,
        /// How many there are.
        ndim: usize,
    },

    /// An index that lies outside of the indexed dimension.
    #[error(
        "{op}: index {index} at position {position} is out of range for dimension {dim} of size {size}{context}"
    )]
    IndexOutOfRange {
        /// The op.
        op: &'static str,
        /// The bad index.
        index: i64,
        /// Where in the index tensor it stands (flat).
        position: usize,
        /// The indexed dimension.
        dim: usize,
        /// Its size.
        size: usize,
        /// The operands and the way out.
        context: Box<Context>,
    },

    /// Any other argument, or content of a tensor, that the op can't take.
    #[error("{op}: {what}{context}")]
    InvalidArgument {
        /// The op.
        op: &'static str,
        /// What is wrong with it.
        what: String,
        /// The operands and the way out.
        context: Box<Context>,
    },

    /// A text that names no device.
    #[error(
        "device \"{text}\" is not known, expected \"cpu\", \"cuda\" or \"cuda:N\" as in \"cuda:1\""
    )]
    InvalidDevice {
        /// The text.
        text: String,
    },

    /// A device that this machine, or this build, does not have.
    #[error("{device} is not available: {why}")]
    DeviceUnavailable {
        /// The device asked for.
        device: Device,
        /// Which layer failed, and the way out.
        why: String,
    },

    /// A call of the device's driver failed.
    #[error("{device}: {what}{context}")]
    Device {
        /// The device.
        device: Device,
        /// The call, its error, and what ran before it.
        what: String,
        /// The operands and the way out.
        context: Box<Context>,
    },

    /// The op has no kernel for this device and dtype.
    #[error("{op}: no kernel for {dtype} on {device}{context}")]
    NoKernel {
        /// The op.
        op: &'static str,
        /// The device.
        device: Device,
        /// The dtype.
        dtype: DType,
        /// The operands and the way out.
        context: Box<Context>,
    },

    /// Memory could not be had. Nothing was lost by it.
    #[error("out of memory on {device}: {request}{what}{context}")]
    OutOfMemory {
        /// The device.
        device: Device,
        /// Which call asked, from which line, for what; empty where that is not known.
        request: String,
        /// Bytes asked for, in use, held.
        what: String,
        /// The operands and the way out.
        context: Box<Context>,
    },

    /// Backward reached an op that has no derivative.
    #[error(
        "backward: {op} (called at {location}) is not differentiable; detach its input, or run it under no_grad"
    )]
    NotDifferentiable {
        /// The op.
        op: &'static str,
        /// The line that called it.
        location: &'static Location<'static>,
    },

    /// A tensor that backward needs was changed in place after the op had saved it.
    #[error(
        "backward: {what} of {op} (called at {location}) was changed in place at {modified} after it was saved (version {found}, expected {expected}); change a copy() of it, or make the change before the op"
    )]
    SavedTensorModified {
        /// The op that saved it.
        op: &'static str,
        /// Which of its tensors.
        what: String,
        /// The line that called the op.
        location: &'static Location<'static>,
        /// The line that changed the tensor.
        modified: String,
        /// The version saved.
        expected: u64,
        /// The version found.
        found: u64,
    },

    /// Backward went through a graph that an earlier backward had freed.
    #[error(
        "backward: the graph of {op} (called at {location}) was freed by an earlier backward; call backward_with(.., retain_graph) the first time, or compute the loss again"
    )]
    GraphFreed {
        /// The op whose saved tensors are gone.
        op: &'static str,
        /// The line that called it.
        location: &'static Location<'static>,
    },

    /// An autograd call that can't be answered.
    #[error("{op}: {what}{context}")]
    Autograd {
        /// The call.
        op: &'static str,
        /// What is wrong.
        what: String,
        /// The operands and the way out.
        context: Box<Context>,
    },

    /// A file could not be read or written.
    #[error("{action} {}: {source}{}", path.display(), hint_line(hint))]
    Io {
        /// What was being done: `reading`, `writing`, ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// The way out; may be empty.
        hint: String,
    },

    /// A file's content is not what it should be.
    #[error("{}: {what}{}", path.display(), hint_line(hint))]
    InvalidFile {
        /// The file.
        path: PathBuf,
        /// What is wrong, where; expected and found.
        what: String,
        /// The way out; may be empty.
        hint: String,
    },

    /// A sample of a dataset could not be had.
    #[error("sample {index}: {source}")]
    InSample {
        /// The sample's index in the dataset.
        index: usize,
        /// Why.
        source: Box<Error>,
    },

    /// A state dict does not fit the model (or optimizer) that it is loaded into. Nothing was changed.
    #[error("{what}: the state dict does not fit{}", StateDictProblems { missing, unexpected, mismatched, hint })]
    StateDictMismatch {
        /// What was loaded into.
        what: String,
        /// Entries that the target has and the state dict lacks.
        missing: Vec<String>,
        /// Entries that the state dict has and the target lacks.
        unexpected: Vec<String>,
        /// Entries with another shape or dtype: name, expected, found.
        mismatched: Vec<String>,
        /// The way out; may be empty.
        hint: String,
    },
}

impl Error {
    /// A [`Error::ShapeMismatch`]; the door adds the operands.
    pub fn shape(op: &'static str, what: impl Into<String>) -> Error {
        Error::ShapeMismatch {
            op,
            what: what.into(),
            context: Box::default(),
        }
    }

    /// A [`Error::DTypeUnsupported`]; the door adds the operands.
    pub fn dtype(op: &'static str, what: impl Into<String>) -> Error {
        Error::DTypeUnsupported {
            op,
            what: what.into(),
            context: Box::default(),
        }
    }

    /// An [`Error::InvalidArgument`]; the door adds the operands.
    pub fn argument(op: &'static str, what: impl Into<String>) -> Error {
        Error::InvalidArgument {
            op,
            what: what.into(),
            context: Box::default(),
        }
    }

    /// An [`Error::OutOfMemory`]; the door adds who asked.
    pub fn out_of_memory(
        device: Device,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Error {
        Error::OutOfMemory {
            device,
            request: String::new(),
            what: what.into(),
            context: Context::hint(hint),
        }
    }

    /// The same error; if it is an [`Error::OutOfMemory`] that does not know who asked, it is told.
    #[must_use]
    pub fn with_request(mut self, say: impl FnOnce() -> String) -> Error {
        if let Error::OutOfMemory { request, .. } = &mut self
            && request.is_empty()
        {
            *request = format!("{}: ", say());
        }
        self
    }

    /// The operands and hint, where the error carries them.
    pub fn context_mut(&mut self) -> Option<&mut Context> {
        match self {
            Error::ShapeMismatch { context, .. }
            | Error::DTypeUnsupported { context, .. }
            | Error::DeviceMismatch { context, .. }
            | Error::IndexOutOfRange { context, .. }
            | Error::InvalidArgument { context, .. }
            | Error::NoKernel { context, .. }
            | Error::Device { context, .. }
            | Error::OutOfMemory { context, .. }
            | Error::Autograd { context, .. } => Some(context),
            _ => None,
        }
    }

    /// The same error with a hint, unless it has one or carries none.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        if let Some(context) = self.context_mut()
            && context.hint.is_empty()
        {
            context.hint = hint.into();
        }
        self
    }

    /// The same error with the operands, unless it has some or carries none.
    #[must_use]
    pub fn with_operands(mut self, operands: impl FnOnce() -> Vec<Operand>) -> Error {
        if let Some(context) = self.context_mut()
            && context.operands.is_empty()
        {
            context.operands = operands();
        }
        self
    }
}

fn hint_line(hint: &str) -> String {
    if hint.is_empty() {
        String::new()
    } else {
        format!("\n  hint: {hint}")
    }
}

struct StateDictProblems<'a> {
    missing: &'a [String],
    unexpected: &'a [String],
    mismatched: &'a [String],
    hint: &'a str,
}

impl fmt::Display for StateDictProblems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, names) in [
            ("missing", self.missing),
            ("unexpected", self.unexpected),
            ("mismatched", self.mismatched),
        ] {
            if !names.is_empty() {
                write!(f, "\n  {title} ({}): {}", names.len(), names.join(", "))?;
            }
        }
        f.write_str(&hint_line(self.hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_op_operands_and_hint() {
        let error = Error::shape("add", "shapes do not broadcast, got [2] and [3]")
            .with_hint("make them equal")
            .with_operands(|| {
                vec![Operand {
                    name: "input 0".into(),
                    shape: Shape::new(&[2]),
                    dtype: DType::F32,
                    device: Device::Cpu,
                    origin: Origin::here(),
                }]
            });
        let text = error.to_string();
        assert!(text.starts_with("add: shapes do not broadcast"), "{text}");
        assert!(text.contains("input 0: f32[2] on cpu, made at "), "{text}");
        assert!(text.ends_with("hint: make them equal"), "{text}");
    }

    #[test]
    fn errors_stay_small() {
        assert!(std::mem::size_of::<Error>() <= 120);
    }
}
