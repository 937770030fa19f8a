//! `Augment`: small random changes to an image, so that a model sees a new one in every epoch.

use fireclay_core::{Device, Error, Result, math};
use fireclay_tensor::Tensor;

use crate::sample_rng::SampleRng;

/// A random rotation about the centre, scaling and shift (`torchvision.transforms.RandomAffine`), sampled bilinearly.
/// Used in a [`map`](crate::Dataset::map):
///
/// ```
/// use fireclay_data::{Augment, Dataset, Mnist};
///
/// # fn main() -> fireclay_core::Result<()> {
/// let augment = Augment::digits();
/// let train = Mnist::embedded()?.map(move |(image, label), rng| {
///     Ok((augment.apply(&image, rng)?, label))
/// });
/// # assert_eq!(train.len(), 5000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Augment {
    /// The most it shifts, along each dimension and either way, in pixels.
    pub max_shift: f32,
    /// The most it turns, either way, in degrees.
    pub max_rotation_degrees: f32,
    /// The most it grows or shrinks: 0.1 gives factors from 0.9 to 1.1.
    pub max_scaling: f32,
    /// What lies outside of the image.
    pub background: f32,
}

impl Augment {
    /// For normalised MNIST digits: up to 2 pixels, 10 degrees, a tenth of the size.
    pub fn digits() -> Augment {
        Augment {
            max_shift: 2.0,
            max_rotation_degrees: 10.0,
            max_scaling: 0.1,
            background: -crate::mnist::MEAN / crate::mnist::STD,
        }
    }

    /// The changed image, of the same shape: f32 [channels, height, width].
    ///
    /// # Errors
    /// An image of another dtype or number of dimensions.
    pub fn apply(&self, image: &Tensor, rng: &mut SampleRng) -> Result<Tensor> {
        let &[channels, height, width] = &image.shape()[..] else {
            return Err(Error::shape(
                "augment",
                format!(
                    "expected an image of shape [channels, height, width], got {}",
                    image.shape()
                ),
            )
            .with_operands(|| vec![image.operand("image")]));
        };
        let source = image.to_vec::<f32>()?;
        let placement = self.draw(rng);
        let mut elements = Vec::with_capacity(source.len());
        for channel in 0..channels {
            let plane = Plane {
                elements: &source[channel * height * width..][..height * width],
                height,
                width,
                background: self.background,
            };
            for y in 0..height {
                for x in 0..width {
                    let (y, x) = placement.source_of(y, x, height, width);
                    elements.push(plane.bilinear(y, x));
                }
            }
        }
        Tensor::from_slice(&elements, &[channels, height, width], Device::Cpu)
    }

    fn draw(&self, rng: &mut SampleRng) -> Placement {
        let mut within = |most: f32| rng.uniform_between(-most, most);
        let angle = f64::from(within(self.max_rotation_degrees)).to_radians();
        let scale = 1.0 + within(self.max_scaling);
        let shift = (within(self.max_shift), within(self.max_shift));
        // This library's functions, not the system's: the same bits on every machine.
        let (sin, cos) = (math::sin(angle) as f32, math::cos(angle) as f32);
        Placement {
            sin: sin / scale,
            cos: cos / scale,
            shift,
        }
    }
}

/// Where the elements of a changed image come from: the inverse of rotation, scaling and shift.
struct Placement {
    sin: f32,
    cos: f32,
    /// Down and to the right.
    shift: (f32, f32),
}

impl Placement {
    /// The place (row, column) that element (y, x) shows.
    fn source_of(&self, y: usize, x: usize, height: usize, width: usize) -> (f32, f32) {
        let centre_y = (height as f32 - 1.0) / 2.0;
        let centre_x = (width as f32 - 1.0) / 2.0;
        let down = y as f32 - centre_y - self.shift.0;
        let right = x as f32 - centre_x - self.shift.1;
        (
            centre_y + self.cos * down - self.sin * right,
            centre_x + self.sin * down + self.cos * right,
        )
    }
}

struct Plane<'a> {
    elements: &'a [f32],
    height: usize,
    width: usize,
    background: f32,
}

