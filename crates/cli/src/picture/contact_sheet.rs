//! `predictions.png`: a sheet of test digits, each with what the model said, wrong ones marked.

use super::font;

/// Digits in a row of the sheet.
const COLUMNS: usize = 10;
/// Pixels of the sheet for a digit, at most: its own pixels are enlarged by a whole number.
const DIGIT: usize = 84;
/// From one digit to the next: room for "4 (true 9)" below.
const PITCH_X: usize = 130;
const PITCH_Y: usize = 150;
const MARGIN: usize = 36;
const HEADER: usize = 116;
/// Around a right digit, in pixels.
const THIN: usize = 1;
/// Around a wrong digit, in pixels.
const THICK: usize = 4;
const CAPTION_SCALE: usize = 2;
const TITLE_SCALE: usize = 3;

type Rgb = [u8; 3];
const PAPER: Rgb = [250, 250, 248];
const INK: Rgb = [32, 33, 36];
const GREY: Rgb = [128, 132, 138];
const LINE: Rgb = [208, 210, 214];
const RED: Rgb = [200, 30, 40];

/// A digit and what the model said of it.
#[derive(Clone, Debug)]
pub(crate) struct Prediction {
    /// Pixels row by row, as many rows as columns, 0 is background and 255 is ink.
    pub(crate) image: Vec<u8>,
    /// The label.
    pub(crate) truth: u8,
    /// The model's answer.
    pub(crate) predicted: u8,
    /// The probability that the model gives its answer, 0 to 1.
    pub(crate) confidence: f32,
}

/// The sheet as the bytes of a PNG file: `title` on top, below it how many of the digits shown are right, then the
/// digits in the order given, ten in a row, as dark ink on white, each with the answer and its probability below; a
/// wrong one has a red frame and its label in parentheses. The sheet grows with the number of digits.
///
/// # Errors
/// The encoder refuses the size: thousands of millions of pixels.
pub(crate) fn contact_sheet(
    title: &str,
    predictions: &[Prediction],
) -> Result<Vec<u8>, png::EncodingError> {
    let rows = predictions.len().div_ceil(COLUMNS);
    let text_width = TITLE_SCALE * font::width(title);
    let width = (COLUMNS * PITCH_X).max(text_width) + 2 * MARGIN;
    let mut canvas = Canvas::new(width, HEADER + rows * PITCH_Y + MARGIN);

    let left = MARGIN + (PITCH_X - DIGIT) / 2;
    canvas.text(left, MARGIN, TITLE_SCALE, INK, title);
    let wrong = predictions
        .iter()
        .filter(|prediction| prediction.truth != prediction.predicted)
        .count();
    let right = predictions.len() - wrong;
    let counts = format!("{} digits shown, {right} right, ", predictions.len());
    let marked = if wrong > 0 {
        format!("{wrong} wrong (red frame)")
    } else {
        "none wrong".to_owned()
    };
    let below_title = MARGIN + TITLE_SCALE * (font::ASCENT + 6);
    canvas.text(left, below_title, CAPTION_SCALE, GREY, &counts);
    let after_counts = left + CAPTION_SCALE * font::ADVANCE * counts.chars().count();
    canvas.text(
        after_counts,
        below_title,
        CAPTION_SCALE,
        if wrong > 0 { RED } else { GREY },
        &marked,
    );

    for (position, prediction) in predictions.iter().enumerate() {
        let center_x = MARGIN + position % COLUMNS * PITCH_X + PITCH_X / 2;
        canvas.prediction(
            center_x,
            HEADER + position / COLUMNS * PITCH_Y + THICK,
            prediction,
        );
    }
    canvas.encode()
}

/// Pixels to draw on, row by row.
struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<Rgb>,
}

impl Canvas {
    fn new(width: usize, height: usize) -> Self {
        Self {
            width,
            height,
            pixels: vec![PAPER; width * height],
        }
    }

    /// The digit with its frame and captions, centred on `center_x`, its upper edge at `top`.
    fn prediction(&mut self, center_x: usize, top: usize, prediction: &Prediction) {
        let side = prediction.image.len().isqrt().max(1);
        let zoom = (DIGIT / side).max(1);
        let size = side * zoom;
        let left = center_x - size / 2;
        let is_right = prediction.truth == prediction.predicted;
        let (frame, frame_color) = if is_right { (THIN, LINE) } else { (THICK, RED) };
        self.rectangle(
            left - frame,
            top - frame,
            size + 2 * frame,
            size + 2 * frame,
            frame_color,
        );
        for (position, &ink) in prediction.image.iter().enumerate() {
            let (x, y) = (left + position % side * zoom, top + position / side * zoom);
            self.rectangle(x, y, zoom, zoom, [255 - ink; 3]);
        }

        let (caption, color) = if is_right {
            (prediction.predicted.to_string(), INK)
        } else {
            (
                format!("{} (true {})", prediction.predicted, prediction.truth),
                RED,
            )
        };
        let caption_top = top + DIGIT + THICK + 6;
        self.centred_text(center_x, caption_top, color, &caption);
        let confidence_top = caption_top + CAPTION_SCALE * (font::ASCENT + 3);
        self.centred_text(
            center_x,
            confidence_top,
            GREY,
            &percent(prediction.confidence),
        );
    }

