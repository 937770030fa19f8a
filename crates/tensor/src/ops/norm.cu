// Normalisation: layer, RMS and group norm over rows, batch norm over channels, forward and backward. Sums have the host's
// order (see cpu/src/norm.rs): the bits are the same. A row is read once where it fits into registers (a warp for each row) or
// shared memory (a block for each), and what all rows share once for each block.

#include "row.cuh"

// As in cpu/src/norm.rs.
constexpr int ROW_GROUP = 24;
constexpr int SUM_GROUP = 64;
constexpr int CHUNK = 512;
constexpr int NARROW_IMAGES = 32;

// Threads of a block that works on one wide row at a time.
constexpr u32 WIDE_THREADS = 1024;

// Rows that are normalised each by itself. Row r has the weights of group r % groups, `plane` neighbours share one. A warp
// or block takes `per` rows, one after the other. `staged` is whether there is shared memory for a row.
struct Rows {
    i64 rows, cols, groups, plane, per, centered, staged, unused;

    __device__ i64 parameter(i64 row, i64 column) const {
        return groups == 1 && plane == 1 ? column : (row % groups * cols + column) / plane;
    }
};

// Pairs of a row that a lane or thread keeps: doubles take twice the room.
template <class S> constexpr int short_pairs() { return sizeof(S) == 8 ? 2 : 3; }
template <class S> constexpr int medium_pairs() { return sizeof(S) == 8 ? 4 : 12; }
template <class S> constexpr int grad_lane_pairs() { return sizeof(S) == 8 ? 1 : 2; }
template <class S> constexpr int thread_pairs() { return sizeof(S) == 8 ? 1 : 2; }

// The numbers of weight or bias for a row; `none` where there are none.
template <class S, class T, int PAIRS, u32 THREADS>
__device__ inline void load_parameters(
    const S* from, const Share<PAIRS, THREADS>& share, const Rows& sizes, i64 row, T none, T (&to)[PAIRS][2]
) {
    if (from == nullptr) {
        for (int k = 0; k < PAIRS; ++k) {
            to[k][0] = to[k][1] = none;
        }
    } else if (sizes.groups == 1 && sizes.plane == 1) {
        share.load(from, to);
    } else {
        share.each([&](int k, int j, u32 i) { to[k][j] = widen(from[sizes.parameter(row, i)]); });
    }
}

// (x - center) * scale, times the weight and plus the bias, where there are some.
template <class T> __device__ inline T affine(T x, T center, T scale, bool weighted, T weight, bool biased, T bias) {
    T y = (x - center) * scale;
    y = weighted ? y * weight : y;
    return biased ? y + bias : y;
}

template <class T> __device__ inline T rstd_of(double variance, double eps) { return (T)(1.0 / sqrt(variance + eps)); }

// A warp for each row. Weight and bias that all rows SHARE are in shared memory.
template <int PAIRS, bool SHARED, class S, class T>
__device__ void norm_rows(const S* x, const S* weight, const S* bias, S* y, T* mean, T* rstd, const Rows& sizes, double eps) {
    const bool weighted = weight != nullptr, biased = bias != nullptr;
    const S* weights = reinterpret_cast<S*>(shared_memory);
    const S* biases = weights + sizes.cols;
    if (SHARED) {
        S* kept = reinterpret_cast<S*>(shared_memory);
        for (u32 i = threadIdx.x; i < sizes.cols; i += blockDim.x) {
            if (weighted) {
                kept[i] = weight[i];
            }
            if (biased) {
                kept[sizes.cols + i] = bias[i];
            }
        }
        __syncthreads();
    }
    const i64 first = warp_of_launch() * sizes.per;
    const i64 last = first + sizes.per < sizes.rows ? first + sizes.per : sizes.rows;
    const Share<PAIRS, WARP> share = {threadIdx.x % WARP, (u32)sizes.cols, sizes.cols % 2 == 0 && is_even(x) && is_even(y)};
    for (i64 row = first; row < last; ++row) {
        T value[PAIRS][2];
        share.load(x + row * sizes.cols, value);
        T center = T(0);
        if (sizes.centered) {
            center = (T)((double)reduce_lanes<T, Sum<T>>(share, [&](int k, int j) { return value[k][j]; }) / (double)sizes.cols);
        }
        const T squares = reduce_lanes<T, Sum<T>>(share, [&](int k, int j) {
            const T apart = value[k][j] - center;
            return apart * apart;
        });
        const T scale = rstd_of<T>((double)squares / (double)sizes.cols, eps);
#pragma unroll
        for (int k = 0; k < PAIRS; ++k) {
            T factors[2] = {T(1), T(1)}, more[2] = {T(0), T(0)};
            if (SHARED) {
                if (weighted) {
                    share.load_pair(weights, k, factors);
                }
                if (biased) {
                    share.load_pair(biases, k, more);
                }
            } else {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    if ((weighted || biased) && share.at(k, j) < sizes.cols) {
                        const i64 place = sizes.parameter(row, share.at(k, j));
                        factors[j] = weighted ? widen(weight[place]) : T(1);
                        more[j] = biased ? widen(bias[place]) : T(0);
                    }
                }
            }
            share.store_pair(y + row * sizes.cols, k, [&](int, int j) {
                return affine(value[k][j], center, scale, weighted, factors[j], biased, more[j]);
            });
        }
        if (share.thread == 0) {
            if (sizes.centered) {
                mean[row] = center;
            }
            rstd[row] = scale;
        }
    }
}

