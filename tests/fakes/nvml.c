/* A libnvidia-ml.so.1 that tells what the text file named by NODEDOCTOR_FAKE_NVML says; fake.h has its syntax.
 *
 * It stands behind the real pynvml. Without any line it is a healthy node of eight H100 with driver 570.
 *
 *   gpus=8 driver=570.86.10 nvml_version=12.570.86.10 cuda=12080 branch=r570_00 excluded=0000:1b:00.0,...
 *   init_error=9 init_hang=1 init_delay_ms=500
 *   handle_error=15           the GPU is counted and cannot be opened
 *   missing=3                 the fourth GPU fell off the bus before the driver was loaded: 7 are left
 *
 * Values are named where they are returned, topics are the words in quotes before them. A value that is `-` is
 * NOT_SUPPORTED, `!15` fails with that code. Built with -DOLD_DRIVER, what the 470 branch lacks is not there.
 */

#include "fake.h"

#define FILE_NAME "NODEDOCTOR_FAKE_NVML"

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct gpu { int index; } *device;

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7,
       VERSION_MISMATCH = 25, MAX_GPUS = 16 };

static int initialised;
static struct gpu gpus[MAX_GPUS];

static int gpu_count(void) { return (int)number(NOBODY, "gpus", 8) - (look(NOBODY, NOBODY, "missing") != 0); }

static int slot(device gpu) { return gpu->index + (gpu->index >= number(NOBODY, "missing", MAX_GPUS)); }

static int enter(int gpu, const char *topic) { return initialised ? misdeed(gpu, topic) : UNINITIALIZED; }

/* Answers: each gives its return code; `-` and `!code` in the file are failures */

static int refused(const char *value) {
    if (value && !strcmp(value, "-")) return NOT_SUPPORTED;
    return value && *value == '!' ? atoi(value + 1) : OK;
}

static int linked(int gpu, int link, const char *topic, const char *key, long long otherwise, long long *out) {
    int code = enter(gpu, topic);
    const char *value = code ? 0 : look(gpu, link, key);
    if (!code) code = refused(value);
    *out = value ? strtoll(value, 0, 0) : otherwise;
    return code;
}

static int whole(device gpu, const char *topic, const char *key, u32 otherwise, u32 *out) {
    long long value;
    int code = linked(gpu->index, NOBODY, topic, key, otherwise, &value);
    if (!code) *out = (u32)value;
    return code;
}

static int large(device gpu, const char *topic, const char *key, u64 otherwise, u64 *out) {
    long long value;
    int code = linked(gpu->index, NOBODY, topic, key, (long long)otherwise, &value);
    if (!code) *out = (u64)value;
    return code;
}

static int word(device gpu, const char *topic, const char *key, const char *otherwise, char *out, u32 size) {
    int code = enter(gpu ? gpu->index : NOBODY, topic);
    const char *value = text(gpu ? gpu->index : NOBODY, key, otherwise);
    if (!code) code = refused(value);
    if (!code) snprintf(out, size, "%s", value);
    return code;
}

#define WHOLE(function, topic, key, otherwise) \
    int nvmlDeviceGet##function(device gpu, u32 *out) { return whole(gpu, topic, key, otherwise, out); }
#define LARGE(function, topic, key, otherwise) \
    int nvmlDeviceGet##function(device gpu, u64 *out) { return large(gpu, topic, key, otherwise, out); }
#define WORD(function, topic, key, otherwise) \
    int nvmlDeviceGet##function(device gpu, char *out, u32 size) { \
        return word(gpu, topic, key, otherwise, out, size); \
    }

/* Library */

__attribute__((constructor)) static void load(void) { read_file(getenv(FILE_NAME)), trace("load"); }

int nvmlInitWithFlags(u32 flags) {
    (void)flags;
    read_file(getenv(FILE_NAME));
    trace("init");
    if (number(NOBODY, "init_hang", 0)) hang();
    rest(number(NOBODY, "init_delay_ms", 0));
    int code = (int)number(NOBODY, "init_error", OK);
    for (int i = 0; i < MAX_GPUS; i++) gpus[i].index = i;
    initialised = !code;
    return code;
}

int nvmlShutdown(void) { return trace("shutdown"), initialised = 0, OK; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires restart";
    case 17: return "The operating system has blocked the request";
    case 18: return "Driver/library version mismatch";
    case 999: return "Unknown Error";
    default: return "Error of the fake";
    }
}

