//! Convolutions by cuDNN: the sequence of calls, against a library that stands in for it on the virtual GPU.

use fireclay_cuda::sync::{Reason, count, waits};
use fireclay_cuda::vendor::{self, ConvLibrary, Report, preferred_conv_library};
use fireclay_cuda::{Gpu, memory};
use fireclay_tensor::{
    Backpropagation, Conv2dOptions, DType, Device, Error, Tensor, set_allow_tf32,
};
use fireclay_testing::compare::{Tolerance, matches};
use fireclay_testing::devices::virtual_cuda;
use fireclay_testing::draw::Draw;

use crate::stand_in::{StandIn, built, check, run};

#[test]
fn convolutions_go_to_the_library_that_is_preferred() {
    let path = built("stand_in_cudnn");
    let path = path.to_str().expect("a path of letters");
    let with = |version| {
        [
            ("FIRECLAY_CUDNN", path),
            ("FIRECLAY_CONV", "cudnn"),
            ("STAND_IN_CUDNN_VERSION", version),
        ]
    };
    run("cudnn::with_version_8", &with("8907"));
    run("cudnn::with_version_9", &with("91002"));
    run(
        "cudnn::with_one_for_a_newer_driver",
        &[("FIRECLAY_CUDNN", path), ("STAND_IN_CUDNN_CUDA", "99000")],
    );
}

#[test]
fn without_a_library_own_kernels_compute_and_the_report_says_why() {
    run("cudnn::without_a_library", &[("FIRECLAY_CONV", "cudnn")]);
    run("cudnn::with_a_library_off", &[("FIRECLAY_CUDNN", "off")]);
    run(
        "cudnn::with_a_library_that_is_not_there",
        &[("FIRECLAY_CUDNN", "/nowhere/libcudnn.so.9")],
    );
    run(
        "cudnn::with_a_preference_of_no_sense",
        &[("FIRECLAY_CONV", "mkl")],
    );
}

fn report() -> Report {
    let all = vendor::reports();
    let found = all.into_iter().find(|report| report.name == "cuDNN");
    found.expect("it is reported")
}

/// What the report says of a cuDNN that can't be used; a convolution works whatever it is.
fn reported() -> String {
    let image = Tensor::ones(&[1, 2, 4, 4], virtual_cuda()).unwrap();
    let weight = Tensor::ones(&[3, 2, 3, 3], virtual_cuda()).unwrap();
    let result = image
        .conv2d(&weight, None, Conv2dOptions::default())
        .unwrap();
    assert_eq!(result.to_vec::<f32>().unwrap(), vec![18.0; 12]);
    let report = report();
    assert_eq!(report.found, None);
    assert!(report.change.contains("FIRECLAY_CUDNN") && report.change.contains("FIRECLAY_CONV"));
    let own = preferred_conv_library(ConvLibrary::Own).unwrap();
    assert_eq!(own, ConvLibrary::Own);
    let error = preferred_conv_library(ConvLibrary::Cudnn).unwrap_err();
    let error = error.to_string();
    let why = report
        .what
        .strip_prefix("not used: ")
        .expect("it is not used");
    assert!(
        error.contains(&format!("cuDNN can't be used: {why}")),
        "{error}"
    );
    // What can't be is not preferred afterwards.
    assert_eq!(preferred_conv_library(None).unwrap(), ConvLibrary::Own);
    report.what
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
    assert_eq!(reported(), "not used: FIRECLAY_CUDNN is \"off\"");
}

#[test]
#[ignore = "run by the other tests"]
fn with_a_library_that_is_not_there() {
    let what = reported();
    assert!(
        what.contains("tried /nowhere/libcudnn.so.9: cannot open"),
        "{what}"
    );
}

#[test]
#[ignore = "run by the other tests"]
fn with_one_for_a_newer_driver() {
    let what = reported();
    assert!(what.contains("it needs a driver for CUDA 99"), "{what}");
}

#[test]
#[ignore = "run by the other tests"]
fn with_a_preference_of_no_sense() {
    let ones = Tensor::ones(&[1, 1, 3, 3], virtual_cuda()).unwrap();
    let error = ones.conv2d(&ones, None, Conv2dOptions::default());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("FIRECLAY_CONV is \"mkl\", expected \"own\" or \"cudnn\""),
        "{error}"
    );
}

/// A convolution: sizes of image and weight, stride, padding, dilation, groups.
struct Case {
    image: [usize; 4],
    weight: [usize; 4],
    options: Conv2dOptions,
}

