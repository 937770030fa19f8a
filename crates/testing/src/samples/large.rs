//! Samples of shapes that are hard for kernels of a device: longer than a warp's or a block's share, of odd lengths, empty.

use fireclay_tensor::{BatchNorm, CrossEntropy, DType, Device, Tensor};

use super::List;

pub(super) fn add(list: &mut List) {
    norms(list);
    softmax(list);
    losses(list);
    sorted(list);
    apart(list);
    placed(list);
}

fn norms(list: &mut List) {
    let x = list.plain(&[4, 2, 3]);
    list.add("rms_norm", vec![x], |x| x[0].rms_norm(&[2, 3], None, None));
    let images = list.plain(&[2, 4, 3]);
    list.add("group_norm", vec![images], |x| {
        x[0].group_norm(2, None, None, 1e-5)
    });
    // A lane's rest, rows of a warp and of blocks of both sizes, rows of several of its blocks; rows that start at odd places; more
    // rows than are added up at once, and than a device works on at once.
    for (rows, cols) in [
        (35, 7),
        (2, 256),
        (3, 1),
        (1, 301),
        (18, 530),
        (26, 770),
        (2, 1026),
        (8193, 3),
        (2, 4099),
        (0, 5),
        (3, 0),
    ] {
        let (x, weight, bias) = (
            list.many(&[rows, cols]),
            list.many(&[cols]),
            list.many(&[cols]),
        );
        list.add_large(
            "layer_norm",
            vec![x.clone(), weight.clone(), bias],
            move |x| x[0].layer_norm(&[cols], Some(&x[1]), Some(&x[2]), 1e-5),
        );
        list.add_large("rms_norm", vec![x, weight], move |x| {
            x[0].rms_norm(&[cols], Some(&x[1]), Some(1e-3))
        });
    }
    for (shape, groups) in [
        (&[2, 4][..], 2),
        (&[3, 6, 5], 3),
        (&[2, 2, 33, 3], 1),
        (&[2, 6, 20, 30], 2),
        (&[0, 4, 3], 4),
    ] {
        let channels = shape[1];
        let (x, weight, bias) = (
            list.many(shape),
            list.many(&[channels]),
            list.many(&[channels]),
        );
        let inputs = vec![x.clone(), weight.clone(), bias.clone()];
        list.add_large("group_norm", inputs.clone(), move |x| {
            x[0].group_norm(groups, Some(&x[1]), Some(&x[2]), 1e-5)
        });
        if shape[0] > 0 {
            list.add_large("batch_norm", inputs, |x| {
                x[0].batch_norm(BatchNorm {
                    weight: Some(&x[1]),
                    bias: Some(&x[2]),
                    ..BatchNorm::default()
                })
            });
        }
    }
    let many = list.many(&[67, 3]);
    list.add_large("batch_norm", vec![many], |x| {
        x[0].batch_norm(BatchNorm::default())
    });
}

fn softmax(list: &mut List) {
    // Rows of a lane's rest, of a block of threads, and of several blocks of the sums.
    for (rows, cols) in [(3, 7), (5, 256), (2, 601), (1, 4100), (0, 3), (2, 0)] {
        let x = list.many(&[rows, cols]);
        list.add_large("softmax", vec![x.clone()], |x| x[0].softmax(-1));
        list.add_large("log_softmax", vec![x], |x| x[0].log_softmax(-1));
    }
}

fn losses(list: &mut List) {
    for (rows, classes) in [(7, 300), (3, 65), (1, 4099)] {
        let x = list.many(&[rows, classes]);
        let targets = list.draw.ints(&[rows], 0, classes as i64 - 1);
        list.add_large("cross_entropy", vec![x, targets], |x| {
            x[0].cross_entropy(&x[1], CrossEntropy::default())
        });
    }
}

