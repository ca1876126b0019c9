/* Stands in for the low-level runtime: writes what it was given beside itself, as <itself>.<name>,
 * and exits with the status in the file <itself>.exit, if there is one. It alters nothing itself,
 * as a script or an interpreter would. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char self[4096];

static FILE *file(const char *name, const char *mode)
{
    char path[4200];
    snprintf(path, sizeof path, "%s.%s", self, name);
    return fopen(path, mode);
}

static void copy(const char *from, const char *name)
{
    char block[65536];
    size_t size;
    FILE *in = fopen(from, "r"), *out = file(name, "w");
    while (in && out && (size = fread(block, 1, sizeof block, in)) > 0)
        fwrite(block, 1, size, out);
    if (in)
        fclose(in);
    if (out)
        fclose(out);
}

int main(void)
{
    char descriptors[65536] = "", text[4096];
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
    DIR *directory = opendir("/proc/self/fd");
    if (size < 0 || !directory)
        return 99;
    self[size] = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(directory)) {
            strcat(descriptors, entry->d_name);
            strcat(descriptors, " ");
        }
    closedir(directory);

    copy("/proc/self/cmdline", "cmdline");
    copy("/proc/self/environ", "environ");
    copy("/proc/self/status", "status");
    copy("/proc/self/limits", "limits");
    FILE *out = file("facts", "w");
    mode_t mask = umask(0);
    fprintf(out, "pid %d\nppid %d\numask %o\nnice %d\nfds %s\n", getpid(), getppid(), mask,
            getpriority(PRIO_PROCESS, 0), descriptors);
    fclose(out);
    out = file("cwd", "w");
    fputs(getcwd(text, sizeof text) ? text : "", out);
    fclose(out);

    int status = 0;
    FILE *in = file("exit", "r");
    if (in && fscanf(in, "%d", &status) != 1)
        status = 98;
    return status;
}
