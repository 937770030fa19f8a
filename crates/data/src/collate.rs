//! Collation: from the samples of a batch to one batch value.

use std::collections::{BTreeMap, HashMap};

use fireclay_core::{Device, Element, Error, Result};
use fireclay_tensor::Tensor;

/// Makes a batch of samples (`collate_fn`). A closure `Fn(Vec<Item>) -> Result<Batch>` is one.
pub trait Collate<Item>: Send + Sync {
    /// What it makes.
    type Batch;

    /// One batch of `items`, at least one, in order.
    ///
    /// # Errors
    /// Items that do not go together.
    fn collate(&self, items: Vec<Item>) -> Result<Self::Batch>;
}

impl<Item, Batch, F> Collate<Item> for F
where
    F: Fn(Vec<Item>) -> Result<Batch> + Send + Sync,
{
    type Batch = Batch;

    fn collate(&self, items: Vec<Item>) -> Result<Batch> {
        self(items)
    }
}

/// Collation by the type of the samples, as [`Collatable`] says (`default_collate`).
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultCollate;

impl<Item: Collatable> Collate<Item> for DefaultCollate {
    type Batch = Item::Batch;

    fn collate(&self, items: Vec<Item>) -> Result<Item::Batch> {
        Item::collate(items, "")
    }
}

/// Samples that [`DefaultCollate`] can make a batch of.
///
/// Tensors are stacked along a new first dimension; numbers become a tensor of one dimension; tuples, vectors and maps
/// are collated field by field; strings become a vector.
pub trait Collatable: Sized {
    /// The batch.
    type Batch;

    /// One batch of `items`. `field` is where in the sample they stand (as `.0["image"]`, empty for the whole sample):
    /// errors tell it.
    ///
    /// # Errors
    /// Items that do not go together, with both shapes.
    fn collate(items: Vec<Self>, field: &str) -> Result<Self::Batch>;
}

impl Collatable for Tensor {
    type Batch = Tensor;

    fn collate(items: Vec<Tensor>, field: &str) -> Result<Tensor> {
        let first = items.first().ok_or_else(|| empty_batch(field))?;
        let (shape, dtype) = (first.shape(), first.dtype());
        let mut bytes = Vec::with_capacity(items.len() * first.nbytes());
        for (place, item) in items.iter().enumerate() {
            if item.shape() != shape || item.dtype() != dtype {
                return Err(Error::shape(
                    "collate",
                    format!(
                        "{}sample {place} of the batch is {}{}, expected {dtype}{shape} as sample 0 is",
                        field_prefix(field),
                        item.dtype(),
                        item.shape(),
                    ),
                )
                .with_hint("bring all samples to one shape and dtype, or give the loader a collate function that pads")
                .with_operands(|| vec![first.operand("sample 0"), item.operand(format!("sample {place}"))]));
            }
            bytes.extend_from_slice(&item.to_bytes()?);
        }
        let mut sizes = vec![items.len()];
        sizes.extend_from_slice(shape);
        Tensor::from_bytes(&bytes, &sizes, dtype, Device::Cpu)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Collatable for $number {
            type Batch = Tensor;

            fn collate(items: Vec<$number>, field: &str) -> Result<Tensor> {
                numbers(&items, field)
            }
        }
    )* };
}

numbers!(f64, f32, i64, i32, i16, i8, u8, bool);

fn numbers<T: Element>(items: &[T], field: &str) -> Result<Tensor> {
    if items.is_empty() {
        return Err(empty_batch(field));
    }
    Tensor::from_slice(items, &[items.len()], Device::Cpu)
}

impl Collatable for String {
    type Batch = Vec<String>;

    fn collate(items: Vec<String>, _: &str) -> Result<Vec<String>> {
        Ok(items)
    }
}

macro_rules! tuples {
    ($(($($name:ident $place:tt),*)),*) => { $(
        impl<$($name: Collatable),*> Collatable for ($($name,)*) {
            type Batch = ($($name::Batch,)*);

            fn collate(items: Vec<Self>, field: &str) -> Result<Self::Batch> {
                let mut columns = ($(Vec::<$name>::with_capacity(items.len()),)*);
                for item in items {
                    $(columns.$place.push(item.$place);)*
                }
                Ok(($($name::collate(columns.$place, &format!("{field}.{}", $place))?,)*))
            }
        }
    )* };
}

tuples!((A 0), (A 0, B 1), (A 0, B 1, C 2), (A 0, B 1, C 2, D 3));

impl<A: Collatable> Collatable for Vec<A> {
    type Batch = Vec<A::Batch>;

    fn collate(items: Vec<Vec<A>>, field: &str) -> Result<Vec<A::Batch>> {
        let len = items.first().ok_or_else(|| empty_batch(field))?.len();
        let mut columns: Vec<Vec<A>> = (0..len).map(|_| Vec::with_capacity(items.len())).collect();
        for (place, item) in items.into_iter().enumerate() {
            if item.len() != len {
                return Err(Error::shape(
                    "collate",
                    format!(
                        "{}sample {place} of the batch has {} elements, expected {len} as sample 0 has",
                        field_prefix(field),
                        item.len()
                    ),
                ));
            }
            for (column, element) in columns.iter_mut().zip(item) {
                column.push(element);
            }
        }
        columns
            .into_iter()
            .enumerate()
            .map(|(place, column)| A::collate(column, &format!("{field}[{place}]")))
            .collect()
    }
}

