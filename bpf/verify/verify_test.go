package verify_test

import (
	"errors"
	"strings"
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/bpf/verify"
)

func assemble(t *testing.T, text string) *bpf.Program {
	t.Helper()
	insns, err := bpftest.Assemble(text, bpftest.ByHand...)
	if err != nil {
		t.Fatal(err)
	}
	return &bpf.Program{Name: "test", Insns: insns, Maps: bpftest.ByHand}
}

// lookup is the usual way to a value: in r0, or out by "none".
const lookup = "*(u32 *)(r10 -4) = 3; r2 = r10; r2 += -4; r1 = map counts; call map_lookup_elem; if r0 == 0 goto none;"
const none = "none: r0 = 0; exit"

const reserve = "r1 = map events; r2 = 32; r3 = 0; call ringbuf_reserve; if r0 == 0 goto none;"

// Each is wrong in one way, and the message says in which.
func TestVerifyRefuses(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"empty", "", "it has no instructions"},
		{"no exit", "r0 = 0", "runs over its end"},
		{"ends in a condition", "r0 = 0; a: if r0 == 0 goto a", "runs over its end"},
		{"unknown helper", "call 9999; exit", "helper 9999 is none of the kernel's"},
		{"helper that acts", "call 109; exit", "--unsafe does"},
		{"kernel's helper", "call 51; exit", "helper 51 (bpf_redirect_map) is not supported here"},
		{"jump out", "r0 = 0; goto +5; exit", "goes to instruction 7, which is outside"},
		{"jump before", "r0 = 0; goto -9; exit", "goes to instruction -7, which is outside"},
		{"into ld_imm64", "r0 = 0; goto +1; r1 = 1 ll; exit", "middle of the ld_imm64 at 2"},
		{"division by zero", "r0 = 1; r0 /= 0; exit", "division by zero"},
		{"remainder by zero", "r0 = 1; w0 %= 0; exit", "division by zero"},
		{"shift too far", "r0 = 1; r0 <<= 64; exit", "shift by 64 of 64 bits"},
		{"shift too far in 32 bits", "r0 = 1; w0 >>= 32; exit", "shift by 32 of 32 bits"},
		{"write r10", "r10 = 1; r0 = 0; exit", "r10 is the frame pointer and cannot be written"},
		{"add to r10", "r10 += -8; r0 = 0; exit", "r10 is the frame pointer"},
		{"jump between functions", "call f; exit; r1 = 0; x: r0 = 0; exit; f: goto x", "in another function"},

		{"result not set", "exit", "r0, the result, was never set on this path: return 0"},
		{"result not set on one path", "r1 = *(u64 *)(r1 +0); if r1 == 0 goto a; r0 = 0; a: exit", "r0, the result, was never set"},
		{"pointer as result", "r0 = r10; exit", "it returns a pointer to the stack: return a number"},
		{"context as result", "r0 = r1; exit", "it returns the context"},
		{"unset register", "r0 = r3; exit", "r3 is read, but on this path nothing was put there"},
		{"register after a call", "call ktime_get_ns; r0 = r1; exit", "r1 is read, but on this path nothing was put there (calls leave r1 to r5"},
		{"unset operand", "r0 = 0; r0 += r7; exit", "r7 is read"},
		{"unset condition", "r0 = 0; if r8 == 0 goto +0; exit", "r8 is read"},

		{"load from a number", "r0 = *(u64 *)(r1 +112); r0 = *(u64 *)(r0 +0); exit", "r0 is a number, not a pointer into memory of the program: read the target's memory with bpf_probe_read_user"},
		{"load from NULL", "r1 = 0; r0 = *(u64 *)(r1 +0); exit", "r1 is NULL on this path"},
		{"store to a number", "r1 = 4096; *(u64 *)(r1 +0) = 1; r0 = 0; exit", "r1 is the number 4096, not a pointer"},

		{"context written", "*(u64 *)(r1 +80) = 1; r0 = 0; exit", "the context is read-only: a return value is set with bpf_override_return"},
		{"beyond the context", "r0 = *(u64 *)(r1 +168); exit", "r1 is beyond the context (struct pt_regs): bytes 168 to 175 of 168"},
		{"before the context", "r0 = *(u64 *)(r1 -8); exit", "r1 is beyond the context (struct pt_regs): bytes -8 to -1 of 168"},
		{"context misaligned", "r0 = *(u32 *)(r1 +2); exit", "4 bytes of the context at an offset that is no multiple of 4"},
		{"context by an index that is too far", "r2 = *(u64 *)(r1 +0); r2 &= 255; r1 += r2; r0 = *(u8 *)(r1 +0); exit", "r1 may be beyond the context (struct pt_regs): bytes 0 to 255 of 168"},
		{"context by a helper, or other memory", "r6 = r1; r3 = *(u64 *)(r1 +112); r2 = r3; if r2 > 7 goto read; r4 = *(u64 *)(r6 +8); r4 &= 255; r3 = r6; r3 += r4; read: r1 = r10; r1 += -8; r2 = 8; call probe_read; r0 = 0; exit",
			"probe_read reads the context at an offset that is not known on one path, and other memory on another: make two calls of it"},
		{"context atomically", "r0 = 0; lock add *(u64 *)(r1 +0), r0; exit", "the context is read-only"},

		{"above the stack", "r0 = *(u64 *)(r10 +0); exit", "r10 is beyond the stack: bytes 0 to 7 from r10, of -512 to -1"},
		{"below the stack", "*(u64 *)(r10 -520) = 0; r0 = 0; exit", "r10 is beyond the stack: bytes -520 to -513 from r10, of -512 to -1"},
		{"stack not written", "r0 = *(u64 *)(r10 -8); exit", "the stack at r10-8 was never written on this path"},
		{"stack half written", "*(u32 *)(r10 -8) = 1; r0 = *(u64 *)(r10 -8); exit", "the stack at r10-4 was never written"},
		{"stack misaligned", "*(u64 *)(r10 -12) = 1; r0 = 0; exit", "8 bytes of a pointer to the stack at an offset that is no multiple of 8"},
		{"stack by an unbounded index", "r1 = *(u64 *)(r1 +0); r2 = r10; r2 += r1; *(u8 *)(r2 +0) = 1; r0 = 0; exit", "a pointer to the stack is moved by any number: bound the number first"},
		{"stack by an index too large", "r1 = *(u64 *)(r1 +0); r1 &= 63; r2 = r10; r2 += -32; r2 += r1; *(u8 *)(r2 +0) = 1; r0 = 0; exit", "r2 may be beyond the stack: bytes -32 to 31 from r10"},
		{"stack written at an unknown place", "r2 = *(u64 *)(r1 +0); r2 &= 7; r3 = r10; r3 += -8; r3 += r2; *(u8 *)(r3 +0) = 1; r0 = *(u8 *)(r10 -8); exit", "the stack at r10-8 was never written"},
		{"spilled pointer overwritten somewhere", "*(u64 *)(r10 -8) = r1; r2 = *(u64 *)(r1 +0); r2 &= 7; r3 = r10; r3 += -8; r3 += r2; *(u8 *)(r3 +0) = 1; r4 = *(u64 *)(r10 -8); r0 = *(u64 *)(r4 +0); exit", "the stack at r10-8 holds a pointer"},
		{"spilled number overwritten somewhere", "r6 = *(u64 *)(r1 +0); r6 &= 7;" + lookup + "r7 = 8; *(u64 *)(r10 -16) = r7; r3 = r10; r3 += -16; r3 += r6; *(u8 *)(r3 +0) = 255; r4 = *(u64 *)(r10 -16); r0 += r4; r0 = *(u64 *)(r0 +0);" + none, "is moved by any number"},
		{"buffer filled to an unknown length", "r6 = r1; r2 = *(u64 *)(r1 +0); r2 &= 7; r1 = r10; r1 += -8; r3 = 0; call probe_read_user; r0 = 0; exit", "the stack at r10-8 was never written"},
		{"part of a spilled pointer", "*(u64 *)(r10 -8) = r1; r2 = *(u64 *)(r10 -8); r0 = *(u32 *)(r10 -8); exit", "the stack at r10-8 holds a pointer"},
		{"pointer in a hidden place", "r2 = r10; *(u64 *)(r2 -8) = r1; r0 = *(u64 *)(r10 -8); exit", "the stack at r10-8 holds a pointer"},
		{"half a pointer stored", "*(u32 *)(r10 -8) = r1; r0 = 0; exit", "it stores a part of a pointer"},
		{"too much stack together", "*(u64 *)(r10 -400) = 0; call f; exit; f: *(u64 *)(r10 -200) = 0; r0 = 0; exit", "its functions take 608 bytes of stack together, more than 512"},

		{"value not tested", "*(u32 *)(r10 -4) = 3; r2 = r10; r2 += -4; r1 = map counts; call map_lookup_elem; r0 = *(u64 *)(r0 +0); exit",
			`r0 is a pointer to a value of map "counts" that may be NULL: compare it with 0 before`},
		{"value tested the wrong way", "*(u32 *)(r10 -4) = 3; r2 = r10; r2 += -4; r1 = map counts; call map_lookup_elem; if r0 != 0 goto none; r0 = *(u64 *)(r0 +0); none: r0 = 0; exit",
			"r0 is NULL on this path"},
		{"value moved before the test", "*(u32 *)(r10 -4) = 3; r2 = r10; r2 += -4; r1 = map counts; call map_lookup_elem; r0 += 8; r0 = 0; exit",
			`arithmetic on a pointer to a value of map "counts" that may be NULL: compare it with 0 before`},
		{"beyond a value", lookup + "r0 = *(u64 *)(r0 +60);" + none, `r0 is beyond the value of map "counts": bytes 60 to 67 of 64`},
		{"before a value", lookup + "r0 = *(u64 *)(r0 -8);" + none, `r0 is beyond the value of map "counts": bytes -8 to -1 of 64`},
		{"value by an index too large", "r6 = *(u64 *)(r1 +0); r6 &= 64;" + lookup + "r0 += r6; r0 = *(u64 *)(r0 +0);" + none,
			`r0 may be beyond the value of map "counts": bytes 0 to 71 of 64: test the index before`},
		{"value by an index signed", "r6 = *(u64 *)(r1 +0);" + lookup + "if r6 s> 7 goto none; r6 <<= 3; r0 += r6; r0 = *(u64 *)(r0 +0);" + none,
			"is moved by any number: bound the number first"},
		{"value by an index off by one", "r6 = *(u64 *)(r1 +0);" + lookup + "if r6 > 8 goto none; r6 <<= 3; r0 += r6; r0 = *(u64 *)(r0 +0);" + none,
			`r0 may be beyond the value of map "counts": bytes 0 to 71 of 64`},
		{"pointer in a value", lookup + "*(u64 *)(r0 +0) = r10;" + none, `it stores a pointer to the stack in a pointer to a value of map "counts"`},
		{"pointer added to a value", lookup + "lock add *(u64 *)(r0 +0), r10;" + none, "it stores a pointer to the stack: atomic operations are on numbers"},
		{"atomic misaligned", lookup + "r1 = 1; lock add *(u64 *)(r0 +4), r1;" + none, "at an offset that is no multiple of 8"},
		{"map dereferenced", "r1 = map counts; r0 = *(u64 *)(r1 +0); exit", `r1 is map "counts" itself: look a value up with bpf_map_lookup_elem`},
		{"map moved", "r1 = map counts; r1 += 8; r0 = 0; exit", `arithmetic on map "counts": it can only be given to helpers`},
		{"read-only data written", "r1 = value config; *(u32 *)(r1 +0) = 1; r0 = 0; exit", `map "config" is read-only for programs`},
		{"read-only map updated", "*(u32 *)(r10 -4) = 0; r2 = r10; r2 += -4; r1 = map config; r3 = value data; r4 = 0; call map_update_elem; r0 = 0; exit", `map "config" is read-only for programs`},
		{"write-only data read", "r1 = value out; r0 = *(u32 *)(r1 +0); exit", `map "out" is write-only for programs`},

		{"key not written", "r2 = r10; r2 += -4; r1 = map counts; call map_lookup_elem; r0 = 0; exit", "the stack at r10-4 was never written on this path (it is read from r10-4 to r10-1): set the whole variable, its padding too"},
		{"key too short", "*(u32 *)(r10 -4) = 0; r2 = r10; r2 += -4; r1 = map start; call map_lookup_elem; r0 = 0; exit", "r2 is beyond the stack: bytes -4 to 3 from r10"},
		{"key is a number", "r2 = 4; r1 = map counts; call map_lookup_elem; r0 = 0; exit", "r2 is the number 4, not a pointer"},
		{"map is a number", "r1 = 4; r2 = r10; call map_lookup_elem; r0 = 0; exit", "argument 1 of map_lookup_elem (r1) is the number 4: it must be a map"},
		{"lookup in a ring", "*(u32 *)(r10 -4) = 0; r2 = r10; r2 += -4; r1 = map events; call map_lookup_elem; r0 = 0; exit", `map_lookup_elem does not work on map "events", which is a ring buffer`},
		{"lookup of a stack that could be written over", "*(u32 *)(r10 -4) = 0; r2 = r10; r2 += -4; r1 = map stacks; call map_lookup_elem; r0 = 0; exit", `map_lookup_elem does not work on map "stacks"`},
		{"output to an array", "*(u32 *)(r10 -4) = 0; r2 = r10; r2 += -4; r1 = map counts; r3 = 4; r4 = 0; call ringbuf_output; r0 = 0; exit", `ringbuf_output does not work on map "counts"`},
		{"argument not set", "r1 = map counts; call map_lookup_elem; exit", "argument 2 of map_lookup_elem (r2) is nothing: it must be set"},
		{"context of its own making", "r1 = r10; call get_func_ip; exit", "argument 1 of get_func_ip (r1) is a pointer to the stack: it must be the context, as the program got it"},
		{"context moved", "r1 += 8; call get_func_ip; exit", "it must be the context, as the program got it"},

		{"buffer of unknown size", "r3 = r1; r2 = *(u64 *)(r1 +0); r1 = r10; r1 += -64; r3 = 0; call probe_read_user; r0 = 0; exit", "the number of bytes, may be any number: it must be 0 or more, and bounded"},
		{"buffer too small", "r3 = 0; r1 = r10; r1 += -16; r2 = 32; call probe_read_user; r0 = 0; exit", "r1 is beyond the stack: bytes -16 to 15 from r10"},
		{"size may be negative", "r2 = *(u64 *)(r1 +0); if r2 s> 16 goto a; r1 = r10; r1 += -16; r3 = 0; call probe_read_user; a: r0 = 0; exit", "the number of bytes, may be"},
		{"comm of no bytes", "r1 = r10; r1 += -16; r2 = 0; call get_current_comm; r0 = 0; exit", "the number of bytes, may be 0: it must be 1 or more"},
		{"read into the context", "r2 = 8; r3 = 0; call probe_read_user; r0 = 0; exit", "the context is read-only"},
		{"read of the own stack", "*(u64 *)(r10 -8) = 0; r1 = r10; r1 += -8; r2 = 8; r3 = r10; call probe_read_kernel; r0 = 0; exit", "argument 3 of probe_read_kernel (r3) is a pointer to the stack"},
		{"pointer as flags", "r3 = r10; r1 = map events; r2 = 8; call ringbuf_reserve; r0 = 0; exit", "argument 3 of ringbuf_reserve (r3) is a pointer to the stack: it must be a number"},
		{"buffer partly written", "*(u32 *)(r10 -8) = 1; r2 = r10; r2 += -8; r1 = map events; r3 = 8; r4 = 0; call ringbuf_output; r0 = 0; exit", "the stack at r10-4 was never written"},
		{"pointer given out", "*(u64 *)(r10 -8) = r1; r2 = r10; r2 += -8; r1 = map events; r3 = 8; r4 = 0; call ringbuf_output; r0 = 0; exit", "the stack at r10-8 holds a pointer"},

		{"record kept", reserve + "r0 = 0; exit;" + none, "the record reserved by instruction 4 is neither submitted nor discarded on this path"},
		{"record kept on one path", "r6 = *(u64 *)(r1 +0);" + reserve + "if r6 == 0 goto none; r1 = r0; r2 = 0; call ringbuf_submit;" + none, "neither submitted nor discarded"},
		{"record not tested", "r1 = map events; r2 = 32; r3 = 0; call ringbuf_reserve; *(u64 *)(r0 +0) = 1; r0 = 0; exit", "r0 is a pointer to a ring record that may be NULL"},
		{"record used after", reserve + "r6 = r0; r1 = r0; r2 = 0; call ringbuf_submit; *(u64 *)(r6 +0) = 1;" + none, "r6 is read, but on this path nothing was put there"},
		{"result of a submit", reserve + "r1 = r0; r2 = 0; call ringbuf_submit; exit;" + none, "r0, the result, was never set on this path"},
		{"record twice", reserve + "r6 = r0; r1 = r0; r2 = 0; call ringbuf_submit; r1 = r6; r2 = 0; call ringbuf_discard;" + none, "r6 is read"},
		{"beyond a record", reserve + "*(u64 *)(r0 +32) = 1; r1 = r0; r2 = 0; call ringbuf_submit;" + none, "r0 is beyond the ring record: bytes 32 to 39 of 32"},
		{"record by its middle", reserve + "r1 = r0; r1 += 8; r2 = 0; call ringbuf_submit;" + none, "it must be what ringbuf_reserve gave"},
		{"submit of a value", lookup + "r1 = r0; r2 = 0; call ringbuf_submit;" + none, "it must be what ringbuf_reserve gave"},
		{"size of a record unknown", "r2 = *(u64 *)(r1 +0); r1 = map events; r3 = 0; call ringbuf_reserve; r0 = 0; exit", "it must be a number that is known when the program is loaded"},

		{"private data of a size unknown", "r2 = *(u64 *)(r1 +0); call call_data; r0 = 0; exit", "it must be a number that is known when the program is loaded"},
		{"too much private data", "r2 = 4104; call call_data; r0 = 0; exit", "4104 bytes, at most 4096"},
		{"beyond the private data", "r2 = 12; call call_data; r1 = *(u64 *)(r0 +8); r0 = 0; exit", "r0 is beyond the call's private data: bytes 8 to 15 of 12"},
		{"before the private data", "r2 = 16; call call_data; *(u8 *)(r0 -1) = 1; r0 = 0; exit", "r0 is beyond the call's private data"},
		{"pointer into private data", "r6 = r1; r2 = 8; call call_data; *(u64 *)(r0 +0) = r6; r0 = 0; exit", "it stores the context in a pointer to the call's private data"},

		{"endless", "r0 = 0; a: goto a", "may loop here for ever"},
		{"endless with a test", "r0 = 0; r2 = *(u64 *)(r1 +0); a: if r2 != 0 goto a; exit", "may loop here for ever"},
		{"endless, other things change", "r0 = 0; r2 = *(u64 *)(r1 +0); a: r0 += 1; if r2 != 0 goto a; exit", "may loop here for ever"},
		{"bound unknown", "r0 = 0; r2 = *(u64 *)(r1 +0); a: r0 += 1; if r0 != r2 goto a; exit", "too complex"},
		{"recursion", "call f; exit; f: r0 = 0; call f; exit", "there is no recursion"},
		{"recursion by another", "call f; exit; f: call g; exit; g: call f; exit", "there is no recursion"},
		{"too deep", "call a; exit; a: call b; exit; b: call c; exit; c: call d; exit; d: call e; exit; e: call f; exit; f: call g; exit; g: call h; exit; h: r0 = 0; exit", "calls are nested deeper than 8"},
		{"register of the caller", "r6 = 1; call f; exit; f: r0 = r6; exit", "r6 is read"},
		{"stack of a function that ended", "call f; r0 = *(u64 *)(r0 -8); exit; f: *(u64 *)(r10 -8) = 1; r0 = r10; exit", "it returns the address of its own stack"},

		{"product of a pointer", "r1 *= 2; r0 = 0; exit", "arithmetic on the context: only adding to a pointer and subtracting"},
		{"pointer in 32 bits", "w1 += 4; r0 = 0; exit", "arithmetic on the context"},
		{"negated pointer", "r1 = -r1; r0 = 0; exit", "arithmetic on the context"},
		{"half of a pointer", "w2 = w1; r0 = 0; exit", "it takes a part of r1, which is the context"},
		{"pointer minus", "r2 = 5; r2 -= r1; r0 = 0; exit", "arithmetic on the context"},
		{"sum of pointers", "r1 += r10; r0 = 0; exit", "the sum of two pointers"},
		{"difference of strangers", "r1 -= r10; r0 = 0; exit", "the difference of pointers to different things"},
		{"comparing halves", "r0 = 0; if w1 == 0 goto +0; exit", "it compares a part of a pointer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := verify.Program(assemble(t, tt.text))
			var v *bpf.VerifyError
			if !errors.As(err, &v) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestVerifyAccepts(t *testing.T) {
	tests := []struct{ name, text string }{
		{"nothing", "r0 = 0; exit"},
		{"context", "r0 = *(u64 *)(r1 +112); exit"},
		{"context in parts", "r0 = *(u8 *)(r1 +1); r2 = *(u32 *)(r1 +164); r0 += r2; exit"},
		{"context, moved by a constant", "r1 += 8; r0 = *(u64 *)(r1 +104); exit"},
		{"value", lookup + "r1 = 1; lock add *(u64 *)(r0 +8), r1;" + none},
		{"value by an index", "r6 = *(u64 *)(r1 +0);" + lookup + "r6 &= 7; r6 <<= 3; r0 += r6; r0 = *(u64 *)(r0 +0);" + none},
		{"value by a compared index", "r6 = *(u64 *)(r1 +0);" + lookup + "if r6 > 7 goto none; r6 <<= 3; r0 += r6; r0 = *(u64 *)(r0 +0);" + none},
		{"value by an index of 32 bits", "r6 = *(u64 *)(r1 +0);" + lookup + "if w6 > 7 goto none; w6 <<= 3; r0 += r6; r0 = *(u64 *)(r0 +0);" + none},
		{"value by a copied index", "r6 = *(u64 *)(r1 +0);" + lookup + "r7 = r6; if r7 > 7 goto none; r6 <<= 3; r0 += r6; r0 = *(u64 *)(r0 +0);" + none},
		{"value by an index on the stack", "r6 = *(u64 *)(r1 +0);" + lookup + "*(u64 *)(r10 -16) = r6; if r6 > 7 goto none; r7 = *(u64 *)(r10 -16); r7 <<= 3; r0 += r7; r0 = *(u64 *)(r0 +0);" + none},
		{"value by a signed index", "r6 = *(s32 *)(r1 +0);" + lookup + "if r6 s> 7 goto none; if r6 s< 0 goto none; r6 <<= 3; r0 += r6; r0 = *(u64 *)(r0 +0);" + none},
		{"value tested by a copy", "*(u32 *)(r10 -4) = 3; r2 = r10; r2 += -4; r1 = map counts; call map_lookup_elem; r6 = r0; if r0 == 0 goto none; r0 = *(u64 *)(r6 +0);" + none},
		{"value spilled", lookup + "*(u64 *)(r10 -16) = r0; call ktime_get_ns; r1 = *(u64 *)(r10 -16); *(u64 *)(r1 +0) = r0;" + none},
		{"global data", "r1 = value data+8; r0 = *(u64 *)(r1 +0); r0 += 1; *(u64 *)(r1 +0) = r0; r0 = 0; exit"},
		{"known data decides", "r1 = value config; r2 = *(u32 *)(r1 +0); if r2 == 5 goto ok; r0 = *(u64 *)(r2 +0); ok: r0 = 0; exit"},
		{"array on the stack", "r2 = *(u64 *)(r1 +0); *(u64 *)(r10 -8) = 0; *(u64 *)(r10 -16) = 0; r2 &= 15; r3 = r10; r3 += -16; r3 += r2; *(u8 *)(r3 +0) = 7; r0 = *(u8 *)(r3 +0); exit"},
		{"record", reserve + "r1 = 7; *(u64 *)(r0 +24) = r1; r1 = r0; r2 = 0; call ringbuf_submit;" + none},
		{"records, two", reserve + "r6 = r0; r1 = map events; r2 = 8; r3 = 0; call ringbuf_reserve; if r0 == 0 goto one; r1 = r0; r2 = 0; call ringbuf_submit; one: r1 = r6; r2 = 0; call ringbuf_discard;" + none},
		{"private data", "r6 = r1; r2 = 4096; call call_data; r7 = r0; *(u64 *)(r7 +4088) = 1; r1 = r6; r2 = 16; call call_data; r1 = *(u32 *)(r0 +12); lock fetch_add *(u64 *)(r7 +8), r1; r0 = r1; exit"},
		{"string of bounded size", "r6 = r1; r1 = r10; r1 += -64; r2 = 64; r3 = *(u64 *)(r6 +112); call probe_read_user_str; if r0 s< 1 goto none; if r0 s> 64 goto none; r3 = r0; r1 = map events; r2 = r10; r2 += -64; r4 = 0; call ringbuf_output;" + none},
		{"size of a helper is a bound", "r6 = r1; r1 = r10; r1 += -64; r2 = 64; r3 = *(u64 *)(r6 +112); call probe_read_user_str; if r0 s<= 0 goto none; r3 = r0; r1 = map events; r2 = r10; r2 += -64; r4 = 0; call ringbuf_output;" + none},
		{"loop", "r0 = 0; r6 = 0; a: r0 += r6; r6 += 1; if r6 < 100 goto a; exit"},
		{"loop to a bounded number", "r7 = *(u64 *)(r1 +0); r7 &= 63; r0 = 0; r6 = 0; a: if r6 >= r7 goto out; r0 += 2; r6 += 1; goto a; out: exit"},
		{"loop down", "r0 = 0; r6 = 1000; a: r0 += r6; r6 -= 1; if r6 != 0 goto a; exit"},
		{"nested loops", "r0 = 0; r6 = 0; a: r7 = 0; b: r0 += 1; r7 += 1; if r7 < 20 goto b; r6 += 1; if r6 < 20 goto a; exit"},
		{"diamonds", "r6 = *(u64 *)(r1 +0); r0 = 0;" + strings.Repeat("if r6 & 1 goto +1; r0 += 1; r6 >>= 1;", 60) + "exit"},
		{"functions", "r6 = 5; r1 = 3; call f; r0 += r6; exit; f: r0 = r1; r0 *= 2; exit"},
		{"buffer given down", "*(u64 *)(r10 -8) = 0; r1 = r10; r1 += -8; call f; r0 = *(u64 *)(r10 -8); exit; f: *(u64 *)(r1 +0) = 7; r0 = 0; exit"},
		{"depth 8", "call a; exit; a: call b; exit; b: call c; exit; c: call d; exit; d: call e; exit; e: call f; exit; f: call g; exit; g: r0 = 0; exit"},
		{"printk without values", "r1 = value config; r2 = 8; call trace_printk; r0 = 0; exit"},
		{"unreached", "r0 = 0; exit; r0 = r9; exit"},
		{"pointers compared", "r0 = 0; if r1 == r10 goto +0; exit"},
		{"override", "r2 = 0; call override_return; r0 = 0; exit"},
		{"every operation", everyOp},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := verify.Program(assemble(t, tt.text)); err != nil {
				t.Error(err)
			}
		})
	}
}

