/*
 * A stand-in for NVIDIA's management library, for tests and benchmarks on machines without a GPU.
 *
 * It offers those of NVML's functions that the agent calls, with NVML's names, layouts and status
 * codes, and answers from a control file (see README.md). What is set through it is kept in a file
 * beside the control file, so that it outlives the process that set it, as it does in a driver.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

/* --- What NVML's binary interface fixes ------------------------------------------------------- */

enum status {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    VERSION_MISMATCH = 25,
};

enum value_type { TYPE_UINT = 1, TYPE_U64 = 3, TYPE_INT = 5 };

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

struct utilization {
    unsigned int gpu, memory;
};

struct pci {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct margin {
    unsigned int version;
    int celsius;
};

struct field {
    unsigned int id, scope;
    long long timestamp_us, latency_us;
    unsigned int type, status;
    union {
        double d;
        unsigned int u;
        unsigned long long u64;
        int i;
    } value;
};

struct event {
    void *device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
};

#define MARGIN_V1 0x01000008u
#define EVENT_XID 0x8ull
#define ALL_LINKS 0xFFFFFFFFu
#define SW_POWER_CAP 0x4ull

/* --- The control file ------------------------------------------------------------------------- */

#define MAX_GPUS 16
#define MAX_INSTANCES 7
#define MAX_XIDS 256
#define ABSENT LLONG_MIN /* written "-": NVML says "not supported" */

struct gpu_control {
    char name[96], uuid[96], pci[32];
    char status[512]; /* "FUNCTION:CODE FIELD_ID:CODE ..." */
    char kill[96];    /* "FUNCTION:before" or "FUNCTION:after" */
    char slow[512];   /* "FUNCTION:MS ..." */
    char busy[512];   /* "FUNCTION:MS ..." */
    char profiles[256]; /* of its MIG instances: "3g.40gb 1g.10gb ..." */
    long long temperature, temperature_limit, margin, slowdown_tlimit, memory_temperature;
    long long power_mw, energy_mj, limit_min_mw, limit_max_mw, limit_default_mw;
    long long sm_mhz, max_sm_mhz, mem_mhz, throttle, util, mem_util, fan, ecc;
    long long memory_total, memory_used, memory_reserved;
    long long nvlink_tx_kib, nvlink_rx_kib, nvlink_tx_bytes, nvlink_rx_bytes, pcie_tx, pcie_rx;
    long long sw_power_cap_ns, sync_boost_ns, sw_thermal_ns, hw_thermal_ns, hw_power_brake_ns;
    long long lost, slow_ms, may_set, may_see_mig_parent, mig;
    long long instance_memory_used[MAX_INSTANCES];
    int instances;
};

struct xid {
    long long number, gpu, code;
};

struct control {
    char version[80], log[PATH_MAX];
    long long loaded, generation, gpus, slow_ms;
    struct gpu_control gpu[MAX_GPUS];
    struct xid xid[MAX_XIDS];
    int xids;
};

#define NUMBER(name) {#name, offsetof(struct gpu_control, name)}
static const struct {
    const char *key;
    size_t at;
} NUMBERS[] = {
    NUMBER(temperature), NUMBER(temperature_limit), NUMBER(margin), NUMBER(slowdown_tlimit),
    NUMBER(memory_temperature), NUMBER(power_mw), NUMBER(energy_mj), NUMBER(limit_min_mw),
    NUMBER(limit_max_mw), NUMBER(limit_default_mw), NUMBER(sm_mhz), NUMBER(max_sm_mhz),
    NUMBER(mem_mhz), NUMBER(throttle), NUMBER(util), NUMBER(mem_util), NUMBER(fan), NUMBER(ecc),
    NUMBER(memory_total), NUMBER(memory_used), NUMBER(memory_reserved), NUMBER(nvlink_tx_kib), NUMBER(nvlink_rx_kib),
    NUMBER(nvlink_tx_bytes), NUMBER(nvlink_rx_bytes), NUMBER(pcie_tx), NUMBER(pcie_rx),
    NUMBER(sw_power_cap_ns), NUMBER(sync_boost_ns), NUMBER(sw_thermal_ns), NUMBER(hw_thermal_ns),
    NUMBER(hw_power_brake_ns), NUMBER(lost), NUMBER(slow_ms), NUMBER(may_set),
    NUMBER(may_see_mig_parent), NUMBER(mig),
};

#define TEXT(name) \
    {#name, offsetof(struct gpu_control, name), sizeof(((struct gpu_control *)0)->name)}
static const struct {
    const char *key;
    size_t at, size;
} TEXTS[] = {TEXT(name), TEXT(uuid), TEXT(pci), TEXT(status), TEXT(kill), TEXT(slow),
    TEXT(busy), TEXT(profiles)};

/* --- What is set, shared by all processes ----------------------------------------------------- */

struct gpu_state {
    unsigned int limit_mw;             /* 0: the card's default */
    unsigned int lock_min, lock_max;   /* 0: clocks are not locked */
    double energy_mj, at_s, power_mw;  /* energy until at_s, and the power since */
};

struct state {
    long long generation;
    struct gpu_state gpu[MAX_GPUS];
};

/* --- This process ----------------------------------------------------------------------------- */

struct device {
    int gpu, instance; /* instance -1: the GPU itself */
};

struct event_set {
    long long generation, last;
    unsigned int watched;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Two sets, used in turn: a handle from before a reload of the driver is void. */
#define INSTANCES (1 + MAX_INSTANCES)
static struct device devices[2][MAX_GPUS * INSTANCES];
static int current_set;
static struct control control;
static char control_path[PATH_MAX];
static struct stat control_seen;
static struct state *state;
static int state_fd = -1;
static int initialized;
static long long initialized_generation;

static struct device *handle(int gpu, int instance) {
    return &devices[current_set][gpu * INSTANCES + 1 + instance];
}

static double monotonic_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void sleep_ms(long long ms) {
    struct timespec wait = {ms / 1000, (ms % 1000) * 1000000};
    nanosleep(&wait, NULL);
}

/* Use the processor, as a driver does that talks to its card. */
static void spin_ms(long long ms) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    long long end_ns = now.tv_sec * 1000000000LL + now.tv_nsec + ms * 1000000;
    while (now.tv_sec * 1000000000LL + now.tv_nsec < end_ns)
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
}

/* --- Reading the control file ----------------------------------------------------------------- */

static void set_defaults(struct control *made) {
    memset(made, 0, sizeof *made);
    strcpy(made->version, "580.95.05");
    made->loaded = made->generation = made->gpus = 1;
    for (int i = 0; i < MAX_GPUS; i++) {
        struct gpu_control *gpu = &made->gpu[i];
        *gpu = (struct gpu_control){
            .name = "NVIDIA H100 80GB HBM3",
            .temperature = 45, .temperature_limit = 87, .margin = 42, .slowdown_tlimit = -2,
            .memory_temperature = 50, .power_mw = 350000, .energy_mj = ABSENT,
            .limit_min_mw = 200000, .limit_max_mw = 700000, .limit_default_mw = 700000,
            .sm_mhz = 1980, .max_sm_mhz = 1980, .mem_mhz = 2619, .util = 90, .mem_util = 35,
            .fan = ABSENT,
            .memory_total = 85520809984, .memory_used = 1073741824, .memory_reserved = 644939776,
            .may_set = 1,
        };
        snprintf(gpu->uuid, sizeof gpu->uuid, "GPU-00000000-0000-0000-0000-%012d", i);
        snprintf(gpu->pci, sizeof gpu->pci, "00000000:%02X:00.0", 0x10 + i);
    }
}

static char *trimmed(char *text) {
    while (*text == ' ' || *text == '\t') text++;
    for (char *end = text + strlen(text); end > text && strchr(" \t\r\n", end[-1]);) *--end = 0;
    return text;
}

static long long number(const char *text) {
    return strcmp(text, "-") == 0 ? ABSENT : strtoll(text, NULL, 0);
}

static void set_gpu_key(struct gpu_control *gpu, const char *key, const char *value) {
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++)
        if (strcmp(key, NUMBERS[i].key) == 0) {
            *(long long *)((char *)gpu + NUMBERS[i].at) = number(value);
            return;
        }
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++)
        if (strcmp(key, TEXTS[i].key) == 0) {
            snprintf((char *)gpu + TEXTS[i].at, TEXTS[i].size, "%s", value);
            return;
        }
    if (strcmp(key, "instances") == 0) { /* bytes in use on each MIG instance */
        char copy[256], *rest = copy, *word;
        snprintf(copy, sizeof copy, "%s", value);
        gpu->instances = 0;
        while ((word = strsep(&rest, " ")) && gpu->instances < MAX_INSTANCES)
            if (*word) gpu->instance_memory_used[gpu->instances++] = number(word);
        return;
    }
    fprintf(stderr, "stand-in NVML: unknown key '%s'\n", key);
    abort();
}

