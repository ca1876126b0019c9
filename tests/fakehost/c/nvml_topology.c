/* How GPUs are joined to each other and to processors. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

#define LINK_SWITCH 2

typedef struct {
	char legacy[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char id[32];
} pci_t;

static ret_t link_of(device_t handle, unsigned number, const struct link **link,
		     const struct gpu **gpu)
{
	WHOLE_DEVICE(handle);
	if (!g->link_version)
		return NOT_SUPPORTED;
	if (number >= MAX_LINKS)
		return INVALID_ARGUMENT;
	*gpu = g;
	*link = number < g->nlinks ? &g->links[number] : NULL;
	return OK;
}

EXPORT ret_t nvmlDeviceGetNvLinkState(device_t handle, unsigned number, unsigned *active)
{
	const struct link *link;
	const struct gpu *gpu;
	ret_t ret = link_of(handle, number, &link, &gpu);

	if (ret == OK && !link)
		return INVALID_ARGUMENT;
	if (ret == OK)
		*active = link->type >= 0;
	return ret;
}

EXPORT ret_t nvmlDeviceGetNvLinkVersion(device_t handle, unsigned number, unsigned *version)
{
	const struct link *link;
	const struct gpu *gpu;
	ret_t ret = link_of(handle, number, &link, &gpu);

	if (ret == OK)
		*version = gpu->link_version;
	return ret;
}

EXPORT ret_t nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t handle, unsigned number, pci_t *pci)
{
	const struct link *link;
	const struct gpu *gpu;
	char part[9];
	ret_t ret = link_of(handle, number, &link, &gpu);

	if (ret)
		return ret;
	if (!link || link->type < 0)
		return INVALID_ARGUMENT;
	memset(pci, 0, sizeof *pci);
	snprintf(part, sizeof part, "0x%.4s", link->bus);
	pci->domain = (unsigned)fake_number(part);
	snprintf(part, sizeof part, "0x%.2s", link->bus + 5);
	pci->bus = (unsigned)fake_number(part);
	snprintf(part, sizeof part, "0x%.2s", link->bus + 8);
	pci->device = (unsigned)fake_number(part);
	pci->device_id = link->type == LINK_SWITCH ? 0x1af110de : 0xffffffff;
	snprintf(pci->id, sizeof pci->id, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
	snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xffff,
		 pci->bus & 0xff, pci->device & 0xff);
	return OK;
}

EXPORT ret_t nvmlDeviceGetNvLinkRemoteDeviceType(device_t handle, unsigned number, unsigned *type)
{
	const struct link *link;
	const struct gpu *gpu;
	ret_t ret = link_of(handle, number, &link, &gpu);

	if (ret == OK && (!link || link->type < 0))
		return INVALID_ARGUMENT;
	if (ret == OK)
		*type = (unsigned)link->type;
	return ret;
}

EXPORT ret_t nvmlDeviceGetNvLinkCapability(device_t handle, unsigned number, unsigned capability,
					   unsigned *result)
{
	const struct link *link;
	const struct gpu *gpu;
	ret_t ret = link_of(handle, number, &link, &gpu);

	(void)capability;
	if (ret == OK)
		*result = link && link->type >= 0;
	return ret;
}

EXPORT ret_t nvmlDeviceGetNvLinkErrorCounter(device_t handle, unsigned number, unsigned counter,
					     u64 *value)
{
	const struct link *link;
	const struct gpu *gpu;
	ret_t ret = link_of(handle, number, &link, &gpu);

	(void)counter;
	if (ret == OK)
		*value = 0;
	return ret;
}

/* A pair of handles; the second is looked up in the same reading of the state. */
static ret_t pair(device_t one, device_t two, const struct state **state, const struct gpu **a,
		  const struct gpu **b)
{
	const struct mig *m;
	int first;
	ret_t ret = fake_device(one, state, a, &m);

	if (ret)
		return ret;
	first = (*a)->host_index;
	ret = fake_device(two, state, b, &m);
	*a = &(*state)->gpus[first];
	return ret;
}

static unsigned level(const struct gpu *a, const struct gpu *b)
{
	const char *at = a->topo;

	for (int i = 0; at && i < b->host_index; i++)
		at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
	return at ? (unsigned)fake_number(at) : 50;
}

EXPORT ret_t nvmlDeviceGetTopologyCommonAncestor(device_t one, device_t two, unsigned *to)
{
	const struct state *s;
	const struct gpu *a, *b;
	ret_t ret = pair(one, two, &s, &a, &b);

	if (ret == OK)
		*to = level(a, b);
	return ret;
}

