package script_test

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/script"
	"kprobe/target/ptrace"
)

var update = flag.Bool("update", false, "write what is printed into the golden files")

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a script to its end; during is called while its probes are in place.
func run(text string, o script.Options, s *kprobe.Session, during func()) (out, told string, code int, err error) {
	var output, errors bytes.Buffer
	o.Output, o.Errors = &output, &errors
	c, err := script.Compile(text, o)
	if err != nil {
		return "", "", 1, err
	}
	r, err := c.Start(s)
	if err != nil {
		return output.String(), errors.String(), 1, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if during != nil {
		go func() {
			during()
			cancel()
		}()
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Wait(ctx) }()
	err = testprog.Await(testprog.Here, func() error {
		if len(ended) == 0 {
			return fmt.Errorf("the script does not end")
		}
		return nil
	})
	cancel()
	if err = cmp.Or(err, <-ended); err != nil {
		return output.String(), errors.String(), 1, err
	}
	code, err = r.Close()
	return output.String(), errors.String(), code, err
}

// separator parts the scripts of a golden file, and a script from what it prints.
const separator = "\n========\n"

// Scripts that need no target print what the files say; what is refused is told there too.
func TestAlone(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	ok(t, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		ok(t, err)
		parts := strings.Split(string(text), separator)
		for i := 0; i+1 < len(parts); i += 2 {
			var o script.Options
			o.Params = []string{"foo", "17", "--name=value", "--count=0x10", "-3", "--large=18446744073709551615"}
			o.JSON = strings.HasPrefix(parts[i], "// json")
			out, told, code, err := run(parts[i], o, nil, nil)
			if err != nil {
				out += fmt.Sprintf("refused:\n%v\n", err)
			}
			if told = strings.ReplaceAll(told, "Attached 1 probe\n", ""); told != "" {
				out += "told:\n" + told
			}
			if code != 0 && err == nil {
				out += fmt.Sprintf("code %d\n", code)
			}
			out = strings.TrimSuffix(out, "\n")
			if out != parts[i+1] && !*update {
				t.Errorf("%s: %s\nprints\n%s\nnot\n%s", name, parts[i], out, parts[i+1])
			}
			parts[i+1] = out
		}
		if *update {
			ok(t, os.WriteFile(name, []byte(strings.Join(parts, separator)), 0o644))
		}
	}
}

func attach(t *testing.T, pid int) *kprobe.Session {
	t.Helper()
	p, err := ptrace.Attach(pid)
	ok(t, err)
	s, err := kprobe.Open(p, nil)
	ok(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A process that ends badly is told of.
func TestBadEndIsTold(t *testing.T) {
	for _, tt := range []struct{ round, want string }{{"exit_group", "has exited with status 7"}, {"", "was killed by signal 9"}} {
		p := testprog.Start(t, testprog.Build(t, "lives", "-O2"))
		s := attach(t, p.Pid)
		_, told, code, err := run(`uprobe:lives:live_work { @ = count() }`, script.Options{PID: p.Pid, Quiet: true}, s, func() {
			if tt.round != "" {
				p.Send(tt.round)
			} else {
				ok(t, p.Signal(syscall.SIGKILL))
			}
			<-s.Done()
		})
		if want := fmt.Sprintf("WARNING: the process %d %s\n", p.Pid, tt.want); err != nil || code != 0 || told != want {
			t.Errorf("%q, %d, %v, not %q", told, code, err, want)
		}
	}
}

// What finds no room in a ring is told: what is printed and what is lost are all calls.
func TestLostIsTold(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	s := attach(t, p.Pid)
	out, told, _, err := run(`uprobe:threads:hammer_mul { printf("%d %s\n", tid, comm); @ = count(); @k[tid % 2] = count(); }
		end { printf("%d\n", @); }`, script.Options{Quiet: true}, s, func() { p.Round("20000") })
	ok(t, err)
	printed, lost, calls := strings.Count(out, " threads\n"), 0, 0
	for line := range strings.Lines(told) {
		n := 0
		if _, err := fmt.Sscanf(line, "Lost %d events", &n); err != nil {
			t.Errorf("told: %q", line)
		}
		lost += n
	}
	for line := range strings.Lines(out) {
		if n, found := 0, strings.HasPrefix(line, "@k["); found {
			if _, err := fmt.Sscanf(line[strings.Index(line, ":")+1:], "%d", &n); err != nil {
				t.Error(err)
			}
			calls += n
		}
	}
	if calls != 80000 || printed+lost != calls || !strings.Contains(out, "\n80000\n") {
		t.Errorf("%d calls counted by key, %d printed, %d lost; the end:\n%s", calls, printed, lost, out[max(0, len(out)-200):])
	}
}

// A map has no more keys than it is defined for, whoever puts them there, and all that it was given are there.
func TestMapsAreFull(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "4")
	s := attach(t, p.Pid)
	out, told, _, err := run(`config = { max_map_keys = 100 } uprobe:threads:hammer_mul { $n = rand % 500; @set[$n] = 1; @add[$n]++; if ($n % 7 == 0) { $gone = delete(@set, $n); } @few[$n % 50]++; @same[1] = $n; }
		end { $calls = 0; for ($kv : @few) { $calls += $kv.1 } print((len(@set) <= 100, len(@set) > 80, len(@add), len(@few), len(@same), $calls)); clear(@set); clear(@add); clear(@few); clear(@same) }`,
		script.Options{Quiet: true}, s, func() { p.Round("20000") })
	ok(t, err)
	if want := "(true, true, 100, 50, 1, 80000)"; strings.TrimSpace(out) != want || strings.Count(told, "WARNING: Map full") != 2 || strings.Count(told, " more changes of @set ") != 1 || strings.Count(told, " more changes of ") != 2 {
		t.Errorf("prints %s\n%s\nnot %s", out, told, want)
	}
}

// The environment's settings come before the script's, and what is wrong with them is told.
func TestSettings(t *testing.T) {
	text := `config = { max_map_keys = 5 } begin { @a[1] = 1; @a[2] = 2 }`
	for _, tt := range []struct{ name, value, out, refusal string }{
		{"max_map_keys", "1", "\n\n@a[1]: 1\n", ""},
		{"max_map_keys", "none", "", "BPFTRACE_MAX_MAP_KEYS: Invalid value for max_map_keys"},
		{"of_somebody_else", "none", "\n\n@a[1]: 1\n@a[2]: 2\n", ""},
	} {
		out, _, _, err := run(text, script.Options{Settings: map[string]string{tt.name: tt.value}}, nil, nil)
		if out != tt.out || (err == nil) != (tt.refusal == "") || err != nil && !strings.Contains(err.Error(), tt.refusal) {
			t.Errorf("%s=%s: %q, %v", tt.name, tt.value, out, err)
		}
	}
}

// A script's probes see every call, its arguments, strings and results.
func TestProcess(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "args", "-O2"))
	want := p.Round("1")
	tests := []struct{ script, want string }{
		{`uprobe:args:args_ints { printf("%d %u %ld %d\n", (int32)arg0, (uint32)arg1, arg2, (int32)arg4); }`, "-1 4000000000 -123456789012 -300\n"},
		{`uprobe:args:args_string { @[probe, str(arg0, arg1 + 1)] = count(); @n = sum(arg1); }`,
			"\n\n@[uprobe:args:args_string, ]: 1\n@[uprobe:args:args_string, hello, world]: 1\n@n: 12\n"},
		{`uretprobe:args:args_ints { @ret = retval; printf("%s\n", func); }`, "args_ints\n\n\n@ret: 67\n"},
		{`uprobe:args:args_many /sarg0 == 7/ { @many[sarg0, comm] = count(); }`, "\n\n@many[7, args]: 1\n"},
		{`uprobe:args:args_* { @[func] = count() } end { print(@, 2); clear(@) }`, ""},
		{`uprobe:args:args_ints { @start[tid] = nsecs; } uretprobe:args:args_ints /@start[tid]/ { @took = hist(nsecs - @start[tid]); @n = count(); delete(@start, tid); }
		end { clear(@took) }`,
			"\n\n@n: 1\n"},
	}
	tests = append(tests, []struct{ script, want string }{
		{`struct full { char c[4]; }; struct long { char c[16]; int8 after; }; uprobe:args:args_string /arg1 == 12/ { $p = (struct full *)arg0; $l = (struct long *)arg0; $s = *$p;
			print(($p->c, $s.c, $p->c == "hell", sizeof($p->c), strlen($p->c), $p->c[3], *$p, $l->c, ntop($p->c), buf($p->c, 4))); @[$p->c] = count(); }`,
			"(hell, hell, true, 4, 4, 108, { .c = hell }, hello, world, 104.101.108.108, hell)\n\n\n@[hell]: 1\n"},
		{`struct node { struct node *next; int value; char name[12]; };
		uprobe:args:args_pointer { $n = (struct node *)arg0; print(($n->value, $n->next->value, $n->next->name, str($n->name)));
			$s = *$n->next; print($s.name); @[$s.value] = count(); print(*(int32 *)(*(uint64 *)arg1)); }`,
			"(1, 4711, second, first)\nsecond\n-42\n\n\n@[4711]: 1\n"},
		{`uprobe:args:args_ints { @[ustack(2)] = count(); } end { for ($kv : @) { printf("%d\n", $kv.1); } clear(@) }`, "1\n"},
		{`uprobe:args:args_ints { $s = ustack; @[ustack(1)] = 1; for ($kv : @) { print((len(ustack(2)), len($kv.0), len($s) >= 2, len(kstack))); } if (len($s) > 1 && len($s) < 127) { print("deep") } clear(@) }`,
			"(2, 1, true, 0)\ndeep"},
		{`begin { @m[1] = 10; @m[2] = 20; @m[3] = 30; @s["a"] = count(); @s["b"] = count(); }
		uprobe:args:args_ints { $t = 0; for ($kv : @m) { if ($kv.0 == 2) { continue } $t += $kv.1; } print(($t, len(@m))); for ($kv : @s) { print($kv.0); break }
			$i = (uint64)0; while ($i < arg1 % 1000 + 2000) { $i++ } print($i); print(strlen(comm)); print(strcontains(comm, "rg")); clear(@m); clear(@s) }`,
			"(40, 3)\n*\n2000\n4\ntrue"},
		{`fn triple($a : int64): int64 { return $a * 3; } uprobe:args:args_ints { print(triple((int32)arg0)); print(triple(triple(2))); }`, "-3\n18"},
		{`uprobe:args:args_pointer { $o = *(int32 *)(arg0 + 8); write_user((int32 *)(arg0 + 8), 77); print((*(int32 *)(arg0 + 8), *(int32 *)(arg0 + 12))); $r = write_user(arg0 + 8, (int32)$o);
			print(($r, *(int32 *)(arg0 + 8) == $o, write_user(8, "text"))); }`, "(77, *, true, -14)"},
		{`uprobe:args:nothing { }`, ""},
	}...)
	s := attach(t, p.Pid)
	for _, tt := range tests {
		out, told, _, err := run(tt.script, script.Options{Unsafe: true}, s, func() {
			if got := p.Round("1"); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: the program prints %q, and alone %q", tt.script, got, want)
			}
		})
		if strings.Contains(tt.script, "nothing") {
			if err == nil {
				t.Errorf("%s is not refused", tt.script)
			}
			continue
		}
		ok(t, err)
		if before, after, any := strings.Cut(tt.want, "*"); any {
			if !strings.HasPrefix(out, before) || !strings.HasSuffix(strings.TrimRight(out, "\n"), after) {
				t.Errorf("%s\nprints\n%s%s\nnot\n%s", tt.script, out, told, tt.want)
			}
		} else if tt.want != "" && strings.TrimRight(out, "\n") != strings.TrimRight(tt.want, "\n") {
			t.Errorf("%s\nprints\n%s%s\nnot\n%s", tt.script, out, told, tt.want)
		}
		t.Logf("%s\n%s%s", tt.script, out, told)
	}
}

