/* Multi-instance GPU. GPU instances are found by their id, compute instances are MIG devices. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

struct attributes {
	unsigned sms, copy, decoders, encoders, jpeg, ofa, gi_slices, ci_slices;
	u64 memory_mib;
};

struct gi_profile {
	unsigned id, p2p, slices, instances, sms, copy, decoders, encoders, jpeg, ofa;
	u64 memory_mib;
};

struct gi_profile_v2 {
	unsigned version;
	unsigned id, p2p, slices, instances, sms, copy, decoders, encoders, jpeg, ofa;
	u64 memory_mib;
	char name[96];
};

struct gi_info {
	device_t device;
	unsigned id, profile, start, size;
};

struct ci_info {
	device_t device;
	void *instance;
	unsigned id, profile, start, size;
};

int fake_mig_visible(const struct state *s, const struct mig *m)
{
	return fake_cap_node(s, m->gi_minor) && fake_cap_node(s, m->ci_minor);
}

EXPORT ret_t nvmlDeviceGetMigMode(device_t handle, unsigned *now, unsigned *pending)
{
	WHOLE_DEVICE(handle);
	if (!g->max_mig)
		return NOT_SUPPORTED;
	*now = *pending = (unsigned)g->mig_mode;
	return OK;
}

EXPORT ret_t nvmlDeviceIsMigDeviceHandle(device_t handle, unsigned *is)
{
	DEVICE(handle);
	*is = m != NULL;
	return OK;
}

EXPORT ret_t nvmlDeviceGetGpuInstanceId(device_t handle, unsigned *id)
{
	DEVICE(handle);
	if (!m)
		return g->max_mig ? NOT_FOUND : NOT_SUPPORTED;
	*id = m->gi;
	return OK;
}

EXPORT ret_t nvmlDeviceGetComputeInstanceId(device_t handle, unsigned *id)
{
	DEVICE(handle);
	if (!m)
		return g->max_mig ? NOT_FOUND : NOT_SUPPORTED;
	*id = m->ci;
	return OK;
}

/* Places are counted over those that the caller may use; there are as many as there can be. */
EXPORT ret_t nvmlDeviceGetMigDeviceHandleByIndex(device_t handle, unsigned index, device_t *to)
{
	unsigned place = 0;

	WHOLE_DEVICE(handle);
	if (!g->max_mig)
		return NOT_SUPPORTED;
	for (unsigned i = 0; i < g->nmig; i++)
		if (fake_mig_visible(s, &g->migs[i]) && place++ == index) {
			*to = fake_handle(g->migs[i].uuid, 1);
			return OK;
		}
	return index < g->max_mig ? NOT_FOUND : INVALID_ARGUMENT;
}

EXPORT ret_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device_t handle, device_t *to)
{
	DEVICE(handle);
	if (!m)
		return INVALID_ARGUMENT;
	*to = fake_handle(g->uuid, 0);
	return OK;
}

EXPORT ret_t nvmlDeviceGetAttributes_v2(device_t handle, struct attributes *to)
{
	DEVICE(handle);
	if (!m)
		return g->max_mig ? INVALID_ARGUMENT : NOT_SUPPORTED;
	memset(to, 0, sizeof *to);
	to->sms = m->sms;
	to->copy = m->slices;
	to->decoders = m->slices / 2;
	to->gi_slices = m->slices;
	to->ci_slices = m->ci_slices;
	to->memory_mib = m->mib;
	return OK;
}

/* NVML's number of a profile gives its slices and, of eight, its memory slices. */
static int profile_shape(unsigned number, unsigned *slices, unsigned *memory, unsigned *id)
{
	static const struct { unsigned number, slices, memory, id; } known[] = {
		{0, 1, 1, 19}, {1, 2, 2, 14}, {2, 3, 4, 9}, {3, 4, 4, 5},
		{4, 7, 8, 0}, {7, 1, 1, 20}, {9, 1, 2, 15},
	};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].number == number) {
			*slices = known[i].slices;
			*memory = known[i].memory;
			*id = known[i].id;
			return 1;
		}
	return 0;
}

static ret_t profile(device_t handle, unsigned number, struct gi_profile *to)
{
	unsigned slices, memory, id;

	WHOLE_DEVICE(handle);
	if (!g->max_mig || !profile_shape(number, &slices, &memory, &id))
		return NOT_SUPPORTED;
	memset(to, 0, sizeof *to);
	to->id = id;
	to->slices = slices;
	to->instances = slices == 1 && memory == 2 ? 4 : number == 7 ? 1 : 7 / slices;
	to->sms = g->sms / 7 / 2 * 2 * slices;
	to->copy = slices;
	to->decoders = slices / 2;
	to->memory_mib = (g->total >> 20) * memory / 8;
	return OK;
}

