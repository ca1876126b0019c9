/* A small nvidia-smi: the table, -L and --query-gpu, all from libnvidia-ml.so.1.
 *
 * It starts without the C start-up file and asks for the oldest version of the two symbols whose
 * version changed in glibc 2.34, so that it also runs in images with an older glibc.
 */
#include "smi.h"

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

call_t smi_call(const char *name)
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

const char *smi_error(int code)
{
	return ((const char *(*)(int))(void *)smi_call("nvmlErrorString"))(code);
}

static int fail(int code)
{
	if (code == 9)
		printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
		       "Make sure that the latest NVIDIA driver is installed and running.\n\n");
	else
		printf("Failed to initialize NVML: %s\n", smi_error(code));
	return code;
}

static void list_mig(device_t device)
{
	unsigned most = 0;
	device_t mig;
	char name[160], uuid[96], *profile;

	smi_call("nvmlDeviceGetMaxMigDeviceCount")(device, &most);
	for (unsigned i = 0; i < most; i++) {
		if (smi_call("nvmlDeviceGetMigDeviceHandleByIndex")(device, i, &mig))
			continue;
		smi_call("nvmlDeviceGetName")(mig, name, 160u);
		smi_call("nvmlDeviceGetUUID")(mig, uuid, 96u);
		profile = strstr(name, " MIG ");
		printf("  MIG %-11s Device %2u: (UUID: %s)\n", profile ? profile + 5 : name, i, uuid);
	}
}

static int list(unsigned count)
{
	int ret, worst = 0;
	device_t device;
	char name[96], uuid[96];

	for (unsigned i = 0; i < count; i++) {
		ret = smi_call("nvmlDeviceGetHandleByIndex_v2")(i, &device);
		if (!ret)
			ret = smi_call("nvmlDeviceGetName")(device, name, 96u);
		if (!ret)
			ret = smi_call("nvmlDeviceGetUUID")(device, uuid, 96u);
		if (ret) {
			printf("Unable to determine the device handle for gpu %u: %s\n", i,
			       smi_error(ret));
			worst = ret;
			continue;
		}
		printf("GPU %u: %s (UUID: %s)\n", i, name, uuid);
		list_mig(device);
	}
	return worst;
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
	ret = smi_call("nvmlInitWithFlags")(0u);
	if (ret)
		return fail(ret);
	smi_call("nvmlDeviceGetCount_v2")(&count);
	if (!count) {
		printf("No devices were found\n");
		return 6;
	}
	if (want_list)
		return list(count);
	if (fields)
		return smi_query(count, fields, format);
	smi_table(count);
	return 0;
}
