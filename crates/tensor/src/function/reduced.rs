//! `ReducedOp`: a formula that ends in a sum.

use fireclay_core::{DType, Result, Shape};
use fireclay_cpu::program::Source;
use smallvec::{SmallVec, smallvec};

use super::{PointwiseOp, full_shape, source};
use crate::autograd::Backward;
use crate::cuda_call::CudaCall;
use crate::formula::Formula;
use crate::op::{Autocast, Grads, KernelInputs, Meta, Op, OutputMeta, OutputMetas, Saves};
use crate::storage::{CpuCall, Operand};
use crate::tensor::Tensor;

/// The sum or mean of all elements of a graph's only output, as one kernel: a formula that ends in a reduction.
#[derive(Clone, Debug)]
pub(crate) struct ReducedOp {
    pub(crate) graph: PointwiseOp,
    pub(crate) mean: bool,
}

impl ReducedOp {
    /// Whether the graph's result is of a dtype that this kernel sums (others are evaluated first).
    pub(crate) fn fits(&self, inputs: &[&Tensor]) -> Result<bool> {
        let metas: SmallVec<[Meta<'_>; 4]> = inputs.iter().map(|input| input.meta()).collect();
        let output = self.graph.output(&metas)?.remove(0);
        Ok(matches!(output.dtype, DType::F32 | DType::F64))
    }
}

impl Op for ReducedOp {
    fn name(&self) -> &'static str {
        if self.mean { "mean" } else { "sum" }
    }

    fn output(&self, inputs: &[Meta<'_>]) -> Result<OutputMetas> {
        let output = self.graph.output(inputs)?.remove(0);
        Ok(smallvec![OutputMeta::contiguous(
            Shape::scalar(),
            output.dtype
        )])
    }

    fn cpu_inputs(&self) -> KernelInputs {
        KernelInputs::AsIs
    }

    fn cpu(&self, mut call: CpuCall<'_>) -> Result<()> {
        use fireclay_cpu::reduce::{Sum, Tiles, View, reduce};
        let inputs: SmallVec<[Operand<'_>; 4]> = (0..call.inputs())
            .map(|index| call.raw_input(index))
            .collect();
        let metas: SmallVec<[Meta<'_>; 4]> = inputs.iter().map(Operand::meta).collect();
        let dtype = call.output_dtype(0);
        let shape = self.graph.output(&metas)?.remove(0).layout.shape().clone();
        let program = self.graph.program(&metas, &[dtype])?;
        let sources: SmallVec<[Source; 4]> =
            inputs.iter().map(|input| source(input, &shape)).collect();
        // SAFETY: `ptr` checked each layout against its storage, which is locked during the call.
        let elements = unsafe { program.elements(&shape, &sources, dtype) };
        let view = View::full(shape.numel());
        macro_rules! sum {
            ($t:ty) => {{
                let out = call.output::<$t>(0);
                match elements {
                    Some(elements) => {
                        let tiles = Tiles(|start, tile: &mut [$t]| elements.compute(start, tile));
                        reduce(Sum, &tiles, view, out);
                    }
                    None => out[0] = 0.0,
                }
                if self.mean {
                    out[0] /= shape.numel() as $t;
                }
            }};
        }
        if dtype == DType::F64 {
            sum!(f64)
        } else {
            sum!(f32)
        }
        Ok(())
    }

    fn saves(&self) -> Saves {
        Saves::INPUTS
    }

    fn backward(&self, context: &Backward<'_>) -> Result<Grads> {
        let mut grad = Formula::from(context.grad_output());
        if self.mean {
            grad = grad * (1.0 / full_shape(context).numel() as f64);
        }
        self.graph.input_grads(context, &[Some(grad)], false)
    }

    fn autocast(&self) -> Autocast {
        Autocast::F32
    }

    fn cuda(&self, call: CudaCall<'_>) -> Result<()> {
        let metas = call.metas();
        let dtype = call.output_dtype(0);
        let shape = self.graph.output(&metas)?.remove(0).layout.shape().clone();
        let (program, constants) = self.graph.device_program(&metas, &[dtype])?;
        call.reduce_program(&program, &constants, &shape, self.mean)
    }
}
