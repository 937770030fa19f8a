//! `Parameter` and `Buffer`: stable handles on the tensors that a module owns.
//!
//! A tensor never changes its device or dtype; a module does (`to`). So a module holds handles: moving it puts another tensor
//! behind the same handle, and whoever holds the handle too (an optimizer built before the move) sees it.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use fireclay_core::{DType, Error, IntoDevice, Result};
use fireclay_cuda::Purpose;

use crate::autograd::no_grad;
use crate::storage::Name;
use crate::tensor::Tensor;

/// A trainable tensor of a module (`torch.nn.Parameter`).
///
/// Cloning gives another handle on the same parameter. Use [`tensor`](Parameter::tensor) to compute with it.
#[derive(Clone)]
pub struct Parameter(Arc<Slot>);

/// A tensor of a module that is not trained: running statistics, a mask (`Module.register_buffer`).
///
/// Cloning gives another handle on the same buffer.
#[derive(Clone)]
pub struct Buffer {
    slot: Arc<Slot>,
    persistent: bool,
}

/// What tells one parameter from another while any handle on it lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ParameterId(usize);

struct Slot {
    tensor: RwLock<Tensor>,
    name: Arc<Name>,
}

impl Parameter {
    /// A parameter over the elements of `tensor`, which it shares, without its history. It requires grad.
    ///
    /// # Errors
    /// `tensor` is not floating (then there is nothing to train, use a [`Buffer`]), or was made in inference mode.
    #[track_caller]
    pub fn new(tensor: Tensor) -> Result<Parameter> {
        if !tensor.dtype().is_floating_point() {
            return Err(Error::dtype(
                "Parameter::new",
                format!(
                    "only floating tensors can be trained, got {}",
                    tensor.dtype()
                ),
            )
            .with_hint("keep whole numbers and bools in a Buffer")
            .with_operands(|| vec![tensor.operand("tensor")]));
        }
        let leaf = leaf_of(&tensor, true)?;
        Ok(Parameter(Slot::of(leaf)))
    }

    /// The tensor to compute with: the leaf that collects the gradient. Cheap; don't keep it across a move of the module.
    pub fn tensor(&self) -> Tensor {
        self.0.tensor()
    }

    /// Puts another tensor of the same shape behind the handle. The parameter goes on to require grad if it did; its
    /// gradient is dropped.
    ///
    /// # Errors
    /// `tensor` has another shape, or is not floating.
    pub fn set(&self, tensor: &Tensor) -> Result<()> {
        self.replace(tensor, None)
    }

    fn replace(&self, tensor: &Tensor, grad: Option<Tensor>) -> Result<()> {
        let old = self.tensor();
        check_shape("Parameter::set", &old, tensor)?;
        let leaf = leaf_of(tensor, old.requires_grad())?;
        leaf.set_grad(grad)?;
        self.0.put(leaf);
        Ok(())
    }

    /// The accumulated gradient (`Parameter.grad`).
    pub fn grad(&self) -> Option<Tensor> {
        self.tensor().grad()
    }

    /// Clears the gradient.
    pub fn zero_grad(&self) {
        self.tensor().zero_grad();
    }

    /// Whether it is trained.
    pub fn requires_grad(&self) -> bool {
        self.tensor().requires_grad()
    }

    /// Turns training on or off (freezes it) (`Parameter.requires_grad_`).
    pub fn requires_grad_(&self, requires_grad: bool) -> Result<()> {
        self.tensor().requires_grad_(requires_grad).map(drop)
    }

    /// The same elements and gradient on `device`, to be put in place by [`Moved::commit`]: so that a whole module moves or
    /// nothing does.
    pub fn moved_to(&self, device: impl IntoDevice) -> Result<Moved> {
        let device = device.into_device()?;
        self.moved(|tensor| tensor.to(device))
    }

    /// The same elements and gradient as `dtype`, to be put in place by [`Moved::commit`].
    pub fn cast_to(&self, dtype: DType) -> Result<Moved> {
        self.moved(|tensor| tensor.to_dtype(dtype))
    }

