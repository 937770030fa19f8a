//! Mistakes: exit code 1, a message that names the culprit, and nothing changed.

mod command;

use std::fs;
use std::path::Path;

use command::{fireclay, idx_header, refuse, succeed, train, write_digits, write_png};
use fireclay::Tensor;
use fireclay::checkpoint::{Checkpoint, save};

const QUICK: &str = "--epochs 1 --batch-size 16";

#[test]
fn wrong_flags() {
    for (line, mentions) in [
        ("trian mnist", &["trian", "train"][..]),
        ("train mnist --epoch 3", &["--epoch", "--epochs"]),
        ("train mnist --epochs 0", &["--epochs", "0", "from 1"]),
        ("train mnist --batch-size many", &["--batch-size", "many"]),
        ("train mnist --lr -1", &["--lr"]),
        ("train mnist --lr=nan", &["--lr", "above 0"]),
        ("train mnist --threads 0", &["--threads", "from 1"]),
        ("train mnist --device gpu", &["\"gpu\"", "auto", "cuda:1"]),
        ("train mnist --seed -1", &["--seed", "-1", "from 0"]),
        ("train imagenet", &["imagenet"]),
        ("predict a.png", &["--checkpoint"]),
        ("predict --checkpoint m.safetensors", &["IMAGE.png"]),
        ("bench --only overhaed", &["overhaed", "--list"]),
        ("bench --seconds -1", &["--seconds"]),
        ("plan --m 3 --n 4", &["--k"]),
        ("plan --m 0 --n 4 --k 5", &["--m", "from 1"]),
        ("plan --m 3 --n 4 --k 5 --dtype u8", &["u8", "bf16"]),
        (
            "plan --m 3 --n 4 --k 5 --a x",
            &["--a", "[possible values: n, t]"],
        ),
        (
            "plan --m 3 --n 4 --k 5 --capability 6.0",
            &["6.0", "from 7.0"],
        ),
        (
            "plan --m 3 --n 4 --k 5 --device cpu",
            &["cpu", "--capability"],
        ),
        (
            "plan --m 3 --n 4 --k 5 --device cuda:x",
            &["cuda:x", "cuda:1"],
        ),
    ] {
        refuse(fireclay(line.split_whitespace()), mentions);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written() {
    for arguments in [&["--help"][..], &["--version"], &[]] {
        let full = fs::File::create("/dev/full").unwrap();
        let mut command = fireclay(arguments);
        command.stdout(full);
        refuse(command, &["writing to standard output"]);
    }
}

#[test]
fn a_gpu_that_is_not_there() {
    if fireclay::check_available(fireclay::Device::cuda()).is_ok() {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut command = fireclay(["train", "mnist", "--device", "cuda", "--out"]);
    command.arg(&out);
    refuse(command, &["cuda:0 is not available"]);
    assert!(!out.exists(), "nothing is made");
}

#[test]
fn data_that_is_missing_or_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("data"), folder.path().join("out"));
    let run = || train(&data, &out, QUICK);
    refuse(run(), &["data", "mnist5k-images"]);

    fs::create_dir(&data).unwrap();
    write_digits(&data, 50);
    let images = data.join("mnist5k-images-idx3-ubyte");
    let labels = data.join("mnist5k-labels-idx1-ubyte");
    let (image_bytes, label_bytes) = (fs::read(&images).unwrap(), fs::read(&labels).unwrap());

    fs::write(&images, &image_bytes[..20_000]).unwrap();
    refuse(run(), &["mnist5k-images-idx3-ubyte"]);
    fs::write(&images, &image_bytes).unwrap();

    let mut wrong = label_bytes.clone();
    wrong[8 + 7] = 11;
    fs::write(&labels, &wrong).unwrap();
    refuse(run(), &["label 7", "11"]);
    fs::write(&labels, &label_bytes).unwrap();

    let mut small = idx_header(&[50, 20, 20]);
    small.resize(small.len() + 50 * 400, 0);
    fs::write(&images, small).unwrap();
    refuse(run(), &["20 x 20", "28 x 28"]);
    assert!(!out.exists(), "nothing is made");
}

#[test]
fn a_folder_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    write_digits(folder.path(), 50);
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    refuse(train(folder.path(), &file, QUICK), &["file", "--out"]);
    refuse(
        train(folder.path(), &file.join("below"), QUICK),
        &["below", "--out"],
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn checkpoints_that_do_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    write_digits(data, 50);
    let out = data.join("out");
    succeed(train(data, &out, QUICK));
    let checkpoint = out.join("model.safetensors");
    let before = fs::read(&checkpoint).unwrap();
    let image = data.join("digit.png");
    write_png(&image, 28, 28, &[0; 28 * 28]);
    let resume = |file: &Path, flags: &str| {
        train(data, &out, &format!("--resume {} {flags}", file.display()))
    };
    let predict = |file: &Path| {
        let mut command = fireclay(["predict", "--checkpoint"]);
        command.arg(file).arg(&image);
        command
    };
    let name = checkpoint.display().to_string();

    // Flags against the file.
    refuse(
        resume(&checkpoint, "--epochs 9"),
        &["--epochs 9", &name, "epochs 1"],
    );
    refuse(resume(&checkpoint, "--seed 4"), &["--seed 4", "seed 0"]);
    refuse(resume(&checkpoint, "--limit 4"), &["--limit 4", "no limit"]);
    // Other data.
    let mut command = fireclay(["train", "mnist", "--resume"]);
    command.arg(&checkpoint);
    refuse(command, &[&name, "50 images", "5000 images", "--data"]);

    // No file, a cut one, one that is something else.
    let missing = data.join("missing.safetensors");
    refuse(resume(&missing, ""), &["missing.safetensors"]);
    refuse(predict(&missing), &["missing.safetensors"]);
    let cut = data.join("cut.safetensors");
    fs::write(&cut, &before[..before.len() / 2]).unwrap();
    refuse(resume(&cut, ""), &["cut.safetensors"]);
    refuse(predict(&cut), &["cut.safetensors"]);
    let mut altered = before.clone();
    let last = altered.len() - 1;
    altered[last] ^= 1;
    fs::write(&cut, &altered).unwrap();
    refuse(resume(&cut, ""), &["cut.safetensors", "checksum"]);
    refuse(predict(&image), &["digit.png"]);

    // The weights of another model.
    let other = data.join("other.safetensors");
    let weight = Tensor::ones(&[2, 3], "cpu").unwrap();
    let entries = [("fc.weight", &weight), ("conv1.weight", &weight)];
    save(&other, &Checkpoint::from_state_dict(entries).unwrap()).unwrap();
    refuse(
        predict(&other),
        &[
            "fc.weight",
            "conv1.weight",
            "hidden.weight",
            "digit network",
        ],
    );
    refuse(resume(&other, ""), &["other.safetensors"]);

    assert!(
        fs::read(&checkpoint).unwrap() == before,
        "the checkpoint is untouched"
    );
    succeed(predict(&checkpoint));
}

#[test]
fn images_that_are_no_digits() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    write_digits(data, 50);
    succeed(train(data, &data.join("out"), QUICK));
    let predict = |image: &str| {
        let mut command = fireclay(["predict", "--checkpoint"]);
        command.arg(data.join("out/model.safetensors"));
        // A good one first: it is not answered, since the next one is wrong.
        command.arg(data.join("good.png")).arg(data.join(image));
        command
    };
    write_png(&data.join("good.png"), 28, 28, &[0; 28 * 28]);
    write_png(&data.join("large.png"), 32, 30, &[0; 32 * 30]);
    fs::write(data.join("text.png"), "not an image").unwrap();
    refuse(predict("large.png"), &["large.png", "32 x 30", "28 x 28"]);
    refuse(predict("text.png"), &["text.png", "PNG"]);
    refuse(predict("none.png"), &["none.png"]);
}

#[test]
fn a_loss_that_is_no_number() {
    let folder = tempfile::tempdir().unwrap();
    write_digits(folder.path(), 100);
    let out = folder.path().join("out");
    let run = train(folder.path(), &out, "--epochs 3 --batch-size 8 --lr 1e30");
    refuse(run, &["epoch 1, batch", "--lr than 1e30"]);
    // Where the first and only batch is fine, the test set shows it.
    let run = train(folder.path(), &out, "--epochs 1 --batch-size 80 --lr 1e30");
    refuse(
        run,
        &["1 epoch of 1 batch of 80", "test set after epoch 1:"],
    );
}
