//! `Task`: what there is to train. One row a task; the commands that train and predict are made from the rows.

use std::path::Path;
use std::sync::Arc;

use fireclay::data::{Augment, Dataset, Digits, Mnist, digits, mnist};
use fireclay::nn::Module;
use fireclay::{Device, Result, Tensor, cuda};

use crate::gpt::Shape;
use crate::model::{DigitMlp, DigitNet};

/// The images of a task, with their labels. A sample is (image, label) as the network takes them.
pub(crate) trait LabelledImages: Dataset<Item = (Tensor, i64)> {
    /// Rows and columns of an image.
    fn sides(&self) -> (usize, usize);

    /// The pixels of an image as they are in the file, row by row.
    fn pixels(&self, index: usize) -> Result<&[u8]>;

    /// The class of each image.
    fn labels(&self) -> Vec<i64>;
}

/// A network to train.
pub(crate) struct Task {
    /// What stands after `fireclay train`.
    pub(crate) name: &'static str,
    /// What the command does, for its help.
    pub(crate) about: &'static str,
    /// What `--data` takes, for its help.
    pub(crate) data: &'static str,
    /// The network's name in messages.
    pub(crate) model_name: &'static str,
    /// What the settings are unless flags say otherwise.
    pub(crate) epochs: usize,
    pub(crate) batch_size: usize,
    pub(crate) lr: f64,
    /// The share of all steps in which the learning rate rises.
    pub(crate) warmup_share: f64,
    /// What is pulled off the weights in a step, times the learning rate.
    pub(crate) weight_decay: f64,
    /// How fast the optimizer forgets squared gradients.
    pub(crate) beta2: f64,
    /// The longest gradient: a longer one is shortened.
    pub(crate) max_norm: Option<f64>,
    /// What it is trained on.
    pub(crate) subject: Subject,
}

/// What a network is trained on.
pub(crate) enum Subject {
    Digits(DigitTask),
    /// Characters of a text; the network's shape unless flags say otherwise.
    Text(Shape),
}

/// What there is to say of a task with images of digits.
pub(crate) struct DigitTask {
    /// Rows and columns of an image.
    pub(crate) side: usize,
    /// The value of a pixel that is all ink; 0 is background.
    pub(crate) most_ink: u8,
    /// How training images are changed by chance.
    pub(crate) augment: fn() -> Augment,
    /// A network with random weights, on the default device.
    pub(crate) model: fn() -> Result<Box<dyn Module>>,
    /// The images of a folder, or those built in.
    pub(crate) images: fn(Option<&Path>) -> Result<Arc<dyn LabelledImages>>,
    /// The network's input for grey values from 0 to 255, light on dark.
    pub(crate) input: fn(&[u8]) -> Result<Tensor>,
}

/// All tasks.
pub(crate) static TASKS: [Task; 3] = [
    Task {
        name: "mnist",
        about: "Trains a convolutional network on 5,000 handwritten digits of 28 x 28 pixels",
        data: "A folder with MNIST's files instead of the built-in digits",
        model_name: "the digit network",
        epochs: 24,
        batch_size: 64,
        lr: 2e-3,
        warmup_share: 0.15,
        weight_decay: 0.02,
        beta2: 0.999,
        max_norm: None,
        subject: Subject::Digits(DigitTask {
            side: 28,
            most_ink: 255,
            augment: Augment::digits,
            model: || Ok(Box::new(DigitNet::new()?)),
            images: |folder| {
                Ok(Arc::new(match folder {
                    Some(folder) => Mnist::load(folder)?,
                    None => Mnist::embedded()?,
                }))
            },
            input: |grey| mnist::image_from_pixels(grey, 28, 28),
        }),
    },
    Task {
        name: "digits",
        about: "Trains a multi-layer perceptron on 1,797 handwritten digits of 8 x 8 pixels",
        data: "A folder with digits.csv or digits.csv.gz instead of the built-in digits",
        model_name: "the digit MLP",
        epochs: 60,
        batch_size: 32,
        lr: 8e-3,
        warmup_share: 0.15,
        weight_decay: 0.02,
        beta2: 0.999,
        max_norm: None,
        subject: Subject::Digits(DigitTask {
            side: digits::SIDE,
            most_ink: digits::MOST_INK,
            // An 8 x 8 image bears little: half a pixel, and turns as MNIST's.
            augment: || Augment {
                max_shift: 0.5,
                max_rotation_degrees: 10.0,
                max_scaling: 0.1,
                background: 0.0,
            },
            model: || Ok(Box::new(DigitMlp::new()?)),
            images: |folder| {
                Ok(Arc::new(match folder {
                    Some(folder) => Digits::load(folder)?,
                    None => Digits::embedded()?,
                }))
            },
            input: |grey| {
                let ink: Vec<f32> = grey.iter().map(|&value| f32::from(value) / 255.0).collect();
                digits::image_from_ink(&ink)
            },
        }),
    },
    Task {
        name: "chargpt",
        about: "Trains a small GPT to write as Shakespeare, character by character",
        data: "A text file, plain or gzip, instead of the built-in works",
        model_name: "the character GPT",
        epochs: 4,
        batch_size: 16,
        lr: 2e-3,
        warmup_share: 0.1,
        weight_decay: 0.1,
        beta2: 0.99,
        max_norm: Some(1.0),
        subject: Subject::Text(Shape {
            layers: 4,
            width: 256,
            heads: 4,
            context: 128,
        }),
    },
];

