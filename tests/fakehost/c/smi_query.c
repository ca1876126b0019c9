/* nvidia-smi --query-gpu=... --format=csv[,noheader][,nounits] */
#include "smi.h"

#include <stdio.h>
#include <string.h>

struct memory smi_memory(device_t device)
{
	struct memory m = {.version = sizeof m | 2 << 24};

	smi_call("nvmlDeviceGetMemoryInfo_v2")(device, &m);
	return m;
}

unsigned smi_number(const char *function, device_t device)
{
	unsigned value = 0;

	return smi_call(function)(device, &value) ? 0 : value;
}

static int field(const char *name, device_t device, int units, char *to, size_t size)
{
	struct { const char *name, *function; } texts[] = {
		{"uuid", "nvmlDeviceGetUUID"}, {"gpu_uuid", "nvmlDeviceGetUUID"},
		{"name", "nvmlDeviceGetName"}, {"gpu_name", "nvmlDeviceGetName"},
		{"serial", "nvmlDeviceGetSerial"}, {"vbios_version", "nvmlDeviceGetVbiosVersion"},
	};
	struct memory m = smi_memory(device);
	struct pci pci;
	unsigned now = 0, pending = 0, rates[2] = {0};

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (!strcmp(name, texts[i].name)) {
			if (smi_call(texts[i].function)(device, to, (unsigned)size))
				snprintf(to, size, "[N/A]");
			return 1;
		}
	if (!strcmp(name, "index"))
		snprintf(to, size, "%u", smi_number("nvmlDeviceGetIndex", device));
	else if (!strcmp(name, "memory.total"))
		snprintf(to, size, "%llu%s", m.total >> 20, units ? " MiB" : "");
	else if (!strcmp(name, "memory.used"))
		snprintf(to, size, "%llu%s", m.used >> 20, units ? " MiB" : "");
	else if (!strcmp(name, "memory.free"))
		snprintf(to, size, "%llu%s", m.free >> 20, units ? " MiB" : "");
	else if (!strcmp(name, "driver_version"))
		smi_call("nvmlSystemGetDriverVersion")(to, (unsigned)size);
	else if (!strcmp(name, "temperature.gpu"))
		smi_call("nvmlDeviceGetTemperature")(device, 0u, &now), snprintf(to, size, "%u", now);
	else if (!strcmp(name, "utilization.gpu"))
		smi_call("nvmlDeviceGetUtilizationRates")(device, rates),
			snprintf(to, size, "%u%s", rates[0], units ? " %" : "");
	else if (!strcmp(name, "pci.bus_id") || !strcmp(name, "gpu_bus_id"))
		smi_call("nvmlDeviceGetPciInfo_v3")(device, &pci), snprintf(to, size, "%s", pci.text);
	else if (!strcmp(name, "mig.mode.current"))
		snprintf(to, size, "%s", smi_call("nvmlDeviceGetMigMode")(device, &now, &pending)
			 ? "[N/A]" : now ? "Enabled" : "Disabled");
	else if (!strcmp(name, "compute_cap"))
		smi_call("nvmlDeviceGetCudaComputeCapability")(device, &now, &pending),
			snprintf(to, size, "%u.%u", now, pending);
	else if (!strcmp(name, "count"))
		smi_call("nvmlDeviceGetCount_v2")(&now), snprintf(to, size, "%u", now);
	else
		return 0;
	return 1;
}

int smi_query(unsigned count, const char *fields, const char *format)
{
	int header = !strstr(format, "noheader"), units = !strstr(format, "nounits"), ret;
	device_t device;
	char copy[1024], value[256];

	for (int line = header ? -1 : 0; line < (int)count; line++) {
		const char *comma = "";

		ret = line < 0 ? 0 : smi_call("nvmlDeviceGetHandleByIndex_v2")((unsigned)line, &device);
		if (ret) {
			printf("Unable to determine the device handle for gpu %d: %s\n", line,
			       smi_error(ret));
			continue;
		}
		snprintf(copy, sizeof copy, "%s", fields);
		for (char *name = copy, *next; name; name = next, comma = ", ") {
			if ((next = strchr(name, ',')))
				*next++ = 0;
			name += *name == ' ';
			if (line < 0) {
				printf("%s%s%s", comma, name, !strncmp(name, "memory.", 7) && units
				       ? " [MiB]" : "");
			} else if (field(name, device, units, value, sizeof value)) {
				printf("%s%s", comma, value);
			} else {
				printf("Field \"%s\" is not a valid field to query.\n", name);
				return 2;
			}
		}
		printf("\n");
	}
	return 0;
}
