package script_test

import (
	"fmt"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/script"
)

// What is not there is told in bpftrace's words, and stops the script: nothing of it runs or is printed then.
// missing_probes makes a warning of it, or nothing.
func TestMissingProbes(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "1")
	s := attach(t, p.Pid)
	for _, tt := range []struct{ place, told string }{
		{"threads:hammer_nothing", "ERROR: Could not resolve symbol: threads:hammer_nothing: "},
		{"threads:hammer_mul+1000000", "ERROR: Offset outside the function bounds ('hammer_mul' size is "},
		{"threads:10", "ERROR: Could not resolve address: threads:0xa\n"},
	} {
		text := "uprobe:" + tt.place + " { @ = 1 } uprobe:threads:hammer_mul { @m = count() } end { print(1) }"
		out, told, _, err := run(text, script.Options{}, s, nil)
		if err == nil || !strings.Contains(err.Error(), "Unable to attach probe: uprobe:"+tt.place+". If this is expected, set the 'missing_probes' config variable to 'warn'.") {
			t.Errorf("%s: %v", tt.place, err)
		}
		if out != "" || !strings.Contains(told, tt.told) {
			t.Errorf("%s prints %q, and tells %q", tt.place, out, told)
		}
		out, told, _, err = run("config = { missing_probes = warn } "+text, script.Options{}, s, func() { p.Round("10") })
		if err != nil || !strings.Contains(told, strings.Replace(tt.told, "ERROR", "WARNING", 1)) || !strings.Contains(out, "@m: 10\n") {
			t.Errorf("%s, warned of: %q %q %v", tt.place, out, told, err)
		}
	}
	if _, told, _, err := run("uprobe:threads:hammer_mul+1 { 1 }", script.Options{Quiet: true, NoWarnings: true}, s, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "Possible attachment attempt in the middle of an instruction, try a different offset.") {
		t.Errorf("%q %v", told, err)
	}
}

// A pattern that matches nothing does no harm where another attach point of its probe is found, whatever their order; a name does.
func TestMissingPatterns(t *testing.T) {
	program := testprog.Build(t, "threads", "-O2")
	p := testprog.Start(t, program, "1")
	s := attach(t, p.Pid)
	for _, tt := range []struct{ points, refusal, told string }{
		{"uprobe:%:hammer_mul,uprobe:%:zzz*", "", ""},
		{"uprobe:%:zzz*,uprobe:%:hammer_mul", "", ""},
		{"uprobe:%:zzz*,uprobe:%:hammer_m*", "", ""},
		{"uprobe:%:zzz*", "Unable to attach probe: uprobe:%:zzz*. ", "ERROR: No matches for uprobe % zzz*\n"},
		{"uprobe:%:zzz*,uprobe:%:yyy*", "Unable to attach probe: uprobe:%:zzz*. ", "ERROR: No matches for uprobe % zzz*\n"},
		{"uprobe:%:hammer_mul,uprobe:%:zzz", "Unable to attach probe: uprobe:%:zzz. ", "ERROR: Could not resolve symbol: %:zzz"},
	} {
		whole := strings.NewReplacer("%", program)
		text := whole.Replace(tt.points) + " { @ = count() }"
		out, told, _, err := run(text, script.Options{PID: p.Pid, Quiet: true}, s, func() { p.Round("10") })
		if tt.refusal == "" && (err != nil || told != "" || out != "\n\n@: 10\n") || tt.refusal != "" && (err == nil || !strings.HasPrefix(err.Error(), whole.Replace(tt.refusal)) || !strings.HasPrefix(told, whole.Replace(tt.told))) {
			t.Errorf("%s prints %q and tells %q, %v", text, out, told, err)
		}
		// It is the same without a target, before any process has mapped the file.
		var errors strings.Builder
		c, err := script.Compile(text, script.Options{Several: true, Newcomers: true, Errors: &errors, Quiet: true})
		ok(t, err)
		r, err := c.Start(nil)
		if tt.refusal == "" && (err != nil || errors.Len() > 0) || tt.refusal != "" && (err == nil || !strings.HasPrefix(err.Error(), whole.Replace(tt.refusal)) || !strings.HasPrefix(errors.String(), whole.Replace(tt.told))) {
			t.Errorf("%s, for everybody: %v, tells %q", text, err, &errors)
		}
		if err == nil {
			_, err = r.Close()
			ok(t, err)
		}
	}
	text := "config = { missing_probes = warn } uprobe:" + program + ":zzz* { 1 } uprobe:" + program + ":hammer_mul { @ = count() }"
	out, told, _, err := run(text, script.Options{PID: p.Pid, Quiet: true}, s, func() { p.Round("10") })
	if err != nil || !strings.Contains(out, "@: 10\n") || !strings.Contains(told, "WARNING: No matches for uprobe "+program+" zzz*\nWARNING: Unable to attach probe: uprobe:"+program+":zzz*. Skipping.\n") {
		t.Errorf("%q %q %v", out, told, err)
	}
}

