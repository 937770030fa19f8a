//! Copies of bytes, rows and planes, and memory sets of every width.

use virtual_gpu::driver::abi::{CUDA_MEMCPY2D, CUDA_MEMCPY3D};

use crate::api::{self, ok};
use crate::gpu::{Buffer, code};
use crate::{deferred, eager, foreign, null};

const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

/// A copy of nothing from nowhere, to be filled in.
fn rows() -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        src_x_in_bytes: 0,
        src_y: 0,
        src_memory_type: DEVICE,
        src_host: null(),
        src_device: 0,
        src_array: null(),
        src_pitch: 0,
        dst_x_in_bytes: 0,
        dst_y: 0,
        dst_memory_type: DEVICE,
        dst_host: null(),
        dst_device: 0,
        dst_array: null(),
        dst_pitch: 0,
        width_in_bytes: 0,
        height: 0,
    }
}

pub(crate) fn planes(from: u64, to: u64, [width, height, depth]: [usize; 3]) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        src_x_in_bytes: 0,
        src_y: 0,
        src_z: 0,
        src_lod: 0,
        src_memory_type: UNIFIED,
        src_host: null(),
        src_device: from,
        src_array: null(),
        src_context: null(),
        src_pitch: 0,
        src_height: 0,
        dst_x_in_bytes: 0,
        dst_y: 0,
        dst_z: 0,
        dst_lod: 0,
        dst_memory_type: UNIFIED,
        dst_host: null(),
        dst_device: to,
        dst_array: null(),
        dst_context: null(),
        dst_pitch: 0,
        dst_height: 0,
        width_in_bytes: width,
        height,
        depth,
    }
}

#[test]
fn rows_come_and_go_with_pitches_and_offsets() {
    let gpu = eager();
    let values: Vec<u8> = (0..240).collect();
    let device: Buffer<u8> = gpu.zeros(16 * 32);
    // 5 rows of 7 bytes, from row 2 and column 3 of rows of 20 bytes, to row 1 and column 4 of rows of 32.
    let mut copy = CUDA_MEMCPY2D {
        src_memory_type: HOST,
        src_host: values.as_ptr().cast(),
        src_pitch: 20,
        src_x_in_bytes: 3,
        src_y: 2,
        dst_device: device.address,
        dst_pitch: 32,
        dst_x_in_bytes: 4,
        dst_y: 1,
        width_in_bytes: 7,
        height: 5,
        ..rows()
    };
    ok(api::cuMemcpy2D_v2(&copy));
    let mut expected = vec![0u8; 16 * 32];
    for row in 0..5 {
        for column in 0..7 {
            expected[(row + 1) * 32 + column + 4] = values[(row + 2) * 20 + column + 3];
        }
    }
    assert_eq!(gpu.download(&device), expected);
    // And back, through a stream, to a packed host buffer; a pitch of 0 is the width.
    let mut back = [0u8; 35];
    copy = CUDA_MEMCPY2D {
        src_device: device.address,
        src_pitch: 32,
        src_x_in_bytes: 4,
        src_y: 1,
        dst_memory_type: HOST,
        dst_host: back.as_mut_ptr().cast(),
        width_in_bytes: 7,
        height: 5,
        ..rows()
    };
    ok(api::cuMemcpy2DAsync_v2(&copy, gpu.stream().0));
    assert_eq!(back[8], values[3 * 20 + 3 + 1]);
    ok(api::cuMemcpy2DUnaligned_v2(&copy));

    let wrong: [fn(&mut CUDA_MEMCPY2D); 8] = [
        |c| c.src_pitch = 3,
        |c| c.src_memory_type = 0,
        |c| c.src_memory_type = 9,
        |c| c.dst_host = null(),
        |c| c.height = 1000,
        |c| c.src_y = usize::MAX,
        |c| c.src_device = 0x7777,
        |c| c.src_memory_type = HOST,
    ];
    for (index, change) in wrong.into_iter().enumerate() {
        let mut bad = copy;
        change(&mut bad);
        assert_eq!(
            api::cuMemcpy2D_v2(&bad),
            code::INVALID_VALUE,
            "change {index}"
        );
    }
    let array = CUDA_MEMCPY2D {
        src_memory_type: ARRAY,
        ..copy
    };
    assert_eq!(api::cuMemcpy2D_v2(&array), code::NOT_SUPPORTED);
    assert_eq!(api::cuMemcpy2D_v2(null()), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemcpy2DAsync_v2(&copy, foreign()),
        code::INVALID_HANDLE
    );
    ok(api::cuMemcpy2D_v2(&CUDA_MEMCPY2D { height: 0, ..copy }));
}

