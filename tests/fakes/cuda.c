/* A libcuda.so.1 that copies between pieces of host memory and reports what time it likes.
 *
 * NODEDOCTOR_FAKE_CUDA names the file (see fake.h). Keys:
 *   devices=8                 how many GPUs
 *   bus.3=0000:5d:00.0        where one is
 *   speed=390                 GB/s between GPUs; speed.2-5 for one ordered pair, gpu3.speed for all copies of a GPU
 *   host=55                   GB/s with the host; gpu3.host
 *   memory=2600               GB/s inside a GPU, read plus written; gpu3.memory
 *   access=1                  whether peers can be accessed; access.2-5
 *   wrong.2-5=1               data that arrives differs in one byte
 *   hang.2-5=1                the copy never ends
 *   error.init=802 gpu3.error.alloc=2 error.peer=...   calls fail
 *   trace=FILE                a line per context made
 */
#include "fake.h"
#include <stdint.h>

typedef uint64_t u64;
typedef struct context { int gpu, current; } context;
typedef struct stream { double now; } stream;
typedef struct event { double at; } event;

static context contexts[64];
static context *current;
static double clock_now; /* what the host has waited for; streams idle until then */
static struct { u64 to, of; size_t size; } made[64];

static const char *BUS[] = {"0000:18:00.0", "0000:2a:00.0", "0000:3a:00.0", "0000:5d:00.0",
                            "0000:9a:00.0", "0000:ab:00.0", "0000:ba:00.0", "0000:db:00.0"};

__attribute__((constructor)) static void load(void) { read_file(getenv("NODEDOCTOR_FAKE_CUDA")); }

static int devices(void) { return (int)number(NOBODY, "devices", 8); }

static long long pairwise(const char *what, int a, int b, long long otherwise) {
    char key[64];
    snprintf(key, sizeof key, "%s.%d-%d", what, a, b);
    return number(NOBODY, key, otherwise);
}

/* The first thing the driver does */
int cuInit(unsigned flags) { return misdeed(NOBODY, "init"); }
int cuDriverGetVersion(int *out) { return *out = 12080, 0; }
int cuDeviceGetCount(int *out) { return *out = devices(), 0; }
int cuDeviceGet(int *out, int ordinal) { return *out = ordinal, ordinal < devices() ? 0 : 101; }

int cuDeviceGetPCIBusId(char *out, int size, int device) {
    char key[16];
    snprintf(key, sizeof key, "bus.%d", device);
    snprintf(out, size, "%s", text(NOBODY, key, BUS[device % 8]));
    return 0;
}

int cuGetErrorName(int code, const char **out) {
    static const struct { int code; const char *name; } NAMES[] = {
        {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {101, "CUDA_ERROR_INVALID_DEVICE"}, {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
        {719, "CUDA_ERROR_LAUNCH_FAILED"}, {802, "CUDA_ERROR_SYSTEM_NOT_READY"}};
    for (unsigned i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (NAMES[i].code == code) return *out = NAMES[i].name, 0;
    return *out = 0, 1;
}

/* Contexts, streams, events */
int cuDevicePrimaryCtxRetain(context **out, int device) {
    char line[32];
    snprintf(line, sizeof line, "context %d", device);
    trace(line);
    contexts[device].gpu = device;
    *out = &contexts[device];
    return misdeed(device, "context");
}
int cuCtxSetCurrent(context *which) { return current = which, 0; }
int cuDeviceCanAccessPeer(int *out, int device, int peer) {
    *out = (int)pairwise("access", peer, device, number(NOBODY, "access", 1));
    return 0;
}
int cuCtxEnablePeerAccess(context *peer, unsigned flags) { return misdeed(current->gpu, "peer"); }
int cuStreamCreate(stream **out, unsigned flags) { return *out = calloc(1, sizeof **out), 0; }
int cuEventCreate(event **out, unsigned flags) { return *out = calloc(1, sizeof **out), 0; }
static void idle(stream *who) { if (who->now < clock_now) who->now = clock_now; }
int cuEventRecord(event *which, stream *of) { return idle(of), which->at = of->now, 0; }
int cuEventSynchronize(event *which) {
    if (clock_now < which->at) clock_now = which->at;
    return 0;
}
int cuEventElapsedTime(float *out, event *first, event *last) { return *out = (last->at - first->at) * 1000, 0; }
int cuStreamWaitEvent(stream *who, event *what, unsigned flags) {
    if (who->now < what->at) who->now = what->at;
    return 0;
}

/* Memory */
int cuMemAlloc_v2(u64 *out, size_t size) {
    int code = misdeed(current->gpu, "alloc");
    *out = code ? 0 : (u64)malloc(size);
    return code;
}
int cuMemFree_v2(u64 what) { return free((void *)what), 0; }
int cuMemHostRegister_v2(void *what, size_t size, unsigned flags) { return misdeed(NOBODY, "register"); }
int cuMemHostUnregister(void *what) { return 0; }

static void took(stream *who, size_t size, double gbytes) { idle(who), who->now += 2e-6 + size / gbytes / 1e9; }

/* What a copy made stays until one of its ends is written to: making it again only takes time */
static void written(u64 where) {
    for (int i = 0; i < 64; i++)
        if (made[i].to == where || made[i].of == where) made[i].to = 0;
}
static void copy(u64 to, u64 of, size_t size) {
    int place = to >> 12 & 63;
    if (made[place].to == to && made[place].of == of && made[place].size == size) return;
    written(to);
    memcpy((void *)to, (void *)of, size);
    made[place].to = to, made[place].of = of, made[place].size = size;
}
int cuMemsetD32_v2(u64 to, unsigned value, size_t words) {
    memset((void *)to, (int)value, 4 * words);
    return written(to), 0;
}

int cuMemcpyHtoDAsync_v2(u64 to, const void *of, size_t size, stream *who) {
    written(to), copy(to, (u64)of, size);
    took(who, size, number(current->gpu, "host", 55));
    return misdeed(current->gpu, "h2d");
}
int cuMemcpyDtoHAsync_v2(void *to, u64 of, size_t size, stream *who) {
    written((u64)to), copy((u64)to, of, size);
    took(who, size, number(current->gpu, "host", 55));
    return misdeed(current->gpu, "d2h");
}
int cuMemcpyDtoDAsync_v2(u64 to, u64 of, size_t size, stream *who) {
    took(who, 2 * size, number(current->gpu, "memory", 2600));
    return 0;
}
int cuMemcpyPeerAsync(u64 to, context *target, u64 of, context *source, size_t size, stream *who) {
    int a = source->gpu, b = target->gpu;
    long long slow = number(a, "speed", 390), other = number(b, "speed", 390);
    if (pairwise("hang", a, b, 0)) hang();
    copy(to, of, size);
    if (pairwise("wrong", a, b, 0)) ((char *)to)[size / 2] = 'x';
    took(who, size, pairwise("speed", a, b, slow < other ? slow : other));
    return misdeed(b, "copy");
}

/* What a header renames: these are the old 32-bit calls, and nobody may bind them */
#define OLD(name) void name(void) { abort(); }
OLD(cuDevicePrimaryCtxRelease) OLD(cuMemAlloc) OLD(cuMemFree) OLD(cuMemHostRegister) OLD(cuMemcpyDtoDAsync)
OLD(cuMemcpyDtoHAsync) OLD(cuMemcpyHtoDAsync) OLD(cuStreamDestroy) OLD(cuEventDestroy) OLD(cuCtxDestroy) OLD(cuMemsetD32)
