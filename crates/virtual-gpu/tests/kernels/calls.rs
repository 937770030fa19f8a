//! `kernels/calls.cu`. What a kernel prints is looked at where the driver's log is tested; here printing has to run.

use crate::compare::{near, same};
use crate::draw::Draw;
use crate::gpu::{Gpu, arguments, code};

const TEXT: &str = include_str!("../../kernels/ptx/calls.ptx");

crate::kernel_tests! { functions divergent_calls recursion function_table virtual_functions
print assertion trap clocks heap limits_of_the_heap }

fn functions(gpu: &Gpu) {
    let n = 150;
    let values = Draw::new(190).reals(n, -100.0, 100.0);
    let pairs: Vec<i32> = (0..2 * n as i32).collect();
    let (out, device_pairs) = (gpu.zeros::<f32>(n), gpu.upload(&pairs));
    let arguments = arguments![&gpu.upload(&values), &out, &device_pairs, n as i32];
    gpu.run(&gpu.module(TEXT), "call_functions", 2, 96, arguments);
    let of = |(i, &x): (usize, &f32)| {
        let quotient = x as i32 / 7;
        let rest = f64::from(x) - f64::from(quotient * 7);
        let (mut a, mut b) = (f64::from(x), i as f64);
        for _ in 0..quotient & 7 {
            (a, b) = (a * 0.5 + b, a);
        }
        a + rest
    };
    let expected: Vec<f64> = values.iter().enumerate().map(of).collect();
    near("call_functions", &gpu.download(&out), &expected, 1e-5, 1e-3);
    let swapped: Vec<i32> = pairs.iter().map(|i| i ^ 1).collect();
    same("swapped pairs", &gpu.download(&device_pairs), &swapped);
}

fn count_down(x: i32) -> i32 {
    if x < 3 {
        x * 100
    } else {
        (0..).map(|k| x - 3 * k).take_while(|&x| x > 0).sum()
    }
}

fn divergent_calls(gpu: &Gpu) {
    let values = Draw::new(191).integers(200, -20, 60);
    let out = gpu.zeros::<i32>(200);
    gpu.run(
        &gpu.module(TEXT),
        "call_divergent",
        2,
        128,
        arguments![&gpu.upload(&values), &out, 200],
    );
    let of = |&x: &i32| {
        if x & 1 == 1 {
            count_down(x)
        } else {
            -count_down(x / 2)
        }
    };
    let expected: Vec<i32> = values.iter().map(of).collect();
    same("call_divergent", &gpu.download(&out), &expected);
}

