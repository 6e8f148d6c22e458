/* Common parts of the libraries between a process and its files (LD_PRELOAD).
 *
 * Owns: the wrapped function of libc, whether a call concerns a file below the folder `root`, and
 * the four ways to open a file, which become one call of `opened`. Does not own: the handling of a
 * call.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Empty until the library gets a folder. */
static char root[PATH_MAX];

#define REAL(name)                                        \
    static __typeof__(name) *real;                        \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static inline int below_root(const char *path) {
    size_t length = strlen(root);
    return length && strncmp(path, root, length) == 0 &&
           (path[length] == '/' || path[length] == 0);
}

static inline int path_of_fd(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0 && below_root(path);
}

static inline int path_at(int folder, const char *name, char *path) {
    if (!root[0] || !name) return 0;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        char base[PATH_MAX];
        if (folder == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return 0;
        } else {
            path_of_fd(folder, base);
        }
        if (snprintf(path, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) return 0;
    }
    return below_root(path);
}

static inline int may_create(int flags) {
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

static int opened(int folder, const char *name, int flags, mode_t mode);

#define MODE_OF(flags)                 \
    mode_t mode = 0;                   \
    if (may_create(flags)) {           \
        va_list rest;                  \
        va_start(rest, flags);         \
        mode = va_arg(rest, mode_t);   \
        va_end(rest);                  \
    }

int open(const char *name, int flags, ...) {
    MODE_OF(flags)
    return opened(AT_FDCWD, name, flags, mode);
}
int open64(const char *name, int flags, ...) {
    MODE_OF(flags)
    return opened(AT_FDCWD, name, flags, mode);
}
int openat(int folder, const char *name, int flags, ...) {
    MODE_OF(flags)
    return opened(folder, name, flags, mode);
}
int openat64(int folder, const char *name, int flags, ...) {
    MODE_OF(flags)
    return opened(folder, name, flags, mode);
}
