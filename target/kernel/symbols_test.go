package kernel_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
)

// Where no memory is shared, a file has the kernel's symbols; one of another kernel is refused, and
// the guest goes on.
func TestSymbolsFromFile(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	files := []string{v.Kernel.Image()}
	if !testing.Short() { // the guest's console is slow
		list := filepath.Join(t.TempDir(), "kallsyms")
		if err := os.WriteFile(list, []byte(run(t, v, "cat /proc/kallsyms")), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, list)
	}
	var text string // the list as the last of them has it
	own := strings.TrimSpace(run(t, v, `grep -vc '\[' /proc/kallsyms`))
	for _, name := range files {
		k, err := kernel.Dial(v.Stub(), &gdbremote.Options{Symbols: name})
		if err != nil {
			t.Fatal(err)
		}
		var all bytes.Buffer
		k.Kernel().Table().WriteTo(&all)
		text = all.String()
		if have := strconv.Itoa(strings.Count(text, "\n")); have != own {
			t.Errorf("%s: %s symbols, the guest's kernel has %s", name, have, own)
		}
		s, err := kprobe.Open(k, &kprobe.Options{Unlisted: true, Report: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		hits := 0
		kp := &kprobe.Kprobe{SymbolName: "ksys_sync", PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { hits++; return 0 }}
		if err := s.RegisterKprobe(kp); err != nil {
			t.Error(err)
		}
		run(t, v, "sync; sync")
		if err := s.Close(); err != nil || hits != 2 {
			t.Errorf("%s: %d hits, %v", name, hits, err)
		}
	}
	moved := filepath.Join(t.TempDir(), "moved")
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if strings.HasSuffix(line, " filp_close\n") {
			lines[i] = line[:15] + "1" + line[16:]
		}
	}
	if err := os.WriteFile(moved, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := map[string]string{moved: "filp_close is elsewhere", "/nowhere/System.map": "no such file"}
	if !testprog.Gate() { // which fetches no further kernel
		other, err := vm.Fetch("arm64", "")
		if err != nil {
			t.Fatal(err)
		}
		wrong[other.Image()] = "there is no linux_banner"
	}
	for name, want := range wrong {
		k, err := kernel.Dial(v.Stub(), &gdbremote.Options{Symbols: name})
		if err == nil {
			k.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	run(t, v, "sync")
}
