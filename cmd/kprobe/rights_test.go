package main

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// A set-user-ID program of root's has root's rights when a traced process of an ordinary user executes it: the process is let go before. It makes
// no difference which program does that, and how.
func TestRightsOfPrograms(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("only root makes a program that has more rights")
		return
	}
	kprobe := testprog.Command(t, "kprobe/cmd/kprobe")
	id := rootsOwn(t, "id")
	const lets, without = "would not get the rights that this file gives (those of user 0)", "without the rights that this file gives (those of user 0)"
	start := func(follow bool, argv ...string) *testprog.Proc {
		args := []string{"trace", "--no-summary", "-o", os.DevNull, "p:none " + inLibc(t, "getpgid")}
		if follow {
			args = append(args, "-f")
		}
		return testprog.StartCmd(t, testprog.AsUser(t, kprobe, append(append(args, "--"), argv...)...))
	}
	tests := []struct {
		name string
		argv []string
	}{
		{"a shell's child", []string{"sh", "-c", id + " -u; exit 5"}},
		{"a bash's child", []string{"bash", "-c", id + " -u; exit 5"}},
		{"by a relative name", []string{"sh", "-c", "cd " + filepath.Dir(id) + "; ./id -u; exit 5"}},
		{"a shell itself", []string{"sh", "-c", "exec " + id + " -u"}},
		{"python", []string{"python3", "-c", "import subprocess, sys; print(subprocess.run(['" + id + "', '-u'], capture_output=True, text=True).stdout, end=''); sys.exit(5)"}},
		{"python, by posix_spawn", []string{"python3", "-c", "import os, sys; os.waitpid(os.posix_spawn('" + id + "', ['id', '-u'], {}), 0); sys.exit(5)"}},
	}
	for i, tt := range tests {
		for _, follow := range []bool{false, true} {
			if testing.Short() && follow != (i%2 == 1) {
				continue // one of both
			}
			r := start(follow, tt.argv...).Result()
			want := 5
			if strings.Contains(tt.argv[2], "exec ") {
				want = 0
			}
			said := strings.Contains(r.Stderr, lets)
			if strings.Contains(tt.name, "posix_spawn") && !strings.Contains(r.Stderr, "has a child in its memory (vfork) that executes") {
				t.Errorf("%s, followed %v: nothing says that the parent has no probes any more: %s", tt.name, follow, r.Stderr)
			}
			// A child of fork is not traced, unless it is followed.
			if strings.Join(r.Lines, " ") != "0" || r.Status.ExitStatus() != want || follow && !said || strings.Contains(r.Stderr, without) {
				t.Errorf("%s, followed %v: it printed %q, %v\n%s", tt.name, follow, r.Lines, r.Status.ExitStatus(), r.Stderr)
			}
		}
	}
}

// Go's programs execute others by system calls of their own.
func TestRightsOfProgramsByGo(t *testing.T) {
	if os.Getuid() != 0 || runtime.GOARCH != "amd64" {
		t.Log("only root makes a program that has more rights, and elsewhere only libc's functions are watched")
		return
	}
	kprobe := testprog.Command(t, "kprobe/cmd/kprobe")
	id := rootsOwn(t, "id")
	p := testprog.StartCmd(t, testprog.AsUser(t, kprobe, "trace", "--no-summary", "-o", os.DevNull, "p main.tracerWork", "--", testprog.Command(t, "kprobe/internal/testprog/cmd/gotracer")))
	p.Expect("ready")
	if got := p.Round("run %s", id); len(got) != 1 || got[0] != "0" {
		t.Errorf("it printed %q", got)
	}
	p.CloseStdin()
	if r := p.Result(); !r.OK() || !strings.Contains(r.Stderr, "would not get the rights that this file gives (those of user 0)") {
		t.Errorf("%s", r)
	}
}

// Such a program that kprobe itself starts is to be probed, so it is not let go: a sentence says that it lacks its rights.
func TestRightsWithheld(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("only root makes a program that has more rights")
		return
	}
	kprobe := testprog.Command(t, "kprobe/cmd/kprobe")
	id := rootsOwn(t, "id")
	r := testprog.StartCmd(t, testprog.AsUser(t, kprobe, "trace", "--no-summary", "-o", os.DevNull, "p:none "+inLibc(t, "getpgid"), "--", id, "-u")).Result()
	if strings.Join(r.Lines, " ") == "0" || strings.Count(r.Stderr, "without the rights that this file gives (those of user 0)") != 1 {
		t.Errorf("%s", r)
	}
	// Root's process gets all, and so there is nothing to say.
	r = run(t, "trace", "--no-summary", "-o", os.DevNull, "p:none "+inLibc(t, "getpgid"), "--", id, "-u")
	if strings.Join(r.Lines, " ") != "0" || strings.Contains(r.Stderr, "rights") {
		t.Errorf("as root: %s", r)
	}
}

// rootsOwn is a copy of a program that has its owner's rights: root's.
func rootsOwn(t *testing.T, name string) string {
	t.Helper()
	from, err := os.Open(filepath.Join("/usr/bin", name))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(t.TempDir(), name)
	to, err := os.Create(path)
	if err == nil {
		err = os.Chmod(filepath.Dir(filepath.Dir(path)), 0o711)
	}
	if err == nil {
		_, err = io.Copy(to, from)
	}
	if err == nil {
		err = to.Close()
	}
	if err == nil {
		err = os.Chmod(path, 0o755|os.ModeSetuid)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
