// Convolution as a product of matrices that nobody writes down (implicit GEMM): the output, and the gradients of the input and
// of the weight. Sums have the order of the host's: over channels, then taps, each step a fused multiply-add; those of the
// weight over the pixels of a band, then bands and groups of images in order.

#include "device.cuh"


// Numbers that are loaded from shared memory at a time: 16 bytes.
template <class T> constexpr int WIDE = 16 / sizeof(T);
template <class T> struct alignas(16) Wide {
    T at[WIDE<T>];
};

// A place that lies outside whatever is added to it. Sizes are below 2^27.
constexpr int OUTSIDE = 1 << 29;

// A convolution as `conv.rs` gives it; pairs are (y, x).
struct Conv {
    i64 batch, groups;
    // Channels of a group: of what is summed over, and of the result.
    i64 channels, results;
    // Sizes of the images that are read and written.
    i64 source[2], result[2];
    i64 kernel[2], stride[2], padding[2], dilation[2];
    // From one result, and one channel, to the next in the weight.
    i64 weight_result, weight_channel;
    // Whether this is the gradient of the input; from one tap of a pixel to the next one then.
    i64 backward, tap_step[2];
    // Of the gradient of the weight: images of a group of them, rows of a band, whether bands are stored one by one. Of a group
    // with one result: height and width of a tile of points.
    i64 images, band_rows, split;

    __device__ i64 source_plane() const { return source[0] * source[1]; }
    __device__ i64 result_plane() const { return result[0] * result[1]; }
};

// One dimension of a pass: point q of the grid reads the source at q * step + origin + j * delta for its taps j, which are taps
// first_tap + j * tap_step of the kernel, and gives the result at q * result_step + result_first.
struct Side {
    int source, grid, step, origin, delta, count, first_tap, tap_step, result_step, result_first;
};

// The pixels of a result whose number has one remainder by the stride share their taps: a pass for each.
__device__ inline Side side_of(const Conv& conv, int dim, int remainder) {
    const int kernel = (int)conv.kernel[dim], stride = (int)conv.stride[dim], dilation = (int)conv.dilation[dim];
    const int padding = (int)conv.padding[dim], source = (int)conv.source[dim], result = (int)conv.result[dim];
    if (!conv.backward) {
        return {source, result, stride, -padding, dilation, kernel, 0, 1, 1, 0};
    }
    const int tap_step = (int)conv.tap_step[dim];
    int first = 0;
    while (first < kernel && first < tap_step && (remainder + padding - first * dilation) % stride != 0) {
        ++first;
    }
    const int count = first < kernel && first < tap_step ? (kernel - 1 - first) / tap_step + 1 : 0;
    const int origin = (remainder + padding - first * dilation) / stride;
    const int grid = (result - remainder + stride - 1) / stride;
    return {source, grid, 1, origin, -(dilation * tap_step / stride), count, first, tap_step, stride, remainder};
}

// What a block of `conv2d` does: a pass, a group, a tile of results and points.
struct Work {
    Side y, x;
    i64 points;
    int plane, group;

    // Takes a pass and a group off `tile`, the number of the block, of which `tiles` are in each.
    __device__ Work(const Conv& conv, i64& tile, i64 tiles) {
        int remainder = 0, across = 1;
        if (conv.backward) {
            across = (int)(conv.stride[1] < conv.result[1] ? conv.stride[1] : conv.result[1]);
            remainder = (int)(tile / (tiles * conv.groups));
        }
        group = (int)(tile / tiles % conv.groups);
        tile %= tiles;
        y = side_of(conv, 0, remainder / across);
        x = side_of(conv, 1, remainder % across);
        plane = y.grid * x.grid;
        points = plane * conv.batch;
    }
};

// A point of the grid.
struct Point {
    i64 image;
    int y, x;

    __device__ Point(const Work& work, i64 point) {
        image = point / work.plane;
        const int rest = (int)(point - image * work.plane);
        y = rest / work.x.grid;
        x = rest - y * work.x.grid;
    }

    // Where its first result is.
    __device__ i64 result(const Conv& conv, const Work& work) const {
        const i64 plane = (image * conv.groups + work.group) * conv.results;
        const int row = y * work.y.result_step + work.y.result_first, col = x * work.x.result_step + work.x.result_first;
        return plane * conv.result_plane() + (i64)row * conv.result[1] + col;
    }
};

// Step k of the sums: where it is in the source and in the weight, and how far from the point.
struct alignas(16) Tap {
    int source, weight, y, x;

