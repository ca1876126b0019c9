/* What a GPU is: names, numbers, addresses and other things that do not change. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

typedef struct {
	char legacy[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char id[32];
} pci_t;

static ret_t unsigned_of(device_t handle, unsigned *to, size_t offset)
{
	DEVICE(handle);
	if (!to)
		return INVALID_ARGUMENT;
	memcpy(to, (const char *)g + offset, sizeof *to);
	return OK;
}

#define UNSIGNED(function, field)                                                       \
	EXPORT ret_t function(device_t handle, unsigned *to)                            \
	{                                                                               \
		return unsigned_of(handle, to, offsetof(struct gpu, field));            \
	}

UNSIGNED(nvmlDeviceGetMinorNumber, minor)
UNSIGNED(nvmlDeviceGetBrand, brand)
UNSIGNED(nvmlDeviceGetArchitecture, architecture)
UNSIGNED(nvmlDeviceGetComputeMode, compute_mode)
UNSIGNED(nvmlDeviceGetPersistenceMode, persistence)
UNSIGNED(nvmlDeviceGetMaxMigDeviceCount, max_mig)

EXPORT ret_t nvmlDeviceGetName(device_t handle, char *to, unsigned size)
{
	char name[160];

	DEVICE(handle);
	if (!m)
		return fake_string(to, size, g->name);
	snprintf(name, sizeof name, "%s MIG %s", g->name, m->name);
	return fake_string(to, size, name);
}

EXPORT ret_t nvmlDeviceGetUUID(device_t handle, char *to, unsigned size)
{
	DEVICE(handle);
	return fake_string(to, size, m ? m->uuid : g->uuid);
}

EXPORT ret_t nvmlDeviceGetSerial(device_t handle, char *to, unsigned size)
{
	DEVICE(handle);
	return g->ecc ? fake_string(to, size, g->serial) : NOT_SUPPORTED;
}

EXPORT ret_t nvmlDeviceGetBoardPartNumber(device_t handle, char *to, unsigned size)
{
	DEVICE(handle);
	return fake_string(to, size, g->part);
}

EXPORT ret_t nvmlDeviceGetVbiosVersion(device_t handle, char *to, unsigned size)
{
	DEVICE(handle);
	return fake_string(to, size, g->vbios);
}

/* Devices are counted anew by those that the caller can see, as in a container. */
EXPORT ret_t nvmlDeviceGetIndex(device_t handle, unsigned *index)
{
	const struct gpu *list[MAX_GPUS];

	DEVICE(handle);
	for (unsigned i = 0, n = fake_visible(s, list); i < n; i++) {
		unsigned place = 0;

		if (list[i] != g)
			continue;
		*index = i;
		for (unsigned j = 0; m && j < g->nmig; j++) {
			if (&g->migs[j] == m)
				*index = place;
			place += fake_mig_visible(s, &g->migs[j]) != 0;
		}
		return OK;
	}
	return UNKNOWN;
}

static void address(const struct gpu *g, pci_t *pci)
{
	char part[9] = {0};
	const char *b = g->bus; /* dddd:bb:dd.f */

	memset(pci, 0, sizeof *pci);
	snprintf(part, sizeof part, "0x%.4s", b);
	pci->domain = (unsigned)fake_number(part);
	snprintf(part, sizeof part, "0x%.2s", b + 5);
	pci->bus = (unsigned)fake_number(part);
	snprintf(part, sizeof part, "0x%.2s", b + 8);
	pci->device = (unsigned)fake_number(part);
	pci->device_id = g->device_id << 16 | 0x10de;
	pci->subsystem_id = g->subsystem_id << 16 | 0x10de;
	snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xffff,
		 pci->bus & 0xff, pci->device & 0xff);
	snprintf(pci->id, sizeof pci->id, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
}

EXPORT ret_t nvmlDeviceGetPciInfo_v3(device_t handle, pci_t *pci)
{
	DEVICE(handle);
	address(g, pci);
	return OK;
}

struct pci_ext {
	unsigned version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
	char id[32];
};

EXPORT ret_t nvmlDeviceGetPciInfoExt(device_t handle, struct pci_ext *ext)
{
	pci_t pci;

	DEVICE(handle);
	if (ext->version != 0x1000040)
		return ARGUMENT_VERSION_MISMATCH;
	address(g, &pci);
	ext->domain = pci.domain;
	ext->bus = pci.bus;
	ext->device = pci.device;
	ext->device_id = pci.device_id;
	ext->subsystem_id = pci.subsystem_id;
	ext->base_class = g->pci_class >> 16;
	ext->sub_class = g->pci_class >> 8 & 0xff;
	strcpy(ext->id, pci.id);
	return OK;
}

EXPORT ret_t nvmlDeviceGetCudaComputeCapability(device_t handle, int *major, int *minor)
{
	DEVICE(handle);
	*major = (int)g->cc_major;
	*minor = (int)g->cc_minor;
	return OK;
}

EXPORT ret_t nvmlDeviceGetNumGpuCores(device_t handle, unsigned *cores)
{
	DEVICE(handle);
	*cores = g->sms * (g->cc_major == 8 && g->cc_minor == 0 ? 64 : 128);
	return OK;
}

EXPORT ret_t nvmlDeviceGetBoardId(device_t handle, unsigned *id)
{
	pci_t pci;

	DEVICE(handle);
	address(g, &pci);
	*id = pci.bus << 8 | pci.device;
	return OK;
}

EXPORT ret_t nvmlDeviceGetMultiGpuBoard(device_t handle, unsigned *multi)
{
	DEVICE(handle);
	*multi = 0;
	return OK;
}

EXPORT ret_t nvmlDeviceGetDisplayMode(device_t handle, unsigned *mode)
{
	DEVICE(handle);
	*mode = g->fans != 0;
	return OK;
}

EXPORT ret_t nvmlDeviceGetDisplayActive(device_t handle, unsigned *active)
{
	DEVICE(handle);
	*active = 0;
	return OK;
}

EXPORT ret_t nvmlDeviceGetIrqNum(device_t handle, unsigned *irq)
{
	DEVICE(handle);
	*irq = 64 + (unsigned)g->host_index;
	return OK;
}

EXPORT ret_t nvmlDeviceGetGspFirmwareVersion(device_t handle, char *to)
{
	WHOLE_DEVICE(handle);
	strcpy(to, fake_driver);
	return OK;
}

EXPORT ret_t nvmlDeviceGetGspFirmwareMode(device_t handle, unsigned *enabled, unsigned *by_default)
{
	WHOLE_DEVICE(handle);
	*enabled = *by_default = g->architecture >= 7;
	return OK;
}

EXPORT ret_t nvmlDeviceGetEccMode(device_t handle, unsigned *now, unsigned *pending)
{
	DEVICE(handle);
	if (!g->ecc)
		return NOT_SUPPORTED;
	*now = *pending = 1;
	return OK;
}

EXPORT ret_t nvmlDeviceGetMemoryBusWidth(device_t handle, unsigned *width)
{
	DEVICE(handle);
	*width = g->cc_minor == 0 ? 5120 : 384;
	return OK;
}
