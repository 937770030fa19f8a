//! `Mnist`: labelled digit images as a dataset, from IDX files or from the 5,000 digits in the program itself.

use std::path::Path;
use std::sync::Arc;

use fireclay_core::{Device, Error, Result};
use fireclay_tensor::Tensor;

use crate::dataset::{Dataset, Subset, check_index};
use crate::idx::{self, IdxError, LabelledImages};
use crate::sample_rng::SampleRng;
use crate::split::stratified_split;

/// The mean of MNIST's pixels, 0 to 1.
pub const MEAN: f32 = 0.1307;
/// Their standard deviation.
pub const STD: f32 = 0.3081;

/// The names of the files in a folder that [`Mnist::load`] looks for, images and labels, each also with `.gz`.
const FILES: [(&str, &str); 3] = [
    ("mnist5k-images-idx3-ubyte", "mnist5k-labels-idx1-ubyte"),
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
];

const EMBEDDED_IMAGES: &[u8] = include_bytes!("../../../data/mnist5k/mnist5k-images-idx3-ubyte.gz");
const EMBEDDED_LABELS: &[u8] = include_bytes!("../../../data/mnist5k/mnist5k-labels-idx1-ubyte.gz");

/// Labelled images (`torchvision.datasets.MNIST`). A sample is (image, label): f32 of shape [1, height, width],
/// `(pixel / 255 - mean) / std`, and the class.
#[derive(Clone)]
pub struct Mnist {
    images: Arc<LabelledImages>,
    /// The normalised value of each pixel value.
    normalised: Arc<[f32; 256]>,
}

/// Some of the images: what [`Mnist::split`] gives.
pub type MnistPart = Subset<Arc<Mnist>>;

impl Mnist {
    /// The 5,000 digits of this repository, 500 of each class, sorted by class: in the program itself, no file needed.
    ///
    /// # Errors
    /// None unless the program was built from damaged data.
    pub fn embedded() -> Result<Mnist> {
        let images_path = Path::new("embedded mnist5k-images-idx3-ubyte.gz");
        let labels_path = Path::new("embedded mnist5k-labels-idx1-ubyte.gz");
        let images = idx::read_idx_from(EMBEDDED_IMAGES, images_path)?;
        let labels = || idx::read_idx_from(EMBEDDED_LABELS, labels_path);
        Ok(Mnist::new(idx::label_images(
            images,
            images_path,
            labels,
            labels_path,
        )?))
    }

    /// The images in folder `dir`: the first pair of `mnist5k-`, `train-` or `t10k-images-idx3-ubyte` and
    /// `..-labels-idx1-ubyte` found there, plain or `.gz`.
    ///
    /// # Errors
    /// No such pair, or files that cannot be read or are damaged.
    pub fn load(dir: impl AsRef<Path>) -> Result<Mnist> {
        let dir = dir.as_ref();
        for (images, labels) in FILES {
            for suffix in [".gz", ""] {
                let images = dir.join(format!("{images}{suffix}"));
                if images.exists() {
                    return Mnist::from_files(images, dir.join(format!("{labels}{suffix}")));
                }
            }
        }
        Err(Error::Io {
            action: "looking for MNIST in",
            path: dir.into(),
            source: std::io::ErrorKind::NotFound.into(),
            hint: format!(
                "expected {}[.gz] with its labels there, or {} or {} for MNIST's other sets",
                FILES[0].0, FILES[1].0, FILES[2].0
            ),
        })
    }

    /// The images and labels of two IDX files, plain or gzip.
    ///
    /// # Errors
    /// Files that cannot be read, are damaged, or do not belong together.
    pub fn from_files(images: impl AsRef<Path>, labels: impl AsRef<Path>) -> Result<Mnist> {
        Ok(Mnist::new(idx::read_labelled_images(images, labels)?))
    }

    fn new(images: LabelledImages) -> Mnist {
        Mnist {
            images: Arc::new(images),
            normalised: Arc::new(std::array::from_fn(|pixel| normalise(pixel as u8))),
        }
    }

    /// Rows of an image.
    pub fn height(&self) -> usize {
        self.images.height
    }

    /// Columns of an image.
    pub fn width(&self) -> usize {
        self.images.width
    }

    /// The pixels of image `index` as they are in the file, row by row; 0 is background, 255 is ink.
    ///
    /// # Errors
    /// An index that there is not.
    pub fn pixels(&self, index: usize) -> Result<&[u8]> {
        check_index("Mnist", index, self.len())?;
        let numel = self.height() * self.width();
        Ok(&self.images.pixels[index * numel..][..numel])
    }

    /// The class of each image.
    pub fn labels(&self) -> Vec<i64> {
        self.images.labels.iter().copied().map(i64::from).collect()
    }

