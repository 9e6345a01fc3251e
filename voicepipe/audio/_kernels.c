/* The loops over samples that take most of a session's CPU. Each has its twin in numpy with the same results:

   peak, first_beyond, mean_squares: samples.py
   resample: resample.py; the sums are exact in any order, see _STEP there
   hop_powers: levels.py; the sums are added in another order, so the sixth digit may differ
   silero_features, silero_advance: silero.py; the same, and another tanh: the fifth digit of a probability may differ

   The length of every buffer is checked before a loop reads or writes it: a wrong one raises ValueError. Its type is
   checked in first_beyond alone: elsewhere samples are int16. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* The functions are compiled for several instruction sets, and the loader takes the best one that the processor has. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && __GNUC__ >= 12
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#elif defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif
#define INLINE static inline __attribute__((always_inline))

/* Samples may begin at an odd address. */
typedef int16_t Sample __attribute__((aligned(1), may_alias));

/* The compiler splits these vectors into those of the processor's length. */
typedef int16_t Shorts __attribute__((vector_size(32), aligned(1), may_alias));
typedef int32_t Ints __attribute__((vector_size(64), aligned(4), may_alias));
typedef double Doubles __attribute__((vector_size(64), aligned(8), may_alias));
typedef float Floats __attribute__((vector_size(64), aligned(4), may_alias));
enum { N_DOUBLES = 8, N_FLOATS = 16, MAX_ROWS = 4 /* of a tile, whose sums stay in registers */ };

/* A number of this size has no binary places left: to add it and to subtract it rounds, halves to even. */
static const double ROUNDS = 6755399441055744.0; /* 1.5 * 2**52 */
static const float ROUNDS_FLOATS = 12582912.0f;   /* 1.5 * 2**23 */

/* --- samples ------------------------------------------------------------------------------------ */

FOR_EACH_PROCESSOR
static int peak_of(const Sample *samples, Py_ssize_t n)
{
    int16_t most = INT16_MIN;
    for (Py_ssize_t i = 0; i < n; i++)
        most = samples[i] > most ? samples[i] : most;
    return most;
}

/* The index of the first of `n` samples, `step` bytes apart, above `most` or below -most; n if there is none. */
static Py_ssize_t first_beyond_of(const char *samples, Py_ssize_t n, Py_ssize_t step, long most)
{
    for (Py_ssize_t i = 0; i < n; i++, samples += step) {
        const long sample = *(const Sample *)samples;
        if (sample > most || sample < -most)
            return i;
    }
    return n;
}

FOR_EACH_PROCESSOR
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
FOR_EACH_PROCESSOR
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

/* Filter `n_rows` blocks, 1 to 4, for 16 of their outputs. */
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

/* The same for a number of outputs that is no multiple of 16. */
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

FOR_EACH_PROCESSOR
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

enum {
    WINDOW = 512,
    CONTEXT = 64,
    SOUND = CONTEXT + WINDOW + 64, /* with the samples mirrored at its end */
    FRAME = 256,
    HOP = 128,
    N_FRAMES = 4,
    N_BINS = 129,
    MAX_WINDOWS = 3,
    N_FIRST = 128, /* outputs of each layer */
    N_SECOND = 64,
    N_THIRD = 64,
    N_FOURTH = 128,
    N_CELLS = 128,
    N_GATES = 4 * N_CELLS,
    PANEL = 2 * N_FLOATS, /* outputs of a panel: the weights lie panel by panel, (n_out / PANEL, n_in, PANEL) */
};

/* Weighted sums of `n_rows` rows of inputs, 1 to 4, for one panel of outputs; the row behind the inputs' weights is the
   bias. */
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
        for (int j = 0; j < PANEL; j++) {
            const float sum = sums[row][j / N_FLOATS][j % N_FLOATS];
            out[row * out_stride + j] = rectified && sum < 0 ? 0 : sum;
        }
}

