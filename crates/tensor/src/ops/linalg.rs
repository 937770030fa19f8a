//! Linear algebra: decompositions, solvers and what follows from them (`torch.linalg`), norms, and products by other names.
//!
//! Decompositions run on the host, a matrix at a time, by the crate `linalg`; on a device the operands are copied to the host and back,
//! which counts as a wait for the device. Their gradients are tensor ops.

mod decompositions;
mod distance;
mod einsum;
mod gradients;
mod norms;
mod products;

pub use self::decompositions::{LeastSquares, QrMode};
pub use self::norms::NormOrder;

use fireclay_core::{DType, Error, Result, Shape};
use fireclay_linalg::{Failure, Real, Triangle, Vectors};

use super::float::match_float;
use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::op::{Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::CpuCall;

/// What is made of the last two dimensions of the first input.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The inverse.
    Inv,
    /// The solution of `a @ x = b`; inputs: a, b.
    Solve,
    Det,
    /// Outputs: sign, logarithm of the size.
    SlogDet,
    /// The gradient of the determinant.
    Cofactors,
    /// The lower factor.
    Cholesky,
    /// The solution of `a @ x = b` for a triangular a; inputs: a, b.
    SolveTriangular {
        upper: bool,
        unit: bool,
    },
    /// Outputs: q, r.
    Qr {
        complete: bool,
    },
    /// Outputs: u, values, vh.
    Svd {
        full: bool,
    },
    SingularValues,
    /// Outputs: values, vectors.
    Eigh,
    Eigenvalues,
    PseudoInverse {
        atol: f64,
        rtol: f64,
    },
    Exponential,
}

#[derive(Clone, Copy, Debug)]
struct Linalg {
    kind: Kind,
}

impl Linalg {
    fn is_of_squares(self) -> bool {
        !matches!(
            self.kind,
            Kind::Qr { .. } | Kind::Svd { .. } | Kind::SingularValues | Kind::PseudoInverse { .. }
        )
    }

