/* Withholds a resource from a process: space on the disk, write permission, the right time.
 *
 * Owns: `shortage_begin` and `shortage_end`, which the process itself calls, `shortage_count`,
 * `clock_jump` and `clock_count`. During a shortage `left` bytes can still be written below the
 * folder SHORTAGE_ROOT; then writes end short or fail, and no name can be made. With EROFS no name
 * can be removed either. Does not own: calls that bypass libc. The counts show how many calls were
 * refused, and how many returned a wrong time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#include "preload.h"

static atomic_int error;
static atomic_long left, refused, jumped, shifted;

__attribute__((constructor)) static void start(void) {
    const char *folder = getenv("SHORTAGE_ROOT");
    if (folder) snprintf(root, sizeof root, "%s", folder);
}

void shortage_begin(int number, long bytes) {
    left = bytes;
    refused = 0;
    error = number;
}
void shortage_end(void) { error = 0; }
long shortage_count(void) { return refused; }
void clock_jump(long seconds) {
    jumped = seconds;
    shifted = 0;
}
long clock_count(void) { return shifted; }

static int fd_below_root(int fd) {
    char path[PATH_MAX];
    return path_of_fd(fd, path);
}

static int name_below_root(int folder, const char *name) {
    char path[PATH_MAX];
    return path_at(folder, name, path);
}

static int refuse(void) {
    refused++;
    errno = error;
    return -1;
}

/* --- contents --- */

/* The number of bytes of a write that fit; below zero where no byte fits. */
static ssize_t room(int fd, size_t wanted) {
    if (!error || !wanted || !fd_below_root(fd)) return (ssize_t)wanted;
    long before = left;
    while (1) {
        if (before <= 0) return refuse();
        long taken = before < (long)wanted ? before : (long)wanted;
        if (atomic_compare_exchange_weak(&left, &before, before - taken)) return taken;
    }
}

ssize_t write(int fd, const void *bytes, size_t length) {
    REAL(write);
    ssize_t fits = room(fd, length);
    return fits < 0 ? fits : real(fd, bytes, (size_t)fits);
}
ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset) {
    REAL(pwrite64);
    ssize_t fits = room(fd, length);
    return fits < 0 ? fits : real(fd, bytes, (size_t)fits, offset);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    return pwrite64(fd, bytes, length, offset);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    if (!error || !fd_below_root(fd)) return real(fd, parts, count);
    /* One part at a time: a caller has to go on behind a short write anyway. */
    for (int part = 0; part < count; part++)
        if (parts[part].iov_len) return write(fd, parts[part].iov_base, parts[part].iov_len);
    return 0;
}
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *where, size_t length,
                        unsigned flags) {
    REAL(copy_file_range);
    ssize_t fits = room(to, length);
    return fits < 0 ? fits : real(from, at, to, where, (size_t)fits, flags);
}

/* --- names --- */

static int no_room_for(int folder, const char *name) {
    return error && left <= 0 && name_below_root(folder, name);
}

static int opened(int folder, const char *name, int flags, mode_t mode) {
    int writes = error == EROFS && (flags & O_ACCMODE) != O_RDONLY;
    if ((may_create(flags) || writes) && no_room_for(folder, name)) return refuse();
    return (int)syscall(SYS_openat, folder, name, flags, mode);
}

int mkdirat(int folder, const char *name, mode_t mode) {
    REAL(mkdirat);
    return no_room_for(folder, name) ? refuse() : real(folder, name, mode);
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
int linkat(int from, const char *old, int to, const char *new, int flags) {
    REAL(linkat);
    return no_room_for(to, new) ? refuse() : real(from, old, to, new, flags);
}
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }
int unlinkat(int folder, const char *name, int flags) {
    REAL(unlinkat);
    if (error == EROFS && name_below_root(folder, name)) return refuse();
    return real(folder, name, flags);
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

/* --- time of day --- */

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int failed = real(clock, now);
    if (!failed && clock == CLOCK_REALTIME && jumped) {
        now->tv_sec += jumped;
        shifted++;
    }
    return failed;
}