    /// Two parts, the second of `test` images, drawn by `seed`, with the classes balanced in both.
    ///
    /// # Errors
    /// More test images than there are images.
    pub fn split(self, test: usize, seed: u64) -> Result<(MnistPart, MnistPart)> {
        let Some(train) = self.len().checked_sub(test) else {
            let what = format!("{test} test images of {}", self.len());
            return Err(Error::argument("Mnist::split", what));
        };
        let labels = self.labels();
        let mut parts = stratified_split(self, &labels, &[train, test], seed)?.into_iter();
        match (parts.next(), parts.next()) {
            (Some(train), Some(test)) => Ok((train, test)),
            _ => unreachable!("two lengths give two parts"),
        }
    }
}

impl Dataset for Mnist {
    type Item = (Tensor, i64);

    fn len(&self) -> usize {
        self.images.labels.len()
    }

    fn get(&self, index: usize, _: &mut SampleRng) -> Result<(Tensor, i64)> {
        let pixels = self.pixels(index)?;
        let image = normalised_image(pixels, self.height(), self.width(), &self.normalised)?;
        Ok((image, i64::from(self.images.labels[index])))
    }
}

/// Pixels (0 is background, 255 is ink; row by row) as the image that a model trained on [`Mnist`] takes: f32 of shape
/// [1, height, width].
///
/// # Errors
/// Another number of pixels than `height * width`.
pub fn image_from_pixels(pixels: &[u8], height: usize, width: usize) -> Result<Tensor> {
    normalised_image(
        pixels,
        height,
        width,
        &std::array::from_fn(|pixel| normalise(pixel as u8)),
    )
}

fn normalised_image(
    pixels: &[u8],
    height: usize,
    width: usize,
    normalised: &[f32; 256],
) -> Result<Tensor> {
    let elements: Vec<f32> = pixels
        .iter()
        .map(|&pixel| normalised[usize::from(pixel)])
        .collect();
    Tensor::from_slice(&elements, &[1, height, width], Device::Cpu)
}

fn normalise(pixel: u8) -> f32 {
    (f32::from(pixel) / 255.0 - MEAN) / STD
}

impl From<IdxError> for Error {
    fn from(error: IdxError) -> Error {
        match error {
            IdxError::Unreadable { path, cause } => Error::Io {
                action: "reading",
                path,
                source: cause,
                hint: "check that the path exists, is a file and may be read".into(),
            },
            error => {
                let text = error.to_string();
                let what = text
                    .split_once(": ")
                    .map_or(text.as_str(), |(_, what)| what);
                Error::InvalidFile {
                    path: error.path().into(),
                    // The path stands before the text anyway.
                    what: what.replacen(&format!("{:?} ", error.path()), "", 1),
                    hint: String::new(),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_digits_equal_those_of_the_folder() {
        let embedded = Mnist::embedded().unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/mnist5k");
        let loaded = Mnist::load(folder).unwrap();
        assert_eq!(embedded.images, loaded.images);
        assert_eq!(embedded.len(), 5000);
    }

    #[test]
    fn samples_are_normalised_images_with_their_class() {
        let digits = Mnist::embedded().unwrap();
        let (image, label) = digits.get(4321, &mut SampleRng::new(0, 0, 0)).unwrap();
        assert_eq!(image.shape()[..], [1, 28, 28]);
        assert_eq!(label, 8);
        let elements = image.to_vec::<f32>().unwrap();
        for (&pixel, &element) in digits.pixels(4321).unwrap().iter().zip(&elements) {
            assert!((element * STD + MEAN - f32::from(pixel) / 255.0).abs() < 1e-6);
        }
        let again = image_from_pixels(digits.pixels(4321).unwrap(), 28, 28).unwrap();
        assert_eq!(again.to_vec::<f32>().unwrap(), elements);
        assert!(digits.pixels(5000).is_err());
        assert!(image_from_pixels(&[0; 5], 28, 28).is_err());
    }

    #[test]
    fn the_split_is_balanced_and_follows_the_seed() {
        let split = |seed| Mnist::embedded().unwrap().split(1000, seed).unwrap();
        let (train, test) = split(1);
        assert_eq!((train.len(), test.len()), (4000, 1000));
        let labels = train.inner().labels();
        for class in 0..10 {
            let of_class = test.indices().iter().filter(|&&i| labels[i] == class);
            assert_eq!(of_class.count(), 100);
        }
        let mut all = [train.indices(), test.indices()].concat();
        all.sort_unstable();
        assert_eq!(all, (0..5000).collect::<Vec<_>>());
        assert_eq!(split(1).1.indices(), test.indices());
        assert_ne!(split(2).1.indices(), test.indices());
        assert!(Mnist::embedded().unwrap().split(5001, 1).is_err());
    }

    #[test]
    fn a_folder_without_digits_is_an_error_that_says_what_is_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let text = Mnist::load(folder.path()).err().unwrap().to_string();
        assert!(text.contains("mnist5k-images-idx3-ubyte"), "{text}");
        let path = folder.path().join("train-images-idx3-ubyte");
        std::fs::write(&path, b"no digits").unwrap();
        let text = Mnist::load(folder.path()).err().unwrap().to_string();
        assert!(text.contains("not an IDX file"), "{text}");
    }
}
