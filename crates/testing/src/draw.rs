//! Random numbers, shapes and tensors for tests: a function of the seed alone.

use fireclay_tensor::{DType, Device, Tensor};

/// A generator (splitmix64).
pub struct Draw(u64);

impl Draw {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A whole number from `low` to `high`, both included.
    pub fn int(&mut self, low: i64, high: i64) -> i64 {
        low + (self.bits() % (high - low + 1) as u64) as i64
    }

    /// A whole number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        (self.bits() % count.max(1) as u64) as usize
    }

    /// Whether a coin shows heads.
    pub fn flip(&mut self) -> bool {
        self.bits() & 1 == 1
    }

    /// A number from `low` up to `high`.
    pub fn number(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// One of the items.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// An f64 tensor of numbers from `low` to `high`, none nearer than 0.03 to one of `kinks`, no two equal.
    pub fn tensor(&mut self, shape: &[usize], low: f64, high: f64, kinks: &[f64]) -> Tensor {
        let mut elements: Vec<f64> = Vec::new();
        while elements.len() < shape.iter().product() {
            let number = self.number(low, high);
            let near = |other: &f64| (number - other).abs() < 0.03;
            let twin = |other: &f64| (number - other).abs() < 1e-3;
            if !kinks.iter().any(near) && !elements.iter().any(twin) {
                elements.push(number);
            }
        }
        Tensor::from_slice(&elements, shape, Device::Cpu)
            .expect("as many elements as the shape has")
    }

    /// An i64 tensor of whole numbers from `low` to `high`.
    pub fn ints(&mut self, shape: &[usize], low: i64, high: i64) -> Tensor {
        let count = shape.iter().product();
        let elements: Vec<i64> = (0..count).map(|_| self.int(low, high)).collect();
        Tensor::from_slice(&elements, shape, Device::Cpu)
            .expect("as many elements as the shape has")
    }

    /// A tensor of any shape of at most 4 dimensions of sizes 0 to 4, any dtype, any layout.
    pub fn any_tensor(&mut self) -> Tensor {
        let ndim = self.below(5);
        let sizes = [0, 1, 1, 2, 2, 3, 3, 4];
        let shape: Vec<usize> = (0..ndim).map(|_| *self.choose(&sizes)).collect();
        let dtype = *self.choose(&[
            DType::F32,
            DType::F32,
            DType::F64,
            DType::F16,
            DType::BF16,
            DType::I64,
            DType::I64,
            DType::I32,
            DType::I16,
            DType::I8,
            DType::U8,
            DType::Bool,
        ]);
        let whole = self.ints(&shape, -3, 5);
        let tensor = whole
            .to_dtype(dtype)
            .expect("a cast between computable dtypes");
        self.any_layout(&tensor)
    }

    /// The same elements, perhaps in another layout.
    pub fn any_layout(&mut self, tensor: &Tensor) -> Tensor {
        let form = *self.choose(&Form::ALL);
        if self.flip() {
            form.of(tensor)
        } else {
            tensor.clone()
        }
    }
}

/// A layout that is not contiguous.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Dimensions in reverse order in memory.
    Transposed,
    /// With gaps, and not from the start of the storage.
    Sliced,
    /// The first element along dimension 0 repeated, with stride 0. Changes the values.
    Expanded,
}

impl Form {
    /// Every form.
    pub const ALL: [Form; 3] = [Form::Transposed, Form::Sliced, Form::Expanded];

    /// `tensor` in this form.
    ///
    /// # Panics
    /// If a view op fails: a bug.
    pub fn of(self, tensor: &Tensor) -> Tensor {
        let made = || {
            let reversed: Vec<isize> = (0..tensor.ndim() as isize).rev().collect();
            match self {
                Form::Transposed => tensor.permute(&reversed)?.contiguous()?.permute(&reversed),
                Form::Sliced => Tensor::stack(&[tensor, tensor, tensor], -1)?.select(-1, 1),
                Form::Expanded if tensor.ndim() == 0 || tensor.shape()[0] == 0 => {
                    Ok(tensor.clone())
                }
                Form::Expanded => {
                    let sizes: Vec<isize> =
                        tensor.shape().iter().map(|&size| size as isize).collect();
                    tensor.narrow(0, 0, 1)?.expand(&sizes)
                }
            }
        };
        made().expect("view ops take every tensor")
    }
}
