//! IDX files, the format of MNIST: reading them into bytes, from plain files or gzip.
//!
//! Knows files and bytes, not tensors. A file may be damaged or hostile: sizes are limited before anything is
//! allocated, memory grows only with bytes that are really there, and no input panics.
//!
//! The format (LeCun, Cortes, Burges, "The MNIST database"): two zero bytes, one byte for the dtype, one for the
//! number of dims, each dim as a big-endian u32, then the elements, last dim fastest. Only u8 elements are read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::GzDecoder;

mod error;

pub use error::{Hex, IdxError};

/// The most bytes of elements an IDX file may announce: 1 GiB, twenty times the largest MNIST file.
pub const MAX_NBYTES: usize = 1 << 30;

/// The most dims an IDX file may have.
pub const MAX_NDIM: usize = 4;

/// How many classes the labels of [`read_labelled_images`] may name: 0 to 9.
pub const CLASSES: u8 = 10;

/// The elements of an IDX file: `bytes` holds the product of `dims` of them, last dim fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdxArray {
    /// The size of each dim; 1 to [`MAX_NDIM`] of them.
    pub dims: Vec<usize>,
    /// The elements.
    pub bytes: Vec<u8>,
}

/// Images with one label each, as [`read_labelled_images`] reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledImages {
    /// `count * height * width` pixels, row by row, image by image.
    pub pixels: Vec<u8>,
    /// The class of each image, less than [`CLASSES`].
    pub labels: Vec<u8>,
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
}

/// Reads an IDX file of u8 elements, plain or compressed by gzip (told apart by the content; a file that is named
/// `.gz` must be gzip).
///
/// # Errors
/// Any [`IdxError`] but the last four, which concern two files read together.
pub fn read_idx(path: impl AsRef<Path>) -> Result<IdxArray, IdxError> {
    let path = path.as_ref();
    let unreadable = |cause| IdxError::Unreadable {
        path: path.into(),
        cause,
    };
    read_idx_from(BufReader::new(File::open(path).map_err(unreadable)?), path)
}

/// [`read_idx`] of bytes that are at hand already; `path` is what errors call them.
///
/// # Errors
/// As [`read_idx`].
pub fn read_idx_from(
    mut reader: impl BufRead,
    path: impl AsRef<Path>,
) -> Result<IdxArray, IdxError> {
    let path = path.as_ref();
    let unreadable = |cause| IdxError::Unreadable {
        path: path.into(),
        cause,
    };
    let start = reader.fill_buf().map_err(unreadable)?;
    let found = start[..start.len().min(2)].to_vec();
    if found == GZIP_MAGIC {
        let mut gzip = GzDecoder::new(reader);
        let array = read_elements(&mut gzip, path)?;
        let rest = gzip.into_inner().fill_buf().map_err(unreadable)?.len();
        if rest > 0 {
            return Err(IdxError::TrailingBytes {
                path: path.into(),
                expected: nbytes_of_file(&array.dims),
            });
        }
        Ok(array)
    } else if path.extension().is_some_and(|extension| extension == "gz") {
        Err(IdxError::NotGzip {
            path: path.into(),
            found: Hex(found),
        })
    } else {
        read_elements(&mut reader, path)
    }
}

/// Reads a file of images (dims count, height, width) and the file of their labels (dim count), as MNIST and
/// Fashion-MNIST come.
///
/// # Errors
/// Any [`IdxError`]: a file that cannot be read, files that are not images and labels, different counts, or a label
/// that is not below [`CLASSES`].
pub fn read_labelled_images(
    images: impl AsRef<Path>,
    labels: impl AsRef<Path>,
) -> Result<LabelledImages, IdxError> {
    let (images_path, labels_path) = (images.as_ref(), labels.as_ref());
    label_images(
        read_idx(images_path)?,
        images_path,
        || read_idx(labels_path),
        labels_path,
    )
}

