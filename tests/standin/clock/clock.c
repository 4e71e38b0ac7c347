/* A clock on the wall that a test sets while processes run.
 *
 * Preloaded, it adds what the file CLOCK_STANDIN_FILE says to every reading of the real-time clock:
 * a step (ns), and a drift (ns per ns since a moment, ns). The monotonic clock and all waiting stay
 * as they are: that is what setting the clock of a machine does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000LL

struct setting {
    int64_t step_ns;
    int64_t since_ns;
    double drift;
};

static volatile const struct setting *setting;
static int (*real_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CLOCK_STANDIN_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof(struct setting), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED)
        setting = found;
}

static int64_t shifted_ns(void) {
    struct timespec at;
    if (!real_gettime)
        begin();
    real_gettime(CLOCK_REALTIME, &at);
    int64_t ns = at.tv_sec * NS + at.tv_nsec;
    if (setting)
        ns += setting->step_ns + (int64_t)(setting->drift * (double)(ns - setting->since_ns));
    return ns;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) {
        if (!real_gettime)
            begin();
        return real_gettime(clock, at);
    }
    int64_t ns = shifted_ns();
    at->tv_sec = ns / NS;
    at->tv_nsec = ns % NS;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    int64_t ns = shifted_ns();
    at->tv_sec = ns / NS;
    at->tv_usec = ns % NS / 1000;
    return 0;
}

time_t time(time_t *at) {
    time_t now = shifted_ns() / NS;
    if (at)
        *at = now;
    return now;
}
