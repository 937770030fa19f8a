//! Saving never loses or half-writes a file, whatever fails.

use std::path::Path;

use fireclay_checkpoint::{Checkpoint, load, save};
use fireclay_core::Error;
use fireclay_tensor::Tensor;

fn checkpoint(value: f32, numel: usize) -> Checkpoint {
    let tensor = Tensor::full(&[numel], value, "cpu").unwrap();
    Checkpoint::from_state_dict([("x", &tensor)]).unwrap()
}

fn value(path: &Path) -> f32 {
    let tensor = load(path).unwrap().tensor("x", "cpu").unwrap();
    tensor.to_vec::<f32>().unwrap()[0]
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_save_replaces_the_file_and_leaves_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save(&path, &checkpoint(1.0, 10)).unwrap();
    // What was loaded from the old file stays readable.
    let old = load(&path).unwrap();
    save(&path, &checkpoint(2.0, 10)).unwrap();
    assert_eq!(value(&path), 2.0);
    assert_eq!(
        old.tensor("x", "cpu").unwrap().to_vec::<f32>().unwrap(),
        [1.0; 10]
    );
    assert_eq!(names(folder.path()), ["model.safetensors"]);
}

#[test]
fn the_same_content_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for turn in 0..5 {
        let path = folder.path().join(format!("{turn}"));
        let mut checkpoint = checkpoint(1.0, 10);
        for key in ["b", "a", "d", "c"] {
            checkpoint.set_metadata(key, key).unwrap();
        }
        save(&path, &checkpoint).unwrap();
        files.push(std::fs::read(&path).unwrap());
    }
    assert!(files.iter().all(|file| *file == files[0]));
}

#[test]
fn places_that_cannot_be_written_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let text = |path: &Path| {
        let error = save(path, &checkpoint(1.0, 10)).unwrap_err();
        assert!(matches!(error, Error::Io { .. }));
        error.to_string()
    };
    let missing = folder.path().join("missing/model.safetensors");
    let missing = text(&missing);
    assert!(
        missing.contains("missing/model.safetensors") && missing.contains("create it first"),
        "{missing}"
    );
    let directory = text(folder.path());
    assert!(
        directory.contains("give the name of a file in it"),
        "{directory}"
    );
    let file = folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let below = text(&file.join("model.safetensors"));
    assert!(below.contains("a part of the path is a file"), "{below}");
    assert!(text(Path::new("")).contains("give the name of a file"));
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn concurrent_saves_leave_one_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let path = &path;
            scope.spawn(move || {
                for _ in 0..10 {
                    save(path, &checkpoint(thread as f32, 5000)).unwrap();
                }
            });
        }
    });
    assert!((0.0..4.0).contains(&value(&path)));
    assert_eq!(names(folder.path()), ["model.safetensors"]);
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    /// Set in the child process that runs against a limit.
    const CHILD_FOLDER: &str = "FIRECLAY_TEST_LIMITED_FOLDER";

    #[test]
    fn a_full_disk_costs_nothing() {
        // A limit on the size of files gives the same kind of error, in the middle of writing.
        if let Some(folder) = std::env::var_os(CHILD_FOLDER) {
            let path = Path::new(&folder).join("model.safetensors");
            for numel in [100_000, 1_000_000, 10_000_000] {
                let error = save(&path, &checkpoint(2.0, numel)).unwrap_err();
                assert!(matches!(error, Error::Io { .. }));
                let text = error.to_string();
                assert!(
                    text.contains("model.safetensors") && text.contains("free some space"),
                    "{text}"
                );
            }
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        save(&path, &checkpoint(1.0, 10)).unwrap();
        let child = Command::new("sh")
            .args(["-c", "ulimit -f 64; trap '' XFSZ; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "unix::a_full_disk_costs_nothing"])
            .env(CHILD_FOLDER, folder.path())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(
            child.status.success() && output.contains("1 passed"),
            "{output}"
        );
        assert_eq!(value(&path), 1.0);
        assert_eq!(names(folder.path()), ["model.safetensors"]);
    }

    #[test]
    fn a_folder_that_may_not_be_written_to_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        save(&path, &checkpoint(1.0, 10)).unwrap();
        let set_mode = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.path(), permissions).unwrap();
        };
        set_mode(0o555);
        let result = save(&path, &checkpoint(2.0, 10));
        set_mode(0o755);
        match result {
            Err(error) => {
                assert!(error.to_string().contains("may be written to"), "{error}");
                assert_eq!(value(&path), 1.0);
            }
            Ok(()) => eprintln!("skipped: this user may write to any folder"),
        }
        assert_eq!(names(folder.path()), ["model.safetensors"]);
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let link = folder.path().join("latest");
        save(&path, &checkpoint(1.0, 10)).unwrap();
        symlink("model.safetensors", &link).unwrap();
        save(&link, &checkpoint(2.0, 10)).unwrap();
        assert!(link.is_symlink());
        assert_eq!(value(&path), 2.0);
    }
}

/// The rename of a whole file to its place must not take the place of a device.
#[cfg(unix)]
#[test]
fn a_device_is_refused_and_stays() {
    let error = fireclay_checkpoint::save("/dev/null", &fireclay_checkpoint::Checkpoint::new());
    assert!(error.unwrap_err().to_string().contains("expected a file"));
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}
