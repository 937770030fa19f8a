// Pooling of planes, forward and backward: a block takes a band of rows of a plane, or some small planes, and brings what it
// reads of them into shared memory, once. Gradients are gathered: each place adds what its windows give it, in the order of the
// windows, which is the host's. The bits are the same.

#include "device.cuh"

constexpr int THREADS = 256;
constexpr int SHARED_BYTES = 32768;

// One dimension.
struct Side {
    int input, output, kernel, stride, padding, dilation;
};

// What `pool.rs` says of a pooling; a pair is (y, x).
struct Pooling {
    i64 planes;
    i64 input[2], output[2], kernel[2], stride[2], padding[2], dilation[2];
    // What an average is divided by, or 0; and whether the padding counts otherwise.
    i64 divisor, count_padding;
    // A block's rows of what is written, and its planes.
    i64 rows, together;
    // Whether what a block reads fits its shared memory.
    i64 staged;

    __device__ Side side(int dim) const {
        return {(int)input[dim], (int)output[dim], (int)kernel[dim], (int)stride[dim], (int)padding[dim], (int)dilation[dim]};
    }
};

__device__ inline int clamped(int value, int most) { return value < 0 ? 0 : value < most ? value : most; }

// Windows of a fixed size.
struct Fixed {
    static __device__ int reach(Side s) { return (s.kernel - 1) * s.dilation; }
    // The input places from `begin` to before `end` hold those of a window.
    static __device__ int begin(Side s, int at) { return clamped(at * s.stride - s.padding, s.input); }
    static __device__ int end(Side s, int at) { return clamped(at * s.stride - s.padding + reach(s) + 1, s.input); }
    // The first and the last window that may have an input place.
    static __device__ int first(Side s, int place) {
        const int start = place + s.padding - reach(s);
        return start <= 0 ? 0 : (start + s.stride - 1) / s.stride;
    }
    static __device__ int last(Side s, int place) {
        const int window = (place + s.padding) / s.stride;
        return window < s.output ? window : s.output - 1;
    }
    // The places of a window with its padding.
    static __device__ int all(Side s, int at) {
        const int start = at * s.stride, end = start + s.kernel, most = s.input + 2 * s.padding;
        return (end < most ? end : most) - start;
    }
    template <class T> static __device__ T average(T sum, const Pooling& pooling, Side y, Side x, int row, int col) {
        i64 count = pooling.divisor;
        if (count == 0) {
            count = pooling.count_padding
                ? (i64)all(y, row) * all(x, col)
                : (i64)(end(y, row) - begin(y, row)) * (end(x, col) - begin(x, col));
        }
        return sum / T((double)count);
    }
};

// Windows that cover the input evenly.
struct Fitted {
    static __device__ int begin(Side s, int at) { return (int)((i64)at * s.input / s.output); }
    static __device__ int end(Side s, int at) { return (int)(((i64)(at + 1) * s.input + s.output - 1) / s.output); }
    static __device__ int first(Side s, int place) { return (int)((i64)place * s.output / s.input); }
    static __device__ int last(Side s, int place) {
        return (int)(((i64)(place + 1) * s.output + s.input - 1) / s.input) - 1;
    }
    template <class T> static __device__ T average(T sum, const Pooling&, Side y, Side x, int row, int col) {
        return sum / T((double)(end(y, row) - begin(y, row))) / T((double)(end(x, col) - begin(x, col)));
    }
};

// What a block does: `count` planes from `plane` on, of each the rows `first` to before `last` of what is written.
struct Band {
    i64 plane;
    int count, first, last;

    __device__ Band(const Pooling& pooling, int height) {
        const int rows = (int)pooling.rows;
        const int bands = (height + rows - 1) / rows;
        plane = blockIdx.x / bands * pooling.together;
        const i64 left = pooling.planes - plane;
        count = (int)(left < pooling.together ? left : pooling.together);
        first = blockIdx.x % bands * rows;
        last = first + rows < height ? first + rows : height;
    }

    // Calls `each(plane, row, col)` for every number that the block writes, neighbours by neighbours.
    template <class Each> __device__ void each_number(int width, Each each) const {
        const int numbers = (last - first) * width;
        for (int i = threadIdx.x; i < count * numbers; i += THREADS) {
            const int rest = i % numbers;
            each(i / numbers, first + rest / width, rest % width);
        }
    }
};

// Rows of planes in shared memory, or where they are.
template <class T> struct Staged {
    const T* start;
    i64 pitch;
    int width, first;

    __device__ T operator()(int plane, int row, int col) const { return start[plane * pitch + (row - first) * width + col]; }
};

