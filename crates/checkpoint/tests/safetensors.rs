//! Safetensors files: what is saved comes back to the same bits, files of other tools are read, and no damage of a file
//! gets past the reader.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fireclay_checkpoint::{Checkpoint, load, save};
use fireclay_core::{DType, Error, StateEntry};
use fireclay_tensor::Tensor;
use proptest::prelude::*;

/// Files made by other tools. `ok_st`, `dtypes` and the `bad_st_*` were made with Python: PyTorch 2.13 and the
/// safetensors package, some of them by hand, byte by byte; `python_model` by `safetensors.torch.save_file`.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn storable() -> impl Strategy<Value = DType> {
    let dtypes = DType::ALL.into_iter().filter(|&dtype| dtype != DType::C128);
    prop::sample::select(dtypes.collect::<Vec<_>>())
}

prop_compose! {
    fn tensor()(dtype in storable(), shape in prop::collection::vec(0usize..5, 0..4))
        (bytes in prop::collection::vec(any::<u8>(), shape.iter().product::<usize>() * dtype.size()), shape in Just(shape), dtype in Just(dtype))
        -> Tensor
    {
        Tensor::from_bytes(&bytes, &shape, dtype, "cpu").unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_is_saved_comes_back(
        tensors in prop::collection::btree_map("[a-z\"\\\\é. ]{0,12}", tensor(), 0..6),
        metadata in prop::collection::btree_map("[a-z\n\"]{0,8}", ".{0,10}", 0..3),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let mut checkpoint = Checkpoint::from_state_dict(&tensors).unwrap();
        for (key, value) in &metadata {
            checkpoint.set_metadata(key, value).unwrap();
        }
        save(&path, &checkpoint).unwrap();
        let loaded = load(&path).unwrap();
        prop_assert!(loaded.names().eq(tensors.keys()));
        prop_assert_eq!(loaded.metadata(), &metadata);
        for (name, tensor) in &tensors {
            let other = loaded.tensor(name, "cpu").unwrap();
            prop_assert_eq!(other.shape(), tensor.shape());
            prop_assert_eq!(other.dtype(), tensor.dtype());
            prop_assert_eq!(other.to_bytes().unwrap(), tensor.to_bytes().unwrap());
        }
        // Saved again from the file, it is the same file; and the crate agrees that it is valid.
        let again = folder.path().join("again.safetensors");
        save(&again, &loaded).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        prop_assert_eq!(&std::fs::read(&again).unwrap(), &bytes);
        let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        prop_assert_eq!(theirs.len(), tensors.len());
        for (name, tensor) in &tensors {
            prop_assert_eq!(theirs.tensor(name).unwrap().data(), tensor.to_bytes().unwrap());
        }
    }

    /// Whatever is done to a file of ours: it is refused, or everything in it is as it was.
    #[test]
    fn damage_is_noticed(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        how in 0..3,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("damaged.safetensors");
        let (original, expected) = sample_file(&path);
        let mut bytes = original.clone();
        match how {
            0 => changes.iter().for_each(|(place, byte)| bytes[place.index(original.len())] = *byte),
            1 => bytes.truncate(cut.index(original.len())),
            _ => changes.iter().for_each(|(place, byte)| bytes.insert(place.index(original.len()), *byte)),
        }
        std::fs::write(&path, &bytes).unwrap();
        let contents = load(&path).and_then(|loaded| contents(&loaded));
        match contents {
            Ok(contents) => prop_assert!(contents == expected, "{contents:?}"),
            Err(error) => {
                prop_assert!(bytes != original);
                prop_assert!(matches!(error, Error::InvalidFile { .. }), "{error:?}");
                prop_assert!(error.to_string().contains("damaged.safetensors"), "{error}");
            }
        }
    }
}

type Contents = (
    BTreeMap<String, (DType, String, Vec<u8>)>,
    BTreeMap<String, String>,
);

fn contents(checkpoint: &Checkpoint) -> fireclay_core::Result<Contents> {
    let mut tensors = BTreeMap::new();
    for name in checkpoint.names() {
        let tensor = checkpoint.tensor(name, "cpu")?;
        let facts = (
            tensor.dtype(),
            tensor.shape().to_string(),
            tensor.to_bytes().unwrap(),
        );
        tensors.insert(name.to_owned(), facts);
    }
    Ok((tensors, checkpoint.metadata().clone()))
}

/// Saves a small file; its bytes and contents.
fn sample_file(path: &Path) -> (Vec<u8>, Contents) {
    let weight = Tensor::arange(0.0, 6.0, 1.0, "cpu")
        .unwrap()
        .reshape(&[2, 3])
        .unwrap();
    let step = Tensor::scalar(7i64, "cpu").unwrap();
    let mut checkpoint =
        Checkpoint::from_state_dict([("fc.weight", &weight), ("step", &step)]).unwrap();
    checkpoint.set_metadata("note", "abc").unwrap();
    save(path, &checkpoint).unwrap();
    (std::fs::read(path).unwrap(), contents(&checkpoint).unwrap())
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.safetensors");
    let (bytes, _) = sample_file(&path);
    for len in 0..bytes.len() {
        std::fs::write(&path, &bytes[..len]).unwrap();
        let error = load(&path).err().unwrap();
        assert!(
            matches!(error, Error::InvalidFile { .. }),
            "cut to {len}: {error}"
        );
    }
}

#[test]
fn every_bit_of_the_data_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flipped.safetensors");
    let (bytes, _) = sample_file(&path);
    let nbytes = 6 * 4 + 8;
    for bit in (bytes.len() - nbytes) * 8..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        let loaded = load(&path).unwrap();
        // The eight bytes of `step` stand first.
        let entry = if bit / 8 < bytes.len() - nbytes + 8 {
            "step"
        } else {
            "fc.weight"
        };
        let text = loaded.tensor(entry, "cpu").err().unwrap().to_string();
        assert!(
            text.contains(&format!("entry {entry:?}")) && text.contains("checksum"),
            "{text}"
        );
    }
}

