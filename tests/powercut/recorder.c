/* Records what a process does to the files of one directory, in order, as a library to preload.
 *
 * Every call that changes data or names below $RECORDER_DIRECTORY is appended to $RECORDER_TRACE
 * in the order in which it took effect; a sync is recorded when it begins and when it ends, since
 * only what was written before it began is promised. The process adds marks of its own by
 * `recorder_mark`. Syncs take up to a millisecond and reach no disk; `recorder_fail_syncs` makes
 * the next syncs of write-ahead logs fail.
 *
 * One record: kind u8 | file u32 | offset u64 | length u32 | bytes, little-endian.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind {
    OPENED = 'o', WRITTEN = 'w', TRUNCATED = 't', SYNC_BEGUN = 's', SYNC_ENDED = 'S', SYNC_FAILED = 'F',
    RENAMED = 'r', LINKED = 'l', UNLINKED = 'u', MADE_DIRECTORY = 'd', CLOSED = 'c', MARK = 'm',
};

#define FILES_MAX 65536
#define TRACE_BUFFER_BYTES (1 << 20)

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static char directory[PATH_MAX];
static size_t directory_length;
static int trace = -1;
static char buffer[TRACE_BUFFER_BYTES];
static size_t buffered;
/* Of each descriptor: the number given to its opening, 0 when it is not of the directory. */
static uint32_t files[FILES_MAX];
static char is_log[FILES_MAX];
static uint32_t last_file;
static uint64_t last_sync;
static int failing_syncs;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void flush_trace(void)
{
    size_t at = 0;
    while (at < buffered) {
        long n = syscall(SYS_write, trace, buffer + at, buffered - at);
        if (n <= 0)
            abort();
        at += (size_t)n;
    }
    buffered = 0;
}

static void put(const void *bytes, size_t length)
{
    const char *from = bytes;
    while (length > 0) {
        size_t room = TRACE_BUFFER_BYTES - buffered;
        size_t n = length < room ? length : room;
        memcpy(buffer + buffered, from, n);
        buffered += n;
        from += n;
        length -= n;
        if (buffered == TRACE_BUFFER_BYTES)
            flush_trace();
    }
}

static void head(enum kind kind, uint32_t file, uint64_t offset, size_t length)
{
    uint8_t tag = (uint8_t)kind;
    uint32_t length32 = (uint32_t)length;
    put(&tag, sizeof tag);
    put(&file, sizeof file);
    put(&offset, sizeof offset);
    put(&length32, sizeof length32);
}

static void record(enum kind kind, uint32_t file, uint64_t offset, const void *bytes, size_t length)
{
    head(kind, file, offset, length);
    put(bytes, length);
}

__attribute__((constructor)) static void start(void)
{
    const char *below = getenv("RECORDER_DIRECTORY"), *path = getenv("RECORDER_TRACE");
    if (below == NULL || path == NULL)
        return;
    snprintf(directory, sizeof directory, "%s", below);
    directory_length = strlen(directory);
    trace = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
}

__attribute__((destructor)) static void stop(void)
{
    pthread_mutex_lock(&order);
    if (trace >= 0)
        flush_trace();
    pthread_mutex_unlock(&order);
}

static int watched(const char *path)
{
    return trace >= 0 && strncmp(path, directory, directory_length) == 0;
}

static uint32_t file_of(int fd)
{
    return trace >= 0 && fd >= 0 && fd < FILES_MAX ? files[fd] : 0;
}

void recorder_mark(const void *bytes, size_t length)
{
    pthread_mutex_lock(&order);
    record(MARK, 0, 0, bytes, length);
    pthread_mutex_unlock(&order);
}

void recorder_fail_syncs(int count)
{
    pthread_mutex_lock(&order);
    failing_syncs = count;
    pthread_mutex_unlock(&order);
}

static int opened(int fd, const char *path, int flags)
{
    size_t length = strlen(path);
    if (fd < 0 || fd >= FILES_MAX)
        return fd;
    files[fd] = ++last_file;
    is_log[fd] = length > 4 && strcmp(path + length - 4, ".log") == 0;
    record(OPENED, files[fd], (uint64_t)flags, path, length);
    return fd;
}

static int open_any(const char *name, const char *path, int flags, mode_t mode)
{
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, name);
    if (!watched(path))
        return real(path, flags, mode);
    pthread_mutex_lock(&order);
    int fd = opened(real(path, flags, mode), path, flags);
    pthread_mutex_unlock(&order);
    return fd;
}

#define MODE_OF(flags, mode)                                                                       \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                         \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode = va_arg(arguments, mode_t);                                                          \
        va_end(arguments);                                                                         \
    }

