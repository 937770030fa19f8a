//! Random fills against the definition of each element, for several lengths and numbers of threads.

use fireclay_core::philox::PhiloxStream;
use fireclay_cpu::parallel::set_threads;
use fireclay_cpu::random::*;

const SEED: u64 = 0x1234_5678_9abc_def0;
const OFFSET: u64 = 77 << 31;

fn check<T: Copy + Default + PartialEq + std::fmt::Debug>(
    fill: impl Fn(&mut [T]),
    element: impl Fn(&PhiloxStream, u64) -> T,
) {
    let stream = PhiloxStream::new(SEED, OFFSET);
    for threads in [1, 3] {
        set_threads(threads);
        for len in [0, 1, 5, 1023, 1025, 70_001] {
            let mut out = vec![T::default(); len];
            fill(&mut out);
            for (i, &value) in out.iter().enumerate() {
                assert_eq!(value, element(&stream, i as u64), "element {i} of {len}");
            }
        }
    }
}

#[test]
fn fills_give_the_elements_by_definition() {
    check(
        |out| fill_uniform_f32(out, SEED, OFFSET, -1.0, 2.0),
        |s, i| s.uniform_f32(i) * 3.0 - 1.0,
    );
    check(
        |out| fill_uniform_f64(out, SEED, OFFSET, 0.0, 1.0),
        |s, i| s.uniform_f64(i),
    );
    check(
        |out| fill_normal_f32(out, SEED, OFFSET, 1.0, 0.5),
        |s, i| s.normal_f32(i) * 0.5 + 1.0,
    );
    check(
        |out| fill_normal_f64(out, SEED, OFFSET, 0.0, 2.0),
        |s, i| s.normal_f64(i) * 2.0,
    );
    check(
        |out| fill_integers(out, SEED, OFFSET, -5, 12),
        |s, i| s.bounded(i, 17) as i64 - 5,
    );
    check(
        |out| fill_bernoulli_u8(out, SEED, OFFSET, 0.3),
        |s, i| (s.uniform_f32(i) < 0.3) as u8,
    );
    check(
        |out| fill_bernoulli_f32(out, SEED, OFFSET, 0.7),
        |s, i| (s.uniform_f32(i) < 0.7) as u8 as f32,
    );
}

#[test]
fn integers_span_the_whole_range() {
    let mut out = [0; 1000];
    fill_integers(&mut out, 1, 0, i64::MIN, i64::MAX);
    assert!(out.iter().any(|&x| x < i64::MIN / 2) && out.iter().any(|&x| x > i64::MAX / 2));
    fill_integers(&mut out, 1, 0, 3, 4);
    assert_eq!(out, [3; 1000]);
}

#[test]
fn a_permutation_has_every_number_once_and_is_repeatable() {
    for len in [0, 1, 2, 1000] {
        let mut first = vec![0; len];
        fill_permutation(&mut first, SEED, 4);
        let mut second = first.clone();
        fill_permutation(&mut second, SEED, 4);
        assert_eq!(first, second);
        second.sort_unstable();
        assert_eq!(second, (0..len as i64).collect::<Vec<_>>());
    }
    let (mut first, mut second) = ([0; 100], [0; 100]);
    fill_permutation(&mut first, SEED, 4);
    fill_permutation(&mut second, SEED, 5);
    assert_ne!(first, second);
}
