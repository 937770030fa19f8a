//! Functions of NVIDIA's device runtime library that kernels call and modules only declare: grid synchronisation of
//! cooperative launches. They are given to a module as PTX.

use crate::ptx::ast::Module;

/// The text with the definitions that its module lacks; `None` if it lacks none.
pub(crate) fn completed(text: &str, module: &Module) -> Option<String> {
    let lacks = |name: &str| {
        module
            .functions
            .iter()
            .any(|function| function.name == name && function.body.is_none())
    };
    let missing: Vec<&str> = FUNCTIONS
        .iter()
        .filter(|(name, _)| lacks(name))
        .map(|(_, text)| *text)
        .collect();
    (!missing.is_empty())
        .then(|| format!("{}\n{}", text.trim_end_matches('\0'), missing.join("\n")))
}

const FUNCTIONS: [(&str, &str); 2] = [
    ("cudaCGGetIntrinsicHandle", HANDLE),
    ("cudaCGSynchronize", SYNCHRONIZE),
];

/// The handle of a grid (scope 1) is the address of the launch's workspace; 0 if the launch is not cooperative.
const HANDLE: &str = ".visible .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
.reg .b32 low, high, asked; .reg .b64 address; .reg .pred grid;
ld.param.u32 asked, [scope];
mov.u32 high, %envreg1;
mov.u32 low, %envreg2;
mov.b64 address, {low, high};
setp.eq.u32 grid, asked, 1;
selp.b64 address, address, 0, grid;
st.param.b64 [r], address;
ret;
}";

/// The first thread of each block adds to the workspace's second word such that its top bit flips when all have.
const SYNCHRONIZE: &str = ".visible .func (.param .b32 r) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
.reg .b32 sum, part, step, before, now; .reg .b64 address; .reg .pred none, other, first, same;
ld.param.u64 address, [handle];
setp.eq.u64 none, address, 0;
@none bra NOT_COOPERATIVE;
barrier.sync 0;
mov.u32 sum, %tid.x; mov.u32 part, %tid.y; add.u32 sum, sum, part; mov.u32 part, %tid.z; add.u32 sum, sum, part;
setp.ne.u32 other, sum, 0;
@other bra DONE;
mov.u32 sum, %ctaid.x; mov.u32 part, %ctaid.y; add.u32 sum, sum, part; mov.u32 part, %ctaid.z;
add.u32 sum, sum, part;
setp.eq.u32 first, sum, 0;
mov.u32 step, %nctaid.x; mov.u32 part, %nctaid.y; mul.lo.u32 step, step, part; mov.u32 part, %nctaid.z;
mul.lo.u32 step, step, part;
sub.u32 step, 0x80000001, step;
selp.b32 step, step, 1, first;
membar.gl;
atom.add.u32 before, [address+4], step;
SPIN:
ld.volatile.u32 now, [address+4];
xor.b32 now, now, before;
setp.ge.s32 same, now, 0;
@same bra SPIN;
membar.gl;
DONE:
barrier.sync 0;
st.param.b32 [r], 0;
ret;
NOT_COOPERATIVE:
st.param.b32 [r], 1;
ret;
}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_supplied() {
        let head = ".version 8.0\n.target sm_80\n.address_size 64\n";
        let plain = format!("{head}.entry k() {{ ret; }}");
        assert!(completed(&plain, &crate::ptx::parse(&plain).unwrap()).is_none());
        let text = format!(
            "{head}.extern .func (.param .b64 a) cudaCGGetIntrinsicHandle(.param .b32 b);\n\
             .extern .func (.param .b32 a) cudaCGSynchronize(.param .b64 b, .param .b32 c);\n.entry k() {{ ret; }}\0"
        );
        let whole = completed(&text, &crate::ptx::parse(&text).unwrap()).unwrap();
        let module = crate::ptx::parse(&whole).unwrap();
        assert!(
            module
                .functions
                .iter()
                .all(|function| function.body.is_some())
        );
        assert!(completed(&whole, &module).is_none());
    }
}