    fn moved(&self, change: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Moved> {
        let old = self.tensor();
        no_grad(|| {
            let tensor = change(&old)?;
            if tensor.is_same(&old) {
                return Ok(Moved(None));
            }
            let grad = old.grad().map(|grad| change(&grad)).transpose()?;
            Ok(Moved(Some(Replacement::Parameter(
                self.clone(),
                tensor,
                grad,
            ))))
        })
    }

    /// Whether both are handles on one parameter.
    pub fn same(&self, other: &Parameter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What tells this parameter from others, for use as a key while a handle is kept.
    pub fn id(&self) -> ParameterId {
        ParameterId(Arc::as_ptr(&self.0) as usize)
    }

    /// The dotted name, as `fc1.weight`, once a module listed its parameters.
    pub fn name(&self) -> Option<Arc<str>> {
        self.0.name()
    }

    /// Names the parameter, for errors. A name from further out in the tree of modules stays: `net.fc.weight` is not
    /// shortened by a later call for `fc` alone.
    pub fn set_name(&self, name: &str) {
        self.0.set_name(name);
    }
}

impl Buffer {
    /// A buffer that the state dict holds.
    pub fn new(tensor: Tensor) -> Buffer {
        Buffer {
            slot: Slot::of(plain(&tensor)),
            persistent: true,
        }
    }

    /// A buffer that moves with the module but isn't in the state dict (`register_buffer(persistent=False)`).
    pub fn temporary(tensor: Tensor) -> Buffer {
        Buffer {
            persistent: false,
            ..Buffer::new(tensor)
        }
    }

    /// The tensor to compute with.
    pub fn tensor(&self) -> Tensor {
        self.slot.tensor()
    }

    /// Puts another tensor of the same shape behind the handle.
    ///
    /// # Errors
    /// `tensor` has another shape.
    pub fn set(&self, tensor: &Tensor) -> Result<()> {
        check_shape("Buffer::set", &self.tensor(), tensor)?;
        self.slot.put(plain(tensor));
        Ok(())
    }

    /// Whether the state dict holds it.
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Whether both are handles on one buffer.
    pub fn same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.slot, &other.slot)
    }

    /// The dotted name, once a module listed its buffers.
    pub fn name(&self) -> Option<Arc<str>> {
        self.slot.name()
    }

    /// Names the buffer, for errors; see [`Parameter::set_name`].
    pub fn set_name(&self, name: &str) {
        self.slot.set_name(name);
    }

    /// The same elements on `device`, to be put in place by [`Moved::commit`].
    pub fn moved_to(&self, device: impl IntoDevice) -> Result<Moved> {
        let tensor = self.tensor().to(device)?;
        Ok(self.moved(tensor))
    }

    /// The same elements as `dtype`; whole numbers and bools stay as they are (`Module.to(dtype)`).
    pub fn cast_to(&self, dtype: DType) -> Result<Moved> {
        let tensor = self.tensor();
        Ok(if tensor.dtype().is_floating_point() {
            self.moved(tensor.to_dtype(dtype)?)
        } else {
            Moved(None)
        })
    }

    fn moved(&self, tensor: Tensor) -> Moved {
        let unchanged = tensor.is_same(&self.tensor());
        Moved((!unchanged).then(|| Replacement::Buffer(self.clone(), tensor)))
    }
}

/// A tensor already moved or cast, not yet behind its handle.
#[must_use = "nothing is moved until `commit`"]
pub struct Moved(Option<Replacement>);

enum Replacement {
    Parameter(Parameter, Tensor, Option<Tensor>),
    Buffer(Buffer, Tensor),
}

impl Moved {
    /// Puts the new tensor behind its handle.
    pub fn commit(self) -> Result<()> {
        match self.0 {
            None => Ok(()),
            Some(Replacement::Parameter(parameter, tensor, grad)) => {
                parameter.replace(&tensor, grad)
            }
            Some(Replacement::Buffer(buffer, tensor)) => buffer.set(&tensor),
        }
    }
}

impl Slot {
    fn of(tensor: Tensor) -> Arc<Slot> {
        let name = Arc::<Name>::default();
        tensor.0.storage.set_name(&name);
        Arc::new(Slot {
            tensor: RwLock::new(tensor),
            name,
        })
    }

    fn tensor(&self) -> Tensor {
        let tensor = self.tensor.read().unwrap_or_else(PoisonError::into_inner);
        tensor.clone()
    }

    fn put(&self, tensor: Tensor) {
        tensor.0.storage.set_name(&self.name);
        *self.tensor.write().unwrap_or_else(PoisonError::into_inner) = tensor;
    }

    fn name(&self) -> Option<Arc<str>> {
        self.name.get()
    }

    fn set_name(&self, name: &str) {
        self.name.set(name);
    }
}

/// What stands behind a handle for `tensor`: the same elements without history. It is known by the line that made them.
fn plain(tensor: &Tensor) -> Tensor {
    tensor.count_as(Purpose::Parameters);
    tensor.detached(tensor.origin())
}

