//! Sequences of several lengths (`torch.nn.utils.rnn`).

use fireclay_tensor::{Error, Result, Scalar, Tensor, as_one_call};

/// Sequences of several lengths, time step by time step without padding (`torch.nn.utils.rnn.PackedSequence`).
#[derive(Clone, Debug)]
pub struct PackedSequence {
    data: Tensor,
    batch_sizes: Vec<usize>,
    sorted_indices: Option<Tensor>,
    unsorted_indices: Option<Tensor>,
}

impl PackedSequence {
    /// Rows `[sum of lengths, ..]`: those of step 0 of all sequences, the longest first, then those of step 1, and so on.
    pub fn data(&self) -> &Tensor {
        &self.data
    }

    /// How many sequences have each step.
    pub fn batch_sizes(&self) -> &[usize] {
        &self.batch_sizes
    }

    /// For each place the number that the sequence had before sorting; None if they came sorted.
    pub fn sorted_indices(&self) -> Option<&Tensor> {
        self.sorted_indices.as_ref()
    }

    /// For each sequence as it came its place after sorting; None if they came sorted.
    pub fn unsorted_indices(&self) -> Option<&Tensor> {
        self.unsorted_indices.as_ref()
    }

    /// The same arrangement of other rows.
    pub(crate) fn with_data(&self, data: Tensor) -> PackedSequence {
        PackedSequence {
            data,
            ..self.clone()
        }
    }

    /// The lengths, the longest first.
    fn lengths(&self) -> Vec<usize> {
        let batch = self.batch_sizes.first().copied().unwrap_or(0);
        let mut lengths = vec![0; batch];
        for &size in &self.batch_sizes {
            for length in &mut lengths[..size] {
                *length += 1;
            }
        }
        lengths
    }
}

/// On which side padding stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PaddingSide {
    /// After the sequence.
    #[default]
    Right,
    /// Before it.
    Left,
}

/// The rows of `tensor` at these places.
fn rows(tensor: &Tensor, places: &[usize]) -> Result<Tensor> {
    let places: Vec<i64> = places.iter().map(|&place| place as i64).collect();
    let places = Tensor::from_slice(&places, &[places.len()], "cpu")?.to(tensor.device())?;
    tensor.index_select(0, &places)
}

/// Sizes as `reshape` takes them.
fn signed(sizes: &[usize]) -> Vec<isize> {
    let signed = |&size: &usize| isize::try_from(size).unwrap_or(isize::MAX);
    sizes.iter().map(signed).collect()
}

fn batch_sizes(lengths: &[usize]) -> Vec<usize> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    (0..longest)
        .map(|time| lengths.iter().filter(|&&length| length > time).count())
        .collect()
}

/// Packs padded sequences `[time, batch, ..]`, or `[batch, time, ..]` with `batch_first`, of these lengths
/// (`torch.nn.utils.rnn.pack_padded_sequence`). With `enforce_sorted` the longest must come first; without, they are sorted, and
/// what a network gives is put back in order.
///
/// # Errors
/// If a length is 0 or more than there are steps, if there are more or fewer lengths than sequences, or if the lengths rise though
/// `enforce_sorted`.
#[track_caller]
pub fn pack_padded_sequence(
    input: &Tensor,
    lengths: &[usize],
    batch_first: bool,
    enforce_sorted: bool,
) -> Result<PackedSequence> {
    const OP: &str = "pack_padded_sequence";
    let operands = || vec![input.operand("input")];
    if input.ndim() < 2 {
        let what = format!("expected an input [time, batch, ..], got {}", input.shape());
        return Err(Error::shape(OP, what).with_operands(operands));
    }
    let (time, batch) = match batch_first {
        true => (input.shape()[1], input.shape()[0]),
        false => (input.shape()[0], input.shape()[1]),
    };
    if lengths.len() != batch || batch == 0 {
        let what = format!(
            "{} lengths for {batch} sequences, expected as many, at least one",
            lengths.len()
        );
        return Err(Error::argument(OP, what).with_operands(operands));
    }
    if let Some(place) = (lengths.iter()).position(|&length| length == 0 || length > time) {
        let what = format!(
            "lengths must be from 1 to {time}, number {place} is {}",
            lengths[place]
        );
        return Err(Error::argument(OP, what).with_operands(operands));
    }
    let rises = lengths.windows(2).position(|pair| pair[0] < pair[1]);
    if let (true, Some(place)) = (enforce_sorted, rises) {
        let what = format!(
            "lengths must fall with enforce_sorted, number {place} is {} and number {} is {}",
            lengths[place],
            place + 1,
            lengths[place + 1]
        );
        return Err(Error::argument(OP, what).with_hint("set enforce_sorted to false"));
    }
    as_one_call(|| {
        let mut order: Vec<usize> = (0..batch).collect();
        order.sort_by_key(|&sequence| std::cmp::Reverse(lengths[sequence]));
        let sorted: Vec<usize> = order.iter().map(|&sequence| lengths[sequence]).collect();
        let batch_sizes = batch_sizes(&sorted);
        let mut places = Vec::new();
        for (time_step, &size) in batch_sizes.iter().enumerate() {
            places.extend(order[..size].iter().map(|&sequence| match batch_first {
                true => sequence * time + time_step,
                false => time_step * batch + sequence,
            }));
        }
        let data = rows(&input.flatten(0, 1)?, &places)?;
        let indices = |numbers: &[usize]| {
            let numbers: Vec<i64> = numbers.iter().map(|&number| number as i64).collect();
            Tensor::from_slice(&numbers, &[batch], "cpu")?.to(input.device())
        };
        let (sorted_indices, unsorted_indices) = match enforce_sorted {
            true => (None, None),
            false => {
                let mut inverse = vec![0; batch];
                for (place, &sequence) in order.iter().enumerate() {
                    inverse[sequence] = place;
                }
                (Some(indices(&order)?), Some(indices(&inverse)?))
            }
        };
        Ok(PackedSequence {
            data,
            batch_sizes,
            sorted_indices,
            unsorted_indices,
        })
    })
}

