/* The ways to a handle: by place, UUID, bus id and serial number. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The driver learns a UUID when it first initialises the GPU; from then on /proc shows it. */
static void reveal(const struct gpu *g)
{
	char path[4200], relative[128], data[4096];
	int size;

	if (!g->lazy || !fake_on_host)
		return;
	snprintf(relative, sizeof relative, "var/lib/fakehost/information/%s", g->bus);
	fake_path(path, sizeof path, relative);
	size = fake_read(path, data, sizeof data);
	snprintf(relative, sizeof relative, "proc/driver/nvidia/gpus/%s/information", g->bus);
	fake_path(path, sizeof path, relative);
	if (size > 0)
		fake_write(path, data, (size_t)size);
}

static ret_t give(const struct gpu *g, device_t *handle)
{
	if (g->lost)
		return GPU_IS_LOST;
	if (g->broken)
		return UNKNOWN;
	reveal(g);
	*handle = fake_handle(g->uuid, 0);
	return OK;
}

EXPORT ret_t nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *handle)
{
	const struct state *s;
	const struct gpu *list[MAX_GPUS];
	ret_t ret = fake_enter(&s);

	if (ret)
		return ret;
	if (s->delay_us)
		fake_sleep_us(s->delay_us);
	return index < fake_visible(s, list) ? give(list[index], handle) : INVALID_ARGUMENT;
}

EXPORT ret_t nvmlDeviceGetHandleByIndex(unsigned index, device_t *handle)
{
	return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

EXPORT ret_t nvmlDeviceGetHandleByUUID(const char *uuid, device_t *handle)
{
	const struct state *s;
	const struct gpu *list[MAX_GPUS];
	ret_t ret = fake_enter(&s);

	if (ret)
		return ret;
	for (unsigned i = 0, n = fake_visible(s, list); i < n; i++) {
		if (!strcmp(list[i]->uuid, uuid))
			return give(list[i], handle);
		for (unsigned j = 0; j < list[i]->nmig; j++)
			if (!strcmp(list[i]->migs[j].uuid, uuid) &&
			    fake_mig_visible(s, &list[i]->migs[j])) {
				*handle = fake_handle(uuid, 1);
				return OK;
			}
	}
	return NOT_FOUND;
}

/* Callers write the domain with four or with eight digits, or not at all. */
EXPORT ret_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, device_t *handle)
{
	const struct state *s;
	const struct gpu *list[MAX_GPUS];
	ret_t ret = fake_enter(&s);
	size_t given = strlen(bus);

	if (ret)
		return ret;
	for (unsigned i = 0, n = fake_visible(s, list); i < n; i++) {
		size_t length = strlen(list[i]->bus);
		size_t same = given < length ? given : length;

		if (same >= 7 && !strcasecmp(list[i]->bus + length - same, bus + given - same))
			return give(list[i], handle);
	}
	return NOT_FOUND;
}

EXPORT ret_t nvmlDeviceGetHandleByPciBusId(const char *bus, device_t *handle)
{
	return nvmlDeviceGetHandleByPciBusId_v2(bus, handle);
}

EXPORT ret_t nvmlDeviceGetHandleBySerial(const char *serial, device_t *handle)
{
	const struct state *s;
	const struct gpu *list[MAX_GPUS];
	ret_t ret = fake_enter(&s);

	for (unsigned i = 0, n = ret ? 0 : fake_visible(s, list); i < n; i++)
		if (!strcmp(list[i]->serial, serial))
			return give(list[i], handle);
	return ret ? ret : NOT_FOUND;
}
