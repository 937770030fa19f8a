//! A library with cuBLASLt's interface that computes on the virtual GPU, slowly: it checks descriptions as the documentation of
//! the interface states them, records the calls, and reads and writes device memory by two functions that a test gives it.
#![expect(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the functions of a C interface"
)]

mod test_side;

use std::ffi::{c_int, c_void};

use test_side::{encoded, end, failure, give, memory, numbers, record, size};

const INVALID_VALUE: c_int = 7;
const NOT_SUPPORTED: c_int = 15;
/// A size that no algorithm is proposed for.
const REFUSED_SIZE: u64 = 13;
const WORKSPACE: usize = 4096;
const HANDLE: usize = 4321;

fn refuse(why: &str) -> c_int {
    record(format!("REFUSED {why}"));
    INVALID_VALUE
}

#[derive(Clone, Copy, Default)]
struct Desc {
    compute: c_int,
    scale: c_int,
    transposed: [c_int; 2],
    epilogue: c_int,
    bias: u64,
}

#[derive(Clone, Copy)]
struct Layout {
    dtype: c_int,
    rows: u64,
    cols: u64,
    ld: i64,
    count: i32,
    offset: i64,
}

#[derive(Clone, Copy, Default)]
struct Preference {
    workspace: usize,
    alignments: [u32; 4],
}

