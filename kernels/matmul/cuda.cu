// sm_75 sm_90
// C = A B in float32, all stored row by row: A is m x k, B is k x n. Four kernels, from three plain loops to tiles in registers.

// An item of C per thread. Neighbors in a warp take neighboring rows, so every load of A and every store touches 32 lines.
extern "C" __global__ void naive(const float* a, const float* b, float* c, int m, int n, int k) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= m || j >= n) return;
    float sum = 0;
    for (int l = 0; l < k; l++) sum += a[(long long)i * k + l] * b[(long long)l * n + j];
    c[(long long)i * n + j] = sum;
}

extern "C" __global__ void coalesced(const float* a, const float* b, float* c, int m, int n, int k) {
    const int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m || j >= n) return;
    float sum = 0;
    for (int l = 0; l < k; l++) sum += a[(long long)i * k + l] * b[(long long)l * n + j];
    c[(long long)i * n + j] = sum;
}

constexpr int TILE = 32;

extern "C" __global__ void __launch_bounds__(TILE * TILE) tiled(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y, i = blockIdx.y * TILE + y, j = blockIdx.x * TILE + x;
    float sum = 0;
    for (int from = 0; from < k; from += TILE) {
        as[y][x] = i < m && from + x < k ? a[(long long)i * k + from + x] : 0;
        bs[y][x] = from + y < k && j < n ? b[(long long)(from + y) * n + j] : 0;
        __syncthreads();
        #pragma unroll
        for (int l = 0; l < TILE; l++) sum += as[y][l] * bs[l][x];
        __syncthreads();
    }
    if (i < m && j < n) c[(long long)i * n + j] = sum;
}

constexpr int SIDE = 128, DEEP = 8, EACH = 8, TEAM = SIDE / EACH;  // 16 x 16 threads, 8 x 8 of C each

extern "C" __global__ void __launch_bounds__(TEAM * TEAM) register_tiled(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float as[DEEP][SIDE], bs[DEEP][SIDE];
    const int x = threadIdx.x, y = threadIdx.y, t = y * TEAM + x, top = blockIdx.y * SIDE, left = blockIdx.x * SIDE;
    float sums[EACH][EACH] = {};
    for (int from = 0; from < k; from += DEEP) {
        #pragma unroll
        for (int e = t; e < SIDE * DEEP; e += TEAM * TEAM) {
            const int row = e / DEEP, la = e % DEEP, lb = e / SIDE, column = e % SIDE;
            as[la][row] = top + row < m && from + la < k ? a[(long long)(top + row) * k + from + la] : 0;
            bs[lb][column] = from + lb < k && left + column < n ? b[(long long)(from + lb) * n + left + column] : 0;
        }
        __syncthreads();
        #pragma unroll
        for (int l = 0; l < DEEP; l++) {
            float u[EACH], v[EACH];
            #pragma unroll
            for (int e = 0; e < EACH; e++) u[e] = as[l][y * EACH + e], v[e] = bs[l][x + e * TEAM];
            #pragma unroll
            for (int p = 0; p < EACH; p++)
                #pragma unroll
                for (int q = 0; q < EACH; q++) sums[p][q] += u[p] * v[q];
        }
        __syncthreads();
    }
    #pragma unroll
    for (int p = 0; p < EACH; p++)
        #pragma unroll
        for (int q = 0; q < EACH; q++)
            if (top + y * EACH + p < m && left + x + q * TEAM < n)
                c[(long long)(top + y * EACH + p) * n + left + x + q * TEAM] = sums[p][q];
}
