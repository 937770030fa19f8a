//! Plain values that say where a training run stands: what a checkpoint keeps so that a run goes on to the same bits.

/// Where a random generator stands (`torch.Generator.get_state`): with both numbers restored, it goes on to the same
/// bits. See the note on random numbers in `philox`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RngState {
    /// What it was seeded with.
    pub seed: u64,
    /// How many tensors it has filled since.
    pub offset: u64,
}

/// Where a data loader stands: the batches before `batch` of epoch `epoch` have been handed out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LoaderState {
    /// The loader's seed.
    pub seed: u64,
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// The next batch of the epoch, counted from 0.
    pub batch: usize,
}
