/* A small nvidia-smi: the table, -L and --query-gpu, all from libnvidia-ml.so.1.
 *
 * It starts without the C start-up file and asks for the oldest version of the two symbols whose
 * version changed in glibc 2.34, so that it also runs in images with an older glibc.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LAZY 1

extern void *old_dlopen(const char *, int);
extern void *old_dlsym(void *, const char *);
__asm__(".symver old_dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver old_dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver old_start_main, __libc_start_main@GLIBC_2.2.5");
__asm__(".globl _start\n_start:\n"
	"xor %ebp, %ebp\n mov %rdx, %r9\n pop %rsi\n mov %rsp, %rdx\n and $-16, %rsp\n"
	"push %rax\n push %rsp\n xor %r8d, %r8d\n xor %ecx, %ecx\n"
	"lea smi_main(%rip), %rdi\n call *old_start_main@GOTPCREL(%rip)\n hlt\n");

static void *library;

typedef void *device_t;
typedef int (*call_t)();

static call_t call(const char *name)
{
	call_t found = (call_t)old_dlsym(library, name);

	if (!found) {
		printf("nvidia-smi: %s is missing in libnvidia-ml.so.1\n", name);
		exit(13);
	}
	return found;
}

/* On the fake host the library lies in the same root; elsewhere the loader looks for it. */
static void *open_library(void)
{
	char path[4096], name[4200], text[256];
	char *directory, *end;
	ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
	FILE *file;

	if (size > 0) {
		path[size] = 0;
		if ((end = strstr(path, "/usr/bin/")))
			*end = 0;
		snprintf(name, sizeof name, "%s/var/lib/fakehost/libdir", path);
		if ((file = fopen(name, "r"))) {
			directory = fgets(text, sizeof text, file);
			fclose(file);
			snprintf(name, sizeof name, "%s/%s/libnvidia-ml.so.1", path,
				 directory ? directory : "");
			return old_dlopen(name, LAZY);
		}
	}
	return old_dlopen("libnvidia-ml.so.1", LAZY);
}

static const char *error_text(int code)
{
	return ((const char *(*)(int))(void *)call("nvmlErrorString"))(code);
}

static int fail(int code)
{
	if (code == 9)
		printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
		       "Make sure that the latest NVIDIA driver is installed and running.\n\n");
	else
		printf("Failed to initialize NVML: %s\n", error_text(code));
	return code;
}

static void list_mig(device_t device)
{
	unsigned most = 0;
	device_t mig;
	char name[160], uuid[96], *profile;

	call("nvmlDeviceGetMaxMigDeviceCount")(device, &most);
	for (unsigned i = 0; i < most; i++) {
		if (call("nvmlDeviceGetMigDeviceHandleByIndex")(device, i, &mig))
			continue;
		call("nvmlDeviceGetName")(mig, name, 160u);
		call("nvmlDeviceGetUUID")(mig, uuid, 96u);
		profile = strstr(name, " MIG ");
		printf("  MIG %-15sDevice %2u: (UUID: %s)\n", profile ? profile + 5 : name, i, uuid);
	}
}