int nvmlSystemGetDriverVersion(char *out, u32 size) {
    return word(0, "driver", "driver", "570.86.10", out, size);
}

int nvmlSystemGetNVMLVersion(char *out, u32 size) { /* works without init, as the real one */
    return snprintf(out, size, "%s", text(NOBODY, "nvml_version", "12.570.86.10")), OK;
}

int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    *out = (int)number(NOBODY, "cuda", 12080);
    return enter(NOBODY, "driver");
}

int nvmlSystemGetProcessName(u32 pid, char *out, u32 size) { /* program.4242=python3 train.py */
    char key[32];
    snprintf(key, sizeof key, "program.%u", pid);
    if (!exactly(key)) return NOT_FOUND;
    return word(0, "program", key, "", out, size);
}

int nvmlDeviceGetCount_v2(u32 *out) {
    *out = (u32)gpu_count();
    return enter(NOBODY, "count");
}

int nvmlDeviceGetHandleByIndex_v2(u32 index, device *out) {
    read_file(getenv(FILE_NAME));
    if (index >= (u32)gpu_count() || index >= MAX_GPUS) return INVALID;
    int code = enter((int)index, "handle");
    *out = &gpus[index];
    return code ? code : (int)number((int)index, "handle_error", OK);
}

/* Identity */

struct pci { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; };

static const char *const SLOTS[MAX_GPUS] = {"0000:18:00.0", "0000:2a:00.0", "0000:3a:00.0", "0000:5d:00.0",
    "0000:9a:00.0", "0000:ab:00.0", "0000:ba:00.0", "0000:db:00.0", "0001:18:00.0", "0001:2a:00.0",
    "0001:3a:00.0", "0001:5d:00.0", "0001:9a:00.0", "0001:ab:00.0", "0001:ba:00.0", "0001:db:00.0"};

static void fill_pci(struct pci *out, const char *address, u32 id, u32 subsystem) { /* upper case, as NVML */
    u32 domain = 0, bus = 0, slot = 0;
    sscanf(address, "%x:%x:%x", &domain, &bus, &slot);
    memset(out, 0, sizeof *out);
    out->domain = domain, out->bus = bus, out->device = slot, out->id = id, out->subsystem = subsystem;
    snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff, slot & 0xff);
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", domain, bus, slot);
}

int nvmlDeviceGetPciInfo_v3(device gpu, struct pci *out) { /* bus_id=0000:18:00.0 pci_id=0x233010de */
    int code = enter(gpu->index, "pci");
    u32 id = (u32)number(gpu->index, "pci_id", 0x233010de);
    u32 subsystem = (u32)number(gpu->index, "pci_subsystem", 0x16c110de);
    if (!code) fill_pci(out, text(gpu->index, "bus_id", SLOTS[slot(gpu)]), id, subsystem);
    return code;
}

int nvmlDeviceGetUUID(device gpu, char *out, u32 size) {
    char otherwise[64];
    snprintf(otherwise, sizeof otherwise, "GPU-00000000-0000-0000-0000-%012d", slot(gpu));
    return word(gpu, "uuid", "uuid", otherwise, out, size);
}

int nvmlDeviceGetSerial(device gpu, char *out, u32 size) {
    char otherwise[32];
    snprintf(otherwise, sizeof otherwise, "165502200547%d", slot(gpu));
    return word(gpu, "serial", "serial", otherwise, out, size);
}

int nvmlDeviceGetInforomVersion(device gpu, u32 object, char *out, u32 size) {
    static const char *const KEYS[] = {"inforom_oem", "inforom_ecc", "inforom_power"};
    static const char *const VALUES[] = {"2.1", "7.16", "-"};
    return object > 2 ? INVALID : word(gpu, "inforom", KEYS[object], VALUES[object], out, size);
}

int nvmlDeviceGetCudaComputeCapability(device gpu, int *major, int *minor) { /* cc=9.0 */
    int code = enter(gpu->index, "cc");
    sscanf(text(gpu->index, "cc", "9.0"), "%d.%d", major, minor);
    return code;
}

int nvmlDeviceGetModuleId(device gpu, u32 *out) {
    return whole(gpu, "module", "module_id", slot(gpu) + 1, out);
}
int nvmlDeviceGetMinorNumber(device gpu, u32 *out) { return whole(gpu, "minor", "minor", slot(gpu), out); }
int nvmlDeviceGetGspFirmwareVersion(device gpu, char *out) {
    return word(gpu, "gsp", "gsp", "570.86.10", out, 64);
}
WORD(Name, "name", "name", "NVIDIA H100 80GB HBM3")
WORD(BoardPartNumber, "board", "board_part_number", "692-2G520-0200-000")
WORD(VbiosVersion, "vbios", "vbios", "96.00.89.00.01")
WORD(InforomImageVersion, "inforom", "inforom_image", "G520.0200.00.05")
WHOLE(Brand, "brand", "brand", 14)
WHOLE(Architecture, "architecture", "architecture", 9)