fn fibonacci(n: i32) -> i32 {
    (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0
}

fn ackermann(m: i32, n: i32) -> i32 {
    match (m, n) {
        (0, _) => n + 1,
        (_, 0) => ackermann(m - 1, 1),
        _ => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

#[test]
fn known_values() {
    assert_eq!(
        (fibonacci(10), ackermann(2, 3), count_down(10)),
        (55, 9, 22)
    );
}

fn recursion(gpu: &Gpu) {
    let values = Draw::new(192).integers(64, 0, 100);
    let out = gpu.zeros::<i32>(64);
    gpu.run(
        &gpu.module(TEXT),
        "recursion",
        1,
        64,
        arguments![&gpu.upload(&values), &out, 64],
    );
    let of = |&x: &i32| {
        if x % 2 == 1 {
            fibonacci(x % 12)
        } else {
            ackermann(x % 3, x % 5)
        }
    };
    let expected: Vec<i32> = values.iter().map(of).collect();
    same("recursion", &gpu.download(&out), &expected);
}

fn function_table(gpu: &Gpu) {
    let mut draw = Draw::new(193);
    let (values, which) = (draw.reals(100, -4.0, 4.0), draw.integers(100, 0, 8));
    let out = gpu.zeros::<f32>(100);
    let arguments = arguments![&gpu.upload(&values), &gpu.upload(&which), &out, 100];
    gpu.run(&gpu.module(TEXT), "call_table", 2, 64, arguments);
    let table: [fn(f32) -> f32; 4] = [|x| 2.0 * x, |x| x * x, |x| x - 1.0, |x| 0.5 * x];
    let of = |(&x, &at): (&f32, &i32)| {
        f64::from(table[(at & 3) as usize](x) + table[((at + 1) & 3) as usize](1.0))
    };
    let expected: Vec<f64> = values.iter().zip(&which).map(of).collect();
    near("call_table", &gpu.download(&out), &expected, 1e-6, 1e-6);
}

fn virtual_functions(gpu: &Gpu) {
    let values = Draw::new(194).integers(100, 0, 50);
    let out = gpu.zeros::<i32>(100);
    gpu.run(
        &gpu.module(TEXT),
        "call_virtual",
        2,
        64,
        arguments![&gpu.upload(&values), &out, 100],
    );
    let of = |(i, &x): (usize, &i32)| {
        if x & 1 == 0 {
            x * x * i as i32
        } else {
            x * 3 * i as i32 + 1
        }
    };
    let expected: Vec<i32> = values.iter().enumerate().map(of).collect();
    same("call_virtual", &gpu.download(&out), &expected);
}

fn print(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    gpu.run(
        &module,
        "print_formats",
        1,
        32,
        arguments![-7, 1.5f32, -2.25f64, 1i64 << 40],
    );
    let out = gpu.zeros::<i32>(4);
    gpu.run(&module, "print_threads", 1, 4, arguments![&out]);
    same("arguments of printf", &gpu.download(&out), &[3; 4]);
}

fn assertion(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let good = gpu.upload(&[1; 64]);
    gpu.run(&module, "assert_positive", 1, 64, arguments![&good, 64]);
    let mut values = [1; 64];
    values[40] = -1;
    let bad = gpu.upload(&values);
    assert_eq!(
        gpu.try_run(&module, "assert_positive", 1, 64, 0, arguments![&bad, 64]),
        Err(code::ASSERT)
    );
    // Sticky: every later call has the same answer.
    assert_eq!(gpu.synchronize(), Err(code::ASSERT));
}

fn trap(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    gpu.run(&module, "trap_at", 2, 64, arguments![64]);
    let result = gpu.try_run(&module, "trap_at", 2, 64, 0, arguments![3]);
    assert!(
        matches!(result, Err(code::ILLEGAL_INSTRUCTION | code::LAUNCH_FAILED)),
        "{result:?}"
    );
}

fn clocks(gpu: &Gpu) {
    let out = gpu.zeros::<i64>(96);
    gpu.run(&gpu.module(TEXT), "clocks", 1, 32, arguments![&out]);
    for passed in gpu.download(&out).chunks(3) {
        assert!(
            passed[0] > 0 && passed[1] >= 0 && passed[2] > 0,
            "{passed:?}"
        );
    }
}

fn heap(gpu: &Gpu) {
    let lengths = Draw::new(195).integers(64, 0, 10);
    let out = gpu.zeros::<i32>(64);
    gpu.run(
        &gpu.module(TEXT),
        "heap_lists",
        1,
        64,
        arguments![&gpu.upload(&lengths), &out],
    );
    let expected: Vec<i32> = lengths
        .iter()
        .map(|&n| (0..n).map(|k| k * k).sum())
        .collect();
    same("heap_lists", &gpu.download(&out), &expected);
}

/// Threads take blocks of 1000 bytes until there are none; the counts are as the heap's size says.
fn limits_of_the_heap(gpu: &Gpu) {
    const HEAP_SIZE: u32 = 2;
    assert_eq!(gpu.limit(HEAP_SIZE), 8 << 20);
    assert_eq!(gpu.set_limit(HEAP_SIZE, 100_000), Ok(()));
    assert_eq!(gpu.limit(HEAP_SIZE), 100_000);
    let module = gpu.module(GREEDY);
    let out = gpu.zeros::<i32>(64);
    gpu.run(&module, "greedy", 1, 64, arguments![&out]);
    let taken: i32 = gpu.download(&out).iter().sum();
    // A block takes 1008 bytes and its guard no capacity.
    assert_eq!(taken, 100_000 / 1008);
    assert_eq!(gpu.set_limit(HEAP_SIZE, 8 << 20), Err(code::INVALID_VALUE));
    // What a kernel leaves on the heap is there for the next.
    gpu.run(&module, "greedy", 1, 64, arguments![&out]);
    assert_eq!(gpu.download(&out).iter().sum::<i32>(), 0);
}

const GREEDY: &str = ".version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 r) malloc(.param .b64 a);
.visible .entry greedy(.param .u64 out)
{
.reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<2>;
mov.u32 %r0, 0;
NEXT:
call (%rd0), malloc, (1000);
setp.eq.u64 %p0, %rd0, 0;
@%p0 bra DONE;
st.u32 [%rd0+996], %r0;
add.u32 %r0, %r0, 1;
bra NEXT;
DONE:
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x;
mad.wide.u32 %rd1, %r1, 4, %rd1;
st.global.u32 [%rd1], %r0;
ret;
}";
