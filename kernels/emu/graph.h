/* SPDX-License-Identifier: Apache-2.0
 * Recording of graphs on the emulated device: the table's graph entries (kernels.h), and what emu.c
 * and table.cu ask while one is recorded. */
#ifndef HB_KERNELS_EMU_GRAPH_H
#define HB_KERNELS_EMU_GRAPH_H

#include "kernels/emu/emu.h"

#ifdef __cplusplus
extern "C" {
#endif

int32_t hb_emu_graph_begin(void);
int32_t hb_emu_graph_end(void **graph);
int32_t hb_emu_graph_launch(void *graph);
void hb_emu_graph_free(void *graph);

int32_t hb_emu_is_recording(void);
/* Records a launch whose sizes were found right. */
int32_t hb_emu_record_launch(const struct hb_emu_launch *launch);
/* Fills device memory, or records that. */
int32_t hb_emu_fill(void *dst, int32_t byte, uint64_t bytes);
/* Something failed: a recording, if there is one, gives no graph. Returns status. */
int32_t hb_emu_break_recording(int32_t status);
/* For what cannot be recorded: HB_OK outside of a recording, else HB_ERR_DEVICE with the text. */
int32_t hb_emu_refuse_recording(const char *text);

#ifdef __cplusplus
}
#endif
#endif