/* Modes */

struct two { u32 version, value; };

static int pair(device gpu, const char *topic, const char *now, const char *later, u32 otherwise, u32 *a, u32 *b) {
    int code = whole(gpu, topic, now, otherwise, a);
    return code ? code : whole(gpu, topic, later, *a, b);
}

int nvmlDeviceGetMigMode(device gpu, u32 *now, u32 *later) {
    return pair(gpu, "mig", "mig", "mig_pending", 0, now, later);
}
int nvmlDeviceGetEccMode(device gpu, u32 *now, u32 *later) {
    return pair(gpu, "ecc_mode", "ecc_mode", "ecc_mode_pending", 1, now, later);
}
int nvmlDeviceGetMaxMigDeviceCount(device gpu, u32 *out) { return *out = 7, enter(gpu->index, "mig"); }

int nvmlDeviceGetMigDeviceHandleByIndex(device gpu, u32 slot, device *out) { /* mig_devices=2 */
    *out = gpu;
    return (long long)slot < number(gpu->index, "mig_devices", 0) ? enter(gpu->index, "mig") : NOT_FOUND;
}

WHOLE(PersistenceMode, "persistence", "persistence", 1)
WHOLE(ComputeMode, "compute_mode", "compute_mode", 0)
LARGE(VirtualizationMode, "virtualization", "virtualization", 0)

/* Memory and its errors */

struct memory { u64 total, free, used; };
struct bar1 { u64 total, free, used; };
static const u64 MIB = 1 << 20;

/* memory_total_mib memory_used_mib memory_reserved_mib */
int nvmlDeviceGetMemoryInfo(device gpu, struct memory *out) {
    int code = enter(gpu->index, "memory");
    u64 total = number(gpu->index, "memory_total_mib", 81559) * MIB;
    u64 used = (number(gpu->index, "memory_used_mib", 1) + number(gpu->index, "memory_reserved_mib", 551)) * MIB;
    return *out = (struct memory){total, total - used, used}, code;
}

int nvmlDeviceGetBAR1MemoryInfo(device gpu, struct bar1 *out) {
    return *out = (struct bar1){131072 * MIB, 131071 * MIB, MIB}, enter(gpu->index, "memory");
}

static const char *const KINDS[] = {"correctable", "uncorrectable"};
static const char *const COUNTERS[] = {"volatile", "aggregate"};

/* ecc_volatile_uncorrectable=1 ... */
int nvmlDeviceGetTotalEccErrors(device gpu, u32 kind, u32 counter, u64 *out) {
    char key[64];
    snprintf(key, sizeof key, "ecc_%s_%s", COUNTERS[counter & 1], KINDS[kind & 1]);
    if (!number(gpu->index, "ecc_mode", 1)) return NOT_SUPPORTED;
    return large(gpu, "ecc", key, 0, out);
}

/* ecc_volatile_sram_correctable=1 ... */
int nvmlDeviceGetMemoryErrorCounter(device gpu, u32 kind, u32 counter, u32 where, u64 *out) {
    char key[64];
    if (where != 2 && where != 7) return NOT_SUPPORTED;
    if (!number(gpu->index, "ecc_mode", 1)) return NOT_SUPPORTED;
    snprintf(key, sizeof key, "ecc_%s_%s_%s", COUNTERS[counter & 1], where == 7 ? "sram" : "dram", KINDS[kind & 1]);
    return large(gpu, "ecc", key, 0, out);
}

int nvmlDeviceGetRemappedRows(device gpu, u32 *correctable, u32 *uncorrectable, u32 *pending, u32 *failure) {
    int code = whole(gpu, "remap", "remapped_correctable", 0, correctable);
    if (!code) code = whole(gpu, "remap", "remapped_uncorrectable", 0, uncorrectable);
    if (!code) code = whole(gpu, "remap", "remap_pending", 0, pending);
    return code ? code : whole(gpu, "remap", "remap_failure", 0, failure);
}

struct banks { u32 max, high, partial, low, none; };