static void set_driver_key(struct control *made, const char *key, const char *value) {
    if (strcmp(key, "version") == 0) snprintf(made->version, sizeof made->version, "%s", value);
    else if (strcmp(key, "log") == 0) snprintf(made->log, sizeof made->log, "%s", value);
    else if (strcmp(key, "loaded") == 0) made->loaded = number(value);
    else if (strcmp(key, "generation") == 0) made->generation = number(value);
    else if (strcmp(key, "slow_ms") == 0) made->slow_ms = number(value);
    else if (strcmp(key, "gpus") == 0) made->gpus = number(value);
    else {
        fprintf(stderr, "stand-in NVML: unknown key '%s' of the driver\n", key);
        abort();
    }
    if (made->gpus < 0 || made->gpus > MAX_GPUS) {
        fprintf(stderr, "stand-in NVML: at most %d GPUs\n", MAX_GPUS);
        abort();
    }
}

static void parse(FILE *file, struct control *made) {
    char line[2048], section[64] = "";
    set_defaults(made);
    while (fgets(line, sizeof line, file)) {
        char *text = trimmed(line), *equals = strchr(text, '=');
        if (*text == 0 || *text == '#') continue;
        if (*text == '[') {
            snprintf(section, sizeof section, "%.*s", (int)strcspn(text + 1, "]"), text + 1);
            continue;
        }
        if (!equals) continue;
        *equals = 0;
        char *key = trimmed(text), *value = trimmed(equals + 1);
        int index;
        if (strcmp(section, "driver") == 0) {
            set_driver_key(made, key, value);
        } else if (strcmp(section, "gpu") == 0) {
            for (int i = 0; i < MAX_GPUS; i++) set_gpu_key(&made->gpu[i], key, value);
        } else if (sscanf(section, "gpu %d", &index) == 1 && index >= 0 && index < MAX_GPUS) {
            set_gpu_key(&made->gpu[index], key, value);
        } else if (strcmp(section, "xids") == 0 && made->xids < MAX_XIDS) {
            struct xid *xid = &made->xid[made->xids++];
            xid->number = number(key);
            sscanf(value, "%lld %lld", &xid->gpu, &xid->code);
        }
    }
}

