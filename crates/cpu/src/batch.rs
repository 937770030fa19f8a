//! The same work on each part of a batch: matrices of a stack.

use std::sync::Mutex;

use crate::parallel;
use crate::vectorize::Parts;

/// Runs `work` on the `count` equal parts of inputs and outputs, `grain` of them in a task.
///
/// # Errors
/// The number of the first part whose work fails, and why. Outputs are unspecified then.
///
/// # Panics
/// If a slice has no `count` equal parts.
pub fn for_each<T: Copy + Send + Sync, E: Send>(
    count: usize,
    grain: usize,
    inputs: &[&[T]],
    outputs: Vec<&mut [T]>,
    work: impl Fn(&[&[T]], &mut [&mut [T]]) -> Result<(), E> + Sync,
) -> Result<(), (usize, E)> {
    if count == 0 {
        return Ok(());
    }
    let len_of = |len: usize| {
        assert!(len.is_multiple_of(count), "parts of a batch are equal");
        len / count
    };
    let inputs: Vec<(&[T], usize)> = (inputs.iter())
        .map(|input| (*input, len_of(input.len())))
        .collect();
    let outputs: Vec<(Parts<'_, T>, usize)> = (outputs.into_iter())
        .map(|output| {
            let len = len_of(output.len());
            (Parts::new(output), len)
        })
        .collect();
    let failed: Mutex<Option<(usize, E)>> = Mutex::new(None);
    parallel::for_ranges(count, grain.max(1), |range| {
        for number in range {
            let inputs: Vec<&[T]> = (inputs.iter())
                .map(|&(input, len)| &input[number * len..][..len])
                .collect();
            let mut outputs: Vec<&mut [T]> = (outputs.iter())
                // SAFETY: each part belongs to one task, and each output is there once.
                .map(|(output, len)| unsafe { output.part(number * len, *len) })
                .collect();
            if let Err(error) = work(&inputs, &mut outputs) {
                let mut failed = failed.lock().unwrap_or_else(|lock| lock.into_inner());
                if failed.as_ref().is_none_or(|(first, _)| number < *first) {
                    *failed = Some((number, error));
                }
                return;
            }
        }
    });
    match failed.into_inner().unwrap_or_else(|lock| lock.into_inner()) {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}
