//! Reads the example of a row: a call that works, as text.
//!
//! An example is `name=value` for each argument given, separated by blanks. Values:
//!
//! - numbers, `True`, `False`, `None`, strings in double quotes, as in a signature; a dtype without quotes;
//! - a tensor is its shape, `[3,4]`, `[]` without dimensions: normal numbers, none near a multiple of 1/2, where steps and
//!   kinks are. A word before the shape asks for other elements: see [`Fill`];
//! - lists: of tensors in parentheses, `([2,3],[3])`; of all else in brackets. Where the signature takes no tensor, brackets
//!   are a list: `dim=[0,1]`;
//! - in an index, `...` and `1:3`; several in parentheses, where a tensor has a word: `(1:3,index<4[2])`.
//!
//! Elements are a function of the seed alone.

use fireclay_core::philox::PhiloxStream;
use fireclay_core::{DType, Device, Error, Result};

use super::signature::literal;
use super::{Entry, Kind, Value};
use crate::tensor::Tensor;

impl Entry {
    /// The arguments of the row's example: floating tensors have the dtype `dtype` (whole numbers away from 0, if it isn't a
    /// floating one), all tensors are on `device`. Their elements depend on `seed` alone.
    ///
    /// # Errors
    /// If the example is malformed, or `device` can't hold `dtype`.
    pub fn example_arguments(
        &self,
        device: Device,
        dtype: DType,
        seed: u64,
    ) -> Result<Vec<(&'static str, Value)>> {
        self.read_arguments(self.example, device, dtype, seed)
    }

    /// The arguments that `text` writes, in the language of examples; as [`example_arguments`](Entry::example_arguments) else.
    ///
    /// # Errors
    /// If the text is malformed or names a parameter that there isn't, or `device` can't hold `dtype`.
    pub fn read_arguments(
        &self,
        text: &str,
        device: Device,
        dtype: DType,
        seed: u64,
    ) -> Result<Vec<(&'static str, Value)>> {
        let mut reader = Reader {
            device,
            dtype,
            stream: PhiloxStream::new(seed, 0),
            drawn: 0,
        };
        let arguments = parts(text, ' ').into_iter().map(|part| {
            let parameter = part
                .split_once('=')
                .and_then(|(name, written)| Some((self.parameter(name)?, written)));
            let Some((parameter, written)) = parameter else {
                return Err(self.malformed(part, text));
            };
            let value = reader.value(written, parameter.kind)?;
            let value = value.ok_or_else(|| self.malformed(part, text))?;
            Ok((parameter.name, value))
        });
        arguments.collect()
    }

    fn malformed(&self, part: &str, text: &str) -> Error {
        let what = format!("\"{part}\" is no argument in \"{text}\"");
        Error::argument(self.name, what).with_hint(format!("its signature is {}", self.signature))
    }
}

/// Parts at `separator` that stand in no brackets, parentheses or quotes.
fn parts(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut depth, mut quoted, mut start) = (Vec::new(), 0, false, 0);
    for (place, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            letter if letter == separator && depth == 0 => {
                parts.push(&text[start..place]);
                start = place + separator.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.is_empty());
    parts
}

fn inside(text: &str, open: char, close: char) -> Option<&str> {
    text.strip_prefix(open)?.strip_suffix(close)
}

/// What the elements of a tensor are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fill {
    /// `normal`, or no word: normal, none within 0.02 of a multiple of 1/2.
    Normal,
    /// `positive`: from 0.1 to 2.6.
    Positive,
    /// `above1`: from 1.1 to 3.6.
    Above1,
    /// `unit`: from -0.9 to 0.9.
    Unit,
    /// `prob`: from 0.05 to 0.95.
    Prob,
    /// `distinct`: in random order, 0.06 apart or more, none within 0.02 of a multiple of 1/2.
    Distinct,
    /// `sorted`: rising.
    Sorted,
    /// `spd`: symmetric, positive definite matrices.
    Spd,
    /// `int`: i64 from -5 to 5.
    Int,
    /// `index<n`: i64 from 0 to n - 1, none a second time before each was there once.
    Index(usize),
    /// `bool`.
    Bool,
}