/* --- Power, energy and limits ----------------------------------------------------------------- */

static unsigned int limit_mw(int index) {
    unsigned int set = state->gpu[index].limit_mw;
    return set ? set : (unsigned int)control.gpu[index].limit_default_mw;
}

static long long sm_mhz(int index) {
    long long wanted = control.gpu[index].sm_mhz, lock = state->gpu[index].lock_max;
    return lock && wanted > lock ? lock : wanted;
}

/* Watts that the GPU would draw without a power limit: with its clock, if that is locked lower. */
static double wanted_mw(int index) {
    const struct gpu_control *gpu = &control.gpu[index];
    if (gpu->power_mw == ABSENT) return 0;
    if (gpu->sm_mhz == ABSENT || gpu->sm_mhz == 0) return (double)gpu->power_mw;
    return (double)gpu->power_mw * (double)sm_mhz(index) / (double)gpu->sm_mhz;
}

static int is_capped(int index) {
    return control.gpu[index].limit_default_mw != ABSENT && wanted_mw(index) > limit_mw(index);
}

/* Account for the energy up to now, and go on with the power of now. Holds the file's lock. */
static void settle(int index) {
    struct gpu_state *gpu = &state->gpu[index];
    double now = monotonic_s();
    if (gpu->at_s > 0) gpu->energy_mj += gpu->power_mw * (now - gpu->at_s);
    gpu->at_s = now;
    gpu->power_mw = is_capped(index) ? limit_mw(index) : wanted_mw(index);
}

static void settle_all(void) {
    flock(state_fd, LOCK_EX);
    if (state->generation != control.generation) { /* a driver that is loaded anew knows nothing */
        memset(state->gpu, 0, sizeof state->gpu);
        state->generation = control.generation;
    }
    for (int i = 0; i < control.gpus; i++) settle(i);
    flock(state_fd, LOCK_UN);
}

/* Turn to another control file: one process may have several in turn. */
static void turn_to(const char *path) {
    if (strcmp(path, control_path) == 0) return;
    if (state) {
        munmap(state, sizeof *state);
        close(state_fd);
        state = NULL;
    }
    memset(&control_seen, 0, sizeof control_seen);
    initialized = 0;
    snprintf(control_path, sizeof control_path, "%s", path);
}