impl<A: Collatable> Collatable for BTreeMap<String, A> {
    type Batch = BTreeMap<String, A::Batch>;

    fn collate(items: Vec<Self>, field: &str) -> Result<Self::Batch> {
        let names = items.first().ok_or_else(|| empty_batch(field))?.keys();
        let names: Vec<String> = names.cloned().collect();
        let columns = columns(items, &names, field)?;
        names
            .into_iter()
            .zip(columns)
            .map(|(name, column)| {
                let batch = A::collate(column, &format!("{field}[{name:?}]"))?;
                Ok((name, batch))
            })
            .collect()
    }
}

impl<A: Collatable> Collatable for HashMap<String, A> {
    type Batch = HashMap<String, A::Batch>;

    fn collate(items: Vec<Self>, field: &str) -> Result<Self::Batch> {
        let sorted = items.into_iter().map(BTreeMap::from_iter).collect();
        Ok(BTreeMap::collate(sorted, field)?.into_iter().collect())
    }
}

/// The values of each name; every sample must have just these names.
fn columns<A>(
    items: Vec<BTreeMap<String, A>>,
    names: &[String],
    field: &str,
) -> Result<Vec<Vec<A>>> {
    let mut columns: Vec<Vec<A>> = names.iter().map(|_| Vec::new()).collect();
    for (place, mut item) in items.into_iter().enumerate() {
        for (name, column) in names.iter().zip(&mut columns) {
            column.push(item.remove(name.as_str()).ok_or_else(|| {
                let what = format!("lacks {name:?}, which sample 0 has");
                names_differ(field, place, &what)
            })?);
        }
        if let Some(name) = item.keys().next() {
            let what = format!("has {name:?}, which sample 0 lacks");
            return Err(names_differ(field, place, &what));
        }
    }
    Ok(columns)
}

fn names_differ(field: &str, place: usize, what: &str) -> Error {
    let prefix = field_prefix(field);
    Error::argument(
        "collate",
        format!("{prefix}sample {place} of the batch {what}"),
    )
}

fn empty_batch(field: &str) -> Error {
    Error::argument(
        "collate",
        format!(
            "{}expected at least one sample, got none",
            field_prefix(field)
        ),
    )
}

fn field_prefix(field: &str) -> String {
    if field.is_empty() {
        String::new()
    } else {
        format!("field {field}: ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize], start: i64) -> Tensor {
        let numel = shape.iter().product::<usize>() as i64;
        let flat = Tensor::arange(start, start + numel, 1, "cpu").unwrap();
        let sizes: Vec<isize> = shape.iter().map(|&size| size as isize).collect();
        flat.reshape(&sizes).unwrap()
    }

    #[test]
    fn tensors_are_stacked_whatever_their_strides() {
        let items = vec![tensor(&[2, 3], 0), tensor(&[3, 2], 6).t().unwrap()];
        let batch = DefaultCollate.collate(items).unwrap();
        assert_eq!(batch.shape()[..], [2, 2, 3]);
        assert_eq!(
            batch.to_vec::<i64>().unwrap(),
            [0, 1, 2, 3, 4, 5, 6, 8, 10, 7, 9, 11]
        );
    }

    #[test]
    fn structures_are_collated_field_by_field() {
        let sample = |number: i64| {
            let map = BTreeMap::from([("x".to_owned(), number as f32 / 2.0)]);
            (
                vec![tensor(&[1], number)],
                (number, format!("n{number}")),
                map,
            )
        };
        let (tensors, (numbers, names), map) =
            DefaultCollate.collate(vec![sample(3), sample(4)]).unwrap();
        assert_eq!(tensors[0].shape()[..], [2, 1]);
        assert_eq!(numbers.to_vec::<i64>().unwrap(), [3, 4]);
        assert_eq!(names, ["n3", "n4"]);
        assert_eq!(map["x"].to_vec::<f32>().unwrap(), [1.5, 2.0]);
    }

    #[test]
    fn what_does_not_go_together_is_named_with_its_field() {
        let item = |shape: &[usize]| {
            (
                BTreeMap::from([("image".to_owned(), tensor(shape, 0))]),
                1i64,
            )
        };
        let text = DefaultCollate
            .collate(vec![item(&[2]), item(&[3])])
            .err()
            .unwrap()
            .to_string();
        assert!(
            text.contains("field .0[\"image\"]: sample 1 of the batch is i64[3], expected i64[2]"),
            "{text}"
        );
        let other = BTreeMap::from([("mask".to_owned(), tensor(&[2], 0))]);
        let text = DefaultCollate
            .collate(vec![item(&[2]), (other, 1)])
            .err()
            .unwrap()
            .to_string();
        assert!(text.contains("lacks \"image\""), "{text}");
        let text = DefaultCollate
            .collate(vec![vec![1i64], vec![]])
            .err()
            .unwrap()
            .to_string();
        assert!(
            text.contains("sample 1 of the batch has 0 elements"),
            "{text}"
        );
        assert!(DefaultCollate.collate(Vec::<Tensor>::new()).is_err());
    }

    #[test]
    fn a_closure_collates() {
        let sum = |items: Vec<i64>| Ok(items.iter().sum::<i64>());
        assert_eq!(Collate::collate(&sum, vec![1, 2, 3]).unwrap(), 6);
    }
}
