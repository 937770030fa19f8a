// Reading, adding and writing at places that a tensor of indices names. What is added to one place is added in the order of the
// indices, which are sorted for it, by one thread: the sums are the same every time, and those of the host.

#include "device.cuh"

// Shapes of up to eight dimensions, the last ones used; unused ones have size 1.
struct Dims {
    i64 at[8];
};

// Who checks indices, and how many there may be.
struct Range {
    i64 size;
    Check* check;
    u32 site;

    // Index number `position`; -1, and a report, where it is out of range.
    __device__ i64 at(const i64* indices, i64 position) const { return checked(indices[position], position); }

    __device__ i64 checked(i64 index, i64 position) const {
        if (index >= 0 && index < size) {
            return index;
        }
        raise(check, site, index, position);
        return -1;
    }
};

// Several elements of rows that lie evenly.
struct alignas(16) Sixteen {
    u64 first, second;
};

// out[o][i][c] = x[o][indices[i]][c]; 0 where the index is out of range.
template <class T> __device__ void select_rows(const T* x, const i64* indices, T* out, i64 total, i64 picked, i64 inner, Range range) {
    const i64 at = thread_of_launch();
    if (at >= total) {
        return;
    }
    const i64 column = at % inner, row = at / inner;
    const i64 index = range.at(indices, row % picked);
    out[at] = index < 0 ? T{} : x[(row / picked * range.size + index) * inner + column];
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
__device__ void gather(const T* x, const i64* indices, T* out, i64 total, i64 dim, const Dims& shape, const Dims& strides, Range range) {
    const i64 at = thread_of_launch();
    if (at >= total) {
        return;
    }
    const i64 index = range.at(indices, at);
    out[at] = index < 0 ? T(0) : x[place_without(at, shape, strides, dim) + index * strides.at[dim]];
}

// Where in a tensor of these strides each element goes whose index along `dim` is given; -1 for one that is out of range.
extern "C" __global__ void scatter_places(
    const i64* indices, i64* places, i64 total, i64 size, i64 dim, Dims shape, Dims strides, Check* check, u32 site
) {
    const i64 at = thread_of_launch();
    if (at < total) {
        const i64 index = Range{size, check, site}.at(indices, at);
        places[at] = index < 0 ? -1 : place_without(at, shape, strides, dim) + index * strides.at[dim];
    }
}

// Places in a tensor from indices of one more dimension of `size`, and the places in those before, which may be null. Negative
// indices count from the end.
extern "C" __global__ void index_places(
    const i64* before, const i64* indices, i64* places, i64 total, i64 size, Check* check, u32 site
) {
    const i64 at = thread_of_launch();
    if (at < total) {
        const i64 given = indices[at];
        const Range range = {size, check, site};
        const i64 index = given < 0 && given >= -size ? given + size : range.checked(given, at);
        const i64 first = before == nullptr ? 0 : before[at];
        places[at] = index < 0 || first < 0 ? -1 : first * size + index;
    }
}

// Row number `at` of those that go to places, in the order of the places: `sorted` has their numbers. Those of one place follow
// each other in the order of the indices.
struct Row {
    i64 number, place;
};

__device__ inline Row row_at(const i64* places, const u32* sorted, i64 at) {
    const i64 number = sorted[at];
    return {number, places[number]};
}

// Adds rows[o][i] to zeros at out[o][places[i]]: a thread for each column of the first row of each place adds the others too.
template <class T>
__device__ void add_runs(
    const T* rows, const i64* places, const u32* sorted, T* out, i64 total, i64 count, i64 inner, const Range& range
) {
    const i64 thread = thread_of_launch();
    if (thread >= total) {
        return;
    }
    const i64 column = thread % inner, first = thread / inner % count, outer = thread / inner / count;
    Row row = row_at(places, sorted, first);
    if (first > 0 && row_at(places, sorted, first - 1).place == row.place) {
        return;
    }
    const i64 place = range.checked(row.place, row.number);
    if (place < 0) {
        return;
    }
    T sum = T(0);
    for (i64 at = first; row.place == place;) {
        sum = plus(sum, rows[(outer * count + row.number) * inner + column]);
        if (++at == count) {
            break;
        }
        row = row_at(places, sorted, at);
    }
    out[(outer * range.size + place) * inner + column] = sum;
}

// Writes rows[i] to out[places[i]]: of several for one place the last.
template <class T>
__device__ void put_runs(const T* rows, const i64* places, const u32* sorted, T* out, i64 total, i64 count, i64 inner, const Range& range) {
    const i64 thread = thread_of_launch();
    if (thread >= total) {
        return;
    }
    const i64 column = thread % inner, at = thread / inner;
    const Row row = row_at(places, sorted, at);
    if (at + 1 < count && row_at(places, sorted, at + 1).place == row.place) {
        return;
    }
    const i64 place = range.checked(row.place, row.number);
    if (place >= 0) {
        out[place * inner + column] = rows[row.number * inner + column];
    }
}

// Adds `source` to zeros of the strides' tensor, where there are enough columns for a thread each: all indices that differ in
// `dim` only, `count` of them, `step` apart.
template <class T>
__device__ void scatter_add(
    const T* source, const i64* indices, T* out, i64 columns, i64 count, i64 step, i64 dim, const Dims& shape, const Dims& strides,
    const Range& range
) {
    const i64 column = thread_of_launch();
    if (column >= columns) {
        return;
    }
    const i64 first = column / step * step * count + column % step;
    const i64 base = place_without(first, shape, strides, dim);
    for (i64 i = 0; i < count; ++i) {
        const i64 at = first + i * step;
        const i64 index = range.at(indices, at);
        if (index >= 0) {
            const i64 place = base + index * strides.at[dim];
            out[place] = plus(out[place], source[at]);
        }
    }
}

#define SELECT(T, NAME)                                                                                                \
    extern "C" __global__ void select_rows_##NAME(                                                                     \
        const T* x, const i64* indices, T* out, i64 total, i64 picked, i64 inner, i64 size, Check* check, u32 site     \
    ) {                                                                                                                \
        select_rows(x, indices, out, total, picked, inner, Range{size, check, site});                                  \
    }