static int open_state(void) {
    char path[PATH_MAX + 8];
    if (state) return 1;
    snprintf(path, sizeof path, "%s.state", control_path);
    state_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (state_fd < 0) return 0;
    flock(state_fd, LOCK_EX);
    struct stat found;
    fstat(state_fd, &found);
    int is_sized = found.st_size >= (off_t)sizeof *state || ftruncate(state_fd, sizeof *state) == 0;
    flock(state_fd, LOCK_UN);
    if (!is_sized) return 0;
    void *mapped = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd, 0);
    if (mapped == MAP_FAILED) return 0;
    state = mapped;
    return 1;
}

/* Read the control file again where it changed. Returns whether there is one. */
static int refresh(void) {
    const char *path = getenv("NVML_STANDIN_CONTROL");
    struct stat now;
    if (!path) return 0;
    turn_to(path);
    if (stat(path, &now) != 0 || !open_state()) return 0;
    if (now.st_mtim.tv_sec == control_seen.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == control_seen.st_mtim.tv_nsec &&
        now.st_size == control_seen.st_size && now.st_ino == control_seen.st_ino)
        return 1;
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    parse(file, &control);
    fclose(file);
    control_seen = now;
    settle_all();
    return 1;
}

/* --- What every call begins and ends with ----------------------------------------------------- */

static void log_call(const char *name, const struct device *device, const char *format, ...) {
    if (!control.log[0]) return;
    char line[256];
    int size = snprintf(line, sizeof line, "%s %d", name, device ? device->gpu : -1);
    va_list arguments;
    va_start(arguments, format);
    size += vsnprintf(line + size, sizeof line - (size_t)size, format, arguments);
    va_end(arguments);
    line[size++] = '\n';
    int fd = open(control.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, (size_t)size) < 0) abort();
    close(fd);
}

/* Return the number that a list of "NAME:NUMBER" has for a name, or -1. */
static long long listed(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ' ') && at[length] == ':')
            return strtoll(at + length + 1, NULL, 10);
    return -1;
}

static void maybe_die(const char *name, const struct device *device, const char *when) {
    char wanted[128];
    snprintf(wanted, sizeof wanted, "%s:%s", name, when);
    if (strcmp(control.gpu[device->gpu].kill, wanted) == 0) raise(SIGKILL);
}

static int is_device(const struct device *device) {
    const struct device *first = devices[current_set];
    return device >= first && device < first + MAX_GPUS * INSTANCES && device->gpu < control.gpus;
}

/* Begin a call of a GPU, or of none. Where it returns OK the mutex is held. */
static int enter(const char *name, const struct device *device) {
    pthread_mutex_lock(&mutex);
    int result = OK;
    if (!refresh() || !initialized || !control.loaded ||
        control.generation != initialized_generation)
        result = UNINITIALIZED;
    else if (device && !is_device(device))
        result = INVALID_ARGUMENT;
    if (result == OK) {
        long long wait = control.slow_ms, work = 0;
        if (device) {
            const struct gpu_control *gpu = &control.gpu[device->gpu];
            long long own = listed(gpu->slow, name);
            wait += gpu->slow_ms + (own > 0 ? own : 0);
            work = listed(gpu->busy, name);
            long long status = listed(gpu->status, name);
            if (gpu->lost) result = GPU_IS_LOST;
            else if (status >= 0) result = (int)status;
        }
        log_call(name, device, "");
        if (wait > 0) {
            pthread_mutex_unlock(&mutex);
            sleep_ms(wait);
            pthread_mutex_lock(&mutex);
        }
        if (work > 0) spin_ms(work);
    }
    if (result != OK) pthread_mutex_unlock(&mutex);
    return result;
}

static int leave(int result) {
    pthread_mutex_unlock(&mutex);
    return result;
}

#define ENTER(device)                                 \
    do {                                              \
        int refused = enter(__func__, device);        \
        if (refused != OK) return refused;            \
    } while (0)

#define GPU(device) (&control.gpu[((const struct device *)(device))->gpu])

static int give(unsigned int *out, long long value) {
    if (value == ABSENT) return leave(NOT_SUPPORTED);
    *out = (unsigned int)value;
    return leave(OK);
}

static int give64(unsigned long long *out, long long value) {
    if (value == ABSENT) return leave(NOT_SUPPORTED);
    *out = (unsigned long long)value;
    return leave(OK);
}

