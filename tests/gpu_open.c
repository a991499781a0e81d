/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/common.h"

#include "tests/gpu_open.h"

#include <stdlib.h>
#include <string.h>

#include "tests/gpu_late.h"

#ifdef DCI_WITH_EMULATED
#include "tests/emulated/device.h"
#endif

static bool is_emulated(const char *wish)
{
        return wish != NULL && strcmp(wish, "emulated") == 0;
}

static bool is_late(const char *wish)
{
        return wish != NULL && strcmp(wish, "late") == 0;
}

int32_t gpu_device_number(void)
{
        const char *wish = getenv("DCI_GPU_DEVICE");
        return wish == NULL || is_emulated(wish) || is_late(wish) ? DCI_GPU_HOST : (int32_t)strtol(wish, NULL, 10);
}

dci_gpu *gpu_open(dci_context *context)
{
        dci_gpu_config config;
        dci_gpu *gpu = NULL;
        ck_ok(dci_gpu_config_init(&config, sizeof config));
        config.device = gpu_device_number();
        ck_ok(dci_gpu_create(context, &config, &gpu));
        if (is_emulated(getenv("DCI_GPU_DEVICE"))) {
#ifdef DCI_WITH_EMULATED
                emulated_become(gpu);
#else
                ck_abort_msg("this build has no emulated device");
#endif
        }
        if (is_late(getenv("DCI_GPU_DEVICE")))
                late_become(gpu);
        return gpu;
}