fn case(image: [usize; 4], weight: [usize; 4], pairs: [[usize; 2]; 3], groups: usize) -> Case {
    let [stride, padding, dilation] = pairs;
    Case {
        image,
        weight,
        options: Conv2dOptions {
            stride,
            padding,
            dilation,
            groups,
        },
    }
}

/// Strides, padding, dilation, groups (one channel each too), kernels of one tap and of the image's size.
fn cases() -> Vec<Case> {
    let plain = [[1, 1], [0, 0], [1, 1]];
    vec![
        case([2, 3, 5, 6], [4, 3, 3, 3], plain, 1),
        case([2, 3, 5, 7], [4, 3, 3, 2], [[2, 3], [1, 2], [1, 1]], 1),
        case([1, 4, 9, 8], [6, 2, 3, 3], [[1, 2], [2, 0], [2, 3]], 2),
        case([3, 4, 6, 6], [8, 1, 3, 3], [[1, 1], [1, 1], [1, 1]], 4),
        case([2, 5, 4, 3], [7, 5, 1, 1], plain, 1),
        case([1, 1, 3, 4], [1, 1, 3, 4], plain, 1),
    ]
}

/// The output and the gradients of image, weight and bias.
fn all_of(case: &Case, leaves: &[Tensor], grad: &Tensor) -> [Tensor; 4] {
    let leaves: Vec<Tensor> = leaves
        .iter()
        .map(|leaf| leaf.detach().requires_grad_(true).unwrap())
        .collect();
    let output = leaves[0]
        .conv2d(&leaves[1], Some(&leaves[2]), case.options)
        .unwrap();
    output
        .backward_with(Some(grad), Backpropagation::default())
        .unwrap();
    let grad = |leaf: &Tensor| leaf.grad().expect("a leaf");
    [
        output.detach(),
        grad(&leaves[0]),
        grad(&leaves[1]),
        grad(&leaves[2]),
    ]
}

fn computed(calls: &[String]) -> Vec<&str> {
    let done = ["forward", "data", "filter"];
    let first = calls.iter().filter_map(|call| call.split(' ').next());
    first.filter(|word| done.contains(word)).collect()
}

#[test]
#[ignore = "run by the other tests"]
fn with_version_8() {
    with_the_stand_in([8, 9, 7], ["", "(8)"]);
}

#[test]
#[ignore = "run by the other tests"]
fn with_version_9() {
    with_the_stand_in(
        [9, 10, 2],
        [", \"the stand-in was told to fail\"", "(5000)"],
    );
}

fn with_the_stand_in(version: [usize; 3], [said, status]: [&str; 2]) {
    let device = virtual_cuda();
    let stand_in = StandIn::connect("FIRECLAY_CUDNN");
    let first = report();
    assert_eq!(first.found.expect("it is there").version, version);
    assert_eq!(first.what, "used for convolutions");
    assert_eq!(preferred_conv_library(None).unwrap(), ConvLibrary::Cudnn);

    results_are_those_of_own_kernels(&stand_in, device);
    what_is_asked_for(&stand_in, device);
    steps_after_the_first_cost_nothing_more(&stand_in, device);
    others_are_computed_by_own_kernels(&stand_in, device);
    threads_take_turns(device);
    assert!(check(&["conv2d"]) > 50);
    assert!(computed(&stand_in.calls()).len() > 50);

    // A call that fails is an error that names it, the convolution, and the way out; the next one works.
    let status_number: i32 = status.trim_matches(['(', ')']).parse().unwrap();
    let image = Tensor::ones(&[1, 2, 4, 4], device).unwrap();
    let weight = Tensor::ones(&[3, 2, 3, 3], device).unwrap();
    let convolve = || image.conv2d(&weight, None, Conv2dOptions::default());
    convolve().unwrap();
    let live = stand_in.live();
    stand_in.fail(status_number);
    let error = convolve().unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error:?}");
    let text = error.to_string();
    let version = version.map(|number| number.to_string()).join(".");
    for part in [
        &format!("conv2d: cudnnConvolutionForward of cuDNN {version} ("),
        &format!(
            "returned CUDNN_STATUS_EXECUTION_FAILED {status}{said} for f32, input [1, 2, 4, 4], weight [3, 2, 3, 3]"
        ),
        "output [1, 3, 2, 2], stride [1, 1], padding [0, 0], dilation [1, 1], groups 1",
        "FIRECLAY_CONV=own",
    ] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    stand_in.fail(if status_number == 8 { 2 } else { 4004 });
    let text = convolve().unwrap_err().to_string();
    assert!(
        text.contains("ALLOC_FAILED") && text.contains("empty_cache() may make room"),
        "{text}"
    );
    convolve().unwrap();
    assert_eq!(
        stand_in.live(),
        live,
        "descriptions are made anew, or ended"
    );

    // The user's word counts over the environment's.
    stand_in.calls();
    preferred_conv_library(ConvLibrary::Own).unwrap();
    convolve().unwrap();
    assert_eq!(stand_in.calls(), Vec::<String>::new());
    assert_eq!(
        report().what,
        "not used: Fireclay's own kernels compute convolutions"
    );
    preferred_conv_library(ConvLibrary::Cudnn).unwrap();
    convolve().unwrap();
    assert_eq!(computed(&stand_in.calls()), ["forward"]);
}

