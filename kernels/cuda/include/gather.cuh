// Shared text: where items of the im2col matrix A lie in the images, from a table of pixels and a counter of taps. A's rows are pixels,
// and the sum runs over taps and channels; for wgrad A's rows are taps and channels, and the sum runs over pixels.
//
//    table in shared memory, an entry a pixel                         image, h x w x c
//    +----------------+-------+--------+--------+                    +-----------------------+
//    | offset of its  | row   | column | where  |   + shift(tap) ->  |   .  [first tap] .    |
//    | first tap      | of it | of it  | it goes|   = address        |   .   .  [tap]   .    |
//    +----------------+-------+--------+--------+                    +-----------------------+
//      outside the image (row, column of the tap): zeros are written instead
//
// Takes: an int4, 16 bytes of shared memory, for each of PIXELS entries; registers for one tap and one pixel a thread.
// Source: NVIDIA, CUTLASS, "Implicit GEMM Convolution" (precomputed offsets).

constexpr int A_LINES = WGRAD ? DEEP : TILE_M;  // lines of A's tile in shared memory
constexpr int A_LINE = WGRAD ? TILE_M : DEEP;   // items in one: across the sum (wgrad) or along it
constexpr int PIXELS = WGRAD ? STAGES * DEEP : TILE_M;  // entries in a block's table of pixels
constexpr int NOWHERE = -(1 << 30);  // row of a missing pixel: no tap brings it inside an image

// Table entry of a pixel: offset of its first tap in the images, that tap's row and column, and number of the pixel that gets the result.
__device__ int4 pixel(const Shape& of, int image, int y, int x, bool is) {
    const int above = y * of.step - of.top, before = x * of.step - of.left;
    return make_int4(((image * of.h + above) * of.w + before) * of.c, is ? above : NOWHERE, before,
                     (image * of.to_h + y * of.to_step + of.to_y) * of.to_w + x * of.to_step + of.to_x);
}

struct Counted { int image, y, x, number; };  // wgrad: each of the first DEEP threads counts along its pixel of the next stages

__device__ void next_pixel(const Shape& of, Counted& at, int4* pixels, int slot, int count) {
    const int t = threadIdx.x;
    pixels[slot * DEEP + t] = pixel(of, at.image, at.y, at.x, at.number < count);
    at.number += DEEP, at.x += DEEP % of.q, at.y += DEEP / of.q % of.p, at.image += DEEP / of.q / of.p;
    if (at.x >= of.q) at.x -= of.q, at.y++;
    if (at.y >= of.p) at.y -= of.p, at.image++;
}

// Fills the table with the pixels from row `top` on, or for wgrad with those of the first stages, from pixel `first` on; `count`: of all.
__device__ Counted first_pixels(const Shape& of, int4* pixels, int top, int first, int count) {
    const int t = threadIdx.x;
    Counted at = {0, 0, 0, 0};
    if (WGRAD) {
        at.number = first + t, at.x = at.number % of.q, at.y = at.number / of.q % of.p, at.image = at.number / of.q / of.p;
        if (t < DEEP)
            for (int s = 0; s < STAGES; s++) next_pixel(of, at, pixels, s, count);
    } else {
        for (int e = t; e < TILE_M; e += THREADS) {
            const int row = top + e, rest = row / of.q;
            pixels[e] = pixel(of, rest / of.p, rest % of.p, row % of.q, row < count);
        }
    }
    return at;
}

struct Tap { int channel, j, i, next_channel, next_j, next_i; };  // a position in the filter, and how far a stage moves it

__device__ Tap tap(const Shape& of, int from) {
    return {from % of.c, from / of.c % of.s, from / of.c / of.s, DEEP % of.c, DEEP / of.c % of.s, DEEP / of.c / of.s};
}

__device__ void next_tap(const Shape& of, Tap& at) {
    at.channel += at.next_channel, at.j += at.next_j, at.i += at.next_i;
    if (at.channel >= of.c) at.channel -= of.c, at.j++;
    if (at.j >= of.s) at.j -= of.s, at.i++;
}

__device__ int shift(const Shape& of, const Tap& at) { return (at.i * of.w + at.j) * of.c + at.channel; }
