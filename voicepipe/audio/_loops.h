/* The loops, for vectors of `VECTOR` bytes. _kernels.c includes this file once for each instruction set, with other names
   (`NAMED`) and between the lines that choose the set: a function whose vectors the processor lacks is compiled to slow
   steps, one element at a time. */

#define peak_of NAMED(peak_of)
#define mean_square_of NAMED(mean_square_of)
#define sum_of NAMED(sum_of)
#define sum_hops NAMED(sum_hops)
#define filter_tile NAMED(filter_tile)
#define filter_rest NAMED(filter_rest)
#define filter_blocks NAMED(filter_blocks)
#define sum_tile NAMED(sum_tile)
#define sum_rows NAMED(sum_rows)
#define take_spectra NAMED(take_spectra)
#define read_windows NAMED(read_windows)
#define tanh_of NAMED(tanh_of)
#define advance NAMED(advance)
#define Shorts NAMED(Shorts)
#define Ints NAMED(Ints)
#define Doubles NAMED(Doubles)
#define Floats NAMED(Floats)
#define N_DOUBLES (VECTOR / 8)
#define N_FLOATS (VECTOR / 4)

typedef int16_t Shorts __attribute__((vector_size(VECTOR / 2), aligned(1), may_alias));
typedef int32_t Ints __attribute__((vector_size(VECTOR), aligned(4), may_alias));
typedef double Doubles __attribute__((vector_size(VECTOR), aligned(8), may_alias));
typedef float Floats __attribute__((vector_size(VECTOR), aligned(4), may_alias));

static int peak_of(const Sample *samples, Py_ssize_t n)
{
    int16_t most = INT16_MIN;
    for (Py_ssize_t i = 0; i < n; i++)
        most = samples[i] > most ? samples[i] : most;
    return most;
}

static double mean_square_of(const Sample *samples, Py_ssize_t n)
{
    int64_t sum = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        sum += (int32_t)samples[i] * samples[i];
    return (double)sum / (double)n;
}

