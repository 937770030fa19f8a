//! Losses of each element.

use fireclay_tensor::{Buffer, GaussianNll, KlDivReduction, PoissonNll, Reduction, Result, Tensor};

use super::{check_equal_shapes, losses};

/// What [`SmoothL1Loss`] takes; PyTorch's defaults.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SmoothL1LossConfig {
    /// Where the parabola ends; 0 makes it [`L1Loss`](super::L1Loss).
    pub beta: f64,
    /// What becomes of the elements' losses.
    pub reduction: Reduction,
}

impl Default for SmoothL1LossConfig {
    fn default() -> Self {
        SmoothL1LossConfig {
            beta: 1.0,
            reduction: Reduction::Mean,
        }
    }
}

/// What [`HuberLoss`] takes; PyTorch's defaults.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HuberLossConfig {
    /// Where the parabola ends.
    pub delta: f64,
    /// What becomes of the elements' losses.
    pub reduction: Reduction,
}

impl Default for HuberLossConfig {
    fn default() -> Self {
        HuberLossConfig {
            delta: 1.0,
            reduction: Reduction::Mean,
        }
    }
}

/// What [`KLDivLoss`] takes; PyTorch's defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KLDivLossConfig {
    /// Whether targets are log-probabilities too.
    pub log_target: bool,
    /// What becomes of the elements' parts; the divergence itself is [`KlDivReduction::BatchMean`].
    pub reduction: KlDivReduction,
}

/// What [`HingeEmbeddingLoss`] takes; PyTorch's defaults.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HingeEmbeddingLossConfig {
    /// From where on a distance of the target -1 is large enough.
    pub margin: f64,
    /// What becomes of the elements' losses.
    pub reduction: Reduction,
}

impl Default for HingeEmbeddingLossConfig {
    fn default() -> Self {
        HingeEmbeddingLossConfig {
            margin: 1.0,
            reduction: Reduction::Mean,
        }
    }
}

losses! {
    /// Squared distances near 0, absolute ones farther away, of two tensors of one shape (`torch.nn.SmoothL1Loss`). As of
    /// [`MSELoss`](super::MSELoss), other shapes are an error.
    SmoothL1Loss(SmoothL1LossConfig), |config, input, target| {
        check_equal_shapes("smooth_l1_loss", input, target)?;
        input.smooth_l1_loss(target, config.beta, config.reduction)
    };
    /// [`SmoothL1Loss`] times `delta`, of two tensors of one shape (`torch.nn.HuberLoss`). As of [`MSELoss`](super::MSELoss), other
    /// shapes are an error.
    HuberLoss(HuberLossConfig), |config, input, target| {
        check_equal_shapes("huber_loss", input, target)?;
        input.huber_loss(target, None, config.delta, config.reduction)
    };
    /// The Kullback-Leibler divergence of log-probabilities from targets (`torch.nn.KLDivLoss`).
    KLDivLoss(KLDivLossConfig), |config, input, target| {
        input.kl_div(target, config.log_target, config.reduction)
    };
    /// The negative log-likelihood of counts with Poisson's distribution (`torch.nn.PoissonNLLLoss`).
    PoissonNLLLoss(PoissonNll), |config, input, target| {
        input.poisson_nll_loss(target, *config)
    };
    /// The negative log-likelihood of targets with normal distributions (`torch.nn.GaussianNLLLoss`).
    GaussianNLLLoss(GaussianNll), |config, input, target, var| {
        input.gaussian_nll_loss(target, var, *config)
    };
    /// Of distances: themselves for targets of 1, what a margin exceeds them by for targets of -1 (`torch.nn.HingeEmbeddingLoss`).
    HingeEmbeddingLoss(HingeEmbeddingLossConfig), |config, input, target| {
        input.hinge_embedding_loss(target, config.margin, config.reduction)
    };
    /// The logistic loss of scores with targets of 1 and -1 (`torch.nn.SoftMarginLoss`).
    SoftMarginLoss(Reduction), |reduction, input, target| {
        input.soft_margin_loss(target, *reduction)
    };
}

/// Binary cross entropy between probabilities and targets from 0 to 1 of one shape (`torch.nn.BCELoss`). Of logits,
/// [`BCEWithLogitsLoss`](super::BCEWithLogitsLoss) is more exact.
#[derive(crate::Module, Debug, Default)]
pub struct BCELoss {
    /// A factor per element, broadcast.
    pub weight: Option<Buffer>,
    #[module(skip)]
    reduction: Reduction,
}

impl BCELoss {
    /// The mean, without weights.
    pub fn new() -> BCELoss {
        BCELoss::default()
    }

    /// With weights and another reduction.
    pub fn with(weight: Option<Tensor>, reduction: Reduction) -> BCELoss {
        BCELoss {
            weight: weight.map(Buffer::new),
            reduction,
        }
    }

    /// Computes the loss.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let weight = self.weight.as_ref().map(Buffer::tensor);
        input.binary_cross_entropy(target, weight.as_ref(), self.reduction)
    }
}
