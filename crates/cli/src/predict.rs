//! `fireclay predict`: reads digits in images with a trained network.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use fireclay::checkpoint::Checkpoint;
use fireclay::prelude::*;
use fireclay::{checkpoint, inference_mode};
use serde_json::{Value, json};

use crate::arguments::{self, given};
use crate::failure::Failure;
use crate::model::DIGITS;
use crate::picture::digit_image::read_png;
use crate::task::{TASKS, Task};

/// What the command line asks for.
pub(crate) struct Request {
    checkpoint: PathBuf,
    device: String,
    json: bool,
    images: Vec<PathBuf>,
}

impl Request {
    pub(crate) fn of(matches: &ArgMatches) -> Request {
        let images = matches.get_many::<PathBuf>("images");
        Request {
            checkpoint: given(matches, "checkpoint"),
            device: given(matches, "device"),
            json: matches.get_flag("json"),
            images: images.into_iter().flatten().cloned().collect(),
        }
    }
}

pub(crate) fn run(request: &Request) -> Result<(), Failure> {
    let saved = checkpoint::load(&request.checkpoint)?;
    let task = task_of(&saved);
    let device = arguments::device(&request.device, || task.auto_device())?;
    let Some(digits) = task.digits() else {
        return Err(Failure::Refused(format!(
            "{} is a checkpoint of `fireclay {}`, whose network reads no images",
            request.checkpoint.display(),
            task.command()
        )));
    };
    let model = (digits.model)()?;
    saved.load_into(task.model_name, &model.state_dict())?;
    model.to(device)?;
    model.eval();
    // All images are read before the first answer: a wrong path is told at once.
    let images = request
        .images
        .iter()
        .map(|path| Digit::read(path, digits.side))
        .collect::<Result<Vec<Digit<'_>>, Failure>>()?;
    let mut output = std::io::stdout().lock();
    for image in images {
        let pixels = (digits.input)(&image.pixels)?;
        let probabilities = inference_mode(|| {
            let scores = model.forward(&pixels.unsqueeze(0)?.to(device)?)?;
            scores.softmax(1)?.to_vec::<f32>()
        })?;
        let [best, second] = two_best(&probabilities);
        if request.json {
            let line = json!({
                "path": image.path.display().to_string(),
                "digit": best,
                "probability": probabilities[best],
                "runner_up": second,
                "runner_up_probability": probabilities[second],
                "inverted": image.is_inverted,
            });
            writeln!(output, "{line}")?;
        } else {
            writeln!(
                output,
                "{}: {best} (probability {:.4}), then {second} ({:.4})",
                image.path.display(),
                probabilities[best],
                probabilities[second]
            )?;
        }
    }
    Ok(())
}

/// What the checkpoint says that it is of. Weights alone are taken for MNIST's: loading them says what is missing.
fn task_of(saved: &Checkpoint) -> &'static Task {
    let command = saved
        .training()
        .map(|training| &training["extra"]["command"]);
    let is_of = |task: &&Task| command.and_then(Value::as_str) == Some(&task.command());
    TASKS.iter().find(is_of).unwrap_or(&TASKS[0])
}

/// An image as the network knows it: light on dark.
struct Digit<'a> {
    path: &'a Path,
    /// Row by row, as many rows as columns.
    pixels: Vec<u8>,
    is_inverted: bool,
}

impl Digit<'_> {
    fn read(path: &Path, side: usize) -> Result<Digit<'_>, Failure> {
        let mut pixels = read_png(path, side)?;
        let is_inverted = has_light_edge(&pixels, side);
        if is_inverted {
            pixels.iter_mut().for_each(|value| *value = 255 - *value);
            say!(
                "note: {} is dark on light: inverted, since the network knows light digits on dark",
                path.display()
            );
        }
        Ok(Digit {
            path,
            pixels,
            is_inverted,
        })
    }
}

/// Whether the outermost pixels, which are background, are light on average.
fn has_light_edge(pixels: &[u8], side: usize) -> bool {
    let is_edge = |place: usize| place.is_multiple_of(side - 1);
    let edge = (0..side * side).filter(|place| is_edge(place / side) || is_edge(place % side));
    let (sum, count) = edge.fold((0u32, 0), |(sum, count), place| {
        (sum + u32::from(pixels[place]), count + 1)
    });
    sum > count * 127
}

/// The places of the largest and the second largest.
fn two_best(probabilities: &[f32]) -> [usize; 2] {
    debug_assert_eq!(probabilities.len(), DIGITS);
    let mut places: Vec<usize> = (0..probabilities.len()).collect();
    places.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
    [places[0], places[1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edge_tells_the_polarity() {
        const SIDE: usize = 28;
        let mut pixels = [0; SIDE * SIDE];
        for row in 8..20 {
            pixels[row * SIDE + 4..][..20].fill(255);
        }
        assert!(!has_light_edge(&pixels, SIDE));
        assert!(has_light_edge(&pixels.map(|value| 255 - value), SIDE));
    }

    #[test]
    fn the_two_best_come_in_order() {
        let mut probabilities = [0.01; DIGITS];
        (probabilities[7], probabilities[2]) = (0.6, 0.3);
        assert_eq!(two_best(&probabilities), [7, 2]);
    }
}
