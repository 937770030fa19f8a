//! Random numbers whose distribution is given by tensors: composed of fills and other ops.

use fireclay_core::{DType, Error, Result, as_one_call};

use crate::function::Arg;
use crate::tensor::Tensor;

impl Tensor {
    /// 1 with the probability that each element is, else 0, of this dtype (`torch.bernoulli`). It has no gradient.
    ///
    /// # Errors
    /// If the dtype is not floating. On the CPU, if an element is not from 0 to 1; other devices take one below 0 as 0 and one above
    /// 1 as 1.
    #[track_caller]
    pub fn bernoulli(&self) -> Result<Tensor> {
        as_one_call(|| {
            self.wants_floats("bernoulli")?;
            let (p, draw) = (self.detach(), draw_dtype(self));
            let within = |number: f64| (0.0..=1.0).contains(&number);
            p.wants_elements("bernoulli", "from 0 to 1", within)?;
            let uniform = Tensor::empty(p.shape(), draw, p.device())?.uniform_(0.0, 1.0)?;
            uniform.lt(&p.to_dtype(draw)?)?.to_dtype(self.dtype())
        })
    }

    /// Normal numbers of these means and standard deviations, of which one at least is a tensor (`torch.normal`). They have no
    /// gradient.
    ///
    /// # Errors
    /// If a dtype is not floating, if the shapes can't be broadcast, and if a standard deviation is negative, which is found in a
    /// tensor on the CPU only.
    #[track_caller]
    pub fn normal<'a>(mean: impl Into<Arg<'a>>, std: impl Into<Arg<'a>>) -> Result<Tensor> {
        let (mean, std) = (mean.into(), std.into());
        as_one_call(|| {
            let wanted = "of 0 or more";
            match std {
                Arg::Tensor(std) => {
                    std.wants_floats("normal")?;
                    std.detach()
                        .wants_elements("normal", wanted, |std| std >= 0.0)?;
                }
                Arg::Number(std) if std.to_f64() >= 0.0 => {}
                Arg::Number(std) => {
                    let what = format!("argument std must be {wanted}, got {std}");
                    return Err(Error::argument("normal", what));
                }
            }
            let drawn = match (mean, std) {
                (Arg::Tensor(mean), std) => {
                    mean.wants_floats("normal")?;
                    let mean = mean.detach();
                    let like = match std {
                        Arg::Tensor(std) => mean.add(&std.detach())?,
                        Arg::Number(_) => mean.clone(),
                    };
                    let scaled = match std {
                        Arg::Tensor(std) => like.randn_like()?.mul(&std.detach())?,
                        Arg::Number(std) => like.randn_like()?.mul(std)?,
                    };
                    scaled.add(&mean)?
                }
                (Arg::Number(mean), Arg::Tensor(std)) => {
                    let std = std.detach();
                    std.randn_like()?.mul(&std)?.add(mean)?
                }
                (Arg::Number(_), Arg::Number(_)) => {
                    let what = "one of mean and std must be a tensor, got two numbers";
                    let error = Error::argument("normal", what);
                    return Err(error.with_hint("fill a tensor: normal_(mean, std)"));
                }
            };
            Ok(drawn)
        })
    }

    /// `count` places along the last dimension, each drawn with the probability that the element there is of their sum, i64
    /// (`torch.multinomial`); each place once only, unless with `replacement`.
    ///
    /// # Errors
    /// If the dtype is not floating, if there are not 1 or 2 dimensions, if `count` is 0, or without `replacement` more than there are
    /// places. On the CPU, if an element is negative or not finite, or all of a row are 0.
    #[track_caller]
    pub fn multinomial(&self, count: usize, replacement: bool) -> Result<Tensor> {
        as_one_call(|| {
            const OP: &str = "multinomial";
            let operands = || vec![self.operand("input")];
            self.wants_floats(OP)?;
            let &[.., places] = self.shape().as_ref() else {
                let what = format!("expected 1 or 2 dimensions, got {}", self.shape());
                return Err(Error::shape(OP, what).with_operands(operands));
            };
            if self.ndim() > 2 {
                let what = format!("expected 1 or 2 dimensions, got {}", self.shape());
                return Err(Error::shape(OP, what).with_operands(operands));
            }
            if count == 0 || places == 0 || !replacement && count > places {
                let what = match replacement {
                    true => format!(
                        "expected 1 sample or more of 1 place or more, got {count} of {places}"
                    ),
                    false => format!(
                        "expected from 1 to {places} samples of {places} places without replacement, got {count}"
                    ),
                };
                return Err(Error::argument(OP, what).with_operands(operands));
            }
            let p = self.detach().to_dtype(DType::F64)?;
            p.wants_elements(OP, "finite and of 0 or more", |p| p >= 0.0 && p.is_finite())?;
            let sums = p.cumsum(-1)?;
            let total = sums.narrow(-1, places - 1, 1)?;
            total.wants_elements(OP, "above 0 in one place of a row or more", |sum| sum > 0.0)?;
            if replacement {
                let mut shape = self.shape().to_vec();
                shape[self.ndim() - 1] = count;
                let uniform =
                    Tensor::empty(&shape, DType::F64, self.device())?.uniform_(0.0, 1.0)?;
                // No product reaches the total itself, so the place found is one of those there are, and not of probability 0.
                return sums.searchsorted(&uniform.mul(&total)?, true);
            }
            // The first of independent exponential times with these rates come in the order of draws without replacement.
            let uniform = p.rand_like()?;
            let times = uniform
                .neg()?
                .log1p()?
                .neg()?
                .clamp_min(f64::MIN_POSITIVE)?;
            Ok(p.div(&times)?.topk(count, -1, true)?.1)
        })
    }

    #[track_caller]
    fn wants_floats(&self, op: &'static str) -> Result<()> {
        if self.dtype().is_floating_point() {
            return Ok(());
        }
        let what = format!("expected a floating dtype, got {}", self.dtype());
        let error = Error::dtype(op, what).with_operands(|| vec![self.operand("input")]);
        Err(error.with_hint("cast it first: to_dtype(DType::F32)"))
    }

    /// That each element is as `wanted` says; the host does not wait for other devices to look.
    #[track_caller]
    fn wants_elements(
        &self,
        op: &'static str,
        wanted: &str,
        fits: impl Fn(f64) -> bool,
    ) -> Result<()> {
        if !self.device().is_cpu() {
            return Ok(());
        }
        let numbers: Vec<f64> = self.to_dtype(DType::F64)?.to_vec()?;
        match numbers.into_iter().find(|&number| !fits(number)) {
            None => Ok(()),
            Some(number) => {
                let what = format!("each element must be {wanted}, got {number:?}");
                Err(Error::argument(op, what).with_operands(|| vec![self.operand("input")]))
            }
        }
    }
}

