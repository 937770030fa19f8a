// Resizing of planes to the nearest pixel or bilinearly, and the gradients, which are gathered: each pixel adds what the places
// of the output give it, in their order, which is the host's. The bits are the same.

#include "device.cuh"

// What `interpolate.rs` says of one dimension; `step` is a number of the type that is computed in.
struct Side {
    i64 input, output;
    double step;
};

struct Resize {
    i64 planes;
    Side y, x;
    // 0: nearest, 1: bilinear, 2: bilinear with aligned corners.
    i64 mode;
};

__device__ inline float down(float x) { return floorf(x); }
__device__ inline double down(double x) { return floor(x); }

// The two pixels that a place of the output lies between, and their weights.
template <class T> struct Between {
    int low, high;
    T low_weight, high_weight;

    __device__ Between(const Side& side, i64 mode, int at) {
        const int input = (int)side.input, output = (int)side.output;
        const T step = (T)side.step;
        low_weight = T(1);
        high_weight = T(0);
        if (input == output) {
            low = high = at;
        } else if (mode == 0) {
            const int pixel = output == 2 * (i64)input ? at / 2 : (int)down(T(at) * step);
            low = high = pixel < input - 1 ? pixel : input - 1;
        } else {
            T real = mode == 2 ? step * T(at) : step * (T(at) + T(0.5)) - T(0.5);
            real = real < T(0) ? T(0) : real;
            const int pixel = (int)down(real);
            low = pixel < input - 1 ? pixel : input - 1;
            high = low + 1 < input ? low + 1 : low;
            const T weight = real - T(low);
            high_weight = weight > T(1) ? T(1) : weight;
            low_weight = T(1) - high_weight;
        }
    }
};

template <class T> __device__ void interpolate(const T* x, T* out, const Resize& resize) {
    const i64 number = thread_of_launch(), plane = resize.y.output * resize.x.output;
    if (number >= resize.planes * plane) {
        return;
    }
    const i64 which = number / plane;
    const int rest = (int)(number - which * plane), width = (int)resize.x.output;
    const Between<T> row(resize.y, resize.mode, rest / width), col(resize.x, resize.mode, rest % width);
    x += which * resize.y.input * resize.x.input;
    const T* upper = x + row.low * resize.x.input;
    if (resize.mode == 0) {
        out[number] = upper[col.low];
        return;
    }
    const T* lower = x + row.high * resize.x.input;
    out[number] = row.low_weight * (col.low_weight * upper[col.low] + col.high_weight * upper[col.high])
        + row.high_weight * (col.low_weight * lower[col.low] + col.high_weight * lower[col.high]);
}

// The first place of the output whose lower pixel is `pixel` or a later one: pixels rise with the places.
template <class T> __device__ inline int first_at(const Side& side, i64 mode, int pixel) {
    int low = 0, high = (int)side.output;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (Between<T>(side, mode, middle).low >= pixel) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

template <class T> __device__ void interpolate_grad(const T* grad, T* out, const Resize& resize) {
    const i64 number = thread_of_launch(), plane = resize.y.input * resize.x.input;
    if (number >= resize.planes * plane) {
        return;
    }
    const i64 which = number / plane;
    const int rest = (int)(number - which * plane), width = (int)resize.x.input;
    const int row = rest / width, col = rest % width;
    grad += which * resize.y.output * resize.x.output;
    // Places between the pixel before and this one count too, if weights do.
    const int before = resize.mode == 0 ? 0 : 1;
    const int first_y = first_at<T>(resize.y, resize.mode, row - before), end_y = first_at<T>(resize.y, resize.mode, row + 1);
    const int first_x = first_at<T>(resize.x, resize.mode, col - before), end_x = first_at<T>(resize.x, resize.mode, col + 1);
    T sum = T(0);
    for (int y = first_y; y < end_y; ++y) {
        const Between<T> rows(resize.y, resize.mode, y);
        for (int x = first_x; x < end_x; ++x) {
            const T given = grad[y * resize.x.output + x];
            if (resize.mode == 0) {
                sum = sum + given;
                continue;
            }
            const Between<T> cols(resize.x, resize.mode, x);
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                const bool here = (part < 2 ? rows.low : rows.high) == row && (part % 2 == 0 ? cols.low : cols.high) == col;
                const T weight = (part < 2 ? rows.low_weight : rows.high_weight)
                    * (part % 2 == 0 ? cols.low_weight : cols.high_weight);
                sum = here ? sum + weight * given : sum;
            }
        }
    }
    out[number] = sum;
}

#define KERNELS(T, NAME)                                                                                               \
    extern "C" __global__ void interpolate_##NAME(const T* x, T* out, Resize resize) { interpolate(x, out, resize); }   \
    extern "C" __global__ void interpolate_grad_##NAME(const T* grad, T* out, Resize resize) {                         \
        interpolate_grad(grad, out, resize);                                                                           \
    }

KERNELS(float, f32)
KERNELS(double, f64)
