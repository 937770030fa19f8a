//! Constructs, whole texts of compilers, and texts that are wrong, through the parser.

use super::*;
use crate::ptx::ast::{Base, Body, Init, Instruction, Operand, Register, Special, Table, Type};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

fn module(text: &str) -> Module {
    parse(&format!("{HEAD}{text}")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The error of a text below the three lines of the head.
fn error(text: &str) -> ParseError {
    match parse(&format!("{HEAD}{text}")) {
        Err(error) => error,
        Ok(_) => panic!("this was taken: {text}"),
    }
}

fn refused(text: &str, part: &str) {
    let error = error(text);
    assert!(error.message.contains(part), "{text}\n{error}");
}

/// The body of a kernel `k` after some registers, with a parameter `a`, and module-scope names `g`, `s` and `f`.
fn kernel_text(text: &str) -> String {
    format!(
        ".global .b32 g[4];\n.shared .b32 s[4];\n.func (.param .b32 r) f(.param .b32 x);\n\
         .visible .entry k(.param .u64 a)\n{{\n.reg .b32 %r<9>, x;\n.reg .b64 %rd<9>;\n.reg .pred p, q;\n{text}\n}}\n"
    )
}

fn kernel(text: &str) -> Body {
    let mut module = module(&kernel_text(text));
    module.functions.pop().unwrap().body.unwrap()
}

fn operands(text: &str) -> Vec<Operand> {
    kernel(text).instructions.pop().unwrap().operands
}

fn reg(number: u32) -> Operand {
    Operand::Register(Register(number))
}

#[test]
fn the_head_is_read() {
    let module = parse(
        ".version 8.8 // c\r\n.target sm_90a, debug, texmode_independent\r\n.address_size 32\r\n\0",
    )
    .unwrap();
    assert_eq!(
        (module.version, module.target, module.target_suffix),
        ((8, 8), 90, Some('a'))
    );
    assert_eq!(module.address_size, 32);
    assert_eq!(
        parse(".version 7.5 .target sm_75").unwrap().address_size,
        64
    );
    for text in [
        "",
        "\0",
        "\u{7f}ELF",
        ".target sm_80",
        ".version 8 .target sm_80",
        ".version 8.x .target sm_80",
        ".version 8.0",
        ".version 8.0 .target",
        ".version 8.0 .target sm_",
        ".version 8.0 .target sm_80ab",
        ".version 8.0 .target sm_80, sm_90",
        ".version 8.0 .target debug",
        ".version 8.0 .target sm_80 .address_size 16",
        ".version 99999999999.0 .target sm_80",
        ".version 8.0 .target sm_99999999999",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn module_variables_have_size_alignment_and_linkage() {
    let module = module(
        ".visible .global .align 16 .b8 bytes[3][5];\n.extern .shared .align 8 .f64 dynamic[];\n\
         .weak .const .v4 .f32 four;\n.common .global .u16 one, two[2];\n\
         .global .attribute(.managed) .align 4 .s32 managed;\n.const .align 64 .b64 big[0x10];",
    );
    let facts = |index: usize| {
        let Variable {
            name,
            space,
            ty,
            align,
            size,
            linkage,
            ..
        } = &module.variables[index];
        (name.as_str(), *space, *ty, *align, *size, *linkage)
    };
    assert_eq!(
        facts(0),
        (
            "bytes",
            Space::Global,
            Type::B8,
            16,
            Some(15),
            Linkage::Visible
        )
    );
    assert_eq!(
        facts(1),
        (
            "dynamic",
            Space::Shared,
            Type::F64,
            8,
            None,
            Linkage::Extern
        )
    );
    assert_eq!(
        facts(2),
        ("four", Space::Const, Type::F32, 16, Some(16), Linkage::Weak)
    );
    assert_eq!(
        facts(3),
        ("one", Space::Global, Type::U16, 2, Some(2), Linkage::Common)
    );
    assert_eq!(
        facts(4),
        ("two", Space::Global, Type::U16, 2, Some(4), Linkage::Common)
    );
    assert_eq!(
        facts(5),
        (
            "managed",
            Space::Global,
            Type::S32,
            4,
            Some(4),
            Linkage::Private
        )
    );
    assert_eq!(
        facts(6),
        (
            "big",
            Space::Const,
            Type::B64,
            64,
            Some(128),
            Linkage::Private
        )
    );
    assert_eq!(module.variables[1].line, 5);
}

#[test]
fn initialisers_are_flattened() {
    let init = |text: &str| {
        module(&format!(".global .u64 g; .func f(); {text}"))
            .variables
            .pop()
            .unwrap()
    };
    let bits = |text: &str| {
        let bit = |init: &Init| match init {
            Init::Bits(bits) => *bits,
            Init::Address { .. } => panic!("an address"),
        };
        init(text).init.iter().map(bit).collect::<Vec<_>>()
    };
    assert_eq!(bits(".global .s32 x = -1;"), [0xffff_ffff]);
    assert_eq!(bits(".global .s32 x = {7};"), [7]);
    assert_eq!(
        bits(".const .f32 x[3] = {0f3F800000, 1.5, 2};"),
        [0x3f80_0000, 0x3fc0_0000, 0x4000_0000]
    );
    assert_eq!(
        bits(".const .f64 x[2] = {0d3FF0000000000000, -1e0};"),
        [1f64.to_bits(), (-1f64).to_bits()]
    );
    assert_eq!(bits(".const .b32 x = 0f3F800000;"), [0x3f80_0000]);
    assert_eq!(
        bits(".global .s32 x[2][3] = {{1}, {2, 3}};"),
        [1, 0, 0, 2, 3]
    );
    assert_eq!(bits(".global .s32 x[2][3] = {1, 2, 3, {4}};"), [1, 2, 3, 4]);
    assert_eq!(bits(".global .v2 .s32 x[2] = {{1}, {2, 3}};"), [1, 0, 2, 3]);
    assert_eq!(
        bits(".global .b8 x[4] = {254, 0x1FF, WARP_SZ, (1 << 3) | 1};"),
        [254, 255, 32, 9]
    );
    assert_eq!(bits(".global .b8 x[4] = {};"), []);
    assert_eq!(init(".global .b8 x[] = {1, 2, 3};").size, Some(3));
    let open = init(".global .s32 x[][3] = {{1}, {2}};");
    assert_eq!((open.size, open.init.len()), (Some(24), 6));
    assert_eq!(init(".global .s32 x[][3] = {1, 2, 3, 4};").size, Some(24));
    let address = |symbol, offset, generic| Init::Address {
        symbol,
        offset,
        generic,
        mask: u64::MAX,
    };
    assert_eq!(
        init(".global .u64 x[5] = {g, g+8, generic(g)-4, generic(g+1), f};").init,
        [
            address(Symbol::Module(0), 0, false),
            address(Symbol::Module(0), 8, false),
            address(Symbol::Module(0), -4, true),
            address(Symbol::Module(0), 1, true),
            address(Symbol::Function(0), 0, false),
        ]
    );
}

#[test]
fn wrong_variables_are_refused() {
    refused(".global .b32 x[2] = {1, 2, 3};", "more initial values");
    refused(".global .b32 x[2][2] = {{1, 2, 3}};", "more initial values");
    refused(".global .b32 x[2][2] = {1, {2}};", "more initial values");
    refused(".global .b32 x[2] = {{1}};", "deeper");
    refused(".global .b32 x[2] = 1;", "before the values of an array");
    refused(".global .b32 x = 1.5;", "a float");
    refused(
        ".global .u64 g; .global .b8 x[8] = {0x1FF(g)};",
        "a mask must be 0xFF",
    );
    refused(
        ".global .u64 g; .global .b16 x[8] = {0xFF(g)};",
        "is no byte",
    );
    refused(".global .b8 x[8] = {0xFF(g)};", "no variable or function");
    refused(".global .u64 x = nowhere;", "no variable or function");
    refused(".global .u64 g; .global .b8 x = g;", "an address");
    refused(".shared .b32 x = 1;", "initialiser");
    refused(".global .b32 x[];", "an initialiser");
    refused(".global .b32 x[-1];", "negative");
    refused(".global .b32 x[2][];", "only an array's first");
    refused(".global .b64 x[0x100000000][0x100000000];", "2^64");
    refused(".global .b64 x[0x2000000000000000];", "2^64");
    refused(".global .align 3 .b32 x;", "power of two");
    refused(".global .align 0 .b32 x;", "power of two");
    refused(".global x;", "a type");
    refused(".global .b32 .b32 x;", "second type");
    refused(".global .pred x;", "predicate");
    refused(".global .texref x;", "textures");
    refused(".global .b32 x; .global .b32 x;", "declared already");
    refused(
        ".extern .global .b32 x; .const .b32 x;",
        "another state space",
    );
    refused(".global .b32 x; .func x();", "declared already");
    refused(".visible .extern .global .b32 x;", "second linkage");
    refused(".visible .reg .b32 x;", "after a linkage");
    refused(".reg .b32 x;", "inside a function");
    refused(
        &format!(".global .b32 x{};", "[1]".repeat(100)),
        "too many dimensions",
    );
    refused(
        ".global .b8 x[1000][1000000000] = {{1}, {1}, {1}};",
        "leave out too many",
    );
    refused(
        ".global .b8 x[4][100000000][0][100000000] = {{{{1}}}};",
        "more initial values",
    );
    assert_eq!(
        module(".extern .global .b32 x[]; .visible .global .b32 x[2];").variables[0].size,
        Some(8)
    );
    assert_eq!(
        module(".visible .global .b32 x[2]; .extern .global .b32 x[];").variables[0].size,
        Some(8)
    );
}

#[test]
fn functions_are_declared_merged_and_bounded() {
    let module = module(
        ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n\
         .func early(.param .align 8 .b8 x[12]);\n\
         .visible .entry k(.param .u64 .ptr .global .align 16 p, .param .align 4 .b8 s[20])\n\
         .maxntid 256, 2\n.minnctapersm 2 .maxnreg 64 .explicitcluster .reqnctapercluster 2, 1, 1\n\
         .pragma \"nounroll\";\n{ ret; }\n\
         .visible .func early(.param .align 8 .b8 x[12]) .noreturn { ret; }\n\
         .weak .entry other .reqntid 32 { ret; }\n.visible .entry declared();\n",
    );
    let [vprintf, early, k, other, declared] = &module.functions[..] else {
        panic!("five functions")
    };
    assert_eq!(
        (vprintf.linkage, vprintf.returns.len(), vprintf.params.len()),
        (Linkage::Extern, 1, 2)
    );
    assert!(vprintf.body.is_none() && declared.body.is_none());
    assert_eq!(
        (early.linkage, early.line, early.params[0].align),
        (Linkage::Visible, 11, 8)
    );
    assert!(early.body.is_some());
    assert_eq!(
        (k.max_threads, k.min_blocks, k.max_registers),
        (Some([256, 2, 1]), Some(2), Some(64))
    );
    assert_eq!(
        (k.params[0].align, k.params[1].size, k.entry),
        (8, Some(20), true)
    );
    assert_eq!(
        (other.required_threads, other.entry, other.linkage),
        (Some([32, 1, 1]), true, Linkage::Weak)
    );
    refused(
        ".func f() { ret; } .func f() { ret; }",
        "defined already, in line 4",
    );
    refused(".func f(); .entry f();", ".entry");
    refused(
        ".func f(.param .b32 x, .param .b32 x) { ret; }",
        "declared already",
    );
    refused(".entry f() .maxntid 1,2,3,4 { ret; }", "where");
    refused(".entry f() .unheard_of { ret; }", "`.unheard_of`");
    refused(".entry f() .maxnreg 4294967296 { ret; }", "a number");
    refused(".entry f() { ret;", "never closed");
    refused(".entry f() { ret; } }", "a directive");
    refused(".alias f, g;", "no function declared");
    refused(".func f(); .func g(); .alias f, g;", "must be defined");
    refused(
        ".func f(.param .b32 x); .func g() { ret; } .alias f, g;",
        "with the same parameters",
    );
    refused(
        ".entry k(.reg .b32 x) { ret; }",
        "a parameter of a kernel in a register",
    );
}

#[test]
fn operands_have_every_form() {
    let symbol = |symbol, offset| Operand::Symbol(symbol, offset);
    let at = |base, offset| Operand::Address { base, offset };
    assert_eq!(operands("add.s32 %r3, %r1, %r3;"), [reg(0), reg(1), reg(0)]);
    assert_eq!(
        operands("mov.u32 x, -5;"),
        [reg(0), Operand::Integer(-5i64 as u64)]
    );
    assert_eq!(
        operands("mov.u32 x, (.u64)1 << 3;"),
        [reg(0), Operand::Integer(8)]
    );
    assert_eq!(
        operands("mov.f32 x, 0f3F800000;"),
        [reg(0), Operand::Float32(0x3f80_0000)]
    );
    assert_eq!(
        operands("mov.f64 %rd1, 1.0;"),
        [reg(0), Operand::Float64(1f64.to_bits())]
    );
    assert_eq!(
        operands("mov.u32 x, %ctaid.y;"),
        [reg(0), Operand::Special(Special::Ctaid(1))]
    );
    assert_eq!(
        operands("mov.u32 x, WARP_SZ;"),
        [reg(0), Operand::Special(Special::WarpSize)]
    );
    assert_eq!(
        operands("mov.u32 x, WARP_SZ - 1;"),
        [reg(0), Operand::Integer(31)]
    );
    assert_eq!(
        operands("mov.u64 %rd1, g;"),
        [reg(0), symbol(Symbol::Module(0), 0)]
    );
    assert_eq!(
        operands("mov.u64 %rd1, s+4;"),
        [reg(0), symbol(Symbol::Module(1), 4)]
    );
    assert_eq!(
        operands("mov.u64 %rd1, f;"),
        [reg(0), symbol(Symbol::Function(0), 0)]
    );
    assert_eq!(
        operands("mov.u64 %rd1, k;"),
        [reg(0), symbol(Symbol::Function(1), 0)]
    );
    assert_eq!(
        operands("ld.param.u64 %rd1, [a];"),
        [reg(0), at(Base::Symbol(Symbol::Param(0)), 0)]
    );
    assert_eq!(
        operands("ld.param.u64 %rd1, [a+ 0x8];")[1],
        at(Base::Symbol(Symbol::Param(0)), 8)
    );
    assert_eq!(
        operands("ld.u32 x, [%rd1+-4];"),
        [reg(0), at(Base::Register(Register(1)), -4)]
    );
    assert_eq!(
        operands("ld.u32 x, [%rd1-4+8];")[1],
        at(Base::Register(Register(1)), 4)
    );
    assert_eq!(operands("ld.u32 x, [16];")[1], at(Base::Zero, 16));
    assert_eq!(
        operands("ld.u32 x, [0xffffffffffffffff];")[1],
        at(Base::Zero, -1)
    );
    assert_eq!(
        operands("st.v2.u32 [g], {x, _};")[1],
        Operand::Vector(vec![reg(0), Operand::Discard])
    );
    assert_eq!(
        operands("mov.b64 {x, %r1}, %rd1;")[0],
        Operand::Vector(vec![reg(0), reg(1)])
    );
    assert_eq!(
        operands("setp.eq.s32 p|q, x, 0;")[0],
        Operand::Pair(Box::new((reg(0), reg(1))))
    );
    assert_eq!(
        operands("setp.eq.s32 _|q, x, 0;")[0],
        Operand::Pair(Box::new((Operand::Discard, reg(0))))
    );
    assert_eq!(
        operands("bar.red.and.pred p, 0, !q;")[2],
        Operand::Not(Register(1))
    );
    assert_eq!(operands("bar.sync 0;"), [Operand::Integer(0)]);
    assert_eq!(operands("ret;"), []);
    refused(
        &kernel_text("mov.u32 x, %nothing;"),
        "`%nothing`: no register",
    );
    refused(&kernel_text("mov.u32 x, %r9;"), "`%r9`");
    refused(&kernel_text("mov.u32 x, %r01;"), "`%r01`");
    refused(&kernel_text("mov.u32 x, %clusterid.x;"), "special register");
    refused(
        &kernel_text("mov.u32 x, nothing;"),
        "`nothing` is not declared",
    );
    refused(&kernel_text("mov.u32 x, g[1];"), "an index");
    refused(&kernel_text("ld.u32 x, g[1];"), "an index");
    refused(&kernel_text("ld.u32 x, [nothing];"), "not declared");
    refused(&kernel_text("ld.u32 x, [%tid.x];"), "special register");
    refused(
        &kernel_text("tex.2d.v4.f32.f32 {x, x, x, x}, [g, {x, x}];"),
        "textures",
    );
    refused(&kernel_text("mov.b32 x, {x, {x}};"), "an operand");
    refused(&kernel_text("mov.b32 x, ;"), "an operand");
    refused(&kernel_text("mov.b32 x x;"), "`x` where");
    refused(
        &kernel_text("mov.b32 x, 12345678901234567890123;"),
        "no number",
    );
    refused(&kernel_text("@x mov.b32 x, x;"), "no predicate");
    refused(&kernel_text("@p L: ret;"), "where");
    refused(&kernel_text("not.pred p, !x;"), "no predicate");
}

#[test]
fn instructions_keep_text_line_guard_and_source() {
    let text = kernel_text(
        "@!p ld.global.nc.L1::no_allocate.v4.f32 {x,x,x,x},\n[%rd1] ;\n\
         .loc 3 14 5, function_name f0, inlined_at 1 2 3\n\
         @q\tbra L; call f; .loc 3 15 1\nL: mov .u32 x, 1;",
    );
    let module = module(&text);
    let body = module.functions[1].body.as_ref().unwrap();
    let [load, bra, call, mov] = &body.instructions[..] else {
        panic!("four instructions")
    };
    let name = |instruction: &Instruction| module.text(instruction.name);
    assert_eq!(name(load), "ld.global.nc.L1::no_allocate.v4.f32");
    assert!(
        module.text(load.span).starts_with("@!p ld")
            && module.text(load.span).ends_with("[%rd1] ;")
    );
    assert_eq!((load.line, load.source), (12, None));
    assert!(load.guard.is_some_and(|guard| guard.negated));
    assert_eq!(
        (name(bra), bra.line, bra.source),
        ("bra", 15, Some((3, 14)))
    );
    assert!(bra.guard.is_some_and(|guard| !guard.negated));
    assert_eq!((name(call), call.source), ("call", Some((3, 14))));
    assert_eq!((name(mov), mov.source), ("mov .u32", Some((3, 15))));
}

#[test]
fn calls_have_every_form() {
    let group = Operand::Group;
    let f = Operand::Symbol(Symbol::Function(0), 0);
    assert_eq!(
        operands("call f;"),
        [group(vec![]), f.clone(), group(vec![])]
    );
    assert_eq!(
        operands("call f, (x);"),
        [group(vec![]), f.clone(), group(vec![reg(0)])]
    );
    assert_eq!(
        operands("call (x), f, ();"),
        [group(vec![reg(0)]), f.clone(), group(vec![])]
    );
    assert_eq!(
        operands("call (x), f;"),
        [group(vec![reg(0)]), f.clone(), group(vec![])]
    );
    let body = kernel(
        "{ .param .b32 p0; .param .b32 r0; call.uni (r0),\nf,\n(\np0\n)\n; }\n\
         { .param .b64 p0; .param .b32 r0;\n\
         proto : .callprototype (.param .b32 _) _ (.param .b64 _, .param .b8 _[4]) ;\n\
         call (r0), %rd1, (p0, 1), proto; }\n\
         targets: .calltargets f, f;\ncall %rd1, targets;",
    );
    let body_symbol = |index| Operand::Symbol(Symbol::Body(index), 0);
    let [first, second, third] = &body.instructions[..] else {
        panic!("three calls")
    };
    assert_eq!(
        first.operands,
        [group(vec![body_symbol(1)]), f, group(vec![body_symbol(0)])]
    );
    let arguments = group(vec![body_symbol(2), Operand::Integer(1)]);
    assert_eq!(
        second.operands,
        [
            group(vec![body_symbol(3)]),
            reg(0),
            arguments,
            Operand::Table(0)
        ]
    );
    assert_eq!(
        third.operands,
        [group(vec![]), reg(0), group(vec![]), Operand::Table(1)]
    );
    assert!(
        matches!(&body.tables[0], Table::Prototype { returns, params }
        if returns.len() == 1 && params[1].size == Some(4))
    );
    assert!(matches!(&body.tables[1], Table::Calls(functions) if functions[..] == [0, 0]));
    let names = body
        .variables
        .iter()
        .map(|variable| variable.name.as_str())
        .collect::<Vec<_>>();
    assert_eq!(names, ["p0", "r0", "p0@2", "r0@2"]);
    refused(&kernel_text("call g;"), "a function");
    refused(&kernel_text("call nothing;"), "`nothing` is not declared");
    refused(
        &kernel_text("call f, (x), nothing;"),
        "`nothing` is not declared",
    );
    refused(&kernel_text("t: .calltargets nothing;"), "`nothing`");
}

#[test]
fn labels_belong_to_their_scope_and_may_come_later() {
    let body = kernel(
        "bra L; { bra L; L: ret; { bra L; } } { bra L; bra M; } L: ret;\n\
         M: T: .branchtargets L, M, N;\nbrx.idx x, T;\n{ bra g; g: } N:",
    );
    let target = |index: usize| match body.instructions[index].operands[0] {
        Operand::Label(label) => body.labels[label as usize],
        _ => panic!("no label"),
    };
    assert_eq!([0, 1, 3, 4, 5, 8].map(target), [6, 2, 2, 6, 7, 9]);
    assert_eq!(body.instructions[7].operands, [reg(0), Operand::Table(0)]);
    let Table::Branches(labels) = &body.tables[0] else {
        panic!("no branch targets")
    };
    assert_eq!(
        labels
            .iter()
            .map(|&label| body.labels[label as usize])
            .collect::<Vec<_>>(),
        [6, 7, 9]
    );
    refused(&kernel_text("bra L; { L: ret; }"), "`L` is not declared");
    refused(&kernel_text("L: L: ret;"), "declared already");
    refused(
        &kernel_text("T: .branchtargets T;"),
        "no label to branch to",
    );
    refused(&kernel_text(".branchtargets L;"), "without a label");
}

#[test]
fn scopes_shadow_registers_ranges_and_variables() {
    let body = kernel(
        "mov.b32 x, %r5;\n{ .reg.b16 x; .reg .f32 %r<3>; .reg .f64 __$temp3; mov.b16 x, %r2; mov.b32 %r5, __$temp3;\n\
         { .reg .pred %r1; mov.pred %r1, %r0; { .reg .s32 %r<2>; mov.s32 %r1, %r2; } mov.pred %r1, p; } }\n\
         mov.b32 x, %r2;\n.reg .u64 %rd1<7>; mov.u64 %rd15, %rd1;",
    );
    let types = |index: usize| {
        let of = |operand: &Operand| match operand {
            Operand::Register(register) => body.registers[register.0 as usize],
            _ => panic!("no register"),
        };
        body.instructions[index]
            .operands
            .iter()
            .map(of)
            .collect::<Vec<_>>()
    };
    assert_eq!(types(0), [Type::B32, Type::B32]);
    assert_eq!(types(1), [Type::B16, Type::F32]);
    assert_eq!(types(2), [Type::B32, Type::F64]);
    assert_eq!(types(3), [Type::Pred, Type::F32]);
    assert_eq!(types(4), [Type::S32, Type::F32]);
    assert_eq!(types(5), [Type::Pred, Type::Pred]);
    assert_eq!(types(6), [Type::B32, Type::B32]);
    assert_eq!(types(7), [Type::U64, Type::B64]);
    assert_eq!(
        body.instructions[0].operands[1], body.instructions[2].operands[0],
        "a register of an outer scope"
    );
    assert_eq!(
        body.instructions[1].operands[1], body.instructions[4].operands[1],
        "used first in an inner scope"
    );
    refused(&kernel_text(".reg .b32 x;"), "declared already");
    refused(&kernel_text(".reg .b32 %r<3>;"), "declared already");
    refused(
        &kernel_text("{ .reg .b32 y; } mov.b32 y, 0;"),
        "`y` is not declared",
    );
    refused(&kernel_text(".reg .v4 .b32 y;"), "vector registers");
    refused(&kernel_text(".reg .texref y;"), "type of a register");
    refused(
        &kernel_text(".reg .b32 y<4294967296>;"),
        "number of registers",
    );
    refused(&kernel_text(".global .b32 y;"), "module scope");
    refused(&kernel_text(".local .b32 y[];"), "without a size");
    refused(&kernel_text(".local .b32 y = 3;"), "initial values");
}

#[test]
fn ranges_cost_nothing_until_they_are_used() {
    let body = kernel(".reg .f32 huge<4294967295>; mov.f32 huge4294967294, huge0;");
    assert_eq!(body.registers, [Type::F32, Type::F32]);
    let body = kernel(
        ".local .align 16 .b8 __local_depot0[32]; .shared .f32 tile[2][3]; mov.u64 %rd1, tile;",
    );
    assert_eq!(body.variables.len(), 2);
    assert_eq!(
        (body.variables[1].size, body.variables[1].space),
        (Some(24), Space::Shared)
    );
}

#[test]
fn debug_information_is_passed_over() {
    let module = module(
        ".file 1 \"/a b/k.cu\", 1234, 5678\n.file 2 \"h.cuh\"\n\
         .func f() { .loc 1 2 3\n$L__a: ret; .pragma \"x\", \"y\"; \n\
         .loc 2 9 0, function_name $L__info_string0+4, inlined_at 1 2 3\nret; }\n\
         .section .debug_str { $L__info_string0:\n.b8 95,-90,0 .b64 .debug_abbrev .b32 a-b {} }\n.entry k() { ret; }",
    );
    assert_eq!(
        module.files,
        [(1, "/a b/k.cu".to_owned()), (2, "h.cuh".to_owned())]
    );
    let sources = module.functions[0]
        .body
        .as_ref()
        .unwrap()
        .instructions
        .iter()
        .map(|i| i.source);
    assert_eq!(sources.collect::<Vec<_>>(), [Some((1, 2)), Some((2, 9))]);
    assert_eq!(
        module.functions[1].body.as_ref().unwrap().instructions[0].source,
        None
    );
    refused(".section .debug_str { .b8 1", "never closed");
    refused(".section .debug_str", "`{`");
    refused(".file 1 name", "in quotes");
    refused(".file 1 \"name", "no end");
    refused("/* ", "no end");
    refused(".pragma x;", "`;`");
}

#[test]
fn errors_say_where() {
    let error = parse(&format!("{HEAD}.entry naïve() {{ ret; }}")).unwrap_err();
    assert_eq!((error.line, error.column), (4, 10));
    assert!(error.message.contains("`ï`"), "{error}");
    let error = parse(&format!(
        "{HEAD}.entry k()\r\n{{\r\n\t/* é */ add.s32 a, b;\r\n}}"
    ))
    .unwrap_err();
    assert_eq!(
        (error.line, error.column, error.function.as_deref()),
        (6, 18, Some("k"))
    );
    assert_eq!(
        error.to_string(),
        "PTX line 6, column 18, in `k`: `a` is not declared"
    );
    let long = error_of_long_name();
    assert!(long.len() < 300, "{long}");
}

fn error_of_long_name() -> String {
    error(&kernel_text(&format!(
        "mov.b32 x, {};",
        "y".repeat(1 << 20)
    )))
    .to_string()
}

#[test]
fn depth_is_bounded_and_time_is_linear() {
    refused(&kernel_text(&"{".repeat(1_000_000)), "nested too deeply");
    refused(
        &kernel_text(&format!("mov.b32 x, {};", "(".repeat(1_000_000))),
        "nested too deeply",
    );
    refused(
        &format!(".global .b32 x = {};", "{".repeat(1_000_000)),
        "deeper",
    );
    // Each is some megabytes: what took quadratic time would take minutes.
    let start = std::time::Instant::now();
    let deep = 90;
    let waiting = format!(
        "{}{}{}L: ret;",
        "{".repeat(deep),
        "bra L;".repeat(300_000),
        "}".repeat(deep)
    );
    assert_eq!(kernel(&waiting).instructions.len(), 300_001);
    let scopes = "{ .reg .b32 %r<5>, y; .param .b32 q0; L: mov.b32 %r1, y; bra L; }".repeat(50_000);
    assert_eq!(kernel(&scopes).variables.len(), 50_000);
    let shadowed = format!(
        "{}{}{}",
        "{ .reg .f32 %r<1>;".repeat(deep),
        "mov.b32 %r1, %r2;".repeat(200_000),
        "}".repeat(deep)
    );
    assert_eq!(kernel(&shadowed).registers.len(), 2);
    let many = (0..100_000)
        .map(|i| format!("L{i}: bra L{};", 99_999 - i))
        .collect::<String>();
    assert_eq!(kernel(&many).labels.len(), 100_000);
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}
