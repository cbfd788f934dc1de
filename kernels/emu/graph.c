/* SPDX-License-Identifier: Apache-2.0
 * Recorded launches and fills. As on a GPU, a record keeps a copy of the argument struct: what a
 * pointer in it leads to is read at each replay, a number in it is the number of the recording. */
#include "kernels/emu/graph.h"

#include <stdlib.h>
#include <string.h>

#include "backend/status.h"

enum { FIRST_OPS = 32 };

/* A launch, or a fill where the launch has no entry. */
struct op {
    struct hb_emu_launch launch;
    void *args; /* the launch's, owned */
    void *dst;
    int32_t byte;
    uint64_t bytes;
};

struct graph {
    struct op *ops;
    size_t n_ops, max_ops;
};

static struct {
    struct graph *graph; /* null: nothing is recorded */
    int32_t is_broken;   /* something failed since begin */
} recorder;

int32_t hb_emu_is_recording(void) {
    return recorder.graph != NULL;
}

int32_t hb_emu_break_recording(int32_t status) {
    recorder.is_broken = 1;
    return status;
}

int32_t hb_emu_refuse_recording(const char *text) {
    return recorder.graph ? hb_emu_break_recording(hb_emu_fail(HB_ERR_DEVICE, text)) : HB_OK;
}

int32_t hb_emu_graph_begin(void) {
    if (recorder.graph) {
        return hb_emu_fail(HB_ERR_DEVICE, "a graph is being recorded");
    }
    recorder.graph = calloc(1, sizeof *recorder.graph);
    recorder.is_broken = 0;
    return recorder.graph ? HB_OK : hb_emu_fail(HB_ERR_MEMORY, "out of host memory for a graph");
}

void hb_emu_graph_free(void *graph) {
    struct graph *g = graph;
    if (!g) {
        return;
    }
    for (size_t i = 0; i < g->n_ops; i++) {
        free(g->ops[i].args);
    }
    free(g->ops);
    free(g);
}

/* A new record, zeroed; null without memory, or after a failure. */
static struct op *add_op(void) {
    struct graph *g = recorder.graph;
    if (g->n_ops == g->max_ops) {
        const size_t more = g->max_ops ? 2 * g->max_ops : FIRST_OPS;
        struct op *bigger = realloc(g->ops, more * sizeof *bigger);
        if (!bigger) {
            (void)hb_emu_break_recording(
                hb_emu_fail(HB_ERR_MEMORY, "out of host memory for a graph"));
            return NULL;
        }
        g->ops = bigger;
        g->max_ops = more;
    }
    struct op *op = &g->ops[g->n_ops];
    memset(op, 0, sizeof *op);
    return op;
}

int32_t hb_emu_record_launch(const struct hb_emu_launch *launch) {
    struct op *op = add_op();
    if (!op) {
        return HB_ERR_MEMORY;
    }
    void *args = malloc(launch->args_bytes ? launch->args_bytes : 1);
    if (!args) {
        return hb_emu_break_recording(hb_emu_fail(HB_ERR_MEMORY, "out of host memory for a graph"));
    }
    if (launch->args_bytes) {
        memcpy(args, launch->args, launch->args_bytes);
    }
    op->launch = *launch;
    op->launch.args = args;
    op->args = args;
    recorder.graph->n_ops++;
    return HB_OK;
}

int32_t hb_emu_fill(void *dst, int32_t byte, uint64_t bytes) {
    if (recorder.graph) {
        struct op *op = add_op();
        if (!op) {
            return HB_ERR_MEMORY;
        }
        op->dst = dst;
        op->byte = byte;
        op->bytes = bytes;
        recorder.graph->n_ops++;
    } else if (bytes) {
        memset(dst, byte, (size_t)bytes);
    }
    return HB_OK;
}

int32_t hb_emu_graph_end(void **graph) {
    struct graph *g = recorder.graph;
    if (!g) {
        return hb_emu_fail(HB_ERR_DEVICE, "no graph is being recorded");
    }
    recorder.graph = NULL;
    if (recorder.is_broken) { /* the text is that of the failure */
        hb_emu_graph_free(g);
        return HB_ERR_DEVICE;
    }
    *graph = g;
    return HB_OK;
}

int32_t hb_emu_graph_launch(void *graph) {
    const struct graph *g = graph;
    int32_t status = hb_emu_refuse_recording("a graph is launched while another one is recorded");
    for (size_t i = 0; i < g->n_ops && status == HB_OK; i++) {
        const struct op *op = &g->ops[i];
        status =
            op->launch.entry ? hb_emu_run(&op->launch) : hb_emu_fill(op->dst, op->byte, op->bytes);
    }
    return status;
}
