/* SPDX-License-Identifier: Apache-2.0
 * The built command: exit codes, messages, and that bad input leaves no file behind. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "harness/backends.h"
#include "harness/cli/names.h"
#include "harness/tests/cli_rig.h"

/* --- bad input --- */

static void wrong_command_lines_are_2(void **state) {
    (void)state;
    static const struct bad rows[] = {
        {"", 2, "a verb is missing"},
        {"fuz forward", 2, "unknown verb 'fuz', did you mean 'fuzz'?"},
        {"expalin x", 2, "did you mean 'explain'?"},
        {"zzzzzzzzzz", 2, "(known: doctor, list, gen, run, fuzz, repro, explain, check)"},
        {"--seed 1 fuzz forward", 2, "the first word is the verb, got the option '--seed'"},
        {"fuzz forwrad", 2, "unknown target 'forwrad', did you mean 'forward'?"},
        {"fuzz nothing-like-it", 2, "(known: forward, dispatch, verify, metadata, track, graph, slots, attention)"},
        {"fuzz", 2, "fuzz needs TARGET"},
        {"fuzz forward dispatch", 2, "'dispatch' is one too many"},
        {"fuzz forward --sede 1", 2, "unknown option '--sede', did you mean '--seed'?"},
        {"fuzz forward --s=1", 2, "unknown option '--s'"},
        {"fuzz forward -x", 2, "unknown option '-x'"},
        {"list --seed 1", 2, "the verb 'list' does not take the option --seed"},
        {"fuzz forward --backend emo", 2, "unknown backend 'emo', did you mean 'emu'?"},
        {"fuzz forward --backend gpu", 2, "(known: emu, cuda, oracle)"},
        {"gen --mode DECOD", 2, "unknown mode 'DECOD', did you mean 'DECODE'?"},
        {"gen --size huge", 2, "unknown size 'huge'"},
        {"gen --class brokn", 2, "did you mean 'broken'?"},
        {"gen --target forwards", 2, "did you mean 'forward'?"},
        {"run --gen 1 --format json", 2, "unknown format 'json', did you mean 'jsonl'?"},
        {"fuzz forward --engine afl", 2, "unknown engine 'afl' (known: libfuzzer, plain)"},
        {"fuzz forward --defect 11111", 2, "unknown defect '11111'"},
        {"fuzz forward --defect CHUNK_OF_BY_ONE", 2, "did you mean 'CHUNK_OFF_BY_ONE'?"},
        {"fuzz forward --off numerc", 2, "unknown check 'numerc', did you mean 'numeric'?"},
        {"fuzz forward --seed x", 2,
         "--seed takes a number from 0 to 18446744073709551615, got 'x'"},
        {"fuzz forward --seed -1", 2, "got '-1'"},
        {"fuzz forward --seed 1x", 2, "got '1x'"},
        {"fuzz forward --seed 18446744073709551616", 2, "got '18446744073709551616'"},
        {"fuzz forward --seed 0x", 2, "got '0x'"},
        {"fuzz forward --seed=", 2, "got ''"},
        {"fuzz forward --count 0", 2, "--count takes a number from 1 "},
        {"fuzz forward --time -1", 2,
         "--time takes seconds above 0 and up to 1000000000, got '-1'"},
        {"fuzz forward --time 0", 2, "got '0'"},
        {"fuzz forward --time nan", 2, "got 'nan'"},
        {"fuzz forward --time 1e400", 2, "got '1e400'"},
        {"fuzz forward --time 5s", 2, "got '5s'"},
        {"fuzz forward -j 0", 2, "--jobs takes a number from 1 to 64, got '0'"},
        {"fuzz forward -j65", 2, "got '65'"},
        {"repro x --times 4294967297", 2, "--times takes a number from 1 to 100000"},
        {"fuzz forward --seed", 2, "--seed needs a value: N"},
        {"gen --out=", 2, "--out needs a value"},
        {"fuzz forward --seed 1 --seed 2", 2, "--seed is given twice"},
        {"fuzz forward --stats=yes", 2, "--stats takes no value, got 'yes'"},
        {"fuzz forward --time 1 --count 1", 2, "--time and --count contradict each other"},
        {"fuzz forward -q -v", 2, "--quiet and --verbose contradict each other"},
        {"run --gen 5 x.case", 2, "--gen and case files contradict each other: 'x.case'"},
        {"run", 2, "run needs case files"},
        {"run x.case --seed 1", 2, "--seed needs --gen"},
        {"run --gen 1 --dump @/d", 2, "--dump and --gen contradict each other"},
        {"repro x.case --backend emu --compare emu", 2, "it is the backend under test itself"},
        {"gen --format case", 2, "--format case needs --out"},
        {"explain x --bound 1,2,3", 2, "got '1,2,3'"},
        {"explain x --bound 1,2,3,-4", 2, "got '1,2,3,-4'"},
        {"explain x --bound 1,2,3,99999999999", 2, "--bound takes step,layer,token,channel"},
        {"explain @/good.case --bound 99,0,0,0", 2, "--bound 99,0,0,0: "},
        {"explain", 2, "explain needs FILE|-"},
        {"check x", 2, "check takes 0 operands, 'x' is one too many"},
        {"check -- x", 2, "only the verb 'fuzz' passes arguments on"},
        {"fuzz forward --engine plain -- -max_len=9", 2, "the plain engine takes no arguments"},
        {"fuzz forward --engine plain --corpus @/c", 2, "the plain engine keeps no corpus"},
        {"help nothing", 2, "unknown verb 'nothing'"},
        {"repro -", 2, "repro reads nothing from standard input"},
        {"run @/good.case -", 2, "run reads nothing from standard input"},
        {"run @/good.case --json --format text", 2, "--json and --format contradict each other"},
        {"run @/good.case --compare emu", 2, "it is the backend under test itself"},
        {"fuzz forward -- 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 "
         "28 29 30 31 32 33",
         2, "at most 32 arguments, got 33"},
        {"fuzz for\nward", 2, "unknown target 'for\\nward'"},
        {"gen\n\n", 2, "unknown verb 'gen\\n\\n' (known: "},
        {"gen --mode X\x1b[31m", 2, "unknown mode 'X\\x1b[31m'"},
        {"gen --seed 1\r2", 2, "got '1\\x0d2'"},
    };
    check_bad(rows, sizeof rows / sizeof rows[0]);
}

