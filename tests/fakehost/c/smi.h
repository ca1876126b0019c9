/* What the parts of the small nvidia-smi have in common. */
#ifndef FAKEHOST_SMI_H
#define FAKEHOST_SMI_H

#include <stddef.h>

typedef void *device_t;
typedef int (*call_t)();

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; };
struct memory { unsigned version; unsigned long long total, reserved, free, used; };

call_t smi_call(const char *name);
const char *smi_error(int code);
struct memory smi_memory(device_t device);
unsigned smi_number(const char *function, device_t device);
int smi_query(unsigned count, const char *fields, const char *format);
void smi_table(unsigned count);

#endif
