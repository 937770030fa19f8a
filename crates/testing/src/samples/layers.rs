//! Samples of layers that are made of other ops.

use fireclay_tensor::{
    AvgPool, Blocks, ConvOptions, ConvTransposeOptions, EmbeddingBag, EmbeddingBagMode, GridSample,
    GridSampleMode, GridSamplePadding, InstanceNorm, InterpolateMode, InterpolateTo, Pool,
};

use super::List;
use crate::draw::Draw;

pub(super) fn add(list: &mut List) {
    // Numbers of their own: those of samples that follow stay as they are.
    let before = std::mem::replace(&mut list.draw, Draw::new(2027));
    convolutions(list);
    pools(list);
    others(list);
    list.draw = before;
}

fn convolutions(list: &mut List) {
    let (line, volume) = (list.plain(&[1, 2, 5]), list.plain(&[1, 2, 3, 2, 3]));
    let (w1, w3, bias) = (
        list.plain(&[2, 1, 2]),
        list.plain(&[2, 1, 2, 1, 2]),
        list.plain(&[2]),
    );
    let strided = ConvOptions {
        stride: [2],
        padding: [1],
        dilation: [2],
        groups: 2,
    };
    list.add(
        "conv1d",
        vec![line.clone(), w1.clone(), bias.clone()],
        move |x| x[0].conv1d(&x[1], Some(&x[2]), strided),
    );
    let same = ConvOptions {
        groups: 2,
        ..ConvOptions::<1>::default()
    };
    list.add("conv1d", vec![line.clone(), w1.clone()], move |x| {
        x[0].conv_same(&x[1], None, same)
    });
    let deep = ConvOptions {
        stride: [2, 1, 1],
        padding: [1, 0, 1],
        dilation: [1, 1, 2],
        groups: 2,
    };
    list.add(
        "conv3d",
        vec![volume.clone(), w3.clone(), bias.clone()],
        move |x| x[0].conv3d(&x[1], Some(&x[2]), deep),
    );
    let back = ConvTransposeOptions {
        stride: [2],
        padding: [1],
        output_padding: [2],
        dilation: [3],
        groups: 2,
    };
    list.add("conv_transpose1d", vec![line, w1, bias.clone()], move |x| {
        x[0].conv_transpose1d(&x[1], Some(&x[2]), back)
    });
    let (image, w2) = (list.plain(&[1, 2, 2, 3]), list.plain(&[2, 2, 2, 1]));
    let back = ConvTransposeOptions {
        stride: [2, 1],
        output_padding: [1, 0],
        ..ConvTransposeOptions::default()
    };
    list.add(
        "conv_transpose2d",
        vec![image, w2, bias.clone()],
        move |x| x[0].conv_transpose2d(&x[1], Some(&x[2]), back),
    );
    let back = ConvTransposeOptions {
        stride: [2, 1, 1],
        padding: [1, 0, 0],
        output_padding: [1, 0, 0],
        groups: 2,
        ..ConvTransposeOptions::default()
    };
    list.add("conv_transpose3d", vec![volume, w3, bias], move |x| {
        x[0].conv_transpose3d(&x[1], Some(&x[2]), back)
    });
}

fn pools(list: &mut List) {
    let (line, image, volume) = (
        list.plain(&[1, 2, 7]),
        list.plain(&[1, 1, 5, 4]),
        list.plain(&[1, 1, 3, 4, 3]),
    );
    let window = Pool {
        stride: [2, 1, 1],
        padding: [1, 0, 1],
        ..Pool::new([2, 2, 2])
    };
    let average = AvgPool {
        window,
        count_include_pad: false,
        divisor_override: None,
    };
    list.add("max_pool1d", vec![line.clone()], |x| {
        x[0].max_pool1d(Pool::new([2]))
    });
    list.add("max_pool3d", vec![volume.clone()], move |x| {
        x[0].max_pool3d(window)
    });
    list.add("avg_pool1d", vec![line.clone()], |x| {
        x[0].avg_pool1d(AvgPool::new([3]))
    });
    list.add("avg_pool3d", vec![volume.clone()], move |x| {
        x[0].avg_pool3d(average)
    });
    list.add("adaptive_avg_pool3d", vec![volume.clone()], |x| {
        x[0].adaptive_avg_pool3d([2, 3, 2])
    });
    list.add("adaptive_max_pool1d", vec![line], |x| {
        x[0].adaptive_max_pool1d([3])
    });
    list.add("adaptive_max_pool2d", vec![image.clone()], |x| {
        x[0].adaptive_max_pool2d([3, 2])
    });
    list.add("adaptive_max_pool3d", vec![volume.clone()], |x| {
        x[0].adaptive_max_pool3d([2, 3, 1])
    });
    let positive = list.draw.tensor(&[1, 1, 4, 5], 0.3, 2.0, &[]);
    list.add("lp_pool2d", vec![positive], |x| {
        x[0].lp_pool(3.0, Pool::new([2, 2]))
    });
    for (mode, align_corners) in [(false, true), (true, false)] {
        let mode = match mode {
            false => InterpolateMode::Trilinear { align_corners },
            true => InterpolateMode::NearestExact,
        };
        list.add("interpolate", vec![volume.clone()], move |x| {
            x[0].interpolate(InterpolateTo::Size([2, 5, 4]), mode)
        });
    }
    for mode in [
        InterpolateMode::Bicubic {
            align_corners: true,
        },
        InterpolateMode::Bicubic {
            align_corners: false,
        },
        InterpolateMode::BilinearAntialiased {
            align_corners: false,
        },
        InterpolateMode::BicubicAntialiased {
            align_corners: true,
        },
        InterpolateMode::Area,
    ] {
        list.add("interpolate", vec![image.clone()], move |x| {
            x[0].interpolate(InterpolateTo::Size([3, 6]), mode)
        });
    }
}