static void files_that_cannot_be_read_are_4(void **state) {
    (void)state;
    static const struct bad rows[] = {
        {"repro @/absent.case", 4, "absent.case"},
        {"explain @/absent.case", 4, "absent.case"},
        {"run @/absent.case", 4, "absent.case"},
        {"run @/empty-folder", 4, "no case files in the folder"},
        {"run @/good.case @/absent.case --out @/r.jsonl", 4, "absent.case"},
        {"explain @/empty-folder", 4, "empty-folder"},
        {"check --golden @/absent", 4, "absent"},
        {"check --golden @/empty-folder", 4, "manifest.json"},
        {"check --golden @/good.case", 4, "good.case"},
        {"repro @/bad.json", 4, "colour is an unknown field"},
        {"run @/bad.json --out @/r.jsonl", 4, "/bad.json: case: colour is an unknown field"},
        {"run @/bad-folder", 4, "bad-folder/b.json: json: byte 1: "},
        {"explain @/a\nb", 4, "/a\\nb: "},
        {"explain @/fifo", 4, "fifo: is not a regular file"},
        {"repro @/fifo", 4, "fifo: is not a regular file"},
        {"run @/fifo-folder", 4, "fifo-folder/fifo: is not a regular file"},
    };
    write_file("bad.json", "{\"schema\":3,\"target\":\"forward\",\"colour\":3}");
    assert_int_equal(mkdir(in_folder("bad-folder"), 0755), 0);
    write_file("bad-folder/a.json", "{\"schema\":3}");
    write_file("bad-folder/b.json", "{");
    assert_int_equal(mkfifo(in_folder("fifo"), 0644), 0);
    assert_int_equal(mkdir(in_folder("fifo-folder"), 0755), 0);
    assert_int_equal(mkfifo(in_folder("fifo-folder/fifo"), 0644), 0);
    check_bad(rows, sizeof rows / sizeof rows[0]);
    assert_int_equal(access(in_folder("r.jsonl"), F_OK), -1);
    assert_int_equal(count_containing(".part"), 0);
}