EXPORT ret_t nvmlDeviceGetTopologyNearestGpus(device_t handle, unsigned wanted, unsigned *count,
					      device_t *to)
{
	unsigned n = 0;

	WHOLE_DEVICE(handle);
	for (unsigned i = 0; i < s->count; i++) {
		const struct gpu *other = &s->gpus[i];

		if (other == g || level(g, other) > wanted || !fake_gpu_node(other))
			continue;
		if (to && n < *count)
			to[n] = fake_handle(other->uuid, 0);
		n++;
	}
	*count = n;
	return OK;
}

static int joined(const struct gpu *a, const struct gpu *b)
{
	int switched = 0;

	for (unsigned i = 0; i < a->nlinks; i++) {
		if (!strcmp(a->links[i].bus, b->bus) && a->links[i].type == 0)
			return 1;
		switched |= a->links[i].type == LINK_SWITCH;
	}
	for (unsigned i = 0; switched && i < b->nlinks; i++)
		if (b->links[i].type == LINK_SWITCH)
			return 1;
	return 0;
}

EXPORT ret_t nvmlDeviceGetP2PStatus(device_t one, device_t two, unsigned index, unsigned *status)
{
	const struct state *s;
	const struct gpu *a, *b;
	ret_t ret = pair(one, two, &s, &a, &b);

	if (ret)
		return ret;
	if (a == b || index > 4)
		return INVALID_ARGUMENT;
	if (index == 2) /* NVLink */
		*status = joined(a, b) ? 0 : 5;
	else
		*status = (unsigned)(a->p2p[b->host_index] - '0');
	return OK;
}

EXPORT ret_t nvmlDeviceOnSameBoard(device_t one, device_t two, int *same)
{
	const struct state *s;
	const struct gpu *a, *b;
	ret_t ret = pair(one, two, &s, &a, &b);

	if (ret == OK)
		*same = a == b;
	return ret;
}

static ret_t cpus(device_t handle, unsigned size, unsigned long *set)
{
	DEVICE(handle);
	memset(set, 0, size * sizeof *set);
	for (const char *at = g->cpus; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		unsigned first = (unsigned)fake_number(at), last = first;
		const char *dash = strchr(at, '-'), *comma = strchr(at, ',');

		if (dash && (!comma || dash < comma))
			last = (unsigned)fake_number(dash + 1);
		for (unsigned cpu = first; cpu <= last; cpu++)
			if (cpu / 64 < size)
				set[cpu / 64] |= 1ul << cpu % 64;
	}
	return OK;
}

EXPORT ret_t nvmlDeviceGetCpuAffinityWithinScope(device_t handle, unsigned size,
						 unsigned long *set, unsigned scope)
{
	return scope > 1 ? INVALID_ARGUMENT : cpus(handle, size, set);
}

EXPORT ret_t nvmlDeviceGetCpuAffinity(device_t handle, unsigned size, unsigned long *set)
{
	return cpus(handle, size, set);
}

EXPORT ret_t nvmlDeviceGetMemoryAffinity(device_t handle, unsigned size, unsigned long *set,
					 unsigned scope)
{
	DEVICE(handle);
	if (scope > 1)
		return INVALID_ARGUMENT;
	memset(set, 0, size * sizeof *set);
	if (g->numa >= 0 && (unsigned)g->numa / 64 < size)
		set[g->numa / 64] |= 1ul << g->numa % 64;
	return OK;
}

/* This is the node of GPU memory that the kernel onlined (Grace Hopper), so not on these. */
EXPORT ret_t nvmlDeviceGetNumaNodeId(device_t handle, unsigned *node)
{
	(void)node;
	DEVICE(handle);
	return NOT_SUPPORTED;
}

struct fabric { unsigned char cluster[16]; ret_t status; unsigned clique; unsigned char state; };
struct fabric_v {
	unsigned version;
	unsigned char cluster[16];
	ret_t status;
	unsigned clique;
	unsigned char state;
	unsigned health;
	unsigned char summary;
};

EXPORT ret_t nvmlDeviceGetGpuFabricInfo(device_t handle, struct fabric *to)
{
	DEVICE(handle);
	memset(to, 0, sizeof *to);
	to->state = s->fabric && g->nlinks ? 3 : 0; /* completed, or not supported */
	return OK;
}

EXPORT ret_t nvmlDeviceGetGpuFabricInfoV(device_t handle, struct fabric_v *to)
{
	unsigned version = to->version;

	DEVICE(handle);
	if (version >> 24 < 2 || version >> 24 > 3)
		return ARGUMENT_VERSION_MISMATCH;
	memset(to, 0, offsetof(struct fabric_v, health));
	to->version = version;
	to->state = s->fabric && g->nlinks ? 3 : 0;
	to->health = 0;
	if (version >> 24 == 3)
		to->summary = to->state == 3;
	return OK;
}