int nvmlDeviceGetRowRemapperHistogram(device gpu, struct banks *out) { /* banks=2560,0,0,0,0 */
    int code = enter(gpu->index, "banks");
    const char *value = text(gpu->index, "banks", "2560,0,0,0,0");
    sscanf(value, "%u,%u,%u,%u,%u", &out->max, &out->high, &out->partial, &out->low, &out->none);
    return code ? code : refused(value);
}

/* Heat, power, clocks, load */

int nvmlDeviceGetTemperature(device gpu, u32 sensor, u32 *out) { /* temperature=34 */
    return sensor ? INVALID : whole(gpu, "temperature", "temperature", 34, out);
}

int nvmlDeviceGetTemperatureThreshold(device gpu, u32 which, u32 *out) {
    static const char *const KEYS[] = {"shutdown", "slowdown", "memory_max_operating", "max_operating"};
    static const u32 VALUES[] = {95, 89, 95, 87};
    return which > 3 ? NOT_SUPPORTED : whole(gpu, "threshold", KEYS[which], VALUES[which], out);
}

static u32 mw(device gpu, const char *key, double otherwise) {
    const char *value = look(gpu->index, NOBODY, key);
    return (u32)((value ? strtod(value, 0) : otherwise) * 1000 + 0.5);
}

#define POWER(function, key, otherwise) /* in W, with a fraction where wanted */ \
    int nvmlDeviceGet##function(device gpu, u32 *out) { \
        *out = mw(gpu, key, otherwise); \
        int code = enter(gpu->index, "power"); \
        return code ? code : refused(look(gpu->index, NOBODY, key)); \
    }
POWER(PowerUsage, "power_draw", 71.97)
POWER(EnforcedPowerLimit, "power_limit", 700)
POWER(PowerManagementLimit, "power_limit_requested", 700)
POWER(PowerManagementDefaultLimit, "power_limit_default", 700)

int nvmlDeviceGetPowerManagementLimitConstraints(device gpu, u32 *least, u32 *most) {
    *least = mw(gpu, "power_limit_min", 200), *most = mw(gpu, "power_limit_max", 700);
    return enter(gpu->index, "power");
}

static const char *const CLOCKS[] = {"graphics", "sm", "memory", "video"};

static int clock_of(device gpu, const char *prefix, u32 type, const u32 *otherwise, u32 *out) {
    char key[64];
    if (type > 3) return INVALID;
    snprintf(key, sizeof key, "%s_%s", prefix, CLOCKS[type]);
    return whole(gpu, "clock", key, otherwise[type], out);
}

static const u32 IDLE[] = {345, 345, 2619, 765}, TOP[] = {1980, 1980, 2619, 1545};

int nvmlDeviceGetClockInfo(device gpu, u32 type, u32 *out) { /* clock_sm=345 */
    return clock_of(gpu, "clock", type, IDLE, out);
}
int nvmlDeviceGetMaxClockInfo(device gpu, u32 type, u32 *out) {
    return clock_of(gpu, "clock_max", type, TOP, out);
}
int nvmlDeviceGetApplicationsClock(device gpu, u32 type, u32 *out) {
    return clock_of(gpu, "clock_app", type, TOP, out);
}
int nvmlDeviceGetDefaultApplicationsClock(device gpu, u32 type, u32 *out) {
    return clock_of(gpu, "clock_default_app", type, TOP, out);
}
int nvmlDeviceGetMaxCustomerBoostClock(device gpu, u32 type, u32 *out) {
    return clock_of(gpu, "clock_boost_max", type, TOP, out);
}

struct utilization { u32 gpu, memory; };

int nvmlDeviceGetUtilizationRates(device gpu, struct utilization *out) {
    read_file(getenv(FILE_NAME));
    int code = whole(gpu, "utilization", "utilization", 0, &out->gpu);
    return code ? code : whole(gpu, "utilization", "utilization_memory", 0, &out->memory);
}


int nvmlDeviceGetFanSpeed(device gpu, u32 *out) { /* fan=45; an SXM board has none */
    int code = whole(gpu, "fan", "fan", 0, out);
    return code ? code : refused(text(gpu->index, "fan", "-"));
}

LARGE(TotalEnergyConsumption, "energy", "energy_mj", 3600000)
WHOLE(PerformanceState, "pstate", "pstate", 0)
LARGE(CurrentClocksThrottleReasons, "reasons", "reasons", 1) /* the bits of nvml.h; 1 is idle */

/* PCIe and neighbourhood */

