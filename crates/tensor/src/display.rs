//! How tensors print: elements in PyTorch's nested form, long ones shortened.

use std::fmt;

use fireclay_core::{DType, Element, Layout, Result};

use crate::storage;
use crate::tensor::Tensor;

/// More elements than this are shortened.
const THRESHOLD: usize = 1000;
/// Elements kept at each end of a shortened dimension.
const EDGE: usize = 3;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensor(")?;
        match Texts::new(self) {
            Ok(texts) => texts.write(f, 0, 0, 7)?,
            Err(error) => write!(f, "<{error}>")?,
        }
        write!(f, ", {}", self.dtype())?;
        if self.numel() == 0 || self.numel() > THRESHOLD {
            write!(f, ", shape={}", self.shape())?;
        }
        if !self.device().is_cpu() {
            write!(f, ", device=\"{}\"", self.device())?;
        }
        match self.grad_fn() {
            Some(op) => write!(f, ", grad_fn={op}")?,
            None if self.requires_grad() => f.write_str(", requires_grad")?,
            None => {}
        }
        f.write_str(")")
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        write!(
            f,
            "Tensor({}{} on {}, {})",
            self.dtype(),
            self.shape(),
            self.device(),
            self.origin()
        )
    }
}

/// The texts of the elements that are shown, by flat index among them.
struct Texts {
    /// How many of each dimension are shown.
    shape: Vec<usize>,
    /// Of which dimensions only the ends are shown.
    shortened: Vec<bool>,
    texts: Vec<String>,
    width: usize,
}

impl Texts {
    fn new(tensor: &Tensor) -> Result<Texts> {
        let texts = texts(tensor)?;
        let sizes = tensor.shape().iter();
        let shortened: Vec<bool> = sizes.map(|&size| is_shortened(tensor, size)).collect();
        let sizes = tensor.shape().iter().zip(&shortened);
        let shown = |(&size, &shortened)| if shortened { 2 * EDGE } else { size };
        Ok(Texts {
            shape: sizes.map(shown).collect(),
            shortened,
            width: texts.iter().map(String::len).max().unwrap_or(0),
            texts,
        })
    }

    fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        dim: usize,
        start: usize,
        indent: usize,
    ) -> fmt::Result {
        let Some(&size) = self.shape.get(dim) else {
            return write!(f, "{:>1$}", self.texts[start], self.width);
        };
        let step: usize = self.shape[dim + 1..].iter().product();
        let last = dim + 1 == self.shape.len();
        f.write_str("[")?;
        for index in 0..size {
            if self.shortened[dim] && index == EDGE {
                f.write_str(if last { ", ..." } else { ",\n" })?;
                if !last {
                    write!(f, "{:indent$}...", "", indent = indent + 1)?;
                }
            }
            if index > 0 {
                f.write_str(if last { ", " } else { ",\n" })?;
                if !last {
                    if dim + 2 < self.shape.len() {
                        f.write_str("\n")?;
                    }
                    write!(f, "{:indent$}", "", indent = indent + 1)?;
                }
            }
            self.write(f, dim + 1, start + index * step, indent + 1)?;
        }
        f.write_str("]")
    }
}

fn is_shortened(tensor: &Tensor, size: usize) -> bool {
    tensor.numel() > THRESHOLD && size > 2 * EDGE
}

/// Calls `read` with layouts that together have the elements that are shown, in order: a huge tensor isn't read in full.
fn each_shown(
    tensor: &Tensor,
    layout: &Layout,
    dim: usize,
    read: &mut dyn FnMut(&Layout) -> Result<()>,
) -> Result<()> {
    let sizes = &layout.shape()[dim..];
    if !sizes.iter().any(|&size| is_shortened(tensor, size)) {
        return read(layout);
    }
    let size = layout.shape()[dim];
    let (head, tail) = if is_shortened(tensor, size) {
        (0..EDGE, size - EDGE..size)
    } else {
        (0..size, size..size)
    };
    head.chain(tail)
        .try_for_each(|index| each_shown(tensor, &layout.slice(dim, index, 1, 1), dim + 1, read))
}