EXPORT ret_t nvmlDeviceGetGpuInstanceProfileInfo(device_t handle, unsigned number,
						 struct gi_profile *to)
{
	return profile(handle, number, to);
}

EXPORT ret_t nvmlDeviceGetGpuInstanceProfileInfoV(device_t handle, unsigned number,
						  struct gi_profile_v2 *to)
{
	struct gi_profile plain;
	ret_t ret = profile(handle, number, &plain);

	if (to->version != (sizeof *to | 2 << 24))
		return ARGUMENT_VERSION_MISMATCH;
	if (ret)
		return ret;
	to->id = plain.id;
	to->p2p = plain.p2p;
	to->slices = plain.slices;
	to->instances = plain.instances;
	to->sms = plain.sms;
	to->copy = plain.copy;
	to->decoders = plain.decoders;
	to->encoders = to->jpeg = to->ofa = 0;
	to->memory_mib = plain.memory_mib;
	snprintf(to->name, sizeof to->name, "MIG %ug.%llugb", plain.slices,
		 (plain.memory_mib + 512) / 1024);
	return OK;
}

/* Handles of instances: a GPU and an id in one word, which is never looked into by callers. */
struct instance {
	device_t device;
	unsigned gi, ci;
	int used;
};
static struct instance instances[MAX_GPUS * MAX_MIG];

static struct instance *instance(device_t device, unsigned gi, unsigned ci)
{
	size_t i, n = sizeof instances / sizeof *instances;

	for (i = 0; i < n - 1 && instances[i].used; i++)
		if (instances[i].device == device && instances[i].gi == gi && instances[i].ci == ci)
			return &instances[i];
	instances[i] = (struct instance){device, gi, ci, 1};
	return &instances[i];
}

#define NO_CI 255u

EXPORT ret_t nvmlDeviceGetGpuInstances(device_t handle, unsigned profile_id,
				       struct instance **to, unsigned *count)
{
	WHOLE_DEVICE(handle);
	*count = 0;
	for (unsigned i = 0; i < g->nmig; i++) {
		const struct mig *d = &g->migs[i];

		if (d->profile_id == profile_id && (!i || d->gi != g->migs[i - 1].gi))
			to[(*count)++] = instance(handle, d->gi, NO_CI);
	}
	return g->mig_mode ? OK : NOT_SUPPORTED;
}

EXPORT ret_t nvmlDeviceGetGpuInstanceById(device_t handle, unsigned id, struct instance **to)
{
	WHOLE_DEVICE(handle);
	for (unsigned i = 0; i < g->nmig; i++)
		if (g->migs[i].gi == id) {
			*to = instance(handle, id, NO_CI);
			return OK;
		}
	return g->mig_mode ? NOT_FOUND : NOT_SUPPORTED;
}

EXPORT ret_t nvmlGpuInstanceGetInfo(struct instance *of, struct gi_info *to)
{
	DEVICE(of->device);
	for (unsigned i = 0; i < g->nmig; i++)
		if (g->migs[i].gi == of->gi) {
			*to = (struct gi_info){of->device, of->gi, g->migs[i].profile_id,
					       of->gi >= 7 ? of->gi - 7 : 0, g->migs[i].slices};
			return OK;
		}
	return NOT_FOUND;
}

EXPORT ret_t nvmlGpuInstanceGetComputeInstanceById(struct instance *of, unsigned id,
						    struct instance **to)
{
	DEVICE(of->device);
	for (unsigned i = 0; i < g->nmig; i++)
		if (g->migs[i].gi == of->gi && g->migs[i].ci == id) {
			*to = instance(of->device, of->gi, id);
			return OK;
		}
	return NOT_FOUND;
}

EXPORT ret_t nvmlGpuInstanceGetComputeInstances(struct instance *of, unsigned profile_id,
						 struct instance **to, unsigned *count)
{
	DEVICE(of->device);
	*count = 0;
	for (unsigned i = 0; i < g->nmig; i++)
		if (g->migs[i].gi == of->gi && g->migs[i].ci_slices == profile_id + 1)
			to[(*count)++] = instance(of->device, of->gi, g->migs[i].ci);
	return OK;
}

EXPORT ret_t nvmlComputeInstanceGetInfo_v2(struct instance *of, struct ci_info *to)
{
	DEVICE(of->device);
	for (unsigned i = 0; i < g->nmig; i++)
		if (g->migs[i].gi == of->gi && g->migs[i].ci == of->ci) {
			*to = (struct ci_info){of->device, instance(of->device, of->gi, NO_CI),
					       of->ci, g->migs[i].ci_slices - 1, 0,
					       g->migs[i].ci_slices};
			return OK;
		}
	return NOT_FOUND;
}
