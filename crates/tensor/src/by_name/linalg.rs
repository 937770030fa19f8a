//! Rows of products and decompositions.

use fireclay_core::{Result, Scalar};

use super::{Call, Value, rows};
use crate::ops::linalg::{NormOrder, QrMode};
use crate::tensor::Tensor;

rows! {
    "matmul(Tensor input, Tensor other)" "input=[2,3,4] other=[4,5]" |call| { two(call, "other", Tensor::matmul) }
    "mm(Tensor input, Tensor mat2)" "input=[3,4] mat2=[4,5]" |call| { two(call, "mat2", Tensor::mm) }
    "bmm(Tensor input, Tensor mat2)" "input=[2,3,4] mat2=[2,4,5]" |call| { two(call, "mat2", Tensor::bmm) }
    "mv(Tensor input, Tensor vec)" "input=[3,4] vec=[4]" |call| { two(call, "vec", Tensor::mv) }
    "dot(Tensor input, Tensor tensor)" "input=[4] tensor=[4]" |call| { two(call, "tensor", Tensor::dot) }
    "vdot(Tensor input, Tensor other)" "input=[4] other=[4]" |call| { two(call, "other", Tensor::vdot) }
    "inner(Tensor input, Tensor other)" "input=[3,4] other=[2,4]" |call| { two(call, "other", Tensor::inner) }
    "outer(Tensor input, Tensor vec2)" "input=[3] vec2=[4]" |call| { two(call, "vec2", Tensor::outer) }
    "kron(Tensor input, Tensor other)" "input=[2,3] other=[3,2]" |call| { two(call, "other", Tensor::kron) }
    "addmm(Tensor input, Tensor mat1, Tensor mat2, *, Number beta=1, Number alpha=1)" "input=[5] mat1=[3,4] mat2=[4,5] beta=0.5" |call| { added(call, "mat1", "mat2", Tensor::addmm) }
    "addbmm(Tensor input, Tensor batch1, Tensor batch2, *, Number beta=1, Number alpha=1)" "input=[3,5] batch1=[2,3,4] batch2=[2,4,5] beta=0.5" |call| { added(call, "batch1", "batch2", Tensor::addbmm) }
    "baddbmm(Tensor input, Tensor batch1, Tensor batch2, *, Number beta=1, Number alpha=1)" "input=[2,3,5] batch1=[2,3,4] batch2=[2,4,5] alpha=0.5" |call| { added(call, "batch1", "batch2", Tensor::baddbmm) }
    "addmv(Tensor input, Tensor mat, Tensor vec, *, Number beta=1, Number alpha=1)" "input=[3] mat=[3,4] vec=[4] beta=0.5" |call| { added(call, "mat", "vec", Tensor::addmv) }
    "addr(Tensor input, Tensor vec1, Tensor vec2, *, Number beta=1, Number alpha=1)" "input=[3,4] vec1=[3] vec2=[4] beta=0.5" |call| { added(call, "vec1", "vec2", Tensor::addr) }
    "tensordot(Tensor a, Tensor b, any dims=2)" "a=[2,3,4] b=[4,3,5] dims=[[2,1],[0,1]]" |call| { tensordot(call) }
    "linalg.multi_dot(Tensor[] tensors)" "tensors=([2,3],[3,4],[4,2])" |call| { Tensor::multi_dot(&call.tensors("tensors")?) }
    "einsum(str equation, Tensor[] operands)" "equation=\"bij,bjk->bik\" operands=([2,3,4],[2,4,5])" |call| {
        Tensor::einsum(call.text("equation").unwrap_or_default(), &call.tensors("operands")?)
    }
    "cdist(Tensor x1, Tensor x2, float p=2.0)" "x1=[2,3,4] x2=[2,5,4]" |call| {
        call.tensor("x1")?.cdist(call.tensor("x2")?, call.float("p")?)
    }
    "cov(Tensor input, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None)" "input=[3,5]" |call| {
        let (fweights, aweights) = (call.maybe_tensor("fweights")?, call.maybe_tensor("aweights")?);
        call.tensor("input")?.cov(call.int("correction")?, fweights, aweights)
    }
    "corrcoef(Tensor input)" "input=[3,5]" |call| { call.tensor("input")?.corrcoef() }
    "linalg.cross(Tensor input, Tensor other, *, int dim=-1)" "input=[2,3] other=[2,3]" |call| {
        call.tensor("input")?.cross(call.tensor("other")?, call.dim("dim")?)
    }
    "linalg.vector_norm(Tensor x, float ord=2, int[]? dim=None, bool keepdim=False)" "x=[3,4] dim=1" |call| {
        call.tensor("x")?.vector_norm(call.float("ord")?, &call.dims("dim")?, call.flag("keepdim"))
    }
    "linalg.matrix_norm(Tensor input, any ord=\"fro\", int[] dim=[-2, -1], bool keepdim=False)" "input=[2,3,4]" |call| {
        let ord = order(call, "ord")?.unwrap_or(NormOrder::Frobenius);
        let dims = call.dims("dim")?;
        let Ok(dims) = <[isize; 2]>::try_from(&dims[..]) else {
            return Err(call.refuse(format!("argument dim must be 2 dimensions, got {dims:?}")));
        };
        call.tensor("input")?.matrix_norm(ord, dims, call.flag("keepdim"))
    }
    "linalg.norm(Tensor input, any ord=None, int[]? dim=None, bool keepdim=False)" "input=[3,4] ord=2.0 dim=1" |call| {
        call.tensor("input")?.linalg_norm(order(call, "ord")?, &call.dims("dim")?, call.flag("keepdim"))
    }
    "linalg.inv(Tensor A)" "A=spd[2,3,3]" |call| { call.tensor("A")?.inv() }
    "linalg.det(Tensor A)" "A=spd[2,3,3]" |call| { call.tensor("A")?.det() }
    "linalg.slogdet(Tensor A)" "A=spd[2,3,3]" |call| { call.tensor("A")?.slogdet() }
    "linalg.cholesky(Tensor input, *, bool upper=False)" "input=spd[2,3,3]" |call| { call.tensor("input")?.cholesky(call.flag("upper")) }
    "linalg.solve(Tensor A, Tensor B, *, bool left=True)" "A=spd[2,3,3] B=[2,3,4]" |call| {
        call.tensor("A")?.solve(call.tensor("B")?, call.flag("left"))
    }
    "linalg.solve_triangular(Tensor input, Tensor B, *, bool upper, bool left=True, bool unitriangular=False)" "input=spd[3,3] B=[3,2] upper=True" |call| {
        let [upper, left, unit] = ["upper", "left", "unitriangular"].map(|name| call.flag(name));
        call.tensor("input")?.solve_triangular(call.tensor("B")?, upper, left, unit)
    }
    "linalg.qr(Tensor A, str mode=\"reduced\")" "A=[4,3]" |call| {
        let known = [("reduced", QrMode::Reduced), ("complete", QrMode::Complete), ("r", QrMode::R)];
        call.tensor("A")?.qr(call.one_of("mode", &known)?)
    }
    "linalg.svd(Tensor A, bool full_matrices=True)" "A=[4,3] full_matrices=False" |call| { call.tensor("A")?.svd(call.flag("full_matrices")) }
    "linalg.svdvals(Tensor A)" "A=[4,3]" |call| { call.tensor("A")?.svdvals() }
    "linalg.eigh(Tensor input, str UPLO=\"L\")" "input=spd[3,3]" |call| { call.tensor("input")?.eigh(upper_half(call)?) }
    "linalg.eigvalsh(Tensor input, str UPLO=\"L\")" "input=spd[3,3]" |call| { call.tensor("input")?.eigvalsh(upper_half(call)?) }
    "linalg.pinv(Tensor input, *, float? atol=None, float? rtol=None, bool hermitian=False)" "input=[4,3]" |call| {
        let (atol, rtol) = (call.maybe_float("atol")?, call.maybe_float("rtol")?);
        call.tensor("input")?.pinv(atol, rtol, call.flag("hermitian"))
    }
    "linalg.matrix_rank(Tensor input, *, float? atol=None, float? rtol=None, bool hermitian=False)" "input=[4,3]" |call| {
        let (atol, rtol) = (call.maybe_float("atol")?, call.maybe_float("rtol")?);
        call.tensor("input")?.matrix_rank(atol, rtol, call.flag("hermitian"))
    }
    "linalg.lstsq(Tensor input, Tensor b, float? rcond=None)" "input=[5,3] b=[5,2]" |call| {
        let all = call.tensor("input")?.lstsq(call.tensor("b")?, call.maybe_float("rcond")?)?;
        Ok(vec![all.solution, all.residuals, all.rank, all.singular_values])
    }
    "linalg.matrix_power(Tensor input, int n)" "input=[3,3] n=3" |call| { call.tensor("input")?.matrix_power(call.int("n")?) }
    "linalg.matrix_exp(Tensor input)" "input=[3,3]" |call| { call.tensor("input")?.matrix_exp() }
}

