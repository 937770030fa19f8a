//! Matrix products on a device without the tensor cores that the kernels use: by the CUDA cores, with the bits of the host.

use fireclay_tensor::{DType, Device, Tensor, set_allow_tf32};
use fireclay_testing::compare::same_numbers;
use virtual_gpu::machine::Settings;

#[test]
fn products_have_the_bits_of_the_host() {
    fireclay_cuda::driver::use_virtual(Settings {
        devices: 1,
        capability: (7, 5),
        ..Settings::default()
    })
    .expect("no driver was chosen before");
    let device = Device::Cuda(0);
    set_allow_tf32(true);
    fireclay_tensor::manual_seed(5);
    for (batch, m, n, k) in [
        (1, 5, 7, 9),
        (2, 70, 70, 300),
        (1, 33, 40, 0),
        (200, 40, 36, 8),
    ] {
        for dtype in [DType::BF16, DType::F16, DType::F32] {
            let of = |shape: &[usize]| {
                Tensor::randn(shape, "cpu")
                    .unwrap()
                    .to_dtype(dtype)
                    .unwrap()
            };
            let (a, b) = (of(&[batch, m, k]), of(&[batch, k, n]));
            let got = (a.to(device).unwrap())
                .matmul(&b.to(device).unwrap())
                .unwrap();
            let want = a.matmul(&b).unwrap();
            assert!(
                same_numbers(&got.cpu().unwrap(), &want),
                "{batch} x {m} x {n} x {k} {dtype}"
            );
        }
    }
}
