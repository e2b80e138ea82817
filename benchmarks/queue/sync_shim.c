/* Loaded before libc by the queue benchmark: makes every sync last at least as long as on a slow disk, and counts.
 *
 * SKERRY_SYNC_PAD_US: fdatasync and fsync return no sooner than this many microseconds after they were called
 * (the real call is made first, so that a slower disk is not made faster). 0 or unset: as they are.
 * sync_shim_counts() tells how many syncs there were, and how many bytes were written to files whose names end
 * in -wal or -journal, and to all others. Which file a descriptor is, is asked once and forgotten at close().
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { KNOWN_DESCRIPTORS = 4096, UNKNOWN = 0, LOG = 1, OTHER = 2 };

static unsigned char kind_of[KNOWN_DESCRIPTORS];
static uint64_t syncs, log_bytes, other_bytes;

static int (*real_fdatasync)(int);
static int (*real_fsync)(int);
static int (*real_close)(int);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int64_t pad_ns;

__attribute__((constructor)) static void begin(void) {
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_close = dlsym(RTLD_NEXT, "close");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    const char *pad = getenv("SKERRY_SYNC_PAD_US");
    pad_ns = pad ? atoll(pad) * 1000 : 0;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int padded(int (*call)(int), int descriptor) {
    int64_t until = now_ns() + pad_ns;
    int answer = call(descriptor);
    int error = errno;
    if (pad_ns > 0) {
        struct timespec at = {.tv_sec = until / 1000000000LL, .tv_nsec = until % 1000000000LL};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
        }
    }
    __atomic_fetch_add(&syncs, 1, __ATOMIC_RELAXED);
    errno = error;
    return answer;
}

static int ends_with(const char *text, size_t length, const char *tail) {
    size_t size = strlen(tail);
    return length >= size && memcmp(text + length - size, tail, size) == 0;
}

static unsigned char asked_kind(int descriptor) {
    char link[64], name[4096];
    int error = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, name, sizeof name);
    errno = error;
    int is_log = length > 0 && (ends_with(name, length, "-wal") || ends_with(name, length, "-journal"));
    return is_log ? LOG : OTHER;
}

static void count(int descriptor, ssize_t size) {
    if (size <= 0 || descriptor < 0)
        return;
    unsigned char kind = descriptor < KNOWN_DESCRIPTORS ? kind_of[descriptor] : UNKNOWN;
    if (kind == UNKNOWN) {
        kind = asked_kind(descriptor);
        if (descriptor < KNOWN_DESCRIPTORS)
            kind_of[descriptor] = kind;
    }
    __atomic_fetch_add(kind == LOG ? &log_bytes : &other_bytes, (uint64_t)size, __ATOMIC_RELAXED);
}

int fdatasync(int descriptor) { return padded(real_fdatasync, descriptor); }

int fsync(int descriptor) { return padded(real_fsync, descriptor); }

int close(int descriptor) {
    if (descriptor >= 0 && descriptor < KNOWN_DESCRIPTORS)
        kind_of[descriptor] = UNKNOWN;
    return real_close(descriptor);
}

ssize_t write(int descriptor, const void *data, size_t size) {
    ssize_t written = real_write(descriptor, data, size);
    count(descriptor, written);
    return written;
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t at) {
    ssize_t written = real_pwrite(descriptor, data, size, at);
    count(descriptor, written);
    return written;
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off_t at) {
    return pwrite(descriptor, data, size, at);
}

void sync_shim_counts(uint64_t counts[3]) {
    counts[0] = __atomic_load_n(&syncs, __ATOMIC_RELAXED);
    counts[1] = __atomic_load_n(&log_bytes, __ATOMIC_RELAXED);
    counts[2] = __atomic_load_n(&other_bytes, __ATOMIC_RELAXED);
}
