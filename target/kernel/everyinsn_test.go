package kernel_test

import (
	"strings"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/vm/vmtest"
)

// worked are functions of the kernel's, and the number of times that the work below calls each.
// Nothing else calls them.
var worked = []struct {
	name  string
	calls uint64
}{
	{"vfs_mkdir", 2}, {"vfs_rmdir", 2}, {"vfs_link", 1}, {"vfs_symlink", 1}, {"vfs_unlink", 3},
	{"chmod_common", 1}, {"chown_common", 1}, {"user_statfs", 1}, {"ksys_sync", 1}, {"vfs_utimes", 1},
}

const fileWork = "cd /tmp; mkdir every every/d; echo text >every/f; ln every/f every/d/g; ln -s d every/s; " +
	"chmod 640 every/f; chown 1:2 every/f; stat -f -c %l every; sync; touch every/f; " +
	"cat every/s/g; stat -c '%n %s %a %u %g %h' every/f every/d/g; rm every/s every/d/g every/f; rmdir every/d every; ls"

// Every instruction of real functions is probed at once. That none is missed is
// known without another count: each was hit as often as the ones before it, by the
// post-handlers' PCs, led there; and the entries as often as they were called.
func TestEveryInstruction(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	want := run(t, v, fileWork)
	s := open(t, v, v.RAM())
	due := make(map[arch.Addr]uint64) // how often an instruction is to be hit
	var ps []*kprobe.Kprobe
	refused := 0
	functions := worked
	if testing.Short() {
		functions = worked[:2]
	}
	for _, w := range functions {
		loc, err := s.Lookup(w.name)
		if err != nil {
			t.Fatal(err)
		}
		code := make([]byte, loc.Size)
		if err := s.ReadMem(loc.Addr, code); err != nil {
			t.Fatal(err)
		}
		due[loc.Addr] = w.calls
		for at, end := loc.Addr, loc.End(); at < end; {
			in, err := amd64.New(s.Arch()).Decode(code[at-loc.Addr:], at)
			if err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
			next := at + arch.Addr(in.Len)
			kp := &kprobe.Kprobe{Addr: at, PostHandler: func(_ *kprobe.Kprobe, regs *kprobe.Regs, _ uint64) {
				switch {
				case in.Flow == isa.Call, in.Flow == isa.IndirectCall: // comes back
					due[next]++
				case in.Flow != isa.Return: // that is the call's
					due[regs.PC()]++
				}
			}}
			if e := s.Plan(kp); e.Verdict == kprobe.VerdictRefuse {
				// Traps that nothing runs into, and text that the kernel rewrites.
				if why := e.Reason; in.Flow != isa.Break && !strings.Contains(why, "the kernel has a ") {
					t.Errorf("%v", e)
				}
				refused++
			} else {
				ps = append(ps, kp)
			}
			at = next
		}
	}
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	got := run(t, v, fileWork)
	if err := s.UnregisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("the work came out as\n%s\nwithout probes\n%s", got, want)
	}
	hit, hits := 0, uint64(0)
	for _, p := range ps {
		n := p.Hits()
		if hits += n; n > 0 {
			hit++
		}
		if n != due[p.Addr] || p.NMissed() != 0 {
			t.Errorf("%v: %d hits, %d missed; %d led there", p.Addr, n, p.NMissed(), due[p.Addr])
		}
	}
	t.Logf("%d instructions probed, %d refused; %d executed, %d hits", len(ps), refused, hit, hits)
	if len(ps) < 50*len(functions) || hit < 30*len(functions) {
		t.Errorf("%d instructions probed, %d executed", len(ps), hit)
	}
}
