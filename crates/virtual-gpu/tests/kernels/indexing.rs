//! `kernels/indexing.cu`.

use crate::compare::{near, same, same_bits};
use crate::draw::Draw;
use crate::gpu::{Argument, Gpu, arguments};

const TEXT: &str = include_str!("../../kernels/ptx/indexing.ptx");

crate::kernel_tests! { gather scatter embedding histogram transpose windows pooling one_hot concatenate compact
lower_bound }

fn gather(gpu: &Gpu) {
    let mut draw = Draw::new(100);
    let (rows, columns, count) = (12usize, 9usize, 30usize);
    let values = draw.reals(rows * columns, -1.0, 1.0);
    let index: Vec<i64> = (0..count).map(|_| draw.integer(-12, 12)).collect();
    let out = gpu.zeros::<f32>(count * columns);
    let arguments = arguments![
        &gpu.upload(&values),
        &gpu.upload(&index),
        &out,
        rows as i32,
        columns as i32,
        count as i32
    ];
    gpu.run(&gpu.module(TEXT), "gather_rows", 9, 32, arguments);
    let row = |i: usize| index[i].rem_euclid(12) as usize;
    let expected: Vec<f32> = (0..count * columns)
        .map(|i| values[row(i / columns) * columns + i % columns])
        .collect();
    same_bits("gather_rows", &gpu.download(&out), &expected);
}

fn scatter(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let mut draw = Draw::new(101);
    let (columns, count) = (5usize, 60usize);
    // Small integers: the order of additions does not matter.
    let values: Vec<f32> = draw
        .integers(count * columns, -9, 9)
        .into_iter()
        .map(|x| x as f32)
        .collect();
    let index: Vec<i64> = (0..count).map(|_| draw.integer(0, 7)).collect();
    let out = gpu.zeros::<f32>(7 * columns);
    let arguments = arguments![
        &gpu.upload(&values),
        &gpu.upload(&index),
        &out,
        columns as i32,
        count as i32
    ];
    gpu.run(&module, "scatter_add_rows", 5, 64, arguments);
    let mut expected = vec![0.0; 7 * columns];
    for (i, value) in values.iter().enumerate() {
        expected[index[i / columns] as usize * columns + i % columns] += value;
    }
    same("scatter_add_rows", &gpu.download(&out), &expected);

    let (values, permutation) = (draw.integers(200, -1000, 1000), draw.permutation(200));
    let out = gpu.zeros::<i32>(200);
    let arguments = arguments![&gpu.upload(&values), &gpu.upload(&permutation), &out, 200];
    gpu.run(&module, "scatter_unique", 2, 128, arguments);
    let mut expected = vec![0; 200];
    permutation
        .iter()
        .zip(&values)
        .for_each(|(&to, &value)| expected[to as usize] = value);
    same("scatter_unique", &gpu.download(&out), &expected);
}

fn embedding(gpu: &Gpu) {
    let mut draw = Draw::new(102);
    let (table, tokens) = (draw.reals(50 * 24, -1.0, 1.0), draw.integers(17, 0, 50));
    let out = gpu.zeros::<f32>(17 * 24);
    let arguments = arguments![&gpu.upload(&table), &gpu.upload(&tokens), &out, 6, 17];
    gpu.run(&gpu.module(TEXT), "embedding_forward", 18, 32, arguments);
    let expected: Vec<f32> = tokens
        .iter()
        .flat_map(|&t| table[t as usize * 24..][..24].to_vec())
        .collect();
    same_bits("embedding_forward", &gpu.download(&out), &expected);
}

fn histogram(gpu: &Gpu) {
    let mut draw = Draw::new(103);
    let values: Vec<u8> = (0..2000).map(|_| (draw.bits() as u8) & 0x3f).collect();
    let counts = gpu.zeros::<u32>(256);
    gpu.run(
        &gpu.module(TEXT),
        "histogram",
        5,
        128,
        arguments![&gpu.upload(&values), &counts, 2000],
    );
    let mut expected = [0; 256];
    values.iter().for_each(|&x| expected[x as usize] += 1);
    same("histogram", &gpu.download(&counts), &expected);
}

fn transpose(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let (rows, columns) = (50usize, 70usize);
    let values = Draw::new(104).reals(rows * columns, -1.0, 1.0);
    let expected: Vec<f32> = (0..rows * columns)
        .map(|i| values[i % rows * columns + i / rows])
        .collect();
    for kernel in ["transpose", "transpose_conflicts"] {
        let out = gpu.zeros::<f32>(rows * columns);
        let arguments = arguments![&gpu.upload(&values), &out, rows as i32, columns as i32];
        gpu.run(&module, kernel, [3, 2], [32, 8], arguments);
        same_bits(kernel, &gpu.download(&out), &expected);
    }
}

