//! Random programs over streams and events against a plain model, and the same with one wait forgotten.

use virtual_gpu::machine::{Checks, Settings, Streams};

use crate::api::{self, ok};
use crate::gpu::{Buffer, Gpu, Handle, Schedule, arguments, code, pointers};
use crate::streams::stream;
use crate::{null, ptx, settings};

/// Numbers that look random.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) % bound as u64) as usize
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Legacy,
    Blocking,
    Free,
}

/// A random program over streams, ordered by events wherever two of its commands touch the same cell in streams that
/// are not ordered by themselves; `forget` leaves the so-manieth of these waits out. Gives the cells, what a plain
/// model has for them, and how many waits there were.
struct Program {
    cells: Vec<u32>,
    expected: Vec<u32>,
    waits: usize,
    failed: Option<u32>,
    log: Vec<String>,
}

fn random_program(seed: u64, streams: Streams, races: bool, forget: Option<usize>) -> Program {
    const CELLS: usize = 5;
    let settings = Settings {
        streams,
        seed: Some(seed),
        workers: 1,
        devices: 1,
        checks: Checks {
            stream_races: races,
            ..Checks::default()
        },
        ..settings()
    };
    let gpu = Gpu::with(Schedule::Seeded(seed), settings);
    let module = gpu.module(ptx::SMALL);
    let step = gpu.function(&module, "step");
    let cells: Vec<Buffer<u32>> = (0..CELLS).map(|_| gpu.zeros(1)).collect();
    ok(api::cuCtxSynchronize());
    let made = [
        (null(), Kind::Legacy),
        (2 as Handle, Kind::Blocking),
        (stream(0), Kind::Blocking),
        (stream(1), Kind::Free),
        (stream(1), Kind::Free),
    ];
    let mut model = [0u32; CELLS];
    // Of each cell, the stream that wrote last, and those that read since.
    let mut touched: Vec<Vec<usize>> = vec![Vec::new(); CELLS];
    let mut random = Random(seed.wrapping_mul(77) + 1);
    let (mut waits, mut events) = (0, Vec::new());
    let mut failed = None;
    'program: for number in 0..40u32 {
        let target = random.below(made.len());
        let (cell, other) = (random.below(CELLS), random.below(CELLS));
        let copies = random.below(4);
        let uses: &[usize] = if copies == 0 { &[cell, other] } else { &[cell] };
        for &used in uses {
            for &earlier in &touched[used].clone() {
                let (a, b) = (made[earlier].1, made[target].1);
                let pair = [a, b];
                let by_default = pair.contains(&Kind::Legacy) && pair.contains(&Kind::Blocking);
                if earlier == target || by_default {
                    continue;
                }
                waits += 1;
                if forget == Some(waits) {
                    continue;
                }
                let code = order(made[earlier].0, made[target].0, &mut events);
                if code != 0 {
                    failed = Some(code);
                    break 'program;
                }
            }
            touched[used] = vec![target];
        }
        let at = cells[cell].address;
        let code = match copies {
            0 => {
                model[cell] = model[other];
                api::cuMemcpyDtoDAsync_v2(at, cells[other].address, 4, made[target].0)
            }
            1 => {
                model[cell] = number;
                api::cuMemsetD32Async(at, number, 1, made[target].0)
            }
            _ => {
                model[cell] = model[cell].wrapping_mul(31).wrapping_add(number);
                let given = arguments![at, number];
                let mut params = pointers(given);
                api::cuLaunchKernel(
                    step,
                    1,
                    1,
                    1,
                    1,
                    1,
                    1,
                    0,
                    made[target].0,
                    params.as_mut_ptr(),
                    null(),
                )
            }
        };
        if code != 0 {
            failed = Some(code);
            break;
        }
        if random.below(12) == 0 && !events.is_empty() {
            let done = events[random.below(events.len())];
            failed = Some(api::cuEventSynchronize(done)).filter(|code| *code != 0);
            if failed.is_some() {
                break;
            }
        }
    }
    let failed = failed.or(gpu.synchronize().err());
    let download = |cell: &Buffer<u32>| gpu.download(cell)[0];
    Program {
        cells: if failed.is_none() {
            cells.iter().map(download).collect()
        } else {
            Vec::new()
        },
        expected: model.to_vec(),
        waits,
        failed,
        log: gpu.machine.log_lines(),
    }
}

/// Lets one stream wait for what another has now; the code of the first call that fails.
fn order(earlier: Handle, later: Handle, events: &mut Vec<Handle>) -> u32 {
    let mut done = null();
    for code in [
        api::cuEventCreate(&mut done, 2),
        api::cuEventRecord(done, earlier),
        api::cuStreamWaitEvent(later, done, 0),
    ] {
        if code != 0 {
            return code;
        }
    }
    events.push(done);
    0
}

#[test]
fn random_programs_that_wait_for_events_give_what_a_plain_model_gives() {
    for seed in 0..150 {
        for (streams, races) in [
            (Streams::Deferred, false),
            (Streams::Deferred, true),
            (Streams::Eager, true),
        ] {
            let program = random_program(seed, streams, races, None);
            assert_eq!(program.failed, None, "seed {seed}: {:?}", program.log);
            assert_eq!(program.cells, program.expected, "seed {seed}, {streams:?}");
        }
    }
}

#[test]
fn a_forgotten_wait_is_found_as_a_race_and_changes_results() {
    let (mut found, mut wrong, mut tried) = (0, 0, 0);
    for seed in 0..40 {
        let whole = random_program(seed, Streams::Deferred, true, None);
        for forgotten in 1..=whole.waits.min(3) {
            tried += 1;
            let broken = random_program(seed, Streams::Deferred, true, Some(forgotten));
            if broken.failed == Some(code::LAUNCH_FAILED) {
                assert!(
                    broken.log.iter().any(|line| line.contains("race")),
                    "{:?}",
                    broken.log
                );
                found += 1;
            }
            let unchecked = random_program(seed, Streams::Deferred, false, Some(forgotten));
            wrong += u32::from(unchecked.cells != unchecked.expected);
        }
    }
    // Another path of events may order the two commands all the same, so not every one is a race.
    assert!(found * 2 > tried, "{found} of {tried} found");
    assert!(wrong > 5, "{wrong} of {tried} gave another result");
}
