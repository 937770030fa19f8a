//! `kernels/normalization.cu`.

use half::{bf16, f16};

use crate::compare::{Float, near, same_bits};
use crate::draw::Draw;
use crate::gpu::{Argument, Buffer, Element, Gpu, arguments};

const TEXT: &str = include_str!("../../kernels/ptx/normalization.ptx");
const TEXT_75: &str = include_str!("../../kernels/ptx/normalization.75.ptx");

crate::kernel_tests! { softmax softmax_backward cross_entropy layernorm rmsnorm adamw many_tensors }

fn wide<T: Float>(values: &[T]) -> Vec<f64> {
    values.iter().map(|x| x.to_f64()).collect()
}

fn softmax_row(row: &[f64]) -> Vec<f64> {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - top).exp()).sum();
    row.iter().map(|x| (x - top).exp() / sum).collect()
}

fn softmax(gpu: &Gpu) {
    for text in [TEXT, TEXT_75] {
        let module = gpu.module(text);
        for columns in [5usize, 100, 333] {
            let values = Draw::new(50).reals(6 * columns, -9.0, 9.0);
            let out = gpu.zeros::<f32>(6 * columns);
            gpu.run(
                &module,
                "softmax_f32",
                6,
                96,
                arguments![&gpu.upload(&values), &out, columns as i32],
            );
            let expected: Vec<f64> = wide(&values)
                .chunks(columns)
                .flat_map(softmax_row)
                .collect();
            near("softmax_f32", &gpu.download(&out), &expected, 3e-6, 1e-12);

            let values: Vec<bf16> = values.into_iter().map(bf16::from_f32).collect();
            let out = gpu.zeros::<bf16>(6 * columns);
            gpu.run(
                &module,
                "softmax_bf16",
                6,
                64,
                arguments![&gpu.upload(&values), &out, columns as i32],
            );
            let expected: Vec<f64> = wide(&values)
                .chunks(columns)
                .flat_map(softmax_row)
                .collect();
            near(
                "softmax_bf16",
                &gpu.download(&out),
                &expected,
                1.02 / 256.0,
                1e-12,
            );
        }
    }
}

fn softmax_backward(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let mut draw = Draw::new(51);
    let (rows, columns) = (4, 77);
    let (y, dy) = (
        draw.reals(rows * columns, 0.0, 0.05),
        draw.reals(rows * columns, -1.0, 1.0),
    );
    let out = gpu.zeros::<f32>(rows * columns);
    let arguments = arguments![&gpu.upload(&y), &gpu.upload(&dy), &out, columns as i32];
    gpu.run(&module, "softmax_backward", rows, 64, arguments);
    let (y, dy) = (wide(&y), wide(&dy));
    let dots: Vec<f64> = (0..rows)
        .map(|r| (r * columns..(r + 1) * columns).map(|i| y[i] * dy[i]).sum())
        .collect();
    let expected: Vec<f64> = (0..rows * columns)
        .map(|i| y[i] * (dy[i] - dots[i / columns]))
        .collect();
    near(
        "softmax_backward",
        &gpu.download(&out),
        &expected,
        1e-5,
        1e-7,
    );
}

fn cross_entropy(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let (rows, columns) = (5, 60);
    let mut draw = Draw::new(52);
    let (logits, targets) = (
        draw.reals(rows * columns, -5.0, 5.0),
        draw.integers(rows, 0, columns as i64),
    );
    let (loss, gradient) = (gpu.zeros::<f32>(rows), gpu.zeros::<f32>(rows * columns));
    let arguments = arguments![
        &gpu.upload(&logits),
        &gpu.upload(&targets),
        &loss,
        &gradient,
        columns as i32
    ];
    gpu.run(&module, "cross_entropy", rows, 32, arguments);
    let (mut losses, mut gradients) = (Vec::new(), Vec::new());
    for (row, &target) in wide(&logits).chunks(columns).zip(&targets) {
        let p = softmax_row(row);
        losses.push(-p[target as usize].ln());
        let is_target = |i: usize| f64::from(u8::from(i == target as usize));
        gradients.extend((0..columns).map(|i| (p[i] - is_target(i)) / rows as f64));
    }
    near("loss", &gpu.download(&loss), &losses, 1e-5, 1e-6);
    near("gradient", &gpu.download(&gradient), &gradients, 1e-5, 1e-7);
}