// Static probes: arguments in registers, memory and constants, and the semaphore that makes the target pass by.
func TestStatic(t *testing.T) {
	program := testprog.Build(t, "statics", "-O2")
	p := testprog.Start(t, program)
	p.Round("1")
	s := attach(t, p.Pid)
	text := fmt.Sprintf(`usdt:%s:statics:plain { printf("%%d %%d %%d %%d %%s\n", arg0, (int64)arg1, (int64)arg2, arg3, probe); }
		usdt:%s:guarded { printf("%%d %%s\n", arg0, str(arg1)); @ = count(); }`, program, program)
	out, told, _, err := run(text, script.Options{PID: p.Pid}, s, func() { p.Round("2") })
	ok(t, err)
	want := "0 0 -9 0 usdt:" + program + ":statics:plain\n0 some text\n1 0 -9 1 usdt:" + program + ":statics:plain\n1 some text\n\n\n@: 2\n"
	if out != want {
		t.Errorf("prints\n%s%s\nnot\n%s", out, told, want)
	}
}

// Arguments in variables are read by the variables' symbols. One that cannot be read is refused where it is asked for.
func TestStaticVariables(t *testing.T) {
	program := testprog.Build(t, "statics", "-O2", "-DVARIABLES")
	p := testprog.Start(t, program)
	at := "usdt:" + program + ":variables "
	out, told, _, err := run(at+`{ printf("%d %d %d\n", (int32)arg0, arg2, arg3); }`, script.Options{PID: p.Pid}, attach(t, p.Pid), func() { p.Round("3") })
	ok(t, err)
	if want := "0 5 0\n-2 6 1\n-4 7 2\n\n\n"; out != want {
		t.Errorf("prints %q, not %q; %s", out, want, told)
	}
	_, err = script.Compile(at+`{ print(arg1); }`, script.Options{PID: p.Pid})
	if err == nil || !strings.Contains(err.Error(), "arg1 of the probe usdt:"+program+":statics:variables cannot be read: 8f@%xmm0: it is no integer of 1, 2, 4 or 8 bytes") {
		t.Errorf("arg1: %v", err)
	}
}

