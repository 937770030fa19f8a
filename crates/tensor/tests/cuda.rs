//! Tensors on a virtual GPU: creation, moves, pointwise ops and their gradients, errors.

use fireclay_tensor::{
    DType, Device, Error, Meta, Op, OutputMeta, OutputMetas, Scalar, Tensor, dispatch,
};
use std::sync::OnceLock;
use virtual_gpu::machine::{Checks, Settings, Sink};

/// The first of two virtual devices.
fn cuda() -> Device {
    static MACHINE: OnceLock<()> = OnceLock::new();
    MACHINE.get_or_init(|| {
        fireclay_cuda::driver::use_virtual(Settings {
            devices: 2,
            memory: 256 << 20,
            log: Sink::Stderr,
            checks: Checks {
                uninitialized: true,
                shared_races: true,
                stream_races: true,
                ..Checks::default()
            },
            ..Settings::default()
        })
        .expect("no driver was chosen before");
    });
    Device::Cuda(0)
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count)
        .map(|index| ((index * 37 % 101) as f32 - 50.0) / 7.0)
        .collect()
}

fn bits(tensor: &Tensor) -> Vec<u8> {
    tensor.to_bytes().unwrap()
}

#[test]
fn tensors_come_and_go() {
    let device = cuda();
    let values = numbers(60);
    let x = Tensor::from_slice(&values, &[3, 4, 5], device).unwrap();
    assert_eq!(x.device(), device);
    assert_eq!(x.to_vec::<f32>().unwrap(), values);
    assert_eq!(x.cpu().unwrap().to_vec::<f32>().unwrap(), values);
    assert_eq!(x.to("cuda:1").unwrap().device(), Device::Cuda(1));
    assert_eq!(bits(&x.to("cuda:1").unwrap()), bits(&x));
    // A view moves as what it shows.
    let part = x.transpose(0, 2).unwrap().narrow(0, 1, 3).unwrap();
    let expected = part.cpu().unwrap();
    assert_eq!(part.shape(), expected.shape());
    assert_eq!(bits(&part), bits(&expected));
    assert_eq!(
        Tensor::full(&[2, 2], 1.5, device)
            .unwrap()
            .to_vec::<f32>()
            .unwrap(),
        [1.5; 4]
    );
    assert_eq!(
        Tensor::arange(0i64, 5i64, 1i64, device)
            .unwrap()
            .to_vec::<i64>()
            .unwrap(),
        [0, 1, 2, 3, 4]
    );
    assert!(format!("{x}").contains("device=\"cuda:0\""));
    assert_eq!(
        Tensor::zeros(&[0, 3], device)
            .unwrap()
            .to_vec::<f32>()
            .unwrap(),
        []
    );
}

#[test]
fn every_cast_gives_the_bits_of_the_host() {
    let device = cuda();
    let dtypes = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I64,
        DType::I32,
        DType::I16,
        DType::I8,
        DType::U8,
        DType::Bool,
    ];
    let base = Tensor::from_slice(&numbers(101), &[101], "cpu").unwrap();
    for from in dtypes {
        let host = base.to_dtype(from).unwrap();
        let there = host.to(device).unwrap();
        for to in dtypes {
            assert_eq!(
                bits(&there.to_dtype(to).unwrap()),
                bits(&host.to_dtype(to).unwrap()),
                "{from} to {to}"
            );
        }
    }
}

#[test]
fn pointwise_ops_and_gradients_give_the_bits_of_the_host() {
    let device = cuda();
    let run = |device: Device| -> Vec<Vec<u8>> {
        let x = Tensor::from_slice(&numbers(77), &[7, 11], device).unwrap();
        let w = Tensor::from_slice(&numbers(11), &[11], device).unwrap();
        let x = x.requires_grad_(true).unwrap();
        let y = x.mul(&w).unwrap().add(0.25).unwrap().tanh().unwrap();
        let z = (&x * 3.0 - &w).sigmoid().eval().unwrap();
        let seed = Tensor::from_slice(&numbers(77), &[7, 11], device).unwrap();
        let out = y.mul(&z).unwrap();
        out.backward_with(Some(&seed), Default::default()).unwrap();
        let less = x.lt(&w).unwrap();
        let chosen = x.maximum(&w).unwrap();
        vec![
            bits(&out),
            bits(&x.grad().unwrap()),
            bits(&less),
            bits(&chosen),
        ]
    };
    assert_eq!(run(device), run(Device::Cpu));
}