    fn rectangle(&mut self, left: usize, top: usize, width: usize, height: usize, color: Rgb) {
        for y in top..top + height {
            self.pixels[y * self.width + left..][..width].fill(color);
        }
    }

    fn text(&mut self, left: usize, top: usize, scale: usize, color: Rgb, text: &str) {
        font::dots(text, |x, y| {
            self.rectangle(left + x * scale, top + y * scale, scale, scale, color)
        });
    }

    fn centred_text(&mut self, center_x: usize, top: usize, color: Rgb, text: &str) {
        let left = center_x - CAPTION_SCALE * font::width(text) / 2;
        self.text(left, top, CAPTION_SCALE, color, text);
    }

    fn encode(&self) -> Result<Vec<u8>, png::EncodingError> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.pixels.as_flattened())?;
        writer.finish()?;
        Ok(file)
    }
}

/// A probability as a caption; never "100 %" for what is less, and "?" for what is no number.
fn percent(probability: f32) -> String {
    if !probability.is_finite() {
        return "? %".to_owned();
    }
    let percent = 100.0 * f64::from(probability.clamp(0.0, 1.0));
    if (99.0..100.0).contains(&percent) {
        return format!("{:.1} %", (percent * 10.0).floor() / 10.0);
    }
    format!("{percent:.0} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDE: usize = 28;
    const ZOOM: usize = 3;

    /// A digit drawn with the font's glyph.
    fn digit(class: u8) -> [u8; SIDE * SIDE] {
        let mut image = [0; SIDE * SIDE];
        font::dots(&class.to_string(), |x, y| {
            for position in 0..9 {
                image[(3 + y * 3 + position / 3) * SIDE + 6 + x * 3 + position % 3] = 255;
            }
        });
        image
    }

    fn decode(file: &[u8]) -> (usize, usize, Vec<Rgb>) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(file))
            .read_info()
            .unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        assert_eq!(info.color_type, png::ColorType::Rgb);
        (
            info.width as usize,
            info.height as usize,
            bytes.as_chunks().0.to_vec(),
        )
    }

    #[test]
    fn digits_are_dark_on_white_and_only_wrong_ones_are_framed_red() {
        let images: Vec<_> = (0..10).map(digit).collect();
        let predictions: Vec<Prediction> = (0..25)
            .map(|position| {
                let truth = (position % 10) as u8;
                let predicted = if position == 12 { 7 } else { truth };
                Prediction {
                    image: images[position % 10].to_vec(),
                    truth,
                    predicted,
                    confidence: 0.875,
                }
            })
            .collect();
        let (width, height, pixels) = decode(&contact_sheet("a title", &predictions).unwrap());
        assert_eq!(
            (width, height),
            (
                COLUMNS * PITCH_X + 2 * MARGIN,
                HEADER + 3 * PITCH_Y + MARGIN
            )
        );

        for position in 0..25 {
            let left = MARGIN + position % COLUMNS * PITCH_X + (PITCH_X - DIGIT) / 2;
            let top = HEADER + position / COLUMNS * PITCH_Y + THICK;
            let frame = pixels[(top - 1) * width + left];
            assert_eq!(frame, if position == 12 { RED } else { LINE }, "{position}");
            let image = &images[position % 10];
            for (pixel, &ink) in image.iter().enumerate() {
                let (x, y) = (left + pixel % SIDE * ZOOM, top + pixel / SIDE * ZOOM);
                assert_eq!(pixels[y * width + x], [255 - ink; 3]);
            }
        }
        let first = &pixels[..width * MARGIN];
        assert!(
            first.iter().all(|&pixel| pixel == PAPER),
            "the margin is empty"
        );
    }

    #[test]
    fn no_digit_and_a_long_title_are_drawn_too() {
        let (_, height, _) = decode(&contact_sheet("nothing", &[]).unwrap());
        assert_eq!(height, HEADER + MARGIN);
        let (width, _, _) = decode(&contact_sheet(&"long ".repeat(100), &[]).unwrap());
        assert!(width > 500 * 6 * TITLE_SCALE);
    }

    #[test]
    fn a_percentage_is_not_rounded_up_to_certainty() {
        let texts = [0.0, 0.5, 0.985, 0.9999, 1.0, f32::NAN, -1.0, 2.0].map(percent);
        assert_eq!(
            texts,
            [
                "0 %", "50 %", "99 %", "99.9 %", "100 %", "? %", "0 %", "100 %"
            ]
        );
    }
}
