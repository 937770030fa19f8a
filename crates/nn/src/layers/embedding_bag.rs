//! Sums, means or maxima of rows of a table.

use fireclay_tensor::{
    DType, Device, EmbeddingBagMode, EmbeddingOptions, Error, Parameter, Result, Tensor,
    as_one_call, get_default_device, no_grad,
};

use crate::init;
use crate::module::Module;
use crate::within::Within;

/// Sums, means or maxima of bags of rows of a table (`torch.nn.EmbeddingBag`).
///
/// Parameter `weight` `[num_embeddings, embedding_dim]`, from the standard normal distribution at first.
#[derive(crate::Module, Debug)]
pub struct EmbeddingBag {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Parameter,
    #[module(skip)]
    config: EmbeddingBagConfig,
}

/// What [`EmbeddingBag::with`] takes besides the sizes.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingBagConfig {
    /// What is made of the rows of a bag.
    pub mode: EmbeddingBagMode,
    /// A row that counts in no bag: zeros at first, and never trained.
    pub padding_idx: Option<usize>,
    /// Whether the last offset is the end of the last bag, not the start of another.
    pub include_last_offset: bool,
    /// Whether the gradient of each row is divided by how often the row was looked up.
    pub scale_grad_by_freq: bool,
    /// Where the table is: the default device, unless said.
    pub device: Device,
    /// Its dtype.
    pub dtype: DType,
}

impl Default for EmbeddingBagConfig {
    fn default() -> Self {
        EmbeddingBagConfig {
            mode: EmbeddingBagMode::Mean,
            padding_idx: None,
            include_last_offset: false,
            scale_grad_by_freq: false,
            device: get_default_device(),
            dtype: DType::F32,
        }
    }
}

impl EmbeddingBag {
    /// Means of rows, f32 on the default device.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> Result<EmbeddingBag> {
        EmbeddingBag::with(num_embeddings, embedding_dim, EmbeddingBagConfig::default())
    }

    /// As `config` says.
    ///
    /// # Errors
    /// `padding_idx` is not a row of the table.
    #[track_caller]
    pub fn with(
        num_embeddings: usize,
        embedding_dim: usize,
        config: EmbeddingBagConfig,
    ) -> Result<EmbeddingBag> {
        as_one_call(|| {
            let shape = [num_embeddings, embedding_dim];
            let weight = Tensor::empty(&shape, config.dtype, config.device)?;
            init::normal_(&weight, 0.0, 1.0)?;
            if let Some(row) = config.padding_idx {
                if row >= num_embeddings {
                    return Err(Error::argument(
                        "EmbeddingBag",
                        format!("padding_idx {row} is not one of the {num_embeddings} rows"),
                    ));
                }
                no_grad(|| weight.narrow(0, row, 1)?.zero_())?;
            }
            Ok(EmbeddingBag {
                weight: Parameter::new(weight)?,
                config,
            })
        })
    }

    /// Bags that start at `offsets` in `input` of one dimension, or are its rows; with a factor for each index, if sums.
    #[track_caller]
    pub fn forward_with(
        &self,
        input: &Tensor,
        offsets: Option<&Tensor>,
        per_sample_weights: Option<&Tensor>,
    ) -> Result<Tensor> {
        let weight = self.weight.tensor();
        let options = fireclay_tensor::EmbeddingBag {
            offsets,
            include_last_offset: self.config.include_last_offset,
            mode: self.config.mode,
            per_sample_weights,
            rows: EmbeddingOptions {
                padding_idx: self.config.padding_idx,
                scale_grad_by_freq: self.config.scale_grad_by_freq,
            },
        };
        weight
            .embedding_bag(input, options)
            .within(Some(&self.weight), || {
                format!("EmbeddingBag({}, {})", weight.shape()[0], weight.shape()[1])
            })
    }
}

impl Module for EmbeddingBag {
    /// Bags that are rows of `input`.
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.forward_with(input, None, None)
    }
}
