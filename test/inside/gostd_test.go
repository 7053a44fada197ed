package inside

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/symbol"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// standard is the test binary of a package of Go's standard library, which stands at its first
// instruction.
type standard struct {
	t     *testing.T
	s     *kprobe.Session
	funcs []symbol.Symbol // the package's
	out   string          // file
}

// startStandard starts the short tests of a package that run names.
func startStandard(t *testing.T, pkg, run string) *standard {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "lib.test")
	if out, err := exec.Command("go", "test", "-c", "-o", path, pkg).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	harness.OK(t, err)
	out, err := os.Create(filepath.Join(dir, "out"))
	harness.OK(t, err)
	defer out.Close()
	tr, err := ptrace.Start([]string{path, "-test.short", "-test.run", run}, &os.ProcAttr{
		Dir: filepath.Join(strings.TrimSpace(string(root)), "src", pkg), Env: os.Environ(),
		Files: []*os.File{nil, out, out},
	})
	harness.OK(t, err)
	s, err := kprobe.Open(tr, &kprobe.Options{Report: func(err error) { t.Errorf("reported: %v", err) }})
	harness.OK(t, err)
	t.Cleanup(func() { s.Close() })
	st := &standard{t: t, s: s, out: out.Name()}
	for _, f := range harness.OpenELF(t, path).Funcs() {
		if strings.HasPrefix(f.Name, pkg+".") && f.Size > 0 {
			st.funcs = append(st.funcs, f)
		}
	}
	return st
}

// pass waits until the tests have passed.
func (st *standard) pass() {
	st.t.Helper()
	err := testprog.AwaitFor(testprog.Soak(st.t, 2*testprog.Patience), st.s.Target().PID(), func() error {
		select {
		case <-st.s.Done():
			return nil
		default:
			return errors.New("the tests do not end")
		}
	})
	harness.OK(st.t, err)
	text, _ := os.ReadFile(st.out)
	if exit, _ := st.s.Exited(); exit.Code != 0 || !strings.Contains(string(text), "PASS") {
		st.t.Errorf("%v\n%s", exit, text)
	}
}