/// The dtype in which numbers are drawn that are compared with elements of `like`.
fn draw_dtype(like: &Tensor) -> DType {
    match like.dtype() {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(numbers: &[f64], shape: &[usize]) -> Tensor {
        Tensor::from_slice(numbers, shape, "cpu").unwrap()
    }

    /// The mean of each column of `[draws, columns]`.
    fn means(drawn: &Tensor) -> Vec<f64> {
        let wide = drawn.to_dtype(DType::F64).unwrap();
        wide.mean(&[0], false).unwrap().to_vec().unwrap()
    }

    #[test]
    fn bernoulli_draws_ones_as_often_as_asked() {
        let p = tensor(&[0.0, 0.25, 0.7, 1.0], &[4])
            .expand(&[20_000, 4])
            .unwrap();
        for dtype in [DType::F64, DType::F32, DType::BF16] {
            let drawn = p.to_dtype(dtype).unwrap().bernoulli().unwrap();
            assert_eq!(drawn.dtype(), dtype);
            let means = means(&drawn);
            assert_eq!((means[0], means[3]), (0.0, 1.0));
            assert!(
                (means[1] - 0.25).abs() < 0.02 && (means[2] - 0.7).abs() < 0.02,
                "{means:?}"
            );
        }
        let told = tensor(&[0.5, 1.5], &[2])
            .bernoulli()
            .unwrap_err()
            .to_string();
        assert!(told.contains("1.5"), "{told}");
    }

    #[test]
    fn normal_has_the_moments_asked_for() {
        let mean = tensor(&[-1.0, 5.0], &[2]).expand(&[20_000, 2]).unwrap();
        let std = tensor(&[0.5, 2.0], &[2]);
        let drawn = Tensor::normal(&mean, &std).unwrap();
        let (found, spread) = (
            means(&drawn),
            means(&drawn.sub(&mean).unwrap().square().unwrap()),
        );
        assert!(
            (found[0] + 1.0).abs() < 0.02 && (found[1] - 5.0).abs() < 0.06,
            "{found:?}"
        );
        assert!(
            (spread[0] - 0.25).abs() < 0.02 && (spread[1] - 4.0).abs() < 0.2,
            "{spread:?}"
        );
        assert!(Tensor::normal(&mean, 2.0).is_ok() && Tensor::normal(1.0, &std).is_ok());
        assert!(Tensor::normal(1.0, 2.0).is_err() && Tensor::normal(&mean, -1.0).is_err());
        assert!(Tensor::normal(&mean, &std.neg().unwrap()).is_err());
    }

    #[test]
    fn multinomial_draws_places_by_their_weight() {
        let weights = tensor(&[1.0, 0.0, 3.0], &[3]);
        for (count, replacement) in [(1, true), (1, false)] {
            let rows = weights.expand(&[20_000, 3]).unwrap();
            let places: Vec<i64> = rows
                .multinomial(count, replacement)
                .unwrap()
                .to_vec()
                .unwrap();
            let last = places.iter().filter(|&&place| place == 2).count();
            assert!(places.iter().all(|&place| place != 1));
            assert!((last as f64 / 20_000.0 - 0.75).abs() < 0.02, "{last}");
        }
        let both: Vec<i64> = weights.multinomial(2, false).unwrap().to_vec().unwrap();
        assert!(both == [0, 2] || both == [2, 0], "{both:?}");
        assert_eq!(weights.multinomial(9, true).unwrap().shape()[..], [9]);
        assert!(weights.multinomial(4, false).is_err() && weights.multinomial(0, true).is_err());
        assert!(weights.neg().unwrap().multinomial(1, true).is_err());
        assert!(weights.mul(0.0).unwrap().multinomial(1, true).is_err());
        assert!(tensor(&[1.0], &[]).multinomial(1, true).is_err());
        assert!(tensor(&[], &[0]).multinomial(1, true).is_err());
    }
}