static int give_text(char *out, unsigned int size, const char *text) {
    if (strlen(text) >= size) return leave(INSUFFICIENT_SIZE);
    strcpy(out, text);
    return leave(OK);
}

static int on_mig_parent(const struct device *device) {
    return control.gpu[device->gpu].mig == 1 && device->instance < 0;
}

/* --- The library ------------------------------------------------------------------------------ */

API int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    pthread_mutex_lock(&mutex);
    if (!refresh() || !control.loaded) return leave(DRIVER_NOT_LOADED);
    if (control.slow_ms > 0) sleep_ms(control.slow_ms);
    if (initialized && initialized_generation != control.generation) initialized = 0;
    if (!initialized) current_set = !current_set;
    for (int i = 0; i < MAX_GPUS * INSTANCES; i++)
        devices[current_set][i] = (struct device){i / INSTANCES, i % INSTANCES - 1};
    initialized++;
    initialized_generation = control.generation;
    log_call(__func__, NULL, "");
    return leave(OK);
}

API int nvmlShutdown(void) {
    pthread_mutex_lock(&mutex);
    if (!initialized) return leave(UNINITIALIZED);
    initialized--;
    return leave(OK);
}

API const char *nvmlErrorString(int status) {
    switch (status) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid argument";
    case NOT_SUPPORTED: return "Not supported";
    case NO_PERMISSION: return "Insufficient permissions";
    case DRIVER_NOT_LOADED: return "Driver not loaded";
    case TIMEOUT: return "Timeout";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "Error";
    }
}

API int nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    ENTER(NULL);
    return give_text(version, length, control.version);
}

API int nvmlDeviceGetCount_v2(unsigned int *count) {
    ENTER(NULL);
    return give(count, control.gpus);
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    ENTER(NULL);
    if (index >= (unsigned int)control.gpus) return leave(INVALID_ARGUMENT);
    if (control.gpu[index].lost) return leave(GPU_IS_LOST);
    *device = handle((int)index, -1);
    return leave(OK);
}

API int nvmlDeviceGetName(struct device *device, char *name, unsigned int length) {
    ENTER(device);
    if (device->instance < 0) return give_text(name, length, GPU(device)->name);
    char copy[256], *rest = copy, *word = "", full[192];
    snprintf(copy, sizeof copy, "%s", GPU(device)->profiles);
    for (int place = 0; place <= device->instance; place++) {
        char *next = strsep(&rest, " ");
        word = next && *next ? next : "unnamed";
    }
    snprintf(full, sizeof full, "%.90s MIG %.40s", GPU(device)->name, word);
    return give_text(name, length, full);
}

API int nvmlDeviceGetVbiosVersion(struct device *device, char *version, unsigned int length) {
    ENTER(device);
    return give_text(version, length, "96.00.D9.00.01");
}

API int nvmlDeviceGetUUID(struct device *device, char *uuid, unsigned int length) {
    ENTER(device);
    if (device->instance < 0) return give_text(uuid, length, GPU(device)->uuid);
    char full[96];
    snprintf(full, sizeof full, "MIG-%.60s-%d", GPU(device)->uuid + 4, device->instance);
    return give_text(uuid, length, full);
}

