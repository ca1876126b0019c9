/* Memory limits of control groups (drivers from 615 on), and event sets.
 *
 * A limit that is set is one line at the end of <root>/var/lib/fakehost/limits; the last line for
 * a GPU and a control group is the one that counts. Nothing enforces it.
 */
#include "nvml.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NO_LIMIT (~0ull)

struct set_limits { const char *group; u64 soft, hard; };
struct get_limits { const char *group; u64 soft, hard, used; };

EXPORT ret_t nvmlDeviceSetMemoryLimits_v1(device_t handle, const struct set_limits *limits)
{
	char path[4200], line[4400];
	int fd, size;

	WHOLE_DEVICE(handle);
	if (!limits || !limits->group || *limits->group != '/' || limits->soft > limits->hard)
		return INVALID_ARGUMENT;
	if (g->mig_mode)
		return NOT_SUPPORTED;
	if (geteuid())
		return NO_PERMISSION;
	fake_path(path, sizeof path, "var/lib/fakehost/limits");
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd < 0)
		return UNKNOWN;
	size = snprintf(line, sizeof line, "%s %llu %llu %s\n", g->uuid, limits->soft, limits->hard,
			limits->group);
	if (write(fd, line, (size_t)size) != size)
		size = 0;
	close(fd);
	return size ? OK : UNKNOWN;
}

EXPORT ret_t nvmlDeviceGetMemoryLimits_v1(device_t handle, struct get_limits *limits)
{
	static __thread char data[65536];
	char path[4200];

	WHOLE_DEVICE(handle);
	if (!limits || !limits->group)
		return INVALID_ARGUMENT;
	if (g->mig_mode)
		return NOT_SUPPORTED;
	limits->soft = limits->used = 0;
	limits->hard = NO_LIMIT;
	fake_path(path, sizeof path, "var/lib/fakehost/limits");
	if (fake_read(path, data, sizeof data) <= 0)
		return OK;
	for (char *line = data, *next; line && *line; line = next) {
		char *soft, *hard, *group;

		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		if (!(soft = strchr(line, ' ')) || !(hard = strchr(soft + 1, ' ')) ||
		    !(group = strchr(hard + 1, ' ')))
			continue;
		*soft++ = *hard++ = *group++ = 0;
		if (!strcmp(line, g->uuid) && !strcmp(group, limits->group)) {
			limits->soft = fake_number(soft);
			limits->hard = fake_number(hard);
		}
	}
	return OK;
}

/* Event sets remember what was lost before, so that a GPU that goes is told of once. */
struct event_set { char watched[MAX_GPUS][48]; unsigned count; };
struct event { device_t device; u64 type, data; unsigned gi, ci; };

#define XID_EVENT 8ull
#define FALLEN_OFF_THE_BUS 79

EXPORT ret_t nvmlEventSetCreate(struct event_set **set)
{
	*set = calloc(1, sizeof **set);
	return *set ? OK : UNKNOWN;
}

EXPORT ret_t nvmlEventSetFree(struct event_set *set)
{
	free(set);
	return OK;
}

EXPORT ret_t nvmlDeviceGetSupportedEventTypes(device_t handle, u64 *types)
{
	WHOLE_DEVICE(handle);
	*types = XID_EVENT;
	return OK;
}

EXPORT ret_t nvmlDeviceRegisterEvents(device_t handle, u64 types, struct event_set *set)
{
	WHOLE_DEVICE(handle);
	if (types & ~XID_EVENT)
		return NOT_SUPPORTED;
	if (set->count < MAX_GPUS)
		fake_copy(set->watched[set->count++], sizeof set->watched[0], g->uuid);
	return OK;
}

static int lost(const struct state *s, const char *uuid)
{
	for (unsigned i = 0; i < s->count; i++)
		if (!strcmp(s->gpus[i].uuid, uuid))
			return s->gpus[i].lost;
	return 1;
}

EXPORT ret_t nvmlEventSetWait_v2(struct event_set *set, struct event *to, unsigned milliseconds)
{
	const struct state *s;

	for (unsigned waited = 0;; waited += 10) {
		ret_t ret = fake_enter(&s);

		if (ret)
			return ret;
		for (unsigned i = 0; i < set->count; i++) {
			if (!lost(s, set->watched[i]))
				continue;
			*to = (struct event){fake_handle(set->watched[i], 0), XID_EVENT,
					     FALLEN_OFF_THE_BUS, ~0u, ~0u};
			memmove(set->watched[i], set->watched[i + 1],
				(--set->count - i) * sizeof set->watched[0]);
			return OK;
		}
		if (waited >= milliseconds)
			return TIMEOUT;
		fake_sleep_us(10000);
	}
}