static void folders_that_cannot_be_written_are_4(void **state) {
    (void)state;
    /* below a regular file: root cannot write there either */
    static const struct bad rows[] = {
        {"gen --out @/good.case/sub", 4, "good.case/sub"},
        {"gen --out @/good.case", 4, "is not a folder"},
        {"fuzz forward --count 1 --out @/good.case/sub", 4, "good.case/sub"},
        {"run @/good.case --out @/good.case/r.jsonl", 4, "good.case/r.jsonl"},
        {"run @/good.case --dump @/good.case/d", 4, "good.case/d"},
        {"run @/good.case --out @/empty-folder", 4, "cannot write"},
    };
    check_bad(rows, sizeof rows / sizeof rows[0]);
    assert_int_equal(count_containing(".part"), 0);
}

static void malformed_cases_are_4_with_a_reason(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{",
        "{}x",
        "{\"schema\":2}",
        "{\"schema\":3,\"schema\":3}",
        "{\"schema\":3,\"config\":{\"heads\":\"many\"}}",
        "{\"schema\":3,\"config\":{\"heads\":NaN}}",
        "{\"schema\":3,\"config\":{\"heads\":1e400}}",
        "{\"schema\":3,\"config\":{\"seed\":9007199254740993}}",
        "{\"schema\":3,\"steps\":{}}",
        "{\"schema\":3,\"config\":{\"heads\":01}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_file("malformed.json", texts[i]);
        static const char *const lines[] = {"explain @/malformed.json", "repro @/malformed.json",
                                            "run @/malformed.json --out @/m.jsonl"};
        for (size_t j = 0; j < sizeof lines / sizeof lines[0]; j++) {
            int code = run(lines[j]);
            if (code != 4) {
                print_message("%s: %d\n%s%s", texts[i], code, err_text, out_text);
            }
            assert_int_equal(code, 4);
            assert_int_equal(count_lines(err_text), 1);
        }
    }
    assert_int_equal(access(in_folder("m.jsonl"), F_OK), -1);
    static char deep[100001];
    memset(deep, '[', sizeof deep - 1);
    write_file("malformed", deep);
    assert_int_equal(run("explain @/malformed"), 4);
    assert_int_equal(count_lines(err_text), 1);
}

static void a_backend_that_is_not_here_is_3(void **state) {
    (void)state;
    struct hb_error err = {.struct_size = sizeof err};
    if (hb_backend_available(hb_backend_find("cuda"), &err) == HB_OK) {
        print_message("the cuda backend is here: nothing to refuse\n");
        return;
    }
    static const struct bad rows[] = {
        {"fuzz forward --backend cuda --count 1", 3, "the backend 'cuda'"},
        {"run @/good.case --backend cuda --out @/c.jsonl", 3, "the backend 'cuda'"},
        {"repro @/good.case --backend cuda", 3, "the backend 'cuda'"},
        {"repro @/good.case --compare cuda", 3, "the backend 'cuda'"},
        {"check --backend cuda", 3, "the backend 'cuda'"},
    };
    check_bad(rows, sizeof rows / sizeof rows[0]);
    assert_int_equal(access(in_folder("c.jsonl"), F_OK), -1);
    assert_int_equal(access(in_folder("findings"), F_OK), -1);
}

static void an_engine_or_defect_that_is_not_here_is_3(void **state) {
    (void)state;
    if (access(HB_BUILD_DIR "/hbfuzz-forward", X_OK) != 0) {
        static const struct bad row = {"fuzz forward --engine libfuzzer", 3,
                                       "hbfuzz-forward does not exist"};
        check_bad(&row, 1);
    }
#ifndef HB_DEFECTS
    static const struct bad rows[2] = {
        {"fuzz forward --defect 1", 3, "this build has no planted defects"},
        {"check --defect 1", 3, "this build has no planted defects"}};
    check_bad(rows, 2);
#endif
}

/* --- what is asked for
 * ---------------------------------------------------------------------------------------------- */