// A block for each row, which shared memory has room for.
template <class S, class T>
__device__ void norm_wide(const S* x, const S* weight, const S* bias, S* y, T* mean, T* rstd, const Rows& sizes, double eps) {
    constexpr int PAIRS = thread_pairs<S>();
    __shared__ T parts[WARP];
    T* kept = reinterpret_cast<T*>(shared_memory);
    const i64 first = (i64)blockIdx.x * sizes.per;
    const i64 last = first + sizes.per < sizes.rows ? first + sizes.per : sizes.rows;
    const bool even = sizes.cols % 2 == 0 && is_even(x) && is_even(y) && is_even(weight) && is_even(bias);
    const Share<PAIRS, WIDE_THREADS> share = {threadIdx.x, (u32)sizes.cols, even};
    const bool shared_parameters = sizes.groups == 1 && sizes.plane == 1;
    const bool weighted = weight != nullptr, biased = bias != nullptr;
    T weights[PAIRS][2], biases[PAIRS][2], value[PAIRS][2];
    for (i64 row = first; row < last; ++row) {
        if (row == first || !shared_parameters) {
            load_parameters(weight, share, sizes, row, T(1), weights);
            load_parameters(bias, share, sizes, row, T(0), biases);
        }
        share.load(x + row * sizes.cols, value);
        share.store(kept, [&](int k, int j) { return value[k][j]; });
        __syncthreads();
        T center = T(0);
        if (sizes.centered) {
            center = (T)(block_sum<T, double>(sizes.cols, parts, [&](i64 i) { return kept[i]; }) / (double)sizes.cols);
        }
        const double squares = block_sum<T, double>(sizes.cols, parts, [&](i64 i) {
            const T apart = kept[i] - center;
            return apart * apart;
        });
        const T scale = rstd_of<T>(squares / (double)sizes.cols, eps);
        share.store(y + row * sizes.cols, [&](int k, int j) {
            return affine(value[k][j], center, scale, weighted, weights[k][j], biased, biases[k][j]);
        });
        if (threadIdx.x == 0) {
            if (sizes.centered) {
                mean[row] = center;
            }
            rstd[row] = scale;
        }
    }
}

// A block for each row of any length: kept in shared memory if it is `staged`, else read for each sum.
template <class S, class T>
__device__ void norm_long(const S* x, const S* weight, const S* bias, S* y, T* mean, T* rstd, const Rows& sizes, double eps) {
    __shared__ T parts[WARP];
    T* kept = reinterpret_cast<T*>(shared_memory);
    const i64 row = blockIdx.x;
    const bool weighted = weight != nullptr, biased = bias != nullptr;
    x += row * sizes.cols;
    y += row * sizes.cols;
    if (sizes.staged) {
        for (i64 i = threadIdx.x; i < sizes.cols; i += BLOCK_THREADS) {
            kept[i] = widen(x[i]);
        }
        __syncthreads();
    }
    const auto value = [&](i64 i) { return sizes.staged ? kept[i] : widen(x[i]); };
    T center = T(0);
    if (sizes.centered) {
        center = (T)(block_sum<T, double>(sizes.cols, parts, value) / (double)sizes.cols);
    }
    const double squares = block_sum<T, double>(sizes.cols, parts, [&](i64 i) {
        const T apart = value(i) - center;
        return apart * apart;
    });
    const T scale = rstd_of<T>(squares / (double)sizes.cols, eps);
    for (i64 i = threadIdx.x; i < sizes.cols; i += BLOCK_THREADS) {
        const i64 place = sizes.parameter(row, i);
        const T factor = weighted ? widen(weight[place]) : T(1), more = biased ? widen(bias[place]) : T(0);
        y[i] = narrow<S>(affine(value(i), center, scale, weighted, factor, biased, more));
    }
    if (threadIdx.x == 0) {
        if (sizes.centered) {
            mean[row] = center;
        }
        rstd[row] = scale;
    }
}

// The gradient of x from that of the normalised value.
template <class T> __device__ inline T grad_of_x(T grad, T normal, T average, T slope, T rstd) {
    return (grad - average - normal * slope) * rstd;
}

