//! Ops on tensors of over 2^31 elements on a device that takes launches and does nothing: each launches kernels that reach all
//! elements, or says in its error what is too many. Nothing panics, and no count wraps.

use fireclay_tensor::{
    AvgPool2d, BatchNorm, Conv2dOptions, CrossEntropy, DType, Device, Error, Pool2d, Result, Tensor,
};
use virtual_gpu::machine::Settings;

const CUDA: Device = Device::Cuda(0);

/// Not a multiple of anything that a kernel works in.
const MANY: usize = (1 << 31) + 5;

type Call = fn(&Tensor) -> Result<Tensor>;

/// Calls on a tensor of shape `[MANY]` and on one of shape `[3, MANY]`.
const CALLS: &[(&str, Call)] = &[
    ("add", |x| x.add(x)),
    ("exp", Tensor::exp),
    ("to_dtype", |x| x.to_dtype(DType::F32)),
    ("contiguous", |x| {
        x.unsqueeze(0)?.transpose(0, -1)?.contiguous()
    }),
    ("sum", |x| x.sum(&[-1], false)),
    ("sum_all", Tensor::sum_all),
    ("amax", |x| x.amax(&[-1], true)),
    ("argmax", |x| x.argmax(-1, false)),
    ("max_dim", |x| {
        x.max_dim(-1, false).map(|(values, _)| values)
    }),
    ("softmax", |x| x.softmax(-1)),
    ("log_softmax", |x| x.log_softmax(-1)),
    ("cumsum", |x| x.cumsum(-1)),
    ("sort", |x| x.sort(-1, false).map(|(values, _)| values)),
    ("topk", |x| x.topk(3, -1, true).map(|(values, _)| values)),
    ("dropout", |x| x.dropout(0.5, true)),
    ("layer_norm", |x| {
        let last = x.ndim() - 1;
        x.layer_norm(&x.shape()[last..], None, None, 1e-5)
    }),
    ("rms_norm", |x| {
        let last = x.ndim() - 1;
        x.rms_norm(&x.shape()[last..], None, None)
    }),
    ("index_select", |x| {
        let places = Tensor::arange(0, 5, 1, CUDA)?;
        x.index_select(-1, &places)
    }),
    ("gather", |x| {
        let places = Tensor::zeros(&x.shape()[..], CUDA)?.to_dtype(DType::I64)?;
        x.gather(-1, &places)
    }),
    ("scatter_add", |x| {
        let places = Tensor::zeros(&x.shape()[..], CUDA)?.to_dtype(DType::I64)?;
        x.scatter_add(-1, &places, x)
    }),
    ("matmul", |x| {
        let x = x.reshape(&[-1, 1])?;
        x.matmul(&Tensor::ones(&[1, 1], CUDA)?.to_dtype(x.dtype())?)
    }),
    ("matmul along", |x| {
        let x = x.reshape(&[1, -1])?;
        x.matmul(&x.transpose(0, 1)?)
    }),
    ("cross_entropy", |x| {
        let x = x.reshape(&[1, -1])?;
        let class = Tensor::arange(0, 1, 1, CUDA)?;
        x.cross_entropy(&class, CrossEntropy::default())
    }),
    ("max_pool2d", |x| {
        x.reshape(&[1, 1, 1, -1])?.max_pool2d(Pool2d::new([1, 3]))
    }),
    ("avg_pool2d", |x| {
        x.reshape(&[1, 1, 1, -1])?
            .avg_pool2d(AvgPool2d::new([1, 3]))
    }),
    ("conv2d", |x| {
        let image = x.reshape(&[1, 1, 1, -1])?;
        let weight = Tensor::ones(&[1, 1, 1, 3], CUDA)?.to_dtype(x.dtype())?;
        image.conv2d(&weight, None, Conv2dOptions::default())
    }),
    ("conv2d of many", |x| {
        let images = x.reshape(&[-1, 1, 1, 1])?;
        let weight = Tensor::ones(&[1, 1, 1, 1], CUDA)?.to_dtype(x.dtype())?;
        images.conv2d(&weight, None, Conv2dOptions::default())
    }),
    ("batch_norm", |x| {
        let x = x.reshape(&[-1, 1])?;
        x.batch_norm(BatchNorm {
            training: true,
            ..BatchNorm::default()
        })
    }),
];

#[test]
fn more_elements_than_31_bits_count_are_taken_or_refused() {
    let machine = fireclay_cuda::driver::use_virtual(Settings {
        devices: 1,
        memory: 1 << 41,
        execute: false,
        ..Settings::default()
    })
    .expect("no driver was chosen before");
    let mut refused = Vec::new();
    for shape in [&[MANY][..], &[3, MANY]] {
        for dtype in [DType::BF16, DType::F32] {
            for (name, call) in CALLS {
                let x = Tensor::empty(shape, dtype, CUDA)
                    .unwrap()
                    .requires_grad_(true)
                    .unwrap();
                machine.reset_counters();
                let result = call(&x).and_then(|result| {
                    if result.requires_grad() {
                        result.backward_with(Some(&result.detach()), Default::default())?;
                    }
                    Ok(())
                });
                match result {
                    Ok(()) => {
                        let launches: u64 = machine
                            .counters()
                            .kernels
                            .values()
                            .map(|k| k.launches)
                            .sum();
                        assert!(launches > 0, "{name} of {shape:?}");
                    }
                    Err(error @ Error::InvalidArgument { .. }) => {
                        let text = error.to_string();
                        assert!(
                            text.contains("more than the"),
                            "{name} of {shape:?}: {text}"
                        );
                        refused.push(*name);
                    }
                    Err(error) => panic!("{name} of {shape:?}: {error}"),
                }
            }
        }
    }
    refused.sort_unstable();
    refused.dedup();
    let named = [
        "avg_pool2d",
        "conv2d",
        "gather",
        "max_pool2d",
        "scatter_add",
    ];
    assert_eq!(
        refused, named,
        "planes of an image, and indices to sort, are counted by 31 and 32 bits"
    );
}