    __device__ static Tap of(const Conv& conv, const Side& y, const Side& x, int k) {
        const int taps = y.count * x.count;
        if (taps == 0 || k >= (int)conv.channels * taps) {
            return {0, -1, OUTSIDE, 0};
        }
        const int channel = k / taps, tap = k % taps;
        const int row = tap / x.count, col = tap % x.count;
        const int tap_y = y.first_tap + row * y.tap_step, tap_x = x.first_tap + col * x.tap_step;
        const int off_y = row * y.delta, off_x = col * x.delta;
        return {
            (int)(channel * conv.source_plane()) + off_y * x.source + off_x,
            (int)(channel * conv.weight_channel) + tap_y * (int)conv.kernel[1] + tap_x,
            off_y,
            off_x
        };
    }
};

// Steps of the sums whose operands are in shared memory at a time; two such sets take turns.
constexpr int STEP = 8;

// A tile of ROWS results by COLS points, of which a thread has EACH_ROW by EACH_COL in registers.
template <class T, int ROWS, int COLS, int EACH_ROW, int EACH_COL>
__device__ void correlate(const T* source, const T* weight, const T* bias, T* result, const Conv& conv) {
    constexpr int THREADS = ROWS / EACH_ROW * (COLS / EACH_COL);
    constexpr int WIDTH = WIDE<T>, ROW_PIECES = EACH_ROW / WIDTH, COL_PIECES = EACH_COL / WIDTH;
    constexpr int ROW_DISTANCE = ROWS / ROW_PIECES, COL_DISTANCE = COLS / COL_PIECES;
    // How operands are loaded: a thread has one step and some results of the weight, and some steps of one column or more.
    constexpr int WEIGHTS = ROWS * STEP / THREADS, LANES = COLS < THREADS ? COLS : THREADS;
    constexpr int COLUMNS = COLS / LANES, EVERY = THREADS / LANES, LOADS = STEP / EVERY;
    __shared__ alignas(16) T weights[2][STEP][ROWS + WIDTH];
    __shared__ alignas(16) T sources[2][STEP][COLS];
    __shared__ Tap taps[2][STEP];

    const i64 row_tiles = (conv.results + ROWS - 1) / ROWS;
    i64 tile = blockIdx.x;
    const i64 most_points = conv.backward
        ? conv.batch * ((conv.result[0] + conv.stride[0] - 1) / conv.stride[0])
            * ((conv.result[1] + conv.stride[1] - 1) / conv.stride[1])
        : conv.batch * conv.result_plane();
    const Work work(conv, tile, (most_points + COLS - 1) / COLS * row_tiles);
    const int first_row = (int)(tile % row_tiles) * ROWS, results = (int)conv.results;
    const i64 first_point = tile / row_tiles * COLS;
    if (first_point >= work.points) {
        return;
    }
    const int thread = threadIdx.x, lane = thread % LANES, first_step = thread / LANES;
    const int height = work.y.source, width = work.x.source;

    const T* images[COLUMNS];
    int ys[COLUMNS], xs[COLUMNS];
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) {
        const i64 number = first_point + lane + i * LANES;
        const Point point(work, number < work.points ? number : first_point);
        ys[i] = number < work.points ? point.y * work.y.step + work.y.origin : 2 * OUTSIDE;
        xs[i] = point.x * work.x.step + work.x.origin;
        images[i] = source + (point.image * conv.groups + work.group) * conv.channels * conv.source_plane()
            + (i64)(point.y * work.y.step + work.y.origin) * width + xs[i];
    }
    weight += work.group * (conv.backward ? conv.channels * conv.weight_channel : conv.results * conv.weight_result);
    const int weight_step = thread % STEP, weight_row = first_row + thread / STEP, weight_result = (int)conv.weight_result;

    T next_weights[WEIGHTS], next_sources[COLUMNS][LOADS];
    const auto load = [&](const Tap* taps) {
        const int place = taps[weight_step].weight;
#pragma unroll
        for (int i = 0; i < WEIGHTS; ++i) {
            const int row = weight_row + i * (THREADS / STEP);
            next_weights[i] = place >= 0 && row < results ? weight[row * weight_result + place] : T(0);
        }
#pragma unroll
        for (int j = 0; j < LOADS; ++j) {
            const Tap tap = taps[first_step + j * EVERY];
#pragma unroll
            for (int i = 0; i < COLUMNS; ++i) {
                const bool inside = (u32)(ys[i] + tap.y) < (u32)height && (u32)(xs[i] + tap.x) < (u32)width;
                next_sources[i][j] = inside ? images[i][tap.source] : T(0);
            }
        }
    };
    const auto store = [&](int half) {
#pragma unroll
        for (int i = 0; i < WEIGHTS; ++i) {
            weights[half][weight_step][thread / STEP + i * (THREADS / STEP)] = next_weights[i];
        }
#pragma unroll
        for (int j = 0; j < LOADS; ++j) {
#pragma unroll
            for (int i = 0; i < COLUMNS; ++i) {
                sources[half][first_step + j * EVERY][lane + i * LANES] = next_sources[i][j];
            }
        }
    };

    const int depth = (int)conv.channels * work.y.count * work.x.count;
    const int row = thread / (COLS / EACH_COL) * WIDTH, col = thread % (COLS / EACH_COL) * WIDTH;
    T sums[EACH_ROW][EACH_COL] = {};
    if (thread < 2 * STEP) {
        taps[thread / STEP][thread % STEP] = Tap::of(conv, work.y, work.x, thread);
    }
    __syncthreads();
    load(taps[0]);
    store(0);
    __syncthreads();
    for (int first = 0, half = 0; first < depth; first += STEP, half ^= 1) {
        const bool more = first + STEP < depth;
        if (more) {
            load(taps[half ^ 1]);
        }
        if (thread < STEP) {
            taps[half][thread] = Tap::of(conv, work.y, work.x, first + 2 * STEP + thread);
        }
#pragma unroll
        for (int step = 0; step < STEP; ++step) {
            if (first + step < depth) {
                Wide<T> left[ROW_PIECES], right[COL_PIECES];
#pragma unroll
                for (int i = 0; i < ROW_PIECES; ++i) {
                    left[i] = *(const Wide<T>*)&weights[half][step][row + i * ROW_DISTANCE];
                }
#pragma unroll
                for (int j = 0; j < COL_PIECES; ++j) {
                    right[j] = *(const Wide<T>*)&sources[half][step][col + j * COL_DISTANCE];
                }
#pragma unroll
                for (int i = 0; i < EACH_ROW; ++i) {
#pragma unroll
                    for (int j = 0; j < EACH_COL; ++j) {
                        sums[i][j] = multiply_add(left[i / WIDTH].at[i % WIDTH], right[j / WIDTH].at[j % WIDTH], sums[i][j]);
                    }
                }
            }
        }
        if (more) {
            store(half ^ 1);
        }
        __syncthreads();
    }

    const i64 plane = conv.result_plane();
    const bool wide = work.x.result_step == 1 && work.y.result_step == 1 && work.plane % WIDTH == 0 && (u64)result % 16 == 0;
