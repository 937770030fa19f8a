//! `einsum`: sums of products by the names of dimensions, as views and batched matrix products.

use std::collections::BTreeMap;

use fireclay_core::{Error, Result};

use crate::tensor::Tensor;

const NAME: &str = "einsum";

/// The name of a dimension: a letter, or a place in the ellipsis, counted from its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Label {
    /// First in an output that isn't given: the outermost before the others.
    Ellipsis(std::cmp::Reverse<usize>),
    Letter(char),
}

/// An operand whose dimensions have different names.
struct Named {
    tensor: Tensor,
    labels: Vec<Label>,
}

/// What an equation says of one operand or of the output.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Term {
    /// Letters before the ellipsis, or all.
    before: Vec<char>,
    has_ellipsis: bool,
    after: Vec<char>,
}

fn wrong(what: String) -> Error {
    Error::argument(NAME, what)
        .with_hint("an equation is like \"ij,jk->ik\", with a letter for each dimension")
}

impl Term {
    fn parse(text: &str, equation: &str) -> Result<Term> {
        let mut term = Term::default();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if let Some(left) = rest.strip_prefix("...") {
                if term.has_ellipsis {
                    return Err(wrong(format!(
                        "\"{text}\" of \"{equation}\" has two ellipses, expected one at most"
                    )));
                }
                term.has_ellipsis = true;
                rest = left;
                continue;
            }
            if !first.is_ascii_alphabetic() {
                return Err(wrong(format!(
                    "\"{equation}\" has a '{first}', expected letters, \"...\", \",\" and one \"->\""
                )));
            }
            match term.has_ellipsis {
                true => term.after.push(first),
                false => term.before.push(first),
            }
            rest = &rest[first.len_utf8()..];
        }
        Ok(term)
    }

    fn letters(&self) -> impl Iterator<Item = char> + '_ {
        self.before.iter().chain(&self.after).copied()
    }

    /// The names of dimensions if the ellipsis stands for `hidden` ones.
    fn labels(&self, hidden: usize) -> Vec<Label> {
        let letters = |letters: &[char]| -> Vec<Label> {
            letters.iter().copied().map(Label::Letter).collect()
        };
        let ellipsis = (0..hidden)
            .rev()
            .map(|place| Label::Ellipsis(std::cmp::Reverse(place)));
        let mut labels = letters(&self.before);
        labels.extend(ellipsis.filter(|_| self.has_ellipsis));
        labels.extend(letters(&self.after));
        labels
    }
}

/// Takes the elements whose indices in two dimensions are equal, as one dimension in the place of the first.
fn diagonal(x: &Tensor, first: usize, second: usize) -> Result<Tensor> {
    let size = x.shape()[first];
    let mut order: Vec<isize> = (0..x.ndim() as isize).collect();
    order.remove(second);
    order.remove(first);
    order.extend([first as isize, second as isize]);
    let flat = x.permute(&order)?.flatten(-2, -1)?;
    let line = match size {
        0 => flat.narrow(-1, 0, 0)?,
        size => {
            let end = (size - 1) * (size + 1) + 1;
            flat.slice(-1, 0, end as isize, size + 1)?
        }
    };
    let last = line.ndim() - 1;
    let mut back: Vec<isize> = (0..last as isize).collect();
    back.insert(first, last as isize);
    line.permute(&back)
}

fn as_sizes(sizes: &[usize]) -> Vec<isize> {
    sizes.iter().map(|&size| size as isize).collect()
}

impl Named {
    /// Names the dimensions of an operand; a name that stands twice is of a diagonal. A dimension of size 1 whose name has another size
    /// elsewhere is dropped: it broadcasts.
    fn new(tensor: &Tensor, labels: Vec<Label>, sizes: &BTreeMap<Label, usize>) -> Result<Named> {
        let mut named = Named {
            tensor: tensor.clone(),
            labels,
        };
        for dim in (0..named.labels.len()).rev() {
            if named.tensor.shape()[dim] == 1 && sizes[&named.labels[dim]] != 1 {
                named.tensor = named.tensor.squeeze(dim as isize)?;
                named.labels.remove(dim);
            }
        }
        let mut dim = 0;
        while dim < named.labels.len() {
            let label = named.labels[dim];
            let again = (dim + 1..named.labels.len()).find(|&other| named.labels[other] == label);
            match again {
                None => dim += 1,
                Some(other) => {
                    named.tensor = diagonal(&named.tensor, dim, other)?;
                    named.labels.remove(other);
                }
            }
        }
        Ok(named)
    }

