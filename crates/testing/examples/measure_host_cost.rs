//! What an op costs the host on a device that does not execute: median microseconds of a call, its result dropped.
#![expect(clippy::print_stdout, reason = "a measurement's table")]

use std::time::Instant;

use fireclay_tensor::{CrossEntropy, Device, Formula, Result, Tensor, no_grad};
use virtual_gpu::machine::{Checks, Settings};

fn median(call: &dyn Fn() -> Result<Tensor>) -> f64 {
    const CALLS: usize = 2_000;
    for _ in 0..CALLS {
        call().expect("a call that runs");
    }
    let mut times: Vec<f64> = (0..21)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..CALLS {
                call().expect("a call that runs");
            }
            start.elapsed().as_secs_f64() * 1e6 / CALLS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<()> {
    fireclay_cuda::driver::use_virtual(Settings {
        execute: false,
        checks: Checks {
            uninitialized: false,
            shared_races: false,
            stream_races: false,
            ..Checks::default()
        },
        poison: 0,
        quarantine: 0,
        ..Settings::default()
    })
    .expect("no driver was chosen before");
    let device = Device::Cuda(0);
    let x = Tensor::zeros(&[64, 64], device)?;
    let y = Tensor::zeros(&[64, 64], device)?;
    let row = Tensor::zeros(&[64], device)?;
    let classes = Tensor::zeros(&[64], device)?.to_dtype(fireclay_tensor::DType::I64)?;
    type Call<'a> = (&'a str, Box<dyn Fn() -> Result<Tensor> + 'a>);
    let calls: [Call<'_>; 11] = [
        ("empty", Box::new(|| Tensor::empty(&[64, 64], x.dtype(), device))),
        ("transpose (a view)", Box::new(|| x.transpose(0, 1))),
        ("add", Box::new(|| x.add(&y))),
        ("add, broadcast", Box::new(|| x.add(&row))),
        ("add a number", Box::new(|| x.add(1.5))),
        ("add_ in place", Box::new(|| x.add_(&y))),
        ("relu", Box::new(|| x.relu())),
        ("formula of three", Box::new(|| {
            let x = Formula::from(&x);
            ((&x * &y).exp() + &row).eval()
        })),
        ("sum", Box::new(|| x.sum_all())),
        ("matmul", Box::new(|| x.matmul(&y))),
        ("cross_entropy", Box::new(|| x.cross_entropy(&classes, CrossEntropy::default()))),
    ];
    println!("| op | microseconds |\n|---|---:|");
    for (name, call) in &calls {
        let time = no_grad(|| median(call.as_ref()));
        println!("| {name} | {time:.2} |");
    }
    let weight = Tensor::zeros(&[64, 64], device)?.requires_grad_(true)?;
    println!("| add, recorded | {:.2} |", median(&|| x.add(&weight)));
    Ok(())
}