API int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci *pci) {
    ENTER(device);
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", GPU(device)->pci);
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%.15s", GPU(device)->pci + 4);
    sscanf(GPU(device)->pci, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    return leave(OK);
}

/* --- Readings --------------------------------------------------------------------------------- */

API int nvmlDeviceGetPowerUsage(struct device *device, unsigned int *milliwatts) {
    ENTER(device);
    if (GPU(device)->power_mw == ABSENT) return leave(NOT_SUPPORTED);
    return give(milliwatts, (long long)state->gpu[device->gpu].power_mw);
}

API int nvmlDeviceGetTotalEnergyConsumption(
    struct device *device, unsigned long long *millijoules) {
    ENTER(device);
    const struct gpu_control *gpu = GPU(device);
    if (gpu->energy_mj != ABSENT) return give64(millijoules, gpu->energy_mj);
    if (gpu->power_mw == ABSENT) return leave(NOT_SUPPORTED);
    flock(state_fd, LOCK_EX);
    settle(device->gpu);
    double energy = state->gpu[device->gpu].energy_mj;
    flock(state_fd, LOCK_UN);
    return give64(millijoules, (long long)energy);
}

API int nvmlDeviceGetTemperature(
    struct device *device, unsigned int sensor, unsigned int *celsius) {
    ENTER(device);
    return sensor == 0 ? give(celsius, GPU(device)->temperature) : leave(INVALID_ARGUMENT);
}

API int nvmlDeviceGetTemperatureThreshold(
    struct device *device, unsigned int which, unsigned int *celsius) {
    ENTER(device);
    return which == 1 ? give(celsius, GPU(device)->temperature_limit) : leave(NOT_SUPPORTED);
}

API int nvmlDeviceGetMarginTemperature(struct device *device, struct margin *margin) {
    ENTER(device);
    if (margin->version != MARGIN_V1) return leave(VERSION_MISMATCH);
    if (GPU(device)->margin == ABSENT) return leave(NOT_SUPPORTED);
    margin->celsius = (int)GPU(device)->margin;
    return leave(OK);
}

API int nvmlDeviceGetClockInfo(struct device *device, unsigned int which, unsigned int *mhz) {
    ENTER(device);
    if (which > 2) return leave(INVALID_ARGUMENT);
    return give(mhz, which == 2 ? GPU(device)->mem_mhz : sm_mhz(device->gpu));
}

API int nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *rates) {
    ENTER(device);
    if (on_mig_parent(device) || GPU(device)->util == ABSENT) return leave(NOT_SUPPORTED);
    *rates = (struct utilization){(unsigned int)GPU(device)->util,
                                  (unsigned int)GPU(device)->mem_util};
    return leave(OK);
}

/* Bytes in use on a GPU or on one of its MIG instances. */
static int memory_used(const struct device *device, unsigned long long *used) {
    const struct gpu_control *gpu = GPU(device);
    if (on_mig_parent(device) && !gpu->may_see_mig_parent) return NO_PERMISSION;
    long long value =
        device->instance < 0 ? gpu->memory_used : gpu->instance_memory_used[device->instance];
    if (value == ABSENT) return NOT_SUPPORTED;
    *used = (unsigned long long)value;
    return OK;
}

API int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory) {
    ENTER(device);
    unsigned long long total = (unsigned long long)GPU(device)->memory_total, used;
    int result = memory_used(device, &used);
    /* What the driver keeps for itself counts as in use here, and apart in the second version. */
    used += (unsigned long long)GPU(device)->memory_reserved;
    if (result == OK) *memory = (struct memory){total, total - used, used};
    return leave(result);
}

API int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory) {
    ENTER(device);
    unsigned int version = (unsigned int)sizeof(struct memory_v2) | 2u << 24;
    if (memory->version != version) return leave(VERSION_MISMATCH);
    unsigned long long total = (unsigned long long)GPU(device)->memory_total, used;
    unsigned long long reserved = (unsigned long long)GPU(device)->memory_reserved;
    int result = memory_used(device, &used);
    if (result == OK)
        *memory = (struct memory_v2){version, total, reserved, total - reserved - used, used};
    return leave(result);
}

API int nvmlDeviceGetFanSpeed(struct device *device, unsigned int *percent) {
    ENTER(device);
    return give(percent, GPU(device)->fan);
}

API int nvmlDeviceGetCurrentClocksEventReasons(struct device *device, unsigned long long *mask) {
    ENTER(device);
    long long given = GPU(device)->throttle;
    if (given == ABSENT) return leave(NOT_SUPPORTED);
    return give64(mask, given | (is_capped(device->gpu) ? (long long)SW_POWER_CAP : 0));
}

API int nvmlDeviceGetTotalEccErrors(
    struct device *device, unsigned int kind, unsigned int counter, unsigned long long *count) {
    ENTER(device);
    if (kind != 1 || counter != 0) return leave(INVALID_ARGUMENT);
    return give64(count, GPU(device)->ecc);
}

