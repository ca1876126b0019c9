/* What a container sees, told by a program inside it.
 *
 * It is compiled three ways: against glibc, against musl, and static with
 * -DSTATIC_PROBE (there is no dlopen then).  Several commands may stand in one
 * call, with -- between them, since starting a container is the expensive part:
 *
 *     probe dlopen libcuda.so.1 -- open /dev/nvidia0 /dev/nvidia1 -- env
 *
 * Numbers are read by hand: strtol would tie the program to the newest glibc.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <unistd.h>
#ifndef STATIC_PROBE
#include <dlfcn.h>
#include <link.h>
#endif

extern char **environ;

static const struct { int number; const char *name; } errors[] = {
    {EPERM, "EPERM"}, {ENOENT, "ENOENT"}, {EIO, "EIO"}, {ENXIO, "ENXIO"},
    {EACCES, "EACCES"}, {EBUSY, "EBUSY"}, {EEXIST, "EEXIST"}, {ENODEV, "ENODEV"},
    {ENOTDIR, "ENOTDIR"}, {EISDIR, "EISDIR"}, {EINVAL, "EINVAL"}, {ENOSPC, "ENOSPC"},
    {EROFS, "EROFS"}, {ELOOP, "ELOOP"}, {ETXTBSY, "ETXTBSY"}, {ENOTSUP, "ENOTSUP"},
};

static const char *outcome(int failed)
{
    static char other[32];
    if (!failed)
        return "OK";
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].number == errno)
            return errors[i].name;
    snprintf(other, sizeof other, "errno-%d", errno);
    return other;
}

static unsigned number(const char *text)
{
    unsigned n = 0;
    while (*text >= '0' && *text <= '9')
        n = n * 10 + (unsigned)(*text++ - '0');
    return n;
}

static int do_dlopen(const char *name)
{
#ifdef STATIC_PROBE
    printf("%s error: this probe is static\n", name);
    return 1;
#else
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    struct link_map *map = NULL;
    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
        printf("%s error: %s\n", name, dlerror());
        return 1;
    }
    printf("%s -> %s\n", name, map->l_name);
    return 0;
#endif
}

static int do_open(const char *path)
{
    /* Non-blocking, so that a FIFO or a tty can't hang the test. */
    int fd = open(path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    printf("%s %s\n", path, outcome(fd < 0));
    if (fd >= 0)
        close(fd);
    return 0;
}

static int do_write(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644);
    int failed = fd < 0 || write(fd, "probe\n", 6) != 6;
    printf("%s %s\n", path, outcome(failed));
    if (fd >= 0)
        close(fd);
    return failed;
}

static int do_mknod(const char *path, const char *major, const char *minor)
{
    int failed = mknod(path, S_IFCHR | 0666, makedev(number(major), number(minor))) != 0;
    printf("%s %s\n", path, outcome(failed));
    return failed;
}

static int do_cat(const char *path)
{
    char buffer[65536];
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    fflush(stdout);
    while (fd >= 0 && (n = read(fd, buffer, sizeof buffer)) > 0)
        if (write(1, buffer, (size_t)n) != n)
            break;
    if (fd < 0 || n < 0) {
        printf("%s %s\n", path, outcome(1));
        return 1;
    }
    close(fd);
    return 0;
}

static int do_ls(const char *path)
{
    /* One line each: name, mode in octal with the type, uid, gid, device number, link target. */
    DIR *directory = opendir(path);
    struct dirent *entry;
    if (!directory) {
        printf("%s %s\n", path, outcome(1));
        return 1;
    }
    while ((entry = readdir(directory))) {
        struct stat st;
        char target[4096];
        ssize_t n;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (fstatat(dirfd(directory), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        n = readlinkat(dirfd(directory), entry->d_name, target, sizeof target);
        printf("%s %o %u %u %u:%u %.*s\n", entry->d_name, st.st_mode, st.st_uid, st.st_gid,
               major(st.st_rdev), minor(st.st_rdev), n > 0 ? (int)n : 1, n > 0 ? target : "-");
    }
    closedir(directory);
    return 0;
}

static int do_ids(void)
{
    gid_t groups[1024];
    int n = getgroups(1024, groups);
    printf("uid=%u gid=%u groups=", getuid(), getgid());
    for (int i = 0; i < n; i++)
        printf("%s%u", i ? "," : "", groups[i]);
    printf("\n");
    return n < 0;
}

static int each(int (*function)(const char *), int count, char **names)
{
    int failed = 0;
    for (int i = 0; i < count; i++)
        failed |= function(names[i]);
    return failed;
}

static int command(int count, char **words)
{
    const char *name = words[0];
    if (count > 1 && !strcmp(name, "dlopen"))
        return each(do_dlopen, count - 1, words + 1);
    if (count > 1 && !strcmp(name, "open"))
        return each(do_open, count - 1, words + 1);
    if (count > 1 && !strcmp(name, "write"))
        return each(do_write, count - 1, words + 1);
    if (count > 1 && !strcmp(name, "cat"))
        return each(do_cat, count - 1, words + 1);
    if (count > 1 && !strcmp(name, "ls"))
        return each(do_ls, count - 1, words + 1);
    if (count == 4 && !strcmp(name, "mknod"))
        return do_mknod(words[1], words[2], words[3]);
    if (count == 1 && !strcmp(name, "mounts"))
        return do_cat("/proc/self/mountinfo");
    if (count == 1 && !strcmp(name, "ids"))
        return do_ids();
    if (count == 1 && !strcmp(name, "env")) {
        for (char **e = environ; *e; e++)
            printf("%s\n", *e);
        return 0;
    }
    if (count == 2 && !strcmp(name, "sleep")) {
        unsigned left = number(words[1]);
        fflush(stdout);
        while (left)
            left = sleep(left);
        return 0;
    }
    if (count == 2 && !strcmp(name, "exit"))
        return (int)number(words[1]);
    fprintf(stderr, "probe: %s with %d arguments is not understood\n", name, count - 1);
    return 2;
}

int main(int argc, char **argv)
{
    int status = argc < 2 ? 2 : 0;
    for (int first = 1, i = 1; i <= argc; i++) {
        if (i < argc && strcmp(argv[i], "--") != 0)
            continue;
        if (i > first) {
            int s = command(i - first, argv + first);
            status = s > status ? s : status;
        }
        first = i + 1;
    }
    if (fflush(stdout) != 0)
        status = 3;
    return status;
}
