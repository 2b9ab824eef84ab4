// sm_75 sm_90
// C = A B in float32 where little is read twice: few rows, or a short sum. Threads read from memory what they multiply, as much at once
// as finds registers, and those that share sums add what they have in a fixed order.
#ifndef FEW
#define FEW 1       // rows of C, a thread
#define LANES 4     // units of a block: FEW rows by COLUMNS columns
#define DEEP 64     // threads that share a unit's k: a power of four
#define ALONG 0     // 1: B lies n x k
#define VECTOR 1    // rows of B begin on 16 bytes
#define VECTOR_A 0  // A and B lie along k, with rows that begin on 16 bytes
#endif

constexpr int COLUMNS = ALONG || (!VECTOR && DEEP > 1) ? 1 : 4, STEP = ALONG ? 4 : 1, ITEMS = ALONG ? STEP : COLUMNS;  // of a load
constexpr int HELD = ITEMS + FEW * STEP, AT_ONCE = DEEP == 1 ? 4 : HELD <= 6 ? 16 : HELD <= 8 ? 8 : 4;

template <bool WHOLE, int COUNT> __device__ void read(float* to, const float* from, long long apart, int last) {  // again beyond the last
    if (WHOLE) *(float4*)to = __ldg((const float4*)from);
    #pragma unroll
    for (int e = 0; e < (WHOLE ? 0 : COUNT); e++) to[e] = __ldg(from + min(e, last) * apart);
}

// From row to row of A there are `a_row` items, from k to k `a_k`; from row to row of B as it lies `pitch`; C's rows and columns are
// `c_row` and `c_column` apart, so that of few columns the product is the transposed one.
extern "C" __global__ void __launch_bounds__(LANES * DEEP)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k, int a_row, int a_k, int pitch,
       int c_row, int c_column) {
    __shared__ float held[FEW * COLUMNS][LANES * DEEP];
    const int t = threadIdx.x, lane = ALONG ? t / DEEP : t % LANES, part = ALONG ? t % DEEP : t / LANES;
    const int across = (n + COLUMNS - 1) / COLUMNS, unit = blockIdx.x * LANES + lane, row = unit / across * FEW;
    const int apart = VECTOR ? 1 : across, column = unit % across * (VECTOR ? COLUMNS : 1);  // neighbors, or by turns with other threads
    const float* const b_first = b + (ALONG ? (long long)column * pitch : column);
    float sums[FEW * COLUMNS] = {};
    #pragma unroll 1
    for (int from = 0; from < k; from += AT_ONCE * DEEP * STEP) {
        __align__(16) float x[AT_ONCE][FEW][STEP], y[AT_ONCE][ITEMS];
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const int l = min(from + (u * DEEP + part) * STEP, VECTOR && ALONG ? k - STEP : k - 1);  // no load waits for a condition
            read<VECTOR, ITEMS>(y[u], b_first + (long long)l * (ALONG ? 1 : pitch), ALONG ? 1 : apart, ALONG ? k - 1 - l : (n - 1 - column) / apart);
            #pragma unroll
            for (int i = 0; i < FEW; i++) read<VECTOR_A, STEP>(x[u][i], a + (long long)min(row + i, m - 1) * a_row + (long long)l * a_k, a_k, k - 1 - l);
        }
        auto add = [&](bool whole) {
            #pragma unroll
            for (int e = 0; e < AT_ONCE * FEW * STEP * COLUMNS; e++) {
                const int j = e % COLUMNS, i = e / COLUMNS % FEW, l = e / COLUMNS / FEW % STEP, u = e / COLUMNS / FEW / STEP;
                if (whole || from + (u * DEEP + part) * STEP + l < k) sums[i * COLUMNS + j] += x[u][i][l] * y[u][ALONG ? l : j];
            }
        };
        if (from + AT_ONCE * DEEP * STEP <= k) add(true);
        else add(false);
    }
    #pragma unroll
    for (int left = DEEP / 4; left; left /= 4) {  // a quarter of the threads adds what the others have, until one has all
        #pragma unroll
        for (int e = 0; e < FEW * COLUMNS; e++) if (part >= left && part < 4 * left) held[e][t] = sums[e];
        __syncthreads();
        #pragma unroll
        for (int e = 0; e < 3 * FEW * COLUMNS; e++)
            if (part < left) sums[e / 3] += held[e / 3][t + (e % 3 + 1) * left * (ALONG ? 1 : LANES)];
    }
    #pragma unroll
    for (int i = 0; i < FEW; i++) {
        float* const to = c + (long long)(row + i) * c_row + (long long)column * c_column;
        if (part || row + i >= m) return;
        if (COLUMNS == 4 && VECTOR && c_column == 1) *(float4*)to = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
        else
            #pragma unroll
            for (int j = 0; j < COLUMNS; j++) if (column + j * apart < n) to[(long long)j * apart * c_column] = sums[i * COLUMNS + j];
    }
}