WHOLE(CurrPcieLinkGeneration, "pcie", "pcie_generation", 5)
WHOLE(MaxPcieLinkGeneration, "pcie", "pcie_generation_max", 5)
WHOLE(GpuMaxPcieLinkGeneration, "pcie", "pcie_generation_device_max", 5)
WHOLE(CurrPcieLinkWidth, "pcie", "pcie_width", 16)
WHOLE(MaxPcieLinkWidth, "pcie", "pcie_width_max", 16)
WHOLE(PcieReplayCounter, "pcie", "pcie_replays", 0)

int nvmlDeviceGetPcieThroughput(device gpu, u32 counter, u32 *out) {
    return whole(gpu, "pcie_throughput", counter ? "pcie_rx_kb_s" : "pcie_tx_kb_s", 600, out);
}

static int bits(device gpu, const char *topic, const char *key, u64 otherwise, u32 size, unsigned long *out) {
    u64 value = otherwise;
    int code = large(gpu, topic, key, otherwise, &value);
    memset(out, 0, size * sizeof *out);
    if (size) *out = value;
    return code;
}

/* cpus=0xff: the first 64 CPUs as bits */
int nvmlDeviceGetCpuAffinity(device gpu, u32 size, unsigned long *out) {
    return bits(gpu, "cpu_affinity", "cpus", gpu->index < 4 ? 0xffffffffull : 0xffffffff00000000ull, size, out);
}

int nvmlDeviceGetMemoryAffinity(device gpu, u32 size, unsigned long *out, u32 scope) { /* numa_nodes=0x1 */
    (void)scope;
    return bits(gpu, "memory_affinity", "numa_nodes", gpu->index < 4 ? 1 : 2, size, out);
}

WHOLE(NumaNodeId, "numa", "numa", (u32)-1)

/* p2p.0-3.read=5 p2p.0-3=5 p2p=5 */
int nvmlDeviceGetP2PStatus(device one, device other, u32 what, u32 *out) {
    static const char *const WHAT[] = {"read", "write", "nvlink", "atomics", "pcie"};
    char key[64];
    int code = enter(one->index, "p2p");
    if (code) return code;
    if (what > 4) return INVALID;
    snprintf(key, sizeof key, "p2p.%d-%d", one->index, other->index);
    long long value = number(NOBODY, key, number(NOBODY, "p2p", 0));
    snprintf(key, sizeof key, "p2p.%d-%d.%s", one->index, other->index, WHAT[what]);
    return *out = (u32)number(NOBODY, key, value), OK;
}

int nvmlDeviceGetTopologyCommonAncestor(device one, device other, u32 *out) { /* path.0-1=10 */
    char key[64];
    snprintf(key, sizeof key, "path.%d-%d", one->index, other->index);
    *out = (u32)number(NOBODY, key, one->index / 4 == other->index / 4 ? 40 : 50);
    return enter(one->index, "topology");
}

/* NVLink: links=18 (0 for none), gpu3.link4=down, keys as named below with linkN. in front */

static int link_down(int gpu, u32 link) {
    char key[32];
    snprintf(key, sizeof key, "link%u", link);
    return !strcmp(text(gpu, key, "up"), "down");
}

static int link_call(device gpu, u32 link) {
    int code = enter(gpu->index, "nvlink");
    if (code) return code;
    if (number(gpu->index, "mig", 0)) return NOT_SUPPORTED;
    long long links = number(gpu->index, "links", 18);
    return !links ? NOT_SUPPORTED : link >= links ? INVALID : OK;
}

static int link_value(device gpu, u32 link, const char *key, long long otherwise, u32 *out) {
    long long value;
    int code = link_call(gpu, link);
    if (!code) code = linked(gpu->index, (int)link, "nvlink", key, otherwise, &value);
    if (!code) *out = (u32)value;
    return code;
}

int nvmlDeviceGetNvLinkState(device gpu, u32 link, u32 *out) {
    int code = link_call(gpu, link);
    return *out = !link_down(gpu->index, link), code;
}

int nvmlDeviceGetNvLinkVersion(device gpu, u32 link, u32 *out) {
    return link_value(gpu, link, "nvlink_version", 6, out);
}
int nvmlDeviceGetNvLinkRemoteDeviceType(device gpu, u32 link, u32 *out) {
    return link_value(gpu, link, "remote_type", 2, out);
}

