// Package vmtest shares one guest among all tests of a package: a boot costs seconds
// of a whole core. Packages whose tests run at the same time have a guest each.
package vmtest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"kprobe/internal/testprog"
	"kprobe/internal/vm"
)

// Gate is set by the one package whose shared guest of x86-64 boots in the gate ("make test"), before its tests run. All
// other guests boot in the long run only (testprog.Long).
var Gate bool

func long(t testing.TB, gate bool) {
	t.Helper()
	if !gate {
		testprog.Long(t, "it boots a guest")
	}
}

var shared struct {
	sync.Mutex
	vms  map[string]*vm.VM // by machine
	dirs []string
}

// Files, if a package sets it before its tests run, are what rides along in its
// shared guests: path there, path here.
var Files func(testing.TB) map[string]string

// Suits, if a package sets it before its tests run, tells of a guest that was just booted whether its tests can be run there. Where a
// kernel lies is chance (KASLR), and by chance a kernel may be where something is refused: then another one is booted.
var Suits func(testing.TB, *vm.VM) bool

// Main is a package's TestMain: it runs the tests and ends their guests.
func Main(m *testing.M) {
	status := m.Run()
	shared.Lock()
	defer shared.Unlock()
	for _, v := range shared.vms {
		if err := v.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	for _, dir := range shared.dirs {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

// Shared answers the package's guest of a machine: two CPUs, which take turns since
// tests have it rewrite its text (see vm), KASLR as the
// distribution has it. It is booted by the first test that asks; a test leaves
// it as it was. Its package's TestMain must be Main.
func Shared(t testing.TB, machine string) *vm.VM {
	t.Helper()
	long(t, Gate && machine == "amd64")
	shared.Lock()
	defer shared.Unlock()
	if v := shared.vms[machine]; v != nil {
		if v.Obeys() {
			tell(t, v)
			return v
		}
		// The test that it happened in has failed; the others have done nothing.
		t.Log("the shared guest has ended in an earlier test, or obeys nothing more: another one is booted")
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c := vm.Config{Machine: machine, CPUs: 2, Turns: true}
	if Files != nil {
		c.Files = Files(t)
	}
	v := boot(t, c)
	if shared.vms == nil {
		shared.vms = make(map[string]*vm.VM)
	}
	shared.vms[machine] = v
	tell(t, v)
	return v
}

// tell has a test that fails tell the guest's last words, too.
func tell(t testing.TB, v *vm.VM) {
	t.Cleanup(func() {
		if !t.Failed() || !v.Obeys() {
			return
		}
		if said, err := v.RunFor("dmesg | tail -n 20", 20*time.Second, nil); err == nil {
			t.Logf("the guest's kernel said at last:\n%s", said)
		}
	})
}

// Boot boots a guest of one test's own; Dir is chosen here. The guest ends with
// the test.
func Boot(t testing.TB, c vm.Config) *vm.VM {
	t.Helper()
	long(t, false)
	shared.Lock()
	defer shared.Unlock()
	v := boot(t, c)
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(v.Dir)
	})
	tell(t, v)
	return v
}

func boot(t testing.TB, c vm.Config) *vm.VM {
	t.Helper()
	for times := 1; ; times++ {
		v := bootOne(t, c)
		if Suits == nil || times == 5 || Suits(t, v) {
			return v
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func bootOne(t testing.TB, c vm.Config) *vm.VM {
	t.Helper()
	dir, err := os.MkdirTemp("", "vm") // short: it holds sockets
	if err != nil {
		t.Fatal(err)
	}
	shared.dirs = append(shared.dirs, dir)
	c.Dir = dir
	v, err := vm.Boot(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Journalled tells whether the end of a guest's window, a file, says that text was changed.
func Journalled(t testing.TB, window string) bool {
	t.Helper()
	f, err := os.Open(window)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const journal, records = 256 << 10, 64
	b := make([]byte, journal-records)
	at, err := f.Seek(-int64(len(b)), io.SeekEnd)
	if err == nil {
		_, err = f.ReadAt(b, at)
	}
	if err != nil {
		t.Fatal(err)
	}
	return len(bytes.Trim(b, "\x00")) != 0
}
