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
	"kprobe/symbol/kernel"
	target "kprobe/target/kernel"
	"kprobe/trace"
)

// Text that the kernel rewrites is refused, with its owner's name and the errno that the guest's
// own kprobes have; functions' entries are not, though ftrace has them.
func TestReserved(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s := open(t, v, v.RAM())
	k := s.Target().(*target.Target).Kernel()
	sites, err := k.Sites()
	if err != nil {
		t.Fatal(err)
	}
	list, err := k.Blacklist()
	if err != nil {
		t.Fatal(err)
	}
	const events = "/sys/kernel/tracing/kprobe_events"
	seen := map[kernel.Owner]int{}
	for _, site := range sites {
		sym, off, ok := k.At(site.Addr)
		if _, blocked := k.Blacklisted(list, site.Addr); blocked || !ok || len(k.Lookup(sym.Name)) != 1 || strings.Contains(sym.Name, "__SCT__") {
			continue
		}
		if seen[site.Owner]++; seen[site.Owner] > 5 {
			continue
		}
		err := s.RegisterKprobe(&kprobe.Kprobe{SymbolName: sym.Name, Offset: off, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }})
		_, own := v.Run(fmt.Sprintf("echo 'p:x %s+%d' >%s && echo >%s", sym.Name, off, events, events))
		want := "the kernel has a " + string(site.Owner) + " there"
		switch {
		case site.Owner == kernel.Ftrace && off == 0:
			if err != nil || own != nil {
				t.Errorf("entry of %s: %v; the guest itself: %v", sym.Name, err, own)
			}
		case site.Owner == kernel.Ftrace: // of a weak function that another one replaced
		case err == nil || !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), want),
			own == nil && site.Owner != kernel.Dispatcher: // which the guest's kprobes would break
			t.Errorf("%s: %v; the guest itself: %v", k.Name(site.Addr), err, own)
		}
	}
	for _, o := range []kernel.Owner{kernel.Ftrace, kernel.JumpLabel, kernel.StaticCall, kernel.Bug} {
		if seen[o] == 0 {
			t.Errorf("no %s was tried", o)
		}
	}
	// A part that a compiler split off a function that is on the list is on none.
	split := 0
	for _, sym := range k.Table().Symbols() {
		base, isCold := strings.CutSuffix(sym.Name, ".cold")
		if !isCold || split == 3 {
			continue
		}
		whole, _ := k.Table().Addr(base)
		if _, bad := k.Blacklisted(list, whole); !bad {
			continue
		}
		split++
		if err := s.RegisterKprobe(&kprobe.Kprobe{Addr: sym.Addr}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s can be probed: %v", sym.Name, err)
		}
	}
	if split == 0 {
		t.Error("no function on the list was split")
	}
	// The guest probes itself: the trap there is its own.
	run(t, v, "echo 'p:x vfs_write+5' >"+events+" && echo 1 >/sys/kernel/tracing/events/kprobes/x/enable")
	err = s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "vfs_write", Offset: 5})
	if !errors.Is(err, syscall.EBUSY) {
		t.Errorf("where the guest has a probe: %v", err)
	}
	run(t, v, "echo 0 >/sys/kernel/tracing/events/kprobes/x/enable && echo >"+events)
}

// Parameters and members by name, from the kernel's type information.
func TestByName(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s := open(t, v, v.RAM())
	for def, code := range map[string]string{
		"p do_sys_openat2 nothing": "NO_BTFARG", "p do_sys_openat2 how->nothing": "NO_BTF_FIELD", "p do_sys_openat2+4 dfd": "NOFENTRY_ARGS",
	} {
		if err := trace.New(s, func(*event.Event) {}).Add(def); err == nil || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: %v, not %s", def, err, code)
		}
	}
	var lines []string
	tr := trace.New(s, func(e *event.Event) { lines = append(lines, string(e.AppendText(nil))) })
	if err := tr.Add("p:open do_sys_openat2 dfd filename:ustring flags=how->flags", "r:closed filp_close $arg* name=filp->f_path.dentry->d_iname"); err != nil {
		t.Fatal(err)
	}
	run(t, v, "cat /proc/version >/dev/null")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{`open: \(do_sys_openat2\+0x0/0x\w+\) dfd=-100 filename="/proc/version" flags=32768$`,
		`closed: \(\S+ <- filp_close\) filp=0xff\w+ id=0xff\w+ name="version"$`} {
		if !slices.ContainsFunc(lines, regexp.MustCompile(want).MatchString) {
			t.Errorf("no %s in\n%s", want, strings.Join(lines, "\n"))
		}
	}
}
