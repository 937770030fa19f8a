//! Matrix products.

use fireclay_tensor::ops::linalg::{NormOrder, QrMode};
use fireclay_tensor::{Result, Scalar, Tensor};
use serde_json::Value;

use super::{Answer, Call, one};

pub(super) fn run(call: &Call<'_>) -> Option<Answer> {
    Some(match call.op() {
        "matmul" => product(call, "other", Tensor::matmul),
        "dot" => product(call, "tensor", Tensor::dot),
        "outer" => product(call, "vec2", Tensor::outer),
        "addmm" => added(call, ["mat1", "mat2"], Tensor::addmm),
        "baddbmm" => added(call, ["batch1", "batch2"], Tensor::baddbmm),
        "addmv" => added(call, ["mat", "vec"], Tensor::addmv),
        "addbmm" => added(call, ["batch1", "batch2"], Tensor::addbmm),
        "addr" => added(call, ["vec1", "vec2"], Tensor::addr),
        "Tensor.addmm_" => added_to(call, "self", ["mat1", "mat2"], Tensor::addmm_),
        "mm" => product(call, "mat2", Tensor::mm),
        "bmm" => product(call, "mat2", Tensor::bmm),
        "mv" => product(call, "vec", Tensor::mv),
        "vdot" => product(call, "other", Tensor::vdot),
        "inner" => product(call, "other", Tensor::inner),
        "kron" => product(call, "other", Tensor::kron),
        "tensordot" => tensordot(call),
        "linalg.multi_dot" => list(call, "tensors", |x| Tensor::multi_dot(x)),
        "einsum" => einsum(call),
        "cdist" => cdist(call),
        "linalg.cross" => cross(call),
        "cov" => only(call, "input", |x| x.cov(1, None, None)),
        "corrcoef" => only(call, "input", Tensor::corrcoef),
        "linalg.vector_norm" => vector_norm(call),
        "linalg.matrix_norm" => matrix_norm(call),
        "linalg.norm" => linalg_norm(call),
        "linalg.inv" => only(call, "A", Tensor::inv),
        "linalg.det" => only(call, "A", Tensor::det),
        "linalg.slogdet" => several(call, "A", |x| {
            let (sign, log) = x.slogdet()?;
            Ok(vec![sign, log])
        }),
        "linalg.cholesky" => {
            let upper = call.flag("upper", false);
            only(call, "input", |x| x.cholesky(upper))
        }
        "linalg.solve" => solve(call),
        "linalg.solve_triangular" => solve_triangular(call),
        "linalg.qr" => several(call, "A", |x| {
            let (q, r) = x.qr(match call.text("mode") {
                Some("complete") => QrMode::Complete,
                Some("r") => QrMode::R,
                _ => QrMode::Reduced,
            })?;
            Ok(vec![q, r])
        }),
        "linalg.svd" => several(call, "A", |x| {
            let (u, s, vh) = x.svd(call.flag("full_matrices", true))?;
            Ok(vec![u, s, vh])
        }),
        "linalg.svdvals" => only(call, "A", Tensor::svdvals),
        "linalg.eigh" => several(call, "input", |x| {
            let (w, v) = x.eigh(call.text("UPLO") == Some("U"))?;
            Ok(vec![w, v])
        }),
        "linalg.eigvalsh" => {
            let upper = call.text("UPLO") == Some("U");
            only(call, "input", |x| x.eigvalsh(upper))
        }
        "linalg.pinv" => only(call, "input", |x| x.pinv(None, None, false)),
        "linalg.lstsq" => lstsq(call),
        "linalg.matrix_rank" => only(call, "input", |x| x.matrix_rank(None, None, false)),
        "linalg.matrix_power" => matrix_power(call),
        "linalg.matrix_exp" => only(call, "input", Tensor::matrix_exp),
        _ => return None,
    })
}

fn only(call: &Call<'_>, name: &str, function: impl Fn(&Tensor) -> Result<Tensor>) -> Answer {
    one(function(call.tensor(name)?))
}

fn several(
    call: &Call<'_>,
    name: &str,
    function: impl Fn(&Tensor) -> Result<Vec<Tensor>>,
) -> Answer {
    Ok(function(call.tensor(name)?)?)
}

fn list(call: &Call<'_>, name: &str, function: impl Fn(&[&Tensor]) -> Result<Tensor>) -> Answer {
    one(function(&call.tensors(name)?))
}