impl Fill {
    fn named(word: &str) -> Option<Fill> {
        Some(match word {
            "" | "normal" => Fill::Normal,
            "positive" => Fill::Positive,
            "above1" => Fill::Above1,
            "unit" => Fill::Unit,
            "prob" => Fill::Prob,
            "distinct" => Fill::Distinct,
            "sorted" => Fill::Sorted,
            "spd" => Fill::Spd,
            "int" => Fill::Int,
            "bool" => Fill::Bool,
            word => Fill::Index(word.strip_prefix("index<")?.parse().ok()?),
        })
    }
}

/// Makes the values of one example, in order.
struct Reader {
    device: Device,
    dtype: DType,
    stream: PhiloxStream,
    /// How many numbers were drawn.
    drawn: u64,
}

impl Reader {
    /// The value that `text` writes for a parameter of type `kind`; None if it writes none.
    fn value(&mut self, text: &str, kind: Kind) -> Result<Option<Value>> {
        let takes_tensors = matches!(kind, Kind::Tensor | Kind::Tensors | Kind::Operand);
        if let Some(items) = inside(text, '(', ')') {
            let kind = match kind {
                Kind::Any => Kind::Any,
                _ => Kind::Tensor,
            };
            return self.list(items, kind);
        }
        if let Some((word, size)) = text.strip_suffix(']').and_then(|text| text.split_once('['))
            && (!word.is_empty() || takes_tensors)
        {
            let shape = parts(size, ',').into_iter().map(str::parse);
            return match (Fill::named(word), shape.collect::<Result<Vec<_>, _>>()) {
                (Some(fill), Ok(shape)) => self.tensor(fill, &shape),
                _ => Ok(None),
            };
        }
        if let Some(items) = inside(text, '[', ']') {
            return self.list(items, kind);
        }
        Ok(match (literal(text), kind) {
            (Some(value), _) => Some(value),
            (None, Kind::DType | Kind::Device) => Some(text.into()),
            (None, Kind::Any) if text == "..." => Some(Value::Ellipsis),
            (None, Kind::Any) => slice(text),
            (None, _) => None,
        })
    }

    fn list(&mut self, items: &str, kind: Kind) -> Result<Option<Value>> {
        let items = parts(items, ',').into_iter();
        let items = items.map(|item| self.value(item, kind));
        let items = items.collect::<Result<Option<Vec<Value>>>>()?;
        Ok(items.map(Value::List))
    }

    fn tensor(&mut self, fill: Fill, shape: &[usize]) -> Result<Option<Value>> {
        let count = shape.iter().product();
        let whole: Vec<i64> = match fill {
            Fill::Int => (0..count).map(|_| self.below(11) as i64 - 5).collect(),
            Fill::Bool => (0..count).map(|_| self.below(2) as i64).collect(),
            Fill::Index(0) if count > 0 => return Ok(None),
            Fill::Index(bound) => {
                let mut places = Vec::new();
                while places.len() < count {
                    places.extend(self.shuffled(bound));
                }
                places.truncate(count);
                places.into_iter().map(|place| place as i64).collect()
            }
            fill => {
                let Some(mut numbers) = self.numbers(fill, shape) else {
                    return Ok(None);
                };
                if !self.dtype.is_floating_point() {
                    for number in &mut numbers {
                        *number = number.abs().ceil().copysign(*number);
                    }
                }
                let made = Tensor::from_slice(&numbers, shape, Device::Cpu)?;
                return Ok(Some(made.to_dtype(self.dtype)?.to(self.device)?.into()));
            }
        };
        let made = Tensor::from_slice(&whole, shape, Device::Cpu)?;
        let dtype = match fill {
            Fill::Bool => DType::Bool,
            _ => DType::I64,
        };
        Ok(Some(made.to_dtype(dtype)?.to(self.device)?.into()))
    }

