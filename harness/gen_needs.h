/* SPDX-License-Identifier: Apache-2.0
 * What a recipe needs of the case and of the step it is applied to: one bit each. A generator that is told of a need bends
 * its history towards it; offers() of gen_recipes.c says whether a place meets it. */
#ifndef HB_HARNESS_GEN_NEEDS_H
#define HB_HARNESS_GEN_NEEDS_H

#include <stdint.h>

#define HB_NEED_EXTEND (UINT64_C(1) << 0) /* an extend row in a mode of the extend family */
#define HB_NEED_DECODE (UINT64_C(1) << 1) /* mode DECODE with a row */
#define HB_NEED_M2 (UINT64_C(1) << 2) /* MIXED with native decode rows */
#define HB_NEED_TRACK (UINT64_C(1) << 3) /* a tracked row */
#define HB_NEED_TWO_TRACKS (UINT64_C(1) << 4) /* two of them */
#define HB_NEED_TWO_ROWS (UINT64_C(1) << 5)
#define HB_NEED_ATTENTION (UINT64_C(1) << 6)
#define HB_NEED_PREFIX (UINT64_C(1) << 7) /* a row whose request has tokens */
#define HB_NEED_PADDING (UINT64_C(1) << 8) /* a padding row */
#define HB_NEED_START_LOC (UINT64_C(1) << 9) /* the optional array is given */
#define HB_NEED_LENS_CPU (UINT64_C(1) << 10) /* extend_seq_lens_cpu is given */
#define HB_NEED_NO_EXTRAS (UINT64_C(1) << 11) /* neither of these two is given */
#define HB_NEED_ORIGINAL (UINT64_C(1) << 12) /* original_batch_size is given */
#define HB_NEED_MASK (UINT64_C(1) << 13) /* a track mask is given, all false or not */
#define HB_NEED_CLAMP (UINT64_C(1) << 14)
#define HB_NEED_CHUNK_8 (UINT64_C(1) << 15) /* C >= 8 */
#define HB_NEED_FREE_SLOT (UINT64_C(1) << 16)
#define HB_NEED_TRACK_SLOT (UINT64_C(1) << 17)
#define HB_NEED_OUTSIDER (UINT64_C(1) << 18) /* a live request outside the batch */
#define HB_NEED_ROW (UINT64_C(1) << 19) /* any real row */
#define HB_NEED_NO_TRACK (UINT64_C(1) << 20)
#define HB_NEED_MAMBA (UINT64_C(1) << 21) /* a linear layer of any kind */
#define HB_NEED_LONG_ROW (UINT64_C(1) << 22) /* an extend row of two tokens or more, or two rows */
#define HB_NEED_ROOM (UINT64_C(1) << 23) /* a step more fits */
#define HB_NEED_NO_MASK (UINT64_C(1) << 24) /* no track mask at all */
#define HB_NEED_VERIFY (UINT64_C(1) << 25) /* mode TARGET_VERIFY with a row */
#define HB_NEED_TREE (UINT64_C(1) << 26) /* links, and a row of three nodes or more */
#define HB_NEED_UNIFORM (UINT64_C(1) << 27) /* no layout */
#define HB_NEED_RAGGED (UINT64_C(1) << 28) /* a layout */
#define HB_NEED_NO_LINKS (UINT64_C(1) << 29) /* and a row of two nodes or more */
#define HB_NEED_NO_VERIFY (UINT64_C(1) << 30)
#define HB_NEED_SPEC_ROWS (UINT64_C(1) << 31) /* intermediate caches of two rows or more */
#define HB_NEED_EAGER (UINT64_C(1) << 32) /* no replay */
#define HB_NEED_REPLAY (UINT64_C(1) << 33) /* of a captured graph */
#define HB_NEED_CPU (UINT64_C(1) << 34) /* seq_lens_cpu is given where it is read */
#define HB_NEED_NO_CPU (UINT64_C(1) << 35)
#define HB_NEED_LATER_TOKENS (UINT64_C(1) << 36) /* a row behind the first whose length is 2 or more */
#define HB_NEED_GRAPHS (UINT64_C(1) << 37) /* graph_init has been called */
#define HB_NEED_NO_GRAPHS (UINT64_C(1) << 38)
#define HB_NEED_CAPTURED (UINT64_C(1) << 39) /* and a batch size captured */
#define HB_NEED_TWO_GRAPH_ROWS (UINT64_C(1) << 40) /* graphs of two rows or more */
#define HB_NEED_RING (UINT64_C(1) << 41)
#define HB_NEED_PENDING (UINT64_C(1) << 42) /* a live request with records in its ring */
#define HB_NEED_VIRTUAL (UINT64_C(1) << 43)
#define HB_NEED_STATIC (UINT64_C(1) << 44) /* ids are slots */
#define HB_NEED_FEW_IDS (UINT64_C(1) << 45) /* as many ids as slots */
#define HB_NEED_LIVE (UINT64_C(1) << 46) /* a live request */
#define HB_NEED_TREE_STEP (UINT64_C(1) << 47) /* a verify with links somewhere, windows dense */
#define HB_NEED_TWO_SLOTS (UINT64_C(1) << 48) /* NS >= 2 */
#define HB_NEED_OTHER_MIXER (UINT64_C(1) << 49) /* linear layers that are not Mamba2 */
#define HB_NEED_KDA (UINT64_C(1) << 50)
#define HB_NEED_SHORT_CONV (UINT64_C(1) << 51)
#define HB_NEED_REFUSAL (UINT64_C(1) << 52) /* the child's entries refuse with rule 1 */
#define HB_NEED_LATER_LINEAR (UINT64_C(1) << 53) /* a linear layer behind the first layer */
#define HB_NEED_MAMBA2 (UINT64_C(1) << 54) /* the linear kind is Mamba2 */

#endif
