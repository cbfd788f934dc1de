/* SPDX-License-Identifier: Apache-2.0
 * The page, and the plain loops over generated cases and files. */
#include "kernels/emu/emu.h"
#include "harness/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "harness/backends.h"
#include "harness/child_internal.h"
#include "harness/watch.h"

uint64_t hb_now_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

size_t hb_page_bytes(int32_t n_workers) {
    return sizeof(struct hb_page) + (size_t)n_workers * sizeof(struct hb_worker_page);
}

void hb_finding_path(const char *dir, int32_t target, const char *word, const char *fingerprint,
                     const char *id, char *out, size_t cap) {
    (void)snprintf(out, cap, "%.944s/%s-%s-%.8s-%.8s.case", dir, hb_target_name(target), word,
                   fingerprint, id);
}

int32_t hb_finding_save(const char *path, const struct hb_case *c, struct hb_error *err) {
    char dir[HB_PATH_CAP];
    const char *slash = strrchr(path, '/');
    if (slash && slash > path) {
        (void)snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
        (void)mkdir(dir, 0777); /* the file tells */
    }
    return hb_case_save(path, c, err);
}

int hb_page_see(struct hb_page *page, const char *fingerprint) {
    uint32_t n = __atomic_load_n(&page->n_seen, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < n && i < HB_MAX_SEEN; i++) {
        if (strncmp(page->seen[i], fingerprint, sizeof page->seen[i]) == 0) {
            return 0;
        }
    }
    if (n >= HB_MAX_SEEN) {
        return 0;
    }
    uint32_t at = __atomic_fetch_add(&page->n_seen, 1, __ATOMIC_ACQ_REL);
    if (at >= HB_MAX_SEEN) {
        return 0;
    }
    (void)snprintf(page->seen[at], sizeof page->seen[at], "%s", fingerprint);
    return 1;
}

int hb_page_first(struct hb_page *page) {
    if (!page->stop_at_first) {
        return 1;
    }
    page->stop = 1;
    return __atomic_exchange_n(&page->has_first, 1, __ATOMIC_ACQ_REL) == 0;
}

void hb_child_send(const struct hb_child *child, const struct hb_message *m) {
    const char *p = (const char *)m;
    size_t left = sizeof *m;
    while (left > 0) {
        ssize_t n = write(child->pipe_fd, p, left);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return; /* the supervisor is gone; this process follows it by its death signal */
        }
        p += n;
        left -= (size_t)n;
    }
}

void hb_child_fail(const struct hb_child *child, int32_t status, const struct hb_error *err) {
    struct hb_message m;
    memset(&m, 0, sizeof m);
    m.size = sizeof m;
    m.kind = HB_MESSAGE_FAILED;
    m.failed = *err;
    m.failed.status = status;
    hb_child_send(child, &m);
}

static int parse_environment(const char *text, int fd[4]) {
    for (int i = 0; i < 4; i++) {
        char *end = NULL;
        long v = strtol(text, &end, 10);
        if (end == text || v < -1 || v > 65535 || *end != (i < 3 ? ',' : '\0')) {
            return -1;
        }
        fd[i] = (int)v;
        text = end + 1;
    }
    return 0;
}

/* Maps the list of files: paths, each ended by a zero byte. */
static int map_list(struct hb_child *child, int fd) {
    struct stat st;
    if (fd < 0) {
        return 0;
    }
    if (fstat(fd, &st) != 0 || st.st_size <= 0) {
        return -1;
    }
    void *list = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (list == MAP_FAILED) {
        return -1;
    }
    child->list = list;
    child->list_bytes = (size_t)st.st_size;
    return 0;
}

int hb_child_open(struct hb_child *child) {
    const char *text = getenv("HBFUZZ_PAGE");
    int fd[4];
    struct stat st;
    memset(child, 0, sizeof *child);
    if (!text || parse_environment(text, fd) != 0 || fstat(fd[0], &st) != 0 ||
        (size_t)st.st_size < sizeof(struct hb_page)) {
        return -1;
    }
    void *memory = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd[0], 0);
    if (memory == MAP_FAILED) {
        return -1;
    }
    child->page = memory;
    child->pipe_fd = fd[1];
    if (child->page->magic != HB_PAGE_MAGIC || child->page->bytes != (uint32_t)st.st_size ||
        fd[3] < 0 || fd[3] >= child->page->n_workers || map_list(child, fd[2]) != 0) {
        (void)munmap(memory, (size_t)st.st_size);
        return -1;
    }
    child->me = &child->page->worker[fd[3]];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)child->page->parent) {
        return -1; /* the supervisor died before the death signal was set */
    }
    return 0;
}