#[test]
fn every_bit_of_the_file_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flipped.safetensors");
    let (original, expected) = sample_file(&path);
    let mut unharmed = 0;
    for bit in 0..original.len() * 8 {
        let mut bytes = original.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        match load(&path).and_then(|loaded| contents(&loaded)) {
            Ok(contents) => {
                assert!(contents == expected, "bit {bit}: {contents:?}");
                unharmed += 1;
            }
            Err(error) => assert!(matches!(error, Error::InvalidFile { .. }), "{error:?}"),
        }
    }
    // Case of a letter in an escape or of a hexadecimal digit, a bit of padding: no more than a few.
    assert!(unharmed < 100, "{unharmed}");
}

#[test]
fn bad_files_are_refused_with_what_is_wrong() {
    let text = |name: &str| {
        let error = load(fixture(name)).err().unwrap();
        assert!(matches!(error, Error::InvalidFile { .. }));
        let text = error.to_string();
        assert!(text.contains(name) && text.contains("hint: "), "{text}");
        text
    };
    for (name, what) in [
        (
            "bad_st_dtype.safetensors",
            "entry \"x\" has dtype \"Q3\", which is not known",
        ),
        (
            "bad_st_header_len.safetensors",
            "header's length is 1152921504606846976 bytes, expected at most 100000000",
        ),
        ("bad_st_json.safetensors", "the header is not a JSON object"),
        (
            "bad_st_overlap.safetensors",
            "entry \"y\" starts at byte 8, expected 16",
        ),
        (
            "bad_st_size.safetensors",
            "entry \"x\" has 16 bytes, expected 20 for F32[5]",
        ),
    ] {
        let text = text(name);
        assert!(text.contains(what), "{text}");
    }
}

/// A file with this header and so many bytes of data.
fn file_of(header: &str, data_nbytes: usize) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.safetensors");
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data_nbytes, 0);
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn any_shape_that_a_tensor_can_have_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.safetensors");
    for shape in [[0, isize::MAX as usize], [isize::MAX as usize, 0]] {
        let tensor = Tensor::zeros(&shape, "cpu").unwrap();
        save(
            &path,
            &Checkpoint::from_state_dict([("x", &tensor)]).unwrap(),
        )
        .unwrap();
        let read = load(&path).unwrap();
        assert_eq!(read.tensor("x", "cpu").unwrap().shape()[..], shape);
    }
}

