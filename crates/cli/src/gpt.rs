//! `Gpt`: a small GPT, as that over characters, and how it writes.

use fireclay::data::SampleRng;
use fireclay::nn::{self, init};
use fireclay::prelude::*;
use fireclay::{Activation, Attention, LinearEpilogue};

/// The standard deviation of first weights (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019).
const FIRST_WEIGHTS: f64 = 0.02;

/// What decides how large the network is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Blocks of attention and a two-layer perceptron.
    pub(crate) layers: usize,
    /// Numbers for a token between the blocks.
    pub(crate) width: usize,
    /// Heads of attention, each of `width / heads` numbers.
    pub(crate) heads: usize,
    /// The most tokens that it looks back on.
    pub(crate) context: usize,
}

impl Shape {
    /// The sizes by the names of their flags.
    pub(crate) fn sizes(self) -> [(&'static str, usize); 4] {
        [
            ("layers", self.layers),
            ("width", self.width),
            ("heads", self.heads),
            ("context", self.context),
        ]
    }

    /// The shape of these sizes, in the order of [`sizes`](Shape::sizes).
    pub(crate) fn of_sizes([layers, width, heads, context]: [usize; 4]) -> Shape {
        Shape {
            layers,
            width,
            heads,
            context,
        }
    }
}

/// Tokens `[n, length]` to scores `[n, length, tokens]`: for each, what may follow it.
///
/// As GPT-2: tokens and places are embedded and added, then come blocks that each add to what they get, a last norm and a
/// linear layer.
#[derive(Module)]
pub(crate) struct Gpt {
    tokens: nn::Embedding,
    places: nn::Embedding,
    blocks: nn::Sequential,
    norm: nn::LayerNorm,
    scores: nn::Linear,
}

impl Gpt {
    /// A network with random weights for so many tokens.
    pub(crate) fn new(shape: Shape, tokens: usize) -> Result<Gpt> {
        let Shape {
            layers,
            width,
            heads,
            context,
        } = shape;
        if !width.is_multiple_of(heads) {
            return Err(Error::argument(
                "chargpt",
                format!("width {width} is not a multiple of {heads} heads"),
            ));
        }
        let no_bias = nn::LinearConfig {
            bias: false,
            ..Default::default()
        };
        let mut blocks = nn::Sequential::new();
        for _ in 0..layers {
            blocks = blocks.push(Block::new(width, heads, true)?);
        }
        let gpt = Gpt {
            tokens: nn::Embedding::new(tokens, width)?,
            places: nn::Embedding::new(context, width)?,
            blocks,
            norm: nn::LayerNorm::new(&[width])?,
            scores: nn::Linear::with(width, tokens, no_bias)?,
        };
        gpt.set_first_weights(layers)?;
        Ok(gpt)
    }

    fn set_first_weights(&self, layers: usize) -> Result<()> {
        for (name, parameter) in self.named_parameters() {
            let weight = parameter.tensor();
            if weight.ndim() < 2 {
                // Norms are as they should be; other biases begin with nothing.
                if name.ends_with("bias") {
                    no_grad(|| init::zeros_(&weight))?;
                }
                continue;
            }
            // What is added up in all blocks has the deviation of one.
            let adds = name.ends_with("output.weight");
            let std = if adds {
                FIRST_WEIGHTS / (2.0 * layers as f64).sqrt()
            } else {
                FIRST_WEIGHTS
            };
            no_grad(|| init::normal_(&weight, 0.0, std))?;
        }
        Ok(())
    }
}

impl Module for Gpt {
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let length = tokens.shape()[tokens.ndim() - 1];
        let places = self.places.weight.tensor().narrow(0, 0, length)?;
        let x = self.tokens.forward(tokens)?.add(&places)?;
        let x = self.norm.forward(&self.blocks.forward(&x)?)?;
        self.scores.forward(&x)
    }
}

/// Attention, then a perceptron, each after a norm and added to what came in.
#[derive(Module)]
pub(crate) struct Block {
    norm1: nn::LayerNorm,
    attention: SelfAttention,
    norm2: nn::LayerNorm,
    mlp: Mlp,
}

impl Block {
    /// Attention of so many heads; `is_causal` says whether a token sees those before it only.
    pub(crate) fn new(width: usize, heads: usize, is_causal: bool) -> Result<Block> {
        Ok(Block {
            norm1: nn::LayerNorm::new(&[width])?,
            attention: SelfAttention {
                input: nn::Linear::new(width, 3 * width)?,
                output: nn::Linear::new(width, width)?,
                heads,
                is_causal,
            },
            norm2: nn::LayerNorm::new(&[width])?,
            mlp: Mlp {
                input: nn::Linear::new(width, 4 * width)?,
                output: nn::Linear::new(4 * width, width)?,
            },
        })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = (self.attention).forward_onto(&self.norm1.forward(x)?, Some(x))?;
        self.mlp.forward_onto(&self.norm2.forward(&x)?, Some(&x))
    }
}

/// Every token looks at itself and the others.
#[derive(Module)]
struct SelfAttention {
    /// Queries, keys and values, one after the other.
    input: nn::Linear,
    output: nn::Linear,
    heads: usize,
    is_causal: bool,
}