fn others(list: &mut List) {
    let (image, grid) = (
        list.plain(&[1, 2, 4, 3]),
        list.draw.tensor(&[1, 2, 2, 2], -0.9, 0.9, &[0.0]),
    );
    for mode in [GridSampleMode::Bilinear, GridSampleMode::Bicubic] {
        for padding_mode in [GridSamplePadding::Zeros, GridSamplePadding::Border] {
            let options = GridSample {
                mode,
                padding_mode,
                align_corners: true,
            };
            list.add("grid_sample", vec![image.clone(), grid.clone()], move |x| {
                x[0].grid_sample(&x[1], options)
            });
        }
    }
    let maps = list.plain(&[1, 2, 3]);
    list.add("affine_grid", vec![maps], |x| {
        x[0].affine_grid(&[1, 1, 2, 3], false)
    });
    let blocks = Blocks {
        stride: [2, 1],
        padding: [1, 0],
        ..Blocks::new([2, 2])
    };
    list.add("unfold", vec![image.clone()], move |x| x[0].im2col(blocks));
    let columns = list.plain(&[1, 4, 6]);
    list.add("fold", vec![columns], move |x| x[0].col2im([4, 3], blocks));
    list.add("channel_shuffle", vec![image.clone()], |x| {
        x[0].channel_shuffle(2)
    });
    list.add(
        "pixel_unshuffle",
        vec![image.narrow(3, 0, 2).expect("two columns")],
        |x| x[0].pixel_unshuffle(2)?.pixel_shuffle(2),
    );
    let scale = list.plain(&[2]);
    list.add("instance_norm", vec![image.clone(), scale], |x| {
        x[0].instance_norm(InstanceNorm {
            weight: Some(&x[1]),
            ..InstanceNorm::default()
        })
    });
    list.add("local_response_norm", vec![image.clone()], |x| {
        x[0].local_response_norm(2, 0.5, 0.75, 1.0)
    });
    let (rows, others) = (list.plain(&[2, 3]), list.plain(&[2, 3]));
    for p in [1.0, 2.0, 3.0] {
        list.add("normalize", vec![rows.clone()], move |x| {
            x[0].normalize(p, 1, 1e-12)
        });
        list.add(
            "pairwise_distance",
            vec![rows.clone(), others.clone()],
            move |x| x[0].pairwise_distance(&x[1], p, 1e-6, false),
        );
    }
    list.add(
        "cosine_similarity",
        vec![rows.clone(), others.clone()],
        |x| x[0].cosine_similarity(&x[1], 1, 1e-8),
    );
    let (weight, bias) = (list.plain(&[2, 3, 3]), list.plain(&[2]));
    list.add("bilinear", vec![rows, others, weight, bias], |x| {
        x[0].bilinear(&x[1], &x[2], Some(&x[3]))
    });
    let table = list.plain(&[4, 2]);
    let bags = list.draw.ints(&[2, 3], 0, 3);
    for mode in [
        EmbeddingBagMode::Sum,
        EmbeddingBagMode::Mean,
        EmbeddingBagMode::Max,
    ] {
        list.add(
            "embedding_bag",
            vec![table.clone(), bags.clone()],
            move |x| {
                x[0].embedding_bag(
                    &x[1],
                    EmbeddingBag {
                        mode,
                        ..EmbeddingBag::default()
                    },
                )
            },
        );
    }
}