// A warp for each row; where `partial` isn't null it adds up the parameters' gradients of its `per` rows: [warps, 2, cols].
template <class S, class T>
__device__ void norm_grad_rows(
    const S* x, const S* grad, const S* weight, const T* mean, const T* rstd, S* out, T* partial, const Rows& sizes
) {
    constexpr int PAIRS = grad_lane_pairs<S>();
    const i64 warp = warp_of_launch();
    const i64 first = warp * sizes.per;
    const i64 last = first + sizes.per < sizes.rows ? first + sizes.per : sizes.rows;
    if (first >= sizes.rows) {
        return;
    }
    const bool even = sizes.cols % 2 == 0 && is_even(x) && is_even(grad) && is_even(out) && is_even(weight) && is_even(partial);
    const Share<PAIRS, WARP> share = {threadIdx.x % WARP, (u32)sizes.cols, even};
    const bool shared_parameters = sizes.groups == 1 && sizes.plane == 1;
    T weights[PAIRS][2], of_weight[PAIRS][2] = {}, of_bias[PAIRS][2] = {};
    for (i64 row = first; row < last; ++row) {
        if (row == first || !shared_parameters) {
            load_parameters(weight, share, sizes, row, T(1), weights);
        }
        T normal[PAIRS][2], value[PAIRS][2];
        share.load(x + row * sizes.cols, normal);
        share.load(grad + row * sizes.cols, value);
        const T center = sizes.centered ? mean[row] : T(0), scale = rstd[row];
        share.each([&](int k, int j, u32) {
            normal[k][j] = (normal[k][j] - center) * scale;
            of_weight[k][j] = of_weight[k][j] + value[k][j] * normal[k][j];
            of_bias[k][j] = of_bias[k][j] + value[k][j];
            value[k][j] = weight == nullptr ? value[k][j] : value[k][j] * weights[k][j];
        });
        T average = T(0);
        if (sizes.centered) {
            average = (T)((double)reduce_lanes<T, Sum<T>>(share, [&](int k, int j) { return value[k][j]; }) / (double)sizes.cols);
        }
        const T dot = reduce_lanes<T, Sum<T>>(share, [&](int k, int j) { return value[k][j] * normal[k][j]; });
        const T slope = (T)((double)dot / (double)sizes.cols);
        share.store(out + row * sizes.cols, [&](int k, int j) {
            return grad_of_x(value[k][j], normal[k][j], average, slope, scale);
        });
    }
    if (partial != nullptr) {
        partial += warp * 2 * sizes.cols;
        share.store(partial, [&](int k, int j) { return of_weight[k][j]; });
        share.store(partial + sizes.cols, [&](int k, int j) { return of_bias[k][j]; });
    }
}

// A block of THREADS for each row, of which shared memory has room for two. While two warps add up a row, the next is read.
template <int PAIRS, u32 THREADS, class S, class T>
__device__ void norm_grad_blocks(
    const S* x, const S* grad, const S* weight, const T* mean, const T* rstd, S* out, T* partial, const Rows& sizes
) {
    __shared__ T sums[2], centers[ROW_GROUP], scales[ROW_GROUP];
    T* normals = reinterpret_cast<T*>(shared_memory);
    T* values = normals + sizes.cols;
    const i64 first = (i64)blockIdx.x * sizes.per;
    const i64 last = first + sizes.per < sizes.rows ? first + sizes.per : sizes.rows;
    const bool even = sizes.cols % 2 == 0 && is_even(x) && is_even(grad) && is_even(out) && is_even(weight) && is_even(partial);
    const Share<PAIRS, THREADS> share = {threadIdx.x, (u32)sizes.cols, even};
    const bool shared_parameters = sizes.groups == 1 && sizes.plane == 1;
    T of_weight[PAIRS][2] = {}, of_bias[PAIRS][2] = {}, weights[PAIRS][2], loaded[PAIRS][2], grads[PAIRS][2];
    if (first + threadIdx.x < last) {
        centers[threadIdx.x] = sizes.centered ? mean[first + threadIdx.x] : T(0);
        scales[threadIdx.x] = rstd[first + threadIdx.x];
    }
    share.load(x + first * sizes.cols, loaded);
    share.load(grad + first * sizes.cols, grads);
    __syncthreads();
    for (i64 row = first; row < last; ++row) {
        if (row == first || !shared_parameters) {
            load_parameters(weight, share, sizes, row, T(1), weights);
        }
        const T center = centers[row - first], scale = scales[row - first];
        T normal[PAIRS][2], value[PAIRS][2];
        share.each([&](int k, int j, u32) {
            normal[k][j] = (loaded[k][j] - center) * scale;
            of_weight[k][j] = of_weight[k][j] + grads[k][j] * normal[k][j];
            of_bias[k][j] = of_bias[k][j] + grads[k][j];
            value[k][j] = weight == nullptr ? grads[k][j] : grads[k][j] * weights[k][j];
        });
        share.store(normals, [&](int k, int j) { return normal[k][j]; });
        share.store(values, [&](int k, int j) { return value[k][j]; });
        __syncthreads();
        if (row + 1 < last) {
            share.load(x + (row + 1) * sizes.cols, loaded);
            share.load(grad + (row + 1) * sizes.cols, grads);
        }
        // Rows of this kernel are no longer than a block of the host's sums: a warp each for the two of them.
        if (threadIdx.x / WARP == 0) {
            const T sum = reduce_block<T, Sum<T>>(0, sizes.cols, [&](i64 i) { return values[i] * normals[i]; });
            sums[0] = (T)((double)sum / (double)sizes.cols);
        } else if (threadIdx.x / WARP == 1) {
            const T sum = reduce_block<T, Sum<T>>(0, sizes.cols, [&](i64 i) { return values[i]; });
            sums[1] = sizes.centered ? (T)((double)sum / (double)sizes.cols) : T(0);
        }
        __syncthreads();
        const T slope = sums[0], average = sums[1];
        share.store(out + row * sizes.cols, [&](int k, int j) {
            return grad_of_x(value[k][j], normal[k][j], average, slope, scale);
        });
    }
    if (partial != nullptr) {
        partial += (i64)blockIdx.x * 2 * sizes.cols;
        share.store(partial, [&](int k, int j) { return of_weight[k][j]; });
        share.store(partial + sizes.cols, [&](int k, int j) { return of_bias[k][j]; });
    }
}

