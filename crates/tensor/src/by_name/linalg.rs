//! Rows of products and decompositions.

use super::rows;

rows! {
    "matmul(Tensor input, Tensor other)" "input=[2,3,4] other=[4,5]" |call| {
        call.tensor("input")?.matmul(call.tensor("other")?)
    }
    "dot(Tensor input, Tensor tensor)" "input=[4] tensor=[4]" |call| {
        call.tensor("input")?.dot(call.tensor("tensor")?)
    }
    "outer(Tensor input, Tensor vec2)" "input=[3] vec2=[4]" |call| {
        call.tensor("input")?.outer(call.tensor("vec2")?)
    }
    "addmm(Tensor input, Tensor mat1, Tensor mat2, *, Number beta=1, Number alpha=1)" "input=[5] mat1=[3,4] mat2=[4,5] beta=0.5" |call| {
        call.tensor("input")?.addmm(call.tensor("mat1")?, call.tensor("mat2")?, call.scalar("beta")?, call.scalar("alpha")?)
    }
    "baddbmm(Tensor input, Tensor batch1, Tensor batch2, *, Number beta=1, Number alpha=1)" "input=[2,3,5] batch1=[2,3,4] batch2=[2,4,5]" |call| {
        call.tensor("input")?.baddbmm(call.tensor("batch1")?, call.tensor("batch2")?, call.scalar("beta")?, call.scalar("alpha")?)
    }
    "addmv(Tensor input, Tensor mat, Tensor vec, *, Number beta=1, Number alpha=1)" "input=[3] mat=[3,4] vec=[4]" |call| {
        call.tensor("input")?.addmv(call.tensor("mat")?, call.tensor("vec")?, call.scalar("beta")?, call.scalar("alpha")?)
    }
}
