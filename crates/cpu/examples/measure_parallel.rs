//! Measures what a fork-join costs: tasks that do nothing, and tasks of 20 us in all, by idle time before the call.

use fireclay_cpu::parallel::{run, set_threads};
use std::hint::black_box;
use std::time::{Duration, Instant};

fn busy(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

#[expect(clippy::print_stdout, reason = "a measurement prints its result")]
fn measure(name: &str, run: impl Fn(usize, &(dyn Fn(usize) + Sync))) {
    for tasks in [2, 16] {
        for work in [0, 100] {
            let mut line = format!("{name}: {tasks:>2} tasks of {work:>3} us in all:");
            for gap in [0, 50, 500] {
                let mut times: Vec<f64> = (0..1000)
                    .map(|_| {
                        busy(Duration::from_micros(gap));
                        let start = Instant::now();
                        run(tasks, &|task| {
                            black_box(task);
                            busy(Duration::from_nanos(work * 1000 / tasks as u64));
                        });
                        start.elapsed().as_secs_f64() * 1e6
                    })
                    .collect();
                times.sort_by(f64::total_cmp);
                line += &format!(
                    "  gap {gap:>3}: {:>6.1} us (p90 {:>6.1})",
                    times[500], times[900]
                );
            }
            println!("{line}");
        }
    }
}

fn main() {
    set_threads(2);
    measure("own  ", |tasks, task| run(tasks, task));
}
