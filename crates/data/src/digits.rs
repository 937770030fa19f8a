//! `Digits`: the 1,797 handwritten digits of 8 x 8 pixels as a dataset, from a CSV file or from the program itself.

use std::io;
use std::path::Path;
use std::sync::Arc;

use fireclay_core::{Device, Error, Result};
use fireclay_tensor::Tensor;

use crate::dataset::{Dataset, Subset, check_index};
use crate::sample_rng::SampleRng;
use crate::split::stratified_split;
use crate::text_file::{damaged, read, read_file};

/// Rows and columns of an image.
pub const SIDE: usize = 8;
/// The value of a pixel that is all ink.
pub const MOST_INK: u8 = 16;
/// Classes: 0 to 9.
pub const CLASSES: u8 = 10;

/// The name of the file in a folder that [`Digits::load`] looks for, also with `.gz`.
const FILE: &str = "digits.csv";

const EMBEDDED: &[u8] = include_bytes!("../../../data/digits/digits.csv.gz");

/// Labelled images of 8 x 8 pixels (`sklearn.datasets.load_digits`). A sample is (image, label): f32 of shape [1, 8, 8],
/// each pixel its ink from 0 to 1, and the class.
#[derive(Clone, Debug)]
pub struct Digits(Arc<Images>);

/// Some of the images: what [`Digits::split`] gives.
pub type DigitsPart = Subset<Arc<Digits>>;

#[derive(PartialEq, Eq, Debug, Default)]
struct Images {
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

impl Digits {
    /// The 1,797 digits of this repository: in the program itself, no file needed.
    ///
    /// # Errors
    /// None unless the program was built from damaged data.
    pub fn embedded() -> Result<Digits> {
        of(EMBEDDED, Path::new("embedded digits.csv.gz"))
    }

    /// The images in folder `dir`: `digits.csv.gz` or `digits.csv`.
    ///
    /// # Errors
    /// No such file, or one that cannot be read or is damaged.
    pub fn load(dir: impl AsRef<Path>) -> Result<Digits> {
        let dir = dir.as_ref();
        let mut paths = [".gz", ""]
            .map(|suffix| dir.join(format!("{FILE}{suffix}")))
            .into_iter();
        match paths.find(|path| path.exists()) {
            Some(path) => Digits::from_file(path),
            None => Err(Error::Io {
                action: "looking for digits in",
                path: dir.into(),
                source: io::ErrorKind::NotFound.into(),
                hint: format!("expected {FILE}[.gz] there, whose rows are 64 pixels and a class"),
            }),
        }
    }

    /// The images of a CSV file, plain or gzip (told apart by the content): a row each, 64 pixels from 0 to 16 and the
    /// class.
    ///
    /// # Errors
    /// A file that cannot be read, or is damaged; the row is named.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Digits> {
        let path = path.as_ref();
        parsed(&read_file(path, EXPECTED)?, path)
    }

    /// The pixels of image `index`, row by row; 0 is background, 16 is ink.
    ///
    /// # Errors
    /// An index that there is not.
    pub fn pixels(&self, index: usize) -> Result<&[u8]> {
        check_index("Digits", index, self.len())?;
        Ok(&self.0.pixels[index * SIDE * SIDE..][..SIDE * SIDE])
    }

    /// The class of each image.
    pub fn labels(&self) -> Vec<i64> {
        self.0.labels.iter().copied().map(i64::from).collect()
    }

    /// Two parts, the second of `test` images, drawn by `seed`, with the classes balanced in both.
    ///
    /// # Errors
    /// More test images than there are images.
    pub fn split(self, test: usize, seed: u64) -> Result<(DigitsPart, DigitsPart)> {
        let Some(train) = self.len().checked_sub(test) else {
            let what = format!("{test} test images of {}", self.len());
            return Err(Error::argument("Digits::split", what));
        };
        let labels = self.labels();
        let mut parts = stratified_split(self, &labels, &[train, test], seed)?.into_iter();
        match (parts.next(), parts.next()) {
            (Some(train), Some(test)) => Ok((train, test)),
            _ => unreachable!("two lengths give two parts"),
        }
    }
}

impl Dataset for Digits {
    type Item = (Tensor, i64);

    fn len(&self) -> usize {
        self.0.labels.len()
    }

    fn get(&self, index: usize, _: &mut SampleRng) -> Result<(Tensor, i64)> {
        let ink = self.pixels(index)?.iter();
        let ink: Vec<f32> = ink
            .map(|&pixel| f32::from(pixel) / f32::from(MOST_INK))
            .collect();
        Ok((image_from_ink(&ink)?, i64::from(self.0.labels[index])))
    }
}

/// The ink of 64 pixels, each from 0 to 1, row by row, as the image that a model trained on [`Digits`] takes: f32 of shape
/// [1, 8, 8].
///
/// # Errors
/// Another number of pixels.
pub fn image_from_ink(ink: &[f32]) -> Result<Tensor> {
    Tensor::from_slice(ink, &[1, SIDE, SIDE], Device::Cpu)
}

/// What a good file is.
const EXPECTED: &str = "expected CSV, plain or gzip, without a header: rows of 64 pixels from 0 to 16 and a class from 0 to 9";