unsafe fn read<T: Copy>(value: *const c_void, bytes: usize) -> Option<T> {
    // SAFETY: there are that many bytes.
    (bytes == size_of::<T>()).then(|| unsafe { value.cast::<T>().read_unaligned() })
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    120_803
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtCreate(handle: *mut *mut c_void) -> c_int {
    record("create".to_owned());
    // SAFETY: the caller gives room for a pointer.
    unsafe { *handle = std::ptr::without_provenance_mut(HANDLE) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescCreate(
    desc: *mut *mut c_void,
    compute: c_int,
    scale: c_int,
) -> c_int {
    let made = Desc {
        compute,
        scale,
        epilogue: 1,
        ..Desc::default()
    };
    // SAFETY: as the interface says.
    unsafe { give(desc, made) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescDestroy(desc: *mut c_void) -> c_int {
    // SAFETY: as the interface says.
    unsafe { end::<Desc>(desc) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    desc: *mut c_void,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: as the interface says.
    let (desc, number) = unsafe { (&mut *desc.cast::<Desc>(), read::<c_int>(value, bytes)) };
    match (attribute, number) {
        (3 | 4, Some(op @ (0 | 1))) => desc.transposed[attribute as usize - 3] = op,
        (7, Some(epilogue @ (1 | 4))) => desc.epilogue = epilogue,
        // SAFETY: as above.
        (8, None) => match unsafe { read::<u64>(value, bytes) } {
            Some(bias) => desc.bias = bias,
            None => return refuse("the bias is no pointer"),
        },
        _ => return refuse(&format!("attribute {attribute} of a product: {number:?}")),
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut *mut c_void,
    dtype: c_int,
    rows: u64,
    cols: u64,
    ld: i64,
) -> c_int {
    if ld < 1 || rows == 0 || cols == 0 || (ld as u64) < rows {
        return refuse(&format!(
            "a matrix of {rows} rows, {cols} columns, {ld} apart"
        ));
    }
    let made = Layout {
        dtype,
        rows,
        cols,
        ld,
        count: 1,
        offset: 0,
    };
    // SAFETY: as the interface says.
    unsafe { give(layout, made) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutDestroy(layout: *mut c_void) -> c_int {
    // SAFETY: as the interface says.
    unsafe { end::<Layout>(layout) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: *mut c_void,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: as the interface says.
    unsafe {
        let layout = &mut *layout.cast::<Layout>();
        match (
            attribute,
            read::<i32>(value, bytes),
            read::<i64>(value, bytes),
        ) {
            (5, Some(count), _) if count > 0 => layout.count = count,
            (6, _, Some(offset)) => layout.offset = offset,
            _ => return refuse(&format!("attribute {attribute} of a matrix")),
        }
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulPreferenceCreate(preference: *mut *mut c_void) -> c_int {
    // SAFETY: as the interface says.
    unsafe { give(preference, Preference::default()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulPreferenceDestroy(preference: *mut c_void) -> c_int {
    // SAFETY: as the interface says.
    unsafe { end::<Preference>(preference) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: *mut c_void,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: as the interface says.
    unsafe {
        let preference = &mut *preference.cast::<Preference>();
        match (
            attribute,
            read::<usize>(value, bytes),
            read::<u32>(value, bytes),
        ) {
            (1, Some(workspace), _) => preference.workspace = workspace,
            (5..=8, _, Some(alignment)) if alignment.is_power_of_two() => {
                preference.alignments[attribute as usize - 5] = alignment;
            }
            _ => return refuse(&format!("attribute {attribute} of a preference")),
        }
    }
    0
}

/// A proposal (`cublasLtMatmulHeuristicResult_t`).
#[repr(C)]
pub struct Proposal {
    algorithm: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    handle: *mut c_void,
    desc: *mut c_void,
    a: *mut c_void,
    b: *mut c_void,
    c: *mut c_void,
    d: *mut c_void,
    preference: *mut c_void,
    asked: c_int,
    proposals: *mut Proposal,
    got: *mut c_int,
) -> c_int {
    // SAFETY: as the interface says.
    unsafe {
        let [a, b, c, d] = [a, b, c, d].map(|layout| *layout.cast::<Layout>());
        let problem = match problem(*desc.cast::<Desc>(), a, b, c, d) {
            Ok(problem) if handle.addr() == HANDLE && asked == 1 => problem,
            Ok(_) => return refuse("the handle, or how many are asked for"),
            Err(why) => return refuse(&why),
        };
        let preference = *preference.cast::<Preference>();
        if preference.workspace < WORKSPACE || preference.alignments.contains(&0) {
            return refuse("the preference is not whole");
        }
        record(format!("propose {problem}"));
        if inner(&*desc.cast::<Desc>(), &a) == REFUSED_SIZE {
            *got = 0;
            return NOT_SUPPORTED;
        }
        *got = 1;
        *proposals = Proposal {
            algorithm: [7; 8],
            workspace: WORKSPACE,
            state: 0,
            waves: 1.0,
            reserved: [0; 4],
        };
    }
    0
}

/// The size that is summed over.
fn inner(desc: &Desc, a: &Layout) -> u64 {
    if desc.transposed[0] == 1 {
        a.rows
    } else {
        a.cols
    }
}

/// The problem as text, if its parts fit together.
fn problem(desc: Desc, a: Layout, b: Layout, c: Layout, d: Layout) -> Result<String, String> {
    let sizes = |layout: &Layout, op: c_int| match op {
        1 => (layout.cols, layout.rows),
        _ => (layout.rows, layout.cols),
    };
    let (m, k) = sizes(&a, desc.transposed[0]);
    let (k_of_b, n) = sizes(&b, desc.transposed[1]);
    if k != k_of_b || (d.rows, d.cols) != (m, n) || (c.rows, c.cols, c.ld) != (m, n, d.ld) {
        return Err(format!(
            "sizes {m} {k}, {k_of_b} {n}, {} {}",
            d.rows, d.cols
        ));
    }
    if [b.count, c.count, d.count] != [a.count; 3] || [b.dtype, c.dtype, d.dtype] != [a.dtype; 3] {
        return Err("batches or dtypes differ".to_owned());
    }
    if d.count > 1 && d.offset < d.ld * d.cols as i64 {
        return Err("results overlap".to_owned());
    }
    match (desc.compute, desc.scale, a.dtype) {
        (68 | 77, 0, 0) | (70, 1, 1) | (68, 0, 2 | 14) => {}
        other => return Err(format!("compute type, scale and dtype {other:?}")),
    }
    if (desc.epilogue == 4) != (desc.bias != 0) {
        return Err(
            "an epilogue without its operand, or an operand without its epilogue".to_owned(),
        );
    }
    let op = |op: c_int| if op == 1 { 'T' } else { 'N' };
    Ok(format!(
        "{}{} {m}x{n}x{k} ld {} {} {} batch {} compute {} dtype {} epilogue {}",
        op(desc.transposed[0]),
        op(desc.transposed[1]),
        a.ld,
        b.ld,
        d.ld,
        d.count,
        desc.compute,
        d.dtype,
        desc.epilogue
    ))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmul(
    handle: *mut c_void,
    desc: *mut c_void,
    alpha: *const c_void,
    a: u64,
    a_layout: *mut c_void,
    b: u64,
    b_layout: *mut c_void,
    beta: *const c_void,
    c: u64,
    c_layout: *mut c_void,
    d: u64,
    d_layout: *mut c_void,
    algorithm: *const [u64; 8],
    workspace: u64,
    workspace_bytes: usize,
    stream: *mut c_void,
) -> c_int {
    if let Some(status) = failure() {
        return status;
    }
    // SAFETY: as the interface says.
    let (desc, [a_layout, b_layout, c_layout, d_layout], algorithm) = unsafe {
        let layouts = [a_layout, b_layout, c_layout, d_layout];
        let layouts = layouts.map(|layout| *layout.cast::<Layout>());
        (*desc.cast::<Desc>(), layouts, *algorithm)
    };
    let text = match problem(desc, a_layout, b_layout, c_layout, d_layout) {
        Ok(text) => text,
        Err(why) => return refuse(&why),
    };
    // SAFETY: scalars are of the scale's type.
    let scalars = [alpha, beta].map(|scalar| unsafe {
        match desc.scale {
            1 => scalar.cast::<f64>().read(),
            _ => f64::from(scalar.cast::<f32>().read()),
        }
    });
    let whole = handle.addr() == HANDLE && algorithm == [7; 8] && scalars == [1.0, 0.0];
    if !whole || c != d || stream.is_null() || workspace == 0 || workspace_bytes != WORKSPACE {
        return refuse("handle, algorithm, scalars, result, stream or workspace");
    }
    record(format!("matmul {text}"));
    let Some((reading, writing)) = memory() else {
        return refuse("nobody gave access to device memory");
    };
    let fetch = |address: u64, layout: &Layout| {
        let within = (layout.cols as i64 - 1) * layout.ld + layout.rows as i64;
        let count = i64::from(layout.count - 1) * layout.offset + within;
        numbers(reading, address, layout.dtype, count as usize)
    };
    let (a_numbers, b_numbers) = (fetch(a, &a_layout), fetch(b, &b_layout));
    let bias = match desc.epilogue {
        4 => numbers(reading, desc.bias, d_layout.dtype, d_layout.rows as usize),
        _ => vec![0.0; d_layout.rows as usize],
    };
    let at = |layout: &Layout, op: c_int, matrix: i32, row: u64, col: u64| {
        let (row, col) = if op == 1 { (col, row) } else { (row, col) };
        (i64::from(matrix) * layout.offset + col as i64 * layout.ld + row as i64) as usize
    };
    let [a_op, b_op] = desc.transposed;
    for matrix in 0..d_layout.count {
        for col in 0..d_layout.cols {
            let column = (0..d_layout.rows).map(|row| {
                let terms = (0..inner(&desc, &a_layout)).map(|k| {
                    a_numbers[at(&a_layout, a_op, matrix, row, k)]
                        * b_numbers[at(&b_layout, b_op, matrix, k, col)]
                });
                terms.sum::<f64>() + bias[row as usize]
            });
            let mut bytes: Vec<u8> = column
                .flat_map(|number| encoded(d_layout.dtype, number))
                .collect();
            let place = at(&d_layout, 0, matrix, 0, col) * size(d_layout.dtype);
            writing(d + place as u64, bytes.as_mut_ptr(), bytes.len());
        }
    }
    0
}
