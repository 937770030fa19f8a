//! Training states: everything comes back, other tools see the weights, and what is no training state is told.

use std::path::Path;

use fireclay_checkpoint::{Checkpoint, OptimizerState, TrainingState, load, load_model, save};
use fireclay_core::{LoaderState, RngState};
use fireclay_tensor::Tensor;
use serde_json::{Value, json};

fn state() -> TrainingState {
    let tensor = |start: f64| Tensor::arange(start, start + 6.0, 1.0, "cpu").unwrap();
    let Value::Object(extra) = json!({ "epochs": 3, "best": 0.1 + 0.2 }) else {
        unreachable!()
    };
    TrainingState {
        model: vec![
            ("fc.bias".into(), tensor(0.0)),
            ("fc.weight".into(), tensor(10.0)),
        ],
        optimizer: OptimizerState {
            tensors: vec![("fc.weight/exp_avg".into(), tensor(20.0))],
            values: json!({ "lr": 1e-3, "step": 12, "tiny": 5e-324, "third": 1.0 / 3.0 }),
        },
        scheduler: json!({ "epoch": 2 }),
        rng: RngState {
            seed: u64::MAX,
            offset: (1 << 53) + 1,
        },
        loader: LoaderState {
            seed: 9,
            epoch: 1,
            batch: 17,
        },
        extra,
    }
}

#[test]
fn everything_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let saved = state();
    saved.save(&path).unwrap();
    let loaded = TrainingState::load(&path, "cpu").unwrap();
    for (left, right) in [
        (&saved.model, &loaded.model),
        (&saved.optimizer.tensors, &loaded.optimizer.tensors),
    ] {
        assert_eq!(left.len(), right.len());
        for ((left_name, left), (right_name, right)) in left.iter().zip(right) {
            assert_eq!(left_name, right_name);
            assert_eq!(
                left.to_vec::<f32>().unwrap(),
                right.to_vec::<f32>().unwrap()
            );
        }
    }
    assert_eq!(saved.optimizer.values, loaded.optimizer.values);
    assert_eq!(saved.scheduler, loaded.scheduler);
    assert_eq!(saved.rng, loaded.rng);
    assert_eq!(saved.loader, loaded.loader);
    assert_eq!(saved.extra, loaded.extra);
    // Saved again, it is the same file.
    let again = folder.path().join("again.safetensors");
    loaded.save(&again).unwrap();
    assert_eq!(
        std::fs::read(&path).unwrap(),
        std::fs::read(&again).unwrap()
    );
}

#[test]
fn the_weights_have_their_plain_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    state().save(&path).unwrap();
    let model = load_model(&path, "cpu").unwrap();
    let names: Vec<&str> = model.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["fc.bias", "fc.weight"]);
    let file = load(&path).unwrap();
    let all: Vec<&str> = file.names().collect();
    assert_eq!(
        all,
        [
            "fc.bias",
            "fc.weight",
            "fireclay.optimizer/fc.weight/exp_avg"
        ]
    );
    assert_eq!(file.model_entries().len(), 2);
    assert!(file.metadata().is_empty());
    // The model's tensors alone are compared and loaded.
    let targets: Vec<(String, Tensor)> = model
        .iter()
        .map(|(name, tensor)| (name.clone(), tensor.zeros_like().unwrap()))
        .collect();
    file.load_into("the model", &targets).unwrap();
    assert_eq!(
        targets[1].1.to_vec::<f32>().unwrap(),
        [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
    );
}

#[test]
fn a_file_of_weights_alone_is_no_training_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let tensor = Tensor::zeros(&[2], "cpu").unwrap();
    save(
        &path,
        &Checkpoint::from_state_dict([("x", &tensor)]).unwrap(),
    )
    .unwrap();
    let foreign = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ok_st.safetensors");
    for path in [path, foreign] {
        let text = TrainingState::load(&path, "cpu").err().unwrap().to_string();
        assert!(
            text.contains("no training state") && text.contains("load_model"),
            "{text}"
        );
        assert_eq!(load_model(&path, "cpu").unwrap().len(), 1);
    }
}

#[test]
fn a_change_of_the_json_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    state().save(&path).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let lr = bytes
        .windows(5)
        .position(|window| window == b"0.001")
        .unwrap();
    bytes[lr + 4] = b'2';
    std::fs::write(&path, bytes).unwrap();
    let text = TrainingState::load(&path, "cpu").err().unwrap().to_string();
    assert!(text.contains("checksum of the header is wrong"), "{text}");
    assert!(text.contains("earlier checkpoint"), "{text}");
}

#[test]
fn names_that_come_twice_are_refused() {
    let mut twice = state();
    twice.model.push(twice.model[0].clone());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    assert!(
        twice
            .save(&path)
            .unwrap_err()
            .to_string()
            .contains("two entries")
    );
    assert!(!path.exists());
}