static void check_help(const char *line) {
    assert_int_equal(run(line), 0);
    assert_string_equal(err_text, "");
    const char *examples = strstr(out_text, "\nexamples:\n");
    assert_non_null(examples);
    assert_int_equal(count_lines(examples + strlen("\nexamples:\n")), 2);
    for (const char *p = out_text; *p; p += strcspn(p, "\n") + 1) {
        size_t n = strcspn(p, "\n");
        if (n > 80) {
            print_message("%.*s\n", (int)n, p);
        }
        assert_true(n <= 80);
    }
}

static void help_fits_and_ends_with_two_examples(void **state) {
    (void)state;
    static const char *const verbs[] = {"doctor", "list",  "gen",     "run",
                                        "fuzz",   "repro", "explain", "check"};
    check_help("--help");
    check_help("-h");
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "%s --help", verbs[i]);
        check_help(line);
        (void)snprintf(line, sizeof line, "help %s", verbs[i]);
        check_help(line);
    }
}

static void version_and_doctor_say_what_was_built(void **state) {
    (void)state;
    assert_int_equal(run("--version"), 0);
    assert_int_equal(strncmp(out_text, "hbfuzz ", 7), 0);
    assert_int_equal(count_lines(out_text), 1);
    assert_int_equal(run("doctor"), 0);
    static const char *const words[] = {"\ncommit ",     "\ncompiler ", "\nbuild ",
                                        "\nsanitizers ", "\ncuda ",     "\ndevice ",
                                        "\nbackend ",    "\nengine ",   "\nlibraries "};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        assert_non_null(strstr(out_text, words[i]));
    }
}

/* Processor time, which does not depend on what else the machine does. */
static double children_seconds(void) {
    struct rusage r;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &r), 0);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

static void commands_start_in_50_ms(void **state) {
    (void)state;
    double best = 1;
    for (int i = 0; i < 10; i++) {
        double before = children_seconds();
        assert_int_equal(run("list --modes"), 0);
        double t = children_seconds() - before;
        best = t < best ? t : best;
    }
    assert_true(best < 0.05);
}

static void list_is_one_json_object(void **state) {
    (void)state;
    static const char *const names[] = {"\"targets\"",  "\"backends\"", "\"modes\"",
                                        "\"statuses\"", "\"rules\"",    "\"relations\"",
                                        "\"defects\"",  "\"control\""};
    assert_int_equal(run("list --json"), 0);
    assert_int_equal(out_text[0], '{');
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_non_null(strstr(out_text, names[i]));
    }
    assert_int_equal(run("list --json --modes"), 0);
    assert_non_null(strstr(out_text, "TARGET_VERIFY"));
    assert_null(strstr(out_text, "\"rules\""));
    assert_int_equal(run("list"), 0);
    assert_non_null(strstr(out_text, "HB_ERR_INVALID_MODE"));
}

static void gen_is_a_function_of_its_options(void **state) {
    (void)state;
    static char first[TEXT_CAP];
    assert_int_equal(run("gen --seed 5 --count 3"), 0);
    memcpy(first, out_text, sizeof first);
    assert_int_equal(run("gen --seed=5 --count=0x3"), 0);
    assert_string_equal(first, out_text);
    assert_int_equal(run("gen --seed 6 --count 3"), 0);
    assert_string_not_equal(first, out_text);
    assert_int_equal(run("gen --seed 5 --count 20 -o @/gen/deep"), 0);
    assert_true(count_files("gen/deep") > 15); /* equal cases share a name */
    assert_int_equal(run("gen --seed 5 --count 20 --format json -o @/gen/json"), 0);
    assert_int_equal(count_files("gen/json"), count_files("gen/deep"));
}

static void explain_of_explain_is_the_same(void **state) {
    (void)state;
    static char first[TEXT_CAP];
    assert_int_equal(run("explain @/good.case"), 0);
    memcpy(first, out_text, sizeof first);
    assert_non_null(strstr(first, "\"predicted\""));
    write_file("again.json", first);
    assert_int_equal(run("explain @/again.json"), 0);
    assert_string_equal(first, out_text);
}