fn tensordot(call: &Call<'_>) -> Answer {
    let (a, b) = (call.tensor("a")?, call.tensor("b")?);
    let dims = |value: &Value| -> Vec<isize> {
        let items = value.as_array().map_or(&[][..], Vec::as_slice);
        let items = items.iter().filter_map(Value::as_i64);
        items.map(|dim| dim as isize).collect()
    };
    let [of_a, of_b] = match call.argument("dims") {
        Some(Value::Array(both)) if both.len() == 2 => [dims(&both[0]), dims(&both[1])],
        Some(count) => {
            let count = count.as_i64().unwrap_or(2) as isize;
            [(-count..0).collect(), (0..count).collect()]
        }
        None => [vec![-2, -1], vec![0, 1]],
    };
    one(a.tensordot(b, &of_a, &of_b))
}

fn einsum(call: &Call<'_>) -> Answer {
    let equation = call.text("equation").unwrap_or_default();
    list(call, "operands", |operands| {
        Tensor::einsum(equation, operands)
    })
}

fn cdist(call: &Call<'_>) -> Answer {
    let p = call.float("p", 2.0)?;
    one(call.tensor("x1")?.cdist(call.tensor("x2")?, p))
}

fn cross(call: &Call<'_>) -> Answer {
    let dim = call.dim("dim", -1)?;
    one(call.tensor("input")?.cross(call.tensor("other")?, dim))
}

fn solve(call: &Call<'_>) -> Answer {
    let left = call.flag("left", true);
    one(call.tensor("A")?.solve(call.tensor("B")?, left))
}

fn solve_triangular(call: &Call<'_>) -> Answer {
    let [upper, left, unit] = [
        call.flag("upper", false),
        call.flag("left", true),
        call.flag("unitriangular", false),
    ];
    let (a, b) = (call.tensor("input")?, call.tensor("B")?);
    one(a.solve_triangular(b, upper, left, unit))
}

fn lstsq(call: &Call<'_>) -> Answer {
    let all = call.tensor("input")?.lstsq(call.tensor("b")?, None)?;
    Ok(vec![
        all.solution,
        all.residuals,
        all.rank,
        all.singular_values,
    ])
}

fn matrix_power(call: &Call<'_>) -> Answer {
    let n = call.int("n", 0)?;
    one(call.tensor("input")?.matrix_power(n))
}

/// An order: a number or one of two names.
pub(super) fn order(
    call: &Call<'_>,
    name: &str,
) -> std::result::Result<Option<NormOrder>, super::Refusal> {
    Ok(match call.text(name) {
        Some("fro") => Some(NormOrder::Frobenius),
        Some("nuc") => Some(NormOrder::Nuclear),
        _ => call
            .scalar(name)?
            .map(|number| NormOrder::Number(number.to_f64())),
    })
}

fn vector_norm(call: &Call<'_>) -> Answer {
    let (ord, keepdim) = (call.float("ord", 2.0)?, call.flag("keepdim", false));
    one(call
        .tensor("x")?
        .vector_norm(ord, &call.dims("dim")?, keepdim))
}

fn matrix_norm(call: &Call<'_>) -> Answer {
    let ord = order(call, "ord")?.unwrap_or(NormOrder::Frobenius);
    let dims = match call.dims("dim")?[..] {
        [rows, cols] => [rows, cols],
        _ => [-2, -1],
    };
    let keepdim = call.flag("keepdim", false);
    one(call.tensor("input")?.matrix_norm(ord, dims, keepdim))
}

fn linalg_norm(call: &Call<'_>) -> Answer {
    let (ord, dims) = (order(call, "ord")?, call.dims("dim")?);
    let keepdim = call.flag("keepdim", false);
    one(call.tensor("input")?.linalg_norm(ord, &dims, keepdim))
}

fn product(
    call: &Call<'_>,
    other: &str,
    function: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Answer {
    one(function(call.tensor("input")?, call.tensor(other)?))
}

fn added(
    call: &Call<'_>,
    operands: [&str; 2],
    function: impl Fn(&Tensor, &Tensor, &Tensor, Scalar, Scalar) -> Result<Tensor>,
) -> Answer {
    added_to(call, "input", operands, function)
}

fn added_to(
    call: &Call<'_>,
    input: &str,
    [left, right]: [&str; 2],
    function: impl Fn(&Tensor, &Tensor, &Tensor, Scalar, Scalar) -> Result<Tensor>,
) -> Answer {
    let factor = |name: &str| Ok::<_, super::Refusal>(call.scalar(name)?.unwrap_or(Scalar::I64(1)));
    let (left, right) = (call.tensor(left)?, call.tensor(right)?);
    let (beta, alpha) = (factor("beta")?, factor("alpha")?);
    let input = match input {
        "self" => super::elementwise::receiver(call)?,
        name => call.tensor(name)?.clone(),
    };
    one(function(&input, left, right, beta, alpha))
}
