# SPDX-License-Identifier: Apache-2.0
# Writes the header with commit and compiler, only when it changed.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
    set(commit "unknown")
else()
    execute_process(COMMAND git -C ${SOURCE} diff --quiet HEAD RESULT_VARIABLE dirty ERROR_QUIET)
    if(dirty)
        set(commit "${commit}+")
    endif()
endif()
file(WRITE ${OUT}.new
    "#define HB_BUILD_COMMIT \"${commit}\"\n#define HB_BUILD_COMPILER \"${COMPILER}\"\n#define HB_BUILD_TYPE \"${BUILD}\"\n")
execute_process(COMMAND ${CMAKE_COMMAND} -E copy_if_different ${OUT}.new ${OUT})