/// Sequences and their lengths from packed ones (`torch.nn.utils.rnn.pad_packed_sequence`): `[time, batch, ..]`, or
/// `[batch, time, ..]` with `batch_first`, as many steps as the longest has, or `total_length`; `padding_value` stands after their ends.
///
/// # Errors
/// If `total_length` is less than the longest sequence.
#[track_caller]
pub fn pad_packed_sequence(
    sequence: &PackedSequence,
    batch_first: bool,
    padding_value: impl Into<Scalar>,
    total_length: Option<usize>,
) -> Result<(Tensor, Vec<usize>)> {
    const OP: &str = "pad_packed_sequence";
    let longest = sequence.batch_sizes.len();
    let time = total_length.unwrap_or(longest);
    if time < longest {
        let what = format!("total_length is {time}, the longest sequence has {longest} steps");
        return Err(Error::argument(OP, what));
    }
    let padding_value = padding_value.into();
    as_one_call(|| {
        let lengths = sequence.lengths();
        let batch = lengths.len();
        let starts: Vec<usize> = (sequence.batch_sizes.iter())
            .scan(0, |start, &size| {
                *start += size;
                Some(*start - size)
            })
            .collect();
        let order: Vec<usize> = match &sequence.unsorted_indices {
            None => (0..batch).collect(),
            Some(order) => order
                .to_vec::<i64>()?
                .into_iter()
                .map(|place| place as usize)
                .collect(),
        };
        let total = sequence.data.shape()[0];
        let place = |time: usize, number: usize| match starts.get(time) {
            Some(start) if lengths[order[number]] > time => start + order[number],
            _ => total,
        };
        let cells = time.checked_mul(batch).filter(|&cells| cells < 1 << 48);
        if cells.is_none() {
            let what = format!("a total_length of {time} is too large");
            return Err(Error::argument(OP, what));
        }
        let places: Vec<usize> = match batch_first {
            true => (0..batch)
                .flat_map(|number| (0..time).map(move |time| (time, number)))
                .map(|(time, number)| place(time, number))
                .collect(),
            false => (0..time)
                .flat_map(|time| (0..batch).map(move |number| (time, number)))
                .map(|(time, number)| place(time, number))
                .collect(),
        };
        let tail = &sequence.data.shape()[1..];
        let lead = match batch_first {
            true => [batch, time],
            false => [time, batch],
        };
        let padded = padded_rows(&sequence.data, padding_value, &places)?;
        let padded = padded.reshape(&signed(&[&lead[..], tail].concat()))?;
        let lengths = order.iter().map(|&place| lengths[place]).collect();
        Ok((padded, lengths))
    })
}

/// Rows of `data` at `places`; the place after its last row is a row of padding.
fn padded_rows(data: &Tensor, padding: Scalar, places: &[usize]) -> Result<Tensor> {
    let mut shape = data.shape().to_vec();
    shape[0] = 1;
    let padding = Tensor::full(&shape, padding, data.device())?.to_dtype(data.dtype())?;
    rows(&Tensor::cat(&[data, &padding], 0)?, places)
}