int open(const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    return open_any("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    return open_any("open64", path, flags, mode);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    if (file_of(fd) == 0)
        return REAL(write)(fd, bytes, count);
    pthread_mutex_lock(&order);
    ssize_t n = REAL(write)(fd, bytes, count);
    if (n > 0)
        record(WRITTEN, files[fd], (uint64_t)(lseek(fd, 0, SEEK_CUR) - n), bytes, (size_t)n);
    pthread_mutex_unlock(&order);
    return n;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    if (file_of(fd) == 0)
        return REAL(pwrite)(fd, bytes, count, offset);
    pthread_mutex_lock(&order);
    ssize_t n = REAL(pwrite)(fd, bytes, count, offset);
    if (n > 0)
        record(WRITTEN, files[fd], (uint64_t)offset, bytes, (size_t)n);
    pthread_mutex_unlock(&order);
    return n;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    return pwrite(fd, bytes, count, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    if (file_of(fd) == 0)
        return REAL(writev)(fd, parts, count);
    ssize_t total = 0;
    for (int i = 0; i < count; i++) {
        ssize_t n = write(fd, parts[i].iov_base, parts[i].iov_len);
        if (n < 0)
            return total > 0 ? total : n;
        total += n;
        if ((size_t)n < parts[i].iov_len)
            break;
    }
    return total;
}

int ftruncate(int fd, off_t length)
{
    if (file_of(fd) == 0)
        return REAL(ftruncate)(fd, length);
    pthread_mutex_lock(&order);
    int result = REAL(ftruncate)(fd, length);
    if (result == 0)
        record(TRUNCATED, files[fd], (uint64_t)length, "", 0);
    pthread_mutex_unlock(&order);
    return result;
}

int ftruncate64(int fd, off64_t length)
{
    return ftruncate(fd, length);
}

static int synced(int fd)
{
    pthread_mutex_lock(&order);
    uint32_t file = files[fd];
    int fails = is_log[fd] && failing_syncs > 0;
    if (fails)
        failing_syncs--;
    uint64_t sync = ++last_sync;
    record(SYNC_BEGUN, file, sync, "", 0);
    pthread_mutex_unlock(&order);
    usleep((useconds_t)(random() % 1000));
    pthread_mutex_lock(&order);
    record(fails ? SYNC_FAILED : SYNC_ENDED, file, sync, "", 0);
    pthread_mutex_unlock(&order);
    errno = EIO;
    return fails ? -1 : 0;
}

int fsync(int fd)
{
    return file_of(fd) == 0 ? REAL(fsync)(fd) : synced(fd);
}

int fdatasync(int fd)
{
    return file_of(fd) == 0 ? REAL(fdatasync)(fd) : synced(fd);
}

int close(int fd)
{
    if (file_of(fd) == 0)
        return REAL(close)(fd);
    pthread_mutex_lock(&order);
    record(CLOSED, files[fd], 0, "", 0);
    files[fd] = 0;
    int result = REAL(close)(fd);
    pthread_mutex_unlock(&order);
    return result;
}

static void record_pair(enum kind kind, const char *from, const char *to)
{
    size_t length = strlen(from);
    head(kind, 0, length, length + strlen(to));
    put(from, length);
    put(to, strlen(to));
}

int rename(const char *from, const char *to)
{
    if (!watched(to))
        return REAL(rename)(from, to);
    pthread_mutex_lock(&order);
    int result = REAL(rename)(from, to);
    if (result == 0)
        record_pair(RENAMED, from, to);
    pthread_mutex_unlock(&order);
    return result;
}

int link(const char *from, const char *to)
{
    if (!watched(to))
        return REAL(link)(from, to);
    pthread_mutex_lock(&order);
    int result = REAL(link)(from, to);
    if (result == 0)
        record_pair(LINKED, from, to);
    pthread_mutex_unlock(&order);
    return result;
}

int unlink(const char *path)
{
    if (!watched(path))
        return REAL(unlink)(path);
    pthread_mutex_lock(&order);
    int result = REAL(unlink)(path);
    if (result == 0)
        record(UNLINKED, 0, 0, path, strlen(path));
    pthread_mutex_unlock(&order);
    return result;
}

int mkdir(const char *path, mode_t mode)
{
    if (!watched(path))
        return REAL(mkdir)(path, mode);
    pthread_mutex_lock(&order);
    int result = REAL(mkdir)(path, mode);
    if (result == 0)
        record(MADE_DIRECTORY, 0, 0, path, strlen(path));
    pthread_mutex_unlock(&order);
    return result;
}