// Brings rows `first` to before `last` of the band's planes into `shared`, each as `of(plane, row, col, number)` makes it. An odd
// distance from one plane to the next keeps threads that have a plane each out of each other's banks.
template <class S, class T, class Of>
__device__ inline Staged<S> stage(S* shared, const T* from, const Band& band, int height, int width, int first, int last, Of of) {
    const int numbers = last > first ? (last - first) * width : 0;
    const int pitch = numbers | 1;
    from += band.plane * height * width + (i64)first * width;
    for (int i = threadIdx.x; i < band.count * numbers; i += THREADS) {
        const int plane = i / numbers, rest = i % numbers;
        const T number = from[(i64)plane * height * width + rest];
        shared[plane * pitch + rest] = of(number, first + rest / width, rest % width);
    }
    return {shared, pitch, width, first};
}

template <class T> __device__ inline Staged<T> in_place(const T* from, const Band& band, int height, int width) {
    const i64 plane = (i64)height * width;
    return {from + band.plane * plane, plane, width, 0};
}

struct AsIs {
    template <class T> __device__ T operator()(T number, int, int) const { return number; }
};

// Calls `work` with the input rows that the band's windows need.
template <class Kind, class T, class Work>
__device__ inline void with_input(const Pooling& pooling, const Band& band, const T* x, Work work) {
    __shared__ double shared[SHARED_BYTES / 8];
    const Side ys = pooling.side(0), xs = pooling.side(1);
    if (!pooling.staged) {
        work(in_place(x, band, ys.input, xs.input));
        return;
    }
    const int first = Kind::begin(ys, band.first), last = Kind::end(ys, band.last - 1);
    const auto staged = stage((T*)shared, x, band, ys.input, xs.input, first, last, AsIs());
    __syncthreads();
    work(staged);
}

template <class T> __device__ void max_pool2d(const T* x, T* out, i64* places, const Pooling& pooling) {
    const Side ys = pooling.side(0), xs = pooling.side(1);
    const Band band(pooling, ys.output);
    const i64 plane_numbers = (i64)ys.output * xs.output;
    with_input<Fixed>(pooling, band, x, [&](Staged<T> input) {
        band.each_number(xs.output, [&](int plane, int row, int col) {
            // The first places inside, by steps of the dilation.
            const int top = row * ys.stride - ys.padding, left = col * xs.stride - xs.padding;
            const int first_y = top < 0 ? top + (-top + ys.dilation - 1) / ys.dilation * ys.dilation : top;
            const int first_x = left < 0 ? left + (-left + xs.dilation - 1) / xs.dilation * xs.dilation : left;
            const int end_y = Fixed::end(ys, row), end_x = Fixed::end(xs, col);
            T best = Limits<T>::lowest();
            i64 place = first_y < end_y && first_x < end_x ? (i64)first_y * xs.input + first_x : -1;
            for (int at_y = first_y; at_y < end_y; at_y += ys.dilation) {
                for (int at_x = first_x; at_x < end_x; at_x += xs.dilation) {
                    const T value = input(plane, at_y, at_x);
                    if (value > best || value != value) {
                        best = value;
                        place = (i64)at_y * xs.input + at_x;
                    }
                }
            }
            const i64 to = (band.plane + plane) * plane_numbers + (i64)row * xs.output + col;
            out[to] = best;
            places[to] = place;
        });
    });
}

template <class Kind, class T> __device__ void average_pool2d(const T* x, T* out, const Pooling& pooling) {
    const Side ys = pooling.side(0), xs = pooling.side(1);
    const Band band(pooling, ys.output);
    const i64 plane_numbers = (i64)ys.output * xs.output;
    with_input<Kind>(pooling, band, x, [&](Staged<T> input) {
        band.each_number(xs.output, [&](int plane, int row, int col) {
            const int first_y = Kind::begin(ys, row), end_y = Kind::end(ys, row);
            const int first_x = Kind::begin(xs, col), end_x = Kind::end(xs, col);
            T sum = T(0);
            for (int at_y = first_y; at_y < end_y; ++at_y) {
                for (int at_x = first_x; at_x < end_x; ++at_x) {
                    sum = sum + input(plane, at_y, at_x);
                }
            }
            const bool empty = first_y >= end_y || first_x >= end_x;
            const i64 to = (band.plane + plane) * plane_numbers + (i64)row * xs.output + col;
            out[to] = empty ? T(0) : Kind::average(sum, pooling, ys, xs, row, col);
        });
    });
}

