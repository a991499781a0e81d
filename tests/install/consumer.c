/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include <dci/dci.h>
#include <stdio.h>

int main(void)
{
        const float keys[4][2] = {{1, 0}, {0, 1}, {2, 2}, {-3, 1}}, query[2] = {1, 2};
        dci_context *context = NULL; /* memory, threads, instruction set: all defaults */
        dci_index *index = NULL;
        dci_index_config config;
        int64_t ids[2];
        float scores[2];

        int failed = dci_context_create(NULL, &context) || dci_index_config_init(&config, sizeof config);
        config.dim = 2;
        config.metric = DCI_METRIC_IP;
        failed = failed || dci_index_create(context, &config, &index) ||
                 dci_index_add(index, 4, keys, 2, NULL, NULL) /* ids 0 to 3 */ ||
                 dci_index_search(index, 1, query, 2, 2, NULL, ids, scores);
        for (int i = 0; i < 2 && !failed; i++)
                printf("id %lld, inner product %g\n", (long long)ids[i], scores[i]);
        if (failed)
                fprintf(stderr, "%s\n", dci_last_error());
        dci_index_destroy(index);
        dci_context_destroy(context);
        return failed;
}