/* The sums of rows of inputs, for all panels. */
INLINE void sum_rows(const float *in, Py_ssize_t in_stride, int n_rows, Py_ssize_t n_in, const float *weights,
                     Py_ssize_t n_out, float *out, Py_ssize_t out_stride, int has_bias, int rectified)
{
    const Py_ssize_t panel_size = (n_in + has_bias) * PANEL;
    for (Py_ssize_t j = 0; j < n_out; j += PANEL, weights += panel_size) {
        if (n_rows == 4)
            sum_tile(in, in_stride, 4, n_in, weights, out + j, out_stride, has_bias, rectified);
        else if (n_rows == 3)
            sum_tile(in, in_stride, 3, n_in, weights, out + j, out_stride, has_bias, rectified);
        else if (n_rows == 2)
            sum_tile(in, in_stride, 2, n_in, weights, out + j, out_stride, has_bias, rectified);
        else
            sum_tile(in, in_stride, 1, n_in, weights, out + j, out_stride, has_bias, rectified);
    }
}

typedef struct {
    const float *basis, *first, *second, *third, *fourth, *memory;
} Network;

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

FOR_EACH_PROCESSOR
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
    const Floats most = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9}; /* from here on it is 1 to 3e-8 */
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

FOR_EACH_PROCESSOR
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

/* --- for Python ---------------------------------------------------------------------------------- */

/* Lengths below this can be multiplied by the size of a sample. */
static const Py_ssize_t MOST = PY_SSIZE_T_MAX / 8;

static int expect(int holds, const char *what)
{
    if (!holds)
        PyErr_Format(PyExc_ValueError, "expected %s", what);
    return holds;
}

static PyObject *peak(PyObject *module, PyObject *of)
{
    Py_buffer samples;
    PyObject *result = NULL;
    if (PyObject_GetBuffer(of, &samples, PyBUF_SIMPLE) < 0)
        return NULL;
    if (expect(samples.len >= 2, "samples"))
        result = PyLong_FromLong(peak_of(samples.buf, samples.len / 2));
    PyBuffer_Release(&samples);
    return result;
}

static int is_int16(const Py_buffer *samples)
{
    const char *format = samples->format + (samples->format[0] == '=' || samples->format[0] == '@');
    return samples->ndim == 1 && strcmp(format, "h") == 0; /* "=h": at an odd address */
}

/* Unlike the others it takes samples of any caller: it checks their type, and they need not be contiguous. */
static PyObject *first_beyond(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    if (!expect(n_args == 2, "samples and the level of silence"))
        return NULL;
    const long most = PyLong_AsLong(args[1]);
    Py_buffer samples;
    if ((most == -1 && PyErr_Occurred()) || PyObject_GetBuffer(args[0], &samples, PyBUF_STRIDES | PyBUF_FORMAT) < 0)
        return NULL;
    PyObject *result = NULL;
    if (expect(most >= 0 && most <= INT16_MAX, "a level of 0 to 32767") &&
        expect(is_int16(&samples), "a row of samples, int16")) {
        const Py_ssize_t n = samples.shape[0], first = first_beyond_of(samples.buf, n, samples.strides[0], most);
        result = first < n ? PyLong_FromSsize_t(first) : Py_NewRef(Py_None);
    }
    PyBuffer_Release(&samples);
    return result;
}

