//! `Epoch`: the batches of one epoch, as an iterator.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use fireclay_core::{Error, LoaderState, Result, ThreadDevices};

use super::queue::Queue;

/// Makes the batch of a number; None once the flag is set.
pub(super) type Make<B> = Arc<dyn Fn(usize, &AtomicBool) -> Option<Result<B>> + Send + Sync>;

/// The batches of one epoch, in order. An error ends it. Dropping it ends its workers: each finishes the sample it is
/// at, no more.
pub struct Epoch<B> {
    /// What to hand out next.
    state: LoaderState,
    /// The number of batches.
    end: usize,
    producer: Producer<B>,
}

enum Producer<B> {
    /// Batches are made when they are asked for.
    Inline(Make<B>),
    Workers {
        queue: Arc<Queue<B>>,
        threads: Vec<JoinHandle<()>>,
    },
    /// The workers could not be started.
    Failed(Option<Error>),
}

impl<B: Send + 'static> Epoch<B> {
    pub(super) fn start(
        make: Make<B>,
        state: LoaderState,
        end: usize,
        workers: usize,
        prefetch: usize,
    ) -> Epoch<B> {
        let left = end - state.batch.min(end);
        let producer = match workers.min(left) {
            0 => Producer::Inline(make),
            workers => {
                let ahead = workers.saturating_mul(prefetch);
                Producer::start(make, Queue::new(state.batch, end, ahead), workers)
            }
        };
        Epoch {
            state,
            end,
            producer,
        }
    }
}

impl<B: Send + 'static> Producer<B> {
    fn start(make: Make<B>, queue: Queue<B>, workers: usize) -> Producer<B> {
        let queue = Arc::new(queue);
        let mut threads = Vec::with_capacity(workers);
        // See Note [Default device].
        let devices = ThreadDevices::here();
        for number in 0..workers {
            let (make, shared) = (make.clone(), queue.clone());
            let thread = thread::Builder::new()
                .name(format!("loader {number}"))
                .spawn(move || devices.within(|| shared.work(&*make)));
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stop(&queue, &mut threads);
                    let what =
                        format!("worker thread {number} of {workers} cannot be started: {error}");
                    let error = Error::argument("DataLoader", what)
                        .with_hint("ask for fewer workers, or raise the limit on threads");
                    return Producer::Failed(Some(error));
                }
            }
        }
        Producer::Workers { queue, threads }
    }
}

impl<B> Epoch<B> {
    /// Where the epoch stands: give it to [`DataLoader::resume`](super::DataLoader::resume) for the batches that have not
    /// been handed out.
    pub fn state(&self) -> LoaderState {
        self.state
    }

    /// How many batches are left, unless an error comes.
    pub fn remaining(&self) -> usize {
        // A sampler may have given fewer indices than it said, and the epoch be resumed beyond them.
        self.end.saturating_sub(self.state.batch)
    }
}

impl<B> Iterator for Epoch<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        if self.state.batch >= self.end {
            return None;
        }
        let number = self.state.batch;
        let batch = match &mut self.producer {
            Producer::Inline(make) => make(number, &AtomicBool::new(false)),
            Producer::Workers { queue, .. } => queue.take(number),
            Producer::Failed(error) => error.take().map(Err),
        }?;
        match batch {
            Ok(_) => self.state.batch += 1,
            // The state stays at the batch that failed; the epoch is over.
            Err(_) => self.end = number,
        }
        Some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.remaining()))
    }
}

impl<B> std::iter::FusedIterator for Epoch<B> {}

impl<B> Drop for Epoch<B> {
    fn drop(&mut self) {
        if let Producer::Workers { queue, threads } = &mut self.producer {
            stop(queue, threads);
        }
    }
}

fn stop<B>(queue: &Queue<B>, threads: &mut Vec<JoinHandle<()>>) {
    queue.stop();
    for thread in threads.drain(..) {
        // A worker catches the panics of the user's code; if it died all the same, it is gone, which is what is wanted.
        let _ = thread.join();
    }
}