fn sorted(list: &mut List) {
    for dim in [0, 1, -1] {
        let x = list.plain(&[2, 3, 4]);
        list.add("sort", vec![x.clone()], move |x| {
            Ok(x[0].sort(dim, dim == 0)?.0)
        });
        list.add("topk", vec![x.clone()], move |x| {
            Ok(x[0].topk(2, dim, dim != 1)?.0)
        });
        list.add("max_dim", vec![x.clone()], move |x| {
            Ok(x[0].max_dim(dim, dim == 0)?.0)
        });
        list.add("min_dim", vec![x.clone()], move |x| {
            Ok(x[0].min_dim(dim, dim == 0)?.0)
        });
        list.add("cumsum", vec![x.clone()], move |x| x[0].cumsum(dim));
        list.add("cumprod", vec![x], move |x| x[0].cumprod(dim));
    }
    // A chunk, one more, several, and an odd number of them; also with many equal numbers.
    for (rows, cols) in [
        (3, 1),
        (2, 67),
        (1, 1024),
        (2, 1025),
        (1, 3000),
        (0, 5),
        (3, 0),
    ] {
        let x = list.many(&[rows, cols]);
        let whole = list.draw.ints(&[rows, cols], -3, 3);
        let whole = whole.to_dtype(DType::F64).expect("a cast");
        list.add_large("sort", vec![x.clone()], |x| Ok(x[0].sort(-1, true)?.0));
        list.add_stepped("argsort", vec![x.clone()], |x| x[0].argsort(-1, false));
        list.add_stepped("argsort", vec![whole.clone()], |x| x[0].argsort(-1, true));
        let k = cols.min(5);
        list.add_large("topk", vec![x.clone()], move |x| {
            Ok(x[0].topk(k, -1, true)?.0)
        });
        list.add_stepped("topk", vec![whole.clone()], move |x| {
            Ok(x[0].topk(k, -1, false)?.1)
        });
        list.add_large("cumsum", vec![x.clone()], |x| x[0].cumsum(-1));
        list.add_large("cumprod", vec![x], |x| x[0].cumprod(-1));
        list.add_stepped("cumsum", vec![whole.clone()], |x| x[0].cumsum(-1));
        list.add_stepped("cumprod", vec![whole], |x| x[0].cumprod(-1));
    }
}

/// A run of which all lies between two neighbours of the other.
fn apart(list: &mut List) {
    let numbers: Vec<f64> = (0..8192)
        .map(|at| match (at < 4096, at % 2) {
            (true, 0) => -10.0,
            (true, _) => 10.0,
            (false, _) => list.draw.number(-2.0, 2.0),
        })
        .collect();
    let x = Tensor::from_slice(&numbers, &[1, 8192], "cpu").expect("as many as the shape has");
    list.add_stepped("argsort", vec![x], |x| x[0].argsort(-1, false));
}

fn placed(list: &mut List) {
    let x = list.plain(&[4, 3]);
    let (places, source) = (list.draw.ints(&[2, 3], 0, 3), list.plain(&[2, 3]));
    // Of equal places one counts, whose gradient PyTorch gives to all: places that are not equal.
    let apart = places
        .mul(0.0)
        .expect("zeros")
        .to_dtype(DType::I64)
        .expect("a cast");
    let apart = apart
        .add(
            &Tensor::arange(0i64, 2i64, 1i64, Device::Cpu)
                .expect("places")
                .unsqueeze(1)
                .expect("a column"),
        )
        .expect("a sum");
    list.add("scatter", vec![x.clone(), apart, source], |x| {
        x[0].scatter(0, &x[1], &x[2])
    });
    let (rows, columns) = (list.draw.ints(&[2, 1], -4, 3), list.draw.ints(&[5], -3, 2));
    list.add(
        "index",
        vec![x.clone(), rows.clone(), columns.clone()],
        |x| x[0].index(&[&x[1], &x[2]]),
    );
    let more = list.plain(&[2, 5]);
    list.add("index_put", vec![x.clone(), rows, columns, more], |x| {
        x[0].index_put(&[&x[1], &x[2]], &x[3], true)
    });
    let two = Tensor::from_slice(&[2i64, -4], &[2], Device::Cpu).expect("two");
    let values = list.plain(&[1, 3]);
    list.add("index_put", vec![x, two, values], |x| {
        x[0].index_put(&[&x[1]], &x[2], false)
    });
    // Many for one place; more of them than a block sorts.
    for (size, count, inner) in [(3, 40, 2), (50, 1100, 3), (2, 0, 3)] {
        let (x, source) = (list.many(&[size, inner]), list.many(&[count, inner]));
        let at = list.draw.ints(&[count], 0, size as i64 - 1);
        list.add_large(
            "index_add",
            vec![x.clone(), at.clone(), source.clone()],
            |x| x[0].index_add(0, &x[1], &x[2]),
        );
        list.add_large("index_put", vec![x.clone(), at, source.clone()], |x| {
            x[0].index_put(&[&x[1]], &x[2], false)
        });
        let at = list.draw.ints(&[count, inner], 0, size as i64 - 1);
        list.add_large(
            "scatter_add",
            vec![x.clone(), at.clone(), source.clone()],
            |x| x[0].scatter_add(0, &x[1], &x[2]),
        );
        list.add_large("scatter", vec![x, at, source], |x| {
            x[0].scatter(0, &x[1], &x[2])
        });
    }
    for shape in [[3, 1500], [5, 40], [1500, 3], [70, 9]] {
        let x = list.many(&shape);
        for dim in [0, 1] {
            list.add_stepped("argmax", vec![x.clone()], move |x| x[0].argmax(dim, false));
            list.add_stepped("argmin", vec![x.clone()], move |x| x[0].argmin(dim, false));
        }
    }
}