// A block for each row of any length, read for each sum. The parameters' gradients are another kernel's.
template <class S, class T>
__device__ void norm_grad_long(
    const S* x, const S* grad, const S* weight, const T* mean, const T* rstd, S* out, const Rows& sizes
) {
    __shared__ T parts[WARP];
    const i64 row = blockIdx.x;
    x += row * sizes.cols;
    grad += row * sizes.cols;
    out += row * sizes.cols;
    const T center = sizes.centered ? mean[row] : T(0), scale = rstd[row];
    const auto normal = [&](i64 i) { return (widen(x[i]) - center) * scale; };
    const auto value = [&](i64 i) {
        return weight == nullptr ? widen(grad[i]) : widen(grad[i]) * widen(weight[sizes.parameter(row, i)]);
    };
    T average = T(0);
    if (sizes.centered) {
        average = (T)(block_sum<T, double>(sizes.cols, parts, value) / (double)sizes.cols);
    }
    const double dot = block_sum<T, double>(sizes.cols, parts, [&](i64 i) { return value(i) * normal(i); });
    const T slope = (T)(dot / (double)sizes.cols);
    for (i64 i = threadIdx.x; i < sizes.cols; i += BLOCK_THREADS) {
        out[i] = narrow<S>(grad_of_x(value(i), normal(i), average, slope, scale));
    }
}

// The parameters' gradients of ROW_GROUP rows, for rows that are too long to have them beside the others: a thread for each
// column of each group.
template <class S, class T>
__device__ void norm_grad_columns(const S* x, const S* grad, const T* mean, const T* rstd, T* partial, const Rows& sizes) {
    const i64 groups = (sizes.rows + ROW_GROUP - 1) / ROW_GROUP;
    const i64 group = thread_of_launch() / sizes.cols, column = thread_of_launch() % sizes.cols;
    if (group >= groups) {
        return;
    }
    const i64 last = (group + 1) * ROW_GROUP < sizes.rows ? (group + 1) * ROW_GROUP : sizes.rows;
    T of_weight = T(0), of_bias = T(0);
    for (i64 row = group * ROW_GROUP; row < last; ++row) {
        const T g = widen(grad[row * sizes.cols + column]);
        const T center = sizes.centered ? mean[row] : T(0);
        of_weight = of_weight + g * ((widen(x[row * sizes.cols + column]) - center) * rstd[row]);
        of_bias = of_bias + g;
    }
    partial[group * 2 * sizes.cols + column] = of_weight;
    partial[(group * 2 + 1) * sizes.cols + column] = of_bias;
}

// Adds up SUM_GROUP rows of `width` numbers: a thread for each column of each group.
template <class T> __device__ void norm_sums(const T* rows, T* out, i64 count, i64 width) {
    const i64 group = thread_of_launch() / width, column = thread_of_launch() % width;
    if (group * SUM_GROUP >= count) {
        return;
    }
    const i64 last = (group + 1) * SUM_GROUP < count ? (group + 1) * SUM_GROUP : count;
    T sum = T(0);
#pragma unroll 8
    for (i64 row = group * SUM_GROUP; row < last; ++row) {
        sum = sum + rows[row * width + column];
    }
    out[thread_of_launch()] = sum;
}