fn layernorm(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let (rows, columns) = (9, 130);
    let n = rows * columns;
    let mut draw = Draw::new(53);
    let (x, dy) = (draw.reals(n, -2.0, 3.0), draw.reals(n, -1.0, 1.0));
    let (weight, bias) = (
        draw.reals(columns, 0.5, 1.5),
        draw.reals(columns, -1.0, 1.0),
    );
    let (dx_, dweight_, ddy) = (gpu.upload(&x), gpu.upload(&weight), gpu.upload(&dy));
    let (y, mean, inverse) = (
        gpu.zeros::<f32>(n),
        gpu.zeros::<f32>(rows),
        gpu.zeros::<f32>(rows),
    );
    let arguments = arguments![
        &dx_,
        &dweight_,
        &gpu.upload(&bias),
        &y,
        &mean,
        &inverse,
        columns as i32,
        1e-5f32
    ];
    gpu.run(&module, "layernorm_forward", rows, 64, arguments);

    let (wx, wdy, wweight, wbias) = (wide(&x), wide(&dy), wide(&weight), wide(&bias));
    let (mut out, mut means, mut inverses, mut dx) = (vec![], vec![], vec![], vec![]);
    let (mut dweight, mut dbias) = (vec![0.0; columns], vec![0.0; columns]);
    for (row, drow) in wx.chunks(columns).zip(wdy.chunks(columns)) {
        let m = row.iter().sum::<f64>() / columns as f64;
        let scale =
            1.0 / (row.iter().map(|v| (v - m).powi(2)).sum::<f64>() / columns as f64 + 1e-5).sqrt();
        let normal: Vec<f64> = row.iter().map(|v| (v - m) * scale).collect();
        let g: Vec<f64> = drow.iter().zip(&wweight).map(|(d, w)| d * w).collect();
        let sum = g.iter().sum::<f64>() / columns as f64;
        let dot = g.iter().zip(&normal).map(|(g, v)| g * v).sum::<f64>() / columns as f64;
        for i in 0..columns {
            out.push(normal[i] * wweight[i] + wbias[i]);
            dx.push((g[i] - sum - normal[i] * dot) * scale);
            dweight[i] += drow[i] * normal[i];
            dbias[i] += drow[i];
        }
        means.push(m);
        inverses.push(scale);
    }
    near("layernorm y", &gpu.download(&y), &out, 1e-5, 1e-5);
    near("layernorm mean", &gpu.download(&mean), &means, 1e-5, 1e-6);
    near(
        "layernorm inverse",
        &gpu.download(&inverse),
        &inverses,
        1e-5,
        0.0,
    );

    let found = [
        gpu.zeros::<f32>(n),
        gpu.zeros::<f32>(columns),
        gpu.zeros::<f32>(columns),
    ];
    let arguments = arguments![
        &dx_,
        &dweight_,
        &mean,
        &inverse,
        &ddy,
        &found[0],
        &found[1],
        &found[2],
        columns as i32
    ];
    gpu.run(&module, "layernorm_backward", rows, 64, arguments);
    near("layernorm dx", &gpu.download(&found[0]), &dx, 1e-4, 1e-5);
    near(
        "layernorm dweight",
        &gpu.download(&found[1]),
        &dweight,
        1e-4,
        1e-5,
    );
    near(
        "layernorm dbias",
        &gpu.download(&found[2]),
        &dbias,
        1e-4,
        1e-5,
    );
}

fn rmsnorm(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let (rows, columns) = (5, 90);
    let mut draw = Draw::new(54);
    let mut values = |count| -> Vec<f16> {
        draw.reals(count, -3.0, 3.0)
            .into_iter()
            .map(f16::from_f32)
            .collect()
    };
    let (x, weight) = (values(rows * columns), values(columns));
    let out = gpu.zeros::<f16>(rows * columns);
    let arguments = arguments![
        &gpu.upload(&x),
        &gpu.upload(&weight),
        &out,
        columns as i32,
        1e-6f32
    ];
    gpu.run(&module, "rmsnorm_f16", rows, 64, arguments);
    let mut expected = Vec::new();
    for row in wide(&x).chunks(columns) {
        let scale = 1.0 / (row.iter().map(|v| v * v).sum::<f64>() / columns as f64 + 1e-6).sqrt();
        expected.extend(row.iter().zip(&weight).map(|(v, w)| v * scale * w.to_f64()));
    }
    near(
        "rmsnorm_f16",
        &gpu.download(&out),
        &expected,
        1.01 / 2048.0,
        1e-7,
    );
}

