//! Type promotion against PyTorch's whole table of `torch.result_type`.

use std::path::Path;

use fireclay_tensor::{Arg, DType, Device, Tensor};

fn dtype(name: &str) -> DType {
    let found = DType::ALL
        .into_iter()
        .find(|dtype| dtype.torch_name() == name);
    found.unwrap_or_else(|| panic!("no dtype {name}"))
}

fn tensor(text: &str) -> Option<Tensor> {
    let (name, dims) = text.split_once('[')?;
    let shape: &[usize] = if dims == "]" { &[] } else { &[1] };
    Some(Tensor::full_of(shape, 1i64, dtype(name), Device::Cpu).expect("a small tensor"))
}

#[test]
fn result_types_are_pytorchs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/promotion.txt");
    let table = std::fs::read_to_string(path).expect("the fixture");
    assert_eq!(table.lines().count(), 20 * 23);
    for line in table.lines() {
        let [first, second, result] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("three words a line, got {line}");
        };
        let first = tensor(first).expect("the first operand is a tensor");
        let other = tensor(second);
        let second: Arg<'_> = match (&other, second) {
            (Some(tensor), _) => tensor.into(),
            (None, "float") => 2.5.into(),
            (None, "int") => 2i64.into(),
            (None, _) => true.into(),
        };
        assert_eq!(
            first.add(second).expect(line).dtype(),
            dtype(result),
            "{line}"
        );
        assert_eq!(
            first.maximum(second).expect(line).dtype(),
            dtype(result),
            "{line}"
        );
        let condition = Tensor::full_of(&[], true, DType::Bool, Device::Cpu).expect("a bool");
        assert_eq!(
            condition.where_(&first, second).expect(line).dtype(),
            dtype(result),
            "{line}"
        );
    }
}
