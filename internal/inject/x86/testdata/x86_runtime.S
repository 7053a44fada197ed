# The routines that live in a target beside the detours (area.go), for amd64 and i386: they find
# threads and instances, and they are the helpers that programs call. Each file below has a topic.
#
# A routine that takes the same steps on both machines is written once, with the names of
# x86_width.h. Where its code differs, the two bodies stand one under the other, i386's first.
# No line of a comment may begin with a word of the preprocessor's, such as if, or with a number.
#
# The names in capitals that are not of x86_width.h or of the file itself are offsets and numbers of
# package bpf, internal/jit, internal/segment and this one; a test passes them in. General registers
# only. Words have 8 bytes on i386, too; where they are addresses the upper half is 0 and stays so.
	.intel_syntax noprefix

#include "x86_width.h"

	.text
	.org	AREA_CODE, 0xcc
start:

# ---- Called by detours ----

#include "x86_threads.h"
#include "x86_instances.h"
#include "x86_origin.h"
#include "x86_calls.h"
#ifdef __x86_64__			/* no programs run in kernels of 32 bits */
#include "x86_slots.h"
#endif

# ---- Called by programs, on the private stack ----

#include "x86_programs.h"
#include "x86_maps.h"
#include "x86_rings.h"
#include "x86_memory.h"
#include "x86_stacks.h"
#include "x86_rest.h"
