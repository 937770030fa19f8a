//! Rows of what changes its first operand.

use super::rows;

rows! {
    "Tensor.neg_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.neg_() }
    "Tensor.abs_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.abs_() }
    "Tensor.exp_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.exp_() }
    "Tensor.sqrt_(Tensor self)" "self=positive[3,4]" |call| { call.tensor("self")?.sqrt_() }
    "Tensor.relu_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.relu_() }
    "Tensor.sigmoid_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.sigmoid_() }
    "Tensor.tanh_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.tanh_() }
    "Tensor.zero_(Tensor self)" "self=[3,4]" |call| { call.tensor("self")?.zero_() }
    "Tensor.add_(Tensor self, Operand other)" "self=[3,4] other=positive[4]" |call| { call.tensor("self")?.add_(call.operand("other")?) }
    "Tensor.sub_(Tensor self, Operand other)" "self=[3,4] other=positive[4]" |call| { call.tensor("self")?.sub_(call.operand("other")?) }
    "Tensor.mul_(Tensor self, Operand other)" "self=[3,4] other=positive[4]" |call| { call.tensor("self")?.mul_(call.operand("other")?) }
    "Tensor.div_(Tensor self, Operand other)" "self=[3,4] other=positive[4]" |call| { call.tensor("self")?.div_(call.operand("other")?) }
    "Tensor.fill_(Tensor self, Number value)" "self=[3,4] value=2.5" |call| {
        call.tensor("self")?.fill_(call.scalar("value")?)
    }
    "Tensor.copy_(Tensor self, Tensor other)" "self=[3,4] other=[4]" |call| {
        call.tensor("self")?.copy_(call.tensor("other")?)
    }
}