static int list(unsigned count)
{
	int ret, worst = 0;
	device_t device;
	char name[96], uuid[96];

	for (unsigned i = 0; i < count; i++) {
		ret = call("nvmlDeviceGetHandleByIndex_v2")(i, &device);
		if (!ret)
			ret = call("nvmlDeviceGetName")(device, name, 96u);
		if (!ret)
			ret = call("nvmlDeviceGetUUID")(device, uuid, 96u);
		if (ret) {
			printf("Unable to determine the device handle for gpu %u: %s\n", i,
			       error_text(ret));
			worst = ret;
			continue;
		}
		printf("GPU %u: %s (UUID: %s)\n", i, name, uuid);
		list_mig(device);
	}
	return worst;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

static struct memory_v2 memory(device_t device)
{
	struct memory_v2 m = {.version = sizeof m | 2 << 24};

	call("nvmlDeviceGetMemoryInfo_v2")(device, &m);
	return m;
}

static unsigned number(const char *function, device_t device)
{
	unsigned value = 0;

	return call(function)(device, &value) ? 0 : value;
}

static int field(const char *name, device_t device, int units, char *to, size_t size)
{
	struct { const char *name, *function; } texts[] = {
		{"uuid", "nvmlDeviceGetUUID"}, {"gpu_uuid", "nvmlDeviceGetUUID"},
		{"name", "nvmlDeviceGetName"}, {"gpu_name", "nvmlDeviceGetName"},
		{"serial", "nvmlDeviceGetSerial"}, {"vbios_version", "nvmlDeviceGetVbiosVersion"},
	};
	struct memory_v2 m = memory(device);
	struct pci pci;
	unsigned now = 0, pending = 0, rates[2] = {0};

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (!strcmp(name, texts[i].name)) {
			if (call(texts[i].function)(device, to, (unsigned)size))
				snprintf(to, size, "[N/A]");
			return 1;
		}
	if (!strcmp(name, "index"))
		snprintf(to, size, "%u", number("nvmlDeviceGetIndex", device));
	else if (!strcmp(name, "memory.total"))
		snprintf(to, size, "%llu%s", m.total >> 20, units ? " MiB" : "");
	else if (!strcmp(name, "memory.used"))
		snprintf(to, size, "%llu%s", m.used >> 20, units ? " MiB" : "");
	else if (!strcmp(name, "memory.free"))
		snprintf(to, size, "%llu%s", m.free >> 20, units ? " MiB" : "");
	else if (!strcmp(name, "driver_version"))
		call("nvmlSystemGetDriverVersion")(to, (unsigned)size);
	else if (!strcmp(name, "temperature.gpu"))
		call("nvmlDeviceGetTemperature")(device, 0u, &now), snprintf(to, size, "%u", now);
	else if (!strcmp(name, "utilization.gpu"))
		call("nvmlDeviceGetUtilizationRates")(device, rates),
			snprintf(to, size, "%u%s", rates[0], units ? " %" : "");
	else if (!strcmp(name, "pci.bus_id") || !strcmp(name, "gpu_bus_id"))
		call("nvmlDeviceGetPciInfo_v3")(device, &pci), snprintf(to, size, "%s", pci.text);
	else if (!strcmp(name, "mig.mode.current"))
		snprintf(to, size, "%s", call("nvmlDeviceGetMigMode")(device, &now, &pending)
			 ? "[N/A]" : now ? "Enabled" : "Disabled");
	else if (!strcmp(name, "compute_cap"))
		call("nvmlDeviceGetCudaComputeCapability")(device, &now, &pending),
			snprintf(to, size, "%u.%u", now, pending);
	else if (!strcmp(name, "count"))
		call("nvmlDeviceGetCount_v2")(&now), snprintf(to, size, "%u", now);
	else
		return 0;
	return 1;
}

static int query(unsigned count, const char *fields, const char *format)
{
	int header = !strstr(format, "noheader"), units = !strstr(format, "nounits"), ret;
	device_t device;
	char copy[1024], value[256];

	for (int line = header ? -1 : 0; line < (int)count; line++) {
		const char *comma = "";

		ret = line < 0 ? 0 : call("nvmlDeviceGetHandleByIndex_v2")((unsigned)line, &device);
		if (ret) {
			printf("Unable to determine the device handle for gpu %d: %s\n", line,
			       error_text(ret));
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

static void row(unsigned index)
{
	device_t device;
	struct pci pci = {0};
	char name[96] = "", used[40];
	unsigned rates[2] = {0}, now = 0, pending = 0;
	struct memory_v2 m;

	if (call("nvmlDeviceGetHandleByIndex_v2")(index, &device)) {
		printf("| %3u  ERR!                          |                      |                      |\n",
		       index);
		return;
	}
	call("nvmlDeviceGetName")(device, name, 96u);
	call("nvmlDeviceGetPciInfo_v3")(device, &pci);
	call("nvmlDeviceGetUtilizationRates")(device, rates);
	call("nvmlDeviceGetMigMode")(device, &now, &pending);
	m = memory(device);
	snprintf(used, sizeof used, "%lluMiB / %lluMiB", m.used >> 20, m.total >> 20);
	printf("| %3u  %-28.28s %-3s |   %16s %-3s | %20s |\n", index, name, "On", pci.text, "Off", "0");
	printf("| N/A  %3uC    P0    %11u mW    | %22s | %7u%%      Default |\n",
	       number("nvmlDeviceGetPowerUsage", device) ? 30u : 0u,
	       number("nvmlDeviceGetPowerUsage", device), used, rates[0]);
	printf("| %37s | %22s | %20s |\n", "", "", now ? "Enabled" : "Disabled");
	printf("+---------------------------------------+------------------------+----------------------+\n");
}

static void table(unsigned count)
{
	char driver[96] = "", smi[32];
	int cuda = 0;

	call("nvmlSystemGetDriverVersion")(driver, 96u);
	call("nvmlSystemGetCudaDriverVersion_v2")(&cuda);
	snprintf(smi, sizeof smi, "NVIDIA-SMI %.18s", driver);
	printf("+-----------------------------------------------------------------------------------------+\n");
	printf("| %-30s Driver Version: %-15.15s CUDA Version: %2d.%-6d |\n", smi, driver, cuda / 1000,
	       cuda % 1000 / 10);
	printf("|-----------------------------------------+------------------------+----------------------+\n");
	for (unsigned i = 0; i < count; i++)
		row(i);
	printf("\n| Processes:                                                                              |\n");
	for (unsigned i = 0; i < count; i++) {
		struct { unsigned pid; unsigned long long used; unsigned gi, ci; } list[64];
		unsigned n = 64;
		device_t device;

		if (call("nvmlDeviceGetHandleByIndex_v2")(i, &device) ||
		    call("nvmlDeviceGetComputeRunningProcesses_v3")(device, &n, list))
			continue;
		for (unsigned j = 0; j < n; j++)
			printf("| %4u   N/A  N/A %9u      C   %33s %8lluMiB |\n", i, list[j].pid, "",
			       list[j].used >> 20);
	}
}

__attribute__((used)) static int smi_main(int argc, char **argv)
{
	const char *fields = NULL, *format = "csv";
	int want_list = 0, ret;
	unsigned count = 0;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-L") || !strcmp(argv[i], "--list-gpus"))
			want_list = 1;
		else if (!strncmp(argv[i], "--query-gpu=", 12))
			fields = argv[i] + 12;
		else if (!strncmp(argv[i], "--format=", 9))
			format = argv[i] + 9;
		else if (argv[i][0] == '-') {
			printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
			return 1;
		}
	}
	if (!(library = open_library())) {
		printf("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure "
		       "that the NVIDIA Display Driver is properly installed and present in your system.\n"
		       "Please also try adding directory that contains libnvidia-ml.so to your system "
		       "PATH.\n");
		return 12;
	}
	ret = call("nvmlInitWithFlags")(0u);
	if (ret)
		return fail(ret);
	call("nvmlDeviceGetCount_v2")(&count);
	if (!count) {
		printf("No devices were found\n");
		return 6;
	}
	if (want_list)
		return list(count);
	if (fields)
		return query(count, fields, format);
	table(count);
	return 0;
}
