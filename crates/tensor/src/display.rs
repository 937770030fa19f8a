//! How tensors print: elements in PyTorch's nested form, long ones shortened.

use std::fmt;

use fireclay_core::DType;

use crate::tensor::Tensor;

/// More elements than this are shortened.
const THRESHOLD: usize = 1000;
/// Elements kept at each end of a shortened dimension.
const EDGE: usize = 3;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = Texts::new(self);
        f.write_str("tensor(")?;
        texts.write(f, 0, 0, 7)?;
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

/// The texts of all elements that are shown, by flat index.
struct Texts {
    shape: Vec<usize>,
    texts: Vec<String>,
    width: usize,
    shorten: bool,
}

impl Texts {
    fn new(tensor: &Tensor) -> Texts {
        let texts = texts(tensor);
        Texts {
            shape: tensor.shape().to_vec(),
            width: texts.iter().map(String::len).max().unwrap_or(0),
            shorten: tensor.numel() > THRESHOLD,
            texts,
        }
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
            if self.shorten && size > 2 * EDGE && index == EDGE {
                f.write_str(if last { ", ..." } else { ",\n" })?;
                if !last {
                    write!(f, "{:indent$}...", "", indent = indent + 1)?;
                }
            }
            if self.shorten && size > 2 * EDGE && (EDGE..size - EDGE).contains(&index) {
                continue;
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

fn texts(tensor: &Tensor) -> Vec<String> {
    fn whole<T: ToString>(elements: Option<Vec<T>>) -> Vec<String> {
        elements
            .unwrap_or_default()
            .iter()
            .map(T::to_string)
            .collect()
    }
    match tensor.dtype() {
        DType::I64 => whole(tensor.to_vec::<i64>().ok()),
        DType::I32 => whole(tensor.to_vec::<i32>().ok()),
        DType::I16 => whole(tensor.to_vec::<i16>().ok()),
        DType::I8 => whole(tensor.to_vec::<i8>().ok()),
        DType::U8 => whole(tensor.to_vec::<u8>().ok()),
        DType::Bool => whole(tensor.to_vec::<bool>().ok()),
        DType::U16 => whole(tensor.to_vec::<u16>().ok()),
        DType::U32 => whole(tensor.to_vec::<u32>().ok()),
        DType::U64 => whole(tensor.to_vec::<u64>().ok()),
        DType::F64 => floats(&tensor.to_vec::<f64>().unwrap_or_default()),
        DType::F32 => floats(&widened(tensor.to_vec::<f32>().ok(), f64::from)),
        DType::F16 => floats(&widened(
            tensor.to_vec::<half::f16>().ok(),
            half::f16::to_f64,
        )),
        DType::BF16 => floats(&widened(
            tensor.to_vec::<half::bf16>().ok(),
            half::bf16::to_f64,
        )),
        DType::F8E4M3 | DType::F8E5M2 | DType::C64 | DType::C128 => {
            let bytes = tensor.to_bytes();
            bytes
                .chunks(tensor.dtype().size())
                .map(|bytes| format!("0x{}", hex(bytes)))
                .collect()
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

fn widened<T>(elements: Option<Vec<T>>, widen: impl Fn(T) -> f64) -> Vec<f64> {
    elements
        .unwrap_or_default()
        .into_iter()
        .map(widen)
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
