//! Running the binary in tests, on data small enough to be quick.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use fireclay::data::{Dataset, Mnist};

/// Rows and columns of a digit.
pub(crate) const SIDE: usize = 28;

/// The binary with these arguments; its output is kept.
pub(crate) fn fireclay<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fireclay"));
    command.args(args).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a training on the data in `data` into `out` with more flags, in one string.
pub(crate) fn train(data: &Path, out: &Path, flags: &str) -> Command {
    let mut command = fireclay(["train", "mnist", "--data"]);
    command.arg(data).arg("--out").arg(out);
    command.args(flags.split_whitespace());
    command
}

pub(crate) fn succeed(mut command: Command) -> (String, String) {
    let output = command.output().unwrap();
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{command:?}: {stderr}");
    (stdout, stderr)
}

/// Expects exit code 1, nothing on standard output, and each of `mentions` in the message.
pub(crate) fn refuse(mut command: Command, mentions: &[&str]) {
    let output = command.output().unwrap();
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{command:?}: {stderr}");
    assert_eq!(stdout, "", "{command:?}");
    for mention in mentions {
        assert!(
            stderr.contains(mention),
            "{command:?}: no {mention:?} in {stderr}"
        );
    }
    assert!(!stderr.contains("panicked"), "{stderr}");
}

pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// Writes the first `count` built-in digits as MNIST files into `folder`.
pub(crate) fn write_digits(folder: &Path, count: usize) {
    let digits = Mnist::embedded().unwrap();
    assert!(count <= digits.len());
    let mut images = idx_header(&[count, SIDE, SIDE]);
    for index in 0..count {
        images.extend_from_slice(digits.pixels(index).unwrap());
    }
    let mut labels = idx_header(&[count]);
    labels.extend(digits.labels()[..count].iter().map(|&label| label as u8));
    fs::write(folder.join("mnist5k-images-idx3-ubyte"), images).unwrap();
    fs::write(folder.join("mnist5k-labels-idx1-ubyte"), labels).unwrap();
}

/// The head of an IDX file of bytes.
pub(crate) fn idx_header(sizes: &[usize]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, sizes.len() as u8];
    for &size in sizes {
        bytes.extend_from_slice(&(size as u32).to_be_bytes());
    }
    bytes
}

/// Writes a grey PNG file.
pub(crate) fn write_png(path: &Path, width: usize, height: usize, pixels: &[u8]) {
    let file = fs::File::create(path).unwrap();
    let mut encoder = png::Encoder::new(file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(pixels).unwrap();
    writer.finish().unwrap();
}

/// A child and what it says on standard error.
pub(crate) struct Running {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Running { child, stderr }
    }

    /// Presses Ctrl-C: the child must end as one that was interrupted. Gives the rest of what it says.
    pub(crate) fn interrupt(self) -> String {
        let process = self.child.id().to_string();
        let kill = Command::new("kill").args(["-INT", &process]).status();
        assert!(kill.unwrap().success());
        let (status, said) = self.end();
        assert_eq!(status.code(), Some(130), "{said}");
        said
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits until a line that contains `text` is said.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.stderr.read_line(&mut line).unwrap(), 0, "no {text:?}");
        }
    }

    /// The end of the child and the rest of what it says.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        while self.stderr.read_line(&mut rest).unwrap() > 0 {}
        (self.child.wait().unwrap(), rest)
    }
}