    /// The elements of a floating tensor; None if the shape has no matrices of the kind asked for.
    fn numbers(&mut self, fill: Fill, shape: &[usize]) -> Option<Vec<f64>> {
        let count: usize = shape.iter().product();
        Some(match fill {
            Fill::Positive => self.uniform(count, 0.1, 2.6),
            Fill::Above1 => self.uniform(count, 1.1, 3.6),
            Fill::Unit => self.uniform(count, -0.9, 0.9),
            Fill::Prob => self.uniform(count, 0.05, 0.95),
            Fill::Distinct => {
                let middle = (count / 2) as f64;
                let places = self.shuffled(count).into_iter();
                let number = |place| (place as f64 - middle) * 0.1 + 0.05;
                let shifts = self.uniform(count, -0.02, 0.02).into_iter();
                places
                    .map(number)
                    .zip(shifts)
                    .map(|(number, shift)| number + shift)
                    .collect()
            }
            Fill::Sorted => {
                let mut numbers: Vec<f64> = (0..count).map(|_| self.smooth()).collect();
                numbers.sort_by(f64::total_cmp);
                numbers
            }
            Fill::Spd => {
                let (&[.., rows, size], true) = (shape, shape.len() >= 2) else {
                    return None;
                };
                if rows != size {
                    return None;
                }
                let factors: Vec<f64> = (0..count).map(|_| self.normal()).collect();
                spd(&factors, size)
            }
            _ => (0..count).map(|_| self.smooth()).collect(),
        })
    }

    /// A normal number, none near a multiple of 1/2.
    fn smooth(&mut self) -> f64 {
        loop {
            let number = self.normal();
            if (number - (number * 2.0).round() / 2.0).abs() > 0.02 {
                return number;
            }
        }
    }

    fn uniform(&mut self, count: usize, low: f64, high: f64) -> Vec<f64> {
        let one = |_| {
            let next = self.next();
            low + (high - low) * self.stream.uniform_f64(next)
        };
        (0..count).map(one).collect()
    }

    fn normal(&mut self) -> f64 {
        let next = self.next();
        self.stream.normal_f64(next)
    }

    fn below(&mut self, bound: usize) -> usize {
        let next = self.next();
        self.stream.bounded(next, bound as u64) as usize
    }

    /// 0 to `count - 1` in random order.
    fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut places: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            let other = self.below(last + 1);
            places.swap(last, other);
        }
        places
    }

    fn next(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }
}

/// F F' + I for each matrix F of `size` rows and columns.
fn spd(factors: &[f64], size: usize) -> Vec<f64> {
    let mut products = Vec::with_capacity(factors.len());
    for matrix in factors.chunks_exact((size * size).max(1)) {
        for row in 0..size {
            for column in 0..size {
                let (left, right) = (&matrix[row * size..], &matrix[column * size..]);
                let dot: f64 = (0..size).map(|place| left[place] * right[place]).sum();
                products.push(dot + if row == column { 1.0 } else { 0.0 });
            }
        }
    }
    products
}

/// `start:stop:step`, each of which may be absent.
fn slice(text: &str) -> Option<Value> {
    let mut bounds = [None; 3];
    let written: Vec<&str> = text.split(':').collect();
    if !(2..=3).contains(&written.len()) {
        return None;
    }
    for (bound, text) in bounds.iter_mut().zip(written) {
        if !text.is_empty() {
            *bound = Some(text.parse().ok()?);
        }
    }
    Some(Value::Slice(bounds))
}

#[cfg(test)]
mod tests {
    use fireclay_core::Scalar;

    use super::super::entries;
    use super::*;

    fn read(text: &str, kind: Kind) -> Value {
        let mut reader = Reader {
            device: Device::Cpu,
            dtype: DType::F64,
            stream: PhiloxStream::new(1, 0),
            drawn: 0,
        };
        let value = reader.value(text, kind).unwrap();
        value.unwrap_or_else(|| panic!("{text} is no value"))
    }