#pragma unroll
    for (int i = 0; i < EACH_ROW; ++i) {
        const int at = first_row + row + i / WIDTH * ROW_DISTANCE + i % WIDTH;
        if (bias && at < results) {
            const T number = bias[work.group * conv.results + at];
#pragma unroll
            for (int j = 0; j < EACH_COL; ++j) {
                sums[i][j] = sums[i][j] + number;
            }
        }
    }
#pragma unroll
    for (int piece = 0; piece < COL_PIECES; ++piece) {
        const i64 number = first_point + col + piece * COL_DISTANCE;
        if (wide && number < work.points) {
            T* to = result + Point(work, number).result(conv, work);
#pragma unroll
            for (int i = 0; i < EACH_ROW; ++i) {
                const int at = first_row + row + i / WIDTH * ROW_DISTANCE + i % WIDTH;
                if (at < results) {
                    Wide<T> numbers;
#pragma unroll
                    for (int j = 0; j < WIDTH; ++j) {
                        numbers.at[j] = sums[i][piece * WIDTH + j];
                    }
                    *(Wide<T>*)(to + at * plane) = numbers;
                }
            }
        }
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            if (!wide && number + j < work.points) {
                T* to = result + Point(work, number + j).result(conv, work);
#pragma unroll
                for (int i = 0; i < EACH_ROW; ++i) {
                    const int at = first_row + row + i / WIDTH * ROW_DISTANCE + i % WIDTH;
                    if (at < results) {
                        to[at * plane] = sums[i][piece * WIDTH + j];
                    }
                }
            }
        }
    }
}

