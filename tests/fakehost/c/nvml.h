/* What the parts of the stand-in for NVIDIA's management library have in common.
 *
 * Names, structures and return values are those of nvml.h, as nvidia-ml-py's pynvml.py (BSD)
 * spells them out for Python; only what that module calls is here.
 */
#ifndef FAKEHOST_NVML_H
#define FAKEHOST_NVML_H

#include "state.h"

#define EXPORT __attribute__((visibility("default")))

enum {
	OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4,
	NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10,
	FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15, LIB_RM_VERSION_MISMATCH = 18,
	ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999,
};

typedef int ret_t;
typedef unsigned long long u64;
typedef struct handle *device_t;

/* A handle names a GPU by its UUID, since others may come and go while it is in use. */
struct handle {
	char uuid[48];
	int is_mig;
};

ret_t fake_enter(const struct state **state);
ret_t fake_device(device_t handle, const struct state **state, const struct gpu **gpu,
		  const struct mig **mig);
device_t fake_handle(const char *uuid, int is_mig);
unsigned fake_visible(const struct state *state, const struct gpu **list);
int fake_mig_visible(const struct state *state, const struct mig *mig);
ret_t fake_string(char *to, unsigned size, const char *from);

/* The first lines of a function that takes a device; MIG handles stand for their parent. */
#define DEVICE(handle)                                                   \
	const struct state *s;                                           \
	const struct gpu *g;                                             \
	const struct mig *m;                                             \
	ret_t entered = fake_device(handle, &s, &g, &m);                 \
	(void)s; (void)g; (void)m;                                       \
	if (entered)                                                     \
	return entered

/* The same for a function that NVML refuses on a MIG device. */
#define WHOLE_DEVICE(handle)                                             \
	DEVICE(handle);                                                  \
	if (m)                                                           \
	return NOT_SUPPORTED

#endif
