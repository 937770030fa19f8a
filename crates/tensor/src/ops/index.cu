// Reading and adding at places that a tensor of indices names. Sums are taken in the order of the indices by one thread for
// each column, so they are the same every time, and those of the host.

#include "device.cuh"

// Shapes of up to eight dimensions, the last ones used; unused ones have size 1.
struct Dims {
    i64 at[8];
};

// out[o][i][c] = x[o][indices[i]][c]; 0 where the index is out of range.
template <class T>
__device__ void select_rows(const T* x, const i64* indices, T* out, i64 total, i64 picked, i64 size, i64 inner, Check* check, u32 site) {
    const i64 at = thread_of_launch();
    if (at >= total) {
        return;
    }
    const i64 column = at % inner, row = at / inner;
    const i64 index = indices[row % picked];
    if (index < 0 || index >= size) {
        out[at] = T(0);
        raise(check, site, index, row % picked);
        return;
    }
    out[at] = x[(row / picked * size + index) * inner + column];
}

// Adds rows to zeros; a thread has a column of `out`.
template <class T>
__device__ void add_rows(const T* rows, const i64* indices, T* out, i64 columns, i64 count, i64 size, i64 inner, Check* check, u32 site) {
    const i64 column = thread_of_launch();
    if (column >= columns) {
        return;
    }
    const i64 outer = column / inner;
    rows += outer * count * inner + column % inner;
    out += outer * size * inner + column % inner;
    for (i64 i = 0; i < count; ++i) {
        const i64 index = indices[i];
        if (index < 0 || index >= size) {
            raise(check, site, index, i);
        } else {
            out[index * inner] = plus(out[index * inner], rows[i * inner]);
        }
    }
}

// The place in a tensor of these strides of element number `at` of a shape, with dimension `dim` left out.
__device__ inline i64 place_without(i64 at, const Dims& shape, const Dims& strides, i64 dim) {
    i64 place = 0;
    for (int d = 7; d >= 0; --d) {
        const i64 size = shape.at[d];
        if (d != dim) {
            place += at % size * strides.at[d];
        }
        at /= size;
    }
    return place;
}

// out[..i..] = x[..indices[..i..]..] along `dim`; strides are those of x.
template <class T>
__device__ void gather(const T* x, const i64* indices, T* out, i64 total, i64 size, i64 dim, Dims shape, Dims strides, Check* check, u32 site) {
    const i64 at = thread_of_launch();
    if (at >= total) {
        return;
    }
    const i64 index = indices[at];
    if (index < 0 || index >= size) {
        out[at] = T(0);
        raise(check, site, index, at);
        return;
    }
    out[at] = x[place_without(at, shape, strides, dim) + index * strides.at[dim]];
}

// Adds `source` to zeros of the strides' tensor; a thread has all indices that differ in `dim` only: `count` of them, `step` apart.
template <class T>
__device__ void scatter_add(
    const T* source, const i64* indices, T* out, i64 columns, i64 count, i64 step, i64 size, i64 dim, Dims shape, Dims strides,
    Check* check, u32 site
) {
    const i64 column = thread_of_launch();
    if (column >= columns) {
        return;
    }
    const i64 first = column / step * step * count + column % step;
    const i64 base = place_without(first, shape, strides, dim);
    for (i64 i = 0; i < count; ++i) {
        const i64 at = first + i * step;
        const i64 index = indices[at];
        if (index < 0 || index >= size) {
            raise(check, site, index, at);
        } else {
            const i64 place = base + index * strides.at[dim];
            out[place] = plus(out[place], source[at]);
        }
    }
}

#define READ(T, NAME)                                                                                                  \
    extern "C" __global__ void select_rows_##NAME(                                                                     \
        const T* x, const i64* indices, T* out, i64 total, i64 picked, i64 size, i64 inner, Check* check, u32 site     \
    ) {                                                                                                                \
        select_rows(x, indices, out, total, picked, size, inner, check, site);                                         \
    }                                                                                                                  \
    extern "C" __global__ void gather_##NAME(                                                                          \
        const T* x, const i64* indices, T* out, i64 total, i64 size, i64 dim, Dims shape, Dims strides, Check* check,  \
        u32 site                                                                                                       \
    ) {                                                                                                                \
        gather(x, indices, out, total, size, dim, shape, strides, check, site);                                        \
    }

// By the bytes of an element, whatever it is.
READ(unsigned char, 1)
READ(unsigned short, 2)
READ(u32, 4)
READ(u64, 8)

#define ADD(T, NAME)                                                                                                   \
    extern "C" __global__ void add_rows_##NAME(                                                                        \
        const T* rows, const i64* indices, T* out, i64 columns, i64 count, i64 size, i64 inner, Check* check, u32 site \
    ) {                                                                                                                \
        add_rows(rows, indices, out, columns, count, size, inner, check, site);                                        \
    }                                                                                                                  \
    extern "C" __global__ void scatter_add_##NAME(                                                                     \
        const T* source, const i64* indices, T* out, i64 columns, i64 count, i64 step, i64 size, i64 dim, Dims shape,  \
        Dims strides, Check* check, u32 site                                                                           \
    ) {                                                                                                                \
        scatter_add(source, indices, out, columns, count, step, size, dim, shape, strides, check, site);               \
    }

ADD(float, f32)
ADD(double, f64)
ADD(i64, i64)
