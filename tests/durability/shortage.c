/* Takes something away from a process: space on the disk, the right to write, the time of day.
 *
 * Owns: `shortage_begin` and `shortage_end`, which the process itself calls, `shortage_count`, and
 * `clock_jump`. Below the folder SHORTAGE_ROOT, while one lasts, `left` bytes can still be written;
 * then writes end short or fail, and no name can be made. With EROFS none can be removed either.
 * Does not own: calls that go around libc; `shortage_count` says whether any was refused.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char root[PATH_MAX];
static atomic_int error;
static atomic_long left, refused, jumped;

#define REAL(name)                                        \
    static __typeof__(name) *real;                        \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

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
void clock_jump(long seconds) { jumped = seconds; }

static int below_root(const char *path) {
    size_t length = strlen(root);
    return length && strncmp(path, root, length) == 0 && (path[length] == '/' || !path[length]);
}

static int fd_below_root(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return below_root(path);
}

static int name_below_root(int folder, const char *name) {
    if (name[0] == '/') return below_root(name);
    return folder != AT_FDCWD && fd_below_root(folder);
}

static int refuse(void) {
    refused++;
    errno = error;
    return -1;
}

/* --- contents --- */

/* How much of a write there is room for; below zero where there is none. */
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

static int open_or_refuse(int folder, const char *name, int flags, mode_t mode) {
    int creates = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    int writes = error == EROFS && (flags & O_ACCMODE) != O_RDONLY;
    if ((creates || writes) && no_room_for(folder, name)) return refuse();
    return (int)syscall(SYS_openat, folder, name, flags, mode);
}

#define MODE_OF(flags)                                             \
    mode_t mode = 0;                                               \
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {   \
        va_list rest;                                              \
        va_start(rest, flags);                                     \
        mode = va_arg(rest, mode_t);                               \
        va_end(rest);                                              \
    }

int open(const char *name, int flags, ...) {
    MODE_OF(flags)
    return open_or_refuse(AT_FDCWD, name, flags, mode);
}
int open64(const char *name, int flags, ...) {
    MODE_OF(flags)
    return open_or_refuse(AT_FDCWD, name, flags, mode);
}
int openat(int folder, const char *name, int flags, ...) {
    MODE_OF(flags)
    return open_or_refuse(folder, name, flags, mode);
}
int openat64(int folder, const char *name, int flags, ...) {
    MODE_OF(flags)
    return open_or_refuse(folder, name, flags, mode);
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
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += jumped;
    return failed;
}