const everyOp = `
	r0 = *(u64 *)(r1 +0); r2 = *(u64 *)(r1 +8); r3 = 0x123456789abcdef0 ll
	r0 += r2; r0 -= 5; r0 *= r3; r0 /= r2; r0 s/= 3; r0 |= r2; r0 &= r3; r0 <<= 3; r0 >>= r2; r0 %= 7; r0 s%= r2; r0 ^= -1; r0 s>>= 2; r0 = -r0
	w0 += w2; w0 -= 5; w0 *= w3; w0 /= w2; w0 s/= 3; w0 |= w2; w0 &= w3; w0 <<= 3; w0 >>= w2; w0 %= 7; w0 s%= w2; w0 ^= -1; w0 s>>= 2; w0 = -w0
	r0 = (s8)r2; r0 = (s16)r2; r0 = (s32)r2; w0 = (s8)w2; w0 = (s16)w2; w0 = w2; w0 = 7
	r0 = le16 r0; r0 = be32 r0; r0 = bswap64 r0; r0 = bswap16 r0
	*(u64 *)(r10 -8) = r0; *(u32 *)(r10 -8) = 3; *(u16 *)(r10 -6) = r2; *(u8 *)(r10 -1) = 1
	r4 = *(s32 *)(r10 -8); r4 = *(s16 *)(r10 -6); r4 = *(s8 *)(r10 -1)
	lock add *(u64 *)(r10 -8), r2; lock fetch_or *(u32 *)(r10 -8), r2; lock fetch_xor *(u64 *)(r10 -8), r2
	lock xchg *(u64 *)(r10 -8), r2; lock cmpxchg *(u32 *)(r10 -8), r2; lock fetch_and *(u32 *)(r10 -4), r4
	if r0 == 1 goto a; if w0 s< 5 goto a; if r0 & 6 goto a; if r0 <= r2 goto a
	gotol a
	a: exit`

// The proof's facts about a call hold on every path, also on those that were not walked because a
// like one was.
func TestProofIsOfAllPaths(t *testing.T) {
	const update = "*(u64 *)(r10 -8) = 1; *(u64 *)(r10 -24) = 0; *(u64 *)(r10 -16) = 0; r1 = map start; r2 = r10; r2 += -8; r3 = r10; r3 += -24; call map_update_elem; r0 = 0; exit"
	for _, tt := range []struct {
		name, text string
		known      bool
	}{
		{"one value", "r4 = 1;" + update, true},
		{"two values", "r6 = *(u64 *)(r1 +0); r4 = 0; if r6 == 0 goto a; r4 = 1; a:" + update, false},
		{"the same value twice", "r6 = *(u64 *)(r1 +0); r4 = 1; if r6 == 0 goto a; r4 = 1; a:" + update, true},
	} {
		proof, err := verify.Program(assemble(t, tt.text))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range proof.Calls {
			if c != nil && (c.Known[3] != tt.known || tt.known && c.Const[3] != 1 || c.Set != 4 || c.Map != 1) {
				t.Errorf("%s: %+v", tt.name, c)
			}
		}
	}
}