static void run_of_good_cases_is_0(void **state) {
    (void)state;
    assert_int_equal(run("run @/good.case --backend oracle --stats"), 0);
    assert_string_equal(last_line(out_text), "run: 1 cases, 1 passed, 0 findings, 0 skipped\n");
    assert_int_equal(run("run @/good.case --backend oracle --out @/records.jsonl"), 0);
    static char records[TEXT_CAP];
    read_back(in_folder("records.jsonl"), records);
    assert_int_equal(count_lines(records), 2);
    static const char *const keys[] = {"\"schema\":1",
                                       "\"commit\":",
                                       "\"compiler\":",
                                       "\"build\":",
                                       "\"device\":",
                                       "\"backend\":\"oracle\"",
                                       "\"profile\":",
                                       "\"variant\":",
                                       "\"seed\":",
                                       "\"id\":",
                                       "\"verdict\":\"pass\"",
                                       "\"check\":",
                                       "\"fingerprint\":",
                                       "\"us\":",
                                       "\"max_ratio\":",
                                       "\"rules_broken\":[",
                                       "\"second_run\":",
                                       "\"record\":\"summary\""};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        assert_non_null(strstr(records, keys[i]));
    }
    assert_int_equal(run("run @/good.case --backend oracle --format jsonl"), 0);
    assert_int_equal(out_text[0], '{');
    assert_int_equal(run("run --gen 5 --backend oracle"), 0);
    assert_non_null(strstr(out_text, "run: 5 cases"));
}

/* A corpus of no step hits no rule; a wrong mode and a right one hit one rule. */
static void run_says_what_was_covered(void **state) {
    (void)state;
    write_file("nothing.json", "{\"schema\":3,\"target\":\"forward\"}");
    assert_int_equal(run("run @/nothing.json"), 0);
    assert_non_null(strstr(out_text, "rules hit both ways: 0 of "));
    assert_non_null(strstr(out_text, "statuses seen: 1 of 12\n"));
    assert_null(strstr(out_text, "  rule "));
    assert_int_equal(run("run @/nothing.json -v"), 0);
    assert_non_null(strstr(out_text, "  rule 10 MODE_INVALID: not reached\n"));
    assert_non_null(strstr(out_text, "  rule 200 CFG_LAYERS: kept, never broken\n"));
    assert_non_null(strstr(out_text, "  rule 158 BUFFER_RANGE: no case can break it: "));
    assert_non_null(strstr(out_text, "  status HB_ERR_RANGE: not seen\n"));
    assert_int_equal(run("run @/nothing.json --json"), 0);
    assert_non_null(strstr(out_text, "\"rules_hit_both_ways\":0,"));
    assert_non_null(strstr(out_text, "\"statuses_seen\":1,\"statuses\":12,"));
    assert_non_null(strstr(out_text, "\"rules_not_broken\":[1,2,3,4,5,9,10,12,"));
    write_file("mode.json", "{\"schema\":3,\"target\":\"forward\",\"steps\":["
                            "{\"kind\":\"forward\",\"mode\":7},{\"kind\":\"forward\",\"mode\":\"IDLE\"}]}");
    assert_int_equal(run("run @/mode.json @/nothing.json"), 0);
    assert_non_null(strstr(out_text, "rules hit both ways: 1 of "));
    assert_non_null(strstr(out_text, "statuses seen: 2 of 12\n"));
}

static void fuzz_ends_with_its_line(void **state) {
    (void)state;
    assert_int_equal(run("fuzz dispatch --backend oracle --count 50 --engine plain -o @/fuzz"), 0);
    assert_int_equal(strncmp(last_line(out_text), "dispatch: 50 cases, ", 20), 0);
    assert_non_null(strstr(last_line(out_text), " cases/s, 0 findings\n"));
    assert_int_equal(access(in_folder("fuzz/records.jsonl"), R_OK), 0);
}

static void repro_says_whether_runs_agree(void **state) {
    (void)state;
    assert_int_equal(run("repro @/good.case --backend oracle --times 3"), 0);
    assert_non_null(strstr(out_text, "same verdict in 3 of 3 runs"));
}