impl SelfAttention {
    /// What is seen, added to `residual`.
    fn forward_onto(&self, x: &Tensor, residual: Option<&Tensor>) -> Result<Tensor> {
        let &[batch, length, width] = &x.shape()[..] else {
            return Err(Error::shape("attention", "expected [n, length, width]"));
        };
        let sizes = [batch, length, 3, self.heads, width / self.heads].map(|size| size as isize);
        // [3, batch, heads, length, width of a head]
        let all = (self.input.forward(x)?.reshape(&sizes)?).permute(&[2, 0, 3, 1, 4])?;
        let part = |number| all.select(0, number);
        let options = Attention {
            is_causal: self.is_causal,
            ..Default::default()
        };
        let seen = part(0)?.scaled_dot_product_attention(&part(1)?, &part(2)?, options)?;
        let joined = seen.transpose(1, 2)?.flatten(2, 3)?;
        let epilogue = LinearEpilogue {
            residual,
            ..Default::default()
        };
        self.output.forward_with(&joined, epilogue)
    }
}

impl Module for SelfAttention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_onto(x, None)
    }
}

#[derive(Module)]
struct Mlp {
    input: nn::Linear,
    output: nn::Linear,
}

impl Mlp {
    /// Two layers, added to `residual`.
    fn forward_onto(&self, x: &Tensor, residual: Option<&Tensor>) -> Result<Tensor> {
        let gelu = LinearEpilogue {
            activation: Some(Activation::Gelu),
            residual: None,
        };
        let added = LinearEpilogue {
            activation: None,
            residual,
        };
        (self.output).forward_with(&self.input.forward_with(x, gelu)?, added)
    }
}

impl Module for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_onto(x, None)
    }
}

/// What the network writes after `prompt`: `count` tokens, each drawn by `seed` from the probabilities that it gives.
pub(crate) fn write(
    gpt: &dyn Module,
    prompt: &[i64],
    count: usize,
    context: usize,
    seed: u64,
    device: Device,
) -> Result<Vec<i64>> {
    let mut rng = SampleRng::new(seed, 0, 0);
    let mut tokens = prompt.to_vec();
    for _ in 0..count {
        let seen = &tokens[tokens.len().saturating_sub(context)..];
        let seen = Tensor::from_slice(seen, &[1, seen.len()], device)?;
        let scores = gpt.forward(&seen)?;
        let probabilities = scores.select(1, -1)?.softmax(-1)?.to_vec::<f32>()?;
        tokens.push(draw(&probabilities, rng.uniform()));
    }
    Ok(tokens.split_off(prompt.len()))
}

/// The number whose share of the probabilities, laid end to end, has `place` in it, from 0 to 1.
fn draw(probabilities: &[f32], place: f32) -> i64 {
    let total: f64 = probabilities.iter().copied().map(f64::from).sum();
    let mut left = f64::from(place) * total;
    for (number, &probability) in probabilities.iter().enumerate() {
        left -= f64::from(probability);
        if left < 0.0 {
            return number as i64;
        }
    }
    // Rounding left a little: the last that is possible at all.
    let possible = probabilities
        .iter()
        .rposition(|&probability| probability > 0.0);
    possible.unwrap_or(0) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        layers: 2,
        width: 16,
        heads: 4,
        context: 8,
    };

    #[test]
    fn a_character_does_not_see_those_after_it() {
        fireclay::manual_seed(1);
        let gpt = Gpt::new(SHAPE, 5).unwrap();
        let scores = |tokens: &[i64]| -> Vec<f32> {
            let tokens = Tensor::from_slice(tokens, &[1, tokens.len()], "cpu").unwrap();
            gpt.forward(&tokens).unwrap().to_vec().unwrap()
        };
        let (one, other) = (scores(&[0, 1, 2, 3, 4, 0]), scores(&[0, 1, 2, 4, 4, 1]));
        assert_eq!(one.len(), 6 * 5);
        assert_eq!(one[..3 * 5], other[..3 * 5]);
        assert_ne!(one[3 * 5..4 * 5], other[3 * 5..4 * 5]);
    }

    #[test]
    fn first_weights_give_every_character_about_the_same_chance() {
        fireclay::manual_seed(2);
        let gpt = Gpt::new(SHAPE, 5).unwrap();
        let tokens = Tensor::from_slice(&[0i64, 1, 2, 3, 4, 0, 1, 2], &[1, 8], "cpu").unwrap();
        let scores = gpt.forward(&tokens).unwrap().flatten(0, 1).unwrap();
        let loss = scores.cross_entropy(&tokens.flatten(0, 1).unwrap(), Default::default());
        let loss = loss.unwrap().item().unwrap();
        assert!((loss - 5f64.ln()).abs() < 0.1, "{loss}");
    }

    #[test]
    fn a_width_that_heads_do_not_divide_is_refused() {
        let shape = Shape { heads: 3, ..SHAPE };
        let error = Gpt::new(shape, 5).err().unwrap().to_string();
        assert!(error.contains("16") && error.contains('3'), "{error}");
    }

    #[test]
    fn what_is_drawn_has_its_probability() {
        let probabilities = [0.0, 0.25, 0.5, 0.0, 0.25];
        let drawn = |place| draw(&probabilities, place);
        assert_eq!(
            [0.0, 0.2, 0.3, 0.7, 0.8, 1.0].map(drawn),
            [1, 1, 2, 2, 4, 4]
        );
    }

    #[test]
    fn it_writes_the_same_for_the_same_seed_beyond_its_context() {
        fireclay::manual_seed(3);
        let gpt = Gpt::new(SHAPE, 5).unwrap();
        let text = |seed| no_grad(|| write(&gpt, &[1], 20, 8, seed, Device::Cpu)).unwrap();
        assert_eq!((text(1).len(), text(1)), (20, text(1)));
        assert_ne!(text(1), text(2));
    }
}