// The same where a group has few results, as in a depthwise convolution: a thread for each number.
template <class T> __device__ void correlate_few(const T* source, const T* weight, const T* bias, T* result, const Conv& conv) {
    i64 number = thread_of_launch();
    const i64 height = conv.backward ? (conv.result[0] + conv.stride[0] - 1) / conv.stride[0] : conv.result[0];
    const i64 width = conv.backward ? (conv.result[1] + conv.stride[1] - 1) / conv.stride[1] : conv.result[1];
    // Points first, then images, results, groups, passes.
    const i64 each = height * width * conv.batch * conv.results;
    i64 passes = 1;
    if (conv.backward) {
        passes = (conv.stride[0] < conv.result[0] ? conv.stride[0] : conv.result[0])
            * (conv.stride[1] < conv.result[1] ? conv.stride[1] : conv.result[1]);
    }
    if (number >= each * conv.groups * passes) {
        return;
    }
    const Work work(conv, number, each);
    const i64 most_points = each / conv.results;
    const int which = (int)(number / most_points);
    number %= most_points;
    if (number >= work.points) {
        return;
    }
    const Point point(work, number);
    const int y = point.y * work.y.step + work.y.origin, x = point.x * work.x.step + work.x.origin;
    source += (point.image * conv.groups + work.group) * conv.channels * conv.source_plane();
    weight += work.group * (conv.backward ? conv.channels * conv.weight_channel : conv.results * conv.weight_result)
        + which * conv.weight_result;
    T sum = T(0);
    for (int channel = 0; channel < (int)conv.channels; ++channel) {
        for (int i = 0; i < work.y.count; ++i) {
            const int at_y = y + i * work.y.delta;
            const bool row_inside = (u32)at_y < (u32)work.y.source;
            for (int j = 0; j < work.x.count; ++j) {
                const int at_x = x + j * work.x.delta;
                const int tap = (work.y.first_tap + i * work.y.tap_step) * (int)conv.kernel[1] + work.x.first_tap
                    + j * work.x.tap_step;
                const bool inside = row_inside && (u32)at_x < (u32)work.x.source;
                const T value = inside ? source[(i64)at_y * work.x.source + at_x] : T(0);
                sum = multiply_add(weight[tap], value, sum);
            }
        }
        source += conv.source_plane();
        weight += conv.weight_channel;
    }
    if (bias) {
        sum = sum + bias[work.group * conv.results + which];
    }
    result[point.result(conv, work) + which * conv.result_plane()] = sum;
}

// Most points of a tile that a thread has.
constexpr int POINTS = 4;

extern __shared__ __align__(16) double shared_memory[];

// The same where a group has one result: a block for a tile of points of one image, which has one channel at a time of what the
// tile sees of the source, and the weights of it, in shared memory.
template <class T> __device__ void correlate_one(const T* source, const T* weight, const T* bias, T* result, const Conv& conv) {
    const int tile_height = (int)conv.images, tile_width = (int)conv.band_rows;
    const i64 height = conv.backward ? (conv.result[0] + conv.stride[0] - 1) / conv.stride[0] : conv.result[0];
    const i64 width = conv.backward ? (conv.result[1] + conv.stride[1] - 1) / conv.stride[1] : conv.result[1];
    const int across = (int)((width + tile_width - 1) / tile_width), down = (int)((height + tile_height - 1) / tile_height);
    i64 rest = blockIdx.x;
    const Work work(conv, rest, conv.batch * down * across);
    const int first_x = (int)(rest % across) * tile_width, first_y = (int)(rest / across % down) * tile_height;
    const i64 image = rest / across / down;
    if (first_y >= work.y.grid || first_x >= work.x.grid) {
        return;
    }
    // The source's pixels that the taps of the tile are at.
    const Side &y = work.y, &x = work.x;
    const int reach_y = (y.count > 0 ? y.count - 1 : 0) * (y.delta < 0 ? -y.delta : y.delta);
    const int reach_x = (x.count > 0 ? x.count - 1 : 0) * (x.delta < 0 ? -x.delta : x.delta);
    const int seen_height = (tile_height - 1) * y.step + reach_y + 1, seen_width = (tile_width - 1) * x.step + reach_x + 1;
    const int top = first_y * y.step + y.origin - (y.delta < 0 ? reach_y : 0);
    const int left = first_x * x.step + x.origin - (x.delta < 0 ? reach_x : 0);
    T* seen = reinterpret_cast<T*>(shared_memory);
    T* weights = seen + seen_height * seen_width;

    const int thread = threadIdx.x, threads = blockDim.x, taps = y.count * x.count;
    source += (image * conv.groups + work.group) * conv.channels * conv.source_plane();
    weight += work.group * (conv.backward ? conv.channels * conv.weight_channel : conv.results * conv.weight_result);
    if (bias && thread == 0) {
        // Read once for all; behind the weights.
        weights[taps] = bias[work.group];
    }
    T sums[POINTS] = {};
    for (int channel = 0; channel < (int)conv.channels; ++channel) {
        for (int i = thread; i < seen_height * seen_width; i += threads) {
            const int row = top + i / seen_width, col = left + i % seen_width;
            const bool inside = (u32)row < (u32)y.source && (u32)col < (u32)x.source;
            seen[i] = inside ? source[(i64)row * x.source + col] : T(0);
        }
        for (int tap = thread; tap < taps; tap += threads) {
            const int row = y.first_tap + tap / x.count * y.tap_step, col = x.first_tap + tap % x.count * x.tap_step;
            weights[tap] = weight[row * (int)conv.kernel[1] + col];
        }
        __syncthreads();
#pragma unroll
        for (int point = 0; point < POINTS; ++point) {
            const int number = thread + point * threads;
            if (number < tile_height * tile_width) {
                const int row = number / tile_width * y.step + (y.delta < 0 ? reach_y : 0);
                const int col = number % tile_width * x.step + (x.delta < 0 ? reach_x : 0);
                for (int i = 0; i < y.count; ++i) {
                    const T* at = seen + (row + i * y.delta) * seen_width + col;
                    for (int j = 0; j < x.count; ++j) {
                        sums[point] = multiply_add(weights[i * x.count + j], at[j * x.delta], sums[point]);
                    }
                }
            }
        }
        __syncthreads();
        source += conv.source_plane();
        weight += conv.weight_channel;
    }
    T* to = result + (image * conv.groups + work.group) * conv.result_plane();
    const T more = bias ? weights[taps] : T(0);
#pragma unroll
    for (int point = 0; point < POINTS; ++point) {
        const int number = thread + point * threads;
        const int row = first_y + number / tile_width, col = first_x + number % tile_width;
        if (number < tile_height * tile_width && row < y.grid && col < x.grid) {
            const i64 place = (i64)(row * y.result_step + y.result_first) * conv.result[1] + col * x.result_step + x.result_first;
            to[place] = bias ? sums[point] + more : sums[point];
        }
    }
}

