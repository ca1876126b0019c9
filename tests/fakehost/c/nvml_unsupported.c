/* Calls that these boards answer with "not supported", as most of NVIDIA's own do. */
#include "nvml.h"

#define NO(function)                                                             \
	EXPORT ret_t function(device_t handle)                                   \
	{                                                                        \
		DEVICE(handle);                                                  \
		return NOT_SUPPORTED;                                            \
	}

NO(nvmlDeviceGetAPIRestriction)
NO(nvmlDeviceGetAccountingMode)
NO(nvmlDeviceGetAccountingPids)
NO(nvmlDeviceGetAccountingStats)
NO(nvmlDeviceGetActiveVgpus)
NO(nvmlDeviceGetAddressingMode)
NO(nvmlDeviceGetApplicationsClock)
NO(nvmlDeviceGetBridgeChipInfo)
NO(nvmlDeviceGetC2cModeInfoV)
NO(nvmlDeviceGetDefaultApplicationsClock)
NO(nvmlDeviceGetDetailedEccErrors)
NO(nvmlDeviceGetDriverModel)
NO(nvmlDeviceGetDriverModel_v2)
NO(nvmlDeviceGetEncoderStats)
NO(nvmlDeviceGetFBCStats)
NO(nvmlDeviceGetFanSpeed_v2)
NO(nvmlDeviceGetGpuFabricInfo_v4)
NO(nvmlDeviceGetGpuOperationMode)
NO(nvmlDeviceGetGridLicensableFeatures_v4)
NO(nvmlDeviceGetHostVgpuMode)
NO(nvmlDeviceGetInforomVersion)
NO(nvmlDeviceGetJpgUtilization)
NO(nvmlDeviceGetMarginTemperature)
NO(nvmlDeviceGetMemoryErrorCounter)
NO(nvmlDeviceGetModuleId)
NO(nvmlDeviceGetNumFans)
NO(nvmlDeviceGetOfaUtilization)
NO(nvmlDeviceGetPcieReplayCounter)
NO(nvmlDeviceGetPlatformInfo)
NO(nvmlDeviceGetPowerSource)
NO(nvmlDeviceGetProcessesUtilizationInfo)
NO(nvmlDeviceGetRemappedRows)
NO(nvmlDeviceGetRetiredPages)
NO(nvmlDeviceGetRetiredPagesPendingStatus)
NO(nvmlDeviceGetRetiredPages_v2)
NO(nvmlDeviceGetRowRemapperHistogram)
NO(nvmlDeviceGetRunningProcessDetailList)
NO(nvmlDeviceGetSamples)
NO(nvmlDeviceGetSramEccErrorStatus)
NO(nvmlDeviceGetThermalSettings)
NO(nvmlDeviceGetViolationStatus)
NO(nvmlDeviceGetVirtualizationMode)
NO(nvmlDeviceSetMigMode)
NO(nvmlDeviceSetPersistenceMode)
NO(nvmlDeviceSetPowerManagementLimit)

struct field_value {
	unsigned id, scope;
	long long timestamp, latency;
	unsigned type;
	ret_t result;
	unsigned long long value;
};

EXPORT ret_t nvmlDeviceGetFieldValues(device_t handle, int count, struct field_value *values)
{
	DEVICE(handle);
	for (int i = 0; i < count; i++)
		values[i].result = NOT_SUPPORTED;
	return OK;
}

EXPORT ret_t nvmlDeviceGetMaxPcieLinkGeneration(device_t handle, unsigned *to)
{
	DEVICE(handle);
	*to = g->architecture >= 9 ? 5 : g->architecture >= 7 ? 4 : 3;
	return OK;
}

EXPORT ret_t nvmlDeviceGetCurrPcieLinkGeneration(device_t handle, unsigned *to)
{
	return nvmlDeviceGetMaxPcieLinkGeneration(handle, to);
}

EXPORT ret_t nvmlDeviceGetMaxPcieLinkWidth(device_t handle, unsigned *to)
{
	DEVICE(handle);
	*to = 16;
	return OK;
}

EXPORT ret_t nvmlDeviceGetCurrPcieLinkWidth(device_t handle, unsigned *to)
{
	return nvmlDeviceGetMaxPcieLinkWidth(handle, to);
}
