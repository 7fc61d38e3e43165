#include "vulkan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef __linux__

int onering_vulkan(const char *library, onering_adapter *adapters, int max, char **error) {
	*error = strdup("adapters are listed on Linux only");
	return -1;
}

#else
#include <dlfcn.h>

// The parts of Vulkan's structs that are read. All sizes are those of 64-bit systems.
struct instance_info {
	uint32_t type;
	const void *next;
	uint32_t flags;
	const void *application;
	uint32_t layers;
	const char *const *layer_names;
	uint32_t extensions;
	const char *const *extension_names;
};
struct application_info {
	uint32_t type;
	const void *next;
	const char *name;
	uint32_t version;
	const char *engine;
	uint32_t engine_version, api_version;
};
struct driver_properties {
	uint32_t type;
	void *next;
	uint32_t id;
	char name[256], info[256];
	uint8_t conformance[4];
};
struct maintenance { // VkPhysicalDeviceMaintenance4Properties
	uint32_t type;
	void *next;
	uint64_t largest_buffer;
};
struct properties {
	uint32_t type;
	void *next;
	uint32_t api, driver, vendor, device, kind;
	char name[256];
	uint8_t cache[16];
	uint32_t padding;
	union { // VkPhysicalDeviceLimits has 504 bytes
		uint32_t at[126];
		uint64_t align;
	} limits;
	uint32_t sparse[5];
};

struct features {
	uint32_t type;
	void *next;
	uint32_t at[56]; // VkPhysicalDeviceFeatures has 55
};

int onering_vulkan(const char *library, onering_adapter *adapters, int max, char **error) {
	enum { kind_cpu = 4, storage_range = 28 / 4, shared = 216 / 4, invocations = 232 / 4, nvidia = 0x10de };
	void *lib = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		*error = strdup(dlerror());
		return -1;
	}
	void *(*get)(void *, const char *) = (void *(*)(void *, const char *))dlsym(lib, "vkGetInstanceProcAddr");
	int (*create)(const void *, const void *, void **) = get ? (int (*)(const void *, const void *, void **))get(NULL, "vkCreateInstance") : NULL;
	if (!create) {
		*error = strdup("it lacks the function vkCreateInstance");
		return -1;
	}
	struct application_info application = {.type = 0, .name = "onering", .api_version = (1u << 22) | (2u << 12)};
	struct instance_info info = {.type = 1, .application = &application};
	void *instance = NULL;
	if (create(&info, NULL, &instance)) {
		*error = strdup("it finds no driver");
		return -1;
	}
	int (*list)(void *, uint32_t *, void **) = (int (*)(void *, uint32_t *, void **))get(instance, "vkEnumeratePhysicalDevices");
	void (*describe)(void *, void *) = (void (*)(void *, void *))get(instance, "vkGetPhysicalDeviceProperties2");
	void (*ask)(void *, void *) = (void (*)(void *, void *))get(instance, "vkGetPhysicalDeviceFeatures2");
	void (*destroy)(void *, const void *) = (void (*)(void *, const void *))get(instance, "vkDestroyInstance");
	if (!list || !describe || !ask || !destroy) {
		*error = strdup("its Vulkan is older than 1.1");
		return -1;
	}
	void *devices[16];
	uint32_t n = 16;
	if (list(instance, &n, devices) < 0) n = 0;
	for (int i = 0; i < (int)n && i < max; i++) {
		struct maintenance sizes = {.type = 1000413001};
		struct driver_properties driver = {.type = 1000196000, .next = &sizes};
		struct properties p = {.type = 1000059001, .next = &driver};
		describe(devices[i], &p);
		struct features half = {.type = 1000082000}; // shaderFloat16, shaderInt8
		struct features storage = {.type = 1000083000, .next = &half}; // storageBuffer16BitAccess, uniformAndStorageBuffer16BitAccess
		struct features f = {.type = 1000059000, .next = &storage};
		ask(devices[i], &f);
		onering_adapter *a = &adapters[i];
		memset(a, 0, sizeof *a);
		snprintf(a->name, sizeof a->name, "%s", p.name);
		snprintf(a->driver, sizeof a->driver, "%s %s", driver.name, driver.info);
		a->software = p.kind == kind_cpu;
		a->half = half.at[0] && storage.at[0] && storage.at[1];
		a->storage = p.limits.at[storage_range];
		// Kernels see no size of larger ones with NVIDIA's driver, and Dawn binds none.
		if (p.vendor == nvidia && a->storage > 0x7ffffffc) a->storage = 0x7ffffffc;
		a->largest = sizes.largest_buffer;
		a->shared = p.limits.at[shared];
		a->invocations = p.limits.at[invocations];
	}
	destroy(instance, NULL);
	return n;
}
#endif
