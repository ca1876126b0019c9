/* What a GPU is doing: memory, processes, load, heat and power. */
#include "nvml.h"

#include <string.h>
#include <time.h>

#define UNCORRECTED 1

static u64 microseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (u64)t.tv_sec * 1000000 + (u64)t.tv_nsec / 1000;
}

struct memory { u64 total, free, used; };
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };

static void memory_of(const struct gpu *g, const struct mig *m, struct memory_v2 *to)
{
	to->total = m ? (u64)m->mib << 20 : g->total;
	to->reserved = m ? 0 : g->reserved;
	to->used = m ? m->used : g->used;
	if (to->used + to->reserved > to->total)
		to->used = to->total - to->reserved;
	to->free = to->total - to->reserved - to->used;
}

/* The older call counts as used what the driver keeps for itself; so does NVIDIA's since 510. */
EXPORT ret_t nvmlDeviceGetMemoryInfo(device_t handle, struct memory *to)
{
	struct memory_v2 all;

	DEVICE(handle);
	memory_of(g, m, &all);
	to->total = all.total;
	to->free = all.free;
	to->used = all.used + all.reserved;
	return OK;
}

EXPORT ret_t nvmlDeviceGetMemoryInfo_v2(device_t handle, struct memory_v2 *to)
{
	DEVICE(handle);
	if (to->version != (sizeof *to | 2 << 24))
		return ARGUMENT_VERSION_MISMATCH;
	memory_of(g, m, to);
	return OK;
}

EXPORT ret_t nvmlDeviceGetBAR1MemoryInfo(device_t handle, struct memory *to)
{
	DEVICE(handle);
	to->total = (u64)g->bar1_mib << 20;
	to->used = 1 << 20;
	to->free = to->total - to->used;
	return OK;
}

struct process_info { unsigned pid; u64 used; unsigned gi, ci; };

static ret_t processes(device_t handle, unsigned *count, struct process_info *to, char kind)
{
	unsigned n = 0;

	DEVICE(handle);
	if (!count)
		return INVALID_ARGUMENT;
	for (unsigned i = 0; i < g->nprocs; i++) {
		const struct process *p = &g->procs[i];

		if (p->kind != kind || (m && (p->gi != m->gi || p->ci != m->ci)))
			continue;
		if (to && n < *count)
			to[n] = (struct process_info){p->pid, p->used, p->gi, p->ci};
		n++;
	}
	entered = n > *count || (n && !to) ? INSUFFICIENT_SIZE : OK;
	*count = n;
	return entered;
}

EXPORT ret_t nvmlDeviceGetComputeRunningProcesses_v3(device_t h, unsigned *n, struct process_info *p)
{
	return processes(h, n, p, 'c');
}

EXPORT ret_t nvmlDeviceGetGraphicsRunningProcesses_v3(device_t h, unsigned *n, struct process_info *p)
{
	return processes(h, n, p, 'g');
}

EXPORT ret_t nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t h, unsigned *n,
							 struct process_info *p)
{
	return processes(h, n, p, 'm');
}

EXPORT ret_t nvmlDeviceGetComputeRunningProcesses_v2(device_t h, unsigned *n, struct process_info *p)
{
	return processes(h, n, p, 'c');
}

EXPORT ret_t nvmlDeviceGetGraphicsRunningProcesses_v2(device_t h, unsigned *n, struct process_info *p)
{
	return processes(h, n, p, 'g');
}

EXPORT ret_t nvmlDeviceGetMPSComputeRunningProcesses_v2(device_t h, unsigned *n,
							 struct process_info *p)
{
	return processes(h, n, p, 'm');
}

struct utilization_sample { unsigned pid; u64 time; unsigned sm, mem, enc, dec; };

/* The GPU's load is shared out evenly; processes count only while there is any load. */
EXPORT ret_t nvmlDeviceGetProcessUtilization(device_t handle, struct utilization_sample *to,
					     unsigned *count, u64 since)
{
	u64 now = microseconds();

	(void)since;
	WHOLE_DEVICE(handle);
	if (!g->nprocs || !g->gpu_util)
		return NOT_FOUND;
	if (!to || *count < g->nprocs) {
		*count = g->nprocs;
		return INSUFFICIENT_SIZE;
	}
	for (unsigned i = 0; i < g->nprocs; i++)
		to[i] = (struct utilization_sample){g->procs[i].pid, now, g->gpu_util / g->nprocs,
						    g->mem_util / g->nprocs, 0, 0};
	*count = g->nprocs;
	return OK;
}

struct rates { unsigned gpu, memory; };

EXPORT ret_t nvmlDeviceGetUtilizationRates(device_t handle, struct rates *to)
{
	WHOLE_DEVICE(handle);
	if (g->mig_mode)
		return NOT_SUPPORTED;
	to->gpu = g->gpu_util;
	to->memory = g->mem_util;
	return OK;
}

static ret_t engine(device_t handle, unsigned *load, unsigned *period)
{
	WHOLE_DEVICE(handle);
	*load = 0;
	*period = 167000;
	return OK;
}

