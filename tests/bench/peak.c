/* Runs a program and writes the peak memory of it and of the children it waited for, in KB.
 *
 *     peak FILE PROGRAM [ARGUMENT...]
 *
 * A process inherits the peak of the one whose memory it had before exec, so a large program that
 * measures by itself would see its own size. This one is small.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words)
{
    int status;
    struct rusage used;
    if (count < 3)
        return 120;
    pid_t child = fork();
    if (child == 0) {
        execv(words[2], words + 2);
        _exit(121);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child)
        return 122;
    int file = open(words[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || dprintf(file, "%ld\n", used.ru_maxrss) < 0)
        return 123;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 124;
}
