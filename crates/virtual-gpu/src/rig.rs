//! For tests: runs a kernel of a PTX text on plain buffers, without a driver.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::decode;
use crate::device::address_space::Policy;
use crate::device::heap::Heap;
use crate::device::{HEAP_INDEX, range_of};
use crate::exec::code::Kernel;
use crate::exec::instruction::check_processor;
use crate::exec::launch::{self, Host, Launch, LaunchCounts, Options};
use crate::exec::memory::{Memory, Region};
use crate::fault::Fault;
use crate::ptx;

/// Device address of the first buffer; the others follow at this distance.
const STRIDE: u64 = 1 << 40;

/// A module, its variables' memory and buffers.
pub(crate) struct Rig {
    module: Arc<ptx::ast::Module>,
    addresses: Vec<u64>,
    buffers: Vec<Vec<u64>>,
    lengths: Vec<usize>,
    /// Decoded entries, by their index in the module.
    kernels: HashMap<u32, Arc<Kernel>>,
    /// How kernels are run.
    pub(crate) options: Options,
    /// Bytes of the heap of device code; each launch has a new one.
    pub(crate) heap_bytes: u64,
    /// What kernels have printed.
    pub(crate) printed: Mutex<String>,
}

/// Device memory of a rig: each buffer a region.
struct Buffers(Vec<Region>, Heap);

// SAFETY: the buffers outlive the launch; kernels under test write from several threads only where they mean to.
unsafe impl Sync for Buffers {}

// SAFETY: regions are the rig's buffers, which live longer than the launch.
unsafe impl Memory for Buffers {
    fn region(&self, address: u64) -> Option<Region> {
        if range_of(address) == Some(HEAP_INDEX) {
            return self.1.region(address);
        }
        self.0
            .iter()
            .copied()
            .find(|region| region.start <= address && address < region.end)
    }

    fn allocate(&self, bytes: u64) -> Option<u64> {
        self.1.allocate(bytes)
    }

    fn free(&self, address: u64) -> Result<(), String> {
        self.1.free(address)
    }

    fn describe(&self, address: u64) -> String {
        if range_of(address) == Some(HEAP_INDEX) {
            return self.1.describe(address);
        }
        format!("no buffer holds {address:#x}")
    }
}

impl Host for Rig {
    fn print(&self, text: &str) {
        self.printed
            .lock()
            .expect("no test panics while printing")
            .push_str(text);
    }

    fn nanoseconds(&self) -> u64 {
        0
    }

    fn grid_id(&self) -> u64 {
        1
    }
}

impl Rig {
    /// Parses a text and gives its variables memory.
    pub(crate) fn new(text: &str) -> Rig {
        check_processor().unwrap_or_else(|why| panic!("{why}"));
        let module = ptx::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        Rig::of(Arc::new(module))
    }

    /// Gives a module's variables memory.
    pub(crate) fn of(module: Arc<ptx::ast::Module>) -> Rig {
        let mut rig = Rig {
            module,
            addresses: Vec::new(),
            buffers: Vec::new(),
            lengths: Vec::new(),
            kernels: HashMap::new(),
            options: Options {
                workers: 1,
                seed: None,
                budget: 1 << 32,
                shared_unit: 128,
                strict: true,
                check_uninitialized: false,
                check_shared_races: false,
                count_memory: false,
                multiprocessors: 16,
                short_slices: false,
                stack_limit: 1 << 16,
            },
            heap_bytes: 1 << 20,
            printed: Mutex::default(),
        };
        let module = rig.module.clone();
        for variable in &module.variables {
            let address = rig.buffer(variable.size.unwrap_or(0) as usize);
            rig.addresses.push(address);
        }
        for (variable, &address) in module.variables.iter().zip(&rig.addresses.clone()) {
            let size = variable.ty.size() as usize;
            for (index, init) in variable.init.iter().enumerate() {
                let bits = init.bits(|symbol| match symbol {
                    ptx::ast::Symbol::Function(function) => {
                        crate::exec::code::FUNCTION_WINDOW + 16 * u64::from(function)
                    }
                    ptx::ast::Symbol::Module(other) => rig.addresses[other as usize],
                    other => panic!("an address of {other:?}"),
                });
                rig.write(address + (index * size) as u64, &bits.to_le_bytes()[..size]);
            }
        }
        rig
    }

