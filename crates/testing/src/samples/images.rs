//! Samples of convolution and pooling.

use fireclay_tensor::{AvgPool2d, Conv2dOptions, InterpolateMode, InterpolateTo, Pool2d};

use super::List;

pub(super) fn add(list: &mut List) {
    let (x, weight, bias) = (
        list.plain(&[2, 2, 4, 3]),
        list.plain(&[2, 1, 2, 2]),
        list.plain(&[2]),
    );
    let grouped = Conv2dOptions {
        stride: [2, 1],
        padding: [1, 1],
        dilation: [1, 2],
        groups: 2,
    };
    list.add("conv2d", vec![x.clone(), weight, bias], move |x| {
        x[0].conv2d(&x[1], Some(&x[2]), grouped)
    });
    let full = list.plain(&[1, 2, 3, 2]);
    list.add("conv2d", vec![x.clone(), full], |x| {
        x[0].conv2d(&x[1], None, Conv2dOptions::default())
    });
    let window = Pool2d {
        stride: [1, 1],
        padding: [1, 0],
        ..Pool2d::new([2, 2])
    };
    let average = AvgPool2d {
        window,
        count_include_pad: false,
        divisor_override: None,
    };
    list.add("max_pool2d", vec![x.clone()], move |x| {
        x[0].max_pool2d(window)
    });
    list.add("avg_pool2d", vec![x.clone()], move |x| {
        x[0].avg_pool2d(average)
    });
    list.add("avg_pool2d", vec![x.clone()], |x| {
        x[0].avg_pool2d(AvgPool2d::new([2, 3]))
    });
    list.add("adaptive_avg_pool2d", vec![x.clone()], |x| {
        x[0].adaptive_avg_pool2d([3, 2])
    });
    // Windows that overlap, that end in half a window, that lie apart, and images without a batch.
    let (row, single) = (list.plain(&[1, 1, 1, 7]), list.plain(&[2, 7, 5]));
    let apart = Pool2d {
        stride: [2, 1],
        padding: [1, 1],
        dilation: [2, 3],
        ceil_mode: false,
        kernel: [3, 2],
    };
    let over = Pool2d {
        stride: [2, 3],
        ceil_mode: true,
        ..Pool2d::new([3, 2])
    };
    for window in [apart, over] {
        list.add("max_pool2d", vec![single.clone()], move |x| {
            x[0].max_pool2d(window)
        });
    }
    let parts = AvgPool2d {
        window: over,
        count_include_pad: true,
        divisor_override: Some(5),
    };
    for average in [
        parts,
        AvgPool2d {
            divisor_override: None,
            ..parts
        },
    ] {
        list.add("avg_pool2d", vec![single.clone()], move |x| {
            x[0].avg_pool2d(average)
        });
    }
    for size in [[7, 5], [3, 8], [1, 1], [0, 2]] {
        list.add("adaptive_avg_pool2d", vec![single.clone()], move |x| {
            x[0].adaptive_avg_pool2d(size)
        });
    }
    list.add("max_pool2d", vec![row.clone()], |x| {
        x[0].max_pool2d(Pool2d::new([1, 3]))
    });
    // A depthwise one, one of steps larger than its kernel, single pixels, and no image.
    let depthwise = Conv2dOptions {
        padding: [1, 2],
        groups: 2,
        ..Conv2dOptions::default()
    };
    let inputs = vec![
        single.unsqueeze(0).expect("a view"),
        list.plain(&[4, 1, 3, 3]),
    ];
    list.add("conv2d", inputs, move |x| {
        x[0].conv2d(&x[1], None, depthwise)
    });
    // Depthwise over several tiles, with steps and gaps, and with taps too far apart for a tile; two results of one channel.
    type Row<'a> = (&'a [usize], &'a [usize], [usize; 2], [usize; 2], usize);
    let rows: [Row<'_>; 5] = [
        (&[2, 3, 37, 70], &[3, 1, 3, 3], [1, 1], [1, 1], 3),
        (&[1, 2, 40, 35], &[2, 1, 3, 2], [2, 3], [1, 2], 2),
        (&[1, 2, 9, 11], &[2, 1, 3, 3], [2, 2], [2, 1], 2),
        (&[1, 1, 130, 125], &[1, 1, 2, 2], [1, 1], [120, 120], 1),
        (&[2, 2, 6, 5], &[4, 1, 3, 3], [2, 1], [1, 1], 2),
    ];
    for (image, weight, stride, dilation, groups) in rows {
        let bias = list.many(&weight[..1]);
        let inputs = vec![list.many(image), list.many(weight), bias];
        let options = Conv2dOptions {
            stride,
            padding: [1, 2],
            dilation,
            groups,
        };
        list.add_large("conv2d", inputs, move |x| {
            x[0].conv2d(&x[1], Some(&x[2]), options)
        });
    }
    let steps = Conv2dOptions {
        stride: [3, 2],
        ..Conv2dOptions::default()
    };
    let inputs = vec![single.clone(), list.plain(&[3, 2, 2, 1]), list.plain(&[3])];
    list.add("conv2d", inputs, move |x| {
        x[0].conv2d(&x[1], Some(&x[2]), steps)
    });
    for batch in [0, 3] {
        let inputs = vec![list.plain(&[batch, 5, 1, 1]), list.plain(&[3, 5, 1, 1])];
        list.add("conv2d", inputs, |x| {
            x[0].conv2d(&x[1], None, Conv2dOptions::default())
        });
    }
    let bilinear = |align_corners| InterpolateMode::Bilinear { align_corners };
    let x = list.plain(&[2, 1, 4, 3]);
    for mode in [InterpolateMode::Nearest, bilinear(false), bilinear(true)] {
        for to in [
            InterpolateTo::Size([4, 3]),
            InterpolateTo::Size([1, 7]),
            InterpolateTo::Size([5, 1]),
            InterpolateTo::Scale([2.0, 1.7]),
            InterpolateTo::Scale([0.6, 3.4]),
        ] {
            list.add("interpolate", vec![x.clone()], move |x| {
                x[0].interpolate(to, mode)
            });
        }
    }
    let none = list.plain(&[0, 2, 3, 3]);
    list.add("interpolate", vec![none], move |x| {
        x[0].interpolate(InterpolateTo::Size([2, 4]), bilinear(false))
    });
}