static void fill_field(const struct gpu_control *gpu, struct field *field) {
    unsigned int type = TYPE_U64;
    long long value;
    switch (field->id) {
    case 74: value = gpu->sw_power_cap_ns; break;
    case 76: value = gpu->sync_boost_ns; break;
    case 82: value = gpu->memory_temperature, type = TYPE_UINT; break;
    case 138: value = gpu->nvlink_tx_kib; break;
    case 139: value = gpu->nvlink_rx_kib; break;
    case 194: value = gpu->slowdown_tlimit, type = TYPE_INT; break;
    case 197: value = gpu->pcie_tx; break;
    case 198: value = gpu->pcie_rx; break;
    case 202: value = gpu->nvlink_tx_bytes; break;
    case 204: value = gpu->nvlink_rx_bytes; break;
    case 269: value = gpu->sw_thermal_ns; break;
    case 270: value = gpu->hw_thermal_ns; break;
    case 271: value = gpu->hw_power_brake_ns; break;
    default: field->status = INVALID_ARGUMENT; return;
    }
    int is_of_links = field->id == 138 || field->id == 139 || field->id == 202 || field->id == 204;
    char id[16];
    snprintf(id, sizeof id, "%u", field->id);
    long long status = listed(gpu->status, id);
    if (status >= 0) field->status = (unsigned int)status;
    else if (value == ABSENT) field->status = NOT_SUPPORTED;
    else if (is_of_links && field->scope != ALL_LINKS) field->status = INVALID_ARGUMENT;
    else field->status = OK;
    field->type = type;
    field->value.u64 = 0;
    if (type == TYPE_UINT) field->value.u = (unsigned int)value;
    else if (type == TYPE_INT) field->value.i = (int)value;
    else field->value.u64 = (unsigned long long)value;
}

API int nvmlDeviceGetFieldValues(struct device *device, int count, struct field *fields) {
    ENTER(device);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        fields[i].timestamp_us = (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
        fields[i].latency_us = 1;
        fill_field(GPU(device), &fields[i]);
    }
    return leave(OK);
}

/* --- MIG -------------------------------------------------------------------------------------- */

API int nvmlDeviceGetMigMode(struct device *device, unsigned int *current, unsigned int *pending) {
    ENTER(device);
    if (GPU(device)->mig == ABSENT) return leave(NOT_SUPPORTED);
    *current = *pending = (unsigned int)GPU(device)->mig;
    return leave(OK);
}

API int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned int *count) {
    ENTER(device);
    if (GPU(device)->mig == ABSENT) return leave(NOT_SUPPORTED);
    return give(count, MAX_INSTANCES);
}

API int nvmlDeviceGetMigDeviceHandleByIndex(
    struct device *device, unsigned int index, void **instance) {
    ENTER(device);
    if (index >= (unsigned int)GPU(device)->instances) return leave(NOT_FOUND);
    *instance = handle(device->gpu, (int)index);
    return leave(OK);
}

/* --- Limits ----------------------------------------------------------------------------------- */

API int nvmlDeviceGetPowerManagementLimit(struct device *device, unsigned int *milliwatts) {
    ENTER(device);
    if (GPU(device)->limit_default_mw == ABSENT) return leave(NOT_SUPPORTED);
    return give(milliwatts, limit_mw(device->gpu));
}

API int nvmlDeviceGetEnforcedPowerLimit(struct device *device, unsigned int *milliwatts) {
    ENTER(device);
    if (GPU(device)->limit_default_mw == ABSENT) return leave(NOT_SUPPORTED);
    return give(milliwatts, limit_mw(device->gpu));
}

API int nvmlDeviceGetPowerManagementDefaultLimit(struct device *device, unsigned int *milliwatts) {
    ENTER(device);
    return give(milliwatts, GPU(device)->limit_default_mw);
}

API int nvmlDeviceGetPowerManagementLimitConstraints(
    struct device *device, unsigned int *least, unsigned int *most) {
    ENTER(device);
    if (GPU(device)->limit_min_mw == ABSENT || GPU(device)->limit_max_mw == ABSENT)
        return leave(NOT_SUPPORTED);
    *least = (unsigned int)GPU(device)->limit_min_mw;
    *most = (unsigned int)GPU(device)->limit_max_mw;
    return leave(OK);
}

/* Whether a change may go on: permitted, and not the point at which the process is to die. */
static int may_change(const char *name, const struct device *device) {
    maybe_die(name, device, "before");
    return GPU(device)->may_set ? OK : NO_PERMISSION;
}

API int nvmlDeviceSetPowerManagementLimit(struct device *device, unsigned int milliwatts) {
    ENTER(device);
    int result = may_change(__func__, device);
    if (result != OK) return leave(result);
    const struct gpu_control *gpu = GPU(device);
    if (gpu->limit_default_mw == ABSENT) return leave(NOT_SUPPORTED);
    if (milliwatts < gpu->limit_min_mw || milliwatts > gpu->limit_max_mw)
        return leave(INVALID_ARGUMENT);
    flock(state_fd, LOCK_EX);
    settle(device->gpu);
    state->gpu[device->gpu].limit_mw = milliwatts;
    settle(device->gpu);
    flock(state_fd, LOCK_UN);
    log_call("set_power", device, " %u", milliwatts);
    maybe_die(__func__, device, "after");
    return leave(OK);
}

