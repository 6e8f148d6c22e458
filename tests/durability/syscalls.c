/* Logs what a process asks of the file system, in order, so that a test can replay it.
 *
 * Owns: one record per call under the folder SYSCALLS_ROOT, appended to the file SYSCALLS_LOG; the
 * end of the process after a chosen call (`kill_behind`), and a stop of all its threads after a
 * chosen call (`stop_behind`).
 * Does not own: the effect of the calls on a disk (disk.py), or calls that bypass libc; a test
 * compares the replayed log with the real disk to notice those.
 *
 * A record is one line of tab-separated fields: thread, call, inode, offset, length, path, and
 * behind it the `length` bytes that were written. A change is logged after it happened. A sync is
 * logged twice, before and after: what was changed before the first is on disk after the second.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fnmatch.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>

#include "preload.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;

/* The process ends after so many records of this call on a path of this pattern. */
static const char *last_call = "", *last_pattern = "";
static long calls_left = 0;
static int last_signal = SIGKILL;

/* Called by the process itself, before it has a second thread; the texts have to stay. */
void kill_behind(const char *call, const char *pattern, long calls) {
    last_call = call;
    last_pattern = pattern;
    calls_left = calls;
}

/* The same with a stop, which lasts until SIGCONT. The process may have other threads then. */
void stop_behind(const char *call, const char *pattern, long calls) {
    pthread_mutex_lock(&lock);
    kill_behind(strdup(call), strdup(pattern), calls);
    last_signal = SIGSTOP;
    pthread_mutex_unlock(&lock);
}

static void end_behind(const char *call, const char *path) {
    size_t above = strlen(root) + 1;
    if (!calls_left || strlen(path) < above || strcmp(call, last_call)) return;
    if (fnmatch(last_pattern, path + above, FNM_PATHNAME) == 0 && --calls_left == 0)
        /* Sent to this thread, which would go on for a moment if another thread got the signal. */
        syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), last_signal);
}

static void record(const char *call, unsigned long inode, long offset, size_t length,
                   const char *path, const void *bytes) {
    int kept = errno;
    char head[PATH_MAX + 200];
    int size = snprintf(head, sizeof head, "%ld\t%s\t%lu\t%ld\t%zu\t%s\n",
                        syscall(SYS_gettid), call, inode, offset, length, path);
    struct iovec parts[2] = {{head, (size_t)size}, {(void *)bytes, length}};
    pthread_mutex_lock(&lock);
    if (syscall(SYS_writev, log_fd, parts, length ? 2 : 1) != (long)(size + length)) abort();
    end_behind(call, path);
    pthread_mutex_unlock(&lock);
    errno = kept;
}

static unsigned long inode_of_fd(int fd) {
    struct stat found;
    return fstat(fd, &found) == 0 ? found.st_ino : 0;
}

static unsigned long inode_of_path(const char *path) {
    struct stat found;
    return fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) == 0 ? found.st_ino : 0;
}

/* --- opening: "create" where the call may make a file, "open" where it only looks for one, and
 * "unnamed" for a file that has no name yet; its path is one that no listing shows --- */

static int opened(int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    int fd = (int)syscall(SYS_openat, folder, name, flags, mode);
    if (!path_at(folder, name, path)) return fd;
    if ((flags & O_TMPFILE) == O_TMPFILE && fd >= 0) {
        path_of_fd(fd, path);
        record("unnamed", inode_of_fd(fd), 0, 0, path, NULL);
    } else if (fd < 0) {
        record("look", 0, 0, 0, path, NULL);
    } else {
        record(may_create(flags) ? "create" : "open", inode_of_fd(fd), 0, 0, path, NULL);
        if (flags & O_TRUNC) record("truncate", inode_of_fd(fd), 0, 0, path, NULL);
    }
    return fd;
}

/* --- contents --- */