/* remote_bus_id=0000:05:00.0 */
int nvmlDeviceGetNvLinkRemotePciInfo_v2(device gpu, u32 link, struct pci *out) {
    int code = link_call(gpu, link);
    const char *value = code ? 0 : look(gpu->index, (int)link, "remote_bus_id");
    char otherwise[16];
    snprintf(otherwise, sizeof otherwise, "0000:%02x:00.0", 5 + link % 4);
    if (!code) fill_pci(out, value ? value : otherwise, 0x22a310de, 0);
    return code;
}

int nvmlDeviceGetNvLinkErrorCounter(device gpu, u32 link, u32 counter, u64 *out) {
    static const char *const KEYS[] = {"replay", "recovery", "crc_flit", "crc_data", "ecc"};
    long long value;
    int code = link_call(gpu, link);
    if (!code && (counter > 4 || number(gpu->index, "nvlink_version", 6) >= 7)) code = NOT_SUPPORTED;
    if (!code) code = linked(gpu->index, (int)link, "nvlink", KEYS[counter], 0, &value);
    if (!code) *out = (u64)value;
    return code;
}

/* Fabric: fabric_state=3 fabric_status=0 fabric_clique=0 fabric_uuid=00 (32 hex digits) fabric_health=0x... */

struct fabric { unsigned char uuid[16]; u32 status, clique; unsigned char state, padding[3]; };

static int fabric_of(device gpu, struct fabric *out) {
    const char *uuid = text(gpu->index, "fabric_uuid", "");
    int code = enter(gpu->index, "fabric");
    memset(out, 0, sizeof *out);
    memset(out->padding, 0xaa, sizeof out->padding); /* C promises nothing about it, and pynvml reads it */
    for (int i = 0; i < 16 && strlen(uuid) >= (size_t)2 * i + 2; i++) sscanf(uuid + 2 * i, "%2hhx", &out->uuid[i]);
    out->status = (u32)number(gpu->index, "fabric_status", 0);
    out->clique = (u32)number(gpu->index, "fabric_clique", 0);
    out->state = (unsigned char)number(gpu->index, "fabric_state", 3);
    return code ? code : refused(text(gpu->index, "fabric_state", "3"));
}

int nvmlDeviceGetGpuFabricInfo(device gpu, struct fabric *out) { return fabric_of(gpu, out); }

/* Processes: processes=4242:1024,4243:-  (pid:MiB, - where the driver keeps no account), graphics=..., mps=... */

struct process { u32 pid; u64 used; u32 gpu_instance, compute_instance; };

static int processes(device gpu, const char *key, u32 *size, struct process *out) {
    char copy[1024], *rest_of = copy, *one;
    u32 room = *size, found = 0;
    int code = enter(gpu->index, "processes");
    if (!code) code = refused(text(gpu->index, key, ""));
    if (code) return code;
    snprintf(copy, sizeof copy, "%s", text(gpu->index, key, ""));
    while ((one = strsep(&rest_of, ",")))
        if (*one) {
            char *colon = strchr(one, ':');
            u64 used = colon && colon[1] != '-' ? strtoull(colon + 1, 0, 10) * MIB : ~0ull;
            if (found < room && out) out[found] = (struct process){(u32)atoi(one), used, ~0u, ~0u};
            found++;
        }
    *size = found;
    return found > room ? TOO_SMALL : OK;
}

#define PROCESSES(function, key) \
    int nvmlDeviceGet##function(device gpu, u32 *size, struct process *out) { return processes(gpu, key, size, out); }
PROCESSES(ComputeRunningProcesses_v2, "processes")
PROCESSES(GraphicsRunningProcesses_v2, "graphics")
PROCESSES(MPSComputeRunningProcesses_v2, "mps")

/* Field values; `otherwise` NONE is NOT_SUPPORTED */