// What a file has not is told before a process is looked for that has mapped it, and before anything is run: once, not for each.
func TestMissingInFile(t *testing.T) {
	program := testprog.Build(t, "threads", "-O2")
	for _, tt := range []struct{ place, told string }{
		{"hammer_mul+1000000", "ERROR: Offset outside the function bounds ('hammer_mul' size is "},
		{"10", "ERROR: Could not resolve address: " + program + ":0xa\n"},
		{"hammer_nothing", "ERROR: Could not resolve symbol: " + program + ":hammer_nothing\n"},
	} {
		var out, told strings.Builder
		c, err := script.Compile(fmt.Sprintf("begin { print(1) } uprobe:%s:%s { @ = 1 }", program, tt.place), script.Options{Several: true, Newcomers: true, Output: &out, Errors: &told})
		ok(t, err)
		if _, err = c.Start(nil); err == nil || !strings.HasPrefix(err.Error(), "Unable to attach probe: uprobe:"+program) || !strings.HasPrefix(told.String(), tt.told) || out.Len() > 0 {
			t.Errorf("%s: %v, tells %q and prints %q", tt.place, err, &told, &out)
		}
	}
}

// Without a target missing_probes lets the rest of a script run. A dry run runs nothing.
func TestNoTarget(t *testing.T) {
	text := ` uprobe:f:g { print(3) } begin { print(4) }`
	if _, _, _, err := run(text, script.Options{}, nil, nil); err == nil || !strings.Contains(err.Error(), "say in which process") {
		t.Error(err)
	}
	for text, want := range map[string]string{"kprobe:vfs_read { }": "--kernel DIR, or KPROBE_KERNEL=DIR in the environment", "tracepoint:syscalls:sys_enter_read { }": "say of which process"} {
		if _, _, _, err := run(text, script.Options{}, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]bool{"k:f { }": true, "fexit:f, begin { }": true, "t:syscalls:sys_enter_read { }": true, "k:f { } u:f:g { }": false, "begin { }": false,
		"profile:hz:9 { }": false, "rt:x { } w:0x1:8:w { }": false, "usdt:f:g { }": false, "k:f {": false} {
		if script.WantsKernel("x", text) != want {
			t.Errorf("%s wants a kernel: %t", text, !want)
		}
	}
	out, told, _, err := run("config = { missing_probes = warn }"+text, script.Options{Quiet: true}, nil, nil)
	if err != nil || out != "4\n\n\n" || told != "WARNING: Unable to attach probe: uprobe:f:g: there is no target\n" {
		t.Errorf("%q %q %v", out, told, err)
	}
	var printed strings.Builder
	c, err := script.Compile(`begin { print(1) }`, script.Options{Dry: true, Output: &printed})
	ok(t, err)
	_, err = c.Start(nil)
	ok(t, err)
	if printed.Len() > 0 {
		t.Errorf("a dry run prints %q", &printed)
	}
}
