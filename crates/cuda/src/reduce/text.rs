//! The PTX of reductions, for one type of numbers and one operation.

use fireclay_core::pointwise::Class;

use super::Reduction;

/// Elements of a row that make a block, as on the host: see [`super`].
pub(crate) const BLOCK: usize = 4096;
/// Threads that share a block of a row: element `i` goes to thread `i % 64`.
pub(crate) const LANES: usize = 64;
/// Threads of a launch's block.
pub(super) const THREADS: usize = 256;
/// Blocks of rows that one launch's block reduces.
pub(crate) const ROWS_PER_BLOCK: usize = THREADS / LANES;

/// Types and instructions of a class.
struct Words {
    /// Of a number, in instructions.
    ty: &'static str,
    /// Of its register.
    register: &'static str,
    /// Bytes.
    size: usize,
    identity: &'static str,
}

fn words(class: Class, reduction: Reduction) -> Words {
    let (ty, register, size) = match class {
        Class::F32 => ("f32", "f32", 4),
        Class::F64 => ("f64", "f64", 8),
        Class::I64 => ("s64", "b64", 8),
    };
    let identity = match (class, reduction) {
        (Class::F32, Reduction::Sum) => "0f00000000",
        (Class::F32, Reduction::Max) => "0fFF800000",
        (Class::F32, Reduction::Min) => "0f7F800000",
        (Class::F64, Reduction::Sum) => "0d0000000000000000",
        (Class::F64, Reduction::Max) => "0dFFF0000000000000",
        (Class::F64, Reduction::Min) => "0d7FF0000000000000",
        (Class::I64, Reduction::Sum) => "0",
        (Class::I64, Reduction::Max) => "-9223372036854775808",
        (Class::I64, Reduction::Min) => "9223372036854775807",
    };
    Words {
        ty,
        register,
        size,
        identity,
    }
}

/// Combines `%value` with `%next`, the later one.
fn merge(class: Class, reduction: Reduction) -> String {
    let ty = words(class, reduction).ty;
    match (class, reduction) {
        (Class::I64, Reduction::Sum) => "  add.s64 %value, %value, %next;\n".to_owned(),
        (Class::I64, Reduction::Max) => "  max.s64 %value, %value, %next;\n".to_owned(),
        (Class::I64, Reduction::Min) => "  min.s64 %value, %value, %next;\n".to_owned(),
        (_, Reduction::Sum) => format!("  add.rn.{ty} %value, %value, %next;\n"),
        (_, Reduction::Max | Reduction::Min) => {
            let than = if reduction == Reduction::Max {
                "gt"
            } else {
                "lt"
            };
            // A NaN stays, and a later one takes its place.
            format!(
                "  setp.{than}.{ty} %p1, %next, %value;\n  setp.nan.{ty} %p2, %next, %next;\n  \
                 or.pred %p1, %p1, %p2;\n  selp.{ty} %value, %next, %value, %p1;\n"
            )
        }
    }
}

/// The text with all entries.
pub(super) fn module(class: Class, reduction: Reduction) -> String {
    let mut text = String::from(".version 7.0\n.target sm_70\n.address_size 64\n");
    for entry in [rows, columns, tree] {
        text.push_str(&entry(class, reduction));
    }
    text
}

fn registers(words: &Words) -> String {
    format!(
        "  .reg .pred %p0, %p1, %p2;\n  .reg .b32 %tid, %lane, %half, %slot, %r<8>;\n  \
         .reg .b64 %in, %out, %index, %at, %end, %step, %q<16>;\n  .reg .{} %value, %next, %divisor;\n",
        words.register
    )
}

/// The last step: a result at `%out`, divided if `divide` is not 0.
fn finish(words: &Words) -> String {
    let Words { ty, .. } = words;
    let divide = match *ty {
        "s64" => String::new(),
        _ => format!(
            "  ld.param.u32 %r7, [divide];\n  setp.eq.u32 %p0, %r7, 0;\n  @%p0 bra WHOLE;\n  \
             ld.param.{ty} %divisor, [divisor];\n  div.rn.{ty} %value, %value, %divisor;\nWHOLE:\n"
        ),
    };
    let store = ty.replace("s64", "u64");
    format!("{divide}  st.global.{store} [%out], %value;\n")
}