fn results_are_those_of_own_kernels(stand_in: &StandIn, device: Device) {
    let mut draw = Draw::new(5);
    for (dtype, tolerance) in [
        (DType::F32, 1e-5),
        (DType::F64, 1e-12),
        (DType::F16, 4e-3),
        (DType::BF16, 3e-2),
    ] {
        for case in cases() {
            let mut numbers = |shape: &[usize]| {
                let drawn = draw.tensor(shape, -2.0, 2.0, &[]);
                drawn.to_dtype(dtype).unwrap().to(device).unwrap()
            };
            let bias = [case.weight[0]];
            let leaves = [numbers(&case.image), numbers(&case.weight), numbers(&bias)];
            let sizes = leaves[0].conv2d(&leaves[1], None, case.options).unwrap();
            let grad = numbers(sizes.shape());
            stand_in.calls();
            let got = all_of(&case, &leaves, &grad);
            let calls = stand_in.calls();
            assert_eq!(computed(&calls), ["forward", "data", "filter"], "{calls:?}");
            let refused = calls.iter().find(|call| call.starts_with("REFUSED"));
            assert_eq!(refused, None);
            preferred_conv_library(ConvLibrary::Own).unwrap();
            let want = all_of(&case, &leaves, &grad);
            preferred_conv_library(ConvLibrary::Cudnn).unwrap();
            assert_eq!(computed(&stand_in.calls()), Vec::<&str>::new());
            for (number, (got, want)) in got.iter().zip(&want).enumerate() {
                let same = matches(
                    &got.cpu().unwrap(),
                    &want.cpu().unwrap(),
                    Tolerance::new(tolerance, tolerance),
                );
                let Case {
                    image,
                    weight,
                    options,
                } = &case;
                assert_eq!(
                    same.map(drop),
                    Ok(()),
                    "result {number} of {dtype} {image:?} {weight:?} {options:?}"
                );
            }
        }
    }
}

/// Numbers that the library is told, of each dtype, and of f32 that may be rounded.
fn what_is_asked_for(stand_in: &StandIn, device: Device) {
    let image = Tensor::ones(&[1, 2, 4, 4], device).unwrap();
    for (dtype, tf32, numbers) in [
        (DType::F32, false, "dtype 0 compute 0 math 3"),
        (DType::F32, true, "dtype 0 compute 0 math 0"),
        (DType::F64, false, "dtype 1 compute 1 math 0"),
        (DType::F16, false, "dtype 2 compute 0 math 1"),
        (DType::BF16, false, "dtype 9 compute 0 math 1"),
    ] {
        set_allow_tf32(tf32);
        let image = image.to_dtype(dtype).unwrap();
        let weight = Tensor::ones(&[3, 2, 1, 2], device)
            .unwrap()
            .to_dtype(dtype)
            .unwrap();
        stand_in.calls();
        let options = case([0; 4], [0; 4], [[3, 1], [1, 0], [2, 1]], 1).options;
        image.conv2d(&weight, None, options).unwrap();
        let text = format!(
            "x [1, 2, 4, 4] w [3, 2, 1, 2] pad [1, 0] stride [3, 1] dilation [2, 1] groups 1 {numbers}"
        );
        let expected = [format!("propose forward {text}"), format!("forward {text}")];
        assert_eq!(stand_in.calls(), expected);
        // Asked once only.
        image.conv2d(&weight, None, options).unwrap();
        assert_eq!(stand_in.calls(), expected[1..]);
        set_allow_tf32(false);
    }
}

