//! The caching policy against a simple model: random requests, frees, releases and growth.

use fireclay_core::caching::{
    Block, BlockState, CachingConfig, CachingPolicy, Pool, Statistic, Statistics,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum Step {
    Allocate { bytes: u64, stream: u64 },
    Free { which: usize },
    Retire { which: usize },
    Grow { which: usize },
    Shrink { which: usize },
    Release,
    ResetPeak,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![0..4 * KIB, 4 * KIB..2 * MIB, 2 * MIB..40 * MIB];
    prop_oneof![
        10 => (bytes, 0..2_u64).prop_map(|(bytes, stream)| Step::Allocate { bytes, stream }),
        8 => any::<usize>().prop_map(|which| Step::Free { which }),
        1 => any::<usize>().prop_map(|which| Step::Retire { which }),
        1 => any::<usize>().prop_map(|which| Step::Grow { which }),
        1 => any::<usize>().prop_map(|which| Step::Shrink { which }),
        1 => Just(Step::Release),
        1 => Just(Step::ResetPeak),
    ]
}

/// An allocated block, and what the model knows of it.
struct Held {
    block: Block,
    requested: u64,
    pool: Pool,
    stream: u64,
    retired: bool,
}

/// Current values and peaks, counted anew from the list of blocks after every step.
#[derive(Default)]
struct Model {
    held: Vec<Held>,
    segments: BTreeMap<u64, (u64, Pool, u64)>,
    peaks: BTreeMap<&'static str, u64>,
    next_addr: u64,
}

impl Model {
    fn sum(&self, value: impl Fn(&Held) -> u64) -> u64 {
        self.held.iter().map(value).sum()
    }

    fn current(&self, pool: Pool) -> [u64; 6] {
        let of = |held: &Held, value: u64| if held.pool == pool { value } else { 0 };
        [
            self.sum(|held| of(held, !held.retired as u64)),
            self.sum(|held| of(held, 1)),
            self.sum(|held| of(held, if held.retired { 0 } else { held.block.bytes() })),
            self.sum(|held| of(held, held.block.bytes())),
            self.sum(|held| of(held, if held.retired { 0 } else { held.requested })),
            self.segments
                .values()
                .filter(|segment| segment.1 == pool)
                .map(|segment| segment.0)
                .sum(),
        ]
    }
}

fn current_of(
    statistics: &Statistics,
    pick: impl Fn(&fireclay_core::caching::PoolStatistics) -> Statistic,
) -> [u64; 6] {
    [
        pick(&statistics.allocation).current,
        pick(&statistics.active).current,
        pick(&statistics.allocated_bytes).current,
        pick(&statistics.active_bytes).current,
        pick(&statistics.requested_bytes).current,
        pick(&statistics.reserved_bytes).current,
    ]
}

fn check(policy: &CachingPolicy, model: &mut Model) -> Result<(), TestCaseError> {
    let statistics = policy.statistics();
    prop_assert_eq!(
        current_of(statistics, |pools| pools.small_pool),
        model.current(Pool::Small)
    );
    prop_assert_eq!(
        current_of(statistics, |pools| pools.large_pool),
        model.current(Pool::Large)
    );
    for (key, statistic) in [
        ("allocated", statistics.allocated_bytes.all),
        ("reserved", statistics.reserved_bytes.all),
        ("active", statistics.active.all),
    ] {
        let peak = model.peaks.entry(key).or_default();
        *peak = (*peak).max(statistic.current);
        prop_assert_eq!(statistic.peak, *peak, "peak of {}", key);
        prop_assert_eq!(statistic.allocated - statistic.freed, statistic.current);
    }

    let snapshot = policy.snapshot();
    prop_assert_eq!(snapshot.len(), model.segments.len());
    prop_assert_eq!(statistics.segment.all.current, snapshot.len() as u64);
    let mut in_use = BTreeMap::new();
    let (mut split_count, mut split_bytes, mut largest) = (0, 0, [0; 2]);
    for (segment, (&addr, &(bytes, pool, stream))) in snapshot.iter().zip(&model.segments) {
        prop_assert_eq!(
            (
                segment.segment.addr,
                segment.segment.bytes,
                segment.segment.pool,
                segment.segment.stream
            ),
            (addr, bytes, pool, stream)
        );
        // The blocks cover the segment without gap or overlap, and no two neighbours are free.
        let mut end = addr;
        let mut previous = None;
        for block in &segment.blocks {
            prop_assert_eq!(block.addr, end);
            prop_assert!(block.bytes > 0 && block.bytes.is_multiple_of(512));
            prop_assert!(!(previous == Some(BlockState::Free) && block.state == BlockState::Free));
            previous = Some(block.state);
            end += block.bytes;
            if block.state == BlockState::Free {
                largest[stream as usize] = block.bytes.max(largest[stream as usize]);
                if segment.blocks.len() > 1 {
                    split_count += 1;
                    split_bytes += block.bytes;
                }
            } else {
                in_use.insert(
                    block.addr,
                    (
                        block.bytes,
                        pool,
                        stream,
                        block.state == BlockState::Waiting,
                    ),
                );
            }
        }
        prop_assert_eq!(end, addr + bytes);
    }
    prop_assert_eq!(statistics.inactive_split.all.current, split_count);
    prop_assert_eq!(statistics.inactive_split_bytes.all.current, split_bytes);
    prop_assert_eq!([policy.largest_free(0), policy.largest_free(1)], largest);

    let held: BTreeMap<_, _> = model
        .held
        .iter()
        .map(|held| {
            (
                held.block.addr(),
                (held.block.bytes(), held.pool, held.stream, held.retired),
            )
        })
        .collect();
    prop_assert_eq!(in_use, held);
    Ok(())
}

fn run(policy: &mut CachingPolicy, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut model = Model {
        next_addr: MIB,
        ..Model::default()
    };
    for step in steps {
        match step {
            Step::Allocate { bytes, stream } => {
                let size = policy.config().round(bytes).unwrap();
                let pool = policy.config().pool(size);
                let block = match policy.allocate(bytes, stream) {
                    Some(block) => block,
                    None => {
                        let segment = policy.config().segment_bytes(bytes).unwrap();
                        policy.add_segment(model.next_addr, segment, pool, stream);
                        model
                            .segments
                            .insert(model.next_addr, (segment, pool, stream));
                        model.next_addr += segment + 64 * MIB;
                        policy
                            .allocate(bytes, stream)
                            .expect("the new segment serves it")
                    }
                };
                prop_assert!(block.bytes() >= bytes.max(1) && block.addr().is_multiple_of(512));
                prop_assert!(pool == Pool::Large || block.bytes() == size);
                model.held.push(Held {
                    block,
                    requested: bytes,
                    pool,
                    stream,
                    retired: false,
                });
            }
            Step::Free { which } if !model.held.is_empty() => {
                let which = which % model.held.len();
                policy.free(model.held.swap_remove(which).block);
            }
            Step::Retire { which } if !model.held.is_empty() => {
                let which = which % model.held.len();
                let held = &mut model.held[which];
                if !held.retired {
                    policy.retire(&held.block);
                    held.retired = true;
                }
            }
            Step::Grow { which } if !model.segments.is_empty() => {
                let which = which % model.segments.len();
                let (&addr, segment) = model.segments.iter_mut().nth(which).unwrap();
                if segment.0 < 60 * MIB {
                    prop_assert!(policy.grow_segment(addr, MIB));
                    segment.0 += MIB;
                }
                prop_assert!(!policy.grow_segment(addr + 1, MIB));
            }
            Step::Shrink { which } if !model.segments.is_empty() => {
                let which = which % model.segments.len();
                let (&addr, segment) = model.segments.iter_mut().nth(which).unwrap();
                let end = model
                    .held
                    .iter()
                    .map(|held| held.block.addr() + held.block.bytes())
                    .filter(|end| (addr + 1..=addr + segment.0).contains(end))
                    .max();
                let free = addr + segment.0 - end.unwrap_or(addr);
                prop_assert_eq!(policy.free_tail(addr), Some(free));
                let bytes = MIB.min(free);
                if bytes > 0 && bytes < segment.0 {
                    prop_assert!(!policy.shrink_segment(addr, free + 512));
                    prop_assert!(policy.shrink_segment(addr, bytes));
                    segment.0 -= bytes;
                } else {
                    prop_assert!(!policy.shrink_segment(addr, segment.0));
                }
                prop_assert_eq!(policy.free_tail(addr + 1), None);
            }
            Step::Release => {
                let unused = |&addr: &u64, bytes: u64| {
                    !model
                        .held
                        .iter()
                        .any(|held| (addr..addr + bytes).contains(&held.block.addr()))
                };
                let expected: Vec<u64> = model
                    .segments
                    .iter()
                    .filter(|(addr, segment)| unused(addr, segment.0))
                    .map(|(&addr, _)| addr)
                    .collect();
                let released: Vec<u64> = policy
                    .release_unused()
                    .iter()
                    .map(|segment| segment.addr)
                    .collect();
                prop_assert_eq!(&released, &expected);
                model.segments.retain(|addr, _| !released.contains(addr));
            }
            Step::ResetPeak => {
                policy.reset_peak();
                model.peaks.clear();
            }
            _ => {}
        }
        check(policy, &mut model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn policy_agrees_with_a_simple_model(steps in prop::collection::vec(step(), 1..120)) {
        run(&mut CachingPolicy::new(CachingConfig::default()), steps)?;
    }
}

fn policy_with(pool: Pool, bytes: u64) -> CachingPolicy {
    let mut policy = CachingPolicy::default();
    policy.add_segment(MIB, bytes, pool, 0);
    policy
}

#[test]
fn segments_have_pytorchs_sizes() {
    let config = CachingConfig::default();
    assert_eq!(config.segment_bytes(1), Some(2 * MIB));
    assert_eq!(config.segment_bytes(MIB), Some(2 * MIB));
    assert_eq!(config.segment_bytes(MIB + 1), Some(20 * MIB));
    assert_eq!(config.segment_bytes(10 * MIB - 512), Some(20 * MIB));
    assert_eq!(config.segment_bytes(10 * MIB), Some(10 * MIB));
    assert_eq!(config.segment_bytes(11 * MIB - 1), Some(12 * MIB));
    assert_eq!(config.segment_bytes(u64::MAX), None);
}

#[test]
fn the_smallest_block_that_fits_is_taken() {
    let mut policy = policy_with(Pool::Small, 2 * MIB);
    let blocks: Vec<Block> = (0..6)
        .map(|i| policy.allocate(512 * (i % 3 + 1), 0).unwrap())
        .collect();
    let addrs: Vec<u64> = blocks.iter().map(Block::addr).collect();
    for (i, block) in blocks.into_iter().enumerate() {
        if [1, 2, 4].contains(&i) {
            policy.free(block);
        }
    }
    // Free are 1 and 2 as one block of 2560 bytes, 4 with 1024 bytes, and the tail.
    assert_eq!(policy.allocate(600, 0).unwrap().addr(), addrs[4]);
    assert_eq!(policy.allocate(2560, 0).unwrap().addr(), addrs[1]);
}

#[test]
fn streams_and_pools_do_not_share() {
    let mut policy = policy_with(Pool::Small, 2 * MIB);
    assert!(policy.allocate(512, 1).is_none());
    assert!(policy.allocate(2 * MIB, 0).is_none());
    assert!(policy.allocate(512, 0).is_some());
}

#[test]
fn a_large_block_keeps_a_rest_of_up_to_a_mebibyte() {
    let mut policy = policy_with(Pool::Large, 20 * MIB);
    let block = policy.allocate(19 * MIB, 0).unwrap();
    assert_eq!(block.bytes(), 20 * MIB);
    policy.free(block);
    assert_eq!(
        policy.allocate(19 * MIB - 512, 0).unwrap().bytes(),
        19 * MIB - 512
    );
}

#[test]
fn an_oversize_block_is_neither_split_nor_given_to_a_small_request() {
    let mut policy = CachingPolicy::new(CachingConfig {
        max_split: 64 * MIB,
        ..CachingConfig::default()
    });
    policy.add_segment(MIB, 100 * MIB, Pool::Large, 0);
    assert!(policy.allocate(32 * MIB, 0).is_none());
    assert!(policy.allocate(70 * MIB, 0).is_none(), "30 MiB too large");
    assert_eq!(policy.allocate(90 * MIB, 0).unwrap().bytes(), 100 * MIB);
}

#[test]
fn statistics_have_pytorchs_keys() {
    let mut policy = policy_with(Pool::Small, 2 * MIB);
    let block = policy.allocate(700, 0).unwrap();
    policy.count_out_of_memory();
    let entries: BTreeMap<String, u64> = policy.statistics().entries().into_iter().collect();
    assert_eq!(entries.len(), 9 * 3 * 4 + 2);
    assert_eq!(entries["allocation.small_pool.current"], 1);
    assert_eq!(entries["requested_bytes.all.peak"], 700);
    assert_eq!(entries["allocated_bytes.all.current"], 1024);
    assert_eq!(
        entries["inactive_split_bytes.small_pool.current"],
        2 * MIB - 1024
    );
    assert_eq!(entries["num_ooms"], 1);
    policy.free(block);
    policy.reset_peak();
    policy.reset_accumulated();
    assert_eq!(
        policy.statistics().allocated_bytes.all,
        Statistic::default()
    );
    assert_eq!(policy.statistics().num_ooms, 0);
}

#[test]
#[should_panic(expected = "freed twice")]
fn a_block_of_another_policy_is_refused() {
    let block = policy_with(Pool::Small, 2 * MIB).allocate(512, 0).unwrap();
    policy_with(Pool::Small, 2 * MIB).free(block);
}