#define NONE (-(1LL << 62))
enum { UNSIGNED = 1, LONG = 3, SIGNED = 5 };
struct field {
    u32 id, scope;
    long long stamp, latency;
    u32 type, code;
    union { double d; int i; u32 u; u64 l; } value;
};
static const struct { u32 id; const char *key; int type; long long otherwise; } FIELDS[] = {
    {29, "retired_pages_single_bit", UNSIGNED, NONE}, {30, "retired_pages_double_bit", UNSIGNED, NONE},
    {31, "retired_pages_pending", UNSIGNED, NONE}, {74, "sw_power_cap_ns", LONG, 0},
    {75, "sw_thermal_slowdown_ns", LONG, 0}, {76, "sync_boost_ns", LONG, 0},
    {82, "memory_temperature", UNSIGNED, 44}, {95, "pcie_replay_rollovers", UNSIGNED, 0},
    {138, "nvlink_tx_kib", LONG, 0}, {139, "nvlink_rx_kib", LONG, 0}, {147, "nvlink_switch_links", UNSIGNED, 18},
    {170, "c2c_links", UNSIGNED, NONE},
    {173, "pcie_correctable", UNSIGNED, 0}, {174, "pcie_naks_received", UNSIGNED, 0},
    {175, "pcie_receiver", UNSIGNED, 0}, {176, "pcie_bad_tlp", UNSIGNED, 0}, {177, "pcie_naks_sent", UNSIGNED, 0},
    {178, "pcie_bad_dllp", UNSIGNED, 0}, {179, "pcie_non_fatal", UNSIGNED, 0}, {180, "pcie_fatal", UNSIGNED, 0},
    {181, "pcie_unsupported_request", UNSIGNED, 0}, {182, "pcie_lcrc", UNSIGNED, 0}, {183, "pcie_lane", UNSIGNED, 0},
    {193, "shutdown_t_limit", SIGNED, -8}, {194, "slowdown_t_limit", SIGNED, -2},
    {195, "memory_max_operating_t_limit", SIGNED, 0}, {196, "max_operating_t_limit", SIGNED, 0},
    {197, "pcie_tx_bytes", LONG, 0}, {198, "pcie_rx_bytes", LONG, 0}, {226, "reset_required", UNSIGNED, 0},
    {227, "drain_and_reset", UNSIGNED, 0}, {230, "recovery_action", UNSIGNED, 0},
    {270, "hw_thermal_slowdown_ns", LONG, 0}, {271, "hw_power_brake_slowdown_ns", LONG, 0},
};
static const struct { u32 id; const char *key; } LINK_FIELDS[] = {
    {206, "malformed_packets"}, {207, "buffer_overruns"}, {208, "receive_errors"}, {209, "receive_remote_errors"},
    {210, "receive_general_errors"}, {211, "local_link_integrity"}, {212, "transmit_discards"},
    {213, "link_recovery_successful"}, {214, "link_recovery_failed"}, {215, "link_recovery"},
    {219, "effective_errors"}, {220, "effective_ber"}, {221, "symbol_errors"}, {222, "symbol_ber"},
};

static int field_of(device gpu, struct field *out) {
    int rate = out->id == 220 || out->id == 222; /* 15e-254 */
    out->type = UNSIGNED;
    if (out->id == 91) { /* link count */
        out->value.u = (u32)number(gpu->index, "links", 18);
        return out->value.u ? OK : NOT_SUPPORTED;
    }
    if (out->id == 164) { /* speed_mbytes_s */
        if (!link_call(gpu, out->scope) && link_down(gpu->index, out->scope)) return out->value.u = 0, OK;
        return link_value(gpu, out->scope, "speed_mbytes_s", 26562, &out->value.u);
    }
    if (out->id == 171) /* c2c_down=1: the last so many are inactive */
        return out->value.u = out->scope < (u32)(number(gpu->index, "c2c_links", 0) - number(gpu->index, "c2c_down", 0)), OK;
    for (size_t i = 0; i < sizeof LINK_FIELDS / sizeof *LINK_FIELDS; i++)
        if (LINK_FIELDS[i].id == out->id && number(gpu->index, "nvlink_version", 6) >= 7)
            return link_value(gpu, out->scope, LINK_FIELDS[i].key, rate ? 0xffe : 0, &out->value.u);
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++)
        if (FIELDS[i].id == out->id) {
            long long value;
            int code = linked(gpu->index, NOBODY, "fields", FIELDS[i].key, FIELDS[i].otherwise, &value);
            out->type = FIELDS[i].type;
            if (out->type == LONG) out->value.l = (u64)value;
            else out->value.u = (u32)value;
            return code ? code : value == NONE ? NOT_SUPPORTED : OK;
        }
    return INVALID;
}

int nvmlDeviceGetFieldValues(device gpu, int size, struct field *out) {
    int code = enter(gpu->index, "field_values");
    for (int i = 0; !code && i < size; i++) {
        int alone = out[i].id >= 193 && out[i].id <= 196; /* driver 580.159 on an H200 fills these in alone */
        if (alone && size > 1) out[i].type = 0, out[i].value.l = 0, out[i].code = OK;
        else out[i].code = field_of(gpu, &out[i]);
    }
    return code;
}

/* What a driver of the 470 branch does not have */

#ifndef OLD_DRIVER

