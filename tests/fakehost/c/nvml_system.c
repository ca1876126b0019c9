/* Start and end, versions, counting, and what a handle stands for. */
#include "nvml.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static struct handle handles[MAX_GPUS * MAX_MIG];
static int initialised;
static char busy;

static void lock(void)
{
	while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE))
		fake_sleep_us(50);
}

static void unlock(void)
{
	__atomic_clear(&busy, __ATOMIC_RELEASE);
}

static const struct state *current(void)
{
	const struct state *s;

	while ((s = fake_load())->hang)
		fake_sleep_us(10000);
	return s;
}

ret_t fake_enter(const struct state **state)
{
	if (!initialised)
		return UNINITIALIZED;
	*state = current();
	return OK;
}

ret_t fake_string(char *to, unsigned size, const char *from)
{
	if (!to)
		return INVALID_ARGUMENT;
	if (strlen(from) >= size)
		return INSUFFICIENT_SIZE;
	strcpy(to, from);
	return OK;
}

device_t fake_handle(const char *uuid, int is_mig)
{
	size_t i, n = sizeof handles / sizeof *handles;

	lock();
	for (i = 0; i < n - 1; i++) {
		if (!*handles[i].uuid) {
			snprintf(handles[i].uuid, sizeof handles[i].uuid, "%s", uuid);
			handles[i].is_mig = is_mig;
		}
		if (!strcmp(handles[i].uuid, uuid))
			break;
	}
	unlock();
	return &handles[i];
}

ret_t fake_device(device_t handle, const struct state **state, const struct gpu **gpu,
		  const struct mig **mig)
{
	ret_t ret = fake_enter(state);

	if (ret)
		return ret;
	*gpu = NULL;
	*mig = NULL;
	if (handle < handles || handle >= handles + sizeof handles / sizeof *handles)
		return INVALID_ARGUMENT;
	if ((*state)->delay_us)
		fake_sleep_us((*state)->delay_us);
	for (unsigned i = 0; i < (*state)->count; i++) {
		const struct gpu *g = &(*state)->gpus[i];

		if (!handle->is_mig && !strcmp(g->uuid, handle->uuid))
			*gpu = g;
		for (unsigned j = 0; handle->is_mig && j < g->nmig; j++)
			if (!strcmp(g->migs[j].uuid, handle->uuid)) {
				*gpu = g;
				*mig = &g->migs[j];
			}
	}
	if (!*gpu)
		return handle->is_mig ? NOT_FOUND : GPU_IS_LOST;
	return (*gpu)->lost ? GPU_IS_LOST : OK;
}

unsigned fake_visible(const struct state *s, const struct gpu **list)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->count; i++)
		if (fake_gpu_node(&s->gpus[i]))
			list[n++] = &s->gpus[i];
	return n;
}

/* The kernel module's own version, from the file that it makes under /proc. */
static ret_t check_module(void)
{
	char path[4200], version[512], wanted[40];

	fake_path(path, sizeof path, "proc/driver/nvidia/version");
	if (fake_read(path, version, sizeof version) <= 0)
		return fake_on_host ? DRIVER_NOT_LOADED : OK;
	snprintf(wanted, sizeof wanted, " %s ", fake_driver);
	return strstr(version, wanted) ? OK : LIB_RM_VERSION_MISMATCH;
}

EXPORT ret_t nvmlInitWithFlags(unsigned flags)
{
	char path[4200];
	ret_t ret;

	(void)flags;
	current();
	fake_path(path, sizeof path, "dev/nvidiactl");
	if (!fake_openable(path, O_RDWR))
		return DRIVER_NOT_LOADED;
	ret = check_module();
	if (ret == OK)
		__atomic_add_fetch(&initialised, 1, __ATOMIC_SEQ_CST);
	return ret;
}

EXPORT ret_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

EXPORT ret_t nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

EXPORT ret_t nvmlShutdown(void)
{
	if (!initialised)
		return UNINITIALIZED;
	__atomic_sub_fetch(&initialised, 1, __ATOMIC_SEQ_CST);
	return OK;
}

EXPORT const char *nvmlErrorString(ret_t result)
{
	static const struct { ret_t code; const char *text; } known[] = {
		{OK, "The operation was successful"}, {UNINITIALIZED, "Uninitialized"},
		{INVALID_ARGUMENT, "Invalid Argument"}, {NOT_SUPPORTED, "Not Supported"},
		{NO_PERMISSION, "Insufficient Permissions"}, {NOT_FOUND, "Not Found"},
		{INSUFFICIENT_SIZE, "Insufficient Size"}, {DRIVER_NOT_LOADED, "Driver Not Loaded"},
		{TIMEOUT, "Timeout"}, {12, "NVIDIA Shared Library Not Found"},
		{FUNCTION_NOT_FOUND, "Function Not Found"}, {GPU_IS_LOST, "GPU is lost"},
		{LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
		{ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"}, {UNKNOWN, "Unknown Error"},
	};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].code == result)
			return known[i].text;
	return "Unknown Error";
}

EXPORT ret_t nvmlSystemGetDriverVersion(char *to, unsigned size)
{
	return initialised ? fake_string(to, size, fake_driver) : UNINITIALIZED;
}

EXPORT ret_t nvmlSystemGetNVMLVersion(char *to, unsigned size)
{
	char version[64];

	snprintf(version, sizeof version, "%u.%s", fake_cuda / 1000, fake_driver);
	return fake_string(to, size, version);
}

EXPORT ret_t nvmlSystemGetCudaDriverVersion(int *version)
{
	*version = (int)fake_cuda;
	return OK;
}

EXPORT ret_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	return nvmlSystemGetCudaDriverVersion(version);
}

EXPORT ret_t nvmlDeviceGetCount_v2(unsigned *count)
{
	const struct state *s;
	const struct gpu *list[MAX_GPUS];
	ret_t ret = fake_enter(&s);

	if (ret == OK)
		*count = fake_visible(s, list);
	return ret;
}

EXPORT ret_t nvmlDeviceGetCount(unsigned *count)
{
	return nvmlDeviceGetCount_v2(count);
}