// The same for the last sums, of which the halves go to weight and bias; either may be null.
template <class S, class T> __device__ void norm_sums_last(const T* rows, S* of_weight, S* of_bias, i64 count, i64 cols) {
    const i64 column = thread_of_launch();
    if (column >= 2 * cols) {
        return;
    }
    T sum = T(0);
#pragma unroll 8
    for (i64 row = 0; row < count; ++row) {
        sum = sum + rows[row * 2 * cols + column];
    }
    S* out = column < cols ? of_weight : of_bias;
    if (out != nullptr) {
        out[column % cols] = narrow<S>(sum);
    }
}

// A batch of images: `batch` times `channels` planes of `plane` numbers. A plane is cut into `pieces` of CHUNK, or is narrow: then
// `pieces` is 0 and NARROW_IMAGES planes make a chunk. `groups` is that of group norm, 0 where a channel has statistics of its own.
struct Channels {
    i64 batch, channels, plane, pieces, groups, unused[3];

    __device__ i64 chunks() const { return pieces == 0 ? (batch + NARROW_IMAGES - 1) / NARROW_IMAGES : batch * pieces; }
    __device__ i64 chunk_len(i64 chunk) const {
        if (pieces == 0) {
            const i64 images = batch - chunk * NARROW_IMAGES;
            return (images < NARROW_IMAGES ? images : NARROW_IMAGES) * plane;
        }
        const i64 rest = plane - chunk % pieces * CHUNK;
        return rest < CHUNK ? rest : CHUNK;
    }
    // Where mean and deviation of a channel of an image are.
    __device__ i64 statistic(i64 image, i64 channel) const {
        return groups == 0 ? channel : image * groups + channel / (channels / groups);
    }
};

// The piece of a plane that this warp works on; all of its lanes leave together where there is none.
struct Piece {
    i64 image, channel, start, chunk;
    u32 len;

    __device__ bool of_warp(const Channels& sizes) {
        const i64 number = warp_of_launch(), plane = number / sizes.pieces;
        if (plane >= sizes.batch * sizes.channels) {
            return false;
        }
        image = plane / sizes.channels;
        channel = plane % sizes.channels;
        chunk = image * sizes.pieces + number % sizes.pieces;
        start = plane * sizes.plane + number % sizes.pieces * CHUNK;
        len = (u32)sizes.chunk_len(chunk);
        return true;
    }
};

using PieceShare = Share<CHUNK / WARP / 2, WARP>;

// Sum, and squares around the mean, of each chunk, in tables [channels, chunks].
template <class S, class T> __device__ void channel_moments(const S* x, double* sums, double* squares, const Channels& sizes) {
    Piece piece;
    if (!piece.of_warp(sizes)) {
        return;
    }
    x += piece.start;
    const PieceShare share = {threadIdx.x % WARP, piece.len, is_even(x) && piece.len % 2 == 0};
    T value[CHUNK / WARP / 2][2];
    share.load(x, value);
    const double sum = (double)reduce_lanes<T, Sum<T>>(share, [&](int k, int j) { return value[k][j]; });
    const T center = (T)(sum / (double)piece.len);
    const double square = (double)reduce_lanes<T, Sum<T>>(share, [&](int k, int j) {
        const T apart = value[k][j] - center;
        return apart * apart;
    });
    if (share.thread == 0) {
        const i64 place = piece.channel * sizes.chunks() + piece.chunk;
        sums[place] = sum;
        squares[place] = square;
    }
}

// Adds up f(image, place) over a chunk of narrow planes.
template <class T, class Function>
__device__ inline double narrow_sum(const Channels& sizes, i64 chunk, i64 channel, Function f) {
    const i64 first = chunk * NARROW_IMAGES;
    const i64 last = first + NARROW_IMAGES < sizes.batch ? first + NARROW_IMAGES : sizes.batch;
    double total = 0.0;
    for (i64 image = first; image < last; ++image) {
        const i64 start = (image * sizes.channels + channel) * sizes.plane;
        T sum = T(0);
        for (i64 at = start; at < start + sizes.plane; ++at) {
            sum = sum + f(image, at);
        }
        total = total + (double)sum;
    }
    return total;
}

// A thread for each chunk: channels are neighbours.
template <class S, class T>
__device__ void channel_moments_narrow(const S* x, double* sums, double* squares, const Channels& sizes) {
    const i64 chunk = thread_of_launch() / sizes.channels, channel = thread_of_launch() % sizes.channels;
    if (chunk >= sizes.chunks()) {
        return;
    }
    const double sum = narrow_sum<T>(sizes, chunk, channel, [&](i64, i64 at) { return widen(x[at]); });
    const T center = (T)(sum / (double)sizes.chunk_len(chunk));
    const i64 place = channel * sizes.chunks() + chunk;
    sums[place] = sum;
    squares[place] = narrow_sum<T>(sizes, chunk, channel, [&](i64, i64 at) {
        const T apart = widen(x[at]) - center;
        return apart * apart;
    });
}

