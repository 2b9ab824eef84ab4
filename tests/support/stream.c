/* STREAM's triad as J. McCalpin's stream.c has it, made `passes` times in one parallel region; each thread keeps its part
   from pass to pass. The empty statement keeps the compiler from leaving passes out. */
#include <stddef.h>

void triad(const double *restrict a, const double *restrict b, double *restrict out, double scalar, ptrdiff_t n, long passes,
           int threads) {
#pragma omp parallel num_threads(threads)
  for (long pass = 0; pass < passes; pass++) {
#pragma omp for schedule(static) nowait
    for (ptrdiff_t i = 0; i < n; i++) out[i] = a[i] + scalar * b[i];
    __asm__ volatile("" ::: "memory");
  }
}