struct memory_v2 { u32 version; u64 total, reserved, free, used; };
struct branch { u32 version; char branch[80]; };
struct state { u32 environment, feature, devtools; };
struct excluded { struct pci pci; char uuid[80]; };
struct sram { u32 version; u64 parity, secded, correctable, volatile_parity, volatile_secded, volatile_correctable,
              l2, sm, pcie, mcu, other; u32 threshold; };
struct repair { u32 version, channel, tpc; };
struct fabric_v { u32 version; struct fabric info; u32 health; unsigned char summary; };

int nvmlSystemGetDriverBranch(struct branch *out, u32 size) {
    return word(0, "driver", "branch", "r570_00", out->branch, size);
}

int nvmlSystemGetConfComputeState(struct state *out) { /* confidential_compute=1 */
    u32 on = (u32)number(NOBODY, "confidential_compute", 0);
    return *out = (struct state){on ? 2 : 0, on, 0}, enter(NOBODY, "confidential_compute");
}

int nvmlGetExcludedDeviceCount(u32 *out) {
    const char *listed = text(NOBODY, "excluded", "");
    *out = *listed ? 1 : 0;
    for (; *listed; listed++) *out += *listed == ',';
    return enter(NOBODY, "excluded");
}

int nvmlGetExcludedDeviceInfoByIndex(u32 index, struct excluded *out) {
    const char *listed = text(NOBODY, "excluded", "");
    for (; index && listed; index--) listed = strchr(listed, ',') ? strchr(listed, ',') + 1 : 0;
    if (!listed) return INVALID;
    memset(out, 0, sizeof *out);
    return fill_pci(&out->pci, listed, 0x233010de, 0), OK;
}

int nvmlDeviceGetMemoryInfo_v2(device gpu, struct memory_v2 *out) {
    if (out->version != 0x02000028) return VERSION_MISMATCH;
    struct memory whole_memory;
    int code = nvmlDeviceGetMemoryInfo(gpu, &whole_memory);
    out->reserved = number(gpu->index, "memory_reserved_mib", 551) * MIB;
    out->total = whole_memory.total, out->free = whole_memory.free, out->used = whole_memory.used - out->reserved;
    return code;
}

int nvmlDeviceGetAddressingMode(device gpu, struct two *out) {
    return whole(gpu, "addressing", "addressing", 0, &out->value);
}
int nvmlDeviceGetMarginTemperature(device gpu, struct two *out) {
    return whole(gpu, "margin", "t_limit_margin", 53, &out->value);
}
int nvmlDeviceGetUnrepairableMemoryFlag_v1(device gpu, struct two *out) {
    return whole(gpu, "repair", "unrepairable_memory", 0, &out->value);
}

int nvmlDeviceGetRepairStatus(device gpu, struct repair *out) {
    int code = whole(gpu, "repair", "channel_repair_pending", 0, &out->channel);
    return code ? code : whole(gpu, "repair", "tpc_repair_pending", 0, &out->tpc);
}

int nvmlDeviceGetSramEccErrorStatus(device gpu, struct sram *out) { /* sram_threshold=1 sram_l2 sram_sm ... */
    int code = enter(gpu->index, "sram");
    out->parity = out->secded = out->correctable = 0;
    out->volatile_parity = out->volatile_secded = out->volatile_correctable = 0;
    out->l2 = number(gpu->index, "sram_l2", 0), out->sm = number(gpu->index, "sram_sm", 0);
    out->pcie = number(gpu->index, "sram_pcie", 0), out->mcu = number(gpu->index, "sram_microcontroller", 0);
    out->other = number(gpu->index, "sram_other", 0), out->threshold = (u32)number(gpu->index, "sram_threshold", 0);
    return code;
}

/* fabric_health=0x15aa fabric_summary=1 */
int nvmlDeviceGetGpuFabricInfoV(device gpu, struct fabric_v *out) {
    if (out->version != 0x02000024 && out->version != 0x03000028) return VERSION_MISMATCH;
    int code = fabric_of(gpu, &out->info);
    out->health = (u32)number(gpu->index, "fabric_health", 0x1aa);
    if (out->version == 0x03000028) out->summary = (unsigned char)number(gpu->index, "fabric_summary", 1);
    return code;
}

LARGE(CurrentClocksEventReasons, "reasons", "reasons", 1)
PROCESSES(ComputeRunningProcesses_v3, "processes")
PROCESSES(GraphicsRunningProcesses_v3, "graphics")
PROCESSES(MPSComputeRunningProcesses_v3, "mps")

#endif
