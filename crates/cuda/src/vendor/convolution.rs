//! Convolutions by a vendor's library: who computes them, what a library is told of one, and the way to it.

use std::fmt;
use std::str::FromStr;

use fireclay_core::{DType, Error, Result};

use super::cudnn;
use super::preference::{Choice, Preference};
use crate::stream::Stream;

/// Names the preferred library for convolutions.
pub(super) const VARIABLE: &str = "FIRECLAY_CONV";

/// Who computes convolutions on CUDA devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvLibrary {
    /// Fireclay's own kernels. The default.
    Own,
    /// NVIDIA's cuDNN.
    Cudnn,
}

impl Choice for ConvLibrary {
    const VALUES: &'static [(ConvLibrary, &'static str)] =
        &[(ConvLibrary::Own, "own"), (ConvLibrary::Cudnn, "cudnn")];
    const FUNCTION: &'static str = "preferred_conv_library";
    const VARIABLE: &'static str = VARIABLE;
}

impl fmt::Display for ConvLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for ConvLibrary {
    type Err = Error;

    fn from_str(text: &str) -> Result<ConvLibrary> {
        ConvLibrary::parse(text)
    }
}

static PREFERENCE: Preference<ConvLibrary> = Preference::new();

/// Says who computes convolutions from now on, if `library` is given, and returns who does (in place of
/// `torch.backends.cudnn.enabled`). Before the first choice it is what the environment variable `FIRECLAY_CONV` says, `own` or
/// `cudnn`, and [`ConvLibrary::Own`] without it.
///
/// # Errors
/// If cuDNN is chosen and can't be used, with what was tried; if the environment variable has another value.
pub fn preferred_conv_library(library: impl Into<Option<ConvLibrary>>) -> Result<ConvLibrary> {
    if let Some(library) = library.into() {
        if library == ConvLibrary::Cudnn
            && let Err(absent) = cudnn()
        {
            let what = format!("cuDNN can't be used: {absent}");
            return Err(Error::argument(ConvLibrary::FUNCTION, what));
        }
        PREFERENCE.set(library);
    }
    PREFERENCE.get()
}

/// Which of the three operands of a convolution is computed from the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// The output.
    Output,
    /// The gradient of the input.
    InputGrad,
    /// The gradient of the weight.
    WeightGrad,
}

/// A convolution of images `[batch, in_channels, ..input]` with a weight `[out_channels, in_channels / groups, ..kernel]` that gives
/// `[batch, out_channels, ..output]`, or one of its gradients. All are contiguous; pairs are (height, width).
///
/// cuDNN takes those of f32, f64, bf16 and f16 at addresses that are multiples of 16, for which it has an algorithm that gives
/// the same bits every time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// What is computed.
    pub pass: Pass,
    /// The dtype of all operands. 16-bit ones are summed as f32.
    pub dtype: DType,
    /// Whether f32 may be rounded to TF32 before it is multiplied.
    pub tf32: bool,
    /// How many images.
    pub batch: usize,
    /// Channels of the input.
    pub in_channels: usize,
    /// Channels of the output.
    pub out_channels: usize,
    /// Groups of channels that don't see each other.
    pub groups: usize,
    /// The size of the input.
    pub input: [usize; 2],
    /// The size of the output.
    pub output: [usize; 2],
    /// The size of the weight.
    pub kernel: [usize; 2],
    /// Steps of the kernel.
    pub stride: [usize; 2],
    /// Zeros on each side.
    pub padding: [usize; 2],
    /// Distance between taps.
    pub dilation: [usize; 2],
}

impl Convolution {
    /// Sizes of the input, the weight and the output.
    pub fn shapes(&self) -> [[usize; 4]; 3] {
        let image = |channels, [height, width]: [usize; 2]| [self.batch, channels, height, width];
        let [height, width] = self.kernel;
        let per_group = self.in_channels / self.groups.max(1);
        [
            image(self.in_channels, self.input),
            [self.out_channels, per_group, height, width],
            image(self.out_channels, self.output),
        ]
    }
}

impl fmt::Display for Convolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [input, weight, output] = self.shapes();
        write!(
            f,
            "{}{}, input {input:?}, weight {weight:?}, output {output:?}, stride {:?}, padding {:?}, dilation {:?}, groups {}",
            self.dtype,
            if self.tf32 { " (tf32 allowed)" } else { "" },
            self.stride,
            self.padding,
            self.dilation,
            self.groups
        )
    }
}

/// Addresses of a convolution's operands on the device, of which the pass says which one is written.
#[derive(Clone, Copy, Debug)]
pub struct ConvOperands {
    /// The images, or their gradient.
    pub input: u64,
    /// The weight, or its gradient.
    pub weight: u64,
    /// The output, or its gradient.
    pub output: u64,
}

impl ConvOperands {
    /// Whether a library takes memory at these places.
    pub fn are_aligned(&self) -> bool {
        let all = [self.input, self.weight, self.output];
        all.iter().all(|address| address.is_multiple_of(ALIGNMENT))
    }
}

/// Bytes that addresses of a convolution's operands must be multiples of for a library: what tensor cores load at a time.
pub const ALIGNMENT: u64 = 16;

/// Whether a vendor's library is to compute the convolution: it is preferred, there, and has an algorithm for it.
///
/// # Errors
/// If a call of the library fails, or the preference makes no sense.
pub fn takes_convolution(
    stream: &Stream,
    op: &'static str,
    convolution: &Convolution,
) -> Result<bool> {
    if PREFERENCE.get()? == ConvLibrary::Own {
        return Ok(false);
    }
    match cudnn() {
        Ok(library) => library.takes(stream, op, convolution),
        Err(_) => Ok(false),
    }
}

/// Has the vendor's library compute a convolution that it [takes](takes_convolution), whatever is preferred meanwhile.
///
/// # Safety
/// The operands are memory of the stream's device that holds what `convolution` says, at [aligned](ConvOperands::are_aligned)
/// addresses; nobody else writes to it before the work is done or uses the result.
///
/// # Errors
/// If a call of the library fails, or it doesn't take the convolution.
pub unsafe fn convolution(
    stream: &Stream,
    op: &'static str,
    convolution: &Convolution,
    operands: ConvOperands,
) -> Result<()> {
    let library =
        cudnn().map_err(|absent| Error::argument(op, format!("cuDNN can't be used: {absent}")))?;
    // SAFETY: the caller's promise.
    unsafe { library.convolution(stream, op, convolution, operands) }
}

/// What is done with a library for convolutions that is there.
pub(super) fn used(refusals: impl FnOnce() -> usize) -> String {
    super::used_for(
        "convolutions",
        PREFERENCE.get().map(|choice| choice != ConvLibrary::Own),
        refusals,
    )
}
