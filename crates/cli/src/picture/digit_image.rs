//! Images to classify: a PNG file of the size of a digit, as grey values. A file may be damaged or hostile: its size is
//! looked at before anything is decoded, and memory is limited.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::{Path, PathBuf};

/// What the decoder may allocate: an image needs a few KB, the rest is for text and profiles, which are ignored.
const DECODER_LIMIT_NBYTES: usize = 1 << 20;

/// The grey values, row by row, of a PNG file of `side` by `side` pixels of any PNG colour type and depth.
///
/// Colours become grey by the luma of ITU-R BT.601 (as Pillow's mode "L"), 16 bits become 8, and what is transparent
/// becomes black, which is the background of the digits.
///
/// # Errors
/// The file cannot be read, is not a whole PNG file, or has another size.
pub(crate) fn read_png(path: &Path, side: usize) -> Result<Vec<u8>, DigitImageError> {
    let file = File::open(path).map_err(|cause| DigitImageError::Unreadable {
        path: path.into(),
        cause,
    })?;
    decode(BufReader::new(file), path, side)
}

/// Why a file is not an image of a digit.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DigitImageError {
    #[error("cannot read {path:?}: {cause}; check that the path exists, is a file and may be read")]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("{path:?} is not a whole PNG file: {cause}; save the image as PNG again")]
    NotPng {
        path: PathBuf,
        cause: png::DecodingError,
    },
    #[error(
        "{path:?} has {width} x {height} pixels, expected {side} x {side}; scale the image, one white digit on black"
    )]
    WrongSize {
        path: PathBuf,
        width: u32,
        height: u32,
        side: usize,
    },
}

fn decode(
    input: impl BufRead + Seek,
    path: &Path,
    side: usize,
) -> Result<Vec<u8>, DigitImageError> {
    let failed = |cause| match cause {
        png::DecodingError::IoError(cause) if cause.kind() != io::ErrorKind::UnexpectedEof => {
            DigitImageError::Unreadable {
                path: path.into(),
                cause,
            }
        }
        cause => DigitImageError::NotPng {
            path: path.into(),
            cause,
        },
    };
    let mut decoder = png::Decoder::new_with_limits(
        input,
        png::Limits {
            bytes: DECODER_LIMIT_NBYTES,
        },
    );
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let header = decoder.read_header_info().map_err(failed)?;
    let (width, height) = header.size();
    if (width as usize, height as usize) != (side, side) {
        return Err(DigitImageError::WrongSize {
            path: path.into(),
            width,
            height,
            side,
        });
    }

    let mut reader = decoder.read_info().map_err(failed)?;
    let mut bytes = vec![0; 4 * side * side];
    let info = reader.next_frame(&mut bytes).map_err(failed)?;
    reader.finish().map_err(failed)?;
    let samples = info.color_type.samples();
    let mut grey = vec![0; side * side];
    for (grey, pixel) in grey.iter_mut().zip(bytes.chunks_exact(samples)) {
        *grey = match *pixel {
            [value] => value,
            [value, alpha] => over_black(value, alpha),
            [red, green, blue] => luma(red, green, blue),
            [red, green, blue, alpha] => over_black(luma(red, green, blue), alpha),
            _ => unreachable!("a PNG pixel has one to four samples"),
        };
    }
    Ok(grey)
}

/// Luma of ITU-R BT.601, rounded to nearest.
fn luma(red: u8, green: u8, blue: u8) -> u8 {
    ((299 * u32::from(red) + 587 * u32::from(green) + 114 * u32::from(blue) + 500) / 1000) as u8
}