/// One block of a row to one number: `index` counts blocks of all rows.
///
/// Parameters: rows, results, the row's length, blocks of a row, blocks in all, whether to divide, by what.
fn rows(class: Class, reduction: Reduction) -> String {
    let words = words(class, reduction);
    let Words {
        ty, size, identity, ..
    } = words;
    let (registers, merge, finish) = (registers(&words), merge(class, reduction), finish(&words));
    let load = ty.replace("s64", "u64");
    format!(
        ".visible .entry rows(.param .u64 from, .param .u64 to, .param .u64 length, .param .u64 blocks, \
         .param .u64 total, .param .u32 divide, .param .{ty} divisor)
{{
{registers}  .shared .align 8 .b8 lanes[{shared}];
  ld.param.u64 %in, [from];
  cvta.to.global.u64 %in, %in;
  ld.param.u64 %out, [to];
  cvta.to.global.u64 %out, %out;
  mov.u32 %tid, %tid.x;
  and.b32 %lane, %tid, {last_lane};
  shr.u32 %r0, %tid, {lane_bits};
  mov.u32 %r1, %ctaid.x;
  mul.wide.u32 %index, %r1, {per_block};
  cvt.u64.u32 %q0, %r0;
  add.u64 %index, %index, %q0;
  mov.{load_mov} %value, {identity};
  ld.param.u64 %q1, [total];
  setp.ge.u64 %p0, %index, %q1;
  @%p0 bra STORED;
  ld.param.u64 %q2, [blocks];
  ld.param.u64 %q3, [length];
  div.u64 %q4, %index, %q2;
  rem.u64 %q5, %index, %q2;
  mul.lo.u64 %q4, %q4, %q3;
  mul.lo.u64 %q5, %q5, {block};
  sub.u64 %end, %q3, %q5;
  min.u64 %end, %end, {block};
  add.u64 %q4, %q4, %q5;
  cvt.u64.u32 %at, %lane;
  add.u64 %q6, %q4, %at;
  mad.lo.u64 %q6, %q6, {size}, %in;
NEXT:
  setp.ge.u64 %p0, %at, %end;
  @%p0 bra STORED;
  ld.global.{load} %next, [%q6];
{merge}  add.u64 %at, %at, {lanes};
  add.u64 %q6, %q6, {stride};
  bra NEXT;
STORED:
  mov.u32 %slot, lanes;
  mad.lo.u32 %slot, %tid, {size}, %slot;
  st.shared.{load} [%slot], %value;
  mov.u32 %half, {first_half};
TREE:
  bar.sync 0;
  setp.ge.u32 %p0, %lane, %half;
  @%p0 bra WAIT;
  mad.lo.u32 %r2, %half, {size}, %slot;
  ld.shared.{load} %next, [%r2];
{merge}  st.shared.{load} [%slot], %value;
WAIT:
  shr.u32 %half, %half, 1;
  setp.ne.u32 %p0, %half, 0;
  @%p0 bra TREE;
  setp.ne.u32 %p0, %lane, 0;
  @%p0 bra DONE;
  ld.param.u64 %q1, [total];
  setp.ge.u64 %p0, %index, %q1;
  @%p0 bra DONE;
  mad.lo.u64 %out, %index, {size}, %out;
{finish}DONE:
  ret;
}}
",
        shared = THREADS * size,
        last_lane = LANES - 1,
        lane_bits = LANES.ilog2(),
        per_block = ROWS_PER_BLOCK,
        block = BLOCK,
        lanes = LANES,
        stride = LANES * size,
        first_half = LANES / 2,
        load_mov = ty.replace("s64", "b64"),
    )
}