// Pixels whose operands are in shared memory at a time.
constexpr int PIXELS = 32;

// A pixel of the output: where its gradient is in a plane, and its first tap in the input.
struct alignas(16) Pixel {
    int grad, source, y, x;
};

// The gradient of the weight: a tile of ROWS results by COLS taps of channels, summed over the pixels of some bands. Here
// `conv.source` is the input and `conv.result` the output, whose gradient is read.
//
// Pixels lie side by side in memory, so neighbouring threads load neighbouring pixels. In shared memory results lie side by
// side; a number's place among WIDTH of them is turned by its pixel (`turn`), which keeps the threads out of each other's banks.
template <class T, int ROWS, int COLS, int EACH_ROW, int EACH_COL>
__device__ void weight_grad(const T* source, const T* grad, T* partial, const Conv& conv) {
    constexpr int THREADS = ROWS / EACH_ROW * (COLS / EACH_COL);
    constexpr int WIDTH = WIDE<T>, ROW_PIECES = EACH_ROW / WIDTH, COL_PIECES = EACH_COL / WIDTH;
    constexpr int ROW_DISTANCE = ROWS / ROW_PIECES, COL_DISTANCE = COLS / COL_PIECES;
    constexpr int WARPS = THREADS / WARP, GRADS = ROWS / WARPS, SOURCES = COLS / WARPS;
    __shared__ alignas(16) T grads[PIXELS][ROWS + WIDTH];
    __shared__ alignas(16) T sources[PIXELS][COLS + WIDTH];
    __shared__ Tap places[COLS];
    __shared__ Pixel pixels[PIXELS];
    const auto turn = [](int pixel) { return pixel / 8 % WIDTH; };

    const int taps = (int)(conv.kernel[0] * conv.kernel[1]), columns = (int)conv.channels * taps;
    const int results = (int)conv.results;
    const int row_tiles = (results + ROWS - 1) / ROWS, col_tiles = (columns + COLS - 1) / COLS;
    i64 rest = blockIdx.x;
    const int first_row = (int)(rest % row_tiles) * ROWS;
    rest /= row_tiles;
    const int first_col = (int)(rest % col_tiles) * COLS;
    rest /= col_tiles;
    const i64 group = rest % conv.groups, part = rest / conv.groups;
    // The images and bands that this block adds.
    const int height = (int)conv.result[0], width = (int)conv.result[1], band_rows = (int)conv.band_rows;
    const int bands = (height + band_rows - 1) / band_rows;
    i64 image = conv.split ? part / bands : part * conv.images, end = conv.split ? image + 1 : image + conv.images;
    end = end < conv.batch ? end : conv.batch;
    const int first_band = conv.split ? (int)(part % bands) : 0, end_band = conv.split ? first_band + 1 : bands;

    const int thread = threadIdx.x, lane = thread % WARP, warp = thread / WARP;
    const int source_height = (int)conv.source[0], source_width = (int)conv.source[1];
    for (int i = thread; i < COLS; i += THREADS) {
        const int column = first_col + i, tap = column % taps;
        const int y = tap / (int)conv.kernel[1] * (int)conv.dilation[0] - (int)conv.padding[0];
        const int x = tap % (int)conv.kernel[1] * (int)conv.dilation[1] - (int)conv.padding[1];
        const int place = (int)(column / taps * conv.source_plane()) + y * source_width + x;
        places[i] = {place, 0, column < columns ? y : 2 * OUTSIDE, x};
    }
    const int row = thread / (COLS / EACH_COL) * WIDTH, col = thread % (COLS / EACH_COL) * WIDTH;
    T totals[EACH_ROW][EACH_COL] = {};
    for (; image < end; ++image) {
        const T* image_source = source + (image * conv.groups + group) * conv.channels * conv.source_plane();
        const T* image_grad = grad + (image * conv.groups + group) * conv.results * conv.result_plane();
        for (int band = first_band; band < end_band; ++band) {
            const int first_pixel = band * band_rows * width, last_row = (band + 1) * band_rows;
            const int end_pixel = (last_row < height ? last_row : height) * width;
            T sums[EACH_ROW][EACH_COL] = {};
            for (int first = first_pixel; first < end_pixel; first += PIXELS) {
                if (thread < PIXELS) {
                    const int pixel = first + thread, y = pixel / width * (int)conv.stride[0];
                    const int x = pixel % width * (int)conv.stride[1];
                    pixels[thread] = {pixel, y * source_width + x, pixel < end_pixel ? y : OUTSIDE, x};
                }
                __syncthreads();
                const Pixel pixel = pixels[lane];
#pragma unroll 4
                for (int i = 0; i < GRADS; ++i) {
                    const int at = warp + i * WARPS;
                    const bool inside = first_row + at < results && first + lane < end_pixel;
                    const T number = inside ? image_grad[(first_row + at) * conv.result_plane() + pixel.grad] : T(0);
                    grads[lane][at ^ turn(lane)] = number;
                }
#pragma unroll 4
                for (int i = 0; i < SOURCES; ++i) {
                    const int at = warp + i * WARPS;
                    const Tap tap = places[at];
                    const bool inside = (u32)(pixel.y + tap.y) < (u32)source_height && (u32)(pixel.x + tap.x) < (u32)source_width;
                    const T number = inside ? image_source[pixel.source + tap.source] : T(0);
                    sources[lane][at ^ turn(lane)] = number;
                }
                __syncthreads();
#pragma unroll
                for (int step = 0; step < PIXELS; ++step) {
                    if (first + step < end_pixel) {
                        Wide<T> left[ROW_PIECES], right[COL_PIECES];
#pragma unroll
                        for (int i = 0; i < ROW_PIECES; ++i) {
                            left[i] = *(const Wide<T>*)&grads[step][row + i * ROW_DISTANCE];
                        }
#pragma unroll
                        for (int j = 0; j < COL_PIECES; ++j) {
                            right[j] = *(const Wide<T>*)&sources[step][col + j * COL_DISTANCE];
                        }
#pragma unroll
                        for (int i = 0; i < EACH_ROW; ++i) {
#pragma unroll
                            for (int j = 0; j < EACH_COL; ++j) {
                                const T a = left[i / WIDTH].at[(i ^ turn(step)) % WIDTH];
                                const T b = right[j / WIDTH].at[(j ^ turn(step)) % WIDTH];
                                sums[i][j] = multiply_add(a, b, sums[i][j]);
                            }
                        }
                    }
                }
                __syncthreads();
            }
#pragma unroll
            for (int i = 0; i < EACH_ROW; ++i) {
#pragma unroll
                for (int j = 0; j < EACH_COL; ++j) {
                    totals[i][j] = conv.split ? sums[i][j] : totals[i][j] + sums[i][j];
                }
            }
        }
    }
    partial += (part * conv.groups + group) * results * columns;
#pragma unroll
    for (int i = 0; i < EACH_ROW; ++i) {
        const int at_row = first_row + row + i / WIDTH * ROW_DISTANCE + i % WIDTH;
#pragma unroll
        for (int j = 0; j < EACH_COL; ++j) {
            const int at_col = first_col + col + j / WIDTH * COL_DISTANCE + j % WIDTH;
            if (at_row < results && at_col < columns) {
                partial[(i64)at_row * columns + at_col] = totals[i][j];
            }
        }
    }
}

