//! Distances and norms without parameters.

use fireclay_tensor::{Result, Tensor};

use crate::module::Module;

/// The cosine of the angle between vectors along `dim` (`torch.nn.CosineSimilarity`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct CosineSimilarity {
    /// The dimension of the vectors.
    pub dim: isize,
    /// The least product of lengths that is divided by.
    pub eps: f64,
}

impl Default for CosineSimilarity {
    fn default() -> Self {
        CosineSimilarity { dim: 1, eps: 1e-8 }
    }
}

impl CosineSimilarity {
    /// Computes the output for both inputs.
    #[track_caller]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        x1.cosine_similarity(x2, self.dim, self.eps)
    }
}

/// The norm of the difference of vectors along the last dimension (`torch.nn.PairwiseDistance`).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct PairwiseDistance {
    /// Which norm.
    pub p: f64,
    /// Added to each difference.
    pub eps: f64,
    /// Whether the dimension stays, of size 1.
    pub keepdim: bool,
}

impl Default for PairwiseDistance {
    fn default() -> Self {
        PairwiseDistance {
            p: 2.0,
            eps: 1e-6,
            keepdim: false,
        }
    }
}

impl PairwiseDistance {
    /// Computes the output for both inputs.
    #[track_caller]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        x1.pairwise_distance(x2, self.p, self.eps, self.keepdim)
    }
}

/// Each element divided by a power of the squares of its neighbours in `size` channels (`torch.nn.LocalResponseNorm`; Krizhevsky
/// and others 2012).
#[derive(crate::Module, Clone, Copy, Debug)]
pub struct LocalResponseNorm {
    /// How many channels are neighbours.
    pub size: usize,
    /// The factor of the mean of squares.
    pub alpha: f64,
    /// The power.
    pub beta: f64,
    /// What is added.
    pub k: f64,
}

impl LocalResponseNorm {
    /// PyTorch's defaults, for this many channels.
    pub fn new(size: usize) -> LocalResponseNorm {
        LocalResponseNorm {
            size,
            alpha: 1e-4,
            beta: 0.75,
            k: 1.0,
        }
    }
}

impl Module for LocalResponseNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        input.local_response_norm(self.size, self.alpha, self.beta, self.k)
    }
}