/// Some rows of one column to one number: `index` counts columns of all blocks.
///
/// Parameters: elements, results, the view's reduced elements, its columns, columns of a wide row, wide rows, blocks, how
/// many elements are left over beyond the wide rows, results in all, whether to divide, by what.
fn columns(class: Class, reduction: Reduction) -> String {
    let words = words(class, reduction);
    let Words {
        ty, size, identity, ..
    } = words;
    let (registers, merge, finish) = (registers(&words), merge(class, reduction), finish(&words));
    let load = ty.replace("s64", "u64");
    format!(
        ".visible .entry columns(.param .u64 from, .param .u64 to, .param .u64 elements, .param .u64 width, \
         .param .u64 rows, .param .u64 blocks, .param .u64 rest, .param .u64 total, .param .u32 divide, \
         .param .{ty} divisor)
{{
{registers}  ld.param.u64 %in, [from];
  cvta.to.global.u64 %in, %in;
  ld.param.u64 %out, [to];
  cvta.to.global.u64 %out, %out;
  mov.u32 %tid, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mul.wide.u32 %index, %r1, {threads};
  cvt.u64.u32 %q0, %tid;
  add.u64 %index, %index, %q0;
  ld.param.u64 %q1, [total];
  setp.ge.u64 %p0, %index, %q1;
  @%p0 bra DONE;
  ld.param.u64 %q2, [width];
  ld.param.u64 %q3, [blocks];
  ld.param.u64 %q4, [rows];
  ld.param.u64 %q5, [elements];
  rem.u64 %q6, %index, %q2;
  div.u64 %q7, %index, %q2;
  rem.u64 %q8, %q7, %q3;
  div.u64 %q9, %q7, %q3;
  mul.lo.u64 %q9, %q9, %q5;
  add.u64 %q9, %q9, %q6;
  mul.lo.u64 %at, %q8, {rows};
  add.u64 %end, %at, {rows};
  min.u64 %end, %end, %q4;
  mul.lo.u64 %q10, %at, %q2;
  add.u64 %q10, %q10, %q9;
  mad.lo.u64 %q10, %q10, {size}, %in;
  mul.lo.u64 %step, %q2, {size};
  mov.{load_mov} %value, {identity};
NEXT:
  setp.ge.u64 %p0, %at, %end;
  @%p0 bra REST;
  ld.global.{load} %next, [%q10];
{merge}  add.u64 %at, %at, 1;
  add.u64 %q10, %q10, %step;
  bra NEXT;
REST:
  add.u64 %q8, %q8, 1;
  setp.ne.u64 %p0, %q8, %q3;
  @%p0 bra STORE;
  ld.param.u64 %q11, [rest];
  setp.ge.u64 %p0, %q6, %q11;
  @%p0 bra STORE;
  ld.global.{load} %next, [%q10];
{merge}STORE:
  mad.lo.u64 %out, %index, {size}, %out;
{finish}DONE:
  ret;
}}
",
        threads = THREADS,
        rows = super::ROWS,
        load_mov = ty.replace("s64", "b64"),
    )
}

/// Numbers that lie a stride apart to one, combined pairwise: 0 with 1, 2 with 3, ..., then the results in the same way. A
/// launch's block does one tree, in place.
///
/// Parameters: the numbers, results, how many numbers a tree has, their stride, columns of trees, the distance between the
/// first numbers of neighbouring groups of columns, whether to divide, by what.
fn tree(class: Class, reduction: Reduction) -> String {
    let words = words(class, reduction);
    let Words { ty, size, .. } = words;
    let (registers, merge, finish) = (registers(&words), merge(class, reduction), finish(&words));
    let load = ty.replace("s64", "u64");
    format!(
        ".visible .entry tree(.param .u64 from, .param .u64 to, .param .u64 count, .param .u64 stride, \
         .param .u64 width, .param .u64 group, .param .u32 divide, .param .{ty} divisor)
{{
{registers}  ld.param.u64 %in, [from];
  cvta.to.global.u64 %in, %in;
  ld.param.u64 %out, [to];
  cvta.to.global.u64 %out, %out;
  mov.u32 %tid, %tid.x;
  mov.u32 %r1, %ctaid.x;
  cvt.u64.u32 %index, %r1;
  ld.param.u64 %q0, [width];
  ld.param.u64 %q1, [group];
  ld.param.u64 %q2, [count];
  ld.param.u64 %q3, [stride];
  mul.lo.u64 %q3, %q3, {size};
  div.u64 %q4, %index, %q0;
  rem.u64 %q5, %index, %q0;
  mad.lo.u64 %q4, %q4, %q1, %q5;
  mad.lo.u64 %in, %q4, {size}, %in;
  mad.lo.u64 %out, %index, {size}, %out;
  mov.u64 %step, 1;
LEVEL:
  setp.ge.u64 %p0, %step, %q2;
  @%p0 bra TOP;
  shl.b64 %q6, %step, 1;
  cvt.u64.u32 %at, %tid;
  mul.lo.u64 %at, %at, %q6;
  mul.lo.u64 %q7, %q6, {threads};
PAIR:
  add.u64 %q8, %at, %step;
  setp.ge.u64 %p0, %q8, %q2;
  @%p0 bra BARRIER;
  mad.lo.u64 %q9, %at, %q3, %in;
  mad.lo.u64 %q10, %q8, %q3, %in;
  ld.global.{load} %value, [%q9];
  ld.global.{load} %next, [%q10];
{merge}  st.global.{load} [%q9], %value;
  add.u64 %at, %at, %q7;
  bra PAIR;
BARRIER:
  bar.sync 0;
  mov.u64 %step, %q6;
  bra LEVEL;
TOP:
  setp.ne.u32 %p0, %tid, 0;
  @%p0 bra DONE;
  ld.global.{load} %value, [%in];
{finish}DONE:
  ret;
}}
",
        threads = THREADS,
    )
}