// The threads of a block of `weight_grad_few`, and the taps that one sums at a time.
constexpr int FEW_THREADS = 128;
constexpr int FEW_TAPS = 9;

// Adds up what the threads of a block have of some taps, by halves, and writes the sums.
template <class T> __device__ inline void weight_grad_end(const T (&own)[FEW_TAPS], T* sums, T* partial, int first_tap, int taps) {
#pragma unroll
    for (int i = 0; i < FEW_TAPS; ++i) {
        sums[threadIdx.x] = own[i];
        __syncthreads();
        for (int half = FEW_THREADS / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) {
                sums[threadIdx.x] = sums[threadIdx.x] + sums[threadIdx.x + half];
            }
            __syncthreads();
        }
        if (threadIdx.x == 0 && first_tap + i < taps) {
            partial[first_tap + i] = sums[0];
        }
        __syncthreads();
    }
}

// The gradient of the weight where a group has one result: a block for each channel, some taps and some images, a thread for
// every so many pixels, whose sums are then halved. The host has another order here.
template <class T> __device__ void weight_grad_few(const T* source, const T* grad, T* partial, const Conv& conv) {
    __shared__ T sums[FEW_THREADS];
    const int taps = (int)(conv.kernel[0] * conv.kernel[1]), chunks = (taps + FEW_TAPS - 1) / FEW_TAPS;
    i64 rest = blockIdx.x;
    const int first_tap = (int)(rest % chunks) * FEW_TAPS;
    rest /= chunks;
    const i64 channel = rest % conv.channels;
    rest /= conv.channels;
    const i64 group = rest % conv.groups, part = rest / conv.groups;
    const i64 first = part * conv.images, end = first + conv.images < conv.batch ? first + conv.images : conv.batch;
    const int width = (int)conv.result[1], plane = (int)conv.result_plane();
    const int source_height = (int)conv.source[0], source_width = (int)conv.source[1];
    int ys[FEW_TAPS], xs[FEW_TAPS];
    T own[FEW_TAPS] = {};
#pragma unroll
    for (int i = 0; i < FEW_TAPS; ++i) {
        const int tap = first_tap + i;
        ys[i] = tap < taps ? tap / (int)conv.kernel[1] * (int)conv.dilation[0] - (int)conv.padding[0] : OUTSIDE;
        xs[i] = tap % (int)conv.kernel[1] * (int)conv.dilation[1] - (int)conv.padding[1];
    }
    for (i64 image = first; image < end; ++image) {
        const T* image_source = source + ((image * conv.groups + group) * conv.channels + channel) * conv.source_plane();
        const T* image_grad = grad + (image * conv.groups + group) * conv.result_plane();
        for (int pixel = threadIdx.x; pixel < plane; pixel += FEW_THREADS) {
            const int y = pixel / width * (int)conv.stride[0], x = pixel % width * (int)conv.stride[1];
            const T number = image_grad[pixel];
#pragma unroll
            for (int i = 0; i < FEW_TAPS; ++i) {
                const bool inside = (u32)(y + ys[i]) < (u32)source_height && (u32)(x + xs[i]) < (u32)source_width;
                const T value = inside ? image_source[(i64)(y + ys[i]) * source_width + x + xs[i]] : T(0);
                own[i] = multiply_add(number, value, own[i]);
            }
        }
    }
    weight_grad_end(own, sums, partial + ((part * conv.groups + group) * conv.channels + channel) * taps, first_tap, taps);
}