#[test]
fn planes_come_and_go() {
    let gpu = eager();
    let values: Vec<u8> = (0..=255).cycle().take(4 * 5 * 6).collect();
    let device: Buffer<u8> = gpu.zeros(1000);
    // 3 planes of 4 rows of 5 bytes into planes of 5 rows of 10 bytes.
    let mut copy = planes(values.as_ptr() as u64, device.address, [5, 4, 3]);
    (copy.dst_pitch, copy.dst_height) = (10, 5);
    ok(api::cuMemcpy3D_v2(&copy));
    let seen = gpu.download(&device);
    for plane in 0..3 {
        for row in 0..4 {
            for byte in 0..5 {
                assert_eq!(
                    seen[plane * 50 + row * 10 + byte],
                    values[plane * 20 + row * 5 + byte]
                );
            }
        }
    }
    assert_eq!(seen[5], 0);
    // One plane of it, on the device, in a stream.
    let mut part = planes(device.address, device.address + 500, [5, 4, 1]);
    (part.src_pitch, part.src_height, part.src_z) = (10, 5, 2);
    ok(api::cuMemcpy3DAsync_v2(&part, gpu.stream().0));
    ok(api::cuCtxSynchronize());
    assert_eq!(gpu.download(&device)[500..505], values[40..45]);
    part.depth = 1 << 40;
    assert_eq!(api::cuMemcpy3D_v2(&part), code::INVALID_VALUE);
    part.depth = usize::MAX;
    assert_eq!(api::cuMemcpy3D_v2(&part), code::INVALID_VALUE);
    assert_eq!(api::cuMemcpy3D_v2(null()), code::INVALID_VALUE);
    assert_eq!(api::cuMemcpy3DPeer(null()), code::INVALID_VALUE);
    ok(api::cuMemcpy3DPeer(&planes(
        device.address,
        device.address + 500,
        [5, 4, 1],
    )));
}

#[test]
fn plain_copies_of_every_direction() {
    let gpu = eager();
    let (one, other): (Buffer<u32>, Buffer<u32>) = (gpu.upload(&[1, 2, 3, 4]), gpu.zeros(4));
    ok(api::cuMemcpyDtoD_v2(other.address + 4, one.address, 8));
    assert_eq!(gpu.download(&other), [0, 1, 2, 0]);
    ok(api::cuMemcpy(other.address, one.address + 8, 8));
    assert_eq!(gpu.download(&other), [3, 4, 2, 0]);
    let mut host = [7u32, 8];
    ok(api::cuMemcpy(host.as_mut_ptr() as u64, other.address, 4));
    assert_eq!(host, [3, 8]);
    let from = [5u32];
    ok(api::cuMemcpyAsync(
        host.as_mut_ptr() as u64,
        from.as_ptr() as u64,
        4,
        null(),
    ));
    ok(api::cuCtxSynchronize());
    assert_eq!(host, [5, 8]);
    // Bytes of nothing are no error, whatever the pointers.
    ok(api::cuMemcpyDtoD_v2(other.address, one.address, 0));
    // Overlap within one buffer is as if by a copy in between.
    ok(api::cuMemcpyDtoD_v2(one.address + 4, one.address, 12));
    assert_eq!(gpu.download(&one), [1, 1, 2, 3]);
    // Too long by one byte, on each side.
    let code = api::cuMemcpyDtoD_v2(other.address, one.address, 17);
    assert_eq!(code, code::INVALID_VALUE);
    assert_eq!(
        api::cuMemcpyHtoDAsync_v2(one.address, from.as_ptr().cast(), 4, foreign()),
        code::INVALID_HANDLE
    );
}

