//! Dropout.

use fireclay_tensor::{Error, Result, Tensor};

use crate::mode::Mode;
use crate::module::Module;

macro_rules! dropouts {
    ($($(#[$doc:meta])* $Name:ident $function:ident $($unbatched:literal)?)*) => {$(
        $(#[$doc])*
        #[derive(crate::Module, Debug)]
        pub struct $Name {
            p: f64,
            mode: Mode,
        }

        impl $Name {
            /// With probability `p`; PyTorch's default is 0.5.
            ///
            /// # Errors
            /// `p` is not from 0 to 1.
            pub fn new(p: f64) -> Result<$Name> {
                if !(0.0..=1.0).contains(&p) {
                    return Err(Error::argument(
                        stringify!($Name),
                        format!("a probability is from 0 to 1, got {p}"),
                    ));
                }
                Ok($Name {
                    p,
                    mode: Mode::new(),
                })
            }
        }

        impl Module for $Name {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                // Without a batch the channels come first.
                $(if input.ndim() == $unbatched {
                    let batched = input.unsqueeze(0)?;
                    return batched.$function(self.p, self.mode.is_training())?.squeeze(0);
                })?
                input.$function(self.p, self.mode.is_training())
            }
        }
    )*};
}

dropouts! {
    /// In training, sets each element to zero with probability `p` and multiplies the others by `1 / (1 - p)`; in evaluation passes
    /// its input on (`torch.nn.Dropout`).
    Dropout dropout
    /// [`Dropout`] of whole channels of `[N, C, L]` or `[C, L]` (`torch.nn.Dropout1d`).
    Dropout1d feature_dropout 2
    /// [`Dropout`] of whole channels of `[N, C, H, W]` (`torch.nn.Dropout2d`).
    Dropout2d feature_dropout
    /// [`Dropout`] of whole channels of `[N, C, D, H, W]` or `[C, D, H, W]` (`torch.nn.Dropout3d`).
    Dropout3d feature_dropout 4
    /// Dropout that keeps mean and variance of what [`SELU`](crate::SELU) gives (`torch.nn.AlphaDropout`).
    AlphaDropout alpha_dropout
    /// [`AlphaDropout`] of whole channels (`torch.nn.FeatureAlphaDropout`).
    FeatureAlphaDropout feature_alpha_dropout
}