    #[test]
    fn values_are_read() {
        let told = |text, kind| read(text, kind).to_string();
        for same in ["None", "True", "-3", "2.5", "\"a, b=[1\""] {
            assert_eq!(told(same, Kind::Any), same);
        }
        assert_eq!(told("[0,-1]", Kind::Ints), "[0, -1]");
        assert_eq!(told("[[2,1],[0,1]]", Kind::Any), "[[2, 1], [0, 1]]");
        assert_eq!(
            told("[...,1:,:2:3,None]", Kind::Any),
            "[..., 1::, :2:3, None]"
        );
        assert_eq!(told("float64", Kind::DType), "\"float64\"");
        assert_eq!(told("[]", Kind::Operand), "a tensor of f64[]");
        assert_eq!(
            told("([2,3],bool[3])", Kind::Tensors),
            "[a tensor of f64[2, 3], a tensor of bool[3]]"
        );
    }

    #[test]
    fn elements_are_as_asked_for() {
        let numbers = |text| -> Vec<f64> {
            let value = read(text, Kind::Tensor);
            let wide = value.tensor().unwrap().to_dtype(DType::F64).unwrap();
            wide.to_vec().unwrap()
        };
        let within = |text, low: f64, high: f64| {
            numbers(text)
                .iter()
                .all(|&number| (low..=high).contains(&number))
        };
        assert!(within("positive[50]", 0.1, 2.6) && within("prob[50]", 0.05, 0.95));
        assert!(within("above1[50]", 1.1, 3.6));
        assert!(within("unit[50]", -0.9, 0.9) && within("index<4[50]", 0.0, 3.0));
        let mut places = numbers("index<9[9]");
        places.sort_by(f64::total_cmp);
        assert_eq!(places, (0..9).map(f64::from).collect::<Vec<_>>());
        let mut distinct = numbers("distinct[60]");
        distinct.sort_by(f64::total_cmp);
        assert!(distinct.windows(2).all(|pair| pair[1] - pair[0] > 0.05));
        for text in ["[60]", "distinct[60]"] {
            let smooth = |number: &f64| (number * 2.0 - (number * 2.0).round()).abs() > 0.04;
            assert!(numbers(text).iter().all(smooth), "{text}");
        }
        let spd = numbers("spd[2,2]");
        assert!(spd[1] == spd[2] && spd[0] * spd[3] > spd[1] * spd[2] && spd[0] > 0.0);
    }

    #[test]
    fn draws_depend_on_the_seed_alone_and_whole_ones_are_not_0() {
        let entry = entries().iter().find(|entry| entry.name == "add").unwrap();
        let draw = |dtype, seed| -> Vec<Vec<u8>> {
            let arguments = entry.example_arguments(Device::Cpu, dtype, seed).unwrap();
            let tensors = arguments.iter().filter_map(|(_, value)| value.tensor());
            tensors.map(|tensor| tensor.to_bytes().unwrap()).collect()
        };
        assert_eq!(draw(DType::F32, 3), draw(DType::F32, 3));
        assert_ne!(draw(DType::F32, 3), draw(DType::F32, 4));
        let whole = entry.example_arguments(Device::Cpu, DType::I32, 0).unwrap();
        let other = whole[1].1.tensor().unwrap();
        assert_eq!(other.dtype(), DType::I32);
        assert!(
            other
                .to_vec::<i32>()
                .unwrap()
                .iter()
                .all(|&number| number > 0)
        );
        assert_eq!(whole[2].1.number(), Some(Scalar::I64(2)));
    }

    #[test]
    fn every_example_runs() {
        for entry in entries() {
            let arguments = entry
                .example_arguments(Device::Cpu, DType::F64, 0)
                .unwrap_or_else(|error| panic!("{error}"));
            let outputs = entry.call(&arguments);
            let outputs = outputs.unwrap_or_else(|error| panic!("{}: {error}", entry.example));
            for output in outputs {
                let numbers: Vec<f64> = output.to_dtype(DType::F64).unwrap().to_vec().unwrap();
                let defined = numbers.iter().all(|number| !number.is_nan());
                assert!(defined, "{} is NaN at {}", entry.name, entry.example);
            }
        }
    }
}
