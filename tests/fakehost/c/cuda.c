/* A stand-in for libcuda.so.1: whether CUDA would start here, and which devices it would have.
 *
 * Names and results are those of cuda.h. CUDA needs the control node, the unified memory node and
 * the node of at least one GPU.
 */
#include "state.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
       UNKNOWN = 999 };

static const struct gpu *devices[MAX_GPUS];
static int count = -1;

static int openable(const char *relative)
{
	char path[4200];

	fake_path(path, sizeof path, relative);
	return fake_openable(path, O_RDWR);
}

EXPORT int cuInit(unsigned flags)
{
	const struct state *s = fake_load();
	int found = 0;

	if (flags)
		return INVALID_VALUE;
	if (!openable("dev/nvidiactl"))
		return NO_DEVICE;
	if (!openable("dev/nvidia-uvm"))
		return UNKNOWN;
	for (unsigned i = 0; i < s->count; i++)
		if (!s->gpus[i].broken && !s->gpus[i].lost && fake_gpu_node(&s->gpus[i]))
			devices[found++] = &s->gpus[i];
	count = found;
	return found ? SUCCESS : NO_DEVICE;
}

EXPORT int cuDriverGetVersion(int *version)
{
	*version = (int)fake_cuda;
	return SUCCESS;
}

EXPORT int cuDeviceGetCount(int *to)
{
	*to = count;
	return count < 0 ? NOT_INITIALIZED : SUCCESS;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return count < 0 ? NOT_INITIALIZED : ordinal < count ? SUCCESS : INVALID_DEVICE;
}

EXPORT int cuDeviceGetName(char *name, int size, int device)
{
	if (device < 0 || device >= count)
		return INVALID_DEVICE;
	fake_copy(name, (size_t)size, devices[device]->name);
	return SUCCESS;
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	if (device < 0 || device >= count)
		return INVALID_DEVICE;
	*bytes = (size_t)devices[device]->total;
	return SUCCESS;
}

EXPORT int cuDeviceGetPCIBusId(char *id, int size, int device)
{
	if (device < 0 || device >= count)
		return INVALID_DEVICE;
	fake_copy(id, (size_t)size, devices[device]->bus);
	return SUCCESS;
}

EXPORT int cuGetErrorName(int error, const char **name)
{
	*name = error == SUCCESS ? "CUDA_SUCCESS" : error == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE"
						  : "CUDA_ERROR_UNKNOWN";
	return SUCCESS;
}