int32_t hb_child_backends(struct hb_child *child, struct hb_error *err) {
    const struct hb_child_options *o = &child->page->options;
    const struct hb_adapter *backend = NULL;
    int32_t status = hb_backend_open(o->backend, &backend, err);
    if (status != HB_OK) {
        return status;
    }
    if (o->compare >= 0) {
        status = hb_backend_open(o->compare, &child->run.other, err);
        if (status != HB_OK) {
            return status;
        }
    }
    child->backend = hb_watch_adapter(backend, &child->me->operation);
    child->run.defect = o->defect;
    child->run.status_only = o->status_only;
    child->run.timed = o->timed;
    child->run.memory = &child->memory;
    child->run.check_off = o->check_off;
    hb_emu_set_poison((o->check_off & HB_OFF_POISON) == 0);
    child->run.dump_dir = o->dump_dir[0] ? o->dump_dir : NULL;
    child->run.tamper_element = -1;
    hb_child_catch(child);
    return HB_OK;
}

int hb_child_begin(struct hb_child *child, const struct hb_case *c, uint64_t index) {
    struct hb_page *page = child->page;
    struct hb_worker_page *me = child->me;
    uint64_t taken = __atomic_add_fetch(&page->taken, 1, __ATOMIC_RELAXED);
    if (page->stop || (page->options.limit && taken > page->options.limit)) {
        (void)__atomic_sub_fetch(&page->taken, 1, __ATOMIC_RELAXED);
        return 0;
    }
    me->case_size = (uint32_t)hb_case_encode(c, me->case_bytes, sizeof me->case_bytes);
    me->index = index;
    me->operation = HB_OPERATION_none;
    me->kernel[0] = '\0';
    __atomic_store_n(&me->started_ns, hb_now_ns(), __ATOMIC_RELEASE);
    return 1;
}

static void count_per_case(struct hb_worker_page *me, const uint64_t *before,
                           const struct hb_run_stats *now) {
    const uint64_t counts[HB_N_PER_CASE] = {now->forwards, now->tokens, now->launches};
    for (int i = 0; i < HB_N_PER_CASE; i++) {
        uint64_t n = counts[i] - before[i];
        me->per_case[i][n < HB_PER_CASE_BINS ? n : HB_PER_CASE_BINS - 1]++;
    }
}

int hb_child_run(struct hb_child *child, const struct hb_case *c, struct hb_run_stats *stats,
                 struct hb_message *m) {
    struct hb_worker_page *me = child->me;
    me->cases++;
    memset(m, 0, sizeof *m);
    const uint64_t before[HB_N_PER_CASE] = {stats->forwards, stats->tokens, stats->launches};
    int rc = hb_run_case(child->backend, c, &child->run, &m->verdict, stats);
    uint64_t now = hb_now_ns();
    m->size = sizeof *m;
    m->kind = HB_MESSAGE_RESULT;
    m->index = me->index;
    m->ns = now - me->started_ns;
    m->at_cases = me->cases;
    m->at_ns = now - child->page->begun_ns;
    m->target = c->config.target;
    count_per_case(me, before, stats);
    __atomic_store_n(&me->started_ns, 0, __ATOMIC_RELEASE);
    if (rc != 0 || m->verdict.kind == HB_VERDICT_ENVIRONMENT) {
        struct hb_error err = {.struct_size = sizeof err};
        (void)hb_fail_text(&err, HB_ERR_MEMORY, "a case could not be run: %.180s",
                           m->verdict.text[0] ? m->verdict.text : "out of memory");
        hb_child_fail(child, HB_ERR_MEMORY, &err);
        return -1;
    }
    return 0;
}

int hb_child_save(const struct hb_child *child, const struct hb_case *c, struct hb_message *m) {
    struct hb_error err = {.struct_size = sizeof err};
    hb_finding_path(child->page->options.out_dir, c->config.target,
                    hb_verdict_name(m->verdict.kind), m->verdict.fingerprint, m->id, m->file,
                    sizeof m->file);
    int32_t status = hb_finding_save(m->file, c, &err);
    if (status != HB_OK) {
        hb_child_fail(child, status, &err);
        return -1;
    }
    return 0;
}

