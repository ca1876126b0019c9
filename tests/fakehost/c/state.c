#define _GNU_SOURCE /* for dl_iterate_phdr alone */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The builder finds the mark in the file and puts the host's description behind it. */
__attribute__((section(".fakehost"), used)) volatile char fake_blob[BLOB_SIZE] = BLOB_MAGIC;

char fake_root[4096];
int fake_on_host;
char fake_driver[32];
unsigned fake_cuda;

/* One for each thread, since a call of another thread reads the file anew. */
static __thread char text[BLOB_SIZE];
static __thread struct state state;

void fake_sleep_us(unsigned long microseconds)
{
	struct timespec t = {(time_t)(microseconds / 1000000), (long)(microseconds % 1000000) * 1000};

	nanosleep(&t, NULL);
}

int fake_read(const char *path, char *buffer, size_t size)
{
	size_t have = 0;
	ssize_t got;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	while (have < size - 1 && (got = read(fd, buffer + have, size - 1 - have)) > 0)
		have += (size_t)got;
	close(fd);
	buffer[have] = 0;
	return (int)have;
}

/* Replaces a file whole, so that no reader sees a half of it. */
int fake_write(const char *path, const char *data, size_t size)
{
	char temporary[4200];
	int fd;

	snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return -1;
	if (write(fd, data, size) != (ssize_t)size || rename(temporary, path)) {
		close(fd);
		unlink(temporary);
		return -1;
	}
	return close(fd);
}

int fake_path(char *out, size_t size, const char *relative)
{
	return snprintf(out, size, "%s/%s", fake_root, relative) < (int)size;
}

/* Whether a driver would answer: here there is none, so a permitted open gives ENXIO. */
int fake_openable(const char *path, int how)
{
	int fd = open(path, how | O_CLOEXEC);

	if (fd >= 0) {
		close(fd);
		return 1;
	}
	return errno != ENOENT && errno != ENOTDIR && errno != EPERM && errno != EACCES;
}

/* NVIDIA's libraries make a missing node themselves unless the module forbids it. */
static int modification_allowed(void)
{
	char path[4200], params[4096];

	fake_path(path, sizeof path, "proc/driver/nvidia/params");
	return fake_read(path, params, sizeof params) > 0 && strstr(params, "ModifyDeviceFiles: 1");
}

static int node(const char *relative, unsigned major, unsigned minor, int how)
{
	char path[4200];

	if (!fake_path(path, sizeof path, relative))
		return 0;
	if (access(path, F_OK) && errno == ENOENT && modification_allowed()) {
		syscall(SYS_mknodat, AT_FDCWD, path, 020666,
			(minor & 0xff) | (major << 8) | ((minor & ~0xffu) << 12));
		syscall(SYS_fchmodat, AT_FDCWD, path, 0666);
	}
	return fake_openable(path, how);
}

int fake_gpu_node(const struct gpu *gpu)
{
	char relative[64];

	snprintf(relative, sizeof relative, "dev/nvidia%d", gpu->minor);
	return node(relative, 195, (unsigned)gpu->minor, O_RDWR);
}

int fake_cap_node(const struct state *s, unsigned minor)
{
	char relative[64];

	snprintf(relative, sizeof relative, "dev/nvidia-caps/nvidia-cap%u", minor);
	return node(relative, s->caps_major, minor, O_RDONLY);
}

static int find_self(struct dl_phdr_info *info, size_t size, void *out)
{
	ElfW(Addr) here = (ElfW(Addr))(void *)find_self;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		ElfW(Addr) start = info->dlpi_addr + part->p_vaddr;

		if (part->p_type == PT_LOAD && here >= start && here < start + part->p_memsz) {
			*(const char **)out = info->dlpi_name;
			return 1;
		}
	}
	return 0;
}

/* The root is the nearest directory above the library that has a state file. */
static void find_root(void)
{
	const char *self = NULL;
	char path[4096], probe[4200], *slash;

	dl_iterate_phdr(find_self, &self);
	if (!self || !*self)
		self = "/proc/self/exe";
	if (!realpath(self, path))
		return;
	while ((slash = strrchr(path, '/'))) {
		*slash = 0;
		snprintf(probe, sizeof probe, "%s/var/lib/fakehost/state", path);
		if (!access(probe, R_OK)) {
			snprintf(fake_root, sizeof fake_root, "%s", path);
			fake_on_host = 1;
			return;
		}
	}
}

static void parse_blob(void)
{
	size_t skip = sizeof BLOB_MAGIC - 1;

	for (size_t i = skip; i < BLOB_SIZE; i++)
		text[i - skip] = fake_blob[i];
	text[BLOB_SIZE - 1] = 0;
	fake_parse(text, &state);
}

__attribute__((constructor)) static void start(void)
{
	find_root();
	parse_blob();
	fake_copy(fake_driver, sizeof fake_driver, state.driver);
	fake_cuda = state.cuda;
}

/* On the host the file is read at each call: it may be altered at any time. */
const struct state *fake_load(void)
{
	char path[4200];

	fake_path(path, sizeof path, "var/lib/fakehost/state");
	if (fake_on_host && fake_read(path, text, sizeof text) > 0)
		fake_parse(text, &state);
	return &state;
}
