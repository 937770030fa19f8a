//! Losses as modules, most of two inputs. As functions they are methods of `Tensor`.

mod margin;
mod pointwise;

use fireclay_tensor::{Buffer, CrossEntropy, Error, Reduction, Result, Tensor};

pub use margin::{
    CTCLoss, CosineEmbeddingLoss, MarginConfig, MarginRankingLoss, MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss, MultiMarginLoss, MultiMarginLossConfig, NLLLoss, NLLLossConfig,
    TripletMarginLoss,
};
pub use pointwise::{
    BCELoss, GaussianNLLLoss, HingeEmbeddingLoss, HingeEmbeddingLossConfig, HuberLoss,
    HuberLossConfig, KLDivLoss, KLDivLossConfig, PoissonNLLLoss, SmoothL1Loss, SmoothL1LossConfig,
    SoftMarginLoss,
};

/// Declares losses of options alone: name, their type, and the call on inputs.
macro_rules! losses {
    ($($(#[$doc:meta])* $Name:ident($Config:ty), |$config:ident, $($input:ident),+| $body:block;)*) => {$(
        $(#[$doc])*
        #[derive(crate::Module, Clone, Copy, Debug, Default)]
        pub struct $Name {
            /// Its options.
            #[module(skip)]
            pub config: $Config,
        }

        impl $Name {
            /// PyTorch's defaults.
            pub fn new() -> $Name {
                $Name::default()
            }

            /// With other options.
            pub fn with(config: $Config) -> $Name {
                $Name { config }
            }

            /// Computes the loss.
            #[track_caller]
            pub fn forward(&self, $($input: &Tensor),+) -> Result<Tensor> {
                let $config = &self.config;
                $body
            }
        }
    )*};
}
use losses;

/// Cross entropy between logits `[n, classes]` (or `[n, classes, ..]`) and target classes `[n]` (or `[n, ..]`) of i64
/// (`torch.nn.CrossEntropyLoss`).
#[derive(crate::Module, Debug, Default)]
pub struct CrossEntropyLoss {
    /// A factor per class; moves with the loss.
    pub weight: Option<Buffer>,
    /// The other options.
    #[module(skip)]
    pub options: CrossEntropyOptions,
}

/// What [`CrossEntropyLoss`] takes besides weights.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropyOptions {
    /// Rows of this target count for nothing.
    pub ignore_index: i64,
    /// The share of the target that is spread over all classes, 0 to 1.
    pub label_smoothing: f64,
    /// What becomes of the rows' losses. The mean is weighted by the targets' weights.
    pub reduction: Reduction,
}

impl Default for CrossEntropyOptions {
    fn default() -> Self {
        let CrossEntropy {
            ignore_index,
            label_smoothing,
            reduction,
            ..
        } = CrossEntropy::default();
        CrossEntropyOptions {
            ignore_index,
            label_smoothing,
            reduction,
        }
    }
}

impl CrossEntropyLoss {
    /// The mean over the batch.
    pub fn new() -> CrossEntropyLoss {
        CrossEntropyLoss::default()
    }

    /// The loss, maybe with a factor per class, as `options` say.
    pub fn with(weight: Option<Tensor>, options: CrossEntropyOptions) -> CrossEntropyLoss {
        CrossEntropyLoss {
            weight: weight.map(Buffer::new),
            options,
        }
    }

    /// Computes the loss.
    #[track_caller]
    pub fn forward(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let weight = self.weight.as_ref().map(Buffer::tensor);
        logits.cross_entropy(
            targets,
            CrossEntropy {
                weight: weight.as_ref(),
                ignore_index: self.options.ignore_index,
                label_smoothing: self.options.label_smoothing,
                reduction: self.options.reduction,
            },
        )
    }
}

/// Squared distances between two tensors of one shape (`torch.nn.MSELoss`). PyTorch broadcasts with a warning; here other
/// shapes are an error, since `[n, 1]` against `[n]` would compare each with all.
#[derive(crate::Module, Clone, Copy, Debug, Default)]
pub struct MSELoss {
    #[module(skip)]
    reduction: Reduction,
}

impl MSELoss {
    /// The mean.
    pub fn new() -> MSELoss {
        MSELoss::default()
    }

    /// With another reduction.
    pub fn with(reduction: Reduction) -> MSELoss {
        MSELoss { reduction }
    }

    /// Computes the loss.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        check_equal_shapes("mse_loss", input, target)?;
        input.mse_loss(target, self.reduction)
    }
}

/// Absolute distances between two tensors of one shape (`torch.nn.L1Loss`).
#[derive(crate::Module, Clone, Copy, Debug, Default)]
pub struct L1Loss {
    #[module(skip)]
    reduction: Reduction,
}

impl L1Loss {
    /// The mean.
    pub fn new() -> L1Loss {
        L1Loss::default()
    }

    /// With another reduction.
    pub fn with(reduction: Reduction) -> L1Loss {
        L1Loss { reduction }
    }

    /// Computes the loss.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        check_equal_shapes("l1_loss", input, target)?;
        input.l1_loss(target, self.reduction)
    }
}

/// Binary cross entropy between logits and targets from 0 to 1 of one shape, without overflow
/// (`torch.nn.BCEWithLogitsLoss`).
#[derive(crate::Module, Debug, Default)]
pub struct BCEWithLogitsLoss {
    /// A factor per element, broadcast.
    pub weight: Option<Buffer>,
    /// A factor of the positive part, broadcast: above 1 it favours finding positives.
    pub pos_weight: Option<Buffer>,
    #[module(skip)]
    reduction: Reduction,
}

impl BCEWithLogitsLoss {
    /// The mean, without weights.
    pub fn new() -> BCEWithLogitsLoss {
        BCEWithLogitsLoss::default()
    }

    /// With weights and another reduction.
    pub fn with(
        weight: Option<Tensor>,
        pos_weight: Option<Tensor>,
        reduction: Reduction,
    ) -> BCEWithLogitsLoss {
        BCEWithLogitsLoss {
            weight: weight.map(Buffer::new),
            pos_weight: pos_weight.map(Buffer::new),
            reduction,
        }
    }

    /// Computes the loss.
    #[track_caller]
    pub fn forward(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let weight = self.weight.as_ref().map(Buffer::tensor);
        let pos_weight = self.pos_weight.as_ref().map(Buffer::tensor);
        logits.binary_cross_entropy_with_logits(
            targets,
            weight.as_ref(),
            pos_weight.as_ref(),
            self.reduction,
        )
    }
}

fn check_equal_shapes(op: &'static str, input: &Tensor, target: &Tensor) -> Result<()> {
    if input.shape() == target.shape() {
        return Ok(());
    }
    let (got, expected) = (target.shape(), input.shape());
    Err(Error::shape(
        op,
        format!("input and target must have one shape, got {expected} and {got}"),
    )
    .with_hint("reshape or unsqueeze one of them")
    .with_operands(|| vec![input.operand("input"), target.operand("target")]))
}