    /// The shapes of the outputs' last dimensions for matrices `[m, n]`.
    fn results(self, [m, n]: [usize; 2], inputs: &[Meta<'_>]) -> Vec<Vec<usize>> {
        let k = m.min(n);
        match self.kind {
            Kind::Inv | Kind::Cofactors | Kind::Cholesky | Kind::Exponential => vec![vec![m, n]],
            Kind::Solve | Kind::SolveTriangular { .. } => {
                vec![vec![n, inputs[1].shape()[inputs[1].ndim() - 1]]]
            }
            Kind::Det => vec![vec![]],
            Kind::SlogDet => vec![vec![], vec![]],
            Kind::Qr { complete } => {
                let k = if complete { m } else { k };
                vec![vec![m, k], vec![k, n]]
            }
            Kind::Svd { full: false } => vec![vec![m, k], vec![k], vec![k, n]],
            Kind::Svd { full: true } => vec![vec![m, m], vec![k], vec![n, n]],
            Kind::SingularValues => vec![vec![k]],
            Kind::Eigh => vec![vec![n], vec![n, n]],
            Kind::Eigenvalues => vec![vec![n]],
            Kind::PseudoInverse { .. } => vec![vec![n, m]],
        }
    }

    /// Does the work on one matrix.
    fn work<T: Real>(
        self,
        [m, n]: [usize; 2],
        inputs: &[&[T]],
        outputs: &mut [&mut [T]],
    ) -> Result<(), Failure> {
        let a = inputs[0];
        match (self.kind, outputs) {
            (Kind::Inv, [out]) => fireclay_linalg::inverse(a, n, out),
            (Kind::Solve, [out]) => fireclay_linalg::solve(a, n, inputs[1], out),
            (Kind::Det, [out]) => {
                out[0] = fireclay_linalg::determinant(a, n);
                Ok(())
            }
            (Kind::SlogDet, [sign, log]) => {
                (sign[0], log[0]) = fireclay_linalg::sign_and_log_determinant(a, n);
                Ok(())
            }
            (Kind::Cofactors, [out]) => fireclay_linalg::cofactors(a, n, out),
            (Kind::Cholesky, [out]) => {
                out.copy_from_slice(a);
                T::cholesky(out, n)
            }
            (Kind::SolveTriangular { upper, unit }, [out]) => {
                out.copy_from_slice(inputs[1]);
                let triangle = Triangle {
                    upper,
                    unit,
                    transposed: false,
                };
                let cols = out.len() / n.max(1);
                T::solve_triangular(a, triangle, out, cols);
                Ok(())
            }
            (Kind::Qr { complete }, [q, r]) => {
                T::qr(a, [m, n], if complete { m } else { m.min(n) }, q, r);
                Ok(())
            }
            (Kind::Svd { full }, [left, values, right]) => {
                T::svd(a, [m, n], values, Some(Vectors { left, right, full }))
            }
            (Kind::SingularValues, [values]) => T::svd(a, [m, n], values, None),
            (Kind::Eigh, [values, vectors]) => T::eigh(a, values, Some(vectors)),
            (Kind::Eigenvalues, [values]) => T::eigh(a, values, None),
            (Kind::PseudoInverse { atol, rtol }, [out]) => {
                fireclay_linalg::pseudoinverse(a, [m, n], [atol, rtol], out)
            }
            (Kind::Exponential, [out]) => {
                fireclay_linalg::exponential(a, n, out);
                Ok(())
            }
            _ => unreachable!("the outputs are those of `results`"),
        }
    }

    /// Does the work on all matrices of a batch.
    fn work_all<T: Real>(
        self,
        shape: &Shape,
        inputs: &[&[T]],
        outputs: Vec<&mut [T]>,
    ) -> Result<()> {
        let (batch, matrix) = shape.split_at(shape.ndim() - 2);
        let (count, [m, n]) = (batch.iter().product(), [matrix[0], matrix[1]]);
        // Some microseconds of work at least.
        let cost = m.saturating_mul(n).saturating_mul(m.min(n)).max(1);
        let grain = ((1 << 15) / cost).max(1);
        fireclay_cpu::batch::for_each(count, grain, inputs, outputs, |inputs, outputs| {
            self.work([m, n], inputs, outputs)
        })
        .map_err(|(number, failure)| self.explain(batch, number, failure))
    }

    /// What went wrong, with which matrix.
    fn explain(self, batch: &[usize], number: usize, failure: Failure) -> Error {
        let which = match batch {
            [] => "the matrix".to_owned(),
            [_] => format!("matrix {number} of the batch"),
            _ => {
                let mut rest = number;
                let mut index: Vec<usize> = Vec::new();
                for &size in batch.iter().rev() {
                    index.push(rest % size);
                    rest /= size;
                }
                index.reverse();
                format!("matrix {index:?} of the batch")
            }
        };
        let (what, hint) = match failure {
            Failure::Singular(at) => (
                format!("{which} is singular: diagonal element {at} of its factor U is 0"),
                "pinv and lstsq take singular matrices",
            ),
            Failure::NotPositive(order) => (
                format!(
                    "{which} is not positive-definite: its leading minor of order {order} is not positive"
                ),
                "expected a symmetric matrix with positive eigenvalues; only its lower triangle is read",
            ),
            Failure::NotFinite => (
                format!("{which} has infinite elements or NaN, expected finite numbers"),
                "isfinite finds them",
            ),
            Failure::NoConvergence => (
                format!("the iteration for {which} did not converge"),
                "it is badly conditioned; try f64",
            ),
        };
        Error::argument(self.name(), what).with_hint(hint)
    }
}

impl Op for Linalg {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Inv => "linalg.inv",
            Kind::Solve => "linalg.solve",
            Kind::Det => "linalg.det",
            Kind::SlogDet => "linalg.slogdet",
            Kind::Cofactors => "linalg.det_backward",
            Kind::Cholesky => "linalg.cholesky",
            Kind::SolveTriangular { .. } => "linalg.solve_triangular",
            Kind::Qr { .. } => "linalg.qr",
            Kind::Svd { .. } => "linalg.svd",
            Kind::SingularValues => "linalg.svdvals",
            Kind::Eigh => "linalg.eigh",
            Kind::Eigenvalues => "linalg.eigvalsh",
            Kind::PseudoInverse { .. } => "linalg.pinv",
            Kind::Exponential => "linalg.matrix_exp",
        }
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let name = self.name();
        let dtype = inputs[0].dtype;
        if let Some(input) = (inputs.iter()).find(|input| input.dtype != dtype) {
            let what = format!("expected one dtype, got {dtype} and {}", input.dtype);
            return Err(Error::dtype(name, what));
        }
        if !matches!(dtype, DType::F32 | DType::F64) {
            return Err(
                Error::dtype(name, format!("expected f32 or f64, got {dtype}"))
                    .with_hint("cast it first: to_dtype(DType::F32)"),
            );
        }
        let shape = inputs[0].shape();
        let Some((batch, &[m, n])) = shape.split_last_chunk() else {
            let what = format!("expected matrices [.., m, n], got {shape}");
            return Err(Error::shape(name, what));
        };
        if self.is_of_squares() && m != n {
            let what = format!("expected square matrices [.., n, n], got {shape}");
            return Err(Error::shape(name, what).with_hint("pinv and lstsq take other ones"));
        }
        if let Some(b) = inputs.get(1) {
            let fits = b.ndim() == shape.ndim()
                && b.shape()[..batch.len()] == *batch
                && b.shape()[batch.len()] == n;
            if !fits {
                let what = format!(
                    "expected a right side of as many matrices [.., {n}, k] as in {shape}, got {}",
                    b.shape()
                );
                return Err(Error::shape(name, what));
            }
        }
        let outputs = self.results([m, n], inputs).into_iter().map(|sizes| {
            let sizes = [batch, &sizes].concat();
            OutputMeta::contiguous(Shape::new(&sizes), dtype)
        });
        Ok(outputs.collect())
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        let shape = call.layout(0).shape();
        match_float!(self.name(), call.dtype(0), T => {
            let inputs: Vec<&[T]> = (0..call.inputs()).map(|index| call.input(index)).collect();
            let outputs = (0..self.outputs()).map(|index| call.output(index)).collect();
            self.work_all::<T>(shape, &inputs, outputs)?;
        });
        Ok(())
    }

    fn cuda_inputs(&self) -> KernelInputs {
        KernelInputs::Packed
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let shape = call.layout(0).shape();
        match_float!(self.name(), call.dtype(0), T => {
            call.on_host::<T>(|inputs, outputs| self.work_all(shape, inputs, outputs))?;
        });
        Ok(())
    }

    fn saves(&self) -> Saves {
        match self.kind {
            Kind::Inv | Kind::Cholesky | Kind::Qr { .. } | Kind::Svd { .. } | Kind::Eigh => {
                Saves::OUTPUTS
            }
            Kind::Solve
            | Kind::SolveTriangular { .. }
            | Kind::Det
            | Kind::SlogDet
            | Kind::PseudoInverse { .. } => Saves::ALL,
            Kind::Exponential => Saves::INPUTS,
            Kind::Cofactors | Kind::SingularValues | Kind::Eigenvalues => Saves::NONE,
        }
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        gradients::backward(*self, context)
    }
}

impl Linalg {
    fn outputs(self) -> usize {
        match self.kind {
            Kind::SlogDet | Kind::Qr { .. } | Kind::Eigh => 2,
            Kind::Svd { .. } => 3,
            _ => 1,
        }
    }
}

/// One value of each op of this file.
pub(super) fn ops() -> Vec<Box<dyn Op>> {
    let kinds = [
        Kind::Inv,
        Kind::Solve,
        Kind::Det,
        Kind::SlogDet,
        Kind::Cofactors,
        Kind::Cholesky,
        Kind::SolveTriangular {
            upper: true,
            unit: false,
        },
        Kind::Qr { complete: false },
        Kind::Svd { full: false },
        Kind::SingularValues,
        Kind::Eigh,
        Kind::Eigenvalues,
        Kind::PseudoInverse {
            atol: 0.0,
            rtol: 0.0,
        },
        Kind::Exponential,
    ];
    kinds
        .into_iter()
        .map(|kind| -> Box<dyn Op> { Box::new(Linalg { kind }) })
        .collect()
}
