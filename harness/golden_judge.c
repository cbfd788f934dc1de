/* SPDX-License-Identifier: Apache-2.0
 * One comparison of the golden check: shares, first failure, tampering. */
#include "harness/golden_judge.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const tensor_name[HB_N_GOLDEN_TENSORS] = {"y", "ssm_state", "conv_state"};
static const char *const check_name[HB_N_GOLDEN_CHECKS] = {
    "(a) reference against stored", "(b) backend against oracle", "(c) backend against stored"};

double hb_golden_ulp(int32_t dtype, double x) {
    static const int digits_of[HB_N_FLOAT_DTYPES] = {FLT_MANT_DIG, 8, 11};
    const int digits = digits_of[dtype];
    const int least = dtype == HB_FP16 ? -13 : FLT_MIN_EXP;
    int exponent = 0;
    (void)frexp(x, &exponent); /* |x| = m 2^exponent with m in [1/2, 1) */
    if (x == 0.0 || exponent < least) {
        exponent = least; /* subnormal numbers are as dense as the smallest normal ones */
    }
    return ldexp(1.0, exponent - digits);
}

void hb_golden_judge_fail(struct hb_golden_judge *j, const char *format, ...) {
    if (j->failed) {
        return;
    }
    j->failed = 1;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(j->result->reason, sizeof j->result->reason, format, args);
    va_end(args);
}

void hb_golden_judge_element(struct hb_golden_judge *j, const struct hb_golden_place *at,
                             double got, double want, double bound) {
    const struct hb_golden_options *o = j->o;
    if (o->tamper_tensor == at->tensor && o->tamper_check == at->check &&
        o->tamper_index == at->index) {
        const double move =
            o->tamper_bounds * (bound > 0.0 ? bound : hb_golden_ulp(j->act_dtype, want));
        got += at->check == HB_GOLDEN_B ? move : 0.0;
        want += at->check == HB_GOLDEN_B ? 0.0 : move;
    }
    const double error = fabs(got - want);
    double share = error <= 0.0 ? 0.0 : error / bound;
    if (isnan(share)) {
        share = (double)INFINITY;
    }
    double *most = &j->result->share[at->tensor][at->check];
    *most = share > *most ? share : *most;
    j->result->compared[at->tensor] += at->check == HB_GOLDEN_C;
    if (!(error <= bound)) {
        hb_golden_judge_fail(
            j, "%s, %s: sequence %d, token %d, channel %d: got %.9g, want %.9g, bound %.3g",
            tensor_name[at->tensor], check_name[at->check], at->seq, at->token, at->channel, got,
            want, bound);
    }
}
