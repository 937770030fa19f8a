//! `AveragedModel`: the average of parameters over steps.

use fireclay_tensor::{Error, Parameter, Result, StateDict, StateDictReader, Tensor, no_grad};

/// How parameters are averaged.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub enum Averaging {
    /// All states alike: stochastic weight averaging (Izmailov and others 2018).
    #[default]
    Equal,
    /// `decay` of the average is kept at each update: an exponential moving average (`get_ema_multi_avg_fn`).
    Ema {
        /// The share that is kept, 0.999 by PyTorch's default.
        decay: f64,
    },
}

/// The average of a model's parameters over time (`torch.optim.swa_utils.AveragedModel`).
///
/// ```
/// use fireclay_optim::{AveragedModel, Averaging};
/// use fireclay_tensor::{Parameter, Tensor};
///
/// # fn main() -> fireclay_tensor::Result<()> {
/// let weight = Parameter::new(Tensor::zeros(&[2], "cpu")?)?;
/// let parameters = [weight.clone()];
/// let mut average = AveragedModel::new(&parameters, Averaging::Equal)?;
/// for step in 1..=3 {
///     weight.set(&Tensor::full(&[2], step as f64, "cpu")?)?;
///     average.update_parameters(&parameters)?;
/// }
/// average.swap(&parameters)?; // evaluate with the average
/// assert_eq!(weight.tensor().to_vec::<f32>()?, [2.0, 2.0]);
/// average.swap(&parameters)?; // and train on
/// assert_eq!(weight.tensor().to_vec::<f32>()?, [3.0, 3.0]);
/// # Ok(())
/// # }
/// ```
///
/// Batch norms' running statistics are not the average's: evaluate in training mode over some batches first.
#[derive(Debug)]
pub struct AveragedModel {
    rule: Averaging,
    averages: Vec<Tensor>,
    updates: u64,
}

impl AveragedModel {
    /// An average of no states yet, of copies of `parameters`.
    ///
    /// # Errors
    /// The decay is not from 0 to 1; no memory.
    pub fn new(parameters: &[Parameter], rule: Averaging) -> Result<AveragedModel> {
        if let Averaging::Ema { decay } = rule
            && !(0.0..=1.0).contains(&decay)
        {
            return Err(Error::argument(
                "AveragedModel",
                format!("decay must be from 0 to 1, got {decay}"),
            ));
        }
        let copies = parameters
            .iter()
            .map(|parameter| parameter.tensor().detach().copy());
        Ok(AveragedModel {
            rule,
            averages: copies.collect::<Result<_>>()?,
            updates: 0,
        })
    }

    /// Takes the parameters as they are into the average; the first time they are the average.
    ///
    /// # Errors
    /// They are not as many as at first, or of other shapes.
    pub fn update_parameters(&mut self, parameters: &[Parameter]) -> Result<()> {
        self.check(parameters)?;
        let share = match (self.updates, self.rule) {
            (0, _) => 1.0,
            (updates, Averaging::Equal) => 1.0 / (updates as f64 + 1.0),
            (_, Averaging::Ema { decay }) => 1.0 - decay,
        };
        no_grad(|| {
            for (average, parameter) in self.averages.iter().zip(parameters) {
                let now = parameter.tensor().to(average.device())?;
                match self.updates {
                    0 => average.copy_(&now)?,
                    _ => average.lerp_(&now.to_dtype(average.dtype())?, share)?,
                };
            }
            Ok::<_, Error>(())
        })?;
        self.updates += 1;
        Ok(())
    }

    /// How many states are in the average.
    pub fn n_averaged(&self) -> u64 {
        self.updates
    }

    /// The averages, in the parameters' order.
    pub fn averages(&self) -> &[Tensor] {
        &self.averages
    }

    /// Exchanges the parameters' values with the averages: the model then computes with the averages; the second time it has its own
    /// again.
    ///
    /// # Errors
    /// They are not as many as at first, or of other shapes; then nothing was changed.
    pub fn swap(&mut self, parameters: &[Parameter]) -> Result<()> {
        self.check(parameters)?;
        no_grad(|| {
            let own: Vec<Tensor> = parameters
                .iter()
                .map(|parameter| parameter.tensor().detach().copy())
                .collect::<Result<_>>()?;
            for ((average, parameter), own) in self.averages.iter().zip(parameters).zip(&own) {
                parameter.tensor().copy_(&average.to(own.device())?)?;
                average.copy_(&own.to(average.device())?)?;
            }
            Ok(())
        })
    }

    /// The averages and their count by PyTorch's names.
    pub fn state_dict(&self) -> StateDict {
        let averages = self.averages.iter().enumerate();
        StateDict {
            tensors: averages
                .map(|(number, average)| (format!("averages.{number}"), average.clone()))
                .collect(),
            numbers: vec![("n_averaged".to_owned(), self.updates as f64)],
        }
    }

    /// Goes to where the saved one stood.
    ///
    /// # Errors
    /// Something is missing, too much or of another shape; then nothing was changed.
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateDictReader::new("AveragedModel", state);
        let updates = reader.number("n_averaged") as u64;
        let averages = self.averages.iter().enumerate();
        let found: Vec<Option<&Tensor>> = averages
            .map(|(number, like)| reader.tensor(&format!("averages.{number}"), like))
            .collect();
        reader.finish()?;
        no_grad(|| {
            for (average, found) in self.averages.iter().zip(found) {
                if let Some(found) = found {
                    average.copy_(&found.to(average.device())?)?;
                }
            }
            Ok::<_, Error>(())
        })?;
        self.updates = updates;
        Ok(())
    }

    fn check(&self, parameters: &[Parameter]) -> Result<()> {
        if parameters.len() != self.averages.len() {
            return Err(Error::argument(
                "AveragedModel",
                format!(
                    "expected {} parameters, got {}",
                    self.averages.len(),
                    parameters.len()
                ),
            ));
        }
        for (number, (average, parameter)) in self.averages.iter().zip(parameters).enumerate() {
            let tensor = parameter.tensor();
            if tensor.shape() != average.shape() {
                return Err(Error::shape(
                    "AveragedModel",
                    format!(
                        "expected parameter {number} of shape {}, got {}",
                        average.shape(),
                        tensor.shape()
                    ),
                ));
            }
        }
        Ok(())
    }
}
