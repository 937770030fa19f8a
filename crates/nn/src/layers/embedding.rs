//! The table of vectors.

use fireclay_tensor::{
    DType, Device, EmbeddingOptions, Error, Parameter, Result, Tensor, as_one_call,
    get_default_device, no_grad,
};

use crate::init;
use crate::module::Module;
use crate::within::Within;

/// Gives for each index the row of its number: indices of any shape, output `[..., embedding_dim]` (`torch.nn.Embedding`).
///
/// Parameter `weight` `[num_embeddings, embedding_dim]`, from the standard normal distribution at first.
#[derive(crate::Module, Debug)]
pub struct Embedding {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Parameter,
    #[module(skip)]
    options: EmbeddingOptions,
}

/// What [`Embedding::with`] takes besides the sizes.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingConfig {
    /// A row that stands for "nothing here": zeros at first, and never trained.
    pub padding_idx: Option<usize>,
    /// Whether the gradient of each row is divided by how often the row was looked up.
    pub scale_grad_by_freq: bool,
    /// Where the table is: the default device, unless said.
    pub device: Device,
    /// Its dtype.
    pub dtype: DType,
}

impl Default for EmbeddingConfig {
    fn default() -> Self {
        EmbeddingConfig {
            padding_idx: None,
            scale_grad_by_freq: false,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

impl Embedding {
    /// A table of `num_embeddings` rows, f32 on the default device.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> Result<Embedding> {
        Embedding::with(num_embeddings, embedding_dim, EmbeddingConfig::default())
    }

    /// A table as `config` says.
    ///
    /// # Errors
    /// `padding_idx` is not a row of the table.
    #[track_caller]
    pub fn with(
        num_embeddings: usize,
        embedding_dim: usize,
        config: EmbeddingConfig,
    ) -> Result<Embedding> {
        as_one_call(|| {
            let shape = [num_embeddings, embedding_dim];
            let weight = Tensor::empty(&shape, config.dtype, config.device)?;
            init::normal_(&weight, 0.0, 1.0)?;
            if let Some(row) = config.padding_idx {
                if row >= num_embeddings {
                    return Err(Error::argument(
                        "Embedding",
                        format!("padding_idx {row} is not one of the {num_embeddings} rows"),
                    ));
                }
                no_grad(|| weight.narrow(0, row, 1)?.zero_())?;
            }
            Ok(Embedding {
                weight: Parameter::new(weight)?,
                options: EmbeddingOptions {
                    padding_idx: config.padding_idx,
                    scale_grad_by_freq: config.scale_grad_by_freq,
                },
            })
        })
    }
}

impl Module for Embedding {
    /// Looks up `input`, whole numbers from 0 to `num_embeddings - 1`.
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let weight = self.weight.tensor();
        weight
            .embedding_with(input, self.options)
            .within(Some(&self.weight), || {
                format!("Embedding({}, {})", weight.shape()[0], weight.shape()[1])
            })
    }
}