// The same, where what `band_rows` rows of the output see of the image fits into shared memory.
template <class T> __device__ void weight_grad_one(const T* source, const T* grad, T* partial, const Conv& conv) {
    __shared__ T sums[FEW_THREADS];
    T* seen = reinterpret_cast<T*>(shared_memory);
    const int taps = (int)(conv.kernel[0] * conv.kernel[1]), chunks = (taps + FEW_TAPS - 1) / FEW_TAPS;
    i64 rest = blockIdx.x;
    const int first_tap = (int)(rest % chunks) * FEW_TAPS;
    rest /= chunks;
    const i64 channel = rest % conv.channels;
    rest /= conv.channels;
    const i64 group = rest % conv.groups, part = rest / conv.groups;
    const i64 first = part * conv.images, end = first + conv.images < conv.batch ? first + conv.images : conv.batch;
    const int height = (int)conv.result[0], width = (int)conv.result[1], band_rows = (int)conv.band_rows;
    const int stride_y = (int)conv.stride[0], stride_x = (int)conv.stride[1];
    const int seen_width = (width - 1) * stride_x + (int)((conv.kernel[1] - 1) * conv.dilation[1]) + 1;
    const int reach = (int)((conv.kernel[0] - 1) * conv.dilation[0]) + 1;
    int places[FEW_TAPS];
    T own[FEW_TAPS] = {};
#pragma unroll
    for (int i = 0; i < FEW_TAPS; ++i) {
        const int tap = first_tap + i < taps ? first_tap + i : 0;
        places[i] = tap / (int)conv.kernel[1] * (int)conv.dilation[0] * seen_width + tap % (int)conv.kernel[1] * (int)conv.dilation[1];
    }
    for (i64 image = first; image < end; ++image) {
        const T* image_source = source + ((image * conv.groups + group) * conv.channels + channel) * conv.source_plane();
        const T* image_grad = grad + (image * conv.groups + group) * conv.result_plane();
        for (int first_row = 0; first_row < height; first_row += band_rows) {
            const int rows = height - first_row < band_rows ? height - first_row : band_rows;
            const int top = first_row * stride_y - (int)conv.padding[0], left = -(int)conv.padding[1];
            for (int i = threadIdx.x; i < ((rows - 1) * stride_y + reach) * seen_width; i += FEW_THREADS) {
                const int row = top + i / seen_width, col = left + i % seen_width;
                const bool inside = (u32)row < (u32)conv.source[0] && (u32)col < (u32)conv.source[1];
                seen[i] = inside ? image_source[(i64)row * conv.source[1] + col] : T(0);
            }
            __syncthreads();
            for (int pixel = threadIdx.x; pixel < rows * width; pixel += FEW_THREADS) {
                const T number = image_grad[(i64)first_row * width + pixel];
                const T* at = seen + pixel / width * stride_y * seen_width + pixel % width * stride_x;
#pragma unroll
                for (int i = 0; i < FEW_TAPS; ++i) {
                    own[i] = multiply_add(number, at[places[i]], own[i]);
                }
            }
            __syncthreads();
        }
    }
    weight_grad_end(own, sums, partial + ((part * conv.groups + group) * conv.channels + channel) * taps, first_tap, taps);
}