SELECT(Sixteen, 16)

#define MOVE(T, NAME)                                                                                                  \
    SELECT(T, NAME)                                                                                                    \
    extern "C" __global__ void gather_##NAME(                                                                          \
        const T* x, const i64* indices, T* out, i64 total, i64 dim, Dims shape, Dims strides, i64 size, Check* check,  \
        u32 site                                                                                                       \
    ) {                                                                                                                \
        gather(x, indices, out, total, dim, shape, strides, Range{size, check, site});                                 \
    }                                                                                                                  \
    extern "C" __global__ void put_runs_##NAME(                                                                        \
        const T* rows, const i64* places, const u32* sorted, T* out, i64 total, i64 count, i64 inner, i64 size,        \
        Check* check, u32 site                                                                                         \
    ) {                                                                                                                \
        put_runs(rows, places, sorted, out, total, count, inner, Range{size, check, site});                            \
    }

// By the bytes of an element, whatever it is.
MOVE(unsigned char, 1)
MOVE(unsigned short, 2)
MOVE(u32, 4)
MOVE(u64, 8)

#define ADD(T, NAME)                                                                                                   \
    extern "C" __global__ void add_runs_##NAME(                                                                        \
        const T* rows, const i64* places, const u32* sorted, T* out, i64 total, i64 count, i64 inner, i64 size,        \
        Check* check, u32 site                                                                                         \
    ) {                                                                                                                \
        add_runs(rows, places, sorted, out, total, count, inner, Range{size, check, site});                            \
    }                                                                                                                  \
    extern "C" __global__ void scatter_add_##NAME(                                                                     \
        const T* source, const i64* indices, T* out, i64 columns, i64 count, i64 step, i64 dim, Dims shape,            \
        Dims strides, i64 size, Check* check, u32 site                                                                 \
    ) {                                                                                                                \
        scatter_add(source, indices, out, columns, count, step, dim, shape, strides, Range{size, check, site});        \
    }

ADD(float, f32)
ADD(double, f64)
ADD(i64, i64)
