//! What a graph holds is given back: memory after training-like work is what it was before, and running out of it is an error.
//! One test of one process, since it reads the allocator's counters.

use fireclay_cpu::memory::{memory_stats, set_memory_limit};
use fireclay_tensor::{Error, Tensor};

fn allocated() -> u64 {
    memory_stats().allocated_bytes.all.current
}

#[test]
fn graphs_give_back_their_memory_and_running_out_is_an_error() {
    let x = Tensor::ones(&[64], "cpu")
        .unwrap()
        .requires_grad_(true)
        .unwrap();
    let chain = |depth: usize| {
        let mut y = x.clone();
        for _ in 0..depth {
            y = y.tanh().unwrap();
        }
        y.sum_all().unwrap()
    };
    chain(10).backward().unwrap();
    x.zero_grad();
    let before = allocated();
    for round in 0..3 {
        let loss = chain(100_000);
        assert!(
            allocated() > before + 100_000 * 64 * 4,
            "the graph holds its results"
        );
        if round == 1 {
            loss.backward().unwrap(); // frees as it goes
            x.zero_grad();
        }
        drop(loss);
        assert_eq!(allocated(), before, "round {round}");
    }

    // An allocation beyond the limit fails with an error that says what was asked for; nothing is lost by it.
    set_memory_limit(Some(memory_stats().reserved_bytes.all.current + (64 << 20)));
    let error = Tensor::zeros(&[1 << 28], "cpu").unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    assert!(error.to_string().contains("1.00 GiB requested"), "{error}");
    assert!(
        Tensor::zeros(&[usize::MAX / 2, 3], "cpu").is_err(),
        "more elements than memory can have"
    );
    set_memory_limit(None);
    assert_eq!(allocated(), before);
    assert_eq!(x.add(1.0).unwrap().to_vec::<f32>().unwrap(), [2.0; 64]);
}
