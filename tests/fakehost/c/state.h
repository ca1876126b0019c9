/* The state of a fake host as its libraries see it.
 *
 * The text comes from <root>/var/lib/fakehost/state, or, where the library was mounted alone into
 * a container, from the defaults that were written into the library file itself. Both have the
 * form that tests/fakehost/state.py writes: one "key value" a line.
 *
 * Only symbols that glibc 2.31 has under the same version are used (no stat, no strtol, no
 * pthread, no dladdr), so that the files run in older containers too.
 */
#ifndef FAKEHOST_STATE_H
#define FAKEHOST_STATE_H

#include <stddef.h>

#define MAX_GPUS 32
#define MAX_LINKS 24
#define MAX_PROCS 64
#define MAX_MIG 56
#define BLOB_SIZE 65536
#define BLOB_MAGIC "FAKEHOST-STATE-1\n"

struct process {
	unsigned pid;
	unsigned long long used;
	char kind; /* c: compute, g: graphics, m: MPS client */
	unsigned gi, ci;
};

struct link {
	int type; /* NVML_NVLINK_DEVICE_TYPE_*, -1: down */
	char bus[20];
};

struct mig {
	unsigned gi, ci, gi_minor, ci_minor, profile_id, number, slices, ci_slices, sms, mib;
	unsigned long long used;
	char uuid[48], name[32];
};

struct gpu {
	int host_index, minor, numa, broken, lost, lazy, mig_mode;
	char bus[20], uuid[48], name[96], vbios[24], serial[24], part[32], cpus[256], topo[160];
	char p2p[MAX_GPUS + 1];
	unsigned device_id, subsystem_id, pci_class;
	unsigned cc_major, cc_minor, brand, architecture, sms, max_mig;
	unsigned link_version, ecc, fans, bar1_mib;
	unsigned sm_clock, mem_clock, power_limit, power, temperature, gpu_util, mem_util;
	unsigned long long total, used, reserved, energy;
	unsigned persistence, compute_mode, nprocs, nlinks, nmig;
	struct process procs[MAX_PROCS];
	struct link links[MAX_LINKS];
	struct mig migs[MAX_MIG];
};

struct state {
	char driver[32]; /* of the kernel module */
	unsigned cuda, caps_major, delay_us, hang, fabric, count;
	struct gpu gpus[MAX_GPUS];
};

extern char fake_root[4096];     /* "" inside a container */
extern int fake_on_host;         /* whether there is a state file */
extern char fake_driver[32];     /* the version that this library file is of */
extern unsigned fake_cuda;       /* and the CUDA version that came with it */

const struct state *fake_load(void);
void fake_parse(char *data, struct state *s);
void fake_copy(char *to, size_t size, const char *from);
int fake_openable(const char *path, int how);
int fake_gpu_node(const struct gpu *gpu);
int fake_cap_node(const struct state *state, unsigned minor);
int fake_read(const char *path, char *buffer, size_t size);
int fake_write(const char *path, const char *text, size_t size);
int fake_path(char *out, size_t size, const char *relative);
unsigned long long fake_number(const char *text);
void fake_sleep_us(unsigned long microseconds);

#endif