#[test]
fn hostile_headers_are_refused() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let dims = vec!["1"; 65].join(",");
    for (header, nbytes, what) in [
        (
            r#"{"x":{"dtype":"F32","shape":[0,4611686018427387904,4611686018427387904],"data_offsets":[0,0]}}"#,
            0,
            "overflows",
        ),
        (
            r#"{"x":{"dtype":"F32","shape":[4611686018427387904,4611686018427387904,0],"data_offsets":[0,0]}}"#,
            0,
            "too many",
        ),
        (
            r#"{"x":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}}"#,
            0,
            "too many",
        ),
        (
            r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
            8,
            "starts at byte 4, expected 0",
        ),
        (
            r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#,
            4,
            "before its start",
        ),
        (
            r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
            8,
            "the entries take 4 bytes",
        ),
        (
            r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
            3,
            "the entries take 4 bytes",
        ),
        (
            r#"{"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#,
            4,
            "list of whole numbers",
        ),
        (
            r#"{"x":{"dtype":"F32","shape":1,"data_offsets":[0,4]}}"#,
            4,
            "list of whole numbers",
        ),
        (
            r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0]}}"#,
            4,
            "expected 2",
        ),
        (r#"{"x":{"dtype":"F32","shape":[1]}}"#, 4, "data_offsets"),
        (r#"{"x":5}"#, 0, "has dtype null"),
        (r#"{"__metadata__":{"a":1}}"#, 0, "not a map of texts"),
        (
            r#"{"x":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}"#,
            1,
            "dtype F4, which Fireclay does not have",
        ),
        (
            &format!(r#"{{"x":{{"dtype":"U8","shape":[{dims}],"data_offsets":[0,1]}}}}"#),
            1,
            "65 dimensions",
        ),
        (&deep, 0, "not a JSON object"),
        ("[]", 0, "not a JSON object"),
        ("", 0, "not a JSON object"),
    ] {
        let (_folder, path) = file_of(header, nbytes);
        let error = load(&path)
            .err()
            .unwrap_or_else(|| panic!("{header} was taken"));
        assert!(matches!(error, Error::InvalidFile { .. }), "{error}");
        assert!(error.to_string().contains(what), "{header}: {error}");
    }
}

#[test]
fn what_is_no_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let text = load(folder.path().join("none")).err().unwrap().to_string();
    assert!(
        text.contains("reading") && text.contains("check the path"),
        "{text}"
    );
    let text = load(folder.path()).err().unwrap().to_string();
    assert!(text.contains("expected a file"), "{text}");
}

#[test]
fn files_of_other_tools_are_read() {
    let plain = load(fixture("ok_st.safetensors")).unwrap();
    assert_eq!(
        plain.model_entries(),
        [StateEntry::new("x", [4], DType::F32)]
    );
    assert_eq!(
        plain.tensor("x", "cpu").unwrap().to_vec::<f32>().unwrap(),
        [0.0; 4]
    );

    let all = load(fixture("dtypes.safetensors")).unwrap();
    assert_eq!(all.metadata()["note"], "x");
    let names = [
        "bfloat16",
        "bool",
        "float16",
        "float32",
        "float64",
        "float8_e4m3fn",
        "float8_e5m2",
        "int16",
        "int32",
        "int64",
        "int8",
        "uint16",
        "uint32",
        "uint64",
        "uint8",
    ];
    assert!(all.names().eq(names));
    for entry in all.model_entries() {
        assert_eq!(entry.dtype.torch_name(), entry.name);
        assert_eq!(all.tensor(&entry.name, "cpu").unwrap().shape()[..], [8]);
    }
    let start = |name: &str| {
        let tensor = all.tensor(name, "cpu").unwrap();
        (0..3)
            .map(|index| tensor.select(0, index).unwrap().item().unwrap())
            .collect::<Vec<_>>()
    };
    for name in [
        "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8",
    ] {
        assert_eq!(start(name), [0.0, 1.0, -1.0], "{name}");
    }
    for name in ["uint8", "uint16", "uint32", "uint64"] {
        assert_eq!(start(name), [0.0, 1.0, 1.0], "{name}");
    }
    let float8 = all
        .tensor("float8_e4m3fn", "cpu")
        .unwrap()
        .to_bytes()
        .unwrap();
    assert_eq!(float8[..3], [0, 0x38, 0xb8]);

    let model = load(fixture("python_model.safetensors")).unwrap();
    assert!(
        model
            .names()
            .eq(["0.bias", "0.weight", "1.num_batches_tracked"])
    );
    let weight = model.tensor("0.weight", "cpu").unwrap();
    assert_eq!(weight.shape()[..], [2, 3]);
    assert_eq!(
        weight.to_vec::<f32>().unwrap(),
        [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    );
    assert_eq!(
        model
            .tensor("0.bias", "cpu")
            .unwrap()
            .to_vec::<half::bf16>()
            .unwrap()[1]
            .to_f32(),
        -2.0
    );
    assert_eq!(
        model
            .tensor("1.num_batches_tracked", "cpu")
            .unwrap()
            .item()
            .unwrap(),
        3.0
    );
    assert_eq!(model.metadata()["format"], "pt");
}

#[test]
fn views_are_saved_as_they_look() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("views.safetensors");
    let whole = Tensor::arange(0, 24, 1, "cpu")
        .unwrap()
        .reshape(&[4, 6])
        .unwrap();
    let views = [
        (
            "expanded",
            whole.select(0, 1).unwrap().expand(&[3, 6]).unwrap(),
        ),
        ("narrowed", whole.narrow(1, 2, 3).unwrap()),
        ("transposed", whole.t().unwrap()),
    ];
    let checkpoint =
        Checkpoint::from_state_dict(views.iter().map(|(name, view)| (*name, view))).unwrap();
    save(&path, &checkpoint).unwrap();
    let loaded = load(&path).unwrap();
    for (name, view) in &views {
        let tensor = loaded.tensor(name, "cpu").unwrap();
        assert!(tensor.is_contiguous());
        assert_eq!(tensor.shape(), view.shape());
        assert_eq!(
            tensor.to_vec::<i64>().unwrap(),
            view.to_vec::<i64>().unwrap()
        );
    }
}

#[test]
fn large_tensors_are_saved_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.safetensors");
    let numel = (9 << 20) + 3;
    let bytes: Vec<u8> = (0..numel).map(|index| (index % 251) as u8).collect();
    let large = Tensor::from_bytes(&bytes, &[numel], DType::F8E4M3, "cpu").unwrap();
    save(
        &path,
        &Checkpoint::from_state_dict([("large", &large)]).unwrap(),
    )
    .unwrap();
    assert_eq!(
        load(&path)
            .unwrap()
            .tensor("large", "cpu")
            .unwrap()
            .to_bytes()
            .unwrap(),
        bytes
    );
}