int hb_child_fuzz_one(struct hb_child *child, const struct hb_case *c, uint64_t index) {
    struct hb_message m;
    if (!hb_child_begin(child, c, index)) {
        return 1;
    }
    if (hb_child_run(child, c, &child->me->stats, &m) != 0) {
        return -1;
    }
    if (!hb_verdict_is_finding(m.verdict.kind) ||
        !hb_page_see(child->page, m.verdict.fingerprint) || !hb_page_first(child->page)) {
        return 0;
    }
    hb_case_id(c, m.id);
    int rc = 0;
    if (child->page->options.out_dir[0] && hb_child_save(child, c, &m) != 0) {
        m.file[0] = '\0'; /* the finding counts without its file */
        rc = -1;
    }
    hb_child_send(child, &m);
    return rc;
}

/* Three of four cases are fresh, the fourth changes the one before it: a pure function of seed and
 * index. */
static int fuzz_loop(struct hb_child *child) {
    struct hb_gen_options gen = child->page->options.gen;
    gen.target = child->page->options.target;
    struct hb_case c;
    int rc = 0;
    hb_case_init(&c);
    for (uint64_t i = 0; rc == 0; i++) {
        if (i % 4 == 3) {
            hb_mutate_case(&c, child->me->seed * 0x9e3779b97f4a7c15U + i);
            hb_gen_hold(&gen, &c);
        } else {
            hb_gen_case(&gen, child->me->seed, i, &c);
        }
        rc = hb_child_fuzz_one(child, &c, i);
    }
    return rc < 0 ? -1 : 0;
}

/* One case with a result of its own. */
static int result_one(struct hb_child *child, const struct hb_case *c, uint64_t index,
                      const char *file) {
    struct hb_message m;
    struct hb_run_stats *stats = &child->case_stats;
    if (!hb_child_begin(child, c, index)) {
        return 1;
    }
    memset(stats, 0, sizeof *stats);
    if (hb_child_run(child, c, stats, &m) != 0) {
        return -1;
    }
    hb_run_stats_add(&child->me->stats, stats);
    memcpy(m.max_ratio, stats->max_ratio, sizeof m.max_ratio);
    m.launches = stats->launches;
    m.tokens = stats->tokens;
    m.has_second_run = stats->second_runs > 0;
    for (int32_t r = 1; r < 256; r++) {
        m.broken[r / 8] = (uint8_t)(m.broken[r / 8] | (stats->rule_broken[r] > 0) << (r % 8));
    }
    hb_case_id(c, m.id);
    int rc = 0;
    if (file) {
        (void)snprintf(m.file, sizeof m.file, "%s", file);
    } else if (hb_verdict_is_finding(m.verdict.kind) && child->page->options.out_dir[0] &&
               hb_page_see(child->page, m.verdict.fingerprint) &&
               hb_child_save(child, c, &m) != 0) {
        m.file[0] = '\0'; /* the finding counts without its file */
        rc = -1;
    }
    hb_child_send(child, &m);
    return rc;
}

static int gen_loop(struct hb_child *child) {
    const struct hb_child_options *o = &child->page->options;
    struct hb_case c;
    int rc = 0;
    for (uint64_t i = child->me->first; rc == 0; i++) {
        hb_gen_case(&o->gen, o->seed, i, &c);
        rc = result_one(child, &c, i, NULL);
    }
    return rc < 0 ? -1 : 0;
}

static int files_loop(struct hb_child *child) {
    const char *path = child->list;
    const char *end = child->list + child->list_bytes;
    uint64_t i = 0;
    int rc = 0;
    for (; path < end && rc == 0; path += strlen(path) + 1, i++) {
        struct hb_case c;
        struct hb_error err = {.struct_size = sizeof err};
        if (i < child->me->first) {
            continue;
        }
        int32_t status = hb_case_load(path, &c, &err);
        if (status != HB_OK) {
            hb_child_fail(child, status, &err);
            return -1;
        }
        rc = result_one(child, &c, i, path);
    }
    return rc < 0 ? -1 : 0;
}

int hb_child_main(void) {
    static int (*const loops[HB_N_WORKS])(struct hb_child *) = {fuzz_loop, gen_loop, files_loop};
    static struct hb_child child;
    struct hb_error err = {.struct_size = sizeof err};
    if (hb_child_open(&child) != 0 || child.page->options.work < 0 ||
        child.page->options.work >= HB_N_WORKS) {
        (void)fputs("hbfuzz: --child is for the supervisor's use\n", stderr);
        return 5;
    }
    int32_t status = hb_child_backends(&child, &err);
    if (status != HB_OK) {
        hb_child_fail(&child, status, &err);
        return 0;
    }
    if (loops[child.page->options.work](&child) == 0) {
        struct hb_message m;
        memset(&m, 0, sizeof m);
        m.size = sizeof m;
        m.kind = HB_MESSAGE_DONE;
        hb_child_send(&child, &m);
    }
    return 0;
}