/// The kernel's structure: batch, channels, height, width, kernel, stride, padding, and what comes out.
#[derive(Clone, Copy)]
struct Window {
    batch: usize,
    channels: usize,
    size: [usize; 2],
    kernel: usize,
    stride: usize,
    padding: usize,
    out_channels: usize,
}

impl Window {
    fn out(&self) -> [usize; 2] {
        self.size
            .map(|size| (size + 2 * self.padding - self.kernel) / self.stride + 1)
    }

    fn argument(&self) -> Argument {
        let [height, width] = self.size;
        let [out_height, out_width] = self.out();
        let fields = [
            self.batch,
            self.channels,
            height,
            width,
            self.kernel,
            self.stride,
            self.padding,
            self.out_channels,
            out_height,
            out_width,
        ];
        let bytes: Vec<u8> = fields
            .iter()
            .flat_map(|&field| (field as i32).to_le_bytes())
            .collect();
        Argument::of_bytes(&bytes)
    }

    /// Where in the input's plane a tap of an output lies, unless in the padding.
    fn source(&self, [y, x]: [usize; 2], [ky, kx]: [usize; 2]) -> Option<usize> {
        let row = (y * self.stride + ky).checked_sub(self.padding)?;
        let column = (x * self.stride + kx).checked_sub(self.padding)?;
        (row < self.size[0] && column < self.size[1]).then_some(row * self.size[1] + column)
    }

    fn taps(&self) -> impl Iterator<Item = [usize; 2]> + use<> {
        let kernel = self.kernel;
        (0..kernel * kernel).map(move |tap| [tap / kernel, tap % kernel])
    }
}

const WINDOWS: [Window; 2] = [
    Window {
        batch: 2,
        channels: 3,
        size: [7, 6],
        kernel: 3,
        stride: 2,
        padding: 1,
        out_channels: 4,
    },
    Window {
        batch: 1,
        channels: 2,
        size: [5, 9],
        kernel: 2,
        stride: 1,
        padding: 0,
        out_channels: 3,
    },
];

fn windows(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    for w in WINDOWS {
        let mut draw = Draw::new(105);
        let plane = w.size[0] * w.size[1];
        let values = draw.reals(w.batch * w.channels * plane, -1.0, 1.0);
        let [out_height, out_width] = w.out();
        let pixels = out_height * out_width;
        let input = gpu.upload(&values);
        let mut columns = Vec::new();
        for c in 0..w.channels {
            for tap in w.taps() {
                for b in 0..w.batch {
                    for pixel in 0..pixels {
                        let source = w.source([pixel / out_width, pixel % out_width], tap);
                        columns.push(
                            source.map_or(0.0, |at| values[(b * w.channels + c) * plane + at]),
                        );
                    }
                }
            }
        }
        let out = gpu.zeros::<f32>(columns.len());
        gpu.run(
            &module,
            "im2col",
            3,
            64,
            arguments![&input, &out, w.argument()],
        );
        same_bits("im2col", &gpu.download(&out), &columns);

        let taps = w.channels * w.kernel * w.kernel;
        let (weight, bias) = (
            draw.reals(w.out_channels * taps, -1.0, 1.0),
            draw.reals(w.out_channels, -1.0, 1.0),
        );
        let mut expected = Vec::new();
        for b in 0..w.batch {
            for o in 0..w.out_channels {
                for pixel in 0..pixels {
                    let mut sum = bias[o];
                    for c in 0..w.channels {
                        for (at, tap) in w.taps().enumerate() {
                            if let Some(source) =
                                w.source([pixel / out_width, pixel % out_width], tap)
                            {
                                let x = values[(b * w.channels + c) * plane + source];
                                sum =
                                    x.mul_add(weight[o * taps + c * w.kernel * w.kernel + at], sum);
                            }
                        }
                    }
                    expected.push(sum);
                }
            }
        }
        let out = gpu.zeros::<f32>(expected.len());
        let arguments = arguments![
            &input,
            &gpu.upload(&weight),
            &gpu.upload(&bias),
            &out,
            w.argument()
        ];
        gpu.run(
            &module,
            "convolution",
            expected.len().div_ceil(64),
            64,
            arguments,
        );
        same_bits("convolution", &gpu.download(&out), &expected);
    }
}

