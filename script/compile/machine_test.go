package compile_test

import (
	"strings"
	"testing"

	"kprobe/bpf/verify"
	"kprobe/script/builtin"
	"kprobe/script/compile"
	"kprobe/script/machine"
	"kprobe/script/syntax"
)

// A program reads the registers of its target's machine, and what that machine has not is refused by its name.
func TestMachines(t *testing.T) {
	for _, tt := range []struct {
		m       *machine.Machine
		text    string
		context uint64 // the words that it reads
		refused string
	}{
		{nil, `uprobe:/a:f { print(arg0) }`, 1 << 14, ""},
		{machine.ARM64, `uprobe:/a:f { print((arg0, arg7)) }`, 1<<0 | 1<<7, ""},
		{machine.ARM64, `uprobe:/a:f { print(sarg0) }`, 1 << 31, ""},
		{machine.ARM64, `uretprobe:/a:f { print(retval) }`, 1 << 0, ""},
		{machine.ARM64, `uprobe:/a:f { print((reg("x19"), reg("lr"), reg("pc"))) }`, 1<<19 | 1<<30 | 1<<32, ""},
		{nil, `uprobe:/a:f { print(arg6) }`, 0, "x86_64 doesn't support arg6"},
		{machine.ARM64, `uprobe:/a:f { print(arg8) }`, 0, "aarch64 doesn't support arg8"},
		{machine.ARM64, `uprobe:/a:f { print(reg("di")) }`, 0, "'di' is not a valid register on this architecture (aarch64)"},
		{machine.ARM64, `tracepoint:syscalls:sys_enter_read { print(1) }`, 0, "tracepoint probes are on programs of x86_64, and this one is of aarch64"},
	} {
		plan, err := compile.Compile(&syntax.Source{Name: "stdin", Text: tt.text}, builtin.Library(), compile.Options{Target: tt.m})
		if tt.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%s: %v; want %s", tt.text, err, tt.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		proof, err := verify.Program(plan.Probes[0].Program)
		if err != nil || proof.Context != tt.context {
			t.Errorf("%s: it reads the words %#x of its context, want %#x (%v)", tt.text, proof.Context, tt.context, err)
		}
	}
}