/* The sum of a vector's elements, by halves: one after the other each addition would wait for the one before it. */
INLINE float sum_of(Floats values)
{
    for (int half = N_FLOATS / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (int j = 0; j < half; j++)
            values[j] += values[j + half];
    return values[0];
}

/* The sums of squares of hops of `n_hop` samples, and those of the same samples less `share` of the one before. The
   first sample belongs to no hop. */
static void sum_hops(const Sample *samples, Py_ssize_t n_hops, Py_ssize_t n_hop, float share, float *plain,
                     float *emphasised)
{
    for (Py_ssize_t hop = 0; hop < n_hops; hop++, samples += n_hop) {
        Floats sums[2] = {{0}};
        for (Py_ssize_t i = 0; i < n_hop; i += N_FLOATS) {
            const Floats before = __builtin_convertvector(*(const Shorts *)(samples + i), Floats);
            const Floats now = __builtin_convertvector(*(const Shorts *)(samples + i + 1), Floats);
            const Floats rise = now - share * before;
            sums[0] += now * now;
            sums[1] += rise * rise;
        }
        plain[hop] = sum_of(sums[0]);
        emphasised[hop] = sum_of(sums[1]);
    }
}

/* --- resampling --------------------------------------------------------------------------------- */

/* Filter `n_rows` blocks, 1 to 4, for a tile of their outputs. */
INLINE void filter_tile(const double *samples, const double *weights, int16_t *out, int n_rows, Py_ssize_t block_in,
                        Py_ssize_t width, Py_ssize_t block_out)
{
    Doubles sums[MAX_ROWS][2] = {{{0}}};
    for (Py_ssize_t i = 0; i < width; i++) {
        const Doubles low = *(const Doubles *)(weights + i * block_out);
        const Doubles high = *(const Doubles *)(weights + i * block_out + N_DOUBLES);
#pragma GCC unroll 4
        for (int row = 0; row < n_rows; row++) {
            const double sample = samples[row * block_in + i];
            sums[row][0] += sample * low;
            sums[row][1] += sample * high;
        }
    }
    for (int row = 0; row < n_rows; row++)
        for (int j = 0; j < 2 * N_DOUBLES; j++) {
            double sum = sums[row][j / N_DOUBLES][j % N_DOUBLES];
            sum = (sum + ROUNDS) - ROUNDS;
            sum = sum < INT16_MAX ? sum : INT16_MAX;
            out[row * block_out + j] = (int16_t)(sum > INT16_MIN ? sum : INT16_MIN);
        }
}

/* The same for the outputs that fill no tile. */
INLINE void filter_rest(const double *samples, const double *weights, int16_t *out, Py_ssize_t n_out,
                        Py_ssize_t width, Py_ssize_t block_out)
{
    for (Py_ssize_t j = 0; j < n_out; j++) {
        double sum = 0;
        for (Py_ssize_t i = 0; i < width; i++)
            sum += samples[i] * weights[i * block_out + j];
        sum = (sum + ROUNDS) - ROUNDS;
        sum = sum < INT16_MAX ? sum : INT16_MAX;
        out[j] = (int16_t)(sum > INT16_MIN ? sum : INT16_MIN);
    }
}

static void filter_blocks(const Sample *narrow, double *samples, const double *weights, int16_t *out,
                          Py_ssize_t n_blocks, Py_ssize_t block_in, Py_ssize_t width, Py_ssize_t block_out)
{
    for (Py_ssize_t i = 0; i < (n_blocks - 1) * block_in + width; i++)
        samples[i] = narrow[i];
    const Py_ssize_t n_tiled = block_out - block_out % (2 * N_DOUBLES);
    for (; n_blocks > 0; n_blocks -= MAX_ROWS, samples += MAX_ROWS * block_in, out += MAX_ROWS * block_out) {
        const int n_rows = n_blocks < MAX_ROWS ? (int)n_blocks : MAX_ROWS;
        for (Py_ssize_t j = 0; j < n_tiled; j += 2 * N_DOUBLES)
            if (n_rows == 4)
                filter_tile(samples, weights + j, out + j, 4, block_in, width, block_out);
            else if (n_rows == 3)
                filter_tile(samples, weights + j, out + j, 3, block_in, width, block_out);
            else if (n_rows == 2)
                filter_tile(samples, weights + j, out + j, 2, block_in, width, block_out);
            else
                filter_tile(samples, weights + j, out + j, 1, block_in, width, block_out);
        for (int row = 0; row < n_rows; row++)
            filter_rest(samples + row * block_in, weights + n_tiled, out + row * block_out + n_tiled,
                        block_out - n_tiled, width, block_out);
    }
}

/* --- the VAD model's network without a memory ---------------------------------------------------- */

/* Weighted sums of `n_rows` rows of inputs, 1 to 4, for a tile of a panel's outputs; the row behind the inputs' weights is
   the bias. */
INLINE void sum_tile(const float *in, Py_ssize_t in_stride, int n_rows, Py_ssize_t n_in, const float *panel, float *out,
                     Py_ssize_t out_stride, int has_bias, int rectified)
{
    Floats sums[MAX_ROWS][2] = {{{0}}};
    if (has_bias)
        for (int row = 0; row < n_rows; row++) {
            sums[row][0] = *(const Floats *)(panel + n_in * PANEL);
            sums[row][1] = *(const Floats *)(panel + n_in * PANEL + N_FLOATS);
        }
    for (Py_ssize_t i = 0; i < n_in; i++) {
        const Floats low = *(const Floats *)(panel + i * PANEL);
        const Floats high = *(const Floats *)(panel + i * PANEL + N_FLOATS);
#pragma GCC unroll 4
        for (int row = 0; row < n_rows; row++) {
            const float input = in[row * in_stride + i];
            sums[row][0] += input * low;
            sums[row][1] += input * high;
        }
    }
    for (int row = 0; row < n_rows; row++)
        for (int j = 0; j < 2 * N_FLOATS; j++) {
            const float sum = sums[row][j / N_FLOATS][j % N_FLOATS];
            out[row * out_stride + j] = rectified && sum < 0 ? 0 : sum;
        }
}

/* The sums of rows of inputs, for all panels. */
INLINE void sum_rows(const float *in, Py_ssize_t in_stride, int n_rows, Py_ssize_t n_in, const float *weights,
                     Py_ssize_t n_out, float *out, Py_ssize_t out_stride, int has_bias, int rectified)
{
    const Py_ssize_t panel_size = (n_in + has_bias) * PANEL;
    for (Py_ssize_t j = 0; j < n_out; j += 2 * N_FLOATS) {
        const float *tile = weights + j / PANEL * panel_size + j % PANEL;
        if (n_rows == 4)
            sum_tile(in, in_stride, 4, n_in, tile, out + j, out_stride, has_bias, rectified);
        else if (n_rows == 3)
            sum_tile(in, in_stride, 3, n_in, tile, out + j, out_stride, has_bias, rectified);
        else if (n_rows == 2)
            sum_tile(in, in_stride, 2, n_in, tile, out + j, out_stride, has_bias, rectified);
        else
            sum_tile(in, in_stride, 1, n_in, tile, out + j, out_stride, has_bias, rectified);
    }
}

/* Fill (n_windows, N_FRAMES + 2, N_BINS) with the magnitudes, between two frames of zeros. */
INLINE void take_spectra(const Network *network, float *context, const Sample *samples, int n_windows,
                         float (*magnitudes)[N_FRAMES + 2][N_BINS])
{
    for (int window = 0; window < n_windows; window++, samples += WINDOW) {
        float sound[SOUND], powers[N_FRAMES][FRAME];
        memcpy(sound, context, CONTEXT * sizeof(float));
        for (int i = 0; i < WINDOW; i++)
            sound[CONTEXT + i] = samples[i];
        for (int i = 0; i < SOUND - CONTEXT - WINDOW; i++)
            sound[CONTEXT + WINDOW + i] = sound[CONTEXT + WINDOW - 2 - i];
        memcpy(context, sound + WINDOW, CONTEXT * sizeof(float));
        sum_rows(sound, HOP, N_FRAMES, FRAME, network->basis, FRAME, powers[0], FRAME, 0, 0);
        memset(magnitudes[window], 0, sizeof(magnitudes[window]));
        for (int frame = 0; frame < N_FRAMES; frame++) {
            float *of_bin = magnitudes[window][frame + 1];
            const float *cosines = powers[frame], *sines = powers[frame] + N_BINS - 1; /* that of 0 Hz is zero */
            for (int bin = 1; bin < N_BINS - 1; bin++)
                of_bin[bin] = sqrtf(cosines[bin] * cosines[bin] + sines[bin] * sines[bin]);
            of_bin[0] = fabsf(cosines[0]);
            of_bin[N_BINS - 1] = fabsf(cosines[N_BINS - 1]);
        }
    }
}

static void read_windows(const Network *network, float *context, const Sample *samples, int n_windows, float *out)
{
    /* Each layer takes three frames that lie side by side; before the first there is a frame of zeros. */
    float magnitudes[MAX_WINDOWS][N_FRAMES + 2][N_BINS], first[MAX_WINDOWS][N_FRAMES + 1][N_FIRST] = {{{0}}};
    float second[MAX_ROWS][2 * N_SECOND], third[MAX_ROWS][N_THIRD], fourth[MAX_ROWS][N_FOURTH];
    take_spectra(network, context, samples, n_windows, magnitudes);
    for (int window = 0; window < n_windows; window++)
        sum_rows(magnitudes[window][0], N_BINS, N_FRAMES, 3 * N_BINS, network->first, N_FIRST, first[window][1],
                 N_FIRST, 1, 1);
    for (int window = 0; window < n_windows; window++)
        sum_rows(first[window][0], 2 * N_FIRST, 2, 3 * N_FIRST, network->second, N_SECOND, second[window], N_SECOND, 1,
                 1);
    sum_rows(second[0], 2 * N_SECOND, n_windows, 2 * N_SECOND, network->third, N_THIRD, third[0], N_THIRD, 1, 1);
    sum_rows(third[0], N_THIRD, n_windows, N_THIRD, network->fourth, N_FOURTH, fourth[0], N_FOURTH, 1, 1);
    sum_rows(fourth[0], N_FOURTH, n_windows, N_FOURTH, network->memory, N_GATES, out, N_GATES, 1, 0);
}

/* --- the VAD model's memory, and its answer ------------------------------------------------------- */

/* The hyperbolic tangent, 1 - 2 / (exp(2 x) + 1), to 2e-7. With 2 x = (n + f) ln 2 and f from -0.5 to 0.5, exp(2 x) is
   2**n times the Taylor series of exp(f ln 2). */
INLINE Floats tanh_of(Floats x)
{
    const Floats most = (Floats){0} + 9.0f; /* from here on it is 1 to 3e-8 */
    const Ints above = x > most, below = x < -most; /* all bits of an element, or none */
    x = (Floats)(((Ints)x & ~above & ~below) | ((Ints)most & above) | ((Ints)-most & below));
    const Floats powers = x * 2.88539008f; /* 2 / ln 2 */
    const Floats whole = (powers + ROUNDS_FLOATS) - ROUNDS_FLOATS;
    const Floats exponent = (powers - whole) * 0.693147181f;
    Floats series = 1.0f / 5040 * exponent + 1.0f / 720;
    series = series * exponent + 1.0f / 120;
    series = series * exponent + 1.0f / 24;
    series = series * exponent + 1.0f / 6;
    series = series * exponent + 0.5f;
    series = series * exponent + 1.0f;
    series = series * exponent + 1.0f;
    const Ints scale = (__builtin_convertvector(whole, Ints) + 127) << 23; /* 2**n as a float */
    return 1.0f - 2.0f / (series * (Floats)scale + 1.0f);
}

static double advance(const float *weights, const float *answer, const float *features, float *output, float *cells)
{
    float gates[4][N_CELLS]; /* input, forget, output, cell */
    double sum = 0;
    sum_rows(output, N_CELLS, 1, N_CELLS, weights, N_GATES, gates[0], N_GATES, 0, 0);
    for (int i = 0; i < N_CELLS; i += N_FLOATS) {
        Floats gate[4];
        for (int which = 0; which < 4; which++)
            gate[which] = tanh_of(*(Floats *)(gates[which] + i) + *(const Floats *)(features + which * N_CELLS + i));
        for (int which = 0; which < 3; which++)
            gate[which] = gate[which] * 0.5f + 0.5f; /* logistic: a tanh of half the argument */
        const Floats cell = *(Floats *)(cells + i) * gate[1] + gate[0] * gate[3];
        *(Floats *)(cells + i) = cell;
        *(Floats *)(output + i) = tanh_of(cell) * gate[2];
    }
    for (int i = 0; i < N_CELLS; i++)
        sum += (output[i] > 0 ? output[i] : 0) * answer[i];
    return sum;
}

static const Loops NAMED(LOOPS) = {
    VECTOR, peak_of, mean_square_of, sum_hops, filter_blocks, read_windows, advance,
};

#undef peak_of
#undef mean_square_of
#undef sum_of
#undef sum_hops
#undef filter_tile
#undef filter_rest
#undef filter_blocks
#undef sum_tile
#undef sum_rows
#undef take_spectra
#undef read_windows
#undef tanh_of
#undef advance
#undef Shorts
#undef Ints
#undef Doubles
#undef Floats
#undef N_DOUBLES
#undef N_FLOATS