fn adamw(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let n = 300;
    let mut draw = Draw::new(55);
    let (mut p, g) = (wide(&draw.reals(n, -1.0, 1.0)), draw.reals(n, -0.1, 0.1));
    let parameter = gpu.upload(&p.iter().map(|&x| x as f32).collect::<Vec<f32>>());
    let (first, second) = (gpu.zeros::<f32>(n), gpu.zeros::<f32>(n));
    let gradient = gpu.upload(&g);
    let (rate, beta1, beta2, epsilon, decay) = (1e-2, 0.9, 0.999, 1e-8, 0.01);
    let (mut m, mut v) = (vec![0.0; n], vec![0.0; n]);
    for step in 1..=3 {
        let (c1, c2) = (1.0 - f64::powi(beta1, step), 1.0 - f64::powi(beta2, step));
        let arguments = arguments![
            &parameter,
            &gradient,
            &first,
            &second,
            n as i32,
            rate as f32,
            beta1 as f32,
            beta2 as f32,
            epsilon as f32,
            decay as f32,
            c1 as f32,
            c2 as f32
        ];
        gpu.run(&module, "adamw", 2, 256, arguments);
        for i in 0..n {
            let g = f64::from(g[i]);
            m[i] = beta1 * m[i] + (1.0 - beta1) * g;
            v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
            p[i] -= rate * decay * p[i];
            p[i] -= rate * (m[i] / c1) / ((v[i] / c2).sqrt() + epsilon);
        }
    }
    near("adamw", &gpu.download(&parameter), &p, 1e-5, 1e-6);
    near("adamw first", &gpu.download(&first), &m, 1e-5, 1e-9);
    // 1 - 0.999 in f32 is off by 5e-5 of itself.
    near("adamw second", &gpu.download(&second), &v, 2e-4, 1e-12);
}

fn many_tensors(gpu: &Gpu) {
    let module = gpu.module(TEXT);
    let mut draw = Draw::new(56);
    let lengths = [1usize, 50, 0, 300, 7, 128, 33, 2];
    let parameters = lengths.map(|length| draw.reals(length, -1.0, 1.0));
    let gradients = lengths.map(|n| -> Vec<bf16> {
        draw.reals(n, -1.0, 1.0)
            .into_iter()
            .map(bf16::from_f32)
            .collect()
    });
    let p = parameters.clone().map(|values| gpu.upload(&values));
    let g = gradients.clone().map(|values| gpu.upload(&values));
    let copies = lengths.map(|length| gpu.zeros::<bf16>(length.max(1)));
    let mut bytes = Vec::new();
    bytes.extend(addresses(&p));
    bytes.extend(addresses(&g));
    bytes.extend(addresses(&copies));
    bytes.extend(
        lengths
            .iter()
            .flat_map(|&length| (length as i32).to_le_bytes()),
    );
    gpu.run(
        &module,
        "sgd_many",
        [2, 8],
        64,
        &[Argument::of_bytes(&bytes), Argument::from(0.5f32)],
    );
    for t in 0..8 {
        let expected: Vec<f32> = parameters[t]
            .iter()
            .zip(&gradients[t])
            .map(|(p, g)| (-0.5f32).mul_add(g.to_f32(), *p))
            .collect();
        same_bits("sgd_many", &gpu.download(&p[t]), &expected);
        let rounded: Vec<bf16> = expected.into_iter().map(bf16::from_f32).collect();
        same_bits(
            "sgd_many copy",
            &gpu.download(&copies[t])[..lengths[t]],
            &rounded,
        );
    }
}

fn addresses<T: Element>(buffers: &[Buffer<T>; 8]) -> Vec<u8> {
    buffers
        .iter()
        .flat_map(|buffer| buffer.address.to_le_bytes())
        .collect()
}