    /// Makes a zeroed buffer; its device address.
    pub(crate) fn buffer(&mut self, bytes: usize) -> u64 {
        self.buffers.push(vec![0; bytes.div_ceil(8)]);
        self.lengths.push(bytes);
        STRIDE * self.buffers.len() as u64
    }

    /// Makes a buffer with these bytes.
    pub(crate) fn filled(&mut self, bytes: &[u8]) -> u64 {
        let address = self.buffer(bytes.len());
        self.write(address, bytes);
        address
    }

    /// Writes to a buffer.
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) {
        let (index, offset) = ((address / STRIDE - 1) as usize, (address % STRIDE) as usize);
        assert!(offset + bytes.len() <= self.lengths[index]);
        // SAFETY: checked above; a u64 may be written as bytes.
        unsafe {
            let target = self.buffers[index].as_mut_ptr().cast::<u8>().add(offset);
            target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// The bytes of a buffer.
    pub(crate) fn read(&self, address: u64) -> Vec<u8> {
        let index = (address / STRIDE - 1) as usize;
        let bytes: Vec<u8> = self.buffers[index]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        bytes[..self.lengths[index]].to_vec()
    }

    /// Runs an entry with parameters given as bytes, laid out with their natural alignment.
    pub(crate) fn launch(
        &mut self,
        entry: &str,
        grid: [u32; 3],
        threads: [u32; 3],
        dynamic_shared: u32,
        params: &[&[u8]],
    ) -> Result<LaunchCounts, Box<Fault>> {
        let index = self
            .module
            .functions
            .iter()
            .position(|function| function.name == entry);
        let index = index.unwrap_or_else(|| panic!("no entry {entry}")) as u32;
        let kernel = self.kernels.entry(index).or_insert_with(|| {
            let kernel = decode::kernel(&self.module, index, &self.addresses);
            Arc::new(kernel.unwrap_or_else(|error| panic!("{error}")))
        });
        let kernel = Arc::clone(kernel);
        let mut block = vec![0; kernel.entry.param_bytes as usize];
        for (&(offset, size), bytes) in kernel.entry.params.iter().zip(params) {
            assert_eq!(size as usize, bytes.len(), "size of a parameter of {entry}");
            block[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        let regions = self.buffers.iter_mut().zip(&self.lengths).enumerate().map(
            |(index, (buffer, &length))| Region {
                start: STRIDE * (index as u64 + 1),
                end: STRIDE * (index as u64 + 1) + length as u64,
                host: buffer.as_mut_ptr().cast(),
                writable: true,
                shadow: std::ptr::null(),
                lasting: true,
            },
        );
        let policy = Policy {
            strict: true,
            alignment: 16,
            poison: 1 << 20,
            quarantine: 0,
            uninitialized: self.options.check_uninitialized,
            races: false,
        };
        let memory = Buffers(regions.collect(), Heap::new(self.heap_bytes, policy));
        launch::run(&Launch {
            kernel: &kernel,
            grid,
            threads,
            dynamic_shared,
            params: &block,
            memory: &memory,
            grid_workspace: 0,
            host: self,
            order: None,
            options: self.options.clone(),
        })
    }
}

/// The bytes of numbers, for parameters and buffers.
pub(crate) trait Bytes {
    /// Little-endian.
    fn bytes(&self) -> Vec<u8>;
}

macro_rules! bytes {
    ($($ty:ty)*) => {$(
        impl Bytes for $ty {
            fn bytes(&self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
        }
        impl Bytes for [$ty] {
            fn bytes(&self) -> Vec<u8> {
                self.iter().flat_map(|value| value.to_le_bytes()).collect()
            }
        }
    )*};
}

bytes!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);
