// Shared text: which items of the images the columns of im2col are, a table of pixels by taps that are counted through. A's rows are
// the pixels, or for wgrad the taps and channels, and the sum goes over pixels.

constexpr int A_LINES = WGRAD ? DEEP : TILE_M, A_LINE = WGRAD ? TILE_M : DEEP;  // of A in shared memory: across, or along the sum
constexpr int PIXELS = WGRAD ? STAGES * DEEP : TILE_M;  // that a block has at hand
constexpr int NOWHERE = -(1 << 30);  // a row that no tap brings inside an image

// Of a pixel: place of its first tap, row and column of it; where its result goes.
__device__ int4 pixel(const Shape& of, int image, int y, int x, bool is) {
    const int above = y * of.step - of.top, before = x * of.step - of.left;
    return make_int4(((image * of.h + above) * of.w + before) * of.c, is ? above : NOWHERE, before,
                     (image * of.to_h + y * of.to_step + of.to_y) * of.to_w + x * of.to_step + of.to_x);
}

struct Counted { int image, y, x, number; };  // wgrad: the first DEEP threads count through the pixels of the stages to come

__device__ void next_pixel(const Shape& of, Counted& at, int4* pixels, int slot, int count) {
    const int t = threadIdx.x;
    pixels[slot * DEEP + t] = pixel(of, at.image, at.y, at.x, at.number < count);
    at.number += DEEP, at.x += DEEP % of.q, at.y += DEEP / of.q % of.p, at.image += DEEP / of.q / of.p;
    if (at.x >= of.q) at.x -= of.q, at.y++;
    if (at.y >= of.p) at.y -= of.p, at.image++;
}

// Fills the table: for rows from `top` on, or for wgrad the first stages of a sum from pixel `first` on, of so many.
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

struct Tap { int channel, j, i, next_channel, next_j, next_i; };  // and how far it goes on in a stage

__device__ Tap tap(const Shape& of, int from) {
    return {from % of.c, from / of.c % of.s, from / of.c / of.s, DEEP % of.c, DEEP / of.c % of.s, DEEP / of.c / of.s};
}

__device__ void next_tap(const Shape& of, Tap& at) {
    at.channel += at.next_channel, at.j += at.next_j, at.i += at.next_i;
    if (at.channel >= of.c) at.channel -= of.c, at.j++;
    if (at.j >= of.s) at.j -= of.s, at.i++;
}

__device__ int shift(const Shape& of, const Tap& at) { return (at.i * of.w + at.j) * of.c + at.channel; }