#[test]
fn memsets_of_every_width() {
    let gpu = eager();
    let buffer: Buffer<u8> = gpu.zeros(64);
    let at = buffer.address;
    ok(api::cuMemsetD8_v2(at, 0xab, 3));
    ok(api::cuMemsetD16_v2(at + 4, 0x1234, 2));
    ok(api::cuMemsetD32_v2(at + 8, 0x0102_0304, 2));
    let bytes = gpu.download(&buffer);
    assert_eq!(
        bytes[..16],
        [
            0xab, 0xab, 0xab, 0, 0x34, 0x12, 0x34, 0x12, 4, 3, 2, 1, 4, 3, 2, 1
        ]
    );
    // Rows of 3 elements, 8 bytes apart.
    ok(api::cuMemsetD8_v2(at, 0, 64));
    let stream = gpu.stream().0;
    ok(api::cuMemsetD2D8_v2(at, 8, 1, 3, 2));
    ok(api::cuMemsetD2D16Async(at + 16, 8, 2, 3, 2, stream));
    ok(api::cuMemsetD2D32_v2(at + 32, 12, 3, 3, 2));
    ok(api::cuCtxSynchronize());
    let bytes = gpu.download(&buffer);
    assert_eq!(
        bytes[..16],
        [1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0]
    );
    assert_eq!(
        bytes[16..32],
        [2, 0, 2, 0, 2, 0, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0]
    );
    assert_eq!(bytes[32..40], [3, 0, 0, 0, 3, 0, 0, 0]);
    ok(api::cuMemsetD2D8Async(at, 8, 1, 3, 2, stream));
    ok(api::cuMemsetD2D16_v2(at, 8, 1, 3, 2));
    ok(api::cuMemsetD2D32Async(at, 12, 1, 3, 2, stream));
    ok(api::cuMemsetD8Async(at, 9, 1, stream));
    ok(api::cuMemsetD16Async(at, 9, 1, stream));
    ok(api::cuMemsetD32Async(at, 9, 0, stream));
    ok(api::cuCtxSynchronize());

    assert_eq!(api::cuMemsetD16_v2(at + 1, 0, 1), code::INVALID_VALUE);
    assert_eq!(api::cuMemsetD32_v2(at + 2, 0, 1), code::INVALID_VALUE);
    assert_eq!(api::cuMemsetD8_v2(at, 0, 65), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemsetD32_v2(at, 0, usize::MAX / 2),
        code::INVALID_VALUE
    );
    assert_eq!(api::cuMemsetD8_v2(0, 0, 1), code::INVALID_VALUE);
    assert_eq!(api::cuMemsetD2D8_v2(at, 2, 0, 3, 2), code::INVALID_VALUE);
    assert_eq!(
        api::cuMemsetD8Async(at, 0, 1, foreign()),
        code::INVALID_HANDLE
    );
}

#[test]
fn pageable_memory_is_read_before_the_call_returns() {
    for seed in 0..8 {
        let gpu = deferred(seed);
        let buffer: Buffer<u32> = gpu.zeros(4);
        ok(api::cuCtxSynchronize());
        let stream = gpu.stream();
        let mut host = vec![1u32, 2, 3, 4];
        ok(api::cuMemcpyHtoDAsync_v2(
            buffer.address,
            host.as_ptr().cast(),
            16,
            stream.0,
        ));
        host.fill(9);
        drop(host);
        ok(api::cuStreamSynchronize(stream.0));
        assert_eq!(gpu.download(&buffer), [1, 2, 3, 4]);
    }
}

#[test]
fn page_locked_memory_is_read_when_the_copy_has_its_turn() {
    let gpu = deferred(3);
    let buffer: Buffer<u32> = gpu.zeros(1);
    ok(api::cuCtxSynchronize());
    let stream = gpu.stream();
    let mut host = null();
    ok(api::cuMemAllocHost_v2(&mut host, 4));
    // SAFETY: the driver has allocated 4 bytes.
    unsafe { host.cast::<u32>().write(1) };
    ok(api::cuMemcpyHtoDAsync_v2(buffer.address, host, 4, stream.0));
    // The mistake that a deferred machine shows: the host writes before it has waited.
    // SAFETY: as above.
    unsafe { host.cast::<u32>().write(2) };
    ok(api::cuStreamSynchronize(stream.0));
    assert_eq!(gpu.download(&buffer), [2]);
}
