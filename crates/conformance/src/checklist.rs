//! The names that PyTorch's users know, core and common ones, and what stands for each here.
//!
//! That an op's row is there is looked up, that a type or function is there the compiler has checked; methods are named only.

use fireclay_tensor::ops::find;

/// How often a name is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// By most programs.
    Core,
    /// By a typical project.
    Common,
}

/// What stands for a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stands {
    /// The op of the table of this name.
    Op(&'static str),
    /// A type, function or method.
    Item(&'static str),
    /// Nothing yet: why.
    NotYet(&'static str),
}

/// A name of PyTorch.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// The section of the checklist.
    pub section: &'static str,
    /// How often it is used.
    pub level: Level,
    /// PyTorch's name.
    pub name: &'static str,
    /// What stands for it.
    pub stands: Stands,
}

impl Name {
    /// Whether it is there.
    pub fn is_there(&self) -> bool {
        match self.stands {
            Stands::Op(op) => find(op).is_some(),
            Stands::Item(_) => true,
            Stands::NotYet(_) => false,
        }
    }
}

/// Where the row of an op may be, by PyTorch's name for it.
fn op(name: &'static str) -> Stands {
    let found = find(name);
    let found = found.or_else(|| find(&format!("Tensor.{name}")));
    let found = found.or_else(|| find(&format!("nn.functional.{name}")));
    Stands::Op(found.map_or(name, |entry| entry.name))
}

macro_rules! names {
    ($($section:literal, $level:ident: [$($op:literal)*] { $($name:literal => $crate_name:ident $(:: $part:ident)+),* $(,)? }
        ($($method:literal => $call:literal),* $(,)?) $({ $($absent:literal: $why:literal),* $(,)? })?;)*) => {
        /// Every name of the checklist.
        pub fn checklist() -> Vec<Name> {
            let mut names = Vec::new();
            $({
                let mut add = |name, stands| {
                    names.push(Name { section: $section, level: Level::$level, name, stands });
                };
                $(add($op, op($op));)*
                $({
                    // The compiler finds that it is there.
                    #[allow(unused_imports, reason = "to be found is all that is asked")]
                    use $crate_name $(:: $part)+;
                    add($name, Stands::Item(concat!(stringify!($crate_name) $(, "::", stringify!($part))+)));
                })*
                $(add($method, Stands::Item($call));)*
                $($(add($absent, Stands::NotYet($why));)*)?
            })*
            names
        }
    };
}

names! {
    "Creation and state", Core: ["tensor" "zeros" "ones" "full" "arange" "linspace" "eye" "rand" "randn" "randint" "randperm"
        "zeros_like" "ones_like" "full_like" "rand_like" "randn_like"] {
        "manual_seed" => fireclay_tensor::manual_seed,
        "Generator" => fireclay_tensor::Generator,
        "set_default_device" => fireclay_tensor::device::set_default_device,
        "element_size" => fireclay_tensor::DType,
    } (
        "from_numpy" => "Tensor::from_slice",
        "empty" => "Tensor::empty",
        "empty_like" => "Tensor::empty_like",
        "shape" => "Tensor::shape",
        "dim" => "Tensor::ndim",
        "numel" => "Tensor::numel",
        "dtype" => "Tensor::dtype",
        "device" => "Tensor::device",
        "stride" => "Tensor::strides",
        "is_contiguous" => "Tensor::is_contiguous",
        "requires_grad" => "Tensor::requires_grad",
        "grad" => "Tensor::grad",
        "is_leaf" => "Tensor::is_leaf",
        "item" => "Tensor::item",
        "tolist" => "Tensor::to_vec",
    ) { "data_ptr": "addresses are not handed out", "is_pinned": "tensors in page-locked memory are not built yet" };
    "Creation and state", Common: ["Tensor.new_zeros" "Tensor.new_full" "bernoulli" "multinomial" "normal" "tril_indices"] {
        "get_rng_state" => fireclay_tensor::Generator,
        "set_rng_state" => fireclay_tensor::Generator,
        "fork_rng" => fireclay_tensor::fork_rng,
    } (
        "as_tensor" => "Tensor::from_slice",
        "new_tensor" => "Tensor::from_bytes",
    );
    "Movement and memory", Core: ["Tensor.to" "clone" "Tensor.contiguous" "Tensor.copy_" "Tensor.float" "Tensor.half" "Tensor.bfloat16"
        "Tensor.double" "Tensor.long" "Tensor.bool"] {
        "no_grad" => fireclay_tensor::no_grad,
        "inference_mode" => fireclay_tensor::inference_mode,
        "enable_grad" => fireclay_tensor::enable_grad,
    } (
        "cpu" => "Tensor::cpu",
        "cuda" => "Tensor::cuda",
        "detach" => "Tensor::detach",
        "backward" => "Tensor::backward",
        "requires_grad_" => "Tensor::requires_grad_",
    ) { "pin_memory": "tensors in page-locked memory are not built yet" };
    "Movement and memory", Common: [] {
        "memory_format" => fireclay_tensor::MemoryFormat,
        "autograd.grad" => fireclay_tensor::grad,
        "utils.checkpoint" => fireclay_tensor::checkpoint,
        "autograd.Function" => fireclay_tensor::Op,
    } (
        "register_hook" => "Tensor::register_hook",
    ) { "record_stream": "streams other than a device's own are not built yet" };
    "Shape and indexing", Core: ["reshape" "Tensor.view" "flatten" "unflatten" "squeeze" "unsqueeze" "transpose" "permute" "t"
        "Tensor.mT" "Tensor.expand" "broadcast_to" "Tensor.repeat" "cat" "stack" "split" "chunk" "unbind" "narrow" "select"
        "Tensor.__getitem__" "Tensor.__setitem__" "index_select" "gather" "scatter" "scatter_add" "index_add" "masked_fill"
        "masked_select" "where"] {} ();
    "Shape and indexing", Common: ["nonzero" "take_along_dim" "index_put" "index_copy" "index_fill" "masked_scatter" "scatter_reduce"
        "tril" "triu" "diag" "diagonal" "roll" "flip" "repeat_interleave" "meshgrid" "movedim" "Tensor.unfold" "as_strided" "one_hot"
        "unique" "bincount" "searchsorted" "bucketize" "pad"] {} ();
    "Element-wise", Core: ["add" "sub" "mul" "div" "neg" "abs" "pow" "sqrt" "rsqrt" "square" "exp" "log" "log1p" "sin" "cos" "tanh"
        "sigmoid" "relu" "gelu" "silu" "clamp" "maximum" "minimum" "eq" "ne" "lt" "le" "gt" "ge" "logical_and" "logical_or"
        "logical_not" "isnan" "isinf" "isfinite" "sign" "floor" "round" "Tensor.add_" "Tensor.sub_" "Tensor.mul_" "Tensor.div_"
        "Tensor.zero_" "Tensor.fill_" "Tensor.clamp_" "Tensor.lerp_" "Tensor.addcmul_" "Tensor.addcdiv_" "Tensor.normal_"
        "Tensor.uniform_"] {} ();
    "Element-wise", Common: ["ceil" "trunc" "reciprocal" "expm1" "log2" "log10" "erf" "tan" "asin" "acos" "atan" "atan2" "sinh" "cosh"
        "remainder" "fmod" "floor_divide" "bitwise_and" "bitwise_or" "bitwise_xor" "bitwise_not" "lerp" "addcmul" "addcdiv"
        "nan_to_num" "isclose" "allclose" "equal"] {} ();
    "Reductions, sorting, linear algebra", Core: ["sum" "mean" "var" "std" "prod" "max" "min" "amax" "amin" "argmax" "argmin" "any" "all"
        "logsumexp" "softmax" "log_softmax" "cumsum" "norm" "topk" "sort" "argsort" "matmul" "mm" "bmm" "addmm" "einsum" "dot"
        "outer"] {} ();
    "Reductions, sorting, linear algebra", Common: ["var_mean" "cumprod" "cummax" "median" "quantile" "kthvalue" "histc" "baddbmm" "mv"
        "tensordot" "cdist" "cosine_similarity" "normalize" "trace" "linalg.norm" "linalg.inv" "linalg.solve" "linalg.cholesky"
        "linalg.qr" "linalg.svd" "linalg.eigh" "linalg.det"] {} ();
    "nn.functional", Core: ["linear" "conv1d" "conv2d" "max_pool2d" "avg_pool2d" "adaptive_avg_pool2d" "batch_norm" "layer_norm"
        "rms_norm" "group_norm" "dropout" "embedding" "scaled_dot_product_attention" "cross_entropy" "interpolate"
        "conv_transpose2d"] {} ();
    "nn.functional", Common: ["conv3d" "conv_transpose1d" "conv_transpose3d" "max_pool1d" "max_pool3d" "avg_pool1d" "avg_pool3d"
        "instance_norm" "grid_sample" "affine_grid" "fold" "unfold" "pixel_shuffle" "embedding_bag" "glu" "leaky_relu" "elu" "softplus"
        "mish" "hardswish"] {} ();
    "Modules", Core: [] {
        "Parameter" => fireclay_tensor::Parameter,
        "Buffer" => fireclay_tensor::Buffer,
        "Sequential" => fireclay_nn::Sequential,
        "Identity" => fireclay_nn::Identity,
        "Flatten" => fireclay_nn::Flatten,
        "Linear" => fireclay_nn::Linear,
        "Conv1d" => fireclay_nn::Conv1d,
        "Conv2d" => fireclay_nn::Conv2d,
        "ConvTranspose2d" => fireclay_nn::ConvTranspose2d,
        "BatchNorm1d" => fireclay_nn::BatchNorm1d,
        "BatchNorm2d" => fireclay_nn::BatchNorm2d,
        "LayerNorm" => fireclay_nn::LayerNorm,
        "RMSNorm" => fireclay_nn::RMSNorm,
        "GroupNorm" => fireclay_nn::GroupNorm,
        "Dropout" => fireclay_nn::Dropout,
        "Embedding" => fireclay_nn::Embedding,
        "ReLU" => fireclay_nn::ReLU,
        "LeakyReLU" => fireclay_nn::LeakyReLU,
        "GELU" => fireclay_nn::GELU,
        "SiLU" => fireclay_nn::SiLU,
        "Sigmoid" => fireclay_nn::Sigmoid,
        "Tanh" => fireclay_nn::Tanh,
        "Softmax" => fireclay_nn::Softmax,
        "LogSoftmax" => fireclay_nn::LogSoftmax,
        "MaxPool2d" => fireclay_nn::MaxPool2d,
        "AvgPool2d" => fireclay_nn::AvgPool2d,
        "AdaptiveAvgPool2d" => fireclay_nn::AdaptiveAvgPool2d,
        "MultiheadAttention" => fireclay_nn::MultiheadAttention,
        "LSTM" => fireclay_nn::LSTM,
        "GRU" => fireclay_nn::GRU,
    } (
        "Module.parameters" => "ModuleExt::parameters",
        "Module.buffers" => "ModuleExt::named_buffers",
        "Module.children" => "ModuleExt::named_children",
        "Module.apply" => "ModuleExt::apply",
        "Module.train" => "ModuleExt::train",
        "Module.to" => "ModuleExt::to",
        "Module.state_dict" => "ModuleExt::state_dict",
        "Module.load_state_dict" => "ModuleExt::load_state_dict",
        "Module.zero_grad" => "ModuleExt::zero_grad",
        "ModuleList" => "Vec<M> of modules",
        "ModuleDict" => "a struct with #[derive(Module)]",
    ) { "Module hooks": "a forward pass is plain code here: tensors have hooks, modules have none" };
    "Modules", Common: [] {
        "Conv3d" => fireclay_nn::Conv3d,
        "ConvTranspose1d" => fireclay_nn::ConvTranspose1d,
        "BatchNorm3d" => fireclay_nn::BatchNorm3d,
        "InstanceNorm2d" => fireclay_nn::InstanceNorm2d,
        "Dropout2d" => fireclay_nn::Dropout2d,
        "AlphaDropout" => fireclay_nn::AlphaDropout,
        "RNN" => fireclay_nn::RNN,
        "LSTMCell" => fireclay_nn::LSTMCell,
        "GRUCell" => fireclay_nn::GRUCell,
        "TransformerEncoderLayer" => fireclay_nn::TransformerEncoderLayer,
        "TransformerEncoder" => fireclay_nn::TransformerEncoder,
        "TransformerDecoderLayer" => fireclay_nn::TransformerDecoderLayer,
        "Transformer" => fireclay_nn::Transformer,
        "EmbeddingBag" => fireclay_nn::EmbeddingBag,
        "Upsample" => fireclay_nn::Upsample,
        "PixelShuffle" => fireclay_nn::PixelShuffle,
        "ZeroPad2d" => fireclay_nn::ZeroPad2d,
        "ReflectionPad2d" => fireclay_nn::ReflectionPad2d,
        "PReLU" => fireclay_nn::PReLU,
        "ELU" => fireclay_nn::ELU,
        "Softplus" => fireclay_nn::Softplus,
        "GLU" => fireclay_nn::GLU,
        "Hardswish" => fireclay_nn::Hardswish,
    } () { "SyncBatchNorm": "training on several devices is not built yet" };
    "Initialisation", Core: [] {
        "kaiming_uniform_" => fireclay_nn::init::kaiming_uniform_,
        "kaiming_normal_" => fireclay_nn::init::kaiming_normal_,
        "xavier_uniform_" => fireclay_nn::init::xavier_uniform_,
        "xavier_normal_" => fireclay_nn::init::xavier_normal_,
        "normal_" => fireclay_nn::init::normal_,
        "uniform_" => fireclay_nn::init::uniform_,
        "zeros_" => fireclay_nn::init::zeros_,
        "ones_" => fireclay_nn::init::ones_,
        "constant_" => fireclay_nn::init::constant_,
    } ();
    "Initialisation", Common: [] {
        "trunc_normal_" => fireclay_nn::init::trunc_normal_,
        "orthogonal_" => fireclay_nn::init::orthogonal_,
    } ();
    "nn.utils", Core: [] {
        "clip_grad_norm_" => fireclay_optim::clip_grad_norm_,
        "clip_grad_value_" => fireclay_optim::clip_grad_value_,
    } ();
    "nn.utils", Common: [] {
        "parameters_to_vector" => fireclay_nn::parameters_to_vector,
        "vector_to_parameters" => fireclay_nn::vector_to_parameters,
        "pack_padded_sequence" => fireclay_nn::rnn::pack_padded_sequence,
        "pad_packed_sequence" => fireclay_nn::rnn::pad_packed_sequence,
        "fuse_conv_bn_eval" => fireclay_nn::fuse_conv_bn_eval,
    } ();
    "Losses", Core: [] {
        "CrossEntropyLoss" => fireclay_nn::CrossEntropyLoss,
        "NLLLoss" => fireclay_nn::NLLLoss,
        "MSELoss" => fireclay_nn::MSELoss,
        "L1Loss" => fireclay_nn::L1Loss,
        "SmoothL1Loss" => fireclay_nn::SmoothL1Loss,
        "HuberLoss" => fireclay_nn::HuberLoss,
        "BCELoss" => fireclay_nn::BCELoss,
        "BCEWithLogitsLoss" => fireclay_nn::BCEWithLogitsLoss,
        "KLDivLoss" => fireclay_nn::KLDivLoss,
    } ();
    "Losses", Common: [] {
        "CosineEmbeddingLoss" => fireclay_nn::CosineEmbeddingLoss,
        "MarginRankingLoss" => fireclay_nn::MarginRankingLoss,
        "TripletMarginLoss" => fireclay_nn::TripletMarginLoss,
        "HingeEmbeddingLoss" => fireclay_nn::HingeEmbeddingLoss,
        "GaussianNLLLoss" => fireclay_nn::GaussianNLLLoss,
        "PoissonNLLLoss" => fireclay_nn::PoissonNLLLoss,
        "CTCLoss" => fireclay_nn::CTCLoss,
        "MultiMarginLoss" => fireclay_nn::MultiMarginLoss,
        "SoftMarginLoss" => fireclay_nn::SoftMarginLoss,
        "MultiLabelSoftMarginLoss" => fireclay_nn::MultiLabelSoftMarginLoss,
    } ();
    "Optimizers", Core: [] {
        "SGD" => fireclay_optim::SGD,
        "Adam" => fireclay_optim::Adam,
        "AdamW" => fireclay_optim::AdamW,
    } ();
    "Optimizers", Common: [] {
        "RMSprop" => fireclay_optim::RMSprop,
        "Adagrad" => fireclay_optim::Adagrad,
        "Adadelta" => fireclay_optim::Adadelta,
        "Adamax" => fireclay_optim::Adamax,
        "NAdam" => fireclay_optim::NAdam,
        "RAdam" => fireclay_optim::RAdam,
        "LBFGS" => fireclay_optim::LBFGS,
        "AveragedModel" => fireclay_optim::AveragedModel,
    } ();
    "Schedulers", Core: [] {
        "LambdaLR" => fireclay_optim::LambdaLR,
        "StepLR" => fireclay_optim::StepLR,
        "MultiStepLR" => fireclay_optim::MultiStepLR,
        "LinearLR" => fireclay_optim::LinearLR,
        "CosineAnnealingLR" => fireclay_optim::CosineAnnealingLR,
        "OneCycleLR" => fireclay_optim::OneCycleLR,
        "SequentialLR" => fireclay_optim::SequentialLR,
        "ReduceLROnPlateau" => fireclay_optim::ReduceLROnPlateau,
    } ();
    "Schedulers", Common: [] {
        "ConstantLR" => fireclay_optim::ConstantLR,
        "ExponentialLR" => fireclay_optim::ExponentialLR,
        "PolynomialLR" => fireclay_optim::PolynomialLR,
        "CosineAnnealingWarmRestarts" => fireclay_optim::CosineAnnealingWarmRestarts,
        "ChainedScheduler" => fireclay_optim::ChainedScheduler,
        "MultiplicativeLR" => fireclay_optim::MultiplicativeLR,
    } ();
}
