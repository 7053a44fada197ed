package kernel

import (
	"strings"
	"testing"

	"kprobe/arch"
)

// A record of ftrace is about the call's second instruction on riscv64. In older kernels it is
// about the first: that is told, and none of their sites is guessed.
func TestFtraceRecords(t *testing.T) {
	const text, fn = 0x1000, 0x1100
	table := kernelTable([]Symbol{{Name: "_stext", Addr: text, Type: 'T'}, {Name: "fn", Addr: fn, Type: 'T'}, {Name: "_etext", Addr: 0x2000, Type: 'T'}})
	r := &tableReader{k: &Kernel{arch: arch.RISCV64, table: table}}
	r.addFtrace(fn + 4)
	if want := (Site{fn, 8, Ftrace}); r.err != nil || len(r.sites) != 1 || r.sites[0] != want {
		t.Errorf("%+v, %v; want %+v", r.sites, r.err, want)
	}
	r.addFtrace(fn)
	if r.err == nil || !strings.Contains(r.err.Error(), "riscv64") || len(r.sites) != 1 {
		t.Errorf("%+v, %v", r.sites, r.err)
	}
}