fn shown<T: Element>(tensor: &Tensor) -> Result<Vec<T>> {
    let mut elements = Vec::new();
    each_shown(tensor, tensor.layout(), 0, &mut |layout| {
        elements.append(&mut storage::read_elements(&tensor.0.storage, layout)?);
        Ok(())
    })?;
    Ok(elements)
}

fn texts(tensor: &Tensor) -> Result<Vec<String>> {
    fn whole<T: Element + ToString>(tensor: &Tensor) -> Result<Vec<String>> {
        Ok(shown::<T>(tensor)?.iter().map(T::to_string).collect())
    }
    fn widened<T: Element>(tensor: &Tensor, widen: impl Fn(T) -> f64) -> Result<Vec<String>> {
        let elements: Vec<f64> = shown(tensor)?.into_iter().map(widen).collect();
        Ok(floats(&elements))
    }
    match tensor.dtype() {
        DType::I64 => whole::<i64>(tensor),
        DType::I32 => whole::<i32>(tensor),
        DType::I16 => whole::<i16>(tensor),
        DType::I8 => whole::<i8>(tensor),
        DType::U8 => whole::<u8>(tensor),
        DType::Bool => whole::<bool>(tensor),
        DType::U16 => whole::<u16>(tensor),
        DType::U32 => whole::<u32>(tensor),
        DType::U64 => whole::<u64>(tensor),
        DType::F64 => widened(tensor, |x: f64| x),
        DType::F32 => widened(tensor, |x: f32| f64::from(x)),
        DType::F16 => widened(tensor, half::f16::to_f64),
        DType::BF16 => widened(tensor, half::bf16::to_f64),
        DType::F8E4M3 | DType::F8E5M2 | DType::C64 | DType::C128 => {
            let mut texts = Vec::new();
            each_shown(tensor, tensor.layout(), 0, &mut |layout| {
                let bytes = storage::read_bytes(&tensor.0.storage, layout, tensor.dtype())?;
                let elements = bytes.chunks(tensor.dtype().size());
                texts.extend(elements.map(|bytes| format!("0x{}", hex(bytes))));
                Ok(())
            })?;
            Ok(texts)
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .rev()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Whole numbers as `1.`, others with four places, very large or small ones with an exponent: one form for all elements.
fn floats(elements: &[f64]) -> Vec<String> {
    let finite = || {
        elements
            .iter()
            .copied()
            .filter(|x| x.is_finite() && *x != 0.0)
            .map(f64::abs)
    };
    let largest = finite().fold(0.0, f64::max);
    let smallest = finite().fold(f64::INFINITY, f64::min);
    let whole = elements.iter().all(|x| !x.is_finite() || x.fract() == 0.0);
    elements
        .iter()
        .map(|&x| match x {
            x if x.is_nan() => "nan".into(),
            x if x.is_infinite() => (if x > 0.0 { "inf" } else { "-inf" }).into(),
            x if largest >= 1e8 || (!whole && (smallest < 1e-4 || largest / smallest > 1e5)) => {
                format!("{x:.4e}")
            }
            x if whole => format!("{x:.0}."),
            x => format!("{x:.4}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_dimensions_show_their_ends() {
        let tensor = Tensor::arange(0, 2100, 1, "cpu").unwrap();
        let tensor = tensor.view(&[3, 700]).unwrap();
        let expected = "tensor([[   0,    1,    2, ...,  697,  698,  699],
        [ 700,  701,  702, ..., 1397, 1398, 1399],
        [1400, 1401, 1402, ..., 2097, 2098, 2099]], i64, shape=[3, 700])";
        assert_eq!(tensor.to_string(), expected);
        let columns = tensor.t().unwrap().to_string();
        assert!(
            columns.starts_with("tensor([[   0,  700, 1400],\n"),
            "{columns}"
        );
        assert!(
            columns.contains("1402],\n        ...,\n        [ 697,"),
            "{columns}"
        );
        let whole = tensor.slice(1, 0, 7, 1).unwrap().to_string();
        assert!(!whole.contains("..."), "{whole}");
    }
}
