//! Losses of margins, of classes and of sequences of labels.

use fireclay_tensor::{
    Buffer, CrossEntropy, Ctc, MultiMargin, Reduction, Result, Tensor, TripletMargin,
};

use super::losses;

/// What [`CosineEmbeddingLoss`] and [`MarginRankingLoss`] take; PyTorch's defaults.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MarginConfig {
    /// By how much scores should differ, or up to where a cosine of the target -1 is small enough.
    pub margin: f64,
    /// What becomes of the losses.
    pub reduction: Reduction,
}

/// What [`MultiMarginLoss`] takes besides weights; PyTorch's defaults.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MultiMarginLossConfig {
    /// The power of each excess: 1 or 2.
    pub p: u32,
    /// By how much the target's score should be larger than the others.
    pub margin: f64,
    /// What becomes of the rows' losses.
    pub reduction: Reduction,
}

impl Default for MultiMarginLossConfig {
    fn default() -> Self {
        MultiMarginLossConfig {
            p: 1,
            margin: 1.0,
            reduction: Reduction::Mean,
        }
    }
}

/// What [`NLLLoss`] takes besides weights; PyTorch's defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NLLLossConfig {
    /// Rows of this target count for nothing.
    pub ignore_index: i64,
    /// What becomes of the rows' losses. The mean is weighted by the targets' weights.
    pub reduction: Reduction,
}

impl Default for NLLLossConfig {
    fn default() -> Self {
        NLLLossConfig {
            ignore_index: -100,
            reduction: Reduction::Mean,
        }
    }
}

losses! {
    /// The angle between rows: small for targets of 1, large for targets of -1 (`torch.nn.CosineEmbeddingLoss`).
    CosineEmbeddingLoss(MarginConfig), |config, input1, input2, target| {
        input1.cosine_embedding_loss(input2, target, config.margin, config.reduction)
    };
    /// Which of two scores should be larger: the first for targets of 1, the second for targets of -1
    /// (`torch.nn.MarginRankingLoss`).
    MarginRankingLoss(MarginConfig), |config, input1, input2, target| {
        input1.margin_ranking_loss(input2, target, config.margin, config.reduction)
    };
    /// Anchors nearer to positive rows than to negative ones, by a margin (`torch.nn.TripletMarginLoss`).
    TripletMarginLoss(TripletMargin), |config, anchor, positive, negative| {
        anchor.triplet_margin_loss(positive, negative, *config)
    };
    /// Scores of a row's classes larger than those of the others, by a margin (`torch.nn.MultiLabelMarginLoss`).
    MultiLabelMarginLoss(Reduction), |reduction, input, target| {
        input.multilabel_margin_loss(target, *reduction)
    };
}

/// The score of a row's class larger than the others, by a margin (`torch.nn.MultiMarginLoss`).
#[derive(crate::Module, Debug, Default)]
pub struct MultiMarginLoss {
    /// A factor per class; moves with the loss.
    pub weight: Option<Buffer>,
    /// The other options.
    #[module(skip)]
    pub config: MultiMarginLossConfig,
}

impl MultiMarginLoss {
    /// PyTorch's defaults.
    pub fn new() -> MultiMarginLoss {
        MultiMarginLoss::default()
    }

    /// With a factor per class, perhaps, and other options.
    pub fn with(weight: Option<Tensor>, config: MultiMarginLossConfig) -> MultiMarginLoss {
        MultiMarginLoss {
            weight: weight.map(Buffer::new),
            config,
        }
    }

    /// Computes the loss.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let weight = self.weight.as_ref().map(Buffer::tensor);
        let options = MultiMargin {
            p: self.config.p,
            margin: self.config.margin,
            weight: weight.as_ref(),
            reduction: self.config.reduction,
        };
        input.multi_margin_loss(target, options)
    }
}

/// Binary cross entropy of the logits of each class, as a mean over the classes (`torch.nn.MultiLabelSoftMarginLoss`).
#[derive(crate::Module, Debug, Default)]
pub struct MultiLabelSoftMarginLoss {
    /// A factor per class; moves with the loss.
    pub weight: Option<Buffer>,
    #[module(skip)]
    reduction: Reduction,
}

impl MultiLabelSoftMarginLoss {
    /// The mean, without weights.
    pub fn new() -> MultiLabelSoftMarginLoss {
        MultiLabelSoftMarginLoss::default()
    }

    /// With weights and another reduction.
    pub fn with(weight: Option<Tensor>, reduction: Reduction) -> MultiLabelSoftMarginLoss {
        MultiLabelSoftMarginLoss {
            weight: weight.map(Buffer::new),
            reduction,
        }
    }

    /// Computes the loss.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let weight = self.weight.as_ref().map(Buffer::tensor);
        input.multilabel_soft_margin_loss(target, weight.as_ref(), self.reduction)
    }
}

/// The negative log-probability of each row's class, of log-probabilities `[n, classes]` (or `[n, classes, ..]`) and targets
/// `[n]` (or `[n, ..]`) of i64 (`torch.nn.NLLLoss`).
#[derive(crate::Module, Debug, Default)]
pub struct NLLLoss {
    /// A factor per class; moves with the loss.
    pub weight: Option<Buffer>,
    /// The other options.
    #[module(skip)]
    pub config: NLLLossConfig,
}

impl NLLLoss {
    /// The mean over the batch.
    pub fn new() -> NLLLoss {
        NLLLoss::default()
    }

    /// With a factor per class, perhaps, and other options.
    pub fn with(weight: Option<Tensor>, config: NLLLossConfig) -> NLLLoss {
        NLLLoss {
            weight: weight.map(Buffer::new),
            config,
        }
    }

    /// Computes the loss.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let weight = self.weight.as_ref().map(Buffer::tensor);
        let options = CrossEntropy {
            weight: weight.as_ref(),
            ignore_index: self.config.ignore_index,
            reduction: self.config.reduction,
            ..CrossEntropy::default()
        };
        input.nll_loss(target, options)
    }
}

/// The negative log-likelihood of label sequences of unknown alignment (`torch.nn.CTCLoss`).
#[derive(crate::Module, Clone, Copy, Debug, Default)]
pub struct CTCLoss {
    /// Its options.
    #[module(skip)]
    pub config: Ctc,
}

impl CTCLoss {
    /// The mean, with class 0 as the blank.
    pub fn new() -> CTCLoss {
        CTCLoss::default()
    }

    /// With other options.
    pub fn with(config: Ctc) -> CTCLoss {
        CTCLoss { config }
    }

    /// Computes the loss of log-probabilities `[time, n, classes]`; see [`Tensor::ctc_loss`].
    #[track_caller]
    pub fn forward(
        &self,
        log_probs: &Tensor,
        targets: &Tensor,
        input_lengths: &[usize],
        target_lengths: &[usize],
    ) -> Result<Tensor> {
        log_probs.ctc_loss(targets, input_lengths, target_lengths, self.config)
    }
}
