/* A createContainer hook that gives a container the /proc/driver/nvidia of a machine with the driver.
 *
 *     procdriver ROOTFS
 *
 * /proc in a container is the kernel's own, so on a machine without the driver there is nothing on
 * which gpushim's params hook could mount. It runs on both sides of a comparison.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words)
{
    static const char text[] = "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\n"
                               "DeviceFileMode: 438\n";
    if (count != 2 || chdir(words[1]) || chdir("proc/driver"))
        return 2;
    if (mount("tmpfs", ".", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k,mode=755"))
        return 3;
    /* The working directory is still what lies under the new mount. */
    if (chdir("../driver") || mkdir("nvidia", 0755))
        return 4;
    int file = open("nvidia/params", O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
    if (file < 0 || write(file, text, sizeof text - 1) != (ssize_t)(sizeof text - 1))
        return 5;
    return 0;
}
