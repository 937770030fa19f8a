//! Special registers whose values stay the same for a warp, filled into a frame when it is made.

use super::code::Code;
use super::core::Core;
use super::lanes::WARP;
use crate::ptx::ast::Special;

/// Writes the special registers that `code` uses.
///
/// # Safety
/// `registers` is a frame of `code`.
pub(crate) unsafe fn fill(core: &Core<'_>, code: &Code, registers: *mut u8) {
    for &(special, slot) in &code.specials {
        // SAFETY: the decoder gave it a slot of 32 lanes.
        let lanes = unsafe { &mut *registers.add(slot as usize).cast::<[u32; WARP]>() };
        match special {
            Special::Tid(index) => {
                let [columns, rows, _] = core.launch.threads;
                let mut thread = core.thread(0);
                for value in lanes {
                    *value = thread.get(index as usize).copied().unwrap_or(0);
                    thread[0] += 1;
                    if thread[0] == columns {
                        thread[0] = 0;
                        thread[1] += 1;
                        if thread[1] == rows {
                            thread[1] = 0;
                            thread[2] += 1;
                        }
                    }
                }
            }
            Special::Laneid
            | Special::LanemaskEq
            | Special::LanemaskLt
            | Special::LanemaskLe
            | Special::LanemaskGt
            | Special::LanemaskGe => {
                for (lane, value) in lanes.iter_mut().enumerate() {
                    *value = value_of(core, special, lane);
                }
            }
            // The same in all lanes.
            _ => *lanes = [value_of(core, special, 0); WARP],
        }
    }
}

fn value_of(core: &Core<'_>, special: Special, lane: usize) -> u32 {
    let launch = core.launch;
    let threads: u32 = launch.threads.iter().product();
    let component = |values: [u32; 3], index: u8| values.get(index as usize).copied().unwrap_or(0);
    let bit = 1u32 << lane;
    match special {
        Special::Tid(index) => component(core.thread(lane), index),
        Special::Ntid(index) => component(launch.threads, index),
        Special::Ctaid(index) => component(core.block, index),
        Special::Nctaid(index) => component(launch.grid, index),
        Special::Laneid => lane as u32,
        Special::Warpid => core.warp.index,
        Special::Nwarpid => threads.div_ceil(32),
        Special::Smid => {
            let [x, y, _] = launch.grid.map(u64::from);
            let [column, row, layer] = core.block.map(u64::from);
            let number = column + x * (row + y * layer);
            (number % u64::from(launch.options.multiprocessors)) as u32
        }
        Special::Nsmid => launch.options.multiprocessors,
        Special::LanemaskEq => bit,
        Special::LanemaskLt => bit - 1,
        Special::LanemaskLe => bit - 1 | bit,
        Special::LanemaskGt => !(bit - 1 | bit),
        Special::LanemaskGe => !(bit - 1),
        Special::DynamicSharedSize => launch.dynamic_shared,
        Special::TotalSharedSize => core
            .shared_bytes
            .next_multiple_of(launch.options.shared_unit),
        Special::WarpSize => WARP as u32,
        // PTX leaves these to the driver: the first two are the address of a cooperative launch's workspace.
        Special::Env(1) => (launch.grid_workspace >> 32) as u32,
        Special::Env(2) => launch.grid_workspace as u32,
        // Those that change while the kernel runs, or are wider, have instructions of their own.
        Special::Gridid
        | Special::Clock
        | Special::ClockHi
        | Special::Clock64
        | Special::GlobalTimer
        | Special::GlobalTimerLo
        | Special::GlobalTimerHi
        | Special::Env(_) => 0,
    }
}
