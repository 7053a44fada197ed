package compile_test

import (
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/verify"
	"kprobe/script/builtin"
	"kprobe/script/compile"
	"kprobe/script/syntax"
)

// On a kernel memory of its own is read as such, that of processes as theirs; on a process there is one kind.
func TestReads(t *testing.T) {
	for _, kernel := range []bool{false, true} {
		src := &syntax.Source{Name: "stdin", Text: "kprobe:f { print((*(uint64 *)arg0, str(arg1))) }"}
		plan, err := compile.Compile(src, builtin.Library(), compile.Options{Kernel: kernel})
		if err != nil {
			t.Fatal(err)
		}
		calls := map[int32]int{}
		for _, in := range plan.Probes[0].Program.Insns {
			if in.IsCall(bpf.CallHelper) {
				calls[in.Imm]++
			}
		}
		want := 0
		if kernel {
			want = 1
		}
		for _, id := range []int32{bpf.FnProbeReadKernel, bpf.FnProbeReadKernelStr} {
			if calls[id] != want {
				t.Errorf("kernel %t: helper %d is called at %d places, not %d", kernel, id, calls[id], want)
			}
		}
		if calls[bpf.FnProbeReadUser] != 1 || calls[bpf.FnProbeReadUserStr] != 1 {
			t.Errorf("kernel %t: %v", kernel, calls)
		}
		if _, err := verify.Program(plan.Probes[0].Program); err != nil {
			t.Error(err)
		}
	}
}