// A warp for each channel: mean, reciprocal deviation and biased variance from the tables.
template <class T>
__device__ void channel_statistics(
    const double* sums, const double* squares, T* mean, T* rstd, T* variance, const Channels& sizes, double eps
) {
    const i64 channel = warp_of_launch();
    if (channel >= sizes.channels) {
        return;
    }
    const i64 chunks = sizes.chunks();
    const double count = (double)(sizes.batch * sizes.plane);
    sums += channel * chunks;
    squares += channel * chunks;
    const double center = row_sum<double>(chunks, [&](i64 i) { return sums[i]; }) / count;
    const double spread = row_sum<double>(chunks, [&](i64 i) {
        const double len = (double)sizes.chunk_len(i);
        const double apart = sums[i] / len - center;
        return squares[i] + len * (apart * apart);
    });
    if (threadIdx.x % WARP == 0) {
        mean[channel] = (T)center;
        rstd[channel] = rstd_of<T>(spread / count, eps);
        variance[channel] = (T)(spread / count);
    }
}

// y = (x - mean) * scale + bias, a warp for each piece of a plane.
template <class S, class T>
__device__ void channel_norm(
    const S* x, const S* weight, const S* bias, const T* mean, const T* rstd, S* y, const Channels& sizes
) {
    Piece piece;
    if (!piece.of_warp(sizes)) {
        return;
    }
    x += piece.start;
    y += piece.start;
    const PieceShare share = {threadIdx.x % WARP, piece.len, is_even(x) && is_even(y) && piece.len % 2 == 0};
    const T center = mean[piece.channel], unit = rstd[piece.channel];
    const T scale = weight == nullptr ? unit : unit * widen(weight[piece.channel]);
    const T shift = bias == nullptr ? T(0) : widen(bias[piece.channel]);
    T value[CHUNK / WARP / 2][2];
    share.load(x, value);
    share.store(y, [&](int k, int j) { return (value[k][j] - center) * scale + shift; });
}

// The same for narrow planes, a thread for each number.
template <class S, class T>
__device__ void channel_norm_narrow(
    const S* x, const S* weight, const S* bias, const T* mean, const T* rstd, S* y, const Channels& sizes
) {
    const i64 at = thread_of_launch();
    if (at >= sizes.batch * sizes.channels * sizes.plane) {
        return;
    }
    const i64 channel = at / sizes.plane % sizes.channels;
    const T unit = rstd[channel];
    const T scale = weight == nullptr ? unit : unit * widen(weight[channel]);
    const T shift = bias == nullptr ? T(0) : widen(bias[channel]);
    y[at] = narrow<S>((widen(x[at]) - mean[channel]) * scale + shift);
}

// Of each chunk the sums of the gradient, and of its product with the normalised value, in tables [channels, chunks].
template <class S, class T>
__device__ void channel_grads(
    const S* x, const S* grad, const T* mean, const T* rstd, double* totals, double* dots, const Channels& sizes
) {
    Piece piece;
    if (!piece.of_warp(sizes)) {
        return;
    }
    x += piece.start;
    grad += piece.start;
    const PieceShare share = {threadIdx.x % WARP, piece.len, is_even(x) && is_even(grad) && piece.len % 2 == 0};
    const i64 statistic = sizes.statistic(piece.image, piece.channel);
    const T center = mean == nullptr ? T(0) : mean[statistic], unit = rstd[statistic];
    // Both sums as `reduce_lanes` takes them, but of pairs as they come.
    T of_grads[2] = {}, of_products[2] = {};
#pragma unroll(8 / sizeof(T) * 2)
    for (int k = 0; k < CHUNK / WARP / 2; ++k) {
        T value[2], grads[2];
        share.load_pair(x, k, value);
        share.load_pair(grad, k, grads);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            if (share.at(k, j) < piece.len) {
                of_grads[j] = of_grads[j] + grads[j];
                of_products[j] = of_products[j] + grads[j] * ((value[j] - center) * unit);
            }
        }
    }
    const T total = merge_lanes<T, Sum<T>>(of_grads, share.even), dot = merge_lanes<T, Sum<T>>(of_products, share.even);
    if (share.thread == 0) {
        const i64 place = piece.channel * sizes.chunks() + piece.chunk;
        totals[place] = (double)total;
        dots[place] = (double)dot;
    }
}

template <class S, class T>
__device__ void channel_grads_narrow(
    const S* x, const S* grad, const T* mean, const T* rstd, double* totals, double* dots, const Channels& sizes
) {
    const i64 chunk = thread_of_launch() / sizes.channels, channel = thread_of_launch() % sizes.channels;
    if (chunk >= sizes.chunks()) {
        return;
    }
    const i64 place = channel * sizes.chunks() + chunk;
    totals[place] = narrow_sum<T>(sizes, chunk, channel, [&](i64, i64 at) { return widen(grad[at]); });
    dots[place] = narrow_sum<T>(sizes, chunk, channel, [&](i64 image, i64 at) {
        const i64 statistic = sizes.statistic(image, channel);
        return widen(grad[at]) * ((widen(x[at]) - mean[statistic]) * rstd[statistic]);
    });
}