static PyObject *mean_squares(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    if (!expect(n_args == 2, "samples and the length of a frame"))
        return NULL;
    const Py_ssize_t n_samples = PyLong_AsSsize_t(args[1]);
    Py_buffer samples;
    if ((n_samples == -1 && PyErr_Occurred()) || PyObject_GetBuffer(args[0], &samples, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = NULL;
    if (expect(n_samples > 0 && n_samples < MOST && samples.len % (2 * n_samples) == 0, "whole frames")) {
        const Py_ssize_t n_frames = samples.len / (2 * n_samples);
        const Sample *frame = samples.buf;
        result = PyList_New(n_frames);
        for (Py_ssize_t i = 0; result != NULL && i < n_frames; i++, frame += n_samples) {
            PyObject *mean = PyFloat_FromDouble(mean_square_of(frame, n_samples));
            if (mean == NULL)
                Py_CLEAR(result);
            else
                PyList_SET_ITEM(result, i, mean);
        }
    }
    PyBuffer_Release(&samples);
    return result;
}

/* The buffers of a call's first arguments, of which the last is written. */
typedef struct {
    Py_buffer each[9];
    int n;
} Buffers;

static void release(Buffers *buffers)
{
    while (buffers->n > 0)
        PyBuffer_Release(&buffers->each[--buffers->n]);
}

static int take(Buffers *buffers, PyObject *const *args, int n_read, int n_written)
{
    for (buffers->n = 0; buffers->n < n_read + n_written; buffers->n++) {
        const int flags = buffers->n < n_read ? PyBUF_SIMPLE : PyBUF_WRITABLE;
        if (PyObject_GetBuffer(args[buffers->n], &buffers->each[buffers->n], flags) < 0) {
            release(buffers);
            return 0;
        }
    }
    return 1;
}

/* Whether a buffer has that many floats, at an address where C may read them. */
static int is_array(const Py_buffer *buffer, Py_ssize_t n)
{
    return buffer->len == (Py_ssize_t)sizeof(float) * n && (uintptr_t)buffer->buf % sizeof(float) == 0;
}

static PyObject *resample(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    if (!expect(n_args == 5, "samples, weights, output, and the lengths of a block in and out"))
        return NULL;
    const Py_ssize_t block_in = PyLong_AsSsize_t(args[3]), block_out = PyLong_AsSsize_t(args[4]);
    Buffers buffers;
    if (PyErr_Occurred() || !take(&buffers, args, 2, 1))
        return NULL;
    const Py_buffer *samples = &buffers.each[0], *weights = &buffers.each[1], *out = &buffers.each[2];
    PyObject *result = NULL;
    if (expect(block_out > 0 && block_out < MOST && weights->len % (8 * block_out) == 0, "whole rows of weights") &&
        expect(block_in > 0 && block_in <= samples->len, "a block of samples") &&
        expect(out->len > 0 && out->len % (2 * block_out) == 0, "whole blocks of output")) {
        const Py_ssize_t width = weights->len / (8 * block_out), n_blocks = out->len / (2 * block_out);
        const Py_ssize_t n_behind = samples->len / 2 - width; /* behind the first block */
        double *wide = PyMem_New(double, samples->len / 2);
        if (wide == NULL)
            PyErr_NoMemory();
        else if (expect(n_behind >= 0 && n_behind / block_in >= n_blocks - 1, "the samples of each block")) {
            filter_blocks(samples->buf, wide, weights->buf, out->buf, n_blocks, block_in, width, block_out);
            result = Py_NewRef(Py_None);
        }
        PyMem_Free(wide);
    }
    release(&buffers);
    return result;
}

static PyObject *hop_powers(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    if (!expect(n_args == 4, "samples, the length of a hop, a share and output"))
        return NULL;
    const Py_ssize_t n_hop = PyLong_AsSsize_t(args[1]);
    const double share = PyFloat_AsDouble(args[2]);
    PyObject *const arrays[] = {args[0], args[3]};
    Buffers buffers;
    if (PyErr_Occurred() || !take(&buffers, arrays, 1, 1))
        return NULL;
    const Py_buffer *samples = &buffers.each[0], *out = &buffers.each[1];
    const Py_ssize_t n_hops = out->len / 8;
    const int fits = expect(n_hop > 0 && n_hop < MOST && n_hop % N_FLOATS == 0, "hops of a multiple of 16 samples") &&
                     expect(out->len % 8 == 0 && samples->len % 2 == 0, "a sample and whole hops") &&
                     expect((samples->len / 2 - 1) / n_hop == n_hops && (samples->len / 2 - 1) % n_hop == 0,
                            "a sample and whole hops");
    if (fits)
        sum_hops(samples->buf, n_hops, n_hop, (float)share, out->buf, (float *)out->buf + n_hops);
    release(&buffers);
    return fits ? Py_NewRef(Py_None) : NULL;
}

static PyObject *silero_features(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    static const Py_ssize_t lengths[] = {FRAME * FRAME,
                                         (3 * N_BINS + 1) * N_FIRST,
                                         (3 * N_FIRST + 1) * N_SECOND,
                                         (2 * N_SECOND + 1) * N_THIRD,
                                         (N_THIRD + 1) * N_FOURTH,
                                         (N_FOURTH + 1) * N_GATES};
    Buffers buffers;
    if (!expect(n_args == 9, "six arrays of weights, samples, context and output") || !take(&buffers, args, 7, 2))
        return NULL;
    const Py_buffer *each = buffers.each, *samples = &each[6], *context = &each[7], *out = &each[8];
    const Py_ssize_t n_windows = samples->len / (2 * WINDOW);
    int fits = expect(samples->len % (2 * WINDOW) == 0 && n_windows >= 1 && n_windows <= MAX_WINDOWS, "1 to 3 windows");
    fits = fits && expect(is_array(context, CONTEXT), "a context");
    fits = fits && expect(is_array(out, N_GATES * n_windows), "output for each window");
    for (int i = 0; fits && i < 6; i++)
        fits = expect(is_array(&each[i], lengths[i]), "the weights of the model");
    if (fits) {
        const Network network = {each[0].buf, each[1].buf, each[2].buf, each[3].buf, each[4].buf, each[5].buf};
        read_windows(&network, context->buf, samples->buf, (int)n_windows, out->buf);
    }
    release(&buffers);
    return fits ? Py_NewRef(Py_None) : NULL;
}

static PyObject *silero_advance(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    static const Py_ssize_t lengths[] = {N_CELLS * N_GATES, N_CELLS, N_GATES, N_CELLS, N_CELLS};
    Buffers buffers;
    if (!expect(n_args == 5, "two arrays of weights, features, output and cells") || !take(&buffers, args, 3, 2))
        return NULL;
    const Py_buffer *each = buffers.each;
    PyObject *result = NULL;
    int fits = 1;
    for (int i = 0; fits && i < 5; i++)
        fits = expect(is_array(&each[i], lengths[i]), "the arrays of the model");
    if (fits)
        result = PyFloat_FromDouble(advance(each[0].buf, each[1].buf, each[2].buf, each[3].buf, each[4].buf));
    release(&buffers);
    return result;
}

static PyMethodDef METHODS[] = {
    {"peak", peak, METH_O, NULL},
    {"first_beyond", (PyCFunction)(void (*)(void))first_beyond, METH_FASTCALL, NULL},
    {"mean_squares", (PyCFunction)(void (*)(void))mean_squares, METH_FASTCALL, NULL},
    {"resample", (PyCFunction)(void (*)(void))resample, METH_FASTCALL, NULL},
    {"hop_powers", (PyCFunction)(void (*)(void))hop_powers, METH_FASTCALL, NULL},
    {"silero_features", (PyCFunction)(void (*)(void))silero_features, METH_FASTCALL, NULL},
    {"silero_advance", (PyCFunction)(void (*)(void))silero_advance, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

/* compiled.py compares it with the source that is there. */
static int add_digest(PyObject *module)
{
    return PyModule_AddStringConstant(module, "SOURCE_SHA256", SOURCE_SHA256);
}

static PyModuleDef_Slot SLOTS[] = {
    {Py_mod_exec, (void *)add_digest},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernels", NULL, 0, METHODS, SLOTS, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&MODULE);
}