#ifdef HB_DEFECTS
static void check_passes_a_planted_defect_on(void **state) {
    (void)state;
    assert_int_equal(run("check --quiet --filter conv_w4"), 0);
    assert_int_equal(run("check --quiet --filter conv_w4 --defect CONV_SHORT_PROMPT"), 1);
    assert_string_equal(last_line(out_text), "check: 0 passed, 1 failed, 0 skipped\n");
    assert_int_equal(run("check --verbose --filter lightning_core"), 0);
    assert_non_null(strstr(out_text, "lightning_core_varlen needs lightning gate_norm=none"));
    assert_non_null(strstr(out_text, "\nlightning_core   bf16  y a"));
    assert_string_equal(last_line(out_text), "check: 1 passed, 0 failed, 0 skipped\n");
}

/* A planted defect from fuzz to repro: found, saved, confirmed, same verdict each time, silent
 * without the defect. */
static void a_planted_defect_is_found_and_reproduced(void **state) {
    (void)state;
    char line[512];
    assert_int_equal(run("fuzz forward --defect NEIGHBOUR_SLOT --time 60 --stop-at-first --engine "
                         "plain -o @/planted"),
                     1);
    assert_non_null(strstr(out_text, "first finding after "));
    const char *file = strstr(out_text, "repro: hbfuzz repro ");
    assert_non_null(file);
    file += strlen("repro: hbfuzz repro ");
    (void)snprintf(line, sizeof line, "repro %.*s --times 3 --defect 9", (int)strcspn(file, " "),
                   file);
    assert_int_equal(run(line), 1);
    assert_non_null(strstr(out_text, "same verdict in 3 of 3 runs"));
    assert_non_null(strstr(out_text, "  check        "));
    assert_int_equal(run("run @/planted --defect 9"), 1);
}
#endif

static void an_interrupt_is_130_and_keeps_what_was_done(void **state) {
    (void)state;
    pid_t pid = start("fuzz dispatch --backend oracle --time 60 --engine plain -o @/stopped");
    (void)usleep(700000);
    assert_int_equal(kill(pid, SIGINT), 0);
    assert_int_equal(finish(pid), 130);
    assert_int_equal(strncmp(last_line(out_text), "dispatch: ", 10), 0);
    static char records[TEXT_CAP];
    read_back(in_folder("stopped/records.jsonl"), records);
    assert_non_null(strstr(records, "\"interrupted\":true"));
}

static void the_nearest_name_is_near(void **state) {
    (void)state;
    static const struct {
        const char *text, *near;
    } rows[] = {{"emu", "emu"},
                {"EMU", "emu"},
                {"emo", "emu"},
                {"orcale", "oracle"},
                {"cud", "cuda"},
                {"xyzzyxyzzy", NULL},
                {"or", "oracle"},
                {"", NULL},
                {"a-very-long-word-that-is-longer-than-the-limit-of-the-table", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *near =
            hb_nearest(rows[i].text, hb_names_backend.count(), hb_names_backend.name);
        if (rows[i].near) {
            assert_string_equal(near, rows[i].near);
        } else {
            assert_null(near);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_command_lines_are_2),
        cmocka_unit_test(files_that_cannot_be_read_are_4),
        cmocka_unit_test(folders_that_cannot_be_written_are_4),
        cmocka_unit_test(malformed_cases_are_4_with_a_reason),
        cmocka_unit_test(a_backend_that_is_not_here_is_3),
        cmocka_unit_test(an_engine_or_defect_that_is_not_here_is_3),
        cmocka_unit_test(help_fits_and_ends_with_two_examples),
        cmocka_unit_test(version_and_doctor_say_what_was_built),
        cmocka_unit_test(commands_start_in_50_ms),
        cmocka_unit_test(list_is_one_json_object),
        cmocka_unit_test(gen_is_a_function_of_its_options),
        cmocka_unit_test(explain_of_explain_is_the_same),
        cmocka_unit_test(run_of_good_cases_is_0),
        cmocka_unit_test(run_says_what_was_covered),
        cmocka_unit_test(fuzz_ends_with_its_line),
        cmocka_unit_test(repro_says_whether_runs_agree),
#ifdef HB_DEFECTS
        cmocka_unit_test(check_passes_a_planted_defect_on),
        cmocka_unit_test(a_planted_defect_is_found_and_reproduced),
#endif
        cmocka_unit_test(an_interrupt_is_130_and_keeps_what_was_done),
        cmocka_unit_test(the_nearest_name_is_near),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