fn pooling(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    for w in WINDOWS {
        let plane = w.size[0] * w.size[1];
        let values = Draw::new(106).reals(w.batch * w.channels * plane, -1.0, 1.0);
        let [out_height, out_width] = w.out();
        let (mut tops, mut places, mut means) = (vec![], vec![], vec![]);
        for part in values.chunks(plane) {
            for pixel in 0..out_height * out_width {
                let inside: Vec<usize> = w
                    .taps()
                    .filter_map(|tap| w.source([pixel / out_width, pixel % out_width], tap))
                    .collect();
                let top = inside
                    .iter()
                    .copied()
                    .reduce(|a, b| if part[b] > part[a] { b } else { a });
                let top = top.expect("no window lies in the padding alone");
                tops.push(part[top]);
                places.push(top as i32);
                means.push(
                    inside.iter().map(|&at| f64::from(part[at])).sum::<f64>() / inside.len() as f64,
                );
            }
        }
        let n = tops.len();
        let (input, out, place) = (
            gpu.upload(&values),
            gpu.zeros::<f32>(n),
            gpu.zeros::<i32>(n),
        );
        gpu.run(
            &module,
            "pool_max",
            n.div_ceil(32),
            32,
            arguments![&input, &out, &place, w.argument()],
        );
        same_bits("pool_max", &gpu.download(&out), &tops);
        same("pool_max place", &gpu.download(&place), &places);
        gpu.run(
            &module,
            "pool_mean",
            n.div_ceil(32),
            32,
            arguments![&input, &out, w.argument()],
        );
        near("pool_mean", &gpu.download(&out), &means, 1e-5, 1e-6);
    }
}

fn one_hot(gpu: &Gpu) {
    let index = Draw::new(107).integers(20, -1, 6);
    let out = gpu.zeros::<i8>(120);
    gpu.run(
        &gpu.module(TEXT),
        "one_hot",
        4,
        32,
        arguments![&gpu.upload(&index), &out, 6, 20],
    );
    let expected: Vec<i8> = (0..120)
        .map(|i| i8::from(index[i / 6] == i as i32 % 6))
        .collect();
    same("one_hot", &gpu.download(&out), &expected);
}

fn concatenate(gpu: &Gpu) {
    let mut draw = Draw::new(108);
    let parts: [Vec<i16>; 3] =
        [5usize, 40, 21].map(|n| (0..n).map(|_| draw.bits() as i16).collect());
    let buffers = parts.clone().map(|part| gpu.upload(&part));
    let mut bytes = Vec::new();
    for at in 0..8 {
        bytes.extend(
            buffers
                .get(at)
                .map_or(0, |buffer| buffer.address)
                .to_le_bytes(),
        );
    }
    for end in [5, 45, 66, 0, 0, 0, 0, 0, 3, 0] {
        bytes.extend(i32::to_le_bytes(end));
    }
    let out = gpu.zeros::<i16>(66);
    let arguments = arguments![Argument::of_bytes(&bytes), &out, 66];
    gpu.run(&gpu.module(TEXT), "concatenate", 3, 32, arguments);
    same("concatenate", &gpu.download(&out), &parts.concat());
}

fn compact(gpu: &Gpu) {
    let values = Draw::new(109).integers(500, -100, 100);
    let (out, count) = (gpu.zeros::<i32>(500), gpu.zeros::<i32>(1));
    let arguments = arguments![&gpu.upload(&values), &out, &count, 500];
    gpu.run(&gpu.module(TEXT), "compact_positive", 8, 64, arguments);
    let mut expected: Vec<i32> = values.into_iter().filter(|&x| x > 0).collect();
    let mut found = gpu.download(&out);
    found.truncate(gpu.download(&count)[0] as usize);
    expected.sort_unstable();
    found.sort_unstable();
    same("compact_positive", &found, &expected);
}

fn lower_bound(gpu: &Gpu) {
    let mut draw = Draw::new(110);
    let mut sorted: Vec<i64> = (0..77).map(|_| draw.integer(-50, 50)).collect();
    sorted.sort_unstable();
    let values: Vec<i64> = (0..100).map(|_| draw.integer(-60, 60)).collect();
    let out = gpu.zeros::<i32>(100);
    let arguments = arguments![&gpu.upload(&sorted), 77, &gpu.upload(&values), &out, 100];
    gpu.run(&gpu.module(TEXT), "lower_bound", 4, 32, arguments);
    let expected: Vec<i32> = values
        .iter()
        .map(|v| sorted.partition_point(|x| x < v) as i32)
        .collect();
    same("lower_bound", &gpu.download(&out), &expected);
}
