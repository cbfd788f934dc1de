/* SPDX-License-Identifier: Apache-2.0
 * Case files named on the command line, folders taken apart. */
#ifndef HB_HARNESS_CLI_FILES_H
#define HB_HARNESS_CLI_FILES_H

#include <stdint.h>

#include "backend/status.h"

struct hb_files {
    char **path;
    int64_t n;
};

/* Files as given; of folders and their subfolders every file that can be a case (not .txt, .jsonl,
 * .md, .dict, .part, nor the .tmp- of a writer), sorted. Links in folders are followed to files;
 * others are skipped with a message. HB_ERR_IO for a path that is neither file nor folder, and for a
 * folder without cases. Free with hb_files_free in either case. */
int32_t hb_files_collect(char *const *paths, int32_t n_paths, struct hb_files *out,
                         struct hb_error *err);
void hb_files_free(struct hb_files *files);

#endif
