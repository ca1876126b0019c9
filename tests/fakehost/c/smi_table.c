/* The table that nvidia-smi prints when it is given no options, in the form of driver 550. */
#include "smi.h"

#include <stdio.h>
#include <string.h>

#define LINE "+-----------------------------------------------------------------------------------------+\n"
#define COLUMNS "-----------------------------------------+------------------------+----------------------+\n"

static void usage(device_t device)
{
	char load[16] = "N/A", memory[40], fan[8] = "N/A", power[40];
	unsigned rates[2], temperature = 0, percent;
	struct memory m = smi_memory(device);

	if (!smi_call("nvmlDeviceGetUtilizationRates")(device, rates))
		snprintf(load, sizeof load, "%u%%", rates[0]);
	if (!smi_call("nvmlDeviceGetFanSpeed")(device, &percent))
		snprintf(fan, sizeof fan, "%u%%", percent);
	smi_call("nvmlDeviceGetTemperature")(device, 0u, &temperature);
	snprintf(memory, sizeof memory, "%lluMiB / %6lluMiB", m.used >> 20, m.total >> 20);
	snprintf(power, sizeof power, "%uW / %4uW",
		 smi_number("nvmlDeviceGetPowerUsage", device) / 1000,
		 smi_number("nvmlDeviceGetEnforcedPowerLimit", device) / 1000);
	printf("| %-3s  %3uC    P%-2u %22s | %22s | %7s      Default |\n", fan, temperature,
	       smi_number("nvmlDeviceGetPerformanceState", device), power, memory, load);
}

static void row(unsigned index)
{
	device_t device;
	struct pci pci = {0};
	char name[96] = "";
	unsigned now = 0, pending = 0, ecc;
	const char *mig = "N/A";

	if (smi_call("nvmlDeviceGetHandleByIndex_v2")(index, &device)) {
		printf("| %3u  ERR! %29s | %22s | %20s |\n", index, "", "ERR!", "ERR!");
		return;
	}
	smi_call("nvmlDeviceGetName")(device, name, 96u);
	smi_call("nvmlDeviceGetPciInfo_v3")(device, &pci);
	if (!smi_call("nvmlDeviceGetMigMode")(device, &now, &pending))
		mig = now ? "Enabled" : "Disabled";
	ecc = !smi_call("nvmlDeviceGetEccMode")(device, &now, &pending);
	printf("| %3u  %-30.30s %-3s |   %16s %-3s | %20s |\n", index, name,
	       smi_number("nvmlDeviceGetPersistenceMode", device) ? "On" : "Off", pci.text, "Off",
	       ecc ? "0" : "N/A");
	usage(device);
	printf("| %39s | %22s | %20s |\n", "", "", mig);
	printf("+" COLUMNS);
}

struct process { unsigned pid; unsigned long long used; unsigned gi, ci; };

static unsigned processes(unsigned index)
{
	struct process list[64];
	unsigned n = 64;
	device_t device;
	char gi[8] = "N/A", ci[8] = "N/A";

	if (smi_call("nvmlDeviceGetHandleByIndex_v2")(index, &device) ||
	    smi_call("nvmlDeviceGetComputeRunningProcesses_v3")(device, &n, list))
		return 0;
	for (unsigned i = 0; i < n; i++) {
		if (list[i].gi != ~0u) {
			snprintf(gi, sizeof gi, "%u", list[i].gi);
			snprintf(ci, sizeof ci, "%u", list[i].ci);
		}
		printf("| %4u  %4s %4s %10u %6s   %-38s %8lluMiB |\n", index, gi, ci, list[i].pid, "C",
		       "[Not Found]", list[i].used >> 20);
	}
	return n;
}

void smi_table(unsigned count)
{
	char driver[96] = "", cuda[16];
	int version = 0;
	unsigned found = 0;

	smi_call("nvmlSystemGetDriverVersion")(driver, 96u);
	smi_call("nvmlSystemGetCudaDriverVersion_v2")(&version);
	snprintf(cuda, sizeof cuda, "%d.%d", version / 1000, version % 1000 / 10);
	printf(LINE "| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |\n", driver, driver,
	       cuda);
	printf("|" COLUMNS
	       "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
	       "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
	       "|                                         |                        |               MIG M. |\n"
	       "|=========================================+========================+======================|\n");
	for (unsigned i = 0; i < count; i++)
		row(i);
	printf("\n" LINE
	       "| Processes:                                                                              |\n"
	       "|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |\n"
	       "|        ID   ID                                                               Usage      |\n"
	       "|=========================================================================================|\n");
	for (unsigned i = 0; i < count; i++)
		found += processes(i);
	if (!found)
		printf("|  No running processes found                                                             |\n");
	printf(LINE);
}
