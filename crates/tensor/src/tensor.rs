//! `Tensor`: a view on a storage, with its dtype, its history and where it came from.

use std::sync::Arc;

use fireclay_core::{DType, Device, Element, Error, Layout, Operand, Origin, Result, Shape};
use fireclay_cuda::Purpose;

use crate::autograd::AutogradMeta;
use crate::storage::{self, Storage};

/// An n-dimensional array on a device (`torch.Tensor`).
///
/// Cloning a `Tensor` gives another handle on the same tensor, as a second Python name does; [`copy`](Tensor::copy)
/// is `torch.clone`. Tensors are `Send` and `Sync`.
#[derive(Clone)]
pub struct Tensor(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) storage: Arc<Storage>,
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    pub(crate) origin: Origin,
    /// Made by a view op: shares the storage of another tensor.
    pub(crate) is_view: bool,
    /// Made by `detach`, or a view of such: shares the bytes but on purpose not the history.
    pub(crate) is_detached: bool,
    /// Made under `inference_mode`.
    pub(crate) inference: bool,
    /// The storage's version when the tensor was made. See Note [Views and in-place edits].
    pub(crate) made_version: u64,
    pub(crate) autograd: AutogradMeta,
}

impl Tensor {
    /// A tensor over `storage` without history.
    pub(crate) fn from_parts(
        storage: Arc<Storage>,
        layout: Layout,
        dtype: DType,
        device: Device,
        origin: Origin,
    ) -> Tensor {
        Tensor(Arc::new(Inner {
            storage,
            layout,
            dtype,
            device,
            origin,
            is_view: false,
            is_detached: false,
            inference: crate::autograd::is_inference_mode(),
            made_version: 0,
            autograd: AutogradMeta::default(),
        }))
    }

    /// A view of `self` with another layout, without history.
    pub(crate) fn alias(&self, layout: Layout, origin: Origin) -> Tensor {
        self.view_as(layout, origin, self.0.is_detached)
    }

    /// A view of `self` that never gets the history of its base.
    pub(crate) fn detached(&self, origin: Origin) -> Tensor {
        self.view_as(self.layout().clone(), origin, true)
    }

    fn view_as(&self, layout: Layout, origin: Origin, is_detached: bool) -> Tensor {
        Tensor(Arc::new(Inner {
            storage: self.0.storage.clone(),
            layout,
            dtype: self.0.dtype,
            device: self.0.device,
            origin,
            is_view: true,
            is_detached,
            inference: crate::autograd::is_inference_mode(),
            made_version: self.0.storage.version(),
            autograd: AutogradMeta::default(),
        }))
    }

    /// The sizes of the dimensions (`Tensor.shape`).
    pub fn shape(&self) -> &Shape {
        self.0.layout.shape()
    }

    /// The number of dimensions (`Tensor.ndim`).
    pub fn ndim(&self) -> usize {
        self.0.layout.ndim()
    }

    /// The size of dimension `dim`, counted from the end where negative (`Tensor.size(dim)`).
    pub fn size(&self, dim: isize) -> Result<usize> {
        let at = fireclay_core::resolve_dim("size", dim, self.ndim())?;
        let size = self.shape().get(at).copied();
        size.ok_or_else(|| {
            let what = format!("a tensor without dimensions has no size {dim}");
            Error::argument("size", what).with_operands(|| vec![self.operand("self")])
        })
    }

    /// The number of elements (`Tensor.numel`).
    pub fn numel(&self) -> usize {
        self.0.layout.numel()
    }

    /// Bytes of all elements (`Tensor.nbytes`).
    pub fn nbytes(&self) -> usize {
        self.numel() * self.dtype().size()
    }

    /// The type of the elements (`Tensor.dtype`).
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Where the elements are (`Tensor.device`).
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Shape, strides and offset.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// Steps between neighbours in each dimension, in elements (`Tensor.stride`).
    pub fn strides(&self) -> &[usize] {
        self.0.layout.strides()
    }

    /// Whether the elements lie in order without gaps (`Tensor.is_contiguous`).
    pub fn is_contiguous(&self) -> bool {
        self.0.layout.is_contiguous()
    }

    /// The line of the user's code that made or moved the tensor.
    pub fn origin(&self) -> Origin {
        self.0.origin
    }

