//! placeholder until branch memory is merged
/// x
pub fn fold<T: Copy>(
    x: &[T],
    outer: usize,
    reduce: usize,
    inner: usize,
    out: &mut [T],
    first: T,
    f: impl Fn(T, T) -> T,
) {
    for o in 0..outer {
        for i in 0..inner {
            let mut acc = first;
            for r in 0..reduce {
                acc = f(acc, x[(o * reduce + r) * inner + i]);
            }
            out[o * inner + i] = acc;
        }
    }
}
