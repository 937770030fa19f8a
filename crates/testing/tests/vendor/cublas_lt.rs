//! Products by cuBLASLt: the sequence of calls, against a library that stands in for it on the virtual GPU.

use fireclay_cuda::vendor::{self, BlasLibrary, Matrix, Operands, Product, preferred_blas_library};
use fireclay_cuda::{DeviceBuffer, Gpu, Purpose};
use fireclay_tensor::{DType, Device, Error, Tensor};
use fireclay_testing::compare::{Tolerance, matches};
use fireclay_testing::devices::{moved, virtual_cuda};
use fireclay_testing::draw::Draw;

use crate::stand_in::{StandIn, built, check, run};

#[test]
fn products_go_to_the_library_that_is_preferred() {
    let path = built("stand_in_cublas_lt");
    let path = path.to_str().expect("a path of letters");
    run(
        "cublas_lt::with_the_stand_in",
        &[("FIRECLAY_CUBLASLT", path), ("FIRECLAY_BLAS", "cublaslt")],
    );
}

#[test]
fn without_a_library_own_kernels_compute_and_the_report_says_why() {
    run(
        "cublas_lt::without_a_library",
        &[("FIRECLAY_BLAS", "cublaslt")],
    );
    run(
        "cublas_lt::with_a_library_off",
        &[("FIRECLAY_CUBLASLT", "off")],
    );
    run(
        "cublas_lt::with_a_library_that_is_not_there",
        &[("FIRECLAY_CUBLASLT", "/nowhere/libcublasLt.so.12")],
    );
    run(
        "cublas_lt::with_a_preference_of_no_sense",
        &[("FIRECLAY_BLAS", "mkl")],
    );
}

/// What the report says of cuBLASLt; a product works whatever it is.
fn reported() -> String {
    let device = virtual_cuda();
    let x = Tensor::ones(&[3, 4], device).unwrap();
    let product = x.matmul(&x.transpose(0, 1).unwrap()).unwrap();
    assert_eq!(product.to_vec::<f32>().unwrap(), vec![4.0; 9]);
    let [blas, dnn] = <[_; 2]>::try_from(vendor::reports()).unwrap();
    assert_eq!((blas.name, dnn.name), ("cuBLASLt", "cuDNN"));
    assert_eq!(blas.found, None);
    assert!(blas.change.contains("FIRECLAY_CUBLASLT") && blas.change.contains("FIRECLAY_BLAS"));
    assert!(dnn.what.contains("virtual GPU") && dnn.change.contains("FIRECLAY_CUDNN"));
    assert_eq!(
        preferred_blas_library(BlasLibrary::Own).unwrap(),
        BlasLibrary::Own
    );
    let error = preferred_blas_library(BlasLibrary::CublasLt)
        .unwrap_err()
        .to_string();
    assert!(error.contains("cuBLASLt can't be used"), "{error}");
    blas.what
}

#[test]
#[ignore = "run by the other tests"]
fn without_a_library() {
    assert_eq!(
        reported(),
        "not used: its code can't run on the virtual GPU"
    );
}

#[test]
#[ignore = "run by the other tests"]
fn with_a_library_off() {
    assert_eq!(reported(), "not used: FIRECLAY_CUBLASLT is \"off\"");
}

#[test]
#[ignore = "run by the other tests"]
fn with_a_library_that_is_not_there() {
    let what = reported();
    assert!(
        what.contains("tried /nowhere/libcublasLt.so.12: cannot open"),
        "{what}"
    );
}

#[test]
#[ignore = "run by the other tests"]
fn with_a_preference_of_no_sense() {
    let x = Tensor::ones(&[3, 3], virtual_cuda()).unwrap();
    let error = x.matmul(&x).unwrap_err().to_string();
    assert!(
        error.contains("FIRECLAY_BLAS is \"mkl\", expected \"own\" or \"cublaslt\""),
        "{error}"
    );
}

fn numbers(draw: &mut Draw, shape: &[usize]) -> Tensor {
    draw.tensor(shape, -2.0, 2.0, &[])
}

