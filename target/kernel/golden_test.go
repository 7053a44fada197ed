package kernel_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/vm/vmtest"
	"kprobe/spec"
	"kprobe/trace"
)

// Ours must look like the guest's own files: its list of the same probes, and its error_log for the
// same mistakes.
func TestGuestsOwnFiles(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "insmod /dummy.ko")
	defer run(t, v, "rmmod dummy")
	s := open(t, v, v.RAM())
	defer s.Close() // before the module goes

	// In places where the guest's are neither ftrace's nor optimized, so that there is
	// no tag of which only it knows.
	places := []string{"vfs_read+5", "vfs_write+5", "dummy_setup+5", "ksys_read+5"}
	var define strings.Builder
	var ps []*kprobe.Kprobe
	for i, p := range places {
		fmt.Fprintf(&define, "echo p:golden%d %s >>kprobe_events; ", i, p)
		name, _, _ := strings.Cut(p, "+")
		ps = append(ps, &kprobe.Kprobe{SymbolName: name, Offset: 5, Flags: kprobe.FlagDisabled})
	}
	const tracing = "cd /sys/kernel/tracing; "
	theirs := run(t, v, tracing+"echo >kprobe_events; "+define.String()+"cat /sys/kernel/debug/kprobes/list; echo >kprobe_events")
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	if got, want := lines(listText(s)), lines(theirs); len(want) != len(places) || !slices.Equal(got, want) {
		t.Errorf("our list\n%s\nthe guest's\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if err := s.UnregisterKprobes(ps); err != nil {
		t.Fatal(err)
	}

	tr := trace.New(s, func(*event.Event) {})
	stamp := regexp.MustCompile(`(?m)^\[ *[\d.]+\] `)
	for _, bad := range []string{
		"p:bad nosuchfunction", "p:bad vfs_read+0x6", "p:bad vfs_read+0x100000", "p:bad exc_int3", "p:bad asm_exc_int3",
		"r:bad vfs_read+0x5", "p:bad vfs_read %zz", "p:bad vfs_read foo=%di:q64", "p:bad vfs_read a=%di a=%si",
		"p5:bad vfs_read", "p:bad vfs_read +8(%di", "p:bad vfs_read @badsym", "r:bad vfs_read $argX", "p:bad-name vfs_read",
	} {
		want := stamp.ReplaceAllString(run(t, v, tracing+"echo >error_log; echo '"+bad+"' >>kprobe_events; cat error_log"), "")
		want = want[max(0, strings.Index(want, "trace_kprobe")):] // the shell has its say first
		err := tr.Add(bad)
		var wrong *spec.SyntaxError
		if !errors.As(err, &wrong) {
			t.Errorf("%s: %v, the guest says\n%s", bad, err, want)
			continue
		}
		if got := wrong.Log("trace_kprobe"); !strings.Contains(want, "error: ") || strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("our error_log\n%s\nthe guest's\n%s", got, want)
		}
	}
}

// lines are the lines of a text in an order that does not depend on a hash.
func lines(text string) []string {
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(all)
	return all
}