impl Task {
    /// The task of this name.
    pub(crate) fn find(name: &str) -> Option<&'static Task> {
        TASKS.iter().find(|task| task.name == name)
    }

    /// What its checkpoints say that they are of.
    pub(crate) fn command(&self) -> String {
        format!("train {}", self.name)
    }

    /// The device that `--device auto` means: the first GPU if there is one, else the CPU.
    pub(crate) fn auto_device(&self) -> Device {
        if cuda::is_available() {
            Device::cuda()
        } else {
            Device::Cpu
        }
    }

    /// The shape of its network, where flags may change it.
    pub(crate) fn shape(&self) -> Option<Shape> {
        match self.subject {
            Subject::Text(shape) => Some(shape),
            Subject::Digits(_) => None,
        }
    }

    /// What it says of images of digits, if it is about those.
    pub(crate) fn digits(&self) -> Option<&DigitTask> {
        match &self.subject {
            Subject::Digits(digits) => Some(digits),
            Subject::Text(_) => None,
        }
    }
}

impl DigitTask {
    /// Pixels as grey values from 0 to 255.
    pub(crate) fn grey(&self, pixels: &[u8]) -> Vec<u8> {
        let most = u32::from(self.most_ink);
        let scaled = |&pixel: &u8| ((u32::from(pixel) * 255 + most / 2) / most).min(255) as u8;
        pixels.iter().map(scaled).collect()
    }
}

impl LabelledImages for Mnist {
    fn sides(&self) -> (usize, usize) {
        (self.height(), self.width())
    }

    fn pixels(&self, index: usize) -> Result<&[u8]> {
        Mnist::pixels(self, index)
    }

    fn labels(&self) -> Vec<i64> {
        Mnist::labels(self)
    }
}

impl LabelledImages for Digits {
    fn sides(&self) -> (usize, usize) {
        (digits::SIDE, digits::SIDE)
    }

    fn pixels(&self, index: usize) -> Result<&[u8]> {
        Digits::pixels(self, index)
    }

    fn labels(&self) -> Vec<i64> {
        Digits::labels(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fireclay::data::SampleRng;

    #[test]
    fn grey_values_go_back_to_the_sample() {
        for (name, task) in TASKS
            .iter()
            .filter_map(|task| Some((task.name, task.digits()?)))
        {
            let images = (task.images)(None).unwrap();
            assert_eq!(images.sides(), (task.side, task.side));
            let grey = task.grey(images.pixels(7).unwrap());
            let input = (task.input)(&grey).unwrap().to_vec::<f32>().unwrap();
            let (sample, _) = images.get(7, &mut SampleRng::new(0, 0, 0)).unwrap();
            for (input, sample) in input.iter().zip(sample.to_vec::<f32>().unwrap()) {
                // 255 is no multiple of 16: half a grey value at most.
                assert!((input - sample).abs() < 0.5 / 255.0 + 1e-6, "{name}");
            }
            assert_eq!(task.grey(&[0, task.most_ink]), [0, 255]);
        }
    }
}