    /// Sums over the dimensions whose names are not kept.
    fn summed(self, is_kept: impl Fn(Label) -> bool) -> Result<Named> {
        let dims: Vec<isize> = (0..self.labels.len())
            .filter(|&dim| !is_kept(self.labels[dim]))
            .map(|dim| dim as isize)
            .collect();
        if dims.is_empty() {
            return Ok(self);
        }
        let mut labels = self.labels;
        labels.retain(|&label| is_kept(label));
        Ok(Named {
            tensor: self.tensor.sum(&dims, false)?,
            labels,
        })
    }

    /// The dimensions in this order of names, which are its own; groups of them are one dimension each.
    fn grouped(&self, groups: &[&[Label]]) -> Result<Tensor> {
        let place = |label: &Label| self.labels.iter().position(|own| own == label);
        let order: Vec<isize> = groups
            .iter()
            .flat_map(|group| group.iter().filter_map(place))
            .map(|dim| dim as isize)
            .collect();
        let sizes: Vec<usize> = groups.iter().map(|group| self.count(group)).collect();
        self.tensor.permute(&order)?.reshape(&as_sizes(&sizes))
    }

    fn size(&self, label: Label) -> Option<usize> {
        let dim = self.labels.iter().position(|&own| own == label)?;
        Some(self.tensor.shape()[dim])
    }

    fn count(&self, labels: &[Label]) -> usize {
        labels
            .iter()
            .filter_map(|&label| self.size(label))
            .product()
    }

    /// The product with another operand, summed over the names of both that are not kept.
    fn times(self, other: Named, is_kept: impl Fn(Label) -> bool) -> Result<Named> {
        let a_has = self.labels.clone();
        let b_has = other.labels.clone();
        let a = self.summed(|label| is_kept(label) || b_has.contains(&label))?;
        let b = other.summed(|label| is_kept(label) || a_has.contains(&label))?;
        let of = |labels: &[Label], wanted: &dyn Fn(Label) -> bool| -> Vec<Label> {
            labels
                .iter()
                .copied()
                .filter(|&label| wanted(label))
                .collect()
        };
        let both = of(&a.labels, &|label| b.labels.contains(&label));
        let batch = of(&both, &is_kept);
        let inner = of(&both, &|label| !is_kept(label));
        let a_only = of(&a.labels, &|label| !both.contains(&label));
        let b_only = of(&b.labels, &|label| !both.contains(&label));
        let labels = [&batch[..], &a_only, &b_only].concat();
        let mut sizes: Vec<usize> = batch
            .iter()
            .chain(&a_only)
            .filter_map(|&label| a.size(label))
            .collect();
        sizes.extend(b_only.iter().filter_map(|&label| b.size(label)));
        let a = a.grouped(&[&batch, &a_only, &inner])?;
        let b = b.grouped(&[&batch, &inner, &b_only])?;
        let product = match inner.is_empty() {
            true => a.mul(&b)?,
            false => a.matmul(&b)?,
        };
        Ok(Named {
            tensor: product.reshape(&as_sizes(&sizes))?,
            labels,
        })
    }
}