/// Sequences `[length, ..]` of several lengths as one tensor `[time, batch, ..]`, or `[batch, time, ..]` with `batch_first`
/// (`torch.nn.utils.rnn.pad_sequence`).
///
/// # Errors
/// If there is no sequence, or they differ in more than their lengths.
#[track_caller]
pub fn pad_sequence(
    sequences: &[&Tensor],
    batch_first: bool,
    padding_value: impl Into<Scalar>,
    padding_side: PaddingSide,
) -> Result<Tensor> {
    let padding_value = padding_value.into();
    let lengths = same_rows("pad_sequence", sequences)?;
    as_one_call(|| {
        let data = Tensor::cat(sequences, 0)?;
        let (total, batch) = (data.shape()[0], lengths.len());
        let time = lengths.iter().copied().max().unwrap_or(0);
        let mut start = 0;
        let mut places = vec![total; time * batch];
        for (number, &length) in lengths.iter().enumerate() {
            let skipped = match padding_side {
                PaddingSide::Right => 0,
                PaddingSide::Left => time - length,
            };
            for step in 0..length {
                let cell = match batch_first {
                    true => number * time + skipped + step,
                    false => (skipped + step) * batch + number,
                };
                places[cell] = start + step;
            }
            start += length;
        }
        let lead = match batch_first {
            true => [batch, time],
            false => [time, batch],
        };
        let sizes = signed(&[&lead[..], &data.shape()[1..]].concat());
        padded_rows(&data, padding_value, &places)?.reshape(&sizes)
    })
}

/// Packs sequences `[length, ..]` (`torch.nn.utils.rnn.pack_sequence`); see [`pack_padded_sequence`].
#[track_caller]
pub fn pack_sequence(sequences: &[&Tensor], enforce_sorted: bool) -> Result<PackedSequence> {
    let lengths = same_rows("pack_sequence", sequences)?;
    as_one_call(|| {
        let padded = pad_sequence(sequences, false, 0.0, PaddingSide::Right)?;
        pack_padded_sequence(&padded, &lengths, false, enforce_sorted)
    })
}

/// The sequences of a padded batch (`torch.nn.utils.rnn.unpad_sequence`).
#[track_caller]
pub fn unpad_sequence(
    padded: &Tensor,
    lengths: &[usize],
    batch_first: bool,
) -> Result<Vec<Tensor>> {
    let (of_batch, of_time) = if batch_first { (0, 1) } else { (1, 0) };
    if padded.ndim() < 2 || padded.shape()[of_batch] != lengths.len() {
        let what = format!(
            "{} lengths don't fit padded sequences of shape {}",
            lengths.len(),
            padded.shape()
        );
        return Err(Error::shape("unpad_sequence", what)
            .with_operands(|| vec![padded.operand("padded_sequences")]));
    }
    if let Some(length) = lengths
        .iter()
        .find(|&&length| length > padded.shape()[of_time])
    {
        let what = format!(
            "a length of {length} is more than the {} steps",
            padded.shape()[of_time]
        );
        return Err(Error::argument("unpad_sequence", what));
    }
    let sequence = |(number, &length): (usize, &usize)| {
        let sequence = padded.select(of_batch as isize, number as isize)?;
        sequence.narrow(0, 0, length)
    };
    as_one_call(|| lengths.iter().enumerate().map(sequence).collect())
}

/// The sequences of a packed batch, in the order in which they came (`torch.nn.utils.rnn.unpack_sequence`).
#[track_caller]
pub fn unpack_sequence(packed: &PackedSequence) -> Result<Vec<Tensor>> {
    as_one_call(|| {
        let (padded, lengths) = pad_packed_sequence(packed, false, 0.0, None)?;
        unpad_sequence(&padded, &lengths, false)
    })
}

/// The lengths of sequences that differ in nothing else.
#[track_caller]
fn same_rows(op: &'static str, sequences: &[&Tensor]) -> Result<Vec<usize>> {
    let Some(first) = sequences.first() else {
        return Err(Error::argument(op, "expected at least one sequence"));
    };
    for (number, sequence) in sequences.iter().enumerate() {
        if sequence.ndim() == 0 || sequence.shape()[1..] != first.shape()[1.min(first.ndim())..] {
            let what = format!(
                "sequences may differ in their first dimension only, number 0 is {}, number {number} {}",
                first.shape(),
                sequence.shape()
            );
            return Err(Error::shape(op, what).with_operands(|| {
                vec![
                    first.operand("sequence 0"),
                    sequence.operand(format!("sequence {number}")),
                ]
            }));
        }
    }
    Ok(sequences
        .iter()
        .map(|sequence| sequence.shape()[0])
        .collect())
}
