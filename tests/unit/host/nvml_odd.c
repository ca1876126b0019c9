/* A management library with faults. The bus id that a GPU is asked for by says what it does. */
#include <string.h>
#include <unistd.h>

struct device { char what[32]; };
struct memory { unsigned long long total, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned gi, ci; };
/* As driver 535.54.03 laid them out. */
struct long_process { unsigned pid; unsigned long long used; unsigned gi, ci; unsigned long long protected; };

static struct device devices[32];
static unsigned count;

int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 999 ? "Unknown Error" : "?"; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, struct device **to)
{
	if (!strcmp(bus, "unknown"))
		return 999;
	if (!strcmp(bus, "reset"))
		return 16;
	*to = &devices[count++ % 32];
	strncpy((*to)->what, bus, 31);
	return 0;
}

/* There is no second version of this one, as before driver 510. */
int nvmlDeviceGetMemoryInfo(struct device *d, struct memory *to)
{
	if (!strcmp(d->what, "hang"))
		pause();
	if (!strcmp(d->what, "crash"))
		_exit(3);
	if (!strcmp(d->what, "lost"))
		return 15;
	*to = (struct memory){16ull << 30, 12ull << 30, 4ull << 30};
	return 0;
}

int nvmlDeviceGetUtilizationRates(struct device *d, unsigned *to)
{
	(void)d;
	to[0] = to[1] = 7;
	return 0;
}

int nvmlDeviceGetDisplayActive(struct device *d, int *to)
{
	*to = !strcmp(d->what, "display");
	return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct device *d, unsigned *n, struct long_process *to)
{
	if (strcmp(d->what, "long") && strcmp(d->what, "odd"))
		return 3;
	if (*n < 3) {
		*n = 3;
		return 7;
	}
	for (unsigned i = 0; i < *n; i++)
		to[i] = (struct long_process){100 + i, 1 << 30, ~0u, ~0u, 5};
	return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v2(struct device *d, unsigned *n, struct process *to)
{
	static unsigned grown;
	unsigned there = !strcmp(d->what, "grows") ? 1 + 100 * grown++ : 2;

	if (*n < there) {
		*n = there;
		return 7;
	}
	*n = there;
	for (unsigned i = 0; i < there; i++)
		to[i] = (struct process){100 + i, 1 << 30, ~0u, ~0u};
	if (!strcmp(d->what, "odd"))
		to[1].used = 1ull << 50;
	if (!strcmp(d->what, "secret"))
		to[1].used = ~0ull;
	return 0;
}