static int lock_clocks(
    const char *name, struct device *device, unsigned int least, unsigned int most) {
    int result = may_change(name, device);
    if (result != OK) return leave(result);
    flock(state_fd, LOCK_EX);
    settle(device->gpu);
    state->gpu[device->gpu].lock_min = least;
    state->gpu[device->gpu].lock_max = most;
    settle(device->gpu);
    flock(state_fd, LOCK_UN);
    log_call("set_clocks", device, " %u %u", least, most);
    maybe_die(name, device, "after");
    return leave(OK);
}

API int nvmlDeviceSetGpuLockedClocks(struct device *device, unsigned int least, unsigned int most) {
    ENTER(device);
    if (least > most) return leave(INVALID_ARGUMENT);
    return lock_clocks(__func__, device, least, most);
}

API int nvmlDeviceResetGpuLockedClocks(struct device *device) {
    ENTER(device);
    return lock_clocks(__func__, device, 0, 0);
}

/* The clocks that can be set: from 210 MHz to the highest in steps of 15, as on a Hopper card. */
#define LEAST_MHZ 210
#define STEP_MHZ 15

API int nvmlDeviceGetSupportedMemoryClocks(
    struct device *device, unsigned int *count, unsigned int *mhz) {
    ENTER(device);
    if (GPU(device)->mem_mhz == ABSENT) return leave(NOT_SUPPORTED);
    unsigned int room = *count;
    *count = 1;
    if (room < 1 || !mhz) return leave(INSUFFICIENT_SIZE);
    mhz[0] = (unsigned int)GPU(device)->mem_mhz;
    return leave(OK);
}

API int nvmlDeviceGetSupportedGraphicsClocks(
    struct device *device, unsigned int memory_mhz, unsigned int *count, unsigned int *mhz) {
    ENTER(device);
    const struct gpu_control *gpu = GPU(device);
    if (gpu->max_sm_mhz == ABSENT) return leave(NOT_SUPPORTED);
    if (memory_mhz != gpu->mem_mhz) return leave(NOT_FOUND);
    unsigned int room = *count;
    *count = (unsigned int)(gpu->max_sm_mhz - LEAST_MHZ) / STEP_MHZ + 1;
    if (room < *count || !mhz) return leave(INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < *count; i++) mhz[i] = (unsigned int)gpu->max_sm_mhz - i * STEP_MHZ;
    return leave(OK);
}

/* --- Events ----------------------------------------------------------------------------------- */

API int nvmlEventSetCreate(void **made) {
    ENTER(NULL);
    struct event_set *set = calloc(1, sizeof *set);
    if (!set) abort();
    set->generation = control.generation;
    for (int i = 0; i < control.xids; i++)
        if (control.xid[i].number > set->last) set->last = control.xid[i].number;
    *made = set;
    return leave(OK);
}

API int nvmlEventSetFree(struct event_set *set) {
    free(set);
    return OK;
}

API int nvmlDeviceRegisterEvents(
    struct device *device, unsigned long long types, struct event_set *set) {
    ENTER(device);
    if (types & EVENT_XID) set->watched |= 1u << device->gpu;
    return leave(OK);
}

static const struct xid *next_xid(const struct event_set *set) {
    const struct xid *next = NULL;
    for (int i = 0; i < control.xids; i++) {
        const struct xid *xid = &control.xid[i];
        int is_watched = xid->gpu >= 0 && xid->gpu < control.gpus && (set->watched >> xid->gpu & 1);
        if (is_watched && xid->number > set->last && (!next || xid->number < next->number))
            next = xid;
    }
    return next;
}

API int nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned int timeout_ms) {
    double end = monotonic_s() + timeout_ms / 1e3;
    for (;;) {
        ENTER(NULL);
        if (set->generation != control.generation) return leave(UNINITIALIZED);
        const struct xid *xid = next_xid(set);
        if (xid) {
            *event = (struct event){
                .device = handle((int)xid->gpu, -1), .type = EVENT_XID,
                .data = (unsigned long long)xid->code,
                .gpu_instance = UINT_MAX, .compute_instance = UINT_MAX,
            };
            set->last = xid->number;
            return leave(OK);
        }
        leave(OK);
        if (monotonic_s() >= end) return TIMEOUT;
        sleep_ms(10);
    }
}