    /// Says what the tensor's memory is for, in the ledger of its device (see `memory_summary`). Memory of ops counts as
    /// activations until something else is said; parameters, their gradients and the state of optimizers are told apart
    /// without it.
    pub fn count_as(&self, purpose: Purpose) {
        self.0.storage.set_purpose(purpose);
    }

    /// How often the storage was written in place (`Tensor._version`).
    pub fn version(&self) -> u64 {
        self.0.storage.version()
    }

    /// Whether both are views on one storage.
    pub fn shares_storage(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0.storage, &other.0.storage)
    }

    /// Whether both are one tensor: the same handle, as Python's `is`.
    pub fn is_same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The elements in order, flat (`Tensor.flatten().tolist()`). `T` must be the tensor's dtype.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype() != T::DTYPE {
            return Err(Error::dtype(
                "to_vec",
                format!("expected {}, got {}", T::DTYPE, self.dtype()),
            )
            .with_hint(format!("cast first: to_dtype(DType::{:?})", T::DTYPE))
            .with_operands(|| vec![self.operand("self")]));
        }
        storage::read_elements(&self.0.storage, &self.0.layout)
    }

    /// The elements' bytes in order, native endian: what a checkpoint stores.
    ///
    /// # Errors
    /// An expanded tensor has more than memory has room for.
    #[track_caller]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        storage::read_bytes(&self.0.storage, &self.0.layout, self.dtype())
    }

    /// The only element, as f64 (`Tensor.item`). An i64 beyond 2^53 is rounded; use [`to_vec`](Tensor::to_vec) for it.
    #[track_caller]
    pub fn item(&self) -> Result<f64> {
        if self.numel() != 1 {
            return Err(Error::shape(
                "item",
                format!("expected one element, got {}", self.numel()),
            )
            .with_hint("reduce first (sum, mean), or use to_vec")
            .with_operands(|| vec![self.operand("self")]));
        }
        macro_rules! first {
            ($t:ty) => {
                storage::read_elements::<$t>(&self.0.storage, &self.0.layout)?[0]
            };
        }
        Ok(match self.dtype() {
            DType::F64 => first!(f64),
            DType::F32 => f64::from(first!(f32)),
            DType::F16 => first!(half::f16).to_f64(),
            DType::BF16 => first!(half::bf16).to_f64(),
            DType::I64 => first!(i64) as f64,
            DType::I32 => f64::from(first!(i32)),
            DType::I16 => f64::from(first!(i16)),
            DType::I8 => f64::from(first!(i8)),
            DType::U8 => f64::from(first!(u8)),
            DType::Bool => f64::from(u8::from(first!(bool))),
            DType::U16 => f64::from(first!(u16)),
            DType::U32 => f64::from(first!(u32)),
            DType::U64 => first!(u64) as f64,
            DType::F8E4M3 | DType::F8E5M2 | DType::C64 | DType::C128 => {
                return Err(
                    Error::dtype("item", format!("{} is stored only", self.dtype()))
                        .with_operands(|| vec![self.operand("self")]),
                );
            }
        })
    }

    /// The dotted name of the parameter or buffer that this tensor is, or is a view of.
    pub(crate) fn owner(&self) -> Option<String> {
        let name = self.0.storage.name()?;
        let whole = self.is_contiguous() && self.nbytes() == self.0.storage.nbytes();
        let view = if whole { "" } else { "view of " };
        Some(format!("{view}{name}"))
    }

    /// What an output rule sees of this tensor.
    pub(crate) fn meta(&self) -> crate::op::Meta<'_> {
        crate::op::Meta {
            layout: self.layout(),
            dtype: self.dtype(),
            device: self.device(),
        }
    }

    /// What an error tells of this tensor. Beside the name it says which parameter or buffer of a module the tensor is, if a
    /// module has told.
    pub fn operand(&self, name: impl Into<String>) -> Operand {
        let mut name = name.into();
        if let Some(owner) = self.owner() {
            name.push_str(&format!(" ({owner})"));
        }
        Operand {
            name,
            shape: self.shape().clone(),
            dtype: self.dtype(),
            device: self.device(),
            origin: self.origin(),
        }
    }
}