// Adds what `given(plane, window row, window column, place)` says over the windows that may have each place.
template <class Kind, class T, class Given>
__device__ inline void gather(T* out, const Pooling& pooling, const Band& band, Given given) {
    const Side ys = pooling.side(0), xs = pooling.side(1);
    const i64 plane_numbers = (i64)ys.input * xs.input;
    band.each_number(xs.input, [&](int plane, int row, int col) {
        const int first_y = Kind::first(ys, row), last_y = Kind::last(ys, row);
        const int first_x = Kind::first(xs, col), last_x = Kind::last(xs, col);
        T sum = T(0);
        for (int at_y = first_y; at_y <= last_y; ++at_y) {
            for (int at_x = first_x; at_x <= last_x; ++at_x) {
                sum = given(sum, plane, at_y, at_x, row * xs.input + col);
            }
        }
        out[(band.plane + plane) * plane_numbers + (i64)row * xs.input + col] = sum;
    });
}

template <class T> __device__ void max_pool2d_grad(const T* grad, const i64* places, T* out, const Pooling& pooling) {
    __shared__ double shared[SHARED_BYTES / 8];
    const Side ys = pooling.side(0), xs = pooling.side(1);
    const Band band(pooling, ys.input);
    const auto add = [](auto grads, auto chosen) {
        return [=](T sum, int plane, int row, int col, int place) {
            return chosen(plane, row, col) == place ? sum + grads(plane, row, col) : sum;
        };
    };
    if (!pooling.staged) {
        const auto grads = in_place(grad, band, ys.output, xs.output);
        gather<Fixed>(out, pooling, band, add(grads, in_place(places, band, ys.output, xs.output)));
        return;
    }
    const int first = Fixed::first(ys, band.first), last = Fixed::last(ys, band.last - 1) + 1;
    // Places are below 2^31 in a plane.
    T* numbers = (T*)shared;
    int* indices = (int*)(numbers + SHARED_BYTES / (sizeof(T) + sizeof(int)));
    const auto grads = stage(numbers, grad, band, ys.output, xs.output, first, last, AsIs());
    const auto chosen = stage(indices, places, band, ys.output, xs.output, first, last, AsIs());
    __syncthreads();
    gather<Fixed>(out, pooling, band, add(grads, chosen));
}

template <class Kind, class T> __device__ void average_pool2d_grad(const T* grad, T* out, const Pooling& pooling) {
    __shared__ double shared[SHARED_BYTES / 8];
    const Side ys = pooling.side(0), xs = pooling.side(1);
    const Band band(pooling, ys.input);
    const auto share = [&](T number, int row, int col) { return Kind::average(number, pooling, ys, xs, row, col); };
    if (!pooling.staged) {
        const auto grads = in_place(grad, band, ys.output, xs.output);
        gather<Kind>(out, pooling, band, [=](T sum, int plane, int row, int col, int) {
            return sum + share(grads(plane, row, col), row, col);
        });
        return;
    }
    const int first = Kind::first(ys, band.first), last = Kind::last(ys, band.last - 1) + 1;
    const auto shares = stage((T*)shared, grad, band, ys.output, xs.output, first, last, share);
    __syncthreads();
    gather<Kind>(out, pooling, band, [=](T sum, int plane, int row, int col, int) { return sum + shares(plane, row, col); });
}

// Four blocks on a processor: as many as their shared memory leaves room for on most.
#define KERNELS(T, NAME)                                                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS, 4) max_pool2d_##NAME(                                           \
        const T* x, T* out, i64* places, Pooling pooling                                                               \
    ) {                                                                                                                \
        max_pool2d(x, out, places, pooling);                                                                           \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 4) max_pool2d_grad_##NAME(                                      \
        const T* grad, const i64* places, T* out, Pooling pooling                                                      \
    ) {                                                                                                                \
        max_pool2d_grad(grad, places, out, pooling);                                                                   \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 4) avg_pool2d_##NAME(const T* x, T* out, Pooling pooling) {     \
        average_pool2d<Fixed>(x, out, pooling);                                                                        \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 4) avg_pool2d_grad_##NAME(                                      \
        const T* grad, T* out, Pooling pooling                                                                         \
    ) {                                                                                                                \
        average_pool2d_grad<Fixed>(grad, out, pooling);                                                                \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 4) adaptive_avg_pool2d_##NAME(                                  \
        const T* x, T* out, Pooling pooling                                                                            \
    ) {                                                                                                                \
        average_pool2d<Fitted>(x, out, pooling);                                                                       \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 4) adaptive_avg_pool2d_grad_##NAME(                             \
        const T* grad, T* out, Pooling pooling                                                                         \
    ) {                                                                                                                \
        average_pool2d_grad<Fitted>(grad, out, pooling);                                                               \
    }

KERNELS(float, f32)
KERNELS(double, f64)
