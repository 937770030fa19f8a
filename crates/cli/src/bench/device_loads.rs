//! Workloads of sizes that keep a GPU busy, as `bench/torch_gpu_workloads.py` has them, each with the bytes or the arithmetic that it needs
//! at the least.

use fireclay::nn::{BatchNorm2d, LayerNorm, RMSNorm};
use fireclay::optim::{AdamW, AdamWOptions, Optimizer};
use fireclay::prelude::*;
use fireclay::{Attention, Backpropagation, Conv2dOptions, CrossEntropy, grad_with};

use super::stopwatch::{Stopwatch, Work};
use crate::failure::Failure;
use crate::gpt::{Gpt, Shape};

/// What their names begin with.
pub(crate) const PREFIX: &str = "gpu/";

const DTYPES: [(DType, &str); 2] = [(DType::F32, "f32"), (DType::BF16, "bf16")];

/// How large they are.
struct Sizes {
    /// Numbers of a long vector.
    long: usize,
    /// Rows and columns of a matrix that is normalised by rows.
    rows: [usize; 2],
    /// Rows and classes of the cross entropy.
    classes: [usize; 2],
    /// Images, channels, height and width.
    images: [usize; 4],
    /// Rows and columns of square matrices.
    squares: &'static [usize],
    /// Rows, columns and the size summed over, of products of a few rows.
    few: [usize; 3],
    /// The same, and how many, of a batch of products.
    batch: [usize; 4],
    /// Batch, heads, length and width of attention.
    heads: [usize; 4],
    /// The network that is trained, and how many passages at once.
    gpt: (Shape, usize),
}

const FULL: Sizes = Sizes {
    long: 1 << 27,
    rows: [32_768, 4096],
    classes: [8192, 32_768],
    images: [32, 128, 56, 56],
    squares: &[4096, 8192],
    few: [16, 8192, 8192],
    batch: [64, 1024, 1024, 64],
    heads: [4, 16, 2048, 64],
    gpt: (
        Shape {
            layers: 12,
            width: 768,
            heads: 12,
            context: 1024,
        },
        8,
    ),
};

const SMALL: Sizes = Sizes {
    long: 1 << 14,
    rows: [16, 256],
    classes: [8, 64],
    images: [2, 4, 6, 6],
    squares: &[64],
    few: [4, 64, 64],
    batch: [2, 32, 32, 16],
    heads: [1, 2, 32, 16],
    gpt: (
        Shape {
            layers: 1,
            width: 16,
            heads: 2,
            context: 8,
        },
        2,
    ),
};

/// The network's tokens.
const TOKENS: usize = 256;

/// Measures them all.
pub(crate) fn run(stopwatch: &mut Stopwatch, device: Device, small: bool) -> Result<(), Failure> {
    let sizes = if small { &SMALL } else { &FULL };
    let loads = Loads { device, sizes };
    loads.pointwise(stopwatch)?;
    loads.rows(stopwatch)?;
    loads.images(stopwatch)?;
    loads.products(stopwatch)?;
    loads.attention(stopwatch)?;
    loads.train(stopwatch)
}

struct Loads {
    device: Device,
    sizes: &'static Sizes,
}

impl Loads {
    fn random(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        Tensor::randn(shape, self.device)?.to_dtype(dtype)
    }

    fn leaf(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        self.random(shape, dtype)?.requires_grad_(true)
    }

    fn pointwise(&self, stopwatch: &mut Stopwatch) -> Result<(), Failure> {
        let n = self.sizes.long;
        for (dtype, label) in DTYPES {
            let moves = |tensors: usize| Work::Bytes(tensors * n * dtype.size());
            let name = |op: &str| format!("{PREFIX}{op}_{label}_{n}");
            stopwatch.measure_prepared(&name("copy"), 1, moves(2), || {
                let x = self.random(&[n], dtype)?;
                Ok(move || x.copy().map(drop))
            })?;
            stopwatch.measure_prepared(&name("add"), 1, moves(3), || {
                let (x, y) = (self.random(&[n], dtype)?, self.random(&[n], dtype)?);
                Ok(move || x.add(&y).map(drop))
            })?;
            stopwatch.measure_prepared(&name("gelu"), 1, moves(2), || {
                let x = self.random(&[n], dtype)?;
                Ok(move || x.gelu().map(drop))
            })?;
            stopwatch.measure_prepared(&name("fused_chain"), 1, moves(3), || {
                let (x, y) = (self.random(&[n], dtype)?, self.random(&[n], dtype)?);
                Ok(move || ((&x * &y + &x).tanh() * 0.5 + 1.0).relu().eval().map(drop))
            })?;
            stopwatch.measure_prepared(&name("sum"), 1, moves(1), || {
                let x = self.random(&[n], dtype)?;
                Ok(move || x.sum_all().map(drop))
            })?;
        }
        Ok(())
    }

