package kernel_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/vm/vmtest"
	"kprobe/trace"
)

// foreign is a machine that this one is not. %[1]s and so on in definitions are
// its registers for arguments.
var foreign = []struct {
	name    string
	args    []any
	sizes   []int // of the instructions that a function begins with
	second  int   // where another probe can be
	inside  uint64
	comm    string // the task's name
	returns bool
	opens   string // opens a file by the name in its second argument

	variables bool // have names
}{
	{"arm64", []any{"%x0", "%x1", "%x2"}, []int{4, 4, 4}, 4, 6, "cat", true, "do_filp_open", false},
	{"riscv64", []any{"%a0", "%a1", "%a2"}, []int{4}, 8, 2, "cat", false, "do_file_open", true},
	{"s390x", []any{"%r2", "%r3", "%r4"}, []int{6, 6}, 6, 2, "", true, "do_filp_open", false}, // no type information, so no tasks
}

// Kernels of other machines, one big-endian, are probed as this machine's is.
func TestForeign(t *testing.T) {
	machines := foreign
	if testing.Short() {
		machines = machines[2:]
	}
	for _, m := range machines {
		t.Run(m.name, func(t *testing.T) {
			v := vmtest.Shared(t, m.name)
			s := open(t, v, v.RAM())
			at := uint64(0)
			for _, size := range m.sizes {
				if e := s.Plan(&kprobe.Kprobe{SymbolName: "vfs_read", Offset: at}); e.Verdict == kprobe.VerdictRefuse || len(e.Bytes) != size || e.Engine != "stop" {
					t.Errorf("plan: %v, want an instruction of %d bytes", e, size)
				}
				at += uint64(size)
			}
			if e := s.Plan(&kprobe.Kprobe{SymbolName: "vfs_read"}); strings.Contains(e.Trap.Why+e.Jump.Why, "ivshmem") || !strings.Contains(e.Trap.Why, "not made for "+m.name) {
				t.Errorf("plan: a device that does not help: %v", e)
			}
			for name, want := range map[*kprobe.Kprobe]error{
				{SymbolName: "vfs_read", Offset: m.inside}:      syscall.EILSEQ,
				{SymbolName: "no_such_function"}:                syscall.ENOENT,
				{SymbolName: "vfs_read", Offset: 1 << 20}:       syscall.EILSEQ,
				{SymbolName: blocked(t, s)}:                     syscall.EINVAL,
				{Addr: 0x7fff_0000_0000, PreHandler: noHandler}: syscall.EINVAL,
			} {
				if err := s.RegisterKprobe(name); !errors.Is(err, want) {
					t.Errorf("%s+%d: %v, want %v", name.SymbolName, name.Offset, err, want)
				}
			}

			var lines []string
			tr := trace.New(s, func(e *event.Event) { lines = append(lines, string(e.AppendText(nil))) })
			defs := []string{
				fmt.Sprintf("p:open do_sys_openat2 dfd=%[1]s:s32 dfd2=$arg1:s32 file=+0(%[2]s):ustring how=%[3]s", m.args...),
				fmt.Sprintf("p:second do_sys_openat2+%d dfd=%s:s32", m.second, m.args[0]),
				"p:filp " + m.opens + " name=+0(+0($arg2)):string",
			}
			if m.returns {
				defs = append(defs, "r:back do_sys_openat2 ret=$retval:s64")
			} else if err := tr.Add("r do_sys_openat2"); !errors.Is(err, syscall.ENOTSUP) {
				t.Errorf("a return probe: %v", err)
			}
			if err := tr.Add(defs...); err != nil {
				t.Fatal(err)
			}
			err := tr.Add("p vfs_read now=@jiffies:u64")
			if m.variables != (err == nil) || err != nil && !strings.Contains(err.Error(), `no symbol "jiffies" in any module that is loaded: the symbols there are of functions only`) {
				t.Errorf("a variable of the kernel's: %v", err)
			}
			list := listText(s)
			for _, want := range []string{"k  do_sys_openat2\\+0x0", fmt.Sprintf("k  do_sys_openat2\\+%#x", m.second), "k  " + m.opens + "\\+0x0"} {
				if !regexp.MustCompile(`(?m)^[0-9a-f]{16}  ` + want + `    $`).MatchString(list) {
					t.Errorf("no %s in the list\n%s", want, list)
				}
			}
			run(t, v, "cat /proc/version >/dev/null")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			want := []string{`open: \(do_sys_openat2\+0x0/0x\w+\) dfd=-100 dfd2=-100 file="/proc/version" how=0x[0-9a-f]+$`,
				`second: \(do_sys_openat2\+0x\d/0x\w+\) dfd=-100$`, `filp: \(` + m.opens + `\+0x0/0x\w+\) name="/proc/version"$`}
			if m.returns {
				want = append(want, `back: \(\S+ <- do_sys_openat2\) ret=3$`)
			}
			for _, w := range want {
				if !slices.ContainsFunc(lines, regexp.MustCompile(`^ *`+m.comm+`.*`+w).MatchString) {
					t.Errorf("no %s in\n%s", w, strings.Join(lines, "\n"))
				}
			}
			// Nothing is left: neither breakpoints nor a guest that stands.
			n := len(lines)
			run(t, v, "cat /proc/version")
			if len(lines) != n {
				t.Error("a hit after Close")
			}
		})
	}
}

func noHandler(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }

// blocked is a function on the kernel's blacklist.
func blocked(t *testing.T, s *kprobe.Session) string {
	t.Helper()
	list, err := s.BlackList()
	if err != nil || len(list) == 0 {
		t.Fatalf("blacklist: %d, %v", len(list), err)
	}
	for _, e := range list {
		if loc, err := s.Lookup(e.Symbol); err == nil && loc.Addr == e.Start {
			return e.Symbol
		}
	}
	t.Fatal("nothing on the blacklist has a name of its own")
	return ""
}