// One that is inlined is at several places, and counts once among the probes; of each place it is hit.
func TestStaticInlined(t *testing.T) {
	program := testprog.Build(t, "statics", "-O2", "-DTWICE")
	text := fmt.Sprintf(`usdt:%s:inlined { printf("%%d ", arg0); }`, program)
	p := testprog.Start(t, program)
	out, told, _, err := run(text, script.Options{PID: p.Pid}, attach(t, p.Pid), func() { p.Round("2") })
	if err != nil || out != "0 1 1 2 \n\n" || told != "Attached 1 probe\n" {
		t.Errorf("prints %q and tells %q, %v", out, told, err)
	}
	s, ready := &several{t: t, ended: make(chan error, 1), told: "Attached 1 probe\n"}, make(chan bool, 1)
	c, err := script.Compile(text, script.Options{Several: true, Newcomers: true, Output: &s.out, Errors: &s.errors, Ready: func() { ready <- true }})
	ok(t, err)
	s.run, err = c.Start(nil)
	ok(t, err)
	s.wait()
	testprog.Receive(t, "the probes are there", testprog.Here, ready)
	s.close()
}

// Static probes are named by file, provider and name; of a process the file may be a pattern, or be left out.
func TestStaticProbeForms(t *testing.T) {
	program := testprog.Build(t, "statics", "-O2")
	p := testprog.Start(t, program)
	s := attach(t, p.Pid)
	folder, base := filepath.Split(program)
	for _, form := range []string{
		"usdt:plain", "usdt::plain", "usdt::statics:plain", "usdt:*:plain", "usdt:*:sta*:plain", "usdt:::pl*n", "U:" + base + ":plain", `usdt:"` + program + `":"statics":"pl\ain"`,
		"usdt:" + folder + base[:4] + "*::plain",
	} {
		out, told, _, err := run(form+` { print(probe); exit() }`, script.Options{PID: p.Pid}, s, func() { p.Round("1") })
		if want := "usdt:" + program + ":statics:plain\n\n\n"; err != nil || out != want {
			t.Errorf("%s prints %q %s, %v; not %q", form, out, told, err, want)
		}
	}
	for text, refused := range map[string]bool{"usdt:%:pl*,usdt:%:zz*": false, "usdt:%:zz*,usdt:%:plain": false, "usdt:%:zz*": true, "usdt:%:plain,usdt:%:zz": true, "usdt:%:zz*,usdt:%:yy*": true} {
		_, err := script.Compile(strings.ReplaceAll(text, "%", program)+" { exit() }", script.Options{})
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "No matches for usdt:"+program+":") {
			t.Errorf("%s: %v", text, err)
		}
	}
	guarded, plain := "usdt:"+program+":statics:guarded", "usdt:"+program+":statics:plain"
	for _, tt := range []struct {
		pattern string
		pid     int
		want    []string
	}{
		{"usdt:" + program + ":*", 0, []string{guarded, plain}},
		{"usdt:" + program + "::pl*", 0, []string{plain}},
		{"usdt:" + folder + base[:4] + "*" + base[4:] + ":statics:g*", 0, []string{guarded}},
		{"*:" + program + ":*:*", 0, []string{guarded, plain}},
		{"usdt:*:statics:*", p.Pid, []string{guarded, plain}},
		{"usdt:guarded", p.Pid, []string{guarded}},
		{"uprobe:*:guarded", p.Pid, []string{"uprobe:" + program + ":guarded"}},
		{"usdt:" + program + ":other:*", 0, nil},
	} {
		if got, err := script.List(tt.pattern, false, tt.pid); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s is %q, %v; not %q", tt.pattern, got, err, tt.want)
		}
	}
}

// Static probes of whatever file are those of all files that somebody has mapped.
func TestStaticProbesOfAll(t *testing.T) {
	program := copied(t, "statics")
	has := func() bool {
		all, err := script.List("usdt:*:statics:pl*", false, 0)
		ok(t, err)
		return slices.Contains(all, "usdt:"+program+":statics:plain")
	}
	if has() {
		t.Error("nobody has mapped it yet")
	}
	testprog.Start(t, program)
	u := script.UsersOf("x", "usdt:*:statics:plain { }")
	if u == nil || !slices.Contains(u.Files, program) || !has() {
		t.Errorf("%s has a process: %v", program, u)
	}
	if u != nil {
		u.Close()
	}
	if script.UsersOf("x", "usdt:*:statics:no_such { }") != nil {
		t.Error("files without the probe")
	}
}