/// After the first step, another one of the same shapes asks for nothing: no proposal, no memory of the driver's, no wait, no new
/// descriptions.
fn steps_after_the_first_cost_nothing_more(stand_in: &StandIn, device: Device) {
    let case = case([2, 4, 6, 6], [4, 2, 3, 3], [[1, 1], [1, 1], [1, 1]], 2);
    for dtype in [DType::F32, DType::BF16] {
        let ones = |shape: &[usize]| {
            let ones = Tensor::ones(shape, device).unwrap();
            ones.to_dtype(dtype).unwrap()
        };
        let leaves = [ones(&case.image), ones(&case.weight), ones(&[4])];
        let grad = ones(&[2, 4, 6, 6]);
        let memory = Gpu::get(0).unwrap().memory();
        let state = || -> (memory::Counts, i64, u64, u64) {
            let statistics = memory.statistics();
            (
                memory.counts(),
                stand_in.live(),
                statistics.allocated_bytes.all.current,
                statistics.reserved_bytes.all.current,
            )
        };
        drop(all_of(&case, &leaves, &grad));
        let (before, waited, reads) = (state(), count(), waits(Reason::Read).count);
        stand_in.calls();
        for _ in 0..3 {
            drop(all_of(&case, &leaves, &grad));
        }
        let calls = stand_in.calls();
        assert_eq!(calls.len(), 9, "{calls:?}");
        assert_eq!(computed(&calls).len(), 9);
        assert_eq!(state(), before);
        // The stand-in itself reads both operands of each of the nine.
        assert_eq!(waits(Reason::Read).count - reads, 18);
        assert_eq!(count() - waited, 18);
    }
}

/// Nothing, what it has no algorithm for that gives the same bits every time, and what lies at odd places.
fn others_are_computed_by_own_kernels(stand_in: &StandIn, device: Device) {
    for dtype in [DType::F32, DType::F16] {
        let ones = |shape: &[usize]| {
            let ones = Tensor::ones(shape, device).unwrap();
            ones.to_dtype(dtype).unwrap()
        };
        let plain = Conv2dOptions::default();
        stand_in.calls();
        let none = ones(&[0, 2, 4, 4]);
        none.conv2d(&ones(&[3, 2, 3, 3]), None, plain).unwrap();
        let flat = ones(&[33]);
        let odd = flat.narrow(0, 1, 32).unwrap().view(&[1, 2, 4, 4]).unwrap();
        let got = odd.conv2d(&ones(&[3, 2, 4, 4]), None, plain).unwrap();
        assert_eq!(
            got.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap(),
            vec![32.0; 3]
        );
        // 16-bit floats that it doesn't take are widened, and so come to an even place.
        let calls = stand_in.calls();
        match dtype {
            DType::F32 => assert_eq!(calls, Vec::<String>::new()),
            _ => assert!(
                calls.len() == 1 && calls[0].contains("dtype 0"),
                "{calls:?}"
            ),
        }
        // What doesn't lie in one piece is copied, to an even place.
        let turned = odd.transpose(2, 3).unwrap();
        turned.conv2d(&ones(&[3, 2, 4, 4]), None, plain).unwrap();
        assert_eq!(computed(&stand_in.calls()), ["forward"]);
        for height in [5, 7] {
            let weight = ones(&[1, 1, height, 1]);
            let image = ones(&[1, 1, 8, 2]);
            let got = image.conv2d(&weight, None, plain).unwrap();
            let got = got.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap();
            assert_eq!(got, vec![height as f32; got.len()]);
            let calls = stand_in.calls();
            assert!(
                calls.len() == 1 && calls[0].starts_with("propose"),
                "{calls:?}"
            );
            image.conv2d(&weight, None, plain).unwrap();
            assert_eq!(stand_in.calls(), Vec::<String>::new(), "asked once only");
        }
    }
    let what = report().what;
    assert!(
        what.contains("no algorithm for 4 of those met, which Fireclay's own kernels compute"),
        "{what}"
    );
}

/// The library's state for a device is for one thread at a time.
fn threads_take_turns(device: Device) {
    std::thread::scope(|scope| {
        for thread in 1..5 {
            scope.spawn(move || {
                for width in 1..6 {
                    let image = Tensor::ones(&[1, thread, 4, width], device).unwrap();
                    let weight = Tensor::ones(&[2, thread, 4, width], device).unwrap();
                    let got = image.conv2d(&weight, None, Conv2dOptions::default());
                    let want = vec![(4 * thread * width) as f32; 2];
                    assert_eq!(got.unwrap().to_vec::<f32>().unwrap(), want);
                }
            });
        }
    });
}