EXPORT ret_t nvmlDeviceGetEncoderUtilization(device_t handle, unsigned *load, unsigned *period)
{
	return engine(handle, load, period);
}

EXPORT ret_t nvmlDeviceGetDecoderUtilization(device_t handle, unsigned *load, unsigned *period)
{
	return engine(handle, load, period);
}

EXPORT ret_t nvmlDeviceGetTemperature(device_t handle, unsigned sensor, unsigned *to)
{
	DEVICE(handle);
	if (sensor)
		return INVALID_ARGUMENT;
	*to = g->temperature;
	return OK;
}

struct temperature { unsigned version, sensor; int temperature; };

EXPORT ret_t nvmlDeviceGetTemperatureV(device_t handle, struct temperature *to)
{
	DEVICE(handle);
	if (to->version != (sizeof *to | 1 << 24))
		return ARGUMENT_VERSION_MISMATCH;
	to->temperature = (int)g->temperature;
	return OK;
}

EXPORT ret_t nvmlDeviceGetTemperatureThreshold(device_t handle, unsigned kind, unsigned *to)
{
	WHOLE_DEVICE(handle);
	*to = kind == 0 ? 92 : 89;
	return OK;
}

EXPORT ret_t nvmlDeviceGetPowerUsage(device_t handle, unsigned *milliwatts)
{
	WHOLE_DEVICE(handle);
	*milliwatts = g->power;
	return OK;
}

EXPORT ret_t nvmlDeviceGetEnforcedPowerLimit(device_t handle, unsigned *milliwatts)
{
	WHOLE_DEVICE(handle);
	*milliwatts = g->power_limit;
	return OK;
}

EXPORT ret_t nvmlDeviceGetPowerManagementLimit(device_t handle, unsigned *milliwatts)
{
	return nvmlDeviceGetEnforcedPowerLimit(handle, milliwatts);
}

EXPORT ret_t nvmlDeviceGetPowerManagementDefaultLimit(device_t handle, unsigned *milliwatts)
{
	return nvmlDeviceGetEnforcedPowerLimit(handle, milliwatts);
}

EXPORT ret_t nvmlDeviceGetPowerManagementLimitConstraints(device_t handle, unsigned *low,
							   unsigned *high)
{
	WHOLE_DEVICE(handle);
	*low = g->power_limit / 4;
	*high = g->power_limit;
	return OK;
}

EXPORT ret_t nvmlDeviceGetTotalEnergyConsumption(device_t handle, u64 *millijoules)
{
	WHOLE_DEVICE(handle);
	*millijoules = g->energy;
	return OK;
}

static ret_t clock_of(device_t handle, unsigned type, unsigned *mhz, int maximum)
{
	WHOLE_DEVICE(handle);
	if (type > 3)
		return INVALID_ARGUMENT;
	*mhz = type == 2 ? g->mem_clock : maximum || g->gpu_util ? g->sm_clock : 210;
	return OK;
}

EXPORT ret_t nvmlDeviceGetClockInfo(device_t handle, unsigned type, unsigned *mhz)
{
	return clock_of(handle, type, mhz, 0);
}

EXPORT ret_t nvmlDeviceGetMaxClockInfo(device_t handle, unsigned type, unsigned *mhz)
{
	return clock_of(handle, type, mhz, 1);
}

EXPORT ret_t nvmlDeviceGetPerformanceState(device_t handle, unsigned *state)
{
	WHOLE_DEVICE(handle);
	*state = g->gpu_util || g->ecc ? 0 : 8;
	return OK;
}

/* No exported function calls one that drivers of some age have not. */
static ret_t clock_reasons(device_t handle, u64 *reasons)
{
	WHOLE_DEVICE(handle);
	*reasons = g->gpu_util ? 0 : 1; /* idle */
	return OK;
}

EXPORT ret_t nvmlDeviceGetCurrentClocksEventReasons(device_t handle, u64 *reasons)
{
	return clock_reasons(handle, reasons);
}

EXPORT ret_t nvmlDeviceGetCurrentClocksThrottleReasons(device_t handle, u64 *reasons)
{
	return clock_reasons(handle, reasons);
}

EXPORT ret_t nvmlDeviceGetFanSpeed(device_t handle, unsigned *percent)
{
	WHOLE_DEVICE(handle);
	if (!g->fans)
		return NOT_SUPPORTED;
	*percent = g->gpu_util ? 60 : 30;
	return OK;
}

EXPORT ret_t nvmlDeviceGetTotalEccErrors(device_t handle, unsigned kind, unsigned type, u64 *count)
{
	DEVICE(handle);
	(void)type;
	if (!g->ecc)
		return NOT_SUPPORTED;
	*count = 0;
	return kind <= UNCORRECTED ? OK : INVALID_ARGUMENT;
}

EXPORT ret_t nvmlDeviceGetPcieThroughput(device_t handle, unsigned counter, unsigned *kb_per_second)
{
	WHOLE_DEVICE(handle);
	*kb_per_second = counter ? g->gpu_util * 1000 : g->gpu_util * 2000;
	return OK;
}