    fn rows(&self, stopwatch: &mut Stopwatch) -> Result<(), Failure> {
        let [rows, cols] = self.sizes.rows;
        for (dtype, label) in DTYPES {
            let moves = |tensors: usize| Work::Bytes(tensors * rows * cols * dtype.size());
            let name = |op: &str| format!("{PREFIX}{op}_{label}_{rows}x{cols}");
            stopwatch.measure_prepared(&name("softmax"), 1, moves(2), || {
                let x = self.random(&[rows, cols], dtype)?;
                Ok(move || x.softmax(-1).map(drop))
            })?;
            stopwatch.measure_prepared(&name("layer_norm"), 1, moves(2), || {
                let x = self.random(&[rows, cols], dtype)?;
                let norm = self.moved(LayerNorm::new(&[cols])?, dtype)?;
                Ok(move || no_grad(|| norm.forward(&x)).map(drop))
            })?;
            // Forward reads x and writes y; backward reads both and writes one.
            stopwatch.measure_prepared(&name("layer_norm_fwd_bwd"), 1, moves(5), || {
                let norm = self.moved(LayerNorm::new(&[cols])?, dtype)?;
                self.there_and_back(&[rows, cols], dtype, norm)
            })?;
            stopwatch.measure_prepared(&name("rms_norm_fwd_bwd"), 1, moves(5), || {
                let norm = self.moved(RMSNorm::new(&[cols])?, dtype)?;
                self.there_and_back(&[rows, cols], dtype, norm)
            })?;
        }
        let [rows, classes] = self.sizes.classes;
        let name = format!("{PREFIX}cross_entropy_fwd_bwd_f32_{rows}x{classes}");
        stopwatch.measure_prepared(&name, 1, Work::Bytes(3 * rows * classes * 4), || {
            let logits = self.leaf(&[rows, classes], DType::F32)?;
            let targets = Tensor::randint(0, classes as i64, &[rows], self.device)?;
            Ok(move || {
                let loss = logits.cross_entropy(&targets, CrossEntropy::default())?;
                gradients(&loss, None, &[&logits])
            })
        })?;
        let [rows, cols] = self.sizes.rows;
        let name = format!("{PREFIX}index_select_f32_{rows}x{cols}");
        stopwatch.measure_prepared(&name, 1, Work::Bytes(2 * rows * cols * 4), || {
            let x = self.random(&[rows, cols], DType::F32)?;
            let places = Tensor::randint(0, rows as i64, &[rows], self.device)?;
            Ok(move || x.index_select(0, &places).map(drop))
        })
    }

    fn images(&self, stopwatch: &mut Stopwatch) -> Result<(), Failure> {
        let shape @ [images, channels, height, width] = self.sizes.images;
        let numbers = images * channels * height * width;
        let place = format!("b{images}_c{channels}_{height}x{width}");
        let name = format!("{PREFIX}batch_norm_fwd_bwd_f32_{place}");
        // Images are read for their sums and once more for the result, on the way back also with the gradient.
        stopwatch.measure_prepared(&name, 1, Work::Bytes(8 * numbers * 4), || {
            let norm = self.moved(BatchNorm2d::new(channels)?, DType::F32)?;
            self.there_and_back(&shape, DType::F32, norm)
        })?;
        let flops = 2 * numbers * channels * 9;
        let options = Conv2dOptions {
            padding: [1, 1],
            ..Default::default()
        };
        let kernel = [channels, channels, 3, 3];
        for (dtype, label) in DTYPES {
            let name = format!("{PREFIX}conv3x3_{label}_{place}");
            stopwatch.measure_prepared(&name, 1, Work::Flops(flops), || {
                let (x, weight) = (self.random(&shape, dtype)?, self.random(&kernel, dtype)?);
                Ok(move || x.conv2d(&weight, None, options).map(drop))
            })?;
            let name = format!("{PREFIX}conv3x3_fwd_bwd_{label}_{place}");
            stopwatch.measure_prepared(&name, 1, Work::Flops(3 * flops), || {
                let (x, weight) = (self.leaf(&shape, dtype)?, self.leaf(&kernel, dtype)?);
                let grad = self.random(&shape, dtype)?;
                Ok(move || {
                    gradients(
                        &x.conv2d(&weight, None, options)?,
                        Some(&grad),
                        &[&x, &weight],
                    )
                })
            })?;
        }
        Ok(())
    }

    fn products(&self, stopwatch: &mut Stopwatch) -> Result<(), Failure> {
        for (dtype, label) in DTYPES {
            for &n in self.sizes.squares {
                let name = format!("{PREFIX}matmul_{label}_{n}");
                self.product(
                    stopwatch,
                    &name,
                    [1, n, n, n],
                    dtype,
                    Work::Flops(2 * n * n * n),
                )?;
            }
            let [m, n, k] = self.sizes.few;
            let name = format!("{PREFIX}matmul_{label}_{m}x{n}x{k}");
            // So few rows take the time of reading the matrix.
            let bytes = (m * k + k * n + m * n) * dtype.size();
            self.product(stopwatch, &name, [1, m, n, k], dtype, Work::Bytes(bytes))?;
            let all @ [batch, m, n, k] = self.sizes.batch;
            let name = format!("{PREFIX}matmul_{label}_b{batch}_{m}x{n}x{k}");
            self.product(
                stopwatch,
                &name,
                all,
                dtype,
                Work::Flops(2 * batch * m * n * k),
            )?;
        }
        Ok(())
    }