// Adds the parts of the weight's gradient, each of `count` numbers: runs of `together` of them first, then those in order.
template <class T> __device__ void add_parts(const T* partial, T* result, i64 count, i64 parts, i64 together) {
    const i64 at = thread_of_launch();
    if (at >= count) {
        return;
    }
    T total = T(0);
    for (i64 first = 0; first < parts; first += together) {
        const i64 end = first + together < parts ? first + together : parts;
        T sum = T(0);
        for (i64 part = first; part < end; ++part) {
            sum = sum + partial[part * count + at];
        }
        total = first == 0 ? sum : total + sum;
    }
    result[at] = total;
}

#define CORRELATE(T, NAME, ROWS, COLS, EACH_ROW, EACH_COL, BLOCKS)                                                     \
    extern "C" __global__ void __launch_bounds__(ROWS / EACH_ROW * (COLS / EACH_COL), BLOCKS)                          \
    conv2d_##ROWS##x##COLS##_##NAME(                                                                                   \
        const T* source, const T* weight, const T* bias, T* result, Conv conv                                          \
    ) {                                                                                                                \
        correlate<T, ROWS, COLS, EACH_ROW, EACH_COL>(source, weight, bias, result, conv);                              \
    }

#define WEIGHT_GRAD(T, NAME, ROWS, COLS, EACH_ROW, EACH_COL, BLOCKS)                                                   \
    extern "C" __global__ void __launch_bounds__(ROWS / EACH_ROW * (COLS / EACH_COL), BLOCKS)                          \
    conv2d_weight_grad_##ROWS##x##COLS##_##NAME(const T* source, const T* grad, T* partial, Conv conv) {               \
        weight_grad<T, ROWS, COLS, EACH_ROW, EACH_COL>(source, grad, partial, conv);                                   \
    }

#define FEW(T, NAME)                                                                                                   \
    extern "C" __global__ void conv2d_few_##NAME(                                                                      \
        const T* source, const T* weight, const T* bias, T* result, Conv conv                                          \
    ) {                                                                                                                \
        correlate_few(source, weight, bias, result, conv);                                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 4) conv2d_one_##NAME(                                            \
        const T* source, const T* weight, const T* bias, T* result, Conv conv                                          \
    ) {                                                                                                                \
        correlate_one(source, weight, bias, result, conv);                                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS) conv2d_weight_grad_few_##NAME(                           \
        const T* source, const T* grad, T* partial, Conv conv                                                          \
    ) {                                                                                                                \
        weight_grad_few(source, grad, partial, conv);                                                                  \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 8) conv2d_weight_grad_one_##NAME(                        \
        const T* source, const T* grad, T* partial, Conv conv                                                          \
    ) {                                                                                                                \
        weight_grad_one(source, grad, partial, conv);                                                                  \
    }                                                                                                                  \
    extern "C" __global__ void conv2d_add_parts_##NAME(                                                                \
        const T* partial, T* result, i64 count, i64 parts, i64 together                                                \
    ) {                                                                                                                \
        add_parts(partial, result, count, parts, together);                                                            \
    }

// The last number is the blocks that a processor takes at once: registers are dealt for so many.
CORRELATE(float, f32, 128, 128, 8, 8, 2)
CORRELATE(float, f32, 64, 128, 8, 8, 3)
CORRELATE(float, f32, 64, 64, 4, 8, 4)
CORRELATE(float, f32, 32, 128, 8, 4, 4)
CORRELATE(float, f32, 16, 256, 4, 8, 4)
CORRELATE(double, f64, 64, 64, 4, 4, 2)
CORRELATE(double, f64, 16, 128, 4, 4, 4)
WEIGHT_GRAD(float, f32, 64, 64, 8, 4, 4)
WEIGHT_GRAD(float, f32, 16, 128, 4, 4, 4)
WEIGHT_GRAD(float, f32, 32, 16, 4, 4, 16)
WEIGHT_GRAD(double, f64, 32, 64, 4, 4, 4)
WEIGHT_GRAD(double, f64, 16, 16, 2, 2, 8)
FEW(float, f32)
FEW(double, f64)
