// Vulkan, opened by name: onering is built without it.
#ifndef ONERING_VULKAN_H
#define ONERING_VULKAN_H

#include <stdint.h>

// A GPU that Vulkan shows, or a driver in software.
typedef struct onering_adapter {
	char name[256], driver[512];
	int software;
	int half;             // whether shaders have float16, also in buffers
	uint32_t storage;     // bytes that a buffer may have in a kernel
	uint64_t largest;     // bytes that a buffer may have; 0 if the driver does not say it
	uint32_t shared;      // bytes that a workgroup shares
	uint32_t invocations; // of a workgroup
} onering_adapter;

// onering_vulkan opens Vulkan's loader for the whole process and describes up to max
// of its adapters. It returns how many there are, or -1 with *error set.
int onering_vulkan(const char *library, onering_adapter *adapters, int max, char **error);

#endif