// A warp for each channel: the gradients of weight and bias, either of which may be null, and the averages that
// `channel_grad_x` takes off ([2, channels], or null).
template <class S, class T>
__device__ void channel_grad_sums(
    const double* totals, const double* dots, S* of_weight, S* of_bias, T* averages, const Channels& sizes
) {
    const i64 channel = warp_of_launch();
    if (channel >= sizes.channels) {
        return;
    }
    const i64 chunks = sizes.chunks();
    const double count = (double)(sizes.batch * sizes.plane);
    const double total = row_sum<double>(chunks, [&](i64 i) { return totals[channel * chunks + i]; });
    const double dot = row_sum<double>(chunks, [&](i64 i) { return dots[channel * chunks + i]; });
    if (threadIdx.x % WARP != 0) {
        return;
    }
    if (of_weight != nullptr) {
        of_weight[channel] = narrow<S>((T)dot);
    }
    if (of_bias != nullptr) {
        of_bias[channel] = narrow<S>((T)total);
    }
    if (averages != nullptr) {
        averages[channel] = (T)(total / count);
        averages[sizes.channels + channel] = (T)(dot / count);
    }
}

// The gradient of x, a warp for each piece of a plane.
template <class S, class T>
__device__ void channel_grad_x(
    const S* x, const S* grad, const S* weight, const T* mean, const T* rstd, const T* averages, S* out, const Channels& sizes
) {
    Piece piece;
    if (!piece.of_warp(sizes)) {
        return;
    }
    x += piece.start;
    grad += piece.start;
    out += piece.start;
    const bool even = is_even(x) && is_even(grad) && is_even(out) && piece.len % 2 == 0;
    const PieceShare share = {threadIdx.x % WARP, piece.len, even};
    const T center = mean[piece.channel], unit = rstd[piece.channel];
    const T scale = weight == nullptr ? unit : unit * widen(weight[piece.channel]);
    const T average = averages[piece.channel], slope = averages[sizes.channels + piece.channel];
#pragma unroll(8 / sizeof(T) * 2)
    for (int k = 0; k < CHUNK / WARP / 2; ++k) {
        T value[2], grads[2];
        share.load_pair(x, k, value);
        share.load_pair(grad, k, grads);
        share.store_pair(out, k, [&](int, int j) {
            return grad_of_x(grads[j], (value[j] - center) * unit, average, slope, scale);
        });
    }
}

template <class S, class T>
__device__ void channel_grad_x_narrow(
    const S* x, const S* grad, const S* weight, const T* mean, const T* rstd, const T* averages, S* out, const Channels& sizes
) {
    const i64 at = thread_of_launch();
    if (at >= sizes.batch * sizes.channels * sizes.plane) {
        return;
    }
    const i64 channel = at / sizes.plane % sizes.channels;
    const T unit = rstd[channel];
    const T scale = weight == nullptr ? unit : unit * widen(weight[channel]);
    const T normal = (widen(x[at]) - mean[channel]) * unit;
    out[at] = narrow<S>(grad_of_x(widen(grad[at]), normal, averages[channel], averages[sizes.channels + channel], scale));
}

// The last argument is the function.
#define ROW_NORM(KERNEL, MOST, S, T, NAME, ...)                                                                        \
    extern "C" __global__ void __launch_bounds__(MOST, 1024 / MOST) KERNEL##_##NAME(                                   \
        const S* x, const S* weight, const S* bias, S* y, T* mean, T* rstd, Rows sizes, double eps                     \
    ) {                                                                                                                \
        __VA_ARGS__(x, weight, bias, y, mean, rstd, sizes, eps);                                                       \
    }

#define ROW_GRAD(KERNEL, MOST, S, T, NAME, ...)                                                                        \
    extern "C" __global__ void __launch_bounds__(MOST, 1024 / MOST) KERNEL##_##NAME(                                   \
        const S* x, const S* grad, const S* weight, const T* mean, const T* rstd, S* out, T* partial, Rows sizes       \
    ) {                                                                                                                \
        __VA_ARGS__(x, grad, weight, mean, rstd, out, partial, sizes);                                                 \
    }

#define MOMENTS(KERNEL, S, T, NAME)                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 4) KERNEL##_##NAME(                         \
        const S* x, double* sums, double* squares, Channels sizes                                                      \
    ) {                                                                                                                \
        KERNEL<S, T>(x, sums, squares, sizes);                                                                         \
    }

#define CHANNEL_NORM(KERNEL, S, T, NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(256, 4) KERNEL##_##NAME(                         \
        const S* x, const S* weight, const S* bias, const T* mean, const T* rstd, S* y, Channels sizes                 \
    ) {                                                                                                                \
        KERNEL(x, weight, bias, mean, rstd, y, sizes);                                                                 \
    }

