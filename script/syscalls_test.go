package script_test

import (
	"fmt"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/script"
)

// Tracepoints of system calls see every call of every thread, from its first to its last, and what comes of it; programs
// run as they do without.
func TestSyscalls(t *testing.T) {
	type build struct {
		name, flags, round string
		exact              bool
	}
	for _, b := range []build{{"threads", "-O2", "500", true}, {"threads", "-static", "500", true}, {"forks", "-O2", "2", false}, {"gostorm", "", "100", false}} {
		t.Run(strings.TrimSpace(b.name+" "+b.flags), func(t *testing.T) {
			if b.name == "gostorm" {
				testprog.ReadsFSBase.Need(t)
			}
			path := testprog.Build(t, b.name, strings.Fields(b.flags)...)
			want := testprog.Start(t, path).Round(b.round)
			p := testprog.Start(t, path) // which makes its threads under probes
			s := attach(t, p.Pid)
			var got []string
			out, told, _, err := run(`t:syscalls:sys_enter_clone,t:syscalls:sys_enter_clone3 { @born = count(); }
				t:syscalls:sys_enter_exit { @ended = count(); } t:syscalls:sys_enter_write { @bytes = sum(args.count); }
				t:syscalls:sys_exit_set_robust_list { @results = sum(args.ret); @robust = count(); }
				t:raw_syscalls:sys_enter { @all = count(); }
				t:syscalls:sys_exit_write { @left = count(); }
				t:raw_syscalls:sys_exit /args.id == 1/ { @leftraw = count(); }
				t:raw_syscalls:sys_enter /args.id == 1/ { @raw = sum(args.args[2]); }`,
				script.Options{Quiet: true}, s, func() { got = p.Round(b.round) })
			if s.Arch() != arch.AMD64 {
				if err == nil {
					t.Errorf("%s has them, too", s.Arch().Name)
				}
				return
			}
			ok(t, err)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the program prints\n%q, and alone\n%q", got, want)
			}
			if b.exact {
				const threads = 4 + 1 + 6
				bytes := len(strings.Join(append(got, "done\n"), "\n"))
				for _, line := range []string{
					fmt.Sprintf("@born: %d\n", threads), fmt.Sprintf("@ended: %d\n", threads), fmt.Sprintf("@robust: %d\n", threads), "@results: 0\n",
					fmt.Sprintf("@bytes: %d\n", bytes), fmt.Sprintf("@raw: %d\n", bytes),
				} {
					if !strings.Contains(out, line) {
						t.Errorf("%q is not printed", line)
					}
				}
			}
			if !strings.Contains(out, "@all: ") {
				t.Error("no call is seen")
			}
			// The number of a call may be known by a note only, which all tracepoints behind it read.
			value := func(name string) (n int) {
				_, rest, _ := strings.Cut(out, name+": ")
				fmt.Sscan(rest, &n)
				return n
			}
			// The last may be under way when the probes go.
			if n, raw := value("@left"), value("@leftraw"); max(n, raw)-min(n, raw) > 1 || n+raw == 0 && !b.exact {
				t.Errorf("%d writes end by one tracepoint, %d by the other", n, raw)
			}
			t.Logf("%s%s", out, told)
		})
	}
}
