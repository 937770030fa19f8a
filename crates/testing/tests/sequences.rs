//! Checkpoints, and networks over sequences of several lengths.

use fireclay_nn::rnn::{
    PaddingSide, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence,
    unpack_sequence,
};
use fireclay_nn::{LSTM, LSTMConfig, Linear, Module, ModuleExt};
use fireclay_tensor::{
    Backpropagation, Tensor, checkpoint, default_generator, fork_rng, grad, grad_with, manual_seed,
};

fn bits(tensor: &Tensor) -> Vec<u8> {
    tensor.to_bytes().unwrap()
}

/// Ticks up to 1 from a row's number, so that no two rows are the same.
fn rows(length: usize, seed: usize) -> Tensor {
    let numbers: Vec<f32> = (0..length * 3)
        .map(|number| ((number * 7 + seed * 5) % 11) as f32 / 5.0 - 1.0)
        .collect();
    Tensor::from_slice(&numbers, &[length, 3], "cpu").unwrap()
}

#[test]
fn a_checkpoint_has_the_bits_of_the_plain_function() {
    let inner = std::sync::Arc::new(Linear::new(3, 3).unwrap());
    let x = rows(4, 0).requires_grad_(true).unwrap();
    let layers = inner.clone();
    let part = move |inputs: &[Tensor]| {
        let y = layers.forward(&inputs[0])?.tanh()?.dropout(0.5, true)?;
        Ok(vec![y.mul(&inputs[0])?, y])
    };
    let run = |kind| {
        manual_seed(3);
        x.zero_grad();
        inner.zero_grad();
        let outputs = match kind {
            0 => part(std::slice::from_ref(&x)).unwrap(),
            1 => checkpoint(&[&x], part.clone()).unwrap(),
            _ => {
                let part = part.clone();
                checkpoint(&[&x], move |inputs| checkpoint(&[&inputs[0]], part.clone())).unwrap()
            }
        };
        let after = default_generator().state();
        let loss = outputs[0].add(&outputs[1]).unwrap().sum_all().unwrap();
        loss.backward().unwrap();
        assert_eq!(default_generator().state(), after);
        let mut all = vec![bits(&loss), bits(&x.grad().unwrap())];
        for parameter in inner.parameters() {
            all.push(bits(&parameter.grad().unwrap()));
        }
        all
    };
    let seen = fork_rng(|| [0, 1, 2].map(run));
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

#[test]
fn gradients_through_a_checkpoint_can_be_asked_for_and_differentiated() {
    let x = rows(2, 1).requires_grad_(true).unwrap();
    let w = rows(2, 2).requires_grad_(true).unwrap();
    let captured = w.clone();
    let before = w.exp().unwrap();
    let node = before.clone();
    let part = move |inputs: &[Tensor]| {
        let y = inputs[0].mul(&captured)?.sin()?;
        Ok(vec![y.mul(&node)?.sum_all()?])
    };
    let options = Backpropagation {
        create_graph: true,
        ..Backpropagation::default()
    };
    let mut seen = Vec::new();
    for plain in [true, false] {
        let y = match plain {
            true => part(std::slice::from_ref(&x)).unwrap(),
            false => checkpoint(&[&x], part.clone()).unwrap(),
        };
        let first = grad_with(&[&y[0]], &[None], &[&x, &w], options).unwrap();
        let sum = first[0].as_ref().unwrap().square().unwrap();
        let sum = sum.sum_all().unwrap();
        let second = grad_with(&[&sum], &[None], &[&x, &w], options).unwrap();
        let all = first.iter().chain(&second).flatten();
        seen.push(all.map(bits).collect::<Vec<_>>());
    }
    assert_eq!(seen[0].len(), 4);
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn hooks_outside_of_a_checkpoint_run_once() {
    let x = rows(2, 1).requires_grad_(true).unwrap();
    let w = rows(2, 2).requires_grad_(true).unwrap();
    w.register_hook(|grad| grad.mul(2.0).map(Some)).unwrap();
    let captured = w.clone();
    let y = checkpoint(&[&x], move |inputs| {
        Ok(vec![inputs[0].mul(&captured)?.sum_all()?])
    });
    y.unwrap()[0].backward().unwrap();
    assert_eq!(bits(&w.grad().unwrap()), bits(&x.mul(2.0).unwrap()));
}

#[test]
fn a_checkpoint_that_changes_is_an_error() {
    let x = rows(2, 1).requires_grad_(true).unwrap();
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let y = checkpoint(&[&x], move |inputs| {
        let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(vec![inputs[0].sum(&[call as isize], false)?])
    });
    let y = y.unwrap().remove(0).sum_all().unwrap();
    let text = grad(&[&y], &[&x]).unwrap_err().to_string();
    assert!(
        text.contains("checkpoint") && text.contains("[2]"),
        "{text}"
    );
    let z = rows(2, 1);
    let error = checkpoint(&[&z], |inputs| Ok(vec![inputs[0].zero_()?]));
    assert!(error.unwrap_err().to_string().contains("in place"));
}

#[test]
fn packed_sequences_give_what_each_sequence_alone_gives() {
    let sequences = [rows(2, 0), rows(4, 1), rows(1, 2)];
    let sequences: Vec<&Tensor> = sequences.iter().collect();
    let packed = pack_sequence(&sequences, false).unwrap();
    assert_eq!(packed.batch_sizes(), [3, 2, 1, 1]);
    for (back, sequence) in unpack_sequence(&packed).unwrap().iter().zip(&sequences) {
        assert_eq!(bits(back), bits(&sequence.contiguous().unwrap()));
    }
    let config = LSTMConfig {
        num_layers: 2,
        bidirectional: true,
        ..LSTMConfig::default()
    };
    let lstm = LSTM::with(3, 5, config).unwrap();
    let (outputs, (h, c)) = lstm.forward_packed(&packed, None).unwrap();
    let (padded, lengths) = pad_packed_sequence(&outputs, true, -9.0, Some(6)).unwrap();
    assert_eq!(lengths, [2, 4, 1]);
    assert_eq!(padded.shape()[..], [3, 6, 10]);
    let near = |left: &Tensor, right: &Tensor| {
        let largest = left.sub(right).unwrap().abs().unwrap();
        assert!(largest.amax(&[], false).unwrap().item().unwrap() < 1e-6);
    };
    for (number, sequence) in sequences.iter().enumerate() {
        let (alone, (h_alone, c_alone)) = lstm.forward(sequence, None).unwrap();
        let row = padded.select(0, number as isize).unwrap();
        let length = lengths[number];
        near(&row.narrow(0, 0, length).unwrap(), &alone);
        let rest = row.narrow(0, length, 6 - length).unwrap();
        assert!(rest.to_vec::<f32>().unwrap().iter().all(|&x| x == -9.0));
        near(&h.select(1, number as isize).unwrap(), &h_alone);
        near(&c.select(1, number as isize).unwrap(), &c_alone);
    }
    let left = pad_sequence(&sequences, true, 0.5, PaddingSide::Left).unwrap();
    assert_eq!(left.shape()[..], [3, 4, 3]);
    let error = pack_padded_sequence(&left, &[2, 4, 1], true, true).unwrap_err();
    assert!(error.to_string().contains("enforce_sorted"), "{error}");
}

/// The most bytes that forward and backward of `depth` parts took above what was there before, on the virtual GPU.
fn peak(depth: usize, checkpointed: bool) -> u64 {
    let device = fireclay_testing::devices::virtual_cuda();
    let x = Tensor::ones(&[4096], device).unwrap();
    let x = x.requires_grad_(true).unwrap();
    fireclay_cuda::surface::reset_peak_memory_stats(device).unwrap();
    let before = fireclay_cuda::surface::memory_allocated(device).unwrap();
    let part = |inputs: &[Tensor]| {
        let mut y = inputs[0].clone();
        for _ in 0..8 {
            y = y.sin()?;
        }
        Ok(vec![y])
    };
    let mut y = x.clone();
    for _ in 0..depth {
        y = match checkpointed {
            true => checkpoint(&[&y], part).unwrap().remove(0),
            false => part(&[y]).unwrap().remove(0),
        };
    }
    let held = fireclay_cuda::surface::memory_allocated(device).unwrap() - before;
    y.sum_all().unwrap().backward().unwrap();
    drop(y);
    let peak = fireclay_cuda::surface::max_memory_allocated(device).unwrap() - before;
    assert!(x.grad().is_some() && held <= peak);
    peak
}

#[test]
fn a_checkpoint_frees_what_lies_inside() {
    let (plain, checkpointed) = (peak(8, false), peak(8, true));
    // Plain: 64 results of 16 KiB. Checkpointed: 8 between the parts, and the 8 of one part.
    assert!(plain >= 64 * 16384, "{plain}");
    assert!(checkpointed <= 22 * 16384, "{checkpointed} of {plain}");
}