#define CHANNEL_GRADS(KERNEL, S, T, NAME)                                                                              \
    extern "C" __global__ void __launch_bounds__(256, 4) KERNEL##_##NAME(                         \
        const S* x, const S* grad, const T* mean, const T* rstd, double* totals, double* dots, Channels sizes          \
    ) {                                                                                                                \
        KERNEL(x, grad, mean, rstd, totals, dots, sizes);                                                              \
    }

#define CHANNEL_GRAD_X(KERNEL, S, T, NAME)                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 4) KERNEL##_##NAME(                         \
        const S* x, const S* grad, const S* weight, const T* mean, const T* rstd, const T* averages, S* out,           \
        Channels sizes                                                                                                 \
    ) {                                                                                                                \
        KERNEL(x, grad, weight, mean, rstd, averages, out, sizes);                                                     \
    }

#define KERNELS(S, T, NAME)                                                                                            \
    ROW_NORM(norm_short, BLOCK_THREADS, S, T, NAME, norm_rows<short_pairs<S>(), true>)                                 \
    ROW_NORM(norm_groups, BLOCK_THREADS, S, T, NAME, norm_rows<short_pairs<S>(), false>)                               \
    ROW_NORM(norm_medium, BLOCK_THREADS, S, T, NAME, norm_rows<medium_pairs<S>(), true>)                               \
    ROW_NORM(norm_wide, WIDE_THREADS, S, T, NAME, norm_wide)                                                           \
    ROW_NORM(norm_long, BLOCK_THREADS, S, T, NAME, norm_long)                                                          \
    ROW_GRAD(norm_grad_rows, 256, S, T, NAME, norm_grad_rows)                                                          \
    ROW_GRAD(norm_grad_medium, BLOCK_THREADS, S, T, NAME, norm_grad_blocks<1, BLOCK_THREADS>)                          \
    ROW_GRAD(norm_grad_wide, WIDE_THREADS, S, T, NAME, norm_grad_blocks<thread_pairs<S>(), WIDE_THREADS>)              \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2) norm_grad_long_##NAME(                                    \
        const S* x, const S* grad, const S* weight, const T* mean, const T* rstd, S* out, Rows sizes                   \
    ) {                                                                                                                \
        norm_grad_long(x, grad, weight, mean, rstd, out, sizes);                                                       \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) norm_grad_columns_##NAME(                                        \
        const S* x, const S* grad, const T* mean, const T* rstd, T* partial, Rows sizes                                \
    ) {                                                                                                                \
        norm_grad_columns(x, grad, mean, rstd, partial, sizes);                                                        \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) norm_sums_last_##NAME(                                           \
        const T* rows, S* of_weight, S* of_bias, i64 count, i64 cols                                                   \
    ) {                                                                                                                \
        norm_sums_last(rows, of_weight, of_bias, count, cols);                                                         \
    }                                                                                                                  \
    MOMENTS(channel_moments, S, T, NAME)                                                                               \
    MOMENTS(channel_moments_narrow, S, T, NAME)                                                                        \
    CHANNEL_NORM(channel_norm, S, T, NAME)                                                                             \
    CHANNEL_NORM(channel_norm_narrow, S, T, NAME)                                                                      \
    CHANNEL_GRADS(channel_grads, S, T, NAME)                                                                           \
    CHANNEL_GRADS(channel_grads_narrow, S, T, NAME)                                                                    \
    extern "C" __global__ void __launch_bounds__(256) channel_grad_sums_##NAME(                                        \
        const double* totals, const double* dots, S* of_weight, S* of_bias, T* averages, Channels sizes                \
    ) {                                                                                                                \
        channel_grad_sums(totals, dots, of_weight, of_bias, averages, sizes);                                          \
    }                                                                                                                  \
    CHANNEL_GRAD_X(channel_grad_x, S, T, NAME)                                                                         \
    CHANNEL_GRAD_X(channel_grad_x_narrow, S, T, NAME)

KERNELS(float, float, f32)
KERNELS(double, double, f64)
KERNELS(bf16, float, bf16)
KERNELS(f16, float, f16)

#define SUMS(T, NAME)                                                                                                  \
    extern "C" __global__ void norm_sums_##NAME(const T* rows, T* out, i64 count, i64 width) {                         \
        norm_sums(rows, out, count, width);                                                                            \
    }                                                                                                                  \
    extern "C" __global__ void channel_statistics_##NAME(                                                              \
        const double* sums, const double* squares, T* mean, T* rstd, T* variance, Channels sizes, double eps           \
    ) {                                                                                                                \
        channel_statistics(sums, squares, mean, rstd, variance, sizes, eps);                                           \
    }

SUMS(float, f32)
SUMS(double, f64)