impl Tensor {
    /// Sums of products by the names of dimensions (`torch.einsum`): `"ij,jk->ik"` is the matrix product.
    ///
    /// A letter for each dimension of each operand; `...` stands for dimensions that broadcast. A name that stands twice at one operand
    /// takes its diagonal. What is not named behind `->` is summed. Without `->`, the output has the dimensions of the ellipsis, then
    /// the letters that stand once, in the order of the alphabet. Spaces count for nothing. Operands are multiplied from left to
    /// right.
    #[track_caller]
    pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
        let context = |error: Error| {
            error.with_operands(|| {
                let numbered = operands.iter().enumerate();
                numbered
                    .map(|(number, tensor)| tensor.operand(format!("operands[{number}]")))
                    .collect()
            })
        };
        let (named, output) = plan(equation, operands).map_err(context)?;
        let mut waiting = named.into_iter();
        let Some(mut result) = waiting.next() else {
            return Err(wrong("expected at least one operand".into()));
        };
        let mut rest: Vec<Named> = waiting.collect();
        rest.reverse();
        while let Some(next) = rest.pop() {
            let kept = |label: Label| {
                output.contains(&label) || rest.iter().any(|later| later.labels.contains(&label))
            };
            result = result.times(next, kept)?;
        }
        let result = result.summed(|label| output.contains(&label))?;
        let place = |label: &Label| result.labels.iter().position(|own| own == label);
        let order: Vec<isize> = (output.iter().filter_map(place))
            .map(|dim| dim as isize)
            .collect();
        result.tensor.permute(&order)
    }
}

/// The operands with names, and the names of the output.
fn plan(equation: &str, operands: &[&Tensor]) -> Result<(Vec<Named>, Vec<Label>)> {
    let plain: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match plain.split_once("->") {
        Some((inputs, output)) => (inputs, Some(Term::parse(output, equation)?)),
        None => (&plain[..], None),
    };
    let terms: Vec<Term> = inputs
        .split(',')
        .map(|text| Term::parse(text, equation))
        .collect::<Result<_>>()?;
    if terms.len() != operands.len() {
        let what = format!(
            "\"{equation}\" names {} operands, got {}",
            terms.len(),
            operands.len()
        );
        return Err(wrong(what));
    }
    let mut sizes: BTreeMap<Label, usize> = BTreeMap::new();
    let mut labels_of: Vec<Vec<Label>> = Vec::new();
    let mut most_hidden = 0;
    for (number, (term, operand)) in terms.iter().zip(operands).enumerate() {
        let letters = term.letters().count();
        let fits = match term.has_ellipsis {
            true => letters <= operand.ndim(),
            false => letters == operand.ndim(),
        };
        if !fits {
            let what = format!(
                "\"{equation}\" names {letters} dimensions of operand {number}, which has {}",
                operand.shape()
            );
            return Err(wrong(what));
        }
        let hidden = operand.ndim() - letters;
        most_hidden = most_hidden.max(hidden);
        let labels = term.labels(hidden);
        for (&label, &size) in labels.iter().zip(operand.shape().iter()) {
            let known = sizes.entry(label).or_insert(size);
            if *known == 1 {
                *known = size;
            } else if size != 1 && size != *known {
                let what = format!(
                    "the name {} of \"{equation}\" has the sizes {known} and {size}",
                    match label {
                        Label::Letter(letter) => letter.to_string(),
                        Label::Ellipsis(_) => "...".into(),
                    }
                );
                return Err(Error::shape(NAME, what));
            }
        }
        labels_of.push(labels);
    }
    let output = match output {
        Some(term) => {
            for letter in term.letters() {
                let count = term.letters().filter(|&other| other == letter).count();
                let is_known = sizes.contains_key(&Label::Letter(letter));
                if count > 1 || !is_known {
                    let what = format!(
                        "'{letter}' behind the arrow of \"{equation}\" must name a dimension of an operand, once"
                    );
                    return Err(wrong(what));
                }
            }
            term.labels(most_hidden)
        }
        None => {
            let once = |label: &Label| match label {
                Label::Ellipsis(_) => true,
                Label::Letter(letter) => {
                    let all = terms.iter().flat_map(Term::letters);
                    all.filter(|other| other == letter).count() == 1
                }
            };
            sizes.keys().copied().filter(once).collect()
        }
    };
    let named = operands
        .iter()
        .zip(labels_of)
        .map(|(operand, labels)| Named::new(operand, labels, &sizes))
        .collect::<Result<_>>()?;
    Ok((named, output))
}