impl Plane<'_> {
    /// The value between the four elements around (y, x), weighted by nearness.
    fn bilinear(&self, y: f32, x: f32) -> f32 {
        let (top, left) = (y.floor(), x.floor());
        let (down, right) = (y - top, x - left);
        let upper = (1.0 - right) * self.at(top, left) + right * self.at(top, left + 1.0);
        let lower =
            (1.0 - right) * self.at(top + 1.0, left) + right * self.at(top + 1.0, left + 1.0);
        (1.0 - down) * upper + down * lower
    }

    fn at(&self, y: f32, x: f32) -> f32 {
        let inside = y >= 0.0 && x >= 0.0 && y < self.height as f32 && x < self.width as f32;
        if inside {
            self.elements[y as usize * self.width + x as usize]
        } else {
            self.background
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Tensor {
        let elements: Vec<f32> = (0..2 * 5 * 4).map(|element| element as f32).collect();
        Tensor::from_slice(&elements, &[2, 5, 4], "cpu").unwrap()
    }

    fn only(change: impl FnOnce(&mut Augment)) -> Augment {
        let mut augment = Augment {
            max_shift: 0.0,
            max_rotation_degrees: 0.0,
            max_scaling: 0.0,
            background: -1.0,
        };
        change(&mut augment);
        augment
    }

    #[test]
    fn without_change_the_image_is_the_same() {
        let same = only(|_| {})
            .apply(&image(), &mut SampleRng::new(0, 0, 0))
            .unwrap();
        assert_eq!(
            same.to_vec::<f32>().unwrap(),
            image().to_vec::<f32>().unwrap()
        );
        assert_eq!(same.shape(), image().shape());
    }

    #[test]
    fn whole_shifts_and_quarter_turns_move_elements() {
        let source = image().to_vec::<f32>().unwrap();
        let plane = Plane {
            elements: &source[..20],
            height: 5,
            width: 4,
            background: -1.0,
        };
        let shifted = Placement {
            sin: 0.0,
            cos: 1.0,
            shift: (1.0, -2.0),
        };
        let show = |placement: &Placement, y, x| {
            let (y, x) = placement.source_of(y, x, 5, 4);
            plane.bilinear(y, x)
        };
        // One down, two to the left.
        assert_eq!(show(&shifted, 1, 0), source[2]);
        assert_eq!(show(&shifted, 0, 0), -1.0);
        assert_eq!(show(&shifted, 4, 1), source[3 * 4 + 3]);
        // A quarter turn of a square of which only the middle rows are used: (y, x) shows (2 - right, 1.5 + down).
        let turned = Placement {
            sin: 1.0,
            cos: 0.0,
            shift: (0.0, 0.0),
        };
        let (y, x) = turned.source_of(1, 3, 5, 4);
        assert_eq!((y, x), (0.5, 0.5));
        assert_eq!(
            plane.bilinear(y, x),
            (source[0] + source[1] + source[4] + source[5]) / 4.0
        );
    }

    #[test]
    fn changes_follow_the_generator_and_keep_to_the_range() {
        let augment = Augment::digits();
        let of = |index| {
            let changed = augment.apply(&image(), &mut SampleRng::new(1, 0, index));
            changed.unwrap().to_vec::<f32>().unwrap()
        };
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
        for index in 0..50 {
            assert!(
                of(index)
                    .iter()
                    .all(|element| (-1.0..=40.0).contains(element))
            );
        }
    }

    #[test]
    fn other_shapes_and_dtypes_are_refused() {
        let mut rng = SampleRng::new(0, 0, 0);
        let flat = Tensor::zeros(&[28, 28], "cpu").unwrap();
        let error = Augment::digits().apply(&flat, &mut rng).err().unwrap();
        assert!(
            error.to_string().contains("[channels, height, width]"),
            "{error}"
        );
        let bytes = Tensor::from_slice(&[0u8; 4], &[1, 2, 2], "cpu").unwrap();
        assert!(Augment::digits().apply(&bytes, &mut rng).is_err());
    }
}
