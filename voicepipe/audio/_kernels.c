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

#define INLINE static inline __attribute__((always_inline))

/* Samples may begin at an odd address. */
typedef int16_t Sample __attribute__((aligned(1), may_alias));

/* A number of this size has no binary places left: to add it and to subtract it rounds, halves to even. */
static const double ROUNDS = 6755399441055744.0; /* 1.5 * 2**52 */
static const float ROUNDS_FLOATS = 12582912.0f;   /* 1.5 * 2**23 */

/* Of the VAD model. */
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
    PANEL = 32, /* outputs of a panel: the weights lie panel by panel, (n_out / PANEL, n_in, PANEL) */
    MAX_ROWS = 4, /* of a tile, whose sums stay in registers */
};

typedef struct {
    const float *basis, *first, *second, *third, *fourth, *memory;
} Network;

/* The loops for one instruction set; see _loops.h. */
typedef struct {
    int vector;
    int (*peak_of)(const Sample *samples, Py_ssize_t n);
    double (*mean_square_of)(const Sample *samples, Py_ssize_t n);
    void (*sum_hops)(const Sample *samples, Py_ssize_t n_hops, Py_ssize_t n_hop, float share, float *plain,
                     float *emphasised);
    void (*filter_blocks)(const Sample *narrow, double *samples, const double *weights, int16_t *out,
                          Py_ssize_t n_blocks, Py_ssize_t block_in, Py_ssize_t width, Py_ssize_t block_out);
    void (*read_windows)(const Network *network, float *context, const Sample *samples, int n_windows, float *out);
    double (*advance)(const float *weights, const float *answer, const float *features, float *output, float *cells);
} Loops;

#define VECTOR 16
#define NAMED(name) name##_16
#include "_loops.h"
#undef VECTOR
#undef NAMED

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_SETS 1
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define VECTOR 32
#define NAMED(name) name##_32
#include "_loops.h"
#undef VECTOR
#undef NAMED
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")
#define VECTOR 64
#define NAMED(name) name##_64
#include "_loops.h"
#undef VECTOR
#undef NAMED
#pragma GCC pop_options
#endif

static const Loops *loops = &LOOPS_16;

/* Use the loops with the longest vectors, up to `most` bytes, that the processor has. */
static void choose_loops(int most)
{
    loops = &LOOPS_16;
#ifdef HAS_SETS
    if (most >= 32 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        loops = &LOOPS_32;
        if (most >= 64 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
            loops = &LOOPS_64;
    }
#endif
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

/* --- for Python ---------------------------------------------------------------------------------- */

enum { MOST_FLOATS = 16 /* of a vector of any loops */ };

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
        result = PyLong_FromLong(loops->peak_of(samples.buf, samples.len / 2));
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
            PyObject *mean = PyFloat_FromDouble(loops->mean_square_of(frame, n_samples));
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
            loops->filter_blocks(samples->buf, wide, weights->buf, out->buf, n_blocks, block_in, width, block_out);
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
    const int fits = expect(n_hop > 0 && n_hop < MOST && n_hop % MOST_FLOATS == 0, "hops of a multiple of 16 samples") &&
                     expect(out->len % 8 == 0 && samples->len % 2 == 0, "a sample and whole hops") &&
                     expect((samples->len / 2 - 1) / n_hop == n_hops && (samples->len / 2 - 1) % n_hop == 0,
                            "a sample and whole hops");
    if (fits)
        loops->sum_hops(samples->buf, n_hops, n_hop, (float)share, out->buf, (float *)out->buf + n_hops);
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
        loops->read_windows(&network, context->buf, samples->buf, (int)n_windows, out->buf);
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
        result = PyFloat_FromDouble(loops->advance(each[0].buf, each[1].buf, each[2].buf, each[3].buf, each[4].buf));
    release(&buffers);
    return result;
}

/* Return the length of the vectors chosen. For tests too: otherwise a machine runs one kind of loops. */
static PyObject *choose(PyObject *module, PyObject *most)
{
    const long bytes = PyLong_AsLong(most);
    if (bytes == -1 && PyErr_Occurred())
        return NULL;
    choose_loops(bytes < 64 ? (int)bytes : 64);
    return PyLong_FromLong(loops->vector);
}

static PyMethodDef METHODS[] = {
    {"choose", choose, METH_O, NULL},
    {"peak", peak, METH_O, NULL},
    {"first_beyond", (PyCFunction)(void (*)(void))first_beyond, METH_FASTCALL, NULL},
    {"mean_squares", (PyCFunction)(void (*)(void))mean_squares, METH_FASTCALL, NULL},
    {"resample", (PyCFunction)(void (*)(void))resample, METH_FASTCALL, NULL},
    {"hop_powers", (PyCFunction)(void (*)(void))hop_powers, METH_FASTCALL, NULL},
    {"silero_features", (PyCFunction)(void (*)(void))silero_features, METH_FASTCALL, NULL},
    {"silero_advance", (PyCFunction)(void (*)(void))silero_advance, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

/* compiled.py reads the digest: whether these are the loops of the source that is there. */
static int start(PyObject *module)
{
    choose_loops(64);
    return PyModule_AddStringConstant(module, "SOURCE_SHA256", SOURCE_SHA256);
}

static PyModuleDef_Slot SLOTS[] = {
    {Py_mod_exec, (void *)start},
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
