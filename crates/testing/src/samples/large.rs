//! Samples of shapes that are hard for kernels of a device: longer than a warp's or a block's share, of odd lengths, empty.

use fireclay_tensor::{BatchNorm, CrossEntropy};

use super::List;

pub(super) fn add(list: &mut List) {
    norms(list);
    softmax(list);
    losses(list);
}

fn norms(list: &mut List) {
    let x = list.plain(&[4, 2, 3]);
    list.add("rms_norm", vec![x], |x| x[0].rms_norm(&[2, 3], None, None));
    let images = list.plain(&[2, 4, 3]);
    list.add("group_norm", vec![images], |x| {
        x[0].group_norm(2, None, None, 1e-5)
    });
    // A lane's rest, rows of a block of threads, rows of several of its blocks; rows that start at odd places.
    for (rows, cols) in [
        (35, 7),
        (2, 256),
        (3, 1),
        (1, 301),
        (18, 530),
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
