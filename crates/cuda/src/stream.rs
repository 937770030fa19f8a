//! `Stream`: a queue of work on one device.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::CUstream;
use fireclay_core::Result;

use crate::event::Event;
use crate::gpu::Gpu;
use crate::sync::{self, Reason};

/// Work does not wait for the legacy default stream of other libraries.
const NON_BLOCKING: u32 = 1;

/// A queue of work on one device: what is put into it runs in order. Clones are the same queue; it ends with the last of
/// them, once its work is done.
#[derive(Clone)]
pub struct Stream {
    queue: Arc<Queue>,
}

struct Queue {
    gpu: &'static Gpu,
    handle: CUstream,
    id: u64,
}

// SAFETY: the driver lets every thread use a stream.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Stream {
    /// A new stream.
    ///
    /// # Errors
    /// If the driver can't make one.
    pub fn new(gpu: &'static Gpu) -> Result<Stream> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let driver = gpu.bound()?;
        let mut handle: CUstream = std::ptr::null_mut();
        // SAFETY: one handle is written; the context is current.
        unsafe { driver.stream_create(&mut handle, NON_BLOCKING, 0) }
            .map_err(|error| gpu.failed(&error))?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Stream {
            queue: Arc::new(Queue { gpu, handle, id }),
        })
    }

    /// Its device.
    pub fn gpu(&self) -> &'static Gpu {
        self.queue.gpu
    }

    /// Its number, which no other stream of the process has.
    pub fn id(&self) -> u64 {
        self.queue.id
    }

    pub(crate) fn handle(&self) -> CUstream {
        self.queue.handle
    }

    /// Waits until all of its work so far is done.
    ///
    /// # Errors
    /// If the work failed.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let gpu = self.gpu();
        let driver = gpu.bound()?;
        sync::note(Reason::Synchronize, 0);
        // SAFETY: the stream is alive and of this context.
        unsafe { driver.stream_synchronize(self.handle()) }.map_err(|error| gpu.failed(&error))?;
        gpu.raised()
    }

    /// A mark behind all of its work so far.
    pub(crate) fn mark(&self) -> Result<Event> {
        let event = Event::new(self.gpu(), false)?;
        event.record(self)?;
        Ok(event)
    }

    /// Makes its later work wait for what `event` has marked, on the device, without stopping the host.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let gpu = self.gpu();
        let driver = gpu.bound()?;
        // SAFETY: both handles are alive; an event of another device is allowed.
        unsafe { driver.stream_wait_event(self.handle(), event.handle(), 0) }
            .map_err(|error| gpu.failed(&error))
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} on {})", self.id(), self.gpu().device())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // An error of earlier work was or will be reported by another call; the queue goes either way.
        if let Ok(driver) = self.gpu.bound() {
            // SAFETY: the handle is this queue's own and used no more.
            let _ = unsafe { driver.stream_destroy(self.handle) };
        }
    }
}
