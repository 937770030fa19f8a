//! Products of vectors and matrices by PyTorch's other names, each with the shapes that it takes.

use fireclay_core::{DType, Error, Result, Scalar, resolve_dim};

use crate::formula::Formula;
use crate::tensor::Tensor;

#[track_caller]
fn check_dims(op: &'static str, tensors: &[(&'static str, &Tensor, usize)]) -> Result<()> {
    if tensors
        .iter()
        .all(|(_, tensor, ndim)| tensor.ndim() == *ndim)
    {
        return Ok(());
    }
    let list = |of: &dyn Fn(&(&'static str, &Tensor, usize)) -> String| {
        let texts: Vec<String> = tensors.iter().map(of).collect();
        texts.join(" and ")
    };
    let what = format!(
        "expected operands of {} dimensions, got {}",
        list(&|(_, _, ndim)| ndim.to_string()),
        list(&|(_, tensor, _)| tensor.shape().to_string())
    );
    Err(Error::shape(op, what)
        .with_hint("matmul takes other shapes")
        .with_operands(|| {
            let operand =
                |(name, tensor, _): &(&'static str, &Tensor, usize)| tensor.operand(*name);
            tensors.iter().map(operand).collect()
        }))
}

fn as_sizes(sizes: &[usize]) -> Vec<isize> {
    sizes.iter().map(|&size| size as isize).collect()
}

impl Tensor {
    /// The product of two matrices `[m, k]` and `[k, n]` (`torch.mm`).
    #[track_caller]
    pub fn mm(&self, other: &Tensor) -> Result<Tensor> {
        check_dims("mm", &[("self", self, 2), ("other", other, 2)])?;
        self.matmul(other)
    }

    /// The products of as many matrices, `[batch, m, k]` and `[batch, k, n]` (`torch.bmm`).
    #[track_caller]
    pub fn bmm(&self, other: &Tensor) -> Result<Tensor> {
        check_dims("bmm", &[("self", self, 3), ("other", other, 3)])?;
        if self.shape()[0] != other.shape()[0] {
            let what = format!(
                "expected as many matrices, got {} and {}",
                self.shape(),
                other.shape()
            );
            return Err(Error::shape("bmm", what)
                .with_hint("matmul broadcasts")
                .with_operands(|| vec![self.operand("self"), other.operand("other")]));
        }
        self.matmul(other)
    }

    /// The product of a matrix `[m, k]` and a vector `[k]` (`torch.mv`).
    #[track_caller]
    pub fn mv(&self, vector: &Tensor) -> Result<Tensor> {
        check_dims("mv", &[("self", self, 2), ("vector", vector, 1)])?;
        self.matmul(vector)
    }

    /// The sum of products of two vectors (`torch.vdot`): of real numbers the same as [`dot`](Tensor::dot).
    #[track_caller]
    pub fn vdot(&self, other: &Tensor) -> Result<Tensor> {
        check_dims("vdot", &[("self", self, 1), ("other", other, 1)])?;
        self.dot(other)
    }

    /// The sums of products along the last dimensions, of `[.., k]` and `[.., k]`; if one is zero-dim, their product (`torch.inner`).
    #[track_caller]
    pub fn inner(&self, other: &Tensor) -> Result<Tensor> {
        if self.ndim() == 0 || other.ndim() == 0 {
            return self.mul(other);
        }
        if self.size(-1)? != other.size(-1)? {
            let what = format!(
                "expected last dimensions of one size, got {} and {}",
                self.shape(),
                other.shape()
            );
            return Err(Error::shape("inner", what)
                .with_operands(|| vec![self.operand("self"), other.operand("other")]));
        }
        self.tensordot(other, &[-1], &[-1])
    }

    /// `beta * self + alpha * sum of left[b] @ right[b]` over a batch (`torch.addbmm`); `self` broadcasts to the result. See
    /// [`addmm`](Tensor::addmm).
    #[track_caller]
    pub fn addbmm(
        &self,
        left: &Tensor,
        right: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        check_dims("addbmm", &[("left", left, 3), ("right", right, 3)])?;
        let ([batch, m, k], [others, inner, n]) = (
            [left.size(0)?, left.size(1)?, left.size(2)?],
            [right.size(0)?, right.size(1)?, right.size(2)?],
        );
        if batch != others || k != inner {
            let what = format!(
                "expected [batch, m, k] and [batch, k, n], got {} and {}",
                left.shape(),
                right.shape()
            );
            return Err(Error::shape("addbmm", what)
                .with_operands(|| vec![left.operand("left"), right.operand("right")]));
        }
        // The sum over a batch is the product of long rows and columns.
        let left = left.transpose(0, 1)?.reshape(&as_sizes(&[m, batch * k]))?;
        let right = right.reshape(&as_sizes(&[batch * k, n]))?;
        self.addmm(&left, &right, beta, alpha)
    }

    /// `beta * self + alpha * outer(left, right)` of two vectors (`torch.addr`); `self` broadcasts to the result.
    #[track_caller]
    pub fn addr(
        &self,
        left: &Tensor,
        right: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        check_dims("addr", &[("left", left, 1), ("right", right, 1)])?;
        self.addmm(&left.unsqueeze(1)?, &right.unsqueeze(0)?, beta, alpha)
    }

    /// [`addmm`](Tensor::addmm) in place (`Tensor.addmm_`): `self` has the shape of the product.
    #[track_caller]
    pub fn addmm_(
        &self,
        left: &Tensor,
        right: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        let result = self.addmm(left, right, beta, alpha)?;
        if result.shape() != self.shape() {
            let what = format!(
                "the result has the shape {}, which {} can't hold in place",
                result.shape(),
                self.shape()
            );
            return Err(Error::shape("addmm_", what)
                .with_hint("use addmm")
                .with_operands(|| vec![self.operand("self")]));
        }
        self.copy_(&result)
    }

    /// All products of an element of the one and one of the other, blocks of `other` in the places of `self` (`torch.kron`). Missing
    /// dimensions are in front and of size 1.
    #[track_caller]
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        let ndim = self.ndim().max(other.ndim());
        let padded = |x: &Tensor| [&vec![1; ndim - x.ndim()][..], x.shape()].concat();
        let (a, b) = (padded(self), padded(other));
        let mut sizes = Vec::with_capacity(ndim);
        let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
        for (&a, &b) in a.iter().zip(&b) {
            of_a.extend([a, 1]);
            of_b.extend([1, b]);
            sizes.push(a.saturating_mul(b));
        }
        let a = self.reshape(&as_sizes(&of_a))?;
        let b = other.reshape(&as_sizes(&of_b))?;
        a.mul(&b)?.reshape(&as_sizes(&sizes))
    }

    /// The sums of products over pairs of dimensions, of `dims` of `self` and `other_dims` of `other`, in order (`torch.tensordot`). The result
    /// has the other dimensions, first those of `self`.
    #[track_caller]
    pub fn tensordot(
        &self,
        other: &Tensor,
        dims: &[isize],
        other_dims: &[isize],
    ) -> Result<Tensor> {
        const NAME: &str = "tensordot";
        let operands = || vec![self.operand("self"), other.operand("other")];
        let resolved = |x: &Tensor, dims: &[isize]| -> Result<Vec<usize>> {
            let mut found = Vec::new();
            for &dim in dims {
                let dim = resolve_dim(NAME, dim, x.ndim())?;
                if found.contains(&dim) || x.ndim() == 0 {
                    let what = format!("dimension {dim} appears twice in {dims:?}");
                    return Err(Error::argument(NAME, what).with_operands(operands));
                }
                found.push(dim);
            }
            Ok(found)
        };
        let (of_a, of_b) = (resolved(self, dims)?, resolved(other, other_dims)?);
        let sizes = |x: &Tensor, dims: &[usize]| -> Vec<usize> {
            dims.iter().map(|&dim| x.shape()[dim]).collect()
        };
        let (a_sizes, b_sizes) = (sizes(self, &of_a), sizes(other, &of_b));
        if a_sizes != b_sizes {
            let what = format!(
                "expected pairs of dimensions of one size, got {a_sizes:?} of {} and {b_sizes:?} of {}",
                self.shape(),
                other.shape()
            );
            return Err(Error::shape(NAME, what).with_operands(operands));
        }
        let free = |x: &Tensor, dims: &[usize]| -> Vec<usize> {
            (0..x.ndim()).filter(|dim| !dims.contains(dim)).collect()
        };
        let (a_free, b_free) = (free(self, &of_a), free(other, &of_b));
        let (a_kept, b_kept) = (sizes(self, &a_free), sizes(other, &b_free));
        let count = |sizes: &[usize]| sizes.iter().product::<usize>();
        let inner = count(&a_sizes);
        let a = (self.permute(&as_sizes(&[a_free, of_a].concat()))?)
            .reshape(&as_sizes(&[count(&a_kept), inner]))?;
        let b = (other.permute(&as_sizes(&[of_b, b_free].concat()))?)
            .reshape(&as_sizes(&[inner, count(&b_kept)]))?;
        a.matmul(&b)?.reshape(&as_sizes(&[a_kept, b_kept].concat()))
    }

    /// The product of two or more matrices in the order that needs the fewest multiplications (`torch.linalg.multi_dot`). The first may be
    /// a vector, which is a row, and the last one a vector, which is a column; the result has no dimension for these.
    #[track_caller]
    pub fn multi_dot(tensors: &[&Tensor]) -> Result<Tensor> {
        const NAME: &str = "linalg.multi_dot";
        let [first, .., last] = tensors else {
            let what = format!("expected at least 2 matrices, got {}", tensors.len());
            return Err(Error::argument(NAME, what));
        };
        let operands = || {
            let numbered = tensors.iter().enumerate();
            numbered
                .map(|(number, tensor)| tensor.operand(format!("tensors[{number}]")))
                .collect()
        };
        let count = tensors.len();
        let mut matrices: Vec<Tensor> = Vec::new();
        for (number, tensor) in tensors.iter().enumerate() {
            matrices.push(match tensor.ndim() {
                2 => (*tensor).clone(),
                1 if number == 0 => tensor.unsqueeze(0)?,
                1 if number == count - 1 => tensor.unsqueeze(1)?,
                _ => {
                    let what = format!(
                        "expected matrices, or a vector first or last, got {} at place {number}",
                        tensor.shape()
                    );
                    return Err(Error::shape(NAME, what).with_operands(operands));
                }
            });
        }
        let mut sizes = vec![matrices[0].size(0)?];
        for (number, matrix) in matrices.iter().enumerate() {
            if matrix.size(0)? != sizes[number] {
                let what = format!(
                    "expected {} rows at place {number}, as many as columns before, got {}",
                    sizes[number],
                    tensors[number].shape()
                );
                return Err(Error::shape(NAME, what).with_operands(operands));
            }
            sizes.push(matrix.size(1)?);
        }
        // The least cost of each run of matrices, and where it is cut (Cormen et al., "Introduction to Algorithms", 15.2).
        let mut best = vec![vec![(0.0f64, 0usize); count]; count];
        for length in 1..count {
            for start in 0..count - length {
                let end = start + length;
                best[start][end] = (start..end)
                    .map(|cut| {
                        let own = [start, cut + 1, end + 1].map(|at| sizes[at] as f64);
                        let own = own.iter().product::<f64>();
                        (best[start][cut].0 + best[cut + 1][end].0 + own, cut)
                    })
                    .fold((f64::INFINITY, start), |least, next| {
                        if next.0 < least.0 { next } else { least }
                    });
            }
        }
        fn product(
            matrices: &[Tensor],
            best: &[Vec<(f64, usize)>],
            [start, end]: [usize; 2],
        ) -> Result<Tensor> {
            if start == end {
                return Ok(matrices[start].clone());
            }
            let cut = best[start][end].1;
            let left = product(matrices, best, [start, cut])?;
            left.matmul(&product(matrices, best, [cut + 1, end])?)
        }
        let dtype = first.dtype();
        let is_narrow = matches!(dtype, DType::F16 | DType::BF16);
        if is_narrow && tensors.iter().all(|tensor| tensor.dtype() == dtype) {
            // Rounded once, not after each product.
            for matrix in &mut matrices {
                *matrix = matrix.to_dtype(DType::F32)?;
            }
        }
        let mut result = product(&matrices, &best, [0, count - 1])?.to_dtype(dtype)?;
        if last.ndim() == 1 {
            result = result.squeeze(-1)?;
        }
        if first.ndim() == 1 {
            result = result.squeeze(0)?;
        }
        Ok(result)
    }

    /// The cross products of vectors of 3 numbers along `dim` (`torch.linalg.cross`, by default along -1). The others broadcast.
    #[track_caller]
    pub fn cross(&self, other: &Tensor, dim: isize) -> Result<Tensor> {
        const NAME: &str = "linalg.cross";
        let operands = || vec![self.operand("self"), other.operand("other")];
        if self.ndim() != other.ndim() {
            let what = format!(
                "expected as many dimensions, got {} and {}",
                self.shape(),
                other.shape()
            );
            return Err(Error::shape(NAME, what).with_operands(operands));
        }
        let dim = resolve_dim(NAME, dim, self.ndim())?;
        let size = |x: &Tensor| x.shape().get(dim).copied();
        if size(self) != Some(3) || size(other) != Some(3) {
            let what = format!(
                "expected 3 numbers along dimension {dim}, got {} and {}",
                self.shape(),
                other.shape()
            );
            return Err(Error::shape(NAME, what).with_operands(operands));
        }
        let dim = dim as isize;
        let parts = |x: &Tensor| -> Result<Vec<Formula>> {
            (0..3)
                .map(|at| Ok(Formula::from(x.narrow(dim, at, 1)?)))
                .collect()
        };
        let (a, b) = (parts(self)?, parts(other)?);
        let product = |first: usize| {
            let (i, j) = ((first + 1) % 3, (first + 2) % 3);
            &a[i] * &b[j] - &a[j] * &b[i]
        };
        let results = Formula::eval_all(&[product(0), product(1), product(2)])?;
        Tensor::cat(&[&results[0], &results[1], &results[2]], dim)
    }
}