#[test]
fn names_that_cannot_be_are_refused() {
    let tensor = Tensor::zeros(&[1], "cpu").unwrap();
    let mut checkpoint = Checkpoint::new();
    checkpoint.insert("x", &tensor).unwrap();
    assert!(
        checkpoint
            .insert("x", &tensor)
            .unwrap_err()
            .to_string()
            .contains("two entries")
    );
    assert!(checkpoint.insert("__metadata__", &tensor).is_err());
    assert!(checkpoint.insert("fireclay.optimizer/x", &tensor).is_err());
    assert!(checkpoint.set_metadata("fireclay", "x").is_err());
    let complex = Tensor::from_bytes(&[0; 16], &[1], DType::C128, "cpu").unwrap();
    assert!(
        checkpoint
            .insert("c", &complex)
            .unwrap_err()
            .to_string()
            .contains("c128")
    );
    let text = checkpoint.tensor("xy", "cpu").err().unwrap().to_string();
    assert!(text.contains("no entry \"xy\" among its 1"), "{text}");
}

#[test]
fn loading_into_tensors_is_all_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let (bytes, _) = sample_file(&path);
    let weight = Tensor::zeros(&[2, 3], "cpu").unwrap();
    let step = Tensor::scalar(0i64, "cpu").unwrap();
    let named = |name: &str, tensor: &Tensor| (name.to_owned(), tensor.clone());
    let loaded = load(&path).unwrap();

    let wrong = Tensor::scalar(0i32, "cpu").unwrap();
    let targets = [
        named("fc.weight", &weight),
        named("step", &wrong),
        named("fc.bias", &weight),
    ];
    let text = loaded
        .load_into("the model", &targets)
        .unwrap_err()
        .to_string();
    assert!(text.contains("missing (1): fc.bias"), "{text}");
    assert!(text.contains("step (expected i32[], got i64[])"), "{text}");
    assert_eq!(weight.to_vec::<f32>().unwrap(), [0.0; 6]);

    // The last entry is damaged: nothing before it is changed either.
    let targets = [named("step", &step), named("fc.weight", &weight)];
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let damaged_path = folder.path().join("damaged.safetensors");
    std::fs::write(&damaged_path, damaged).unwrap();
    assert!(
        load(&damaged_path)
            .unwrap()
            .load_into("the model", &targets)
            .is_err()
    );
    assert_eq!(step.item().unwrap(), 0.0);

    loaded.load_into("the model", &targets).unwrap();
    assert_eq!(
        weight.to_vec::<f32>().unwrap(),
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    );
    assert_eq!(step.item().unwrap(), 7.0);
}
