//! `docs/ops.md`: every op with what is true of it, and every core and common name of PyTorch with a tick. With
//! FIRECLAY_WRITE_DOCS set it is written, else compared.

use std::fmt::Write;
use std::path::Path;

use fireclay_conformance::Facts;
use fireclay_conformance::checklist::{Level, Stands, checklist};
use fireclay_tensor::Device;
use fireclay_tensor::ops::{Family, entries};
use fireclay_testing::devices::virtual_cuda;

const HEAD: &str = "\
# The ops by their PyTorch names

Written by `FIRECLAY_WRITE_DOCS=1 cargo test -p fireclay-testing --test ops_docs`: what is true of an op was found out by running
its example, on the CPU and on a (virtual) GPU. `fireclay ops list` prints the same on your machine. Each op is a method of `Tensor`,
and can be called by name: `fireclay::ops::call(\"cumsum\", &[(\"input\", (&x).into()), (\"dim\", 0.into())])`.

In signatures, `Operand` is a tensor or a number, `Number` a number, `T?` a `T` or None. Columns:

- **grad**: which derivatives there are, 1 the first, 2 the second;
- **repeat**: whether two runs give the same bits: yes, or *seed*: from the same seed;
- **autocast**: what autocast does with the inputs of the ops that it consists of: *low* (16 bits), *f32*, *widest*, *keep*;
- **dtypes**: those of floating operands with which the example works, the same on both devices unless said.
";

fn text() -> String {
    let mut text = HEAD.to_owned();
    let devices = [Device::Cpu, virtual_cuda()];
    let mut family: Option<Family> = None;
    for entry in entries() {
        if family != Some(entry.family) {
            family = Some(entry.family);
            let name = entry.family.name();
            let _ = write!(
                text,
                "\n## {name}\n\n| op | grad | repeat | autocast | dtypes |\n| --- | --- | --- | --- | --- |\n"
            );
        }
        let facts = Facts::of(entry, &devices)
            .unwrap_or_else(|error| panic!("the example of {} fails: {error}", entry.name));
        let grad = match (facts.differentiable, facts.twice_differentiable) {
            (false, _) => "",
            (true, false) => "1",
            (true, true) => "1, 2",
        };
        let repeat = match (facts.deterministic, facts.random) {
            (false, _) => "no",
            (true, true) => "seed",
            (true, false) => "yes",
        };
        let autocast: Vec<&str> = facts.autocast.iter().map(|class| class.name()).collect();
        let names = |place: usize| {
            let names = facts.dtypes[place].1.iter().map(|dtype| dtype.name());
            names.collect::<Vec<_>>().join(" ")
        };
        let (host, device) = (names(0), names(1));
        let dtypes = match host == device {
            true => host,
            false => format!("{host}; cuda: {device}"),
        };
        let _ = writeln!(
            text,
            "| `{}` | {grad} | {repeat} | {} | {dtypes} |",
            entry.signature,
            autocast.join(", ")
        );
    }
    text.push_str("\n# PyTorch's core and common names\n");
    let mut heading = "";
    for name in checklist() {
        if heading != name.section {
            heading = name.section;
            let _ = write!(text, "\n## {heading}\n\n");
        }
        let tick = if name.is_there() { 'x' } else { ' ' };
        let level = match name.level {
            Level::Core => "core",
            Level::Common => "common",
        };
        let stands = match name.stands {
            Stands::Op(op) => format!("the op `{op}`"),
            Stands::Item(item) => format!("`{item}`"),
            Stands::NotYet(why) => format!("not yet: {why}"),
        };
        let _ = writeln!(text, "- [{tick}] {} ({level}): {stands}", name.name);
    }
    text
}

#[test]
fn the_docs_of_ops_are_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ops.md");
    let text = text();
    if std::env::var_os("FIRECLAY_WRITE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
        return;
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let same = written == text;
    assert!(same, "docs/ops.md: FIRECLAY_WRITE_DOCS=1 writes it anew");
}

/// Every op of the checklist has its row; what is not there says why.
#[test]
fn every_op_of_the_checklist_is_there() {
    let absent = checklist()
        .into_iter()
        .filter(|name| matches!(name.stands, Stands::Op(_)) && !name.is_there());
    let absent: Vec<&str> = absent.map(|name| name.name).collect();
    assert!(absent.is_empty(), "ops without a row: {absent:?}");
}
