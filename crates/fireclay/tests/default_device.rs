//! The default device: which factories follow it, and on which threads.

use std::sync::OnceLock;
use std::thread;

use fireclay::data::sample_rng::SampleRng;
use fireclay::prelude::*;
use fireclay::{ThreadDevices, cuda, default_device, get_default_device, nn, set_default_device};
use virtual_gpu::machine::Settings;

/// Two virtual devices.
fn devices() -> [Device; 2] {
    static MACHINE: OnceLock<()> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let settings = Settings {
            devices: 2,
            memory: 64 << 20,
            ..Settings::default()
        };
        fireclay_cuda::driver::use_virtual(settings).expect("no driver was chosen before");
    });
    [Device::Cuda(0), Device::Cuda(1)]
}

/// Where all that a module has is.
fn places(module: &impl ModuleExt) -> Vec<Device> {
    let parameters = module.parameters().into_iter();
    let buffers = module.named_buffers().into_iter();
    parameters
        .map(|parameter| parameter.tensor().device())
        .chain(buffers.map(|(_, buffer)| buffer.tensor().device()))
        .collect()
}

#[test]
fn factories_and_layers_follow_the_guard() {
    let [first, second] = devices();
    let host = Tensor::ones(&[2], "cpu").unwrap();
    let _outer = default_device("cpu").unwrap();
    let guard = default_device(second).unwrap();
    for made in [
        Tensor::empty(&[2], DType::F32, None),
        Tensor::zeros(&[2], None),
        Tensor::ones(&[2], None),
        Tensor::full(&[2], 3.5, None),
        Tensor::full_of(&[2], 3.5, DType::F64, None),
        Tensor::scalar(1i64, None),
        Tensor::from_slice(&[1.0f32, 2.0], &[2], None),
        Tensor::from_bytes(&[1, 0], &[2], DType::Bool, None),
        Tensor::arange(0, 4, 1, None),
        Tensor::linspace(0.0, 1.0, 3, None),
        Tensor::eye(3, None),
        Tensor::rand(&[2], None),
        Tensor::randn(&[2], None),
        Tensor::randint(0, 5, &[2], None),
        Tensor::randperm(3, None),
    ] {
        assert_eq!(made.unwrap().device(), second);
    }
    // What is told where does as it is told, and so do ops and factories that follow a tensor.
    assert_eq!(Tensor::zeros(&[2], "cpu").unwrap().device(), Device::Cpu);
    assert_eq!(Tensor::zeros(&[2], Some(first)).unwrap().device(), first);
    assert_eq!(Tensor::zeros(&[2], "cuda").unwrap().device(), first);
    assert_eq!(host.zeros_like().unwrap().device(), Device::Cpu);
    assert_eq!(host.add(1.0).unwrap().device(), Device::Cpu);
    assert_eq!((&host * 2.0).eval().unwrap().device(), Device::Cpu);

    assert_eq!(places(&nn::Linear::new(3, 2).unwrap()), [second; 2]);
    assert_eq!(places(&nn::Conv2d::new(3, 2, 3).unwrap()), [second; 2]);
    assert_eq!(places(&nn::Embedding::new(3, 2).unwrap()), [second]);
    assert_eq!(places(&nn::LayerNorm::new(&[4]).unwrap()), [second; 2]);
    assert_eq!(places(&nn::BatchNorm1d::new(4).unwrap()), [second; 5]);
    let there = nn::LinearConfig {
        device: first,
        ..Default::default()
    };
    assert_eq!(places(&nn::Linear::with(3, 2, there).unwrap()), [first; 2]);
    drop(guard);
    assert_eq!(Tensor::zeros(&[2], None).unwrap().device(), Device::Cpu);
}

#[test]
fn guards_nest_and_a_missing_device_changes_nothing() {
    let [first, second] = devices();
    let _outer = default_device("cuda:1").unwrap();
    {
        let _current = cuda::device("cuda:1").unwrap();
        let _inner = default_device("cuda").unwrap();
        assert_eq!(get_default_device(), second, "the current device");
    }
    {
        let _inner = default_device("cuda").unwrap();
        assert_eq!(get_default_device(), first);
        let _current = cuda::device("cuda:1").unwrap();
        assert_eq!(get_default_device(), first, "resolved when it was set");
    }
    let text = default_device("cuda:7").unwrap_err().to_string();
    assert!(text.contains("cuda:7"), "{text}");
    assert!(set_default_device("cuda:7").is_err());
    assert!(set_default_device("gpu").is_err());
    assert_eq!(get_default_device(), second);
}

/// Says where a sample was made, and where `cuda` is then: ordinals.
struct Places;

impl Dataset for Places {
    type Item = (i64, i64);

    fn len(&self) -> usize {
        8
    }

    fn get(&self, _: usize, _: &mut SampleRng) -> Result<(i64, i64)> {
        let ordinal = |device| match device {
            Device::Cpu => -1,
            Device::Cuda(ordinal) => ordinal as i64,
        };
        let made = Tensor::zeros(&[1], None)?.device();
        Ok((ordinal(made), ordinal(Device::cuda())))
    }
}

/// The one test that sets the process's default: the others have guards wherever it would matter.
#[test]
fn threads_inherit_what_they_should() {
    let [first, second] = devices();
    let elsewhere = || thread::spawn(get_default_device).join().unwrap();
    let samples = |workers| {
        let loader = DataLoader::builder(Places).batch_size(4).workers(workers);
        let epoch = loader.build().unwrap().epoch(0);
        // The workers began with what this thread had then.
        let _other = default_device("cpu").unwrap();
        let mut places = Vec::new();
        for batch in epoch {
            let (made, current) = batch.unwrap();
            places.extend(made.to_vec::<i64>().unwrap());
            places.extend(current.to_vec::<i64>().unwrap());
            assert_eq!(made.device(), Device::Cpu, "collation is on the host");
        }
        places
    };
    assert_eq!(samples(2), [[-1; 4], [0; 4], [-1; 4], [0; 4]].concat());
    {
        let _guard = default_device(second).unwrap();
        let _current = cuda::device(second).unwrap();
        assert_eq!(elsewhere(), Device::Cpu, "a plain thread has no guard");
        assert_eq!(samples(2), [1; 16]);
        let devices = ThreadDevices::here();
        let handed_on = thread::spawn(move || {
            devices.within(|| (get_default_device(), Tensor::zeros(&[1], "cuda")))
        });
        let (default, made) = handed_on.join().unwrap();
        assert_eq!((default, made.unwrap().device()), (second, second));
    }
    set_default_device(first).unwrap();
    assert_eq!(get_default_device(), first);
    assert_eq!(elsewhere(), first, "the default is the process's");
    assert_eq!(samples(1), [0; 16]);
    {
        let _guard = default_device("cpu").unwrap();
        assert_eq!(get_default_device(), Device::Cpu);
        assert_eq!(elsewhere(), first);
    }
    set_default_device("cpu").unwrap();
    assert_eq!(elsewhere(), Device::Cpu);
}