static void record_write(int fd, const void *bytes, ssize_t length, off_t offset) {
    char path[PATH_MAX];
    if (length > 0 && path_of_fd(fd, path))
        record("write", inode_of_fd(fd), offset, (size_t)length, path, bytes);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    REAL(write);
    ssize_t done = real(fd, bytes, length);
    /* The offset behind the write also serves files that are opened to append. */
    if (log_fd >= 0 && done > 0) record_write(fd, bytes, done, lseek(fd, 0, SEEK_CUR) - done);
    return done;
}
ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset) {
    REAL(pwrite64);
    ssize_t done = real(fd, bytes, length, offset);
    record_write(fd, bytes, done, offset);
    return done;
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    return pwrite64(fd, bytes, length, offset);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    ssize_t done = real(fd, parts, count), left = done;
    if (log_fd < 0 || done <= 0) return done;
    off_t offset = lseek(fd, 0, SEEK_CUR) - done;
    for (int part = 0; part < count && left > 0; part++) {
        ssize_t length = left < (ssize_t)parts[part].iov_len ? left : (ssize_t)parts[part].iov_len;
        record_write(fd, parts[part].iov_base, length, offset);
        offset += length;
        left -= length;
    }
    return done;
}
int ftruncate64(int fd, off_t length) {
    REAL(ftruncate64);
    char path[PATH_MAX];
    int failed = real(fd, length);
    if (!failed && path_of_fd(fd, path)) record("truncate", inode_of_fd(fd), length, 0, path, NULL);
    return failed;
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

static int sync_logged(int fd, int (*real)(int)) {
    char path[PATH_MAX];
    int ours = path_of_fd(fd, path);
    if (ours) record("sync", inode_of_fd(fd), 0, 0, path, NULL);
    int failed = real(fd);
    if (ours && !failed) record("synced", inode_of_fd(fd), 0, 0, path, NULL);
    return failed;
}
int fsync(int fd) {
    REAL(fsync);
    return sync_logged(fd, real);
}
int fdatasync(int fd) {
    REAL(fdatasync);
    return sync_logged(fd, real);
}

/* --- names: a record of the old name, then one of the new name with the inode --- */

/* Some libraries link and rename without libc, so the kernel is asked to stop every such call here.
 * The last argument, which none of them has, lets our own pass. */
#define OURS 0x1a9ce3e3

static void renamed(int from, const char *old, int to, const char *new) {
    char path[PATH_MAX];
    if (path_at(to, new, path)) record("link", inode_of_path(path), 0, 0, path, NULL);
    if (path_at(from, old, path)) record("unlink", 0, 0, 0, path, NULL);
}

static void linked(int to, const char *new, int failed) {
    char path[PATH_MAX];
    if (path_at(to, new, path)) record(failed ? "look" : "link", inode_of_path(path), 0, 0, path, NULL);
}

/* Machines without the calls that know no folder have the others alone. */
#ifdef SYS_link
#define SYS_LINK SYS_link
#else
#define SYS_LINK SYS_linkat
#endif
#ifdef SYS_rename
#define SYS_RENAME SYS_rename
#else
#define SYS_RENAME SYS_renameat
#endif

static int is_link(int call) { return call == SYS_LINK || call == SYS_linkat; }

/* Whether a call has two paths and nothing else. */
static int is_plain(int call) {
    return (call == SYS_LINK && SYS_LINK != SYS_linkat) ||
           (call == SYS_RENAME && SYS_RENAME != SYS_renameat);
}

static void on_name(int signal, siginfo_t *info, void *context) {
    int kept = errno;
    (void)signal;
#if defined(__x86_64__)
    greg_t *at = ((ucontext_t *)context)->uc_mcontext.gregs;
    long a[5] = {at[REG_RDI], at[REG_RSI], at[REG_RDX], at[REG_R10], at[REG_R8]};
    greg_t *result = &at[REG_RAX];
#elif defined(__aarch64__)
    unsigned long long *at = ((ucontext_t *)context)->uc_mcontext.regs;
    long a[5] = {(long)at[0], (long)at[1], (long)at[2], (long)at[3], (long)at[4]};
    unsigned long long *result = &at[0];
#else
#error "say where this machine keeps the arguments of a system call"
#endif
    long done = syscall(info->si_syscall, a[0], a[1], a[2], a[3], a[4], OURS);
    *result = done < 0 ? -errno : done;
    int plain = is_plain(info->si_syscall);
    int from = plain ? AT_FDCWD : (int)a[0], to = plain ? AT_FDCWD : (int)a[2];
    const char *old = (char *)a[plain ? 0 : 1], *new = (char *)a[plain ? 1 : 3];
    if (is_link(info->si_syscall)) linked(to, new, done < 0);
    else if (done == 0) renamed(from, old, to, new);
    errno = kept;
}

static void stop_names(void) {
    /* Each jump goes to the trap, the last but one rule, or on. */
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OURS, 7, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_LINK, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_linkat, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_RENAME, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    struct sigaction action = {.sa_sigaction = on_name, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGSYS, &action, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("links and renames cannot be logged");
        abort();
    }
}

__attribute__((constructor)) static void start(void) {
    const char *folder = getenv("SYSCALLS_ROOT"), *file = getenv("SYSCALLS_LOG");
    if (!folder || !file) return;
    snprintf(root, sizeof root, "%s", folder);
    log_fd = (int)syscall(SYS_openat, AT_FDCWD, file,
                          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_fd < 0) root[0] = 0;
    stop_names();
}

int unlinkat(int folder, const char *name, int flags) {
    REAL(unlinkat);
    char path[PATH_MAX];
    int failed = real(folder, name, flags);
    if (!failed && path_at(folder, name, path)) record("unlink", 0, 0, 0, path, NULL);
    return failed;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int mkdirat(int folder, const char *name, mode_t mode) {
    REAL(mkdirat);
    char path[PATH_MAX];
    int failed = real(folder, name, mode);
    if (!failed && path_at(folder, name, path)) record("mkdir", inode_of_path(path), 0, 0, path, NULL);
    return failed;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

/* --- looking --- */

int statx(int folder, const char *name, int flags, unsigned mask, struct statx *found) {
    REAL(statx);
    char path[PATH_MAX];
    int failed = real(folder, name, flags, mask, found);
    if (name[0] && path_at(folder, name, path)) record("look", 0, 0, 0, path, NULL);
    return failed;
}
int stat64(const char *name, struct stat64 *found) {
    REAL(stat64);
    char path[PATH_MAX];
    if (path_at(AT_FDCWD, name, path)) record("look", 0, 0, 0, path, NULL);
    return real(name, found);
}
int lstat64(const char *name, struct stat64 *found) {
    REAL(lstat64);
    char path[PATH_MAX];
    if (path_at(AT_FDCWD, name, path)) record("look", 0, 0, 0, path, NULL);
    return real(name, found);
}