    fn product(
        &self,
        stopwatch: &mut Stopwatch,
        name: &str,
        [batch, m, n, k]: [usize; 4],
        dtype: DType,
        work: Work,
    ) -> Result<(), Failure> {
        stopwatch.measure_prepared(name, 1, work, || {
            let (a, b) = (
                self.random(&[batch, m, k], dtype)?,
                self.random(&[batch, k, n], dtype)?,
            );
            Ok(move || a.matmul(&b).map(drop))
        })
    }

    fn attention(&self, stopwatch: &mut Stopwatch) -> Result<(), Failure> {
        let shape @ [batch, heads, length, width] = self.sizes.heads;
        // Two products, of which causality leaves a half; five more on the way back, one of them again for the weights.
        let flops = 2 * 2 * batch * heads * length * length * width / 2;
        let options = Attention {
            is_causal: true,
            ..Attention::default()
        };
        for (dtype, label) in DTYPES {
            let place = format!("{label}_b{batch}_h{heads}_t{length}_d{width}");
            let name = format!("{PREFIX}attention_causal_{place}");
            stopwatch.measure_prepared(&name, 1, Work::Flops(flops), || {
                let random = || self.random(&shape, dtype);
                let (query, key, value) = (random()?, random()?, random()?);
                Ok(move || {
                    query
                        .scaled_dot_product_attention(&key, &value, options)
                        .map(drop)
                })
            })?;
            let name = format!("{PREFIX}attention_causal_fwd_bwd_{place}");
            stopwatch.measure_prepared(&name, 1, Work::Flops(flops * 7 / 2), || {
                let leaf = || self.leaf(&shape, dtype);
                let (query, key, value) = (leaf()?, leaf()?, leaf()?);
                let grad = self.random(&shape, dtype)?;
                Ok(move || {
                    let result = query.scaled_dot_product_attention(&key, &value, options)?;
                    gradients(&result, Some(&grad), &[&query, &key, &value])
                })
            })?;
        }
        Ok(())
    }

    fn train(&self, stopwatch: &mut Stopwatch) -> Result<(), Failure> {
        let (shape, passages) = self.sizes.gpt;
        let Shape {
            layers,
            width,
            context,
            ..
        } = shape;
        let name = format!("{PREFIX}train_gpt_{layers}x{width}_t{context}_b{passages}_adamw_f32");
        let tokens = passages * context;
        // Weights of the blocks and the scores, once forward and twice back; the causal half of attention as above.
        let weights = 12 * layers * width * width + TOKENS * width;
        let flops = 6 * weights * tokens + layers * 7 * tokens * context * width;
        stopwatch.measure_prepared(&name, 1, Work::Flops(flops), || {
            let model = Gpt::new(shape, TOKENS)?;
            model.to(self.device)?;
            let options = AdamWOptions {
                lr: 3e-4,
                ..Default::default()
            };
            let mut optimizer = AdamW::new(model.parameters(), options)?;
            let random = |shape: &[usize]| Tensor::randint(0, TOKENS as i64, shape, self.device);
            let (x, y) = (random(&[passages, context])?, random(&[tokens])?);
            Ok(move || {
                optimizer.zero_grad();
                let scores = model.forward(&x)?.flatten(0, 1)?;
                scores
                    .cross_entropy(&y, CrossEntropy::default())?
                    .backward()?;
                optimizer.step()
            })
        })
    }

    fn moved<M: Module>(&self, module: M, dtype: DType) -> Result<M> {
        module.to(self.device)?;
        module.to_dtype(dtype)?;
        Ok(module)
    }

    /// A module's result, and the gradients of its input and its parameters.
    fn there_and_back<M: Module>(
        &self,
        shape: &[usize],
        dtype: DType,
        module: M,
    ) -> Result<impl FnMut() -> Result<()> + use<M>> {
        let x = self.leaf(shape, dtype)?;
        let grad = self.random(shape, dtype)?;
        Ok(move || {
            let parameters: Vec<Tensor> = module.parameters().iter().map(|p| p.tensor()).collect();
            let inputs: Vec<&Tensor> = std::iter::once(&x).chain(&parameters).collect();
            gradients(&module.forward(&x)?, Some(&grad), &inputs)
        })
    }
}

/// The gradients of what a result is made of; they are dropped.
fn gradients(result: &Tensor, grad: Option<&Tensor>, inputs: &[&Tensor]) -> Result<()> {
    grad_with(&[result], &[grad], inputs, Backpropagation::default()).map(drop)
}