#[test]
fn reductions_give_the_bits_of_the_host() {
    let device = cuda();
    // Rows and columns of one block and of many, wide and narrow, with rests.
    for shape in [
        &[1usize][..],
        &[63],
        &[64],
        &[4096],
        &[4097],
        &[20000],
        &[3, 5000],
        &[5, 1],
        &[1000, 3],
        &[130, 64],
        &[700, 100],
        &[2, 500, 7],
        &[3, 65, 70],
        &[0, 4],
        &[4, 0],
    ] {
        let count: usize = shape.iter().product();
        let host = Tensor::from_slice(&numbers(count), shape, "cpu").unwrap();
        for dtype in [
            DType::F32,
            DType::F64,
            DType::I64,
            DType::BF16,
            DType::F16,
            DType::I32,
        ] {
            let host = host.to_dtype(dtype).unwrap();
            let there = host.to(device).unwrap();
            for dim in -1..shape.len() as isize {
                let dims = if dim < 0 { vec![] } else { vec![dim] };
                type Reduce = fn(&Tensor, &[isize]) -> fireclay_tensor::Result<Tensor>;
                let kinds: [(&str, Reduce); 4] = [
                    ("sum", |x, dims| x.sum(dims, false)),
                    ("mean", |x, dims| x.mean(dims, false)),
                    ("amax", |x, dims| x.amax(dims, true)),
                    ("amin", |x, dims| x.amin(dims, false)),
                ];
                for (name, reduce) in kinds {
                    match (reduce(&host, &dims), reduce(&there, &dims)) {
                        // Which NaN the mean of nothing is may differ.
                        (Ok(_), Ok(there)) if count == 0 && name == "mean" => {
                            assert!(
                                there.numel() == 0
                                    || there
                                        .ne(&there)
                                        .unwrap()
                                        .all(&[], false)
                                        .unwrap()
                                        .item()
                                        .unwrap()
                                        == 1.0
                            );
                        }
                        (Ok(host), Ok(there)) => {
                            assert_eq!(
                                bits(&there),
                                bits(&host),
                                "{name} of {dtype}{shape:?} over {dims:?}"
                            );
                        }
                        (Err(_), Err(_)) => {}
                        (host, there) => panic!("{name} of {dtype}{shape:?}: {host:?}, {there:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn gradients_of_broadcasting_and_reductions_give_the_bits_of_the_host() {
    let device = cuda();
    let run = |device: Device| -> Vec<Vec<u8>> {
        let leaf = |count: usize, shape: &[usize]| {
            let tensor = Tensor::from_slice(&numbers(count), shape, device).unwrap();
            tensor.requires_grad_(true).unwrap()
        };
        let (x, w, b) = (leaf(300 * 20, &[300, 20]), leaf(20, &[20]), leaf(1, &[]));
        let y = ((&x * &w).tanh() + &b).eval().unwrap();
        let loss = y
            .mul(&y)
            .unwrap()
            .mean(&[1], false)
            .unwrap()
            .sum_all()
            .unwrap();
        loss.backward().unwrap();
        let shifted = (&x - &x.amax(&[1], true).unwrap()).eval().unwrap();
        vec![
            bits(&loss),
            bits(&x.grad().unwrap()),
            bits(&w.grad().unwrap()),
            bits(&b.grad().unwrap()),
            bits(&shifted),
        ]
    };
    assert_eq!(run(device), run(Device::Cpu));
}

#[test]
fn numbers_of_the_host_mix_and_their_gradients_come_back() {
    let device = cuda();
    let x = Tensor::from_slice(&numbers(4), &[4], device).unwrap();
    let scale = Tensor::scalar(2.0f32, "cpu")
        .unwrap()
        .requires_grad_(true)
        .unwrap();
    let y = x.mul(&scale).unwrap();
    assert_eq!(y.device(), device);
    let error = Tensor::from_slice(&[1.0f32, 2.0], &[2], "cpu")
        .unwrap()
        .mul(&Tensor::scalar(1.0f32, device).unwrap());
    let error = error.unwrap_err();
    assert!(matches!(error, Error::DeviceMismatch { .. }));
}

#[test]
fn mixed_devices_are_named_with_the_way_out() {
    let device = cuda();
    let x = Tensor::zeros(&[2, 3], device).unwrap();
    let y = Tensor::zeros(&[3], "cpu").unwrap();
    let error = x.add(&y).unwrap_err().to_string();
    for part in [
        "add: all operands must be on one device, got cpu and cuda:0",
        "input 0: f32[2, 3] on cuda:0, made at",
        "input 1: f32[3] on cpu, made at",
        "cuda.rs",
        "move input 1 (12 bytes) to cuda:0: x.to(\"cuda:0\")?",
    ] {
        assert!(error.contains(part), "{part} is missing in:\n{error}");
    }
    let error = Tensor::zeros(&[1], "cuda:7").unwrap_err().to_string();
    assert!(
        error.contains("cuda:7") && error.contains("cuda:0 to cuda:1"),
        "{error}"
    );
}

#[test]
fn an_op_without_a_kernel_says_so() {
    #[derive(Debug)]
    struct OfTheUser;

    impl Op for OfTheUser {
        fn name(&self) -> &'static str {
            "of_the_user"
        }

        fn output(&self, inputs: &[Meta<'_>]) -> fireclay_tensor::Result<OutputMetas> {
            let shape = inputs[0].shape().clone();
            Ok([OutputMeta::contiguous(shape, inputs[0].dtype)]
                .into_iter()
                .collect())
        }
    }

    let x = Tensor::zeros(&[2, 3], cuda()).unwrap();
    let error = dispatch::call(OfTheUser, &[&x]).unwrap_err();
    assert!(matches!(error, Error::NoKernel { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("of_the_user: no kernel for f32 on cuda:0"),
        "{text}"
    );
}

#[test]
fn in_place_edits_and_copies_cross_devices() {
    let device = cuda();
    let x = Tensor::from_slice(&numbers(12), &[3, 4], device).unwrap();
    let host = x.cpu().unwrap();
    x.add_(1.5).unwrap();
    host.add_(1.5).unwrap();
    assert_eq!(bits(&x), bits(&host));
    let row = Tensor::from_slice(&numbers(4), &[4], "cpu").unwrap();
    x.copy_(&row).unwrap();
    host.copy_(&row).unwrap();
    assert_eq!(bits(&x), bits(&host));
    x.fill_(Scalar::F64(-3.0)).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [-3.0; 12]);
}