#[test]
#[ignore = "run by the other tests"]
fn with_the_stand_in() {
    let device = virtual_cuda();
    let stand_in = StandIn::connect("FIRECLAY_CUBLASLT");
    let mut draw = Draw::new(11);
    let blas = &vendor::reports()[0];
    let found = blas.found.as_ref().expect("it is there");
    assert_eq!(
        (found.version, blas.what.as_str()),
        ([12, 8, 3], "used for matrix products")
    );

    // All transposes of both operands, f32 and f64.
    for dtype in [DType::F32, DType::F64] {
        let (a, b) = (numbers(&mut draw, &[5, 7]), numbers(&mut draw, &[7, 3]));
        let (a, b) = (a.to_dtype(dtype).unwrap(), b.to_dtype(dtype).unwrap());
        let want = a.matmul(&b).unwrap();
        let turned = |x: &Tensor| x.transpose(0, 1).unwrap().contiguous().unwrap();
        let there = moved(&[a.clone(), b.clone(), turned(&a), turned(&b)], device);
        let (at, bt) = (
            there[2].transpose(0, 1).unwrap(),
            there[3].transpose(0, 1).unwrap(),
        );
        let number = if dtype == DType::F32 {
            "compute 68 dtype 0"
        } else {
            "compute 70 dtype 1"
        };
        for (a, b, call) in [
            (&there[0], &there[1], "NN 3x5x7 ld 3 7 3"),
            (&there[0], &bt, "TN 3x5x7 ld 7 7 3"),
            (&at, &there[1], "NT 3x5x7 ld 3 5 3"),
            (&at, &bt, "TT 3x5x7 ld 7 5 3"),
        ] {
            let got = a.matmul(b).unwrap().cpu().unwrap();
            assert_eq!(
                matches(&got, &want, Tolerance::new(1e-5, 1e-5)).map(drop),
                Ok(()),
                "{call}"
            );
            let calls = stand_in.calls();
            let text = format!("{call} batch 1 {number} epilogue 1");
            let expected = [format!("propose {text}"), format!("matmul {text}")];
            assert!(calls.ends_with(&expected), "{calls:?}");
            // Asked once only.
            a.matmul(b).unwrap();
            assert_eq!(stand_in.calls(), expected[1..]);
        }
    }

    // A bias; a batch, and one whose right operand is shared; a product with a gradient.
    let x = numbers(&mut draw, &[4, 6]).to_dtype(DType::F32).unwrap();
    let weight = numbers(&mut draw, &[5, 6]).to_dtype(DType::F32).unwrap();
    let bias = numbers(&mut draw, &[5]).to_dtype(DType::F32).unwrap();
    let there = moved(&[x.clone(), weight.clone(), bias.clone()], device);
    let got = there[0].linear(&there[1], Some(&there[2])).unwrap();
    let want = x.linear(&weight, Some(&bias)).unwrap();
    assert_eq!(
        matches(&got.cpu().unwrap(), &want, Tolerance::new(1e-5, 1e-5)).map(drop),
        Ok(())
    );
    let calls = stand_in.calls();
    assert_eq!(
        calls.last().unwrap(),
        "matmul TN 5x4x6 ld 6 6 5 batch 1 compute 68 dtype 0 epilogue 4"
    );
    // Rows of all matrices with one shared matrix are one tall product.
    for (a, b, call) in [
        ([3, 4, 6], [3, 6, 2], "NN 2x4x6 ld 2 6 2 batch 3"),
        ([3, 4, 6], [1, 6, 2], "NN 2x12x6 ld 2 6 2 batch 1"),
    ] {
        let (a, b) = (numbers(&mut draw, &a), numbers(&mut draw, &b));
        let there = moved(&[a.clone(), b.clone()], device);
        let got = there[0].matmul(&there[1]).unwrap();
        let want = a.matmul(&b).unwrap();
        assert_eq!(
            matches(&got.cpu().unwrap(), &want, Tolerance::new(1e-9, 1e-9)).map(drop),
            Ok(())
        );
        assert!(stand_in.calls().last().unwrap().contains(call));
    }
    let leaf = x.to(device).unwrap().requires_grad_(true).unwrap();
    // The gradient of the sum alone would be one number, repeated.
    leaf.matmul(&there[1].transpose(0, 1).unwrap())
        .unwrap()
        .square()
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    assert!(leaf.grad().is_some());
    assert_eq!(
        stand_in
            .calls()
            .iter()
            .filter(|call| call.starts_with("matmul"))
            .count(),
        2
    );

    // Whole numbers, empty products and repeated rows are for Fireclay's own kernels.
    let whole = there[0].to_dtype(DType::I64).unwrap();
    whole.matmul(&whole.transpose(0, 1).unwrap()).unwrap();
    let none = Tensor::zeros(&[4, 0], device).unwrap();
    none.matmul(&none.transpose(0, 1).unwrap()).unwrap();
    let row = there[2].expand(&[4, 5]).unwrap();
    row.matmul(&there[2].reshape(&[5, 1]).unwrap()).unwrap();
    assert_eq!(stand_in.calls(), Vec::<String>::new());

    // So is what it proposes nothing for, which the report counts.
    let (a, b) = (numbers(&mut draw, &[2, 13]), numbers(&mut draw, &[13, 2]));
    let there = moved(&[a.clone(), b.clone()], device);
    let got = there[0].matmul(&there[1]).unwrap();
    let want = a.matmul(&b).unwrap();
    assert_eq!(
        matches(&got.cpu().unwrap(), &want, Tolerance::new(1e-9, 1e-9)).map(drop),
        Ok(())
    );
    assert!(
        stand_in
            .calls()
            .iter()
            .all(|call| !call.starts_with("matmul"))
    );
    assert!(
        vendor::reports()[0]
            .what
            .contains("no algorithm for 1 of those met")
    );

    narrow_floats(&stand_in);
    assert!(check(&["matmul", "linear", "addmm", "baddbmm", "addmv"]) > 50);
    assert!(stand_in.calls().len() > 50);

    // A call that fails is an error that names it and the product, and the next one works.
    stand_in.fail(13);
    let x = Tensor::ones(&[2, 3], device).unwrap();
    let error = x.matmul(&x.transpose(0, 1).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error:?}");
    let text = error.to_string();
    for part in [
        "matmul: cublasLtMatmul of cuBLASLt 12.8.3 (",
        "returned CUBLAS_STATUS_EXECUTION_FAILED (13)",
        "for f32, batch 1, [2, 3] @ [3, 2], strides",
        "FIRECLAY_BLAS=own",
    ] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    x.matmul(&x.transpose(0, 1).unwrap()).unwrap();
    assert_eq!(stand_in.live(), 0, "descriptions are left");

    // The user's word counts over the environment's.
    stand_in.calls();
    preferred_blas_library(BlasLibrary::Own).unwrap();
    x.matmul(&x.transpose(0, 1).unwrap()).unwrap();
    assert_eq!(stand_in.calls(), Vec::<String>::new());
    assert_eq!(
        preferred_blas_library(BlasLibrary::CublasLt).unwrap(),
        BlasLibrary::CublasLt
    );
    x.matmul(&x.transpose(0, 1).unwrap()).unwrap();
    assert_eq!(stand_in.calls().len(), 1);
}

