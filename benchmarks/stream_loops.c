/* Copy, scale, add and triad over three arrays of doubles, by the method of McCalpin's STREAM.
 *
 * usage: stream_loops BYTES SECONDS
 *
 * BYTES is the size of each array. The four loops follow one another, again and again, for about
 * SECONDS; printed are, as JSON, the median and the best bandwidth of each in bytes per second,
 * counted as STREAM counts: what the loop reads and writes, two arrays or three. Written anew from
 * that description, in another language and by another compiler than Tare's own, to compare with.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { COPY, SCALE, ADD, TRIAD, LOOPS };
static const char *const name[LOOPS] = {"copy", "scale", "add", "triad"};
static const double moved[LOOPS] = {2, 2, 3, 3};
#define MOST 100000

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

__attribute__((noinline)) static void loop(int which, double *restrict a, double *restrict b,
                                           double *restrict c, long n, double q) {
    switch (which) {
    case COPY: for (long i = 0; i < n; i++) c[i] = a[i]; break;
    case SCALE: for (long i = 0; i < n; i++) b[i] = q * c[i]; break;
    case ADD: for (long i = 0; i < n; i++) c[i] = a[i] + b[i]; break;
    default: for (long i = 0; i < n; i++) a[i] = b[i] + q * c[i];
    }
}

int main(int count, char **argument) {
    if (count != 3) {
        fprintf(stderr, "usage: stream_loops BYTES SECONDS\n");
        return 2;
    }
    long bytes = atol(argument[1]) / 4096 * 4096, n = bytes / (long)sizeof(double);
    double seconds = atof(argument[2]);
    double *array[3];
    static double took[LOOPS][MOST];
    for (int k = 0; k < 3; k++) {
        array[k] = bytes > 0 ? aligned_alloc(4096, (size_t)bytes) : NULL;
        if (!array[k]) {
            fprintf(stderr, "no memory for arrays of %s bytes\n", argument[1]);
            return 1;
        }
        for (long i = 0; i < n; i++) array[k][i] = 1.0 + k;
    }
    int rounds = 0;
    double began = now();
    /* The first round warms up and is left out. */
    for (int round = -1; round < 3 || (now() - began < seconds && round < MOST); round++) {
        for (int which = 0; which < LOOPS; which++) {
            double start = now();
            loop(which, array[0], array[1], array[2], n, 0.4);
            if (round >= 0) took[which][round] = now() - start;
        }
        rounds = round + 1;
    }
    printf("{\"check\": %g", array[0][n / 2]);
    for (int which = 0; which < LOOPS; which++) {
        qsort(took[which], (size_t)rounds, sizeof(double), ascending);
        double median = (took[which][(rounds - 1) / 2] + took[which][rounds / 2]) / 2;
        double all = moved[which] * (double)bytes;
        printf(", \"%s\": {\"median\": %.0f, \"best\": %.0f}", name[which], all / median,
               all / took[which][0]);
    }
    printf("}\n");
    return 0;
}
