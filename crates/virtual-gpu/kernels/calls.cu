// Calls that stay calls: not inlined, recursive, through a table of function pointers, virtual; and what a kernel can
// ask of the machine: printf, assert, trap, clocks, sleep, heap.

#define KERNEL extern "C" __global__ void
typedef long long i64;

struct Pair {
    int quotient;
    float remainder;
};

__noinline__ float mix(float a, float b, int rounds) {
    for (int k = 0; k < rounds; k++) {
        float next = a * 0.5f + b;
        b = a;
        a = next;
    }
    return a;
}
__noinline__ Pair split(float x, int by) {
    Pair pair;
    pair.quotient = (int)x / by;
    pair.remainder = x - pair.quotient * by;
    return pair;
}
__noinline__ void swap_through(int* a, int* b) {
    int moved = *a;
    *a = *b;
    *b = moved;
}

KERNEL call_functions(const float* in, float* out, int* pairs, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Pair pair = split(in[i], 7);
    int local[2] = {pair.quotient, i};
    swap_through(&local[0], &local[1]);
    swap_through(&pairs[i * 2], &pairs[i * 2 + 1]);
    out[i] = mix(in[i], (float)local[0], local[1] & 7) + pair.remainder;
}

// Calls from a divergent branch, and a callee that returns early for some lanes.
__noinline__ int count_down(int x) {
    if (x < 3) return x * 100;
    int sum = 0;
    while (x > 0) {
        sum += x;
        x -= 3;
    }
    return sum;
}
KERNEL call_divergent(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = in[i] & 1 ? count_down(in[i]) : -count_down(in[i] / 2);
}

__noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__noinline__ int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
KERNEL recursion(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = in[i] % 2 ? fibonacci(in[i] % 12) : ackermann(in[i] % 3, in[i] % 5);
}

typedef float (*Function)(float);
float twice(float x) { return 2.0f * x; }
float square(float x) { return x * x; }
float minus_one(float x) { return x - 1.0f; }
float halve(float x) { return 0.5f * x; }
__device__ Function table[4] = {twice, square, minus_one, halve};

// Each lane calls its own function.
KERNEL call_table(const float* in, const int* which, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = table[which[i] & 3](in[i]) + table[(which[i] + 1) & 3](1.0f);
}

struct Shape {
    __device__ virtual int area(int scale) const = 0;
};
struct Square : Shape {
    int side;
    __device__ Square(int s) : side(s) {}
    __device__ int area(int scale) const override { return side * side * scale; }
};
struct Rectangle : Shape {
    int a, b;
    __device__ Rectangle(int x, int y) : a(x), b(y) {}
    __device__ int area(int scale) const override { return a * b * scale + 1; }
};
KERNEL call_virtual(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Square square(in[i]);
    Rectangle rectangle(in[i], 3);
    const Shape* shapes[2] = {&square, &rectangle};
    out[i] = shapes[in[i] & 1]->area(i);
}

// One thread prints, so that the lines come in order.
KERNEL print_formats(int number, float single, double value, i64 wide) {
    if (threadIdx.x != 0) return;
    printf("plain\n");
    printf("int %d unsigned %u hex %x %#X octal %o\n", number, number, number, number, number);
    printf("wide %lld %llu %llx\n", wide, wide, wide);
    printf("float %f %.3e %g %10.2f|%-10.1f|\n", single, value, value, value, single);
    printf("char %c string %s padded [%6d] [%-6d] [%06d] percent %%\n", 'x', "text", number, number, number);
    printf("pointer %d star %*d\n", (void*)0 == 0, 5, number);
}
// Every thread prints one line; the returned value is the number of arguments.
KERNEL print_threads(int* out) {
    out[threadIdx.x] = printf("block %d thread %d value %f\n", blockIdx.x, threadIdx.x, 0.5 * threadIdx.x);
}

KERNEL assert_positive(const int* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) assert(in[i] > 0);
}

KERNEL trap_at(int thread) {
    if (threadIdx.x == thread) __trap();
}

// Clocks do not run backwards, and move across a sleep.
KERNEL clocks(i64* out) {
    i64 before = clock64(), timer_before, timer_after;
    int small_before = clock();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timer_before));
    __nanosleep(100);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timer_after));
    int small_after = clock();
    i64 after = clock64();
    out[threadIdx.x * 3] = after - before;
    out[threadIdx.x * 3 + 1] = timer_after - timer_before;
    out[threadIdx.x * 3 + 2] = (unsigned)(small_after - small_before);
}

// A thread's own list on the device heap.
KERNEL heap_lists(const int* lengths, int* out) {
    struct Node {
        int value;
        Node* next;
    };
    Node* first = nullptr;
    for (int k = 0; k < lengths[threadIdx.x]; k++) {
        Node* node = (Node*)malloc(sizeof(Node));
        if (node == nullptr) break;
        node->value = k * k;
        node->next = first;
        first = node;
    }
    int sum = 0;
    while (first != nullptr) {
        Node* next = first->next;
        sum += first->value;
        free(first);
        first = next;
    }
    out[threadIdx.x] = sum;
}
