//! What devices say of themselves: one table of attributes, after a GPU of compute capability 8.0 (or the one chosen).

/// Threads of a block, at most.
pub(crate) const MAX_THREADS: u32 = 1024;
/// Blocks in x, y, z, at most.
pub(crate) const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// Threads of a block in x, y, z, at most.
pub(crate) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Shared memory of a block unless more is asked for.
pub(crate) const SHARED_DEFAULT: u32 = 48 << 10;
/// Shared memory that the system keeps of each block.
pub(crate) const SHARED_RESERVED: u32 = 1 << 10;
/// Registers of a multiprocessor and of a block.
pub(crate) const REGISTERS: u32 = 65536;
/// Registers of a thread, at most.
pub(crate) const MAX_REGISTERS: u32 = 255;
/// Granularity of mapped memory.
pub(crate) const GRANULARITY: u64 = 2 << 20;
/// Bytes that pitches are multiples of.
pub(crate) const PITCH: u64 = 512;

/// What depends on the compute capability.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Shared memory of a multiprocessor.
    pub(crate) shared_multiprocessor: u32,
    /// Shared memory that a block may ask for.
    pub(crate) shared_block: u32,
    /// Bytes of a unit that shared memory is given out in.
    pub(crate) shared_unit: u32,
    /// Threads of a multiprocessor.
    pub(crate) threads: u32,
    /// Blocks of a multiprocessor.
    pub(crate) blocks: u32,
    /// Multiprocessors.
    pub(crate) multiprocessors: u32,
}

/// The limits of a compute capability.
pub(crate) fn limits((major, minor): (u32, u32)) -> Limits {
    let (shared, threads, blocks, multiprocessors) = match (major, minor) {
        (..=6, _) => (96, 2048, 32, 56),
        (7, 5) => (64, 1024, 16, 68),
        (7, _) => (96, 2048, 32, 80),
        (8, 0) => (164, 2048, 32, 108),
        (8, 9) => (100, 1536, 24, 128),
        (8, _) => (100, 1536, 16, 82),
        (9 | 10, _) => (228, 2048, 32, 132),
        _ => (100, 1536, 24, 120),
    };
    let shared_multiprocessor = shared << 10;
    let block = match (major, minor) {
        (7, 5) | (..=6, _) => shared_multiprocessor.min(64 << 10),
        (7, _) => shared_multiprocessor,
        _ => shared_multiprocessor - SHARED_RESERVED,
    };
    Limits {
        shared_multiprocessor,
        shared_block: block,
        shared_unit: if major >= 8 { 128 } else { 256 },
        threads,
        blocks,
        multiprocessors,
    }
}

/// The value of an attribute by its number in the C interface; `None` for an unknown number.
pub(crate) fn attribute(number: u32, capability: (u32, u32), device: usize) -> Option<i32> {
    let limits = limits(capability);
    let value = match number {
        1..=3 => MAX_THREADS,
        4 => MAX_BLOCK[2],
        5 => MAX_GRID[0],
        6 | 7 => MAX_GRID[1],
        8 => SHARED_DEFAULT,
        9 => 64 << 10,
        10 => 32,
        11 => i32::MAX as u32,
        12 | 82 => REGISTERS,
        13 => 1_410_000,
        14 | 30 => 512,
        16 => limits.multiprocessors,
        15 | 19 | 31 | 41 | 78 | 79 | 80 | 83 | 89 | 90 | 91 | 95 | 99 | 102 | 115 => 1,
        // No memory is paged in by the device, and streams wait for memory by the driver.
        92 | 93 | 94 | 122 | 123 => 1,
        20 | 32 | 34 | 50 => 0,
        33 => device as u32 + 1,
        36 => 1_215_000,
        37 => 5120,
        38 => 40 << 20,
        39 => limits.threads,
        40 => 3,
        51 => 32,
        75 => capability.0,
        76 => capability.1,
        81 => limits.shared_multiprocessor,
        87 => 2,
        97 => limits.shared_block,
        106 => limits.blocks,
        111 => SHARED_RESERVED,
        // Sizes of textures and surfaces, which do not exist here; arrays are refused anyway.
        21..=29 | 42..=49 | 52..=74 | 77 => 0,
        17
        | 18
        | 35
        | 84..=86
        | 88
        | 96
        | 98
        | 100
        | 101
        | 103..=105
        | 107..=110
        | 112..=114
        | 116..=121 => 0,
        124..=149 => 0,
        _ => return None,
    };
    Some(value as i32)
}