fn over_black(value: u8, alpha: u8) -> u8 {
    ((u32::from(value) * u32::from(alpha) + 127) / 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use png::{BitDepth, ColorType};

    /// A PNG file of `width` by `height` pixels; `pixel(position)` gives the bytes of each.
    fn file<const N: usize>(
        (width, height): (u32, u32),
        (color, depth): (ColorType, BitDepth),
        pixel: impl Fn(usize) -> [u8; N],
    ) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == ColorType::Indexed {
            encoder.set_palette(vec![0, 0, 0, 255, 0, 0, 255, 255, 255]);
        }
        let mut writer = encoder.write_header().unwrap();
        let pixels: Vec<u8> = (0..(width * height) as usize).flat_map(pixel).collect();
        writer.write_image_data(&pixels).unwrap();
        writer.finish().unwrap();
        file
    }

    const SIDE: usize = 28;

    fn read(file: &[u8]) -> Result<Vec<u8>, DigitImageError> {
        decode(io::Cursor::new(file), Path::new("digit.png"), SIDE)
    }

    const DIGIT: (u32, u32) = (28, 28);

    fn ramp(position: usize) -> u8 {
        (position % 256) as u8
    }

    #[test]
    fn every_color_type_becomes_grey() {
        use BitDepth::{Eight, Sixteen};
        let expected: Vec<u8> = (0..SIDE * SIDE).map(ramp).collect();
        for file in [
            file(DIGIT, (ColorType::Grayscale, Eight), |i| [ramp(i)]),
            file(DIGIT, (ColorType::Grayscale, Sixteen), |i| [ramp(i), 77]),
            file(DIGIT, (ColorType::GrayscaleAlpha, Eight), |i| {
                [ramp(i), 255]
            }),
            file(DIGIT, (ColorType::GrayscaleAlpha, Sixteen), |i| {
                [ramp(i), 1, 255, 255]
            }),
            file(DIGIT, (ColorType::Rgb, Eight), |i| [ramp(i); 3]),
            file(DIGIT, (ColorType::Rgb, Sixteen), |i| {
                [ramp(i), 9, ramp(i), 9, ramp(i), 9]
            }),
            file(DIGIT, (ColorType::Rgba, Eight), |i| {
                [ramp(i), ramp(i), ramp(i), 255]
            }),
        ] {
            assert_eq!(read(&file).unwrap()[..], expected[..]);
        }
        let palette = read(&file(DIGIT, (ColorType::Indexed, Eight), |i| {
            [(i % 3) as u8]
        }))
        .unwrap();
        assert_eq!(palette[..3], [0, 76, 255]);
    }

    #[test]
    fn colors_are_weighed_and_transparent_is_black() {
        let pixels = [
            [255, 0, 0, 255],
            [0, 255, 0, 255],
            [0, 0, 255, 255],
            [255, 255, 255, 0],
            [255, 255, 255, 128],
        ];
        let grey = read(&file(DIGIT, (ColorType::Rgba, BitDepth::Eight), |i| {
            pixels[i % 5]
        }))
        .unwrap();
        assert_eq!(grey[..5], [76, 150, 29, 0, 128]);
        let half = read(&file(
            DIGIT,
            (ColorType::GrayscaleAlpha, BitDepth::Eight),
            |_| [200, 51],
        ))
        .unwrap();
        assert_eq!(half[0], 40);
    }

    #[test]
    fn another_size_is_named() {
        let error = read(&file(
            (28, 29),
            (ColorType::Grayscale, BitDepth::Eight),
            |_| [0],
        ))
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("\"digit.png\" has 28 x 29 pixels, expected 28 x 28"),
            "{error}"
        );
    }

    #[test]
    fn a_vast_header_is_refused_before_anything_is_decoded() {
        let mut vast = file(DIGIT, (ColorType::Rgba, BitDepth::Eight), |_| [0; 4]);
        // Width and height stand at bytes 16 to 24, the checksum of type and content after the 13 bytes of the header.
        vast[16..20].copy_from_slice(&100_000u32.to_be_bytes());
        vast[20..24].copy_from_slice(&100_000u32.to_be_bytes());
        let checksum = crc32(&vast[12..29]);
        vast[29..33].copy_from_slice(&checksum.to_be_bytes());
        let error = read(&vast).unwrap_err();
        assert!(
            matches!(
                error,
                DigitImageError::WrongSize {
                    width: 100_000,
                    height: 100_000,
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error() {
        let whole = file(DIGIT, (ColorType::Grayscale, BitDepth::Eight), |i| {
            [ramp(i)]
        });
        for len in 0..whole.len() {
            let error = read(&whole[..len]).expect_err(&format!("cut to {len} of {}", whole.len()));
            assert!(
                matches!(error, DigitImageError::NotPng { .. }),
                "cut to {len}: {error}"
            );
        }
    }

    #[test]
    fn random_damage_never_panics() {
        let whole = file(DIGIT, (ColorType::Rgba, BitDepth::Eight), |i| {
            [ramp(i), 3, 5, 255]
        });
        let mut state = 7u64;
        let mut random = move || {
            // Knuth's MMIX generator: only the spread of the positions matters here.
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize
        };
        let mut refused = 0;
        for _ in 0..3000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random() % 3 {
                let position = random() % bytes.len();
                bytes[position] = random() as u8;
            }
            if let Err(error) = read(&bytes) {
                assert!(error.to_string().contains("digit.png"), "{error}");
                refused += 1;
            }
        }
        assert!(refused > 2000, "{refused} of 3000 refused");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for path in [
            folder.path().join("missing.png"),
            folder.path().to_path_buf(),
        ] {
            let error = read_png(&path, SIDE).unwrap_err();
            assert!(
                matches!(error, DigitImageError::Unreadable { .. }),
                "{error}"
            );
            assert!(error.to_string().contains(&format!("{path:?}")), "{error}");
        }
        let path = folder.path().join("digit.png");
        std::fs::write(
            &path,
            file(DIGIT, (ColorType::Grayscale, BitDepth::Eight), |_| [5]),
        )
        .unwrap();
        assert_eq!(read_png(&path, SIDE).unwrap(), [5; SIDE * SIDE]);
        std::fs::write(&path, "GIF89a and more").unwrap();
        assert!(matches!(
            read_png(&path, SIDE).unwrap_err(),
            DigitImageError::NotPng { .. }
        ));
    }

    /// PNG's checksum, bit by bit.
    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| {
                if crc & 1 == 1 {
                    crc >> 1 ^ 0xedb8_8320
                } else {
                    crc >> 1
                }
            })
        })
    }
}