fn of(bytes: &[u8], path: &Path) -> Result<Digits> {
    parsed(&read(bytes, path, EXPECTED)?, path)
}

fn parsed(text: &str, path: &Path) -> Result<Digits> {
    let mut images = Images::default();
    for (place, row) in text.lines().enumerate() {
        take_row(row, &mut images)
            .map_err(|what| damaged(path, format!("row {}: {what}", place + 1), EXPECTED))?;
    }
    Ok(Digits(Arc::new(images)))
}

/// Adds the image of a row.
fn take_row(row: &str, images: &mut Images) -> Result<(), String> {
    let count = row.split(',').count();
    if count != SIDE * SIDE + 1 {
        return Err(format!(
            "it has {count} fields, expected 64 pixels and a class"
        ));
    }
    for (place, field) in row.split(',').enumerate() {
        let (name, end, to) = match place {
            place if place < SIDE * SIDE => ("pixel", MOST_INK + 1, &mut images.pixels),
            _ => ("class", CLASSES, &mut images.labels),
        };
        match field.trim().parse::<u8>() {
            Ok(value) if value < end => to.push(value),
            _ => {
                // A field may be as long as the file.
                let start: String = field.chars().take(20).collect();
                return Err(format!(
                    "{name} {start:?} in field {} is not a whole number from 0 to {}",
                    place + 1,
                    end - 1
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_digits_equal_those_of_the_folder() {
        let embedded = Digits::embedded().unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/digits");
        assert_eq!(embedded.0, Digits::load(folder).unwrap().0);
        assert_eq!(embedded.len(), 1797);
        // Counted with awk in the file.
        let labels = embedded.labels();
        let count = |class| labels.iter().filter(|&&label| label == class).count();
        let counts: Vec<usize> = (0..10).map(count).collect();
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        assert_eq!(embedded.pixels(0).unwrap()[..8], [0, 0, 5, 13, 9, 1, 0, 0]);
    }

    #[test]
    fn samples_are_ink_with_their_class() {
        let digits = Digits::embedded().unwrap();
        let (image, label) = digits.get(1, &mut SampleRng::new(0, 0, 0)).unwrap();
        assert_eq!((&image.shape()[..], label), (&[1, 8, 8][..], 1));
        let ink = image.to_vec::<f32>().unwrap();
        assert_eq!(ink[..8], [0.0, 0.0, 0.0, 0.75, 0.8125, 0.3125, 0.0, 0.0]);
        assert!(digits.pixels(1797).is_err());
        assert!(image_from_ink(&[0.0; 63]).is_err());
    }

    #[test]
    fn the_split_is_balanced_and_follows_the_seed() {
        let split = |seed| Digits::embedded().unwrap().split(360, seed).unwrap();
        let (train, test) = split(1);
        assert_eq!((train.len(), test.len()), (1437, 360));
        let labels = train.inner().labels();
        for class in 0..10 {
            let of_class = test
                .indices()
                .iter()
                .filter(|&&i| labels[i] == class)
                .count();
            assert!((35..=37).contains(&of_class), "{of_class} of class {class}");
        }
        assert_eq!(split(1).1.indices(), test.indices());
        assert_ne!(split(2).1.indices(), test.indices());
        assert!(Digits::embedded().unwrap().split(1798, 1).is_err());
    }

    #[test]
    fn damaged_files_are_errors_that_name_the_row() {
        let good = format!("{}7\n", "3,".repeat(64));
        let path = Path::new("digits.csv");
        let read_text = |text: &str| of(text.as_bytes(), path);
        let digits = read_text(&good.replace('\n', "\r\n")).unwrap();
        assert_eq!(
            (digits.pixels(0).unwrap(), digits.labels()),
            (&[3; 64][..], vec![7])
        );
        assert_eq!(read_text("").unwrap().len(), 0);
        for (bad, mention) in [
            (
                good.replacen('3', "17", 1),
                "row 2: pixel \"17\" in field 1",
            ),
            (good.replace('7', "10"), "row 2: class \"10\" in field 65"),
            (good.replacen('3', "-1", 1), "from 0 to 16"),
            (good.replacen("3,", "", 1), "row 2: it has 64 fields"),
            ("\n".to_owned(), "row 2: it has 1 fields"),
            (
                good.replacen('3', &"3".repeat(9999), 1),
                "pixel \"33333333333333333333\"",
            ),
        ] {
            let text = read_text(&format!("{good}{bad}")).unwrap_err().to_string();
            assert!(
                text.contains(mention) && text.contains("digits.csv"),
                "{text}"
            );
            assert!(text.len() < 400, "{text}");
        }
        assert!(of(&[0xff, 0xfe][..], path).is_err());
        for len in (0..EMBEDDED.len()).step_by(997).skip(1) {
            let text = of(&EMBEDDED[..len], path).unwrap_err().to_string();
            assert!(text.contains("is not a whole gzip file"), "{text}");
        }
        let folder = tempfile::tempdir().unwrap();
        let text = Digits::load(folder.path()).unwrap_err().to_string();
        assert!(text.contains("digits.csv"), "{text}");
        assert!(Digits::from_file(folder.path()).is_err());
    }
}