/// Images with their labels, checked against each other; the paths are for the errors. The labels are asked for once
/// the images are known to be images.
pub(crate) fn label_images(
    images: IdxArray,
    images_path: &Path,
    labels: impl FnOnce() -> Result<IdxArray, IdxError>,
    labels_path: &Path,
) -> Result<LabelledImages, IdxError> {
    let &[count, height, width] = &images.dims[..] else {
        return Err(IdxError::NotImages {
            path: images_path.into(),
            dims: images.dims,
        });
    };
    let labels = labels()?;
    let &[label_count] = &labels.dims[..] else {
        return Err(IdxError::NotLabels {
            path: labels_path.into(),
            dims: labels.dims,
        });
    };
    if count != label_count {
        return Err(IdxError::CountMismatch {
            images_path: images_path.into(),
            labels_path: labels_path.into(),
            images: count,
            labels: label_count,
        });
    }
    if let Some(index) = labels.bytes.iter().position(|&label| label >= CLASSES) {
        return Err(IdxError::LabelOutOfRange {
            path: labels_path.into(),
            index,
            label: labels.bytes[index],
        });
    }
    Ok(LabelledImages {
        pixels: images.bytes,
        labels: labels.bytes,
        height,
        width,
    })
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Header and elements from `reader`, which must end after them; `path` is for the errors.
fn read_elements(reader: &mut impl Read, path: &Path) -> Result<IdxArray, IdxError> {
    let mut header = Vec::new();
    read_up_to(reader, 4, &mut header, path)?;
    if header.len() < 4 {
        return Err(IdxError::Truncated {
            path: path.into(),
            expected: 4,
            found: header.len(),
        });
    }
    let ndim = usize::from(header[3]);
    if header[..2] != [0, 0] || !(1..=MAX_NDIM).contains(&ndim) {
        return Err(IdxError::WrongMagic {
            path: path.into(),
            found: Hex(header),
        });
    }
    match dtype_name(header[2]) {
        Some("u8") => {}
        Some(dtype) => {
            return Err(IdxError::WrongDType {
                path: path.into(),
                dtype,
            });
        }
        None => {
            return Err(IdxError::WrongMagic {
                path: path.into(),
                found: Hex(header),
            });
        }
    }

    let header_nbytes = 4 + 4 * ndim;
    read_up_to(reader, 4 * ndim, &mut header, path)?;
    if header.len() < header_nbytes {
        let found = header.len();
        return Err(IdxError::Truncated {
            path: path.into(),
            expected: header_nbytes,
            found,
        });
    }
    let dims: Vec<usize> = header[4..]
        .chunks_exact(4)
        .map(|dim| u32::from_be_bytes([dim[0], dim[1], dim[2], dim[3]]) as usize)
        .collect();
    let Some(numel) = checked_numel(&dims).filter(|&numel| numel <= MAX_NBYTES) else {
        return Err(IdxError::TooLarge {
            path: path.into(),
            dims,
        });
    };

    // One byte more than there may be: it tells trailing bytes, and at the end of gzip data it has the checksum checked.
    let mut bytes = Vec::new();
    read_up_to(reader, numel + 1, &mut bytes, path)?;
    let expected = header_nbytes + numel;
    if bytes.len() < numel {
        let found = header_nbytes + bytes.len();
        return Err(IdxError::Truncated {
            path: path.into(),
            expected,
            found,
        });
    }
    if bytes.len() > numel {
        return Err(IdxError::TrailingBytes {
            path: path.into(),
            expected,
        });
    }
    bytes.shrink_to_fit();
    Ok(IdxArray { dims, bytes })
}

/// Appends at most `limit` bytes; fewer when the data ends. A gzip stream that ends in the middle is an error.
fn read_up_to(
    reader: &mut impl Read,
    limit: usize,
    bytes: &mut Vec<u8>,
    path: &Path,
) -> Result<(), IdxError> {
    match reader.take(limit as u64).read_to_end(bytes) {
        Ok(_) => Ok(()),
        Err(cause) => Err(match cause.kind() {
            io::ErrorKind::UnexpectedEof => IdxError::CorruptGzip {
                path: path.into(),
                cause: io::Error::new(cause.kind(), "it is cut off"),
            },
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => IdxError::CorruptGzip {
                path: path.into(),
                cause,
            },
            _ => IdxError::Unreadable {
                path: path.into(),
                cause,
            },
        }),
    }
}

/// The product of the dims, `None` if it overflows. A zero dim does not excuse an overflow of the others.
fn checked_numel(dims: &[usize]) -> Option<usize> {
    let nonzero = dims
        .iter()
        .filter(|&&dim| dim != 0)
        .try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
    Some(if dims.contains(&0) { 0 } else { nonzero })
}

fn nbytes_of_file(dims: &[usize]) -> usize {
    4 + 4 * dims.len() + dims.iter().product::<usize>()
}

fn dtype_name(code: u8) -> Option<&'static str> {
    Some(match code {
        0x08 => "u8",
        0x09 => "i8",
        0x0b => "i16",
        0x0c => "i32",
        0x0d => "f32",
        0x0e => "f64",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::PathBuf;

    /// A folder of its own for each test, and files in it.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        }
    }

    fn idx(dims: &[u32], bytes: &[u8]) -> Vec<u8> {
        let mut file = vec![0, 0, 8, dims.len() as u8];
        dims.iter().for_each(|dim| file.extend(dim.to_be_bytes()));
        file.extend(bytes);
        file
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// The error of reading `bytes` as a file, after checking that its text names the file.
    fn error_of(name: &str, bytes: &[u8]) -> IdxError {
        let folder = Folder::new();
        let error = read_idx(folder.file(name, bytes)).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        error
    }

    #[test]
    fn plain_and_gzip_give_the_same_array() {
        let folder = Folder::new();
        let file = idx(&[2, 3], &[1, 2, 3, 4, 5, 6]);
        let expected = IdxArray {
            dims: vec![2, 3],
            bytes: vec![1, 2, 3, 4, 5, 6],
        };
        assert_eq!(read_idx(folder.file("plain", &file)).unwrap(), expected);
        assert_eq!(
            read_idx(folder.file("packed.gz", &gzip(&file))).unwrap(),
            expected
        );
        assert_eq!(
            read_idx(folder.file("packed-without-extension", &gzip(&file))).unwrap(),
            expected
        );
        let empty = read_idx(folder.file("empty", &idx(&[0, 28, 28], &[]))).unwrap();
        assert_eq!((empty.dims, empty.bytes), (vec![0, 28, 28], vec![]));
    }

    #[test]
    fn the_digits_of_this_repository_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/mnist5k");
        let digits = read_labelled_images(
            folder.join("mnist5k-images-idx3-ubyte.gz"),
            folder.join("mnist5k-labels-idx1-ubyte.gz"),
        )
        .unwrap();
        assert_eq!(
            (digits.labels.len(), digits.height, digits.width),
            (5000, 28, 28)
        );
        assert_eq!(digits.pixels.len(), 5000 * 28 * 28);
        for class in 0..CLASSES {
            assert_eq!(
                digits
                    .labels
                    .iter()
                    .filter(|&&label| label == class)
                    .count(),
                500
            );
        }
        let mean = digits
            .pixels
            .iter()
            .map(|&pixel| u64::from(pixel))
            .sum::<u64>() as f64
            / digits.pixels.len() as f64;
        assert!((mean / 255.0 - 0.1307).abs() < 0.005, "mean {mean}");
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error() {
        let folder = Folder::new();
        let plain = idx(&[2, 3], &[1, 2, 3, 4, 5, 6]);
        for len in 0..plain.len() {
            let error = read_idx(folder.file("cut", &plain[..len])).unwrap_err();
            match error {
                IdxError::Truncated {
                    found, expected, ..
                } => assert!(found == len && expected > len),
                other => panic!("cut to {len}: {other}"),
            }
        }
        let packed = gzip(&plain);
        for len in 0..packed.len() {
            let error = read_idx(folder.file("cut.gz", &packed[..len])).unwrap_err();
            let expected = matches!(
                error,
                IdxError::NotGzip { .. } | IdxError::CorruptGzip { .. }
            );
            assert!(expected, "cut to {len}: {error}");
        }
    }

    #[test]
    fn random_damage_never_panics() {
        let folder = Folder::new();
        let plain = idx(&[4, 5], &[7; 20]);
        let packed = gzip(&plain);
        let mut state = 1u64;
        let mut random = move || {
            // Knuth's MMIX generator: only the spread of the positions matters here.
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize
        };
        let (mut read, mut refused) = (0, 0);
        for _ in 0..2000 {
            for (name, whole) in [("plain", &plain), ("packed.gz", &packed)] {
                let mut bytes = whole.clone();
                for _ in 0..1 + random() % 3 {
                    let position = random() % bytes.len();
                    bytes[position] = random() as u8;
                }
                match read_idx(folder.file(name, &bytes)) {
                    Ok(array) => {
                        assert_eq!(array.bytes.len(), array.dims.iter().product::<usize>());
                        read += 1;
                    }
                    Err(error) => {
                        assert!(error.to_string().contains(name), "{error}");
                        refused += 1;
                    }
                }
            }
        }
        assert!(
            read > 100 && refused > 1000,
            "{read} read, {refused} refused"
        );
    }

    #[test]
    fn a_gzip_checksum_is_checked() {
        let mut packed = gzip(&idx(&[3], &[1, 2, 3]));
        let checksum = packed.len() - 8;
        packed[checksum] ^= 1;
        assert!(matches!(
            error_of("sum.gz", &packed),
            IdxError::CorruptGzip { .. }
        ));
    }

    #[test]
    fn trailing_bytes_are_refused() {
        let mut file = idx(&[3], &[1, 2, 3]);
        file.push(0);
        assert!(matches!(
            error_of("long", &file),
            IdxError::TrailingBytes { expected: 11, .. }
        ));
        assert!(matches!(
            error_of("long.gz", &gzip(&file)),
            IdxError::TrailingBytes { expected: 11, .. }
        ));
        let mut packed = gzip(&idx(&[3], &[1, 2, 3]));
        packed.push(0);
        assert!(matches!(
            error_of("after.gz", &packed),
            IdxError::TrailingBytes { expected: 11, .. }
        ));
    }

    #[test]
    fn another_header_is_refused() {
        assert!(matches!(
            error_of("text", b"hello world"),
            IdxError::WrongMagic { .. }
        ));
        assert!(matches!(
            error_of("scalar", &idx(&[], &[1])),
            IdxError::WrongMagic { .. }
        ));
        assert!(matches!(
            error_of("deep", &idx(&[1; 5], &[1])),
            IdxError::WrongMagic { .. }
        ));
        assert!(matches!(
            error_of("odd", &[0, 0, 0x0a, 1]),
            IdxError::WrongMagic { .. }
        ));
        assert!(matches!(
            error_of("f32", &[0, 0, 0x0d, 1, 0, 0, 0, 0]),
            IdxError::WrongDType { dtype: "f32", .. }
        ));
        let text = error_of("plain.gz", &idx(&[1], &[1])).to_string();
        assert!(
            text.contains("expected it to start with 1f 8b, got 00 00"),
            "{text}"
        );
        assert!(error_of("none.gz", &[]).to_string().contains("got nothing"));
    }

    #[test]
    fn announced_sizes_are_limited_before_anything_is_allocated() {
        let vast = u32::MAX;
        assert!(matches!(
            error_of("product", &idx(&[vast; 4], &[])),
            IdxError::TooLarge { .. }
        ));
        assert!(matches!(
            error_of("zero", &idx(&[vast, vast, vast, 0], &[])),
            IdxError::TooLarge { .. }
        ));
        assert!(matches!(
            error_of("gigabytes", &idx(&[1 << 30, 2], &[])),
            IdxError::TooLarge { .. }
        ));
        // Within the limit, but not there: only what is there is read.
        assert!(matches!(
            error_of("absent", &idx(&[1 << 30], &[1, 2])),
            IdxError::Truncated { found: 10, .. }
        ));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = Folder::new();
        for path in [
            folder.0.path().join("missing"),
            folder.0.path().to_path_buf(),
        ] {
            let error = read_idx(&path).unwrap_err();
            assert!(matches!(error, IdxError::Unreadable { .. }), "{error}");
            assert!(error.to_string().contains(&format!("{path:?}")), "{error}");
        }
    }

    #[test]
    fn images_and_labels_must_fit() {
        let folder = Folder::new();
        let images = folder.file("images", &idx(&[2, 1, 2], &[1, 2, 3, 4]));
        let labels = folder.file("labels", &idx(&[2], &[9, 0]));
        let read = read_labelled_images(&images, &labels).unwrap();
        assert_eq!(
            (read.pixels, read.labels, read.height, read.width),
            (vec![1, 2, 3, 4], vec![9, 0], 1, 2)
        );

        let swapped = read_labelled_images(&labels, &images).unwrap_err();
        assert!(matches!(swapped, IdxError::NotImages { .. }), "{swapped}");
        let twice = read_labelled_images(&images, &images).unwrap_err();
        assert!(matches!(twice, IdxError::NotLabels { .. }), "{twice}");
        let three = folder.file("three", &idx(&[3], &[0, 0, 0]));
        let unequal = read_labelled_images(&images, &three)
            .unwrap_err()
            .to_string();
        assert!(
            unequal.contains("has 2 images") && unequal.contains("got 3"),
            "{unequal}"
        );
        let ten = folder.file("ten", &idx(&[2], &[0, 10]));
        let wrong = read_labelled_images(&images, &ten).unwrap_err().to_string();
        assert!(
            wrong.contains("label 1 of") && wrong.contains("is 10, expected 0 to 9"),
            "{wrong}"
        );
    }
}
