//! Measures pointwise kernels: `cargo run --release -p fireclay-cpu --example pointwise_speed`.
//!
//! Prints nanoseconds per element on tiles that stay in the L1 cache, for each instruction set of this CPU, the time of
//! a run on few elements, and what non-temporal stores would change for results that don't fit into a cache.
#![expect(clippy::print_stdout, reason = "it is a program that prints")]

use fireclay_core::arith::Arith;
use fireclay_core::math;
use fireclay_core::pointwise::Pointwise;
use fireclay_cpu::isa::{Isa, supported};
use fireclay_cpu::kernel::{Class, Kernel, run_pointwise};
use std::hint::black_box;
use std::time::Instant;

/// Elements of a tile.
const TILE: usize = 4096;

/// Aligned as the buffers of tensors are.
#[repr(align(64))]
struct Tile([u64; TILE]);

fn main() {
    let kernels = kernels();
    let names: Vec<String> = kernels
        .iter()
        .map(|kernel| format!("{:>7}", kernel.0))
        .collect();
    println!(
        "ns per element, {TILE} elements\n{:12}{}",
        "",
        names.join("")
    );
    for (class, label) in [(Class::F32, "f32"), (Class::F64, "f64")] {
        for isa in supported() {
            let times: Vec<String> = kernels
                .iter()
                .map(|(_, kernel)| format!("{:7.3}", tile_time(kernel, isa, class)))
                .collect();
            println!("{label} {:8}{}", format!("{isa:?}"), times.join(""));
        }
    }
    for (name, kernel) in &kernels {
        let times: Vec<String> = [1, 4, 8]
            .iter()
            .map(|&len| format!("{:6.1}", run_time(kernel, len)))
            .collect();
        println!("{name}: ns per run of 1, 4, 8 elements:{}", times.join(""));
    }
    static_add();
    #[cfg(target_arch = "x86_64")]
    if fireclay_cpu::isa::isa() == Isa::Avx512 {
        stores();
    }
}

macro_rules! function {
    ($name:ident, $count:literal, $arguments:pat => $value:expr) => {{
        struct Function;
        impl Pointwise<$count> for Function {
            #[inline(always)]
            fn eval<A: Arith>(&self, $arguments: [A; $count]) -> [A; 1] {
                [$value]
            }
        }
        (stringify!($name), Kernel::new(Function))
    }};
}

fn kernels() -> Vec<(&'static str, Kernel)> {
    vec![
        function!(add, 2, [x, y] => x + y),
        function!(exp, 1, [x] => math::exp(x)),
        function!(tanh, 1, [x] => math::tanh(x)),
        function!(erf, 1, [x] => math::erf(x)),
        function!(log, 1, [x] => math::log(x)),
        function!(sin, 1, [x] => math::sin(x)),
        function!(sigmoid, 1, [x] => A::of(1.0) / (A::of(1.0) + math::exp(-x))),
        function!(log1p, 1, [x] => math::log1p(x)),
        function!(erfc, 1, [x] => math::erfc(x)),
        function!(pow, 2, [x, y] => math::pow(x, y)),
    ]
}

/// Nanoseconds per element.
fn tile_time(kernel: &Kernel, isa: Isa, class: Class) -> f64 {
    let (mut x, mut y) = (Tile([0; TILE]), Tile([0; TILE]));
    let (x, y) = (&mut x.0, &mut y.0);
    for i in 0..TILE {
        let value = 0.001 + 3.0 * ((i * 7919) % TILE) as f64 / TILE as f64;
        match class {
            Class::F32 => {
                let bits = u64::from((value as f32).to_bits());
                x[i / 2] |= bits << (32 * (i % 2));
            }
            _ => x[i] = value.to_bits(),
        }
    }
    let input = x.as_ptr().cast();
    let inputs = vec![input; kernel.inputs()];
    let mut best = f64::INFINITY;
    for _ in 0..100 {
        let turns = 10;
        let start = Instant::now();
        for _ in 0..turns {
            // SAFETY: x and y hold at least TILE elements of f32 or f64.
            unsafe {
                kernel.run_on(
                    isa,
                    class,
                    black_box(&inputs),
                    &[y.as_mut_ptr().cast()],
                    TILE,
                )
            };
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(turns) / TILE as f64);
        black_box(&*y);
    }
    best
}