/// bf16, f16 and tf32, as the library is asked for them.
fn narrow_floats(stand_in: &StandIn) {
    let stream = Gpu::get(0).expect("the device").stream();
    for (dtype, tf32, numbers) in [
        (DType::BF16, false, "compute 68 dtype 14"),
        (DType::F16, false, "compute 68 dtype 2"),
        (DType::F32, true, "compute 77 dtype 0"),
    ] {
        let one = Tensor::ones(&[16], Device::Cpu)
            .unwrap()
            .to_dtype(dtype)
            .unwrap();
        let bytes = one.to_bytes().unwrap();
        let memory = DeviceBuffer::allocate(stream, 2 * bytes.len(), Purpose::Workspaces).unwrap();
        let result = memory.address() + bytes.len() as u64;
        // SAFETY: the buffer has that many bytes.
        unsafe { fireclay_cuda::upload(stream, memory.address(), &bytes) }.unwrap();
        let lying = Matrix {
            batch: 0,
            row: 4,
            col: 1,
        };
        #[rustfmt::skip]
        let product = Product { dtype, tf32, batch: 1, m: 4, n: 4, k: 4, a: lying, b: lying };
        #[rustfmt::skip]
        let operands = Operands { a: memory.address(), b: memory.address(), bias: Some(memory.address()), result };
        // SAFETY: two matrices of 16 elements, the second one for the result.
        assert!(unsafe { vendor::product(stream, "matmul", &product, operands) }.unwrap());
        let mut got = vec![0; bytes.len()];
        // SAFETY: as above.
        unsafe { fireclay_cuda::download(stream, result, &mut got) }.unwrap();
        let five = Tensor::full(&[16], 5.0, Device::Cpu)
            .unwrap()
            .to_dtype(dtype)
            .unwrap();
        assert_eq!(got, five.to_bytes().unwrap());
        assert!(stand_in.calls().last().unwrap().contains(numbers));
    }
}
