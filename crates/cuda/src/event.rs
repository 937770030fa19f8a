//! `Event`: a mark in a stream's work.

use std::fmt;

use cudarc::driver::sys::CUevent;
use fireclay_core::Result;

use crate::driver::code;
use crate::gpu::Gpu;
use crate::stream::Stream;
use crate::sync::{self, Reason};

const DISABLE_TIMING: u32 = 2;

/// A mark in a stream's work, to be waited for or to measure time with.
pub struct Event {
    gpu: &'static Gpu,
    handle: CUevent,
}

// SAFETY: the driver lets every thread use an event.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// A new event that marks nothing yet; with `timing` it can measure time.
    ///
    /// # Errors
    /// If the driver can't make one.
    pub fn new(gpu: &'static Gpu, timing: bool) -> Result<Event> {
        let driver = gpu.bound()?;
        let mut handle: CUevent = std::ptr::null_mut();
        let flags = if timing { 0 } else { DISABLE_TIMING };
        // SAFETY: one handle is written; the context is current.
        unsafe { driver.event_create(&mut handle, flags) }.map_err(|error| gpu.failed(&error))?;
        Ok(Event { gpu, handle })
    }

    pub(crate) fn handle(&self) -> CUevent {
        self.handle
    }

    /// Marks all work that `stream` has so far.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let driver = self.gpu.bound()?;
        // SAFETY: both handles are alive.
        unsafe { driver.event_record(self.handle, stream.handle()) }
            .map_err(|error| self.gpu.failed(&error))
    }

    /// Whether the marked work is done.
    ///
    /// # Errors
    /// If it failed.
    pub fn is_done(&self) -> Result<bool> {
        let driver = self.gpu.bound()?;
        // SAFETY: the handle is alive.
        match unsafe { driver.event_query(self.handle) } {
            Ok(()) => Ok(true),
            Err(error) if error.code == code::NOT_READY => Ok(false),
            Err(error) => Err(self.gpu.failed(&error)),
        }
    }

    /// Waits for the marked work.
    ///
    /// # Errors
    /// If it failed.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        sync::note(Reason::Event, 0);
        self.wait_quietly()?;
        self.gpu.raised()
    }

    /// As [`synchronize`](Event::synchronize), where the caller has told the gate already.
    pub(crate) fn wait_quietly(&self) -> Result<()> {
        let driver = self.gpu.bound()?;
        // SAFETY: the handle is alive.
        unsafe { driver.event_synchronize(self.handle) }.map_err(|error| self.gpu.failed(&error))
    }

    /// Milliseconds from `earlier` to this event; both must have been made with timing and be done.
    ///
    /// # Errors
    /// If one of them is not.
    pub fn elapsed_since(&self, earlier: &Event) -> Result<f32> {
        let driver = self.gpu.bound()?;
        let mut milliseconds = 0.0;
        // SAFETY: both handles are alive; one number is written.
        unsafe { driver.event_elapsed_time(&mut milliseconds, earlier.handle, self.handle) }
            .map_err(|error| self.gpu.failed(&error))?;
        Ok(milliseconds)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event(on {})", self.gpu.device())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(driver) = self.gpu.bound() {
            // SAFETY: the handle is this event's own and used no more.
            let _ = unsafe { driver.event_destroy(self.handle) };
        }
    }
}