/// Nanoseconds per run of `len` f32 elements.
fn run_time(kernel: &Kernel, len: usize) -> f64 {
    let (x, mut y) = ([0.5f32; 8], [0.0f32; 8]);
    let inputs = vec![x.as_ptr().cast(); kernel.inputs()];
    let turns = 200_000;
    let start = Instant::now();
    for _ in 0..turns {
        // SAFETY: x and y hold 8 elements.
        unsafe { black_box(kernel).run(Class::F32, &inputs, &[y.as_mut_ptr().cast()], len) };
    }
    black_box(&y);
    start.elapsed().as_secs_f64() * 1e9 / f64::from(turns)
}

fn static_add() {
    struct Add;
    impl Pointwise<2> for Add {
        #[inline(always)]
        fn eval<A: Arith>(&self, [x, y]: [A; 2]) -> [A; 1] {
            [x + y]
        }
    }
    let (x, mut y) = ([0.5f32; 8], [0.0f32; 8]);
    let turns = 200_000;
    let start = Instant::now();
    for _ in 0..turns {
        let inputs = black_box([x.as_ptr().cast(), x.as_ptr().cast()]);
        // SAFETY: x and y hold 8 elements.
        unsafe { run_pointwise(&Add, Class::F32, &inputs, &[y.as_mut_ptr().cast()], 1) };
    }
    black_box(&y);
    println!(
        "add known statically: ns per run of 1 element: {:.1}",
        start.elapsed().as_secs_f64() * 1e9 / f64::from(turns)
    );
}

/// `add` of 1e7 elements on one thread: with the kernel, and with stores that go past the caches.
#[cfg(target_arch = "x86_64")]
fn stores() {
    use std::arch::x86_64::*;

    /// # Safety
    /// The CPU has AVX-512 F; the pointers are valid for `len` elements, and `z` is aligned to 64 bytes.
    #[target_feature(enable = "avx512f")]
    unsafe fn add_past_caches(x: *const f32, y: *const f32, z: *mut f32, len: usize) {
        for i in (0..len - len % 16).step_by(16) {
            // SAFETY: i + 16 <= len; i * 4 is a multiple of 64.
            unsafe {
                _mm512_stream_ps(
                    z.add(i),
                    _mm512_add_ps(_mm512_loadu_ps(x.add(i)), _mm512_loadu_ps(y.add(i))),
                )
            };
        }
        _mm_sfence();
    }

    let len = 10_000_000;
    let (x, y, mut z) = (vec![1.0f32; len], vec![2.0f32; len], vec![0.0f32; len + 16]);
    z.fill(1.0);
    let ahead = z.as_ptr().align_offset(64);
    let target = z[ahead..].as_mut_ptr();
    let (_, add) = kernels().swap_remove(0);
    let inputs = [x.as_ptr().cast(), y.as_ptr().cast()];
    let (mut plain, mut past) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..15 {
        let start = Instant::now();
        // SAFETY: all three hold `len` elements.
        unsafe { add.run(Class::F32, &inputs, &[target.cast()], len) };
        plain = plain.min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        // SAFETY: all three hold `len` elements, `target` is aligned, and AVX-512 is in use.
        unsafe { add_past_caches(x.as_ptr(), y.as_ptr(), target, len) };
        past = past.min(start.elapsed().as_secs_f64());
    }
    black_box(&z);
    println!(
        "add of 1e7 f32, one thread: {:.2} ms, with non-temporal stores {:.2} ms",
        plain * 1e3,
        past * 1e3
    );
}