fn leaf_of(tensor: &Tensor, requires_grad: bool) -> Result<Tensor> {
    plain(tensor).requires_grad_(requires_grad)
}

fn check_shape(op: &'static str, old: &Tensor, new: &Tensor) -> Result<()> {
    if old.shape() == new.shape() {
        return Ok(());
    }
    Err(Error::shape(
        op,
        format!("expected shape {}, got {}", old.shape(), new.shape()),
    )
    .with_operands(|| vec![old.operand("old"), new.operand("new")]))
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe("Parameter", &self.0, f)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe("Buffer", &self.slot, f)
    }
}

fn describe(kind: &str, slot: &Slot, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (tensor, name) = (slot.tensor(), slot.name());
    let name = name.as_deref().unwrap_or("unnamed");
    write!(
        f,
        "{kind}({name}: {}{} on {})",
        tensor.dtype(),
        tensor.shape(),
        tensor.device()
    )
}

impl fmt::Display for Parameter {
    /// The elements, as [`Tensor`] shows them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.tensor(), f)
    }
}

impl fmt::Display for Buffer {
    /// The elements, as [`Tensor`] shows them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.tensor(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Parameter {
        Parameter::new(Tensor::from_slice(&[1.0f32, 2.0], &[2], "cpu").unwrap()).unwrap()
    }

    #[test]
    fn a_clone_sees_the_tensor_that_was_put_in_place() {
        let parameter = two();
        let held_by_optimizer = parameter.clone();
        parameter
            .set(&Tensor::from_slice(&[3.0f64, 4.0], &[2], "cpu").unwrap())
            .unwrap();
        assert!(held_by_optimizer.same(&parameter));
        assert_eq!(held_by_optimizer.id(), parameter.id());
        assert_eq!(
            held_by_optimizer.tensor().to_vec::<f64>().unwrap(),
            [3.0, 4.0]
        );
        assert!(held_by_optimizer.requires_grad());
        assert!(!parameter.same(&two()));
    }

    #[test]
    fn the_gradient_moves_along() {
        let parameter = two();
        parameter
            .tensor()
            .square()
            .unwrap()
            .sum_all()
            .unwrap()
            .backward()
            .unwrap();
        parameter.cast_to(DType::F64).unwrap().commit().unwrap();
        assert_eq!(parameter.tensor().to_vec::<f64>().unwrap(), [1.0, 2.0]);
        assert_eq!(
            parameter.grad().unwrap().to_vec::<f64>().unwrap(),
            [2.0, 4.0]
        );
        parameter.zero_grad();
        assert!(parameter.grad().is_none());
    }

    #[test]
    fn a_frozen_parameter_stays_frozen() {
        let parameter = two();
        parameter.requires_grad_(false).unwrap();
        parameter.cast_to(DType::F64).unwrap().commit().unwrap();
        assert!(!parameter.requires_grad());
    }

    #[test]
    fn wrong_tensors_are_refused() {
        let whole = Tensor::from_slice(&[1i64], &[1], "cpu").unwrap();
        let text = Parameter::new(whole).unwrap_err().to_string();
        assert!(
            text.contains("got i64") && text.contains("Buffer"),
            "{text}"
        );
        let longer = Tensor::zeros(&[3], "cpu").unwrap();
        let text = two().set(&longer).unwrap_err().to_string();
        assert!(text.contains("expected shape [2], got [3]"), "{text}");
    }

    #[test]
    fn the_outermost_name_stays() {
        let parameter = two();
        assert_eq!(
            format!("{parameter:?}"),
            "Parameter(unnamed: f32[2] on cpu)"
        );
        parameter.set_name("net.fc.weight");
        parameter.set_name("weight");
        assert_eq!(parameter.name().as_deref(), Some("net.fc.weight"));
    }

    #[test]
    fn buffers_keep_whole_numbers_whole() {
        let count = Buffer::new(Tensor::scalar(7i64, "cpu").unwrap());
        count.cast_to(DType::F16).unwrap().commit().unwrap();
        assert_eq!(count.tensor().dtype(), DType::I64);
        assert!(count.is_persistent());
        let mask = Buffer::temporary(Tensor::ones(&[2], "cpu").unwrap());
        mask.cast_to(DType::F64).unwrap().commit().unwrap();
        assert_eq!(mask.tensor().dtype(), DType::F64);
        assert!(!mask.is_persistent());
    }
}
