package traced

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
	"kprobe/symbol"
)

func TestLeadsTo(t *testing.T) {
	const pc, callee, goes = 0x1000, 0x2000, 0x3000
	for _, tt := range []struct {
		code string // from the constant's opcode on
		want uint64 // behind pc, 0 for nowhere
	}{
		{"b865000000 0f05", 5},
		{"c065000000 31ff 0f05", 7},            // with 48c7 before it
		{"b865000000 31ff e8f40f0000 0f05", 0}, // what is called has eax for itself
		{"b865000000 31db e8f41f0000", 7},      // syscall.RawSyscall(101, ...)
		{"bf65000000 31db e8f41f0000", 0},      // that is another argument of it
		{"b865000000 eb00 0f05", 0},            // it may be led elsewhere
		{"b865000000 06 0f05", 0},              // no instruction
		{"bf65000000 31c0 e8f40f0000", 7},      // syscall(101, ...)
		{"c765000000 31c0 e8f40f0000", 7},
		{"bf65000000 31c0 e8f50f0000", 0}, // putchar('e')
		{"bf65000000 0f05", 0},            // that is rdi of another call
		{"b965000000 0f05", 0},            // ecx
		{"b865000000", 0},                 // the text's end
		{"b865000000" + strings.Repeat("90", rawReach) + "0f05", 0},
	} {
		code, err := hex.DecodeString(strings.ReplaceAll(tt.code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		at, ok := leadsTo(code, pc, func(at arch.Addr) bool { return at == callee }, []arch.Addr{goes}, amd64.ISA)
		if ok != (tt.want != 0) || ok && at != pc+tt.want {
			t.Errorf("%s: %#x, %v, want %#x", tt.code, at, ok, pc+tt.want)
		}
	}
}

func TestCallAt(t *testing.T) {
	given := func(all ...uint64) func(int) (uint64, error) {
		return func(n int) (uint64, error) { return all[n], nil }
	}
	const ptrace, execve = 101, 59
	for _, tt := range []struct {
		function string
		off      uint64
		regs     []uint64
		ax       uint64
		want     string // "" for something else
	}{
		{"ptrace", 0, []uint64{requestSeize, 7, 0}, 1, "ptrace"},
		{"execve", 0, []uint64{requestSeize, 7, 0}, 1, "execve"},
		{"__execve", 0, []uint64{requestSeize, 7, 0}, 1, "execve"}, // another name of it
		{"execveat", 0, []uint64{requestSeize, 7, 0}, 1, "execveat"},
		{"f", 5, []uint64{requestSeize, 7, 0}, ptrace, "ptrace"}, // the system call
		{"f", 5, []uint64{ptrace, requestSeize, 7}, 0, "ptrace"}, // libc's syscall
		{"f", 5, []uint64{execve, requestSeize, 7}, 0, "execve"},
		{"f", 5, []uint64{requestTraceMe, 7, 0}, ptrace + 1, ""},
		{"f", 5, []uint64{ptrace + 1, requestTraceMe, 7}, 0, ""},
	} {
		c := CallAt(symbol.Loc{Off: tt.off, Func: symbol.Symbol{Name: tt.function}}, isa.Insn{}, given(tt.regs...), nil, tt.ax, nil)
		request, err := c.arg(0)
		if tt.want == "" {
			if err == nil {
				t.Errorf("%+v: request %#x", tt, request)
			}
			continue
		}
		if pid, err2 := c.arg(1); err != nil || err2 != nil || c.function != tt.want || request != requestSeize || pid != 7 {
			t.Errorf("%+v: %s of %#x (%v) and %d (%v)", tt, c.function, request, err, pid, err2)
		}
	}
}

// What may be an instruction with the number is found in all forms, and so are all system calls of a function.
func TestConstants(t *testing.T) {
	code, err := hex.DecodeString("90b865000000c36a65b065ba650000")
	if err != nil {
		t.Fatal(err)
	}
	if got := constants(code, 101); !slices.Equal(got, []int{1, 7, 9}) {
		t.Errorf("%d", got)
	}
	for text, want := range map[string][]uint64{
		"6a655831ffeb000f05c30f05": {0x1007, 0x100a},
		"0f05060f05":               {0x1000}, // what follows is no code
		"c3":                       nil,
	} {
		code, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := systemCalls(code, 0x1000, amd64.ISA); !slices.Equal(got, want) {
			t.Errorf("%s: %#x, want %#x", text, got, want)
		}
	}
}