fn two(
    call: &Call<'_>,
    other: &str,
    function: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    function(call.tensor("input")?, call.tensor(other)?)
}

/// A product added to the input.
fn added(
    call: &Call<'_>,
    left: &str,
    right: &str,
    function: impl Fn(&Tensor, &Tensor, &Tensor, Scalar, Scalar) -> Result<Tensor>,
) -> Result<Tensor> {
    let (beta, alpha) = (call.scalar("beta")?, call.scalar("alpha")?);
    let (left, right) = (call.tensor(left)?, call.tensor(right)?);
    function(call.tensor("input")?, left, right, beta, alpha)
}

fn upper_half(call: &Call<'_>) -> Result<bool> {
    call.one_of("UPLO", &[("L", false), ("U", true)])
}

/// An order: a number or one of two names.
pub(super) fn order(call: &Call<'_>, name: &str) -> Result<Option<NormOrder>> {
    match call.given(name) {
        None => Ok(None),
        Some(Value::Text(text)) => match text.as_str() {
            "fro" => Ok(Some(NormOrder::Frobenius)),
            "nuc" => Ok(Some(NormOrder::Nuclear)),
            text => Err(call.refuse(format!(
                "argument {name} must be a number, \"fro\" or \"nuc\", got \"{text}\""
            ))),
        },
        Some(value) => match value.number() {
            Some(number) => Ok(Some(NormOrder::Number(number.to_f64()))),
            None => Err(call.refuse(format!(
                "argument {name} must be a number, \"fro\" or \"nuc\", got {value}"
            ))),
        },
    }
}

fn tensordot(call: &Call<'_>) -> Result<Tensor> {
    let (a, b) = (call.tensor("a")?, call.tensor("b")?);
    let refuse = |value: &Value| {
        call.refuse(format!(
            "argument dims must be a number or two lists of dimensions, got {value}"
        ))
    };
    let dims = |list: &Value| -> Result<Vec<isize>> {
        let items = list.items().unwrap_or(std::slice::from_ref(list)).iter();
        items
            .map(|item| match item {
                Value::Int(dim) => Ok(*dim as isize),
                _ => Err(refuse(list)),
            })
            .collect()
    };
    match call.value("dims")? {
        Value::Int(count) => {
            // More than either tensor has is refused by the product.
            let most = a.ndim().max(b.ndim()) as i64 + 1;
            if *count < 0 {
                return Err(call.refuse(format!("argument dims must not be negative, got {count}")));
            }
            let count = (*count).min(most) as isize;
            let (of_a, of_b): (Vec<_>, Vec<_>) = ((-count..0).collect(), (0..count).collect());
            a.tensordot(b, &of_a, &of_b)
        }
        Value::List(both) if both.len() == 2 => a.tensordot(b, &dims(&both[0])?, &dims(&both[1])?),
        other => Err(refuse(other)),
    }
}
